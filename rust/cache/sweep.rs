// SPDX-License-Identifier: GPL-2.0

//! Snapshots of all CPUs that need one, in one call.
//!
//! A reader of many CPUs' files would have them interrupted one after the other. Whoever is about to
//! read them, a collector of metrics above all, first has this done; then the files cost nothing.
//!
//! No CPU's state is locked while the CPUs are called: somebody who reads a stale value meanwhile
//! takes a snapshot of his own, which then stays.

use super::{
    cpu::WINDOW_TRIES,
    Cache,
    Values, //
};
use crate::{
    engine::{
        Extent,
        Group, //
    },
    kapi::task,
    stats::Counter, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Acquire,
        Full,
        Relaxed, //
    }, //
};

/// What a CPU needs a snapshot for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Its snapshot is old.
    Fresh,
    /// Its frequency has no window before the latest sample.
    Window,
}

/// How old a snapshot may be at least before it is taken anew, in milliseconds: as with the files.
const YOUNGEST_MS: u64 = *super::CACHE_MS.start();

impl Values {
    /// How old a snapshot must be for it to be taken anew here. Less than what is served, so that those
    /// that are left will still be served when the files are read.
    pub(super) fn sweep_age_ms(&self) -> u64 {
        (self.max_age_ms() / 2).max(YOUNGEST_MS)
    }

    /// Takes a snapshot of every CPU that needs one, and returns how many did.
    fn sweep(&self, kept: &mut Option<Group>, need: Need) -> Result<u64> {
        let mut extent = Extent::default();
        for slot in &self.slots {
            if let Some(state) = &*slot.state.lock() {
                if !slot.leaving.load(Relaxed) && state.needs(self, need) {
                    extent.cpus = extent.cpus.saturating_add(1);
                    extent.ops = extent.ops.saturating_add(state.ops().len());
                }
            }
        }
        if extent.cpus == 0 {
            return Ok(0);
        }
        if need == Need::Window {
            let window_ns = self.window_us().saturating_mul(1000);
            task::sleep_killably_until(task::monotonic_ns().saturating_add(window_ns));
            if task::is_being_killed() {
                return Err(EINTR);
            }
        }

        let mut sweep = self.engine.sweep(kept, extent)?;
        for (cpu, slot) in self.slots.iter().enumerate() {
            if let Some(state) = &mut *slot.state.lock() {
                if !slot.leaving.load(Relaxed)
                    && state.needs(self, need)
                    && sweep.add(cpu as u32, state.ops())
                {
                    state.await_sweep();
                }
            }
        }
        let mut taken = 0u64;
        sweep.perform(kept, |cpu, ops, span| {
            let Ok(slot) = self.slot(cpu) else {
                return;
            };
            if let Some(state) = &mut *slot.state.lock() {
                taken = taken.wrapping_add(state.take_sweep(self, ops, span).into());
            }
        })?;
        if need == Need::Window {
            self.engine.stats.add(Counter::Windows, taken);
        }
        Ok(taken)
    }

    /// Sees to it that nobody waits any more for a window that could not be had.
    fn give_up_windows(&self) {
        for slot in &self.slots {
            if let Some(state) = &mut *slot.state.lock() {
                if state.needs(self, Need::Window) {
                    state.give_up_window();
                }
            }
        }
    }

    /// The longest window that one of the CPUs needs that have none, in microseconds.
    fn window_us(&self) -> u64 {
        let window_us = |slot: &Pin<KBox<super::Slot>>| {
            let state = slot.state.lock();
            let state = state
                .as_ref()
                .filter(|state| state.needs(self, Need::Window));
            state.map_or(0, |state| state.window_us())
        };
        self.slots.iter().map(window_us).max().unwrap_or(0)
    }
}

impl Cache {
    /// Sees to it that reading the values of all CPUs disturbs none of them for a while. Returns how
    /// many snapshots that took: where nothing has been read for long, two of each CPU that has a
    /// frequency, and more where readings are held up.
    ///
    /// [`ENOMEM`] if there is no memory; [`EINTR`] on a fatal signal. What has not been refreshed is
    /// as it was, and refreshed when it is read.
    pub(crate) fn refresh_all(&self) -> Result<u64> {
        // One at a time: the next one finds everything done.
        let before = self.swept.load(Acquire);
        let mut kept = self.sweeping.lock();
        if self.swept.load(Acquire) != before {
            // Somebody else's has come to its end since this call began. If it took so long that there
            // is something to do again, then not for everybody who has waited for it.
            return Ok(0);
        }
        // Others may be waiting for this, whom nothing can end meanwhile.
        let timeout_ms = self.values.engine.read_timeout_ms().into();
        let end = task::now_ms().saturating_add(timeout_ms);
        let mut taken = self.values.sweep(&mut kept, Need::Fresh)?;
        for _ in 0..WINDOW_TRIES {
            match self.values.sweep(&mut kept, Need::Window)? {
                0 => break,
                windows => taken = taken.wrapping_add(windows),
            }
            if task::now_ms() >= end {
                break;
            }
        }
        self.values.give_up_windows();
        self.swept.fetch_add(1u64, Full);
        Ok(taken)
    }
}
