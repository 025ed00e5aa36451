// SPDX-License-Identifier: GPL-2.0

//! Ways to read some registers of some CPUs. All read the same ones.

mod cpupeek;
mod old;

pub use cpupeek::{Batch, Device, Plan, Reads, Wait};

use std::io;

/// The registers of a sweep. TSC_AUX has the CPU's number, and so proves who answered. The others
/// are the variable-range MTRRs, which every CPU has, emulated and virtual ones too.
pub fn registers(count: usize) -> Vec<u32> {
    [0xc000_0103]
        .into_iter()
        .chain(0x200..0x20f)
        .take(count)
        .collect()
}

/// What a sweep reads: every register of every CPU.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The CPU that the caller is on.
    pub home: u32,
    /// CPU numbers.
    pub cpus: Vec<u32>,
    /// MSR numbers.
    pub regs: Vec<u32>,
}

impl Sweep {
    /// How many values there are.
    pub fn len(&self) -> usize {
        self.cpus.len() * self.regs.len()
    }

    /// All pairs of a CPU and a register, CPU by CPU.
    pub fn pairs(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let regs = |&cpu: &u32| self.regs.iter().map(move |&reg| (cpu, reg));
        self.cpus.iter().flat_map(regs)
    }
}

/// A way to perform a sweep.
pub trait Reader {
    /// Reads all values into `values`, CPU by CPU.
    fn read(&mut self, values: &mut [u64]) -> io::Result<()>;

    /// Whether the values are those of the registers that were asked for.
    fn reads_any_register(&self) -> bool {
        true
    }
}

/// The reader of that name for a sweep; `None` if this guest has no such thing.
///
/// `sleep`, `spin` and `fixed_*` are batches too, told how to wait.
pub fn reader(case: &str, sweep: &Sweep, device: &Device) -> io::Result<Option<Box<dyn Reader>>> {
    let batch = |wait| Batch::new(device, sweep, wait);
    Ok(Some(match case {
        "pread" => Box::new(old::Pread::new(sweep)?),
        "regs" => Box::new(old::Regs::new(sweep)?),
        "migrate" => Box::new(old::Migrate::new(sweep)?),
        "io_uring" => Box::new(old::Uring::new(sweep)?),
        "perf" => match old::Perf::new(sweep)? {
            Some(perf) => Box::new(perf),
            None => return Ok(None),
        },
        "read" => Box::new(Reads::new(device, sweep)),
        "sleep" => Box::new(batch(Wait::Sleep)),
        "spin" => Box::new(batch(Wait::Spin)),
        "prepared" => Box::new(Plan::new(device, sweep)?),
        "empty" => Box::new(Batch::empty(device)),
        _ if case == "batch" || case.starts_with("fixed_") => Box::new(batch(Wait::Adaptive)),
        _ => return Err(io::Error::other(format!("there is no case '{case}'"))),
    }))
}

/// Performs a sweep, and checks that every CPU has answered for itself.
pub fn verify(case: &str, sweep: &Sweep, reader: &mut dyn Reader) -> Result<(), String> {
    let mut values = vec![u64::MAX; sweep.len()];
    reader
        .read(&mut values)
        .map_err(|error| format!("{case} cannot read: {error}"))?;
    if !reader.reads_any_register() {
        return Ok(());
    }
    for ((cpu, reg), value) in sweep.pairs().zip(values) {
        if reg == 0xc000_0103 && value & 0xfff != u64::from(cpu) {
            return Err(format!(
                "{case} has read {value:#x} as TSC_AUX of CPU {cpu}, which holds the CPU's number"
            ));
        }
    }
    Ok(())
}
