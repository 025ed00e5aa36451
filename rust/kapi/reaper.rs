// SPDX-License-Identifier: GPL-2.0

//! Frees what callers have walked away from, in process context; and keeps what handlers learn, who
//! outlive what they have worked on.
//!
//! The last handler of an abandoned group may not free it: `vfree()` and the memory controller are
//! not for hard interrupts. It queues the group's work item here instead.

use super::{
    csd::Place,
    regs, //
};
use crate::logic::{
    policy::learn_overhead,
    round::Stretch, //
};
use core::{
    pin::Pin,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    cpu::nr_cpu_ids,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
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
    learned: KVVec<Learned>,
}

/// What a CPU's handlers tell those after them. Only they write it, one after the other.
struct Learned {
    /// What a call takes beyond its operations, in TSC cycles.
    overhead: Atomic<u32>,
    /// Where the csd is that comes next, the interrupt if it is one, and what came before in it.
    next: Atomic<usize>,
    interrupt: Atomic<u64>,
    start: Atomic<u64>,
    ops: Atomic<u32>,
}

// SAFETY: A workqueue may be used from any context.
unsafe impl Send for Reaper {}
// SAFETY: As above; the count is atomic.
unsafe impl Sync for Reaper {}

impl Reaper {
    /// Makes a workqueue. [`ENOMEM`] if that fails.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let count = nr_cpu_ids() as usize;
        let mut learned = KVVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            let nothing = Learned {
                overhead: Atomic::new(0),
                next: Atomic::new(Place::NONE.0),
                interrupt: Atomic::new(0),
                start: Atomic::new(0),
                ops: Atomic::new(0),
            };
            learned.push(nothing, GFP_KERNEL)?;
        }
        // SAFETY: Has no preconditions but process context, which module initialisation is.
        let queue = unsafe { super::helpers::cpupeek_helper_alloc_workqueue() };
        // INVARIANT: The queue was just made.
        let reaper = Self {
            queue: NonNull::new(queue).ok_or(ENOMEM)?,
            abandoned: Atomic::new(0),
            learned,
        };
        Ok(Arc::new(reaper, GFP_KERNEL)?)
    }

    /// A call has kept this CPU busy for so many TSC cycles beyond its operations.
    pub(super) fn learn_overhead(&self, cpu: u32, cycles: u64) {
        if let Some(Learned {
            overhead: usual, ..
        }) = self.learned.get(cpu as usize)
        {
            usual.store(learn_overhead(usual.load(Relaxed), cycles), Relaxed);
        }
    }

    /// What a call to a CPU usually takes beyond its operations, in TSC cycles.
    pub(crate) fn overhead(&self, cpu: u32) -> u64 {
        let learned = self.learned.get(cpu as usize);
        learned.map_or(0, |learned| learned.overhead.load(Relaxed).into())
    }

    /// What the handlers before that of the csd at `place` have done without a break, if there were any.
    /// On `cpu`.
    ///
    /// They belong together if they run in the same interrupt; where an idle CPU goes through its queue
    /// without one, if one csd follows the other there.
    pub(super) fn stretch(&self, cpu: u32, place: Place) -> Option<Stretch> {
        let learned = self.learned.get(cpu as usize)?;
        let interrupt = regs::call_interrupt();
        let is_same = interrupt != 0 && interrupt == learned.interrupt.load(Relaxed);
        let follows = Place(learned.next.load(Relaxed)) == place;
        (is_same || follows).then(|| Stretch {
            start: learned.start.load(Relaxed),
            ops: learned.ops.load(Relaxed),
        })
    }

    /// Tells the handler of the csd at `next`, and those after it, what has been done before them. On
    /// `cpu`.
    pub(super) fn hand_on(&self, cpu: u32, next: Place, stretch: Stretch) {
        if let Some(learned) = self.learned.get(cpu as usize) {
            learned.next.store(next.0, Relaxed);
            learned.interrupt.store(regs::call_interrupt(), Relaxed);
            learned.start.store(stretch.start, Relaxed);
            learned.ops.store(stretch.ops, Relaxed);
        }
    }

    /// Announces that a group is about to be abandoned. Undone by [`Reaper::release`].
    pub(super) fn expect_one(&self) {
        self.abandoned.add(1u32, Relaxed);
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
