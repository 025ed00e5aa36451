// SPDX-License-Identifier: GPL-2.0

//! What a sampler has left: no system call.

use super::{Reader, Sweep};
use cpupeek_client::{uapi, Op, Precision, Sampler, SamplerOptions};
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
use std::io;
use std::time::{Duration, Instant};

/// Every CPU samples the registers 100 times a second.
const INTERVAL: Duration = Duration::from_millis(10);

/// When every CPU has left a first sample, at the latest.
const FIRST_SAMPLE: Duration = Duration::from_secs(5);

pub fn sampler(sweep: &Sweep) -> io::Result<Sampler> {
    let device = cpupeek_client::Device::open().map_err(io::Error::other)?;
    let ops: Vec<Op> = sweep.pairs().map(|(cpu, reg)| Op::msr(cpu, reg)).collect();
    let options = SamplerOptions {
        interval: INTERVAL,
        precision: Precision::Exact,
        ring_samples: 0,
    };
    let sampler = device.sample(&ops, &options).map_err(io::Error::other)?;
    // A CPU that is kept from reading for long enough needs another round for the first sample.
    let mut values = vec![0; sweep.regs.len()];
    let deadline = Instant::now() + FIRST_SAMPLE;
    for slot in sampler.slots() {
        while let Err(error) = slot.values(&mut values) {
            if error.errno() != libc::ENODATA || Instant::now() > deadline {
                return Err(io::Error::from_raw_os_error(error.errno()));
            }
            std::thread::sleep(INTERVAL);
        }
    }
    Ok(sampler)
}

/// The client library's way: values of one sample for each CPU, or the reason why not.
pub struct Mapped {
    sampler: Sampler,
    regs: usize,
}

impl Mapped {
    pub fn new(sweep: &Sweep) -> io::Result<Self> {
        Ok(Self {
            sampler: sampler(sweep)?,
            regs: sweep.regs.len(),
        })
    }
}

impl Reader for Mapped {
    fn read(&mut self, values: &mut [u64]) -> io::Result<()> {
        for (slot, values) in self.sampler.slots().zip(values.chunks_mut(self.regs)) {
            slot.values(values)
                .map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
        }
        Ok(())
    }
}

/// Loads the same words of the same cache lines, and does not care whether they belong together.
pub struct PlainLoad {
    _sampler: Sampler,
    start: *mut u8,
    size: usize,
    map: uapi::cpupeek_map,
    regs: usize,
}

impl PlainLoad {
    pub fn new(sweep: &Sweep) -> io::Result<Self> {
        let sampler = sampler(sweep)?;
        let map = |size| {
            // SAFETY: A new mapping at an address of the kernel's choice harms nobody.
            unsafe {
                mmap(
                    std::ptr::null_mut(),
                    size,
                    ProtFlags::READ,
                    MapFlags::SHARED,
                    &sampler,
                    0,
                )
            }
        };
        let size = sampler.map_size();
        let start = map(size)?.cast::<u8>();
        Ok(Self {
            _sampler: sampler,
            start,
            size,
            // SAFETY: The mapping begins with it, and any bits are a value of it.
            map: unsafe { start.cast::<uapi::cpupeek_map>().read() },
            regs: sweep.regs.len(),
        })
    }
}

impl Reader for PlainLoad {
    fn read(&mut self, values: &mut [u64]) -> io::Result<()> {
        let mut refused = 0;
        for (index, values) in values.chunks_mut(self.regs).enumerate() {
            let slot = self.map.slots as usize + index * self.map.slot_size as usize;
            let mut place = slot + size_of::<uapi::cpupeek_slot>();
            for value in values {
                // SAFETY: All results of all slots are inside the mapping, and aligned.
                unsafe {
                    let result = self.start.add(place).cast::<uapi::cpupeek_result>();
                    refused |= (&raw const (*result).status).read_volatile();
                    *value = (&raw const (*result).__bindgen_anon_1.value).read_volatile();
                }
                place += size_of::<uapi::cpupeek_result>();
            }
        }
        match refused {
            0 => Ok(()),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl Drop for PlainLoad {
    fn drop(&mut self) {
        // SAFETY: The mapping is ours, and nothing refers to it any more.
        let _ = unsafe { munmap(self.start.cast(), self.size) };
    }
}
