// SPDX-License-Identifier: GPL-2.0

//! Waiting for a CPU that does not answer: time limits, and fatal signals.

use std::time::Instant;

use super::blocked::{is_waiting, wait_until_waiting, with_blocked_cpu, Blocked};
use super::{tests, Env};
use crate::device::{cpupeek_batch, cpupeek_tsc_pair, header, uapi, Device, Op};
use crate::device::{OP_SIZE, POISON, SELF, TSC_AUX};
use crate::guest::{self, attribute};
use crate::hold;
use crate::sys::{self, Exit, Pages};
use crate::util::Random;

tests! {
    "wait";
    read_times_out: [Hold],
    batch_times_out_in_part: [Hold],
    batch_on_blocked_cpu_alone_times_out: [Hold],
    timeout_takes_what_is_there_with_tsc_pairs: [Hold],
    healthy_cpus_get_through_many_rounds: [Hold],
    own_cpu_gets_through_many_rounds: [Hold],
    rounds_end_with_the_time: [Cpus],
    without_time_limit_it_waits: [Hold],
    forced_ways_of_waiting: [Hold],
    timed_out_descriptor_goes_on: [Hold],
    late_answers_go_nowhere: [Hold],
    cpu_that_pauses_is_read_in_the_end: [Hold],
    killed_readers_die_at_once: [Hold],
    killed_at_any_moment: [Hold],
}

fn read_times_out(_: &Env) {
    with_blocked_cpu(|blocked| {
        let device = Device::open();
        guest::set_read_timeout_ms(30);
        let (timeouts, abandoned) = (attribute("timeouts"), attribute("abandoned"));
        for (i, asked) in (1..).zip([Op::msr(blocked.cpu, TSC_AUX), Op::cpuid(blocked.cpu, 0, 0)]) {
            device.read(asked).expect_error(&asked, libc::ETIME);
            assert!(blocked.is_held(), "nothing was proven: the CPU was let go");
            assert_eq!(attribute("timeouts"), timeouts + i);
            assert_eq!(attribute("abandoned"), abandoned + i);
        }
        blocked.let_go();
        assert_eq!(device.msr(blocked.cpu, TSC_AUX) & 0xfff, blocked.cpu.into());
    });
}

fn timed(timeout_ms: u32) -> cpupeek_batch {
    cpupeek_batch {
        timeout_ms,
        ..header(0)
    }
}

/// Enough for healthy CPUs to answer, even if the host has other things to do than to run them.
const PATIENCE_MS: u32 = 500;

/// `per_cpu` operations on each of `cpus`, in turn.
fn ops_on(cpus: &[u32], per_cpu: usize) -> Vec<Op> {
    (0..per_cpu * cpus.len())
        .map(|i| Op::msr(cpus[i % cpus.len()], TSC_AUX))
        .collect()
}

/// Checks that all but the blocked CPU have answered.
#[track_caller]
fn expect_healthy_answers(blocked: &Blocked, ops: &[Op], answers: &[Op]) {
    for (asked, op) in ops.iter().zip(answers) {
        if asked.cpu == blocked.cpu {
            op.expect_error(asked, libc::ETIME);
        } else {
            op.expect_answer(asked);
            assert_eq!(op.value() & 0xfff, asked.cpu.into());
        }
    }
}

fn batch_times_out_in_part(_: &Env) {
    with_blocked_cpu(|blocked| {
        let device = Device::open();
        let ops = ops_on(&guest::online(), 5);
        let timeouts = attribute("timeouts");
        let answers = device.batch_with(timed(PATIENCE_MS), &ops);
        assert!(blocked.is_held(), "nothing was proven: the CPU was let go");
        expect_healthy_answers(blocked, &ops, &answers);
        assert_eq!(attribute("timeouts"), timeouts + 5);
    });
}

fn batch_on_blocked_cpu_alone_times_out(_: &Env) {
    with_blocked_cpu(|blocked| {
        let device = Device::open();
        let ops = ops_on(&[blocked.cpu], 200);
        for timeout_ms in [1, 10, 50] {
            let answers = device.batch_with(timed(timeout_ms), &ops);
            assert!(blocked.is_held(), "nothing was proven: the CPU was let go");
            expect_healthy_answers(blocked, &ops, &answers);
        }
    });
}

