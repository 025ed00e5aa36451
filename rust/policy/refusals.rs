// SPDX-License-Identifier: GPL-2.0

//! Which registers are refused, and how often.
//!
//! A register that is asked for again and again is one that the allowlist may lack. Nobody can fill
//! a log with it, nor memory: there is room for some registers, and the rest are counted together.

use crate::kapi::uapi;
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// Registers that there is room for.
const SLOTS: usize = 256;

/// How many places to look in.
const PROBES: usize = 8;

struct Slot {
    /// The register plus 1; 0 while the slot is free.
    key: Atomic<u64>,
    count: Atomic<u64>,
}

/// The counts.
pub(crate) struct Refusals {
    slots: KVVec<Slot>,
    /// Refusals of registers that there is no room for.
    others: Atomic<u64>,
}

impl Refusals {
    /// Nothing refused yet.
    pub(super) fn new() -> Result<Self> {
        let mut slots = KVVec::with_capacity(SLOTS, GFP_KERNEL)?;
        for _ in 0..SLOTS {
            let slot = Slot {
                key: Atomic::new(0),
                count: Atomic::new(0),
            };
            slots.push(slot, GFP_KERNEL)?;
        }
        Ok(Self {
            slots,
            others: Atomic::new(0),
        })
    }

    /// Counts a refusal.
    pub(super) fn count(&self, reg: u32) {
        let key = u64::from(reg) + 1;
        let first = reg.wrapping_mul(0x9e37_79b1) as usize >> 8;
        for place in first..first + PROBES {
            let Some(slot) = self.slots.get(place % SLOTS) else {
                break;
            };
            let found = match slot.key.load(Relaxed) {
                0 => match slot.key.cmpxchg(0, key, Relaxed) {
                    Ok(_) => key,
                    Err(taken) => taken,
                },
                taken => taken,
            };
            if found == key {
                slot.count.add(1u64, Relaxed);
                return;
            }
        }
        self.others.add(1u64, Relaxed);
    }

    /// Forgets them all. What is refused at the same time may be counted or not.
    pub(super) fn clear(&self) {
        for slot in &self.slots {
            slot.key.store(0, Relaxed);
            slot.count.store(0, Relaxed);
        }
        self.others.store(0, Relaxed);
    }

    /// The registers that were refused, with their counts, in no particular order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = uapi::Refusal> + '_ {
        let taken = |slot: &Slot| {
            let reg = slot.key.load(Relaxed).checked_sub(1)?;
            Some(uapi::Refusal {
                reg: reg as u32,
                reserved: 0,
                count: slot.count.load(Relaxed),
            })
        };
        self.slots.iter().filter_map(taken)
    }

    /// Refusals of other registers.
    pub(crate) fn others(&self) -> u64 {
        self.others.load(Relaxed)
    }
}
