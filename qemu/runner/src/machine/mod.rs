// SPDX-License-Identifier: GPL-2.0
//! Machine descriptions: the TOML that people write (Documentation/guests.md), checked here, and the plain lines that the
//! preloaded library gets.

mod compile;
#[cfg(test)]
mod fuzz;
mod toml;

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Context, Result};

/// A machine that has been checked.
#[derive(Debug)]
pub struct Machine {
    /// Its CPUs.
    pub cpus: u32,
    /// Its dies.
    pub dies: u32,
    /// For the guest's kernel command line.
    pub append: String,
    /// For the library: what it answers.
    pub lines: String,
    /// Names of registers.
    pub names: BTreeMap<u32, String>,
}

impl Machine {
    /// Reads and checks a description.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .context(|| format!("read the machine description '{}'", path.display()))?;
        compile::compile(path, &text)
    }

    /// The accesses that the library counted, for people.
    pub fn report(&self, raw: &str) -> String {
        let mut out = String::from("# register    cpu      reads     writes  answer     name\n");
        for line in raw.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            let [index, cpu, reads, writes, kind] = words[..] else {
                continue;
            };
            let index: u32 = index.parse().unwrap_or(0);
            let answer = if kind == "unknown" { "fault" } else { kind };
            let name = self.names.get(&index).map_or("", String::as_str);
            let row =
                format!("{index:#010x} {cpu:>8} {reads:>10} {writes:>10}  {answer:<10} {name}");
            out.push_str(row.trim_end());
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_that_is_shipped_is_right() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../machines");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let machine = Machine::load(&path).unwrap_or_else(|error| panic!("{error}"));
            assert!(machine.cpus > 1 && !machine.names.is_empty());
            seen += 1;
        }
        assert!(seen >= 6);
    }

    #[test]
    fn the_report_has_names() {
        let machine = Machine {
            cpus: 1,
            dies: 1,
            append: String::new(),
            lines: String::new(),
            names: BTreeMap::from([(0xe8, "APERF".to_owned())]),
        };
        let text = machine.report("232 0 12 0 described\n1542 1 1 2 unknown\n");
        assert!(text.contains("0x000000e8        0         12          0  described  APERF\n"));
        assert!(text.contains("0x00000606        1          1          2  fault\n"));
    }
}
