// SPDX-License-Identifier: GPL-2.0

//! The chart: what a sweep over all CPUs costs, by method and environment.

use crate::record::Row;
use crate::table::us;
use std::fmt::Write;

/// Methods, top to bottom: what there was, then what there is.
const METHODS: &[(&str, &str)] = &[
    ("pread", "pread of /dev/cpu/N/msr"),
    ("io_uring", "io_uring over those"),
    ("regs", "X86_IOC_RDMSR_REGS"),
    ("migrate", "move there, pread"),
    ("perf", "perf, msr events"),
    ("sleep", "cpupeek, told to sleep"),
    ("batch", "cpupeek BATCH"),
    ("prepared", "cpupeek plan"),
];
const ENVS: &[(&str, &str)] = &[
    ("tcg4", "4 CPUs"),
    ("tcg2poll", "2 CPUs, idle=poll"),
    ("tcg8", "8 CPUs"),
    ("tcg16", "16 CPUs"),
    ("kvm2", "2 CPUs, nested KVM"),
];

const WIDTH: f64 = 860.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 70.0;
const BAR: f64 = 9.0;
const LINE: f64 = 26.0;
const HEAD: f64 = 34.0;

/// The colours are those of a panel of its own, so that the chart can be read on any page; a viewer in
/// a dark mode gets a dark panel.
const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#24292f}\
.panel{fill:#f6f8fa}.title{font-weight:600;font-size:14px}.env{font-weight:600}\
.small{font-size:11px;fill:#57606a}.grid{stroke:#d0d7de}\
.old{fill:#8c959f}.new{fill:#0969da}.cpu{fill:#bf3989}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.panel{fill:#161b22}.small{fill:#9198a1}\
.grid{stroke:#3d444d}.old{fill:#6e7681}.new{fill:#4493f8}.cpu{fill:#db61a2}}";

/// Logarithmic: where a time stands between the ends of the scale.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    /// From one power of ten to another, around all values.
    fn around(values: impl Iterator<Item = u64>) -> Self {
        let logs: Vec<f64> = values.map(|ns| (ns.max(1) as f64).log10()).collect();
        let low = logs.iter().copied().fold(f64::INFINITY, f64::min).floor();
        let high = logs.iter().copied().fold(0.0, f64::max).ceil();
        Self {
            low: low.min(high - 1.0),
            high,
        }
    }

    fn x(&self, ns: u64) -> f64 {
        let share = ((ns.max(1) as f64).log10() - self.low) / (self.high - self.low);
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn ticks(&self) -> impl Iterator<Item = u64> {
        (self.low as u32..=self.high as u32).map(|power| 10u64.pow(power))
    }
}

fn tick_name(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", ns / 1_000),
        _ => format!("{} ms", ns / 1_000_000),
    }
}

/// Draws the sweeps of 16 registers on all CPUs.
pub fn svg(rows: &[Row]) -> String {
    let shown: Vec<&Row> = rows
        .iter()
        .filter(|row| {
            let key = &row.key;
            key.cpus == "all" && key.regs == 16 && key.target == "idle"
        })
        .filter(|row| METHODS.iter().any(|(case, _)| *case == row.key.case))
        .collect();
    let scale = Scale::around(
        shown
            .iter()
            .flat_map(|row| [row.wall_ns, row.caller_cpu_ns]),
    );
    let mut body = String::new();
    let mut y = 64.0;
    for (env, name) in ENVS {
        let here = |case: &str| {
            let found = shown.iter();
            found
                .copied()
                .find(|row| row.key.env == *env && row.key.case == case)
        };
        if !METHODS.iter().any(|(case, _)| here(case).is_some()) {
            continue;
        }
        let _ = writeln!(
            body,
            r#"<text class="env" x="16" y="{}">{name}</text>"#,
            y + 12.0
        );
        y += HEAD - 12.0;
        let top = y;
        let mut bars = String::new();
        for (case, method) in METHODS {
            if let Some(row) = here(case) {
                bars.push_str(&bar(row, method, &scale, y));
                y += LINE;
            }
        }
        for tick in scale.ticks() {
            let (x, bottom) = (scale.x(tick), y - 2.0);
            let _ = writeln!(
                body,
                r#"<path class="grid" d="M{x:.1} {top:.1}V{bottom:.1}"/><text class="small" text-anchor="middle" x="{x:.1}" y="{:.1}">{}</text>"#,
                bottom + 13.0,
                tick_name(tick)
            );
        }
        body.push_str(&bars);
        y += HEAD;
    }
    let height = y - 6.0;
    format!(
        r#"<!-- SPDX-License-Identifier: GPL-2.0 -->
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0}" role="img">
<title>Reading 16 registers on every CPU: time by method</title>
<style>{STYLE}</style>
<rect class="panel" width="{WIDTH}" height="{height:.0}" rx="8"/>
<text class="title" x="16" y="26">Reading 16 registers on every CPU</text>
<text class="small" x="16" y="46">emulated machines; logarithmic; each bar: time until all values are there, and below it the CPU time that the caller spends</text>
{body}</svg>
"#
    )
}

fn bar(row: &Row, method: &str, scale: &Scale, y: f64) -> String {
    let class = if method.starts_with("cpupeek") {
        "new"
    } else {
        "old"
    };
    let wall = scale.x(row.wall_ns);
    let cpu = scale.x(row.caller_cpu_ns);
    format!(
        r#"<text text-anchor="end" x="{:.1}" y="{:.1}">{method}</text><rect class="{class}" x="{LEFT}" y="{:.1}" width="{:.1}" height="{BAR}"/><rect class="cpu" x="{LEFT}" y="{:.1}" width="{:.1}" height="3"/><text x="{:.1}" y="{:.1}">{} µs</text>
"#,
        LEFT - 8.0,
        y + 13.0,
        y + 4.0,
        wall - LEFT,
        y + 4.0 + BAR + 1.0,
        cpu - LEFT,
        wall + 6.0,
        y + 13.0,
        us(row.wall_ns as f64)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::row;

    #[test]
    fn bars_are_as_long_as_times() {
        let rows = [
            row("tcg4", "pread", "all", 16, 1_000_000, 100_000),
            row("tcg4", "batch", "all", 16, 10_000, 10_000),
            row("tcg4", "batch", "one", 1, 5, 5),
        ];
        let svg = svg(&rows);
        assert!(svg.contains("pread of /dev/cpu/N/msr") && svg.contains("cpupeek BATCH"));
        assert!(svg.contains("1000 µs") && svg.contains("10 µs"));
        // The grid begins at the shortest time, 10 us, and ends at the longest, 1 ms.
        let scale = Scale::around([1_000_000u64, 10_000].into_iter());
        assert_eq!(
            scale.ticks().collect::<Vec<_>>(),
            [10_000, 100_000, 1_000_000]
        );
        assert_eq!(scale.x(10_000), LEFT);
        assert_eq!(scale.x(1_000_000), WIDTH - RIGHT);
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
    }

    #[test]
    fn nothing_measured_is_an_empty_chart() {
        assert!(!svg(&[]).contains("NaN"));
    }
}
