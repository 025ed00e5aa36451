// SPDX-License-Identifier: GPL-2.0

//! System calls, as raw as the tests need them. All of the crate's `unsafe` code about memory and
//! processes is here.

use std::ffi::{CStr, CString};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use libc::{c_int, c_long, c_ulong, pid_t};

mod files;
mod rights;
pub use files::*;
mod threads;
pub use rights::*;
pub use threads::*;

/// An error number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            libc::EPERM => "EPERM",
            libc::ENOENT => "ENOENT",
            libc::EINTR => "EINTR",
            libc::EIO => "EIO",
            libc::ENXIO => "ENXIO",
            libc::E2BIG => "E2BIG",
            libc::EBADF => "EBADF",
            libc::EAGAIN => "EAGAIN",
            libc::ENOMEM => "ENOMEM",
            libc::EACCES => "EACCES",
            libc::EFAULT => "EFAULT",
            libc::EBUSY => "EBUSY",
            libc::EEXIST => "EEXIST",
            libc::ENODEV => "ENODEV",
            libc::EINVAL => "EINVAL",
            libc::ENOTTY => "ENOTTY",
            libc::ERANGE => "ERANGE",
            libc::ETIME => "ETIME",
            libc::ENODATA => "ENODATA",
            libc::ECANCELED => "ECANCELED",
            libc::EOPNOTSUPP => "EOPNOTSUPP",
            _ => return write!(f, "errno {}", self.0),
        };
        f.write_str(name)
    }
}

pub type Result<T> = std::result::Result<T, Errno>;

