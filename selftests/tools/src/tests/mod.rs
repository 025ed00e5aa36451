// SPDX-License-Identifier: GPL-2.0

//! The tests, by subject.

mod nodes;
mod sweep;
mod top;

use cpupeek_selftests::tests::Test;
use cpupeek_selftests::trace::{Event, Trace};

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

pub fn all() -> impl Iterator<Item = &'static Test> {
    [nodes::TESTS, sweep::TESTS, top::TESTS]
        .into_iter()
        .flatten()
}

/// Calls of the module's to other CPUs while `action` runs, as the kernel's tracepoint sees them: the
/// CPU called, one for each call.
#[track_caller]
fn calls_during(action: impl FnOnce()) -> Vec<u32> {
    let trace = Trace::start(&[("csd/csd_queue_cpu", "")]);
    action();
    let ours = |event: &Event| event.text().contains("[cpupeek]");
    let cpu = |event: &Event| event.field("cpu").and_then(|cpu| cpu.parse().ok());
    let events = trace.stop();
    let calls = events.iter().filter(|event| ours(event));
    calls
        .map(|event| cpu(event).expect("it has a CPU"))
        .collect()
}
