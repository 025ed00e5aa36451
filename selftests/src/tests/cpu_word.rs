// SPDX-License-Identifier: GPL-2.0

//! A thread's CPU number in its memory.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use super::{tests, Env};
use crate::device::{sized, uapi, Device, SELF};
use crate::guest::{self, attribute, MODULE};
use crate::sys::{self, Errno, Exit, Pages, Result};
use crate::util::Random;

tests! {
    "cpu_word";
    off_unless_asked_for: [],
    malformed_and_unmapped_are_refused: [Module],
    it_follows_its_thread: [Module Cpus],
    one_for_each_thread: [Module Cpus],
    a_thousand_come_and_go: [Module Cpus],
    a_child_has_none: [Module Cpus],
    exec_of_a_setuid_program: [Module Cpus],
    killed_as_they_move: [Module Cpus],
    closed_by_another_thread: [Module Cpus],
    closed_by_the_thread: [Module],
    unmapped_and_mapped_again: [Module Cpus],
    it_keeps_the_module: [Module Cpus],
}

const SET: u32 = uapi::CPUPEEK_CONST_IOC_SET_CPU_WORD;
const CLEAR: u32 = uapi::CPUPEEK_CONST_IOC_CLEAR_CPU_WORD;
const NO_CPU: u32 = uapi::CPUPEEK_CONST_NO_CPU;
const FEATURE: u64 = uapi::CPUPEEK_FEATURE_CPU_WORD as u64;

fn set_with(device: &Device, header: uapi::cpupeek_cpu_word) -> Result<()> {
    device.ioctl(SET, (&raw const header).expose_provenance())
}

fn set(device: &Device, address: usize) -> Result<()> {
    set_with(
        device,
        uapi::cpupeek_cpu_word {
            size: size_of::<uapi::cpupeek_cpu_word>() as u32,
            flags: 0,
            address: address as u64,
        },
    )
}

fn clear(device: &Device) -> Result<()> {
    device.ioctl(CLEAR, 0)
}

/// The address of a number that the kernel changes.
fn address(word: &AtomicU32) -> usize {
    word.as_ptr().expose_provenance()
}

/// Loads the module with words allowed, and checks in the end that all are gone and it unloads.
fn with_words(env: &Env, test: impl FnOnce()) {
    assert_eq!(sys::unload_module(MODULE), Ok(()));
    assert_eq!(sys::load_module(&env.module, "cpu_word=1"), Ok(()));
    test();
    expect_none_left();
    assert_eq!(sys::unload_module(MODULE), Ok(()));
    assert_eq!(sys::load_module(&env.module, ""), Ok(()));
}

#[track_caller]
fn expect_none_left() {
    guest::wait_until("no thread has a word", || attribute("cpu_words") == 0);
    guest::wait_until("nobody holds the module", || guest::module_users() == 0);
}

fn off_unless_asked_for(_: &Env) {
    let device = Device::open();
    let word = AtomicU32::new(7);
    assert_eq!(device.info().features & FEATURE, 0);
    assert_eq!(
        set(&device, address(&word)),
        Err(Errno(libc::EOPNOTSUPP)),
        "not asked for"
    );
    assert_eq!(clear(&device), Err(Errno(libc::ENOENT)));
    assert_eq!(word.load(SeqCst), 7);
}

