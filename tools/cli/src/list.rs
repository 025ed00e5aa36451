// SPDX-License-Identifier: GPL-2.0

//! `cpupeek list`: the catalogue of named values, and where on this machine they are.

use crate::args::ListArgs;
use crate::fold::fold;
use crate::values::{entry, ranges, text, Tree};
use crate::Failure;
use cpupeek_logic::catalogue::{Access, Class, Entry, Identity, Scope, Source, Vendor, ENTRIES};
use serde::Serialize;
use std::io::Write;

/// The JSON form, part of the interface: keys are added, never changed.
#[derive(Serialize)]
struct Row {
    name: String,
    /// Empty for a plain number, null if this command does not know the value.
    unit: Option<&'static str>,
    help: Option<&'static str>,
    scope: Option<&'static str>,
    access: Option<&'static str>,
    class: Option<&'static str>,
    cpus: Vec<u32>,
    sources: Vec<SourceRow>,
}

#[derive(Serialize)]
struct SourceRow {
    vendor: Option<&'static str>,
    /// Null where there is no register to read.
    register: Option<u32>,
    scope: &'static str,
    manual: &'static str,
    /// Whether it is the one on this machine.
    here: bool,
}

pub fn run(out: &mut impl Write, args: &ListArgs) -> Result<(), Failure> {
    let tree = match Tree::open() {
        Ok(tree) => Some(tree),
        // The catalogue can be told without the module.
        Err(_) if args.all => None,
        Err(failure) => return Err(failure),
    };
    let rows = rows(tree.as_ref(), args.all, this_vendor());
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &rows).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        write_table(out, &rows)?;
    }
    out.flush()?;
    Ok(())
}

fn this_vendor() -> Vendor {
    Identity::new(&mut crate::cpuid::leaf).vendor
}

fn rows(tree: Option<&Tree>, all: bool, vendor: Vendor) -> Vec<Row> {
    let mut names = tree.map(Tree::all_names).unwrap_or_default();
    if all {
        let known: Vec<_> = ENTRIES.iter().map(|entry| text(entry).to_owned()).collect();
        names.retain(|name| !known.contains(name));
        names = known.into_iter().chain(names).collect();
    }
    let row = |name: String| {
        let cpus = tree.map(|tree| tree.cpus_with(&name)).unwrap_or_default();
        Row::new(name, cpus, vendor)
    };
    names.into_iter().map(row).collect()
}

impl Row {
    fn new(name: String, cpus: Vec<u32>, vendor: Vendor) -> Self {
        let entry = entry(&name);
        let source = |entry: &Entry, source: &Source| SourceRow {
            vendor: source.vendor.map(vendor_name),
            register: (source.reg != 0).then_some(source.reg),
            scope: scope_name(source.scope.unwrap_or(entry.scope)),
            manual: source.manual,
            here: !cpus.is_empty() && source.vendor.is_none_or(|v| v == vendor),
        };
        let sources = entry.map(|entry| entry.sources.iter().map(|s| source(entry, s)).collect());
        Row {
            unit: entry.map(|entry| entry.unit),
            help: entry.map(|entry| entry.help),
            scope: entry.map(|entry| scope_name(entry.scope)),
            access: entry.map(|entry| access_name(entry.access)),
            class: entry.map(|entry| class_name(entry.class)),
            sources: sources.unwrap_or_default(),
            name,
            cpus,
        }
    }

    /// What shares it: here, or where it is.
    fn shared_by(&self) -> &str {
        let here = self.sources.iter().find(|source| source.here);
        here.map(|source| source.scope)
            .or(self.scope)
            .unwrap_or("?")
    }

    fn manuals(&self) -> Vec<String> {
        if let Some(source) = self.sources.iter().find(|source| source.here) {
            return vec![source.manual.into()];
        }
        let manual = |source: &SourceRow| match source.vendor {
            Some(vendor) => format!("{vendor}: {}", source.manual),
            None => source.manual.into(),
        };
        self.sources.iter().map(manual).collect()
    }
}

fn vendor_name(vendor: Vendor) -> &'static str {
    match vendor {
        Vendor::Intel => "Intel",
        Vendor::Amd => "AMD",
        Vendor::Other => "other",
    }
}

fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Thread => "thread",
        Scope::Core => "core",
        Scope::Die => "die",
        Scope::Package => "package",
    }
}

