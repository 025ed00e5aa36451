// SPDX-License-Identifier: GPL-2.0
//! What is used of `<linux/kvm.h>`, which the libc crate does not have.

use std::os::raw::{c_int, c_ulong, c_void};

pub const CREATE_VCPU: c_ulong = 0xae41;
pub const RUN: c_ulong = 0xae80;
pub const SET_CPUID2: c_ulong = 0x4008_ae90;
pub const ENABLE_CAP: c_ulong = 0x4068_aea3;
pub const SET_MSR_FILTER: c_ulong = 0x4188_aec6;

pub const CAP_USER_SPACE_MSR: u32 = 188;
/// KVM_MSR_EXIT_REASON_INVAL, _UNKNOWN and _FILTER.
pub const EXIT_ALL: u64 = 1 | EXIT_UNKNOWN | EXIT_FILTER;
pub const EXIT_UNKNOWN: u64 = 2;
pub const EXIT_FILTER: u64 = 4;

pub const EXIT_RDMSR: u32 = 29;
pub const EXIT_WRMSR: u32 = 30;

/// `struct kvm_enable_cap`
#[repr(C)]
pub struct EnableCap {
    pub cap: u32,
    pub flags: u32,
    pub args: [u64; 4],
    pub pad: [u8; 64],
}

pub const FILTER_READ: u32 = 1;
pub const FILTER_WRITE: u32 = 2;
pub const FILTER_RANGES: usize = 16;
/// Bits in the largest bitmap of a range.
pub const FILTER_BITS: u32 = 0x600 * 8;

/// `struct kvm_msr_filter_range`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FilterRange {
    pub flags: u32,
    pub nmsrs: u32,
    pub base: u32,
    pub bitmap: *mut u8,
}

/// `struct kvm_msr_filter`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Filter {
    pub flags: u32,
    pub ranges: [FilterRange; FILTER_RANGES],
}

/// `struct kvm_cpuid_entry2`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuidEntry {
    pub function: u32,
    pub index: u32,
    pub flags: u32,
    /// EAX, EBX, ECX and EDX.
    pub registers: [u32; 4],
    pub padding: [u32; 3],
}

/// The index of the entry counts.
pub const CPUID_INDEXED: u32 = 1;

/// The beginning of `struct kvm_run`, as far as it concerns MSR exits.
#[repr(C)]
pub struct Run {
    pub request_interrupt_window: u8,
    pub immediate_exit: u8,
    pub padding: [u8; 6],
    pub exit_reason: u32,
    pub ready_for_interrupt_injection: u8,
    pub if_flag: u8,
    pub flags: u16,
    pub cr8: u64,
    pub apic_base: u64,
    pub error: u8,
    pub pad: [u8; 7],
    pub reason: u32,
    pub index: u32,
    pub data: u64,
}

const _: () = assert!(std::mem::size_of::<EnableCap>() == 104);
const _: () = assert!(std::mem::size_of::<Filter>() == 392);
const _: () = assert!(std::mem::size_of::<CpuidEntry>() == 40);
const _: () = assert!(std::mem::offset_of!(Run, exit_reason) == 8);
const _: () = assert!(std::mem::offset_of!(Run, error) == 32);
const _: () = assert!(std::mem::offset_of!(Run, data) == 48);

/// The system call itself; `errno` is set as the C library would.
///
/// # Safety
///
/// `argument` must be what `request` on `fd` takes.
pub unsafe fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: by the contract of this function.
    unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument) as c_int }
}
