// SPDX-License-Identifier: GPL-2.0

//! `cpupeek show`: named values of CPUs.

use crate::args::ShowArgs;
use crate::terminal::can_be_drawn_on;
use crate::values::{entry, width, Missing, Tree};
use crate::{Failure, Outcome};
use serde::Serialize;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

type Cell = Result<String, Missing>;

/// A value of all CPUs.
struct Column {
    name: String,
    unit: &'static str,
    cells: Vec<Cell>,
}

pub fn run(out: &mut impl Write, args: &ShowArgs) -> Result<Outcome, Failure> {
    let tree = Tree::open()?;
    let cpus = tree.cpus(&args.on.cpu)?;
    let names = names(&tree, &args.names)?;
    let mut outcome = Outcome::AllRead;
    let live = can_be_drawn_on();
    let (start, mut due) = (Instant::now(), Duration::ZERO);
    for round in 0u64.. {
        let mut columns: Vec<_> = names
            .iter()
            .map(|name| Column::new(&tree, name, &cpus))
            .collect();
        let mut hidden = Vec::new();
        if args.names.is_empty() {
            // Nobody has asked for those in particular.
            (hidden, columns) = columns.into_iter().partition(Column::is_denied);
        }
        if columns.iter().any(Column::has_failed) {
            outcome = Outcome::SomeFailed;
        }
        if args.json {
            write_json(out, &cpus, &columns)?;
        } else {
            if round > 0 && live {
                write!(out, "\x1b[H\x1b[J")?;
            } else if round > 0 {
                writeln!(out)?;
            }
            write_tables(out, &cpus, &columns, width())?;
            write_notes(out, &columns, &hidden)?;
        }
        out.flush()?;
        let Some(interval) = args.watch else {
            break;
        };
        // A round that came late does not make the next ones hurry.
        due = due.saturating_add(interval).max(start.elapsed());
        thread::sleep(due.saturating_sub(start.elapsed()));
    }
    Ok(outcome)
}

/// The values that are meant.
fn names(tree: &Tree, wanted: &[String]) -> Result<Vec<String>, Failure> {
    let here = tree.all_names();
    if wanted.is_empty() {
        return Ok(here);
    }
    let mut names: Vec<String> = Vec::new();
    for name in wanted {
        if !here.contains(name) {
            let why = match entry(name) {
                Some(_) => "no CPU of this machine has",
                None => "there is no value named",
            };
            return Err(Failure::Usage(format!(
                "{why} '{name}': name one of {}",
                here.join(", ")
            )));
        }
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    Ok(names)
}

impl Column {
    fn new(tree: &Tree, name: &str, cpus: &[u32]) -> Self {
        Column {
            name: name.into(),
            unit: entry(name).map_or("", |entry| entry.unit),
            cells: cpus.iter().map(|&cpu| tree.read(cpu, name)).collect(),
        }
    }

    /// Whether it is for root only, wherever it is.
    fn is_denied(&self) -> bool {
        let has = |missing| self.cells.contains(&Err(missing));
        has(Missing::Denied) && !self.cells.iter().any(Cell::is_ok)
    }

    fn has_failed(&self) -> bool {
        let mut missing = self.cells.iter().filter_map(|cell| cell.as_ref().err());
        missing.any(|missing| missing.is_failure())
    }

    fn texts(&self) -> impl Iterator<Item = String> + '_ {
        self.cells.iter().map(|cell| match cell {
            Ok(value) => value.clone(),
            Err(missing) => missing.cell(),
        })
    }

    fn width(&self) -> usize {
        let cells = self.texts().map(|text| text.len()).max().unwrap_or(0);
        cells.max(self.name.len()).max(self.unit.len())
    }
}

/// As many columns beside each other as fit, and the others in further tables.
fn write_tables(
    out: &mut impl Write,
    cpus: &[u32],
    columns: &[Column],
    width: usize,
) -> io::Result<()> {
    let first = cpus
        .iter()
        .max()
        .map_or(0, |cpu| cpu.to_string().len())
        .max(3);
    let mut rest = columns;
    let mut tables = 0;
    while !rest.is_empty() {
        let mut used = first;
        let fit = rest
            .iter()
            .take_while(|column| {
                used += 2 + column.width();
                used <= width
            })
            .count();
        let (now, later) = rest.split_at(fit.max(1));
        if tables > 0 {
            writeln!(out)?;
        }
        write_table(out, cpus, now, first)?;
        rest = later;
        tables += 1;
    }
    if tables > 1 {
        let whole: usize = columns.iter().map(|column| 2 + column.width()).sum();
        writeln!(out, "\n(COLUMNS={} puts them in one table)", first + whole)?;
    }
    Ok(())
}

