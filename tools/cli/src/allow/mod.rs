// SPDX-License-Identifier: GPL-2.0

//! `cpupeek allow`.

#[cfg(test)]
mod tests;
pub(crate) mod text;

use crate::fold::fold;
use crate::{Failure, Outcome};
use clap::{Args, Subcommand};
use cpupeek_client::{AllowError, AllowedRange, Device, DeviceError, MAX_ALLOWED_RANGES};
use cpupeek_logic::policy::registers::{class_of, Class};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use text::{Entry, Machine, Vendor};

const EXIT_STATUS: &str = "\
Exit status:
  0  done
  1  the list is wrong, or the module refuses it; nothing has changed
  2  the command line is wrong
  3  the device or the file cannot be used";

#[derive(Args, Debug)]
#[command(after_help = EXIT_STATUS)]
pub struct AllowArgs {
    #[command(subcommand)]
    pub command: AllowCommand,
}

#[derive(Debug, Subcommand)]
pub enum AllowCommand {
    /// Show the list, in the form that check and load read
    #[command(after_help = EXIT_STATUS)]
    Show,
    /// Say what is wrong with a list, without the module
    #[command(after_help = EXIT_STATUS)]
    Check(FileArgs),
    /// Replace the list, if nothing is wrong with the new one
    #[command(after_help = EXIT_STATUS)]
    Load(FileArgs),
    /// Show the registers that users were refused, and how often
    #[command(after_help = EXIT_STATUS)]
    Refused,
}

#[derive(Args, Debug)]
pub struct FileArgs {
    /// The list, see cpupeek-allowlist(5); - is standard input
    #[arg(value_name = "FILE")]
    pub file: std::path::PathBuf,
}

/// A list is no longer than this, whatever is in the file.
const MAX_BYTES: u64 = 4 << 20;

/// How many problems are shown.
const MAX_PROBLEMS: usize = 20;

pub fn run(
    out: &mut impl Write,
    open: impl FnOnce() -> Result<Device, DeviceError>,
    args: &AllowArgs,
) -> Result<Outcome, Failure> {
    match &args.command {
        AllowCommand::Show => show(out, &open()?),
        AllowCommand::Check(args) => check(out, &args.file),
        AllowCommand::Load(args) => load(out, open, &args.file),
        AllowCommand::Refused => refused(out, &open()?),
    }
}

fn show(out: &mut impl Write, device: &Device) -> Result<Outcome, Failure> {
    let list = device.allowed()?;
    writeln!(out, "# list number {}", list.generation)?;
    for range in &list.ranges {
        writeln!(out, "{}", text::write(range))?;
    }
    out.flush()?;
    Ok(Outcome::AllRead)
}

fn check(out: &mut impl Write, file: &Path) -> Result<Outcome, Failure> {
    let Some(entries) = read(file)? else {
        return Ok(Outcome::SomeFailed);
    };
    let machine = this_machine();
    let here = entries
        .iter()
        .filter(|entry| entry.section.is_for(machine))
        .count();
    writeln!(
        out,
        "{}: nothing is wrong; {here} of {} ranges are for this machine ({machine})",
        file.display(),
        entries.len()
    )?;
    out.flush()?;
    Ok(Outcome::AllRead)
}

