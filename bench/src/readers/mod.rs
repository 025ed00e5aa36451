// SPDX-License-Identifier: GPL-2.0

//! Ways to read some registers of some CPUs. All read the same ones.

mod cpupeek;
mod mapped;
mod old;

pub use cpupeek::{Batch, Device, Plan, Reads, Wait};
pub use mapped::sampler;

use std::io;

/// GS.base, which in the kernel points to the CPU's own data, and so proves who answered.
const GS_BASE: u32 = 0xc000_0101;

/// The registers of a sweep: those of system calls and segments, which virtual CPUs read without the
/// help of their host, as CPUs do. Another register would be about the host.
pub fn registers(count: usize) -> Vec<u32> {
    const REGISTERS: [u32; 8] = [
        GS_BASE,
        0xc000_0081, // STAR
        0xc000_0082, // LSTAR
        0xc000_0084, // SFMASK
        0xc000_0100, // FS.base
        0x174,       // SYSENTER_CS
        0x175,       // SYSENTER_ESP
        0x176,       // SYSENTER_EIP
    ];
    REGISTERS.into_iter().cycle().take(count).collect()
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
        "mapped" => Box::new(mapped::Mapped::new(sweep)?),
        "plain_load" => Box::new(mapped::PlainLoad::new(sweep)?),
        "empty" => Box::new(Batch::empty(device)),
        _ if case == "batch" || case.starts_with("fixed_") => Box::new(batch(Wait::Adaptive)),
        _ => return Err(io::Error::other(format!("there is no case '{case}'"))),
    }))
}

/// Performs a sweep, and checks that every CPU has answered for itself: with what a thread reads that
/// is on that CPU.
pub fn verify(case: &str, sweep: &Sweep, reader: &mut dyn Reader) -> Result<(), String> {
    let mut values = vec![u64::MAX; sweep.len()];
    let mut truth = values.clone();
    old::Migrate::new(sweep)
        .and_then(|mut reader| reader.read(&mut truth))
        .map_err(|error| format!("a thread cannot read its own CPU: {error}"))?;
    reader
        .read(&mut values)
        .map_err(|error| format!("{case} cannot read: {error}"))?;
    if !reader.reads_any_register() {
        return Ok(());
    }
    for (((cpu, reg), value), truth) in sweep.pairs().zip(values).zip(truth) {
        if reg == GS_BASE && value != truth {
            return Err(format!(
                "{case} has read {value:#x} as GS.base of CPU {cpu}, where it is {truth:#x}"
            ));
        }
    }
    Ok(())
}
