// SPDX-License-Identifier: GPL-2.0

//! What is shown of each CPU, from the named values and from /proc/stat.

use crate::values::{Missing, Tree};
use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

/// A CPU's row. What is not known is not there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    pub cpu: u32,
    pub is_offline: bool,
    pub mhz: Option<f64>,
    /// Percent of the time that it ran.
    pub running: Option<f64>,
    pub celsius: Option<f64>,
    /// Degrees below the temperature at which it is throttled.
    pub margin: Option<f64>,
    pub is_throttled: Option<bool>,
    pub core_watts: Option<f64>,
    pub package_watts: Option<f64>,
    /// Percent of the time that it would have run, had the host let it.
    pub steal: Option<f64>,
}

/// Ticks of a CPU since it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    all: u64,
    stolen: u64,
}

/// What the counters were.
struct Earlier {
    at: Instant,
    ticks: BTreeMap<u32, Ticks>,
    energy: BTreeMap<(Kind, u32), u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Core,
    Package,
}

/// Takes readings, and remembers what rates come from.
pub struct Source {
    tree: Tree,
    cpus: Vec<u32>,
    earlier: Option<Earlier>,
}

impl Source {
    pub fn new(tree: Tree, cpus: Vec<u32>) -> Self {
        Source {
            tree,
            cpus,
            earlier: None,
        }
    }

    pub fn rows(&mut self) -> Vec<Row> {
        let now = Earlier {
            at: Instant::now(),
            ticks: ticks(&fs::read_to_string("/proc/stat").unwrap_or_default()),
            energy: self.energy(),
        };
        let rows = self.cpus.iter().map(|&cpu| self.row(cpu, &now)).collect();
        self.earlier = Some(now);
        rows
    }

    fn row(&self, cpu: u32, now: &Earlier) -> Row {
        let number = |name: &str, scale: f64| {
            let text = self.tree.read(cpu, name).ok()?;
            Some(text.parse::<f64>().ok()? * scale)
        };
        let is_offline = self.tree.read(cpu, "generation") == Err(Missing::Offline);
        if is_offline {
            return Row {
                cpu,
                is_offline,
                ..Row::default()
            };
        }
        let watts = |kind| {
            let earlier = self.earlier.as_ref()?;
            let used = |then: &Earlier| then.energy.get(&(kind, cpu)).copied();
            // Where the CPU was away the count may have begun anew.
            let joules = used(now)?.checked_sub(used(earlier)?)? as f64 / 1e6;
            let seconds = now.at.duration_since(earlier.at).as_secs_f64();
            (seconds > 0.0).then(|| joules / seconds)
        };
        let steal = || {
            let earlier = self.earlier.as_ref()?.ticks.get(&cpu)?;
            let now = now.ticks.get(&cpu)?;
            let all = now.all.checked_sub(earlier.all).filter(|&all| all != 0)?;
            let stolen = now.stolen.checked_sub(earlier.stolen)?;
            Some(100.0 * stolen as f64 / all as f64)
        };
        Row {
            cpu,
            is_offline,
            mhz: number("freq_khz", 1e-3),
            running: number("c0_permille", 0.1),
            celsius: number("temp_input", 1e-3),
            margin: number("cpu_thermal_margin", 1.0),
            is_throttled: number("thermal_throttle", 1.0).map(|on| on != 0.0),
            core_watts: watts(Kind::Core),
            package_watts: watts(Kind::Package),
            steal: steal(),
        }
    }

    /// Microjoules, as each CPU tells of its own core and package.
    fn energy(&self) -> BTreeMap<(Kind, u32), u64> {
        let kinds = [
            (Kind::Core, "energy_core_uj"),
            (Kind::Package, "energy_pkg_uj"),
        ];
        let all = kinds.iter().flat_map(|&(kind, name)| {
            self.cpus.iter().filter_map(move |&cpu| {
                let text = self.tree.read(cpu, name).ok()?;
                Some(((kind, cpu), text.parse().ok()?))
            })
        });
        all.collect()
    }
}

/// From the lines of each CPU: user, nice, system, idle, iowait, irq, softirq, steal, and then guests'
/// time, which is part of the user's.
fn ticks(stat: &str) -> BTreeMap<u32, Ticks> {
    let line = |line: &str| {
        // The first line, without a number, is of all CPUs.
        let rest = line.strip_prefix("cpu")?;
        rest.starts_with(|c: char| c.is_ascii_digit())
            .then_some(())?;
        let mut words = rest.split_ascii_whitespace();
        let cpu = words.next()?.parse().ok()?;
        let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
        let stolen = *ticks.get(7)?;
        let all = ticks.iter().sum();
        Some((cpu, Ticks { all, stolen }))
    };
    stat.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::tests::Fake;

    #[test]
    fn ticks_of_each_cpu() {
        let stat =
            "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 4 5 6 7 8 100 100\ncpu12 1 1 1 1 1 1 1 0\n\
                    cpu3 1 2\nintr 1 2 3\n";
        let ticks = ticks(stat);
        assert_eq!(ticks.len(), 2);
        assert_eq!(ticks[&0], Ticks { all: 36, stolen: 8 });
        assert_eq!(ticks[&12], Ticks { all: 7, stolen: 0 });
    }

    #[test]
    fn rates_need_two_readings() {
        let fake = Fake::new("top", "0-1\n").cpu(
            0,
            &[
                ("freq_khz", "3500000"),
                ("c0_permille", "125"),
                ("temp_input", "47500"),
                ("thermal_throttle", "1"),
                ("energy_pkg_uj", "1000"),
            ],
        );
        let mut source = Source::new(fake.open().expect("values"), vec![0, 1]);
        let rows = source.rows();
        assert_eq!(rows[0].mhz, Some(3500.0));
        assert_eq!(rows[0].running, Some(12.5));
        assert_eq!(rows[0].celsius, Some(47.5));
        assert_eq!(rows[0].is_throttled, Some(true));
        assert_eq!((rows[0].package_watts, rows[0].margin), (None, None));
        assert!(rows[1].is_offline && rows[1].mhz.is_none());
        let fake = fake.cpu(0, &[("energy_pkg_uj", "2000")]);
        let rows = source.rows();
        assert!(rows[0].package_watts.is_some_and(|watts| watts > 0.0));
        assert_eq!(rows[0].core_watts, None);
        // Energy that falls is another count.
        let _fake = fake.cpu(0, &[("energy_pkg_uj", "5")]);
        assert_eq!(source.rows()[0].package_watts, None);
    }
}
