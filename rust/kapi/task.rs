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

/// Nanoseconds since boot, those spent suspended included.
pub(crate) fn now_ns() -> u64 {
    // SAFETY: Has no preconditions.
    let ns = unsafe { bindings::ktime_get_with_offset(bindings::tk_offsets_TK_OFFS_BOOT) };
    ns as u64
}

/// Milliseconds since boot, those spent suspended included.
pub(crate) fn now_ms() -> u64 {
    now_ns() / 1_000_000
}

/// Sleeps for `jiffies`, or until a fatal signal comes.
pub(crate) fn sleep_killably(jiffies: Jiffies) {
    // SAFETY: Process context, no locks are held.
    unsafe { bindings::schedule_timeout_killable(jiffies as c_long) };
}

/// The calling task's effective user id, in the initial user namespace.
pub(crate) fn user() -> u32 {
    // SAFETY: The initial user namespace lives for ever.
    unsafe { bindings::from_kuid(&raw mut bindings::init_user_ns, bindings::current_euid()) }
}

/// Whether the calling task may run on a CPU: its affinity, which its cpuset bounds.
pub(crate) fn may_run_on(cpu: u32) -> bool {
    // SAFETY: Looks at the calling task only, and checks that there is such a CPU.
    unsafe { super::helpers::cpupeek_helper_may_run_on(cpu) }
}

/// Whether a CPU is isolated: kept free of load balancing, or of the kernel's noise.
pub(crate) fn is_isolated(cpu: u32) -> bool {
    // SAFETY: Has no preconditions; it checks that there is such a CPU.
    unsafe { super::helpers::cpupeek_helper_is_isolated(cpu) }
}

/// Whether any CPU may be isolated.
pub(crate) fn are_cpus_isolated() -> bool {
    // SAFETY: Has no preconditions.
    unsafe { super::helpers::cpupeek_helper_are_cpus_isolated() }
}

/// Whether the kernel is locked down for confidentiality.
pub(crate) fn is_confidential() -> bool {
    // What /proc/kcore shows is what is to be kept from everybody.
    //
    // SAFETY: Has no preconditions.
    unsafe { bindings::security_locked_down(bindings::lockdown_reason_LOCKDOWN_KCORE) != 0 }
}

/// The monotonic clock, in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    // SAFETY: Has no preconditions.
    unsafe { bindings::ktime_get() as u64 }
}

/// Whether the calling task has CAP_SYS_RAWIO in the initial user namespace.
pub(crate) fn has_rawio() -> bool {
    has(bindings::CAP_SYS_RAWIO)
}

/// Whether the calling task has CAP_SYS_NICE in the initial user namespace.
pub(crate) fn has_nice() -> bool {
    has(bindings::CAP_SYS_NICE)
}

/// Leaves no trace in the audit log: that an unprivileged descriptor is opened is no event.
fn has(capability: u32) -> bool {
    // SAFETY: The initial user namespace lives for ever.
    unsafe { bindings::ns_capable_noaudit(&raw mut bindings::init_user_ns, capability as c_int) }
}
