// SPDX-License-Identifier: GPL-2.0

//! The catalogue's data and decoding, frequencies and energy.

use cpupeek_logic::catalogue::{Decode, Feature, Identity, Number, Vendor, Word, ENTRIES};
use cpupeek_logic::energy::{Accumulator, Unit};
use cpupeek_logic::frequency::{is_window, rate, window, Rate, Sample, Window, MAX_ERROR_PPM};
use std::collections::{HashMap, HashSet};

const TSC_KHZ: u32 = 2_000_000;

/// A CPU by its leaves; those beyond the highest answer with another leaf's data, as Intel's do.
fn cpuid(leaves: &[(u32, [u32; 4])]) -> impl FnMut(u32) -> [u32; 4] {
    let leaves: HashMap<u32, [u32; 4]> = leaves.iter().copied().collect();
    move |leaf| leaves.get(&leaf).copied().unwrap_or([u32::MAX; 4])
}

fn words(name: &[u8; 12]) -> [u32; 3] {
    let word = |at: usize| u32::from_le_bytes(name[at..at + 4].try_into().unwrap());
    [word(0), word(8), word(4)]
}

fn vendor_leaf(highest: u32, name: &[u8; 12]) -> [u32; 4] {
    let [b, c, d] = words(name);
    [highest, b, c, d]
}