pub fn last_error() -> Errno {
    Errno(io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

fn check(ret: c_long) -> Result<c_long> {
    if ret == -1 {
        Err(last_error())
    } else {
        Ok(ret)
    }
}

/// The command `cmd` with the argument `arg`, an address or not. A command that returns anything
/// but 0 or an error breaks the ABI.
pub fn ioctl(fd: RawFd, cmd: u32, arg: usize) -> Result<()> {
    // SAFETY: What the kernel writes is in memory that the caller has named on purpose; the tests
    // keep such memory in `Pages`, which the compiler knows nothing about.
    match check(unsafe { libc::ioctl(fd, cmd as c_ulong, arg) }.into())? {
        0 => Ok(()),
        ret => panic!("ioctl {cmd:#x} returned {ret} instead of 0"),
    }
}

pub const PAGE: usize = 4096;

/// Memory of its own pages, whose contents the kernel or another thread may change at any time.
pub struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: All accesses are volatile or go through the kernel.
unsafe impl Send for Pages {}
// SAFETY: As above.
unsafe impl Sync for Pages {}

impl Pages {
    /// `count` pages, zeroed and writable, shared with children if `shared`.
    pub fn new(count: usize, shared: bool) -> Self {
        let flags = libc::MAP_ANONYMOUS
            | if shared {
                libc::MAP_SHARED
            } else {
                libc::MAP_PRIVATE
            };
        let len = count * PAGE;
        // SAFETY: A new mapping at an address of the kernel's choice harms nobody.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            )
        };
        assert!(start != libc::MAP_FAILED, "mmap: {:?}", last_error());
        let start = NonNull::new(start.cast()).expect("mmap returned 0");
        Self { start, len }
    }

    /// The first `count` pages of a file, shared.
    pub fn map(file: RawFd, count: usize, prot: c_int) -> Result<Self> {
        let len = count * PAGE;
        // SAFETY: A new mapping at an address of the kernel's choice harms nobody.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, file, 0) };
        if start == libc::MAP_FAILED {
            return Err(last_error());
        }
        let start = NonNull::new(start.cast()).expect("mmap returned 0");
        Ok(Self { start, len })
    }

    /// Changes what may be done with the pages from number `first` on.
    pub fn protect(&self, first: usize, prot: c_int) {
        assert_eq!(self.try_protect(first, prot), Ok(()), "mprotect");
    }

    pub fn try_protect(&self, first: usize, prot: c_int) -> Result<()> {
        let skip = first * PAGE;
        assert!(skip < self.len);
        // SAFETY: The mapping is ours, and nothing refers to it.
        let ret =
            unsafe { libc::mprotect(self.start.as_ptr().add(skip).cast(), self.len - skip, prot) };
        check(ret.into())?;
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The address of byte `offset`; the one after the last may be asked for too.
    pub fn address(&self, offset: usize) -> usize {
        assert!(offset <= self.len);
        self.start.as_ptr().addr() + offset
    }

    fn at<T>(&self, offset: usize) -> *mut T {
        assert!(offset + size_of::<T>() <= self.len && offset % align_of::<T>() == 0);
        // SAFETY: Inside the mapping, as was just checked.
        unsafe { self.start.as_ptr().add(offset) }.cast()
    }

    pub fn read<T: Copy>(&self, offset: usize) -> T {
        // SAFETY: Valid and aligned; the types of the tests have no invalid values.
        unsafe { self.at::<T>(offset).read_volatile() }
    }

    pub fn write<T: Copy>(&self, offset: usize, value: T) {
        // SAFETY: Valid and aligned.
        unsafe { self.at::<T>(offset).write_volatile(value) };
    }

    pub fn fill(&self, byte: u8) {
        for offset in 0..self.len {
            self.write(offset, byte);
        }
    }

    pub fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        (offset..offset + len).map(|at| self.read(at)).collect()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: The mapping is ours, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// How a process has ended, or that it stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    Stopped(i32),
}

/// A child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child(pub pid_t);

/// Runs `f` in a child, which then exits with 0.
pub fn fork(f: impl FnOnce()) -> Child {
    // SAFETY: The processes that fork have one thread, so that the child may do anything.
    let pid = unsafe { libc::fork() };
    assert!(pid != -1, "fork: {:?}", last_error());
    if pid == 0 {
        crate::kcov::begin();
        f();
        exit(0);
    }
    Child(pid)
}

/// Ends this process without running anything of the parent's.
pub fn exit(code: i32) -> ! {
    crate::kcov::end();
    // SAFETY: Has no preconditions.
    unsafe { libc::_exit(code) }
}

fn decode(status: c_int) -> Exit {
    if libc::WIFSTOPPED(status) {
        Exit::Stopped(libc::WSTOPSIG(status))
    } else if libc::WIFSIGNALED(status) {
        Exit::Signal(libc::WTERMSIG(status))
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    }
}

impl Child {
    fn wait_with(self, options: c_int) -> Option<Exit> {
        let mut status = 0;
        // SAFETY: `status` may be written.
        match unsafe { libc::waitpid(self.0, &mut status, options) } {
            0 => None,
            -1 => panic!("waitpid: {:?}", last_error()),
            _ => Some(decode(status)),
        }
    }

    /// Waits for its end.
    pub fn wait(self) -> Exit {
        self.wait_with(0).expect("waitpid does not return 0 here")
    }

    /// Waits for its end, or for it to stop.
    pub fn wait_stopped(self) -> Exit {
        let options = libc::WUNTRACED | libc::__WALL;
        self.wait_with(options)
            .expect("waitpid does not return 0 here")
    }

    /// How it has ended, if it has.
    pub fn try_wait(self) -> Option<Exit> {
        self.wait_with(libc::WNOHANG)
    }

    pub fn kill(self, signal: c_int) {
        // SAFETY: A child that was not waited for keeps its number.
        unsafe { libc::kill(self.0, signal) };
    }

    pub fn expect_success(self) {
        assert_eq!(self.wait(), Exit::Code(0), "the child failed");
    }
}

/// Reaps any child that has ended, and says which; `None` if there is no child left.
pub fn reap_any() -> Option<std::result::Result<pid_t, ()>> {
    let mut status = 0;
    // SAFETY: `status` may be written.
    match unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) } {
        -1 => None,
        0 => Some(Err(())),
        pid => Some(Ok(pid)),
    }
}

/// Makes this process the leader of a group of its own.
pub fn lead_group() {
    // SAFETY: Has no preconditions.
    unsafe { libc::setpgid(0, 0) };
}

pub fn kill_group(leader: pid_t) {
    // SAFETY: Has no preconditions; the group is that of a child.
    unsafe { libc::kill(-leader, libc::SIGKILL) };
}

/// Orphans of this process's children become its children.
pub fn adopt_orphans() {
    // SAFETY: Has no preconditions.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1 as c_ulong) };
}

/// This process dies with its parent.
pub fn die_with_parent() {
    // SAFETY: Has no preconditions.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as c_ulong) };
}

/// Restricts the calling thread to `cpus`.
pub fn pin(cpus: &[u32]) -> Result<()> {
    // SAFETY: All zeroes are an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus {
        // SAFETY: The macro's function checks the number against the set's size.
        unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    }
    // SAFETY: `set` is what it is said to be.
    check(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) }.into())?;
    Ok(())
}

