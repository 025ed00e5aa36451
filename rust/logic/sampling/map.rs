// SPDX-License-Identifier: GPL-2.0

//! Where a sampler's slots are in its mapping.

/// Alignment of slots: a cache line of every x86 CPU.
const LINE: u64 = 64;

/// What a mapping has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Size of what the mapping begins with, in bytes.
    pub header: u64,
    /// Number of CPUs.
    pub cpus: u32,
    /// Size of the largest CPU's slot with its results, in bytes.
    pub largest: u64,
    /// Past samples of each CPU.
    pub ring_samples: u32,
}

/// Where they are, in bytes from the beginning of the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Map {
    /// The first slot.
    pub slots: u64,
    /// The first slot of the first ring, 0 if there are none.
    pub ring: u64,
    /// Distance between slots.
    pub slot_size: u64,
    /// Past samples of each CPU.
    pub ring_samples: u32,
    /// The end.
    pub size: u64,
}

impl Map {
    /// `None` if it is not within `limit` bytes.
    pub fn new(shape: Shape, limit: u64) -> Option<Self> {
        let slot_size = shape.largest.checked_next_multiple_of(LINE)?;
        let slots = shape.header.checked_next_multiple_of(LINE)?;
        let latest = slot_size.checked_mul(shape.cpus.into())?;
        let after = slots.checked_add(latest)?;
        let past = latest.checked_mul(shape.ring_samples.into())?;
        let size = after.checked_add(past)?;
        (size <= limit).then_some(Self {
            slots,
            ring: if past == 0 { 0 } else { after },
            slot_size,
            ring_samples: shape.ring_samples,
            size,
        })
    }

    /// The slot of the CPU with a number in the order of the slots.
    pub fn slot(&self, index: u32) -> u64 {
        let before = u64::from(index).wrapping_mul(self.slot_size);
        self.slots.wrapping_add(before)
    }

    /// The place of a sample in that CPU's ring.
    pub fn past(&self, index: u32, number: u64) -> Option<u64> {
        let place = number.checked_rem(self.ring_samples.into())?;
        let first = u64::from(index).wrapping_mul(self.ring_samples.into());
        let before = first.wrapping_add(place).wrapping_mul(self.slot_size);
        Some(self.ring.wrapping_add(before))
    }
}