#[test]
fn names_are_unique_and_fit_sysfs() {
    let mut seen = HashSet::new();
    for entry in ENTRIES {
        let name = entry.name.to_str().unwrap();
        assert!(seen.insert(name), "{name} twice");
        assert!(name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'));
        assert!(!["age_ms", "generation"].contains(&name), "{name} is taken");
        assert!(
            !entry.help.is_empty() && !entry.sources.is_empty(),
            "{name}"
        );
        for source in entry.sources {
            assert!(
                !source.manual.is_empty(),
                "{name} does not say where it comes from"
            );
        }
    }
}

#[test]
fn raw_counters_and_energy_are_for_root() {
    for entry in ENTRIES {
        let name = entry.name.to_str().unwrap();
        let derived = entry.sources.iter().all(|s| {
            !matches!(s.decode, Decode::Tsc | Decode::Energy)
                && s.decode
                    != Decode::Bits {
                        shift: 0,
                        width: 64,
                        valid: None,
                    }
        });
        let secret = !derived || ["smi", "vcpu_preempted"].contains(&name);
        assert_eq!(
            entry.access.mode(),
            if secret { 0o400 } else { 0o444 },
            "{name}"
        );
    }
}

/// Hypervisors' names are in EBX, ECX and EDX, and not in the vendors' order.
fn hypervisor_leaf(highest: u32, name: &[u8; 12]) -> [u32; 4] {
    let [b, d, c] = words(name);
    [highest, b, c, d]
}

#[test]
fn kvm_features_are_found_where_kvm_is() {
    let steal = Feature {
        leaf: 0x4000_0001,
        word: Word::Eax,
        bit: 5,
    };
    let kvm = b"KVMKVMKVM\0\0\0";
    let guest = (1, [0, 0, 1 << 31, 0]);
    let is_set = |leaves: &[(u32, [u32; 4])]| steal.is_set(&mut cpuid(leaves));
    let at = |base, features| {
        let leaf = hypervisor_leaf(base + 1, kvm);
        [guest, (base, leaf), (base + 1, [features, 0, 0, 0])]
    };
    assert!(is_set(&at(0x4000_0000, 1 << 5)));
    assert!(!is_set(&at(0x4000_0000, !(1 << 5))));
    // Old hosts do not say how many leaves there are.
    let old = (0x4000_0000, hypervisor_leaf(0, kvm));
    assert!(is_set(&[guest, old, (0x4000_0001, [1 << 5, 0, 0, 0])]));
    // As Hyper-V to its guest.
    let imitated = (0x4000_0000, hypervisor_leaf(0x4000_000a, b"Microsoft Hv"));
    let [_, kvm, features] = at(0x4000_0100, 1 << 5);
    assert!(is_set(&[guest, imitated, kvm, features]));
    // Another hypervisor, none, and a machine that answers anything.
    let other = (0x4000_0000, hypervisor_leaf(0x4000_0001, b"TCGTCGTCGTCG"));
    assert!(!is_set(&[guest, other, (0x4000_0001, [u32::MAX; 4])]));
    assert!(!is_set(&[(1, [0; 4]), kvm, features]));
    assert!(!is_set(&[guest]));
}

#[test]
fn identity_is_display_family_and_model() {
    let intel = vendor_leaf(0x20, b"GenuineIntel");
    let sapphire_rapids = Identity::new(&mut cpuid(&[(0, intel), (1, [0x000806f8, 0, 0, 0])]));
    assert_eq!(
        sapphire_rapids,
        Identity {
            vendor: Vendor::Intel,
            family: 6,
            model: 0x8f
        }
    );
    let amd = vendor_leaf(0x10, b"AuthenticAMD");
    let genoa = Identity::new(&mut cpuid(&[(0, amd), (1, [0x00a10f11, 0, 0, 0])]));
    assert_eq!(
        genoa,
        Identity {
            vendor: Vendor::Amd,
            family: 0x19,
            model: 0x11
        }
    );
    let [b, c, d] = words(b"HygonGenuine");
    assert_eq!(Vendor::from_cpuid(b, c, d), Vendor::Amd);
    let [b, c, d] = words(b"CentaurHauls");
    assert_eq!(Vendor::from_cpuid(b, c, d), Vendor::Other);
}

#[test]
fn a_feature_beyond_the_highest_leaf_is_not_there() {
    let feature = Feature {
        leaf: 6,
        word: Word::Ecx,
        bit: 0,
    };
    assert!(feature.is_set(&mut cpuid(&[(0, [6, 0, 0, 0]), (6, [0, 0, 1, 0])])));
    assert!(!feature.is_set(&mut cpuid(&[(0, [6, 0, 0, 0]), (6, [1, 1, 2, 1])])));
    assert!(!feature.is_set(&mut cpuid(&[(0, [5, 0, 0, 0])])));
    let extended = Feature {
        leaf: 0x8000_0007,
        word: Word::Edx,
        bit: 14,
    };
    assert!(!extended.is_set(&mut cpuid(&[(0x8000_0000, [0, 0, 0, 0])])));
    assert!(!extended.is_set(&mut cpuid(&[(0x8000_0000, [0x8000_0006, 0, 0, 0])])));
}

#[test]
fn values_are_decoded_as_the_manuals_say() {
    let find = |name: &str, source: usize| {
        let entry = ENTRIES
            .iter()
            .find(|e| e.name.to_str() == Ok(name))
            .unwrap();
        entry.sources[source].decode
    };
    let cases = [
        (
            "cpu_thermal_margin",
            0,
            0x8823_0000,
            0,
            Some(Number::Unsigned(0x23)),
        ),
        // Seven bits, not six; and only with the valid bit.
        (
            "cpu_thermal_margin",
            0,
            0x887f_0000,
            0,
            Some(Number::Unsigned(127)),
        ),
        ("cpu_thermal_margin", 0, 0x0823_0000, 0, None),
        (
            "temp_input",
            0,
            0x8823_0000,
            0x0064_0000,
            Some(Number::Signed(65_000)),
        ),
        (
            "temp_input",
            0,
            0x887f_0000,
            0x0064_0000,
            Some(Number::Signed(-27_000)),
        ),
        ("temp_input", 0, 0x0823_0000, 0x0064_0000, None),
        (
            "thermal_throttle",
            0,
            0x8823_0003,
            0,
            Some(Number::Unsigned(1)),
        ),
        ("base_ratio", 0, 0x8000_1a00, 0, Some(Number::Unsigned(26))),
        (
            "base_ratio",
            1,
            0x8000_0000_4909_0898,
            0,
            Some(Number::Unsigned(38)),
        ),
        ("base_ratio", 1, 0x98, 0, None),
        (
            "max_ratio",
            0,
            0x2426_2728_2a2a_2a2a,
            0,
            Some(Number::Unsigned(42)),
        ),
        (
            "cur_ratio",
            0,
            0x1f40_0000_1c00,
            0,
            Some(Number::Unsigned(28)),
        ),
        (
            "smi",
            0,
            0xffff_ffff_0000_0007,
            0,
            Some(Number::Unsigned(7)),
        ),
        ("aperf", 0, u64::MAX, 0, Some(Number::Unsigned(u64::MAX))),
    ];
    for (name, source, value, constant, expected) in cases {
        assert_eq!(
            find(name, source).number(value, constant),
            expected,
            "{name}"
        );
    }
}

#[test]
fn atoms_with_other_energy_units_are_left_out() {
    let intel = |model| Identity {
        vendor: Vendor::Intel,
        family: 6,
        model,
    };
    assert!(intel(0x37).counts_energy_otherwise());
    assert!(!intel(0x8f).counts_energy_otherwise());
}

#[test]
fn server_dram_has_a_unit_of_its_own() {
    let unit = |name: &str, model| {
        let entry = ENTRIES
            .iter()
            .find(|e| e.name.to_str() == Ok(name))
            .unwrap();
        entry.sources[0].fixed_unit(Identity {
            vendor: Vendor::Intel,
            family: 6,
            model,
        })
    };
    assert_eq!(unit("energy_dram_uj", 0x3f), Some(16));
    assert_eq!(unit("energy_dram_uj", 0x8f), None);
    assert_eq!(unit("energy_pkg_uj", 0x3f), None);
}

/// The counters of a CPU that runs at `khz` all the time, read at the given cycle, where the reads
/// of APERF and MPERF are through after `first` and `second` further cycles.
fn sample(khz: u64, at: u64, first: u64, second: u64) -> Sample {
    Sample {
        tsc: at,
        aperf: u64::try_from(u128::from(at + first) * u128::from(khz) / u128::from(TSC_KHZ))
            .unwrap(),
        mperf: at + first + second,
        read: first + second,
    }
}

#[test]
fn a_delayed_read_never_makes_an_absurd_frequency() {
    let mut state = 7u64;
    let mut delay = move || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        // 0.5 to 300 us.
        1_000 + (state >> 33) % 599_000
    };
    for i in 0..10_000 {
        let start = 1_000_000 + i * 77_777;
        let old = sample(3_000_000, start, delay(), delay());
        let apart = window(old.read, TSC_KHZ);
        let mut new = sample(3_000_000, start + apart, delay(), delay());
        // The second reading may want a longer window than the first; then there is none yet.
        if !is_window(&old, &new, TSC_KHZ, u64::MAX) {
            let apart = window(new.read, TSC_KHZ);
            new = sample(3_000_000, start + apart, 1_000, new.read - 1_000);
        }
        assert!(is_window(&old, &new, TSC_KHZ, u64::MAX));
        let rate = rate(&old, &new, TSC_KHZ).frequency;
        let rate = rate.expect("a window that suits has a value");
        assert!(rate.error_ppm <= MAX_ERROR_PPM);
        let off = rate.khz.abs_diff(3_000_000);
        assert!(
            off * 1_000_000 <= rate.error_ppm * 3_000_000 + 1_000_000,
            "{rate:?}"
        );
    }
}

