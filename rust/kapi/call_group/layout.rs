// SPDX-License-Identifier: GPL-2.0

//! How a group's parts lie in its allocation.

use super::{
    slice::Slice,
    Header,
    Work, //
};
use crate::logic::plan;
use kernel::prelude::*;

/// Whole cache lines, so that the allocation has the alignment of its parts.
#[repr(C, align(64))]
pub(super) struct Line([u8; 64]);

/// How much a group has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capacity {
    /// CPUs.
    pub(crate) slices: usize,
    /// Operations.
    pub(crate) ops: usize,
    /// Entries of the index.
    pub(crate) index: usize,
}

/// Offsets of the parts of an allocation, and its size, in bytes.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub(super) slices: usize,
    pub(super) ops: usize,
    pub(super) staged: usize,
    pub(super) plan: usize,
    pub(super) index: usize,
    pub(super) size: usize,
}

impl Capacity {
    /// [`EOVERFLOW`] if it has no representation.
    pub(super) fn layout<W: Work>(self) -> Result<Layout> {
        fn after<T>(offset: usize, count: usize) -> Option<usize> {
            let end = count.checked_mul(size_of::<T>())?.checked_add(offset)?;
            end.checked_next_multiple_of(align_of::<Line>())
        }
        let layout = || {
            let slices = after::<Header<W>>(0, 1)?;
            let ops = after::<Slice<W>>(slices, self.slices)?;
            let staged = after::<W::Op>(ops, self.ops)?;
            let plan = after::<W::Op>(staged, self.ops)?;
            let index = after::<plan::Slice>(plan, self.slices)?;
            let size = after::<u32>(index, self.index)?;
            Some(Layout {
                slices,
                ops,
                staged,
                plan,
                index,
                size,
            })
        };
        layout().ok_or(EOVERFLOW)
    }

    pub(super) fn holds(self, other: Self) -> bool {
        self.slices >= other.slices && self.ops >= other.ops && self.index >= other.index
    }
}
