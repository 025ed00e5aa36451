// SPDX-License-Identifier: GPL-2.0

//! When a thread's CPU number has to be written to its memory.
//!
//! Two things happen in the thread: it is told, each time that it gets a CPU, which one that is; and
//! before it returns to user space it *writes*, if the telling asked for that. It may get another
//! CPU between any two steps of writing, so the telling interrupts the writing like a signal handler.
//!
//! While the thread writes, nothing is known of the word: what it is told then asks for another
//! write. So the last write that the thread performs is of the CPU that it was on throughout.

use core::sync::atomic::{
    AtomicBool,
    AtomicU64,
    Ordering::SeqCst, //
};

/// No CPU number.
const UNKNOWN: u64 = u64::MAX;

/// What is known of a thread's word.
pub struct CpuWord {
    /// The CPU number in it, or [`UNKNOWN`].
    holds: AtomicU64,
    /// A write has been asked for, and not begun.
    asked: AtomicBool,
}

impl CpuWord {
    /// Nothing has been written.
    #[allow(clippy::new_without_default, reason = "as long as the name")]
    pub const fn new() -> Self {
        Self {
            holds: AtomicU64::new(UNKNOWN),
            asked: AtomicBool::new(false),
        }
    }

    /// The thread has got `cpu`, or there is something else to write for (`anyway`). Returns whether
    /// to ask for a write, which nobody has yet.
    pub fn moved(&self, cpu: u32, anyway: bool) -> bool {
        (anyway || self.holds.load(SeqCst) != u64::from(cpu)) && !self.asked.swap(true, SeqCst)
    }

    /// Writes: `current` says which CPU the thread is on, `write` stores it.
    pub fn write<E>(
        &self,
        current: impl FnOnce() -> u32,
        write: impl FnOnce(u32) -> Result<(), E>,
    ) -> Result<(), E> {
        self.asked.store(false, SeqCst);
        self.holds.store(UNKNOWN, SeqCst);
        let cpu = current();
        write(cpu)?;
        self.holds.store(cpu.into(), SeqCst);
        Ok(())
    }
}