fn timeout_takes_what_is_there_with_tsc_pairs(_: &Env) {
    with_blocked_cpu(|blocked| {
        let device = Device::open();
        let pages = Pages::new(1, false);
        pages.fill(POISON);
        let cpus = guest::online();
        let ops = ops_on(&cpus, 3);
        let header = cpupeek_batch {
            flags: uapi::CPUPEEK_BATCH_TSC_PAIR,
            tsc: pages.address(0) as u64,
            ..timed(PATIENCE_MS)
        };
        let answers = device.batch_with(header, &ops);
        assert!(blocked.is_held(), "nothing was proven: the CPU was let go");
        expect_healthy_answers(blocked, &ops, &answers);
        for cpu in cpus {
            let pair: cpupeek_tsc_pair = pages.read(cpu as usize * size_of::<cpupeek_tsc_pair>());
            if cpu == blocked.cpu {
                assert_eq!((pair.start, pair.end), (0, 0), "of the blocked CPU");
            } else {
                for op in answers.iter().filter(|op| op.cpu == cpu) {
                    assert!(0 < pair.start && pair.start <= op.tsc && op.tsc <= pair.end);
                }
            }
        }
    });
}

fn healthy_cpus_get_through_many_rounds(_: &Env) {
    with_blocked_cpu(|blocked| {
        let device = Device::open();
        // Far more rounds than one, and little against the time limit, which is not far from that of
        // holding the CPU.
        let ops = ops_on(&guest::online(), 640);
        let rounds = attribute("rounds");
        let start = Instant::now();
        let answers = device.batch_with(timed(7000), &ops);
        println!(
            "{} rounds in {:?}",
            attribute("rounds") - rounds,
            start.elapsed()
        );
        for cpu in guest::online() {
            let done = answers.iter().filter(|op| op.cpu == cpu && op.status == 0);
            let tscs: Vec<u64> = done.map(|op| op.tsc).collect();
            println!(
                "CPU {cpu}: {} answers, {:?}",
                tscs.len(),
                tscs.iter().min().zip(tscs.iter().max()).map(|(a, b)| b - a)
            );
        }
        assert!(blocked.is_held(), "nothing was proven: the CPU was let go");
        expect_healthy_answers(blocked, &ops, &answers);
    });
}

fn own_cpu_gets_through_many_rounds(_: &Env) {
    with_blocked_cpu(|blocked| {
        let own = blocked.others[0];
        sys::pin(&[own]).unwrap();
        let device = Device::open();
        let ops = ops_on(&[blocked.cpu, own], 640);
        let answers = device.batch_with(timed(1500), &ops);
        assert!(blocked.is_held(), "nothing was proven: the CPU was let go");
        expect_healthy_answers(blocked, &ops, &answers);
    });
}

fn rounds_end_with_the_time(_: &Env) {
    let device = Device::open();
    let cpus = guest::online();
    let count = device.info().max_batch_ops as usize;
    let ops = ops_on(&cpus, count / cpus.len());
    let mut answers = device.batch_with(timed(1), &ops);
    // Each CPU has answered as far as it came, and no further.
    for &cpu in &cpus {
        let mut ended = false;
        let of_cpu = ops
            .iter()
            .zip(&answers)
            .filter(|(asked, _)| asked.cpu == cpu);
        for (asked, op) in of_cpu {
            ended |= op.status != 0;
            if ended {
                op.expect_error(asked, libc::ETIME);
            } else {
                op.expect_answer(asked);
            }
        }
    }
    answers = device.batch_with(timed(60_000), &ops);
    for (asked, op) in ops.iter().zip(&answers) {
        op.expect_answer(asked);
    }
}

fn without_time_limit_it_waits(_: &Env) {
    with_blocked_cpu(|blocked| {
        // READ's own limit is not for batches.
        guest::set_read_timeout_ms(1);
        let ops = ops_on(&guest::online(), 3);
        let child = sys::fork(|| {
            let answers = Device::open().batch(&ops);
            for (asked, op) in ops.iter().zip(&answers) {
                op.expect_answer(asked);
                assert_eq!(op.value() & 0xfff, asked.cpu.into());
            }
        });
        wait_until_waiting(child);
        blocked.linger();
        assert!(is_waiting(child), "it has given up");
        assert_eq!(child.try_wait(), None);
        assert!(blocked.is_held(), "nothing was proven: the CPU was let go");
        blocked.let_go();
        child.expect_success();
    });
}

fn forced_ways_of_waiting(_: &Env) {
    with_blocked_cpu(|blocked| {
        let device = Device::open();
        let ops = ops_on(&guest::online(), 2);
        let flags = [uapi::CPUPEEK_BATCH_SLEEP, uapi::CPUPEEK_BATCH_SPIN];
        for flags in flags {
            let header = cpupeek_batch {
                flags,
                ..timed(PATIENCE_MS)
            };
            let answers = device.batch_with(header, &ops);
            assert!(blocked.is_held(), "nothing was proven: the CPU was let go");
            expect_healthy_answers(blocked, &ops, &answers);
        }
        blocked.let_go();
        for flags in flags {
            let header = cpupeek_batch {
                flags,
                ..timed(60_000)
            };
            for (asked, op) in ops.iter().zip(device.batch_with(header, &ops)) {
                op.expect_answer(asked);
            }
        }
    });
}

