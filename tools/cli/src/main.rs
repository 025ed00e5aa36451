// SPDX-License-Identifier: GPL-2.0

//! `cpupeek`: read model-specific registers and CPUID leaves of any CPU.

mod allow;
mod args;
mod cpuid;
mod cpus;
mod doctor;
mod fold;
#[cfg(test)]
mod fuzz;
mod info;
mod json;
mod list;
mod metrics;
mod progress;
mod rdmsr;
mod read;
mod run;
mod sample;
mod show;
mod table;
mod terminal;
mod top;
mod values;

use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use cpupeek_client::{Device, DeviceError};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

/// What the exit status says; `--help` documents it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Everything that was asked for was read.
    AllRead = 0,
    /// Something could not be read; the output says what and why.
    SomeFailed = 1,
}

/// Why there is no answer at all.
#[derive(Debug)]
enum Failure {
    Usage(String),
    Device(DeviceError),
    System(String),
    Output(io::Error),
    /// Of a command with exit statuses of its own, which says who speaks.
    Status(u8, String),
}

impl Failure {
    fn status(&self) -> u8 {
        match self {
            Failure::Usage(_) => 2,
            Failure::Device(_) | Failure::System(_) | Failure::Output(_) => 3,
            Failure::Status(status, _) => *status,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(message) | Failure::System(message) | Failure::Status(_, message) => {
                f.write_str(message)
            }
            Failure::Device(error) => error.fmt(f),
            Failure::Output(error) => write!(
                f,
                "cannot write the output: {error}: make room there, or write it elsewhere"
            ),
        }
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        Failure::Device(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Output(error)
    }
}

fn run(cli: &Cli) -> Result<Outcome, Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let device = || Device::open_path(&cli.device);
    match &cli.command {
        Command::Info(args) => {
            let device = device()?;
            info::write(&mut out, &cli.device, device.info(), args.json)?;
            out.flush()?;
            Ok(Outcome::AllRead)
        }
        Command::Msr(args) => read::run(&mut out, &device()?, &args.registers(), &args.how),
        Command::Cpuid(args) => read::run(&mut out, &device()?, &args.registers(), &args.how),
        Command::Allow(args) => allow::run(&mut out, device, args),
        Command::Doctor(args) => doctor::run(&mut out, &cli.device, args),
        Command::List(args) => list::run(&mut out, args).map(|()| Outcome::AllRead),
        Command::Sample(args) => sample::run(&mut out, &device()?, args),
        Command::Show(args) => show::run(&mut out, args),
        Command::Rdmsr(args) => rdmsr::run(&mut out, device, args),
        Command::Metrics(args) => metrics::run(&mut out, args),
        Command::Top(args) => top::run(&mut out, args),
        Command::Run(args) => run::run(args),
        Command::Completions(args) => {
            // Into memory first: the generator panics if it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(args.shell, &mut Cli::command(), "cpupeek", &mut script);
            out.write_all(&script)?;
            out.flush()?;
            Ok(Outcome::AllRead)
        }
    }
}

/// Says what went wrong. If not even that can be written, the exit status has
/// to do.
fn complain(failure: &Failure) {
    let _ = match failure {
        Failure::Status(..) => writeln!(io::stderr(), "{failure}"),
        _ => writeln!(io::stderr(), "cpupeek: {failure}"),
    };
}

/// The command line, where being called by the name of another tool is to be that tool.
fn arguments() -> Vec<OsString> {
    let mut args: Vec<_> = env::args_os().collect();
    let name = args.first().and_then(|name| Path::new(name).file_name());
    if name == Some(OsStr::new(rdmsr::NAME)) {
        args.splice(..1, ["cpupeek".into(), rdmsr::NAME.into()]);
    }
    args
}

/// Whether the command is rdmsr, whose exit statuses are others, also where the command line is wrong.
fn is_rdmsr(args: &[OsString]) -> bool {
    let mut words = args.iter().skip(1);
    while let Some(word) = words.next() {
        if word == "--device" {
            words.next();
        } else if !word.as_encoded_bytes().starts_with(b"-") {
            return word == rdmsr::NAME;
        }
    }
    false
}

fn main() -> ExitCode {
    let args = arguments();
    let is_rdmsr = is_rdmsr(&args);
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(message) => {
            let written = message.print();
            return match (message.use_stderr(), written) {
                (true, _) if is_rdmsr => ExitCode::from(rdmsr::OTHER),
                (true, _) => ExitCode::from(2),
                (false, Err(error)) if error.kind() != io::ErrorKind::BrokenPipe => {
                    let failure = Failure::Output(error);
                    complain(&failure);
                    ExitCode::from(if is_rdmsr {
                        rdmsr::OTHER
                    } else {
                        failure.status()
                    })
                }
                (false, _) => ExitCode::SUCCESS,
            };
        }
    };
    match run(&cli) {
        Ok(outcome) => ExitCode::from(outcome as u8),
        // Whoever read our output has seen enough.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(failure) => {
            complain(&failure);
            ExitCode::from(failure.status())
        }
    }
}
