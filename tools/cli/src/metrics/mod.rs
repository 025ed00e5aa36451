// SPDX-License-Identifier: GPL-2.0

//! `cpupeek metrics`: the named values as Prometheus and OpenMetrics want them.
//!
//! A scrape has all CPUs interrupted together: reading the module's attribute `refresh` takes all of the
//! snapshots that are old, with one interrupt for each CPU, or two if its frequency was not read for long, and
//! then the files are served from those. It needs no right but to read files of sysfs.

mod names;
mod text;

use crate::values::{self, entry, Missing, Tree};
use crate::{Failure, Outcome};
use clap::Args;
use cpupeek_logic::catalogue::{Entry, Identity, Scope};
use names::{metric_of, scaled, Kind};
use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use text::{Exposition, Family, Sample};

#[derive(Args, Debug)]
pub struct MetricsArgs {
    /// Print OpenMetrics instead of Prometheus's own text format
    #[arg(long)]
    pub openmetrics: bool,

    /// Replace FILE in one step, for the textfile collector
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

pub fn run(out: &mut impl Write, args: &MetricsArgs) -> Result<Outcome, Failure> {
    values::refresh_all()?;
    let tree = Tree::open()?;
    let (families, outcome) = families(&tree, &mut crate::cpuid::leaf);
    let exposition = if args.openmetrics {
        Exposition::OpenMetrics
    } else {
        Exposition::Prometheus
    };
    let text = exposition.text(&families);
    match &args.output {
        None => {
            out.write_all(text.as_bytes())?;
            out.flush()?;
        }
        Some(file) => replace(file, text.as_bytes())
            .map_err(|error| Failure::System(not_replaced(file, &error)))?,
    }
    Ok(outcome)
}

/// All values that may be read, once for each that shares them: the energy of a package is not the
/// energy of each of its CPUs.
fn families(tree: &Tree, cpuid: &mut dyn FnMut(u32) -> [u32; 4]) -> (Vec<Family>, Outcome) {
    let identity = Identity::new(cpuid);
    let mut outcome = Outcome::AllRead;
    let mut families = vec![Family::about_us()];
    for name in tree.all_names() {
        // What a newer module has in addition has no name here.
        let (Some(metric), Some(entry)) = (metric_of(&name), entry(&name)) else {
            continue;
        };
        let scope = scope(entry, identity, cpuid);
        let mut shown = BTreeSet::new();
        let mut samples = Vec::new();
        for cpu in tree.cpus_with(&name) {
            let labels = labels(tree, cpu, scope);
            if shown.contains(&labels) {
                continue;
            }
            match tree.read(cpu, &name) {
                Ok(value) => {
                    if let Some(value) = scaled(&value, metric.power) {
                        shown.insert(labels.clone());
                        samples.push(Sample { labels, value });
                    }
                }
                Err(Missing::NoData | Missing::NotThere | Missing::Offline | Missing::Denied) => {}
                Err(Missing::Refused | Missing::Other(_)) => outcome = Outcome::SomeFailed,
            }
        }
        families.push(Family {
            name: metric.family.into(),
            help: entry.help.into(),
            unit: metric.unit,
            is_counter: metric.kind == Kind::Counter,
            samples,
        });
    }
    families.retain(|family| !family.samples.is_empty());
    (families, outcome)
}

fn scope(entry: &Entry, identity: Identity, cpuid: &mut dyn FnMut(u32) -> [u32; 4]) -> Scope {
    let source = entry.source(identity, cpuid);
    source
        .and_then(|source| source.scope)
        .unwrap_or(entry.scope)
}

/// Who has a value: the CPU, or what shares it, if that is known.
fn labels(tree: &Tree, cpu: u32, scope: Scope) -> Vec<(&'static str, u32)> {
    let Some(here) = tree.location(cpu) else {
        return vec![("cpu", cpu)];
    };
    match scope {
        Scope::Thread => vec![("cpu", cpu)],
        Scope::Core => vec![("package", here.package), ("core", here.core)],
        Scope::Die => vec![("package", here.package), ("die", here.die)],
        Scope::Package => vec![("package", here.package)],
    }
}

fn not_replaced(file: &Path, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room there",
        io::ErrorKind::NotFound => "make its directory first",
        _ => "name a file in a directory that you may write to",
    };
    format!("cannot replace {}: {error}: {remedy}", file.display())
}

