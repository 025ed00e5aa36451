// SPDX-License-Identifier: GPL-2.0

//! Every value is there where it should be, says what the registers mean, and is shown to whom it
//! should be.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use cpupeek_selftests::device::{Device, Op};
use cpupeek_selftests::guest;
use cpupeek_selftests::sys::{self, Errno};
use cpupeek_selftests::tests::Env;

use super::{set_unit, tests, On};
use crate::control::Control;
use crate::expect::{self, Expected};
use crate::files::{self, number, try_number};
use crate::machine::{machine, Register};

tests! { "decode";
    live_where_it_should_be: On::Machine, [],
    numbers: On::Machine, [],
    counters: On::Machine, [],
    frequencies: On::Registers(&[0xe7, 0xe8]), [],
    energies: On::Machine, [],
    cores_differ: On::Hybrid, [],
    no_unit_no_energy: On::NoEnergy, [],
    no_unit_no_energy_any_more: On::Energy, [Module],
    not_valid_is_no_data: On::Registers(&[0x19c, 0x1a2]), [],
    a_fault_is_an_error: On::Registers(&[0x19c]), [],
    one_value_for_a_package: On::Machine, [],
    energies_of_dies_are_not_mixed: On::Dies, [],
    modes: On::Machine, [],
}

fn live_where_it_should_be(_: &Env) {
    let device = Device::open();
    for cpu in guest::online() {
        let expected = expect::files(&device, cpu);
        let names: Vec<_> = expected.keys().copied().collect();
        let found: Vec<_> = files::names(cpu).into_iter().collect();
        println!("CPU {cpu}: {}", found.join(" "));
        assert_eq!(found, names, "CPU {cpu}");
    }
}

fn numbers(_: &Env) {
    let device = Device::open();
    files::expire();
    for cpu in guest::online() {
        for (name, expected) in expect::files(&device, cpu) {
            if let Expected::Number(expected) = expected {
                assert_eq!(number(cpu, name), expected, "{name} of CPU {cpu}");
            }
        }
    }
}

/// The register now, as it is; with it, the CPU's time.
fn raw(device: &Device, cpu: u32, register: u32) -> (u64, u64) {
    let op = device.read(Op::msr(cpu, register));
    assert_eq!(op.result(), Ok(()), "{op:?}");
    (op.value(), op.tsc)
}

/// A register that every CPU has, for the time.
const APIC_BASE: u32 = 0x1b;

fn counters(_: &Env) {
    let device = Device::open();
    let control = Control::new();
    // What counts with the time is between what the register says before and after.
    let raw_now = |cpu, expected| match expected {
        Expected::Tsc => Some(raw(&device, cpu, APIC_BASE).1),
        Expected::Counter(register) if !is_step(cpu, register) => {
            Some(raw(&device, cpu, register).0)
        }
        _ => None,
    };
    files::expire();
    for cpu in guest::online() {
        let all = expect::files(&device, cpu).into_iter();
        let before: Vec<_> = all
            .filter_map(|(name, expected)| Some((name, expected, raw_now(cpu, expected)?)))
            .collect();
        for &(name, expected, before) in &before {
            let value = number(cpu, name);
            let after = raw_now(cpu, expected).expect("as before");
            assert!(
                (i128::from(before)..=after.into()).contains(&value),
                "{name} of CPU {cpu}: {value} is not between {before} and {after}"
            );
        }
        for (name, expected) in expect::files(&device, cpu) {
            let Expected::Counter(register) = expected else {
                continue;
            };
            let Some(Register::Step { start, step }) = machine().register(cpu, register) else {
                continue;
            };
            let reads = control.reads(cpu, register);
            let value = files::fresh(cpu, name);
            assert_eq!(control.reads(cpu, register), reads + 1, "{name}");
            // Those that step are 32 bits wide, and wrap here.
            let due = start.wrapping_add(step.wrapping_mul(reads)) as u32;
            assert_eq!(value, due.into(), "{name} of CPU {cpu}");
        }
    }
}

fn is_step(cpu: u32, register: u32) -> bool {
    matches!(
        machine().register(cpu, register),
        Some(Register::Step { .. })
    )
}

fn rate(cpu: u32, register: u32) -> f64 {
    match machine().register(cpu, register) {
        Some(Register::Rate(rate)) => rate as f64,
        other => panic!("{register:#x} is {other:?}"),
    }
}

