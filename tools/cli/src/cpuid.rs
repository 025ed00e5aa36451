// SPDX-License-Identifier: GPL-2.0

//! CPUID on the CPU that this runs on.

#[cfg(target_arch = "x86")]
use std::arch::x86::__cpuid;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__cpuid;

/// EAX, EBX, ECX and EDX of a leaf, subleaf 0.
pub fn leaf(leaf: u32) -> [u32; 4] {
    #[allow(unused_unsafe, reason = "safe since Rust 1.94")]
    // SAFETY: All CPUs that Linux still runs on have the instruction, and it has no side effects.
    let answer = unsafe { __cpuid(leaf) };
    [answer.eax, answer.ebx, answer.ecx, answer.edx]
}
