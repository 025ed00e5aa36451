// SPDX-License-Identifier: GPL-2.0

//! Readings for people: a row for each register of each CPU.

use crate::read::Answer;
use cpupeek_client::{OpError, Register, Value};
use std::io::{self, Write};

/// A table that goes on from round to round.
pub struct Table {
    cpu_width: usize,
    /// None if the registers are MSRs.
    subleaf_width: Option<usize>,
    /// None if it is not shown.
    tsc_width: Option<usize>,
    rounds: u64,
}

/// What a table is kept within.
const WIDTH: usize = 80;

impl Table {
    pub fn new(registers: &[Register], cpus: &[u32], tsc: bool) -> Self {
        let width = |number: u32, title: &str| number.to_string().len().max(title.len());
        let cpu_width = width(cpus.iter().copied().max().unwrap_or(0), "CPU");
        let subleaf_width = registers
            .iter()
            .filter_map(|register| match register {
                Register::Msr(_) => None,
                Register::Cpuid { subleaf, .. } => Some(width(*subleaf, "SUB")),
            })
            .max();
        // With all else that a row has, and blanks in between.
        let others = match subleaf_width {
            None => cpu_width + 2 + 10 + 2 + 2 + 18,
            Some(width) => cpu_width + 1 + 10 + 1 + width + 1 + 4 * 11,
        };
        // 16 digits are a hundred days at 1 GHz.
        let tsc_width = WIDTH.saturating_sub(others).clamp(16, 20);
        Table {
            cpu_width,
            subleaf_width,
            tsc_width: tsc.then_some(tsc_width),
            rounds: 0,
        }
    }

    /// Writes one round, the first with the titles above it.
    pub fn write(
        &mut self,
        out: &mut impl Write,
        mut answers: impl Iterator<Item = Answer>,
    ) -> io::Result<()> {
        if self.rounds == 0 {
            self.write_titles(out)?;
        } else {
            writeln!(out)?;
        }
        self.rounds = self.rounds.saturating_add(1);
        answers.try_for_each(|answer| self.write_row(out, &answer))
    }

    /// What is between columns: CPUID's answer is wide, and more so with a time stamp.
    fn gap(&self) -> &'static str {
        match (self.subleaf_width, self.tsc_width) {
            (Some(_), Some(_)) => " ",
            _ => "  ",
        }
    }

    fn write_titles(&self, out: &mut impl Write) -> io::Result<()> {
        let gap = self.gap();
        write!(out, "{:>1$}", "CPU", self.cpu_width)?;
        match self.subleaf_width {
            None => write!(out, "{gap}{:10}", "MSR")?,
            Some(width) => write!(out, "{gap}{:10}{gap}{:>width$}", "LEAF", "SUB")?,
        }
        if let Some(width) = self.tsc_width {
            write!(out, "{gap}{:>width$}", "TSC")?;
        }
        match self.subleaf_width {
            None => writeln!(out, "{gap}VALUE"),
            Some(_) => writeln!(
                out,
                "{gap}{:10}{gap}{:10}{gap}{:10}{gap}EDX",
                "EAX", "EBX", "ECX"
            ),
        }
    }

    fn write_row(&self, out: &mut impl Write, answer: &Answer) -> io::Result<()> {
        let gap = self.gap();
        write!(out, "{:>1$}", answer.cpu, self.cpu_width)?;
        match (answer.register, self.subleaf_width) {
            (Register::Cpuid { leaf, subleaf }, Some(width)) => {
                write!(out, "{gap}{leaf:#010x}{gap}{subleaf:>width$}")?
            }
            (Register::Cpuid { leaf: number, .. } | Register::Msr(number), _) => {
                write!(out, "{gap}{number:#010x}")?
            }
        }
        let reading = match answer.result {
            Ok(reading) => reading,
            // There is no time stamp either, so the reason may have its room.
            Err(error) => return writeln!(out, "{gap}{}", error_cell(answer, error)),
        };
        if let Some(width) = self.tsc_width {
            write!(out, "{gap}{:>width$}", reading.tsc)?;
        }
        match reading.value {
            Value::Msr(value) => writeln!(out, "{gap}{value:#018x}"),
            Value::Cpuid(regs) => writeln!(
                out,
                "{gap}{:#010x}{gap}{:#010x}{gap}{:#010x}{gap}{:#010x}",
                regs.eax, regs.ebx, regs.ecx, regs.edx
            ),
        }
    }
}

