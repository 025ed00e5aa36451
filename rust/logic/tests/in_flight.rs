// SPDX-License-Identifier: GPL-2.0

//! Who frees a group of calls, checked for every interleaving within small bounds.

use cpupeek_logic::in_flight::{Abandon, Finish, InFlight, Word};
use loom::sync::atomic::{AtomicU32, Ordering::SeqCst};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread::{self, JoinHandle};

struct LoomWord(AtomicU32);

impl Word for LoomWord {
    fn fetch_add(&self, n: u32) -> u32 {
        self.0.fetch_add(n, SeqCst)
    }

    fn fetch_sub(&self, n: u32) -> u32 {
        self.0.fetch_sub(n, SeqCst)
    }
}

/// A group's memory: every access checks that it has not been freed.
struct Group {
    in_flight: InFlight<LoomWord>,
    notices: Mutex<u32>,
    told: Condvar,
    freed: AtomicU32,
}

impl Group {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            in_flight: InFlight::new(LoomWord(AtomicU32::new(0))),
            notices: Mutex::new(0),
            told: Condvar::new(),
            freed: AtomicU32::new(0),
        })
    }

    fn touch(&self) -> &Self {
        assert_eq!(self.freed.load(SeqCst), 0, "use after free");
        self
    }

    fn free(&self) {
        assert_eq!(self.freed.fetch_add(1, SeqCst), 0, "double free");
    }

    fn complete(&self) {
        let mut notices = self.touch().notices.lock().unwrap();
        *notices += 1;
        self.told.notify_one();
        // The lock is let go of last, and a waiter needs it: that is what makes it safe for the
        // waiter to free the group.
    }

    fn wait(&self) {
        let mut notices = self.notices.lock().unwrap();
        while *notices == 0 {
            notices = self.told.wait(notices).unwrap();
        }
        *notices -= 1;
    }

    fn handler(this: &Arc<Self>) -> JoinHandle<()> {
        let group = this.clone();
        thread::spawn(move || match group.touch().in_flight.finish() {
            Finish::NotLast => {}
            Finish::Tell => group.complete(),
            Finish::HandOver => group.free(),
        })
    }
}

fn join(handlers: Vec<JoinHandle<()>>, group: &Group) {
    for handler in handlers {
        handler.join().unwrap();
    }
    assert_eq!(group.freed.load(SeqCst), 1, "leak");
}

#[test]
fn a_waiting_caller_frees_once() {
    loom::model(|| {
        let group = Group::new();
        assert!(group.in_flight.begin(2));
        let handlers = vec![Group::handler(&group), Group::handler(&group)];
        if !group.in_flight.leave() {
            group.wait();
        }
        group.free();
        join(handlers, &group);
    });
}

#[test]
fn a_call_that_could_not_be_started_does_not_count() {
    loom::model(|| {
        let group = Group::new();
        group.in_flight.begin(2);
        let handlers = vec![Group::handler(&group)];
        group.in_flight.cancel();
        if !group.in_flight.leave() {
            group.wait();
        }
        group.free();
        join(handlers, &group);
    });
}

#[test]
fn a_group_that_is_walked_away_from_is_freed_once() {
    loom::model(|| {
        let group = Group::new();
        group.in_flight.begin(2);
        let handlers = vec![Group::handler(&group), Group::handler(&group)];
        if group.in_flight.leave() {
            group.free();
        } else if group.in_flight.abandon() == Abandon::Through {
            group.wait();
            group.free();
        }
        join(handlers, &group);
    });
}

/// A straggler finishes while the caller starts another round.
fn second_round(consume: bool) {
    loom::model(move || {
        let group = Group::new();
        group.in_flight.begin(1);
        let mut handlers = vec![Group::handler(&group)];
        let mut waiting = !group.in_flight.leave();
        if group.in_flight.begin(1) && waiting && consume {
            group.wait();
        }
        handlers.push(Group::handler(&group));
        waiting = !group.in_flight.leave();
        if waiting {
            group.wait();
        }
        group.free();
        join(handlers, &group);
    });
}

#[test]
fn a_late_notice_is_consumed_before_the_next_round() {
    second_round(true);
}

#[test]
#[should_panic(expected = "use after free")]
fn planted_a_late_notice_is_ignored() {
    second_round(false);
}

#[test]
#[should_panic(expected = "use after free")]
fn planted_the_caller_does_not_wait_for_the_last_handler_to_tell() {
    loom::model(|| {
        let group = Group::new();
        group.in_flight.begin(1);
        let handlers = vec![Group::handler(&group)];
        if group.in_flight.leave() || group.in_flight.abandon() == Abandon::Through {
            group.free();
        }
        join(handlers, &group);
    });
}
