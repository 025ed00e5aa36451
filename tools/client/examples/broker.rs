// SPDX-License-Identifier: GPL-2.0

//! A broker: opens the device with all rights, keeps few of them, and runs a
//! program with the descriptor as its standard input. The program needs no
//! rights, and not even the device's file; Documentation/policy.md says more.
//!
//!     broker PROGRAM [ARGUMENT]...

use cpupeek_client::{Device, Narrowing};
use std::error::Error;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Actual and maximum performance, IA32_MPERF and IA32_APERF.
const REGISTERS: std::ops::RangeInclusive<u32> = 0xe7..=0xe8;

/// Somebody without any rights.
const NOBODY: u32 = 65534;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let program = arguments.next().ok_or("name the program to run")?;

    let device = Device::open()?;
    let little = Narrowing::new().msrs([REGISTERS]).cpus(0..4).no_cpuid();
    device.narrow(&little)?;

    let descriptor: OwnedFd = device.as_fd().try_clone_to_owned()?;
    let error = Command::new(program)
        .args(arguments)
        .stdin(Stdio::from(descriptor))
        .uid(NOBODY)
        .gid(NOBODY)
        .exec();
    Err(error.into())
}
