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
mod sampler;

use std::path::Path;

use cpupeek_selftests::guest;
use cpupeek_selftests::tests::{Env, Test};

use crate::control::{Control, ALL};
use crate::files;
use crate::machine::{described, machine, Register};

/// A kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// Any described one.
    Machine,
    /// The one that the host script has chosen for what is the same on all, with a temperature.
    Once,
    /// One on which these registers are described, and may be read.
    Registers(&'static [u32]),
    /// One with cores of two kinds.
    Hybrid,
    /// One that counts energy.
    Energy,
    /// One whose dies count energy each for itself.
    Dies,
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
            Self::Registers(all) => all
                .iter()
                .all(|&number| machine.any(&[number], |register| register != Register::Fault)),
            Self::Hybrid => {
                let last = guest::possible().pop().unwrap_or(0);
                machine.register(0, 0x64e) != machine.register(last, 0x64e)
            }
            Self::Energy => machine.any(ENERGY, |register| matches!(register, Register::Rate(_))),
            Self::Dies => machine.register(0, 0x611) != machine.register(2, 0x611),
            Self::NoEnergy => machine.any(&[0x606], |register| register == Register::Constant(0)),
            Self::Pressure => {
                let counts = |register| matches!(register, Register::Rate(_));
                machine.burst_us == 0 && machine.any(&[0xe8], counts)
            }
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
        sampler::TESTS,
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

/// There while the module may know a unit of energy that is not the described one: it finds that out
/// when it is loaded.
const UNIT_CHANGED: &str = "/run/values-test.unit";

/// Makes the unit of energy what `value` says, in all CPUs' register for that.
pub fn set_unit(control: &Control, env: &Env, value: u64) {
    std::fs::write(UNIT_CHANGED, "").expect("/run can be written");
    let intel = machine().is_intel();
    let register = if intel { 0x606 } else { 0xc001_0299 };
    control.value(ALL, register, value);
    decode::reload(env);
}

/// What the test before has changed is put back.
fn begin(env: &Env) {
    if Path::new(UNIT_CHANGED).exists() {
        Control::new().reset();
        decode::reload(env);
        std::fs::remove_file(UNIT_CHANGED).expect("it is ours");
    }
    files::set("energy_hold_s", 3600);
    if described().is_some() {
        Control::new().reset();
        // What was read before that is not to be served.
        files::expire();
        for cpu in guest::online() {
            let _ = files::try_number(cpu, "tsc");
        }
    }
    files::be_patient();
    files::set("cache_ms", 1000);
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
                    $crate::tests::begin(env);
                    $function(env);
                },
            }),)*
        ];
    };
}
use tests;
