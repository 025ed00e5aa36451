// SPDX-License-Identifier: GPL-2.0

//! What KVM tells of virtual CPUs: there where the kernel has asked for it, and hidden elsewhere.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use super::proof::calls_during;
use super::{tests, Env};
use crate::device::{header, uapi, Device, Op, TSC_AUX};
use crate::guest::{self, attribute};
use crate::sys;

tests! {
    "vcpu";
    there_if_the_kernel_has_a_record: [Msr],
    nobody_is_disturbed: [Steal Trace],
    steal_is_what_proc_stat_says: [Steal],
    a_cpu_that_comes_online_later: [Steal Spare Msr],
    goes_with_its_cpu: [Steal Hotplug],
    preempted_is_seen: [Steal Overcommitted],
    nobody_spins_for_a_preempted_target: [Steal Overcommitted],
    predicate_in_rust: [Steal],
    predicate_in_rust_of_preempted_cpus: [Steal Overcommitted],
}

/// MSR_KVM_STEAL_TIME: the address of the CPU's record, and in bit 0 whether it is used.
const STEAL_TIME: u64 = 0x4b56_4d03;

/// The values, and who may read them.
const FILES: [(&str, u32); 2] = [("vcpu_preempted", 0o400), ("steal_us", 0o444)];

fn path(cpu: u32, name: &str) -> String {
    format!("/sys/devices/system/cpu/cpu{cpu}/cpupeek/{name}")
}

#[track_caller]
fn number(cpu: u32, name: &str) -> u64 {
    let text = guest::read(path(cpu, name)).unwrap();
    let number = text.strip_suffix('\n').expect("ends with a newline");
    number.parse().expect("a decimal number")
}

/// Whether the first CPU has the values, for tests that need them.
pub fn are_there() -> bool {
    fs::exists(path(0, "steal_us")).expect("sysfs is there")
}

/// Whether the kernel has a record of `cpu`, by its own driver.
fn has_record(cpu: u32) -> bool {
    let mut value = [0; 8];
    let driver = fs::File::open(format!("/dev/cpu/{cpu}/msr")).expect("the msr driver");
    match driver.read_exact_at(&mut value, STEAL_TIME) {
        Ok(()) => u64::from_ne_bytes(value) & 1 != 0,
        Err(_) => false,
    }
}

/// Whether the processor's flags say that this is a KVM guest, which need not have a record.
fn is_kvm() -> bool {
    // SAFETY: All CPUs that Linux runs on in 64 bits have the instruction.
    #[allow(unused_unsafe, reason = "safe since Rust 1.94")]
    let leaf = unsafe { std::arch::x86_64::__cpuid(0x4000_0000) };
    let name: Vec<u8> = [leaf.ebx, leaf.ecx, leaf.edx]
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect();
    guest::read("/proc/cpuinfo")
        .unwrap()
        .contains(" hypervisor")
        && name == *b"KVMKVMKVM\0\0\0"
}

fn expect_files(cpu: u32) {
    let record = has_record(cpu);
    for (name, mode) in FILES {
        match fs::metadata(path(cpu, name)) {
            Ok(file) => {
                assert!(record, "{name} of CPU {cpu} without a record");
                assert_eq!(file.mode() & 0o777, mode, "{name}");
            }
            Err(_) => assert!(!record, "CPU {cpu} has a record, and no {name}"),
        }
    }
}

fn there_if_the_kernel_has_a_record(_: &Env) {
    for cpu in guest::online() {
        expect_files(cpu);
        assert!(is_kvm() || !has_record(cpu), "a record outside KVM");
        if has_record(cpu) {
            assert!(number(cpu, "vcpu_preempted") <= 1);
        }
    }
    // A CPU that runs this is running.
    for cpu in guest::online().into_iter().filter(|&cpu| has_record(cpu)) {
        sys::pin(&[cpu]).expect("online");
        for _ in 0..100 {
            assert_eq!(number(cpu, "vcpu_preempted"), 0, "of this very CPU");
        }
    }
}

fn nobody_is_disturbed(_: &Env) {
    let cpus = guest::online();
    let count = || ["interrupts", "refreshes", "ops"].map(attribute);
    let before = count();
    let calls = calls_during(&cpus, || {
        for &cpu in &cpus {
            for _ in 0..200 {
                number(cpu, "vcpu_preempted");
                number(cpu, "steal_us");
            }
        }
    });
    assert_eq!(calls, vec![0; cpus.len()], "calls to CPUs, as traced");
    assert_eq!(count(), before, "and as counted");
}

