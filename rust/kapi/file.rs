// SPDX-License-Identifier: GPL-2.0

//! What an open file of ours does, and files without a name.
//!
//! C headers: [`include/linux/fs.h`](srctree/include/linux/fs.h),
//! [`include/linux/anon_inodes.h`](srctree/include/linux/anon_inodes.h)

use core::{
    marker::PhantomData,
    pin::Pin,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    error::from_err_ptr,
    fs::{
        file::FileDescriptorReservation,
        File, //
    },
    mm::virt::VmaNew,
    prelude::*,
    sync::aref::ARef,
    types::ForeignOwnable,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

use super::events::Events;

/// The state of an open file, and what can be done with it.
pub(crate) trait Descriptor: Send + Sync + Sized + 'static {
    /// Performs a command. Several threads may be in here at once.
    fn ioctl(&self, cmd: u32, arg: UserPtr) -> Result;

    /// The events that `read()` and `poll()` wait for, if there are any.
    fn events(&self) -> Option<&Events> {
        None
    }

    /// Whether there are events.
    const HAS_EVENTS: bool = false;

    /// Maps it into memory. [`ENODEV`] if there is nothing to map.
    fn mmap(&self, _vma: &VmaNew) -> Result {
        Err(ENODEV)
    }
}

/// The operations of files whose private data is a `Pin<KBox<T>>`.
pub(super) struct FileOps<T>(bindings::file_operations, PhantomData<T>);

// SAFETY: Function pointers and a pointer to the module, which do not change.
unsafe impl<T> Sync for FileOps<T> {}

/// `file_operations.open`.
type Open = unsafe extern "C" fn(*mut bindings::inode, *mut bindings::file) -> c_int;

/// `file_operations.read`.
type Read =
    unsafe extern "C" fn(*mut bindings::file, *mut c_char, usize, *mut bindings::loff_t) -> isize;

/// `file_operations.write`.
type Write =
    unsafe extern "C" fn(*mut bindings::file, *const c_char, usize, *mut bindings::loff_t) -> isize;

impl<T: Descriptor> FileOps<T> {
    /// The operations, with `open` if such files are opened by name.
    pub(super) const fn new(open: Option<Open>) -> Self {
        Self(
            bindings::file_operations {
                owner: (&raw const bindings::__this_module).cast_mut(),
                open,
                release: Some(Self::release),
                unlocked_ioctl: Some(Self::ioctl),
                // Every structure has one layout for 32-bit and 64-bit callers.
                #[cfg(CONFIG_COMPAT)]
                compat_ioctl: bindings::compat_ptr_ioctl,
                mmap: Some(Self::mmap),
                read: if T::HAS_EVENTS {
                    Some(Self::read)
                } else {
                    None
                },
                poll: if T::HAS_EVENTS {
                    Some(Self::poll)
                } else {
                    None
                },
                ..pin_init::zeroed()
            },
            PhantomData,
        )
    }

    /// The same for files that are read at a position.
    pub(super) const fn positioned(self, read: Read, write: Write) -> Self {
        let Self(ops, marker) = self;
        let ops = bindings::file_operations {
            read: Some(read),
            write: Some(write),
            llseek: Some(bindings::no_seek_end_llseek),
            ..ops
        };
        Self(ops, marker)
    }

    pub(super) const fn as_ptr(&self) -> *const bindings::file_operations {
        &raw const self.0
    }

    /// The state of an open file.
    ///
    /// # Safety
    ///
    /// `file` has these operations, is open, and stays so for `'a`.
    pub(super) unsafe fn state<'a>(file: *mut bindings::file) -> Pin<&'a T> {
        // SAFETY: Whoever opened the file has stored it, and only `release()` takes it back.
        unsafe { <Pin<KBox<T>>>::borrow((*file).private_data) }
    }

    /// # Safety
    ///
    /// For the kernel, as `file_operations.release`.
    unsafe extern "C" fn release(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: Whoever opened the file has stored it, and this is the last call for the file.
        drop(unsafe { <Pin<KBox<T>>>::from_foreign((*file).private_data) });
        0
    }

    /// # Safety
    ///
    /// For the kernel, as `file_operations.unlocked_ioctl`.
    unsafe extern "C" fn ioctl(file: *mut bindings::file, cmd: c_uint, arg: c_ulong) -> c_long {
        // SAFETY: The kernel calls this for open files.
        let state = unsafe { Self::state(file) };
        match T::ioctl(&state, cmd, UserPtr::from_addr(arg)) {
            Ok(()) => 0,
            Err(error) => error.to_errno() as c_long,
        }
    }

