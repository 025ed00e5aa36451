// SPDX-License-Identifier: GPL-2.0

//! The catalogue: which registers are worth a name, on which CPUs they are there, and what their
//! bits mean.
//!
//! It is data. sysfs, `cpupeek list`, `cpupeek show` and the documentation come from it; adding a
//! value is adding one item to [`ENTRIES`]. Names and meanings are those of perf's msr events,
//! hwmon, powercap and cpufreq, where these have them.

mod entries;

pub use entries::{
    APERF,
    ENTRIES,
    MPERF, //
};

/// Who made a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// Intel.
    Intel,
    /// AMD, and Hygon, whose CPUs are AMD's.
    Amd,
    /// Anybody else.
    Other,
}

impl Vendor {
    /// From EBX, ECX and EDX of CPUID leaf 0.
    pub const fn from_cpuid(ebx: u32, ecx: u32, edx: u32) -> Self {
        const fn words(name: &[u8; 12]) -> (u32, u32, u32) {
            const fn word(name: &[u8; 12], at: usize) -> u32 {
                u32::from_le_bytes([name[at], name[at + 1], name[at + 2], name[at + 3]])
            }
            (word(name, 0), word(name, 8), word(name, 4))
        }
        const fn is(name: &[u8; 12], ebx: u32, ecx: u32, edx: u32) -> bool {
            let (b, c, d) = words(name);
            b == ebx && c == ecx && d == edx
        }
        if is(b"GenuineIntel", ebx, ecx, edx) {
            Self::Intel
        } else if is(b"AuthenticAMD", ebx, ecx, edx) || is(b"HygonGenuine", ebx, ecx, edx) {
            Self::Amd
        } else {
            Self::Other
        }
    }
}

/// One of the registers that CPUID answers in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// EAX.
    Eax,
    /// EBX.
    Ebx,
    /// ECX.
    Ecx,
    /// EDX.
    Edx,
}

/// A feature bit of CPUID. KVM's leaves, from 0x4000_0000 on, are meant wherever they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Leaf; the subleaf is 0.
    pub leaf: u32,
    /// Which word of the answer.
    pub word: Word,
    /// Which bit of that.
    pub bit: u8,
}

impl Feature {
    /// Whether the bit is set, where `cpuid` answers for the CPU. Leaves beyond the highest one of
    /// their range do not count: Intel CPUs answer those with another leaf's data.
    pub fn is_set(self, cpuid: &mut dyn FnMut(u32) -> [u32; 4]) -> bool {
        let leaf = if self.leaf & 0xc000_0000 == HYPERVISOR {
            let Some(base) = kvm_leaves(cpuid) else {
                return false;
            };
            base | self.leaf & 0xff
        } else {
            let [highest, ..] = cpuid(self.leaf & 0x8000_0000);
            if highest < self.leaf || highest & 0x8000_0000 != self.leaf & 0x8000_0000 {
                return false;
            }
            self.leaf
        };
        let [eax, ebx, ecx, edx] = cpuid(leaf);
        let word = match self.word {
            Word::Eax => eax,
            Word::Ebx => ebx,
            Word::Ecx => ecx,
            Word::Edx => edx,
        };
        word >> self.bit & 1 != 0
    }
}

/// The first of the leaves that hypervisors answer.
const HYPERVISOR: u32 = 0x4000_0000;

/// The first of KVM's leaves, which follow those of another hypervisor that KVM imitates.
/// `Documentation/virt/kvm/x86/cpuid.rst`.
fn kvm_leaves(cpuid: &mut dyn FnMut(u32) -> [u32; 4]) -> Option<u32> {
    let [.., ecx, _] = cpuid(1);
    if ecx >> 31 == 0 {
        return None;
    }
    for base in (HYPERVISOR..HYPERVISOR + 0x1_0000).step_by(0x100) {
        let [highest, ebx, ecx, edx] = cpuid(base);
        // "KVMKVMKVM"
        if [ebx, ecx, edx] == [0x4b4d_564b, 0x564b_4d56, 0x4d] {
            return Some(base);
        }
        if !(base..base + 0x100).contains(&highest) {
            break;
        }
    }
    None
}

