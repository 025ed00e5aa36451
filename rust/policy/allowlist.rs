// SPDX-License-Identifier: GPL-2.0

//! The allowlist: MSRs for everybody who can open the device.

use crate::{
    kapi::uapi::{
        Range as RawRange,
        CPUPEEK_RANGE_UNSAFE, //
    },
    logic::policy::{
        normalize,
        registers::{
            most_guarded,
            Class,
            FREE, //
        },
        MsrSet,
        Range,
        Shape, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Why a list is refused, and for which of its ranges if it is for one.
#[derive(Clone, Copy)]
pub(crate) struct Refusal {
    /// The error.
    pub(crate) error: Error,
    /// Index of the range.
    pub(crate) range: Option<u32>,
}

impl<E: Into<Error>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self {
            error: error.into(),
            range: None,
        }
    }
}

/// A list, which does not change.
pub(crate) struct AllowList {
    generation: u64,
    /// As they were given.
    ranges: KVVec<RawRange>,
    shape: Shape,
    words: KVVec<u64>,
}

impl AllowList {
    /// The default: what is known to be harmless.
    pub(super) fn of_harmless() -> Result<Arc<Self>> {
        let mut ranges = KVVec::with_capacity(FREE.len(), GFP_KERNEL)?;
        for rule in FREE {
            let range = RawRange {
                lo: rule.range.lo,
                hi: rule.range.hi,
                flags: 0,
                reserved: 0,
            };
            ranges.push(range, GFP_KERNEL)?;
        }
        let list = Self::new(ranges).map_err(|refusal| refusal.error)?;
        Ok(Arc::new(list, GFP_KERNEL)?)
    }

    /// Checks ranges and makes a list of them.
    pub(crate) fn new(ranges: KVVec<RawRange>) -> Result<Self, Refusal> {
        let mut normalized = KVVec::with_capacity(ranges.len(), GFP_KERNEL_ACCOUNT)?;
        for (i, range) in ranges.iter().enumerate() {
            let checked = check(range).map_err(|error| Refusal {
                error,
                range: Some(i as u32),
            })?;
            normalized.push(checked, GFP_KERNEL_ACCOUNT)?;
        }
        let used = normalize(&mut normalized);
        normalized.truncate(used);

        let mut scratch = KVVec::from_elem(0, Shape::SCRATCH, GFP_KERNEL_ACCOUNT)?;
        let shape = Shape::new(&normalized, &mut scratch).ok_or(E2BIG)?;
        let mut words = KVVec::from_elem(0, shape.words(), GFP_KERNEL_ACCOUNT)?;
        MsrSet::fill(shape, &normalized, &mut words);
        Ok(Self {
            generation: 1,
            ranges,
            shape,
            words,
        })
    }

    /// The list's number.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn set_generation(&mut self, generation: u64) {
        self.generation = generation;
    }

    /// The ranges as they were given.
    pub(crate) fn ranges(&self) -> &[RawRange] {
        &self.ranges
    }

    /// Whether an MSR is on the list.
    #[inline(always)]
    pub(super) fn contains(&self, reg: u32) -> bool {
        MsrSet::new(self.shape, &self.words).contains(reg)
    }
}

fn check(range: &RawRange) -> Result<Range> {
    if range.lo > range.hi || range.reserved != 0 || range.flags & !CPUPEEK_RANGE_UNSAFE != 0 {
        return Err(EINVAL);
    }
    let checked = Range {
        lo: range.lo,
        hi: range.hi,
    };
    match most_guarded(checked).0 {
        Class::Never => Err(EACCES),
        Class::Guarded if range.flags & CPUPEEK_RANGE_UNSAFE == 0 => Err(EPERM),
        Class::Guarded | Class::Free => Ok(checked),
    }
}
