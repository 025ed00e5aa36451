// SPDX-License-Identifier: GPL-2.0

//! The device's attributes: what it has done, and its settings.

use super::{
    DeviceFile,
    Shared, //
};
#[cfg(CONFIG_RUST_DEBUG_ASSERTIONS)]
use crate::kapi::call_group::longest;
use crate::{
    kapi::misc::Attribute,
    stats::Counter, //
};

/// A sum of counters.
macro_rules! counter {
    ($name:literal, $($counter:ident)+) => {
        Attribute::ro($name, |shared: &Shared| {
            0u64$(.wrapping_add(shared.engine.stats.get(Counter::$counter)))+
        })
    };
}

/// All of them. See Documentation/ABI/testing/sysfs-class-misc-cpupeek.
pub(super) const ALL: &[Attribute<DeviceFile>] = &[
    counter!(c"calls", Calls LocalReads),
    counter!(c"ops", Ops LocalReads),
    counter!(c"interrupts", Interrupts),
    counter!(c"local_ops", LocalOps LocalReads),
    counter!(c"rounds", Rounds),
    counter!(c"sleeps", Sleeps),
    counter!(c"spins", Spins),
    counter!(c"preempted", Preempted),
    counter!(c"timeouts", Timeouts),
    counter!(c"losses", Losses),
    counter!(c"refused_registers", RefusedRegisters),
    counter!(c"refused_cpus", RefusedCpus),
    counter!(c"throttled", Throttled),
    counter!(c"allocations", Allocations),
    counter!(c"abandoned", Abandoned),
    counter!(c"refreshes", Refreshes),
    counter!(c"windows", Windows),
    counter!(c"samples", Samples),
    counter!(c"skipped_samples", SkippedSamples),
    Attribute::ro(c"samplers", |shared: &Shared| shared.samplers.open()),
    Attribute::rw(
        c"sampler_permille",
        |shared: &Shared| shared.samplers.permille().into(),
        |shared: &Shared, permille| shared.samplers.set_permille(permille),
    ),
    Attribute::ro(c"cpu_words", |shared: &Shared| shared.cpu_words.live()),
    Attribute::ro(c"cpu_word_writes", |shared: &Shared| {
        shared.cpu_words.writes()
    }),
    Attribute::ro(c"cpu_word_faults", |shared: &Shared| {
        shared.cpu_words.faults()
    }),
    #[cfg(CONFIG_RUST_DEBUG_ASSERTIONS)]
    Attribute::ro(c"longest_round_ops", |_| longest::ops()),
    #[cfg(CONFIG_RUST_DEBUG_ASSERTIONS)]
    Attribute::ro(c"longest_round_ns", |_| longest::ns()),
    Attribute::rw(
        c"read_timeout_ms",
        |shared: &Shared| shared.engine.read_timeout_ms().into(),
        |shared: &Shared, ms| shared.engine.set_read_timeout_ms(ms),
    ),
    Attribute::rw(
        c"spin_min_us",
        |shared: &Shared| shared.engine.spin_us().0.into(),
        |shared: &Shared, us| shared.engine.set_spin_min_us(us),
    ),
    Attribute::rw(
        c"spin_max_us",
        |shared: &Shared| shared.engine.spin_us().1.into(),
        |shared: &Shared, us| shared.engine.set_spin_max_us(us),
    ),
    Attribute::rw(
        c"spin_preempted",
        |shared: &Shared| shared.engine.spin_preempted().into(),
        |shared: &Shared, on| shared.engine.set_spin_preempted(on),
    ),
    Attribute::ro(c"allow_generation", |shared: &Shared| {
        shared.policy.generation()
    }),
    Attribute::ro(c"allow_ranges", |shared: &Shared| {
        shared
            .policy
            .allowed()
            .map_or(0, |list| list.ranges().len() as u64)
    }),
    Attribute::rw(
        c"unprivileged_permille",
        |shared: &Shared| shared.policy.users.permille().into(),
        |shared: &Shared, permille| shared.policy.users.set_permille(permille),
    ),
    // Reading a file of a CPU has its snapshot taken if it is old; reading this has all of them taken.
    Attribute::ro(c"refresh", |shared: &Shared| {
        shared.cache.refresh_all().unwrap_or(0)
    }),
    Attribute::rw(
        c"cache_ms",
        |shared: &Shared| shared.cache.cache_ms(),
        |shared: &Shared, ms| shared.cache.set_cache_ms(ms),
    ),
    Attribute::rw(
        c"energy_hold_s",
        |shared: &Shared| shared.cache.energy_hold_s(),
        |shared: &Shared, seconds| shared.cache.set_energy_hold_s(seconds),
    ),
    Attribute::rw(
        c"refresh_isolated",
        |shared: &Shared| shared.cache.refresh_isolated(),
        |shared: &Shared, on| shared.cache.set_refresh_isolated(on),
    ),
];
