// SPDX-License-Identifier: GPL-2.0

//! What is measured, and how it is kept.

use serde::{Deserialize, Serialize};

/// What a measurement is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    pub env: String,
    pub case: String,
    /// self, one or all.
    pub cpus: String,
    pub regs: u32,
    /// idle, blocked_100us, blocked_1ms or blocked_10ms.
    pub target: String,
}

/// One line of results.json.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    #[serde(flatten)]
    pub key: Key,
    pub wall_ns: u64,
    pub caller_cpu_ns: u64,
    pub voluntary_switches: f64,
    /// How late a SCHED_FIFO neighbour with a period of 1 ms was, where that was measured.
    pub neighbour_p90_ns: Option<u64>,
}

/// One line of facts.json: what is no sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    pub env: String,
    pub what: String,
    pub value: f64,
}

/// What a guest says, one line of JSON each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    Row(Row),
    Fact(Fact),
}

impl Line {
    /// Tells the host.
    pub fn print(&self) -> Result<(), String> {
        let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
        println!("{text}");
        Ok(())
    }
}

/// Tells the host a fact.
pub fn print_fact(env: &str, what: String, value: f64) -> Result<(), String> {
    let env = env.to_owned();
    Line::Fact(Fact { env, what, value }).print()
}

/// The value that a share `q` of the values does not exceed; 0 if there are none.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.max(1) - 1)
        .or(sorted.last())
        .copied()
        .unwrap_or(0.0)
}

/// The median; the lower one of two.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.0);
        let ten: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!(quantile(&ten, 0.9), 9.0);
        assert_eq!(quantile(&ten, 1.0), 10.0);
        assert_eq!(quantile(&ten, 0.0), 1.0);
    }

    #[test]
    fn a_row_has_the_agreed_fields() {
        let row = Row {
            key: Key {
                env: "tcg4".into(),
                case: "pread".into(),
                cpus: "all".into(),
                regs: 16,
                target: "idle".into(),
            },
            wall_ns: 5,
            caller_cpu_ns: 4,
            voluntary_switches: 1.0,
            neighbour_p90_ns: None,
        };
        let text = serde_json::to_string(&row).unwrap();
        assert_eq!(
            text,
            r#"{"env":"tcg4","case":"pread","cpus":"all","regs":16,"target":"idle","wall_ns":5,"caller_cpu_ns":4,"voluntary_switches":1.0,"neighbour_p90_ns":null}"#
        );
        assert_eq!(serde_json::from_str::<Row>(&text).unwrap(), row);
    }
}