/// Replaces a file by a new one that everybody may read, or leaves it as it is: whoever reads it sees one
/// or the other.
fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = file.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    // The collector takes what ends in .prom.
    hidden.push(format!(".{}", std::process::id()));
    let hidden = file.with_file_name(hidden);
    let write = |mut new: File| {
        // The collector is another user, whatever the umask.
        new.set_permissions(Permissions::from_mode(0o644))?;
        new.write_all(bytes)?;
        new.sync_all()?;
        fs::rename(&hidden, file)
    };
    let create = || File::create_new(&hidden);
    let new = create().or_else(|error| match error.kind() {
        // Of a process that had our number, and was killed before it could take the file away.
        io::ErrorKind::AlreadyExists => fs::remove_file(&hidden).and_then(|()| create()),
        _ => Err(error),
    })?;
    write(new).inspect_err(|_| {
        // If that is not possible either, there is nothing to be done.
        let _ = fs::remove_file(&hidden);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::tests::Fake;

    fn intel(leaf: u32) -> [u32; 4] {
        match leaf {
            0 => [7, 0x756e_6547, 0x6c65_746e, 0x4965_6e69],
            6 => [1, 0, 1, 0],
            _ => [0; 4],
        }
    }

    #[test]
    fn what_is_shared_is_shown_once() {
        let fake = Fake::new("metrics", "0-3\n")
            .cpu(0, &[("freq_khz", "3500000"), ("energy_pkg_uj", "1500000")])
            .cpu(1, &[("freq_khz", "3400000"), ("energy_pkg_uj", "1500000")])
            .cpu(2, &[("temp_input", "-500"), ("energy_pkg_uj", "7")])
            .cpu(3, &[("temp_input", "1000"), ("zz_new", "1")])
            .topology(0, 0, 0)
            .topology(1, 0, 0)
            .topology(2, 1, 5);
        let tree = fake.open().expect("values");
        let (families, outcome) = families(&tree, &mut intel);
        assert_eq!(outcome, Outcome::AllRead);
        let text = Exposition::Prometheus.text(&families);
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples[1..],
            [
                "cpupeek_frequency_hertz{cpu=\"0\"} 3500000000",
                "cpupeek_frequency_hertz{cpu=\"1\"} 3400000000",
                "cpupeek_temperature_celsius{package=\"1\",core=\"5\"} -0.5",
                "cpupeek_temperature_celsius{cpu=\"3\"} 1",
                "cpupeek_package_energy_joules_total{package=\"0\",die=\"0\"} 1.5",
                "cpupeek_package_energy_joules_total{package=\"1\",die=\"0\"} 0.000007",
            ]
        );
    }

    #[test]
    fn files_are_replaced_whole() {
        let directory =
            std::env::temp_dir().join(format!("cpupeek-replace-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let file = directory.join("cpupeek.prom");
        replace(&file, b"one").expect("new");
        let umask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        replace(&file, b"two").expect("again");
        rustix::process::umask(umask);
        assert_eq!(fs::read(&file).expect("there"), b"two");
        let mode = fs::metadata(&file).expect("there").permissions().mode();
        assert_eq!(mode & 0o7777, 0o644);
        // What a process of the same number has left behind.
        let left = format!(".cpupeek.prom.{}", std::process::id());
        fs::write(directory.join(left), b"half").expect("a file");
        replace(&file, b"two").expect("once more");
        assert_eq!(fs::read(&file).expect("there"), b"two");
        assert_eq!(fs::read_dir(&directory).expect("there").count(), 1);
        // A directory cannot be replaced by a file: nothing is left of the attempt.
        let taken = directory.join("taken");
        fs::create_dir_all(&taken).expect("a directory");
        let error = replace(&taken, b"three").expect_err("a directory");
        assert!(not_replaced(&taken, &error)
            .ends_with(": name a file in a directory that you may write to"));
        assert_eq!(fs::read_dir(&directory).expect("there").count(), 2);
        let nowhere = Path::new("/nonexistent/x");
        let error = replace(nowhere, b"").expect_err("no directory");
        assert!(not_replaced(nowhere, &error).ends_with(": make its directory first"));
        assert!(replace(Path::new("/"), b"").is_err());
        fs::remove_dir_all(&directory).expect("ours");
    }

    #[test]
    fn the_documentation_has_all_metrics() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../Documentation/metrics.md"
        );
        let text = fs::read_to_string(path).expect("the documentation");
        for metric in names::METRICS {
            let total = if metric.kind == Kind::Counter {
                "_total"
            } else {
                ""
            };
            let row = format!("| `{}{total}` | ", metric.family);
            let row = text.lines().find(|line| line.starts_with(&row));
            let row = row.unwrap_or_else(|| panic!("no {}", metric.family));
            assert!(row.contains(&format!("| `{}` |", metric.value)), "{row}");
        }
    }

    /// The dashboard asks for what there is, and for all that people look at.
    #[test]
    fn the_dashboard_has_known_metrics() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../dist/grafana/cpupeek.json"
        );
        let text = fs::read_to_string(path).expect("the dashboard");
        let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let panels = dashboard["panels"].as_array().expect("panels");
        let mut asked = BTreeSet::new();
        for target in panels
            .iter()
            .flat_map(|panel| panel["targets"].as_array())
            .flatten()
        {
            let query = target["expr"].as_str().expect("a query");
            let words = query.split(|c: char| c != '_' && !c.is_ascii_alphanumeric());
            asked.extend(
                words
                    .filter(|word| word.starts_with("cpupeek_"))
                    .map(str::to_owned),
            );
        }
        for name in &asked {
            let known = names::METRICS.iter().any(|metric| match metric.kind {
                Kind::Counter => name.strip_suffix("_total") == Some(metric.family),
                Kind::Gauge => name == metric.family,
            });
            assert!(known, "{name}");
        }
        assert!(asked.len() >= 8, "{asked:?}");
    }
}
