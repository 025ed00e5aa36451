// SPDX-License-Identifier: GPL-2.0

//! What a descriptor was narrowed to.

use crate::{
    kapi::uapi::{
        Range as RawRange,
        CPUPEEK_NARROW_CPUS,
        CPUPEEK_NARROW_MSRS,
        CPUPEEK_NARROW_NO_CPUID, //
    },
    logic::policy::{
        intersect,
        normalize,
        Range,
        Ranges, //
    },
};
use kernel::prelude::*;

/// Most ranges in one list, of whatever kind.
pub(crate) const MAX_RANGES: usize = 4096;

/// A restriction.
pub(crate) struct Narrowing {
    /// No MSRs but these.
    msrs: Option<KVVec<Range>>,
    /// No CPUs but these: a bitmap.
    cpus: Option<KVVec<u64>>,
    no_cpuid: bool,
}

fn copy<T: Copy>(from: &[T]) -> Result<KVVec<T>> {
    let mut copy = KVVec::new();
    copy.extend_from_slice(from, GFP_KERNEL_ACCOUNT)?;
    Ok(copy)
}

impl Narrowing {
    /// The restriction that `flags` ask for. [`EINVAL`] if they are unknown or none, or a range is
    /// malformed.
    pub(crate) fn new(flags: u32, ranges: &[RawRange], cpus: KVVec<u64>) -> Result<Self> {
        let known = CPUPEEK_NARROW_MSRS | CPUPEEK_NARROW_CPUS | CPUPEEK_NARROW_NO_CPUID;
        if flags == 0 || flags & !known != 0 {
            return Err(EINVAL);
        }
        let by_msrs = flags & CPUPEEK_NARROW_MSRS != 0;
        let by_cpus = flags & CPUPEEK_NARROW_CPUS != 0;
        if (!by_msrs && !ranges.is_empty()) || (!by_cpus && !cpus.is_empty()) {
            return Err(EINVAL);
        }
        let mut msrs = KVVec::with_capacity(ranges.len(), GFP_KERNEL_ACCOUNT)?;
        for &RawRange {
            lo,
            hi,
            flags,
            reserved,
        } in ranges
        {
            if lo > hi || flags != 0 || reserved != 0 {
                return Err(EINVAL);
            }
            msrs.push(Range { lo, hi }, GFP_KERNEL_ACCOUNT)?;
        }
        let used = normalize(&mut msrs);
        msrs.truncate(used);
        Ok(Self {
            msrs: by_msrs.then_some(msrs),
            cpus: by_cpus.then_some(cpus),
            no_cpuid: flags & CPUPEEK_NARROW_NO_CPUID != 0,
        })
    }

    /// What both this and `other` allow. [`E2BIG`] if that is too many ranges.
    pub(super) fn and(&self, other: &Self) -> Result<Self> {
        let msrs = match (&self.msrs, &other.msrs) {
            (Some(one), Some(other)) => {
                let mut both = KVVec::new();
                intersect(one, other, |range| {
                    if both.len() >= MAX_RANGES {
                        return Err(E2BIG);
                    }
                    Ok(both.push(range, GFP_KERNEL_ACCOUNT)?)
                })?;
                Some(both)
            }
            (Some(one), None) | (None, Some(one)) => Some(copy(one)?),
            (None, None) => None,
        };
        let cpus = match (&self.cpus, &other.cpus) {
            (Some(one), Some(other)) => {
                let mut both = KVVec::new();
                for (one, other) in one.iter().zip(other) {
                    both.push(one & other, GFP_KERNEL_ACCOUNT)?;
                }
                Some(both)
            }
            (Some(one), None) | (None, Some(one)) => Some(copy(one)?),
            (None, None) => None,
        };
        Ok(Self {
            msrs,
            cpus,
            no_cpuid: self.no_cpuid || other.no_cpuid,
        })
    }

    /// Whether an MSR, or CPUID, may be read.
    pub(super) fn allows(&self, is_msr: bool, reg: u32) -> bool {
        match &self.msrs {
            _ if !is_msr => !self.no_cpuid,
            Some(msrs) => Ranges::new(msrs).contains(reg),
            None => true,
        }
    }

    /// Whether a CPU may be asked.
    pub(super) fn allows_cpu(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| {
            let word = cpus.get(cpu as usize / 64);
            word.is_some_and(|word| word >> (cpu % 64) & 1 != 0)
        })
    }
}