fn malformed_and_unmapped_are_refused(env: &Env) {
    with_words(env, || {
        let device = Device::open();
        assert_ne!(device.info().features & FEATURE, 0);
        let pages = Pages::new(2, false);
        pages.protect(1, libc::PROT_READ);
        let at = pages.address(0);
        for offset in 1..4 {
            assert_eq!(set(&device, at + offset), Err(Errno(libc::EINVAL)));
        }
        let kernel = 0xffff_8880_0000_0000;
        for nowhere in [0, sys::PAGE - 4, pages.address(sys::PAGE), kernel, !3] {
            assert_eq!(
                set(&device, nowhere),
                Err(Errno(libc::EFAULT)),
                "{nowhere:#x}"
            );
            assert_eq!(clear(&device), Err(Errno(libc::ENOENT)));
        }
        let header = |size: u32, flags| uapi::cpupeek_cpu_word {
            size,
            flags,
            address: at as u64,
        };
        let size = size_of::<uapi::cpupeek_cpu_word>() as u32;
        for bad in [header(size - 1, 0), header(0, 0), header(size, 1)] {
            assert_eq!(set_with(&device, bad), Err(Errno(libc::EINVAL)));
        }
        let short = device.ioctl(sized(SET, size as usize - 1), at);
        assert_eq!(short, Err(Errno(libc::EINVAL)));
        assert_eq!(
            (attribute("cpu_word_faults"), pages.read::<u32>(0)),
            (5, 0),
            "each address without memory is a fault"
        );

        // The last word of the memory will do, and one is enough.
        assert_eq!(set(&device, pages.address(sys::PAGE - 4)), Ok(()));
        for busy in [at, pages.address(sys::PAGE - 4)] {
            assert_eq!(set(&device, busy), Err(Errno(libc::EBUSY)));
            assert_eq!(set(&Device::open(), busy), Err(Errno(libc::EBUSY)));
        }
        assert_eq!(clear(&Device::open()), Err(Errno(libc::ENOENT)), "not its");
        assert!(pages.read::<u32>(sys::PAGE - 4) < 1 << 13);
        assert_eq!(clear(&device), Ok(()));
        assert_eq!(pages.read::<u32>(sys::PAGE - 4), NO_CPU);
        assert_eq!(clear(&device), Err(Errno(libc::ENOENT)), "no longer");
    });
}

/// Moves the calling thread to CPUs in random order, and calls `check` on each.
fn roam(random: &mut Random, times: u32, mut check: impl FnMut(u32)) {
    let cpus = guest::online();
    for _ in 0..times {
        let cpu = random.choose(&cpus);
        sys::pin(&[cpu]).expect("online");
        check(cpu);
    }
}

fn it_follows_its_thread(env: &Env) {
    with_words(env, || {
        let (device, word) = (Device::open(), AtomicU32::new(NO_CPU));
        let mut random = Random::new(env.seed);
        sys::pin(&[0]).expect("CPU 0 is online");
        assert_eq!(set(&device, address(&word)), Ok(()));
        assert_eq!(word.load(SeqCst), 0, "from the start");
        let mut moves = 0;
        let mut last = 0;
        let writes = attribute("cpu_word_writes");
        roam(&mut random, 1000, |cpu| {
            assert_eq!((word.load(SeqCst), sys::getcpu()), (cpu, cpu));
            moves += u64::from(cpu != last);
            last = cpu;
        });
        // Between two reads of the counter, the thread may have been moved for other reasons.
        assert!(attribute("cpu_word_writes") - writes >= moves);
        assert!(moves > 100);
        assert_eq!(clear(&device), Ok(()));
        roam(&mut random, 20, |_| assert_eq!(word.load(SeqCst), NO_CPU));
        // Again, elsewhere, and without a word of goodbye.
        let other = AtomicU32::new(NO_CPU);
        assert_eq!(set(&device, address(&other)), Ok(()));
        roam(&mut random, 20, |cpu| assert_eq!(other.load(SeqCst), cpu));
        drop(device);
        assert_eq!((word.load(SeqCst), other.load(SeqCst)), (NO_CPU, NO_CPU));
    });
}

/// Looks at the calling thread's word until it has seen it right in `times` windows in which the
/// thread was not switched away from, and so not moved.
fn expect_right(word: &AtomicU32, times: u32) {
    let mut seen = 0;
    while seen < times {
        let before = sys::switches();
        let (number, cpu) = (word.load(SeqCst), sys::getcpu());
        if sys::switches() == before {
            assert_eq!(number, cpu);
            seen += 1;
        }
    }
}

