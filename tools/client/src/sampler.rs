// SPDX-License-Identifier: GPL-2.0

//! Samplers: registers that the module reads again and again, and that are looked at without a
//! system call.

use crate::error::{DeviceError, OpError};
use crate::ioctl;
use crate::mapping::Mapping;
use crate::op::{Cpu, Op};
use crate::sample::{Sample, HEADER_WORDS, RESULT_WORDS};
use crate::uapi;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How exact a sampler is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// An idle CPU is not woken: its sample grows old.
    #[default]
    Deferrable,
    /// Every CPU is woken for every sample.
    Exact,
}

/// How often to sample, and what to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplerOptions {
    /// Time between samples, 1 ms to an hour.
    pub interval: Duration,
    /// How exact.
    pub precision: Precision,
    /// How many past samples of each CPU to keep, at most 65536.
    pub ring_samples: u32,
}

/// When a sample is worth waking up for. The statuses of registers are always compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The CPU; `None` for all that have such a result.
    pub cpu: Option<u32>,
    /// Number of the result among those of the CPU.
    pub result: u32,
    /// Bits of the value that count, not 0. (Of a CPUID leaf EAX, and EBX in the upper half.)
    pub mask: u64,
    /// What is compared.
    pub when: When,
}

/// What is compared with the sample before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Any bit under the mask has changed.
    Changed,
    /// The value under the mask has crossed this bound, in either direction.
    Crossed(u64),
}

impl Condition {
    fn to_raw(self) -> uapi::cpupeek_condition {
        let (kind, bound) = match self.when {
            When::Changed => (uapi::CPUPEEK_WHEN_CHANGED, 0),
            When::Crossed(bound) => (uapi::CPUPEEK_WHEN_CROSSED, bound),
        };
        uapi::cpupeek_condition {
            cpu: self.cpu.map_or(uapi::CPUPEEK_CONST_CPU_ANY, Cpu::number),
            result: self.result,
            kind,
            reserved: 0,
            mask: self.mask,
            bound,
        }
    }
}

/// One CPU's part of a sampler.
#[derive(Debug)]
struct Part {
    cpu: u32,
    offset: usize,
    ring: usize,
    ops: Vec<Op>,
}

/// Registers that are being sampled; made by [`Device::sample`](crate::Device::sample) or
/// [`Plan::sample`](crate::Plan::sample).
///
/// It samples until it is dropped, or stopped.
#[derive(Debug)]
pub struct Sampler {
    fd: OwnedFd,
    mapping: Mapping,
    parts: Vec<Part>,
    interval: Duration,
    ring_samples: u32,
    slot_size: usize,
}

impl Sampler {
    pub(crate) fn new(
        on: BorrowedFd<'_>,
        given: &[Op],
        of_plan: bool,
        options: &SamplerOptions,
    ) -> Result<Self, DeviceError> {
        let failed = |errno| DeviceError::from_command("SAMPLER", errno);
        let header = uapi::cpupeek_sampler {
            flags: match options.precision {
                Precision::Deferrable => 0,
                Precision::Exact => uapi::CPUPEEK_SAMPLER_EXACT,
            },
            interval_ns: u64::try_from(options.interval.as_nanos()).unwrap_or(u64::MAX),
            ring_samples: options.ring_samples,
            ..Default::default()
        };
        let ops = if of_plan { &[] } else { given };
        let (fd, header) = ioctl::sampler(on, header, ops).map_err(failed)?;
        let mapping = usize::try_from(header.map_size)
            .map_err(|_| rustix::io::Errno::NOMEM)
            .and_then(|size| Mapping::new(&fd, size))
            .map_err(failed)?;
        let unknown = || failed(rustix::io::Errno::PROTO);
        let sampler = Self::from_parts(fd, mapping, given, options.ring_samples);
        sampler.ok_or_else(unknown)
    }

    /// Nothing if the mapping is not laid out as the operations say.
    fn from_parts(fd: OwnedFd, mapping: Mapping, given: &[Op], ring_samples: u32) -> Option<Self> {
        let map: uapi::cpupeek_map = mapping.map()?;
        let slot_size = map.slot_size as usize;
        let place = |first: u64, slots: usize| {
            let before = slots.checked_mul(slot_size)?;
            usize::try_from(first).ok()?.checked_add(before)
        };
        let mut parts: Vec<Part> = Vec::new();
        for op in given {
            let Cpu::Number(cpu) = op.cpu() else {
                return None;
            };
            let mut op = *op;
            op.forget_answer();
            match parts.iter_mut().find(|part| part.cpu == cpu) {
                Some(part) => part.ops.push(op),
                None => {
                    let index = parts.len();
                    let before = index.checked_mul(ring_samples as usize)?;
                    parts.push(Part {
                        cpu,
                        offset: place(map.slots, index)?,
                        ring: place(map.ring, before)?,
                        ops: vec![op],
                    });
                }
            }
        }
        let fits = |part: &Part| {
            let words = part.ops.len().checked_mul(RESULT_WORDS);
            let words = words.and_then(|words| words.checked_add(HEADER_WORDS));
            let inside = words.is_some_and(|words| words <= slot_size / 8);
            let number = mapping.word(part.offset).map(|word| (word >> 32) as u32);
            inside && number == Some(part.cpu)
        };
        let known = map.nr_slots as usize == parts.len()
            && map.ring_samples == ring_samples
            && parts.iter().all(fits);
        known.then_some(Sampler {
            fd,
            mapping,
            parts,
            interval: Duration::from_nanos(map.interval_ns),
            ring_samples,
            slot_size,
        })
    }

