// SPDX-License-Identifier: GPL-2.0

//! One refresh for all readers, and none for those of a CPU that leaves; every interleaving.

use cpupeek_logic::freshness::Freshness;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use loom::sync::{Arc, Mutex};
use loom::thread;

struct Cpu {
    snapshot: Mutex<Option<Freshness>>,
    leaving: AtomicBool,
    refreshes: AtomicU32,
    in_flight: AtomicU32,
}

impl Cpu {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            snapshot: Mutex::new(Some(Freshness::new())),
            leaving: AtomicBool::new(false),
            refreshes: AtomicU32::new(0),
            in_flight: AtomicU32::new(0),
        })
    }

    fn refresh(&self, snapshot: &mut Freshness, now: u64) {
        assert_eq!(
            self.in_flight.fetch_add(1, SeqCst),
            0,
            "two refreshes at once"
        );
        self.refreshes.fetch_add(1, SeqCst);
        snapshot.renew(now);
        self.in_flight.fetch_sub(1, SeqCst);
    }

    /// What a reader does; `None` if the CPU is gone or going.
    fn read(&self, now: u64) -> Option<u64> {
        let mut guard = self.snapshot.lock().unwrap();
        let snapshot = guard.as_mut()?;
        if self.leaving.load(SeqCst) {
            return None;
        }
        if snapshot.is_stale(now, 100) {
            self.refresh(snapshot, now);
        }
        Some(snapshot.generation())
    }
}

#[test]
fn readers_of_one_period_share_one_refresh() {
    loom::model(|| {
        let cpu = Cpu::new();
        let readers: Vec<_> = (0..3)
            .map(|i| {
                let cpu = cpu.clone();
                thread::spawn(move || cpu.read(1000 + i))
            })
            .collect();
        for reader in readers {
            assert_eq!(reader.join().unwrap(), Some(1));
        }
        assert_eq!(cpu.refreshes.load(SeqCst), 1);
        assert_eq!(cpu.read(1100 + 3), Some(2), "the next period has its own");
    });
}

#[test]
fn nobody_refreshes_once_the_cpu_is_known_to_leave() {
    loom::model(|| {
        let cpu = Cpu::new();
        let reader = {
            let cpu = cpu.clone();
            thread::spawn(move || cpu.read(1000))
        };
        cpu.leaving.store(true, SeqCst);
        // The directory's removal waits for the reader here; then the state goes.
        let before = reader.join().unwrap();
        cpu.snapshot.lock().unwrap().take();
        assert_eq!(cpu.read(5000), None);
        assert_eq!(cpu.refreshes.load(SeqCst), u32::from(before.is_some()));
    });
}

#[test]
#[should_panic(expected = "one refresh")]
fn planted_the_age_is_asked_for_before_the_lock_is_taken() {
    loom::model(|| {
        let cpu = Cpu::new();
        let racy = |cpu: Arc<Cpu>| {
            let stale = cpu.snapshot.lock().unwrap().unwrap().is_stale(1000, 100);
            if stale {
                let mut guard = cpu.snapshot.lock().unwrap();
                cpu.refresh(guard.as_mut().unwrap(), 1000);
            }
        };
        let other = {
            let cpu = cpu.clone();
            thread::spawn(move || racy(cpu))
        };
        racy(cpu.clone());
        other.join().unwrap();
        assert_eq!(cpu.refreshes.load(SeqCst), 1, "one refresh");
    });
}

#[test]
fn ages_do_not_wrap() {
    let mut snapshot = Freshness::new();
    assert!(snapshot.is_stale(0, u64::MAX));
    assert_eq!((snapshot.age_ms(5), snapshot.generation()), (None, 0));
    snapshot.renew(1000);
    assert_eq!(snapshot.age_ms(900), Some(0));
    assert!(!snapshot.is_stale(1099, 100));
    assert!(snapshot.is_stale(1100, 100));
}
