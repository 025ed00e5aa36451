// SPDX-License-Identifier: GPL-2.0

//! Tests of the named values, for a guest whose registers are described (`qemu/run --machine`) and
//! for one in which instructions are counted (`qemu/run --icount`). The output is KTAP.

#![allow(
    missing_docs,
    clippy::missing_docs_in_private_items,
    reason = "tests are named after what they prove"
)]

mod control;
mod expect;
mod files;
mod machine;
mod tests;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Err(message) = machine::load() {
        eprintln!("values-test: {message}");
        return ExitCode::from(2);
    }
    match std::env::args().nth(1).as_deref() {
        // For the check that the documentation and the machines have the same files.
        Some("--files") => files::print_all(),
        // For the check that no test is run on no machine.
        Some("--all-tests") => tests::all().for_each(|(_, test)| println!("{}", test.name())),
        _ => return cpupeek_selftests::main("values-test", tests::applicable()),
    }
    ExitCode::SUCCESS
}
