// SPDX-License-Identifier: GPL-2.0

//! A CPU that holds its interrupts off: what it costs those who ask it, and their neighbours.

use crate::guest::{Contender, Guest};
use crate::idle::{Cost, Costs};
use crate::neighbour::{self, Kind};
use crate::readers::{Batch, Reader, Reads, Wait};
use crate::record::{median, print_fact, Line};
use crate::sys;
use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// `selftests/modules/cpupeek_hold.c`.
const CONTROL: &str = "/sys/kernel/debug/cpupeek_hold/control";

/// A CPU that holds its interrupts off again and again, until this is dropped.
pub struct Holder;

impl Holder {
    fn start(cpu: u32, target: &Target) -> Result<Self, String> {
        let command = format!("start {cpu} {} {}", target.hold_us, target.pause_us);
        fs::write(CONTROL, &command).map_err(|error| {
            format!("cannot write '{command}' to {CONTROL}: {error}; is cpupeek_hold.ko loaded?")
        })?;
        Ok(Self)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        if let Err(error) = fs::write(CONTROL, "stop") {
            eprintln!("cpupeek-bench: cannot write 'stop' to {CONTROL}: {error}");
        }
    }
}

struct Target {
    name: &'static str,
    hold_us: u32,
    pause_us: u32,
    /// Rounds of sweeps over one register, and over more.
    rounds: (usize, usize),
}

const TARGETS: &[Target] = &[
    Target {
        name: "blocked_100us",
        hold_us: 100,
        pause_us: 100,
        rounds: (61, 15),
    },
    Target {
        name: "blocked_1ms",
        hold_us: 1000,
        pause_us: 300,
        rounds: (61, 15),
    },
    Target {
        name: "blocked_10ms",
        hold_us: 10_000,
        pause_us: 1000,
        rounds: (31, 5),
    },
];

const CASES: &[&str] = &[
    "pread", "regs", "migrate", "io_uring", "perf", "read", "batch", "sleep", "spin", "prepared",
];

/// Whose neighbours are watched.
const WATCHED: &[&str] = &["pread", "regs", "perf", "read", "batch", "sleep"];

/// Measures everything with CPUs that are held, and tells the host.
pub fn measure(guest: &Guest) -> Result<(), String> {
    let cpu = guest.other()?;
    for target in TARGETS {
        if target.hold_us >= 1000 {
            let what = format!("wake_up_ns/{}", target.name);
            print_fact(&guest.env, what, wake_up(guest, target)?)?;
        }
        let _holder = Holder::start(cpu, target)?;
        let mut phase = Phase::new(target);
        let mut late = HashMap::new();
        if target.hold_us >= 1000 {
            late = neighbours(guest, target.name)?;
            lags(guest, target, &mut phase)?;
        }
        for cpus in ["one", "all"] {
            for regs in [1, 16] {
                let rounds = if (cpus, regs) == ("one", 1) {
                    target.rounds.0
                } else {
                    late.clear();
                    target.rounds.1
                };
                let mut contenders = Vec::new();
                for case in CASES {
                    contenders.extend(guest.contender(guest.key(case, cpus, regs, target.name))?);
                }
                compete(contenders, rounds, &mut phase, &late)?;
            }
        }
    }
    Ok(())
}

/// Lets each contender sweep once in a round, at a random moment of the holding.
fn compete(
    mut contenders: Vec<Contender>,
    rounds: usize,
    phase: &mut Phase,
    late: &HashMap<String, u64>,
) -> Result<(), String> {
    let mut costs: Vec<Costs> = contenders.iter().map(|_| Costs::default()).collect();
    for _ in 0..rounds {
        for (contender, costs) in contenders.iter_mut().zip(&mut costs) {
            contender.budget.set()?;
            phase.wait();
            costs.0.push(Cost::of(1, || contender.sweep())?);
        }
    }
    for (contender, costs) in contenders.iter().zip(&costs) {
        let late = late.get(&contender.key.case).copied();
        Line::Row(costs.row(contender, late)).print()?;
    }
    Ok(())
}

/// Random moments.
struct Phase {
    state: u64,
    period: u64,
}

