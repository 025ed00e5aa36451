// SPDX-License-Identifier: GPL-2.0

//! Where kernels differ. Kbuild looks into the tree and sets the configuration options; nothing goes
//! by version numbers.

use core::borrow::Borrow;
use kernel::{
    bindings,
    prelude::*,
    time::hrtimer::HrTimerRestart, //
};

/// Initialises `slot` in place.
///
/// # Safety
///
/// `slot` can be written, and what is in it does not move until it is dropped.
pub(super) unsafe fn init_in_place<T>(slot: *mut T, init: impl PinInit<T>) {
    // SAFETY: As the caller promises.
    #[cfg(cpupeek_has_raw_init)]
    unsafe {
        pin_init::raw_init(slot, init)
    };
    // SAFETY: As the caller promises.
    #[cfg(not(cpupeek_has_raw_init))]
    let Ok(()) = unsafe { init.__pinned_init(slot) };
}

/// The value of a module parameter, which the `kernel` crate lends in 7.2 and gives in 7.3.
pub(crate) fn parameter(value: impl Borrow<u32>) -> u32 {
    *value.borrow()
}

/// What the function of a timer returns: an integer in 7.2, and a type of its own in 7.3.
pub(super) fn timer_restart(again: bool) -> bindings::hrtimer_restart {
    let value = if again {
        HrTimerRestart::Restart as c_uint
    } else {
        HrTimerRestart::NoRestart as c_uint
    };
    #[cfg(cpupeek_has_enum_types)]
    return bindings::hrtimer_restart(value);
    #[cfg(not(cpupeek_has_enum_types))]
    return value;
}