fn one_for_each_thread(env: &Env) {
    with_words(env, || {
        let device = Device::open();
        thread::scope(|scope| {
            for seed in 0..8 {
                let device = &device;
                scope.spawn(move || {
                    let mut random = Random::new(env.seed + seed);
                    let word = AtomicU32::new(NO_CPU);
                    assert_eq!(set(device, address(&word)), Ok(()));
                    roam(&mut random, 100, |cpu| assert_eq!(word.load(SeqCst), cpu));
                    assert_eq!(clear(device), Ok(()));
                });
            }
        });
    });
}

/// Threads that have words, moved by another thread all the time, end in all ways that there are.
fn a_thousand_come_and_go(env: &Env) {
    const AT_ONCE: usize = 6;
    const MANY: u32 = 1000;
    with_words(env, || {
        let device = Device::open();
        let begun = AtomicU32::new(0);
        let over = AtomicBool::new(false);
        let ids: Vec<AtomicI32> = (0..AT_ONCE).map(|_| AtomicI32::new(0)).collect();
        let cpus = guest::online();
        thread::scope(|scope| {
            let mover = scope.spawn(|| {
                let mut random = Random::new(env.seed);
                while !over.load(SeqCst) {
                    thread::sleep(Duration::from_micros(200));
                    let id = ids[random.below(AT_ONCE as u64) as usize].load(SeqCst);
                    if id != 0 {
                        // It may just have ended.
                        let _ = sys::pin_thread(id, random.choose(&cpus));
                    }
                }
            });
            let workers: Vec<_> = ids.iter().enumerate().collect();
            let workers = workers.into_iter().map(|(n, id)| {
                let (begun, device) = (&begun, &device);
                scope.spawn(move || {
                    let mut random = Random::new(env.seed ^ (n as u64 + 1) << 32);
                    while begun.fetch_add(1, SeqCst) < MANY {
                        let word = AtomicU32::new(NO_CPU);
                        let times = random.below(4) as u32;
                        let clears = random.below(2) == 0;
                        thread::scope(|scope| {
                            let owner = scope.spawn(|| {
                                id.store(sys::gettid(), SeqCst);
                                assert_eq!(set(device, address(&word)), Ok(()));
                                expect_right(&word, times);
                                if clears {
                                    assert_eq!(clear(device), Ok(()));
                                    assert_eq!(word.load(SeqCst), NO_CPU);
                                }
                            });
                            // The scope alone does not wait for the thread, but for its function; and
                            // until the thread is gone, the word is the kernel's to write.
                            owner.join().expect("the owner's checks");
                        });
                    }
                })
            });
            let workers: Vec<_> = workers.collect();
            let failed = workers.into_iter().filter_map(|worker| worker.join().err());
            let failed = failed.count();
            over.store(true, SeqCst);
            mover.join().expect("moves threads");
            assert_eq!(failed, 0, "threads failed");
        });
        assert_eq!(attribute("cpu_word_faults"), 0);
        guest::wait_until("all are gone", || attribute("cpu_words") == 0);
    });
}

fn a_child_has_none(env: &Env) {
    with_words(env, || {
        let device = Device::open();
        let pages = Pages::new(1, true);
        sys::pin(&[0]).expect("CPU 0 is online");
        assert_eq!(set(&device, pages.address(0)), Ok(()));
        let child = sys::fork(|| {
            let mut random = Random::new(env.seed);
            roam(&mut random, 100, |_| assert_eq!(pages.read::<u32>(0), 0));
            assert_eq!(clear(&device), Err(Errno(libc::ENOENT)));
            assert_eq!(set(&device, pages.address(4)), Ok(()));
            roam(&mut random, 100, |cpu| {
                assert_eq!([pages.read::<u32>(0), pages.read(4)], [0, cpu]);
            });
        });
        child.expect_success();
        assert_eq!(pages.read::<u32>(0), 0);
        sys::pin(&[1]).expect("CPU 1 is online");
        assert_eq!(pages.read::<u32>(0), 1, "the parent's goes on");
    });
}

