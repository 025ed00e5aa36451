// SPDX-License-Identifier: GPL-2.0

//! Tests of the cpupeek module, for a guest that nobody needs: they take CPUs offline, hold their
//! interrupts off, and load and unload the module. The output is KTAP.

use cpupeek_selftests::tests;
use std::process::ExitCode;

fn main() -> ExitCode {
    if tests::after_exec() {
        return ExitCode::SUCCESS;
    }
    cpupeek_selftests::main("selftests", tests::all())
}
