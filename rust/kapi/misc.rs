// SPDX-License-Identifier: GPL-2.0

//! A misc device that pins its module, and has a mode and attributes.
//!
//! [`kernel::miscdevice`] of 7.2 leaves `file_operations.owner` empty, so that the module can be
//! unloaded under an open descriptor; up to 7.3 it takes neither a mode nor attribute groups.
//!
//! C header: [`include/linux/miscdevice.h`](srctree/include/linux/miscdevice.h)
//!
//! # Examples
//!
//! ```
//! struct Example;
//!
//! impl Device for Example {
//!     const NAME: &'static CStr = c"example";
//!     const MODE: u16 = 0o600;
//!     const ATTRIBUTES: &'static [Attribute<Self>] = &[Attribute::ro(c"answer", |shared| *shared)];
//!     type Shared = u64;
//!
//!     fn open(_shared: &u64) -> Result<Pin<KBox<Self>>> {
//!         Ok(KBox::pin(Self, GFP_KERNEL)?)
//!     }
//! }
//!
//! impl Descriptor for Example {
//!     fn ioctl(&self, _cmd: u32, _arg: UserPtr) -> Result {
//!         Err(ENOTTY)
//!     }
//! }
//!
//! let device = KBox::try_pin_init(Registration::<Example>::new(42), GFP_KERNEL)?;
//! # Ok::<(), Error>(())
//! ```

use super::file::{
    Descriptor,
    FileOps, //
};
use core::{
    marker::PhantomPinned,
    pin::Pin, //
};
use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    str::{
        parse_int::ParseInt,
        BStr, //
    },
    types::{
        ForeignOwnable,
        Opaque, //
    },
};

/// `device_attribute.store`.
type StoreFn = unsafe extern "C" fn(
    *mut bindings::device,
    *mut bindings::device_attribute,
    *const c_char,
    usize,
) -> isize;

/// An attribute of a device: a file with a decimal number in its sysfs directory.
pub(crate) struct Attribute<T: Device> {
    name: &'static CStr,
    show: fn(&T::Shared) -> u64,
    store: Option<fn(&T::Shared, u64) -> Result>,
}

impl<T: Device> Attribute<T> {
    /// An attribute that everybody may read.
    pub(crate) const fn ro(name: &'static CStr, show: fn(&T::Shared) -> u64) -> Self {
        Self {
            name,
            show,
            store: None,
        }
    }

    fn mode(&self) -> u16 {
        if self.store.is_some() {
            0o644
        } else {
            0o444
        }
    }

    /// An attribute that everybody may read, and root may write.
    pub(crate) const fn rw(
        name: &'static CStr,
        show: fn(&T::Shared) -> u64,
        store: fn(&T::Shared, u64) -> Result,
    ) -> Self {
        Self {
            name,
            show,
            store: Some(store),
        }
    }
}

/// The state of an open descriptor of a misc device, and what the device does.
pub(crate) trait Device: Descriptor {
    /// Name of the device, and of its node.
    const NAME: &'static CStr;

    /// Mode of the device node.
    const MODE: u16;

    /// The device's attributes.
    const ATTRIBUTES: &'static [Attribute<Self>];

    /// What all descriptors and attributes share.
    type Shared: Send + Sync;

    /// Makes the state of a descriptor that is being opened by the current task.
    fn open(shared: &Self::Shared) -> Result<Pin<KBox<Self>>>;
}

/// # Invariants
///
/// `raw` is at the start, so that a pointer to it points to this too.
#[repr(C)]
struct RawAttribute<T: Device> {
    raw: Opaque<bindings::device_attribute>,
    attribute: &'static Attribute<T>,
}

