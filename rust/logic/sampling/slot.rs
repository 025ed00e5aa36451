// SPDX-License-Identifier: GPL-2.0

//! How a slot is written while others read it: a sequence count that is odd in the meantime.
//!
//! There is one writer at a time, and what it writes it writes with atomic stores of words. Readers
//! take no part: they load the count, the words, and the count again, and begin anew unless it was
//! even and has not changed. See "Samplers" in the UAPI header.

/// The sequence count for its writer, and the order of what is stored around it.
pub trait Sequence {
    /// Loads it, relaxed.
    fn load(&self) -> u32;

    /// Stores it, relaxed.
    fn store(&self, value: u32);

    /// Stores it, with release ordering: after everything that was stored earlier.
    fn store_release(&self, value: u32);

    /// Orders everything that was stored earlier before everything that is stored later.
    fn fence_release(&self);
}

/// Has `store` write a slot's words, by atomic stores.
pub fn write<S: Sequence>(sequence: &S, store: impl FnOnce()) {
    let even = sequence.load();
    sequence.store(even.wrapping_add(1));
    sequence.fence_release();
    store();
    sequence.store_release(even.wrapping_add(2));
}