/// The CPUs that the calling thread may run on.
pub fn affinity() -> Vec<u32> {
    // SAFETY: All zeroes are an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is what it is said to be.
    let ret = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) };
    assert!(ret == 0, "sched_getaffinity: {:?}", last_error());
    // SAFETY: The macro's function checks the number against the set's size.
    let is_set = |&cpu: &u32| unsafe { libc::CPU_ISSET(cpu as usize, &set) };
    (0..libc::CPU_SETSIZE as u32).filter(is_set).collect()
}

pub fn geteuid() -> u32 {
    // SAFETY: Has no preconditions.
    unsafe { libc::geteuid() }
}

pub fn try_set_mode(path: &str, mode: u32) -> Result<()> {
    let path = CString::new(path).expect("no NUL in paths");
    // SAFETY: `path` is a string.
    match unsafe { libc::chmod(path.as_ptr(), mode) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

#[track_caller]
pub fn set_mode(path: &str, mode: u32) {
    assert_eq!(try_set_mode(path, mode), Ok(()), "chmod {path}");
}

/// Opens for reading and writing, and says why not.
pub fn open(path: &str, flags: c_int) -> Result<OwnedFd> {
    let path = CString::new(path).expect("no NUL in paths");
    // SAFETY: `path` is a string.
    let fd = check(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) }.into())?;
    // SAFETY: The descriptor is new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Takes over a descriptor by its number.
pub fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: The number is that of an open file, and nobody else's.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Closes a descriptor that somebody else thinks is his.
pub fn close(fd: RawFd) {
    // SAFETY: As wrong as the test wants it.
    assert_eq!(unsafe { libc::close(fd) }, 0, "close: {:?}", last_error());
}

/// A pipe: the end to read from, and the end to write to.
pub fn pipe() -> (File, File) {
    let mut ends = [0; 2];
    // SAFETY: There is room for two descriptors.
    let ret = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
    assert!(ret == 0, "pipe: {:?}", last_error());
    // SAFETY: The descriptors are new, and nobody else's.
    ends.map(|fd| unsafe { File::from_raw_fd(fd) }).into()
}

/// Makes `to` another name of `from`'s file.
pub fn dup_to(from: &impl AsRawFd, to: RawFd) {
    // SAFETY: Has no preconditions.
    let ret = unsafe { libc::dup2(from.as_raw_fd(), to) };
    assert!(ret == to, "dup2: {:?}", last_error());
}

/// Waits until `file` can be read, at most `ms`. Returns whether it can.
pub fn readable(file: &impl AsRawFd, ms: i32) -> bool {
    let mut poll = libc::pollfd {
        fd: file.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: There is one descriptor in it.
    unsafe { libc::poll(&mut poll, 1, ms) > 0 }
}

pub fn load_module(path: &Path, parameters: &str) -> Result<()> {
    let path = CString::new(path.as_os_str().as_bytes()).expect("no NUL in paths");
    let parameters = CString::new(parameters).expect("no NUL in parameters");
    let file = open(path.to_str().expect("paths are UTF-8"), libc::O_RDONLY)?;
    // SAFETY: The parameters are a string.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_finit_module,
            file.as_raw_fd(),
            parameters.as_ptr(),
            0,
        )
    };
    check(ret)?;
    Ok(())
}

pub fn unload_module(name: &CStr) -> Result<()> {
    // SAFETY: The name is a string.
    let ret = unsafe { libc::syscall(libc::SYS_delete_module, name.as_ptr(), libc::O_NONBLOCK) };
    check(ret)?;
    Ok(())
}

/// How often the calling thread has given up its CPU by itself.
pub fn voluntary_switches() -> u64 {
    // SAFETY: All zeroes are a value of this.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` may be written.
    let ret = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    assert!(ret == 0, "getrusage: {:?}", last_error());
    usage.ru_nvcsw as u64
}

/// Writes a byte, which nobody has to read.
pub fn send_byte(to: &File) {
    use std::io::Write;
    let mut to = to;
    to.write_all(b"!").expect("the pipe is open");
}

pub fn handle_signal(signal: c_int, handler: extern "C" fn(c_int)) {
    // SAFETY: All zeroes are an action without flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as usize;
    // SAFETY: The handlers do what handlers may.
    let ret = unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    assert!(ret == 0, "sigaction: {:?}", last_error());
}

/// A debugger's request without arguments.
pub fn trace(child: Child, request: libc::c_uint) {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: The requests that are made touch no memory of this process.
    let ret = unsafe { libc::ptrace(request, child.0, none, none) };
    assert!(ret == 0, "ptrace: {:?}", last_error());
}