/// Where words of processes that exec are.
const FIXED: usize = 0x1000_0000_0000;
const AFTER_EXEC: &str = "--after-exec";
const SETUID: &str = "/cpupeek-setuid";
const POISON: u32 = 0xa5a5_a5a5;

/// If this program was started by [`exec_of_a_setuid_program`]: checks that nothing is written where
/// the word was.
pub fn after_exec() -> bool {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(AFTER_EXEC) {
        return false;
    }
    let fd = arguments.next().and_then(|text| text.parse().ok());
    let device = Device::from(sys::owned(fd.expect("a descriptor")));
    assert_eq!(sys::geteuid(), 0, "setuid");
    sys::map_page_at(FIXED);
    sys::set_word_at(FIXED, POISON);
    let mut random = Random::new(1);
    roam(&mut random, 60, |_| {
        assert_eq!(sys::word_at(FIXED), POISON, "written to a setuid program");
    });
    assert_eq!(clear(&device), Err(Errno(libc::ENOENT)));
    assert_eq!(set(&device, FIXED), Ok(()), "it may have one of its own");
    roam(&mut random, 50, |cpu| assert_eq!(sys::word_at(FIXED), cpu));
    true
}

fn exec_of_a_setuid_program(env: &Env) {
    with_words(env, || {
        std::fs::copy("/proc/self/exe", SETUID).expect("room for a copy");
        sys::set_mode(SETUID, 0o4755);
        sys::set_mode(crate::device::PATH, 0o666);
        for cpu in guest::online() {
            let child = sys::fork(|| {
                sys::become_user(1000);
                let device = Device::open();
                sys::map_page_at(FIXED);
                assert_eq!(set(&device, FIXED), Ok(()));
                sys::pin(&[cpu]).expect("online");
                assert_eq!(sys::word_at(FIXED), cpu);
                sys::pin(&guest::online()).expect("online");
                let fd = sys::inheritable(&device.fd());
                let arguments = [AFTER_EXEC.into(), fd.to_string()];
                panic!("exec: {:?}", sys::exec(SETUID, &arguments));
            });
            child.expect_success();
        }
        std::fs::remove_file(SETUID).expect("it is there");
    });
}

/// Processes whose threads have words and are moved all the time are killed at any moment.
fn killed_as_they_move(env: &Env) {
    with_words(env, || {
        let mut random = Random::new(env.seed);
        let cpus = guest::online();
        env.repeat(300, || {
            let victim = sys::fork(|| {
                let device = Device::open();
                thread::scope(|scope| {
                    for seed in 0..3 {
                        let device = &device;
                        scope.spawn(move || {
                            let word = AtomicU32::new(NO_CPU);
                            assert_eq!(set(device, address(&word)), Ok(()));
                            let mut random = Random::new(seed);
                            roam(&mut random, u32::MAX, |cpu| {
                                assert_eq!(word.load(SeqCst), cpu);
                            });
                        });
                    }
                });
            });
            for _ in 0..random.below(20) {
                let _ = sys::pin_thread(victim.0, random.choose(&cpus));
            }
            victim.kill(libc::SIGKILL);
            assert_eq!(victim.wait(), Exit::Signal(libc::SIGKILL));
        });
    });
}

