// SPDX-License-Identifier: GPL-2.0

//! What the boots have said, put together.

use crate::record::{median, Fact, Key, Line, Row};
use crate::{chart, table};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// One boot of an environment.
#[derive(Clone, Debug, Default)]
pub struct Boot {
    pub env: String,
    pub rows: Vec<Row>,
    pub facts: Vec<Fact>,
}

impl Boot {
    fn parse(env: &str, text: &str) -> Result<Self, String> {
        let mut boot = Self {
            env: env.into(),
            ..Self::default()
        };
        for line in text.lines() {
            match serde_json::from_str(line) {
                Ok(Line::Row(row)) => boot.rows.push(row),
                Ok(Line::Fact(fact)) => boot.facts.push(fact),
                Err(error) => return Err(format!("{line:?} is no measurement: {error}")),
            }
        }
        if boot.rows.is_empty() && boot.facts.is_empty() {
            return Err("nothing was measured".into());
        }
        Ok(boot)
    }

    /// What was measured for a sweep, if it was.
    pub fn row(&self, case: &str, cpus: &str, regs: u32, target: &str) -> Option<&Row> {
        self.rows.iter().find(|row| {
            let key = &row.key;
            key.case == case && key.cpus == cpus && key.regs == regs && key.target == target
        })
    }

    pub fn fact(&self, what: &str) -> Option<f64> {
        let fact = self.facts.iter().find(|fact| fact.what == what);
        fact.map(|fact| fact.value)
    }
}

/// Reads all boots of `DIR/boots`, in the order of their names.
pub fn boots(directory: &Path) -> Result<Vec<Boot>, String> {
    let directory = directory.join("boots");
    let show = |error| format!("cannot read {}: {error}", directory.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(&directory).map_err(show)? {
        let path = entry.map_err(show)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "jsonl")
        {
            paths.push(path);
        }
    }
    paths.sort();
    let mut boots = Vec::new();
    for path in &paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let env = name.split('-').next().unwrap_or_default();
        let boot = fs::read_to_string(path)
            .map_err(|error| error.to_string())
            .and_then(|text| Boot::parse(env, &text))
            .map_err(|error| format!("{}: {error}; run scripts/bench again", path.display()))?;
        boots.push(boot);
    }
    if boots.is_empty() {
        return Err(format!(
            "{} has no measurements: run scripts/bench first",
            directory.display()
        ));
    }
    Ok(boots)
}

/// The medians over all boots.
pub fn rows(boots: &[Boot]) -> Vec<Row> {
    let mut by_key: BTreeMap<&Key, Vec<&Row>> = BTreeMap::new();
    for row in boots.iter().flat_map(|boot| &boot.rows) {
        by_key.entry(&row.key).or_default().push(row);
    }
    let merge = |(key, rows): (&Key, Vec<&Row>)| {
        let of =
            |what: fn(&Row) -> f64| median(&rows.iter().map(|row| what(row)).collect::<Vec<_>>());
        let late: Vec<f64> = rows
            .iter()
            .filter_map(|row| row.neighbour_p90_ns)
            .map(|ns| ns as f64)
            .collect();
        Row {
            key: key.clone(),
            wall_ns: of(|row| row.wall_ns as f64) as u64,
            caller_cpu_ns: of(|row| row.caller_cpu_ns as f64) as u64,
            voluntary_switches: of(|row| row.voluntary_switches),
            neighbour_p90_ns: (!late.is_empty()).then(|| median(&late) as u64),
        }
    };
    by_key.into_iter().map(merge).collect()
}

/// The medians over all boots.
pub fn facts(boots: &[Boot]) -> Vec<Fact> {
    let mut by_key: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for fact in boots.iter().flat_map(|boot| &boot.facts) {
        let key = (&*fact.env, &*fact.what);
        by_key.entry(key).or_default().push(fact.value);
    }
    let merge = |((env, what), values): ((&str, &str), Vec<f64>)| Fact {
        env: env.into(),
        what: what.into(),
        value: median(&values),
    };
    by_key.into_iter().map(merge).collect()
}

/// An array in JSON, one element per line, which is how people read and compare it.
fn json<T: serde::Serialize>(values: &[T]) -> Result<String, String> {
    let lines = values
        .iter()
        .map(serde_json::to_string)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| error.to_string())?;
    Ok(format!("[\n{}\n]\n", lines.join(",\n")))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Makes the table, results.json, facts.json and the chart.
pub fn report(directory: &Path) -> Result<(), String> {
    let boots = boots(directory)?;
    let (rows, facts) = (rows(&boots), facts(&boots));
    write(&directory.join("results.json"), &json(&rows)?)?;
    write(&directory.join("facts.json"), &json(&facts)?)?;
    write(&directory.join("bench.svg"), &chart::svg(&rows))?;
    print!("{}", table::text(&rows, &facts));
    Ok(())
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn row(env: &str, case: &str, cpus: &str, regs: u32, wall_ns: u64, cpu: u64) -> Row {
        Row {
            key: Key {
                env: env.into(),
                case: case.into(),
                cpus: cpus.into(),
                regs,
                target: "idle".into(),
            },
            wall_ns,
            caller_cpu_ns: cpu,
            voluntary_switches: 0.0,
            neighbour_p90_ns: None,
        }
    }

    #[test]
    fn boots_are_merged_by_their_medians() {
        let boot = |wall, late| {
            let mut row = row("tcg4", "read", "one", 1, wall, 1);
            row.neighbour_p90_ns = late;
            let fact = Fact {
                env: "tcg4".into(),
                what: "x".into(),
                value: wall as f64,
            };
            Boot {
                env: "tcg4".into(),
                rows: vec![row],
                facts: vec![fact],
            }
        };
        let boots = [boot(30, None), boot(10, Some(7)), boot(20, None)];
        let merged = rows(&boots);
        assert_eq!(merged.len(), 1);
        assert_eq!(merged[0].wall_ns, 20);
        assert_eq!(merged[0].neighbour_p90_ns, Some(7));
        assert_eq!(facts(&boots)[0].value, 20.0);
    }

    #[test]
    fn a_broken_boot_is_refused() {
        assert!(Boot::parse("tcg4", "").is_err());
        assert!(Boot::parse("tcg4", "hello\n").is_err());
        let good = r#"{"fact":{"env":"tcg4","what":"x","value":1.5}}"#;
        assert_eq!(Boot::parse("tcg4", good).unwrap().fact("x"), Some(1.5));
        assert!(Boot::parse("tcg4", &good[..30]).is_err());
    }
}
