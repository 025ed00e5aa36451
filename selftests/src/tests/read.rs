// SPDX-License-Identifier: GPL-2.0

//! The right register of the right CPU, or why not.

use std::arch::x86_64::__cpuid_count;
use std::fs::File;
use std::os::unix::fs::FileExt;

use super::{tests, Env};
use crate::device::{Device, Op, SELF, TSC_AUX};
use crate::guest;
use crate::sys;

tests! {
    "read";
    info_tells_the_truth: [],
    tsc_aux_is_the_cpus_number: [],
    apic_id_is_what_a_pinned_thread_sees: [],
    cpuid_is_what_a_pinned_thread_sees: [],
    self_is_the_cpu_that_answered: [],
    tsc_lies_between_before_and_after: [],
    msrs_are_what_the_kernels_driver_says: [Msr],
    faulting_msr_is_eio_on_each_cpu: [Fault],
    faults_are_those_of_the_kernels_driver: [Msr Fault],
    offline_cpu_is_enxio: [Hotplug],
    absent_cpu_is_enxio: [],
    cpu_that_comes_back_answers: [Hotplug],
}

/// MSRs that some CPUs refuse: the x2APIC's while it is off, and numbers that nobody uses.
const MAY_FAULT: &[u32] = &[0x802, 0x80a, 0xdead_0000, 0xc001_ffff];

/// An MSR that this guest's CPUs refuse. Asked of the module, so that it is only good for tests of
/// what else becomes of refusals; the msr driver's word is a test of its own.
pub fn faulting_msr() -> Option<u32> {
    let device = Device::try_open().ok()?;
    let faults = |&reg: &u32| device.read(Op::msr(SELF, reg)).status == -libc::EIO;
    MAY_FAULT.iter().copied().find(faults)
}

/// IA32_TIME_STAMP_COUNTER.
pub const TSC: u32 = 0x10;

/// Whether the time stamp counter, read as an MSR, goes on.
pub fn tsc_counts() -> bool {
    let Ok(device) = Device::try_open() else {
        return false;
    };
    let [one, other] = [(); 2].map(|()| device.read(Op::msr(SELF, TSC)));
    one.status == 0 && other.status == 0 && one.value() != other.value()
}

fn info_tells_the_truth(_: &Env) {
    let info = Device::open().info();
    assert_eq!(info.size as usize, size_of_val(&info));
    assert_eq!(info.reserved, 0);
    assert_eq!(info.features & 3, 3, "READ and BATCH");
    assert!(info.max_batch_ops >= 65536, "{}", info.max_batch_ops);
    assert!((1..=64).contains(&info.max_round_ops));
    assert_eq!(u64::from(info.read_timeout_ms), guest::READ_TIMEOUT_MS);
    let highest = guest::possible().into_iter().max();
    assert_eq!(highest, Some(info.nr_cpu_ids - 1), "possible CPUs");
    assert!(info.tsc_stable <= 1);
    assert_ne!(info.tsc_khz, 0, "Linux knows the rate of x86 counters");
}

fn tsc_aux_is_the_cpus_number(_: &Env) {
    let device = Device::open();
    let cpus = guest::online();
    // Linux keeps the NUMA node above the CPU's number, RDPID's way.
    let number = |value: u64| (value & 0xfff) as u32;
    for &from in &cpus {
        sys::pin(&[from]).unwrap();
        for &cpu in &cpus {
            let value = device.msr(cpu, TSC_AUX);
            assert_eq!(number(value), cpu, "asked of CPU {cpu} by CPU {from}");
        }
    }
    let ops: Vec<Op> = cpus.iter().map(|&cpu| Op::msr(cpu, TSC_AUX)).collect();
    for (asked, op) in ops.iter().zip(device.batch(&ops)) {
        op.expect_answer(asked);
        assert_eq!(number(op.value()), asked.cpu, "in a batch");
    }
}

/// CPUID as a thread pinned to `cpu` sees it.
fn pinned_cpuid(cpu: u32, leaf: u32, subleaf: u32) -> [u32; 4] {
    sys::pin(&[cpu]).unwrap();
    let regs = __cpuid_count(leaf, subleaf);
    [regs.eax, regs.ebx, regs.ecx, regs.edx]
}

