// SPDX-License-Identifier: GPL-2.0

//! A completion that can be told from a hard interrupt and waited for killably.
//!
//! [`kernel::sync::Completion`] has neither: its only way to tell is `complete_all()`, which is
//! wrong in a hard interrupt on PREEMPT_RT, and its only wait can be neither killed nor timed.
//!
//! C header: [`include/linux/completion.h`](srctree/include/linux/completion.h)

use kernel::{
    bindings,
    prelude::*,
    types::Opaque, //
};

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// A notice was there, and this wait has consumed it.
    Done,
    /// The time is over.
    TimedOut,
    /// A fatal signal is pending.
    Killed,
}

/// A counter of notices: [`Completion::complete`] adds one, every successful wait consumes one.
///
/// # Examples
///
/// ```
/// let done = KBox::pin_init(Completion::new(), GFP_KERNEL)?;
///
/// done.complete();
/// assert_eq!(done.wait_killable(None), Waited::Done);
/// assert!(!done.try_wait());
/// # Ok::<(), Error>(())
/// ```
///
/// # Invariants
///
/// `inner` is an initialised `struct completion`, and stays where it is.
#[pin_data]
pub(crate) struct Completion {
    #[pin]
    inner: Opaque<bindings::completion>,
}

// SAFETY: A `struct completion` may be used from any context; it has its own lock.
unsafe impl Send for Completion {}
// SAFETY: As above.
unsafe impl Sync for Completion {}

impl Completion {
    /// A completion without notices.
    pub(crate) fn new() -> impl PinInit<Self> {
        // INVARIANT: `init_completion()` initialises it, and a pinned value does not move.
        pin_init!(Self {
            inner <- Opaque::ffi_init(|slot: *mut bindings::completion| {
                // SAFETY: `slot` is valid for writing a `struct completion`.
                unsafe { bindings::init_completion(slot) };
            }),
        })
    }

    /// Adds a notice and wakes one waiter. Allowed in every context.
    ///
    /// A waiter may free the completion as soon as this has let go of its lock, so that this is
    /// the last thing that may touch whatever the completion is part of.
    pub(crate) fn complete(&self) {
        // SAFETY: By the type invariant, `inner` is an initialised completion.
        unsafe { bindings::complete(self.inner.get()) };
    }

    /// Consumes a notice if there is one. Does not sleep.
    pub(crate) fn try_wait(&self) -> bool {
        // SAFETY: By the type invariant, `inner` is an initialised completion.
        unsafe { bindings::try_wait_for_completion(self.inner.get()) }
    }

    /// Sleeps until there is a notice, and consumes it.
    ///
    /// For notices that are certain to come within a few instructions of another CPU.
    pub(crate) fn wait(&self) {
        // SAFETY: By the type invariant, `inner` is an initialised completion.
        unsafe { bindings::wait_for_completion(self.inner.get()) };
    }

    /// Sleeps until there is a notice, a fatal signal, or `deadline_ns` of the monotonic clock if it
    /// is given. No other CPU is needed for the deadline to be kept.
    pub(crate) fn wait_killable(&self, deadline_ns: Option<u64>) -> Waited {
        let Some(deadline) = deadline_ns else {
            // SAFETY: By the type invariant, `inner` is an initialised completion.
            return match unsafe { bindings::wait_for_completion_killable(self.inner.get()) } {
                0 => Waited::Done,
                _ => Waited::Killed,
            };
        };
        let deadline = i64::try_from(deadline).unwrap_or(i64::MAX);
        // SAFETY: By the type invariant, `inner` is an initialised completion.
        match unsafe { super::helpers::cpupeek_helper_wait_until(self.inner.get(), deadline) } {
            0 => Waited::TimedOut,
            1.. => Waited::Done,
            _ => Waited::Killed,
        }
    }
}