/// What shares a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Each logical CPU has its own.
    Thread,
    /// The threads of a core share it.
    Core,
    /// All CPUs of a die share it; most packages have one. That Intel's energies are of this kind is said by
    /// arch/x86/events/rapl.c of the kernel.
    Die,
    /// All CPUs of a package share it.
    Package,
}

/// Who may read a value in sysfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everybody: it is derived, and tells nothing of what other tasks compute.
    World,
    /// Root: raw counters and energy can leak secrets (PLATYPUS, CVE-2020-8694).
    Root,
}

impl Access {
    /// The mode of the file.
    pub const fn mode(self) -> u16 {
        match self {
            Self::World => 0o444,
            Self::Root => 0o400,
        }
    }
}

/// How the cache treats a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Read with the CPU's other registers, and served until that is too old.
    Snapshot,
    /// Needs two samples some time apart.
    Window,
    /// Accumulated from one snapshot to the next.
    Accumulated,
    /// Known at once, without asking the CPU.
    Live,
}

/// How a value comes from its register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decode {
    /// The time stamp counter at the snapshot; there is no register to read.
    Tsc,
    /// `width` bits from bit `shift` on. If `valid` is given and that bit is clear, there is no
    /// value now.
    Bits {
        /// Lowest bit.
        shift: u8,
        /// Number of bits.
        width: u8,
        /// Bit that must be set.
        valid: Option<u8>,
    },
    /// Millidegrees: bits 23:16 of the constant register less bits 22:16 of this one, degrees both,
    /// if bit 31 is set.
    Temperature,
    /// A multiple of 100 MHz from AMD's frequency id (bits 7:0) and divisor (bits 13:8).
    FidDid,
    /// Microjoules: a 32-bit counter in units of 2^-n J, where n is bits 12:8 of the constant
    /// register, or fixed for the models that [`Source::fixed_unit`] knows.
    Energy,
    /// kHz at which the CPU ran while it ran, between two samples of TSC, APERF and MPERF.
    Frequency,
    /// Relative error that [`Decode::Frequency`] may have at most, in parts per million.
    FrequencyError,
    /// Permille of the time that the CPU ran, between those samples.
    Residency,
    /// 1 if the record that bit 0 of the register has enabled says that the host has taken the
    /// virtual CPU off its processor, else 0.
    VcpuPreempted,
    /// Microseconds that the kernel has accounted from that record.
    StealTime,
}

/// Where a value is on the CPUs of a vendor.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Whose CPUs; `None` for all.
    pub vendor: Option<Vendor>,
    /// Number of the MSR.
    pub reg: u32,
    /// A second MSR that decoding needs and that does not change.
    pub constant: Option<u32>,
    /// The CPU must have this; in addition, a safe read must succeed.
    pub feature: Option<Feature>,
    /// How to decode it.
    pub decode: Decode,
    /// What shares it on these CPUs, if that is not what the entry says.
    pub scope: Option<Scope>,
    /// Where the manuals describe it.
    #[allow(dead_code, reason = "for the command and the documentation")]
    pub manual: &'static str,
}

/// A named value.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Name of the file and of the value.
    pub name: &'static core::ffi::CStr,
    /// Unit, as people write it; empty for a plain number.
    #[allow(dead_code, reason = "for the command and the documentation")]
    pub unit: &'static str,
    /// What it is, in a line.
    #[allow(dead_code, reason = "for the command and the documentation")]
    pub help: &'static str,
    /// What shares it.
    pub scope: Scope,
    /// Who may read it.
    pub access: Access,
    /// How the cache treats it.
    pub class: Class,
    /// A value of 0 means that the CPU does not really have it.
    pub nonzero: bool,
    /// Where it is; the first that fits the CPU counts.
    pub sources: &'static [Source],
}

