// SPDX-License-Identifier: GPL-2.0

//! The engine: plans operations, calls their CPUs, gathers the answers.

mod batch;
mod prepared;
mod start;
mod sweep;
mod wait;

pub(crate) use batch::{
    Batch,
    MAX_OPS as MAX_BATCH_OPS, //
};
pub(crate) use prepared::{
    Plan,
    RunRequest, //
};
pub(crate) use sweep::Extent;
pub(crate) use wait::Manner;
use wait::{
    Deadline,
    Spinning, //
};

use crate::{
    kapi::{
        call_group::{
            CallGroup,
            Capacity,
            Flight,
            Work, //
        },
        errno::etime,
        reaper::Reaper,
        regs, task,
        uapi::{
            Op,
            CPUPEEK_MSR,
            CPU_SELF, //
        },
    },
    logic::{
        plan,
        round::Bound, //
    },
    policy::{
        Access,
        User, //
    },
    stats::{
        Counter,
        Stats, //
    },
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    },
};

/// What the handlers do: read one register of their own CPU.
pub(crate) struct ReadRegister;

/// In an operation's `reserved`: to be performed in the same round as the one before. Operations of
/// batches and plans have their number there.
const JOINED: u32 = u32::MAX;

impl ReadRegister {
    /// Joins an operation to the one before it.
    pub(crate) fn join(op: &mut Op) {
        op.reserved = JOINED;
    }
}

impl Work for ReadRegister {
    type Op = Op;
    type Shared = ();

    fn is_joined(op: &Op) -> bool {
        op.reserved == JOINED
    }

    fn perform((): &(), op: &mut Op, _since: u64) {
        Self::perform_here(op);
    }
}

impl ReadRegister {
    /// Performs an operation on this CPU, whichever it is for. Interrupts are off.
    pub(crate) fn perform_here(op: &mut Op) {
        if u32::from(op.kind) == CPUPEEK_MSR {
            let (tsc, value) = regs::rdmsr_timed(op.reg);
            match value {
                Ok(value) => op.answer(tsc, [value as u32, (value >> 32) as u32, 0, 0]),
                Err(error) => op.refuse(error),
            }
        } else {
            let tsc = regs::rdtsc_ordered();
            op.answer(tsc, regs::cpuid(op.reg, op.subleaf));
        }
    }
}

/// A group of register reads.
pub(crate) type Group = CallGroup<ReadRegister>;

/// A spare group of at most this size is kept with a descriptor, in bytes. It is on the account of
/// whoever uses the descriptor; making and zeroing it anew would cost a large batch more than its
/// operations.
const SPARE_SIZE: usize = 8 << 20;

/// How long a single read may wait, in milliseconds.
const READ_TIMEOUT_MS: core::ops::RangeInclusive<u64> = 1..=3_600_000;

/// What the engine is made with: the module's parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// How long a single read waits at most.
    pub(crate) read_timeout_ms: u32,
    /// How long callers spin at least.
    pub(crate) spin_min_us: u32,
    /// How long callers spin at most.
    pub(crate) spin_max_us: u32,
}

/// On whose account a call is, and how the caller wants to wait.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    /// `None` if it is on nobody's.
    pub(crate) user: Option<&'a User>,
    /// How to wait.
    pub(crate) manner: Manner,
    /// Waits for a share of the CPUs' time however long that takes: all CPUs are called once.
    pub(crate) is_patient: bool,
}

/// What all descriptors share.
pub(crate) struct Engine {
    reaper: Arc<Reaper>,
    bound: Bound,
    read_timeout_ms: Atomic<u32>,
    spinning: Spinning,
    /// Counts what this engine does.
    pub(crate) stats: Stats,
}

impl Engine {
    /// Makes an engine; [`EINVAL`] if a setting is out of range.
    pub(crate) fn new(settings: Settings) -> Result<Arc<Self>> {
        let engine = Self {
            reaper: Reaper::new()?,
            bound: Bound::new(regs::tsc_khz()),
            read_timeout_ms: Atomic::new(0),
            spinning: Spinning::new(settings.spin_min_us, settings.spin_max_us)?,
            stats: Stats::new()?,
        };
        engine.set_read_timeout_ms(settings.read_timeout_ms.into())?;
        Ok(Arc::new(engine, GFP_KERNEL)?)
    }

    /// Sets how long single reads wait from now on; [`EINVAL`] if that is out of range.
    pub(crate) fn set_read_timeout_ms(&self, ms: u64) -> Result {
        if !READ_TIMEOUT_MS.contains(&ms) {
            return Err(EINVAL);
        }
        self.read_timeout_ms.store(ms as u32, Relaxed);
        Ok(())
    }