fn access_name(access: Access) -> &'static str {
    match access {
        Access::World => "all",
        Access::Root => "root",
    }
}

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Snapshot => "snapshot",
        Class::Window => "window",
        Class::Accumulated => "accumulated",
        Class::Live => "live",
    }
}

fn write_table(out: &mut impl Write, rows: &[Row]) -> std::io::Result<()> {
    let line = |out: &mut dyn Write, cells: [&str; 5]| {
        let [name, unit, scope, access, cpus] = cells;
        let text = format!("{name:18}  {unit:17}  {scope:7}  {access:4}  {cpus}");
        // A list of CPUs may be long, and has commas to break at.
        writeln!(out, "{}", fold(text.trim_end(), 54))
    };
    line(out, ["NAME", "UNIT", "SCOPE", "READ", "CPUS"])?;
    for row in rows {
        let cpus = if row.cpus.is_empty() {
            "none".into()
        } else {
            ranges(&row.cpus)
        };
        let unit = row.unit.unwrap_or("?");
        let access = row.access.unwrap_or("?");
        line(out, [&row.name, unit, row.shared_by(), access, &cpus])?;
        let help = row.help.unwrap_or("newer than this command");
        writeln!(out, "{}", fold(&format!("    {help}"), 4))?;
        for manual in row.manuals() {
            writeln!(out, "    {manual}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::tests::Fake;

    fn table(rows: &[Row]) -> String {
        let mut out = Vec::new();
        write_table(&mut out, rows).expect("a Vec takes everything");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn live_ones() {
        let fake = Fake::new("list", "0-3\n")
            .cpu(0, &[("tsc", "1"), ("base_ratio", "20")])
            .cpu(1, &[("tsc", "1"), ("base_ratio", "20"), ("new", "1")]);
        let tree = fake.open().expect("values");
        let text = table(&rows(Some(&tree), false, Vendor::Amd));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[..4],
            [
                "NAME                UNIT               SCOPE    READ  CPUS",
                "tsc                 cycles             thread   root  0-1",
                "    time stamp counter",
                "    SDM 3B 19.17, APM 2 13.2.4 (TSC)",
            ]
        );
        assert!(text.contains("    PPR 17h (PStateDef 0)\n"));
        assert!(!text.contains("PLATFORM_INFO"), "that is Intel's");
        assert_eq!(lines[lines.len() - 1], "    newer than this command");
    }

    #[test]
    fn the_whole_catalogue_fits() {
        let text = table(&rows(None, true, Vendor::Other));
        for entry in ENTRIES {
            assert!(text.contains(super::text(entry)));
            for source in entry.sources {
                assert!(text.contains(source.manual));
            }
        }
        for line in text.lines() {
            assert!(line.len() <= 80, "{line}");
        }
        assert!(text.contains("    Intel: SDM 4 (MSR_PLATFORM_INFO)\n"));
    }

    #[test]
    fn scattered_cpus_fit_too() {
        let cpus: Vec<_> = (0..8192).step_by(2).collect();
        let text = table(&[Row::new("tsc".into(), cpus, Vendor::Intel)]);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(text.contains("0,2,4") && text.contains("8190"));
    }

    #[test]
    fn what_it_is_here_counts() {
        let fake = Fake::new("here", "0\n").cpu(0, &[("energy_core_uj", "5")]);
        let tree = fake.open().expect("values");
        let scope = |vendor| {
            let rows = rows(Some(&tree), false, vendor);
            rows[0].shared_by().to_owned()
        };
        assert_eq!(scope(Vendor::Intel), "die");
        assert_eq!(scope(Vendor::Amd), "core");
    }

    #[test]
    fn json() {
        let fake = Fake::new("list-json", "0\n").cpu(0, &[("tsc", "5")]);
        let tree = fake.open().expect("values");
        let rows = rows(Some(&tree), true, Vendor::Intel);
        let value = serde_json::to_value(&rows).expect("JSON");
        assert_eq!(value.as_array().map(Vec::len), Some(ENTRIES.len()));
        assert_eq!(value[0]["name"], "tsc");
        assert_eq!(value[0]["cpus"], serde_json::json!([0]));
        assert_eq!(value[0]["access"], "root");
        assert_eq!(value[1]["cpus"], serde_json::json!([]));
        assert_eq!(value[1]["sources"][0]["register"], 0xe8);
    }
}
