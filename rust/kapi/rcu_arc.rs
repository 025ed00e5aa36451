// SPDX-License-Identifier: GPL-2.0

//! An [`Arc`] that readers look at without a lock while writers replace it.
//!
//! C header: [`include/linux/rcupdate.h`](srctree/include/linux/rcupdate.h)

use core::{
    marker::PhantomData,
    mem::ManuallyDrop, //
};
use kernel::{
    bindings,
    error::Result,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed, //
        },
        rcu,
        Arc, //
    },
};

/// Possibly an `Arc<T>`.
///
/// # Invariants
///
/// `address` is 0, or that of an `Arc<T>` which this owns, as [`Arc::into_raw`] gives it.
pub(crate) struct RcuArc<T> {
    address: Atomic<usize>,
    _value: PhantomData<Arc<T>>,
}

fn into_address<T>(value: Option<Arc<T>>) -> usize {
    value.map_or(0, |value| Arc::into_raw(value).expose_provenance())
}

impl<T> RcuArc<T> {
    /// Holds `value`.
    pub(crate) fn new(value: Option<Arc<T>>) -> Self {
        // INVARIANT: The address comes from `Arc::into_raw()`, if there is one.
        Self {
            address: Atomic::new(into_address(value)),
            _value: PhantomData,
        }
    }

    /// Whether this holds nothing now.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.address.load(Relaxed) == 0
    }

    /// Calls `f` with what this holds now. `f` must not sleep.
    pub(crate) fn read<R>(&self, f: impl FnOnce(Option<&T>) -> R) -> R {
        if self.is_none() {
            return f(None);
        }
        let _guard = rcu::read_lock();
        let value = core::ptr::with_exposed_provenance::<T>(self.address.load(Acquire));
        // SAFETY: By the type invariant it is null or valid; `retire()` waits for this read-side
        // critical section before it lets go of a value.
        f(unsafe { value.as_ref() })
    }

    /// What this holds now.
    pub(crate) fn get(&self) -> Option<Arc<T>> {
        self.read(|value| {
            let value: *const T = value?;
            // SAFETY: It comes from `Arc::into_raw()`, and the reference that this owns, which is
            // not dropped here, keeps it until the end of this critical section.
            let arc = ManuallyDrop::new(unsafe { Arc::from_raw(value) });
            Some(Arc::clone(&arc))
        })
    }

    /// Replaces what this holds, and waits until nobody looks at what it held. Sleeps.
    pub(crate) fn replace(&self, value: Option<Arc<T>>) {
        // INVARIANT: The address comes from `Arc::into_raw()`, if there is one.
        let old = self.address.xchg(into_address(value), Full);
        // SAFETY: By the type invariant, this owned it.
        unsafe { Self::retire(old) };
    }

    /// Replaces what this holds by what `make` makes of it, as often as somebody else was quicker, and
    /// waits until nobody looks at what it held. No writer waits for another. Sleeps.
    ///
    /// With an error of `make`, nothing changes.
    pub(crate) fn update(&self, make: impl Fn(Option<&T>) -> Result<Arc<T>>) -> Result {
        loop {
            // While this reference lives, no other value gets the same address.
            let seen = self.get();
            let value = make(seen.as_deref())?;
            let address = seen.as_ref().map_or(0, |seen| Arc::as_ptr(seen).addr());
            let new = into_address(Some(value));
            // INVARIANT: The address comes from `Arc::into_raw()`.
            match self.address.cmpxchg(address, new, Full) {
                Ok(old) => {
                    // SAFETY: By the type invariant, this owned it.
                    unsafe { Self::retire(old) };
                    return Ok(());
                }
                // SAFETY: It comes from `into_address()`, and nobody has seen it.
                Err(_) => unsafe { Self::drop_address(new) },
            }
        }
    }

    /// Waits until nobody looks at what was held, and lets go of it. Sleeps.
    ///
    /// # Safety
    ///
    /// `address` is 0, or that of an `Arc<T>` which this has owned and no longer has.
    unsafe fn retire(address: usize) {
        // SAFETY: Process context, not in a read-side critical section.
        unsafe { bindings::synchronize_rcu() };
        // SAFETY: By the contract, it is the caller's; readers are gone.
        unsafe { Self::drop_address(address) };
    }

    /// # Safety
    ///
    /// `address` is 0, or that of an `Arc<T>` which the caller owns and nobody looks at.
    unsafe fn drop_address(address: usize) {
        if address != 0 {
            // SAFETY: By the contract.
            drop(unsafe { Arc::from_raw(core::ptr::with_exposed_provenance::<T>(address)) });
        }
    }
}

impl<T> Drop for RcuArc<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, this owns it. `self` is exclusive, so nobody reads.
        unsafe { Self::drop_address(*self.address.get_mut()) };
    }
}
