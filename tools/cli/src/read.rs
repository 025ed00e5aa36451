// SPDX-License-Identifier: GPL-2.0

//! `cpupeek msr` and `cpupeek cpuid`: some registers of some CPUs.

use crate::args::How;
use crate::cpus::{self, Selection};
use crate::progress::Progress;
use crate::{json, table, Failure, Outcome};
use cpupeek_client::{
    BatchOptions, Cpu, Device, DeviceError, Info, Op, OpError, Plan, Reading, Register,
};
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

/// Most readings in one go: 48 MiB of them, and far more than anybody reads.
const MAX_READINGS: usize = 1 << 20;

/// What one CPU said about one register.
pub struct Answer {
    pub cpu: u32,
    pub register: Register,
    pub result: Result<Reading, OpError>,
    /// Whether the CPU is there at all, if that is known.
    pub present: Option<bool>,
}

impl Answer {
    fn new(op: &Op, present: Option<&[u32]>) -> Option<Self> {
        match op.cpu() {
            Cpu::Number(cpu) => Some(Answer {
                cpu,
                register: op.register(),
                result: op.result(),
                present: present.map(|cpus| cpus.binary_search(&cpu).is_ok()),
            }),
            Cpu::Current => None,
        }
    }

    /// The error in words. We know more about an absent CPU than the module
    /// says.
    pub fn words(&self, error: OpError) -> &'static str {
        match (error, self.present) {
            (OpError::Absent, Some(true)) => "offline",
            (OpError::Absent, Some(false)) => "no such CPU",
            (error, _) => error.description(),
        }
    }
}

pub fn run(
    out: &mut impl Write,
    device: &Device,
    registers: &[Register],
    how: &How,
) -> Result<Outcome, Failure> {
    let info = device.info();
    let present = cpus::present(info.nr_cpu_ids);
    let cpus = match &how.on.cpu {
        Selection::All => present.clone().map_err(Failure::System)?,
        Selection::List(list) => list.expand(info.nr_cpu_ids).map_err(Failure::Usage)?,
    };
    let present = present.ok();
    let ops = operations(registers, &cpus, how.disturb)?;
    let mut reader = Reader::new(device, ops, how.repeat)?;
    let options = BatchOptions {
        timeout: timeout(info, registers.len()),
        ..Default::default()
    };

    let mut table = table::Table::new(registers, &cpus, how.tsc);
    let mut outcome = Outcome::AllRead;
    let start = Instant::now();
    let mut due = Duration::ZERO;
    for round in 0..how.repeat {
        if round > 0 {
            // A round that came late does not make the next ones hurry.
            due = due.saturating_add(how.interval).max(start.elapsed());
            thread::sleep(due.saturating_sub(start.elapsed()));
        }
        let progress = Progress::new("waiting for CPUs that have interrupts off");
        let ops = reader.read(options)?;
        drop(progress);
        if ops.iter().any(|op| op.result().is_err()) {
            outcome = Outcome::SomeFailed;
        }
        let answers = ops
            .iter()
            .filter_map(|op| Answer::new(op, present.as_deref()));
        if how.json {
            json::write(out, answers)?;
        } else {
            table.write(out, answers)?;
        }
        out.flush()?;
    }
    Ok(outcome)
}

/// The cheapest way to read as often as is wanted.
enum Reader<'a> {
    Batch(&'a Device, Vec<Op>),
    Plan(Plan),
}

impl<'a> Reader<'a> {
    fn new(device: &'a Device, ops: Vec<Op>, repeat: u64) -> Result<Self, DeviceError> {
        let info = device.info();
        if repeat > 1 && info.has_plan() && ops.len() <= info.max_batch_ops as usize {
            device.prepare(&ops).map(Reader::Plan)
        } else {
            Ok(Reader::Batch(device, ops))
        }
    }

    fn read(&mut self, options: BatchOptions) -> Result<&[Op], DeviceError> {
        match self {
            Reader::Batch(device, ops) => {
                device.batch(ops, options)?;
                Ok(ops)
            }
            Reader::Plan(plan) => {
                plan.run(options)?;
                Ok(plan.ops())
            }
        }
    }
}

/// Register by register, because one compares a register of different CPUs
/// more often than the registers of one CPU.
pub fn operations(registers: &[Register], cpus: &[u32], disturb: bool) -> Result<Vec<Op>, Failure> {
    if registers.len().saturating_mul(cpus.len()) > MAX_READINGS {
        return Err(Failure::Usage(format!(
            "{} registers of {} CPUs are too many for one go: read at most {MAX_READINGS} values",
            registers.len(),
            cpus.len()
        )));
    }
    let ops = registers.iter().flat_map(|&register| {
        cpus.iter().map(move |&cpu| {
            let op = Op::new(Cpu::Number(cpu), register);
            if disturb {
                op.disturb()
            } else {
                op
            }
        })
    });
    Ok(ops.collect())
}

/// The module's own patience with a CPU, once for each time that the CPU has to
/// be interrupted.
fn timeout(info: &Info, ops_per_cpu: usize) -> Option<Duration> {
    let rounds = ops_per_cpu.div_ceil(info.max_round_ops.max(1) as usize);
    let timeout = info
        .read_timeout
        .saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
    (!timeout.is_zero()).then_some(timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_go_register_by_register() {
        let registers = [Register::Msr(1), Register::Msr(2)];
        let ops = operations(&registers, &[0, 5], false).expect("small");
        let asked: Vec<_> = ops.iter().map(|op| (op.register(), op.cpu())).collect();
        assert_eq!(
            asked,
            [
                (Register::Msr(1), Cpu::Number(0)),
                (Register::Msr(1), Cpu::Number(5)),
                (Register::Msr(2), Cpu::Number(0)),
                (Register::Msr(2), Cpu::Number(5)),
            ]
        );
        assert!(ops.iter().all(|op| op.as_raw().flags == 0));
        let ops = operations(&registers, &[0], true).expect("small");
        assert!(ops.iter().all(|op| op.as_raw().flags == 1));
    }

    #[test]
    fn operations_are_bounded() {
        let registers = vec![Register::Msr(1); MAX_READINGS / 2 + 1];
        assert!(operations(&registers, &[0], false).is_ok());
        let error = operations(&registers, &[0, 1], false).expect_err("too many");
        assert_eq!(error.status(), 2);
    }

    #[test]
    fn absence_is_told_apart() {
        let words = |present| {
            Answer {
                cpu: 1,
                register: Register::Msr(1),
                result: Err(OpError::Absent),
                present,
            }
            .words(OpError::Absent)
        };
        assert_eq!(words(Some(true)), "offline");
        assert_eq!(words(Some(false)), "no such CPU");
        assert_eq!(words(None), "CPU absent or offline");
    }
}
