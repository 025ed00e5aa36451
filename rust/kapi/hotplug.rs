// SPDX-License-Identifier: GPL-2.0

//! What is to be done when a CPU comes online, and before it goes offline.
//!
//! C header: [`include/linux/cpuhotplug.h`](srctree/include/linux/cpuhotplug.h)

use core::pin::Pin;
use kernel::{
    bindings,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

/// Told about CPUs.
pub(crate) trait Hotplug: Send + Sync + 'static {
    /// A CPU is online. Runs on that CPU, in a thread that stays there.
    ///
    /// An error undoes the registration if that is what found the CPU online, and otherwise keeps
    /// the CPU from coming online.
    fn online(&self, cpu: u32) -> Result;

    /// A CPU is about to go offline, or the registration to end. Runs on that CPU, which still
    /// takes interrupts. The kernel holds the hotplug lock for writing: nothing that waits for
    /// somebody who wants it may be waited for.
    fn offline(&self, cpu: u32);
}

/// Keeps `T` informed of all CPUs: [`Hotplug::online`] has been called for those that are online.
///
/// # Invariants
///
/// From the end of initialisation until `drop()`, `node` is an instance of the dynamic hotplug state
/// `state`, which is ours.
#[pin_data(PinnedDrop)]
pub(crate) struct HotplugRegistration<T: Hotplug> {
    target: Arc<T>,
    state: c_int,
    #[pin]
    node: Opaque<bindings::hlist_node>,
}

// SAFETY: The kernel's functions may be called from any thread; the target is `Send` and `Sync`.
unsafe impl<T: Hotplug> Send for HotplugRegistration<T> {}
// SAFETY: As above.
unsafe impl<T: Hotplug> Sync for HotplugRegistration<T> {}

impl<T: Hotplug> HotplugRegistration<T> {
    /// Registers, and calls [`Hotplug::online`] for every CPU that is online.
    pub(crate) fn new(target: Arc<T>) -> impl PinInit<Self, Error> {
        try_pin_init!(&this in Self {
            target,
            state: 0,
            node <- Opaque::try_ffi_init(move |node: *mut bindings::hlist_node| {
                // SAFETY: `target` is initialised before `node`, and both stay where they are until
                // the instance has been removed.
                let state = unsafe {
                    node.write(bindings::hlist_node::default());
                    super::helpers::cpupeek_helper_cpuhp_add(
                        Some(Self::online),
                        Some(Self::offline),
                        node,
                    )
                };
                if state < 0 {
                    return Err(Error::from_errno(state));
                }
                // SAFETY: The field is initialised, and nobody else has seen it.
                unsafe { (*this.as_ptr()).state = state };
                Ok(())
            }),
        })
    }

    /// # Safety
    ///
    /// `node` is that of a registration.
    unsafe fn target<'a>(node: *mut bindings::hlist_node) -> &'a T {
        let offset = core::mem::offset_of!(Self, node);
        // SAFETY: By the contract, `node` is that field of a registration, which keeps its target.
        unsafe { &(*node.byte_sub(offset).cast::<Self>()).target }
    }

    /// # Safety
    ///
    /// For the kernel, as the startup callback of an instance of ours.
    unsafe extern "C" fn online(cpu: c_uint, node: *mut bindings::hlist_node) -> c_int {
        // SAFETY: By the contract.
        match unsafe { Self::target(node) }.online(cpu) {
            Ok(()) => 0,
            Err(error) => error.to_errno(),
        }
    }

    /// # Safety
    ///
    /// For the kernel, as the teardown callback of an instance of ours.
    unsafe extern "C" fn offline(cpu: c_uint, node: *mut bindings::hlist_node) -> c_int {
        // SAFETY: By the contract.
        unsafe { Self::target(node) }.offline(cpu);
        0
    }
}

#[pinned_drop]
impl<T: Hotplug> PinnedDrop for HotplugRegistration<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Both are ours by the type invariant.
        unsafe { super::helpers::cpupeek_helper_cpuhp_remove(self.state, self.node.get()) };
    }
}
