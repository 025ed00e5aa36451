// SPDX-License-Identifier: GPL-2.0

//! How long to spin for an answer before sleeping.
//!
//! A spin that suffices saves a context switch; one that does not is wasted. How long answers take
//! differs by an order of magnitude between machines, and a target that holds its interrupts off
//! answers in no time worth spinning for. So a [`Budget`] learns both from the answers of one
//! target: how long the quick ones took, and how far the next one can be trusted to be quick.
//!
//! An answer is *quick* if it came within the ceiling, spun for or slept for. So a target that has
//! become quick again is noticed although nobody spins for it; but not always, because one that was
//! slept for came later by a wake-up, and where that alone takes as long as the ceiling no answer would
//! ever be quick again. So after some late answers in a row one is spun for up to the ceiling: a probe.
//! And not at once: of a target that holds its interrupts off most of the time, some answers are quick
//! all the same, and those that follow are not.

/// Trust that a few quick answers in a row build up.
const TRUST_MAX: i32 = 8;

/// What a late answer costs in trust: spinning pays while fewer than a half are late. Without trust,
/// which is more than 0, there is no spinning.
const TRUST_LATE: i32 = 1;

/// Distrust at which the next answer is a probe: late answers lead there one by one.
const TRUST_PROBE: i32 = -6;

/// Where they begin after a probe that failed. At 0, the last answer was quick.
const TRUST_NONE: i32 = -1;

/// Where trust that was lost begins: what was quick a moment ago is probed sooner.
const TRUST_LOST: i32 = -4;

const TRUST_BITS: u32 = 4;

/// What is known of a target's answers, in one word. All times are in TSC cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Mean duration of quick answers, exponentially weighted.
    quick: u32,
    trust: i32,
}

/// How long an answer took, in TSC cycles, and whether that was spun or slept for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It came while the caller was spinning.
    Spun(u64),
    /// The caller was asleep, in the end.
    Slept(u64),
}

/// The bounds of spinning, in TSC cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Spin at least so long.
    pub floor: u32,
    /// Spin at most so long; 0 means never.
    pub ceiling: u32,
}

impl Budget {
    /// Nothing is known yet, and the first answer is a probe.
    pub const fn unknown(limits: Limits) -> Self {
        Self {
            quick: limits.ceiling / 8,
            trust: TRUST_PROBE,
        }
    }

    /// The budget that [`Self::into_word`] has made a word of; `None` for 0, which it never makes.
    pub const fn from_word(word: u32) -> Option<Self> {
        if word == 0 {
            return None;
        }
        Some(Self {
            quick: word >> TRUST_BITS,
            trust: (word & ((1 << TRUST_BITS) - 1)) as i32 - 1 + TRUST_PROBE,
        })
    }

    /// A word that is not 0. Durations over 2^28 cycles, about 0.1 s, are cut to that.
    pub const fn into_word(self) -> u32 {
        let max = u32::MAX >> TRUST_BITS;
        let quick = if self.quick < max { self.quick } else { max };
        quick << TRUST_BITS | (self.trust - TRUST_PROBE + 1) as u32
    }

    /// How long to spin for the next answer.
    pub const fn spin(self, limits: Limits) -> u32 {
        let wanted = if self.trust == TRUST_PROBE {
            limits.ceiling
        } else if self.trust <= 0 {
            0
        } else {
            // Twice the mean, and a little for when that is next to nothing.
            self.quick
                .saturating_mul(2)
                .saturating_add(limits.ceiling / 64)
        };
        let spin = if wanted < limits.ceiling {
            wanted
        } else {
            limits.ceiling
        };
        if spin > limits.floor {
            spin
        } else if limits.floor < limits.ceiling {
            limits.floor
        } else {
            limits.ceiling
        }
    }

    /// Takes in an answer.
    pub const fn learn(self, answer: Answer, limits: Limits) -> Self {
        let (Answer::Spun(took) | Answer::Slept(took)) = answer;
        if took > limits.ceiling as u64 {
            return Self {
                quick: self.quick,
                trust: match self.trust {
                    // A failed probe: not again so soon, and no reason to believe a single quick answer.
                    TRUST_PROBE => TRUST_NONE,
                    trust if trust <= 0 => trust - 1,
                    trust if trust <= TRUST_LATE => TRUST_LOST,
                    trust => trust - TRUST_LATE,
                },
            };
        }
        if self.trust <= 0 {
            // What was known is from before the target was late, or no knowledge at all. That it is quick
            // is to be shown by spinning, or twice.
            let is_shown = matches!(answer, Answer::Spun(_)) || self.trust == 0;
            return Self {
                quick: took as u32,
                trust: if is_shown { 1 } else { 0 },
            };
        }
        let (old, new) = (self.quick as i64, took as i64);
        Self {
            // Between the old and the new value, so that it fits.
            quick: (old + (new - old) / 4) as u32,
            trust: if self.trust < TRUST_MAX {
                self.trust + 1
            } else {
                TRUST_MAX
            },
        }
    }
}

// Distrust, none, and trust, all of them plus 1, so that no word is 0.
const _: () = assert!(TRUST_MAX - TRUST_PROBE + 1 < 1 << TRUST_BITS);