fn write_table(
    out: &mut impl Write,
    cpus: &[u32],
    columns: &[Column],
    first: usize,
) -> io::Result<()> {
    write!(out, "{:>first$}", "CPU")?;
    for column in columns {
        write!(out, "  {:>1$}", column.name, column.width())?;
    }
    write!(out, "\n{:first$}", "")?;
    for column in columns {
        write!(out, "  {:>1$}", column.unit, column.width())?;
    }
    writeln!(out)?;
    let texts: Vec<Vec<_>> = columns
        .iter()
        .map(|column| column.texts().collect())
        .collect();
    for (row, cpu) in cpus.iter().enumerate() {
        write!(out, "{cpu:>first$}")?;
        for (column, texts) in columns.iter().zip(&texts) {
            write!(out, "  {:>1$}", texts[row], column.width())?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// What the cells without a number mean, and what is not shown.
fn write_notes(out: &mut impl Write, columns: &[Column], hidden: &[Column]) -> io::Result<()> {
    let has = |missing| {
        columns
            .iter()
            .any(|column| column.cells.contains(&Err(missing)))
    };
    let mut notes = Vec::new();
    if has(Missing::NoData) {
        notes.push("- there is no value at the moment".to_owned());
    }
    if has(Missing::NotThere) {
        notes.push(". the CPU does not have this value".into());
    }
    if has(Missing::Refused) {
        notes.push("EIO the CPU refuses the register, which it had when it came online".into());
    }
    if has(Missing::Denied) {
        notes.push("denied: the value is for root only, so run this command as root".into());
    }
    if !hidden.is_empty() {
        let names: Vec<_> = hidden.iter().map(|column| column.name.as_str()).collect();
        notes.push(format!(
            "for root only, so run as root to see: {}",
            names.join(" ")
        ));
    }
    if !notes.is_empty() {
        writeln!(out)?;
    }
    notes.iter().try_for_each(|note| writeln!(out, "{note}"))
}

/// The JSON form, part of the interface: keys are added, never changed.
#[derive(Serialize)]
struct Row<'a> {
    cpu: u32,
    name: &'a str,
    unit: &'a str,
    /// A string, because JSON readers make doubles of numbers.
    value: Option<&'a str>,
    error: Option<Error>,
}

#[derive(Serialize)]
struct Error {
    errno: String,
    kind: &'static str,
    message: &'static str,
}

/// Value by value, as an array.
fn write_json(out: &mut impl Write, cpus: &[u32], columns: &[Column]) -> io::Result<()> {
    let rows: Vec<_> = columns
        .iter()
        .flat_map(|column| {
            let cells = cpus.iter().zip(&column.cells);
            // What a CPU does not have is not there, rather than an error.
            let cells = cells.filter(|(_, cell)| **cell != Err(Missing::NotThere));
            cells.map(|(&cpu, cell)| Row {
                cpu,
                name: &column.name,
                unit: column.unit,
                value: cell.as_deref().ok(),
                error: cell.as_ref().err().map(|missing| {
                    let (errno, kind, message) = missing.words();
                    Error {
                        errno,
                        kind,
                        message,
                    }
                }),
            })
        })
        .collect();
    serde_json::to_writer_pretty(&mut *out, &rows)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::tests::Fake;

    fn columns() -> Vec<Column> {
        let column = |name: &str, unit, cells: [Cell; 2]| Column {
            name: name.into(),
            unit,
            cells: cells.into(),
        };
        let number = |text: &str| Ok(text.to_owned());
        vec![
            column("freq_khz", "kHz", [number("3000000"), Err(Missing::NoData)]),
            column("pperf", "cycles", [number("1"), Err(Missing::NotThere)]),
            column(
                "energy_pkg_uj",
                "uJ",
                [Err(Missing::Denied), Err(Missing::Denied)],
            ),
        ]
    }

    fn written(f: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        f(&mut out).expect("a Vec takes everything");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn one_table() {
        let text = written(|out| write_tables(out, &[0, 10], &columns(), 80));
        assert_eq!(
            text,
            "CPU  freq_khz   pperf  energy_pkg_uj\n     \
                  kHz  cycles             uJ\n  \
               0   3000000       1         denied\n \
              10         -       .         denied\n"
                .replace("     kHz", "          kHz")
        );
    }

    #[test]
    fn more_tables() {
        let columns = columns();
        for width in [0, 20, 25, 30, 80] {
            let text = written(|out| write_tables(out, &[0, 1], &columns, width));
            let widest = text.lines().map(str::len).max();
            assert!(width < 30 || widest <= Some(width.max(40)), "{text}");
            for column in &columns {
                assert_eq!(text.matches(&column.name).count(), 1, "{text}");
            }
            assert_eq!(text.contains("(COLUMNS=36 puts"), width < 36, "{text}");
        }
        let text = written(|out| write_tables(out, &[0, 1], &columns, 36));
        assert_eq!(text.lines().count(), 4, "{text}");
    }

    #[test]
    fn no_cpus_and_very_many() {
        let column = |cpus: usize| {
            let cells = vec![Ok("18446744073709551615".to_owned()); cpus];
            let name = "energy_pkg_uj".into();
            let unit = "uJ";
            Column { name, unit, cells }
        };
        assert_eq!(
            written(|out| write_tables(out, &[], &[column(0)], 80))
                .lines()
                .count(),
            2
        );
        let cpus: Vec<_> = (0..8192).collect();
        let columns = [column(8192), column(8192), column(8192), column(8192)];
        let text = written(|out| write_tables(out, &cpus, &columns, 80));
        assert!(text.lines().all(|line| line.len() <= 80));
        assert_eq!(
            text.lines().filter(|line| line.starts_with("8191")).count(),
            2
        );
    }

    #[test]
    fn notes() {
        let (denied, columns): (Vec<_>, Vec<_>) =
            columns().into_iter().partition(Column::is_denied);
        let text = written(|out| write_notes(out, &columns, &denied));
        assert!(text.contains("- there is no value"));
        assert!(text.contains(". the CPU does not have"));
        assert!(text.contains("run as root to see: energy_pkg_uj\n"));
        assert!(text.lines().all(|line| line.len() <= 80));
        assert!(written(|out| write_notes(out, &[], &[])).is_empty());
        assert!(denied[0].has_failed() && !columns[0].has_failed());
    }

    #[test]
    fn named_values() {
        let fake = Fake::new("names", "0\n").cpu(0, &[("tsc", "1"), ("smi", "2")]);
        let tree = fake.open().expect("values");
        let names = |wanted: &[&str]| {
            let wanted: Vec<_> = wanted.iter().map(|&name| name.to_owned()).collect();
            names(&tree, &wanted).map_err(|failure| (failure.status(), failure.to_string()))
        };
        assert_eq!(names(&[]), Ok(vec!["tsc".into(), "smi".into()]));
        assert_eq!(names(&["smi", "smi"]), Ok(vec!["smi".into()]));
        let (status, message) = names(&["nonsense"]).expect_err("no value");
        assert_eq!(status, 2);
        assert_eq!(
            message,
            "there is no value named 'nonsense': name one of tsc, smi"
        );
        let (_, message) = names(&["aperf"]).expect_err("not here");
        assert!(message.starts_with("no CPU of this machine has 'aperf'"));
        let (_, message) = names(&["../present"]).expect_err("no value");
        assert!(message.contains("tsc, smi"));
    }

    #[test]
    fn json() {
        let text = written(|out| write_json(out, &[0, 1], &columns()));
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value.as_array().map(Vec::len), Some(5));
        assert_eq!(value[0]["value"], "3000000");
        assert_eq!(value[0]["error"], serde_json::Value::Null);
        assert_eq!(value[1]["error"]["errno"], "ENODATA");
        assert_eq!(value[1]["value"], serde_json::Value::Null);
        assert_eq!(value[4]["error"]["kind"], "policy");
    }
}
