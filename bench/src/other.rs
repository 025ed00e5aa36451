// SPDX-License-Identifier: GPL-2.0

//! What is not about one sweep: interrupts-off stretches on a target, and how costs grow.

use crate::guest::{Guest, HOME};
use crate::idle::{Cost, Costs};
use crate::readers::{self, Batch, Sweep, Wait};
use crate::record::{median, print_fact, quantile};
use crate::sys;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// Measures it, and tells the host.
pub fn measure(guest: &Guest) -> Result<(), String> {
    guest.usual.set()?;
    stretches(guest)?;
    more_cpus(guest)?;
    more_operations(guest)?;
    samplers(guest)
}

/// How many interrupts a sampler of 16 registers on all CPUs sends from CPU to CPU after its start,
/// and how many samples it takes in the meantime.
fn samplers(guest: &Guest) -> Result<(), String> {
    let sweep = guest.sweep("all", 16)?;
    let sampler = readers::sampler(&sweep).map_err(|error| format!("no sampler: {error}"))?;
    let samples = sys::module_counter("samples")?;
    let calls = sys::module_counter("interrupts")?;
    thread::sleep(std::time::Duration::from_secs(2));
    let env = &guest.env;
    let taken = sys::module_counter("samples")? - samples;
    let sent = sys::module_counter("interrupts")? - calls;
    drop(sampler);
    print_fact(env, "sampler_samples".into(), taken as f64)?;
    print_fact(env, "sampler_interrupts".into(), sent as f64)
}

fn batch(guest: &Guest, cpus: &[u32], regs: Vec<u32>) -> Batch {
    let sweep = Sweep {
        home: HOME,
        cpus: cpus.to_vec(),
        regs,
    };
    Batch::new(&guest.device, &sweep, Wait::Adaptive)
}

fn perform(batch: &mut Batch) -> Result<(), String> {
    batch
        .perform()
        .map_err(|error| format!("a batch fails: {error}"))
}

/// `count` reads of one register.
fn same_register(count: usize) -> Vec<u32> {
    vec![readers::registers(1)[0]; count]
}

/// How long a batch keeps a target from everything else at a stretch.
///
/// A thread that has the target for itself looks at the time stamp counter in a loop: the largest
/// gap between two looks is the longest stretch that the target was away, with the entry and exit of
/// the interrupt. Compared with the largest gap in as much time without a batch, because timers and
/// the host cause gaps too. For a batch of one round there is the target's own word as well.
fn stretches(guest: &Guest) -> Result<(), String> {
    const BATCHES: usize = 100;
    let cpu = guest.other()?;
    let stop = AtomicBool::new(false);
    let gap = AtomicU64::new(0);
    let observe = || -> std::io::Result<()> {
        sys::pin(cpu)?;
        let mut last = sys::rdtsc();
        while !stop.load(Ordering::Relaxed) {
            let now = sys::rdtsc();
            gap.fetch_max(now.saturating_sub(last), Ordering::Relaxed);
            last = now;
        }
        Ok(())
    };
    let look = || -> Result<(), String> {
        for ops in [1, 64, 4096] {
            let mut batch = batch(guest, &[cpu], same_register(ops)).with_stamps();
            let (mut with, mut without, mut own) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..BATCHES {
                gap.store(0, Ordering::Relaxed);
                let start = sys::rdtsc();
                perform(&mut batch)?;
                let took = sys::rdtsc() - start;
                with.push(guest.ns(gap.swap(0, Ordering::Relaxed)));
                own.push(guest.ns(batch.cycles(cpu)));
                let start = sys::rdtsc();
                while sys::rdtsc() - start < took {
                    std::hint::spin_loop();
                }
                without.push(guest.ns(gap.swap(0, Ordering::Relaxed)));
            }
            let env = &guest.env;
            print_fact(env, format!("away_ns/batch/{ops}"), median(&with))?;
            print_fact(
                env,
                format!("away_p90_ns/batch/{ops}"),
                quantile(&with, 0.9),
            )?;
            print_fact(env, format!("away_ns/none/{ops}"), median(&without))?;
            if ops <= 64 {
                print_fact(env, format!("round_ns/{ops}"), median(&own))?;
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let observer = scope.spawn(observe);
        let result = look();
        stop.store(true, Ordering::Relaxed);
        match observer.join() {
            Ok(Ok(())) => result,
            Ok(Err(error)) => Err(format!("cannot observe CPU {cpu}: {error}")),
            Err(_) => Err("the observer has died".into()),
        }
    })
}

/// Performs each of some batches in turn, `rounds` times. Returns what each has cost.
fn compete(batches: &mut [Batch], rounds: usize, sweeps: u32) -> Result<Vec<Costs>, String> {
    let mut costs: Vec<Costs> = batches.iter().map(|_| Costs::default()).collect();
    for _ in 0..rounds {
        for (batch, costs) in batches.iter_mut().zip(&mut costs) {
            perform(batch)?;
            for _ in 0..sweeps {
                costs.0.push(Cost::of(1, || perform(batch))?);
            }
        }
    }
    Ok(costs)
}

/// The caller's CPU time for 16 registers, by number of CPUs.
fn more_cpus(guest: &Guest) -> Result<(), String> {
    let numbers: Vec<usize> = [2, 4, 8, 16]
        .into_iter()
        .filter(|&n| n <= guest.cpus.len())
        .collect();
    let mut batches: Vec<Batch> = numbers
        .iter()
        .map(|&n| batch(guest, &guest.cpus[..n], readers::registers(16)))
        .collect();
    let costs = compete(&mut batches, 25, 20)?;
    for (n, costs) in numbers.iter().zip(&costs) {
        let what = format!("caller_cpu_ns/{n}_cpus");
        print_fact(&guest.env, what, costs.median(|cost| cost.cpu))?;
    }
    Ok(())
}

/// The time for batches on all CPUs, by number of operations per CPU.
fn more_operations(guest: &Guest) -> Result<(), String> {
    let numbers = [64, 4096];
    let mut batches = numbers.map(|n| batch(guest, &guest.cpus, same_register(n)));
    let costs = compete(&mut batches, 15, 2)?;
    for (n, costs) in numbers.iter().zip(&costs) {
        let what = format!("wall_ns/{n}_ops_per_cpu");
        print_fact(&guest.env, what, costs.median(|cost| cost.wall))?;
    }
    Ok(())
}
