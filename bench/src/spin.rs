// SPDX-License-Identifier: GPL-2.0

//! The module's own settings and counters, in sysfs.

use std::fs;

const DIRECTORY: &str = "/sys/class/misc/cpupeek";

/// The value of one of the module's attributes.
pub fn attribute(name: &str) -> Result<u64, String> {
    let path = format!("{DIRECTORY}/{name}");
    let text = fs::read_to_string(&path)
        .map_err(|error| format!("cannot read {path}: {error}; is the module loaded?"))?;
    text.trim()
        .parse()
        .map_err(|_| format!("{path} holds {text:?} and no number"))
}

fn set(name: &str, value: u64) -> Result<(), String> {
    let path = format!("{DIRECTORY}/{name}");
    fs::write(&path, value.to_string())
        .map_err(|error| format!("cannot write {value} to {path}: {error}"))
}

/// Whether callers spin for virtual CPUs that are preempted too.
pub fn set_spin_preempted(on: bool) -> Result<(), String> {
    set("spin_preempted", on.into())
}

/// How long callers spin before they sleep, at least and at most, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    min: u64,
    max: u64,
}

/// Longer than any answer takes that somebody spins for in earnest.
const TO_THE_END_US: u64 = 10_000;

impl Budget {
    /// What the module is set to.
    pub fn current() -> Result<Self, String> {
        Ok(Self {
            min: attribute("spin_min_us")?,
            max: attribute("spin_max_us")?,
        })
    }

    /// The one that a case needs, where `usual` is what the module came with.
    pub fn of_case(case: &str, usual: Self) -> Self {
        let fixed = case.strip_prefix("fixed_").map(str::parse);
        match (fixed, case) {
            (Some(Ok(us)), _) => Self { min: us, max: us },
            (_, "spin") => Self {
                max: TO_THE_END_US,
                ..usual
            },
            _ => usual,
        }
    }

    /// Sets it.
    pub fn set(self) -> Result<(), String> {
        set("spin_min_us", self.min)?;
        set("spin_max_us", self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_have_their_budgets() {
        let usual = Budget { min: 1, max: 100 };
        let of = |case| Budget::of_case(case, usual);
        assert_eq!(of("fixed_20"), Budget { min: 20, max: 20 });
        assert_eq!(of("batch"), usual);
        assert_eq!(of("sleep"), usual);
        assert_eq!(of("spin").max, 10_000);
    }
}
