// SPDX-License-Identifier: GPL-2.0

//! What is known of MSRs: harmless, guarded, or never for anybody without CAP_SYS_RAWIO.
//!
//! What no rule names is guarded: nobody has looked at it. Sections are those of the Intel SDM
//! volumes 3 and 4, the AMD APM volume 2, AMD's PPR for family 19h and Microsoft's TLFS.

use super::Range;

/// Registers that are treated alike, and why.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Which.
    pub range: Range,
    /// Why.
    #[allow(dead_code, reason = "for the command and the documentation")]
    pub reason: &'static str,
    /// Where that comes from.
    #[allow(dead_code, reason = "for the command and the documentation")]
    pub source: &'static str,
}

/// How a register may be listed, from the least to the most guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Freely.
    Free,
    /// By explicit mark only.
    Guarded,
    /// Never.
    Never,
}

const fn rule(lo: u32, hi: u32, reason: &'static str, source: &'static str) -> Rule {
    Rule {
        range: Range { lo, hi },
        reason,
        source,
    }
}

const KERNEL_ADDRESS: &str = "holds kernel addresses";
const BRANCHES: &str = "records branches that other tasks and the kernel took";
const PHYSICAL: &str = "holds physical addresses";
const OTHER_TASKS: &str = "holds state of the task that runs there";
const SECRET: &str = "holds or guards secrets";
const EFFECT: &str = "reading it has effects, or races with firmware that uses it";
const GUEST_PHYSICAL: &str = "holds guest-physical addresses that are shared with the hypervisor";
const TRACE: &str = "configures tracing, with physical addresses of its buffers";

