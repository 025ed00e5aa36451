// SPDX-License-Identifier: GPL-2.0

//! The device's attributes: what it has done, and its settings.

use super::{
    DeviceFile,
    Shared, //
};
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
