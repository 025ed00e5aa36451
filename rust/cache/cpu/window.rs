// SPDX-License-Identifier: GPL-2.0

//! Windows between two samples of a CPU's counters, of which its frequency is made.

use super::CpuState;
use crate::{
    cache::Values,
    kapi::regs,
    logic::frequency::{
        is_window,
        rate,
        window,
        Sample, //
    },
    stats::Counter, //
};
use kernel::{
    prelude::*,
    time::{
        delay::fsleep,
        Delta, //
    },
};

/// How often to wait for a window: reading may take longer this time than it took before.
pub(in crate::cache) const WINDOW_TRIES: usize = 5;

impl CpuState {
    /// Sees to it that there is a window before the latest sample, by waiting for one.
    pub(super) fn widen(&mut self, values: &Values) -> Result {
        for _ in 0..WINDOW_TRIES {
            if !self.window_missing || self.waited_for == self.snapshot.generation() {
                return Ok(());
            }
            fsleep(Delta::from_micros(self.window_us() as i64));
            self.refresh(values)?;
            values.engine.stats.add(Counter::Windows, 1);
        }
        self.give_up_window();
        Ok(())
    }

    /// Takes in a sample of the frequency, whose last counter was read when the TSC was `end`.
    pub(super) fn sample(&mut self, values: &Values, end: u64) {
        let [.., aperf_op, mperf_op] = &*self.ops else {
            return;
        };
        let (Ok(aperf), Ok(mperf)) = (aperf_op.value(), mperf_op.value()) else {
            return;
        };
        if !self.has_perf {
            return;
        }
        let sample = Sample {
            tsc: aperf_op.tsc,
            aperf,
            mperf,
            read: end.wrapping_sub(aperf_op.tsc),
        };
        let khz = regs::tsc_khz();
        let longest = values.max_age_ms().saturating_mul(10);
        let longest = longest.saturating_mul(khz.into());
        let earlier = self.samples.iter();
        let old = earlier
            .filter(|old| old.tsc != 0)
            .find(|old| is_window(old, &sample, khz, longest));
        self.window_missing = old.is_none();
        if let Some(old) = old {
            let rate = rate(old, &sample, khz);
            self.permille = rate.permille;
            self.rate = rate.frequency.or(self.rate);
        }
        let mut newer = sample;
        for place in self.samples.iter_mut() {
            core::mem::swap(place, &mut newer);
        }
    }

    /// Nobody is to wait any more for a window before the latest sample, if there is none.
    pub(in crate::cache) fn give_up_window(&mut self) {
        self.waited_for = self.snapshot.generation();
    }

    /// How long to wait for a window, in microseconds.
    pub(in crate::cache) fn window_us(&self) -> u64 {
        let khz = u64::from(regs::tsc_khz()).max(1);
        // Not a window that suits a reading which was held up: the next one is likely not to be.
        let kept = self.samples.iter().filter(|sample| sample.tsc != 0);
        let usual = kept.map(|sample| sample.read).min();
        let cycles = window(usual.unwrap_or(0), khz as u32);
        (cycles / khz).saturating_mul(1000).min(1_000_000)
    }
}
