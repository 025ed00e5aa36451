// SPDX-License-Identifier: GPL-2.0

//! Exact instruction counts, in a guest whose time stamp counter counts instructions
//! (`qemu/run --icount`), and allocations.

use crate::guest::{Guest, HOME};
use crate::readers::{self, Batch, Plan, Reader, Reads, Sweep, Wait};
use crate::record::{print_fact, quantile};
use crate::sys;
use std::fs;
use std::path::Path;

const SAMPLES: usize = 501;

/// Counts, and tells the host.
pub fn measure(guest: &Guest) -> Result<(), String> {
    let getppid = count(|| {
        sys::getppid();
        Ok(())
    })?;
    print(guest, "getppid", getppid)?;
    for (case, cpus, regs) in [
        ("empty", "self", 0),
        ("pread", "self", 1),
        ("read", "self", 1),
        ("batch", "self", 1),
        ("prepared", "self", 1),
        ("pread", "self", 16),
        ("read", "self", 16),
        ("batch", "self", 16),
        ("prepared", "self", 16),
    ] {
        let key = guest.key(case, cpus, regs, "idle");
        let Some(mut contender) = guest.contender(key)? else {
            continue;
        };
        let counted = count(|| contender.sweep())?;
        print(guest, &format!("{case}/{regs}"), counted)?;
    }
    allocations(guest)
}

/// The median and the 90th percentile of what the counter says, which includes reading it.
fn count(mut f: impl FnMut() -> Result<(), String>) -> Result<(f64, f64), String> {
    let mut counts = Vec::new();
    for _ in 0..SAMPLES {
        let start = sys::rdtsc();
        f()?;
        counts.push((sys::rdtsc() - start) as f64);
    }
    Ok((quantile(&counts, 0.5), quantile(&counts, 0.9)))
}

fn print(guest: &Guest, what: &str, (p50, p90): (f64, f64)) -> Result<(), String> {
    print_fact(&guest.env, format!("instructions/{what}"), p50)?;
    print_fact(&guest.env, format!("instructions_p90/{what}"), p90)
}

const TRACING: &str = "/sys/kernel/tracing";
const EVENTS: &[&str] = &["kmalloc", "kmem_cache_alloc", "mm_page_alloc"];

fn trace_set(file: &str, value: &str) -> Result<(), String> {
    let path = Path::new(TRACING).join(file);
    fs::write(&path, value)
        .map_err(|error| format!("cannot write {value:?} to {}: {error}", path.display()))
}

/// How many allocations the kernel makes for this thread while `f` runs.
fn traced(f: impl FnOnce() -> Result<(), String>) -> Result<usize, String> {
    let path = Path::new(TRACING).join("trace");
    trace_set("set_event_pid", &std::process::id().to_string())?;
    trace_set("trace", "")?;
    for event in EVENTS {
        trace_set(&format!("events/kmem/{event}/enable"), "1")?;
    }
    let result = f();
    for event in EVENTS {
        trace_set(&format!("events/kmem/{event}/enable"), "0")?;
    }
    result?;
    let text = fs::read_to_string(&path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(text.lines().filter(|line| !line.starts_with('#')).count())
}

/// Allocations in 1,000 calls on this CPU, and in opening a file as often, which does allocate and so
/// shows that they are seen. Switching the events makes a few too, so that it is about the thousand.
fn allocations(guest: &Guest) -> Result<(), String> {
    const CALLS: usize = 1000;
    let sweep = Sweep {
        home: HOME,
        cpus: vec![HOME],
        regs: readers::registers(1),
    };
    let fail = |error: std::io::Error| format!("cannot read: {error}");
    let mut read = Reads::new(&guest.device, &sweep);
    let mut batch = Batch::new(&guest.device, &sweep, Wait::Adaptive);
    let mut plan = Plan::new(&guest.device, &sweep).map_err(fail)?;
    let mut readers: [(&str, &mut dyn Reader); 3] = [
        ("read", &mut read),
        ("batch", &mut batch),
        ("prepared", &mut plan),
    ];
    for (case, reader) in &mut readers {
        reader.read(&mut [0]).map_err(fail)?;
        let count = traced(|| (0..CALLS).try_for_each(|_| reader.read(&mut [0]).map_err(fail)))?;
        let what = format!("allocations/{case}");
        print_fact(&guest.env, what, count as f64 / CALLS as f64)?;
    }
    let open = || fs::File::open("/dev/null").map(drop).map_err(fail);
    let count = traced(|| (0..CALLS).try_for_each(|_| open()))?;
    print_fact(
        &guest.env,
        "allocations/open".into(),
        count as f64 / CALLS as f64,
    )
}
