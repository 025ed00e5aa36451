// SPDX-License-Identifier: GPL-2.0

//! When samples are due. Times are in nanoseconds of the monotonic clock.

/// Longest and shortest interval.
pub const INTERVAL_NS: core::ops::RangeInclusive<u64> = 1_000_000..=3_600_000_000_000;

/// A multiple of `tick_ns` that is not below `interval_ns`.
pub const fn whole_ticks(interval_ns: u64, tick_ns: u64) -> u64 {
    match interval_ns.checked_next_multiple_of(if tick_ns == 0 { 1 } else { tick_ns }) {
        Some(whole) => whole,
        None => interval_ns,
    }
}

/// When the next sample is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    interval: u64,
    next: u64,
}

impl Schedule {
    /// Every `interval` nanoseconds from `now` on, for the first time now.
    pub const fn new(interval: u64, now: u64) -> Self {
        Self {
            interval: if interval == 0 { 1 } else { interval },
            next: now,
        }
    }

    /// When the next sample is due.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Moves on to the first time after `now`. Returns how many there were up to `now` in between,
    /// besides the one that was due.
    pub fn pass(&mut self, now: u64) -> u64 {
        let late = now.saturating_sub(self.next);
        let passed = late.checked_div(self.interval).unwrap_or(0);
        let periods = passed.saturating_add(1);
        let later = periods.saturating_mul(self.interval);
        self.next = self.next.saturating_add(later);
        passed
    }
}
