// SPDX-License-Identifier: GPL-2.0

//! The tests, and what they need.

pub mod alloc;
mod batch;
mod blocked;
mod boot;
mod cpu_word;
mod hotplug;
mod memory;
mod module;
mod plan;
mod proof;
mod read;
mod reject;
mod rights;
mod sampler;
mod sampler_cli;
mod sampler_life;
mod sampler_proof;
mod sampler_rights;
mod sampler_tell;
mod share;
mod sizes;
mod stop;
mod vcpu;
mod wait;

pub use cpu_word::after_exec;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::guest;
use crate::hold;
use crate::trace;

/// What tests are told.
pub struct Env {
    /// The module's file.
    pub module: PathBuf,
    /// How long tests that repeat something go on.
    pub soak: Duration,
    /// What random choices begin with.
    pub seed: u64,
}

/// A soak of this length is a full one.
const FULL_SOAK: Duration = Duration::from_secs(30);

impl Env {
    /// Does something `full` times in a full soak, and in a shorter one as often as fits.
    pub fn repeat(&self, full: u32, mut action: impl FnMut()) {
        let start = Instant::now();
        let mut times = 0;
        while times < full && (self.soak >= FULL_SOAK || start.elapsed() < self.soak / 2) {
            action();
            times += 1;
        }
        eprintln!("{times} times");
    }
}

/// What a test cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Two CPUs online.
    Cpus,
    /// A CPU that can be taken offline, besides two others.
    Hotplug,
    /// The module that holds interrupts off, and a CPU to hold, besides another.
    Hold,
    /// The module's file.
    Module,
    /// The kernel's own MSR and CPUID drivers.
    Msr,
    /// An MSR that faults.
    Fault,
    /// A time stamp counter that RDMSR shows counting, which it does not do under plain emulation.
    Counter,
    /// Tracepoints.
    Trace,
    /// The cgroup freezer.
    Freezer,
    /// A CPU that has not been online since boot.
    Spare,
    /// What KVM tells of virtual CPUs.
    Steal,
    /// A host with fewer processors than this guest has CPUs.
    Overcommitted,
}

impl Need {
    pub const ALL: &[Self] = &[
        Self::Cpus,
        Self::Hotplug,
        Self::Hold,
        Self::Module,
        Self::Msr,
        Self::Fault,
        Self::Counter,
        Self::Trace,
        Self::Freezer,
        Self::Spare,
        Self::Steal,
        Self::Overcommitted,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Cpus => "cpus",
            Self::Hotplug => "hotplug",
            Self::Hold => "hold",
            Self::Module => "module",
            Self::Msr => "msr",
            Self::Fault => "fault",
            Self::Counter => "counter",
            Self::Trace => "trace",
            Self::Freezer => "freezer",
            Self::Spare => "spare",
            Self::Steal => "steal",
            Self::Overcommitted => "overcommitted",
        }
    }

    /// Why it is not there, if it is not.
    pub fn missing(self, env: &Env) -> Option<String> {
        let exists = |path: &str, what: &str| {
            (!Path::new(path).exists()).then(|| format!("{what}: there is no {path}"))
        };
        let cpus = |least: usize| {
            let online = guest::online().len();
            (online < least).then(|| format!("wants {least} CPUs online, and there are {online}"))
        };
        match self {
            Self::Cpus => cpus(2),
            Self::Hotplug => cpus(3).or_else(|| {
                let pluggable = guest::online().into_iter().any(guest::can_go_offline);
                (!pluggable).then(|| "no CPU can be taken offline".into())
            }),
            Self::Hold => cpus(2).or_else(|| {
                (!hold::is_loaded()).then(|| "cpupeek_hold.ko is not loaded: give --hold".into())
            }),
            Self::Module => exists(&env.module.to_string_lossy(), "the module's file"),
            Self::Msr => exists("/dev/cpu/0/msr", "the msr driver")
                .or_else(|| exists("/dev/cpu/0/cpuid", "the cpuid driver")),
            Self::Fault => read::faulting_msr()
                .is_none()
                .then(|| "no MSR of those known faults here".into()),
            Self::Counter => (!read::tsc_counts()).then(|| "no MSR counts here".into()),
            Self::Trace => exists(trace::TRACING, "tracefs"),
            Self::Spare => guest::offline()
                .is_empty()
                .then(|| "all CPUs are online".into()),
            Self::Steal => (!vcpu::are_there()).then(|| "KVM tells nothing of CPUs here".into()),
            // Nothing tells but who has made the guest.
            Self::Overcommitted => Some("nobody says that the host has too few processors".into()),
            Self::Freezer => exists("/sys/fs/cgroup/cgroup.procs", "cgroup2"),
        }
    }
}

/// A test.
pub struct Test {
    pub group: &'static str,
    pub function: &'static str,
    pub needs: &'static [Need],
    pub run: fn(&Env),
}

impl Test {
    pub fn name(&self) -> String {
        format!("{}.{}", self.group, self.function)
    }
}

/// The table of a group: `function: needs`.
macro_rules! tests {
    ($group:literal; $($function:ident: [$($need:ident)*],)*) => {
        pub const TESTS: &[$crate::tests::Test] = &[
            $($crate::tests::Test {
                group: $group,
                function: stringify!($function),
                needs: &[$($crate::tests::Need::$need),*],
                run: $function,
            },)*
        ];
    };
}
use tests;

/// All tests, in the order in which they run: what the later ones take for granted first.
pub fn all() -> impl Iterator<Item = &'static Test> {
    [
        read::TESTS,
        reject::TESTS,
        sizes::TESTS,
        memory::TESTS,
        batch::TESTS,
        plan::TESTS,
        rights::TESTS,
        share::TESTS,
        wait::TESTS,
        stop::TESTS,
        proof::TESTS,
        alloc::TESTS,
        hotplug::TESTS,
        vcpu::TESTS,
        boot::TESTS,
        sampler::TESTS,
        sampler_tell::TESTS,
        sampler_cli::TESTS,
        sampler_life::TESTS,
        sampler_rights::TESTS,
        sampler_proof::TESTS,
        cpu_word::TESTS,
        module::TESTS,
    ]
    .into_iter()
    .flatten()
}
