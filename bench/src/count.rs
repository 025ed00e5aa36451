// SPDX-License-Identifier: GPL-2.0

//! Exact instruction counts, in a guest whose time stamp counter counts instructions
//! (`qemu/run --icount`), and allocations.

use crate::guest::{Guest, HOME};
use crate::readers::{self, Batch, Plan, Reader, Reads, Sweep, Wait};
use crate::record::{print_fact, quantile};
use crate::sys;
use cpupeek_client::uapi;
use std::fs;
use std::path::Path;

const SAMPLES: usize = 501;

/// Counts, and tells the host.
pub fn measure(guest: &Guest) -> Result<(), String> {
    single_calls(guest)?;
    for (case, regs) in [
        ("pread", 16),
        ("read", 16),
        ("batch", 1),
        ("batch", 16),
        ("prepared", 1),
        ("prepared", 16),
    ] {
        let key = guest.key(case, "self", regs, "idle");
        let Some(mut contender) = guest.contender(key)? else {
            continue;
        };
        let counted = count(|| contender.sweep())?;
        print(guest, &format!("{case}/{regs}"), counted)?;
    }
    allocations(guest)
}

/// Single system calls, with nothing between them and the counter.
fn single_calls(guest: &Guest) -> Result<(), String> {
    let counted = count(|| {
        sys::getppid();
        Ok(())
    })?;
    print(guest, "getppid", counted)?;

    let reg = readers::registers(1)[0];
    let open = |path: &str| fs::File::open(path).map_err(|error| format!("{path}: {error}"));
    let msr = open(&format!("/dev/cpu/{HOME}/msr"))?;
    let counted = count(|| sys::pread(&msr, reg).map(drop).map_err(fail))?;
    print(guest, "pread/1", counted)?;

    let ioctl = |file: &fs::File, command, op: &mut uapi::cpupeek_op| {
        // SAFETY: The commands here are for this type or unknown, and there are no addresses in it.
        unsafe { sys::ioctl(file, command, op) }
    };
    let mut op = uapi::cpupeek_op {
        cpu: HOME,
        kind: uapi::CPUPEEK_MSR as u16,
        reg,
        ..Default::default()
    };
    let read = uapi::CPUPEEK_CONST_IOC_READ;
    let counted = count(|| ioctl(&guest.device, read, &mut op).map_err(fail))?;
    print(guest, "read/1", counted)?;

    // Where they go: the way to a device, our way to a command, and what a command that is refused
    // costs.
    let null = open("/dev/null")?;
    let unknown = 0xff << 8;
    for (what, file) in [("null_ioctl", &null), ("unknown_ioctl", &*guest.device)] {
        let counted = count(|| match ioctl(file, unknown, &mut op) {
            Err(_) => Ok(()),
            Ok(()) => Err(format!("{what} is known")),
        })?;
        print(guest, what, counted)?;
    }
    let mut malformed = uapi::cpupeek_op { kind: 0, ..op };
    let counted = count(|| ioctl(&guest.device, read, &mut malformed).map_err(fail))?;
    print(guest, "refused_read", counted)
}

fn fail(error: std::io::Error) -> String {
    format!("cannot read: {error}")
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
