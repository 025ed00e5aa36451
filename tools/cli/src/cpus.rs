// SPDX-License-Identifier: GPL-2.0

//! Which CPUs: lists as the kernel writes them, and the CPUs that are present.

use std::fs;
use std::str::FromStr;

const PRESENT: &str = "/sys/devices/system/cpu/present";

/// What `--cpu` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    All,
    List(CpuList),
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Selection::All),
            list => list.parse().map(Selection::List),
        }
    }
}

/// A set of CPU numbers, kept as ranges because it may be far larger than the
/// machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuList(Vec<Range>);

/// Of every `group` numbers from `first` to `last`, the first `used`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    first: u32,
    last: u32,
    used: u32,
    group: u32,
}

impl CpuList {
    /// The CPU numbers in order, each once, all below `nr_cpu_ids`.
    pub fn expand(&self, nr_cpu_ids: u32) -> Result<Vec<u32>, String> {
        let highest = self.0.iter().map(|range| range.last).max().unwrap_or(0);
        if highest >= nr_cpu_ids {
            return Err(format!(
                "there is no CPU {highest} here: name CPUs from 0 to {}",
                nr_cpu_ids.saturating_sub(1)
            ));
        }
        // Not a BTreeSet: a long list may name each CPU very often.
        let mut wanted = vec![false; nr_cpu_ids as usize];
        for range in &self.0 {
            for cpu in range.first..=range.last {
                if (cpu - range.first) % range.group < range.used {
                    wanted[cpu as usize] = true;
                }
            }
        }
        Ok((0..nr_cpu_ids)
            .filter(|&cpu| wanted[cpu as usize])
            .collect())
    }
}

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',')
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map(CpuList)
    }
}

impl FromStr for Range {
    type Err = String;

    /// `N`, `FIRST-LAST`, `FIRST-LAST:USED/GROUP` as in the kernel, or
    /// `FIRST-LAST:GROUP` as in taskset(1), where one of each group is used.
    fn from_str(text: &str) -> Result<Self, String> {
        let (range, pattern) = match text.split_once(':') {
            Some((range, pattern)) => (range, Some(pattern)),
            None => (text, None),
        };
        let (first, last) = match (range.split_once('-'), pattern) {
            (Some((first, last)), _) => (number(first)?, number(last)?),
            (None, None) => (number(range)?, number(range)?),
            (None, Some(_)) => return Err(unclear(text)),
        };
        let (used, group) = match pattern.map(|pattern| pattern.split_once('/').ok_or(pattern)) {
            Some(Ok((used, group))) => (number(used)?, number(group)?),
            Some(Err(group)) => (1, number(group)?),
            None => (1, 1),
        };
        if first > last {
            return Err(format!(
                "the range {range} runs backwards: write {last}-{first}"
            ));
        }
        if used == 0 || used > group {
            return Err(format!(
                "'{text}' takes {used} of every {group} CPUs: take at least one and at most all"
            ));
        }
        Ok(Range {
            first,
            last,
            used,
            group,
        })
    }
}

/// The number of a CPU. The highest of all is none: in the ABI it stands for the caller's CPU, or for any.
pub fn number(text: &str) -> Result<u32, String> {
    // parse() takes a sign as well.
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(unclear(text));
    }
    let number = text.parse().ok().filter(|&number| number != u32::MAX);
    number.ok_or_else(|| format!("there is no CPU {text} on any machine: name a smaller number"))
}

fn unclear(text: &str) -> String {
    format!("'{text}' is no CPU number or range: write a list such as 0-3,7 or 0-15:2, or 'all'")
}

/// The CPUs that are present, online or not.
pub fn present(nr_cpu_ids: u32) -> Result<Vec<u32>, String> {
    let text = fs::read_to_string(PRESENT).map_err(|error| {
        format!("cannot read {PRESENT}: {error}: mount sysfs, or name the CPUs with --cpu LIST")
    })?;
    text.trim_end()
        .parse::<CpuList>()
        .and_then(|list| list.expand(nr_cpu_ids))
        .map_err(|error| {
            format!("{PRESENT} makes no sense ({error}): name the CPUs with --cpu LIST")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str) -> Result<Vec<u32>, String> {
        text.parse::<CpuList>()?.expand(16)
    }

    #[test]
    fn lists() {
        assert_eq!(expand("0"), Ok(vec![0]));
        assert_eq!(expand("0-3,7"), Ok(vec![0, 1, 2, 3, 7]));
        assert_eq!(expand("7,0-3"), Ok(vec![0, 1, 2, 3, 7]));
        assert_eq!(expand("15"), Ok(vec![15]));
        assert_eq!(expand("3,3,2-3"), Ok(vec![2, 3]));
        assert_eq!(expand("0-15:4"), Ok(vec![0, 4, 8, 12]));
        assert_eq!(expand("1-10:2/4"), Ok(vec![1, 2, 5, 6, 9, 10]));
        assert_eq!(expand("5-5"), Ok(vec![5]));
    }

    #[test]
    fn bad_lists() {
        for text in [
            "",
            ",",
            "1,",
            "x",
            "1-",
            "-1",
            "1-2-3",
            "3:2",
            "0-3:",
            "0-3:/2",
            "0-3:1/",
            "+1",
            " 1",
            "1 ",
            "0x1",
            "1..2",
            "0-3:1/2/3",
            "all,1",
        ] {
            let error = text.parse::<CpuList>().expect_err(text);
            assert!(error.contains("write a list such as"), "{text}: {error}");
        }
        assert!(expand("3-1").expect_err("3-1").contains("backwards"));
        assert!(expand("0-3:0").expect_err("0").contains("takes 1 of"));
        assert!(expand("0-3:0/2").expect_err("0/2").contains("takes 0 of"));
        assert!(expand("0-3:3/2").expect_err("3/2").contains("takes 3 of"));
        for text in ["4294967295", "4294967296", "0-4294967295"] {
            assert!(expand(text).expect_err(text).contains("smaller"));
        }
    }

    #[test]
    fn lists_are_bounded_by_the_machine() {
        for text in ["16", "0-16", "0-4294967294", "0-4294967294:4294967294"] {
            let error = expand(text).expect_err(text);
            assert!(error.ends_with("name CPUs from 0 to 15"), "{error}");
        }
    }

    #[test]
    fn selections() {
        assert_eq!("all".parse(), Ok(Selection::All));
        assert_eq!("2".parse(), "2".parse().map(Selection::List));
        assert!("All".parse::<Selection>().is_err());
    }

    #[test]
    fn this_machines_cpus() {
        let cpus = present(8192).expect("sysfs");
        assert!(cpus.contains(&0));
    }
}