fn load(
    out: &mut impl Write,
    open: impl FnOnce() -> Result<Device, DeviceError>,
    file: &Path,
) -> Result<Outcome, Failure> {
    let Some(entries) = read(file)? else {
        return Ok(Outcome::SomeFailed);
    };
    let machine = this_machine();
    let chosen: Vec<&Entry> = entries
        .iter()
        .filter(|entry| entry.section.is_for(machine))
        .collect();
    let ranges: Vec<AllowedRange> = chosen.iter().map(|entry| entry.range).collect();
    let generation = match open()?.set_allowed(&ranges) {
        Ok(generation) => generation,
        Err(AllowError::Device(error)) => return Err(error.into()),
        Err(error @ AllowError::NotPermitted) => return Err(Failure::System(error.to_string())),
        Err(error) => {
            // The module knows better than this program, which is of another version.
            let index = match error {
                AllowError::Malformed(i) | AllowError::Never(i) | AllowError::Unmarked(i) => {
                    Some(i)
                }
                _ => None,
            };
            let place = match index.and_then(|index| chosen.get(index)) {
                Some(entry) => format!("{}:{}:{}", file.display(), entry.line, entry.column),
                None => file.display().to_string(),
            };
            complain(&format!("{place}: {error}"));
            return Ok(Outcome::SomeFailed);
        }
    };
    writeln!(
        out,
        "loaded {} of {} ranges as list number {generation}, for this machine ({machine})",
        ranges.len(),
        entries.len()
    )?;
    out.flush()?;
    Ok(Outcome::AllRead)
}

fn refused(out: &mut impl Write, device: &Device) -> Result<Outcome, Failure> {
    let mut refusals = device.refusals()?;
    refusals
        .registers
        .sort_by_key(|refusal| std::cmp::Reverse(refusal.count));
    for refusal in &refusals.registers {
        let remedy = match class_of(refusal.reg) {
            (Class::Free, _) => "may be listed".into(),
            (Class::Guarded, Some(rule)) => format!("may be listed as unsafe: {}", rule.reason),
            (Class::Guarded, None) => "may be listed as unsafe: not known".into(),
            (Class::Never, Some(rule)) => format!("can never be listed: {}", rule.reason),
            (Class::Never, None) => "can never be listed".into(),
        };
        let row = format!("{:>10} {:#010x}  {remedy}", refusal.count, refusal.reg);
        writeln!(out, "{}", fold(&row, 23))?;
    }
    if refusals.others != 0 {
        writeln!(out, "{:>10} of others", refusals.others)?;
    }
    out.flush()?;
    Ok(Outcome::AllRead)
}

fn complain(message: &str) {
    let _ = writeln!(io::stderr(), "{message}");
}

/// Reads and parses a list. `None` if it is wrong, which has been said then.
fn read(path: &Path) -> Result<Option<Vec<Entry>>, Failure> {
    let cannot = |error: io::Error| {
        Failure::System(format!(
            "cannot read {}: {error}: name a list that you may read",
            path.display()
        ))
    };
    let mut bytes = Vec::new();
    let mut read = |from: &mut dyn Read| from.take(MAX_BYTES + 1).read_to_end(&mut bytes);
    if path.as_os_str() == "-" {
        read(&mut io::stdin().lock())
    } else {
        File::open(path).and_then(|mut file| read(&mut file))
    }
    .map_err(cannot)?;
    if bytes.len() as u64 > MAX_BYTES {
        complain(&format!(
            "{}: this is longer than any list of {MAX_ALLOWED_RANGES} ranges: name the right file",
            path.display()
        ));
        return Ok(None);
    }
    match text::parse(&bytes) {
        Ok(entries) => Ok(Some(entries)),
        Err(problems) => {
            for problem in problems.iter().take(MAX_PROBLEMS) {
                complain(&format!(
                    "{}:{}:{}: {}",
                    path.display(),
                    problem.line,
                    problem.column,
                    problem.message
                ));
            }
            if let more @ 1.. = problems.len().saturating_sub(MAX_PROBLEMS) {
                complain(&format!("{}: and {more} more problems", path.display()));
            }
            Ok(None)
        }
    }
}

/// The machine that this runs on, as CPUID has it.
fn this_machine() -> Machine {
    let [_, ebx, ecx, edx] = crate::cpuid::leaf(0);
    let [version, ..] = crate::cpuid::leaf(1);
    let mut signature = [0; 12];
    for (bytes, word) in signature.chunks_exact_mut(4).zip([ebx, edx, ecx]) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let family = version >> 8 & 0xf;
    let extended = if family == 0xf {
        version >> 20 & 0xff
    } else {
        0
    };
    Machine {
        vendor: Vendor::with_signature(&signature),
        family: family + extended,
    }
}
