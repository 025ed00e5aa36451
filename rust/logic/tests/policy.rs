// SPDX-License-Identifier: GPL-2.0

//! Which registers may be listed, sets of registers, and shares of a CPU's time.

use cpupeek_logic::catalogue::{Access, ENTRIES};
use cpupeek_logic::policy::registers::{class_of, most_guarded, Class, Rule, FREE, GUARDED, NEVER};
use cpupeek_logic::policy::{
    intersect, learn_overhead, normalize, MsrSet, Range, Ranges, Shape, Throttle,
};

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 32) % n
    }

    /// Ranges where MSRs are: few clusters, and now and then anywhere.
    fn ranges(&mut self, count: u64) -> Vec<Range> {
        let bases = [
            0u32,
            0x1000,
            0xc000_0000,
            0xc001_0000,
            0x4b56_4d00,
            0xffff_ff00,
        ];
        let range = |random: &mut Self| {
            let base = match random.below(8) {
                i @ 0..=5 => bases[i as usize],
                _ => random.below(1 << 32) as u32,
            };
            let lo = base.saturating_add(random.below(0x1800) as u32);
            Range {
                lo,
                hi: lo.saturating_add(random.below(40) as u32),
            }
        };
        (0..count).map(|_| range(self)).collect()
    }
}

fn set(ranges: &[Range]) -> Option<(Shape, Vec<u64>)> {
    let shape = Shape::new(ranges, &mut vec![0; Shape::SCRATCH])?;
    let mut words = vec![0; shape.words()];
    MsrSet::fill(shape, ranges, &mut words);
    Some((shape, words))
}

#[test]
fn sets_agree_with_their_ranges() {
    let mut random = Random(3);
    for _ in 0..300 {
        let count = random.below(60);
        let original = random.ranges(count);
        let mut ranges = original.clone();
        let used = normalize(&mut ranges);
        let ranges = &ranges[..used];
        assert!(
            ranges.windows(2).all(|w| w[0].hi + 1 < w[1].lo),
            "apart and ascending"
        );

        let (shape, words) = set(ranges).expect("not too spread");
        let set = MsrSet::new(shape, &words);
        let naive = |n: u32| original.iter().any(|r| (r.lo..=r.hi).contains(&n));
        let edges = original.iter().flat_map(|r| {
            [
                r.lo,
                r.hi,
                r.lo.wrapping_sub(1),
                r.hi.wrapping_add(1),
                r.lo ^ 0x1000,
                r.lo ^ 1 << 31,
            ]
        });
        let anywhere: Vec<u32> = (0..300).map(|_| random.below(1 << 32) as u32).collect();
        for n in edges.chain(anywhere).chain([0, u32::MAX]) {
            assert_eq!(
                Ranges::new(ranges).contains(n),
                naive(n),
                "{n:#x} in ranges"
            );
            assert_eq!(set.contains(n), naive(n), "{n:#x} in the set");
        }
    }
}

#[test]
fn a_set_that_is_spread_too_far_is_refused() {
    assert!(set(&[Range {
        lo: 0,
        hi: u32::MAX
    }])
    .is_none());
    let pages = |n: u32| -> Vec<_> {
        (0..n)
            .map(|i| Range {
                lo: i << 16,
                hi: i << 16,
            })
            .collect()
    };
    assert!(set(&pages(256)).is_some());
    assert!(set(&pages(257)).is_none());
    let (shape, words) = set(&[]).unwrap();
    assert!(!MsrSet::new(shape, &words).contains(0));
}

#[test]
fn intersections_are_exact() {
    let mut random = Random(5);
    for _ in 0..300 {
        let mut one = random.ranges(20);
        let mut other = random.ranges(20);
        let used = normalize(&mut one);
        one.truncate(used);
        let used = normalize(&mut other);
        other.truncate(used);
        let mut both = Vec::new();
        intersect(&one, &other, |range| {
            both.push(range);
            Ok::<(), ()>(())
        })
        .unwrap();
        let contains = |ranges: &[Range], n| Ranges::new(ranges).contains(n);
        for range in one.iter().chain(&other).chain(&both) {
            for n in [
                range.lo,
                range.hi,
                range.lo.wrapping_sub(1),
                range.hi.wrapping_add(1),
            ] {
                assert_eq!(contains(&both, n), contains(&one, n) && contains(&other, n));
            }
        }
    }
}

fn ascending(rules: &[Rule]) -> bool {
    rules.iter().all(|r| r.range.lo <= r.range.hi)
        && rules.windows(2).all(|w| w[0].range.hi < w[1].range.lo)
}

#[test]
fn no_register_is_in_two_classes() {
    assert!(ascending(NEVER) && ascending(GUARDED) && ascending(FREE));
    for (one, other) in [(NEVER, GUARDED), (NEVER, FREE), (GUARDED, FREE)] {
        for rule in one {
            let clash = other.iter().find(|r| r.range.overlaps(rule.range));
            assert!(clash.is_none(), "{rule:?} and {clash:?}");
        }
    }
    for rule in NEVER.iter().chain(GUARDED).chain(FREE) {
        assert!(!rule.reason.is_empty() && !rule.source.is_empty());
    }
}

