// SPDX-License-Identifier: GPL-2.0

//! Tests of who may read what, and where. The output is KTAP.

#![allow(
    missing_docs,
    clippy::missing_docs_in_private_items,
    reason = "tests are named after what they prove"
)]

mod known;
mod policy;
mod tests;
mod who;

use std::process::ExitCode;

fn main() -> ExitCode {
    cpupeek_selftests::main("policy-test", tests::all())
}
