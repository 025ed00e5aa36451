// SPDX-License-Identifier: GPL-2.0

//! The part of one CPU in a group, and its handler.

use super::{
    Header,
    Work, //
};
use crate::{
    kapi::{
        csd::Csd,
        regs, //
    },
    logic::{
        in_flight::Finish,
        round::MAX_OPS, //
    },
};
use core::{
    cell::Cell,
    pin::Pin, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc, //
    },
};

pub(super) const READY: u32 = 0;
pub(super) const CALLED: u32 = 1;

/// The part of one CPU.
///
/// # Invariants
///
/// - `header` is the allocation's header; `ops` points to `len` initialised operations in it, that
///   belong to no other slice.
/// - While `state` is [`CALLED`], only the handler uses `ops[done..]`, `done`, `start`, `end` and
///   `busy`;
///   while it is [`READY`], only the caller.
#[repr(C, align(64))]
pub(super) struct Slice<W: Work> {
    pub(super) csd: Csd,
    pub(super) header: *const Header,
    pub(super) ops: *mut W::Op,
    pub(super) cpu: u32,
    pub(super) len: u32,
    pub(super) state: Atomic<u32>,
    pub(super) done: Cell<u32>,
    pub(super) start: Cell<u64>,
    pub(super) end: Cell<u64>,
    /// How long its handlers have worked, in TSC cycles.
    pub(super) busy: Cell<u64>,
    /// What `done` was when the CPU was last called; the caller's alone.
    pub(super) stable: Cell<u32>,
    /// The CPU was not there when it was last called; the caller's alone.
    pub(super) lost: Cell<bool>,
}

/// What has become of a CPU's operations.
pub(crate) struct View<'a, W: Work> {
    /// The CPU's number.
    pub(crate) cpu: u32,
    /// The operations that are through.
    pub(crate) done: &'a [W::Op],
    /// How many there are in all.
    pub(crate) len: usize,
    /// The CPU was not there for the rest of them.
    pub(crate) lost: bool,
    /// Those that the CPU was not there for.
    pub(crate) lost_ops: &'a [W::Op],
    /// This CPU's TSC before its first and after its last operation that is through.
    pub(crate) tsc: (u64, u64),
}

impl<W: Work> Slice<W> {
    /// Whether the caller may use what belongs to it while the slice is ready.
    pub(super) fn is_ready(&self) -> bool {
        self.state.load(Acquire) == READY
    }

    pub(super) fn wants_call(&self) -> bool {
        self.is_ready() && !self.lost.get() && self.done.get() < self.len
    }

    pub(super) fn view(&self) -> View<'_, W> {
        let ready = self.is_ready();
        let done = if ready { &self.done } else { &self.stable }.get();
        let left = if ready && self.lost.get() {
            self.len.wrapping_sub(done)
        } else {
            0
        };
        // SAFETY: By the type invariant, these are initialised. The handler only uses operations
        // after those that are done, and none if the slice is ready; it does not become busy while
        // the flight is borrowed.
        let (done, lost_ops) = unsafe {
            (
                core::slice::from_raw_parts(self.ops, done as usize),
                core::slice::from_raw_parts(self.ops.add(done as usize), left as usize),
            )
        };
        View {
            cpu: self.cpu,
            done,
            len: self.len as usize,
            lost: self.lost.get(),
            lost_ops,
            tsc: if ready {
                (self.start.get(), self.end.get())
            } else {
                (0, 0)
            },
        }
    }
}

/// Performs a round of one CPU's operations on that CPU.
///
/// # Safety
///
/// `info` is a [`Slice`] whose state is [`CALLED`] and that a share was taken for.
pub(super) unsafe extern "C" fn run_slice<W: Work>(info: *mut c_void) {
    // SAFETY: The share keeps the slice valid until it is dropped below; the reference is not used
    // after that.
    let header = unsafe { &*info.cast::<Slice<W>>() }.run_round();
    // SAFETY: As above, up to `finish()`.
    match unsafe { &*header }.in_flight.finish() {
        Finish::NotLast => {}
        // SAFETY: The caller frees the group after it has consumed this notice, not before.
        Finish::Tell => unsafe { (*header).done.complete() },
        Finish::HandOver => {
            // SAFETY: The caller has walked away, and nobody else uses the header until its work
            // item runs.
            let (reaper, work) = unsafe {
                (
                    Arc::as_ptr(&(*header).reaper),
                    Pin::new_unchecked(&(*header).reap_work).as_raw(),
                )
            };
            // SAFETY: The module holds the reaper until `Reaper::drain()` has waited for this
            // handler to return. `work` runs `reap()` on its own header, which nobody uses now.
            unsafe { (*reaper).queue(work) };
        }
    }
}

impl<W: Work> Slice<W> {
    /// Performs as many operations as one round allows, and returns the header. Runs on the slice's
    /// CPU with interrupts off.
    pub(super) fn run_round(&self) -> *const Header {
        let header = self.header;
        // SAFETY: By the type invariant; a share, or the caller itself, keeps it valid.
        let bound = unsafe { (*header).bound };
        let done = self.done.get();
        let count = self.len.wrapping_sub(done).min(MAX_OPS);
        // SAFETY: By the type invariant, these operations exist and are the handler's alone.
        let ops =
            unsafe { core::slice::from_raw_parts_mut(self.ops.add(done as usize), count as usize) };

        let start = regs::rdtsc_ordered();
        let mut performed = 0u32;
        for op in ops {
            if performed > 0 && !W::is_joined(op) && !bound.open(start, regs::rdtsc()) {
                break;
            }
            W::perform(op);
            performed = performed.wrapping_add(1);
        }
        if done == 0 {
            self.start.set(start);
        }
        let end = regs::rdtsc_ordered();
        self.end.set(end);
        let busy = self.busy.get().wrapping_add(end.wrapping_sub(start));
        self.busy.set(busy);
        self.done.set(done.wrapping_add(performed));
        self.state.store(READY, Release);
        header
    }
}
