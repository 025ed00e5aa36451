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
        round::{
            Stretch,
            MAX_OPS, //
        },
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
    pub(super) header: *const Header<W>,
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
    /// How many operations it was last asked for, at most, if it was another CPU; the caller's alone.
    pub(super) asked: Cell<u32>,
    /// The caller has not been told of that.
    pub(super) untold: Cell<bool>,
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

    /// How many operations its next round has at most; for the caller while the slice is ready, and for the
    /// handler.
    pub(super) fn next_round(&self) -> u32 {
        self.len.wrapping_sub(self.done.get()).min(MAX_OPS)
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
    let entered = regs::rdtsc();
    // SAFETY: The share keeps the slice valid until it is dropped below; the reference is not used
    // after that.
    let slice = unsafe { &*info.cast::<Slice<W>>() };
    let (header, cpu) = (slice.header, slice.cpu);
    // SAFETY: As above.
    let reaper = Arc::as_ptr(unsafe { &(*header).reaper });
    // Asked before the round is through: then the caller may queue the csd again.
    let (place, next) = (slice.csd.place(), slice.csd.next());
    // SAFETY: The module holds the reaper until `Reaper::drain()` has waited for this handler to return.
    let before = unsafe { (*reaper).stretch(cpu, place) };
    let (worked, stretch) = slice.run_round(before);
    // SAFETY: As above.
    unsafe { (*reaper).hand_on(cpu, next, stretch) };
    // SAFETY: As above, up to `finish()`.
    match unsafe { &*header }.in_flight.finish() {
        Finish::NotLast => {}
        // SAFETY: The caller frees the group after it has consumed this notice, not before.
        Finish::Tell => unsafe { (*header).done.complete() },
        Finish::HandOver => {
            // SAFETY: The caller has walked away, and nobody else uses the header until its work
            // item runs.
            let work = unsafe { Pin::new_unchecked(&(*header).reap_work) }.as_raw();
            // SAFETY: The reaper is valid, as above. `work` runs `reap()` on its own header, which nobody uses now.
            unsafe { (*reaper).queue(work) };
        }
    }
    let overhead = regs::rdtsc().wrapping_sub(entered).wrapping_sub(worked);
    // SAFETY: As for the queue. Waking the caller is most of it, so that it cannot be known before.
    unsafe { (*reaper).learn_overhead(cpu, overhead) };
}

impl<W: Work> Slice<W> {
    /// Performs as many operations as one round allows, after what was done `before` without a break.
    /// Returns how long that took in TSC cycles, and what comes to be before the next one. Runs on the
    /// slice's CPU with interrupts off.
    pub(super) fn run_round(&self, before: Option<Stretch>) -> (u64, Stretch) {
        // SAFETY: By the type invariant; a share, or the caller itself, keeps it valid.
        let (bound, shared) = unsafe { ((*self.header).bound, &(*self.header).shared) };
        let done = self.done.get();
        let count = self.next_round();
        // SAFETY: By the type invariant, these operations exist and are the handler's alone.
        let ops =
            unsafe { core::slice::from_raw_parts_mut(self.ops.add(done as usize), count as usize) };

        let start = regs::rdtsc_ordered();
        let stretch = before.unwrap_or(Stretch::new(start));
        let mut performed = 0u32;
        for op in ops {
            let open = || stretch.open(bound, performed, regs::rdtsc());
            if performed > 0 && !W::is_joined(op) && !open() {
                break;
            }
            W::perform(shared, op, stretch.start);
            performed = performed.wrapping_add(1);
        }
        if done == 0 {
            self.start.set(start);
        }
        let end = regs::rdtsc_ordered();
        self.end.set(end);
        let worked = end.wrapping_sub(start);
        self.busy.set(self.busy.get().wrapping_add(worked));
        #[cfg(CONFIG_RUST_DEBUG_ASSERTIONS)]
        super::longest::note(performed, worked);
        self.done.set(done.wrapping_add(performed));
        self.state.store(READY, Release);
        (worked, stretch.after(performed))
    }
}
