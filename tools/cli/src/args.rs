// SPDX-License-Identifier: GPL-2.0

//! The command line.

use crate::allow::AllowArgs;
use crate::cpus::Selection;
use crate::doctor::DoctorArgs;
use crate::metrics::MetricsArgs;
use crate::rdmsr::RdmsrArgs;
use crate::run::RunArgs;
use crate::top::TopArgs;
use clap::{Args, Parser, Subcommand};
use cpupeek_client::{Register, DEFAULT_PATH};
use std::path::PathBuf;
use std::time::Duration;

const EXIT_STATUS: &str = "\
Exit status:
  0  everything was read
  1  something could not be read; the output says what and why
  2  the command line is wrong
  3  the device cannot be used: module not loaded, permission denied, ...";

const EXIT_STATUSES: &str = "\
Exit status: 0 all read, 1 not all, 2 wrong usage, 3 no device; COMMAND --help";

/// Read model-specific registers and CPUID leaves of any CPU
#[derive(Debug, Parser)]
#[command(
    name = "cpupeek",
    version,
    after_help = EXIT_STATUSES,
    disable_help_subcommand = true,
    arg_required_else_help = false
)]
pub struct Cli {
    /// Device [default: $CPUPEEK_DEVICE or /dev/cpupeek]
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "CPUPEEK_DEVICE",
        hide_env = true,
        default_value = DEFAULT_PATH,
        hide_default_value = true
    )]
    pub device: PathBuf,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what the module can do here
    #[command(after_help = EXIT_STATUS)]
    Info(InfoArgs),
    /// Read model-specific registers
    #[command(after_help = EXIT_STATUS)]
    Msr(MsrArgs),
    /// Read CPUID leaves
    #[command(after_help = EXIT_STATUS)]
    Cpuid(CpuidArgs),
    /// Show, check and load the list of registers that users may read
    Allow(AllowArgs),
    /// Say why you can or cannot read a register, and what would change it
    Doctor(DoctorArgs),
    /// List the named values: frequency, temperature, energy, ...
    #[command(after_help = EXIT_STATUS)]
    List(ListArgs),
    /// Have every CPU read registers of its own again and again
    #[command(after_help = EXIT_STATUS)]
    Sample(SampleArgs),
    /// Show named values
    #[command(after_help = EXIT_STATUS)]
    Show(ShowArgs),
    /// Read a register as msr-tools' rdmsr does, with its options and output
    #[command(infer_long_args = true, version)]
    Rdmsr(RdmsrArgs),
    /// Print named values for Prometheus, which scrapes or collects them
    #[command(after_help = EXIT_STATUS)]
    Metrics(MetricsArgs),
    /// Show the CPUs in a table that is always the present
    Top(TopArgs),
    /// Run a program that reads /dev/cpu/N/msr or /dev/cpu/N/cpuid
    Run(RunArgs),
    /// Print the completions of a shell, for those who make packages
    #[command(hide = true)]
    Completions(CompletionsArgs),
}

#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// Shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

#[derive(Args, Debug)]
pub struct InfoArgs {
    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    /// Also those that no CPU of this machine has
    #[arg(long)]
    pub all: bool,

    /// Print JSON, one object for each value
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct ShowArgs {
    /// Values, such as freq_khz [default: all that you may see]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,

    #[command(flatten)]
    pub on: On,

    /// Show them again every TIME [default: 1s]
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1s", value_parser = parse_pause)]
    pub watch: Option<Duration>,

    /// Print JSON, one object for each value of each CPU
    #[arg(long)]
    pub json: bool,
}

/// Which CPUs a command is about.
#[derive(Args, Debug)]
pub struct On {
    /// CPUs, such as 0-3,7 or 0-15:2 [default: all present]
    #[arg(
        long,
        value_name = "LIST",
        default_value = "all",
        hide_default_value = true
    )]
    pub cpu: Selection,
}

#[derive(Args, Debug)]
pub struct SampleArgs {
    /// Registers, such as 0xc0000103 or 16
    #[arg(value_name = "REG", required = true, value_parser = parse_number)]
    pub regs: Vec<u32>,

    /// Time between samples: 10ms, 0.5s, 2
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub interval: Duration,

    #[command(flatten)]
    pub on: On,

    /// Wake idle CPUs, so that no sample is late
    #[arg(long)]
    pub exact: bool,

    /// Sample isolated CPUs too
    #[arg(long)]
    pub disturb: bool,

    /// Stop after N intervals
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Print every sample as a line of JSON
    #[arg(long)]
    pub json: bool,

    /// Print every sample as a line of comma-separated values
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

#[derive(Args, Debug)]
pub struct MsrArgs {
    /// Registers, such as 0xc0000103 or 16
    #[arg(value_name = "REG", required = true, value_parser = parse_number)]
    pub regs: Vec<u32>,

    #[command(flatten)]
    pub how: How,
}

impl MsrArgs {
    pub fn registers(&self) -> Vec<Register> {
        self.regs.iter().copied().map(Register::Msr).collect()
    }
}

#[derive(Args, Debug)]
pub struct CpuidArgs {
    /// Leaves, such as 0, 0x80000002 or 4.1
    #[arg(value_name = "LEAF[.SUBLEAF]", required = true, value_parser = parse_leaf)]
    pub leaves: Vec<(u32, u32)>,

