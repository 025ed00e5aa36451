// SPDX-License-Identifier: GPL-2.0

//! The results for people to read.

use crate::record::{Fact, Row};
use std::fmt::Write;

/// Time in microseconds, to three digits.
pub fn us(ns: f64) -> String {
    let us = ns / 1000.0;
    match us {
        _ if us < 10.0 => format!("{us:.1}"),
        _ => format!("{us:.0}"),
    }
}

/// Values in the order of their first appearance.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for value in values {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

fn sweep_name(cpus: &str, regs: u32) -> String {
    let cpus = match cpus {
        "self" => "this CPU",
        "one" => "one other CPU",
        _ => "all CPUs",
    };
    format!("{cpus} x {regs}")
}

/// The order in which cases stand in tables and charts.
pub const CASES: &[&str] = &[
    "pread",
    "regs",
    "migrate",
    "io_uring",
    "perf",
    "read",
    "batch",
    "prepared",
    "sleep",
    "spin",
    "fixed_10",
    "fixed_20",
    "fixed_50",
    "fixed_100",
    "mapped",
    "plain_load",
    "empty",
];

fn position(case: &str) -> usize {
    let at = CASES.iter().position(|&known| known == case);
    at.unwrap_or(CASES.len())
}

/// The table: a column for each environment.
pub fn text(rows: &[Row], facts: &[Fact]) -> String {
    let mut text = String::new();
    let envs = distinct(rows.iter().map(|row| &*row.key.env));
    let mut sweeps = distinct(rows.iter().map(|row| {
        let key = &row.key;
        (&*key.target, &*key.cpus, key.regs)
    }));
    let targets = ["idle", "blocked_100us", "blocked_1ms", "blocked_10ms"];
    let cpus = ["self", "one", "all"];
    sweeps.sort_by_key(|&(target, cpu, regs)| {
        let target = targets.iter().position(|&known| known == target);
        (target, cpus.iter().position(|&known| known == cpu), regs)
    });
    text.push_str("wall / caller's CPU in microseconds / voluntary switches, for one sweep\n");
    for (target, cpus, regs) in sweeps {
        let here = |row: &&Row| {
            let key = &row.key;
            key.target == target && key.cpus == cpus && key.regs == regs
        };
        let name = format!("{}, {target}", sweep_name(cpus, regs));
        let _ = write!(text, "\n{name:<32}");
        for env in &envs {
            let _ = write!(text, "{env:>24}");
        }
        text.push('\n');
        let mut cases = distinct(rows.iter().filter(here).map(|row| &*row.key.case));
        cases.sort_by_key(|case| position(case));
        for case in cases {
            let _ = write!(text, "  {case:<30}");
            for env in &envs {
                let row = rows.iter().filter(here).find(|row| {
                    let key = &row.key;
                    key.env == *env && key.case == case
                });
                let cell = row.map_or("-".into(), |row| {
                    format!(
                        "{} / {} / {:.0}",
                        us(row.wall_ns as f64),
                        us(row.caller_cpu_ns as f64),
                        row.voluntary_switches
                    )
                });
                let _ = write!(text, "{cell:>24}");
            }
            text.push('\n');
        }
    }
    text.push_str(&fact_table(facts));
    text
}

/// What is no sweep: a line for each, a column for each environment.
fn fact_table(facts: &[Fact]) -> String {
    let mut text = String::new();
    let envs = distinct(facts.iter().map(|fact| &*fact.env));
    let _ = write!(text, "\n{:<44}", "other (times in microseconds)");
    for env in &envs {
        let _ = write!(text, "{env:>12}");
    }
    text.push('\n');
    for what in distinct(facts.iter().map(|fact| &*fact.what)) {
        let _ = write!(text, "  {what:<42}");
        for env in &envs {
            let fact = facts
                .iter()
                .find(|fact| fact.what == what && fact.env == *env);
            let cell = match fact {
                None => "-".into(),
                Some(fact) if what.contains("_ns/") || what.ends_with("_ns") => us(fact.value),
                Some(fact) => format!("{:.3}", fact.value)
                    .trim_end_matches('0')
                    .trim_end_matches('.')
                    .to_owned(),
            };
            let _ = write!(text, "{cell:>12}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::row;

    #[test]
    fn a_table_has_what_was_measured() {
        let rows = [
            row("tcg4", "read", "one", 1, 25_400, 24_000),
            row("kvm2", "pread", "one", 1, 109_000, 90_000),
        ];
        let fact = Fact {
            env: "tcg4".into(),
            what: "wake_up_ns/blocked_1ms".into(),
            value: 30_500.0,
        };
        let text = text(&rows, &[fact]);
        let line = |start: &str| {
            let found = text.lines().find(|line| line.trim().starts_with(start));
            found.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        assert_eq!(line("read").unwrap(), "read 25 / 24 / 0 -");
        assert_eq!(line("pread").unwrap(), "pread - 109 / 90 / 0");
        assert_eq!(line("wake_up_ns").unwrap(), "wake_up_ns/blocked_1ms 30");
        assert!(text.find("pread").unwrap() < text.find("read  ").unwrap());
    }

    #[test]
    fn times_have_few_digits() {
        assert_eq!(us(1_234.0), "1.2");
        assert_eq!(us(9_960.0), "10.0");
        assert_eq!(us(123_456.0), "123");
    }
}