#[test]
fn what_the_design_forbids_is_never() {
    let design = [
        (0x11, 0x12),
        (0x40, 0x48),
        (0x4e, 0x4f),
        (0x60, 0x67),
        (0x140, 0x140),
        (0x150, 0x150),
        (0x174, 0x176),
        (0x1c4, 0x1c5),
        (0x1c8, 0x1c9),
        (0x1cc, 0x1d4),
        (0x1d9, 0x1de),
        (0x560, 0x587),
        (0x600, 0x600),
        (0x680, 0x6df),
        (0x6a0, 0x6a8),
        (0x6e0, 0x6e0),
        (0x800, 0x8ff),
        (0x985, 0x98a),
        (0xc8d, 0xc8f),
        (0xd93, 0xd93),
        (0xdc0, 0xddf),
        (0x1200, 0x16ff),
        (0x4000_0000, 0x4000_01ff),
        (0x4b56_4d00, 0x4b56_4d08),
        (0xc000_0081, 0xc000_0083),
        (0xc000_0100, 0xc000_0102),
        (0xc001_02f0, 0xc001_02f1),
        (0xc001_0117, 0xc001_0117),
        (0xc001_0130, 0xc001_0130),
        (0xc001_0300, 0xc001_031f),
        (0xc001_1030, 0xc001_103f),
    ];
    for reg in design.into_iter().flat_map(|(lo, hi)| lo..=hi) {
        assert_eq!(class_of(reg).0, Class::Never, "{reg:#x}");
    }
    let guarded = [
        (0xc1, 0xc8),
        (0x309, 0x30c),
        (0x198, 0x198),
        (0xc001_0293, 0xc001_0293),
    ];
    for reg in guarded.into_iter().flat_map(|(lo, hi)| lo..=hi) {
        assert_eq!(class_of(reg).0, Class::Guarded, "{reg:#x}");
    }
}

#[test]
fn a_range_is_as_guarded_as_its_most_guarded_register() {
    let class = |lo, hi| most_guarded(Range { lo, hi }).0;
    assert_eq!(class(0x19b, 0x19c), Class::Free);
    assert_eq!(
        class(0x19a, 0x19c),
        Class::Guarded,
        "0x19a is named by no rule"
    );
    assert_eq!(class(0x198, 0x19c), Class::Guarded);
    assert_eq!(class(0x174, 0x19c), Class::Never);
    assert_eq!(class(0, u32::MAX), Class::Never);
    assert_eq!(class(u32::MAX, u32::MAX), Class::Guarded);
}

#[test]
fn root_only_values_of_the_catalogue_are_not_free() {
    for entry in ENTRIES.iter().filter(|e| e.access == Access::Root) {
        for source in entry.sources.iter().filter(|s| s.reg != 0) {
            assert_ne!(
                class_of(source.reg).0,
                Class::Free,
                "{:?} {:#x}",
                entry.name,
                source.reg
            );
        }
    }
}

#[test]
fn a_share_is_kept_in_the_long_run_and_a_burst_is_free() {
    let throttle = Throttle {
        permille: 50,
        burst_ns: 10_000_000,
    };
    let (mut until, mut now, mut used) = (0, 0u64, 0u64);
    assert_eq!(throttle.wait_ns(until, now), 0);
    let mut random = Random(9);
    for _ in 0..10_000 {
        now += throttle.wait_ns(until, now);
        let cost = 1 + random.below(100_000);
        until = throttle.charge(until, now, cost);
        used += cost;
        now += cost;
    }
    let permille = used * 1000 / now;
    assert!((48..=51).contains(&permille), "{permille}");
    // Who has waited long has no more than a burst in store.
    let fresh = throttle.charge(until, now + 1_000_000_000_000, 1_000_000);
    assert_eq!(fresh, now + 1_000_000_000_000 + 20_000_000);
    assert_eq!(throttle.wait_ns(fresh, now + 1_000_000_000_000), 10_000_000);
    let none = Throttle {
        permille: 1000,
        burst_ns: 0,
    };
    assert_eq!(none.wait_ns(u64::MAX, 0), 0);
}

#[test]
fn what_interrupts_cost_is_learnt_and_an_exception_is_not_believed() {
    let mut usual = 0;
    for _ in 0..100 {
        usual = learn_overhead(usual, 20_000);
    }
    assert!((19_900..=20_000).contains(&usual), "{usual}");
    let after = learn_overhead(usual, 1_000_000_000);
    assert!(after < usual * 3 / 2, "{after}");
    for _ in 0..100 {
        usual = learn_overhead(usual, 0);
    }
    assert!(usual < 10, "{usual}");
    assert!(learn_overhead(u32::MAX, u64::MAX) > u32::MAX / 8 * 7);
}
