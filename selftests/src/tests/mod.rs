// SPDX-License-Identifier: GPL-2.0

//! The tests, and what they need.

mod alloc;
mod batch;
mod blocked;
mod boot;
mod hotplug;
mod memory;
mod module;
mod plan;
mod proof;
mod read;
mod reject;
mod rights;
mod share;
mod sizes;
mod stop;
mod wait;

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
    /// Tracepoints.
    Trace,
    /// The cgroup freezer.
    Freezer,
    /// A CPU that has not been online since boot.
    Spare,
}

impl Need {
    pub const ALL: &[Self] = &[
        Self::Cpus,
        Self::Hotplug,
        Self::Hold,
        Self::Module,
        Self::Msr,
        Self::Fault,
        Self::Trace,
        Self::Freezer,
        Self::Spare,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Cpus => "cpus",
            Self::Hotplug => "hotplug",
            Self::Hold => "hold",
            Self::Module => "module",
            Self::Msr => "msr",
            Self::Fault => "fault",
            Self::Trace => "trace",
            Self::Freezer => "freezer",
            Self::Spare => "spare",
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
            Self::Trace => exists(trace::TRACING, "tracefs"),
            Self::Spare => guest::offline()
                .is_empty()
                .then(|| "all CPUs are online".into()),
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
        boot::TESTS,
        module::TESTS,
    ]
    .into_iter()
    .flatten()
}
