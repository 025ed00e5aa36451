// SPDX-License-Identifier: GPL-2.0

//! Which goals were reached. Each goal is about a number of one boot, mostly a ratio; what counts is
//! the median of that number over all boots of the environment.

use crate::record::{median, Row};
use crate::report::{self, Boot};
use std::path::Path;

/// The number of one boot, if it was measured.
type Number = Box<dyn Fn(&Boot) -> Option<f64>>;

/// A goal: a number that must lie below or above a limit.
struct Goal {
    env: &'static str,
    what: String,
    bound: Bound,
    number: Number,
}

#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
    Below(f64),
}

impl Bound {
    fn holds(self, number: f64) -> bool {
        match self {
            Self::AtLeast(limit) => number >= limit,
            Self::AtMost(limit) => number <= limit,
            Self::Below(limit) => number < limit,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(limit) => format!("at least {limit}"),
            Self::AtMost(limit) => format!("at most {limit}"),
            Self::Below(limit) => format!("below {limit}"),
        }
    }
}

fn goal(
    env: &'static str,
    what: impl Into<String>,
    bound: Bound,
    number: impl Fn(&Boot) -> Option<f64> + 'static,
) -> Goal {
    Goal {
        env,
        what: what.into(),
        bound,
        number: Box::new(number),
    }
}

fn wall(row: &Row) -> f64 {
    row.wall_ns as f64
}

fn cpu(row: &Row) -> f64 {
    row.caller_cpu_ns as f64
}

/// What one case has of something, divided by what another one has, in the same sweep.
fn ratio(
    of: fn(&Row) -> f64,
    (case, other): (&'static str, &'static str),
    (cpus, regs, target): (&'static str, u32, &'static str),
) -> impl Fn(&Boot) -> Option<f64> {
    move |boot| {
        let case = of(boot.row(case, cpus, regs, target)?);
        Some(case / of(boot.row(other, cpus, regs, target)?))
    }
}

fn fact_ratio(fact: String, other: String) -> impl Fn(&Boot) -> Option<f64> {
    move |boot| Some(boot.fact(&fact)? / boot.fact(&other)?)
}

const ALL_16: (&str, u32, &str) = ("all", 16, "idle");
const ENVS: &[&str] = &["tcg4", "tcg8", "tcg2poll", "kvm2"];

