// SPDX-License-Identifier: GPL-2.0

//! A share of a CPU's time, and who has used more than that.
//!
//! The generic cell rate algorithm (ITU-T I.371): one number says until when the time that was used
//! would last at the rate that is allowed. Whoever is ahead of that by more than a burst waits.

/// How a CPU's time may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// Permille of the time; 1000 and more is no limit.
    pub permille: u32,
    /// How much may be used at once, in the time that it would take at the rate, in nanoseconds.
    pub burst_ns: u64,
}

impl Throttle {
    /// How long to wait at `now` before using more, where `until` is what [`Self::charge`] returned
    /// last.
    pub const fn wait_ns(self, until: u64, now: u64) -> u64 {
        if self.permille >= 1000 {
            return 0;
        }
        until.saturating_sub(now).saturating_sub(self.burst_ns)
    }

    /// Charges `used_ns` of the CPU's time at `now`. Returns the new number.
    pub const fn charge(self, until: u64, now: u64, used_ns: u64) -> u64 {
        let permille = if self.permille == 0 { 1 } else { self.permille };
        let lasts = used_ns.saturating_mul(1000) / permille as u64;
        let from = if until > now { until } else { now };
        from.saturating_add(lasts)
    }
}
