// SPDX-License-Identifier: GPL-2.0

//! Files in a directory of our own under a CPU's directory in sysfs.
//!
//! C header: [`include/linux/sysfs.h`](srctree/include/linux/sysfs.h)

use crate::logic::catalogue::Number;
use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

/// Knows what is in the files.
pub(crate) trait CpuFiles: Send + Sync + 'static {
    /// Tells files apart.
    type Key: Copy + Send + Sync;

    /// The number that a file of a CPU holds now. May sleep; must not take the hotplug lock.
    fn show(&self, cpu: u32, key: Self::Key) -> Result<Number>;
}

/// # Invariants
///
/// `raw` is at the start, so that a pointer to it points to this too.
#[repr(C)]
struct RawFile<T: CpuFiles> {
    raw: Opaque<bindings::device_attribute>,
    shared: Arc<T>,
    cpu: u32,
    key: T::Key,
}

/// The files of a CPU.
///
/// # Invariants
///
/// `group` is a group of the CPU's device, made of `files` and `list`, until `drop()`.
pub(crate) struct CpuDirectory<T: CpuFiles> {
    cpu: u32,
    group: KBox<Opaque<bindings::attribute_group>>,
    _files: KVec<RawFile<T>>,
    _list: KVec<*mut bindings::attribute>,
}

// SAFETY: The kernel's functions may be called from any thread; the files are only read.
unsafe impl<T: CpuFiles> Send for CpuDirectory<T> {}

impl<T: CpuFiles> CpuDirectory<T> {
    /// Makes a directory `name` for the CPU, with files given by name, mode and key.
    pub(crate) fn new(
        shared: &Arc<T>,
        cpu: u32,
        name: &'static CStr,
        files: impl Iterator<Item = (&'static CStr, u16, T::Key)>,
    ) -> Result<Self> {
        let mut names = KVec::new();
        let mut raw_files = KVec::new();
        for (name, mode, key) in files {
            names.push((name, mode), GFP_KERNEL)?;
            raw_files.push(
                RawFile {
                    raw: Opaque::uninit(),
                    shared: shared.clone(),
                    cpu,
                    key,
                },
                GFP_KERNEL,
            )?;
        }
        let mut list = KVec::with_capacity(names.len() + 1, GFP_KERNEL)?;
        for (file, (name, mode)) in raw_files.iter().zip(&names) {
            // SAFETY: It is written before anybody reads it, and stays where it is: the vector does
            // not grow any more.
            let raw = unsafe {
                super::helpers::cpupeek_helper_init_device_attribute(
                    file.raw.get(),
                    name.as_char_ptr(),
                    *mode,
                    Some(Self::show),
                    None,
                )
            };
            list.push(raw, GFP_KERNEL)?;
        }
        list.push(core::ptr::null_mut(), GFP_KERNEL)?;

        let group = KBox::new(Opaque::uninit(), GFP_KERNEL)?;
        // SAFETY: The group is written before anybody reads it. It and what it is made of stay
        // where they are until it has been removed.
        to_result(unsafe {
            super::helpers::cpupeek_helper_init_group(
                group.get(),
                name.as_char_ptr(),
                list.as_mut_ptr(),
            );
            super::helpers::cpupeek_helper_add_cpu_group(cpu, group.get())
        })?;
        // INVARIANT: The group has just been made.
        Ok(Self {
            cpu,
            group,
            _files: raw_files,
            _list: list,
        })
    }

    /// # Safety
    ///
    /// For the kernel, as `device_attribute.show` of one of the files.
    unsafe extern "C" fn show(
        _device: *mut bindings::device,
        attribute: *mut bindings::device_attribute,
        page: *mut c_char,
    ) -> isize {
        // SAFETY: By the invariant of `RawFile`; removing the group waits for this.
        let file = unsafe { &*attribute.cast::<RawFile<T>>() };
        let len = match file.shared.show(file.cpu, file.key) {
            // SAFETY: `page` is the page that sysfs wants the value in, and the format has one number.
            Ok(Number::Unsigned(value)) => unsafe {
                bindings::sysfs_emit(page, c"%llu\n".as_char_ptr(), value)
            },
            // SAFETY: As above.
            Ok(Number::Signed(value)) => unsafe {
                bindings::sysfs_emit(page, c"%lld\n".as_char_ptr(), value)
            },
            Err(error) => error.to_errno(),
        };
        len as isize
    }
}

impl<T: CpuFiles> Drop for CpuDirectory<T> {
    fn drop(&mut self) {
        // SAFETY: The group is there, by the type invariant. This waits for readers.
        unsafe { super::helpers::cpupeek_helper_remove_cpu_group(self.cpu, self.group.get()) };
    }
}
