// SPDX-License-Identifier: GPL-2.0

//! The JSON form of readings.
//!
//! It is part of the interface and documented in cpupeek(1): keys are added,
//! never changed. What may exceed 2^53 is a string, because JSON readers make
//! doubles of numbers.

use crate::read::Answer;
use cpupeek_client::{OpError, Register, Value};
use serde::Serialize;
use std::io::{self, Write};

#[derive(Serialize)]
struct Row {
    cpu: u32,
    #[serde(flatten)]
    register: RegisterFields,
    #[serde(flatten)]
    value: ValueFields,
    tsc: Option<String>,
    error: Option<ErrorFields>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum RegisterFields {
    Msr { reg: u32 },
    Cpuid { leaf: u32, subleaf: u32 },
}

#[derive(Serialize)]
#[serde(untagged)]
enum ValueFields {
    Msr {
        value: Option<String>,
    },
    Cpuid {
        eax: Option<u32>,
        ebx: Option<u32>,
        ecx: Option<u32>,
        edx: Option<u32>,
    },
}

#[derive(Serialize)]
struct ErrorFields {
    errno: String,
    kind: &'static str,
    message: &'static str,
}

impl Row {
    fn new(answer: &Answer) -> Self {
        let reading = answer.result.ok();
        let register = match answer.register {
            Register::Msr(reg) => RegisterFields::Msr { reg },
            Register::Cpuid { leaf, subleaf } => RegisterFields::Cpuid { leaf, subleaf },
        };
        let value = match (answer.register, reading.map(|reading| reading.value)) {
            (Register::Msr(_), Some(Value::Msr(value))) => ValueFields::Msr {
                value: Some(format!("{value:#018x}")),
            },
            (Register::Msr(_), _) => ValueFields::Msr { value: None },
            (Register::Cpuid { .. }, Some(Value::Cpuid(regs))) => ValueFields::Cpuid {
                eax: Some(regs.eax),
                ebx: Some(regs.ebx),
                ecx: Some(regs.ecx),
                edx: Some(regs.edx),
            },
            (Register::Cpuid { .. }, _) => ValueFields::Cpuid {
                eax: None,
                ebx: None,
                ecx: None,
                edx: None,
            },
        };
        Row {
            cpu: answer.cpu,
            register,
            value,
            tsc: reading.map(|reading| reading.tsc.to_string()),
            error: answer.result.err().map(|error| ErrorFields {
                errno: errno(error),
                kind: error.kind(),
                message: answer.words(error),
            }),
        }
    }
}

fn errno(error: OpError) -> String {
    match error.errno_name() {
        Some(name) => name.into(),
        None => error.errno().to_string(),
    }
}

pub fn write(out: &mut impl Write, answers: impl Iterator<Item = Answer>) -> io::Result<()> {
    let mut separator = "[\n";
    for answer in answers {
        out.write_all(separator.as_bytes())?;
        serde_json::to_writer(&mut *out, &Row::new(&answer))?;
        separator = ",\n";
    }
    out.write_all(b"\n]\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpupeek_client::{CpuidRegs, Reading};

    fn answer(register: Register, result: Result<Value, OpError>) -> Answer {
        Answer {
            cpu: 3,
            register,
            result: result.map(|value| Reading {
                cpu: 3,
                tsc: u64::MAX,
                value,
            }),
            present: Some(true),
        }
    }

    fn written(answers: Vec<Answer>) -> String {
        let mut out = Vec::new();
        write(&mut out, answers.into_iter()).expect("a Vec takes everything");
        String::from_utf8(out).expect("JSON is UTF-8")
    }

    #[test]
    fn the_schema_stays_as_it_is() {
        let leaf = Register::Cpuid {
            leaf: 4,
            subleaf: 1,
        };
        let regs = CpuidRegs {
            eax: 1,
            ebx: 2,
            ecx: 3,
            edx: u32::MAX,
        };
        assert_eq!(
            written(vec![
                answer(Register::Msr(0xc000_0103), Ok(Value::Msr(u64::MAX))),
                answer(Register::Msr(16), Err(OpError::Hardware)),
                answer(leaf, Ok(Value::Cpuid(regs))),
                answer(leaf, Err(OpError::Absent)),
                answer(Register::Msr(1), Err(OpError::Other(110))),
            ]),
            r#"[
{"cpu":3,"reg":3221225731,"value":"0xffffffffffffffff","tsc":"18446744073709551615","error":null},
{"cpu":3,"reg":16,"value":null,"tsc":null,"error":{"errno":"EIO","kind":"hardware","message":"refused by the CPU"}},
{"cpu":3,"leaf":4,"subleaf":1,"eax":1,"ebx":2,"ecx":3,"edx":4294967295,"tsc":"18446744073709551615","error":null},
{"cpu":3,"leaf":4,"subleaf":1,"eax":null,"ebx":null,"ecx":null,"edx":null,"tsc":null,"error":{"errno":"ENXIO","kind":"absence","message":"offline"}},
{"cpu":3,"reg":1,"value":null,"tsc":null,"error":{"errno":"110","kind":"unknown","message":"unknown error"}}
]
"#
        );
    }

    #[test]
    fn it_parses() {
        let text = written(vec![answer(Register::Msr(1), Ok(Value::Msr(0x1b)))]);
        let json: serde_json::Value = serde_json::from_str(&text).expect("valid");
        assert_eq!(json[0]["value"], "0x000000000000001b");
    }
}
