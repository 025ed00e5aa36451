// SPDX-License-Identifier: GPL-2.0

//! Something to be done once on each of some CPUs.

use super::{
    wait::Deadline,
    Caller,
    Engine, //
};
use crate::{
    kapi::call_group::{
        CallGroup,
        Capacity,
        Work, //
    },
    logic::plan,
    stats::Counter, //
};
use kernel::prelude::*;

impl Engine {
    /// Performs one operation on each of `cpus`, all of them at once, and waits for them at most as
    /// long as for a single read; whoever is later performs it all the same.
    ///
    /// [`ENOMEM`] if there is no memory; [`EINTR`] on a fatal signal.
    #[inline(never)]
    pub(crate) fn on_each<W: Work>(
        &self,
        shared: W::Shared,
        cpus: &[(u32, W::Op)],
        caller: Caller<'_>,
    ) -> Result {
        let capacity = Capacity {
            slices: cpus.len(),
            ops: cpus.len(),
            index: 0,
        };
        self.stats.add(Counter::Allocations, 1);
        let mut group = CallGroup::<W>::new(capacity, self.bound, self.reaper.clone(), shared)?;
        let memory = group.memory();
        let places = memory.ops.iter_mut().zip(memory.plan.iter_mut());
        for (i, ((slot, slice), &(cpu, op))) in places.zip(cpus).enumerate() {
            *slot = op;
            *slice = plan::Slice {
                cpu,
                first: i as u32,
                len: 1,
            };
        }
        let mut flight = group.start(cpus.len()).map_err(|(_, error)| error)?;
        let deadline = Deadline::after_ms(self.read_timeout_ms());
        let flown = self.fly(&mut flight, deadline, caller);
        self.land(flight, drop);
        flown
    }

    /// How long a CPU may work at a stretch.
    pub(crate) fn bound(&self) -> crate::logic::round::Bound {
        self.bound
    }
}
