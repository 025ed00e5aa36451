// SPDX-License-Identifier: GPL-2.0

//! The tests, and which machines each is for.

mod cache;
mod command;
mod cost;
mod decode;
mod energy;
mod frequency;
mod hotplug;
mod idle;
mod input;

use cpupeek_selftests::guest;
use cpupeek_selftests::tests::Test;

use crate::control::Control;
use crate::files;
use crate::machine::{described, Register};

/// A kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// Any described one.
    Machine,
    /// The one that the host script has chosen for what is the same on all, with a temperature.
    Once,
    /// One on which these registers are described.
    Registers(&'static [u32]),
    /// One with cores of two kinds.
    Hybrid,
    /// One that counts energy.
    Energy,
    /// One that says that it has no unit of energy.
    NoEnergy,
    /// One whose counters are slow to read, each for itself.
    Pressure,
    /// One in which instructions are counted.
    Counted,
}

const ENERGY: &[u32] = &[0x611, 0x639, 0x619, 0xc001_029a, 0xc001_029b];

impl On {
    fn is_here(self) -> bool {
        let Some(machine) = described() else {
            return self == Self::Counted;
        };
        match self {
            Self::Machine => true,
            Self::Once => std::env::var_os("ONCE").is_some(),
            Self::Registers(all) => all.iter().all(|&number| machine.has(number)),
            Self::Hybrid => {
                let last = guest::possible().pop().unwrap_or(0);
                machine.register(0, 0x64e) != machine.register(last, 0x64e)
            }
            Self::Energy => machine.any(ENERGY, |register| matches!(register, Register::Rate(_))),
            Self::NoEnergy => machine.any(&[0x606], |register| register == Register::Constant(0)),
            Self::Pressure => machine.burst_us == 0 && machine.has(0xe8),
            Self::Counted => false,
        }
    }
}

/// All tests, in the order in which they run.
pub fn all() -> impl Iterator<Item = &'static (On, Test)> {
    [
        decode::TESTS,
        cache::TESTS,
        input::TESTS,
        energy::TESTS,
        frequency::TESTS,
        hotplug::TESTS,
        idle::TESTS,
        command::TESTS,
        cost::TESTS,
    ]
    .into_iter()
    .flatten()
}

/// Those for the machine that this is.
pub fn applicable() -> impl Iterator<Item = &'static Test> {
    all().filter(|(on, _)| on.is_here()).map(|(_, test)| test)
}

/// What the test before has changed is put back.
fn begin() {
    files::set("cache_ms", 1000);
    files::set("energy_hold_s", 3600);
    if described().is_some() {
        Control::new().reset();
    }
}

/// The table of a group: `function: machines, needs`.
macro_rules! tests {
    ($group:literal; $($function:ident: $on:expr, [$($need:ident)*],)*) => {
        pub const TESTS: &[($crate::tests::On, cpupeek_selftests::tests::Test)] = &[
            $(($on, cpupeek_selftests::tests::Test {
                group: $group,
                function: stringify!($function),
                needs: &[$(cpupeek_selftests::tests::Need::$need),*],
                run: |env| {
                    $crate::tests::begin();
                    $function(env);
                },
            }),)*
        ];
    };
}
use tests;
