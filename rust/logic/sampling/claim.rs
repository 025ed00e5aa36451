// SPDX-License-Identifier: GPL-2.0

//! Whose turn it is to change a CPU's part of a sampler: its timer's, or that of a task which
//! changes the sampler.
//!
//! The timer runs in a hard interrupt and never waits: if a task is at work, this sample is missed.
//! A task waits for the timer, which is through in a moment. Tasks come one at a time.

/// The atomic word that a [`Claim`] lives in.
pub trait Word {
    /// Stores 1 if the word is 0, with acquire ordering then. Returns whether it was.
    fn take(&self) -> bool;

    /// Stores 0, with release ordering.
    fn give(&self);
}

/// The right to change something, which one at a time has.
pub struct Claim<W>(W);

impl<W: Word> Claim<W> {
    /// Wraps a word that holds 0.
    pub const fn new(word: W) -> Self {
        Self(word)
    }

    /// Takes the right if nobody has it. Returns whether that is so.
    pub fn try_take(&self) -> bool {
        self.0.take()
    }

    /// Gives up the right, which the caller has.
    pub fn give_up(&self) {
        self.0.give();
    }
}
