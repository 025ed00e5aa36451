// SPDX-License-Identifier: GPL-2.0
//! The registers that a guest accessed, for the runner: `INDEX CPU READS WRITES described|unknown`.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::vcpu::{Counts, Machine};

/// The report of `machine`, sorted by register.
pub fn text(machine: &Machine) -> String {
    let mut lines = BTreeMap::new();
    for (cpu, (described, unknown)) in machine.counts().iter().enumerate() {
        add(&mut lines, cpu, described, "described");
        add(&mut lines, cpu, unknown, "unknown");
    }
    let mut text = String::new();
    for ((index, cpu, kind), (reads, writes)) in lines {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{index} {cpu} {reads} {writes} {kind}");
    }
    text
}

type Lines = BTreeMap<(u32, usize, &'static str), (u64, u64)>;

fn add(lines: &mut Lines, cpu: usize, counts: &Counts, kind: &'static str) {
    for ((index, write), count) in counts {
        let entry = lines.entry((*index, cpu, kind)).or_default();
        match write {
            false => entry.0 += count,
            true => entry.1 += count,
        }
    }
}
