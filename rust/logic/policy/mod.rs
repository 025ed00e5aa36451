// SPDX-License-Identifier: GPL-2.0

//! Which registers may be listed for whom, and sets of registers.

mod ranges;
pub mod registers;
mod set;
mod throttle;

pub use ranges::{
    intersect,
    normalize,
    Ranges, //
};
pub use set::{
    MsrSet,
    Shape, //
};
pub use throttle::{
    learn_overhead,
    Throttle, //
};

/// The numbers from `lo` to `hi`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// First.
    pub lo: u32,
    /// Last.
    pub hi: u32,
}

impl Range {
    /// Whether the two have a number in common.
    pub const fn overlaps(self, other: Self) -> bool {
        self.lo <= other.hi && other.lo <= self.hi
    }
}