/// Registers that can never be listed, in ascending order.
pub static NEVER: &[Rule] = &[
    rule(
        0x11,
        0x12,
        GUEST_PHYSICAL,
        "Linux asm/kvm_para.h (MSR_KVM_WALL_CLOCK, MSR_KVM_SYSTEM_TIME)",
    ),
    rule(
        0x40,
        0x47,
        BRANCHES,
        "SDM 4 table 2-2 (MSR_LASTBRANCH_n_FROM_IP)",
    ),
    rule(0x48, 0x48, OTHER_TASKS, "SDM 4 table 2-2 (IA32_SPEC_CTRL)"),
    rule(
        0x4e,
        0x4f,
        SECRET,
        "SDM 4 (MSR_PPIN_CTL, MSR_PPIN: identifies the machine)",
    ),
    rule(
        0x60,
        0x67,
        BRANCHES,
        "SDM 4 table 2-2 (MSR_LASTBRANCH_n_TO_IP)",
    ),
    rule(
        0x9b,
        0x9e,
        PHYSICAL,
        "SDM 4 table 2-2 (IA32_SMM_MONITOR_CTL, IA32_SMBASE)",
    ),
    rule(
        0x140,
        0x140,
        OTHER_TASKS,
        "SDM 4 (MSR_MISC_FEATURES_ENABLES: CPUID faulting per task)",
    ),
    rule(
        0x150,
        0x150,
        EFFECT,
        "overclocking mailbox (CVE-2019-11157)",
    ),
    rule(
        0x174,
        0x176,
        KERNEL_ADDRESS,
        "SDM 4 table 2-2 (IA32_SYSENTER_CS, _ESP, _EIP)",
    ),
    rule(
        0x1c4,
        0x1c5,
        OTHER_TASKS,
        "SDM 4 table 2-2 (IA32_XFD, IA32_XFD_ERR)",
    ),
    rule(
        0x1c8,
        0x1c9,
        BRANCHES,
        "SDM 4 table 2-2 (MSR_LBR_SELECT, MSR_LASTBRANCH_TOS)",
    ),
    rule(
        0x1cc,
        0x1d4,
        OTHER_TASKS,
        "SDM 4 table 2-2 (FRED, LER, debug state)",
    ),
    rule(
        0x1d9,
        0x1de,
        BRANCHES,
        "SDM 3B 19.4 (IA32_DEBUGCTL, last branch and exception addresses)",
    ),
    rule(
        0x1f2,
        0x1f3,
        PHYSICAL,
        "SDM 4 table 2-2 (IA32_SMRR_PHYSBASE, _PHYSMASK)",
    ),
    rule(0x560, 0x587, TRACE, "SDM 4 table 2-2 (IA32_RTIT_*)"),
    rule(
        0x600,
        0x600,
        KERNEL_ADDRESS,
        "SDM 4 table 2-2 (IA32_DS_AREA)",
    ),
    rule(
        0x680,
        0x6df,
        BRANCHES,
        "SDM 4 (MSR_LASTBRANCH_n_*; IA32_*_CET and shadow stacks at 0x6A0 to 0x6A8)",
    ),
    rule(
        0x6e0,
        0x6e0,
        OTHER_TASKS,
        "SDM 4 table 2-2 (IA32_TSC_DEADLINE: when a timer fires)",
    ),
    rule(0x800, 0x8ff, EFFECT, "SDM 3A 12.12.1 (x2APIC registers)"),
    rule(0x985, 0x98a, OTHER_TASKS, "SDM 4 table 2-2 (IA32_UINTR_*)"),
    rule(
        0xc8d,
        0xc8f,
        OTHER_TASKS,
        "SDM 3B 19.18 (IA32_QM_EVTSEL selects what IA32_QM_CTR counts; IA32_PQR_ASSOC)",
    ),
    rule(0xd93, 0xd93, OTHER_TASKS, "SDM 4 table 2-2 (IA32_PASID)"),
    rule(0xda0, 0xda0, OTHER_TASKS, "SDM 4 table 2-2 (IA32_XSS)"),
    rule(0xdc0, 0xddf, BRANCHES, "SDM 4 (MSR_LBR_INFO_n)"),
    rule(
        0x1200,
        0x16ff,
        BRANCHES,
        "SDM 3B 20 (IA32_LBR_n_INFO, _FROM_IP, _TO_IP and control)",
    ),
    rule(
        0x17d0,
        0x17d0,
        PHYSICAL,
        "SDM 4 table 2-2 (IA32_HW_FEEDBACK_PTR)",
    ),
    rule(
        0x4000_0000,
        0x4000_01ff,
        GUEST_PHYSICAL,
        "TLFS appendix A (Hyper-V synthetic MSRs)",
    ),
    rule(
        0x4b56_4d00,
        0x4b56_4d08,
        GUEST_PHYSICAL,
        "Linux asm/kvm_para.h (KVM's MSRs)",
    ),
    rule(
        0xc000_0081,
        0xc000_0083,
        KERNEL_ADDRESS,
        "SDM 4 table 2-2, APM 2 6.1 (STAR, LSTAR, CSTAR)",
    ),
    rule(
        0xc000_0100,
        0xc000_0102,
        OTHER_TASKS,
        "SDM 4 table 2-2 (FS_BASE, GS_BASE, KERNEL_GS_BASE)",
    ),
    rule(
        0xc000_010e,
        0xc000_010f,
        BRANCHES,
        "APM 2 13.1.1.9 (LbrSelect, DebugExtnCfg)",
    ),
    rule(
        0xc001_0016,
        0xc001_001f,
        PHYSICAL,
        "APM 2 7.9 (IORR, TOP_MEM)",
    ),
    rule(
        0xc001_0111,
        0xc001_0113,
        PHYSICAL,
        "APM 2 10.2 (SMM_ADDR, SMM_MASK and base)",
    ),
    rule(
        0xc001_0117,
        0xc001_0117,
        PHYSICAL,
        "APM 2 15.30.4 (VM_HSAVE_PA)",
    ),
    rule(
        0xc001_0118,
        0xc001_0119,
        SECRET,
        "APM 2 15.31 (SVM_KEY, SMM_KEY)",
    ),
    rule(
        0xc001_0130,
        0xc001_0130,
        GUEST_PHYSICAL,
        "GHCB specification (GHCB address)",
    ),
    rule(
        0xc001_0131,
        0xc001_0138,
        SECRET,
        "APM 2 15.34 and 15.36 (SEV_STATUS, reverse map table)",
    ),
    rule(
        0xc001_02f0,
        0xc001_02f1,
        SECRET,
        "PPR 19h (PPIN_CTL, PPIN: identifies the machine)",
    ),
    rule(
        0xc001_0300,
        0xc001_031f,
        BRANCHES,
        "APM 2 13.1.1.9 (LastBranchStack)",
    ),
    rule(
        0xc001_1030,
        0xc001_103f,
        TRACE,
        "APM 2 13.3 (IBS: sampled addresses)",
    ),
];