#[test]
fn a_window_that_is_too_short_or_too_long_is_none() {
    let old = sample(3_000_000, 1_000_000, 100, 100);
    let ms = u64::from(TSC_KHZ);
    for (apart, longest, expected) in [
        (ms - 1, u64::MAX, false),
        (ms, u64::MAX, true),
        (10 * ms, 10 * ms, true),
        (10 * ms + 1, 10 * ms, false),
    ] {
        let new = sample(3_000_000, old.tsc + apart, 100, 100);
        assert_eq!(is_window(&old, &new, TSC_KHZ, longest), expected, "{apart}");
    }
    let slow = sample(3_000_000, old.tsc + ms, 100, 100_000);
    assert!(
        !is_window(&old, &slow, TSC_KHZ, u64::MAX),
        "reading took a twentieth"
    );
    assert!(window(0, TSC_KHZ) >= ms);
    assert!(window(100_000, TSC_KHZ) >= 10_000_000);
}

#[test]
fn an_idle_cpu_has_a_residency_and_a_value_only_if_it_ran_long_enough() {
    let old = Sample {
        tsc: 0,
        aperf: 0,
        mperf: 0,
        read: 500,
    };
    let new = Sample {
        tsc: 1_000_000_000,
        aperf: 75_000_000,
        mperf: 50_000_000,
        read: 500,
    };
    let result = rate(&old, &new, TSC_KHZ);
    let frequency = Rate {
        khz: 3_000_000,
        error_ppm: 10,
    };
    assert_eq!(result.frequency, Some(frequency));
    assert_eq!(result.permille, Some(50));

    let hardly = Sample {
        mperf: 40_000,
        aperf: 60_000,
        ..new
    };
    let result = rate(&old, &hardly, TSC_KHZ);
    assert_eq!(
        result.frequency, None,
        "500 of 40,000 cycles are over a percent"
    );
    assert_eq!(result.permille, Some(0));

    let asleep = Sample {
        mperf: 0,
        aperf: 0,
        ..new
    };
    let result = rate(&old, &asleep, TSC_KHZ);
    assert_eq!((result.frequency, result.permille), (None, Some(0)));

    let backwards = Sample {
        mperf: u64::MAX,
        ..new
    };
    assert_eq!(rate(&old, &backwards, TSC_KHZ), Window::default());
    assert_eq!(rate(&old, &old, TSC_KHZ), Window::default());
}

