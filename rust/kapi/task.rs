// SPDX-License-Identifier: GPL-2.0

//! The calling task, and its time.

use super::helpers;
use kernel::{
    bindings,
    prelude::*,
    time::Jiffies, //
};

/// Whether the calling task is about to be killed.
pub(crate) fn is_being_killed() -> bool {
    // SAFETY: Has no preconditions but process context, which everything with a current task has.
    unsafe { helpers::cpupeek_helper_fatal_signal_pending() }
}

/// Whether another task wants this CPU, however patiently.
pub(crate) fn is_resched_wanted() -> bool {
    // SAFETY: Has no preconditions.
    unsafe { helpers::cpupeek_helper_is_resched_wanted() }
}

/// Lets other tasks run if they want to. For loops that do not sleep.
pub(crate) fn cond_resched() {
    // SAFETY: Called in process context without locks, as everything that may sleep.
    unsafe { helpers::cpupeek_helper_cond_resched() };
}

/// Milliseconds since boot, those spent suspended included.
pub(crate) fn now_ms() -> u64 {
    // SAFETY: Has no preconditions.
    let ns = unsafe { bindings::ktime_get_with_offset(bindings::tk_offsets_TK_OFFS_BOOT) };
    ns as u64 / 1_000_000
}

/// Ticks since boot; wraps.
pub(crate) fn jiffies() -> Jiffies {
    // SAFETY: `jiffies` is updated by single stores of the whole word.
    unsafe { (&raw const bindings::jiffies).read_volatile() }
}

/// Whether the calling task has CAP_SYS_RAWIO in the initial user namespace.
///
/// Leaves no trace in the audit log: that an unprivileged descriptor is opened is no event.
pub(crate) fn has_rawio() -> bool {
    // SAFETY: The initial user namespace lives for ever.
    unsafe {
        bindings::ns_capable_noaudit(
            &raw mut bindings::init_user_ns,
            bindings::CAP_SYS_RAWIO as c_int,
        )
    }
}