    /// How long a single read waits at most, in milliseconds.
    pub(crate) fn read_timeout_ms(&self) -> u32 {
        self.read_timeout_ms.load(Relaxed)
    }

    /// How long callers spin at least and at most, in microseconds.
    pub(crate) fn spin_us(&self) -> (u32, u32) {
        (self.spinning.floor_us(), self.spinning.ceiling_us())
    }

    /// Sets how long callers spin at least; [`EINVAL`] if that is out of range.
    pub(crate) fn set_spin_min_us(&self, us: u64) -> Result {
        self.spinning.set_floor_us(us)
    }

    /// Sets how long callers spin at most, 0 for never; [`EINVAL`] if that is out of range.
    pub(crate) fn set_spin_max_us(&self, us: u64) -> Result {
        self.spinning.set_ceiling_us(us)
    }

    /// Whether callers spin for virtual CPUs that are preempted too.
    pub(crate) fn spin_preempted(&self) -> bool {
        self.spinning.for_preempted()
    }

    /// Sets that; [`EINVAL`] if it is neither 0 nor 1.
    pub(crate) fn set_spin_preempted(&self, on: u64) -> Result {
        self.spinning.set_for_preempted(on)
    }

    /// Waits until nothing of the engine's runs any more. For module exit.
    pub(crate) fn drain(&self) {
        self.reaper.drain();
    }

    /// Counts an operation that the policy has refused, if it has.
    fn count_refusal(&self, op: &Op) {
        if op.status == EACCES.to_errno() {
            self.stats.add(Counter::RefusedRegisters, 1);
        } else if op.status == EPERM.to_errno() {
            self.stats.add(Counter::RefusedCpus, 1);
        }
    }

    /// A single read that comes to nothing.
    #[cold]
    fn refuse(&self, op: &mut Op, error: Error) {
        op.refuse(error);
        self.stats.add(Counter::Calls, 1);
        self.stats.add(Counter::Ops, 1);
        self.count_refusal(op);
    }

    /// Reads one register, if that is allowed. The answer, or why there is none, is in `op`.
    ///
    /// [`ENOMEM`] if there is no memory to call another CPU; [`EINTR`] on a fatal signal.
    #[inline(never)]
    pub(crate) fn read(&self, access: &Access, spare: &Spare, op: &mut Op) -> Result {
        let is_narrowed = access.is_narrowed();
        if let Err(error) = access.check_as(op, is_narrowed) {
            self.refuse(op, error);
            return Ok(());
        }
        let local = regs::with_irqs_off(|here| {
            if op.cpu != CPU_SELF && op.cpu != here {
                return false;
            }
            let checked = if is_narrowed {
                access.check_narrowed_cpu(here)
            } else {
                Ok(())
            };
            match checked {
                Ok(()) => {
                    op.cpu = here;
                    ReadRegister::perform_here(op);
                }
                Err(error) => {
                    op.refuse(error);
                    self.count_refusal(op);
                }
            }
            true
        });
        if local {
            // One count, which others include when they are shown.
            self.stats.add_near(op.cpu, Counter::LocalReads, 1);
            return Ok(());
        }
        if let Err(error) = access.check_cpu(op, CPU_SELF) {
            self.refuse(op, error);
            return Ok(());
        }
        self.stats.add(Counter::Calls, 1);
        self.stats.add(Counter::Ops, 1);

        let mut kept = spare.take();
        let caller = Caller {
            user: access.user(),
            manner: Manner::Adaptive,
            is_patient: false,
        };
        let read = self.read_slice(op.cpu, &mut kept, core::slice::from_mut(op), caller);
        if let Some(group) = kept {
            spare.keep(group);
        }
        read.map(|_| ())
    }

    /// Reads some registers of one CPU in one call, where all of `ops` are for that CPU, and for at
    /// most as long as a single read waits. `kept` is the caller's memory for the next such call.
    ///
    /// Returns the CPU's TSC before the first and after the last of them, if it has answered.
    /// [`ENOMEM`] if there is no memory; [`EINTR`] on a fatal signal. The rest is in `ops`.
    #[inline(never)]
    pub(crate) fn read_slice(
        &self,
        cpu: u32,
        kept: &mut Option<Group>,
        ops: &mut [Op],
        caller: Caller<'_>,
    ) -> Result<Option<(u64, u64)>> {
        let capacity = Capacity {
            slices: 1,
            ops: ops.len(),
            index: 0,
        };
        let mut group = match kept.take() {
            Some(group) if group.holds(capacity) => group,
            _ => self.new_group(capacity)?,
        };
        for op in ops.iter_mut() {
            op.await_answer(Ok(()));
        }
        let memory = group.memory();
        let slots = memory.ops.get_mut(..ops.len()).ok_or(EINVAL)?;
        slots.copy_from_slice(ops);
        *memory.plan.first_mut().ok_or(EINVAL)? = plan::Slice {
            cpu,
            first: 0,
            len: ops.len() as u32,
        };

        let mut flight = group.start(1).map_err(|(_, error)| error)?;
        let deadline = Deadline::after_ms(self.read_timeout_ms());
        let flown = self.fly(&mut flight, deadline, caller);
        let mut span = None;
        if let Some(view) = flight.views().0.next() {
            for (op, answer) in ops.iter_mut().zip(view.done) {
                op.take_answer(answer);
            }
            let missing = ops.len().saturating_sub(view.done.len());
            for op in ops.iter_mut().skip(view.done.len()) {
                op.refuse(if view.lost { ENXIO } else { etime() });
            }
            match missing as u64 {
                0 => span = Some(view.tsc),
                missing if view.lost => self.stats.add(Counter::Losses, missing),
                missing => self.stats.add(Counter::Timeouts, missing),
            }
        }
        self.land(flight, |group| *kept = Some(group));
        flown.map(|()| span)
    }

