// SPDX-License-Identifier: GPL-2.0

//! Energy is neither lost nor made up.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use cpupeek_selftests::device::Device;
use cpupeek_selftests::guest;
use cpupeek_selftests::sys::Errno;
use cpupeek_selftests::tests::Env;
use cpupeek_selftests::util::Random;

use super::decode::reload;
use super::{set_unit, tests, On};
use crate::control::{Control, ALL};
use crate::expect::{self, Expected};
use crate::files::{self, number, try_number};
use crate::machine::machine;

tests! { "energy";
    exact_over_wraps_and_offline: On::Energy, [Hotplug Module],
    counted_while_nobody_reads: On::Once, [Module],
    a_lapse_is_told_once: On::Once, [Module],
}

/// Registers of energies, with names and what they count in (2^-n J).
fn counters() -> BTreeMap<u32, (&'static str, u32)> {
    let device = Device::open();
    let all = guest::online().into_iter();
    let energies = all.flat_map(|cpu| expect::files(&device, cpu));
    energies
        .filter_map(|(name, expected)| match expected {
            // The hypervisor itself has some, which read 0.
            Expected::Energy { register, exponent } if machine().any(&[register], |_| true) => {
                Some((register, (name, exponent)))
            }
            _ => None,
        })
        .collect()
}

fn uj(units: u64, exponent: u32) -> i128 {
    (i128::from(units) * 1_000_000) >> exponent
}

fn exact_over_wraps_and_offline(env: &Env) {
    const ROUNDS: u32 = 10;
    let control = Control::new();
    let mut random = Random::new(env.seed);
    let counters = counters();
    assert!(!counters.is_empty());
    reload(env);
    let cpus = guest::online();
    let last = cpus[cpus.len() - 1];
    let mut counted: BTreeMap<u32, u64> = BTreeMap::new();
    let start = 0xffff_fff0;
    for round in 0..=ROUNDS {
        // In some rounds, a CPU is away while the counters go on.
        let away = round % 4 == 2;
        if away {
            guest::set_online(last, false);
        }
        for &register in counters.keys() {
            let counted = counted.entry(register).or_default();
            if round > 0 {
                // Up to seven eighths of a wrap: what looks like less than an eighth backwards, so soon
                // after another reading, is one that another CPU of the package took earlier.
                *counted += (1 << 31) + random.below((1 << 31) - (1 << 29));
            }
            let value = (start + *counted) & 0xffff_ffff;
            control.value(ALL, register, value);
        }
        if away {
            guest::set_online(last, true);
        }
        files::expire();
        for &cpu in &cpus {
            for (register, &(name, exponent)) in &counters {
                let due = uj(counted[register], exponent);
                assert_eq!(
                    number(cpu, name),
                    due,
                    "{name} of CPU {cpu} in round {round}"
                );
            }
        }
    }
    for (register, (name, exponent)) in counters {
        let wraps = counted[&register] >> 32;
        println!(
            "{name}: {} uJ in {wraps} wraps",
            uj(counted[&register], exponent)
        );
        assert!(wraps >= 3);
    }
}

/// The package's counter on Intel CPUs, on which these tests run.
const PKG: u32 = 0x611;
fn counted_while_nobody_reads(env: &Env) {
    const EXPONENT: u32 = 19;
    const WRAP: Duration = Duration::from_millis(4300);
    let control = Control::new();
    set_unit(&control, env, u64::from(EXPONENT) << 8);
    // Just below 2 kW, which is all that a package may need.
    control.rate(ALL, PKG, (1 << 32) * 1000 / WRAP.as_millis() as u64);
    let device = Device::open();
    let cpu = guest::online()[0];
    let raw = || device.msr(cpu, PKG) as u32;

    let before = raw();
    let energy0 = number(cpu, "energy_pkg_uj");
    let mut last = raw();
    let late = u64::from(last.wrapping_sub(before));
    let mut counted = 0;
    let until = Instant::now() + WRAP * 3 + WRAP / 8;
    // The registers are read past the cache.
    while Instant::now() < until {
        sleep(Duration::from_millis(100));
        let now = raw();
        counted += u64::from(now.wrapping_sub(last));
        last = now;
    }
    let refreshes = guest::attribute("refreshes");
    files::expire();
    let energy1 = number(cpu, "energy_pkg_uj");
    let early = u64::from(raw().wrapping_sub(last));
    let (least, most) = (uj(counted, EXPONENT), uj(late + counted + early, EXPONENT));
    let used = energy1 - energy0;
    println!(
        "{used} uJ, between {least} and {most}; {refreshes} refreshes; {} wraps",
        counted >> 32
    );
    assert!(counted >> 32 >= 3);
    assert!((least - 1..=most + 1).contains(&used));
}

fn a_lapse_is_told_once(env: &Env) {
    const EXPONENT: u32 = 19;
    let shortest_wrap = Duration::from_millis(4096);
    let control = Control::new();
    let cpu = guest::online()[0];
    loop {
        set_unit(&control, env, u64::from(EXPONENT) << 8);
        files::set("energy_hold_s", 0);
        control.value(ALL, PKG, 5);
        let start = Instant::now();
        match files::try_fresh(cpu, "energy_pkg_uj") {
            Ok(energy) => assert_eq!(energy, 0),
            // That of the test before.
            Err(error) => {
                assert_eq!(error, Errno(libc::ENODATA));
                continue;
            }
        }
        control.value(ALL, PKG, 1005);
        let energy = files::try_fresh(cpu, "energy_pkg_uj");
        // Where everything is slow, it may have lapsed already.
        if start.elapsed() < shortest_wrap {
            assert_eq!(energy, Ok(uj(1000, EXPONENT)));
            break;
        }
    }

    sleep(shortest_wrap + Duration::from_millis(100));
    control.value(ALL, PKG, 7000);
    assert_eq!(try_number(cpu, "energy_pkg_uj"), Err(Errno(libc::ENODATA)));
    let start = Instant::now();
    let again = try_number(cpu, "energy_pkg_uj");
    control.value(ALL, PKG, 7777);
    let more = files::try_fresh(cpu, "energy_pkg_uj");
    if start.elapsed() < shortest_wrap {
        assert_eq!(again, Ok(0), "it starts again");
        assert_eq!(more, Ok(uj(777, EXPONENT)));
    }
}
