// SPDX-License-Identifier: GPL-2.0

//! The commands about rights, as raw as the tests need them, and plans.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use cpupeek_client::uapi::{
    self, cpupeek_allow, cpupeek_narrow, cpupeek_prepare, cpupeek_range, cpupeek_refusal,
    cpupeek_refusals, cpupeek_result, cpupeek_run,
};
use cpupeek_selftests::device::{Device, Op, OP_SIZE, PREPARE, RUN};
use cpupeek_selftests::sys::{self, Errno, Result};

pub const SET_ALLOW: u32 = uapi::CPUPEEK_CONST_IOC_SET_ALLOW;
pub const GET_ALLOW: u32 = uapi::CPUPEEK_CONST_IOC_GET_ALLOW;
pub const NARROW: u32 = uapi::CPUPEEK_CONST_IOC_NARROW;
pub const REFUSALS: u32 = uapi::CPUPEEK_CONST_IOC_REFUSALS;
pub const NO_RANGE: u32 = uapi::CPUPEEK_CONST_NO_RANGE;
pub const UNSAFE: u32 = uapi::CPUPEEK_RANGE_UNSAFE;
pub const DISTURB: u16 = uapi::CPUPEEK_OP_DISTURB as u16;

pub type Range = cpupeek_range;

pub fn range(lo: u32, hi: u32) -> Range {
    Range {
        lo,
        hi,
        ..Default::default()
    }
}

/// A range that is marked unsafe.
pub fn marked(lo: u32, hi: u32) -> Range {
    Range {
        flags: UNSAFE,
        ..range(lo, hi)
    }
}

/// Single registers, marked unsafe.
pub fn list(regs: &[u32]) -> Vec<Range> {
    regs.iter().map(|&reg| marked(reg, reg)).collect()
}

pub fn fields(range: &Range) -> (u32, u32, u32, u32) {
    (range.lo, range.hi, range.flags, range.reserved)
}

/// The address of a structure that is handed to the kernel.
pub fn address<T>(of: &mut T) -> usize {
    (of as *mut T).expose_provenance()
}

pub fn allow_header(ranges: &[Range]) -> cpupeek_allow {
    cpupeek_allow {
        size: size_of::<cpupeek_allow>() as u32,
        nr_ranges: ranges.len() as u32,
        ranges: ranges.as_ptr().expose_provenance() as u64,
        ..Default::default()
    }
}

/// SET_ALLOW, with the index that it is refused for if it is for one.
pub fn set_allow(device: &Device, ranges: &[Range]) -> std::result::Result<u64, (i32, u32)> {
    let mut header = allow_header(ranges);
    match device.ioctl(SET_ALLOW, address(&mut header)) {
        Ok(()) => {
            assert_eq!(header.bad_range, NO_RANGE);
            Ok(header.generation)
        }
        Err(Errno(errno)) => Err((errno, header.bad_range)),
    }
}

/// Replaces the list as root, which must succeed.
#[track_caller]
pub fn allow(ranges: &[Range]) -> u64 {
    set_allow(&Device::open(), ranges).expect("root may set this list")
}

/// GET_ALLOW: the ranges, and the list's number.
#[track_caller]
pub fn get_allow(device: &Device) -> (Vec<Range>, u64) {
    let mut ranges = vec![Range::default(); 5000];
    let mut header = allow_header(&ranges);
    header.ranges = ranges.as_mut_ptr().expose_provenance() as u64;
    assert_eq!(device.ioctl(GET_ALLOW, address(&mut header)), Ok(()));
    ranges.truncate(header.nr_ranges as usize);
    (ranges, header.generation)
}

/// A narrowing; `cpus` is a bitmap.
#[derive(Clone, Default)]
pub struct Narrow {
    pub flags: u32,
    pub ranges: Vec<Range>,
    pub cpus: Vec<u64>,
}

impl Narrow {
    pub fn to_msrs(ranges: &[Range]) -> Self {
        Self {
            flags: uapi::CPUPEEK_NARROW_MSRS,
            ranges: ranges.to_vec(),
            cpus: Vec::new(),
        }
    }

    pub fn to_cpus(cpus: &[u32]) -> Self {
        let mut words = Vec::new();
        for &cpu in cpus {
            let at = cpu as usize / 64;
            words.resize(words.len().max(at + 1), 0u64);
            words[at] |= 1 << (cpu % 64);
        }
        Self {
            flags: uapi::CPUPEEK_NARROW_CPUS,
            ranges: Vec::new(),
            cpus: words,
        }
    }

    pub fn no_cpuid() -> Self {
        Self {
            flags: uapi::CPUPEEK_NARROW_NO_CPUID,
            ..Self::default()
        }
    }

