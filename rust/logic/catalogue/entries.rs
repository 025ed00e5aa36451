// SPDX-License-Identifier: GPL-2.0

//! The items of the catalogue. Manual sections are those of the Intel SDM, volumes 3B and 4, and of
//! AMD's APM volume 2 and PPRs.

use super::{
    Access,
    Class,
    Decode,
    Entry,
    Feature,
    Scope,
    Source,
    Vendor,
    Word, //
};

pub(super) const DRAM_ENERGY: u32 = 0x619;

/// IA32_APERF; IA32_MPERF is the register before it.
pub const APERF: u32 = 0xe8;

/// IA32_MPERF.
pub const MPERF: u32 = 0xe7;

const APERFMPERF: Feature = Feature {
    leaf: 6,
    word: Word::Ecx,
    bit: 0,
};
const DIGITAL_THERMAL_SENSOR: Feature = Feature {
    leaf: 6,
    word: Word::Eax,
    bit: 0,
};
const SPEEDSTEP: Feature = Feature {
    leaf: 1,
    word: Word::Ecx,
    bit: 7,
};
const PTSC: Feature = Feature {
    leaf: 0x8000_0001,
    word: Word::Ecx,
    bit: 27,
};
const IRPERF: Feature = Feature {
    leaf: 0x8000_0008,
    word: Word::Ebx,
    bit: 1,
};
/// EffFreqRO/RAPL: AMD announces the energy counters with the bit "RAPL interface".
const AMD_RAPL: Feature = Feature {
    leaf: 0x8000_0007,
    word: Word::Edx,
    bit: 14,
};

/// `KVM_FEATURE_STEAL_TIME`.
const STEAL_TIME: Feature = Feature {
    leaf: 0x4000_0001,
    word: Word::Eax,
    bit: 5,
};

const fn bits(shift: u8, width: u8) -> Decode {
    Decode::Bits {
        shift,
        width,
        valid: None,
    }
}

/// A source without a feature bit, on any vendor's CPUs, read whole.
const ANY: Source = Source {
    vendor: None,
    reg: 0,
    constant: None,
    feature: None,
    decode: bits(0, 64),
    scope: None,
    manual: "",
};

const INTEL: Source = Source {
    vendor: Some(Vendor::Intel),
    ..ANY
};

const AMD: Source = Source {
    vendor: Some(Vendor::Amd),
    ..ANY
};

const COUNTER: Entry = Entry {
    name: c"",
    unit: "",
    help: "",
    scope: Scope::Thread,
    access: Access::Root,
    class: Class::Snapshot,
    nonzero: false,
    sources: &[],
};

const DERIVED: Entry = Entry {
    access: Access::World,
    ..COUNTER
};

/// A source of what comes from APERF and MPERF.
const RATE: Source = Source {
    reg: APERF,
    feature: Some(APERFMPERF),
    manual: "SDM 3B 16.2, APM 2 17.3 (IA32_APERF, IA32_MPERF)",
    ..ANY
};

/// A source of what KVM tells of a virtual CPU, `MSR_KVM_STEAL_TIME`.
const KVM: Source = Source {
    reg: 0x4b56_4d03,
    feature: Some(STEAL_TIME),
    manual: "Linux, virt/kvm/x86/msr.rst (MSR_KVM_STEAL_TIME)",
    ..ANY
};

