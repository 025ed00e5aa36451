// SPDX-License-Identifier: GPL-2.0

//! Commands on the allowlist, and narrowing.

use super::{
    copy::fetch_sized,
    DeviceFile, //
};
use crate::{
    kapi::uapi,
    policy::{
        AllowList,
        Narrowing,
        Refusal,
        MAX_RANGES, //
    },
};
use kernel::{
    cpu::nr_cpu_ids,
    prelude::*,
    transmute::AsBytes,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

/// Copies in ranges of registers.
fn fetch_ranges(ranges: u64, count: u32) -> Result<KVVec<uapi::Range>> {
    let count = count as usize;
    if count > MAX_RANGES {
        return Err(E2BIG);
    }
    let empty: uapi::Range = pin_init::zeroed();
    let mut copy = KVVec::from_elem(empty, count, GFP_KERNEL_ACCOUNT)?;
    let bytes = AsBytes::as_bytes_mut(&mut *copy);
    UserSlice::new(UserPtr::from_addr(ranges as usize), bytes.len())
        .reader()
        .read_slice(bytes)?;
    Ok(copy)
}

impl DeviceFile {
    #[inline(never)]
    pub(super) fn set_allow(&self, arg: UserPtr, size: usize) -> Result {
        let mut header: uapi::Allow = fetch_sized(arg, size, |header: &uapi::Allow| header.size)?;
        if header.flags != 0 {
            return Err(EINVAL);
        }
        self.access.may_set_policy()?;
        let ranges = fetch_ranges(header.ranges, header.nr_ranges)?;
        header.bad_range = uapi::CPUPEEK_CONST_NO_RANGE;
        let answer = |header: &uapi::Allow| {
            UserSlice::new(arg, size_of::<uapi::Allow>())
                .writer()
                .write(header)
        };
        match AllowList::new(ranges) {
            // The answer first: a list whose number cannot be told is not set.
            Ok(list) => {
                self.access.allow(list, |generation| {
                    header.generation = generation;
                    answer(&header)
                })?;
                self.samplers.recheck();
                Ok(())
            }
            Err(Refusal { range, error }) => {
                header.bad_range = range.unwrap_or(header.bad_range);
                answer(&header)?;
                Err(error)
            }
        }
    }

    #[inline(never)]
    pub(super) fn get_allow(&self, arg: UserPtr, size: usize) -> Result {
        let mut header: uapi::Allow = fetch_sized(arg, size, |header: &uapi::Allow| header.size)?;
        if header.flags != 0 {
            return Err(EINVAL);
        }
        let list = self.access.allowed()?;
        let ranges = list.ranges();
        let room = ranges.get(..header.nr_ranges as usize).unwrap_or(ranges);
        let bytes = AsBytes::as_bytes(room);
        UserSlice::new(UserPtr::from_addr(header.ranges as usize), bytes.len())
            .writer()
            .write_slice(bytes)?;
        header.nr_ranges = ranges.len() as u32;
        header.bad_range = uapi::CPUPEEK_CONST_NO_RANGE;
        header.generation = list.generation();
        UserSlice::new(arg, size_of::<uapi::Allow>())
            .writer()
            .write(&header)
    }

    #[inline(never)]
    pub(super) fn refusals(&self, arg: UserPtr, size: usize) -> Result {
        let mut header: uapi::Refusals =
            fetch_sized(arg, size, |header: &uapi::Refusals| header.size)?;
        if header.flags != 0 || header.reserved != 0 {
            return Err(EINVAL);
        }
        self.access.may_set_policy()?;
        let refusals = self.access.refusals();
        let mut place = UserPtr::from_addr(header.entries as usize);
        let mut count = 0u32;
        for refusal in refusals.entries() {
            if count < header.nr_entries {
                UserSlice::new(place, size_of::<uapi::Refusal>())
                    .writer()
                    .write(&refusal)?;
                place = place.wrapping_byte_add(size_of::<uapi::Refusal>());
            }
            count = count.wrapping_add(1);
        }
        header.nr_entries = count;
        header.others = refusals.others();
        UserSlice::new(arg, size_of::<uapi::Refusals>())
            .writer()
            .write(&header)
    }

    #[inline(never)]
    pub(super) fn narrow(&self, arg: UserPtr, size: usize) -> Result {
        self.access.narrow(fetch_narrowing(arg, size)?)
    }
}

/// Copies in what a descriptor is to be narrowed to.
#[inline(never)]
pub(super) fn fetch_narrowing(arg: UserPtr, size: usize) -> Result<Narrowing> {
    let header: uapi::Narrow = fetch_sized(arg, size, |header: &uapi::Narrow| header.size)?;
    let wants = |flag| header.flags & flag != 0;
    if (header.ranges != 0 && !wants(uapi::CPUPEEK_NARROW_MSRS))
        || (header.cpus != 0 && !wants(uapi::CPUPEEK_NARROW_CPUS))
    {
        return Err(EINVAL);
    }
    let ranges = fetch_ranges(header.ranges, header.nr_ranges)?;
    let cpus_size = header.cpus_size as usize;
    if cpus_size % size_of::<u64>() != 0 {
        return Err(EINVAL);
    }
    // More CPU numbers than there can be are no use, and would be memory for nothing.
    let most = (nr_cpu_ids() as usize).div_ceil(64);
    let words = (cpus_size / size_of::<u64>()).min(most);
    let mut cpus = KVVec::from_elem(0u64, words, GFP_KERNEL_ACCOUNT)?;
    UserSlice::new(
        UserPtr::from_addr(header.cpus as usize),
        words * size_of::<u64>(),
    )
    .reader()
    .read_slice(AsBytes::as_bytes_mut(&mut *cpus))?;
    Narrowing::new(header.flags, &ranges, cpus)
}
