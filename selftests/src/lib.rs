// SPDX-License-Identifier: GPL-2.0

//! What the tests that run in a guest share: how they are run and reported in KTAP, how the guest is
//! put back in order, and its counters, tracepoints and system calls.

#![allow(
    missing_docs,
    clippy::missing_docs_in_private_items,
    clippy::len_without_is_empty,
    clippy::should_implement_trait,
    reason = "for tests, which are named after what they prove, and not a published interface"
)]

pub mod cli;
pub mod device;
pub mod guest;
pub mod hold;
pub mod kcov;
pub mod plan;
pub mod run;
pub mod sampler;
pub mod sys;
pub mod tests;
pub mod trace;
pub mod util;

use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use tests::Test;

/// Starts this program again in a process that never runs on the CPU that tests hold: then nothing
/// in it, not even a write to a page that it shares with a child, has to wait for that CPU to flush
/// its TLB.
fn keep_off_the_held_cpu() {
    const DONE: &str = "CPUPEEK_SELFTESTS_PINNED";
    if std::env::var_os(DONE).is_some() {
        return;
    }
    let mut cpus = guest::online();
    cpus.pop();
    if sys::pin(&cpus).is_ok() {
        let mut again = std::process::Command::new("/proc/self/exe");
        let error = again.args(std::env::args().skip(1)).env(DONE, "1").exec();
        eprintln!("selftests: does not start again: {error}");
    }
}

/// The program `name`: runs those of `tests` that the command line selects.
pub fn main(name: &str, tests: impl Iterator<Item = &'static Test>) -> ExitCode {
    keep_off_the_held_cpu();
    let options = match cli::parse(std::env::args().skip(1)) {
        Ok(cli::Command::Run(options)) => options,
        Ok(cli::Command::Help) => {
            print!("Usage: {name} {}", cli::HELP);
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("{name}: {message}");
            return ExitCode::from(2);
        }
    };
    let tests: Vec<_> = tests.filter(|test| options.selects(test)).collect();
    if options.list {
        for test in tests {
            println!("{}", test.name());
        }
        return ExitCode::SUCCESS;
    }
    if tests.is_empty() {
        eprintln!("{name}: no test has such a name: --list shows all names");
        return ExitCode::from(2);
    }
    match run::run(&tests, &options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            eprintln!("{name}: {message}");
            ExitCode::from(2)
        }
    }
}
