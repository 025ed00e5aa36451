// SPDX-License-Identifier: GPL-2.0
//! What can become of a run, the exit status of each, and how each is told.

use std::fmt;
use std::time::Duration;

use crate::console::Complaint;

/// How far the guest came. Ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Nested lane only: the outer guest is booting.
    Outer,
    /// The guest's console has not shown a byte.
    Silent,
    /// The kernel is printing.
    Kernel,
    /// /init runs.
    Init,
    /// The module is being loaded.
    Loading,
    /// COMMAND runs.
    Command,
    /// COMMAND has ended; the module is unloaded and leaks are counted.
    Leaving,
    /// The final sentinel has arrived.
    Done,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outer => "booting the outer guest",
            Self::Silent => "waiting for the first console output",
            Self::Kernel => "booting the kernel",
            Self::Init => "setting up the guest",
            Self::Loading => "loading the module",
            Self::Command => "running the command",
            Self::Leaving => "unloading the module and looking for leaks",
            Self::Done => "powering off",
        })
    }
}

/// How QEMU ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Death {
    /// It exited with status 0, as it also does after a guest's panic.
    Clean,
    /// A non-zero exit status, and the last thing it said.
    Status(i32, Option<String>),
    /// A signal.
    Signal(i32),
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean => write!(f, "QEMU ended"),
            Self::Status(status, None) => write!(f, "QEMU exited with status {status}"),
            Self::Status(status, Some(line)) => {
                write!(f, "QEMU exited with status {status} ({line})")
            }
            Self::Signal(number) => write!(f, "QEMU was killed by signal {number}"),
        }
    }
}

/// The one thing that a run is reported as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// COMMAND ended with this status and nothing else was wrong, or it failed by itself.
    Finished(u8),
    /// QEMU did not begin to run a guest.
    NotStarted(Death),
    /// QEMU died or was killed under the guest.
    QemuDied(Death, Stage),
    /// The guest did not print a byte.
    Silent(Duration),
    /// The guest, or the one around it, ended before /init spoke. The only outcome that is booted again.
    DiedEarly(String),
    /// The module did not load.
    ModuleFailed(String),
    /// The guest's kernel panicked.
    Panicked(Stage, String),
    /// The time limit passed.
    Hung {
        /// Where.
        stage: Stage,
        /// The limit.
        limit: Duration,
        /// The last console line.
        last_line: Option<String>,
    },
    /// The guest powered off, or its outer guest ended, before COMMAND's status arrived.
    Vanished(Stage, String),
    /// COMMAND succeeded, but the kernel complained.
    Complained(Vec<Complaint>),
    /// COMMAND succeeded, but a complaint that was asked for did not come.
    NotProvoked(Vec<String>),
    /// COMMAND succeeded without the output that was asked for.
    NoOutput,
    /// COMMAND succeeded, but the module could not be unloaded.
    UnloadFailed(String),
    /// This process was told to stop.
    Interrupted(i32),
}

/// Exit status for everything that keeps a guest from being started: bad arguments, missing files.
pub const EXIT_USAGE: u8 = 200;

impl Outcome {
    /// The exit status. 200 and up are never those of a command that ran: a shell uses up to 192.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Finished(status) => *status,
            Self::NotStarted(_) | Self::QemuDied(..) => 201,
            Self::Silent(_) => 202,
            Self::DiedEarly(_) => 203,
            Self::ModuleFailed(_) => 204,
            Self::Panicked(..) => 205,
            Self::Hung { .. } => 206,
            Self::Vanished(..) => 207,
            Self::Complained(_) => 208,
            Self::NotProvoked(_) => 209,
            Self::NoOutput => 210,
            Self::UnloadFailed(_) => 211,
            Self::Interrupted(signal) => 128 + *signal as u8,
        }
    }

    /// Whether the caller should look at the console log.
    pub fn is_failure(&self) -> bool {
        self.exit_status() != 0
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished(0) => write!(f, "passed"),
            Self::Finished(status) => write!(f, "the command exited with status {status}"),
            Self::NotStarted(death) => write!(f, "no guest was started: {death}"),
            Self::QemuDied(death, stage) => write!(f, "{death} while {stage}"),
            Self::Silent(after) => write!(
                f,
                "the guest printed nothing in {} s",
                after.as_secs_f32().round()
            ),
            Self::DiedEarly(how) => {
                write!(f, "the guest died before the command began: {how}")
            }
            Self::ModuleFailed(why) => write!(f, "the module did not load: {why}"),
            Self::Panicked(stage, line) => write!(f, "the guest panicked while {stage}: {line}"),
            Self::Hung {
                stage,
                limit,
                last_line,
            } => {
                write!(
                    f,
                    "the guest hung while {stage}: its {} s ran out; last console line: {}",
                    limit.as_secs(),
                    last_line.as_deref().unwrap_or("(none)")
                )
            }
            Self::Vanished(stage, how) => write!(f, "no result: {how} while {stage}"),
            Self::Complained(lines) => write!(
                f,
                "the command succeeded, but the kernel complained {} time(s)",
                lines.len()
            ),
            Self::NotProvoked(patterns) => write!(
                f,
                "the command succeeded, but no console line matched {}",
                patterns.join(" and ")
            ),
            Self::NoOutput => write!(f, "the command succeeded, but printed nothing"),
            Self::UnloadFailed(why) => write!(
                f,
                "the command succeeded, but the module did not unload: {why}"
            ),
            Self::Interrupted(signal) => write!(f, "stopped by signal {signal}"),
        }
    }
}
