// SPDX-License-Identifier: GPL-2.0

//! Which samples matter to whoever watches a register.

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any bit under the mask has changed.
    Changed,
    /// The value under the mask has passed the bound, in either direction.
    Crossed {
        /// The lowest value that is on the upper side.
        bound: u64,
    },
}

/// A register's result, as far as it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// 0 or a negative errno.
    pub status: i32,
    /// The value.
    pub value: u64,
}

/// A condition on one result of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Number of the result.
    pub result: u32,
    /// What is compared.
    pub kind: Kind,
    /// Bits of the value that count.
    pub mask: u64,
    before: Option<Reading>,
}

impl Condition {
    /// A condition that has seen nothing yet.
    pub const fn new(result: u32, kind: Kind, mask: u64) -> Self {
        Self {
            result,
            kind,
            mask,
            before: None,
        }
    }

    /// Looks at a reading. Returns whether it fulfils the condition, which the first never does.
    pub fn look(&mut self, reading: Reading) -> bool {
        let before = self.before.replace(reading);
        let Some(before) = before else {
            return false;
        };
        if before.status != reading.status {
            return true;
        }
        let (old, new) = (before.value & self.mask, reading.value & self.mask);
        reading.status == 0
            && match self.kind {
                Kind::Changed => old != new,
                Kind::Crossed { bound } => (old < bound) != (new < bound),
            }
    }
}