const SIDE_CHANNEL: &str = "tells what other tasks compute";
const VOLTAGE: &str = "tells the voltage, and so what other tasks compute";
const ENERGY: &str = "tells the energy, and so what other tasks compute (CVE-2020-8694)";
const COUNTER: &str = "counts finely what other tasks do";

/// Registers that can be listed with an explicit mark, because somebody may want them and they tell
/// of others. In ascending order.
pub static GUARDED: &[Rule] = &[
    rule(
        0x10,
        0x10,
        COUNTER,
        "SDM 3B 19.17 (IA32_TIME_STAMP_COUNTER)",
    ),
    rule(0x34, 0x34, COUNTER, "SDM 4 (MSR_SMI_COUNT)"),
    rule(0xc1, 0xc8, SIDE_CHANNEL, "SDM 3B 21.2 (IA32_PMCn)"),
    rule(0xe7, 0xe8, COUNTER, "SDM 3B 16.2 (IA32_MPERF, IA32_APERF)"),
    rule(
        0x198,
        0x198,
        VOLTAGE,
        "SDM 4 (IA32_PERF_STATUS, bits 47:32)",
    ),
    rule(0x309, 0x30c, SIDE_CHANNEL, "SDM 3B 21.2 (IA32_FIXED_CTRn)"),
    rule(
        0x38d,
        0x38f,
        SIDE_CHANNEL,
        "SDM 3B 21.2 (performance counter control)",
    ),
    rule(0x3f8, 0x3fa, COUNTER, "SDM 4 (package C-state residency)"),
    rule(0x3fc, 0x3fe, COUNTER, "SDM 4 (core C-state residency)"),
    rule(0x4c1, 0x4c8, SIDE_CHANNEL, "SDM 3B 21.2.6 (IA32_A_PMCn)"),
    rule(
        0x611,
        0x611,
        ENERGY,
        "SDM 3B 16.10.3 (MSR_PKG_ENERGY_STATUS)",
    ),
    rule(0x613, 0x613, ENERGY, "SDM 3B 16.10.3 (MSR_PKG_PERF_STATUS)"),
    rule(
        0x619,
        0x619,
        ENERGY,
        "SDM 3B 16.10.5 (MSR_DRAM_ENERGY_STATUS)",
    ),
    rule(
        0x621,
        0x621,
        SIDE_CHANNEL,
        "SDM 4 (MSR_UNCORE_PERF_STATUS); root's alone in drivers/platform/x86/intel/uncore-frequency",
    ),
    rule(
        0x639,
        0x639,
        ENERGY,
        "SDM 3B 16.10.4 (MSR_PP0_ENERGY_STATUS)",
    ),
    rule(
        0x641,
        0x641,
        ENERGY,
        "SDM 3B 16.10.4 (MSR_PP1_ENERGY_STATUS)",
    ),
    rule(0x64d, 0x64d, ENERGY, "SDM 4 (MSR_PLATFORM_ENERGY_STATUS)"),
    rule(0x64e, 0x64e, COUNTER, "SDM 4 (MSR_PPERF)"),
    rule(
        0xc000_00e7,
        0xc000_00e9,
        COUNTER,
        "APM 2 17.3 (read-only MPERF, APERF, IRPERF)",
    ),
    rule(
        0xc001_0000,
        0xc001_0007,
        SIDE_CHANNEL,
        "APM 2 13.2.1 (PerfEvtSeln, PerfCtrn)",
    ),
    rule(
        0xc001_0200,
        0xc001_020b,
        SIDE_CHANNEL,
        "APM 2 13.2.1 (PERF_CTLn, PERF_CTRn)",
    ),
    rule(
        0xc001_0230,
        0xc001_024f,
        SIDE_CHANNEL,
        "PPR 19h (L3 and data fabric counters)",
    ),
    rule(0xc001_0280, 0xc001_0280, COUNTER, "BKDG 15h (MSRC001_0280)"),
    rule(
        0xc001_0293,
        0xc001_0293,
        VOLTAGE,
        "PPR 17h (HwPstateStatus, CurCpuVid)",
    ),
    rule(
        0xc001_029a,
        0xc001_029b,
        ENERGY,
        "PPR 17h (CORE_ENERGY_STAT, PKG_ENERGY_STAT)",
    ),
];

