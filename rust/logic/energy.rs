// SPDX-License-Identifier: GPL-2.0

//! Energy counters of 32 bits, accumulated to 64-bit microjoules.
//!
//! RAPL counters wrap, within a minute at worst; a difference that is taken too late, or without
//! wrapping arithmetic, has given monitoring tools negative and astronomic energies. The counter is
//! read at least twice in the shortest time that it could wrap in. If that was missed, the energy
//! in between is unknown and the accumulator says so once.

/// More than any package uses, in watts.
pub const MAX_WATTS: u64 = 2000;

/// The size of a counter's unit: 2^-n J.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit(u8);

impl Unit {
    /// From the unit register: bits 12:8. `None` for a register that reads 0, which is how virtual
    /// machines say that there is no energy; it does not mean 1 J.
    ///
    /// Intel SDM volume 3B, section 16.10.1, MSR_RAPL_POWER_UNIT.
    pub fn from_register(value: u64) -> Option<Self> {
        let exponent = (value >> 8 & 0x1f) as u8;
        (exponent != 0).then_some(Self(exponent))
    }

    /// 2^-`exponent` J.
    pub const fn from_exponent(exponent: u8) -> Self {
        Self(exponent & 0x1f)
    }

    /// The shortest time that a counter can wrap in, in milliseconds.
    pub const fn shortest_wrap_ms(self) -> u64 {
        // 2^32 units of 2^-n J, at MAX_WATTS.
        (1u64 << (32 - self.0 as u32)) * 1000 / MAX_WATTS
    }

    /// `count` units in microjoules, rounded down.
    pub const fn microjoules(self, count: u64) -> u64 {
        // count * 10^6 / 2^n, in two parts so that it does not overflow before the result does.
        let (whole, part) = (count >> self.0, count & ((1 << self.0) - 1));
        whole
            .wrapping_mul(1_000_000)
            .wrapping_add((part * 1_000_000) >> self.0)
    }
}

/// How far back of another a reading may be that was taken before it, and got here after it: the CPUs
/// of a package are read at the same time, and all of them tell of the same counter. An eighth of what
/// a counter can count is seconds at the highest power that there is.
const LATE: u32 = 1 << 29;

/// Whether a reading looks like one that was taken before `last`.
const fn is_earlier(counter: u32, last: u32) -> bool {
    counter != last && last.wrapping_sub(counter) <= LATE
}

/// Whether a counter may have gone on so far in that time that it only looks as if it had gone back.
const fn may_have_wrapped(elapsed_ms: u64, unit: Unit) -> bool {
    elapsed_ms >= unit.shortest_wrap_ms() / 8 * 7
}

/// The energy that a counter has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accumulator {
    /// In the counter's units, since the first reading.
    total: u64,
    /// The counter at the last reading, and when that was in milliseconds.
    last: Option<(u32, u64)>,
    /// Energy has been missed, and nobody has been told.
    lapsed: bool,
}

impl Accumulator {
    /// Takes in a reading of the counter.
    pub fn update(&mut self, counter: u32, now_ms: u64, unit: Unit) {
        match self.last {
            // The difference of two 32-bit counters is right over one wrap.
            Some((last, then)) if now_ms.saturating_sub(then) < unit.shortest_wrap_ms() => {
                if is_earlier(counter, last) && !may_have_wrapped(now_ms.saturating_sub(then), unit)
                {
                    return;
                }
                let counted = counter.wrapping_sub(last);
                self.total = self.total.wrapping_add(counted.into());
            }
            Some(_) => {
                self.total = 0;
                self.lapsed = true;
            }
            None => {}
        }
        self.last = Some((counter, now_ms));
    }

    /// When the last reading was, in milliseconds.
    pub fn updated_ms(&self) -> Option<u64> {
        self.last.map(|(_, then)| then)
    }

    /// The energy since the first reading, in microjoules. `None` if there was no reading, and once
    /// after energy has been missed; it counts from there.
    pub fn take(&mut self, unit: Unit) -> Option<u64> {
        self.last?;
        if core::mem::take(&mut self.lapsed) {
            return None;
        }
        Some(unit.microjoules(self.total))
    }
}
