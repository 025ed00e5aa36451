// SPDX-License-Identifier: GPL-2.0

//! Grouping of operations by CPU: O(n), stable, without allocation.

/// The operations of one CPU: `len` places from `first` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// CPU number.
    pub cpu: u32,
    /// Place of the first operation.
    pub first: u32,
    /// Number of operations.
    pub len: u32,
}

/// Memory that planning works in, of the caller's.
pub struct Planner<'a> {
    /// For each CPU number 1 + its index in `slices`, 0 if it has none. All zero between plans.
    index: &'a mut [u32],
    slices: &'a mut [Slice],
    used: usize,
}

impl<'a> Planner<'a> {
    /// `index` has an entry for every CPU number, all of them 0; `slices` has room for as many
    /// CPUs as there can be operations, or as there are CPU numbers.
    pub fn new(index: &'a mut [u32], slices: &'a mut [Slice]) -> Self {
        Self {
            index,
            slices,
            used: 0,
        }
    }

    /// Counts an operation on `cpu`. Returns whether there is such a CPU number, and room.
    pub fn count(&mut self, cpu: u32) -> bool {
        let Some(index) = self.index.get_mut(cpu as usize) else {
            return false;
        };
        if *index == 0 {
            let Some(slice) = self.slices.get_mut(self.used) else {
                return false;
            };
            *slice = Slice {
                cpu,
                first: 0,
                len: 0,
            };
            self.used += 1;
            *index = self.used as u32;
        }
        match self.slices.get_mut((*index as usize).wrapping_sub(1)) {
            Some(slice) => {
                slice.len = slice.len.wrapping_add(1);
                true
            }
            None => false,
        }
    }

    /// Ends the counting: gives every CPU its places, in the order of the CPUs' first mention.
    pub fn layout(&mut self) {
        let mut first = 0u32;
        for slice in self.slices.iter_mut().take(self.used) {
            slice.first = first;
            first = first.wrapping_add(slice.len);
            slice.len = 0;
        }
    }

    /// The place of the next operation on `cpu`, which was counted before.
    pub fn place(&mut self, cpu: u32) -> Option<u32> {
        let index = *self.index.get(cpu as usize)?;
        let slice = self.slices.get_mut((index as usize).checked_sub(1)?)?;
        let place = slice.first.wrapping_add(slice.len);
        slice.len = slice.len.wrapping_add(1);
        Some(place)
    }

    /// Ends the planning: zeroes the index again and returns the slices.
    pub fn finish(self) -> &'a [Slice] {
        let slices = self.slices.get(..self.used).unwrap_or(&[]);
        for slice in slices {
            if let Some(index) = self.index.get_mut(slice.cpu as usize) {
                *index = 0;
            }
        }
        slices
    }
}
