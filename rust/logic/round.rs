// SPDX-License-Identifier: GPL-2.0

//! How long a CPU may work with its interrupts off.

/// Most operations that a CPU performs at a stretch.
pub const MAX_OPS: u32 = 64;

/// Longest time that a CPU starts further operations in one stretch, in microseconds.
pub const MAX_US: u32 = 100;

/// The bound of a round on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    cycles: u64,
}

impl Bound {
    /// The bound where the time stamp counter runs at `tsc_khz`; 0 if that is unknown, which
    /// leaves the bound by number of operations.
    pub const fn new(tsc_khz: u32) -> Self {
        let cycles = tsc_khz as u64 * MAX_US as u64 / 1000;
        Self {
            cycles: if cycles == 0 { u64::MAX } else { cycles },
        }
    }

    /// Whether a round that started at the TSC value `start` may begin another operation at `now`.
    pub const fn open(self, start: u64, now: u64) -> bool {
        now.wrapping_sub(start) < self.cycles
    }
}
