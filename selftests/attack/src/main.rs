// SPDX-License-Identifier: GPL-2.0

//! Attacks on the module: everything that it needs made to fail, everything at once, and random
//! input guided by coverage. The output is KTAP.

#![allow(
    missing_docs,
    clippy::missing_docs_in_private_items,
    reason = "tests are named after what they prove"
)]

mod boundary;
mod calls;
mod cost;
mod fault;
mod fuzz;
mod image;
mod inject;
mod round;
mod state;
mod torture;

use std::process::ExitCode;

fn main() -> ExitCode {
    cpupeek_selftests::main(
        "attack",
        [
            boundary::TESTS,
            fault::TESTS,
            round::TESTS,
            cost::TESTS,
            fuzz::TESTS,
            torture::TESTS,
        ]
        .into_iter()
        .flatten(),
    )
}

/// The table of a group: `function: needs`.
macro_rules! tests {
    ($group:literal; $($function:ident: [$($need:ident)*],)*) => {
        pub const TESTS: &[cpupeek_selftests::tests::Test] = &[
            $(cpupeek_selftests::tests::Test {
                group: $group,
                function: stringify!($function),
                needs: &[$(cpupeek_selftests::tests::Need::$need),*],
                run: $function,
            },)*
        ];
    };
}
use tests;
