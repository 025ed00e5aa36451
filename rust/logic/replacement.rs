// SPDX-License-Identifier: GPL-2.0

//! Which of two lists decides, while one replaces the other.
//!
//! A list has a number. Whoever has checked something by the list with the number that is in force
//! need not look at a list again until the number has changed. So the number is changed *after* the
//! new list can be seen: the other way round, somebody may take the new number, check by the old list,
//! and never look again.
//!
//! The list itself is published in a way of its own (RCU in the kernel), which the number knows
//! nothing of.

/// An atomic word with the number of the list in force.
pub trait Number {
    /// The number; what was published before it was stored is seen by whoever loads it (acquire).
    fn load(&self) -> u64;

    /// Stores a number, after everything that was done before (release).
    fn store(&self, number: u64);
}

/// The number of the list in force.
pub struct Replacement<N>(N);

impl<N: Number> Replacement<N> {
    /// Wraps a word that holds the number of the first list.
    pub const fn new(number: N) -> Self {
        Self(number)
    }

    /// The number of the list in force, or of the one before while that is being replaced.
    #[inline]
    pub fn number(&self) -> u64 {
        self.0.load()
    }

    /// Publishes a list, which is given its number, and then puts that in force. One at a time.
    ///
    /// Nothing changes if `publish` fails.
    pub fn replace<E>(&self, publish: impl FnOnce(u64) -> Result<(), E>) -> Result<u64, E> {
        let number = self.0.load().wrapping_add(1);
        publish(number)?;
        self.0.store(number);
        Ok(number)
    }

    /// Whether something is allowed that the list with the number `own` allows: if that is in force,
    /// or if the one in force allows it too.
    #[inline]
    pub fn allows(&self, own: u64, by_list_in_force: impl FnOnce() -> bool) -> bool {
        own == self.number() || by_list_in_force()
    }
}
