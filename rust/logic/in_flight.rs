// SPDX-License-Identifier: GPL-2.0

//! Who touches a group of calls last: the caller that waits for it, or a handler.
//!
//! One word counts the *shares* in a group: one for each call in flight, and one for the caller
//! while it is starting calls. Its top bit says that the caller has walked away.
//!
//! The rules that keep the memory alive long enough and free it exactly once:
//!
//! - Whoever takes the count to zero *crosses*. A handler that crosses tells the waiter, and does
//!   not touch the group after that; a caller that crosses tells nobody.
//! - The caller consumes every notice that a handler's crossing sends, one for one, before it
//!   reuses or frees the group: a handler may have crossed and not yet told.
//! - A handler that crosses after the caller has walked away gives the group to be freed instead.

/// The atomic word that [`InFlight`] lives in. All operations are fully ordered.
pub trait Word {
    /// Adds `n` and returns the value before.
    fn fetch_add(&self, n: u32) -> u32;

    /// Subtracts `n` and returns the value before.
    fn fetch_sub(&self, n: u32) -> u32;
}

const ABANDONED: u32 = 1 << 31;

/// What a handler has to do after it has dropped its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Nothing: the group must not be touched any more.
    NotLast,
    /// Tell the waiter, as the last access to the group.
    Tell,
    /// Give the group to whoever frees abandoned groups.
    HandOver,
}

/// What happened to a group whose caller wanted to walk away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abandon {
    /// The last handler frees it; the caller must not touch it any more.
    HandedOver,
    /// Every handler is through, and the last of them is telling the waiter: the caller consumes
    /// that notice, and keeps the group.
    Through,
}

/// The count of shares in a group of calls.
pub struct InFlight<W>(W);

impl<W: Word> InFlight<W> {
    /// Wraps a word that holds 0.
    pub const fn new(word: W) -> Self {
        Self(word)
    }

    /// Takes `calls` shares for calls that are about to be started, and one for the caller.
    ///
    /// Returns whether the count was zero before.
    pub fn begin(&self, calls: u32) -> bool {
        self.0.fetch_add(calls.wrapping_add(1)) == 0
    }

    /// Drops the share of a call that could not be started, while the caller holds its own.
    pub fn cancel(&self) {
        self.0.fetch_sub(1);
    }

    /// Drops the caller's share after it has started its calls.
    ///
    /// Returns whether all of them are through already, in which case nobody is told.
    pub fn leave(&self) -> bool {
        self.0.fetch_sub(1) == 1
    }

    /// Drops a handler's share.
    pub fn finish(&self) -> Finish {
        match self.0.fetch_sub(1) {
            1 => Finish::Tell,
            n if n == ABANDONED | 1 => Finish::HandOver,
            _ => Finish::NotLast,
        }
    }

    /// The caller walks away from calls in flight, having consumed no notice of their end.
    pub fn abandon(&self) -> Abandon {
        if self.0.fetch_add(ABANDONED) == 0 {
            self.0.fetch_sub(ABANDONED);
            Abandon::Through
        } else {
            Abandon::HandedOver
        }
    }
}
