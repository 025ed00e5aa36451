// SPDX-License-Identifier: GPL-2.0

//! The device and plans: open, ioctl, user memory.

use crate::{
    cache::Cache,
    engine::{
        Batch,
        Engine,
        Manner,
        Plan,
        RunRequest,
        Spare,
        MAX_BATCH_OPS, //
    },
    kapi::{
        file::{
            Descriptor,
            NewFile, //
        },
        misc::{
            Attribute,
            Device, //
        },
        regs,
        uapi::{
            self,
            Info,
            Op, //
        },
    },
    logic::round,
    policy::{
        Access,
        AllowList,
        Narrowing,
        Policy,
        Refusal, //
    },
    stats::Counter, //
};
use kernel::{
    cpu::nr_cpu_ids,
    ioctl::{
        _IOC_NR,
        _IOC_SIZE,
        _IOC_TYPE, //
    },
    mm::virt::VmaNew,
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc,
    transmute::{
        AsBytes,
        FromBytes, //
    },
    uaccess::{
        UserPtr,
        UserSlice,
        UserSliceReader, //
    },
};

const NR_INFO: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_INFO);
const NR_READ: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_READ);
const NR_BATCH: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_BATCH);
const NR_PREPARE: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_PREPARE);
const NR_SET_ALLOW: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_SET_ALLOW);
const NR_GET_ALLOW: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_GET_ALLOW);
const NR_NARROW: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_NARROW);
const NR_REFUSALS: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_REFUSALS);
const NR_RUN: u32 = _IOC_NR(uapi::CPUPEEK_CONST_IOC_RUN);

/// What descriptors and attributes of the device share.
pub(crate) struct Shared {
    /// The engine.
    pub(crate) engine: Arc<Engine>,
    /// The named values.
    pub(crate) cache: Arc<Cache>,
    /// Who may do what.
    pub(crate) policy: Arc<Policy>,
}

/// An open descriptor of the device.
#[pin_data]
pub(crate) struct DeviceFile {
    engine: Arc<Engine>,
    access: Access,
    #[pin]
    spare: Spare,
}

macro_rules! counters {
    ($($name:literal => $counter:ident,)*) => {
        &[
            $(Attribute::ro($name, |shared: &Shared| shared.engine.stats.get(Counter::$counter)),)*
            Attribute::rw(
                c"read_timeout_ms",
                |shared: &Shared| shared.engine.read_timeout_ms().into(),
                |shared: &Shared, ms| shared.engine.set_read_timeout_ms(ms),
            ),
            Attribute::rw(
                c"spin_min_us",
                |shared: &Shared| shared.engine.spin_us().0.into(),
                |shared: &Shared, us| shared.engine.set_spin_min_us(us),
            ),
            Attribute::rw(
                c"spin_max_us",
                |shared: &Shared| shared.engine.spin_us().1.into(),
                |shared: &Shared, us| shared.engine.set_spin_max_us(us),
            ),
            Attribute::ro(c"allow_generation", |shared: &Shared| {
                shared.policy.generation()
            }),
            Attribute::ro(c"allow_ranges", |shared: &Shared| {
                shared.policy.allowed().map_or(0, |list| list.ranges().len() as u64)
            }),
            Attribute::rw(
                c"unprivileged_permille",
                |shared: &Shared| shared.policy.users.permille().into(),
                |shared: &Shared, permille| shared.policy.users.set_permille(permille),
            ),
            Attribute::rw(
                c"cache_ms",
                |shared: &Shared| shared.cache.cache_ms(),
                |shared: &Shared, ms| shared.cache.set_cache_ms(ms),
            ),
            Attribute::rw(
                c"energy_hold_s",
                |shared: &Shared| shared.cache.energy_hold_s(),
                |shared: &Shared, seconds| shared.cache.set_energy_hold_s(seconds),
            ),
            Attribute::rw(
                c"refresh_isolated",
                |shared: &Shared| shared.cache.refresh_isolated(),
                |shared: &Shared, on| shared.cache.set_refresh_isolated(on),
            ),
        ]
    };
}

