// SPDX-License-Identifier: GPL-2.0

//! A frequency from two samples of TSC, APERF and MPERF, and how wrong it may be.
//!
//! APERF and MPERF are read one after the other. If that takes another time for the second sample
//! than for the first, one counter has counted longer than the other between them; a read that is
//! delayed by 100 us made frequencies of 5 GHz out of a window of 2 us (LKML, October 2023,
//! "cpufreq: CPPC: Eliminate the impact of cpc_read() latency error"). The error is at most the
//! time of the longer reading over what MPERF counted; so the window has to be long against the
//! reading, and a value whose error could be larger than [`MAX_ERROR_PPM`] is none.

/// Shortest window, in microseconds.
pub const MIN_WINDOW_US: u64 = 1000;

/// The window is at least so many times the time of a reading.
const WINDOW_OVER_READ: u64 = 100;

/// Largest error of a value, in parts per million.
pub const MAX_ERROR_PPM: u64 = 10_000;

/// The three counters of a CPU, read in one stretch with interrupts off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// TSC immediately before the first of them was read.
    pub tsc: u64,
    /// APERF.
    pub aperf: u64,
    /// MPERF.
    pub mperf: u64,
    /// TSC cycles from `tsc` until the last of them was read.
    pub read: u64,
}

/// A frequency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Mean frequency while running.
    pub khz: u64,
    /// What that may be wrong by, in parts per million.
    pub error_ppm: u64,
}

/// What two samples say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// `None` if the CPU ran for too short a time for a value as exact as it must be, or if a
    /// counter was set in between.
    pub frequency: Option<Rate>,
    /// Part of the time spent running; `None` if a counter was set in between.
    pub permille: Option<u64>,
}

/// The shortest window that suits a reading that took `read` cycles, in cycles.
///
/// One cycle in a hundred is added, so that a caller who waits for it has it in spite of rounding.
pub const fn window(read: u64, tsc_khz: u32) -> u64 {
    let min = tsc_khz as u64 * MIN_WINDOW_US / 1000;
    let suits = read.saturating_mul(WINDOW_OVER_READ);
    let window = if suits > min { suits } else { min };
    window.saturating_add(window / 100)
}

/// Whether two samples are at least a suitable window apart, and at most `longest` cycles.
pub fn is_window(old: &Sample, new: &Sample, tsc_khz: u32, longest: u64) -> bool {
    let apart = new.tsc.wrapping_sub(old.tsc);
    let read = old.read.max(new.read);
    apart >= read.saturating_mul(WINDOW_OVER_READ)
        && apart >= u64::from(tsc_khz) * MIN_WINDOW_US / 1000
        && apart <= longest
}

/// What the samples say.
pub fn rate(old: &Sample, new: &Sample, tsc_khz: u32) -> Window {
    let aperf = new.aperf.wrapping_sub(old.aperf);
    let mperf = new.mperf.wrapping_sub(old.mperf);
    let tsc = new.tsc.wrapping_sub(old.tsc);
    // A counter that went backwards has been written, or its CPU was reset.
    if (aperf as i64) < 0 || (mperf as i64) < 0 || tsc as i64 <= 0 {
        return Window::default();
    }
    let frequency = || {
        // Rounded up: the value is not better than this.
        let read = old.read.max(new.read);
        let error = read.checked_mul(1_000_000)?;
        let error_ppm = error.checked_add(mperf.checked_sub(1)?)? / mperf;
        let khz = scale(aperf, tsc_khz.into(), mperf)?;
        (error_ppm <= MAX_ERROR_PPM).then_some(Rate { khz, error_ppm })
    };
    Window {
        frequency: frequency(),
        permille: scale(mperf, 1000, tsc).map(|permille| permille.min(1000)),
    }
}

/// `value` x `by` / `over`, rounded to the nearest; `None` if it does not fit.
fn scale(value: u64, by: u64, over: u64) -> Option<u64> {
    // The kernel has no division of 128 bits. Both are shortened until the product fits; what that
    // loses is less than one in 2^30 if `by` has 24 bits and `value` is at most 16 times `over`, as
    // frequencies are; for nonsense it is more.
    let bits = |n: u64| u64::BITS - n.leading_zeros();
    let shift = (bits(value) + bits(by)).saturating_sub(u64::BITS - 1);
    let (value, over) = (value >> shift, over >> shift);
    (value * by + over / 2).checked_div(over)
}
