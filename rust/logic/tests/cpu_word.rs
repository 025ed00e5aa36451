// SPDX-License-Identifier: GPL-2.0

//! What a thread's word holds when the thread returns to user space, for every way in which it may
//! get other CPUs while it writes.

use cpupeek_logic::cpu_word::CpuWord;
use std::cell::Cell;

/// What decides when the word is written.
trait State {
    fn new() -> Self;
    fn moved(&self, cpu: u32) -> bool;
    fn write(&self, current: impl FnOnce() -> u32, write: impl FnOnce(u32));
}

impl State for CpuWord {
    fn new() -> Self {
        CpuWord::new()
    }

    fn moved(&self, cpu: u32) -> bool {
        CpuWord::moved(self, cpu, false)
    }

    fn write(&self, current: impl FnOnce() -> u32, write: impl FnOnce(u32)) {
        let write = |cpu| {
            write(cpu);
            Ok::<(), ()>(())
        };
        CpuWord::write(self, current, write).unwrap();
    }
}

/// The same with a race: while the thread writes, what the word held before is still believed.
struct Planted(Cell<Option<u32>>, Cell<bool>);

impl State for Planted {
    fn new() -> Self {
        Self(Cell::new(None), Cell::new(false))
    }

    fn moved(&self, cpu: u32) -> bool {
        self.0.get() != Some(cpu) && !self.1.replace(true)
    }

    fn write(&self, current: impl FnOnce() -> u32, write: impl FnOnce(u32)) {
        self.1.set(false);
        let cpu = current();
        write(cpu);
        self.0.set(Some(cpu));
    }
}

/// A thread, and what moves it from CPU to CPU.
struct Thread<'a, S> {
    state: S,
    cpu: Cell<u32>,
    word: Cell<u32>,
    asked: Cell<bool>,
    /// The CPUs that it is on after the steps to come.
    schedule: Cell<&'a [u32]>,
}

impl<'a, S: State> Thread<'a, S> {
    fn new(schedule: &'a [u32]) -> Self {
        Self {
            state: S::new(),
            cpu: Cell::new(0),
            word: Cell::new(u32::MAX),
            asked: Cell::new(false),
            schedule: Cell::new(schedule),
        }
    }

    /// Between two steps: perhaps it gets another CPU, and is told.
    fn step(&self) {
        let Some((&cpu, rest)) = self.schedule.get().split_first() else {
            return;
        };
        self.schedule.set(rest);
        if self.cpu.replace(cpu) != cpu && self.state.moved(cpu) {
            assert!(!self.asked.replace(true), "asked for twice");
        }
    }

    fn write(&self) {
        let current = || {
            self.step();
            let cpu = self.cpu.get();
            self.step();
            cpu
        };
        let write = |cpu| {
            self.step();
            self.word.set(cpu);
            self.step();
        };
        self.state.write(current, write);
        self.step();
    }

    /// Performs what was asked for until nothing is, as the way to user space does.
    fn return_to_user(&self) {
        while self.asked.replace(false) {
            self.step();
            self.write();
        }
    }
}

/// All sequences of `len` CPU numbers below 3.
fn schedules(len: u32) -> impl Iterator<Item = Vec<u32>> {
    (0..3u32.pow(len)).map(move |n| (0..len).map(|i| n / 3u32.pow(i) % 3).collect())
}

/// The first sequence of moves after which a thread is in user space with a wrong word.
fn wrong_after<S: State>() -> Option<Vec<u32>> {
    schedules(10).find(|schedule| {
        let thread = Thread::<S>::new(schedule);
        let is_wrong = || thread.word.get() != thread.cpu.get();
        thread.write();
        thread.return_to_user();
        let mut wrong = is_wrong();
        // It runs on, and is moved while it is in user space.
        while !thread.schedule.get().is_empty() {
            thread.step();
            thread.return_to_user();
            wrong |= is_wrong();
        }
        wrong
    })
}

#[test]
fn the_word_is_right_whenever_the_thread_is_in_user_space() {
    assert_eq!(wrong_after::<CpuWord>(), None);
}

#[test]
fn a_planted_race_is_found() {
    assert_ne!(wrong_after::<Planted>(), None);
}

#[test]
fn a_thread_that_stays_asks_for_nothing() {
    let word = CpuWord::new();
    assert_eq!(word.write(|| 3, |_| Ok::<(), ()>(())), Ok(()));
    assert!(!word.moved(3, false));
    assert!(word.moved(3, true), "there is something else to do");
    assert!(!word.moved(3, true) && !word.moved(4, false), "asked for");
}

#[test]
fn a_write_that_fails_leaves_nothing_known() {
    let word = CpuWord::new();
    assert_eq!(word.write(|| 3, |_| Err("unmapped")), Err("unmapped"));
    assert!(word.moved(3, false));
}
