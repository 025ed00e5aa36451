// SPDX-License-Identifier: GPL-2.0

//! A timer that belongs to one CPU.
//!
//! C headers: [`include/linux/hrtimer.h`](srctree/include/linux/hrtimer.h),
//! [`include/linux/timer.h`](srctree/include/linux/timer.h)

use super::{
    compat::timer_restart,
    helpers,
    task, //
};
use core::{
    marker::PhantomPinned,
    mem::offset_of,
    pin::Pin, //
};
use kernel::{
    bindings,
    prelude::*,
    types::Opaque, //
};

/// Nanoseconds between the ticks that deferrable timers go by.
pub(crate) fn tick_ns() -> u64 {
    // SAFETY: Has no preconditions.
    unsafe { helpers::cpupeek_helper_tick_ns() }
}

/// How exact a timer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// In whole ticks, and later while the CPU is idle: it does not wake the CPU.
    Deferrable,
    /// On time, in a hard interrupt.
    Exact,
}

/// What a timer is for.
pub(crate) trait Expire: Send + Sync + 'static {
    /// The time has come. Runs in a hard or soft interrupt; on the CPU that the timer was started
    /// on, or if that has gone offline on another.
    ///
    /// Timers of this CPU and precision that expire without a break have the same `number`. Another one
    /// later has another, but where ticks have to do and were held up.
    ///
    /// Returns when to do it next on the monotonic clock, in nanoseconds, if at all.
    fn expire(&self, number: u64) -> Option<u64>;
}

/// A timer that stays on the CPU that it was started on.
///
/// # Invariants
///
/// `exact` and `wheel` are initialised, and cancelled before they and `target` go away.
#[pin_data(PinnedDrop)]
pub(crate) struct CpuTimer<T: Expire> {
    target: T,
    precision: Precision,
    #[pin]
    exact: Opaque<bindings::hrtimer>,
    #[pin]
    wheel: Opaque<bindings::timer_list>,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: Timers may be started and cancelled by any thread; the target is `Send` and `Sync`.
unsafe impl<T: Expire> Send for CpuTimer<T> {}
// SAFETY: As above.
unsafe impl<T: Expire> Sync for CpuTimer<T> {}

impl<T: Expire> CpuTimer<T> {
    /// A timer that has not been started.
    pub(crate) fn new(precision: Precision, target: T) -> impl PinInit<Self> {
        pin_init!(Self {
            target,
            precision,
            exact <- Opaque::ffi_init(|timer: *mut bindings::hrtimer| {
                // SAFETY: `timer` is valid for writing, and stays where it is.
                unsafe { helpers::cpupeek_helper_hrtimer_setup(timer, Some(Self::run_exact)) };
            }),
            wheel <- Opaque::ffi_init(|timer: *mut bindings::timer_list| {
                // SAFETY: `timer` is valid for writing, and stays where it is.
                unsafe { helpers::cpupeek_helper_timer_setup(timer, Some(Self::run_wheel)) };
            }),
            _pin: PhantomPinned,
        })
    }

    /// What the timer is for.
    pub(crate) fn target(&self) -> &T {
        &self.target
    }

    /// Starts the timer on this CPU, to expire at `time` of the monotonic clock, in nanoseconds. The
    /// caller has interrupts off, and is not the timer's own function. One that is pending expires then
    /// instead.
    pub(crate) fn start_here(&self, time: u64) {
        match self.precision {
            // SAFETY: The timer is initialised by the type invariant.
            Precision::Exact => unsafe {
                helpers::cpupeek_helper_hrtimer_start(self.exact.get(), ktime(time))
            },
            // SAFETY: As above.
            Precision::Deferrable => unsafe {
                helpers::cpupeek_helper_timer_start(self.wheel.get(), delay(time))
            },
        }
    }

    /// Stops the timer, and waits until [`Expire::expire`] is through if it runs. Whoever starts the timer
    /// at the same time sees to it that nothing comes of that, and has what the timer is part of, which
    /// cancels it once more before it goes away. Not for interrupts.
    pub(crate) fn cancel(&self) {
        // SAFETY: Both are initialised by the type invariant. The caller is a task, and has nothing
        // that `expire()` waits for, since that never waits.
        unsafe {
            bindings::hrtimer_cancel(self.exact.get());
            bindings::timer_delete_sync(self.wheel.get());
        }
    }

    /// # Safety
    ///
    /// For the kernel, as the function of `exact`.
    unsafe extern "C" fn run_exact(timer: *mut bindings::hrtimer) -> bindings::hrtimer_restart {
        // SAFETY: By the contract, `timer` is that field of a timer of ours, which waits for this
        // function before it goes away.
        let this = unsafe { &*timer.byte_sub(offset_of!(Self, exact)).cast::<Self>() };
        // SAFETY: This is the timer's function.
        let number = unsafe { helpers::cpupeek_helper_hrtimer_interrupt(timer) };
        match this.target.expire(number) {
            Some(time) => {
                // SAFETY: A timer that is not queued, as while its function runs.
                unsafe { helpers::cpupeek_helper_hrtimer_set_expires(timer, ktime(time)) };
                timer_restart(true)
            }
            None => timer_restart(false),
        }
    }

    /// # Safety
    ///
    /// For the kernel, as the function of `wheel`.
    unsafe extern "C" fn run_wheel(timer: *mut bindings::timer_list) {
        // SAFETY: As in `run_exact()`.
        let this = unsafe { &*timer.byte_sub(offset_of!(Self, wheel)).cast::<Self>() };
        // On PREEMPT_RT soft interrupts are threads, which others may preempt.
        super::regs::with_irqs_off(|_| {
            // Those of a tick come one after the other; interrupts are on in between, but tasks do not have
            // the CPU.
            //
            // SAFETY: Has no preconditions.
            let number = unsafe { helpers::cpupeek_helper_jiffies() };
            if let Some(time) = this.target.expire(number) {
                this.start_here(time);
            }
        });
    }
}

fn ktime(ns: u64) -> bindings::ktime_t {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// Ticks from now until a time, at least 1.
fn delay(time: u64) -> usize {
    let ns = time.saturating_sub(task::monotonic_ns());
    ns.div_ceil(tick_ns()).max(1) as usize
}

#[pinned_drop]
impl<T: Expire> PinnedDrop for CpuTimer<T> {
    fn drop(self: Pin<&mut Self>) {
        self.cancel();
    }
}
