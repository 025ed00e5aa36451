// SPDX-License-Identifier: GPL-2.0

//! What reading registers costs with cpupeek, and with what was there before.

mod blocked;
mod chart;
mod count;
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

use guest::Guest;
use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "\
Usage: cpupeek-bench measure ENV    in a guest: measures, and prints lines of JSON
       cpupeek-bench count          in a guest with --icount: counts instructions
       cpupeek-bench report DIR     on the host: from DIR/boots/ENV-N.jsonl makes a table, DIR/results.json,
                                    DIR/facts.json and DIR/bench.svg
       cpupeek-bench judge DIR      on the host: says which goals were reached
scripts/bench runs all of it.
";

fn measure(env: &str) -> Result<(), String> {
    let guest = Guest::new(env)?;
    let steps = [idle::measure, other::measure, blocked::measure];
    let result = steps.iter().try_for_each(|step| step(&guest));
    guest.usual.set()?;
    result
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(|word| &**word).collect();
    let result = match arguments[..] {
        ["measure", env] => measure(env),
        ["count"] => Guest::new("icount").and_then(|guest| count::measure(&guest)),
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
