// SPDX-License-Identifier: GPL-2.0

//! Sets of numbers as ranges, in ascending order and apart from each other.

use super::Range;

/// A set of numbers.
#[derive(Clone, Copy, Debug)]
pub struct Ranges<'a>(&'a [Range]);

impl<'a> Ranges<'a> {
    /// The set of what is in `ranges`, which [`normalize`] or [`intersect`] have made.
    pub const fn new(ranges: &'a [Range]) -> Self {
        Self(ranges)
    }

    /// Whether a number is in the set. Takes time in the logarithm of the number of ranges.
    pub fn contains(self, number: u32) -> bool {
        let after = self.0.partition_point(|range| range.lo <= number);
        let before = after.checked_sub(1).and_then(|i| self.0.get(i));
        before.is_some_and(|range| number <= range.hi)
    }
}

/// Sorts in place. core's own sorts have panicking paths that objtool cannot follow.
fn sort(ranges: &mut [Range]) {
    let sift = |ranges: &mut [Range], mut root: usize| loop {
        let mut largest = root;
        for child in [2 * root + 1, 2 * root + 2] {
            if child < ranges.len() && ranges[child] > ranges[largest] {
                largest = child;
            }
        }
        if largest == root {
            break;
        }
        ranges.swap(root, largest);
        root = largest;
    };
    for root in (0..ranges.len() / 2).rev() {
        sift(ranges, root);
    }
    for end in (1..ranges.len()).rev() {
        ranges.swap(0, end);
        sift(&mut ranges[..end], 0);
    }
}

/// Sorts ranges, and joins those that overlap or touch. Returns how many are left, at the start.
pub fn normalize(ranges: &mut [Range]) -> usize {
    sort(ranges);
    let mut used = 0;
    for i in 0..ranges.len() {
        let range = ranges[i];
        match used {
            0 => {}
            _ if range.lo <= ranges[used - 1].hi.saturating_add(1) => {
                let last = &mut ranges[used - 1];
                last.hi = last.hi.max(range.hi);
                continue;
            }
            _ => {}
        }
        ranges[used] = range;
        used += 1;
    }
    used
}

/// Calls `found` for each range of what two sets have in common, in ascending order, until it fails.
pub fn intersect<E>(
    one: &[Range],
    other: &[Range],
    mut found: impl FnMut(Range) -> Result<(), E>,
) -> Result<(), E> {
    let (mut i, mut j) = (0, 0);
    while let (Some(a), Some(b)) = (one.get(i), other.get(j)) {
        if a.overlaps(*b) {
            found(Range {
                lo: a.lo.max(b.lo),
                hi: a.hi.min(b.hi),
            })?;
        }
        if a.hi < b.hi {
            i += 1;
        } else {
            j += 1;
        }
    }
    Ok(())
}
