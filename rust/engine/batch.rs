// SPDX-License-Identifier: GPL-2.0

//! Many operations on many CPUs in one command.

use super::{
    wait::Deadline,
    Engine,
    Group,
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
        task::etime,
        uapi::{
            Op,
            TscPair,
            CPU_SELF, //
        },
    },
    logic::plan::Planner,
    policy::Rights,
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

impl Batch {
    fn slice(&self) -> UserSlice {
        UserSlice::new(self.ops, self.count.saturating_mul(self.stride))
    }

    /// Copies the operations in, each byte once.
    fn fetch(&self, staged: &mut [Op]) -> Result {
        let mut reader = self.slice().reader();
        if self.stride == size_of::<Op>() {
            return reader.read_slice(AsBytes::as_bytes_mut(staged));
        }
        for op in staged {
            *op = reader.read()?;
            // After the last operation there may be nothing more, mapped or not.
            let gap = self.stride.saturating_sub(size_of::<Op>());
            reader.skip(gap.min(reader.len()))?;
        }
        Ok(())
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
    pub(crate) fn batch(&self, rights: Rights, spare: &Spare, batch: &Batch) -> Result {
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
        let planned = Self::plan(rights, batch, group.memory());
        let used = match planned {
            Ok(used) => used,
            Err(error) => {
                self.keep(spare, group);
                return Err(error);
            }
        };
        let mut flight = group.start(used).map_err(|(_, error)| error)?;
        let result = self
            .fly(
                &mut flight,
                Deadline::after_ms(batch.timeout_ms),
                batch.manner,
            )
            .and_then(|()| self.gather(batch, &mut flight));
        self.land(spare, flight);
        result
    }

    /// Copies the operations in, checks each, and groups those that pass by CPU. Returns how many
    /// CPUs that are.
    ///
    /// Of the staged operations, those that pass have the status `ETIME`, which stays if there is
    /// no answer; the ones for the handlers have their number in `reserved`.
    fn plan(rights: Rights, batch: &Batch, memory: Memory<'_, ReadRegister>) -> Result<usize> {
        let staged = memory.staged.get_mut(..batch.count).ok_or(EINVAL)?;
        batch.fetch(staged)?;

        let here = regs::current_cpu();
        let mut planner = Planner::new(memory.index, memory.plan);
        for op in staged.iter_mut() {
            let admitted = rights.check(op);
            if op.cpu == CPU_SELF {
                op.cpu = here;
            }
            match admitted {
                Err(error) => op.refuse(error),
                Ok(()) if planner.count(op.cpu) => op.refuse(etime()),
                Ok(()) => op.refuse(ENXIO),
            }
        }
        planner.layout();
        for (i, op) in staged.iter().enumerate() {
            if op.status == etime().to_errno() {
                let place = planner.place(op.cpu).ok_or(EINVAL)?;
                let slot = memory.ops.get_mut(place as usize).ok_or(EINVAL)?;
                *slot = *op;
                slot.reserved = i as u32;
            }
        }
        Ok(planner.finish().len())
    }

    /// Brings the answers into the caller's order and copies them out.
    fn gather(&self, batch: &Batch, flight: &mut Flight<ReadRegister>) -> Result {
        let (views, staged) = flight.views();
        let staged = staged.get_mut(..batch.count).ok_or(EINVAL)?;
        for view in views {
            for answer in view.done {
                if let Some(op) = staged.get_mut(answer.reserved as usize) {
                    op.take_answer(answer);
                }
            }
            let missing = view.len.saturating_sub(view.done.len()) as u64;
            if view.lost {
                self.stats.add(Counter::Losses, missing);
            } else if missing != 0 {
                self.stats.add(Counter::Timeouts, missing);
            }
            for unanswered in view.lost_ops {
                if let Some(op) = staged.get_mut(unanswered.reserved as usize) {
                    op.refuse(ENXIO);
                }
            }
        }
        batch.store(staged)?;

        let Some(tsc) = batch.tsc else {
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

    /// Keeps a group for the descriptor's next call, if it is not too large for that.
    pub(super) fn keep(&self, spare: &Spare, group: Group) {
        if group.size() <= super::SPARE_SIZE {
            spare.put(group);
        }
    }
}
