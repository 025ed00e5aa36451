// SPDX-License-Identifier: GPL-2.0

//! A safe asynchronous call to many CPUs at once.
//!
//! A [`CallGroup`] holds operations grouped by CPU. [`CallGroup::start`] turns it into a
//! [`Flight`], which sends every CPU one call; each CPU's handler works on its own contiguous
//! slice and on nothing else, and the last one to finish tells the waiting caller. While calls are
//! in flight, safe code has no way to reach the operations that they work on.
//!
//! One allocation holds everything that a handler touches, and it outlives the caller: a
//! [`Flight`] that is dropped leaves it to the last handler, which gives it to the [`Reaper`].
//!
//! ```text
//!  [Header | Slice, one per CPU ... | operations, grouped by CPU ... |
//!           of the caller alone: staged operations ... | plan, one per CPU ... | index ...]
//! ```

mod flight;
mod layout;
#[cfg(CONFIG_RUST_DEBUG_ASSERTIONS)]
pub(crate) mod longest;
mod slice;

pub(crate) use flight::Flight;
pub(crate) use layout::Capacity;

use super::{
    compat::init_in_place,
    completion::Completion,
    csd::Csd,
    reaper::{
        ReapWork,
        Reaper, //
    },
};
use crate::logic::{
    in_flight::{
        InFlight,
        Word, //
    },
    plan,
    round::Bound, //
};
use core::{
    cell::Cell,
    marker::PhantomData,
    mem::{
        offset_of,
        ManuallyDrop, //
    },
    ptr::NonNull, //
};
use kernel::{
    alloc::flags::{
        __GFP_NOWARN,
        __GFP_ZERO, //
    },
    bindings,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc, //
    },
};
use layout::{
    Layout,
    Line, //
};
use pin_init::Zeroable;
use slice::{
    run_slice,
    Slice,
    READY, //
};

/// What a group's handlers do with each operation.
pub(crate) trait Work: 'static {
    /// One operation, and its result.
    type Op: Copy + Zeroable + Send;

    /// What all operations of a group use. Dropped in process context, when the handlers are through.
    type Shared: Send + Sync;

    /// Performs an operation on this CPU, which has been busy without a break since its TSC was `since`.
    ///
    /// Runs in a hard interrupt: it must not sleep, allocate, log or panic.
    fn perform(shared: &Self::Shared, op: &mut Self::Op, since: u64);

    /// Whether an operation must be performed in the same round as the one before it, however long
    /// that took.
    fn is_joined(op: &Self::Op) -> bool;
}

struct KernelWord(Atomic<u32>);

impl Word for KernelWord {
    fn fetch_add(&self, n: u32) -> u32 {
        self.0.fetch_add(n, Full)
    }

    fn fetch_sub(&self, n: u32) -> u32 {
        self.0.fetch_sub(n, Full)
    }
}

/// # Invariants
///
/// At the start of an allocation of `lines` cache lines, laid out as `layout`, which is that of
/// `capacity`. It is freed once: by the owning [`CallGroup`], or by `reap_work` if that has abandoned
/// it.
#[pin_data]
#[repr(align(64))]
struct Header<W: Work> {
    shared: W::Shared,
    in_flight: InFlight<KernelWord>,
    #[pin]
    done: Completion,
    #[pin]
    reap_work: ReapWork,
    reaper: Arc<Reaper>,
    bound: Bound,
    lines: usize,
    capacity: Capacity,
    layout: Layout,
}

/// The memory of a group that its owner may use while no call is in flight.
pub(crate) struct Memory<'a, W: Work> {
    /// What the handlers work on, grouped by CPU.
    pub(crate) ops: &'a mut [W::Op],
    /// Operations in the caller's order; handlers do not see them.
    pub(crate) staged: &'a mut [W::Op],
    /// Which CPU has which operations.
    pub(crate) plan: &'a mut [plan::Slice],
    /// Room for an entry for each CPU number, all 0 at first.
    pub(crate) index: &'a mut [u32],
}

