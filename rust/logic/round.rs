// SPDX-License-Identifier: GPL-2.0

//! How long a CPU may work with its interrupts off.

/// Most operations that a CPU performs at a stretch.
pub const MAX_OPS: u32 = 64;

/// Most operations that a CPU performs for several callers without a break, but for one of each.
pub const MAX_SHARED_OPS: u32 = 4 * MAX_OPS;

/// Longest time that a CPU starts further operations in one stretch, in microseconds.
pub const MAX_US: u32 = 100;

/// How long a sampler may work that has waited for others, in microseconds, whatever they have done: about
/// what it costs to have a timer expire. With less, that would be most of what is done.
pub const TURN_US: u32 = 1;

/// The bound of a round on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    cycles: u64,
    turn: u64,
}

impl Bound {
    /// The bound where the time stamp counter runs at `tsc_khz`; 0 if that is unknown, which
    /// leaves the bound by number of operations.
    pub const fn new(tsc_khz: u32) -> Self {
        let cycles = tsc_khz as u64 * MAX_US as u64 / 1000;
        Self {
            cycles: if cycles == 0 { u64::MAX } else { cycles },
            turn: tsc_khz as u64 * TURN_US as u64 / 1000,
        }
    }

    /// Whether a round that started at the TSC value `start` may begin another operation at `now`.
    pub const fn open(self, start: u64, now: u64) -> bool {
        now.wrapping_sub(start) < self.cycles
    }
}

/// For how long interrupts have been off already when a round begins, because rounds of other callers
/// came before it in the same interrupt.
///
/// One interrupt has a CPU do whatever was asked of it until then. Without this, as many rounds as there
/// are callers would add up. With it, each of those that come too late performs one operation, and its
/// caller calls again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The TSC when the first of the rounds began.
    pub start: u64,
    /// Operations that all of them have performed.
    pub ops: u32,
}

impl Stretch {
    /// Begins with a round at the TSC value `now`.
    pub const fn new(now: u64) -> Self {
        Self { start: now, ops: 0 }
    }

    /// Whether a round that has performed `performed` operations by itself may begin another at `now`.
    pub const fn open(self, bound: Bound, performed: u32, now: u64) -> bool {
        self.ops.saturating_add(performed) < MAX_SHARED_OPS && bound.open(self.start, now)
    }

    /// After a round of so many operations.
    pub const fn after(self, performed: u32) -> Self {
        Self {
            start: self.start,
            ops: self.ops.saturating_add(performed),
        }
    }
}

/// What samplers have done on one CPU without a break, such as those whose timers expire in the same
/// interrupt.
///
/// They may work for as long together as one of them may alone. Those that come after that wait once, in
/// groups that are as large as this one was, and then have a short turn each, of at least one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplerStretch {
    /// The TSC when the first of them began.
    pub start: u64,
    /// How many have had their turn.
    pub served: u32,
    /// How many were put off.
    pub waiting: u32,
}

impl SamplerStretch {
    /// Begins at the TSC value `now`.
    pub const fn new(now: u64) -> Self {
        Self {
            start: now,
            served: 0,
            waiting: 0,
        }
    }

    /// Whether another operation may begin at `now`.
    pub const fn open(&self, bound: Bound, now: u64) -> bool {
        bound.open(self.start, now)
    }

    /// The same for one whose turn has begun at `turn`.
    pub const fn open_in(&self, turn: u64, bound: Bound, now: u64) -> bool {
        self.open(bound, now) || now.wrapping_sub(turn) < bound.turn
    }

    /// One has its turn.
    pub const fn serve(&mut self) {
        self.served = self.served.saturating_add(1);
    }

    /// One is put off. Returns the number of its group, from 1.
    pub const fn put_off(&mut self) -> u32 {
        let group = if self.served == 0 { 1 } else { self.served };
        let number = (self.waiting / group).saturating_add(1);
        self.waiting = self.waiting.saturating_add(1);
        number
    }
}
