// SPDX-License-Identifier: GPL-2.0

//! `cpupeek sample`.

use std::collections::HashMap;
use std::process::Command;

use super::{tests, Env};
use crate::guest;

tests! {
    "sampler_cli";
    csv_has_every_sample: [],
    json_has_a_line_for_each_sample: [],
    table_has_a_row_for_each_register: [],
    bad_requests: [],
}

/// What `cpupeek sample` printed, what it complained of, and its status.
fn sample(arguments: &str) -> (String, String, Option<i32>) {
    let output = Command::new("/bin/cpupeek")
        .arg("sample")
        .args(arguments.split_whitespace())
        .output()
        .expect("cpupeek starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (
        text(output.stdout),
        text(output.stderr),
        output.status.code(),
    )
}

/// Checks the numbers and the values of TSC_AUX of all samples, by CPU.
#[track_caller]
fn expect_each_once(samples: impl Iterator<Item = (u32, u64, u64)>, least: u64) {
    let mut last: HashMap<u32, u64> = HashMap::new();
    for (cpu, number, value) in samples {
        let before = last.insert(cpu, number).unwrap_or(0);
        assert_eq!(number, before + 1, "CPU {cpu}");
        assert_eq!(value & 0xfff, cpu.into());
    }
    let mut cpus: Vec<u32> = last.keys().copied().collect();
    cpus.sort_unstable();
    assert_eq!(cpus, guest::online());
    assert!(last.values().all(|&number| number >= least), "{last:?}");
}

fn hex(text: &str) -> u64 {
    let digits = text.strip_prefix("0x").expect("hexadecimal");
    u64::from_str_radix(digits, 16).expect("a number")
}

fn csv_has_every_sample(_: &Env) {
    let (out, complaint, status) = sample("0xc0000103 --interval 5ms --exact --count 100 --csv");
    assert_eq!((complaint.as_str(), status), ("", Some(0)));
    let mut lines = out.lines();
    let titles = lines.next().expect("titles");
    assert_eq!(titles, "cpu,number,time_ns,tsc,missed,skipped,0xc0000103");
    let samples = lines.map(|line| {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells.len(), 7, "{line}");
        let number = |cell: &str| cell.parse::<u64>().expect("a number");
        (number(cells[0]) as u32, number(cells[1]), hex(cells[6]))
    });
    expect_each_once(samples, 2);
}

fn json_has_a_line_for_each_sample(_: &Env) {
    let (out, complaint, status) = sample("0xc0000103 --interval 5ms --exact --count 100 --json");
    assert_eq!((complaint.as_str(), status), ("", Some(0)));
    let field = |line: &str, key: &str| {
        let rest = line.split_once(&format!("\"{key}\":")).expect(key).1;
        let end = rest.find([',', '}', ']']).expect("more follows");
        rest[..end].trim_matches('"').to_owned()
    };
    let samples = out.lines().map(|line| {
        assert!(line.starts_with('{') && line.ends_with("]}"), "{line}");
        assert_eq!(field(line, "errno"), "null");
        let number = |key| field(line, key).parse::<u64>().expect("a number");
        (
            number("cpu") as u32,
            number("number"),
            hex(&field(line, "value")),
        )
    });
    expect_each_once(samples, 2);
}

fn table_has_a_row_for_each_register(_: &Env) {
    let (out, complaint, status) =
        sample("0xc0000103 0xc0000080 --interval 100ms --exact --count 1");
    assert_eq!((complaint.as_str(), status), ("", Some(0)));
    let tables: Vec<&str> = out.split("\n\n").collect();
    assert_eq!(tables.len(), 2, "{out}");
    for table in tables {
        let rows = table.trim_end().lines().count();
        assert_eq!(rows, 1 + 2 * guest::online().len(), "{out}");
        assert!(table.lines().all(|line| line.len() <= 80), "{out}");
    }
}

fn bad_requests(_: &Env) {
    let many = (0..65)
        .map(|reg| reg.to_string())
        .collect::<Vec<_>>()
        .join(" ");
    for (arguments, words) in [
        ("16 --interval 999us", "1 ms to 1 h"),
        ("16 --interval 3601", "1 ms to 1 h"),
        ("16 --interval 0", "1 ms to 1 h"),
        (&many, "too many"),
        ("16 --cpu 99999", "99999"),
    ] {
        let (out, complaint, status) = sample(arguments);
        assert_eq!((out.as_str(), status), ("", Some(2)), "{arguments}");
        assert!(complaint.contains(words), "{complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
    }
    assert_eq!(guest::attribute("samplers"), 0);
}