/// All named values, in the order that they are listed in.
pub static ENTRIES: &[Entry] = &[
    Entry {
        name: c"tsc",
        unit: "cycles",
        help: "time stamp counter",
        sources: &[Source {
            decode: Decode::Tsc,
            manual: "SDM 3B 19.17, APM 2 13.2.4 (TSC)",
            ..ANY
        }],
        ..COUNTER
    },
    Entry {
        name: c"aperf",
        unit: "cycles",
        help: "cycles at the actual frequency, while running",
        sources: &[Source { ..RATE }],
        ..COUNTER
    },
    Entry {
        name: c"mperf",
        unit: "cycles",
        help: "cycles at the TSC's frequency, while running",
        sources: &[Source { reg: MPERF, ..RATE }],
        ..COUNTER
    },
    Entry {
        name: c"pperf",
        unit: "cycles",
        help: "cycles at the actual frequency, while running and not waiting for memory",
        nonzero: true,
        sources: &[Source {
            reg: 0x64e,
            manual: "SDM 4 (MSR_PPERF)",
            ..INTEL
        }],
        ..COUNTER
    },
    Entry {
        name: c"smi",
        help: "system management interrupts since reset",
        sources: &[Source {
            reg: 0x34,
            decode: bits(0, 32),
            manual: "SDM 4 (MSR_SMI_COUNT)",
            ..INTEL
        }],
        ..COUNTER
    },
    Entry {
        name: c"ptsc",
        unit: "cycles of 100 MHz",
        help: "performance time stamp counter",
        sources: &[Source {
            reg: 0xc001_0280,
            feature: Some(PTSC),
            manual: "BKDG 15h (MSRC001_0280)",
            ..AMD
        }],
        ..COUNTER
    },
    Entry {
        name: c"irperf",
        unit: "instructions",
        help: "instructions retired",
        sources: &[Source {
            reg: 0xc000_00e9,
            feature: Some(IRPERF),
            manual: "APM 2 13.2.2 (IRPerfCount)",
            ..AMD
        }],
        ..COUNTER
    },
    Entry {
        name: c"freq_khz",
        unit: "kHz",
        help: "mean frequency while running, over a window",
        class: Class::Window,
        sources: &[Source {
            decode: Decode::Frequency,
            ..RATE
        }],
        ..DERIVED
    },
    Entry {
        name: c"freq_error_ppm",
        unit: "ppm",
        help: "what freq_khz may be wrong by at most",
        class: Class::Window,
        sources: &[Source {
            decode: Decode::FrequencyError,
            ..RATE
        }],
        ..DERIVED
    },
    Entry {
        name: c"c0_permille",
        unit: "permille",
        help: "part of the time spent running, over the same window",
        class: Class::Window,
        sources: &[Source {
            decode: Decode::Residency,
            ..RATE
        }],
        ..DERIVED
    },
    Entry {
        name: c"cpu_thermal_margin",
        unit: "C",
        help: "degrees below the temperature at which the core throttles itself",
        scope: Scope::Core,
        sources: &[Source {
            reg: 0x19c,
            feature: Some(DIGITAL_THERMAL_SENSOR),
            decode: Decode::Bits {
                shift: 16,
                width: 7,
                valid: Some(31),
            },
            manual: "SDM 3B 16.8.5 (IA32_THERM_STATUS)",
            ..INTEL
        }],
        ..DERIVED
    },
    Entry {
        name: c"temp_input",
        unit: "millidegree C",
        help: "temperature of the core",
        scope: Scope::Core,
        sources: &[Source {
            reg: 0x19c,
            constant: Some(0x1a2),
            feature: Some(DIGITAL_THERMAL_SENSOR),
            decode: Decode::Temperature,
            manual: "SDM 3B 16.8.5 (IA32_THERM_STATUS), SDM 4 (MSR_TEMPERATURE_TARGET)",
            ..INTEL
        }],
        ..DERIVED
    },
    Entry {
        name: c"thermal_throttle",
        help: "1 while the core throttles itself because it is too hot, else 0",
        scope: Scope::Core,
        sources: &[Source {
            reg: 0x19c,
            feature: Some(DIGITAL_THERMAL_SENSOR),
            decode: bits(0, 1),
            manual: "SDM 3B 16.8.2 (IA32_THERM_STATUS)",
            ..INTEL
        }],
        ..DERIVED
    },
    Entry {
        name: c"base_ratio",
        unit: "x 100 MHz",
        help: "guaranteed frequency",
        scope: Scope::Package,
        nonzero: true,
        sources: &[
            Source {
                reg: 0xce,
                decode: bits(8, 8),
                manual: "SDM 4 (MSR_PLATFORM_INFO)",
                ..INTEL
            },
            Source {
                reg: 0xc001_0064,
                decode: Decode::FidDid,
                manual: "PPR 17h (PStateDef 0)",
                ..AMD
            },
        ],
        ..DERIVED
    },
    Entry {
        name: c"max_ratio",
        unit: "x 100 MHz",
        help: "highest turbo frequency with one core active",
        scope: Scope::Package,
        nonzero: true,
        sources: &[Source {
            reg: 0x1ad,
            decode: bits(0, 8),
            manual: "SDM 4 (MSR_TURBO_RATIO_LIMIT)",
            ..INTEL
        }],
        ..DERIVED
    },
    Entry {
        name: c"cur_ratio",
        unit: "x 100 MHz",
        help: "frequency asked for and granted now",
        scope: Scope::Core,
        nonzero: true,
        sources: &[
            Source {
                reg: 0x198,
                feature: Some(SPEEDSTEP),
                decode: bits(8, 8),
                manual: "SDM 3B 16.1.1 (IA32_PERF_STATUS)",
                ..INTEL
            },
            Source {
                reg: 0xc001_0293,
                decode: Decode::FidDid,
                manual: "PPR 17h (HwPstateStatus)",
                ..AMD
            },
        ],
        ..DERIVED
    },
    Entry {
        name: c"energy_pkg_uj",
        unit: "uJ",
        help: "energy that the package (Intel: the die) has used since it was first read",
        scope: Scope::Package,
        class: Class::Accumulated,
        sources: &[
            Source {
                reg: 0x611,
                constant: Some(0x606),
                decode: Decode::Energy,
                scope: Some(Scope::Die),
                manual: "SDM 3B 16.10.3 (MSR_PKG_ENERGY_STATUS)",
                ..INTEL
            },
            Source {
                reg: 0xc001_029b,
                constant: Some(0xc001_0299),
                feature: Some(AMD_RAPL),
                decode: Decode::Energy,
                manual: "PPR 17h (PKG_ENERGY_STAT)",
                ..AMD
            },
        ],
        ..COUNTER
    },
    Entry {
        name: c"energy_core_uj",
        unit: "uJ",
        help: "energy that the core (Intel: all cores of the die) has used since it was first read",
        scope: Scope::Core,
        class: Class::Accumulated,
        sources: &[
            Source {
                reg: 0x639,
                constant: Some(0x606),
                decode: Decode::Energy,
                scope: Some(Scope::Die),
                manual: "SDM 3B 16.10.4 (MSR_PP0_ENERGY_STATUS)",
                ..INTEL
            },
            Source {
                reg: 0xc001_029a,
                constant: Some(0xc001_0299),
                feature: Some(AMD_RAPL),
                decode: Decode::Energy,
                manual: "PPR 17h (CORE_ENERGY_STAT)",
                ..AMD
            },
        ],
        ..COUNTER
    },
    Entry {
        name: c"energy_dram_uj",
        unit: "uJ",
        help: "energy that the die's memory has used since it was first read",
        scope: Scope::Die,
        class: Class::Accumulated,
        sources: &[Source {
            reg: DRAM_ENERGY,
            constant: Some(0x606),
            decode: Decode::Energy,
            manual: "SDM 3B 16.10.5 (MSR_DRAM_ENERGY_STATUS)",
            ..INTEL
        }],
        ..COUNTER
    },
    Entry {
        name: c"vcpu_preempted",
        help: "1 if the host keeps the virtual CPU from running, else 0; 0 does not promise that it runs",
        class: Class::Live,
        sources: &[Source {
            decode: Decode::VcpuPreempted,
            ..KVM
        }],
        ..COUNTER
    },
    Entry {
        name: c"steal_us",
        unit: "us",
        help: "time that the virtual CPU wanted to run and the host did not let it, since boot",
        class: Class::Live,
        sources: &[Source {
            decode: Decode::StealTime,
            ..KVM
        }],
        ..DERIVED
    },
];
