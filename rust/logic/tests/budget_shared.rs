// SPDX-License-Identifier: GPL-2.0

//! A budget that several callers of one target learn in at once, for every interleaving within small
//! bounds: what one has learned may be lost, but what is there was learned by somebody.

use cpupeek_logic::budget::{Answer, Budget, Limits};
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::sync::Arc;
use loom::thread;

const LIMITS: Limits = Limits {
    floor: 0,
    ceiling: 200_000,
};

const TOOK: [u64; 2] = [6_000, 2_000_000];

fn begin() -> Budget {
    Budget::unknown(LIMITS).learn(Answer::Spun(9_000), LIMITS)
}

/// Every word that some order of learning could leave, if each learns once: whole or with one lost.
fn possible() -> Vec<u32> {
    let [first, second] = TOOK;
    let orders: [&[u64]; 4] = [&[first], &[second], &[first, second], &[second, first]];
    let after = |took: &[u64]| {
        let learned = took
            .iter()
            .fold(begin(), |b, &t| b.learn(Answer::Slept(t), LIMITS));
        learned.into_word()
    };
    orders.into_iter().map(after).collect()
}

#[test]
fn whoever_learns_leaves_something_that_was_learned() {
    loom::model(|| {
        let word = Arc::new(AtomicU32::new(begin().into_word()));
        let learners = TOOK.map(|took| {
            let word = word.clone();
            thread::spawn(move || {
                let known = Budget::from_word(word.load(Relaxed)).expect("not 0");
                assert!(known.spin(LIMITS) <= LIMITS.ceiling);
                word.store(
                    known.learn(Answer::Slept(took), LIMITS).into_word(),
                    Relaxed,
                );
            })
        });
        for learner in learners {
            learner.join().unwrap();
        }
        let word = word.load(Relaxed);
        assert!(possible().contains(&word), "nobody has learned this");
    });
}

/// The same with the mean and the trust in words of their own.
#[test]
#[should_panic(expected = "nobody has learned this")]
fn planted_a_budget_in_two_words() {
    const TRUST: u32 = 0xf;
    loom::model(|| {
        let first = begin().into_word();
        let words = Arc::new([
            AtomicU32::new(first & !TRUST),
            AtomicU32::new(first & TRUST),
        ]);
        let learners = TOOK.map(|took| {
            let words = words.clone();
            thread::spawn(move || {
                let word = words[0].load(Relaxed) | words[1].load(Relaxed);
                let known = Budget::from_word(word).expect("not 0");
                let word = known.learn(Answer::Slept(took), LIMITS).into_word();
                words[0].store(word & !TRUST, Relaxed);
                words[1].store(word & TRUST, Relaxed);
            })
        });
        for learner in learners {
            learner.join().unwrap();
        }
        let word = words[0].load(Relaxed) | words[1].load(Relaxed);
        assert!(possible().contains(&word), "nobody has learned this");
    });
}