fn timed_out_descriptor_goes_on(_: &Env) {
    with_blocked_cpu(|blocked| {
        sys::pin(&blocked.others[..1]).unwrap();
        let device = Device::open();
        guest::set_read_timeout_ms(5);
        for round in 0..30 {
            let asked = Op::msr(blocked.cpu, TSC_AUX);
            device.read(asked).expect_error(&asked, libc::ETIME);
            let healthy = blocked.others[round % blocked.others.len()];
            let ops = ops_on(&[healthy, blocked.cpu, SELF], 1 + round);
            let answers = device.batch_with(timed(1), &ops);
            for (asked, op) in ops.iter().zip(&answers) {
                if asked.cpu == blocked.cpu {
                    op.expect_error(asked, libc::ETIME);
                }
            }
            // For the others there was time, or not; but this CPU does one at least. With two CPUs it is
            // the healthy one too.
            let here = blocked.others[0];
            let mut own = ops.iter().zip(&answers);
            assert!(own
                .any(|(asked, op)| { (asked.cpu == SELF || asked.cpu == here) && op.status == 0 }));
        }
        assert!(blocked.is_held(), "nothing was proven: the CPU was let go");
    });
}

fn late_answers_go_nowhere(_: &Env) {
    with_blocked_cpu(|blocked| {
        let device = Device::open();
        let count = 64;
        let pages = Pages::new(1, false);
        let headers = Pages::new(1, false);
        for i in 0..count {
            pages.write(i * OP_SIZE, Op::msr(blocked.cpu, TSC_AUX));
        }
        let header = cpupeek_batch {
            ops: pages.address(0) as u64,
            ..timed(10)
        };
        let header = cpupeek_batch {
            nr_ops: count as u32,
            ..header
        };
        assert_eq!(device.batch_in(&headers, 0, header), Ok(()));
        assert!(blocked.is_held(), "nothing was proven: the CPU was let go");
        let before = pages.bytes(0, pages.len());
        blocked.let_go();
        // This one is queued behind the late one.
        device.msr(blocked.cpu, TSC_AUX);
        assert_eq!(pages.bytes(0, pages.len()), before);
    });
}

fn cpu_that_pauses_is_read_in_the_end(env: &Env) {
    with_blocked_cpu(|blocked| {
        blocked.let_go();
        hold::start(blocked.cpu, 3000, 1000);
        let stretches = hold::stretches(blocked.cpu);
        let device = Device::open();
        guest::set_read_timeout_ms(60_000);
        let ops = ops_on(&guest::online(), 100);
        let start = Instant::now();
        while start.elapsed() < env.soak / 4 {
            assert_eq!(device.msr(blocked.cpu, TSC_AUX) & 0xfff, blocked.cpu.into());
            for (asked, op) in ops.iter().zip(device.batch(&ops)) {
                op.expect_answer(asked);
                assert_eq!(op.value() & 0xfff, asked.cpu.into());
            }
        }
        assert!(hold::stretches(blocked.cpu) > stretches, "it was not held");
    });
}

fn killed_readers_die_at_once(_: &Env) {
    with_blocked_cpu(|blocked| {
        guest::set_read_timeout_ms(60_000);
        let ops = ops_on(&guest::online(), 70);
        let read = || {
            Device::open().msr(blocked.cpu, TSC_AUX);
        };
        let batch = || drop(Device::open().batch(&ops));
        for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGINT] {
            for child in [sys::fork(read), sys::fork(batch)] {
                wait_until_waiting(child);
                child.kill(signal);
                assert_eq!(child.wait(), Exit::Signal(signal));
            }
        }
        assert!(blocked.is_held(), "nothing was proven: the CPU was let go");
    });
}

/// Readers of a CPU that comes and goes, killed as they please.
fn killed_at_any_moment(env: &Env) {
    with_blocked_cpu(|blocked| {
        blocked.let_go();
        hold::start(blocked.cpu, 2000, 500);
        let mut random = Random::new(env.seed);
        let ops = ops_on(&guest::online(), 70);
        env.repeat(1000, || {
            let child = sys::fork(|| {
                let device = Device::open();
                loop {
                    device.batch(&ops);
                    device.read(Op::msr(blocked.cpu, TSC_AUX));
                }
            });
            let delay = std::time::Duration::from_micros(random.below(8000));
            std::thread::sleep(delay);
            child.kill(libc::SIGKILL);
            assert_eq!(child.wait(), Exit::Signal(libc::SIGKILL));
        });
        hold::stop();
        guest::wait_until("no descriptor is left", || guest::module_users() == 0);
        for (asked, op) in ops.iter().zip(Device::open().batch(&ops)) {
            op.expect_answer(asked);
        }
    });
}
