// SPDX-License-Identifier: GPL-2.0

//! `cpupeek rdmsr`: what msr-tools' rdmsr(1) does, with its options, output and exit statuses.
//!
//! It departs from it in five ways: all processors are asked at once, one that cannot answer does
//! not keep the others from being shown, a register that is no number is refused, a processor that
//! is not there always has the status that is meant for it, whether /dev has a file for it or not, and
//! an isolated one is refused unless --disturb says that it is to be interrupted.

mod format;

use crate::{cpus, Failure, Outcome};
use clap::Args;
use cpupeek_client::{BatchOptions, Device, DeviceError, Op, OpError, Value};
use format::{Field, Format, Radix};
use std::io::{self, Write};

pub const NAME: &str = "rdmsr";

/// The exit status for all that has none of its own: wrong usage above all.
pub const OTHER: u8 = 127;

const EXIT_STATUS: &str = "\
Exit status: 0 read, 2 no such CPU or offline, 4 refused, 127 anything else";

/// clap's own has a line more, which is one more than a screen has.
const HELP: &str = "{about-with-newline}{usage-heading} {usage}\n\n{all-args}{after-help}";

#[derive(Args, Debug)]
#[command(after_help = EXIT_STATUS, help_template = HELP, args_override_self = true)]
pub struct RdmsrArgs {
    /// Register, in hex with 0x, in octal with 0, or in decimal
    #[arg(value_name = "REGNO", value_parser = parse_number)]
    reg: u32,

    /// Hexadecimal (default)
    #[arg(short = 'x', long, overrides_with_all = FORMATS)]
    hexadecimal: bool,

    /// Hexadecimal in capitals
    #[arg(short = 'X', long, overrides_with_all = FORMATS)]
    capital_hexadecimal: bool,

    /// Signed decimal
    // Before there was --disturb, --d and --di were short for this; the first is what people write.
    #[arg(short = 'd', long, visible_alias = "signed-decimal", alias = "d", overrides_with_all = FORMATS)]
    decimal: bool,

    /// Unsigned decimal
    #[arg(short = 'u', long, overrides_with_all = FORMATS)]
    unsigned_decimal: bool,

    /// Octal
    #[arg(short = 'o', long, overrides_with_all = FORMATS)]
    octal: bool,

    /// The eight bytes themselves
    #[arg(short = 'r', long, overrides_with_all = FORMATS)]
    raw: bool,

    /// As a constant of the C language
    #[arg(short = 'c', long)]
    c_language: bool,

    /// With leading zeroes
    #[arg(short = '0', long, visible_alias = "zero-fill")]
    zero_pad: bool,

    /// All processors that are online
    #[arg(short = 'a', long, overrides_with = "processor")]
    all: bool,

    /// Number of the processor
    #[arg(
        short = 'p',
        long,
        visible_alias = "cpu",
        value_name = "CPU",
        default_value = "0",
        value_parser = parse_number,
        overrides_with = "all"
    )]
    processor: u32,

    /// Those bits only
    #[arg(short = 'f', long, value_name = "HIGH:LOW")]
    bitfield: Option<Field>,

    /// Interrupt isolated processors too (root)
    #[arg(long)]
    disturb: bool,
}

const FORMATS: [&str; 6] = [
    "hexadecimal",
    "capital_hexadecimal",
    "decimal",
    "unsigned_decimal",
    "octal",
    "raw",
];

impl RdmsrArgs {
    fn format(&self) -> Format {
        let radixes = [
            (self.capital_hexadecimal, Radix::CapitalHex),
            (self.decimal, Radix::Signed),
            (self.unsigned_decimal, Radix::Unsigned),
            (self.octal, Radix::Octal),
            (self.raw, Radix::Raw),
        ];
        let given = radixes.into_iter().find(|&(given, _)| given);
        Format {
            radix: given.map_or(Radix::Hex, |(_, radix)| radix),
            field: self.bitfield.unwrap_or(Field::ALL),
            c: self.c_language,
            fill: self.zero_pad,
        }
    }
}

/// As strtoul(3) with base 0, but nothing else than a number.
fn parse_number(text: &str) -> Result<u32, String> {
    let octal = text.strip_prefix('0').filter(|digits| {
        !digits.is_empty() && digits.bytes().all(|digit| (b'0'..=b'7').contains(&digit))
    });
    match octal {
        Some(digits) => u32::from_str_radix(digits, 8)
            .map_err(|_| "the number is too large, 037777777777 is the highest".into()),
        None if text.len() > 1
            && text.starts_with('0')
            && text.bytes().all(|b| b.is_ascii_digit()) =>
        {
            Err("a number that begins with 0 is octal, and has no digits 8 and 9".into())
        }
        None => crate::args::parse_number(text),
    }
}

pub fn run(
    out: &mut impl Write,
    device: impl FnOnce() -> Result<Device, DeviceError>,
    args: &RdmsrArgs,
) -> Result<Outcome, Failure> {
    read(out, device, args).map_err(|failure| match failure {
        // Whoever read our output has seen enough.
        Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => error.into(),
        Failure::Status(..) => failure,
        failure => other(format!("{NAME}: {failure}")),
    })
}

