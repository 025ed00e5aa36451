// SPDX-License-Identifier: GPL-2.0

//! Many operations on many CPUs in one command.

use super::{
    wait::Deadline,
    Caller,
    Engine,
    Manner,
    ReadRegister,
    Spare, //
};
use crate::{
    kapi::{
        call_group::{
            Capacity,
            Flight,
            Memory, //
        },
        regs,
        uapi::{
            Op,
            TscPair,
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
    prelude::*,
    transmute::AsBytes,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

/// Most operations in one batch. They take 6 MiB.
pub(crate) const MAX_OPS: usize = 65_536;

/// A batch whose header has been checked.
pub(crate) struct Batch {
    /// Address of the operations, in user space.
    pub(crate) ops: UserPtr,
    /// Number of operations, at most [`MAX_OPS`].
    pub(crate) count: usize,
    /// Distance between operations in bytes, at least the size of one.
    pub(crate) stride: usize,
    /// How long to wait, 0 for ever.
    pub(crate) timeout_ms: u32,
    /// How to wait.
    pub(crate) manner: Manner,
    /// Address of the time stamp pairs, in user space.
    pub(crate) tsc: Option<UserPtr>,
}

/// A batch in a group's memory.
struct Planned {
    cpus: usize,
    /// No operation was refused or on [`CPU_SELF`]: nothing but answers goes back.
    is_plain: bool,
}

impl Batch {
    /// On whose account it is, with the given rights.
    fn caller<'a>(&self, access: &'a Access) -> Caller<'a> {
        Caller {
            user: access.user(),
            manner: self.manner,
            is_patient: false,
        }
    }

    fn slice(&self) -> UserSlice {
        UserSlice::new(self.ops, self.count.saturating_mul(self.stride))
    }

    /// Copies the operations in, each byte once.
    pub(crate) fn fetch(&self, staged: &mut [Op]) -> Result {
        user_ops::fetch(self.ops, self.stride, staged)
    }

    /// Copies answers out, each to the operation whose number it has.
    fn store_answers(&self, answers: &[Op]) -> Result {
        user_ops::store_answers(self.ops, self.stride, self.count, answers)
    }

    /// Copies the operations out.
    fn store(&self, staged: &[Op]) -> Result {
        if self.stride == size_of::<Op>() {
            return self.slice().writer().write_slice(AsBytes::as_bytes(staged));
        }
        for (i, op) in staged.iter().enumerate() {
            let place = self.ops.wrapping_byte_add(i.saturating_mul(self.stride));
            UserSlice::new(place, size_of::<Op>()).writer().write(op)?;
        }
        Ok(())
    }
}

impl Engine {
    /// Performs a batch with the given rights.
    ///
    /// [`EFAULT`], [`ENOMEM`], or [`EINTR`] on a fatal signal; everything else is in the operations.
    #[inline(never)]
    pub(crate) fn batch(&self, access: &Access, spare: &Spare, batch: &Batch) -> Result {
        self.stats.add(Counter::Ops, batch.count as u64);
        if batch.count == 0 {
            return Ok(());
        }

        let cpus = nr_cpu_ids() as usize;
        let mut group = self.group(
            spare,
            Capacity {
                slices: batch.count.min(cpus),
                ops: batch.count,
                index: cpus,
            },
        )?;
        let planned = self.plan(access, batch, group.memory());
        let planned = match planned {
            Ok(planned) => planned,
            Err(error) => {
                spare.keep(group);
                return Err(error);
            }
        };
        let mut flight = group.start(planned.cpus).map_err(|(_, error)| error)?;
        let deadline = Deadline::after_ms(batch.timeout_ms);
        let result = self
            .fly(&mut flight, deadline, batch.caller(access))
            .and_then(|()| {
                if planned.is_plain && flight.is_complete() {
                    for view in flight.views().0 {
                        batch.store_answers(view.done)?;
                    }
                } else {
                    let staged = self.collect(&mut flight, &[])?;
                    batch.store(staged.get(..batch.count).ok_or(EINVAL)?)?;
                }
                Self::store_tsc(&mut flight, batch.tsc)
            });
        self.land(flight, |group| spare.keep(group));
        result
    }

    /// Copies the operations in, checks each, and groups those that pass by CPU.
    ///
    /// The operations for the handlers have their number among the staged ones in `reserved`.
    #[inline(never)]
    fn plan(
        &self,
        access: &Access,
        batch: &Batch,
        memory: Memory<'_, ReadRegister>,
    ) -> Result<Planned> {
        let staged = memory.staged.get_mut(..batch.count).ok_or(EINVAL)?;
        batch.fetch(staged)?;

        let here = regs::current_cpu();
        let resolve = |cpu| if cpu == CPU_SELF { here } else { cpu };
        let mut planner = Planner::new(memory.index, memory.plan);
        let mut is_plain = true;
        // Asked once: most batches are root's, and this is most of what planning costs them.
        let is_unlimited = access.is_unlimited();
        for op in staged.iter_mut() {
            let given = op.cpu;
            let cpu = resolve(given);
            is_plain &= cpu == given;
            let checked = if is_unlimited {
                Access::check_form(op)
            } else {
                Self::check(access, op, cpu, here)
            };
            let counted = checked.and_then(|()| planner.count(cpu).then_some(()).ok_or(ENXIO));
            if counted.is_ok() {
                op.cpu = cpu;
                op.await_answer(Ok(()));
            } else {
                is_plain = false;
                op.await_answer(counted);
                self.count_refusal(op);
            }
        }
        planner.layout();
        for (i, op) in staged.iter().enumerate() {
            if op.is_awaiting_answer() {
                let place = planner.place(op.cpu).ok_or(EINVAL)?;
                let slot = memory.ops.get_mut(place as usize).ok_or(EINVAL)?;
                *slot = *op;
                slot.reserved = i as u32;
            }
        }
        Ok(Planned {
            cpus: planner.finish().len(),
            is_plain,
        })
    }

    /// Checks an operation of a task on CPU `here` that wants it performed on `cpu`.
    #[inline(never)]
    fn check(access: &Access, op: &Op, cpu: u32, here: u32) -> Result {
        access.check(op)?;
        access.check_cpu(&Op { cpu, ..*op }, here)
    }

    /// Brings the answers into the caller's order, among the staged operations. With `fresh` those
    /// are replaced first, else they await their answers already.
    #[inline(never)]
    pub(super) fn collect<'a>(
        &self,
        flight: &'a mut Flight<ReadRegister>,
        fresh: &[Op],
    ) -> Result<&'a [Op]> {
        let (views, staged) = flight.views();
        staged
            .get_mut(..fresh.len())
            .ok_or(EINVAL)?
            .copy_from_slice(fresh);
        for view in views {
            for answer in view.done {
                if let Some(op) = staged.get_mut(answer.reserved as usize) {
                    op.take_answer(answer);
                }
            }
            for unanswered in view.lost_ops {
                if let Some(op) = staged.get_mut(unanswered.reserved as usize) {
                    op.refuse(ENXIO);
                }
            }
            let missing = view.len.saturating_sub(view.done.len()) as u64;
            if view.lost {
                self.stats.add(Counter::Losses, missing);
            } else if missing != 0 {
                self.stats.add(Counter::Timeouts, missing);
            }
        }
        Ok(staged)
    }

    /// Copies out each CPU's first and last time stamp, if somebody wants them.
    #[inline(never)]
    pub(super) fn store_tsc(flight: &mut Flight<ReadRegister>, tsc: Option<UserPtr>) -> Result {
        let Some(tsc) = tsc else {
            return Ok(());
        };
        for view in flight.views().0 {
            let place = tsc.wrapping_byte_add(view.cpu as usize * size_of::<TscPair>());
            let (start, end) = view.tsc;
            UserSlice::new(place, size_of::<TscPair>())
                .writer()
                .write(&TscPair { start, end })?;
        }
        Ok(())
    }
}
