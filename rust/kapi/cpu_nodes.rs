// SPDX-License-Identifier: GPL-2.0

//! Character devices of each CPU: files in `/dev` that are read at a position.
//!
//! C headers: [`include/linux/cdev.h`](srctree/include/linux/cdev.h),
//! [`include/linux/device/class.h`](srctree/include/linux/device/class.h)

use super::{
    file::{
        Descriptor,
        FileOps, //
    },
    helpers,
    hotplug::Hotplug,
    regs, //
};
use core::{
    marker::PhantomPinned,
    mem::offset_of,
    pin::Pin, //
};
use kernel::{
    bindings,
    cpu::nr_cpu_ids,
    error::{
        from_err_ptr,
        to_result, //
    },
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Mutex, //
    },
    types::{
        ForeignOwnable,
        Opaque, //
    },
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

/// The state of an open file of a CPU.
pub(crate) trait CpuNode: Descriptor {
    /// Name of the class, and of the directory in `/dev` that has a directory for each CPU.
    const CLASS: &'static CStr;

    /// Names of the files that each CPU has.
    const FILES: &'static [&'static CStr];

    /// What all of them share.
    type Shared: Send + Sync + 'static;

    /// Makes the state of a file of a CPU, given by its place in [`Self::FILES`], that is being opened
    /// by the current task.
    fn open(shared: &Self::Shared, cpu: u32, file: usize) -> Result<Pin<KBox<Self>>>;

    /// Reads at a position, which it may move. Returns the number of bytes.
    fn read(&self, position: &mut u64, to: UserSlice) -> Result<usize>;
}

/// The CPUs' devices. They belong to root alone until user space says otherwise.
///
/// A CPU has them while it is online.
///
/// # Invariants
///
/// From the end of initialisation until `drop()`: `first` is the first number of a region with one for
/// each file of each possible CPU number, which is ours; `cdev` is initialised, and added for it if
/// `admitting`; `class` is ours.
#[pin_data(PinnedDrop)]
pub(crate) struct CpuNodes<T: CpuNode> {
    shared: T::Shared,
    /// The files can be opened.
    admitting: Atomic<bool>,
    first: bindings::dev_t,
    class: *mut bindings::class,
    /// The CPUs that have them.
    #[pin]
    made: Mutex<KVec<u32>>,
    #[pin]
    cdev: Opaque<bindings::cdev>,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: The kernel's functions may be called from any thread; `shared` is `Send`.
unsafe impl<T: CpuNode> Send for CpuNodes<T> {}
// SAFETY: As above; `shared` is `Sync`, and what changes is behind a lock.
unsafe impl<T: CpuNode> Sync for CpuNodes<T> {}

/// Device numbers that are given back unless somebody takes them over.
struct Region {
    first: bindings::dev_t,
    count: u32,
}

impl Region {
    fn new(name: &'static CStr, count: u32) -> Result<Self> {
        let mut first = 0;
        // SAFETY: The number can be written, and the name lives for ever.
        to_result(unsafe {
            bindings::alloc_chrdev_region(&mut first, 0, count, name.as_char_ptr())
        })?;
        Ok(Self { first, count })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: The region was allocated for us, and nothing else has given it back.
        unsafe { bindings::unregister_chrdev_region(self.first, self.count) };
    }
}

impl<T: CpuNode> CpuNodes<T> {
    const FOPS: &'static FileOps<T> =
        &FileOps::new(Some(Self::open)).positioned(Self::read, Self::write);

    /// How many device numbers there are.
    fn count() -> u32 {
        nr_cpu_ids().saturating_mul(T::FILES.len() as u32)
    }

    /// Makes a class, without devices; see [`Self::make_all()`].
    pub(crate) fn new(shared: T::Shared) -> impl PinInit<Self, Error> {
        pin_init::pin_init_scope(move || {
            let region = Region::new(T::CLASS, Self::count())?;
            // SAFETY: The name lives for ever.
            let class = from_err_ptr(unsafe { bindings::class_create(T::CLASS.as_char_ptr()) })?;
            let (number, ours) = (region.first, class);
            // INVARIANT: The region is given back by `drop()`.
            core::mem::forget(region);
            Ok(try_pin_init!(Self {
                shared,
                admitting: Atomic::new(false),
                first: number,
                class: ours,
                made <- new_mutex!(KVec::new(), "cpupeek_nodes"),
                cdev <- Opaque::ffi_init(|cdev: *mut bindings::cdev| {
                    // SAFETY: The place can be written, and stays where it is. The operations and
                    // the module live longer than it.
                    unsafe {
                        bindings::cdev_init(cdev, Self::FOPS.as_ptr());
                        (*cdev).owner = (&raw const bindings::__this_module).cast_mut();
                    }
                }),
                _pin: PhantomPinned,
            }? Error))
        })
    }

    /// From now on the files can be opened; before, that is [`ENXIO`], and nobody comes into this module.
    /// So this is for when loading it cannot fail any more: a module that is given up does not wait for
    /// whoever is in it. Once only.
    ///
    /// [`ENOMEM`] if there is no memory; then the files stay closed.
    pub(crate) fn admit(&self) -> Result {
        // SAFETY: By the type invariant, it is initialised and the numbers are ours; `drop()` deletes it.
        to_result(unsafe { bindings::cdev_add(self.cdev.get(), self.first, Self::count()) })?;
        // INVARIANT: It has just been added.
        self.admitting.store(true, Relaxed);
        Ok(())
    }

