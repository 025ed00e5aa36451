// SPDX-License-Identifier: GPL-2.0

//! Changing the machine while it runs, through its control registers (qemu/machine/src/control.rs).

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::machine::{machine, Register};

const BASE: u64 = 0x6370_7500;
const SELECT: u64 = BASE + 1;
const VALUE: u64 = BASE + 2;
const FAULT: u64 = BASE + 3;
const DELAY_NS: u64 = BASE + 4;
const RATE: u64 = BASE + 5;
const READS: u64 = BASE + 6;

pub const ALL: u32 = u32::MAX;

/// A way to the machine. Each CPU has selected a register of its own, so threads use several.
pub struct Control(File);

impl Control {
    /// Through the control registers of CPU 0.
    pub fn new() -> Self {
        Self::through(0)
    }

    /// Through those of a CPU, which must be online.
    pub fn through(cpu: u32) -> Self {
        let path = format!("/dev/cpu/{cpu}/msr");
        let file = File::options().read(true).write(true).open(&path);
        Self(file.unwrap_or_else(|error| panic!("{path}: {error}")))
    }

    #[track_caller]
    fn put(&self, at: u64, value: u64) {
        let written = self.0.write_at(&value.to_le_bytes(), at);
        assert_eq!(written.ok(), Some(8), "the machine refuses {at:#x}");
    }

    #[track_caller]
    fn select(&self, cpu: u32, register: u32) {
        self.put(SELECT, u64::from(cpu) << 32 | u64::from(register));
    }

    /// From now on the register is a constant.
    #[track_caller]
    pub fn value(&self, cpu: u32, register: u32, value: u64) {
        self.select(cpu, register);
        self.put(VALUE, value);
    }

    /// From now on a read of it faults.
    #[track_caller]
    pub fn fault(&self, cpu: u32, register: u32) {
        self.select(cpu, register);
        self.put(FAULT, 0);
    }

    /// From now on a read of it takes so long.
    #[track_caller]
    pub fn delay_ns(&self, cpu: u32, register: u32, ns: u64) {
        self.select(cpu, register);
        self.put(DELAY_NS, ns);
    }

    /// From now on it counts so many per second.
    #[track_caller]
    pub fn rate(&self, cpu: u32, register: u32, rate: u64) {
        self.select(cpu, register);
        self.put(RATE, rate);
    }

    /// How often it was read, by anybody.
    #[track_caller]
    pub fn reads(&self, cpu: u32, register: u32) -> u64 {
        self.select(cpu, register);
        let mut bytes = [0; 8];
        let read = self.0.read_at(&mut bytes, READS);
        assert_eq!(read.ok(), Some(8), "the machine does not say");
        u64::from_le_bytes(bytes)
    }

    /// Makes registers what the description says, after a test that may have changed some. Counters
    /// go on at their rate from where they are.
    pub fn reset(&self) {
        for (register, value) in machine().on_all_cpus() {
            match value {
                Register::Constant(value) => self.value(ALL, register, value),
                Register::Rate(rate) => self.rate(ALL, register, rate),
                Register::Step { .. } | Register::Fault => {}
            }
        }
        for (cpu, register, value) in machine().on_one_cpu() {
            match value {
                Register::Constant(value) => self.value(cpu, register, value),
                Register::Rate(rate) => self.rate(cpu, register, rate),
                Register::Step { .. } | Register::Fault => {}
            }
        }
    }
}
