// SPDX-License-Identifier: GPL-2.0

//! What reading registers costs with cpupeek, and with what was there before.

mod blocked;
mod chart;
mod count;
mod crowded;
mod guest;
mod idle;
mod judge;
mod neighbour;
mod other;
mod readers;
mod record;
mod report;
mod spin;
mod sys;
mod table;
mod words;

use guest::Guest;
use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "\
Usage: cpupeek-bench measure ENV [idle|other|blocked]...
                                    in a guest: measures all or these parts, and prints lines of JSON
       cpupeek-bench count          in a guest with --icount: counts instructions
       cpupeek-bench words          in a guest with --icount: what knowing one's CPU costs
       cpupeek-bench migrate        what having it in memory adds to a migration
       cpupeek-bench crowded        in a KVM guest with more CPUs than its host
       cpupeek-bench report DIR     on the host: from DIR/boots/ENV-N.jsonl makes a table, DIR/results.json,
                                    DIR/facts.json and DIR/bench.svg
       cpupeek-bench judge DIR      on the host: says which goals were reached
scripts/bench runs all of it.
";

type Part = fn(&Guest) -> Result<(), String>;

const PARTS: &[(&str, Part)] = &[
    ("idle", idle::measure),
    ("other", other::measure),
    ("blocked", blocked::measure),
];

fn measure(env: &str, wanted: &[&str]) -> Result<(), String> {
    let is_part = |name: &&&str| PARTS.iter().any(|(known, _)| known == *name);
    if let Some(unknown) = wanted.iter().find(|name| !is_part(name)) {
        return Err(format!("there is no part '{unknown}': see --help"));
    }
    let guest = Guest::new(env)?;
    let result = PARTS
        .iter()
        .filter(|(name, _)| wanted.is_empty() || wanted.contains(name))
        .try_for_each(|(_, part)| part(&guest));
    guest.usual.set()?;
    result
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(|word| &**word).collect();
    let result = match arguments[..] {
        ["measure", env, ref parts @ ..] => measure(env, parts),
        ["count"] => Guest::new("icount").and_then(|guest| count::measure(&guest)),
        ["crowded"] => Guest::new("crowded").and_then(|guest| crowded::measure(&guest)),
        ["words"] => Guest::new("words").and_then(|guest| words::count(&guest)),
        ["migrate"] => Guest::new("words").and_then(|guest| words::migrate(&guest)),
        ["report", directory] => report::report(Path::new(directory)),
        ["judge", directory] => judge::judge(Path::new(directory)),
        ["--help" | "-h"] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => Err("there is no such command: see --help".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cpupeek-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
