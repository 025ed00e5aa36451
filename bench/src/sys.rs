// SPDX-License-Identifier: GPL-2.0

//! System calls as the measurements need them. `unsafe` code is here and in the readers.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

fn check(ret: i64) -> io::Result<i64> {
    if ret < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(ret)
    }
}

/// The time stamp counter, about now.
pub fn rdtsc() -> u64 {
    // SAFETY: Every x86-64 CPU has it, and no kernel here forbids it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Restricts the calling thread to one CPU.
pub fn pin(cpu: u32) -> io::Result<()> {
    // SAFETY: All zeroes are an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: The macro's function checks the number against the set's size.
    unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    // SAFETY: `set` is what it is said to be.
    check(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) }.into())?;
    Ok(())
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` may be written, and the clocks used here exist.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds since boot.
pub fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// The CPU time that the calling thread has used. `getrusage()` counts in ticks, and is wrong here.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// How often the calling thread has given up its CPU by itself.
pub fn voluntary_switches() -> u64 {
    // SAFETY: All zeroes are a value of this.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` may be written.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    usage.ru_nvcsw as u64
}

/// Sleeps until `now_ns()` is at least `time`.
pub fn sleep_until(time: u64) {
    let time = libc::timespec {
        tv_sec: (time / 1_000_000_000) as libc::time_t,
        tv_nsec: (time % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `time` is a valid time; nothing is written for an absolute one.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &time,
            std::ptr::null_mut(),
        )
    };
}

/// Sleeps without the slack that ordinary threads' timers have.
pub fn sleep(time: Duration) {
    sleep_until(now_ns() + time.as_nanos() as u64);
}

/// Makes the calling thread's timers as exact as a real-time thread's.
pub fn without_timer_slack() {
    // SAFETY: Has no preconditions.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

/// Makes the calling thread a SCHED_FIFO one.
pub fn become_fifo() -> io::Result<()> {
    let param = libc::sched_param { sched_priority: 50 };
    // SAFETY: `param` is what it is said to be.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) }.into())?;
    Ok(())
}

/// The cheapest system call that does anything.
pub fn getppid() {
    // SAFETY: Has no preconditions.
    unsafe { libc::getppid() };
}

/// The CPUs of this machine, all of which must be online.
pub fn cpus() -> Result<Vec<u32>, String> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online")
        .map_err(|error| format!("cannot read which CPUs are online: {error}"))?;
    let last = match text.trim().split_once('-') {
        None => text.trim(),
        Some(("0", last)) => last,
        Some(_) => "",
    };
    match last.parse::<u32>() {
        Ok(last) => Ok((0..=last).collect()),
        Err(_) => Err(format!(
            "CPUs {} are online, but the measurements need all from 0 on: bring them online",
            text.trim()
        )),
    }
}

/// A pipe: the end to read from, and the end to write to.
pub fn pipe() -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: There is room for two descriptors.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }.into())?;
    // SAFETY: The descriptors are new, and nobody else's.
    Ok(ends.map(|fd| unsafe { File::from_raw_fd(fd) }).into())
}

/// An ioctl whose argument is a structure that the kernel may write to.
///
/// # Safety
///
/// `command` is for a `T`, any bits are a valid `T`, and what addresses in it name may be written.
pub unsafe fn ioctl<T>(file: &impl AsRawFd, command: u32, argument: &mut T) -> io::Result<()> {
    // SAFETY: The caller vouches for the command and for what the structure names.
    let ret = unsafe {
        libc::ioctl(
            file.as_raw_fd(),
            command.into(),
            std::ptr::from_mut(argument),
        )
    };
    check(ret.into())?;
    Ok(())
}

/// Reads eight bytes at an offset: an MSR, where the file is `/dev/cpu/N/msr`.
pub fn pread(file: &File, offset: u32) -> io::Result<u64> {
    let mut value = 0u64;
    // SAFETY: There is room for eight bytes.
    let ret = unsafe {
        libc::pread(
            file.as_raw_fd(),
            std::ptr::from_mut(&mut value).cast(),
            8,
            offset.into(),
        )
    };
    match check(ret as i64)? {
        8 => Ok(value),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// `struct perf_event_attr` in its first version.
#[repr(C)]
pub struct PerfEvent {
    pub kind: u32,
    pub size: u32,
    pub config: u64,
    pub sample_period: u64,
    pub sample_type: u64,
    pub read_format: u64,
    pub flags: u64,
    pub wakeup_events: u32,
    pub bp_type: u32,
    pub config1: u64,
}

const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

/// Opens an event that counts on one CPU, in a group if there is a leader.
pub fn perf_event_open(
    event: &PerfEvent,
    cpu: u32,
    leader: Option<&OwnedFd>,
) -> io::Result<OwnedFd> {
    let group = leader.map_or(-1, |leader| leader.as_raw_fd());
    // SAFETY: The structure says its own size.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(event),
            -1,
            cpu as libc::c_int,
            group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    // SAFETY: The descriptor is new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(check(ret)? as i32) })
}

/// One of the module's numbers in sysfs.
pub fn module_counter(name: &str) -> Result<u64, String> {
    let path = format!("/sys/class/misc/cpupeek/{name}");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    text.trim()
        .parse()
        .map_err(|error| format!("{path}: {error}"))
}

/// The number of this thread's CPU, as the C library finds it.
pub fn sched_getcpu() -> Option<u32> {
    // SAFETY: Has no preconditions.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// The same by a system call.
pub fn getcpu() -> Option<u32> {
    let mut cpu = 0u32;
    let none = std::ptr::null_mut::<u32>();
    // SAFETY: `cpu` may be written.
    let ret = unsafe { libc::syscall(libc::SYS_getcpu, &mut cpu, none, none) };
    (ret == 0).then_some(cpu)
}
