// SPDX-License-Identifier: GPL-2.0

//! The spin budget adapts, within its limits.

use cpupeek_logic::budget::{Budget, Limits};

const LIMITS: Limits = Limits {
    floor: 0,
    ceiling: 200_000,
};

fn after(answers: impl IntoIterator<Item = u64>) -> Budget {
    let unknown = Budget::unknown(LIMITS);
    answers
        .into_iter()
        .fold(unknown, |b, took| b.learn(took, LIMITS))
}

#[test]
fn an_unknown_target_is_spun_for_once() {
    let unknown = Budget::unknown(LIMITS);
    assert_eq!(unknown.spin(LIMITS), LIMITS.ceiling);
    assert_eq!(unknown.learn(2_000_000, LIMITS).spin(LIMITS), 0);
}

#[test]
fn a_target_that_was_late_is_tried_now_and_then() {
    let mut budget = after([6_000; 40]);
    let mut spun = 0u64;
    for _ in 0..1000 {
        spun += u64::from(budget.spin(LIMITS));
        budget = budget.learn(2_000_000, LIMITS);
    }
    let ceilings = spun / u64::from(LIMITS.ceiling);
    assert!((100..=200).contains(&ceilings), "{ceilings}");
}

/// Where a wake-up takes longer than the ceiling, an answer that is slept for is never quick.
#[test]
fn slow_wake_ups_do_not_end_the_spinning_for_ever() {
    let (answer, wake_up) = (150_000, 100_000);
    let mut budget = after([2_000_000; 20]);
    let mut slept = 0;
    for _ in 0..100 {
        let sleeps = budget.spin(LIMITS) < answer;
        slept += u32::from(sleeps);
        let took = if sleeps { answer + wake_up } else { answer };
        budget = budget.learn(took.into(), LIMITS);
    }
    assert!(slept < 15, "{slept}");
}

#[test]
fn quick_answers_are_spun_for_with_room_to_spare_but_not_to_the_ceiling() {
    for took in [2_000, 6_000, 20_000, 60_000] {
        let spin = u64::from(after([took; 40]).spin(LIMITS));
        assert!(spin > took * 3 / 2, "{took}: {spin}");
        assert!(spin < took * 3 + 10_000, "{took}: {spin}");
    }
}

#[test]
fn late_answers_end_the_spinning_at_once_and_quick_ones_bring_it_back() {
    let late = after([6_000; 40].into_iter().chain([2_000_000; 4]));
    assert_eq!(late.spin(LIMITS), 0);
    // Answers that were slept for are known to be quick too.
    assert_ne!(late.learn(20_000, LIMITS).spin(LIMITS), 0);
}

#[test]
fn a_late_answer_now_and_then_does_not_end_the_spinning() {
    let mut budget = after([6_000; 40]);
    for _ in 0..100 {
        for took in [6_000, 6_000, 6_000, 2_000_000] {
            assert_ne!(budget.spin(LIMITS), 0);
            budget = budget.learn(took, LIMITS);
        }
    }
    let mostly_late = after([6_000, 2_000_000, 2_000_000].into_iter().cycle().take(300));
    assert_eq!(mostly_late.spin(LIMITS), 0);
}

#[test]
fn limits_are_kept() {
    let fixed = Limits {
        floor: 50_000,
        ceiling: 50_000,
    };
    let never = Limits {
        floor: 0,
        ceiling: 0,
    };
    let contradictory = Limits {
        floor: 60_000,
        ceiling: 50_000,
    };
    for budget in [after([]), after([1_000; 9]), after([1 << 40; 9])] {
        assert_eq!(budget.spin(fixed), 50_000);
        assert_eq!(budget.spin(never), 0);
        assert_eq!(budget.spin(contradictory), 50_000);
    }
    assert_eq!(after([199_999; 99]).spin(LIMITS), LIMITS.ceiling);
}

#[test]
fn a_budget_survives_its_word() {
    for answers in [vec![], vec![1; 9], vec![150_000; 3], vec![u64::MAX; 9]] {
        let budget = after(answers);
        assert_ne!(budget.into_word(), 0);
        assert_eq!(Budget::from_word(budget.into_word()), Some(budget));
    }
    assert_eq!(Budget::from_word(0), None);
    let long = Limits {
        floor: 0,
        ceiling: u32::MAX,
    };
    let budget = Budget::unknown(long).learn(u32::MAX.into(), long);
    let kept = Budget::from_word(budget.into_word()).expect("not 0");
    assert!(kept.spin(long) >= 1 << 28);
}
