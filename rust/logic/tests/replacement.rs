// SPDX-License-Identifier: GPL-2.0

//! A list that is replaced while somebody checks by it, for every interleaving within small bounds. A
//! list is one register that may be allowed, or not: the first list allows it, the second does not.

use cpupeek_logic::replacement::{Number, Replacement};
use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use loom::sync::Arc;
use loom::thread;

struct LoomNumber(AtomicU64);

impl Number for LoomNumber {
    fn load(&self) -> u64 {
        self.0.load(Acquire)
    }

    fn store(&self, number: u64) {
        self.0.store(number, Release);
    }
}

const FIRST: u64 = 1;

struct Machine {
    number: Replacement<LoomNumber>,
    /// Whether the list that is published allows the register, where the kernel has a pointer.
    allowed: AtomicBool,
    /// The command has returned.
    returned: AtomicBool,
}

impl Machine {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            number: Replacement::new(LoomNumber(AtomicU64::new(FIRST))),
            allowed: AtomicBool::new(true),
            returned: AtomicBool::new(false),
        })
    }

    /// A read by a descriptor that was opened with the first list.
    fn read(&self) -> bool {
        self.number.allows(FIRST, || self.allowed.load(Acquire))
    }

    fn shorten(&self) {
        let publish = |_| {
            self.allowed.store(false, Release);
            Ok::<_, ()>(())
        };
        assert_eq!(self.number.replace(publish), Ok(FIRST + 1));
        self.returned.store(true, Release);
    }

    /// As it was once: the number first.
    fn shorten_the_wrong_way_round(&self) {
        let early = |_| Ok::<_, ()>(());
        assert_eq!(self.number.replace(early), Ok(FIRST + 1));
        self.allowed.store(false, Release);
        self.returned.store(true, Release);
    }
}

/// A plan remembers by which list it was checked.
struct Plan(u64);

impl Plan {
    fn run(&mut self, machine: &Machine) -> bool {
        let number = machine.number.number();
        if number == self.0 {
            return true;
        }
        if !machine.read() {
            return false;
        }
        self.0 = number;
        true
    }
}

/// Runs as often as the models take; none after the list was replaced may pass.
fn plan_runs(shorten: fn(&Machine)) {
    loom::model(move || {
        let machine = Machine::new();
        let other = {
            let machine = machine.clone();
            thread::spawn(move || shorten(&machine))
        };
        let mut plan = Plan(FIRST);
        for _ in 0..2 {
            let returned = machine.returned.load(Acquire);
            let passed = plan.run(&machine);
            assert!(!(returned && passed), "read after the list was replaced");
        }
        other.join().unwrap();
        assert!(!plan.run(&machine), "read after the list was replaced");
    });
}

#[test]
fn a_shorter_list_counts_for_reads_once_the_command_has_returned() {
    loom::model(|| {
        let machine = Machine::new();
        let other = {
            let machine = machine.clone();
            thread::spawn(move || machine.shorten())
        };
        let returned = machine.returned.load(Acquire);
        let passed = machine.read();
        assert!(!(returned && passed));
        other.join().unwrap();
        assert!(!machine.read());
    });
}

#[test]
fn a_shorter_list_counts_for_plans_once_the_command_has_returned() {
    plan_runs(Machine::shorten);
}

#[test]
#[should_panic(expected = "read after the list was replaced")]
fn planted_the_number_changes_before_the_list() {
    plan_runs(Machine::shorten_the_wrong_way_round);
}

#[test]
fn a_list_that_cannot_be_published_changes_nothing() {
    loom::model(|| {
        let machine = Machine::new();
        assert_eq!(machine.number.replace(|_| Err(7)), Err(7));
        assert_eq!(machine.number.number(), FIRST);
        assert!(machine.read());
    });
}

/// How the kernel publishes: readers say that they look, and who replaces a list waits for them before
/// it frees what they may look at (RCU, with a count in place of grace periods). Additions of nothing
/// stand for loads: loom takes sequentially consistent loads for weaker ones.
fn publication(waits: bool) {
    loom::model(move || {
        let readers = Arc::new(AtomicUsize::new(0));
        let place = Arc::new(AtomicUsize::new(0));
        let freed = Arc::new(AtomicBool::new(false));
        let reader = {
            let (readers, place, freed) = (readers.clone(), place.clone(), freed.clone());
            thread::spawn(move || {
                readers.fetch_add(1, SeqCst);
                let looking_at_the_first = place.fetch_add(0, SeqCst) == 0;
                let gone = freed.load(SeqCst);
                assert!(!(looking_at_the_first && gone), "use after free");
                readers.fetch_sub(1, SeqCst);
            })
        };
        place.swap(1, SeqCst);
        while waits && readers.fetch_add(0, SeqCst) != 0 {
            thread::yield_now();
        }
        freed.store(true, SeqCst);
        reader.join().unwrap();
    });
}

#[test]
fn nobody_looks_at_a_list_that_was_freed() {
    publication(true);
}

#[test]
#[should_panic(expected = "use after free")]
fn planted_the_list_is_freed_without_waiting_for_readers() {
    publication(false);
}