fn frequencies(_: &Env) {
    const WINDOW: Duration = Duration::from_millis(1200);
    let device = Device::open();
    let tsc_khz = f64::from(device.info().tsc_khz);
    let cpus: Vec<_> = guest::online()
        .into_iter()
        .filter(|&cpu| expect::files(&device, cpu).contains_key("freq_khz"))
        .collect();
    assert!(!cpus.is_empty());
    for &cpu in &cpus {
        files::patient_number(cpu, "freq_khz");
    }
    let first: BTreeMap<_, _> = cpus
        .iter()
        .map(|&cpu| (cpu, raw(&device, cpu, 0xe7)))
        .collect();
    // The next windows begin with the samples that were just taken, or later.
    sleep(WINDOW);
    for &cpu in &cpus {
        let (khz, ppm) = (
            files::patient_number(cpu, "freq_khz") as f64,
            number(cpu, "freq_error_ppm"),
        );
        let permille = number(cpu, "c0_permille") as f64;
        let truth = rate(cpu, 0xe8) / rate(cpu, 0xe7) * tsc_khz;
        // Time that stands still between counters is the described machine's own error.
        let burst = 2.0 * f64::from(machine().burst_us) / WINDOW.as_micros() as f64;
        let off = (khz - truth).abs() / truth;
        println!(
            "CPU {cpu}: {khz} kHz is off by {:.0} ppm, error {ppm} ppm",
            off * 1e6
        );
        assert!((0..=10_000).contains(&ppm), "{ppm} ppm");
        assert!(
            off <= ppm as f64 / 1e6 + burst + 1.0 / truth,
            "not {truth} kHz"
        );

        let (mperf, tsc) = raw(&device, cpu, 0xe7);
        let (mperf0, tsc0) = first[&cpu];
        let due = 1000.0 * (mperf - mperf0) as f64 / (tsc - tsc0) as f64;
        println!("CPU {cpu}: runs {permille} of {due:.1} permille");
        assert!(
            (permille - due.min(1000.0)).abs() <= 20.0,
            "{permille} of {due}"
        );
    }
}

fn energies(_: &Env) {
    let device = Device::open();
    let mut all = Vec::new();
    for cpu in guest::online() {
        for (name, expected) in expect::files(&device, cpu) {
            if let Expected::Energy { register, exponent } = expected {
                all.push((cpu, name, register, exponent));
            }
        }
    }
    // The counters before, the values, and the counters after. A value may be as old as the first
    // one that is read, because counters are read together.
    let sample = || -> Vec<_> {
        files::expire();
        let counters = || -> Vec<_> {
            all.iter()
                .map(|&(cpu, _, register, _)| raw(&device, cpu, register).0 as u32)
                .collect()
        };
        let before = counters();
        let values: Vec<_> = all
            .iter()
            .map(|&(cpu, name, ..)| number(cpu, name))
            .collect();
        let bounds = before.into_iter().zip(counters());
        bounds.zip(values).collect()
    };
    let first = sample();
    sleep(Duration::from_millis(200));
    let samples = first.into_iter().zip(sample());
    for (&(cpu, name, _, exponent), (first, second)) in all.iter().zip(samples) {
        let uj = |from: u32, to: u32| {
            let units = i128::from(to.wrapping_sub(from));
            (units * 1_000_000) >> exponent
        };
        let ((before0, after0), energy0) = first;
        let ((before1, after1), energy1) = second;
        let (least, most) = (uj(after0, before1), uj(before0, after1));
        let used = energy1 - energy0;
        println!("CPU {cpu}: {name} {used} uJ, between {least} and {most}");
        // Each of both values has been rounded down.
        assert!(
            (least - 1..=most + 1).contains(&used),
            "{name} of CPU {cpu}"
        );
    }
}

fn cores_differ(_: &Env) {
    let all = guest::online();
    let (first, last) = (files::names(all[0]), files::names(all[all.len() - 1]));
    assert_ne!(first, last);
    assert!(first.contains("pperf") && !last.contains("pperf"));
}

fn has_energy(cpu: u32) -> bool {
    files::names(cpu)
        .iter()
        .any(|name| name.starts_with("energy"))
}

fn no_unit_no_energy(_: &Env) {
    assert!(!guest::online().into_iter().any(has_energy));
}

fn no_unit_no_energy_any_more(env: &Env) {
    let control = Control::new();
    assert!(guest::online().into_iter().all(has_energy));
    set_unit(&control, env, 0);
    no_unit_no_energy(env);
    control.reset();
    reload(env);
    assert!(guest::online().into_iter().all(has_energy));
}

/// Loads the module again, which finds out anew what there is.
pub fn reload(env: &Env) {
    assert_eq!(sys::unload_module(guest::MODULE), Ok(()));
    assert_eq!(sys::load_module(&env.module, ""), Ok(()));
    files::be_patient();
}

const NO_DATA: Errno = Errno(libc::ENODATA);

