// SPDX-License-Identifier: GPL-2.0

//! Tests of what stands in for other tools: the files of each CPU against the kernel's own, one call for
//! all snapshots, and the full-screen table. The output is KTAP.

#![allow(
    missing_docs,
    clippy::missing_docs_in_private_items,
    reason = "tests are named after what they prove"
)]

mod terminal;
mod tests;

use std::process::ExitCode;

fn main() -> ExitCode {
    cpupeek_selftests::main("tools-test", tests::all())
}