    pub fn and(mut self, other: Self) -> Self {
        self.flags |= other.flags;
        self.ranges.extend(other.ranges);
        self.cpus.extend(other.cpus);
        self
    }

    pub fn apply(&self, device: &Device) -> Result<()> {
        // What is not given has no address.
        let place = |there: bool, address: usize| if there { address as u64 } else { 0 };
        let mut header = cpupeek_narrow {
            size: size_of::<cpupeek_narrow>() as u32,
            flags: self.flags,
            nr_ranges: self.ranges.len() as u32,
            cpus_size: size_of_val(self.cpus.as_slice()) as u32,
            ranges: place(
                !self.ranges.is_empty(),
                self.ranges.as_ptr().expose_provenance(),
            ),
            cpus: place(
                !self.cpus.is_empty(),
                self.cpus.as_ptr().expose_provenance(),
            ),
        };
        device.ioctl(NARROW, address(&mut header))
    }
}

/// REFUSALS: the counts of registers, and of others.
pub fn refusals(device: &Device) -> Result<(Vec<cpupeek_refusal>, u64)> {
    let mut entries = vec![cpupeek_refusal::default(); 5000];
    let mut header = cpupeek_refusals {
        size: size_of::<cpupeek_refusals>() as u32,
        nr_entries: entries.len() as u32,
        entries: entries.as_mut_ptr().expose_provenance() as u64,
        ..Default::default()
    };
    device.ioctl(REFUSALS, address(&mut header))?;
    entries.truncate(header.nr_entries as usize);
    Ok((entries, header.others))
}

/// A plan, and its results if they are mapped.
pub struct Plan {
    fd: OwnedFd,
    len: usize,
    mapped: Option<NonNull<cpupeek_result>>,
}

impl Plan {
    pub fn try_new(device: &Device, ops: &[Op]) -> Result<Self> {
        let mut header = cpupeek_prepare {
            size: size_of::<cpupeek_prepare>() as u32,
            nr_ops: ops.len() as u32,
            op_size: OP_SIZE as u32,
            ops: ops.as_ptr().expose_provenance() as u64,
            fd: -1,
            ..Default::default()
        };
        device.ioctl(PREPARE, address(&mut header))?;
        Ok(Self {
            // SAFETY: The descriptor is new, and nobody else's.
            fd: unsafe { OwnedFd::from_raw_fd(header.fd) },
            len: ops.len(),
            mapped: None,
        })
    }

    /// A plan that somebody else has made, of so many operations.
    pub fn received(fd: OwnedFd, len: usize) -> Self {
        Self {
            fd,
            len,
            mapped: None,
        }
    }

    #[track_caller]
    pub fn new(device: &Device, ops: &[Op]) -> Self {
        Self::try_new(device, ops).expect("PREPARE")
    }

    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    fn header(&self, flags: u32) -> cpupeek_run {
        cpupeek_run {
            size: size_of::<cpupeek_run>() as u32,
            flags,
            ..Default::default()
        }
    }

    /// RUN, which must run.
    #[track_caller]
    pub fn run(&self) -> Vec<cpupeek_result> {
        let mut results = vec![cpupeek_result::default(); self.len];
        let mut header = self.header(0);
        header.nr_results = self.len as u32;
        header.results = results.as_mut_ptr().expose_provenance() as u64;
        let result = sys::ioctl(self.fd(), RUN, address(&mut header));
        assert_eq!(result, Ok(()), "RUN");
        results
    }

    /// Maps the results, which fit a page.
    pub fn map(&mut self) {
        assert!(self.len * size_of::<cpupeek_result>() <= sys::PAGE);
        // SAFETY: A new mapping at an address of the kernel's choice harms nobody.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                sys::PAGE,
                libc::PROT_READ,
                libc::MAP_SHARED,
                self.fd(),
                0,
            )
        };
        assert!(start != libc::MAP_FAILED, "mmap: {:?}", sys::last_error());
        self.mapped = NonNull::new(start.cast());
    }

    /// RUN with the results where they are mapped.
    #[track_caller]
    pub fn run_mapped(&self) -> Vec<cpupeek_result> {
        let mut header = self.header(uapi::CPUPEEK_RUN_MAPPED);
        let result = sys::ioctl(self.fd(), RUN, address(&mut header));
        assert_eq!(result, Ok(()), "RUN");
        let start = self.mapped.expect("was mapped").as_ptr();
        // SAFETY: So many results are in the mapping, which stays until the process ends.
        let read = |i| unsafe { start.add(i).read_volatile() };
        (0..self.len).map(read).collect()
    }
}

/// The value that is in a result.
pub fn value(result: &cpupeek_result) -> u64 {
    // SAFETY: All fields of the union are integers.
    unsafe { result.__bindgen_anon_1.value }
}
