// SPDX-License-Identifier: GPL-2.0

//! The system calls: the only place that hands memory to the kernel.

use crate::op::Op;
use crate::uapi;
use rustix::io;
use rustix::ioctl::{ioctl, NoArg, Opcode, Updater};
use std::fs::File;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicU32;

const INFO: Opcode = uapi::CPUPEEK_CONST_IOC_INFO as Opcode;
const READ: Opcode = uapi::CPUPEEK_CONST_IOC_READ as Opcode;
const BATCH: Opcode = uapi::CPUPEEK_CONST_IOC_BATCH as Opcode;
const PREPARE: Opcode = uapi::CPUPEEK_CONST_IOC_PREPARE as Opcode;
const SET_ALLOW: Opcode = uapi::CPUPEEK_CONST_IOC_SET_ALLOW as Opcode;
const GET_ALLOW: Opcode = uapi::CPUPEEK_CONST_IOC_GET_ALLOW as Opcode;
const NARROW: Opcode = uapi::CPUPEEK_CONST_IOC_NARROW as Opcode;
const REFUSALS: Opcode = uapi::CPUPEEK_CONST_IOC_REFUSALS as Opcode;
const SAMPLER: Opcode = uapi::CPUPEEK_CONST_IOC_SAMPLER as Opcode;
const WATCH: Opcode = uapi::CPUPEEK_CONST_IOC_WATCH as Opcode;
const STOP: Opcode = uapi::CPUPEEK_CONST_IOC_STOP as Opcode;
const SET_CPU_WORD: Opcode = uapi::CPUPEEK_CONST_IOC_SET_CPU_WORD as Opcode;
const CLEAR_CPU_WORD: Opcode = uapi::CPUPEEK_CONST_IOC_CLEAR_CPU_WORD as Opcode;
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

/// Makes a sampler of `ops`, or of a plan's operations if `on` is a plan and there are none. `header`
/// says how; returns it with what the module has filled in, and the descriptor.
pub(crate) fn sampler(
    on: BorrowedFd<'_>,
    mut header: uapi::cpupeek_sampler,
    ops: &[Op],
) -> io::Result<(OwnedFd, uapi::cpupeek_sampler)> {
    header.size = size_of::<uapi::cpupeek_sampler>() as u32;
    header.fd = -1;
    if !ops.is_empty() {
        header.nr_ops = u32::try_from(ops.len()).map_err(|_| io::Errno::TOOBIG)?;
        header.op_size = size_of::<Op>() as u32;
        header.ops = ops.as_ptr().expose_provenance() as u64;
    }
    // SAFETY: The command is for this type, of whose bytes it overwrites some;
    // any bits are a value of it. Through `header.ops` it only reads.
    unsafe { ioctl(on, Updater::<SAMPLER, _>::new(&mut header)) }?;
    if header.fd < 0 {
        return Err(io::Errno::BADF);
    }
    // SAFETY: The module opened this descriptor for us and nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(header.fd) };
    Ok((fd, header))
}

/// Says which samples matter.
pub(crate) fn watch(sampler: &OwnedFd, conditions: &[uapi::cpupeek_condition]) -> io::Result<()> {
    let address = conditions.as_ptr().expose_provenance() as u64;
    let mut header = uapi::cpupeek_watch {
        size: size_of::<uapi::cpupeek_watch>() as u32,
        nr_conditions: u32::try_from(conditions.len()).map_err(|_| io::Errno::TOOBIG)?,
        conditions: if conditions.is_empty() { 0 } else { address },
        ..Default::default()
    };
    // SAFETY: The command is for this type, and only reads, also through the
    // address in it.
    unsafe { ioctl(sampler, Updater::<WATCH, _>::new(&mut header)) }
}

/// Ends a sampler.
pub(crate) fn stop(sampler: &OwnedFd) -> io::Result<()> {
    // SAFETY: The command has no argument.
    unsafe { ioctl(sampler, NoArg::<STOP>::new()) }
}

/// Waits for samples that matter, and returns their number.
pub(crate) fn read_count(sampler: &OwnedFd) -> io::Result<u64> {
    let mut count = [0; 8];
    loop {
        match rustix::io::read(sampler, &mut count) {
            Ok(8) => return Ok(u64::from_ne_bytes(count)),
            Ok(_) => return Ok(0),
            Err(io::Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Has the kernel keep the number of the calling thread's CPU in `word`.
///
/// # Safety
///
/// `word` stays where it is, and is not used otherwise, until [`clear_cpu_word`]
/// has succeeded in the same thread, or the thread or the descriptor is gone.
pub(crate) unsafe fn set_cpu_word(device: &File, word: *const AtomicU32) -> io::Result<()> {
    let mut header = uapi::cpupeek_cpu_word {
        size: size_of::<uapi::cpupeek_cpu_word>() as u32,
        address: word.expose_provenance() as u64,
        ..Default::default()
    };
    // SAFETY: The command is for this type, and only reads it; the caller
    // promises that the memory at the address in it is there.
    unsafe { ioctl(device, Updater::<SET_CPU_WORD, _>::new(&mut header)) }
}

/// Ends that. `NOENT` if the calling thread has no word on this descriptor.
pub(crate) fn clear_cpu_word(device: &File) -> io::Result<()> {
    // SAFETY: The command takes no argument; what it writes to, the thread has
    // named for that.
    unsafe { ioctl(device, NoArg::<CLEAR_CPU_WORD>::new()) }
}