fn closed_by_another_thread(env: &Env) {
    with_words(env, || {
        for seed in 0..50 {
            let word = AtomicU32::new(NO_CPU);
            let device = Device::open();
            let closed = AtomicBool::new(false);
            thread::scope(|scope| {
                let (word, closed) = (&word, &closed);
                let (tell, hear) = std::sync::mpsc::channel();
                let shared = &device;
                let owner = scope.spawn(move || {
                    assert_eq!(set(shared, address(word)), Ok(()));
                    tell.send(()).expect("somebody listens");
                    let mut random = Random::new(seed);
                    while !closed.load(SeqCst) {
                        roam(&mut random, 1, |_| ());
                    }
                    // It notices when it is scheduled next.
                    roam(&mut random, 50, |_| ());
                    thread::sleep(Duration::from_millis(1));
                    assert_eq!(word.load(SeqCst), NO_CPU);
                });
                hear.recv().expect("the owner lives");
                sys::close(device.fd());
                closed.store(true, SeqCst);
                owner.join().expect("the owner's checks");
            });
            // Its number is closed already.
            std::mem::forget(device);
        }
    });
}

fn closed_by_the_thread(env: &Env) {
    with_words(env, || {
        let cpus = guest::online();
        for n in 0..100 {
            let word = AtomicU32::new(NO_CPU);
            let device = Device::open();
            // It could move between two looks.
            sys::pin(&[cpus[n % cpus.len()]]).expect("it is online");
            assert_eq!(set(&device, address(&word)), Ok(()));
            assert_eq!(
                device.msr(SELF, crate::device::TSC_AUX) & 0xfff,
                word.load(SeqCst).into()
            );
            drop(device);
            assert_eq!(word.load(SeqCst), NO_CPU);
        }
    });
}

fn unmapped_and_mapped_again(env: &Env) {
    with_words(env, || {
        let device = Device::open();
        let mut random = Random::new(env.seed);
        for n in 1..50 {
            sys::map_page_at(FIXED);
            sys::pin(&[0]).expect("CPU 0 is online");
            assert_eq!(set(&device, FIXED), Ok(()));
            sys::unmap_page_at(FIXED);
            sys::pin(&[1]).expect("CPU 1 is online");
            assert_eq!(attribute("cpu_word_faults"), n);
            sys::map_page_at(FIXED);
            roam(&mut random, 10, |_| assert_eq!(sys::word_at(FIXED), 0));
            assert_eq!(clear(&device), Err(Errno(libc::ENOENT)), "it has ended");
            // Pages that were not there are no fault, as long as they may be.
            assert_eq!(set(&device, FIXED + 8), Ok(()));
            sys::unmap_page_at(FIXED);
            sys::map_page_at(FIXED);
            roam(&mut random, 10, |_| ());
            sys::pin(&[0]).expect("CPU 0 is online");
            assert_eq!(sys::word_at(FIXED + 8), 0, "moved");
            sys::pin(&[1]).expect("CPU 1 is online");
            assert_eq!(sys::word_at(FIXED + 8), 1, "moved");
            assert_eq!(clear(&device), Ok(()));
            sys::unmap_page_at(FIXED);
        }
    });
}

fn it_keeps_the_module(env: &Env) {
    let in_use = Err(Errno(libc::EWOULDBLOCK));
    with_words(env, || {
        let word = AtomicU32::new(NO_CPU);
        let (start, go) = sys::pipe();
        let (tell, hear) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            let word = &word;
            let owner = scope.spawn(move || {
                let device = Device::open();
                assert_eq!(set(&device, address(word)), Ok(()));
                tell.send(device.fd()).expect("somebody listens");
                assert!(sys::readable(&start, 60_000), "nobody says go");
                std::mem::forget(device);
            });
            let fd = hear.recv().expect("the owner lives");
            assert_eq!(guest::module_users(), 2, "the descriptor, and the word");
            sys::close(fd);
            // The owner sleeps, and so has not noticed.
            guest::wait_until("the descriptor is closed", || guest::module_users() == 1);
            assert_eq!(attribute("cpu_words"), 1);
            assert_eq!(sys::unload_module(MODULE), in_use, "the word keeps it");
            sys::send_byte(&go);
            owner.join().expect("the owner's checks");
        });
        expect_none_left();
    });
}
