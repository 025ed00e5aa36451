// SPDX-License-Identifier: GPL-2.0

//! Registers of the CPU that the code runs on, and its time.

use super::helpers;
use kernel::{
    bindings,
    prelude::*, //
};

/// Reads an MSR of this CPU. [`EIO`] if the CPU refuses it (general protection fault).
///
/// Intel SDM volume 2, RDMSR; AMD APM volume 3, RDMSR.
pub(crate) fn rdmsr(reg: u32) -> Result<u64> {
    rdmsr_timed(reg).1
}

/// The same, with this CPU's time stamp counter immediately before, when all earlier instructions
/// were through.
pub(crate) fn rdmsr_timed(reg: u32) -> (u64, Result<u64>) {
    let [mut tsc, mut value] = [0; 2];
    // SAFETY: Both can be written. A fault is caught by the exception table, and reading a register
    // that exists does not touch memory.
    match unsafe { helpers::cpupeek_helper_rdmsrq_safe(reg, &mut tsc, &mut value) } {
        0 => (tsc, Ok(value)),
        _ => (tsc, Err(EIO)),
    }
}

/// Executes CPUID on this CPU: EAX, EBX, ECX and EDX of a leaf and subleaf.
///
/// Intel SDM volume 2, CPUID; AMD APM volume 3, appendix E.
pub(crate) fn cpuid(leaf: u32, subleaf: u32) -> [u32; 4] {
    let [mut eax, mut ebx, mut ecx, mut edx] = [0; 4];
    // SAFETY: CPUID exists on every CPU that this kernel runs on, has no effect but its results,
    // and these can be written.
    unsafe {
        helpers::cpupeek_helper_cpuid_count(leaf, subleaf, &mut eax, &mut ebx, &mut ecx, &mut edx)
    };
    [eax, ebx, ecx, edx]
}

/// This CPU's time stamp counter, when all earlier instructions are through.
pub(crate) fn rdtsc_ordered() -> u64 {
    // SAFETY: Every CPU that this kernel runs on has RDTSC.
    unsafe { helpers::cpupeek_helper_rdtsc_ordered() }
}

/// This CPU's time stamp counter, about now.
pub(crate) fn rdtsc() -> u64 {
    // SAFETY: Every CPU that this kernel runs on has RDTSC.
    unsafe { helpers::cpupeek_helper_rdtsc() }
}

/// The number of the interrupt by another CPU's call that this CPU is in, 0 if it is in none.
pub(super) fn call_interrupt() -> u64 {
    // SAFETY: Looks at this CPU's own state.
    unsafe { helpers::cpupeek_helper_call_interrupt() }
}

/// The frequency of the time stamp counter in kHz, 0 if the kernel does not know it.
pub(crate) fn tsc_khz() -> u32 {
    // SAFETY: `tsc_khz` is written while the kernel boots, and refined once by a store of the
    // whole word.
    unsafe { (&raw const bindings::tsc_khz).read_volatile() }
}

/// About how many nanoseconds `cycles` of the time stamp counter are; 0 if its frequency is unknown.
pub(crate) fn cycles_to_ns(cycles: u64) -> u64 {
    let cycles = cycles.saturating_mul(1_000_000);
    cycles.checked_div(tsc_khz().into()).unwrap_or(0)
}

/// Whether the time stamp counters of all CPUs run at one constant rate, and are in step.
pub(crate) fn tsc_stable() -> bool {
    // SAFETY: Has no preconditions.
    unsafe { helpers::cpupeek_helper_tsc_stable() }
}

/// Runs `f` with interrupts off, and so on one CPU, whose number it is given.
pub(crate) fn with_irqs_off<R>(f: impl FnOnce(u32) -> R) -> R {
    let mut here = 0;
    // SAFETY: Restored below with the same flags; `here` can be written.
    let flags = unsafe { helpers::cpupeek_helper_local_irq_save(&mut here) };
    let result = f(here);
    // SAFETY: `flags` come from the matching save above.
    unsafe { helpers::cpupeek_helper_local_irq_restore(flags) };
    result
}

/// The number of the CPU that the caller is on, which may have changed when it returns.
pub(crate) fn current_cpu() -> u32 {
    kernel::cpu::CpuId::current().as_u32()
}

/// Whether there is such a CPU, and it is online; it may go at any time.
pub(crate) fn is_online(cpu: u32) -> bool {
    // SAFETY: Has no preconditions.
    unsafe { helpers::cpupeek_helper_is_online(cpu) }
}

/// Whether the CPU is virtual, and its host has taken it off the processor against its will.
///
/// `false` does not promise that it runs.
pub(crate) fn is_vcpu_preempted(cpu: u32) -> bool {
    // SAFETY: Looks at a record of the CPU's, and checks that there is such a CPU.
    unsafe { helpers::cpupeek_helper_vcpu_is_preempted(cpu) }
}

/// Whether [`is_vcpu_preempted`] says more than `false` where there is something to say.
pub(crate) fn tells_vcpu_preempted() -> bool {
    cfg!(CONFIG_PARAVIRT_SPINLOCKS)
}

/// Nanoseconds that the host has kept a virtual CPU from running, as the kernel has accounted them,
/// which it does in the CPU's own ticks.
pub(crate) fn steal_ns(cpu: u32) -> u64 {
    // SAFETY: Looks at a record of the CPU's, and checks that there is such a CPU.
    unsafe { helpers::cpupeek_helper_steal_ns(cpu) }
}

/// Where a CPU is, as the kernel numbers that: the package, and the die and the core within it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Location {
    pub(crate) package: u32,
    pub(crate) die: u32,
    pub(crate) core: u32,
}

/// Where a CPU is.
pub(crate) fn location(cpu: u32) -> Location {
    if cpu >= kernel::cpu::nr_cpu_ids() {
        return Location::default();
    }
    // SAFETY: All of them look at a record of the CPU's, and there is one for every CPU number.
    unsafe {
        Location {
            package: helpers::cpupeek_helper_topology_package_id(cpu),
            die: helpers::cpupeek_helper_topology_die_id(cpu),
            core: helpers::cpupeek_helper_topology_core_id(cpu),
        }
    }
}