/// A registered misc device.
///
/// # Invariants
///
/// - `misc` is a registered `struct miscdevice` from the end of initialisation until `drop()`.
/// - `attributes`, `list` and `group` are what its attribute group is made of, and do not change.
#[pin_data(PinnedDrop)]
pub(crate) struct Registration<T: Device> {
    shared: T::Shared,
    attributes: KVec<RawAttribute<T>>,
    list: KVec<*mut bindings::attribute>,
    group: Opaque<bindings::attribute_group>,
    groups: [*const bindings::attribute_group; 2],
    #[pin]
    misc: Opaque<bindings::miscdevice>,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: `misc_deregister()` may be called by another thread than `misc_register()`.
unsafe impl<T: Device> Send for Registration<T> {}
// SAFETY: Everything but `shared`, which is `Sync`, is the kernel's alone after registration.
unsafe impl<T: Device> Sync for Registration<T> {}

impl<T: Device> Registration<T> {
    /// Registers a device.
    pub(crate) fn new(shared: T::Shared) -> impl PinInit<Self, Error> {
        let registration = move || {
            let mut attributes = KVec::with_capacity(T::ATTRIBUTES.len(), GFP_KERNEL)?;
            let mut list = KVec::with_capacity(T::ATTRIBUTES.len() + 1, GFP_KERNEL)?;
            for attribute in T::ATTRIBUTES {
                let raw = RawAttribute {
                    raw: Opaque::uninit(),
                    attribute,
                };
                attributes.push(raw, GFP_KERNEL)?;
            }
            for attribute in &attributes {
                // SAFETY: The attribute is written before anybody reads it, and stays where it is:
                // the vector does not grow any more.
                let raw = unsafe {
                    super::helpers::cpupeek_helper_init_device_attribute(
                        attribute.raw.get(),
                        attribute.attribute.name.as_char_ptr(),
                        attribute.attribute.mode(),
                        Some(Self::show),
                        attribute.attribute.store.map(|_| Self::STORE),
                    )
                };
                list.push(raw, GFP_KERNEL)?;
            }
            list.push(core::ptr::null_mut(), GFP_KERNEL)?;
            Ok::<_, Error>((attributes, list))
        };

        pin_init::pin_init_scope(move || {
            let (attributes, list) = registration()?;
            Ok(try_pin_init!(&this in Self {
                shared,
                attributes,
                list,
                group: Opaque::uninit(),
                groups: [core::ptr::null(); 2],
                misc <- Opaque::try_ffi_init(move |slot: *mut bindings::miscdevice| {
                    let this = this.as_ptr();
                    // SAFETY: The fields before `misc` are initialised, and pinned. The slot is
                    // valid for writing. The device does what its invariant says once it is
                    // registered; if it is not, nobody has seen it.
                    unsafe {
                        let group = (*this).group.get();
                        super::helpers::cpupeek_helper_init_group(
                            group,
                            core::ptr::null(),
                            (*this).list.as_mut_ptr(),
                        );
                        (*this).groups[0] = group;
                        slot.write(bindings::miscdevice {
                            minor: bindings::MISC_DYNAMIC_MINOR as c_int,
                            name: T::NAME.as_char_ptr(),
                            fops: Self::FOPS.as_ptr(),
                            groups: (&raw mut (*this).groups).cast(),
                            mode: T::MODE,
                            ..pin_init::zeroed()
                        });
                        to_result(bindings::misc_register(slot))
                    }
                }),
                _pin: PhantomPinned,
            }? Error))
        })
    }

    /// [`Self::store`] as C wants it.
    const STORE: StoreFn = Self::store;

    const FOPS: &'static FileOps<T> = &FileOps::new(Some(Self::open));

    /// # Safety
    ///
    /// `misc` is that of a registration.
    unsafe fn shared<'a>(misc: *mut bindings::miscdevice) -> &'a T::Shared {
        let offset = core::mem::offset_of!(Self, misc);
        // SAFETY: By the contract, `misc` is that field of a registration. The kernel keeps
        // registrations while it opens their files and uses their attributes.
        unsafe { &(*misc.byte_sub(offset).cast::<Self>()).shared }
    }

    /// # Safety
    ///
    /// For the kernel, as `file_operations.open` of a registration.
    unsafe extern "C" fn open(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: `misc_open()` has left its device in `private_data`, and it is one of ours.
        let shared = unsafe { Self::shared((*file).private_data.cast()) };
        match T::open(shared) {
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
    /// For the kernel, as `device_attribute.show` of one of a registration's attributes.
    unsafe extern "C" fn show(
        device: *mut bindings::device,
        attribute: *mut bindings::device_attribute,
        page: *mut c_char,
    ) -> isize {
        // SAFETY: The driver data of a misc device is the `struct miscdevice`.
        let shared = unsafe { Self::shared(bindings::dev_get_drvdata(device).cast()) };
        // SAFETY: By the invariant of `RawAttribute`.
        let attribute = unsafe { &*attribute.cast::<RawAttribute<T>>() }.attribute;
        let value = (attribute.show)(shared);
        // SAFETY: `page` is the page that sysfs wants the value in, and the format has one `u64`.
        let len = unsafe { bindings::sysfs_emit(page, c"%llu\n".as_char_ptr(), value) };
        len as isize
    }

    /// # Safety
    ///
    /// For the kernel, as `device_attribute.store` of one of a registration's attributes.
    unsafe extern "C" fn store(
        device: *mut bindings::device,
        attribute: *mut bindings::device_attribute,
        page: *const c_char,
        count: usize,
    ) -> isize {
        // SAFETY: The driver data of a misc device is the `struct miscdevice`.
        let shared = unsafe { Self::shared(bindings::dev_get_drvdata(device).cast()) };
        // SAFETY: By the invariant of `RawAttribute`.
        let attribute = unsafe { &*attribute.cast::<RawAttribute<T>>() }.attribute;
        // SAFETY: sysfs hands over `count` bytes.
        let text = unsafe { core::slice::from_raw_parts(page.cast::<u8>(), count) };
        let store = || {
            let value = u64::from_str(BStr::from_bytes(text.trim_ascii()))?;
            (attribute.store.ok_or(EPERM)?)(shared, value)
        };
        match store() {
            Ok(()) => count as isize,
            Err(error) => error.to_errno() as isize,
        }
    }
}

#[pinned_drop]
impl<T: Device> PinnedDrop for Registration<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Registered, by the type invariant. It waits for readers of the attributes; open
        // descriptors are none, since they hold the module.
        unsafe { bindings::misc_deregister(self.misc.get()) };
    }
}