fn apic_id_is_what_a_pinned_thread_sees(_: &Env) {
    let device = Device::open();
    let cpus = guest::online();
    let highest_leaf = __cpuid_count(0, 0).eax;
    let mut ids = Vec::new();
    for &cpu in &cpus {
        let seen = pinned_cpuid(cpu, 1, 0)[1] >> 24;
        let seen_x2 = pinned_cpuid(cpu, 0xb, 0)[3];
        for &from in &cpus {
            sys::pin(&[from]).unwrap();
            let asked = Op::cpuid(cpu, 1, 0);
            let op = device.read(asked);
            op.expect_answer(&asked);
            assert_eq!(op.words()[1] >> 24, seen, "CPU {cpu}, asked by {from}");
            if highest_leaf >= 0xb {
                let asked = Op::cpuid(cpu, 0xb, 0);
                let op = device.read(asked);
                op.expect_answer(&asked);
                assert_eq!(op.words()[3], seen_x2, "CPU {cpu}, asked by {from}");
            }
        }
        ids.push(seen);
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), cpus.len(), "the ids tell CPUs apart");
}

fn cpuid_is_what_a_pinned_thread_sees(_: &Env) {
    let device = Device::open();
    // Not those with time stamps, flags of the moment or the APIC id in them.
    let leaves: &[(u32, u32)] = &[
        (0, 0),
        (4, 0),
        (4, 1),
        (4, 2),
        (4, 3),
        (7, 0),
        (0xd, 1),
        (0x8000_0000, 0),
        (0x8000_0002, 0),
        (0x8000_0003, 0),
        (0x8000_0004, 0),
        (0x8000_0008, 0),
    ];
    for cpu in guest::online() {
        let seen: Vec<_> = leaves
            .iter()
            .map(|&(leaf, subleaf)| pinned_cpuid(cpu, leaf, subleaf))
            .collect();
        sys::pin(&guest::online()).unwrap();
        let ops: Vec<Op> = leaves
            .iter()
            .map(|&(leaf, subleaf)| Op::cpuid(cpu, leaf, subleaf))
            .collect();
        for ((asked, op), seen) in ops.iter().zip(device.batch(&ops)).zip(&seen) {
            op.expect_answer(asked);
            assert_eq!(op.words(), *seen, "{op:?}");
            let op = device.read(*asked);
            op.expect_answer(asked);
            assert_eq!(op.words(), *seen, "{op:?}");
        }
    }
}

fn self_is_the_cpu_that_answered(_: &Env) {
    let device = Device::open();
    for cpu in guest::online() {
        sys::pin(&[cpu]).unwrap();
        for asked in [Op::msr(SELF, TSC_AUX), Op::cpuid(SELF, 1, 0)] {
            let single = device.read(asked);
            let batch = device.batch(&[asked, asked]);
            for op in [single, batch[0], batch[1]] {
                op.expect_answer(&asked);
                assert_eq!(op.cpu, cpu);
            }
        }
        let op = device.read(Op::msr(SELF, TSC_AUX));
        assert_eq!(op.value() & 0xfff, u64::from(cpu));
    }
}

fn tsc_lies_between_before_and_after(_: &Env) {
    let device = Device::open();
    // On one CPU: counters of different CPUs need not agree.
    for cpu in guest::online() {
        sys::pin(&[cpu]).unwrap();
        for asked in [Op::msr(cpu, TSC_AUX), Op::cpuid(cpu, 0, 0)] {
            // SAFETY: Every CPU that the kernel runs on has RDTSC.
            let now = || unsafe { std::arch::x86_64::_rdtsc() };
            let before = now();
            let op = device.read(asked);
            let after = now();
            assert!(before < op.tsc && op.tsc < after, "{before} {op:?} {after}");
        }
    }
}

/// What the kernel's own driver says of an MSR: the value, or the error.
fn drivers_word(cpu: u32, reg: u32) -> Result<u64, i32> {
    let file = File::open(format!("/dev/cpu/{cpu}/msr")).expect("the msr driver is there");
    let mut bytes = [0; 8];
    match file.read_exact_at(&mut bytes, reg.into()) {
        Ok(()) => Ok(u64::from_ne_bytes(bytes)),
        Err(error) => Err(error.raw_os_error().unwrap_or(0)),
    }
}

fn our_word(device: &Device, cpu: u32, reg: u32) -> Result<u64, i32> {
    let op = device.read(Op::msr(cpu, reg));
    op.result().map(|()| op.value()).map_err(|error| error.0)
}

