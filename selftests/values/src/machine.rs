// SPDX-License-Identifier: GPL-2.0

//! What this guest is, as its description says.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use cpupeek_selftests::guest;

#[path = "../../../qemu/runner/src/machine/toml.rs"]
#[expect(dead_code, reason = "the runner's, and not all of it matters to tests")]
mod description;

use description::{File, Msr};

/// Where the host script puts the description.
const FILE: &str = "/root/machine.toml";

/// What a register of a CPU gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    Constant(u64),
    /// So many per second.
    Rate(u64),
    /// From `start` on, one `step` further with each read.
    Step {
        start: u64,
        step: u64,
    },
    Fault,
}

#[derive(Debug)]
pub struct Machine {
    pub vendor: String,
    pub family: u32,
    pub model: u32,
    /// Counters that a CPU reads within this time are read at the same instant.
    pub burst_us: u32,
    cpus: u32,
    registers: BTreeMap<(u32, u32), Register>,
}

static MACHINE: OnceLock<Machine> = OnceLock::new();

/// Reads the description if there is one.
pub fn load() -> Result<(), String> {
    if !Path::new(FILE).exists() {
        return Ok(());
    }
    let text = guest::read(FILE)?;
    let file: File = toml::from_str(&text).map_err(|error| format!("{FILE}: {error}"))?;
    let _ = MACHINE.set(Machine::new(&file)?);
    Ok(())
}

pub fn described() -> Option<&'static Machine> {
    MACHINE.get()
}

/// The machine, in tests that are run only where there is one.
pub fn machine() -> &'static Machine {
    described().expect("the machine is described")
}

impl Machine {
    fn new(file: &File) -> Result<Self, String> {
        let count = *file.cpus.get_ref();
        let cpus = |list: Option<&str>| match list {
            None | Some("all") => (0..count).collect(),
            Some(list) => {
                let group = file.groups.get(list);
                guest::parse_list(group.map_or(list, |group| group.get_ref()))
            }
        };
        let mut registers = BTreeMap::new();
        for msr in &file.msr {
            let msr = msr.get_ref();
            let list = cpus(msr.cpus.as_ref().map(|list| list.get_ref().as_str()));
            for (i, cpu) in list.into_iter().enumerate() {
                let number = u32::try_from(msr.reg.0).map_err(|error| error.to_string())?;
                registers.insert((cpu, number), Register::new(msr, i)?);
            }
        }
        let processor = &file.processor;
        let text = |vendor: &Option<toml::Spanned<String>>| {
            vendor.as_ref().map(|vendor| vendor.get_ref().clone())
        };
        Ok(Self {
            // The guest that the lane nests in is an emulated AMD machine, and hands that on.
            vendor: text(&processor.vendor).unwrap_or_else(|| "AuthenticAMD".into()),
            family: processor.family.as_ref().map_or(0, |n| *n.get_ref()),
            model: processor.model,
            burst_us: file.burst_us,
            cpus: count,
            registers,
        })
    }

    /// What the description says of a register.
    pub fn register(&self, cpu: u32, number: u32) -> Option<Register> {
        self.registers.get(&(cpu, number)).copied()
    }

    pub fn is_intel(&self) -> bool {
        self.vendor == "GenuineIntel"
    }

    /// Registers that are the same on all CPUs.
    pub fn on_all_cpus(&self) -> BTreeMap<u32, Register> {
        let mut all = BTreeMap::new();
        for (&(cpu, number), &register) in &self.registers {
            if cpu == 0 && self.is_same_on_all_cpus(number) {
                all.insert(number, register);
            }
        }
        all
    }

    /// The others: CPU, number, register.
    pub fn on_one_cpu(&self) -> impl Iterator<Item = (u32, u32, Register)> + '_ {
        let all = self.registers.iter();
        all.map(|(&(cpu, number), &register)| (cpu, number, register))
            .filter(|&(_, number, _)| !self.is_same_on_all_cpus(number))
    }

    fn is_same_on_all_cpus(&self, number: u32) -> bool {
        let first = self.register(0, number);
        first.is_some() && (1..self.cpus).all(|cpu| self.register(cpu, number) == first)
    }

    /// Whether a register is described as one of these.
    pub fn any(&self, numbers: &[u32], is: impl Fn(Register) -> bool) -> bool {
        let mut all = self.registers.iter();
        all.any(|(&(_, number), &register)| numbers.contains(&number) && is(register))
    }
}

impl Register {
    fn new(msr: &Msr, index: usize) -> Result<Self, String> {
        Ok(match (&msr.counter, msr.value, &msr.values) {
            (Some(counter), _, _) => match (counter.rate, counter.step) {
                (Some(rate), _) => Self::Rate(rate.0),
                (None, Some(step)) => Self::Step {
                    start: counter.start.0,
                    step: step.0,
                },
                (None, None) => return Err(format!("{:#x} does not count", msr.reg.0)),
            },
            (None, Some(value), _) => Self::Constant(value.0),
            (None, None, Some(values)) => Self::Constant(
                values
                    .get(index)
                    .ok_or_else(|| format!("{:#x} has too few values", msr.reg.0))?
                    .0,
            ),
            (None, None, None) => Self::Fault,
        })
    }
}
