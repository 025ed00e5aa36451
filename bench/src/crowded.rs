// SPDX-License-Identifier: GPL-2.0

//! Asking CPUs that the host may have taken off its processors: with spinning for those, and without,
//! as it is. For a guest with more CPUs than its host, which all compute.

use crate::guest::{Guest, HOME};
use crate::idle::Cost;
use crate::readers::{self, Batch, Sweep, Wait};
use crate::record::{median, print_fact};
use crate::spin::{attribute, set_spin_preempted};
use crate::sys;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Turns of each way, one after the other, and batches in a turn.
const TURNS: usize = 40;
const BATCHES: u32 = 10;

/// Measures it, and tells the host.
pub fn measure(guest: &Guest) -> Result<(), String> {
    let stop = AtomicBool::new(false);
    let compute = |cpu| -> std::io::Result<()> {
        sys::pin(cpu)?;
        while !stop.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        Ok(())
    };
    thread::scope(|scope| {
        let others = guest.cpus.iter().filter(|&&cpu| cpu != HOME);
        let hogs: Vec<_> = others
            .map(|&cpu| scope.spawn(move || compute(cpu)))
            .collect();
        let result = look(guest);
        stop.store(true, Ordering::Relaxed);
        set_spin_preempted(false)?;
        for hog in hogs {
            let computed = hog.join().map_err(|_| "a thread has died")?;
            computed.map_err(|error| format!("cannot compute on a CPU: {error}"))?;
        }
        result
    })
}

fn look(guest: &Guest) -> Result<(), String> {
    for (name, wait) in [("adaptive", Wait::Adaptive), ("spin", Wait::Spin)] {
        let mut batches: Vec<Batch> = guest
            .cpus
            .iter()
            .filter(|&&cpu| cpu != HOME)
            .map(|&cpu| {
                let sweep = Sweep {
                    home: HOME,
                    cpus: vec![cpu],
                    regs: readers::registers(1),
                };
                Batch::new(&guest.device, &sweep, wait)
            })
            .collect();
        let mut costs = [Vec::new(), Vec::new()];
        let before = attribute("preempted")?;
        for _ in 0..TURNS {
            for (spin, costs) in costs.iter_mut().enumerate() {
                set_spin_preempted(spin == 1)?;
                let count = BATCHES * batches.len() as u32;
                let cost = Cost::of(count, || {
                    for _ in 0..BATCHES {
                        for batch in &mut batches {
                            batch
                                .perform()
                                .map_err(|error| format!("a batch fails: {error}"))?;
                        }
                    }
                    Ok(())
                })?;
                costs.push(cost);
            }
        }
        if attribute("preempted")? == before {
            return Err("no target was preempted: the host has too many processors".into());
        }
        for (way, costs) in ["as_it_is", "spin_preempted"].iter().zip(&costs) {
            let of = |which: fn(&Cost) -> f64| median(&costs.iter().map(which).collect::<Vec<_>>());
            let fact =
                |what: &str, value| print_fact(&guest.env, format!("{name}/{way}/{what}"), value);
            fact("wall_us", of(|cost| cost.wall) / 1000.0)?;
            fact("caller_cpu_us", of(|cost| cost.cpu) / 1000.0)?;
        }
    }
    Ok(())
}