const CONFIGURATION: &str = "says how the machine is built or set up";
const STATUS: &str = "says how hot or throttled the machine is, no finer than sensors do";

/// Registers that can be listed freely; the default list. In ascending order.
pub static FREE: &[Rule] = &[
    rule(
        0x17,
        0x17,
        CONFIGURATION,
        "SDM 4 table 2-2 (IA32_PLATFORM_ID)",
    ),
    rule(0x35, 0x35, CONFIGURATION, "SDM 4 (MSR_CORE_THREAD_COUNT)"),
    rule(
        0x3a,
        0x3a,
        CONFIGURATION,
        "SDM 4 table 2-2 (IA32_FEATURE_CONTROL)",
    ),
    rule(
        0x8b,
        0x8b,
        CONFIGURATION,
        "SDM 3A 11.11.7.1 (IA32_BIOS_SIGN_ID: the microcode's revision)",
    ),
    rule(
        0xcd,
        0xcf,
        CONFIGURATION,
        "SDM 4 (MSR_FSB_FREQ, MSR_PLATFORM_INFO, IA32_CORE_CAPABILITIES)",
    ),
    rule(
        0xe2,
        0xe2,
        CONFIGURATION,
        "SDM 4 (MSR_PKG_CST_CONFIG_CONTROL)",
    ),
    rule(
        0x10a,
        0x10a,
        CONFIGURATION,
        "SDM 4 table 2-2 (IA32_ARCH_CAPABILITIES)",
    ),
    rule(
        0x199,
        0x199,
        CONFIGURATION,
        "SDM 4 table 2-2 (IA32_PERF_CTL)",
    ),
    rule(
        0x19b,
        0x19c,
        STATUS,
        "SDM 3B 16.8 (IA32_THERM_INTERRUPT, IA32_THERM_STATUS)",
    ),
    rule(
        0x1a0,
        0x1a0,
        CONFIGURATION,
        "SDM 4 table 2-2 (IA32_MISC_ENABLE)",
    ),
    rule(
        0x1a2,
        0x1a2,
        CONFIGURATION,
        "SDM 4 (MSR_TEMPERATURE_TARGET)",
    ),
    rule(0x1a4, 0x1a4, CONFIGURATION, "SDM 4 (MSR_PREFETCH_CONTROL)"),
    rule(0x1aa, 0x1aa, CONFIGURATION, "SDM 4 (MSR_MISC_PWR_MGMT)"),
    rule(
        0x1ad,
        0x1af,
        CONFIGURATION,
        "SDM 4 (MSR_TURBO_RATIO_LIMIT and following)",
    ),
    rule(
        0x1b0,
        0x1b2,
        STATUS,
        "SDM 3B 16.4 and 16.9 (IA32_ENERGY_PERF_BIAS, IA32_PACKAGE_THERM_*)",
    ),
    rule(0x1fc, 0x1fc, CONFIGURATION, "SDM 4 (MSR_POWER_CTL)"),
    rule(0x277, 0x277, CONFIGURATION, "SDM 4 table 2-2 (IA32_PAT)"),
    rule(0x601, 0x601, CONFIGURATION, "SDM 4 (MSR_VR_CURRENT_CONFIG)"),
    rule(
        0x606,
        0x606,
        CONFIGURATION,
        "SDM 3B 16.10.1 (MSR_RAPL_POWER_UNIT)",
    ),
    rule(
        0x610,
        0x610,
        CONFIGURATION,
        "SDM 3B 16.10.3 (MSR_PKG_POWER_LIMIT)",
    ),
    rule(
        0x614,
        0x614,
        CONFIGURATION,
        "SDM 3B 16.10.3 (MSR_PKG_POWER_INFO)",
    ),
    rule(
        0x618,
        0x618,
        CONFIGURATION,
        "SDM 3B 16.10.5 (MSR_DRAM_POWER_LIMIT)",
    ),
    rule(
        0x61c,
        0x61c,
        CONFIGURATION,
        "SDM 3B 16.10.5 (MSR_DRAM_POWER_INFO)",
    ),
    rule(
        0x620,
        0x620,
        CONFIGURATION,
        "SDM 4 (MSR_UNCORE_RATIO_LIMIT)",
    ),
    rule(
        0x638,
        0x638,
        CONFIGURATION,
        "SDM 3B 16.10.4 (MSR_PP0_POWER_LIMIT)",
    ),
    rule(
        0x648,
        0x64c,
        CONFIGURATION,
        "SDM 4 (configurable TDP, MSR_TURBO_ACTIVATION_RATIO)",
    ),
    rule(0x64f, 0x64f, STATUS, "SDM 4 (MSR_CORE_PERF_LIMIT_REASONS)"),
    rule(
        0x770,
        0x774,
        CONFIGURATION,
        "SDM 3B 16.4 (hardware-controlled performance states)",
    ),
    rule(
        0xc000_0080,
        0xc000_0080,
        CONFIGURATION,
        "SDM 4 table 2-2, APM 2 3.1.7 (EFER)",
    ),
    rule(
        0xc000_0103,
        0xc000_0104,
        CONFIGURATION,
        "SDM 4 table 2-2, APM 2 (TSC_AUX, TSC ratio)",
    ),
    rule(
        0xc001_0010,
        0xc001_0010,
        CONFIGURATION,
        "APM 2 7.9 (SYSCFG)",
    ),
    rule(0xc001_0015, 0xc001_0015, CONFIGURATION, "PPR 19h (HWCR)"),
    rule(
        0xc001_0061,
        0xc001_006b,
        CONFIGURATION,
        "PPR 19h (P-state limit, control, status, definitions)",
    ),
    rule(
        0xc001_0299,
        0xc001_0299,
        CONFIGURATION,
        "PPR 17h (RAPL_PWR_UNIT)",
    ),
    rule(0xc001_02b0, 0xc001_02b4, CONFIGURATION, "PPR 19h (CPPC)"),
];

fn first_in(rules: &'static [Rule], range: Range) -> Option<&'static Rule> {
    rules.iter().find(|rule| rule.range.overlaps(range))
}

/// The most guarded register in a range, with the rule that says so; `None` for registers that no
/// rule names.
pub fn most_guarded(range: Range) -> (Class, Option<&'static Rule>) {
    if let Some(rule) = first_in(NEVER, range) {
        return (Class::Never, Some(rule));
    }
    if let Some(rule) = first_in(GUARDED, range) {
        return (Class::Guarded, Some(rule));
    }
    // Free only if rules name every register of it.
    let mut next = range.lo;
    for rule in FREE {
        if (rule.range.lo..=rule.range.hi).contains(&next) {
            if rule.range.hi >= range.hi {
                return (Class::Free, Some(rule));
            }
            next = rule.range.hi + 1;
        }
    }
    (Class::Guarded, None)
}

/// How one register may be listed.
pub fn class_of(reg: u32) -> (Class, Option<&'static Rule>) {
    most_guarded(Range { lo: reg, hi: reg })
}
