// SPDX-License-Identifier: GPL-2.0

//! The allowlist, and narrowing a descriptor.

use crate::device::Device;
use crate::error::DeviceError;
use crate::ioctl;
use crate::uapi;
use rustix::io::Errno;
use std::error;
use std::fmt;
use std::ops::RangeInclusive;

/// Most ranges in one allowlist.
pub const MAX_ALLOWED_RANGES: usize = 4096;

/// A range of MSRs on the allowlist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AllowedRange {
    /// First register.
    pub lo: u32,
    /// Last register.
    pub hi: u32,
    /// Marked as allowed although it is not known to be harmless.
    pub marked_unsafe: bool,
}

impl AllowedRange {
    fn to_raw(self) -> uapi::cpupeek_range {
        uapi::cpupeek_range {
            lo: self.lo,
            hi: self.hi,
            flags: if self.marked_unsafe {
                uapi::CPUPEEK_RANGE_UNSAFE
            } else {
                0
            },
            reserved: 0,
        }
    }

    fn from_raw(raw: &uapi::cpupeek_range) -> Self {
        AllowedRange {
            lo: raw.lo,
            hi: raw.hi,
            marked_unsafe: raw.flags & uapi::CPUPEEK_RANGE_UNSAFE != 0,
        }
    }
}

/// The allowlist as it was at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowList {
    /// The ranges, as they were given.
    pub ranges: Vec<AllowedRange>,
    /// Number of the list; each new one has a higher one.
    pub generation: u64,
}

/// Why the module refuses an allowlist. It keeps the one that it has.
#[derive(Debug)]
pub enum AllowError {
    /// The range with this index is not one.
    Malformed(usize),
    /// The range with this index has a register in it that nobody may list.
    Never(usize),
    /// The range with this index has a register in it that is not known to be
    /// harmless, and no mark that says so.
    Unmarked(usize),
    /// There are too many ranges, or they are spread too far.
    TooLarge,
    /// The descriptor was opened without CAP_SYS_RAWIO, or it was narrowed.
    NotPermitted,
    /// Something else.
    Device(DeviceError),
}

impl fmt::Display for AllowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllowError::Malformed(i) => {
                write!(f, "range {i} is malformed: its end is below its beginning")
            }
            AllowError::Never(i) => write!(
                f,
                "range {i} has a register in it that can never be listed: leave it out (Documentation/registers.md has the reasons)"
            ),
            AllowError::Unmarked(i) => write!(
                f,
                "range {i} has a register in it that is not known to be harmless: mark it unsafe, or leave it out"
            ),
            AllowError::TooLarge => write!(
                f,
                "the list has more than {MAX_ALLOWED_RANGES} ranges, or ranges that are spread too far: make it shorter"
            ),
            AllowError::NotPermitted => f.write_str(
                "only who has CAP_SYS_RAWIO, and an unrestricted descriptor, may set the allowlist: run this as root",
            ),
            AllowError::Device(error) => error.fmt(f),
        }
    }
}

impl error::Error for AllowError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            AllowError::Device(error) => error.source(),
            _ => None,
        }
    }
}

/// What a descriptor is to be narrowed to; what is not set stays as it is.
#[derive(Clone, Debug, Default)]
pub struct Narrowing {
    msrs: Option<Vec<uapi::cpupeek_range>>,
    cpus: Option<Vec<u64>>,
    no_cpuid: bool,
}

impl Narrowing {
    /// Nothing is taken away yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// No MSRs but those in `ranges`.
    #[must_use]
    pub fn msrs(mut self, ranges: impl IntoIterator<Item = RangeInclusive<u32>>) -> Self {
        let raw = |range: RangeInclusive<u32>| uapi::cpupeek_range {
            lo: *range.start(),
            hi: *range.end(),
            ..Default::default()
        };
        self.msrs = Some(ranges.into_iter().map(raw).collect());
        self
    }

    /// No CPUs but these.
    #[must_use]
    pub fn cpus(mut self, cpus: impl IntoIterator<Item = u32>) -> Self {
        let mut words = Vec::new();
        for cpu in cpus {
            let at = (cpu / u64::BITS) as usize;
            if words.len() <= at {
                words.resize(at.saturating_add(1), 0);
            }
            if let Some(word) = words.get_mut(at) {
                *word |= 1 << (cpu % u64::BITS);
            }
        }
        self.cpus = Some(words);
        self
    }

    /// No CPUID.
    #[must_use]
    pub fn no_cpuid(mut self) -> Self {
        self.no_cpuid = true;
        self
    }

    fn flags(&self) -> u32 {
        let bit = |set, flag| if set { flag } else { 0 };
        bit(self.msrs.is_some(), uapi::CPUPEEK_NARROW_MSRS)
            | bit(self.cpus.is_some(), uapi::CPUPEEK_NARROW_CPUS)
            | bit(self.no_cpuid, uapi::CPUPEEK_NARROW_NO_CPUID)
    }
}