/// Steal of each CPU in ticks of 1/100 s, as /proc/stat has it.
fn proc_steal(cpu: u32) -> u64 {
    let text = guest::read("/proc/stat").unwrap();
    let head = format!("cpu{cpu} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&head));
    let steal = line.and_then(|line| line.split_whitespace().nth(7));
    steal.expect("a CPU's line").parse().expect("a number")
}

fn expect_agreement(cpu: u32) -> u64 {
    let before = proc_steal(cpu);
    let steal = number(cpu, "steal_us");
    let after = proc_steal(cpu);
    assert!(
        (before..=after).contains(&(steal / 10_000)),
        "CPU {cpu}: {steal} us is not between {before} and {after} ticks"
    );
    steal
}

fn steal_is_what_proc_stat_says(env: &Env) {
    env.repeat(100, || {
        for cpu in guest::online() {
            expect_agreement(cpu);
        }
    });
}

fn a_cpu_that_comes_online_later(_: &Env) {
    for cpu in guest::offline() {
        for (name, _) in FILES {
            assert!(!fs::exists(path(cpu, name)).unwrap(), "{name} of CPU {cpu}");
        }
        guest::set_online(cpu, true);
        assert!(has_record(cpu), "the kernel has made one for CPU {cpu}");
        expect_files(cpu);
        expect_agreement(cpu);
        assert!(number(cpu, "vcpu_preempted") <= 1);
    }
}

fn goes_with_its_cpu(_: &Env) {
    let cpu = super::read::pluggable_cpu();
    let open = fs::File::open(path(cpu, "vcpu_preempted")).expect("it is there");
    for _ in 0..5 {
        guest::set_online(cpu, false);
        for (name, _) in FILES {
            assert!(!fs::exists(path(cpu, name)).unwrap(), "{name} of CPU {cpu}");
        }
        let error = open.read_at(&mut [0; 8], 0).expect_err("the CPU is gone");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        guest::set_online(cpu, true);
        expect_files(cpu);
        expect_agreement(cpu);
    }
}

/// Runs `f` while every CPU computes, so that the host has more to run than it can.
fn with_hogs<T>(f: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for cpu in guest::online() {
            let over = &over;
            scope.spawn(move || {
                sys::pin(&[cpu]).expect("online");
                while !over.load(SeqCst) {
                    std::hint::spin_loop();
                }
            });
        }
        // The hogs end, however `f` does.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
        over.store(true, SeqCst);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A long time: the host decides when whose turn it is.
const PATIENCE: Duration = Duration::from_secs(60);

fn preempted_is_seen(_: &Env) {
    let cpus = guest::online();
    let before: Vec<_> = cpus.iter().map(|&cpu| number(cpu, "steal_us")).collect();
    let mut seen = vec![false; cpus.len()];
    let mut reads = [0u64; 2];
    let start = Instant::now();
    with_hogs(|| {
        while seen.contains(&false) && start.elapsed() < PATIENCE {
            for (&cpu, seen) in cpus.iter().zip(&mut seen) {
                let preempted = number(cpu, "vcpu_preempted");
                reads[preempted as usize] += 1;
                *seen |= preempted == 1;
            }
        }
        for &cpu in &cpus {
            expect_agreement(cpu);
        }
    });
    println!("0 and 1 were read {reads:?} times");
    assert_eq!(seen, vec![true; cpus.len()], "preempted, by CPU");
    for (&cpu, before) in cpus.iter().zip(before) {
        assert!(number(cpu, "steal_us") > before, "CPU {cpu}");
    }
}

fn nobody_spins_for_a_preempted_target(_: &Env) {
    let device = Device::open();
    let cpus = guest::online();
    let spin = uapi::cpupeek_batch {
        flags: uapi::CPUPEEK_BATCH_SPIN,
        ..header(0)
    };
    with_hogs(|| {
        let start = Instant::now();
        let before = attribute("preempted");
        while attribute("preempted") == before {
            assert!(start.elapsed() < PATIENCE, "no target is preempted");
            for &cpu in &cpus {
                let asked = Op::msr(cpu, TSC_AUX);
                device.batch_with(spin, &[asked])[0].expect_answer(&asked);
            }
        }
    });
}

const COMPARER: &str = "/root/cpupeek_steal.ko";
const COMPARED: &str = "/sys/kernel/debug/cpupeek_steal";

/// Loads the module that compares ways to read the records, and returns how often a CPU was compared
/// while it was preempted.
fn compare() -> u64 {
    let text = guest::read(COMPARED).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("copy 256 0"), "all values of a byte");
    let mut cpus = Vec::new();
    let mut preempted = 0;
    for line in lines {
        let Some(fields) = line.strip_prefix("cpu ") else {
            assert_eq!(line, "invalid 0");
            continue;
        };
        let numbers: Vec<u64> = fields
            .split_whitespace()
            .map(|field| field.parse().expect("a number"))
            .collect();
        let [cpu, compared, mismatches, seen, record, accounted] = numbers[..] else {
            panic!("not six numbers: {line}");
        };
        println!("{line}");
        assert!(compared > 100 && mismatches == 0, "{line}");
        assert!(
            accounted <= record,
            "more was accounted than stolen: {line}"
        );
        preempted += seen;
        cpus.push(cpu as u32);
    }
    assert_eq!(cpus, guest::online(), "each has a record");
    preempted
}

fn with_comparer(f: impl FnOnce()) {
    assert_eq!(sys::load_module(COMPARER.as_ref(), ""), Ok(()));
    f();
    assert_eq!(sys::unload_module(c"cpupeek_steal"), Ok(()));
}

fn predicate_in_rust(_: &Env) {
    with_comparer(|| {
        compare();
    });
}

fn predicate_in_rust_of_preempted_cpus(_: &Env) {
    with_comparer(|| {
        with_hogs(|| {
            let start = Instant::now();
            while compare() == 0 {
                assert!(start.elapsed() < PATIENCE, "no CPU is preempted");
            }
        });
    });
}
