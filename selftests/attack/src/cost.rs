// SPDX-License-Identifier: GPL-2.0

//! What a reader of all CPUs costs: one pread() each, one spinning read each, one batch. It is shown,
//! not judged: the reason for this module was what the first two cost on kernels with KASAN.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::time::Instant;

use cpupeek_selftests::device::{Device, Op, TSC_AUX};
use cpupeek_selftests::sys;
use cpupeek_selftests::tests::Env;

use crate::calls;
use crate::tests;

tests! {
    "cost";
    of_a_reader_of_all_cpus: [Cpus Msr],
}

/// _IOWR('c', 0xA0, __u32[8]) of asm/msr.h: registers in, registers out; the caller spins.
const RDMSR_REGS: u32 = 0xc020_63a0;

fn spinning(fd: RawFd) -> u64 {
    let mut words = [0u32; 8];
    words[1] = TSC_AUX;
    sys::ioctl(fd, RDMSR_REGS, (&raw mut words).expose_provenance()).expect("X86_IOC_RDMSR_REGS");
    u64::from(words[0]) | u64::from(words[2]) << 32
}

/// Runs `read` for a while, and shows its quickest, middle and slowest run.
fn measure(name: &str, mut read: impl FnMut()) {
    let mut times = Vec::new();
    let start = Instant::now();
    read();
    while times.len() < 200 && (start.elapsed().as_secs() < 5 || times.len() < 20) {
        let start = Instant::now();
        read();
        times.push(start.elapsed().as_micros());
    }
    times.sort_unstable();
    println!(
        "{name}: {} us at best, {} us in the middle, {} us at worst of {}",
        times[0],
        times[times.len() / 2],
        times[times.len() - 1],
        times.len()
    );
}

fn of_a_reader_of_all_cpus(_: &Env) {
    let cpus = calls::cpus();
    let files: Vec<_> = cpus
        .iter()
        .map(|cpu| File::open(format!("/dev/cpu/{cpu}/msr")).expect("the msr driver"))
        .collect();
    println!("{} CPUs, the same register of each:", cpus.len());
    measure("pread of /dev/cpu/N/msr", || {
        for (file, &cpu) in files.iter().zip(&cpus) {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, TSC_AUX.into())
                .expect("TSC_AUX");
            assert_eq!(u64::from_ne_bytes(bytes) & 0xfff, cpu.into());
        }
    });
    measure("X86_IOC_RDMSR_REGS (spins)", || {
        for (file, &cpu) in files.iter().zip(&cpus) {
            assert_eq!(spinning(file.as_raw_fd()) & 0xfff, cpu.into());
        }
    });
    let device = Device::open();
    let ops: Vec<_> = cpus.iter().map(|&cpu| Op::msr(cpu, TSC_AUX)).collect();
    measure("CPUPEEK_IOC_BATCH", || {
        for (answer, &cpu) in device.batch(&ops).iter().zip(&cpus) {
            assert_eq!(answer.value() & 0xfff, cpu.into());
        }
    });
}
