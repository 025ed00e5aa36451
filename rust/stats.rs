// SPDX-License-Identifier: GPL-2.0

//! Statistics: what the engine has done since the module was loaded.

use crate::kapi::regs;
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// What is counted. All but one are read-only attributes of the device with the same name.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(crate) enum Counter {
    /// Single reads on the caller's own CPU. Counted once for calls, operations and local
    /// operations, which are shown with these added: the path is short enough to feel it.
    LocalReads,
    /// Other commands that read registers.
    Calls,
    /// Operations in them, refused ones included.
    Ops,
    /// Calls queued on other CPUs. Each is one interrupt, or none if the target was idling in a
    /// state that polls.
    Interrupts,
    /// Operations performed on the caller's own CPU, without an interrupt.
    LocalOps,
    /// Rounds: times that a set of CPUs was called together.
    Rounds,
    /// Waits that slept.
    Sleeps,
    /// Waits that spun, and did not need to sleep.
    Spins,
    /// Spins given up because a target's virtual CPU was not running.
    Preempted,
    /// Operations that were not answered in time.
    Timeouts,
    /// Operations on CPUs that were not there, or went away.
    Losses,
    /// Operations on registers that the policy refuses.
    RefusedRegisters,
    /// Operations on CPUs that the policy refuses.
    RefusedCpus,
    /// Waits of users who have used too much of a CPU's time.
    Throttled,
    /// Allocations made to call other CPUs.
    Allocations,
    /// Callers that walked away from calls in flight.
    Abandoned,
    /// Snapshots taken of a CPU's named values.
    Refreshes,
    /// Those of them that were taken for a frequency, after waiting for a window.
    Windows,
    /// Samples that samplers have taken.
    Samples,
    /// Periods in which they took none because they had used all the time that they may.
    SkippedSamples,
}

impl Counter {
    const COUNT: usize = Self::SkippedSamples as usize + 1;
}

/// As many copies of the counters as keep CPUs off each other's cache lines on small machines, and
/// rarely on each other's on large ones.
const SHARDS: usize = 16;

#[repr(align(64))]
struct Shard([Atomic<u64>; Counter::COUNT]);

/// The counters. In memory of their own: they are too large for a stack.
pub(crate) struct Stats(KVVec<Shard>);

impl Stats {
    /// All zero.
    pub(crate) fn new() -> Result<Self> {
        let mut shards = KVVec::with_capacity(SHARDS, GFP_KERNEL)?;
        for _ in 0..SHARDS {
            let zeroes = core::array::from_fn(|_| Atomic::new(0));
            shards.push(Shard(zeroes), GFP_KERNEL)?;
        }
        Ok(Self(shards))
    }

    /// Adds `n` to a counter.
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        self.add_near(regs::current_cpu(), counter, n);
    }

    /// The same on a CPU, or about there.
    pub(crate) fn add_near(&self, cpu: u32, counter: Counter, n: u64) {
        if let Some(shard) = self.0.get(cpu as usize % SHARDS) {
            shard.0[counter as usize].add(n, Relaxed);
        }
    }

    /// The value of a counter.
    pub(crate) fn get(&self, counter: Counter) -> u64 {
        let shards = self.0.iter();
        shards.fold(0, |sum, shard| {
            sum.wrapping_add(shard.0[counter as usize].load(Relaxed))
        })
    }
}
