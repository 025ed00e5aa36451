// SPDX-License-Identifier: GPL-2.0

//! Work that is done again and again while somebody wants it.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use core::{
    marker::PhantomPinned,
    pin::Pin, //
};
use kernel::{
    bindings,
    prelude::*,
    sync::Arc,
    time::{
        msecs_to_jiffies,
        Jiffies, //
    },
    types::Opaque, //
};

/// Has something to do from time to time.
pub(crate) trait Tick: Send + Sync + 'static {
    /// Does it, in process context. Returns when to do it next, in milliseconds, if at all.
    fn tick(&self) -> Option<u64>;
}

/// Calls [`Tick::tick`] when it is due, on whatever CPU is awake.
///
/// # Invariants
///
/// `work` is initialised, and cancelled before it and `target` go away.
#[pin_data(PinnedDrop)]
pub(crate) struct Ticker<T: Tick> {
    target: Arc<T>,
    #[pin]
    work: Opaque<bindings::delayed_work>,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: Delayed work may be armed and cancelled by any thread; the target is `Send` and `Sync`.
unsafe impl<T: Tick> Send for Ticker<T> {}
// SAFETY: As above.
unsafe impl<T: Tick> Sync for Ticker<T> {}

impl<T: Tick> Ticker<T> {
    /// A ticker that does nothing until it is armed.
    pub(crate) fn new(target: Arc<T>) -> impl PinInit<Self> {
        pin_init!(Self {
            target,
            work <- Opaque::ffi_init(|work: *mut bindings::delayed_work| {
                // SAFETY: `work` is valid for writing, and stays where it is.
                unsafe { super::helpers::cpupeek_helper_init_delayed_work(work, Some(Self::run)) };
            }),
            _pin: PhantomPinned,
        })
    }

    /// Ticks in `ms` milliseconds, unless it is going to tick already.
    pub(crate) fn arm(&self, ms: u64) {
        // SAFETY: The work is initialised by the type invariant.
        unsafe { super::helpers::cpupeek_helper_queue_delayed_work(self.work.get(), jiffies(ms)) };
    }

    /// # Safety
    ///
    /// For the kernel, as the function of our work.
    unsafe extern "C" fn run(work: *mut bindings::work_struct) {
        let offset =
            core::mem::offset_of!(Self, work) + core::mem::offset_of!(bindings::delayed_work, work);
        // SAFETY: By the contract, `work` is that field of a ticker, which waits for this function
        // before it goes away.
        let this = unsafe { &*work.byte_sub(offset).cast::<Self>() };
        if let Some(ms) = this.target.tick() {
            this.arm(ms);
        }
    }
}

fn jiffies(ms: u64) -> Jiffies {
    msecs_to_jiffies(u32::try_from(ms).unwrap_or(u32::MAX))
}

#[pinned_drop]
impl<T: Tick> PinnedDrop for Ticker<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: The work is initialised by the type invariant. It cannot arm itself again while
        // it is being cancelled.
        unsafe { bindings::cancel_delayed_work_sync(self.work.get()) };
    }
}
