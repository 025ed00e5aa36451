// SPDX-License-Identifier: GPL-2.0
//! `cpupeek-guest` is what qemu/run starts: it boots a QEMU guest, runs one command in it, and reports exactly one
//! outcome, decided by what the guest said and never by QEMU's exit status.

use std::io::Write;
use std::process::ExitCode;

mod channel;
mod console;
mod cpio;
mod error;
mod guest;
mod host;
mod initramfs;
mod kmod;
mod machine;
mod monitor;
mod options;
mod outcome;
mod probe;
mod qemu;
mod run;
mod rundir;
mod slots;

use options::Request;
use outcome::EXIT_USAGE;

/// Complaints shown on standard error; the console log has all of them.
const SHOWN: usize = 20;

fn main() -> ExitCode {
    let line = std::env::var("KERNEL")
        .ok()
        .filter(|line| !line.is_empty())
        .unwrap_or_else(|| "forky".to_owned());
    let result = options::parse(line, std::env::args_os().skip(1)).and_then(|request| {
        Ok(match request {
            Request::Help => {
                let _ = std::io::stdout().write_all(options::HELP.as_bytes());
                0
            }
            Request::Run(options) => report(&run::run(&options)?),
        })
    });
    ExitCode::from(result.unwrap_or_else(|error| {
        eprintln!("qemu/run: {error}");
        EXIT_USAGE
    }))
}

/// Says what happened and returns the exit status.
fn report(report: &run::Report) -> u8 {
    for complaint in report.complaints.iter().take(SHOWN) {
        eprintln!("qemu/run: {}: {}", complaint.kind, complaint.line);
    }
    if report.complaints.len() > SHOWN {
        eprintln!(
            "qemu/run: and {} more lines",
            report.complaints.len() - SHOWN
        );
    }
    let boots = match report.boots {
        1 => String::new(),
        n => format!(" (boot {n}; the earlier ones died before the command began)"),
    };
    let uneventful = report.complaints.is_empty() && report.boots == 1;
    if report.outcome.is_failure() || !uneventful {
        eprintln!(
            "qemu/run: {}{boots} [{}]",
            report.outcome,
            report.directory.join("console.log").display()
        );
    }
    report.outcome.exit_status()
}