    /// How many events there were, as a `u64`.
    ///
    /// # Safety
    ///
    /// For the kernel, as `file_operations.read`.
    unsafe extern "C" fn read(
        file: *mut bindings::file,
        buffer: *mut c_char,
        size: usize,
        _position: *mut bindings::loff_t,
    ) -> isize {
        // SAFETY: The kernel calls this for open files.
        let (state, flags) = unsafe { (Self::state(file), (*file).f_flags) };
        let read = || {
            let events = T::events(&state).ok_or(EINVAL)?;
            if size < size_of::<u64>() {
                return Err(EINVAL);
            }
            let count = events.wait(flags & bindings::O_NONBLOCK == 0)?;
            if count == 0 {
                return Ok(0);
            }
            let written = UserSlice::new(UserPtr::from_addr(buffer.addr()), size_of::<u64>())
                .writer()
                .write(&count);
            // What could not be told is not lost.
            written.inspect_err(|_| events.put_back(count))?;
            Ok(size_of::<u64>() as isize)
        };
        match read() {
            Ok(size) => size,
            Err(error) => error.to_errno() as isize,
        }
    }

    /// # Safety
    ///
    /// For the kernel, as `file_operations.poll`.
    unsafe extern "C" fn poll(
        file: *mut bindings::file,
        table: *mut bindings::poll_table_struct,
    ) -> bindings::__poll_t {
        // SAFETY: The kernel calls this for open files.
        let state = unsafe { Self::state(file) };
        match T::events(&state) {
            // SAFETY: The arguments are passed on; the events are part of the file's state, which
            // goes when the file is released.
            Some(events) => unsafe { events.poll(file, table) },
            None => 0,
        }
    }

    /// # Safety
    ///
    /// For the kernel, as `file_operations.mmap`.
    unsafe extern "C" fn mmap(
        file: *mut bindings::file,
        vma: *mut bindings::vm_area_struct,
    ) -> c_int {
        // SAFETY: The kernel calls this for open files.
        let state = unsafe { Self::state(file) };
        // SAFETY: The kernel passes a VMA that is being set up.
        match T::mmap(&state, unsafe { VmaNew::from_raw(vma) }) {
            Ok(()) => 0,
            Err(error) => error.to_errno(),
        }
    }
}

const FLAGS: u32 = bindings::O_RDWR | bindings::O_CLOEXEC;

/// A new open file without a name or number, which keeps the module loaded, with the given state.
pub(super) fn anonymous_file<T: Descriptor>(
    name: &'static CStr,
    state: Pin<KBox<T>>,
) -> Result<ARef<File>> {
    let state = state.into_foreign();
    // SAFETY: The operations are for files with such a state, and live as long as the module.
    let file = unsafe {
        super::helpers::cpupeek_helper_anon_inode_getfile(
            name.as_char_ptr(),
            const { &FileOps::<T>::new(None) }.as_ptr(),
            state,
            FLAGS as c_int,
        )
    };
    let file = from_err_ptr(file).inspect_err(|_| {
        // SAFETY: No file has been made that could own it.
        drop(unsafe { <Pin<KBox<T>>>::from_foreign(state) })
    })?;
    // SAFETY: The file was just made and its only reference is ours. `File` is transparent over
    // `struct file`, and nobody is using the position of a file that has no number.
    Ok(unsafe { ARef::from_raw(NonNull::new_unchecked(file).cast::<File>()) })
}

/// A new open file without a name, that no descriptor number refers to yet.
pub(crate) struct NewFile {
    file: ARef<File>,
    number: FileDescriptorReservation,
}

impl NewFile {
    /// Makes one with the given state; `name` is for `/proc/PID/fd`. It is closed on exec.
    pub(crate) fn new<T: Descriptor>(name: &'static CStr, state: Pin<KBox<T>>) -> Result<Self> {
        let number = FileDescriptorReservation::get_unused_fd_flags(FLAGS)?;
        let file = anonymous_file(name, state)?;
        Ok(Self { file, number })
    }

    /// The descriptor number that it will have.
    pub(crate) fn number(&self) -> i32 {
        self.number.reserved_fd() as i32
    }

    /// Lets the calling process see it. There is no way back.
    pub(crate) fn install(self) {
        self.number.fd_install(self.file);
    }
}