#[test]
fn long_windows_do_not_overflow() {
    let old = Sample {
        tsc: 0,
        aperf: 0,
        mperf: 0,
        read: 500,
    };
    let day = 86_400_000 * u64::from(TSC_KHZ);
    let new = Sample {
        tsc: day,
        aperf: day / 2 * 3,
        mperf: day,
        read: 500,
    };
    let result = rate(&old, &new, TSC_KHZ);
    assert_eq!(result.frequency.map(|rate| rate.khz), Some(3_000_000));
    assert_eq!(result.permille, Some(1000));
}

#[test]
fn microjoules_are_exact() {
    let unit = Unit::from_register(0x000a_0e03).unwrap();
    for count in [0u64, 1, 16_383, 16_384, 123_456_789, 1 << 40, 1 << 50] {
        let exact = (u128::from(count) * 1_000_000) >> 14;
        assert_eq!(u128::from(unit.microjoules(count)), exact);
    }
    assert_eq!(Unit::from_register(0), None);
    assert_eq!(Unit::from_register(0x000a_0003), None);
    assert_eq!(
        Unit::from_register(0x000a_1003),
        Some(Unit::from_exponent(16))
    );
}

#[test]
fn energy_is_exact_over_wraps() {
    let unit = Unit::from_exponent(14);
    let (mut energy, mut true_count, mut now) = (Accumulator::default(), 0u64, 0u64);
    energy.update(0xffff_f000, now, unit);
    let first = 0xffff_f000u64;
    for _ in 0..20 {
        now += unit.shortest_wrap_ms() / 2;
        true_count += 1 << 30;
        energy.update((first + true_count) as u32, now, unit);
        assert_eq!(energy.take(unit), Some(unit.microjoules(true_count)));
    }
    assert!(true_count >> 32 >= 4, "several wraps");
}

#[test]
fn a_reading_that_comes_late_counts_nothing() {
    let unit = Unit::from_exponent(14);
    let mut energy = Accumulator::default();
    // Two CPUs of a package, read at the same time, tell of it one after the other.
    for (counter, now) in [
        (1000, 0),
        (990, 0),
        (17_384, 1000),
        (17_300, 1000),
        (17_384, 1001),
        (33_768, 2000),
    ] {
        energy.update(counter, now, unit);
    }
    assert_eq!(energy.take(unit), Some(2_000_000));
    // Over a wrap too.
    let mut energy = Accumulator::default();
    for (counter, now) in [
        (u32::MAX, 0),
        (16_383, 1000),
        (u32::MAX - 5, 1000),
        (32_767, 2000),
    ] {
        energy.update(counter, now, unit);
    }
    assert_eq!(energy.take(unit), Some(2_000_000));
}

#[test]
fn missed_energy_is_said_once() {
    let unit = Unit::from_exponent(16);
    let mut energy = Accumulator::default();
    assert_eq!(energy.take(unit), None);
    energy.update(5, 1000, unit);
    assert_eq!(energy.take(unit), Some(0));
    energy.update(65_541, 1100, unit);
    assert_eq!(energy.take(unit), Some(1_000_000));
    energy.update(9, 1100 + unit.shortest_wrap_ms(), unit);
    assert_eq!(energy.take(unit), None);
    assert_eq!(energy.take(unit), Some(0));
    energy.update(9 + 65_536, 1200 + unit.shortest_wrap_ms(), unit);
    assert_eq!(energy.take(unit), Some(1_000_000));
    // 2^32 units of 15.3 uJ are 65,536 J, which 2 kW use in 32.8 s.
    assert_eq!(unit.shortest_wrap_ms(), 32_768);
}