fn error_cell(answer: &Answer, error: OpError) -> String {
    let words = answer.words(error);
    match (error.errno_name(), error.errno()) {
        (Some(name), _) => format!("{words} ({name})"),
        (None, 0) => words.into(),
        (None, errno) => format!("{words} {errno}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpupeek_client::{CpuidRegs, Reading};

    fn answer(cpu: u32, register: Register, result: Result<Value, OpError>) -> Answer {
        Answer {
            cpu,
            register,
            result: result.map(|value| Reading {
                cpu,
                tsc: 1234,
                value,
            }),
            present: Some(cpu < 4),
        }
    }

    fn written(table: &mut Table, answers: Vec<Answer>) -> String {
        let mut out = Vec::new();
        table
            .write(&mut out, answers.into_iter())
            .expect("a Vec takes everything");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn msrs() {
        let register = Register::Msr(0xc000_0103);
        let mut table = Table::new(&[register], &[0, 1, 2, 1000], false);
        let text = written(
            &mut table,
            vec![
                answer(0, register, Ok(Value::Msr(0x1b))),
                answer(1, register, Err(OpError::Hardware)),
                answer(2, register, Err(OpError::Absent)),
                answer(1000, register, Err(OpError::Absent)),
            ],
        );
        assert_eq!(
            text,
            " CPU  MSR         VALUE
   0  0xc0000103  0x000000000000001b
   1  0xc0000103  refused by the CPU (EIO)
   2  0xc0000103  offline (ENXIO)
1000  0xc0000103  no such CPU (ENXIO)
"
        );
    }

    #[test]
    fn leaves_and_time_stamps() {
        let register = Register::Cpuid {
            leaf: 0x8000_0002,
            subleaf: 1,
        };
        let regs = CpuidRegs {
            eax: 1,
            ebx: 2,
            ecx: 3,
            edx: 4,
        };
        let mut table = Table::new(&[register], &[0, 1], true);
        let text = written(
            &mut table,
            vec![
                answer(0, register, Ok(Value::Cpuid(regs))),
                answer(1, register, Err(OpError::Other(110))),
            ],
        );
        assert_eq!(
            text,
            "CPU LEAF       SUB               TSC EAX        EBX        ECX        EDX
  0 0x80000002   1              1234 0x00000001 0x00000002 0x00000003 0x00000004
  1 0x80000002   1 unknown error 110
"
        );
    }

    #[test]
    fn later_rounds_have_no_titles() {
        let register = Register::Msr(16);
        let mut table = Table::new(&[register], &[0], false);
        let round = || vec![answer(0, register, Ok(Value::Msr(1)))];
        assert!(written(&mut table, round()).starts_with("CPU"));
        assert_eq!(
            written(&mut table, round()),
            "\n  0  0x00000010  0x0000000000000001\n"
        );
    }

    #[test]
    fn rows_fit_a_terminal() {
        let widest = [
            Ok(Value::Cpuid(CpuidRegs::default())),
            Ok(Value::Msr(u64::MAX)),
            Err(OpError::RegisterRefused),
            Err(OpError::Absent),
            Err(OpError::Other(i32::MIN)),
        ];
        for tsc in [false, true] {
            for subleaf in [0, u32::MAX] {
                let msr = Register::Msr(16);
                let leaf = Register::Cpuid { leaf: 0, subleaf };
                for result in widest {
                    let register = match result {
                        Ok(Value::Msr(_)) => msr,
                        Ok(Value::Cpuid(_)) => leaf,
                        Err(_) => msr,
                    };
                    // A subleaf of ten digits and a time stamp are more than fits.
                    if tsc && subleaf != 0 && register == leaf {
                        continue;
                    }
                    let cpus: Vec<_> = (0..8192).collect();
                    let mut table = Table::new(&[register], &cpus, tsc);
                    let text = written(&mut table, vec![answer(8191, register, result)]);
                    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
                }
            }
        }
    }

    #[test]
    fn no_cpus_at_all() {
        let mut table = Table::new(&[Register::Msr(16)], &[], false);
        assert_eq!(written(&mut table, vec![]), "CPU  MSR         VALUE\n");
    }
}
