// SPDX-License-Identifier: GPL-2.0

//! A set of MSR numbers with an exact look-up in constant time.
//!
//! MSRs lie in few clusters of a 32-bit space. The set is a bitmap of the pages of 4,096 numbers
//! that have members, found through a hash table in which no two pages share a place: one
//! multiplication, one comparison, one bit.

use super::Range;

const PAGE_BITS: u32 = 12;

/// 64-bit words of a page's bitmap.
const PAGE_WORDS: usize = (1 << PAGE_BITS) / 64;

/// Most pages of a set.
const MAX_PAGES: u32 = 256;

/// The largest table: sixteen places for each page.
const MAX_TABLE_BITS: u32 = MAX_PAGES.ilog2() + 4;

/// An entry of the table: page number, and where its bitmap is. 0 is none.
type Place = u64;

const fn place(page: u32, index: u32) -> Place {
    (page as u64) << 32 | (index + 1) as u64
}

const fn slot(page: u32, multiplier: u32, table_bits: u32) -> usize {
    (page.wrapping_mul(multiplier) >> (u32::BITS - table_bits)) as usize
}

/// How large a set is, and how pages are found in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pages: u32,
    table_bits: u32,
    multiplier: u32,
}

/// The pages of normalized ranges, each once, in ascending order.
fn pages(ranges: &[Range]) -> impl Iterator<Item = u32> + '_ {
    let mut next = 0;
    ranges.iter().flat_map(move |range| {
        let first = (range.lo >> PAGE_BITS).max(next);
        let last = range.hi >> PAGE_BITS;
        next = next.max(last + 1);
        first..=last
    })
}

impl Shape {
    /// The shape of a set of normalized ranges. `None` if they are spread over too many pages.
    ///
    /// `table` is for trying things out, and [`Self::SCRATCH`] long.
    pub fn new(ranges: &[Range], table: &mut [Place]) -> Option<Self> {
        let count = pages(ranges).take(MAX_PAGES as usize + 1).count() as u32;
        if count > MAX_PAGES {
            return None;
        }
        // Without a page there is still a place to look in.
        let smallest = count.next_power_of_two().ilog2() + 1;
        for table_bits in smallest..=MAX_TABLE_BITS {
            // Odd multipliers in no particular order; that one of a dozen and more table sizes and
            // multipliers has no collision is as good as certain, and checked.
            for i in 0..16u32 {
                let multiplier = 0x9e37_79b1u32.wrapping_mul(2 * i + 1) | 1;
                let places = table.get_mut(..1 << table_bits)?;
                places.fill(0);
                let fits = pages(ranges).all(|page| {
                    let at = &mut places[slot(page, multiplier, table_bits)];
                    core::mem::replace(at, place(page, 0)) == 0
                });
                if fits {
                    return Some(Self {
                        pages: count,
                        table_bits,
                        multiplier,
                    });
                }
            }
        }
        None
    }

    /// What [`Self::new`] wants to try things out, in 64-bit words.
    pub const SCRATCH: usize = 1 << MAX_TABLE_BITS;

    /// The memory that a set of this shape takes, in 64-bit words.
    pub const fn words(self) -> usize {
        (1 << self.table_bits) + self.pages as usize * PAGE_WORDS
    }
}

/// A set in the memory of somebody else.
#[derive(Clone, Copy)]
pub struct MsrSet<'a> {
    shape: Shape,
    words: &'a [u64],
}

impl<'a> MsrSet<'a> {
    /// The set in `words`, which [`MsrSet::fill`] has filled for this shape.
    pub const fn new(shape: Shape, words: &'a [u64]) -> Self {
        Self { shape, words }
    }

    /// Makes the set of normalized ranges that `shape` was made for, in zeroed memory.
    pub fn fill(shape: Shape, ranges: &[Range], words: &mut [u64]) {
        let (table, bitmaps) = words.split_at_mut(1 << shape.table_bits);
        for (index, page) in pages(ranges).enumerate() {
            table[slot(page, shape.multiplier, shape.table_bits)] = place(page, index as u32);
            let base = u64::from(page) << PAGE_BITS;
            let bitmap = &mut bitmaps[index * PAGE_WORDS..][..PAGE_WORDS];
            for range in ranges {
                let lo = u64::from(range.lo).max(base);
                let hi = u64::from(range.hi).min(base + (1 << PAGE_BITS) - 1);
                for number in lo..=hi {
                    let bit = (number - base) as usize;
                    bitmap[bit / 64] |= 1 << (bit % 64);
                }
            }
        }
    }

    /// Whether an MSR is in the set.
    #[inline]
    pub fn contains(self, reg: u32) -> bool {
        let page = reg >> PAGE_BITS;
        let at = slot(page, self.shape.multiplier, self.shape.table_bits);
        let Some(&place) = self.words.get(at) else {
            return false;
        };
        if place == 0 || (place >> 32) as u32 != page {
            return false;
        }
        let bit = (reg & ((1 << PAGE_BITS) - 1)) as usize;
        let index = (place as u32 - 1) as usize;
        let word = (1 << self.shape.table_bits) + index * PAGE_WORDS + bit / 64;
        self.words
            .get(word)
            .is_some_and(|word| word >> (bit % 64) & 1 != 0)
    }
}