/// An allocation for calls to many CPUs, while none of them is in flight.
///
/// # Invariants
///
/// - `header` is a valid header, owned by this; all parts after the slices are initialised.
/// - No call is in flight, and the completion holds no notice.
/// - The first `used` slices are initialised.
pub(crate) struct CallGroup<W: Work> {
    header: NonNull<Header<W>>,
    used: usize,
    _work: PhantomData<W>,
}

// SAFETY: The allocation belongs to whoever holds the group; the operations are `Send`.
unsafe impl<W: Work> Send for CallGroup<W> {}

impl<W: Work> CallGroup<W> {
    /// Makes a group with room for `capacity`, zeroed, on the account of the caller's cgroup.
    ///
    /// `bound` limits how long each CPU works at a stretch.
    pub(crate) fn new(
        capacity: Capacity,
        bound: Bound,
        reaper: Arc<Reaper>,
        shared: W::Shared,
    ) -> Result<Self> {
        let layout = capacity.layout::<W>()?;
        let lines = layout.size / size_of::<Line>();
        let memory: KVVec<Line> =
            KVVec::with_capacity(lines, GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN)?;
        let (memory, _, lines) = memory.into_raw_parts();
        let header = memory.cast::<Header<W>>();

        let init = pin_init!(Header {
            shared,
            in_flight: InFlight::new(KernelWord(Atomic::new(0))),
            done <- Completion::new(),
            reap_work <- ReapWork::new(reap::<W>),
            reaper,
            bound,
            lines,
            capacity,
            layout,
        });
        // SAFETY: The memory is large and aligned enough, and does not move until it is freed.
        unsafe { init_in_place(header, init) };

        // INVARIANT: All parts are zeroed, which operations, plan and index allow.
        Ok(Self {
            // SAFETY: A `KVVec` that has allocated does not point to null.
            header: unsafe { NonNull::new_unchecked(header) },
            used: 0,
            _work: PhantomData,
        })
    }

    fn header(&self) -> &Header<W> {
        // SAFETY: `header` is valid by the type invariant; handlers too only take shared references.
        unsafe { self.header.as_ref() }
    }

    /// Whether there is room for `capacity`.
    pub(crate) fn holds(&self, capacity: Capacity) -> bool {
        self.header().capacity.holds(capacity)
    }

    /// The size of the allocation in bytes.
    pub(crate) fn size(&self) -> usize {
        self.header().lines.saturating_mul(size_of::<Line>())
    }

    /// What is `offset` bytes into the allocation; `offset` is one of the layout's.
    fn at<T>(&self, offset: usize) -> *mut T {
        // SAFETY: By the type invariant, the layout is that of the allocation.
        unsafe { self.header.as_ptr().byte_add(offset) }.cast()
    }

    /// What only the caller uses, always; the first part is for [`Memory::ops`].
    fn callers(&mut self) -> (&mut [W::Op], &mut [plan::Slice], &mut [u32]) {
        let (staged, plan) = (
            self.at(self.header().layout.staged),
            self.at(self.header().layout.plan),
        );
        let index = self.at(self.header().layout.index);
        // SAFETY: By the type invariant, they are initialised, of that length and distinct; the
        // borrow of `self` keeps other users away, and handlers do not use them.
        unsafe {
            (
                core::slice::from_raw_parts_mut(staged, self.header().capacity.ops),
                core::slice::from_raw_parts_mut(plan, self.header().capacity.slices),
                core::slice::from_raw_parts_mut(index, self.header().capacity.index),
            )
        }
    }

