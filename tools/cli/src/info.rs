// SPDX-License-Identifier: GPL-2.0

//! `cpupeek info`.

use cpupeek_client::{uapi, Info};
use serde::Serialize;
use std::io::{self, Write};
use std::path::Path;

/// The JSON form, part of the interface: fields are added, never changed.
#[derive(Serialize)]
struct Summary {
    device: String,
    features: Vec<String>,
    nr_cpu_ids: u32,
    max_batch_ops: u32,
    max_round_ops: u32,
    read_timeout_ms: u128,
    tsc_khz: Option<u32>,
    tsc_stable: bool,
}

pub fn write(out: &mut impl Write, device: &Path, info: &Info, json: bool) -> io::Result<()> {
    let summary = Summary {
        device: device.display().to_string(),
        features: features(info),
        nr_cpu_ids: info.nr_cpu_ids,
        max_batch_ops: info.max_batch_ops,
        max_round_ops: info.max_round_ops,
        read_timeout_ms: info.read_timeout.as_millis(),
        tsc_khz: info.tsc_khz,
        tsc_stable: info.tsc_stable,
    };
    if json {
        serde_json::to_writer_pretty(&mut *out, &summary)?;
        return writeln!(out);
    }
    let tsc_rate = match info.tsc_khz {
        Some(khz) => format!("{}.{:03} MHz", khz / 1000, khz % 1000),
        None => "unknown rate".into(),
    };
    let tsc_step = if info.tsc_stable {
        "in step on all CPUs"
    } else {
        "not comparable between CPUs"
    };
    writeln!(out, "device         {}", summary.device)?;
    writeln!(out, "features       {}", summary.features.join(" "))?;
    writeln!(out, "CPU numbers    below {}", summary.nr_cpu_ids)?;
    if info.has_batch() {
        writeln!(
            out,
            "batch          up to {} operations",
            info.max_batch_ops
        )?;
    }
    writeln!(
        out,
        "round          up to {} operations with interrupts off",
        info.max_round_ops
    )?;
    writeln!(out, "read timeout   {} ms", summary.read_timeout_ms)?;
    writeln!(out, "TSC            {tsc_rate}, {tsc_step}")
}

fn features(info: &Info) -> Vec<String> {
    (0..u64::BITS)
        .map(|bit| (bit, 1u64 << bit))
        .filter(|(_, mask)| info.features & mask != 0)
        .map(|(bit, mask)| match u32::try_from(mask) {
            Ok(uapi::CPUPEEK_FEATURE_READ) => "read".into(),
            Ok(uapi::CPUPEEK_FEATURE_BATCH) => "batch".into(),
            Ok(uapi::CPUPEEK_FEATURE_PLAN) => "plan".into(),
            Ok(uapi::CPUPEEK_FEATURE_POLICY) => "policy".into(),
            Ok(uapi::CPUPEEK_FEATURE_SAMPLER) => "sampler".into(),
            Ok(uapi::CPUPEEK_FEATURE_CPU_WORD) => "cpu_word".into(),
            _ => format!("bit{bit}"),
        })
        .collect()
}