fn read(
    out: &mut impl Write,
    device: impl FnOnce() -> Result<Device, DeviceError>,
    args: &RdmsrArgs,
) -> Result<Outcome, Failure> {
    let device = device()?;
    let nr_cpu_ids = device.info().nr_cpu_ids;
    let cpus = if args.all {
        cpus::present(nr_cpu_ids).map_err(Failure::System)?
    } else if args.processor < nr_cpu_ids {
        vec![args.processor]
    } else {
        return Err(failed(args.processor, args.reg, OpError::Absent));
    };
    let op = |&cpu: &u32| match Op::msr(cpu, args.reg) {
        op if args.disturb => op.disturb(),
        op => op,
    };
    let mut ops: Vec<_> = cpus.iter().map(op).collect();
    let options = BatchOptions {
        timeout: Some(device.info().read_timeout),
        ..Default::default()
    };
    device.batch(&mut ops, options)?;

    let format = args.format();
    let mut first_failure = None;
    for (op, &cpu) in ops.iter().zip(&cpus) {
        match op.result().map(|reading| reading.value) {
            Ok(Value::Msr(value)) => {
                // Bytes are for programs.
                if args.all && format.radix != Radix::Raw {
                    write!(out, "CPU {cpu}: ")?;
                }
                out.write_all(&format.bytes(value))?;
            }
            // One that is offline is none of "all".
            Err(OpError::Absent) if args.all => {}
            Ok(Value::Cpuid(_)) => {
                let message =
                    "the module answered another question: install both from the same version";
                return Err(Failure::System(message.into()));
            }
            Err(error) => {
                let failure = failed(cpu, args.reg, error);
                match &first_failure {
                    None => first_failure = Some(failure),
                    Some(_) => crate::complain(&failure),
                }
            }
        }
    }
    out.flush()?;
    first_failure.map_or(Ok(Outcome::AllRead), Err)
}

fn failed(cpu: u32, reg: u32, error: OpError) -> Failure {
    match error {
        OpError::Absent => Failure::Status(2, format!("{NAME}: No CPU {cpu}")),
        OpError::Hardware => {
            let message = format!("{NAME}: CPU {cpu} cannot read MSR {reg:#010x}");
            Failure::Status(4, message)
        }
        error => {
            let remedy = match error {
                OpError::CpuRefused => format!(
                    "for an isolated CPU add --disturb (root), else ask 'cpupeek doctor {reg:#x} --cpu {cpu}'"
                ),
                OpError::RegisterRefused => format!(
                    "'cpupeek doctor {reg:#x} --cpu {cpu}' says what would change that"
                ),
                _ => "try again".into(),
            };
            let what = error.description();
            other(format!(
                "{NAME}: CPU {cpu}, MSR {reg:#010x}: {what}: {remedy}"
            ))
        }
    }
}

fn other(message: String) -> Failure {
    Failure::Status(OTHER, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn parsed(args: &[&str]) -> Option<RdmsrArgs> {
        let args = ["cpupeek", NAME].iter().chain(args);
        match Cli::try_parse_from(args).ok()?.command {
            Command::Rdmsr(args) => Some(args),
            _ => None,
        }
    }

    fn radix(args: &[&str]) -> Option<Radix> {
        Some(parsed(args)?.format().radix)
    }

    #[test]
    fn options_as_people_write_them() {
        assert_eq!(radix(&["16"]), Some(Radix::Hex));
        assert_eq!(radix(&["-x", "-d", "16"]), Some(Radix::Signed));
        assert_eq!(radix(&["-d", "16", "-X"]), Some(Radix::CapitalHex));
        assert_eq!(radix(&["-d", "-x", "16"]), Some(Radix::Hex));
        assert_eq!(radix(&["-dd", "16"]), Some(Radix::Signed));
        assert_eq!(radix(&["--signed-decimal", "16"]), Some(Radix::Signed));
        assert_eq!(radix(&["--hex", "16"]), Some(Radix::Hex));
        for short in ["--d", "--dec", "--s"] {
            assert_eq!(radix(&[short, "16"]), Some(Radix::Signed), "{short}");
        }
        assert!(parsed(&["--disturb", "16"]).expect("good").disturb);
        assert!(!parsed(&["-d", "16"]).expect("good").disturb);
        let args = parsed(&["-ax0cf", "7:4", "-p3", "0x10"]).expect("good");
        assert!(!args.all && args.zero_pad && args.c_language);
        assert_eq!((args.processor, args.reg), (3, 16));
        assert!(parsed(&["-p", "1", "-a", "0x10"]).expect("good").all);
        assert_eq!(parsed(&["--cpu=010", "020"]).expect("good").processor, 8);
        for bad in [
            &[][..],
            &["1", "2"],
            &["-f", "1:2", "1"],
            &["-p", "x", "1"],
            &["-q", "1"],
        ] {
            assert!(parsed(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn refusals_have_a_remedy() {
        let says = |error| match failed(3, 0x10, error) {
            Failure::Status(OTHER, message) => message,
            other => format!("{other:?}"),
        };
        assert!(says(OpError::CpuRefused).contains("add --disturb"));
        assert!(says(OpError::RegisterRefused).contains("cpupeek doctor 0x10 --cpu 3"));
        assert!(says(OpError::Timeout).ends_with(": try again"));
    }

    #[test]
    fn numbers() {
        assert_eq!(parse_number("0"), Ok(0));
        assert_eq!(parse_number("00"), Ok(0));
        assert_eq!(parse_number("017"), Ok(15));
        assert_eq!(parse_number("0x17"), Ok(23));
        assert_eq!(parse_number("17"), Ok(17));
        assert!(parse_number("018").is_err_and(|error| error.contains("octal")));
        assert!(parse_number("0777777777777").is_err_and(|error| error.contains("too large")));
        for text in ["", "x", "0x", "-1", "1a", "0x1 "] {
            assert!(parse_number(text).is_err(), "{text}");
        }
    }
}