fn msrs_are_what_the_kernels_driver_says(_: &Env) {
    let device = Device::open();
    // Stable ones: APIC base, MTRR capabilities, PAT, EFER, STAR, LSTAR, FMASK, TSC_AUX.
    let stable = [
        0x1b,
        0xfe,
        0x277,
        0xc000_0080,
        0xc000_0081,
        0xc000_0082,
        0xc000_0084,
        TSC_AUX,
    ];
    let mut values = 0;
    for cpu in guest::online() {
        for reg in stable {
            let word = drivers_word(cpu, reg);
            assert_eq!(our_word(&device, cpu, reg), word, "{reg:#x} of CPU {cpu}");
            values += usize::from(word.is_ok_and(|value| value != 0));
        }
    }
    assert!(values >= 4 * guest::online().len(), "{values} values not 0");
}

fn faults_are_those_of_the_kernels_driver(_: &Env) {
    let device = Device::open();
    let mut faults = 0;
    for cpu in guest::online() {
        for &reg in MAY_FAULT {
            let word = drivers_word(cpu, reg);
            assert_eq!(our_word(&device, cpu, reg), word, "{reg:#x} of CPU {cpu}");
            faults += usize::from(word == Err(libc::EIO));
        }
    }
    assert!(faults >= guest::online().len(), "one faults on each CPU");
}

fn faulting_msr_is_eio_on_each_cpu(_: &Env) {
    let device = Device::open();
    let reg = faulting_msr().expect("it was there");
    let cpus = guest::online();
    let mut ops = Vec::new();
    for &cpu in &cpus {
        let asked = Op::msr(cpu, reg);
        device.read(asked).expect_error(&asked, libc::EIO);
        ops.extend([Op::msr(cpu, TSC_AUX), asked, Op::cpuid(cpu, 0, 0)]);
    }
    // Neighbours of a refused operation have their answers.
    for (asked, op) in ops.iter().zip(device.batch(&ops)) {
        if asked.reg == reg {
            op.expect_error(asked, libc::EIO);
        } else {
            op.expect_answer(asked);
        }
    }
}

/// A CPU that can be taken offline.
pub fn pluggable_cpu() -> u32 {
    let online = guest::online().into_iter().rev();
    let mut pluggable = online.filter(|&cpu| guest::can_go_offline(cpu));
    pluggable.next().expect("some CPU can be taken offline")
}

fn offline_cpu_is_enxio(_: &Env) {
    let device = Device::open();
    let cpu = pluggable_cpu();
    device.msr(cpu, TSC_AUX);
    guest::set_online(cpu, false);
    for asked in [Op::msr(cpu, TSC_AUX), Op::cpuid(cpu, 1, 0)] {
        device.read(asked).expect_error(&asked, libc::ENXIO);
        // Nor in a batch, on a descriptor whose last answers came from that CPU.
        let ops = [Op::msr(0, TSC_AUX), asked, Op::cpuid(0, 0, 0)];
        let answers = device.batch(&ops);
        answers[0].expect_answer(&ops[0]);
        answers[1].expect_error(&asked, libc::ENXIO);
        answers[2].expect_answer(&ops[2]);
    }
}

fn absent_cpu_is_enxio(_: &Env) {
    let device = Device::open();
    let limit = device.info().nr_cpu_ids;
    let absent = [limit, limit + 1, 8192, 65536, i32::MAX as u32, SELF - 1];
    for cpu in absent.into_iter().chain(guest::offline()) {
        for asked in [Op::msr(cpu, TSC_AUX), Op::cpuid(cpu, 0, 0)] {
            device.read(asked).expect_error(&asked, libc::ENXIO);
            let ops = [Op::msr(SELF, TSC_AUX), asked, Op::cpuid(SELF, 0, 0)];
            let answers = device.batch(&ops);
            answers[0].expect_answer(&ops[0]);
            answers[1].expect_error(&asked, libc::ENXIO);
            answers[2].expect_answer(&ops[2]);
        }
    }
}

fn cpu_that_comes_back_answers(_: &Env) {
    let device = Device::open();
    let cpu = pluggable_cpu();
    guest::set_online(cpu, false);
    let asked = Op::msr(cpu, TSC_AUX);
    device.read(asked).expect_error(&asked, libc::ENXIO);
    guest::set_online(cpu, true);
    assert_eq!(device.msr(cpu, TSC_AUX) & 0xfff, u64::from(cpu));
}