    /// A group with room for `capacity`: the descriptor's spare one if it is there and large enough.
    fn group(&self, spare: &Spare, capacity: Capacity) -> Result<Group> {
        match spare.take() {
            Some(group) if group.holds(capacity) => Ok(group),
            _ => self.new_group(capacity),
        }
    }

    #[inline(never)]
    fn new_group(&self, capacity: Capacity) -> Result<Group> {
        self.stats.add(Counter::Allocations, 1);
        Group::new(capacity, self.bound, self.reaper.clone(), ())
    }

    /// Calls the CPUs of a flight until all operations are through, the time is over, or a fatal
    /// signal comes ([`EINTR`]).
    #[inline(never)]
    fn fly<W: Work>(
        &self,
        flight: &mut Flight<W>,
        mut deadline: Deadline,
        caller: Caller<'_>,
    ) -> Result {
        let patience = if caller.is_patient {
            Deadline::NEVER
        } else {
            deadline
        };
        loop {
            if let Some(user) = caller.user {
                let asked = task::monotonic_ns();
                let go = self.throttle(flight, user, patience);
                // Some may have come to their end meanwhile.
                Self::settle(flight, user);
                if !go? {
                    return Ok(());
                }
                if caller.is_patient {
                    // The CPUs have their time after that.
                    deadline = deadline.later(task::monotonic_ns().saturating_sub(asked));
                }
            }
            let calls = flight.dispatch();
            // What was called indeed: the caller may have moved since it was throttled.
            for (cpu, ops) in flight.take_called() {
                if let Some(user) = caller.user {
                    let overhead = regs::cycles_to_ns(self.reaper.overhead(cpu));
                    user.charge_call(cpu, ops, overhead);
                }
            }
            self.stats.add(Counter::LocalOps, calls.local_ops.into());
            if calls.called() {
                self.stats.add(Counter::Rounds, 1);
            }
            if calls.remote != 0 {
                self.stats.add(Counter::Interrupts, calls.remote.into());
            }
            let again = self.wait(flight, deadline, caller.manner);
            if let Some(user) = caller.user {
                Self::settle(flight, user);
            }
            if !again? {
                return Ok(());
            }
        }
    }

    /// Charges a user for what CPUs have done for him, in place of what that was taken to cost.
    fn settle<W: Work>(flight: &mut Flight<W>, user: &User) {
        for worked in flight.take_busy() {
            user.refund_ops(worked.cpu, worked.left_out);
            user.charge(worked.cpu, regs::cycles_to_ns(worked.cycles));
        }
    }

    /// Ends a flight: `keep` gets its memory, or the handlers that still work on it have it.
    fn land<W: Work>(&self, flight: Flight<W>, keep: impl FnOnce(CallGroup<W>)) {
        match flight.into_group() {
            Some(group) => keep(group),
            None => self.stats.add(Counter::Abandoned, 1),
        }
    }
}

/// A descriptor's memory for its next call to other CPUs.
#[pin_data]
pub(crate) struct Spare {
    #[pin]
    group: SpinLock<Option<Group>>,
}

impl Spare {
    /// Without memory, until a call leaves some.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            group <- new_spinlock!(None, "cpupeek_spare"),
        })
    }

    fn take(&self) -> Option<Group> {
        self.group.lock().take()
    }

    /// Keeps a group that is not too large to be kept by every descriptor.
    fn keep(&self, group: Group) {
        if group.size() <= SPARE_SIZE {
            self.put(group);
        }
    }

    /// The last one to come back stays; a larger one has come to stay if it is needed again.
    fn put(&self, group: Group) {
        let replaced = self.group.lock().replace(group);
        drop(replaced);
    }
}