    /// The time between samples, which may be longer than what was asked for.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// The size of the sampler's mapping, in bytes.
    pub fn map_size(&self) -> usize {
        self.mapping.size()
    }

    /// The CPUs that are sampled, in the order in which the operations mention them.
    pub fn slots(&self) -> impl ExactSizeIterator<Item = Slot<'_>> {
        self.parts.iter().map(|part| Slot {
            sampler: self,
            part,
        })
    }

    /// One CPU's samples.
    pub fn slot(&self, cpu: u32) -> Option<Slot<'_>> {
        self.slots().find(|slot| slot.cpu() == cpu)
    }

    /// Makes only samples that fulfil a condition matter to [`Sampler::wait`] and to whoever polls
    /// the descriptor; without conditions every sample does.
    pub fn watch(&self, conditions: &[Condition]) -> Result<(), DeviceError> {
        let raw: Vec<_> = conditions.iter().map(|one| one.to_raw()).collect();
        ioctl::watch(&self.fd, &raw).map_err(|errno| DeviceError::from_command("WATCH", errno))
    }

    /// Waits for samples that matter. Returns how many there were since this was last called, 0 after
    /// [`Sampler::stop`].
    pub fn wait(&self) -> Result<u64, DeviceError> {
        ioctl::read_count(&self.fd).map_err(|errno| DeviceError::from_command("read()", errno))
    }

    /// Ends sampling, for everybody who has this sampler.
    pub fn stop(&self) -> Result<(), DeviceError> {
        ioctl::stop(&self.fd).map_err(|errno| DeviceError::from_command("STOP", errno))
    }
}

impl AsFd for Sampler {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What is at a place in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// The sample.
    There,
    /// It has not been taken yet.
    NotYet,
    /// The ring no longer has it; this is the oldest sample that is certain to be there if it is
    /// looked for at once.
    Overrun {
        /// Its number.
        oldest: u64,
    },
}

/// One CPU's samples.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'a> {
    sampler: &'a Sampler,
    part: &'a Part,
}

impl Slot<'_> {
    /// The CPU's number.
    pub fn cpu(&self) -> u32 {
        self.part.cpu
    }

    /// What is sampled, in the order of [`Sample::results`].
    pub fn ops(&self) -> &[Op] {
        &self.part.ops
    }

    /// Memory for this CPU's samples.
    pub fn sample(&self) -> Sample {
        Sample::empty(&self.part.ops)
    }

    /// Looks at the latest sample. No system call, and nobody is interrupted. `sample` is one of this
    /// CPU's.
    pub fn read(&self, sample: &mut Sample) {
        self.sampler
            .mapping
            .read(self.part.offset, sample.words_mut());
    }

    /// The latest values of the first registers, as many as there is room for, all of one sample; the
    /// first error among them if there is one.
    pub fn values(&self, values: &mut [u64]) -> Result<(), OpError> {
        let first = self
            .part
            .offset
            .saturating_add(HEADER_WORDS.saturating_mul(8));
        let count = values.len().min(self.part.ops.len());
        let values = values.get_mut(..count).unwrap_or_default();
        let mapping = &self.sampler.mapping;
        match mapping.read_results(self.part.offset, first, values) {
            0 => Ok(()),
            status => Err(OpError::from_errno(status.saturating_neg())),
        }
    }

    /// The latest value of one register alone.
    pub fn value(&self, result: usize) -> Result<u64, OpError> {
        let place = result.saturating_mul(RESULT_WORDS);
        let place = place.saturating_add(HEADER_WORDS).saturating_mul(8);
        if result >= self.part.ops.len() {
            return Err(OpError::NotRead);
        }
        let mapping = &self.sampler.mapping;
        let [status, value] = mapping.read_two(
            self.part.offset,
            self.part.offset.saturating_add(place),
            self.part.offset.saturating_add(place).saturating_add(16),
        );
        match status as u32 as i32 {
            0 => Ok(value),
            status => Err(OpError::from_errno(status.saturating_neg())),
        }
    }

    /// Looks for the sample with a number in the ring.
    pub fn past(&self, number: u64, sample: &mut Sample) -> Past {
        let ring = u64::from(self.sampler.ring_samples);
        let Some(place) = number.checked_rem(ring) else {
            return Past::Overrun { oldest: u64::MAX };
        };
        let before = (place as usize).saturating_mul(self.sampler.slot_size);
        let offset = self.part.ring.saturating_add(before);
        self.sampler.mapping.read(offset, sample.words_mut());
        match sample.number() {
            found if found == number && number != 0 => Past::There,
            found if found < number => Past::NotYet,
            _ => {
                // The place after the newest is being written next.
                let mut latest = self.sample();
                self.read(&mut latest);
                let newest = latest.number().max(sample.number());
                let oldest = newest.saturating_sub(ring).saturating_add(2);
                Past::Overrun { oldest }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_as_the_abi_has_them() {
        let condition = Condition {
            cpu: None,
            result: 2,
            mask: 0xff,
            when: When::Changed,
        };
        let raw = condition.to_raw();
        assert_eq!((raw.cpu, raw.result, raw.kind), (u32::MAX, 2, 1));
        assert_eq!((raw.mask, raw.bound, raw.reserved), (0xff, 0, 0));
        let crossed = Condition {
            cpu: Some(3),
            when: When::Crossed(5),
            ..condition
        };
        assert_eq!((crossed.to_raw().kind, crossed.to_raw().bound), (2, 5));
        let highest = Condition {
            cpu: Some(u32::MAX),
            ..condition
        };
        assert_ne!(highest.to_raw().cpu, uapi::CPUPEEK_CONST_CPU_ANY);
    }
}
