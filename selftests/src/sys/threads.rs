// SPDX-License-Identifier: GPL-2.0

//! System calls about threads: where they run, and what they run.

use std::ffi::CString;
use std::ptr::null_mut;

use libc::pid_t;

use super::{check, last_error, Errno, Result, PAGE};

pub fn gettid() -> pid_t {
    // SAFETY: Has no preconditions.
    unsafe { libc::gettid() }
}

/// The CPU that the calling thread is on, by a system call.
pub fn getcpu() -> u32 {
    let mut cpu = u32::MAX;
    let none = null_mut::<u8>();
    // SAFETY: `cpu` may be written.
    let ret = unsafe { libc::syscall(libc::SYS_getcpu, &mut cpu, none, none) };
    assert!(ret == 0, "getcpu: {:?}", last_error());
    cpu
}

/// How often the calling thread has been switched away from.
pub fn switches() -> i64 {
    // SAFETY: All zeroes are a value of this.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` may be written.
    let ret = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    assert!(ret == 0, "getrusage: {:?}", last_error());
    usage.ru_nvcsw + usage.ru_nivcsw
}

/// Restricts a thread to one CPU. It may be gone (ESRCH).
pub fn pin_thread(thread: pid_t, cpu: u32) -> Result<()> {
    // SAFETY: All zeroes are an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: The macro's function checks the number against the set's size.
    unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    // SAFETY: `set` is what it is said to be.
    check(unsafe { libc::sched_setaffinity(thread, size_of_val(&set), &set) }.into())?;
    Ok(())
}

/// Maps a zeroed page at an address where there is nothing.
pub fn map_page_at(address: usize) {
    // SAFETY: Nothing is replaced.
    let place = unsafe {
        libc::mmap(
            std::ptr::without_provenance_mut(address),
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        )
    };
    assert!(place.addr() == address, "mmap: {:?}", last_error());
}

/// Takes back a page of [`map_page_at`].
pub fn unmap_page_at(address: usize) {
    // SAFETY: Only mappings without a Rust object in them are there.
    let ret = unsafe { libc::munmap(std::ptr::without_provenance_mut(address), PAGE) };
    assert!(ret == 0, "munmap: {:?}", last_error());
}

/// The number at an address in a page of [`map_page_at`].
pub fn word_at(address: usize) -> u32 {
    // SAFETY: Mapped, aligned, and any number is valid.
    unsafe { std::ptr::with_exposed_provenance::<u32>(address).read_volatile() }
}

/// Stores a number at an address in a page of [`map_page_at`].
pub fn set_word_at(address: usize, value: u32) {
    // SAFETY: Mapped, aligned, and any number is valid.
    unsafe { std::ptr::with_exposed_provenance_mut::<u32>(address).write_volatile(value) };
}

/// A number for a file that survives exec.
pub fn inheritable(file: &impl std::os::fd::AsRawFd) -> i32 {
    // SAFETY: Has no preconditions.
    let fd = unsafe { libc::dup(file.as_raw_fd()) };
    assert!(fd != -1, "dup: {:?}", last_error());
    fd
}

/// Runs another program in this process. Returns only with an error.
pub fn exec(path: &str, arguments: &[String]) -> Errno {
    let strings: Vec<CString> = std::iter::once(path)
        .chain(arguments.iter().map(|argument| &**argument))
        .map(|text| CString::new(text).expect("no NUL in arguments"))
        .collect();
    let mut pointers: Vec<_> = strings.iter().map(|text| text.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: The list of strings ends with a null pointer.
    unsafe { libc::execv(pointers[0], pointers.as_ptr()) };
    last_error()
}
