// SPDX-License-Identifier: GPL-2.0

//! `cpupeek`: read model-specific registers and CPUID leaves of any CPU.

mod allow;
mod args;
mod cpuid;
mod cpus;
mod doctor;
mod info;
mod json;
mod list;
mod read;
mod show;
mod table;
mod values;

use args::{Cli, Command};
use clap::Parser;
use cpupeek_client::{Device, DeviceError};
use std::fmt;
use std::io::{self, BufWriter, Write};
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
}

impl Failure {
    fn status(&self) -> u8 {
        match self {
            Failure::Usage(_) => 2,
            Failure::Device(_) | Failure::System(_) | Failure::Output(_) => 3,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(message) | Failure::System(message) => f.write_str(message),
            Failure::Device(error) => error.fmt(f),
            Failure::Output(error) => write!(f, "cannot write the output: {error}"),
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
        Command::Show(args) => show::run(&mut out, args),
    }
}

/// Says what went wrong. If not even that can be written, the exit status has
/// to do.
fn complain(failure: &Failure) {
    let _ = writeln!(io::stderr(), "cpupeek: {failure}");
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(message) => {
            let written = message.print();
            return match (message.use_stderr(), written) {
                (true, _) => ExitCode::from(2),
                (false, Err(error)) if error.kind() != io::ErrorKind::BrokenPipe => {
                    let failure = Failure::Output(error);
                    complain(&failure);
                    ExitCode::from(failure.status())
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