fn not_valid_is_no_data(_: &Env) {
    let control = Control::new();
    let cpus = guest::online();
    let (cpu, other) = (cpus[0], cpus[cpus.len() - 1]);
    let Some(Register::Constant(valid)) = machine().register(cpu, 0x19c) else {
        panic!("described as a constant");
    };
    let (margin, temperature) = (
        files::fresh(cpu, "cpu_thermal_margin"),
        number(cpu, "temp_input"),
    );
    control.value(cpu, 0x19c, valid & !(1 << 31));
    files::expire();
    assert_eq!(try_number(cpu, "cpu_thermal_margin"), Err(NO_DATA));
    assert_eq!(try_number(cpu, "temp_input"), Err(NO_DATA));
    // That bit is about the temperature alone, and about this CPU's.
    number(cpu, "thermal_throttle");
    number(other, "cpu_thermal_margin");
    control.value(cpu, 0x19c, valid);
    files::expire();
    assert_eq!(number(cpu, "cpu_thermal_margin"), margin);
    assert_eq!(number(cpu, "temp_input"), temperature);
    // Hotter than the limit, as far as the register goes, and colder than ice.
    control.value(cpu, 0x19c, 0x8800_0000 | 0x7f << 16);
    files::expire();
    assert_eq!(number(cpu, "cpu_thermal_margin"), 0x7f);
    assert_eq!(
        number(cpu, "temp_input"),
        temperature + (margin - 0x7f) * 1000
    );
}

fn a_fault_is_an_error(_: &Env) {
    let control = Control::new();
    let cpu = guest::online()[0];
    control.fault(cpu, 0x19c);
    files::expire();
    for name in ["cpu_thermal_margin", "temp_input", "thermal_throttle"] {
        let error = try_number(cpu, name).expect_err(name);
        assert!([NO_DATA, Errno(libc::EIO)].contains(&error), "{error:?}");
    }
    // The others do not suffer.
    number(cpu, "tsc");
}

/// A CPU's die; there is one package.
fn die(cpu: u32) -> String {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/die_id");
    std::fs::read_to_string(file).expect("the kernel knows")
}

/// Energy is counted by each die: what one has used is not what another has, whoever is read after
/// whom.
fn energies_of_dies_are_not_mixed(_: &Env) {
    const NAMES: &[&str] = &["energy_pkg_uj", "energy_core_uj", "energy_dram_uj"];
    let cpus = guest::online();
    assert_ne!(die(cpus[0]), die(cpus[cpus.len() - 1]), "nothing is proven");
    for name in NAMES {
        for &cpu in cpus.iter().chain(&cpus) {
            files::expire();
            // The counters stand still, at another value in each die.
            assert_eq!(number(cpu, name), 0, "{name} of CPU {cpu}");
        }
    }
}

/// Values of a package or of this whole machine, which has one.
fn one_value_for_a_package(_: &Env) {
    const NAMES: &[&str] = &["base_ratio", "max_ratio", "energy_pkg_uj", "energy_dram_uj"];
    let cpus = guest::online();
    if cpus.iter().any(|&cpu| die(cpu) != die(cpus[0])) {
        return;
    }
    files::expire();
    files::set("cache_ms", 60_000);
    for name in NAMES {
        let start = Instant::now();
        let read = |&cpu: &u32| Some((cpu, try_number(cpu, name).ok()?));
        let found: Vec<_> = cpus.iter().filter_map(read).collect();
        assert!(
            start.elapsed() < Duration::from_secs(50),
            "still one period"
        );
        assert!(
            found.iter().all(|(_, value)| *value == found[0].1),
            "{name}: {found:?}"
        );
    }
}

fn modes(_: &Env) {
    let raw = [
        "tsc",
        "aperf",
        "mperf",
        "pperf",
        "smi",
        "ptsc",
        "irperf",
        "vcpu_preempted",
    ];
    let cpu = guest::online()[0];
    let names = files::all_names(cpu);
    for name in &names {
        let mode = std::fs::metadata(files::path(cpu, name)).unwrap().mode() & 0o7777;
        let root_only = raw.contains(&name.as_str()) || name.starts_with("energy");
        assert_eq!(mode, if root_only { 0o400 } else { 0o444 }, "{name}");
    }
    sys::fork(|| {
        sys::become_user(65534);
        for name in &names {
            let allowed = !raw.contains(&name.as_str()) && !name.starts_with("energy");
            match try_number(cpu, name) {
                Ok(_) | Err(NO_DATA) => assert!(allowed, "{name} is for root only"),
                Err(error) => assert_eq!((error, allowed), (Errno(libc::EACCES), false), "{name}"),
            }
        }
    })
    .expect_success();
}
