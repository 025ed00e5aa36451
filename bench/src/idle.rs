// SPDX-License-Identifier: GPL-2.0

//! Sweeps over CPUs that have nothing else to do.

use crate::guest::{Contender, Guest};
use crate::record::{median, Line, Row};
use crate::sys;
use std::time::{Duration, Instant};

/// Rounds, in each of which every contender has its turn.
const ROUNDS: usize = 15;

/// How long a turn takes about, and a part of it that is measured by itself: long against the clocks.
/// No turn has more chunks, and no chunk more sweeps, than that.
const TURN: Duration = Duration::from_millis(4);
const CHUNK: Duration = Duration::from_micros(30);
const SWEEPS_MAX: u32 = 100;

/// What a contender does before its turn, so that it finds the spin budget, the caches and the idle
/// states of the CPUs as its own doing leaves them: so many sweeps, or what that time allows. Those
/// whose spin budget adapts need the number: others have taught it something else.
const WARM_UP: Duration = Duration::from_millis(2);
const WARM_UP_SWEEPS: u32 = 24;
const ADAPTIVE: &[&str] = &["read", "batch", "prepared"];

const REMOTE: &[&str] = &[
    "pread",
    "regs",
    "migrate",
    "io_uring",
    "perf",
    "read",
    "batch",
    "sleep",
    "spin",
    "prepared",
    "fixed_10",
    "fixed_20",
    "fixed_50",
    "fixed_100",
];
/// In a comparison of their own: the others are not to be disturbed by timers.
const MAPPED: &[&str] = &["mapped", "plain_load"];
const LOCAL: &[&str] = &["pread", "perf", "read", "batch", "prepared"];

/// Measures all idle cases, and tells the host.
pub fn measure(guest: &Guest) -> Result<(), String> {
    for (cpus, cases) in [
        ("self", LOCAL),
        ("one", REMOTE),
        ("all", REMOTE),
        ("one", MAPPED),
        ("all", MAPPED),
    ] {
        for regs in [1, 16] {
            let mut contenders = Vec::new();
            for case in cases {
                contenders.extend(guest.contender(guest.key(case, cpus, regs, "idle"))?);
            }
            compete(contenders)?;
        }
    }
    compete(
        guest
            .contender(guest.key("empty", "self", 0, "idle"))?
            .into_iter()
            .collect(),
    )
}

/// What sweeps cost: wall time and CPU time in nanoseconds, and voluntary context switches.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    pub wall: f64,
    pub cpu: f64,
    pub switches: f64,
}

impl Cost {
    /// Runs `f`, and says what it has cost, `count` times over.
    pub fn of(count: u32, f: impl FnOnce() -> Result<(), String>) -> Result<Self, String> {
        let switches = sys::voluntary_switches();
        let cpu = sys::thread_cpu_ns();
        let wall = sys::now_ns();
        f()?;
        let count = f64::from(count);
        Ok(Self {
            wall: (sys::now_ns() - wall) as f64 / count,
            cpu: (sys::thread_cpu_ns() - cpu) as f64 / count,
            switches: (sys::voluntary_switches() - switches) as f64 / count,
        })
    }
}

/// The costs of one contender's turns.
#[derive(Default)]
pub struct Costs(pub Vec<Cost>);

impl Costs {
    pub fn median(&self, what: impl Fn(&Cost) -> f64) -> f64 {
        median(&self.0.iter().map(what).collect::<Vec<_>>())
    }

    /// The medians, as a line of results.
    pub fn row(&self, contender: &Contender, neighbour_p90_ns: Option<u64>) -> Row {
        Row {
            key: contender.key.clone(),
            wall_ns: self.median(|cost| cost.wall) as u64,
            caller_cpu_ns: self.median(|cost| cost.cpu) as u64,
            voluntary_switches: self.median(|cost| cost.switches),
            neighbour_p90_ns,
        }
    }
}

/// Gives every contender its turn in each round, beginning with another one each time.
fn compete(mut contenders: Vec<Contender>) -> Result<(), String> {
    let mut costs: Vec<Costs> = contenders.iter().map(|_| Costs::default()).collect();
    let count = contenders.len();
    for round in 0..ROUNDS {
        for turn in 0..count {
            let at = (round + turn) % count;
            let cost = take_turn(&mut contenders[at])?;
            costs[at].0.push(cost);
        }
    }
    for (contender, costs) in contenders.iter().zip(&costs) {
        Line::Row(costs.row(contender, None)).print()?;
    }
    Ok(())
}

/// What one turn has cost: the median of its chunks, because a mean is mostly about the one time that
/// the host took the guest's CPUs away. Switches are a mean, so that one in ten sweeps can be seen.
fn take_turn(contender: &mut Contender) -> Result<Cost, String> {
    contender.budget.set()?;
    let start = Instant::now();
    let mut warm = 0;
    // A sweep of single reads teaches enough.
    let learns = ADAPTIVE.contains(&&*contender.key.case) && !contender.is_serial();
    while warm < WARM_UP_SWEEPS && (warm == 0 || learns || start.elapsed() < WARM_UP) {
        contender.sweep()?;
        warm += 1;
    }
    let each = (start.elapsed() / warm).max(Duration::from_nanos(1));
    let per = |time: Duration| (time.as_nanos() / each.as_nanos()) as u32;
    let sweeps = per(CHUNK).clamp(1, SWEEPS_MAX);
    let chunks = (per(TURN) / sweeps).clamp(5, SWEEPS_MAX);

    let mut costs = Costs::default();
    let switches = sys::voluntary_switches();
    for _ in 0..chunks {
        let chunk = || (0..sweeps).try_for_each(|_| contender.sweep());
        costs.0.push(Cost::of(sweeps, chunk)?);
    }
    let switches = sys::voluntary_switches() - switches;
    Ok(Cost {
        wall: costs.median(|cost| cost.wall),
        cpu: costs.median(|cost| cost.cpu),
        switches: switches as f64 / f64::from(chunks * sweeps),
    })
}