/// The goals of issues 6, 9 and 10.
fn goals() -> Vec<Goal> {
    use Bound::{AtLeast, AtMost, Below};
    let mut goals = vec![
        goal(
            "tcg4",
            "all CPUs x 16: pread's wall time by BATCH's",
            AtLeast(40.0),
            ratio(wall, ("pread", "batch"), ALL_16),
        ),
        goal(
            "tcg4",
            "all CPUs x 16: a plan's wall time by BATCH's",
            Below(1.0),
            ratio(wall, ("prepared", "batch"), ALL_16),
        ),
        goal(
            "tcg2poll",
            "all CPUs x 16: pread's wall time by BATCH's",
            AtLeast(12.0),
            ratio(wall, ("pread", "batch"), ALL_16),
        ),
        goal(
            "tcg2poll",
            "all CPUs x 16: a plan's wall time by BATCH's",
            Below(1.0),
            ratio(wall, ("prepared", "batch"), ALL_16),
        ),
        goal(
            "tcg4",
            "all CPUs x 16: BATCH's wall time by that of one that spins to the end",
            AtMost(1.15),
            ratio(wall, ("batch", "spin"), ALL_16),
        ),
        goal(
            "tcg4",
            "all CPUs x 16: CPU time of a BATCH that sleeps by pread's",
            AtMost(0.07),
            ratio(cpu, ("sleep", "pread"), ALL_16),
        ),
        goal(
            "tcg4",
            "one CPU x 1: READ's wall time by pread's",
            AtMost(0.6),
            ratio(wall, ("read", "pread"), ("one", 1, "idle")),
        ),
        goal(
            "words",
            "which CPU this is: instructions of getcpu() by those of the word",
            AtLeast(10.0),
            fact_ratio("instructions/getcpu".into(), "instructions/cpu_word".into()),
        ),
        goal(
            "words",
            "which CPU this is: instructions of the word by sched_getcpu()'s",
            AtMost(1.2),
            fact_ratio(
                "instructions/cpu_word".into(),
                "instructions/sched_getcpu".into(),
            ),
        ),
        goal(
            "words",
            "a migration: microseconds more with a word, 1000 instructions each",
            AtMost(2.0),
            |boot| {
                let with = boot.fact("migration_with_word_us")?;
                Some(with - boot.fact("migration_us")?)
            },
        ),
        goal(
            "icount",
            "this CPU x 1: instructions of READ by pread's",
            AtMost(1.1),
            fact_ratio("instructions/read/1".into(), "instructions/pread/1".into()),
        ),
        goal(
            "icount",
            "this CPU x 1: instructions of READ by 882",
            AtMost(1.1),
            |boot| Some(boot.fact("instructions/read/1")? / 882.0),
        ),
        goal(
            "icount",
            "this CPU x 1: allocations of READ (switching the tracing makes a few in 1000)",
            Below(0.05),
            |boot| {
                // An open allocates: otherwise the counter is blind.
                let seen = boot.fact("allocations/open")? >= 1.0;
                boot.fact("allocations/read").filter(|_| seen)
            },
        ),
        goal(
            "tcg4",
            "16 registers, 2 to 4 CPUs: growth of the caller's CPU time by that of the CPUs",
            AtMost(1.2),
            |boot| growth(boot, "caller_cpu_ns/2_cpus", "caller_cpu_ns/4_cpus", 2.0),
        ),
        goal(
            "tcg8",
            "16 registers, 2 to 8 CPUs: growth of the caller's CPU time by that of the CPUs",
            AtMost(1.2),
            |boot| growth(boot, "caller_cpu_ns/2_cpus", "caller_cpu_ns/8_cpus", 4.0),
        ),
        goal(
            "tcg4",
            "64 to 4096 operations per CPU: growth of the wall time",
            AtMost(70.0),
            |boot| {
                growth(
                    boot,
                    "wall_ns/64_ops_per_cpu",
                    "wall_ns/4096_ops_per_cpu",
                    1.0,
                )
            },
        ),
    ];
    goals.push(goal(
        "tcg4",
        "one CPU x 1: pread's wall time by that of a mapped value",
        AtLeast(200.0),
        ratio(wall, ("pread", "mapped"), ("one", 1, "idle")),
    ));
    for (cpus, regs) in [("one", 1), ("one", 16), ("all", 16)] {
        goals.push(goal(
            "tcg4",
            format!("{cpus} CPU(s) x {regs}: wall time of mapped values by that of plain loads"),
            AtMost(3.0),
            ratio(wall, ("mapped", "plain_load"), (cpus, regs, "idle")),
        ));
    }
    goals.push(goal(
        "tcg4",
        "interrupts that a sampler of 16 registers on all CPUs sends in 2 s",
        AtMost(0.0),
        |boot| {
            // Otherwise it has not run.
            let ran = boot.fact("sampler_samples")? >= 100.0;
            boot.fact("sampler_interrupts").filter(|_| ran)
        },
    ));
    for (target, limit) in [("blocked_10ms", 0.06), ("blocked_1ms", 0.2)] {
        goals.push(goal(
            "tcg4",
            format!("{target}: READ's CPU time by the spinning reader's"),
            AtMost(limit),
            ratio(cpu, ("read", "regs"), ("one", 1, target)),
        ));
    }
    for target in ["blocked_10ms", "blocked_1ms"] {
        goals.push(goal(
            "tcg4",
            format!("{target}: READ's answer after the spinner's, in wake-ups"),
            AtMost(2.0),
            move |boot| {
                let read = boot.fact(&format!("lag_ns/read/{target}"))?;
                let spin = boot.fact(&format!("lag_ns/spin/{target}"))?;
                Some((read - spin) / boot.fact(&format!("wake_up_ns/{target}"))?)
            },
        ));
        for kind in ["fifo", "ordinary"] {
            let late = move |case: &str| format!("neighbour_p90_ns/{kind}/{case}/{target}");
            goals.push(goal(
                "tcg4",
                format!("{target}: lateness (p90) of a neighbour ({kind}) with READ by without"),
                AtMost(2.0),
                fact_ratio(late("read"), late("none")),
            ));
        }
    }
    for env in ENVS {
        for (cpus, regs) in [("one", 1), ("one", 16), ("all", 1), ("all", 16)] {
            goals.push(goal(
                env,
                format!("{cpus} x {regs}: excess of BATCH over the best fixed budget (1 = 25 % or 3 us)"),
                AtMost(1.0),
                move |boot| excess(boot, cpus, regs),
            ));
        }
    }
    goals
}

fn growth(boot: &Boot, from: &str, to: &str, linear: f64) -> Option<f64> {
    Some(boot.fact(to)? / boot.fact(from)? / linear)
}

