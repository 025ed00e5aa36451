// SPDX-License-Identifier: GPL-2.0
//! The description as the runner hands it over: a line per fact, words and decimal numbers.
//!
//! ```text
//! cpus 2
//! report /run/registers
//! burst 200000
//! cpuid 0 6 * 2 4294967293 1
//! msr 0 231 count 0 2500000000 64 delay 50000,100000
//! msr 1 432 const 2290155520 writable
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::{FromStr, SplitWhitespace};
use std::time::Duration;

use crate::cpuid::Rule;
use crate::register::{Register, Value};

/// A described machine.
#[derive(Debug, Default)]
pub struct Description {
    /// Where the counts of reads go.
    pub report: Option<PathBuf>,
    /// Counters read on one CPU within this time are read at the same instant.
    pub burst: Duration,
    /// The CPUs.
    pub cpus: Vec<Cpu>,
}

/// A described CPU.
#[derive(Clone, Debug, Default)]
pub struct Cpu {
    /// Its registers.
    pub registers: BTreeMap<u32, Register>,
    /// What is changed in its CPUID leaves.
    pub rules: Vec<Rule>,
}

/// Reads a description; the error is the line that is none.
pub fn parse(text: &str) -> Result<Description, String> {
    let mut all = Description::default();
    for line in text.lines() {
        fact(&mut all, line.split_whitespace()).ok_or_else(|| line.to_owned())?;
    }
    Ok(all)
}

fn fact(all: &mut Description, mut words: SplitWhitespace<'_>) -> Option<()> {
    match words.next()? {
        "cpus" => all.cpus = vec![Cpu::default(); number(&mut words)?],
        "report" => all.report = Some(words.next()?.into()),
        "burst" => all.burst = Duration::from_nanos(number(&mut words)?),
        "cpuid" => {
            let cpu: usize = number(&mut words)?;
            let rule = Rule {
                leaf: number(&mut words)?,
                subleaf: match words.next()? {
                    "*" => None,
                    word => Some(word.parse().ok()?),
                },
                register: number::<usize>(&mut words).filter(|r| *r < 4)?,
                keep: number(&mut words)?,
                set: number(&mut words)?,
            };
            all.cpus.get_mut(cpu)?.rules.push(rule);
        }
        "msr" => {
            let cpu: usize = number(&mut words)?;
            let index = number(&mut words)?;
            let register = register(&mut words)?;
            all.cpus.get_mut(cpu)?.registers.insert(index, register);
        }
        _ => return None,
    }
    words.next().is_none().then_some(())
}

fn register(words: &mut SplitWhitespace<'_>) -> Option<Register> {
    let value = match words.next()? {
        "const" => Value::Constant(number(words)?),
        "count" => Value::Counter {
            start: number(words)?,
            rate: number(words)?,
            since: Duration::ZERO,
            bits: number(words)?,
        },
        "step" => Value::Steps {
            next: number(words)?,
            step: number(words)?,
            bits: number(words)?,
        },
        "fault" => Value::Fault,
        _ => return None,
    };
    let mut register = Register {
        value,
        delays: Vec::new(),
        writable: false,
        reads: 0,
        writes: 0,
    };
    while let Some(word) = words.next() {
        match word {
            "writable" => register.writable = true,
            "delay" => {
                register.delays = words
                    .next()?
                    .split(',')
                    .map(|n| n.parse().ok().map(Duration::from_nanos))
                    .collect::<Option<_>>()?;
            }
            _ => return None,
        }
    }
    Some(register)
}

fn number<T: FromStr>(words: &mut SplitWhitespace<'_>) -> Option<T> {
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_line() {
        let all = parse(
            "cpus 2\nreport /r\nburst 5\ncpuid 1 26 0 0 0 1073741825\nmsr 0 1 const 9 writable\n\
             msr 0 2 count 1 2 32 delay 3,4\nmsr 1 3 step 1 2 64\nmsr 1 4 fault\n",
        )
        .unwrap();
        assert_eq!(all.cpus[1].rules[0].subleaf, Some(0));
        let first = &all.cpus[0].registers;
        assert!(first[&1].writable);
        assert_eq!(first[&2].delays, [3, 4].map(Duration::from_nanos));
        assert_eq!(all.cpus[1].registers[&4].value, Value::Fault);
        assert_eq!(all.burst, Duration::from_nanos(5));
    }

    #[test]
    fn other_lines_are_named() {
        for line in [
            "msr 2 1 fault",
            "msr 0 1 const",
            "hello",
            "burst 1 2",
            "msr 0 1 fault x",
        ] {
            assert_eq!(parse(&format!("cpus 2\n{line}")).unwrap_err(), line);
        }
    }
}
