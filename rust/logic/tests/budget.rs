// SPDX-License-Identifier: GPL-2.0

//! The spin budget adapts, within its limits.

use cpupeek_logic::budget::{Answer, Budget, Limits};

const LIMITS: Limits = Limits {
    floor: 0,
    ceiling: 200_000,
};

/// As a caller does, where a wake-up takes no time.
fn learn(budget: Budget, took: u64) -> Budget {
    let spun = took <= budget.spin(LIMITS).into();
    let answer = if spun {
        Answer::Spun(took)
    } else {
        Answer::Slept(took)
    };
    budget.learn(answer, LIMITS)
}

fn after(answers: impl IntoIterator<Item = u64>) -> Budget {
    let unknown = Budget::unknown(LIMITS);
    answers.into_iter().fold(unknown, learn)
}

#[test]
fn an_unknown_target_is_spun_for_once() {
    let unknown = Budget::unknown(LIMITS);
    assert_eq!(unknown.spin(LIMITS), LIMITS.ceiling);
    let failed = learn(unknown, 2_000_000);
    assert_eq!(failed.spin(LIMITS), 0);
    assert_eq!(failed.learn(Answer::Slept(9_000), LIMITS).spin(LIMITS), 0);
}

#[test]
fn a_target_that_was_late_is_tried_now_and_then() {
    let mut budget = after([6_000; 40]);
    let mut spun = 0u64;
    for _ in 0..1000 {
        spun += u64::from(budget.spin(LIMITS));
        budget = learn(budget, 2_000_000);
    }
    let ceilings = spun / u64::from(LIMITS.ceiling);
    assert!((100..=200).contains(&ceilings), "{ceilings}");
}

/// Where a wake-up takes longer than the ceiling, an answer that is slept for is never quick.
#[test]
fn slow_wake_ups_do_not_end_the_spinning_for_ever() {
    let (answer, wake_up) = (150_000u64, 100_000);
    let mut budget = after([2_000_000; 20]);
    let mut slept = 0;
    for _ in 0..100 {
        let sleeps = u64::from(budget.spin(LIMITS)) < answer;
        slept += u32::from(sleeps);
        let answer = if sleeps {
            Answer::Slept(answer + wake_up)
        } else {
            Answer::Spun(answer)
        };
        budget = budget.learn(answer, LIMITS);
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
fn late_answers_end_the_spinning_and_quick_ones_bring_it_back() {
    let late = after([6_000; 40].into_iter().chain([2_000_000; 8]));
    assert_eq!(late.spin(LIMITS), 0);
    // Answers that were slept for are known to be quick too, when there are two of them.
    let once = late.learn(Answer::Slept(20_000), LIMITS);
    assert_eq!(once.spin(LIMITS), 0);
    assert_ne!(once.learn(Answer::Slept(20_000), LIMITS).spin(LIMITS), 0);
    assert_eq!(learn(once, 2_000_000).spin(LIMITS), 0);
}

#[test]
fn a_late_answer_now_and_then_does_not_end_the_spinning() {
    let mut budget = after([6_000; 40]);
    for _ in 0..100 {
        for took in [6_000, 6_000, 6_000, 2_000_000] {
            assert_ne!(budget.spin(LIMITS), 0);
            budget = learn(budget, took);
        }
    }
    let mostly_late = after([6_000, 2_000_000, 2_000_000].into_iter().cycle().take(300));
    assert_eq!(mostly_late.spin(LIMITS), 0);
}

/// Reads of a target whose answers take `answer()` each, where a wake-up takes `wake_up`. Returns the
/// median of what they take, and the mean of what is spun.
fn reads(wake_up: u64, mut answer: impl FnMut() -> u64) -> (u64, u64) {
    const READS: usize = 10_000;
    let mut budget = Budget::unknown(LIMITS);
    let (mut took, mut spun) = (Vec::new(), 0);
    for _ in 0..READS {
        let (answer, spin) = (answer(), u64::from(budget.spin(LIMITS)));
        spun += answer.min(spin);
        let answer = if answer <= spin {
            Answer::Spun(answer)
        } else {
            Answer::Slept(answer + wake_up)
        };
        let (Answer::Spun(all) | Answer::Slept(all)) = answer;
        took.push(all);
        budget = budget.learn(answer, LIMITS);
    }
    took.sort_unstable();
    (took[READS / 2], spun / READS as u64)
}

/// Numbers from 0 to 1023, each as often as others, without an order.
fn numbers() -> impl FnMut() -> u64 {
    let mut state = 1u64;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state >> 54
    }
}

/// As under emulated KVM: six of ten come within the ceiling, just so.
#[test]
fn answers_that_take_about_the_ceiling_are_spun_for() {
    let mut number = numbers();
    let (median, _) = reads(300_000, || 140_000 + number() * 100);
    assert!(median <= LIMITS.ceiling.into(), "{median}");
}

/// As where interrupts are off for ten times the ceiling, again and again: some are quick all the same.
#[test]
fn quick_answers_among_many_late_ones_are_not_trusted() {
    let mut number = numbers();
    let (_, spun) = reads(40_000, || number() * 2_000);
    assert!(spun < u64::from(LIMITS.ceiling) / 6, "{spun}");
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
    let budget = Budget::unknown(long).learn(Answer::Spun(u32::MAX.into()), long);
    let kept = Budget::from_word(budget.into_word()).expect("not 0");
    assert!(kept.spin(long) >= 1 << 28);
}
