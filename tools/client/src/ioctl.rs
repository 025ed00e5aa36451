// SPDX-License-Identifier: GPL-2.0

//! The system calls: the only place that hands memory to the kernel.

use crate::op::Op;
use crate::uapi;
use rustix::io;
use rustix::ioctl::{ioctl, Opcode, Updater};
use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};

const INFO: Opcode = uapi::CPUPEEK_CONST_IOC_INFO as Opcode;
const READ: Opcode = uapi::CPUPEEK_CONST_IOC_READ as Opcode;
const BATCH: Opcode = uapi::CPUPEEK_CONST_IOC_BATCH as Opcode;
const PREPARE: Opcode = uapi::CPUPEEK_CONST_IOC_PREPARE as Opcode;
const SET_ALLOW: Opcode = uapi::CPUPEEK_CONST_IOC_SET_ALLOW as Opcode;
const GET_ALLOW: Opcode = uapi::CPUPEEK_CONST_IOC_GET_ALLOW as Opcode;
const NARROW: Opcode = uapi::CPUPEEK_CONST_IOC_NARROW as Opcode;
const REFUSALS: Opcode = uapi::CPUPEEK_CONST_IOC_REFUSALS as Opcode;
const RUN: Opcode = uapi::CPUPEEK_CONST_IOC_RUN as Opcode;

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

/// Makes a plan of `ops` and returns its descriptor.
pub(crate) fn prepare(device: &File, ops: &[Op]) -> io::Result<OwnedFd> {
    let mut header = uapi::cpupeek_prepare {
        size: size_of::<uapi::cpupeek_prepare>() as u32,
        nr_ops: u32::try_from(ops.len()).map_err(|_| io::Errno::TOOBIG)?,
        op_size: size_of::<Op>() as u32,
        ops: ops.as_ptr().expose_provenance() as u64,
        fd: -1,
        ..Default::default()
    };
    // SAFETY: The command is for this type, of whose bytes it overwrites some;
    // any bits are a value of it. Through `header.ops` it only reads.
    unsafe { ioctl(device, Updater::<PREPARE, _>::new(&mut header)) }?;
    if header.fd < 0 {
        return Err(io::Errno::BADF);
    }
    // SAFETY: The module opened this descriptor for us and nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(header.fd) })
}

/// Performs a plan. `header` says how; where the results go is filled in here.
pub(crate) fn run(
    plan: &OwnedFd,
    mut header: uapi::cpupeek_run,
    results: &mut [uapi::cpupeek_result],
) -> io::Result<()> {
    header.size = size_of::<uapi::cpupeek_run>() as u32;
    header.nr_results = u32::try_from(results.len()).map_err(|_| io::Errno::TOOBIG)?;
    header.results = results.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: The command is for this type. Through `header.results` it writes
    // to `nr_results` structures, which are ours to write for as long as it
    // lasts, and any bits are a value of them.
    unsafe { ioctl(plan, Updater::<RUN, _>::new(&mut header)) }
}

/// Sets the allowlist. The header says for which range it is refused.
pub(crate) fn set_allow(
    device: &File,
    ranges: &[uapi::cpupeek_range],
) -> (uapi::cpupeek_allow, io::Result<()>) {
    let mut header = uapi::cpupeek_allow {
        size: size_of::<uapi::cpupeek_allow>() as u32,
        bad_range: uapi::CPUPEEK_CONST_NO_RANGE,
        ranges: ranges.as_ptr().expose_provenance() as u64,
        ..Default::default()
    };
    let Ok(nr_ranges) = u32::try_from(ranges.len()) else {
        return (header, Err(io::Errno::TOOBIG));
    };
    header.nr_ranges = nr_ranges;
    // SAFETY: The command is for this type, of whose bytes it overwrites some;
    // any bits are a value of it. Through `header.ranges` it only reads.
    let result = unsafe { ioctl(device, Updater::<SET_ALLOW, _>::new(&mut header)) };
    (header, result)
}

/// Gets the allowlist, as much of it as there is room for.
pub(crate) fn get_allow(
    device: &File,
    ranges: &mut [uapi::cpupeek_range],
) -> io::Result<uapi::cpupeek_allow> {
    let mut header = uapi::cpupeek_allow {
        size: size_of::<uapi::cpupeek_allow>() as u32,
        nr_ranges: u32::try_from(ranges.len()).map_err(|_| io::Errno::TOOBIG)?,
        ranges: ranges.as_mut_ptr().expose_provenance() as u64,
        ..Default::default()
    };
    // SAFETY: The command is for this type. Through `header.ranges` it writes
    // to `nr_ranges` structures at most, which are ours to write for as long as
    // it lasts, and any bits are a value of them.
    unsafe { ioctl(device, Updater::<GET_ALLOW, _>::new(&mut header)) }?;
    Ok(header)
}

/// Takes rights away. `header` says which kinds; the rest is filled in here.
pub(crate) fn narrow(
    device: &File,
    mut header: uapi::cpupeek_narrow,
    ranges: &[uapi::cpupeek_range],
    cpus: &[u64],
) -> io::Result<()> {
    header.size = size_of::<uapi::cpupeek_narrow>() as u32;
    header.nr_ranges = u32::try_from(ranges.len()).map_err(|_| io::Errno::TOOBIG)?;
    header.cpus_size = u32::try_from(size_of_val(cpus)).map_err(|_| io::Errno::TOOBIG)?;
    // What is not given has no address.
    let address = |there: bool, address: usize| if there { address as u64 } else { 0 };
    header.ranges = address(!ranges.is_empty(), ranges.as_ptr().expose_provenance());
    header.cpus = address(!cpus.is_empty(), cpus.as_ptr().expose_provenance());
    // SAFETY: The command is for this type, and only reads, also through the
    // addresses in it.
    unsafe { ioctl(device, Updater::<NARROW, _>::new(&mut header)) }
}

/// Gets the counts of refusals, as many as there is room for.
pub(crate) fn refusals(
    device: &File,
    entries: &mut [uapi::cpupeek_refusal],
) -> io::Result<uapi::cpupeek_refusals> {
    let mut header = uapi::cpupeek_refusals {
        size: size_of::<uapi::cpupeek_refusals>() as u32,
        nr_entries: u32::try_from(entries.len()).map_err(|_| io::Errno::TOOBIG)?,
        entries: entries.as_mut_ptr().expose_provenance() as u64,
        ..Default::default()
    };
    // SAFETY: The command is for this type. Through `header.entries` it writes
    // to `nr_entries` structures at most, which are ours to write for as long
    // as it lasts, and any bits are a value of them.
    unsafe { ioctl(device, Updater::<REFUSALS, _>::new(&mut header)) }?;
    Ok(header)
}
