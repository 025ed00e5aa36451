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

use super::{
    completion::{
        Completion,
        Waited, //
    },
    csd::{
        Called,
        Csd, //
    },
    reaper::{
        ReapWork,
        Reaper, //
    },
    regs, //
};
use crate::logic::{
    in_flight::{
        Abandon,
        Finish,
        InFlight,
        Word, //
    },
    plan,
    round::{
        Bound,
        MAX_OPS, //
    },
};
use core::{
    cell::Cell,
    marker::PhantomData,
    mem::{
        offset_of,
        ManuallyDrop, //
    },
    pin::Pin,
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
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc, //
    },
};
use pin_init::Zeroable;

/// What a group's handlers do with each operation.
pub(crate) trait Work: 'static {
    /// One operation, and its result.
    type Op: Copy + Zeroable + Send;

    /// Performs an operation on this CPU.
    ///
    /// Runs in a hard interrupt: it must not sleep, allocate, log or panic.
    fn perform(op: &mut Self::Op);
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
/// At the start of an allocation of `lines` cache lines, which is freed once: by the owning
/// [`CallGroup`], or by `reap_work` if that has abandoned it.
#[pin_data]
#[repr(align(64))]
struct Header {
    in_flight: InFlight<KernelWord>,
    #[pin]
    done: Completion,
    #[pin]
    reap_work: ReapWork,
    reaper: Arc<Reaper>,
    bound: Bound,
    lines: usize,
}

const READY: u32 = 0;
const CALLED: u32 = 1;

/// The part of one CPU.
///
/// # Invariants
///
/// - `header` is the allocation's header; `ops` points to `len` initialised operations in it, that
///   belong to no other slice.
/// - While `state` is [`CALLED`], only the handler uses `ops[done..]`, `done`, `start` and `end`;
///   while it is [`READY`], only the caller.
#[repr(C, align(64))]
struct Slice<W: Work> {
    csd: Csd,
    header: *const Header,
    ops: *mut W::Op,
    cpu: u32,
    len: u32,
    state: Atomic<u32>,
    done: Cell<u32>,
    start: Cell<u64>,
    end: Cell<u64>,
    /// What `done` was when the CPU was last called; the caller's alone.
    stable: Cell<u32>,
    /// The CPU was not there when it was last called; the caller's alone.
    lost: Cell<bool>,
}

/// Whole cache lines, so that the allocation has the alignment of its parts.
#[repr(C, align(64))]
struct Line([u8; 64]);

/// How much a group has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capacity {
    /// CPUs.
    pub(crate) slices: usize,
    /// Operations.
    pub(crate) ops: usize,
    /// Entries of the index.
    pub(crate) index: usize,
}

/// Offsets of the parts of an allocation, and its size, in bytes.
#[derive(Clone, Copy)]
struct Layout {
    slices: usize,
    ops: usize,
    staged: usize,
    plan: usize,
    index: usize,
    size: usize,
}

impl Capacity {
    /// [`EOVERFLOW`] if it has no representation.
    fn layout<W: Work>(self) -> Result<Layout> {
        fn after<T>(offset: usize, count: usize) -> Option<usize> {
            let end = count.checked_mul(size_of::<T>())?.checked_add(offset)?;
            end.checked_next_multiple_of(align_of::<Line>())
        }
        let layout = || {
            let slices = after::<Header>(0, 1)?;
            let ops = after::<Slice<W>>(slices, self.slices)?;
            let staged = after::<W::Op>(ops, self.ops)?;
            let plan = after::<W::Op>(staged, self.ops)?;
            let index = after::<plan::Slice>(plan, self.slices)?;
            let size = after::<u32>(index, self.index)?;
            Some(Layout {
                slices,
                ops,
                staged,
                plan,
                index,
                size,
            })
        };
        layout().ok_or(EOVERFLOW)
    }

