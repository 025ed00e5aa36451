// SPDX-License-Identifier: GPL-2.0

//! What the manuals say that a CPU shows. Written from them and not from the catalogue, which it is
//! to check: Intel SDM volume 3B (thermal, RAPL) and volume 4, AMD APM volume 2 and PPRs.

use std::arch::x86_64::{__cpuid, CpuidResult};
use std::collections::BTreeMap;

use cpupeek_selftests::device::{Device, Op};
use cpupeek_selftests::sys;

use crate::machine::{machine, Register};

/// What is to be in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// This number.
    Number(i128),
    /// The CPU's time.
    Tsc,
    /// What the counter holds when the snapshot is taken.
    Counter(u32),
    /// APERF's rate over MPERF's, and what goes with that.
    Frequency,
    FrequencyError,
    Residency,
    /// What KVM tells, which the selftests look at.
    Vcpu,
    /// What a counter of 32 bits has counted, in 2^-exponent J.
    Energy {
        register: u32,
        exponent: u32,
    },
}

/// Runs `f` in a thread on `cpu`.
pub fn on_cpu<T: Send>(cpu: u32, f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            sys::pin(&[cpu]).expect("the CPU is online");
            f()
        });
        thread.join().expect("a panic ends the process")
    })
}

struct Cpu<'a> {
    device: &'a Device,
    number: u32,
}

impl Cpu<'_> {
    /// A register of the CPU, checked against the description. `None` if it faults.
    fn register(&self, register: u32) -> Option<u64> {
        let op = self.device.read(Op::msr(self.number, register));
        let value = op.result().ok().map(|()| op.value());
        match machine().register(self.number, register) {
            Some(Register::Constant(described)) => assert_eq!(value, Some(described)),
            Some(Register::Fault) => assert_eq!(value, None),
            Some(Register::Rate(_) | Register::Step { .. }) => assert!(value.is_some()),
            None => {}
        }
        value
    }

    fn leaf(&self, leaf: u32) -> CpuidResult {
        // SAFETY: All CPUs that Linux runs on in 64 bits have the instruction.
        #[allow(unused_unsafe, reason = "safe since Rust 1.94")]
        on_cpu(self.number, || unsafe {
            if leaf > __cpuid(leaf & 0x8000_0000).eax {
                return CpuidResult {
                    eax: 0,
                    ebx: 0,
                    ecx: 0,
                    edx: 0,
                };
            }
            __cpuid(leaf)
        })
    }

    fn energy(&self, register: u32, unit: u32, fixed: Option<u32>) -> Option<Expected> {
        let unit = self.register(unit)? >> 8 & 0x1f;
        self.register(register)?;
        (unit != 0).then_some(Expected::Energy {
            register,
            exponent: fixed.unwrap_or(unit as u32),
        })
    }
}

type Files = BTreeMap<&'static str, Expected>;

fn add(files: &mut Files, name: &'static str, expected: Option<Expected>) {
    if let Some(expected) = expected {
        files.insert(name, expected);
    }
}

fn number(value: u64) -> Option<Expected> {
    (value != 0).then_some(Expected::Number(value.into()))
}

/// The values that `cpu` has.
pub fn files(device: &Device, cpu: u32) -> Files {
    let cpu = Cpu {
        device,
        number: cpu,
    };
    let mut files = Files::from([("tsc", Expected::Tsc)]);
    let counter = |register| cpu.register(register).map(|_| Expected::Counter(register));
    if cpu.leaf(6).ecx & 1 != 0 {
        let (aperf, mperf) = (counter(0xe8), counter(0xe7));
        add(&mut files, "aperf", aperf);
        add(&mut files, "mperf", mperf);
        if aperf.and(mperf).is_some() {
            files.insert("freq_khz", Expected::Frequency);
            files.insert("freq_error_ppm", Expected::FrequencyError);
            files.insert("c0_permille", Expected::Residency);
        }
    }
    // Bit 0 says that the kernel uses its record.
    if cpu
        .register(0x4b56_4d03)
        .is_some_and(|record| record & 1 != 0)
    {
        files.insert("vcpu_preempted", Expected::Vcpu);
        files.insert("steal_us", Expected::Vcpu);
    }
    match machine().vendor.as_str() {
        "GenuineIntel" => intel(&cpu, &mut files),
        "AuthenticAMD" => amd(&cpu, &mut files),
        _ => {}
    }
    files
}

fn intel(cpu: &Cpu<'_>, files: &mut Files) {
    let counter = |register| cpu.register(register).map(|_| Expected::Counter(register));
    add(files, "smi", counter(0x34));
    let pperf = cpu.register(0x64e).filter(|&value| value != 0);
    add(files, "pperf", pperf.map(|_| Expected::Counter(0x64e)));
    let status = cpu.register(0x19c).filter(|_| cpu.leaf(6).eax & 1 != 0);
    if let Some(status) = status {
        let margin = i128::from(status >> 16 & 0x7f);
        add(files, "cpu_thermal_margin", Some(Expected::Number(margin)));
        let throttles = Expected::Number((status & 1).into());
        add(files, "thermal_throttle", Some(throttles));
        let limit = cpu.register(0x1a2).map_or(0, |target| target >> 16 & 0xff);
        if limit != 0 {
            let temperature = Expected::Number((i128::from(limit) - margin) * 1000);
            add(files, "temp_input", Some(temperature));
        }
    }
    let ratio = |register, shift: u32| number((cpu.register(register)? >> shift) & 0xff);
    add(files, "base_ratio", ratio(0xce, 8));
    add(files, "max_ratio", ratio(0x1ad, 0));
    if cpu.leaf(1).ecx & 1 << 7 != 0 {
        add(files, "cur_ratio", ratio(0x198, 8));
    }
    // arch/x86/events/rapl.c: Haswell server and what is like it.
    let server = [0x3f, 0x4f, 0x55, 0x56, 0x57, 0x6a, 0x6c, 0x85];
    let dram = (machine().family == 6 && server.contains(&machine().model)).then_some(16);
    add(files, "energy_pkg_uj", cpu.energy(0x611, 0x606, None));
    add(files, "energy_core_uj", cpu.energy(0x639, 0x606, None));
    add(files, "energy_dram_uj", cpu.energy(0x619, 0x606, dram));
}

fn amd(cpu: &Cpu<'_>, files: &mut Files) {
    let counter = |register| cpu.register(register).map(|_| Expected::Counter(register));
    if cpu.leaf(0x8000_0001).ecx & 1 << 27 != 0 {
        add(files, "ptsc", counter(0xc001_0280));
    }
    if cpu.leaf(0x8000_0008).ebx & 1 << 1 != 0 {
        add(files, "irperf", counter(0xc000_00e9));
    }
    // Frequency id over divisor, times 200 MHz.
    let ratio = |register| {
        let state = cpu.register(register)?;
        number(((state & 0xff) * 2).checked_div(state >> 8 & 0x3f)?)
    };
    add(files, "base_ratio", ratio(0xc001_0064));
    add(files, "cur_ratio", ratio(0xc001_0293));
    if cpu.leaf(0x8000_0007).edx & 1 << 14 != 0 {
        let energy = |register| cpu.energy(register, 0xc001_0299, None);
        add(files, "energy_core_uj", energy(0xc001_029a));
        add(files, "energy_pkg_uj", energy(0xc001_029b));
    }
}
