// SPDX-License-Identifier: GPL-2.0
//! One register of one CPU: what a read of it gives at a given instant.

use std::time::Duration;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Always the same.
    Constant(u64),
    /// Counts `rate` per second from `start` at the instant `since`.
    Counter {
        start: u64,
        rate: u64,
        since: Duration,
        bits: u32,
    },
    /// Gives `next`, which then advances by `step`.
    Steps { next: u64, step: u64, bits: u32 },
    /// #GP.
    Fault,
}

/// A described register.
#[derive(Clone, Debug)]
pub struct Register {
    /// What is read.
    pub value: Value,
    /// Waits before answering, taken in turn.
    pub delays: Vec<Duration>,
    /// Whether a write stores its value.
    pub writable: bool,
    /// Reads so far.
    pub reads: u64,
    /// Writes so far.
    pub writes: u64,
}

impl Register {
    /// Begins a read: how long it takes.
    pub fn delay(&mut self) -> Duration {
        let turn = self.reads as usize;
        self.reads += 1;
        match self.delays.len() {
            0 => Duration::ZERO,
            n => self.delays[turn % n],
        }
    }

    /// Ends a read at `now`: the value, or `None` for #GP.
    pub fn value(&mut self, now: Duration) -> Option<u64> {
        self.value.take(now)
    }

    /// Whether a write of `value` is accepted.
    pub fn write(&mut self, value: u64) -> bool {
        self.writes += 1;
        if self.writable {
            self.value = Value::Constant(value);
        }
        self.writable
    }
}

impl Value {
    /// The value at `now`; a stepping one moves on.
    fn take(&mut self, now: Duration) -> Option<u64> {
        match self {
            Self::Constant(value) => Some(*value),
            Self::Fault => None,
            Self::Counter {
                start,
                rate,
                since,
                bits,
            } => {
                let nanoseconds = now.saturating_sub(*since).as_nanos();
                let counted = nanoseconds * u128::from(*rate) / 1_000_000_000;
                Some(wrap(start.wrapping_add(counted as u64), *bits))
            }
            Self::Steps { next, step, bits } => {
                let value = wrap(*next, *bits);
                *next = next.wrapping_add(*step);
                Some(value)
            }
        }
    }

    /// A counter of `rate` that goes on from what this value is at `now`.
    pub fn at_rate(&self, rate: u64, now: Duration) -> Self {
        let bits = match self {
            Self::Counter { bits, .. } | Self::Steps { bits, .. } => *bits,
            Self::Constant(_) | Self::Fault => 64,
        };
        Self::Counter {
            start: self.clone().take(now).unwrap_or(0),
            rate,
            since: now,
            bits,
        }
    }
}

fn wrap(value: u64, bits: u32) -> u64 {
    match bits {
        64.. => value,
        bits => value & ((1 << bits) - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn register(value: Value) -> Register {
        Register {
            value,
            delays: Vec::new(),
            writable: false,
            reads: 0,
            writes: 0,
        }
    }

    #[test]
    fn counters_follow_the_clock_and_wrap() {
        let mut aperf = register(Value::Counter {
            start: 5,
            rate: 3_000_000_000,
            since: Duration::ZERO,
            bits: 64,
        });
        assert_eq!(aperf.value(Duration::ZERO), Some(5));
        assert_eq!(aperf.value(SECOND * 1000), Some(3_000_000_000_005));
        let mut energy = register(Value::Counter {
            start: 0xffff_ffff,
            rate: 1,
            since: Duration::ZERO,
            bits: 32,
        });
        assert_eq!(energy.value(SECOND), Some(0));
        energy.value = energy.value.at_rate(10, SECOND);
        assert_eq!(energy.value(SECOND * 2), Some(10));
    }

    #[test]
    fn steps_are_exact() {
        let mut smi = register(Value::Steps {
            next: 0xffff_fffe,
            step: 3,
            bits: 32,
        });
        let values: Vec<_> = (0..3).map(|_| smi.value(SECOND)).collect();
        assert_eq!(values, [Some(0xffff_fffe), Some(1), Some(4)]);
    }

    #[test]
    fn delays_take_turns_and_writes_need_leave() {
        let mut slow = register(Value::Constant(7));
        slow.delays = vec![SECOND, SECOND * 2];
        let delays: Vec<_> = (0..3).map(|_| slow.delay()).collect();
        assert_eq!(delays, [SECOND, SECOND * 2, SECOND]);
        assert!(!slow.write(9));
        assert_eq!(slow.value(SECOND), Some(7));
        slow.writable = true;
        assert!(slow.write(9));
        assert_eq!(slow.value(SECOND), Some(9));
        assert_eq!((slow.reads, slow.writes), (3, 2));
        assert_eq!(register(Value::Fault).value(SECOND), None);
    }
}