    fn holds(self, other: Self) -> bool {
        self.slices >= other.slices && self.ops >= other.ops && self.index >= other.index
    }
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
/// - `header` is a valid header, owned by this, whose allocation is laid out as `layout`, which is
///   that of `capacity`; all parts after the slices are initialised.
/// - No call is in flight, and the completion holds no notice.
/// - The first `used` slices are initialised.
pub(crate) struct CallGroup<W: Work> {
    header: NonNull<Header>,
    capacity: Capacity,
    layout: Layout,
    used: usize,
    _work: PhantomData<W>,
}

// SAFETY: The allocation belongs to whoever holds the group; the operations are `Send`.
unsafe impl<W: Work> Send for CallGroup<W> {}

impl<W: Work> CallGroup<W> {
    /// Makes a group with room for `capacity`, zeroed, on the account of the caller's cgroup.
    ///
    /// `bound` limits how long each CPU works at a stretch.
    pub(crate) fn new(capacity: Capacity, bound: Bound, reaper: Arc<Reaper>) -> Result<Self> {
        let layout = capacity.layout::<W>()?;
        let lines = layout.size / size_of::<Line>();
        let memory: KVVec<Line> =
            KVVec::with_capacity(lines, GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN)?;
        let (memory, _, lines) = memory.into_raw_parts();
        let header = memory.cast::<Header>();

        let init = pin_init!(Header {
            in_flight: InFlight::new(KernelWord(Atomic::new(0))),
            done <- Completion::new(),
            reap_work <- ReapWork::new(reap),
            reaper,
            bound,
            lines,
        });
        // SAFETY: The memory is large and aligned enough, and does not move until it is freed.
        let Ok(()) = unsafe { init.__pinned_init(header) };

        // INVARIANT: All parts are zeroed, which operations, plan and index allow.
        Ok(Self {
            // SAFETY: A `KVVec` that has allocated does not point to null.
            header: unsafe { NonNull::new_unchecked(header) },
            capacity,
            layout,
            used: 0,
            _work: PhantomData,
        })
    }

    /// Whether there is room for `capacity`.
    pub(crate) fn holds(&self, capacity: Capacity) -> bool {
        self.capacity.holds(capacity)
    }

    /// The size of the allocation in bytes.
    pub(crate) fn size(&self) -> usize {
        // SAFETY: `header` is valid by the type invariant.
        unsafe { self.header.as_ref() }
            .lines
            .saturating_mul(size_of::<Line>())
    }

    /// What is `offset` bytes into the allocation; `offset` is one of `self.layout`.
    fn at<T>(&self, offset: usize) -> *mut T {
        // SAFETY: By the type invariant, the layout is that of the allocation.
        unsafe { self.header.as_ptr().byte_add(offset) }.cast()
    }

    /// What only the caller uses, always; the first part is for [`Memory::ops`].
    fn callers(&mut self) -> (&mut [W::Op], &mut [plan::Slice], &mut [u32]) {
        let (staged, plan) = (self.at(self.layout.staged), self.at(self.layout.plan));
        let index = self.at(self.layout.index);
        // SAFETY: By the type invariant, they are initialised, of that length and distinct; the
        // borrow of `self` keeps other users away, and handlers do not use them.
        unsafe {
            (
                core::slice::from_raw_parts_mut(staged, self.capacity.ops),
                core::slice::from_raw_parts_mut(plan, self.capacity.slices),
                core::slice::from_raw_parts_mut(index, self.capacity.index),
            )
        }
    }

    /// The memory that a call is prepared in.
    pub(crate) fn memory(&mut self) -> Memory<'_, W> {
        let ops = self.at(self.layout.ops);
        let len = self.capacity.ops;
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
            if first != end || next > self.capacity.ops {
                return Err((self, EINVAL));
            }
            end = next;

