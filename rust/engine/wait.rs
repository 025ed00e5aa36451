// SPDX-License-Identifier: GPL-2.0

//! Waiting for answers.

use super::{
    Engine,
    ReadRegister, //
};
use crate::{
    kapi::{
        call_group::Flight,
        completion::Waited,
        task, //
    },
    stats::Counter, //
};
use kernel::{
    prelude::*,
    time::{
        msecs_to_jiffies,
        Jiffies, //
    },
};

/// When a call gives up.
#[derive(Clone, Copy)]
pub(super) struct Deadline(Option<Jiffies>);

impl Deadline {
    /// `ms` from now, and not earlier; never if that is 0.
    pub(super) fn after_ms(ms: u32) -> Self {
        // The present jiffy is partly over.
        Self((ms != 0).then(|| {
            task::jiffies()
                .wrapping_add(msecs_to_jiffies(ms))
                .wrapping_add(1)
        }))
    }

    /// How long until then; 0 if it is over.
    fn left(self) -> Option<Jiffies> {
        let left = self.0?.wrapping_sub(task::jiffies());
        Some(if left as isize > 0 { left } else { 0 })
    }
}

impl Engine {
    /// Waits for the calls in flight. Returns whether there are CPUs to be called again.
    pub(super) fn wait(
        &self,
        flight: &mut Flight<ReadRegister>,
        deadline: Deadline,
    ) -> Result<bool> {
        if flight.try_wait() {
            // Rounds on the caller's own CPU never sleep.
            if task::is_being_killed() {
                return Err(EINTR);
            }
            task::cond_resched();
            return Ok(flight.wants_dispatch() && deadline.left() != Some(0));
        }
        // While one CPU keeps the caller waiting, others may be through with a round and have
        // another to do; nobody tells, so look once a jiffy.
        let others = flight.may_need_rounds();
        self.stats.add(Counter::Sleeps, 1);
        let left = deadline.left();
        let nap = if others {
            Some(left.unwrap_or(1).min(1))
        } else {
            left
        };
        match flight.wait(nap) {
            Waited::Done => Ok(flight.wants_dispatch() && deadline.left() != Some(0)),
            Waited::TimedOut => Ok(deadline.left() != Some(0)),
            Waited::Killed => Err(EINTR),
        }
    }
}
