// SPDX-License-Identifier: GPL-2.0

//! The protocols of a sampler's memory, checked for every interleaving within small bounds.

use cpupeek_logic::sampling::claim::{self, Claim};
use cpupeek_logic::sampling::slot;
use cpupeek_logic::slot_reader::{self, Sequence as _};
use loom::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};
use loom::sync::Arc;
use loom::thread;

/// What to leave out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Planted {
    Nothing,
    /// The order between the odd count and the words.
    NoReleaseFence,
    /// The order between the words and the second look at the count.
    NoAcquireFence,
    /// The second look.
    NoSecondLook,
    /// The claim.
    NoClaim,
}

struct Count {
    value: AtomicU32,
    planted: Planted,
}

impl slot::Sequence for Count {
    fn load(&self) -> u32 {
        self.value.load(Ordering::Relaxed)
    }

    fn store(&self, value: u32) {
        self.value.store(value, Ordering::Relaxed);
    }

    fn store_release(&self, value: u32) {
        self.value.store(value, Ordering::Release);
    }

    fn fence_release(&self) {
        if self.planted != Planted::NoReleaseFence {
            fence(Ordering::Release);
        }
    }
}

impl slot_reader::Sequence for Count {
    fn load(&self) -> u32 {
        self.value.load(Ordering::Relaxed)
    }

    fn load_acquire(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    fn fence_acquire(&self) {
        if self.planted != Planted::NoAcquireFence {
            fence(Ordering::Acquire);
        }
    }
}

struct ClaimWord(AtomicU32);

impl claim::Word for ClaimWord {
    fn take(&self) -> bool {
        self.0
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    fn give(&self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Two words that are equal in every sample.
struct Slot {
    claim: Claim<ClaimWord>,
    count: Count,
    words: [AtomicU64; 2],
}

impl Slot {
    fn new(planted: Planted) -> Arc<Self> {
        Arc::new(Self {
            claim: Claim::new(ClaimWord(AtomicU32::new(0))),
            count: Count {
                value: AtomicU32::new(0),
                planted,
            },
            words: [AtomicU64::new(0), AtomicU64::new(0)],
        })
    }

    fn write(&self, value: u64) {
        slot::write(&self.count, || {
            for word in &self.words {
                word.store(value, Ordering::Relaxed);
            }
        });
    }

    /// As the timer does: not at all if somebody else is at it.
    fn try_write(&self, value: u64) {
        if self.count.planted == Planted::NoClaim {
            self.write(value);
        } else if self.claim.try_take() {
            self.write(value);
            self.claim.give_up();
        }
    }

    /// As a task does.
    fn wait_and_write(&self, value: u64) {
        while !self.claim.try_take() {
            thread::yield_now();
        }
        self.write(value);
        self.claim.give_up();
    }

    fn load(&self) -> [u64; 2] {
        [0, 1].map(|i: usize| self.words[i].load(Ordering::Relaxed))
    }

    fn check(&self) {
        let read = if self.count.planted == Planted::NoSecondLook {
            (self.count.load_acquire() % 2 == 0).then(|| self.load())
        } else {
            slot_reader::try_read(&self.count, || self.load())
        };
        if let Some([one, other]) = read {
            assert_eq!(one, other, "torn");
        }
    }
}

fn one_writer(planted: Planted) {
    loom::model(move || {
        let slot = Slot::new(planted);
        let writer = {
            let slot = slot.clone();
            thread::spawn(move || {
                slot.write(1);
                slot.write(2);
            })
        };
        slot.check();
        writer.join().unwrap();
        assert_eq!(slot.load(), [2, 2]);
    });
}

fn two_writers(planted: Planted) {
    loom::model(move || {
        let slot = Slot::new(planted);
        let timer = {
            let slot = slot.clone();
            thread::spawn(move || slot.try_write(1))
        };
        let task = {
            let slot = slot.clone();
            thread::spawn(move || slot.wait_and_write(2))
        };
        slot.check();
        timer.join().unwrap();
        task.join().unwrap();
        assert_eq!(slot.count.load_acquire() % 2, 0, "unreadable for ever");
        slot.check();
    });
}

#[test]
fn a_reader_never_sees_a_torn_slot() {
    one_writer(Planted::Nothing);
}

#[test]
fn timer_and_task_do_not_write_at_once() {
    two_writers(Planted::Nothing);
}

#[test]
#[should_panic(expected = "torn")]
fn planted_words_overtake_the_odd_count() {
    one_writer(Planted::NoReleaseFence);
}

#[test]
#[should_panic(expected = "torn")]
fn planted_the_second_look_overtakes_the_words() {
    one_writer(Planted::NoAcquireFence);
}

#[test]
#[should_panic(expected = "torn")]
fn planted_there_is_no_second_look() {
    one_writer(Planted::NoSecondLook);
}

#[test]
#[should_panic]
fn planted_timer_and_task_write_at_once() {
    two_writers(Planted::NoClaim);
}
