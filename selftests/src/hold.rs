// SPDX-License-Identifier: GPL-2.0

//! Holding CPUs' interrupts off, with selftests/modules/cpupeek_hold.c.

use std::path::Path;

use crate::guest::{read, wait_until, write};
use crate::sys::Errno;

const DIRECTORY: &str = "/sys/kernel/debug/cpupeek_hold";

pub const MODULE: &std::ffi::CStr = c"cpupeek_hold";

pub fn is_loaded() -> bool {
    Path::new(DIRECTORY).exists()
}

fn command(text: &str) -> Result<(), Errno> {
    write(format!("{DIRECTORY}/control"), text)
}

/// Lets all CPUs go.
pub fn try_stop() -> Result<(), Errno> {
    command("stop")
}

#[track_caller]
pub fn stop() {
    assert_eq!(try_stop(), Ok(()));
}

/// Whether a CPU has its interrupts off right now, and how often it has had.
fn state(cpu: u32) -> (bool, u64) {
    let text = read(format!("{DIRECTORY}/state")).unwrap();
    for line in text.lines() {
        let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        let [number, holding, stretches] = numbers[..] else {
            panic!("three numbers, not {line:?}");
        };
        if number == u64::from(cpu) {
            return (holding != 0, stretches);
        }
    }
    (false, 0)
}

pub fn is_holding(cpu: u32) -> bool {
    state(cpu).0
}

pub fn stretches(cpu: u32) -> u64 {
    state(cpu).1
}

/// Holds a CPU until told to stop, or for ten seconds. Returns when it is held.
#[track_caller]
pub fn hold(cpu: u32) {
    assert_eq!(command(&format!("hold {cpu}")), Ok(()), "hold CPU {cpu}");
    wait_until("the CPU is held", || is_holding(cpu));
}

/// Holds a CPU for `hold_us` again and again, `pause_us` apart.
#[track_caller]
pub fn start(cpu: u32, hold_us: u32, pause_us: u32) {
    assert_eq!(
        command(&format!("start {cpu} {hold_us} {pause_us}")),
        Ok(()),
        "hold CPU {cpu}"
    );
    wait_until("the CPU is held", || stretches(cpu) > 0);
}

/// How often a CPU was let go because it had been held for too long.
pub fn expired() -> u64 {
    let text = read(format!("{DIRECTORY}/expired")).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}
