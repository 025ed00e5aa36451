// SPDX-License-Identifier: GPL-2.0
//! Invented registers through which a test changes the machine while the guest runs, by writing MSRs.

use std::time::Duration;

use crate::register::{Register, Value};

/// The first of them; "cpu" in ASCII. KVM knows no register here and leaves them to us.
pub const BASE: u32 = 0x6370_7500;

/// What a read of the first one gives: "cpupeek" in ASCII, so that a test knows that the rest is there.
pub const MAGIC: u64 = u64::from_le_bytes(*b"cpupeek\0");

/// Every CPU that has the register.
pub const ALL_CPUS: u32 = u32::MAX;

/// A change of the selected register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// From now on it is a constant.
    Value(u64),
    /// From now on a read faults.
    Fault,
    /// From now on a read takes this long.
    Delay(Duration),
    /// From now on it counts so many per second, from what it is.
    Rate(u64),
}

/// What a write of a control register asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The register and the CPU that later requests of this CPU are about.
    Select(u32, u32),
    /// A change.
    Change(Change),
}

/// Understands a write of `value` to the MSR `index`.
pub fn request(index: u32, value: u64) -> Option<Request> {
    Some(match index.checked_sub(BASE)? {
        1 => Request::Select(value as u32, (value >> 32) as u32),
        2 => Request::Change(Change::Value(value)),
        3 => Request::Change(Change::Fault),
        4 => Request::Change(Change::Delay(Duration::from_nanos(value))),
        5 => Request::Change(Change::Rate(value)),
        _ => return None,
    })
}

/// The register whose reads the MSR `index` counts is the selected one.
pub fn is_read_count(index: u32) -> bool {
    index == BASE + 6
}

impl Change {
    /// Makes the change at `now`.
    pub fn apply(self, register: &mut Register, now: Duration) {
        match self {
            Self::Value(value) => register.value = Value::Constant(value),
            Self::Fault => register.value = Value::Fault,
            Self::Delay(delay) => register.delays = vec![delay],
            Self::Rate(rate) => register.value = register.value.at_rate(rate, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_understood() {
        assert_eq!(
            request(BASE + 1, 0x0000_0003_0000_01b1),
            Some(Request::Select(0x1b1, 3))
        );
        assert_eq!(
            request(BASE + 4, 7),
            Some(Request::Change(Change::Delay(Duration::from_nanos(7))))
        );
        assert_eq!(request(BASE, 1), None);
        assert_eq!(request(BASE + 7, 1), None);
        assert_eq!(request(0x1b1, 1), None);
    }
}
