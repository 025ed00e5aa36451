// SPDX-License-Identifier: GPL-2.0

//! Asynchronous calls to another CPU.
//!
//! C header: [`include/linux/smp.h`](srctree/include/linux/smp.h)
//!
//! # The life of a csd
//!
//! ```text
//!              init()                 call()
//!   (memory) ---------> [ idle ] ---------------> [ locked: queued on the target ]
//!                          ^    \                               |
//!                          |     \ -ENXIO: offline              | interrupt, or the target's
//!                          |      \ (stays idle)                | idle loop, or its last act
//!                          |       v                            | before it goes offline
//!                          |    [ idle ]                        v
//!                          |                      [ unlocked, function running ]
//!                          |                                    |
//!                          +------------------------------------+
//!                                  the function returns
//! ```
//!
//! The kernel unlocks the csd *before* it calls the function. So the function itself, and whoever
//! it tells, may start the csd again; but an unlocked csd does not mean that the function is
//! through. On the CPU that calls, the function runs before [`Csd::call`] returns.
//!
//! A call that was queued always runs: a CPU that goes offline empties its queue first
//! (`smpcfd_dying_cpu()` in `kernel/smp.c`). There is no way to cancel one.

use kernel::{
    bindings,
    prelude::*,
    types::Opaque, //
};

/// `call_single_data_t`: `struct __call_single_data` with the alignment that C gives it, so that
/// it does not straddle cache lines. bindgen loses it (rust-bindgen issue 1753).
#[repr(C, align(32))]
struct CallSingleData(bindings::__call_single_data);

const _: () = assert!(size_of::<CallSingleData>() == 32 && align_of::<CallSingleData>() == 32);

/// Tells one csd from another, by where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(pub(super) usize);

impl Place {
    /// That of none.
    pub(super) const NONE: Self = Self(0);
}

/// Where a call went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Called {
    /// To another CPU.
    Remote,
    /// To this one: the function has returned already, and no interrupt was needed.
    Local,
}

/// A call that can be queued on a CPU.
///
/// # Invariants
///
/// `inner` is initialised, and is queued at most once at a time.
#[repr(transparent)]
pub(crate) struct Csd {
    inner: Opaque<CallSingleData>,
}

impl Csd {
    /// Initialises a call of `func` with `info` in place.
    ///
    /// # Safety
    ///
    /// `slot` is valid for writing a `Csd`, and none that is in use is there.
    pub(crate) unsafe fn init(
        slot: *mut Self,
        func: unsafe extern "C" fn(*mut c_void),
        info: *mut c_void,
    ) {
        // SAFETY: `Csd` and its only field have the layout of `call_single_data_t`, and the caller
        // promises that the memory may be written.
        unsafe { super::helpers::cpupeek_helper_init_csd(slot.cast(), Some(func), info) };
    }

    /// Queues the call on `cpu`, and does not wait for it.
    ///
    /// Errors: [`ENXIO`] if there is no such CPU or it is offline, and the function will not run.
    ///
    /// # Safety
    ///
    /// The csd is not locked; it, and what the function touches, stay valid until the function
    /// has run; and the function may run in a hard interrupt, on any CPU, with its argument.
    pub(crate) unsafe fn call(&self, cpu: u32) -> Result<Called> {
        let mut local = false;
        // SAFETY: The csd is initialised by the type invariant; the caller promises the rest.
        let ret = unsafe {
            super::helpers::cpupeek_helper_csd_call(cpu, self.inner.get().cast(), &mut local)
        };
        kernel::error::to_result(ret)?;
        Ok(if local { Called::Local } else { Called::Remote })
    }

    /// Where this csd is.
    pub(super) fn place(&self) -> Place {
        Place(self.inner.get().addr())
    }

    /// Where that is in the CPU's queue which follows this one, a csd or something else: the CPU takes the
    /// whole queue (`flush_smp_call_function_queue()` in `kernel/smp.c`), and goes through it by these
    /// links. [`Place::NONE`] after the last.
    ///
    /// To be asked by the csd's function, before anybody may queue the csd again.
    pub(super) fn next(&self) -> Place {
        // SAFETY: The csd is initialised by the type invariant; nobody writes the link of one that is
        // not queued, and the function that asks has it to itself.
        let next = unsafe { (*self.inner.get()).0.node.llist.next };
        Place(next.addr())
    }
}