impl Phase {
    fn new(target: &Target) -> Self {
        Self {
            state: 0x9e37_79b9_7f4a_7c15,
            period: u64::from(target.hold_us + target.pause_us),
        }
    }

    /// Sleeps between no time and a whole period of holding.
    fn wait(&mut self) {
        // xorshift64
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        sys::sleep(Duration::from_micros(self.state % self.period));
    }
}

/// How late neighbours on the caller's CPU are while it reads the held one in a loop, with each kind
/// of neighbour and reader. The result is what results.json has room for, by case.
fn neighbours(guest: &Guest, target: &str) -> Result<HashMap<String, u64>, String> {
    let mut late = HashMap::new();
    for kind in [Kind::Fifo, Kind::Ordinary] {
        let mut contenders = Vec::new();
        for case in WATCHED {
            contenders.extend(guest.contender(guest.key(case, "one", 1, target))?);
        }
        for (case, p90) in neighbour::watch(kind, &mut contenders)? {
            let what = format!("neighbour_p90_ns/{}/{case}/{target}", kind.name());
            print_fact(&guest.env, what, p90)?;
            if kind == Kind::Fifo {
                late.insert(case, p90 as u64);
            }
        }
    }
    Ok(late)
}

/// How long after the target has read its register the caller has the answer, if it had to wait.
fn lags(guest: &Guest, target: &Target, phase: &mut Phase) -> Result<(), String> {
    let sweep = guest.sweep("one", 1)?;
    let mut read = Reads::new(&guest.device, &sweep);
    let mut spin = Batch::new(&guest.device, &sweep, Wait::Spin);
    let spin_budget = crate::spin::Budget::of_case("spin", guest.usual);
    let mut lags = [Vec::new(), Vec::new()];
    let waited = u64::from(target.hold_us) / 4 * u64::from(guest.tsc_khz) / 1000;
    // About three quarters of the callers come while the target is held, early enough.
    for _ in 0..2 * target.rounds.0 {
        for (which, lags) in lags.iter_mut().enumerate() {
            phase.wait();
            let start = sys::rdtsc();
            let answered = if which == 0 {
                guest.usual.set()?;
                read.read(&mut [0]).map(|()| read.last_tsc())
            } else {
                spin_budget.set()?;
                spin.perform().map(|()| spin.last_tsc())
            };
            let end = sys::rdtsc();
            let answered = answered.map_err(|error| format!("cannot read: {error}"))?;
            if answered.saturating_sub(start) > waited {
                lags.push(guest.ns(end.saturating_sub(answered)));
            }
        }
    }
    for (case, lags) in ["read", "spin"].iter().zip(&lags) {
        if lags.is_empty() {
            return Err(format!(
                "nobody has ever waited for a target {}",
                target.name
            ));
        }
        let what = format!("lag_ns/{case}/{}", target.name);
        print_fact(&guest.env, what, median(lags))?;
    }
    Ok(())
}

/// How long it takes to wake a thread on the caller's CPU from another one, through a pipe, after as
/// long a sleep as a caller's: what any way of waiting by sleeping costs on this machine.
fn wake_up(guest: &Guest, target: &Target) -> Result<f64, String> {
    const COUNT: usize = 101;
    let sleep = Duration::from_micros((target.hold_us / 2).into());
    let fail = |error: std::io::Error| format!("cannot measure a wake-up: {error}");
    let cpu = guest.other()?;
    let (mut from, mut to) = sys::pipe().map_err(fail)?;
    let waker = std::thread::spawn(move || -> std::io::Result<()> {
        use std::io::Write;
        sys::pin(cpu)?;
        for _ in 0..COUNT {
            sys::sleep(sleep);
            to.write_all(&sys::rdtsc().to_ne_bytes())?;
        }
        Ok(())
    });
    let mut took = Vec::new();
    for _ in 0..COUNT {
        use std::io::Read;
        let mut start = [0; 8];
        from.read_exact(&mut start).map_err(fail)?;
        let cycles = sys::rdtsc().saturating_sub(u64::from_ne_bytes(start));
        took.push(guest.ns(cycles));
    }
    match waker.join() {
        Ok(ended) => ended.map_err(fail)?,
        Err(_) => return Err("the thread that wakes others has died".into()),
    }
    Ok(median(&took))
}
