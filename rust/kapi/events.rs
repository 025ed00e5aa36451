// SPDX-License-Identifier: GPL-2.0

//! Events that interrupts count, and that tasks wait for with `read()` and `poll()`.
//!
//! C headers: [`include/linux/wait.h`](srctree/include/linux/wait.h),
//! [`include/linux/irq_work.h`](srctree/include/linux/irq_work.h)

use super::helpers;
use core::{
    marker::PhantomPinned,
    mem::offset_of,
    pin::Pin, //
};
use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    sync::atomic::{
        Atomic,
        Full, //
    },
    types::Opaque, //
};

/// In the count: there will be no more.
const ENDED: u64 = 1 << 63;

/// A count of events, and who waits for them.
///
/// # Invariants
///
/// `waiters` and `work` are initialised, and `work` is idle before they go away.
#[pin_data(PinnedDrop)]
pub(crate) struct Events {
    count: Atomic<u64>,
    #[pin]
    waiters: Opaque<bindings::wait_queue_head>,
    #[pin]
    work: Opaque<bindings::irq_work>,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: Wait queues and work may be used by any thread.
unsafe impl Send for Events {}
// SAFETY: As above; the count is atomic.
unsafe impl Sync for Events {}

impl Events {
    /// None yet.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            count: Atomic::new(0),
            waiters <- Opaque::ffi_init(|waiters: *mut bindings::wait_queue_head| {
                // SAFETY: `waiters` is valid for writing; name and class key are static.
                unsafe {
                    bindings::__init_waitqueue_head(
                        waiters,
                        c"cpupeek_events".as_char_ptr(),
                        kernel::static_lock_class!().as_ptr(),
                    )
                };
            }),
            work <- Opaque::ffi_init(|work: *mut bindings::irq_work| {
                // SAFETY: `work` is valid for writing, and stays where it is.
                unsafe { helpers::cpupeek_helper_init_irq_work(work, Some(Self::wake)) };
            }),
            _pin: PhantomPinned,
        })
    }

    /// Counts an event. Allowed in every context.
    pub(crate) fn add(&self) {
        self.count.fetch_add(1, Full);
        self.tell();
    }

    /// `count` events were taken, and could not be told.
    pub(super) fn put_back(&self, count: u64) {
        self.count.fetch_add(count, Full);
        self.tell();
    }

    /// There will be no more events.
    pub(crate) fn end(&self) {
        let mut count = self.count.fetch_add(0, Full);
        // Two may end it at once.
        while let Err(changed) = self.count.cmpxchg(count, count | ENDED, Full) {
            count = changed;
        }
        self.tell();
    }

    /// Forgets the events that nobody has taken.
    pub(crate) fn forget(&self) {
        self.take();
    }

    fn tell(&self) {
        // Waking takes a lock that sleeps on PREEMPT_RT, so that it is not for hard interrupts; and
        // nobody is interrupted for nobody.
        //
        // SAFETY: Both are initialised by the type invariant.
        unsafe {
            if helpers::cpupeek_helper_has_waiters(self.waiters.get()) {
                bindings::irq_work_queue(self.work.get());
            }
        }
    }

    /// Takes the events: how many there were, and whether there will be more.
    fn take(&self) -> (u64, bool) {
        let mut count = self.count.fetch_add(0, Full);
        loop {
            match self.count.cmpxchg(count, count & ENDED, Full) {
                Ok(_) => return (count & !ENDED, count & ENDED == 0),
                Err(changed) => count = changed,
            }
        }
    }

    /// Takes the events when there are any, 0 if there will be none. [`EAGAIN`] instead of waiting if
    /// that is not wanted; [`ERESTARTSYS`] on a signal.
    pub(crate) fn wait(&self, may_wait: bool) -> Result<u64> {
        loop {
            match self.take() {
                (0, true) if !may_wait => return Err(EAGAIN),
                (0, true) => {}
                (count, _) => return Ok(count),
            }
            // SAFETY: Process context; the queue and the count live as long as this.
            to_result(unsafe {
                helpers::cpupeek_helper_wait_nonzero(self.waiters.get(), self.count.as_ptr())
            })?;
        }
    }

    /// What `poll()` is to say: `POLLIN` if there are events, `POLLHUP` if there will be no more.
    ///
    /// # Safety
    ///
    /// `file` and `table` are what `file_operations.poll` was given, and `self` lives at least until
    /// that file is released.
    pub(super) unsafe fn poll(
        &self,
        file: *mut bindings::file,
        table: *mut bindings::poll_table_struct,
    ) -> u32 {
        // SAFETY: The caller promises that they are valid, and that the queue stays so as long as
        // somebody polls the file.
        unsafe { helpers::cpupeek_helper_poll_wait(file, self.waiters.get(), table) };
        let count = self.count.fetch_add(0, Full);
        let mut mask = 0;
        if count != 0 {
            mask |= bindings::POLLIN | bindings::POLLRDNORM;
        }
        if count & ENDED != 0 {
            mask |= bindings::POLLHUP;
        }
        mask
    }

    /// # Safety
    ///
    /// For the kernel, as the function of `work`.
    unsafe extern "C" fn wake(work: *mut bindings::irq_work) {
        // SAFETY: By the contract, `work` is that field of an `Events`, which waits for this function
        // before it goes away.
        let this = unsafe { &*work.byte_sub(offset_of!(Self, work)).cast::<Self>() };
        // SAFETY: Initialised by the type invariant.
        unsafe { helpers::cpupeek_helper_wake_pollers(this.waiters.get()) };
    }
}

#[pinned_drop]
impl PinnedDrop for Events {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Initialised by the type invariant; nobody can queue it any more. Process context:
        // what owns this is dropped there.
        unsafe { bindings::irq_work_sync(self.work.get()) };
    }
}
