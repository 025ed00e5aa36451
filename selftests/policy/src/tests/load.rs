// SPDX-License-Identifier: GPL-2.0

//! Lists are replaced while others read.
//!
//! What is promised: each operation is decided by one list, the one before or the one after; no
//! operation by half of one. A batch is not decided as one, so that two of its operations may be
//! decided by different lists.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use cpupeek_selftests::device::{Device, Op, TSC_AUX};
use cpupeek_selftests::guest;
use cpupeek_selftests::sys::{self, Errno};
use cpupeek_selftests::tests::Env;
use cpupeek_selftests::util::Random;

use super::tests;
use crate::known;
use crate::policy::{allow, get_allow, list, marked, range, set_allow, Narrow, Plan, Range};
use crate::who::{as_user, outcome};

tests! {
    "load";
    no_read_sees_half_a_list: [],
    lists_are_got_whole: [],
    narrowing_under_load: [],
}

/// On every list.
const ALWAYS: [u32; 3] = [TSC_AUX, 0x277, 0x1a0];

/// Lists that have something in common, and are else of all sizes.
fn some_list(random: &mut Random) -> Vec<Range> {
    let mut ranges = list(&ALWAYS);
    for _ in 0..random.below(4) * random.below(60) {
        let lo = 0x2000_0000 + random.below(0x4_0000) as u32;
        ranges.push(marked(lo, lo + random.below(3) as u32));
    }
    // In any order.
    for i in (1..ranges.len()).rev() {
        ranges.swap(i, random.below(i as u64 + 1) as usize);
    }
    ranges
}

/// Replaces the list in eight threads while `read` runs.
fn while_lists_change(env: &Env, read: impl FnOnce()) -> u64 {
    let root = Device::open();
    let stop = AtomicBool::new(false);
    let replaced = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (root, stop, replaced) = (&root, &stop, &replaced);
            let mut random = Random::new(env.seed + thread);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let ranges = some_list(&mut random);
                    set_allow(root, &ranges).expect("a good list");
                    replaced.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        read();
        stop.store(true, Ordering::Relaxed);
    });
    replaced.into_inner()
}

fn no_read_sees_half_a_list(env: &Env) {
    allow(&list(&ALWAYS));
    crate::who::open_to_all();
    // The readers are processes: a user's, and none of the writers' threads.
    let (ready, tell) = sys::pipe();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            sys::fork(|| {
                sys::become_user(crate::who::USER);
                let device = Device::open();
                sys::send_byte(&tell);
                read_for_a_while(&device, env);
            })
        })
        .collect();
    assert!(sys::readable(&ready, 60_000));
    let replaced = while_lists_change(env, || {
        readers.into_iter().for_each(sys::Child::expect_success);
    });
    println!("{replaced} lists");
    assert!(replaced > 8);
}

fn read_for_a_while(device: &Device, env: &Env) {
    let always: Vec<Op> = ALWAYS.iter().map(|&reg| Op::msr(0, reg)).collect();
    let never: Vec<Op> = known::never().iter().map(|&reg| Op::msr(0, reg)).collect();
    let never_now = [0x278, 0xe8, 0x1_0000, 0x3000_0000].map(|reg| Op::msr(0, reg));
    let plan = Plan::new(device, &always);
    let start = Instant::now();
    let mut rounds = 0;
    while start.elapsed() < env.soak {
        for op in device.batch(&always) {
            assert_eq!(op.result(), Ok(()), "on every list: {op:?}");
        }
        for result in plan.run() {
            assert_eq!(outcome(&result), Ok(()), "on every list");
        }
        for asked in never.iter().skip(rounds % 7).step_by(7).chain(&never_now) {
            device.read(*asked).expect_error(asked, libc::EACCES);
        }
        for (asked, op) in never.iter().zip(device.batch(&never)) {
            op.expect_error(asked, libc::EACCES);
        }
        rounds += 1;
    }
    println!("{rounds} rounds of reading");
}

fn lists_are_got_whole(env: &Env) {
    allow(&list(&ALWAYS));
    let device = Device::open();
    while_lists_change(env, || {
        let start = Instant::now();
        let mut last = 0;
        while start.elapsed() < env.soak / 2 {
            let (ranges, generation) = get_allow(&device);
            for reg in ALWAYS {
                let times = ranges.iter().filter(|r| r.lo == reg && r.hi == reg).count();
                assert_eq!(times, 1, "{reg:#x} is on every list once");
            }
            assert!(ranges.iter().all(|r| r.flags == 1 && r.lo <= r.hi));
            assert!(generation >= last, "numbers only rise");
            last = generation;
            guest::attribute("allow_ranges");
        }
    });
}

fn narrowing_under_load(env: &Env) {
    as_user(|| {
        let start = Instant::now();
        while start.elapsed() < env.soak / 5 {
            let device = Device::open();
            std::thread::scope(|scope| {
                for i in 0..4 {
                    let device = &device;
                    scope.spawn(move || {
                        let reg = ALWAYS[i % 3];
                        let to = Narrow::to_msrs(&[range(reg, reg), range(TSC_AUX, TSC_AUX)]);
                        to.apply(device).expect("NARROW");
                        let other = Op::msr(0, 0xcd);
                        device.read(other).expect_error(&other, libc::EACCES);
                    });
                }
            });
            assert_eq!(device.read(Op::msr(0, TSC_AUX)).result(), Ok(()));
            for reg in [0x277, 0x1a0] {
                let result = device.read(Op::msr(0, reg)).result();
                assert_eq!(result, Err(Errno(libc::EACCES)), "{reg:#x}");
            }
        }
    });
}