impl Device for DeviceFile {
    const NAME: &'static CStr = c"cpupeek";
    const MODE: u16 = 0o600;
    const ATTRIBUTES: &'static [Attribute<Self>] = counters! {
        c"calls" => Calls,
        c"ops" => Ops,
        c"interrupts" => Interrupts,
        c"local_ops" => LocalOps,
        c"rounds" => Rounds,
        c"sleeps" => Sleeps,
        c"spins" => Spins,
        c"preempted" => Preempted,
        c"timeouts" => Timeouts,
        c"losses" => Losses,
        c"refused_registers" => RefusedRegisters,
        c"refused_cpus" => RefusedCpus,
        c"throttled" => Throttled,
        c"allocations" => Allocations,
        c"abandoned" => Abandoned,
        c"refreshes" => Refreshes,
        c"windows" => Windows,
    };
    type Shared = Shared;

    fn open(shared: &Shared) -> Result<Pin<KBox<Self>>> {
        KBox::try_pin_init(
            try_pin_init!(Self {
                engine: shared.engine.clone(),
                access: Access::of_current(shared.policy.clone())?,
                spare <- Spare::new(),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }
}

impl Descriptor for DeviceFile {
    fn ioctl(&self, cmd: u32, arg: UserPtr) -> Result {
        let size = _IOC_SIZE(cmd);
        match number(cmd)? {
            NR_INFO => self.info(arg, size),
            NR_READ => self.read(arg, size),
            NR_BATCH => self.batch(arg, size),
            NR_PREPARE => self.prepare(arg, size),
            NR_SET_ALLOW => self.set_allow(arg, size),
            NR_GET_ALLOW => self.get_allow(arg, size),
            NR_NARROW => self.narrow(arg, size),
            NR_REFUSALS => self.refusals(arg, size),
            _ => Err(ENOTTY),
        }
    }
}

/// The number of a command of ours.
fn number(cmd: u32) -> Result<u32> {
    if _IOC_TYPE(cmd) == uapi::CPUPEEK_IOC_TYPE {
        Ok(_IOC_NR(cmd))
    } else {
        Err(ENOTTY)
    }
}

impl DeviceFile {
    fn info(&self, arg: UserPtr, size: usize) -> Result {
        let info = Info {
            size: size_of::<Info>() as u32,
            reserved: 0,
            features: uapi::CPUPEEK_CONST_FEATURES,
            max_batch_ops: MAX_BATCH_OPS as u32,
            max_round_ops: round::MAX_OPS,
            nr_cpu_ids: nr_cpu_ids(),
            tsc_khz: regs::tsc_khz(),
            tsc_stable: regs::tsc_stable().into(),
            read_timeout_ms: self.engine.read_timeout_ms(),
        };
        let first = core::mem::offset_of!(Info, read_timeout_ms) + size_of::<u32>();
        answer(arg, size, &info, first)
    }

    fn read(&self, arg: UserPtr, size: usize) -> Result {
        let mut op: Op = fetch(arg, size)?;
        self.engine.stats.add(Counter::Calls, 1);
        self.engine.stats.add(Counter::Ops, 1);
        match self.access.check(&op) {
            Ok(()) => self.engine.read(&self.access, &self.spare, &mut op)?,
            Err(error) => op.refuse(error),
        }
        self.engine.count_refusal(&op);
        // What is after a longer structure's known part was zero, and has no answer in it.
        UserSlice::new(arg, size_of::<Op>()).writer().write(&op)
    }

    fn batch(&self, arg: UserPtr, size: usize) -> Result {
        let header: uapi::Batch = fetch_sized(arg, size, |header: &uapi::Batch| header.size)?;
        if header.reserved != 0 {
            return Err(EINVAL);
        }
        let (manner, tsc) = waiting(header.flags, header.tsc)?;
        let batch = Batch {
            timeout_ms: header.timeout_ms,
            manner,
            tsc,
            ..operations(header.ops, header.nr_ops, header.op_size)?
        };
        self.engine.stats.add(Counter::Calls, 1);
        self.engine.batch(&self.access, &self.spare, &batch)
    }

    fn prepare(&self, arg: UserPtr, size: usize) -> Result {
        let mut header: uapi::Prepare =
            fetch_sized(arg, size, |header: &uapi::Prepare| header.size)?;
        if header.flags != 0 || header.reserved != 0 {
            return Err(EINVAL);
        }
        let batch = operations(header.ops, header.nr_ops, header.op_size)?;
        let plan = Plan::new(self.engine.clone(), self.access.for_plan(), &batch)?;
        let file = NewFile::new(c"[cpupeek-plan]", plan)?;
        header.fd = file.number();
        UserSlice::new(arg, size_of::<uapi::Prepare>())
            .writer()
            .write(&header)?;
        file.install();
        Ok(())
    }

    fn set_allow(&self, arg: UserPtr, size: usize) -> Result {
        let mut header: uapi::Allow = fetch_sized(arg, size, |header: &uapi::Allow| header.size)?;
        if header.flags != 0 {
            return Err(EINVAL);
        }
        self.access.may_set_policy()?;
        let ranges = fetch_ranges(header.ranges, header.nr_ranges)?;
        let set = AllowList::new(ranges).and_then(|list| Ok(self.access.allow(list)?));
        header.bad_range = uapi::CPUPEEK_CONST_NO_RANGE;
        match set {
            Ok(generation) => header.generation = generation,
            Err(Refusal { range, .. }) => header.bad_range = range.unwrap_or(header.bad_range),
        }
        UserSlice::new(arg, size_of::<uapi::Allow>())
            .writer()
            .write(&header)?;
        set.map(|_| ()).map_err(|refusal| refusal.error)
    }

    fn get_allow(&self, arg: UserPtr, size: usize) -> Result {
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

    fn refusals(&self, arg: UserPtr, size: usize) -> Result {
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

    fn narrow(&self, arg: UserPtr, size: usize) -> Result {
        let header: uapi::Narrow = fetch_sized(arg, size, |header: &uapi::Narrow| header.size)?;
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
        self.access
            .narrow(Narrowing::new(header.flags, &ranges, cpus)?)
    }
}

/// Most ranges in one list.
const MAX_RANGES: usize = 4096;

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

impl Descriptor for Plan {
    fn ioctl(&self, cmd: u32, arg: UserPtr) -> Result {
        if number(cmd)? != NR_RUN {
            return Err(ENOTTY);
        }
        let header: uapi::Run = fetch_sized(arg, _IOC_SIZE(cmd), |header: &uapi::Run| header.size)?;
        let mapped = header.flags & uapi::CPUPEEK_RUN_MAPPED != 0;
        let (manner, tsc) = waiting(header.flags & !uapi::CPUPEEK_RUN_MAPPED, header.tsc)?;
        let expected = if mapped { 0 } else { self.len() };
        if header.nr_results as usize != expected || (mapped && header.results != 0) {
            return Err(EINVAL);
        }
        self.perform(&RunRequest {
            results: (!mapped).then(|| UserPtr::from_addr(header.results as usize)),
            timeout_ms: header.timeout_ms,
            manner,
            tsc,
        })
    }

    fn mmap(&self, vma: &VmaNew) -> Result {
        self.map(vma)
    }
}

/// Decodes the flags that batches and runs share: how to wait, and where time stamps go.
fn waiting(flags: u32, tsc: u64) -> Result<(Manner, Option<UserPtr>)> {
    let with_tsc = flags & uapi::CPUPEEK_BATCH_TSC_PAIR != 0;
    let manner = match flags & !uapi::CPUPEEK_BATCH_TSC_PAIR {
        0 => Manner::Adaptive,
        uapi::CPUPEEK_BATCH_SLEEP => Manner::Sleep,
        uapi::CPUPEEK_BATCH_SPIN => Manner::Spin,
        _ => return Err(EINVAL),
    };
    if tsc != 0 && !with_tsc {
        return Err(EINVAL);
    }
    Ok((manner, with_tsc.then(|| UserPtr::from_addr(tsc as usize))))
}

const _: () = assert!(
    uapi::CPUPEEK_RUN_SLEEP == uapi::CPUPEEK_BATCH_SLEEP
        && uapi::CPUPEEK_RUN_SPIN == uapi::CPUPEEK_BATCH_SPIN
        && uapi::CPUPEEK_RUN_TSC_PAIR == uapi::CPUPEEK_BATCH_TSC_PAIR
);

/// Checks where operations are: [`EINVAL`] for the distance, [`E2BIG`] for the number.
fn operations(ops: u64, count: u32, stride: u32) -> Result<Batch> {
    let (count, stride) = (count as usize, stride as usize);
    if stride < size_of::<Op>() || stride % align_of::<Op>() != 0 {
        return Err(EINVAL);
    }
    if count > MAX_BATCH_OPS {
        return Err(E2BIG);
    }
    // No overflow: the number is bounded, and the distance has 32 bits.
    let end = ops
        .checked_add(count as u64 * stride as u64)
        .ok_or(EFAULT)?;
    usize::try_from(end)?;
    Ok(Batch {
        ops: UserPtr::from_addr(ops as usize),
        count,
        stride,
        timeout_ms: 0,
        manner: Manner::Adaptive,
        tsc: None,
    })
}

/// Copies in a structure that says its own size, which may be larger than that of the command.
fn fetch_sized<T: FromBytes>(arg: UserPtr, size: usize, said: fn(&T) -> u32) -> Result<T> {
    let value = fetch(arg, size)?;
    let said = said(&value) as usize;
    if said < size_of::<T>() {
        return Err(EINVAL);
    }
    if said > size {
        if said > PAGE_SIZE {
            return Err(E2BIG);
        }
        let rest = UserSlice::new(arg.wrapping_byte_add(size), said - size);
        expect_zero(&mut rest.reader())?;
    }
    Ok(value)
}

/// Copies in a structure that the caller knows with `size` bytes. See "General ioctl format" in the
/// UAPI header.
fn fetch<T: FromBytes>(arg: UserPtr, size: usize) -> Result<T> {
    if size < size_of::<T>() {
        return Err(EINVAL);
    }
    let mut reader = UserSlice::new(arg, size).reader();
    let value = reader.read()?;
    expect_zero(&mut reader)?;
    Ok(value)
}

fn expect_zero(reader: &mut UserSliceReader) -> Result {
    while !reader.is_empty() {
        let mut bytes = [0u8; 64];
        let bytes = &mut bytes[..reader.len().min(64)];
        reader.read_slice(bytes)?;
        if bytes.iter().any(|&byte| byte != 0) {
            return Err(E2BIG);
        }
    }
    Ok(())
}

/// Copies out a structure to a caller who knows it with `size` bytes, and zeroes what is left.
/// `first` is the size that it had at first.
fn answer<T: AsBytes>(arg: UserPtr, size: usize, value: &T, first: usize) -> Result {
    if size < first {
        return Err(EINVAL);
    }
    let bytes = value.as_bytes();
    let known = bytes.get(..size).unwrap_or(bytes);
    let mut writer = UserSlice::new(arg, size).writer();
    writer.write_slice(known)?;
    while !writer.is_empty() {
        let zeroes = [0u8; 64];
        writer.write_slice(&zeroes[..writer.len().min(64)])?;
    }
    Ok(())
}
