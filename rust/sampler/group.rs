// SPDX-License-Identifier: GPL-2.0

//! A sampler's operations, checked and grouped by CPU.

use super::part::Entry;
use crate::{
    kapi::uapi::{
        Op,
        OpResult,
        Slot,
        CPU_SELF, //
    },
    logic::{
        plan::{
            self,
            Planner, //
        },
        round,
    },
    policy::Access,
};
use kernel::{
    cpu::nr_cpu_ids,
    prelude::*, //
};

/// Operations grouped by CPU, and checked.
pub(super) struct Grouped {
    slices: KVVec<plan::Slice>,
    pub(super) used: usize,
    pub(super) entries: KVVec<Entry>,
}

impl Grouped {
    /// [`EINVAL`] and [`ENXIO`] for an operation that cannot be sampled, [`E2BIG`] for too many on a
    /// CPU.
    #[inline(never)]
    pub(super) fn new(access: &Access, ops: &mut [Op]) -> Result<Self> {
        let cpus = nr_cpu_ids() as usize;
        let mut index = KVVec::from_elem(0u32, cpus, GFP_KERNEL_ACCOUNT)?;
        let room = cpus.min(ops.len());
        let mut slices = KVVec::from_elem(plan::Slice::default(), room, GFP_KERNEL_ACCOUNT)?;
        let mut planner = Planner::new(&mut index, &mut slices);
        for op in ops.iter_mut() {
            if op.cpu == CPU_SELF {
                return Err(EINVAL);
            }
            // A thread's own CPU is no exception: the thread may leave it, and the timer does not.
            let checked = access.check(op);
            let checked = checked.and_then(|()| access.check_cpu(op, CPU_SELF));
            match checked {
                Err(error) if error == EINVAL || error == ENXIO => return Err(error),
                checked => op.await_answer(checked),
            }
            if !planner.count(op.cpu) {
                return Err(ENXIO);
            }
        }
        planner.layout();
        let nothing: Op = pin_init::zeroed();
        let empty = Entry::new(nothing);
        let mut entries = KVVec::from_elem(empty, ops.len(), GFP_KERNEL_ACCOUNT)?;
        for op in ops.iter() {
            let place = planner.place(op.cpu).ok_or(EINVAL)?;
            *entries.get_mut(place as usize).ok_or(EINVAL)? = Entry::new(*op);
        }
        let used = planner.finish().len();
        let grouped = Self {
            slices,
            used,
            entries,
        };
        if grouped.slices().any(|slice| slice.len > round::MAX_OPS) {
            return Err(E2BIG);
        }
        Ok(grouped)
    }

    pub(super) fn slices(&self) -> impl Iterator<Item = &plan::Slice> {
        self.slices.iter().take(self.used)
    }

    pub(super) fn largest(&self) -> u64 {
        let most = self.slices().map(|slice| slice.len).max().unwrap_or(0);
        let results = u64::from(most).saturating_mul(size_of::<OpResult>() as u64);
        results.saturating_add(size_of::<Slot>() as u64)
    }
}
