// SPDX-License-Identifier: GPL-2.0

//! The tests, by subject.

mod accounts;
mod broker;
mod count;
mod cpus;
mod fairness;
mod fuzz;
mod isolated;
mod lists;
mod load;
mod lockdown;
mod narrow;
mod never;
mod partition;
mod rights;

use cpupeek_selftests::guest;
use cpupeek_selftests::tests::Test;

use crate::known;
use crate::policy::allow;

/// What the test before has changed is put back.
fn begin() {
    allow(&known::default_list());
    set("unprivileged_permille", 50);
    set("refresh_isolated", 0);
    set("cache_ms", 1000);
}

/// Sets an attribute of the device.
#[track_caller]
fn set(name: &str, value: u64) {
    let path = guest::attribute_path(name);
    assert_eq!(guest::write(path, &value.to_string()), Ok(()), "{name}");
}

/// The table of a group: `function: needs`.
macro_rules! tests {
    ($group:literal; $($function:ident: [$($need:ident)*],)*) => {
        pub const TESTS: &[cpupeek_selftests::tests::Test] = &[
            $(cpupeek_selftests::tests::Test {
                group: $group,
                function: stringify!($function),
                needs: &[$(cpupeek_selftests::tests::Need::$need),*],
                run: |env| {
                    $crate::tests::begin();
                    $function(env);
                },
            },)*
        ];
    };
}
use tests;

/// All tests. Which of them are for a guest depends on how that was booted; see selftests/policy/run.
pub fn all() -> impl Iterator<Item = &'static Test> {
    [
        rights::TESTS,
        lists::TESTS,
        never::TESTS,
        cpus::TESTS,
        narrow::TESTS,
        broker::TESTS,
        fairness::TESTS,
        accounts::TESTS,
        load::TESTS,
        fuzz::TESTS,
        isolated::TESTS,
        partition::TESTS,
        lockdown::TESTS,
        count::TESTS,
    ]
    .into_iter()
    .flatten()
}