    #[command(flatten)]
    pub how: How,
}

impl CpuidArgs {
    pub fn registers(&self) -> Vec<Register> {
        self.leaves
            .iter()
            .map(|&(leaf, subleaf)| Register::Cpuid { leaf, subleaf })
            .collect()
    }
}

#[derive(Args, Debug)]
pub struct How {
    #[command(flatten)]
    pub on: On,

    /// Print JSON, one object for each register of each CPU
    #[arg(long)]
    pub json: bool,

    /// Show the time stamp counter too; JSON always does
    #[arg(long)]
    pub tsc: bool,

    /// Interrupt isolated CPUs too
    #[arg(long)]
    pub disturb: bool,

    /// Read N times
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u64).range(1..))]
    pub repeat: u64,

    /// Time between readings: 100ms, 0.5s, 2
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub interval: Duration,
}

/// A 32-bit number in hex with 0x, or in decimal.
pub fn parse_number(text: &str) -> Result<u32, String> {
    let (digits, radix) = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    // from_str_radix() takes a sign as well.
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Err("write the number in hex (0xc0000103) or in decimal (16)".into());
    }
    u32::from_str_radix(digits, radix)
        .map_err(|_| "the number is too large, 0xffffffff is the highest".into())
}

fn parse_leaf(text: &str) -> Result<(u32, u32), String> {
    match text.split_once('.') {
        Some((leaf, subleaf)) => Ok((parse_number(leaf)?, parse_number(subleaf)?)),
        None => Ok((parse_number(text)?, 0)),
    }
}

/// A time that is not none at all, so that nothing is done without a pause.
pub fn parse_pause(text: &str) -> Result<Duration, String> {
    match parse_time(text) {
        Ok(Duration::ZERO) => Err("that is no time at all: write 1s or 100ms".into()),
        Err(message) => Err(format!("{message}; names of values go before --watch")),
        time => time,
    }
}

/// Nobody waits for longer, and clocks cannot go on for ever.
const LONGEST_TIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// Seconds, or what the unit says.
fn parse_time(text: &str) -> Result<Duration, String> {
    let unit_at = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let factor = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" | "" => 1.0,
        _ => return Err("write the time in s, ms or us, such as 100ms".into()),
    };
    // f64 has signs and names for values that are no time.
    if !number.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return Err("write the time as a number and a unit, such as 100ms".into());
    }
    let seconds: f64 = number
        .parse()
        .map_err(|_| "write the time as a number and a unit, such as 100ms")?;
    let time = Duration::try_from_secs_f64(seconds * factor).ok();
    time.filter(|time| *time <= LONGEST_TIME)
        .ok_or_else(|| "the time is too long: a year (31536000s) is the most".into())
}

/// What becomes of a word where a leaf, a time, or a pause is wanted.
#[cfg(test)]
pub fn check_words(text: &str) -> [Result<(), String>; 3] {
    [
        parse_leaf(text).map(|_| ()),
        parse_time(text).map(|_| ()),
        parse_pause(text).map(|_| ()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn numbers() {
        assert_eq!(parse_number("0xc0000103"), Ok(0xc000_0103));
        assert_eq!(parse_number("0XFF"), Ok(255));
        assert_eq!(parse_number("16"), Ok(16));
        assert_eq!(parse_number("0"), Ok(0));
        assert_eq!(parse_number("4294967295"), Ok(u32::MAX));
        for text in [
            "", "0x", "x", "c0000103", "+1", "-1", "0x+1", "1 ", "1_0", "0x1.2",
        ] {
            let error = parse_number(text).expect_err(text);
            assert!(error.contains("in hex"), "{text}: {error}");
        }
        for text in ["4294967296", "0x100000000", "99999999999999999999999999"] {
            let error = parse_number(text).expect_err(text);
            assert!(error.contains("too large"), "{text}: {error}");
        }
    }

    #[test]
    fn leaves() {
        assert_eq!(parse_leaf("4"), Ok((4, 0)));
        assert_eq!(parse_leaf("0xb.1"), Ok((11, 1)));
        assert_eq!(parse_leaf("0x80000002.0xff"), Ok((0x8000_0002, 255)));
        for text in ["", ".", "4.", ".1", "4.1.2", "4.x"] {
            assert!(parse_leaf(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times() {
        assert_eq!(parse_time("2"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_time("0.5s"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(parse_time("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(parse_time("0"), Ok(Duration::ZERO));
        for text in [
            "", "s", "-1", "1m", "1 s", "nan", "inf", "1e3", "1..2", "é", "1é",
        ] {
            assert!(parse_time(text).is_err(), "{text}");
        }
        assert_eq!(parse_pause("0.5"), Ok(Duration::from_millis(500)));
        assert!(parse_pause("0").is_err());
        assert!(parse_pause("tsc").is_err_and(|text| text.contains("before --watch")));
        assert_eq!(parse_time("31536000"), Ok(LONGEST_TIME));
        // The last but one is less than a Duration can be, and more than an Instant.
        for text in ["31536001", "10000000000000000000", "99999999999999999999"] {
            assert!(parse_time(text).is_err_and(|text| text.contains("too long: ")));
            assert!(parse_pause(text).is_err_and(|text| text.contains("too long: ")));
        }
        assert!(std::time::Instant::now()
            .checked_add(LONGEST_TIME)
            .is_some());
    }
}
