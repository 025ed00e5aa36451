// SPDX-License-Identifier: GPL-2.0

//! Tests of the cpupeek module, for a guest that nobody needs: they take CPUs offline, hold their
//! interrupts off, and load and unload the module. The output is KTAP.

#![allow(
    missing_docs,
    clippy::missing_docs_in_private_items,
    reason = "tests are named after what they prove"
)]

mod cli;
mod device;
mod guest;
mod hold;
mod run;
mod sys;
mod tests;
mod trace;
mod util;

use std::process::ExitCode;

fn main() -> ExitCode {
    let options = match cli::parse(std::env::args().skip(1)) {
        Ok(cli::Command::Run(options)) => options,
        Ok(cli::Command::Help) => {
            print!("{}", cli::HELP);
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("selftests: {message}");
            return ExitCode::from(2);
        }
    };
    let tests: Vec<_> = tests::all().filter(|test| options.selects(test)).collect();
    if options.list {
        for test in tests {
            println!("{}", test.name());
        }
        return ExitCode::SUCCESS;
    }
    if tests.is_empty() {
        eprintln!("selftests: no test has such a name: --list shows all names");
        return ExitCode::from(2);
    }
    match run::run(&tests, &options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            eprintln!("selftests: {message}");
            ExitCode::from(2)
        }
    }
}
