// SPDX-License-Identifier: GPL-2.0

//! Reads registers in all ways that there are: one register, many of them on all CPUs at once, and the same
//! again and again from a plan.

use cpupeek_client::{BatchOptions, Cpu, Device, Op, OpError, Reading};
use std::error::Error;
use std::time::Duration;

/// The number of the CPU, as the kernel leaves it.
const TSC_AUX: u32 = 0xc000_0103;

fn show(result: Result<Reading, OpError>) {
    match result {
        Ok(reading) => println!("CPU {}: {:x?}", reading.cpu, reading.value),
        // The policy, the hardware, or the absence of the CPU: an error says which.
        Err(error) => println!("{error}"),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::open()?;

    // One register of one CPU, and one leaf of the one that this is on.
    println!("TSC_AUX of CPU 0: {}", device.read_msr(0, TSC_AUX)?);
    let leaf = device.cpuid(Cpu::Current, 0, 0)?;
    println!("CPUID knows leaves up to {}", leaf.eax);

    // All CPUs at once; each operation says what became of it.
    let options = BatchOptions {
        timeout: Some(Duration::from_secs(1)),
        ..Default::default()
    };
    let cpus = 0..device.info().nr_cpu_ids;
    let mut ops: Vec<_> = cpus.map(|cpu| Op::msr(cpu, TSC_AUX)).collect();
    device.batch(&mut ops, options)?;
    ops.iter().map(Op::result).for_each(show);

    // The same as a plan, which the module checks once.
    let mut plan = device.prepare(&ops)?;
    plan.run(options)?;
    plan.results().for_each(show);
    Ok(())
}
