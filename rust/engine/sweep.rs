// SPDX-License-Identifier: GPL-2.0

//! The same few operations on each of many CPUs, in one call, for nobody's account.

use super::{
    wait::Deadline,
    Caller,
    Engine,
    Group,
    Manner, //
};
use crate::{
    kapi::{
        call_group::Capacity,
        uapi::Op, //
    },
    logic::plan,
    stats::Counter, //
};
use kernel::prelude::*;

/// How much there is to read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extent {
    /// Number of CPUs.
    pub(crate) cpus: usize,
    /// Number of operations on all of them.
    pub(crate) ops: usize,
}

/// A call that is being put together. Of each CPU it has all operations or none.
pub(crate) struct Sweep<'a> {
    engine: &'a Engine,
    group: Group,
    used: Extent,
}

impl Engine {
    /// A call with room for `extent`. `kept` is memory that an earlier one has left.
    ///
    /// [`ENOMEM`] if there is no memory.
    pub(crate) fn sweep(&self, kept: &mut Option<Group>, extent: Extent) -> Result<Sweep<'_>> {
        let capacity = Capacity {
            slices: extent.cpus,
            ops: extent.ops,
            index: 0,
        };
        let group = match kept.take() {
            Some(group) if group.holds(capacity) => group,
            _ => self.new_group(capacity)?,
        };
        Ok(Sweep {
            engine: self,
            group,
            used: Extent::default(),
        })
    }
}

impl Sweep<'_> {
    /// Adds the operations of a CPU that has none in it yet. Returns whether there was room.
    pub(crate) fn add(&mut self, cpu: u32, ops: &[Op]) -> bool {
        let first = self.used.ops;
        let end = first.saturating_add(ops.len());
        let memory = self.group.memory();
        let (Some(slots), Some(slice)) = (
            memory.ops.get_mut(first..end),
            memory.plan.get_mut(self.used.cpus),
        ) else {
            return false;
        };
        for (slot, op) in slots.iter_mut().zip(ops) {
            *slot = *op;
            slot.await_answer(Ok(()));
        }
        *slice = plan::Slice {
            cpu,
            first: first as u32,
            len: ops.len() as u32,
        };
        self.used.ops = end;
        self.used.cpus = self.used.cpus.saturating_add(1);
        true
    }

    /// Calls all of the CPUs, and waits for at most as long as a single read does. `answered` is told
    /// of each that has answered in full: its operations, in the order that they were added in, and its
    /// TSC before the first and after the last of them; and without a TSC of each that had its time and
    /// has not. The memory is left in `kept`.
    ///
    /// [`EINTR`] on a fatal signal.
    #[inline(never)]
    pub(crate) fn perform(
        self,
        kept: &mut Option<Group>,
        mut answered: impl FnMut(u32, &[Op], Option<(u64, u64)>),
    ) -> Result {
        let engine = self.engine;
        let started = self.group.start(self.used.cpus);
        let mut flight = started.map_err(|(_, error)| error)?;
        let deadline = Deadline::after_ms(engine.read_timeout_ms());
        let caller = Caller {
            user: None,
            manner: Manner::Adaptive,
            is_patient: false,
        };
        let flown = engine.fly(&mut flight, deadline, caller);
        for view in flight.views().0 {
            match view.len.saturating_sub(view.done.len()) as u64 {
                0 => answered(view.cpu, view.done, Some(view.tsc)),
                missing if view.lost => engine.stats.add(Counter::Losses, missing),
                missing => {
                    engine.stats.add(Counter::Timeouts, missing);
                    if flown.is_ok() {
                        answered(view.cpu, view.done, None);
                    }
                }
            }
        }
        engine.land(flight, |group| *kept = Some(group));
        flown
    }
}