/// By how much the adaptive budget is slower than the best fixed one, in units of what is allowed.
fn excess(boot: &Boot, cpus: &str, regs: u32) -> Option<f64> {
    let of = |case| boot.row(case, cpus, regs, "idle").map(wall);
    let fixed = ["fixed_10", "fixed_20", "fixed_50", "fixed_100"];
    let best = fixed.iter().filter_map(|case| of(case)).reduce(f64::min)?;
    let allowed = (0.25 * best).max(3000.0);
    Some((of("batch")? - best) / allowed)
}

/// What became of a goal.
struct Verdict {
    reached: Option<bool>,
    text: String,
}

fn verdict(goal: &Goal, boots: &[Boot]) -> Verdict {
    let numbers: Vec<f64> = boots
        .iter()
        .filter(|boot| boot.env == goal.env)
        .filter_map(|boot| (goal.number)(boot))
        .collect();
    let name = format!("{:<9} {}", goal.env, goal.what);
    let bound = goal.bound.text();
    if numbers.is_empty() {
        return Verdict {
            reached: None,
            text: format!("not measured  {name}: {bound}"),
        };
    }
    let number = median(&numbers);
    let reached = goal.bound.holds(number);
    let of: Vec<String> = numbers.iter().map(|n| format!("{n:.3}")).collect();
    let word = if reached { "reached" } else { "NOT REACHED" };
    Verdict {
        reached: Some(reached),
        text: format!(
            "{word:<12}  {name}: {number:.3}, {bound} (boots: {})",
            of.join(" ")
        ),
    }
}

/// Says what became of each goal.
pub fn judge(directory: &Path) -> Result<(), String> {
    let boots = report::boots(directory)?;
    let verdicts: Vec<Verdict> = goals().iter().map(|goal| verdict(goal, &boots)).collect();
    for verdict in &verdicts {
        println!("{}", verdict.text);
    }
    let count = |reached| verdicts.iter().filter(|v| v.reached == reached).count();
    println!(
        "{} goals reached, {} not reached, {} not measured",
        count(Some(true)),
        count(Some(false)),
        count(None)
    );
    let few = |env: &str| boots.iter().filter(|boot| boot.env == env).count() < 3;
    if boots.iter().any(|boot| few(&boot.env)) {
        println!("The goals are about medians over three boots or more: scripts/bench --boots 3");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Fact;
    use crate::report::tests::row;

    fn boot(env: &str, walls: &[(&str, u64)]) -> Boot {
        Boot {
            env: env.into(),
            rows: walls
                .iter()
                .map(|&(case, wall)| row(env, case, "all", 16, wall, wall))
                .collect(),
            facts: Vec::new(),
        }
    }

    fn find(what: &str, boots: &[Boot]) -> Verdict {
        let goals = goals();
        let goal = goals.iter().find(|goal| goal.what.contains(what));
        verdict(goal.unwrap(), boots)
    }

    #[test]
    fn the_median_of_the_boots_decides() {
        let boot = |pread| boot("tcg4", &[("pread", pread), ("batch", 10)]);
        let what = "pread's wall time by BATCH's";
        let judge = |walls: [u64; 3]| find(what, &walls.map(boot)).reached;
        assert_eq!(judge([100, 400, 500]), Some(true));
        assert_eq!(judge([100, 399, 500]), Some(false));
    }

    #[test]
    fn what_was_not_measured_is_not_reached() {
        let verdict = find("pread's wall time", &[boot("tcg8", &[("pread", 1)])]);
        assert_eq!(verdict.reached, None);
        assert!(verdict.text.starts_with("not measured"));
    }

    #[test]
    fn a_blind_counter_of_allocations_proves_nothing() {
        let with = |open| {
            let fact = |what: &str, value| Fact {
                env: "icount".into(),
                what: what.into(),
                value,
            };
            let mut boot = boot("icount", &[]);
            boot.facts = vec![
                fact("allocations/read", 0.0),
                fact("allocations/open", open),
            ];
            find("allocations of READ", &[boot]).reached
        };
        assert_eq!(with(0.0), None);
        assert_eq!(with(2.0), Some(true));
    }

    #[test]
    fn the_budget_may_cost_a_quarter_or_three_microseconds() {
        let excess = |batch, fixed| {
            let boot = boot(
                "tcg4",
                &[
                    ("batch", batch),
                    ("fixed_10", 2 * fixed),
                    ("fixed_20", fixed),
                ],
            );
            super::excess(&boot, "all", 16).unwrap()
        };
        assert!((excess(125_000, 100_000) - 1.0).abs() < 1e-9);
        assert!((excess(7_000, 4_000) - 1.0).abs() < 1e-9);
        assert!(excess(90_000, 100_000) < 0.0);
    }
}
