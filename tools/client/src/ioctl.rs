// SPDX-License-Identifier: GPL-2.0

//! The system calls: the only place that hands memory to the kernel.

use crate::op::Op;
use crate::uapi;
use rustix::io;
use rustix::ioctl::{ioctl, Opcode, Updater};
use std::fs::File;

const INFO: Opcode = uapi::CPUPEEK_CONST_IOC_INFO as Opcode;
const READ: Opcode = uapi::CPUPEEK_CONST_IOC_READ as Opcode;
const BATCH: Opcode = uapi::CPUPEEK_CONST_IOC_BATCH as Opcode;

pub(crate) fn info(device: &File) -> io::Result<uapi::cpupeek_info> {
    let mut info = uapi::cpupeek_info::default();
    // SAFETY: The command is for this type, of whose bytes it overwrites some;
    // any bits are a value of it.
    unsafe { ioctl(device, Updater::<INFO, _>::new(&mut info)) }?;
    Ok(info)
}

pub(crate) fn read(device: &File, op: &mut Op) -> io::Result<()> {
    // SAFETY: The command is for this type, of whose bytes it overwrites some;
    // any bits are a value of it.
    unsafe { ioctl(device, Updater::<READ, _>::new(op.as_raw_mut())) }
}

/// Performs `ops`, whose number the caller has checked against the limit.
/// `header` says how; where the operations are is filled in here.
pub(crate) fn batch(
    device: &File,
    mut header: uapi::cpupeek_batch,
    ops: &mut [Op],
) -> io::Result<()> {
    header.size = size_of::<uapi::cpupeek_batch>() as u32;
    header.nr_ops = u32::try_from(ops.len()).map_err(|_| io::Errno::TOOBIG)?;
    header.op_size = size_of::<Op>() as u32;
    header.ops = ops.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: The command is for this type. Through `header.ops` it writes to
    // `nr_ops` structures of `op_size` bytes, which are ours to write for as
    // long as it lasts, and any bits are a value of them. `Updater`, unlike
    // `Setter`, tells the compiler that memory changes.
    unsafe { ioctl(device, Updater::<BATCH, _>::new(&mut header)) }
}
