// SPDX-License-Identifier: GPL-2.0

//! Frees what callers have walked away from, in process context.
//!
//! The last handler of an abandoned group may not free it: `vfree()` and the memory controller are
//! not for hard interrupts. It queues the group's work item here instead.

use core::{
    pin::Pin,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc, //
    },
    types::Opaque, //
};

/// The workqueue that frees abandoned groups, and how many of them there are.
///
/// # Invariants
///
/// `queue` is a workqueue of our own, destroyed by `Drop` and nowhere else.
pub(crate) struct Reaper {
    queue: NonNull<bindings::workqueue_struct>,
    abandoned: Atomic<u32>,
}

// SAFETY: A workqueue may be used from any context.
unsafe impl Send for Reaper {}
// SAFETY: As above; the count is atomic.
unsafe impl Sync for Reaper {}

impl Reaper {
    /// Makes a workqueue. [`ENOMEM`] if that fails.
    pub(crate) fn new() -> Result<Arc<Self>> {
        // SAFETY: Has no preconditions but process context, which module initialisation is.
        let queue = unsafe { super::helpers::cpupeek_helper_alloc_workqueue() };
        // INVARIANT: The queue was just made.
        let reaper = Self {
            queue: NonNull::new(queue).ok_or(ENOMEM)?,
            abandoned: Atomic::new(0),
        };
        Ok(Arc::new(reaper, GFP_KERNEL)?)
    }

    /// Announces that a group is about to be abandoned. Undone by [`Reaper::release`].
    pub(super) fn expect_one(&self) {
        self.abandoned.add(1u32, kernel::sync::atomic::Relaxed);
    }

    /// An announced group is gone, or was not abandoned after all.
    pub(super) fn release(&self) {
        self.abandoned.fetch_sub(1u32, Release);
    }

    /// Queues the work item of an abandoned group. Allowed in hard interrupts.
    ///
    /// # Safety
    ///
    /// `work` was initialised with a function that frees what it is part of, is queued once, and
    /// stays valid until the function runs.
    pub(super) unsafe fn queue(&self, work: *mut bindings::work_struct) {
        // SAFETY: The queue is valid by the type invariant; the caller promises the rest.
        unsafe { super::helpers::cpupeek_helper_queue_work(self.queue.as_ptr(), work) };
    }

    /// Waits until every abandoned group is gone, and no handler or work item of ours still runs
    /// its last instructions.
    ///
    /// For module exit, when nobody can abandon groups any more. Waiting for the count alone would
    /// not do: the handler that queued the last work item may not have returned yet. It runs with
    /// interrupts off, which an RCU grace period waits for.
    pub(crate) fn drain(&self) {
        while self.abandoned.load(Acquire) != 0 {
            // SAFETY: Process context, no locks are held.
            unsafe { bindings::msleep(1) };
        }
        // SAFETY: Process context, not in an RCU read-side critical section.
        unsafe { bindings::synchronize_rcu() };
        // SAFETY: The queue is valid by the type invariant.
        unsafe { bindings::__flush_workqueue(self.queue.as_ptr()) };
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        // SAFETY: The queue is ours by the type invariant, and nobody can use it any more.
        unsafe { bindings::destroy_workqueue(self.queue.as_ptr()) };
    }
}

/// A work item that is part of what it frees.
#[pin_data]
pub(super) struct ReapWork {
    #[pin]
    work: Opaque<bindings::work_struct>,
}

impl ReapWork {
    /// A work item that runs `func`.
    pub(super) fn new(
        func: unsafe extern "C" fn(*mut bindings::work_struct),
    ) -> impl PinInit<Self> {
        pin_init!(Self {
            work <- Opaque::ffi_init(|slot: *mut bindings::work_struct| {
                // SAFETY: `slot` is valid for writing; the class key and the name are static.
                unsafe {
                    bindings::init_work_with_key(
                        slot,
                        Some(func),
                        false,
                        c"cpupeek_reap".as_char_ptr(),
                        kernel::static_lock_class!().as_ptr(),
                    )
                };
            }),
        })
    }

    /// The C item.
    pub(super) fn as_raw(self: Pin<&Self>) -> *mut bindings::work_struct {
        self.get_ref().work.get()
    }
}
