// SPDX-License-Identifier: GPL-2.0

//! The calling task, and its time.

use super::helpers;
use kernel::{
    bindings,
    mm::Mm,
    prelude::*,
    sync::aref::ARef, //
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

/// The memory of a process, told from that of others as long as this exists.
pub(crate) struct AddressSpace(ARef<Mm>);

impl AddressSpace {
    /// That of the calling task, which has none in kernel threads and after it has begun to exit.
    pub(crate) fn current() -> Option<Self> {
        let task = kernel::current!();
        let mm: &Mm = task.mm()?;
        Some(Self(mm.into()))
    }

    /// Whether the calling task uses it now. Allowed with preemption off.
    pub(crate) fn is_current(&self) -> bool {
        let task = kernel::current!();
        task.mm().is_some_and(|mm| mm.as_raw() == self.0.as_raw())
    }
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

/// Sleeps until the monotonic clock shows `end_ns`, or a fatal signal comes. By a timer of this CPU:
/// see `cpupeek_helper_wait_until()`.
pub(crate) fn sleep_killably_until(end_ns: u64) {
    // SAFETY: Process context, no spinlocks are held.
    unsafe { helpers::cpupeek_helper_sleep_until(end_ns as bindings::ktime_t) };
}

/// The user who is responsible for the calling task, by the id in the initial user namespace: of a task
/// in a user namespace of somebody's, the owner of that, whatever subordinate id the task has; of root's,
/// the namespace itself, by a number above all ids.
pub(crate) fn user() -> u64 {
    // SAFETY: Has no preconditions.
    unsafe { helpers::cpupeek_helper_account() }
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