    /// Makes the devices of all CPUs that are online. Isolated ones do not notice, other than if they
    /// made theirs when the registration finds them.
    pub(crate) fn make_all(&self) -> Result {
        (0..nr_cpu_ids())
            .filter(|&cpu| regs::is_online(cpu))
            .try_for_each(|cpu| self.make(cpu))
    }

    /// Makes the devices of a CPU, if it does not have them.
    fn make(&self, cpu: u32) -> Result {
        let mut made = self.made.lock();
        if made.contains(&cpu) {
            return Ok(());
        }
        made.push(cpu, GFP_KERNEL)?;
        for (file, name) in T::FILES.iter().enumerate() {
            // The kernel makes directories of exclamation marks.
            //
            // SAFETY: By the type invariant, the class and the number are ours. The arguments are
            // those that the format asks for.
            let device = from_err_ptr(unsafe {
                bindings::device_create(
                    self.class,
                    core::ptr::null_mut(),
                    self.number(cpu, file),
                    core::ptr::null_mut(),
                    c"%s!%u!%s".as_char_ptr(),
                    T::CLASS.as_char_ptr(),
                    cpu,
                    name.as_char_ptr(),
                )
            });
            // Destroying what does not exist does nothing: somebody else removes the others.
            device?;
        }
        Ok(())
    }

    /// Removes the devices of a CPU, as far as it has them. Open files stay open.
    fn destroy(&self, cpu: u32) {
        for file in 0..T::FILES.len() {
            // SAFETY: By the type invariant, the class and the number are ours.
            unsafe { bindings::device_destroy(self.class, self.number(cpu, file)) };
        }
    }

    fn number(&self, cpu: u32, file: usize) -> bindings::dev_t {
        let files = T::FILES.len() as u32;
        self.first
            .wrapping_add(cpu.wrapping_mul(files))
            .wrapping_add(file as u32)
    }

    /// # Safety
    ///
    /// For the kernel, as `file_operations.open` of one of the devices.
    unsafe extern "C" fn open(inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        let offset = offset_of!(Self, cdev);
        // SAFETY: The character device is that field of a `CpuNodes`, which is there as long as
        // somebody has found it through the device.
        let nodes = unsafe {
            &*helpers::cpupeek_helper_inode_cdev(inode)
                .byte_sub(offset)
                .cast::<Self>()
        };
        // SAFETY: It is the inode of a device, which has a number.
        let minor = unsafe { helpers::cpupeek_helper_iminor(inode) };
        let files = T::FILES.len() as u32;
        // The region begins at minor number 0.
        let (cpu, name) = (minor / files, (minor % files) as usize);
        match T::open(&nodes.shared, cpu, name) {
            Ok(descriptor) => {
                // SAFETY: A file that is being opened may be written.
                unsafe { (*file).private_data = descriptor.into_foreign() };
                0
            }
            Err(error) => error.to_errno(),
        }
    }

    /// # Safety
    ///
    /// For the kernel, as `file_operations.read` of one of the devices.
    unsafe extern "C" fn read(
        file: *mut bindings::file,
        to: *mut c_char,
        len: usize,
        position: *mut bindings::loff_t,
    ) -> isize {
        // SAFETY: The kernel calls this for open files.
        let state = unsafe { FileOps::<T>::state(file) };
        // SAFETY: The kernel hands over a position that nobody else uses meanwhile.
        let position = unsafe { &mut *position };
        // The kernel has checked that it is not negative.
        let mut at = *position as u64;
        let slice = UserSlice::new(UserPtr::from_ptr(to.cast()), len);
        let read = T::read(&state, &mut at, slice);
        *position = at as bindings::loff_t;
        match read {
            Ok(bytes) => bytes as isize,
            Err(error) => error.to_errno() as isize,
        }
    }

    /// What the kernel's own files say when writing is switched off.
    ///
    /// # Safety
    ///
    /// None: it looks at nothing.
    unsafe extern "C" fn write(
        _file: *mut bindings::file,
        _from: *const c_char,
        _len: usize,
        _position: *mut bindings::loff_t,
    ) -> isize {
        EPERM.to_errno() as isize
    }
}

impl<T: CpuNode> Hotplug for CpuNodes<T> {
    fn online(&self, cpu: u32) -> Result {
        // One that does not get them may come online all the same.
        let _ = self.make(cpu);
        Ok(())
    }

    fn offline(&self, cpu: u32) {
        let mut made = self.made.lock();
        if made.contains(&cpu) {
            made.retain(|other| *other != cpu);
            self.destroy(cpu);
        }
    }
}

#[pinned_drop]
impl<T: CpuNode> PinnedDrop for CpuNodes<T> {
    fn drop(self: Pin<&mut Self>) {
        for &cpu in &*self.made.lock() {
            self.destroy(cpu);
        }
        // SAFETY: By the type invariant, all of that is ours; there are no open files, since they hold
        // the module, and without devices there are no new ones.
        unsafe {
            if self.admitting.load(Relaxed) {
                bindings::cdev_del(self.cdev.get());
            }
            bindings::class_destroy(self.class);
            bindings::unregister_chrdev_region(self.first, Self::count());
        }
    }
}
