// SPDX-License-Identifier: GPL-2.0

//! Grouping by CPU, and the bound of a round.

use cpupeek_logic::plan::{Planner, Slice};
use cpupeek_logic::round::{Bound, SamplerStretch, Stretch, MAX_SHARED_OPS, MAX_US};

fn plan(cpus: &[u32], nr_cpus: usize) -> (Vec<Slice>, Vec<Option<u32>>) {
    let mut index = vec![0; nr_cpus];
    let mut slices = vec![Slice::default(); cpus.len().min(nr_cpus)];
    let mut planner = Planner::new(&mut index, &mut slices);
    let counted: Vec<bool> = cpus.iter().map(|&cpu| planner.count(cpu)).collect();
    planner.layout();
    let place = |(&cpu, &counted): (&u32, &bool)| counted.then(|| planner.place(cpu)).flatten();
    let places = cpus.iter().zip(&counted).map(place).collect();
    let slices = planner.finish().to_vec();
    assert!(index.iter().all(|&entry| entry == 0), "index not cleared");
    (slices, places)
}

#[test]
fn every_cpu_gets_one_contiguous_slice_in_the_callers_order() {
    let (slices, places) = plan(&[3, 1, 3, 0, 1, 3], 4);
    let expected = [(3, 0, 3), (1, 3, 2), (0, 5, 1)];
    let expected = expected.map(|(cpu, first, len)| Slice { cpu, first, len });
    assert_eq!(slices, expected);
    assert_eq!(
        places,
        [0, 3, 1, 5, 4, 2].map(Some),
        "operations of one CPU keep their order"
    );
}

#[test]
fn a_cpu_number_that_does_not_exist_is_not_counted() {
    let (slices, places) = plan(&[0, 4, u32::MAX, 0], 4);
    let expected = Slice {
        cpu: 0,
        first: 0,
        len: 2,
    };
    assert_eq!(slices, [expected]);
    assert_eq!(places, [Some(0), None, None, Some(1)]);
}

#[test]
fn places_are_a_permutation_within_the_slices() {
    // A small deterministic generator: the same cases every time.
    let mut state = 1u64;
    let mut random = move |below: u64| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    for _ in 0..500 {
        let nr_cpus = 1 + random(70) as usize;
        let ops = random(200);
        let cpus: Vec<u32> = (0..ops).map(|_| random(nr_cpus as u64) as u32).collect();
        let (slices, places) = plan(&cpus, nr_cpus);

        let mut seen = vec![false; cpus.len()];
        for (cpu, place) in cpus.iter().zip(&places) {
            let place = place.expect("an existing CPU has a place");
            assert!(!std::mem::replace(&mut seen[place as usize], true));
            let slice = slices.iter().find(|s| s.cpu == *cpu).expect("a slice");
            assert!((slice.first..slice.first + slice.len).contains(&place));
        }
        assert!(seen.into_iter().all(|seen| seen));
        let end = slices.iter().fold(0, |end, slice| {
            assert_eq!(slice.first, end, "slices follow one another");
            end + slice.len
        });
        assert_eq!(end as usize, cpus.len());
    }
}

#[test]
fn a_round_is_open_for_its_time_and_no_longer() {
    let bound = Bound::new(2_000_000);
    let cycles = 2_000 * u64::from(MAX_US);
    assert!(bound.open(5, 5));
    assert!(bound.open(5, 5 + cycles - 1));
    assert!(!bound.open(5, 5 + cycles));
    // The counter may wrap, and is not bounded by a frequency of 0.
    assert!(bound.open(u64::MAX, cycles - 2));
    assert!(!bound.open(u64::MAX, cycles - 1));
    assert!(Bound::new(0).open(0, u64::MAX - 1));
}

#[test]
fn rounds_without_a_break_share_one_bound() {
    let bound = Bound::new(2_000_000);
    let cycles = 2_000 * u64::from(MAX_US);
    let first = Stretch::new(1000);
    assert!(first.open(bound, MAX_SHARED_OPS - 1, 1000));
    assert!(!first.open(bound, MAX_SHARED_OPS, 1000));
    assert!(!first.open(bound, 1, 1000 + cycles));

    let second = first.after(MAX_SHARED_OPS - 4);
    assert_eq!(second.start, 1000);
    assert!(second.open(bound, 3, 1000 + cycles - 1));
    assert!(!second.open(bound, 4, 1000 + cycles - 1));
    assert!(
        !second.open(bound, 1, 1000 + cycles),
        "time counts from the first round"
    );
    let full = second.after(u32::MAX);
    assert!(!full.open(bound, 1, 1000));
}

#[test]
fn timers_of_one_interrupt_share_its_time() {
    let bound = Bound::new(1_000_000);
    let mut stretch = SamplerStretch::new(1_000);
    for _ in 0..3 {
        assert!(stretch.open(bound, 1_000 + 99_999));
        stretch.serve();
    }
    assert!(!stretch.open(bound, 1_000 + 100_000));
    // Who has waited has a microsecond.
    let turn = 1_000 + 200_000;
    assert!(stretch.open_in(turn, bound, turn + 999));
    assert!(!stretch.open_in(turn, bound, turn + 1_000));
    // The others come in groups of as many, each later than the one before.
    let groups: Vec<u32> = (0..7).map(|_| stretch.put_off()).collect();
    assert_eq!(groups, [1, 1, 1, 2, 2, 2, 3]);
    assert_eq!((stretch.served, stretch.waiting), (3, 7));
}

#[test]
fn timers_are_put_off_one_by_one_where_nobody_had_a_turn() {
    let mut stretch = SamplerStretch::new(0);
    assert_eq!([(); 3].map(|()| stretch.put_off()), [1, 2, 3]);
    stretch.waiting = u32::MAX;
    assert_eq!(stretch.put_off(), u32::MAX);
}
