// SPDX-License-Identifier: GPL-2.0

//! What a timer and tasks change in turn: see [`crate::logic::sampling::claim`].

use crate::logic::sampling::claim::{
    Claim,
    Word, //
};
use core::{
    cell::UnsafeCell,
    ops::{
        Deref,
        DerefMut, //
    },
};
use kernel::{
    processor::cpu_relax,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        lock::{
            mutex::MutexBackend,
            Guard, //
        },
    },
};

struct KernelWord(Atomic<u32>);

impl Word for KernelWord {
    fn take(&self) -> bool {
        // A look first: whoever waits does not write the cache line all the time.
        self.0.load(Relaxed) == 0 && self.0.cmpxchg(0, 1, Acquire).is_ok()
    }

    fn give(&self) {
        self.0.store(0, Release);
    }
}

/// A `T` for whoever claims it.
///
/// # Invariants
///
/// Only who has the claim uses `value`.
pub(crate) struct Claimed<T> {
    claim: Claim<KernelWord>,
    value: UnsafeCell<T>,
}

// SAFETY: One at a time has the value, by the type invariant.
unsafe impl<T: Send> Sync for Claimed<T> {}

impl<T> Claimed<T> {
    /// Claimed by nobody.
    pub(crate) fn new(value: T) -> Self {
        Self {
            claim: Claim::new(KernelWord(Atomic::new(0))),
            value: UnsafeCell::new(value),
        }
    }

    /// For interrupts and whoever has them off: claims it if nobody has. Does not wait.
    pub(crate) fn try_claim(&self) -> Option<Claiming<'_, T>> {
        // INVARIANT: The claim has just been taken.
        self.claim.try_take().then(|| Claiming(self))
    }

    /// For tasks: claims it, when an interrupt that has it is through.
    ///
    /// All tasks that do this with one value have the same mutex locked, so that nobody ever waits
    /// for a task that may not be running.
    pub(crate) fn claim(&self, _turn: &Guard<'_, (), MutexBackend>) -> Claiming<'_, T> {
        loop {
            if let Some(claiming) = self.try_claim() {
                return claiming;
            }
            cpu_relax();
        }
    }
}

/// A claim that was taken.
///
/// # Invariants
///
/// This has the claim.
pub(crate) struct Claiming<'a, T>(&'a Claimed<T>);

impl<T> Deref for Claiming<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: This has the claim.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Claiming<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: This has the claim, and is borrowed exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Claiming<'_, T> {
    fn drop(&mut self) {
        self.0.claim.give_up();
    }
}
