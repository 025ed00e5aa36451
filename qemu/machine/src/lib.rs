// SPDX-License-Identifier: GPL-2.0
//! Programmable registers: a library that is preloaded under QEMU, between it and KVM.
//!
//! It wraps `ioctl()` and `mmap()`. KVM is told to leave the described registers, and those that it does not know, to user
//! space; when it does, the answer comes from the description and QEMU never sees the exit. CPUID is rewritten on its way
//! to KVM. The description is what the runner made of a file in qemu/machines: it has been checked and is trusted here.

#![cfg_attr(test, allow(dead_code))]

mod control;
mod cpuid;
mod description;
mod filter;
mod kvm;
mod register;
mod report;
mod vcpu;

/// What QEMU calls instead of the C library. Not in the tests, which need the C library's own.
#[cfg(not(test))]
mod wrap;