            // SAFETY: There is room for another slice, as was just checked.
            let place = unsafe { self.at::<Slice<W>>(self.layout.slices).add(self.used) };
            // SAFETY: The operations from `first` to `next` exist, as was just checked.
            let ops = unsafe { self.at::<W::Op>(self.layout.ops).add(first) };
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
                (&raw mut (*place).stable).write(Cell::new(0));
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
unsafe fn free(header: NonNull<Header>) {
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
/// `work` is the work item of a group that has been abandoned, and whose handlers are through.
unsafe extern "C" fn reap(work: *mut bindings::work_struct) {
    let offset = offset_of!(Header, reap_work);
    // SAFETY: By the contract, `work` is that field of a `Header`.
    let header = unsafe { NonNull::new_unchecked(work.byte_sub(offset).cast::<Header>()) };
    // SAFETY: The last handler has handed the group over, so that it is valid until it is freed.
    let reaper = unsafe { header.as_ref() }.reaper.clone();
    // SAFETY: As above; nobody else uses it any more.
    unsafe { free(header) };
    reaper.release();
}

/// How the CPUs were called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dispatched {
    /// Calls to other CPUs.
    pub(crate) remote: u32,
    /// Calls on this CPU, which were through at once.
    pub(crate) local: u32,
    /// Operations performed by those.
    pub(crate) local_ops: u32,
}

impl Dispatched {
    /// Whether any CPU was called.
    pub(crate) fn called(self) -> bool {
        self.remote != 0 || self.local != 0
    }
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

/// A group whose CPUs are being called.
///
/// # Invariants
///
/// `waiting` says whether a notice will come (or has come) that was not consumed yet: handlers
/// held shares when the caller dropped its own.
pub(crate) struct Flight<W: Work> {
    group: ManuallyDrop<CallGroup<W>>,
    waiting: bool,
}

impl<W: Work> Flight<W> {
    fn header(&self) -> &Header {
        // SAFETY: Valid by the invariant of `CallGroup`; shared with handlers, which only take
        // shared references too.
        unsafe { self.group.header.as_ref() }
    }

    fn slices(&self) -> &[Slice<W>] {
        // SAFETY: That many are initialised by the invariant of `CallGroup`. Handlers only take
        // shared references too; the fields that change are atomic or cells, used as the
        // invariant of `Slice` says.
        unsafe {
            core::slice::from_raw_parts(self.group.at(self.group.layout.slices), self.group.used)
        }
    }

    /// Calls every CPU that has operations left and is not being called, all of them at once.
    ///
    /// The CPU that the caller is on comes last, so that the others work in the meantime.
    pub(crate) fn dispatch(&mut self) -> Dispatched {
        let mut counts = Dispatched::default();
        let here = regs::current_cpu();
        let calls = self.slices().iter().filter(|s| s.wants_call()).count();
        if calls == 0 {
            return counts;
        }

        if self.header().in_flight.begin(calls as u32) && self.waiting {
            // The last handler of an earlier round has crossed, and tells us now or already has.
            self.header().done.wait();
        }
        let mut call = |slice: &Slice<W>| {
            slice.stable.set(slice.done.get());
            slice.state.store(CALLED, Relaxed);
            // SAFETY: The csd is not locked, since the state was ready. The share that was taken
            // above keeps the memory until the handler has dropped it, and `run_slice()` is for
            // hard interrupts.
            match unsafe { slice.csd.call(slice.cpu) } {
                Ok(Called::Remote) => counts.remote = counts.remote.wrapping_add(1),
                Ok(Called::Local) => {
                    let ops = slice.done.get().wrapping_sub(slice.stable.get());
                    counts.local = counts.local.wrapping_add(1);
                    counts.local_ops = counts.local_ops.wrapping_add(ops);
                }
                Err(_) => {
                    slice.state.store(READY, Relaxed);
                    slice.lost.set(true);
                    self.header().in_flight.cancel();
                }
            }
        };
        let mut left = calls;
        for remote in [true, false] {
            for slice in self.slices() {
                if left > 0 && slice.wants_call() && (slice.cpu != here) == remote {
                    call(slice);
                    left = left.wrapping_sub(1);
                }
            }
        }
        // A slice can want another call as soon as its handler is through with a round; such
        // slices are for the next dispatch, and `left` keeps this one to what it took shares for.
        // Fewer than that cannot be: only this function makes a slice want no call.
        self.waiting = !self.header().in_flight.leave();
        counts
    }

    /// Whether some CPU that is not being called has operations left.
    pub(crate) fn wants_dispatch(&self) -> bool {
        self.slices().iter().any(|s| s.wants_call())
    }

    /// How many CPUs this is about.
    pub(crate) fn cpus(&self) -> u32 {
        self.group.used as u32
    }

    /// The CPU's number, if this is about one only.
    pub(crate) fn only_cpu(&self) -> Option<u32> {
        match self.slices() {
            [slice] => Some(slice.cpu),
            _ => None,
        }
    }

    /// Whether a CPU that is being called is virtual, and its host runs something else.
    pub(crate) fn is_called_cpu_preempted(&self) -> bool {
        let mut called = self.slices().iter().filter(|s| !s.is_ready());
        called.any(|s| regs::is_vcpu_preempted(s.cpu))
    }

