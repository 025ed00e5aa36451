// SPDX-License-Identifier: GPL-2.0

//! System calls about rights, and about handing descriptors on.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;

use libc::c_ulong;

use super::last_error;

/// Gives up root for good, and its capabilities unless they are kept.
pub fn become_user(id: u32) {
    // SAFETY: These have no preconditions.
    let ret = unsafe {
        libc::setgroups(0, std::ptr::null())
            | libc::setresgid(id, id, id)
            | libc::setresuid(id, id, id)
    };
    assert!(ret == 0, "setresuid: {:?}", last_error());
}

/// The capabilities that are permitted stay so when root is given up.
pub fn keep_capabilities() {
    // SAFETY: Has no preconditions.
    unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 1 as c_ulong) };
}

pub const CAP_SYS_RAWIO: u32 = 17;

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Keeps, of the capabilities of this process, those in `mask`.
pub fn set_capabilities(mask: u64) {
    let mut header = CapHeader {
        version: 0x2008_0522,
        pid: 0,
    };
    let mut data = [CapData::default(); 2];
    // SAFETY: The version that is asked for has two words of each set.
    let ret = unsafe { libc::syscall(libc::SYS_capget, &mut header, data.as_mut_ptr()) };
    assert!(ret == 0, "capget: {:?}", last_error());
    for (i, data) in data.iter_mut().enumerate() {
        data.permitted &= (mask >> (32 * i)) as u32;
        data.effective = data.permitted;
    }
    // SAFETY: As above.
    let ret = unsafe { libc::syscall(libc::SYS_capset, &mut header, data.as_ptr()) };
    assert!(ret == 0, "capset: {:?}", last_error());
}

pub fn enter_user_namespace() {
    // SAFETY: The process has one thread.
    let ret = unsafe { libc::unshare(libc::CLONE_NEWUSER) };
    assert!(ret == 0, "unshare: {:?}", last_error());
}

pub fn socket_pair() -> (UnixDatagram, UnixDatagram) {
    UnixDatagram::pair().expect("sockets")
}

/// A message of one byte with room for a descriptor, as long as `f` runs.
fn with_message<R>(f: impl FnOnce(&mut libc::msghdr) -> R) -> R {
    let mut byte = 0u8;
    let mut part = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    // Room for the control message of one descriptor, aligned as that wants it.
    let mut control = [0u64; 3];
    // SAFETY: All zeroes are a message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of_val(&control);
    f(&mut message)
}

/// Sends a descriptor (SCM_RIGHTS).
pub fn send_fd(to: &UnixDatagram, fd: RawFd) {
    with_message(|message| {
        // SAFETY: There is room for one control message with a descriptor in it.
        unsafe {
            let head = libc::CMSG_FIRSTHDR(message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
            libc::CMSG_DATA(head).cast::<RawFd>().write_unaligned(fd);
        }
        // SAFETY: The message's parts are valid while this runs.
        let ret = unsafe { libc::sendmsg(to.as_raw_fd(), message, 0) };
        assert!(ret == 1, "sendmsg: {:?}", last_error());
    });
}

/// Receives a descriptor.
pub fn receive_fd(from: &UnixDatagram) -> OwnedFd {
    with_message(|message| {
        // SAFETY: The message's parts are valid while this runs.
        let ret = unsafe { libc::recvmsg(from.as_raw_fd(), message, libc::MSG_CMSG_CLOEXEC) };
        assert!(ret == 1, "recvmsg: {:?}", last_error());
        // SAFETY: What was received begins with a control message, or there is none.
        unsafe {
            let head = libc::CMSG_FIRSTHDR(message);
            assert!(!head.is_null() && (*head).cmsg_type == libc::SCM_RIGHTS);
            OwnedFd::from_raw_fd(libc::CMSG_DATA(head).cast::<RawFd>().read_unaligned())
        }
    })
}
