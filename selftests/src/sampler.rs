// SPDX-License-Identifier: GPL-2.0

//! Samplers: their structures and commands, and a reader of their slots.

use std::fmt;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{compiler_fence, Ordering};

use crate::device::{uapi, Device, Op, OP_SIZE, POISON};
use crate::plan::RESULT_SIZE;
use crate::sys::{self, Errno, Pages, Result};
pub use cpupeek_client::uapi::{
    cpupeek_condition, cpupeek_map, cpupeek_result, cpupeek_sampler, cpupeek_slot, cpupeek_watch,
};

pub const SAMPLER: u32 = uapi::CPUPEEK_CONST_IOC_SAMPLER;
pub const WATCH: u32 = uapi::CPUPEEK_CONST_IOC_WATCH;
pub const STOP: u32 = uapi::CPUPEEK_CONST_IOC_STOP;
pub const NARROW: u32 = uapi::CPUPEEK_CONST_IOC_NARROW;
pub const EXACT: u32 = uapi::CPUPEEK_SAMPLER_EXACT;
pub const ANY: u32 = uapi::CPUPEEK_CONST_CPU_ANY;

/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;

/// The first size of the structure.
pub const SAMPLER_SIZE: usize = size_of::<cpupeek_sampler>();

/// SAMPLER's structure for `ops`: exact, every millisecond, without a ring.
pub fn request(ops: &[Op]) -> cpupeek_sampler {
    cpupeek_sampler {
        size: SAMPLER_SIZE as u32,
        flags: EXACT,
        nr_ops: ops.len() as u32,
        op_size: OP_SIZE as u32,
        ops: ops.as_ptr().expose_provenance() as u64,
        interval_ns: MS,
        fd: i32::from_ne_bytes([POISON; 4]),
        ..Default::default()
    }
}

/// SAMPLER with this structure. The descriptor in the answer is the caller's to close.
pub fn try_sampler(on: RawFd, mut request: cpupeek_sampler) -> Result<(OwnedFd, cpupeek_sampler)> {
    sys::ioctl(on, SAMPLER, (&raw mut request).expose_provenance())?;
    assert!(request.fd >= 0, "a sampler has a descriptor: {request:?}");
    // SAFETY: The descriptor is new, and nobody else's.
    Ok((unsafe { OwnedFd::from_raw_fd(request.fd) }, request))
}

/// A slot and its results, as they were at one time.
#[derive(Clone)]
pub struct Sample {
    pub slot: cpupeek_slot,
    pub results: Vec<cpupeek_result>,
}

impl Sample {
    /// What a result's value is.
    pub fn value(&self, index: usize) -> u64 {
        // SAFETY: All fields of the union are integers.
        unsafe { self.results[index].__bindgen_anon_1.value }
    }

    /// Whether it is the same sample, as it should be if it has the same number.
    pub fn is_same(&self, other: &Self) -> bool {
        let words = |sample: &Self, i: usize| (sample.results[i].tsc, sample.value(i));
        self.slot.tsc == other.slot.tsc
            && self.slot.busy == other.slot.busy
            && self.results.len() == other.results.len()
            && (0..self.results.len()).all(|i| words(self, i) == words(other, i))
    }

    /// Whether everything in it may be of one sample: the times are in order.
    pub fn is_whole(&self) -> bool {
        let mut last = self.slot.tsc;
        self.results.iter().all(|result| {
            let ordered = result.status != 0 || result.tsc >= last;
            last = result.tsc.max(last);
            ordered
        })
    }

    /// Checks that there is no value in it, and that all of its statuses say why.
    #[track_caller]
    pub fn expect_nothing(&self, status: i32) {
        assert_eq!(self.slot.status, -status, "{self:?}");
        assert_eq!(
            (self.slot.number, self.slot.tsc, self.slot.time_ns),
            (0, 0, 0)
        );
        for (i, result) in self.results.iter().enumerate() {
            assert_eq!(result.status, -status, "{self:?}");
            assert_eq!((result.tsc, self.value(i)), (0, 0), "{self:?}");
        }
    }
}

impl fmt::Debug for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.slot)?;
        for (i, result) in self.results.iter().enumerate() {
            let value = self.value(i);
            write!(f, " ({} {} {:#x})", result.status, result.tsc, value)?;
        }
        Ok(())
    }
}

/// A sampler's mapping.
pub struct Mapped {
    pages: Pages,
    pub map: cpupeek_map,
}

impl Mapped {
    #[track_caller]
    pub fn new(fd: RawFd, size: u64) -> Self {
        let count = size as usize / sys::PAGE;
        let pages = Pages::map(fd, count, libc::PROT_READ).expect("a sampler can be mapped");
        let map = pages.read(0);
        Self { pages, map }
    }

    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    fn place(&self, index: u32) -> usize {
        (self.map.slots + u64::from(index * self.map.slot_size)) as usize
    }

