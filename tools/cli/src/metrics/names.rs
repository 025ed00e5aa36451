// SPDX-License-Identifier: GPL-2.0

//! What the named values are called as metrics, by Prometheus's conventions: base units, and the unit
//! at the end of the name.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
}

/// A metric of a named value.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name of the value.
    pub value: &'static str,
    /// Name of the family, without the `_total` of a counter's samples.
    pub family: &'static str,
    /// What a unit of the value is in the metric's unit: ten to this power.
    pub power: i32,
    pub kind: Kind,
    /// At the end of `family`; empty for what is merely counted.
    pub unit: &'static str,
}

const fn metric(
    value: &'static str,
    family: &'static str,
    unit: &'static str,
    power: i32,
    kind: Kind,
) -> Metric {
    Metric {
        value,
        family,
        power,
        kind,
        unit,
    }
}

use Kind::{Counter, Gauge};

/// All of them.
pub const METRICS: &[Metric] = &[
    metric("tsc", "cpupeek_tsc_cycles", "cycles", 0, Counter),
    metric("aperf", "cpupeek_aperf_cycles", "cycles", 0, Counter),
    metric("mperf", "cpupeek_mperf_cycles", "cycles", 0, Counter),
    metric("pperf", "cpupeek_pperf_cycles", "cycles", 0, Counter),
    metric(
        "smi",
        "cpupeek_system_management_interrupts",
        "",
        0,
        Counter,
    ),
    metric("ptsc", "cpupeek_ptsc_seconds", "seconds", -8, Counter),
    metric(
        "irperf",
        "cpupeek_retired_instructions",
        "instructions",
        0,
        Counter,
    ),
    metric("freq_khz", "cpupeek_frequency_hertz", "hertz", 3, Gauge),
    metric(
        "freq_error_ppm",
        "cpupeek_frequency_error_ratio",
        "ratio",
        -6,
        Gauge,
    ),
    metric("c0_permille", "cpupeek_running_ratio", "ratio", -3, Gauge),
    metric(
        "cpu_thermal_margin",
        "cpupeek_thermal_margin_celsius",
        "celsius",
        0,
        Gauge,
    ),
    metric(
        "temp_input",
        "cpupeek_temperature_celsius",
        "celsius",
        -3,
        Gauge,
    ),
    metric(
        "thermal_throttle",
        "cpupeek_thermal_throttling",
        "",
        0,
        Gauge,
    ),
    metric(
        "base_ratio",
        "cpupeek_base_frequency_hertz",
        "hertz",
        8,
        Gauge,
    ),
    metric(
        "max_ratio",
        "cpupeek_max_frequency_hertz",
        "hertz",
        8,
        Gauge,
    ),
    metric(
        "cur_ratio",
        "cpupeek_granted_frequency_hertz",
        "hertz",
        8,
        Gauge,
    ),
    metric(
        "energy_pkg_uj",
        "cpupeek_package_energy_joules",
        "joules",
        -6,
        Counter,
    ),
    metric(
        "energy_core_uj",
        "cpupeek_core_energy_joules",
        "joules",
        -6,
        Counter,
    ),
    metric(
        "energy_dram_uj",
        "cpupeek_dram_energy_joules",
        "joules",
        -6,
        Counter,
    ),
    metric("vcpu_preempted", "cpupeek_vcpu_preempted", "", 0, Gauge),
    metric("steal_us", "cpupeek_steal_seconds", "seconds", -6, Counter),
];

/// The metric of a value, if this command knows it.
pub fn metric_of(value: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.value == value)
}

/// A decimal number times ten to a power, exactly. None if it is no number.
pub fn scaled(number: &str, power: i32) -> Option<String> {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", number),
    };
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some("0".into());
    }
    let places = power.unsigned_abs() as usize;
    if power >= 0 {
        return Some(format!("{sign}{digits}{}", "0".repeat(places)));
    }
    let padded = format!("{digits:0>width$}", width = places + 1);
    let (whole, fraction) = padded.split_at(padded.len() - places);
    match fraction.trim_end_matches('0') {
        "" => Some(format!("{sign}{whole}")),
        fraction => Some(format!("{sign}{whole}.{fraction}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpupeek_logic::catalogue::{Class, ENTRIES};

    /// Whoever adds a value says what it is called as a metric.
    #[test]
    fn every_value_has_a_metric() {
        let values: Vec<_> = ENTRIES.iter().map(crate::values::text).collect();
        let metrics: Vec<_> = METRICS.iter().map(|metric| metric.value).collect();
        assert_eq!(values, metrics);
    }

    #[test]
    fn names_follow_the_conventions() {
        for (i, metric) in METRICS.iter().enumerate() {
            let name = metric.family;
            assert!(name.starts_with("cpupeek_"), "{name}");
            assert!(name.ends_with(metric.unit), "{name}");
            assert!(
                !name.ends_with("_total") && !name.ends_with("_info"),
                "{name}"
            );
            let valid = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(name.chars().all(valid), "{name}");
            assert!(
                METRICS[..i].iter().all(|other| other.family != name),
                "{name}"
            );
        }
        // What is summed up never falls, what comes from a window may.
        for entry in ENTRIES {
            let metric = metric_of(crate::values::text(entry)).expect("each has one");
            match entry.class {
                Class::Accumulated => assert_eq!(metric.kind, Kind::Counter),
                Class::Window => assert_eq!(metric.kind, Kind::Gauge),
                Class::Snapshot | Class::Live => {}
            }
        }
    }

    #[test]
    fn numbers_are_exact() {
        let scaled = |number, power| scaled(number, power).expect("a number");
        assert_eq!(scaled("18446744073709551615", 0), "18446744073709551615");
        assert_eq!(scaled("18446744073709551615", -6), "18446744073709.551615");
        assert_eq!(scaled("3500000", 3), "3500000000");
        assert_eq!(scaled("-1500", -3), "-1.5");
        assert_eq!(scaled("-5", -3), "-0.005");
        assert_eq!(scaled("1000", -3), "1");
        assert_eq!(scaled("0", -6), "0");
        assert_eq!(scaled("000", 3), "0");
        for text in ["", "-", "x", "1.5", "+1", " 1"] {
            assert_eq!(super::scaled(text, 0), None, "{text}");
        }
    }
}
