// SPDX-License-Identifier: GPL-2.0

//! What tests know of registers without asking the module.

use std::ops::RangeInclusive;

use cpupeek_logic::policy::registers::{Rule, FREE, GUARDED, NEVER};

use crate::policy::{Range, UNSAFE};

/// What was promised never to be listed, as the design has it and not as the module does.
pub const PROMISED: &[RangeInclusive<u32>] = &[
    0x11..=0x12,
    0x40..=0x47,
    0x48..=0x48,
    0x4e..=0x4f,
    0x60..=0x67,
    0x140..=0x140,
    0x150..=0x150,
    0x174..=0x176,
    0x1c4..=0x1c5,
    0x1c8..=0x1c9,
    0x1cc..=0x1d4,
    0x1d9..=0x1de,
    0x560..=0x587,
    0x600..=0x600,
    0x680..=0x6df,
    0x6e0..=0x6e0,
    0x800..=0x8ff,
    0x985..=0x98a,
    0xc8d..=0xc8f,
    0xd93..=0xd93,
    0xdc0..=0xddf,
    0x1200..=0x16ff,
    0x17d0..=0x17d0,
    0x4000_0000..=0x4000_01ff,
    0x4b56_4d00..=0x4b56_4d08,
    0xc000_0081..=0xc000_0083,
    0xc000_0100..=0xc000_0102,
    0xc001_02f0..=0xc001_02f1,
    0xc001_0117..=0xc001_0117,
    0xc001_0130..=0xc001_0130,
    0xc001_0300..=0xc001_031f,
    0xc001_1030..=0xc001_103f,
];

/// What was promised to be listable with a mark only.
pub const PROMISED_MARKED: &[RangeInclusive<u32>] = &[
    0xc1..=0xc8,
    0x309..=0x30c,
    0x198..=0x198,
    0xc001_0293..=0xc001_0293,
    0x611..=0x611,
    0x621..=0x621,
    0x639..=0x639,
    0x641..=0x641,
    0x619..=0x619,
    0xc001_029a..=0xc001_029b,
    0xc001_0200..=0xc001_020b,
];

fn numbers(rules: &'static [Rule]) -> impl Iterator<Item = u32> {
    rules.iter().flat_map(|rule| rule.range.lo..=rule.range.hi)
}

/// All registers that can never be listed: those of the module, and those that were promised.
pub fn never() -> Vec<u32> {
    let promised = PROMISED.iter().cloned().flatten();
    let mut all: Vec<u32> = numbers(NEVER).chain(promised).collect();
    all.sort_unstable();
    all.dedup();
    all
}

pub fn guarded() -> impl Iterator<Item = u32> {
    numbers(GUARDED)
}

pub fn free() -> impl Iterator<Item = u32> {
    numbers(FREE)
}

/// The list that the module begins with.
pub fn default_list() -> Vec<Range> {
    let plain = |rule: &Rule| crate::policy::range(rule.range.lo, rule.range.hi);
    FREE.iter().map(plain).collect()
}

/// Why a range cannot be on a list, looked up in the plainest way.
pub fn refusal(range: &Range) -> Option<i32> {
    if range.lo > range.hi || range.reserved != 0 || range.flags & !UNSAFE != 0 {
        return Some(libc::EINVAL);
    }
    let touches = |rule: &Rule| rule.range.lo <= range.hi && range.lo <= rule.range.hi;
    let promised =
        |rule: &RangeInclusive<u32>| *rule.start() <= range.hi && range.lo <= *rule.end();
    if NEVER.iter().any(touches) || PROMISED.iter().any(promised) {
        return Some(libc::EACCES);
    }
    let unmarked = range.flags & UNSAFE == 0;
    // No free range is longer than this.
    let all_free = range.hi - range.lo < 64
        && (range.lo..=range.hi).all(|reg| free().any(|known| known == reg));
    (unmarked && !all_free).then_some(libc::EPERM)
}