    /// A slot's bytes as they are, torn or not.
    pub fn look(&self, place: usize) -> Sample {
        let slot: cpupeek_slot = self.pages.read(place);
        let first = place + size_of::<cpupeek_slot>();
        let results = (0..slot.nr_results as usize)
            .map(|i| self.pages.read(first + i * RESULT_SIZE))
            .collect();
        Sample { slot, results }
    }

    /// Reads a slot by its protocol. The second number says how often it had to begin again.
    pub fn read_at(&self, place: usize) -> (Sample, u64) {
        let mut again = 0;
        loop {
            let before: u32 = self.pages.read(place);
            compiler_fence(Ordering::SeqCst);
            let sample = self.look(place);
            compiler_fence(Ordering::SeqCst);
            if before % 2 == 0 && self.pages.read::<u32>(place) == before {
                return (sample, again);
            }
            again += 1;
            std::hint::spin_loop();
        }
    }

    pub fn slot_place(&self, index: u32) -> usize {
        self.place(index)
    }

    /// The latest sample of the CPU with this place among the slots.
    pub fn latest(&self, index: u32) -> Sample {
        self.read_at(self.place(index)).0
    }

    /// What is where a sample of that CPU is in the ring.
    pub fn past(&self, index: u32, number: u64) -> Sample {
        let ring = u64::from(self.map.ring_samples);
        let slot = u64::from(index) * ring + number % ring;
        let place = self.map.ring + slot * u64::from(self.map.slot_size);
        self.read_at(place as usize).0
    }
}

/// A sampler that is mapped.
pub struct Sampler {
    fd: OwnedFd,
    pub answer: cpupeek_sampler,
    pub mapped: Mapped,
}

impl Sampler {
    #[track_caller]
    pub fn new(device: &Device, ops: &[Op], change: impl FnOnce(&mut cpupeek_sampler)) -> Self {
        let mut request = request(ops);
        change(&mut request);
        match try_sampler(device.fd(), request) {
            Ok((fd, answer)) => Self::from_parts(fd, answer),
            Err(error) => panic!("SAMPLER of {} operations: {error:?}", ops.len()),
        }
    }

    #[track_caller]
    pub fn from_parts(fd: OwnedFd, answer: cpupeek_sampler) -> Self {
        let mapped = Mapped::new(fd.as_raw_fd(), answer.map_size);
        Self { fd, answer, mapped }
    }

    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub fn latest(&self, index: u32) -> Sample {
        self.mapped.latest(index)
    }

    /// Waits for a sample with a number above `number`.
    #[track_caller]
    pub fn wait_beyond(&self, index: u32, number: u64) -> Sample {
        crate::guest::wait_until("a newer sample", || self.latest(index).slot.number > number);
        self.latest(index)
    }

    pub fn stop(&self) -> Result<()> {
        sys::ioctl(self.fd(), STOP, 0)
    }

    pub fn try_watch(&self, header: cpupeek_watch) -> Result<()> {
        sys::ioctl(self.fd(), WATCH, (&raw const header).expose_provenance())
    }

    pub fn watch(&self, conditions: &[cpupeek_condition]) -> Result<()> {
        self.try_watch(watch_header(conditions))
    }

    pub fn narrow(&self, header: uapi::cpupeek_narrow) -> Result<()> {
        sys::ioctl(self.fd(), NARROW, (&raw const header).expose_provenance())
    }

    /// `read()` of `size` bytes: how many it gave, and the number in them.
    pub fn read(&self, size: usize) -> Result<(usize, u64)> {
        sys::read_number(self.fd(), size)
    }

    /// What `poll()` says within `ms`.
    pub fn poll(&self, ms: i32) -> i16 {
        sys::poll(self.fd(), ms)
    }

    /// Takes what has happened so far.
    pub fn drain(&self) {
        sys::set_nonblocking(self.fd(), true);
        match self.read(8) {
            Ok(_) | Err(Errno(libc::EAGAIN)) => {}
            Err(error) => panic!("read: {error:?}"),
        }
        sys::set_nonblocking(self.fd(), false);
    }
}

/// WATCH's structure for `conditions`.
pub fn watch_header(conditions: &[cpupeek_condition]) -> cpupeek_watch {
    let address = conditions.as_ptr().expose_provenance() as u64;
    cpupeek_watch {
        size: size_of::<cpupeek_watch>() as u32,
        nr_conditions: conditions.len() as u32,
        conditions: if conditions.is_empty() { 0 } else { address },
        ..Default::default()
    }
}

/// A condition on any bit of a CPU's first result.
pub fn changed(cpu: u32) -> cpupeek_condition {
    cpupeek_condition {
        cpu,
        kind: uapi::CPUPEEK_WHEN_CHANGED,
        mask: u64::MAX,
        ..Default::default()
    }
}
