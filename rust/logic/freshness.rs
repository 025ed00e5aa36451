// SPDX-License-Identifier: GPL-2.0

//! When a snapshot is too old, and which one it is.
//!
//! Whoever holds the lock of a snapshot asks [`Freshness::is_stale`], takes another snapshot if it
//! is, and calls [`Freshness::renew`] before letting go. So there is one refresh in flight at most,
//! those who waited for the lock find it done, and what could not be read is not asked for again
//! until it is due either.

/// The age of a snapshot. Times are in milliseconds of a clock that does not go back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freshness {
    taken_ms: Option<u64>,
    generation: u64,
}

impl Freshness {
    /// There is no snapshot yet.
    pub const fn new() -> Self {
        Self {
            taken_ms: None,
            generation: 0,
        }
    }

    /// Whether there is a snapshot, however old.
    pub const fn is_there(&self) -> bool {
        self.taken_ms.is_some()
    }

    /// How old the snapshot is, if there is one.
    pub const fn age_ms(&self, now_ms: u64) -> Option<u64> {
        match self.taken_ms {
            Some(taken) => Some(now_ms.saturating_sub(taken)),
            None => None,
        }
    }

    /// Whether the snapshot is as old as `max_age_ms`, or not there.
    pub const fn is_stale(&self, now_ms: u64, max_age_ms: u64) -> bool {
        match self.age_ms(now_ms) {
            Some(age) => age >= max_age_ms,
            None => true,
        }
    }

    /// A snapshot has been taken.
    pub fn renew(&mut self, now_ms: u64) {
        self.taken_ms = Some(now_ms);
        self.generation = self.generation.wrapping_add(1);
    }

    /// The snapshot's number, from 1 on; 0 if there is none.
    pub const fn generation(&self) -> u64 {
        self.generation
    }
}