    /// Whether a CPU may come to have another round to do while another one is being called.
    pub(crate) fn may_need_rounds(&self) -> bool {
        let calls = || self.slices().iter().filter(|s| !s.is_ready());
        calls().count() > 1 && calls().any(|s| s.len.wrapping_sub(s.stable.get()) > 1)
    }

    /// Consumes the notice that all calls are through if it is there. Does not sleep.
    pub(crate) fn try_wait(&mut self) -> bool {
        if self.waiting && self.header().done.try_wait() {
            self.waiting = false;
        }
        !self.waiting
    }

    /// Sleeps until all calls are through, a fatal signal is pending, or `jiffies` are over.
    pub(crate) fn wait(&mut self, jiffies: Option<c_ulong>) -> Waited {
        if !self.waiting {
            return Waited::Done;
        }
        let waited = self.header().done.wait_killable(jiffies);
        if waited == Waited::Done {
            self.waiting = false;
        }
        waited
    }

    /// What has become of every CPU's operations, in the order of the plan; and the operations in
    /// the caller's order.
    pub(crate) fn views(&mut self) -> (impl Iterator<Item = View<'_, W>>, &mut [W::Op]) {
        let staged = self.group.at(self.group.layout.staged);
        // SAFETY: Initialised and of that length by the invariant of `CallGroup`; no handler uses
        // them, and the views below do not reach them.
        let staged = unsafe { core::slice::from_raw_parts_mut(staged, self.group.capacity.ops) };
        (self.slices().iter().map(Slice::view), staged)
    }

    /// Ends the flight if all calls are through. Otherwise abandons it.
    pub(crate) fn into_group(mut self) -> Option<CallGroup<W>> {
        let through = self.settle();
        // SAFETY: The flight is forgotten, so that its field is moved out of it once; if it has
        // been handed over, it is not used at all.
        //
        // INVARIANT: No call is in flight and no notice is left, as `settle()` says.
        let group = through.then(|| unsafe { ManuallyDrop::take(&mut self.group) });
        core::mem::forget(self);
        group
    }

    /// Comes to an end with the handlers: either all of them are through and the group is the
    /// caller's again, or it is handed over to the last of them.
    fn settle(&mut self) -> bool {
        if !self.waiting {
            return true;
        }
        // INVARIANT: Either the notice is consumed below, or the flight is used no more.
        self.waiting = false;
        let header = self.header();
        header.reaper.expect_one();
        match header.in_flight.abandon() {
            Abandon::HandedOver => false,
            Abandon::Through => {
                header.reaper.release();
                header.done.wait();
                true
            }
        }
    }
}

impl<W: Work> Drop for Flight<W> {
    fn drop(&mut self) {
        if self.settle() {
            // SAFETY: No call is in flight, and the group is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.group) };
        }
    }
}

impl<W: Work> Slice<W> {
    /// Whether the caller may use what belongs to it while the slice is ready.
    fn is_ready(&self) -> bool {
        self.state.load(Acquire) == READY
    }

    fn wants_call(&self) -> bool {
        self.is_ready() && !self.lost.get() && self.done.get() < self.len
    }

    fn view(&self) -> View<'_, W> {
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
unsafe extern "C" fn run_slice<W: Work>(info: *mut c_void) {
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
    /// Performs as many operations as one round allows, and returns the header.
    fn run_round(&self) -> *const Header {
        let header = self.header;
        // SAFETY: By the type invariant; the share of this call keeps it valid.
        let bound = unsafe { (*header).bound };
        let done = self.done.get();
        let count = self.len.wrapping_sub(done).min(MAX_OPS);
        // SAFETY: By the type invariant, these operations exist and are the handler's alone.
        let ops =
            unsafe { core::slice::from_raw_parts_mut(self.ops.add(done as usize), count as usize) };

        let start = regs::rdtsc_ordered();
        let mut performed = 0u32;
        for op in ops {
            if performed > 0 && !bound.open(start, regs::rdtsc()) {
                break;
            }
            W::perform(op);
            performed = performed.wrapping_add(1);
        }
        if done == 0 {
            self.start.set(start);
        }
        self.end.set(regs::rdtsc_ordered());
        self.done.set(done.wrapping_add(performed));
        self.state.store(READY, Release);
        header
    }
}