/// How often an MSR was refused since the list was last replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The register.
    pub reg: u32,
    /// How often.
    pub count: u64,
}

/// Which MSRs the policy has refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Those that are counted alone, in the order of their numbers.
    pub registers: Vec<Refusal>,
    /// Refusals of others, which there was no room for.
    pub others: u64,
}

impl Device {
    /// The allowlist now.
    pub fn allowed(&self) -> Result<AllowList, DeviceError> {
        let mut raw = vec![uapi::cpupeek_range::default(); MAX_ALLOWED_RANGES];
        let header = ioctl::get_allow(self.file(), &mut raw)
            .map_err(|errno| DeviceError::from_command("GET_ALLOW", errno))?;
        raw.truncate(header.nr_ranges as usize);
        Ok(AllowList {
            ranges: raw.iter().map(AllowedRange::from_raw).collect(),
            generation: header.generation,
        })
    }

    /// Replaces the allowlist, or leaves it as it is on an error. Returns the
    /// new one's number.
    ///
    /// A longer list counts for descriptors that are opened later; a shorter
    /// one for everybody at once.
    pub fn set_allowed(&self, ranges: &[AllowedRange]) -> Result<u64, AllowError> {
        let raw: Vec<_> = ranges.iter().map(|range| range.to_raw()).collect();
        let (header, result) = ioctl::set_allow(self.file(), &raw);
        let index =
            (header.bad_range != uapi::CPUPEEK_CONST_NO_RANGE).then_some(header.bad_range as usize);
        match (result, index) {
            (Ok(()), _) => Ok(header.generation),
            (Err(Errno::INVAL), Some(index)) => Err(AllowError::Malformed(index)),
            (Err(Errno::ACCESS), Some(index)) => Err(AllowError::Never(index)),
            (Err(Errno::PERM), Some(index)) => Err(AllowError::Unmarked(index)),
            (Err(Errno::PERM), None) => Err(AllowError::NotPermitted),
            (Err(Errno::TOOBIG), _) => Err(AllowError::TooLarge),
            (Err(errno), _) => Err(AllowError::Device(DeviceError::from_command(
                "SET_ALLOW",
                errno,
            ))),
        }
    }

    /// Takes rights away from the descriptor for good: what it may do after it
    /// is what it might do before and `to` allows. That holds for everybody who
    /// has the descriptor, and for plans that are prepared from then on.
    pub fn narrow(&self, to: &Narrowing) -> Result<(), DeviceError> {
        let header = uapi::cpupeek_narrow {
            flags: to.flags(),
            ..Default::default()
        };
        let msrs = to.msrs.as_deref().unwrap_or(&[]);
        let cpus = to.cpus.as_deref().unwrap_or(&[]);
        ioctl::narrow(self.file(), header, msrs, cpus)
            .map_err(|errno| DeviceError::from_command("NARROW", errno))
    }

    /// Which MSRs the policy has refused to anybody. Needs CAP_SYS_RAWIO.
    pub fn refusals(&self) -> Result<Refusals, DeviceError> {
        let mut raw = vec![uapi::cpupeek_refusal::default(); 4096];
        let header = ioctl::refusals(self.file(), &mut raw)
            .map_err(|errno| DeviceError::from_command("REFUSALS", errno))?;
        raw.truncate(header.nr_entries as usize);
        let mut registers: Vec<_> = raw
            .iter()
            .map(|raw| Refusal {
                reg: raw.reg,
                count: raw.count,
            })
            .collect();
        registers.sort_unstable_by_key(|refusal| refusal.reg);
        Ok(Refusals {
            registers,
            others: header.others,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_go_both_ways() {
        for marked_unsafe in [false, true] {
            let range = AllowedRange {
                lo: 1,
                hi: u32::MAX,
                marked_unsafe,
            };
            assert_eq!(AllowedRange::from_raw(&range.to_raw()), range);
        }
    }

    #[test]
    fn cpus_become_a_bitmap() {
        let words = |cpus: &[u32]| {
            let narrowing = Narrowing::new().cpus(cpus.iter().copied());
            narrowing.cpus.expect("was set")
        };
        assert_eq!(words(&[]), []);
        assert_eq!(words(&[0, 63]), [1 | 1 << 63]);
        assert_eq!(words(&[64, 1, 64]), [2, 1]);
    }

    #[test]
    fn flags_say_what_was_set() {
        assert_eq!(Narrowing::new().flags(), 0);
        assert_eq!(Narrowing::new().msrs([]).flags(), 1);
        assert_eq!(Narrowing::new().cpus([]).flags(), 2);
        let all = Narrowing::new().msrs([1..=2]).cpus([3]).no_cpuid();
        assert_eq!(all.flags(), 7);
    }
}
