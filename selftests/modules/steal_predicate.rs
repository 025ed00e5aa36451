// SPDX-License-Identifier: GPL-2.0

//! Whether a virtual CPU is preempted, from its steal-time record: what the kernel has in assembly,
//! in Rust. For `steal_main.c`.

use core::mem::offset_of;

/// `struct kvm_steal_time` of `arch/x86/include/uapi/asm/kvm_para.h`.
#[repr(C)]
pub struct StealTime {
    steal: u64,
    version: u32,
    flags: u32,
    preempted: u8,
    u8_pad: [u8; 3],
    pad: [u32; 11],
}

// `steal_main.c` holds the kernel's definition against the same numbers.
const _: () = assert!(
    offset_of!(StealTime, steal) == 0
        && offset_of!(StealTime, version) == 8
        && offset_of!(StealTime, flags) == 12
        && offset_of!(StealTime, preempted) == 16
        && size_of::<StealTime>() == 64
);

/// `KVM_VCPU_PREEMPTED`.
const PREEMPTED: u8 = 1 << 0;

/// Whether the record says that its CPU is preempted.
///
/// # Safety
///
/// The record can be read, and may change meanwhile.
#[no_mangle]
pub unsafe extern "C" fn cpupeek_rust_is_preempted(record: *const StealTime) -> bool {
    // SAFETY: As the caller promises; the host changes the byte as a whole.
    let preempted = unsafe { (&raw const (*record).preempted).read_volatile() };
    preempted & PREEMPTED != 0
}
