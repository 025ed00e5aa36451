// SPDX-License-Identifier: GPL-2.0

//! A share of a CPU's time, and who has used more than that.
//!
//! The generic cell rate algorithm (ITU-T I.371): one number says until when the time that was used
//! would last at the rate that is allowed. Whoever is ahead of that by more than a burst waits.

/// What an interrupt is taken to cost its CPU beyond its operations, learnt from what handlers have
/// taken lately. In any unit of time.
///
/// The mean, exponentially weighted. An interrupt that took many times as long as usual was itself
/// interrupted, by a host for example: it counts for four usual ones.
pub const fn learn_overhead(usual: u32, took: u64) -> u32 {
    let most = (usual as u64 + 256) * 4;
    let took = if took < most { took } else { most };
    let learnt = (usual as u64 * 7 + took) / 8;
    if learnt < u32::MAX as u64 {
        learnt as u32
    } else {
        u32::MAX
    }
}

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
        let from = if until > now { until } else { now };
        from.saturating_add(self.lasts_ns(used_ns))
    }

    /// Gives back what has been charged and was not used.
    pub const fn refund(self, until: u64, unused_ns: u64) -> u64 {
        until.saturating_sub(self.lasts_ns(unused_ns))
    }

    /// How long so much of the CPU's time lasts at the rate.
    pub const fn lasts_ns(self, ns: u64) -> u64 {
        let permille = if self.permille == 0 { 1 } else { self.permille };
        ns.saturating_mul(1000) / permille as u64
    }
}
