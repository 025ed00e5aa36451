// SPDX-License-Identifier: GPL-2.0

//! System calls on open files.

use std::os::fd::RawFd;

use libc::{c_int, c_long, c_short};

use super::{check, last_error, Result};

/// `read()` of at most 16 bytes: how many there were, and the number in the first 8.
pub fn read_number(fd: RawFd, size: usize) -> Result<(usize, u64)> {
    let mut buffer = [0u64; 2];
    assert!(size <= size_of_val(&buffer));
    // SAFETY: There is room for that many bytes.
    let ret = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), size) };
    let count = check(ret as c_long)?;
    Ok((count as usize, buffer[0]))
}

/// `read()` to an address, valid or not.
pub fn read_to(fd: RawFd, address: usize, size: usize) -> Result<()> {
    // SAFETY: Only the kernel uses the address, and the callers give one of nothing of theirs.
    let ret = unsafe { libc::syscall(libc::SYS_read, fd, address, size) };
    check(ret).map(|_| ())
}

/// What `poll()` for input says within `ms`.
pub fn poll(fd: RawFd, ms: c_int) -> c_short {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: There is one descriptor in it.
    let ret = unsafe { libc::poll(&mut poll, 1, ms) };
    assert!(ret >= 0, "poll: {:?}", last_error());
    poll.revents
}

/// Sets or clears O_NONBLOCK.
pub fn set_nonblocking(fd: RawFd, on: bool) {
    let flags = if on { libc::O_NONBLOCK } else { 0 };
    // SAFETY: Has no preconditions.
    let ret = unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_RDWR | flags) };
    assert!(ret == 0, "fcntl: {:?}", last_error());
}

/// `mmap()` with anything; what it made is unmapped again.
pub fn try_mmap(fd: RawFd, len: usize, prot: c_int, flags: c_int, offset: i64) -> Result<()> {
    // SAFETY: A new mapping at an address of the kernel's choice harms nobody.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, fd, offset) };
    if start == libc::MAP_FAILED {
        return Err(last_error());
    }
    // SAFETY: The mapping is ours, and nothing refers to it.
    unsafe { libc::munmap(start, len) };
    Ok(())
}

/// `mremap()` of a mapping to another length, which must fail.
pub fn try_mremap(address: usize, len: usize, to: usize) -> Result<()> {
    let old = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: It is only tried where it is refused; a mapping that moved would be noticed at once.
    let start = unsafe { libc::mremap(old, len, to, libc::MREMAP_MAYMOVE) };
    if start == libc::MAP_FAILED {
        return Err(last_error());
    }
    Ok(())
}
