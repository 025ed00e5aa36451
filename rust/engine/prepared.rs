// SPDX-License-Identifier: GPL-2.0

//! Prepared plans: operations that are checked and grouped once, and performed many times.

use super::{
    batch::Batch,
    wait::Deadline,
    Caller,
    Engine,
    Group,
    Manner,
    Spare, //
};
use crate::{
    kapi::{
        call_group::Capacity,
        pages::SharedPages,
        regs,
        uapi::{
            Op,
            OpResult,
            CPU_SELF, //
        },
        user_ops, //
    },
    logic::plan::Planner,
    policy::Access,
    stats::Counter, //
};
use kernel::{
    cpu::nr_cpu_ids,
    mm::virt::VmaNew,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

/// Operations with the rights of the descriptor that prepared them.
#[pin_data]
pub(crate) struct Plan {
    engine: Arc<Engine>,
    access: Access,
    /// The allowlist that the operations were last checked against.
    generation: Atomic<u64>,
    /// In the caller's order; the status is that of a result which has no answer. What is refused
    /// here is refused for good.
    ops: KVVec<Op>,
    /// None of them is.
    is_plain: bool,
    capacity: Capacity,
    /// Groups in here are filled and planned.
    #[pin]
    spare: Spare,
    #[pin]
    buffer: Mutex<Option<SharedPages>>,
}

/// How to perform a plan; the header has been checked.
pub(crate) struct RunRequest {
    /// Where the results go in user space; `None` for the plan's own buffer.
    pub(crate) results: Option<UserPtr>,
    /// How long to wait, 0 for ever.
    pub(crate) timeout_ms: u32,
    /// How to wait.
    pub(crate) manner: Manner,
    /// Address of the time stamp pairs, in user space.
    pub(crate) tsc: Option<UserPtr>,
}

impl Plan {
    /// Prepares the operations of `batch` with the given rights.
    ///
    /// [`EFAULT`] or [`ENOMEM`]; everything else is in the results.
    #[inline(never)]
    pub(crate) fn new(
        engine: Arc<Engine>,
        access: Access,
        batch: &Batch,
    ) -> Result<Pin<KBox<Self>>> {
        let empty: Op = pin_init::zeroed();
        let mut ops = KVVec::from_elem(empty, batch.count, GFP_KERNEL_ACCOUNT)?;
        batch.fetch(&mut ops)?;
        let generation = Atomic::new(access.generation());
        for op in ops.iter_mut() {
            let checked = if op.cpu == CPU_SELF {
                Err(EINVAL)
            } else {
                access.check(op)
            };
            op.await_answer(checked);
        }
        let is_plain = ops.iter().all(Op::is_awaiting_answer);
        let cpus = nr_cpu_ids() as usize;
        let plan = try_pin_init!(Self {
            engine,
            access,
            generation,
            capacity: Capacity {
                slices: ops.len().min(cpus),
                ops: ops.len(),
                index: cpus,
            },
            ops,
            is_plain,
            spare <- Spare::new(),
            buffer <- new_mutex!(None, "cpupeek_buffer"),
        });
        KBox::try_pin_init(plan, GFP_KERNEL_ACCOUNT)
    }

    /// The operations, as they were given but for their answers; the engine; and the rights.
    pub(crate) fn parts(&self) -> (&[Op], &Arc<Engine>, &Access) {
        (&self.ops, &self.engine, &self.access)
    }

    /// The number of operations.
    pub(crate) fn len(&self) -> usize {
        self.ops.len()
    }

    /// Maps the plan's own buffer, which it gets with the first mapping.
    #[inline(never)]
    pub(crate) fn map(&self, vma: &VmaNew) -> Result {
        let mut buffer = self.buffer.lock();
        if let Some(pages) = &*buffer {
            return pages.map(vma);
        }
        let pages = SharedPages::new(self.len().saturating_mul(size_of::<OpResult>()))?;
        pages.map(vma)?;
        *buffer = Some(pages);
        Ok(())
    }

    /// Performs the plan.
    ///
    /// [`EFAULT`], [`ENOMEM`], [`EINTR`] on a fatal signal, or [`EINVAL`] if the results are for a
    /// buffer that was never mapped; everything else is in the results.
    #[inline(never)]
    pub(crate) fn perform(&self, request: &RunRequest) -> Result {
        if request.results.is_none() && self.buffer.lock().is_none() {
            return Err(EINVAL);
        }
        self.engine.stats.add(Counter::Calls, 1);
        self.engine.stats.add(Counter::Ops, self.len() as u64);

        let checked = self.recheck()?;
        let (ops, spare) = match &checked {
            Some(ops) => (ops, None),
            None => (&self.ops, Some(&self.spare)),
        };
        if checked.is_some() || !self.is_plain {
            ops.iter().for_each(|op| self.engine.count_refusal(op));
        }
        let (group, used) = match spare.and_then(Spare::take) {
            Some(mut group) => {
                let plan = group.memory().plan.iter();
                let used = plan.take_while(|slice| slice.len != 0).count();
                (group, used)
            }
            None => self.filled_group(ops)?,
        };
        let mut flight = group.start(used).map_err(|(_, error)| error)?;
        let deadline = Deadline::after_ms(request.timeout_ms);
        let caller = Caller {
            user: self.access.user(),
            manner: request.manner,
            is_patient: false,
        };
        let result = self
            .engine
            .fly(&mut flight, deadline, caller)
            .and_then(|()| {
                match request.results {
                    // Without a refused operation there is nothing but answers.
                    Some(place) if checked.is_none() && self.is_plain && flight.is_complete() => {
                        for view in flight.views().0 {
                            user_ops::store_results(place, self.len(), view.done)?;
                        }
                    }
                    Some(place) => Self::store(place, self.engine.collect(&mut flight, ops)?)?,
                    None => self.publish(self.engine.collect(&mut flight, ops)?)?,
                }
                Engine::store_tsc(&mut flight, request.tsc)
            });
        // Unlike a batch's, this memory is what the plan was prepared for, whatever its size.
        self.engine.land(flight, |group| {
            if let Some(spare) = spare {
                spare.put(group);
            }
        });
        result
    }

    /// Checks the operations for this run: the allowlist may have become shorter, and the CPUs are
    /// those of the task that runs the plan. `None` if nothing has changed.
    #[inline(never)]
    fn recheck(&self) -> Result<Option<KVVec<Op>>> {
        let here = regs::current_cpu();
        let generation = self.access.generation();
        let relisted = self.generation.load(Relaxed) != generation;
        if !relisted && self.access.is_unlimited() {
            return Ok(None);
        }
        let check = |op: &Op| {
            if relisted {
                self.access.check(op)?;
            }
            self.access.check_cpu(op, here)
        };
        let admitted = |op: &&Op| op.is_awaiting_answer();
        if self.ops.iter().filter(admitted).all(|op| check(op).is_ok()) {
            self.generation.store(generation, Relaxed);
            return Ok(None);
        }
        let mut ops = KVVec::new();
        ops.extend_from_slice(&self.ops, GFP_KERNEL_ACCOUNT)?;
        for op in ops.iter_mut().filter(|op| op.is_awaiting_answer()) {
            let checked = check(op);
            op.await_answer(checked);
        }
        Ok(Some(ops))
    }

    /// A group with those of the operations that await an answer, and the number of its CPUs.
    #[inline(never)]
    fn filled_group(&self, ops: &[Op]) -> Result<(Group, usize)> {
        let mut group = self.engine.new_group(self.capacity)?;
        let memory = group.memory();
        let mut planner = Planner::new(memory.index, memory.plan);
        for op in ops.iter().filter(|op| op.is_awaiting_answer()) {
            planner.count(op.cpu);
        }
        planner.layout();
        for (i, op) in ops.iter().enumerate() {
            if op.is_awaiting_answer() {
                let place = planner.place(op.cpu).ok_or(EINVAL)?;
                let slot = memory.ops.get_mut(place as usize).ok_or(EINVAL)?;
                *slot = *op;
                slot.reserved = i as u32;
            }
        }
        let used = planner.finish().len();
        Ok((group, used))
    }

    /// Copies the results out, some at a time: their layout is not that of operations.
    #[inline(never)]
    fn store(place: UserPtr, staged: &[Op]) -> Result {
        let size = staged.len().saturating_mul(size_of::<OpResult>());
        let mut writer = UserSlice::new(place, size).writer();
        for ops in staged.chunks(4) {
            let mut results = [pin_init::zeroed::<OpResult>(); 4];
            for (result, op) in results.iter_mut().zip(ops) {
                *result = op.result();
            }
            writer.write_slice(OpResult::bytes_of(results.get(..ops.len()).ok_or(EINVAL)?))?;
        }
        Ok(())
    }

    #[inline(never)]
    fn publish(&self, staged: &[Op]) -> Result {
        let buffer = self.buffer.lock();
        let pages = buffer.as_ref().ok_or(EINVAL)?;
        for (i, op) in staged.iter().enumerate() {
            pages.write(i.saturating_mul(size_of::<OpResult>()), &op.result())?;
        }
        Ok(())
    }
}
