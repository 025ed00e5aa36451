// SPDX-License-Identifier: GPL-2.0

//! What it costs to know the CPU that one is on, in a guest whose time stamp counter counts
//! instructions; and what a word in memory makes of a migration, in one with two CPUs. Both with
//! `cpu_word=1`.

use crate::guest::{Guest, HOME};
use crate::record::{median, print_fact, quantile};
use crate::sys;
use cpupeek_client::{CpuWord, Device};

const SAMPLES: usize = 201;
/// How often something is done in a sample, so that looking at the counter does not count.
const TIMES: u64 = 1000;

fn word(device: &Device) -> Result<CpuWord<'_>, String> {
    let set = device.cpu_word();
    set.map_err(|error| format!("{error}; is the module loaded with cpu_word=1?"))
}

/// Counts instructions, and tells the host.
pub fn count(guest: &Guest) -> Result<(), String> {
    let device = Device::open().map_err(|error| error.to_string())?;
    let word = word(&device)?;
    print(guest, "nothing", each(|| Some(HOME))?)?;
    print(guest, "cpu_word", each(|| word.get())?)?;
    print(guest, "sched_getcpu", each(sys::sched_getcpu)?)?;
    print(guest, "getcpu", each(sys::getcpu)?)
}

/// Migrations with a word and without, in turn: tells the host the medians of the thread's own time,
/// since the emulator's time goes on with what other CPUs do meanwhile.
pub fn migrate(guest: &Guest) -> Result<(), String> {
    const TURNS: usize = 500;
    let device = Device::open().map_err(|error| error.to_string())?;
    let other = guest.other()?;
    let mut costs = [Vec::new(), Vec::new()];
    for turn in 0..2 * TURNS {
        let with = turn % 2;
        let word = if with == 1 {
            Some(word(&device)?)
        } else {
            None
        };
        for cpu in [other, HOME, other, HOME] {
            let start = sys::thread_cpu_ns();
            sys::pin(cpu).map_err(|error| format!("cannot go to another CPU: {error}"))?;
            costs[with].push((sys::thread_cpu_ns() - start) as f64);
            let said = word.as_ref().map_or(Some(cpu), CpuWord::get);
            if said != Some(cpu) {
                return Err(format!("the word has {said:?} on CPU {cpu}"));
            }
        }
    }
    for (what, costs) in ["migration", "migration_with_word"].iter().zip(&costs) {
        print_fact(&guest.env, format!("{what}_us"), median(costs) / 1000.0)?;
    }
    Ok(())
}

fn print(guest: &Guest, what: &str, value: f64) -> Result<(), String> {
    print_fact(&guest.env, format!("instructions/{what}"), value)
}

/// The median of what something costs that says which CPU this is.
fn each(mut which: impl FnMut() -> Option<u32>) -> Result<f64, String> {
    let mut counts = Vec::new();
    for _ in 0..SAMPLES {
        let start = sys::rdtsc();
        let mut wrong = 0;
        for _ in 0..TIMES {
            wrong += u32::from(std::hint::black_box(which()) != Some(HOME));
        }
        counts.push((sys::rdtsc() - start) as f64 / TIMES as f64);
        if wrong != 0 {
            return Err(format!("this is CPU {HOME}, and something says otherwise"));
        }
    }
    Ok(quantile(&counts, 0.5))
}
