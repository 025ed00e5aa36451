// SPDX-License-Identifier: GPL-2.0

//! When samplers sample, where the samples are, and which of them matter.

use cpupeek_logic::sampling::map::{Map, Shape};
use cpupeek_logic::sampling::schedule::{whole_ticks, Schedule};
use cpupeek_logic::sampling::watch::{Condition, Kind, Reading};

const SHAPE: Shape = Shape {
    header: 56,
    cpus: 3,
    largest: 64 + 5 * 32,
    ring_samples: 7,
};

#[test]
fn slots_are_aligned_distinct_and_inside() {
    let map = Map::new(SHAPE, u64::MAX).expect("fits");
    let mut places: Vec<u64> = (0..3).map(|cpu| map.slot(cpu)).collect();
    for cpu in 0..3 {
        places.extend((7..14).map(|number| map.past(cpu, number).expect("a ring")));
    }
    assert!(places.iter().all(|place| place % 64 == 0));
    assert!(places[0] >= SHAPE.header);
    places.sort_unstable();
    assert!(places
        .windows(2)
        .all(|two| two[0] + SHAPE.largest <= two[1]));
    assert!(places.last().unwrap() + SHAPE.largest <= map.size);
    assert_eq!(map.past(1, 3), map.past(1, 10));
    assert_eq!(map.past(0, 0), Some(map.ring));
}

#[test]
fn without_a_ring_there_are_no_past_samples() {
    let shape = Shape {
        ring_samples: 0,
        ..SHAPE
    };
    let map = Map::new(shape, u64::MAX).expect("fits");
    assert_eq!((map.ring, map.past(0, 1)), (0, None));
    assert_eq!(map.size, map.slot(3));
}

#[test]
fn the_limit_is_kept_whatever_is_asked_for() {
    let size = Map::new(SHAPE, u64::MAX).unwrap().size;
    assert!(Map::new(SHAPE, size).is_some());
    assert!(Map::new(SHAPE, size - 1).is_none());
    let huge = Shape {
        cpus: u32::MAX,
        ring_samples: u32::MAX,
        ..SHAPE
    };
    assert!(Map::new(huge, u64::MAX).is_none());
}

#[test]
fn a_schedule_keeps_its_grid_and_counts_what_it_missed() {
    let mut schedule = Schedule::new(10, 100);
    assert_eq!(schedule.next(), 100);
    assert_eq!((schedule.pass(100), schedule.next()), (0, 110));
    assert_eq!((schedule.pass(113), schedule.next()), (0, 120));
    assert_eq!((schedule.pass(129), schedule.next()), (0, 130));
    assert_eq!((schedule.pass(140), schedule.next()), (1, 150));
    assert_eq!((schedule.pass(199), schedule.next()), (4, 200));
    // A clock that is early is not late.
    assert_eq!((schedule.pass(195), schedule.next()), (0, 210));
}

#[test]
fn a_schedule_ends_at_the_end_of_time() {
    let mut schedule = Schedule::new(u64::MAX, 5);
    assert_eq!((schedule.pass(5), schedule.next()), (0, u64::MAX));
    let mut schedule = Schedule::new(0, 0);
    schedule.pass(u64::MAX);
    assert_eq!(schedule.next(), u64::MAX);
}

#[test]
fn ticks_are_whole_and_never_too_short() {
    assert_eq!(whole_ticks(1, 4), 4);
    assert_eq!(whole_ticks(4, 4), 4);
    assert_eq!(whole_ticks(5, 4), 8);
    assert_eq!(whole_ticks(5, 0), 5);
    assert_eq!(whole_ticks(u64::MAX, 4), u64::MAX);
}

fn readings(condition: Condition, readings: &[(i32, u64)]) -> Vec<bool> {
    let mut condition = condition;
    let look = |&(status, value)| condition.look(Reading { status, value });
    readings.iter().map(look).collect()
}

#[test]
fn a_change_counts_only_under_the_mask() {
    let condition = Condition::new(0, Kind::Changed, 0xf0);
    let seen = readings(condition, &[(0, 0x12), (0, 0x13), (0, 0x23), (0, 0x2f)]);
    assert_eq!(seen, [false, false, true, false]);
}

#[test]
fn a_bound_is_crossed_in_both_directions() {
    let condition = Condition::new(0, Kind::Crossed { bound: 5 }, u64::MAX);
    let seen = readings(condition, &[(0, 4), (0, 5), (0, 9), (0, 0), (0, 1)]);
    assert_eq!(seen, [false, true, false, true, false]);
    let condition = Condition::new(0, Kind::Crossed { bound: 5 }, 7);
    assert_eq!(readings(condition, &[(0, 4), (0, 12)]), [false, false]);
}

#[test]
fn a_status_that_changes_always_matters() {
    for kind in [Kind::Changed, Kind::Crossed { bound: 0 }] {
        let seen = readings(
            Condition::new(0, kind, 1),
            &[(-5, 0), (-5, 0), (0, 0), (-6, 0), (-6, 7)],
        );
        assert_eq!(seen, [false, false, true, true, false]);
    }
}
