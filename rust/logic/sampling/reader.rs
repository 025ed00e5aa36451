// SPDX-License-Identifier: GPL-2.0

//! The reader's side of `slot.rs`; not for the module, which only writes. The client library has it too.

/// The sequence count for a reader, and the order of what is loaded around it.
pub trait Sequence {
    /// Loads it, relaxed.
    fn load(&self) -> u32;

    /// Loads it, with acquire ordering: before everything that is loaded later.
    fn load_acquire(&self) -> u32;

    /// Orders everything that was loaded earlier before everything that is loaded later.
    fn fence_acquire(&self);
}

/// Has `load` read a slot's words, by atomic loads. `None` if they may not belong together.
pub fn try_read<S: Sequence, R>(sequence: &S, load: impl FnOnce() -> R) -> Option<R> {
    let before = sequence.load_acquire();
    if before % 2 != 0 {
        return None;
    }
    let words = load();
    sequence.fence_acquire();
    (sequence.load() == before).then_some(words)
}