/// What a CPU is, as far as the catalogue cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its maker.
    pub vendor: Vendor,
    /// Display family.
    pub family: u32,
    /// Display model.
    pub model: u32,
}

impl Identity {
    /// Asks CPUID. Intel SDM volume 2, CPUID, "Version Information".
    pub fn new(cpuid: &mut dyn FnMut(u32) -> [u32; 4]) -> Self {
        let [_, ebx, ecx, edx] = cpuid(0);
        let [eax, ..] = cpuid(1);
        let family = eax >> 8 & 0xf;
        let model = eax >> 4 & 0xf;
        Self {
            vendor: Vendor::from_cpuid(ebx, ecx, edx),
            family: family + if family == 0xf { eax >> 20 & 0xff } else { 0 },
            model: model
                | if family == 0x6 || family == 0xf {
                    eax >> 12 & 0xf0
                } else {
                    0
                },
        }
    }
}

impl Identity {
    /// Silvermont and Airmont have energy units of 2^n uJ, not 2^-n J (`rapl_check_unit_atom()` in
    /// `drivers/powercap/intel_rapl_common.c`); their energy is left out.
    pub fn counts_energy_otherwise(self) -> bool {
        let atoms = [0x37, 0x4a, 0x4c, 0x4d, 0x5a, 0x5d];
        self.vendor == Vendor::Intel && self.family == 6 && atoms.contains(&self.model)
    }
}

impl Entry {
    /// The source that fits a CPU, going by what it is and by its feature bits.
    pub fn source(
        &self,
        identity: Identity,
        cpuid: &mut dyn FnMut(u32) -> [u32; 4],
    ) -> Option<&'static Source> {
        self.sources.iter().find(|source| {
            source.vendor.is_none_or(|vendor| vendor == identity.vendor)
                && source.feature.is_none_or(|feature| feature.is_set(cpuid))
        })
    }
}

impl Source {
    /// The energy unit of models whose unit register does not tell: the n of 2^-n J.
    ///
    /// Server Haswell to Ice Lake and Knights Landing count DRAM energy in 15.3 uJ (Intel document
    /// 330784, Xeon E5 v3 datasheet volume 2, section 5.3.3; `arch/x86/events/rapl.c`).
    pub fn fixed_unit(&self, identity: Identity) -> Option<u8> {
        let server = [0x3f, 0x4f, 0x55, 0x56, 0x57, 0x6a, 0x6c, 0x85];
        let fixed = self.reg == entries::DRAM_ENERGY
            && identity.vendor == Vendor::Intel
            && identity.family == 6
            && server.contains(&identity.model);
        fixed.then_some(16)
    }
}

/// A decoded value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// Not negative.
    Unsigned(u64),
    /// Possibly negative.
    Signed(i64),
}

impl Decode {
    /// Decodes what needs one reading only. `None`: there is no value now, or decoding needs more.
    pub fn number(self, value: u64, constant: u64) -> Option<Number> {
        match self {
            Self::Bits {
                shift,
                width,
                valid,
            } => {
                if valid.is_some_and(|bit| value >> bit & 1 == 0) {
                    return None;
                }
                let mask = u64::MAX >> 64u8.checked_sub(width)?;
                Some(Number::Unsigned(value >> shift & mask))
            }
            Self::Temperature => {
                if value >> 31 & 1 == 0 {
                    return None;
                }
                let (limit, margin) = (constant >> 16 & 0xff, value >> 16 & 0x7f);
                Some(Number::Signed((limit as i64 - margin as i64) * 1000))
            }
            Self::FidDid => {
                let (fid, did) = (value & 0xff, value >> 8 & 0x3f);
                // AMD PPR for family 17h, Core::X86::Msr::PStateDef: CoreCOF = fid / did * 200 MHz.
                (fid * 2).checked_div(did).map(Number::Unsigned)
            }
            Self::Tsc
            | Self::Energy
            | Self::Frequency
            | Self::FrequencyError
            | Self::Residency
            | Self::VcpuPreempted
            | Self::StealTime => None,
        }
    }
}