    /// The memory that a call is prepared in.
    pub(crate) fn memory(&mut self) -> Memory<'_, W> {
        let ops = self.at(self.header().layout.ops);
        let len = self.header().capacity.ops;
        let (staged, plan, index) = self.callers();
        // SAFETY: As in `callers()`; since no call is in flight, only the owner of the group uses
        // the operations.
        let ops = unsafe { core::slice::from_raw_parts_mut(ops, len) };
        Memory {
            ops,
            staged,
            plan,
            index,
        }
    }

    /// Starts calling: the first `used` slices of the plan name a CPU and its operations.
    ///
    /// [`EINVAL`] if they are too many, or do not follow one another in the operations.
    #[inline(never)]
    pub(crate) fn start(mut self, used: usize) -> Result<Flight<W>, (Self, Error)> {
        self.used = 0;
        let mut end = 0usize;
        while self.used < used {
            let index = self.used;
            let Some(slice) = self.callers().1.get(index).copied() else {
                return Err((self, EINVAL));
            };
            let first = slice.first as usize;
            let next = first.saturating_add(slice.len as usize);
            if first != end || next > self.header().capacity.ops {
                return Err((self, EINVAL));
            }
            end = next;

            // SAFETY: There is room for another slice, as was just checked.
            let place = unsafe {
                self.at::<Slice<W>>(self.header().layout.slices)
                    .add(self.used)
            };
            // SAFETY: The operations from `first` to `next` exist, as was just checked.
            let ops = unsafe { self.at::<W::Op>(self.header().layout.ops).add(first) };
            // INVARIANT: The operations follow those of the slice before, so that they belong to
            // no other.
            //
            // SAFETY: The place is valid for writing, and no call is in flight that could use it.
            unsafe {
                Csd::init(&raw mut (*place).csd, run_slice::<W>, place.cast());
                (&raw mut (*place).header).write(self.header.as_ptr());
                (&raw mut (*place).ops).write(ops);
                (&raw mut (*place).cpu).write(slice.cpu);
                (&raw mut (*place).len).write(slice.len);
                (&raw mut (*place).state).write(Atomic::new(READY));
                (&raw mut (*place).done).write(Cell::new(0));
                (&raw mut (*place).start).write(Cell::new(0));
                (&raw mut (*place).end).write(Cell::new(0));
                (&raw mut (*place).busy).write(Cell::new(0));
                (&raw mut (*place).stable).write(Cell::new(0));
                (&raw mut (*place).asked).write(Cell::new(0));
                (&raw mut (*place).untold).write(Cell::new(false));
                (&raw mut (*place).lost).write(Cell::new(false));
            }
            self.used = self.used.saturating_add(1);
        }
        // INVARIANT: No call is in flight.
        Ok(Flight {
            group: ManuallyDrop::new(self),
            waiting: false,
        })
    }
}

impl<W: Work> Drop for CallGroup<W> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the header is valid, owned by this, and no call is in
        // flight.
        unsafe { free(self.header) };
    }
}

/// Frees a group's allocation.
///
/// # Safety
///
/// `header` is valid, and nobody uses it or will use it.
unsafe fn free<W: Work>(header: NonNull<Header<W>>) {
    // SAFETY: The caller hands over a valid header.
    let lines = unsafe { header.as_ref() }.lines;
    // SAFETY: As above; it was initialised when the group was made.
    unsafe { core::ptr::drop_in_place(header.as_ptr()) };
    // SAFETY: The pointer and the capacity are those of the `KVVec` that the group was made from,
    // by the invariant of `Header`. The length is 0: a `Line` needs no drop.
    drop(unsafe { KVVec::<Line>::from_raw_parts(header.as_ptr().cast(), 0, lines) });
}

/// Frees an abandoned group.
///
/// # Safety
///
/// `work` is the work item of a group of such work that has been abandoned, and whose handlers are through.
unsafe extern "C" fn reap<W: Work>(work: *mut bindings::work_struct) {
    let offset = offset_of!(Header<W>, reap_work);
    // SAFETY: By the contract, `work` is that field of a `Header`.
    let header = unsafe { NonNull::new_unchecked(work.byte_sub(offset).cast::<Header<W>>()) };
    // SAFETY: The last handler has handed the group over, so that it is valid until it is freed.
    let reaper = unsafe { header.as_ref() }.reaper.clone();
    // SAFETY: As above; nobody else uses it any more.
    unsafe { free(header) };
    reaper.release();
}
