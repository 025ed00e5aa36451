// SPDX-License-Identifier: GPL-2.0

//! CPUs that go and come as others read them.

use std::sync::atomic::{AtomicBool, Ordering};

use super::read::pluggable_cpu;
use super::{tests, Env};
use crate::device::{cpupeek_batch, header, uapi, Device, Op, SELF, TSC_AUX};
use crate::guest;
use crate::sys;
use crate::util::Random;

tests! {
    "hotplug";
    reads_of_a_cpu_that_comes_and_goes: [Hotplug],
    batches_over_cpus_of_which_one_comes_and_goes: [Hotplug],
    long_batches_on_a_cpu_that_goes: [Hotplug],
    readers_on_the_cpu_that_goes: [Hotplug],
}

/// Takes a CPU offline and online again and again, as `readers` threads call `read`.
fn while_toggling(env: &Env, cpu: u32, readers: u64, read: impl Fn(u64) + Sync) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..readers {
            let (over, read) = (&over, &read);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    read(reader);
                }
            });
        }
        env.repeat(100, || {
            guest::set_online(cpu, false);
            guest::set_online(cpu, true);
        });
        over.store(true, Ordering::Relaxed);
    });
}

/// Checks an answer of a CPU that may have been there or not.
#[track_caller]
fn expect_answer_or_loss(asked: &Op, op: &Op) {
    if op.status == 0 {
        op.expect_answer(asked);
        assert_eq!(op.value() & 0xfff, asked.cpu.into(), "{op:?}");
    } else {
        op.expect_error(asked, libc::ENXIO);
    }
}

fn reads_of_a_cpu_that_comes_and_goes(env: &Env) {
    let cpu = pluggable_cpu();
    let device = Device::open();
    while_toggling(env, cpu, 3, |_| {
        let asked = Op::msr(cpu, TSC_AUX);
        expect_answer_or_loss(&asked, &device.read(asked));
        let asked = Op::msr(0, TSC_AUX);
        device.read(asked).expect_answer(&asked);
    });
}

fn batches_over_cpus_of_which_one_comes_and_goes(env: &Env) {
    let cpu = pluggable_cpu();
    let cpus = guest::online();
    let flags = [0, uapi::CPUPEEK_BATCH_SLEEP, uapi::CPUPEEK_BATCH_SPIN];
    let device = Device::open();
    while_toggling(env, cpu, 3, |reader| {
        let ops: Vec<Op> = (0..300)
            .map(|i| Op::msr(cpus[i % cpus.len()], TSC_AUX))
            .collect();
        let header = cpupeek_batch {
            flags: flags[reader as usize],
            ..header(0)
        };
        for (asked, op) in ops.iter().zip(device.batch_with(header, &ops)) {
            if asked.cpu == cpu {
                expect_answer_or_loss(asked, &op);
            } else {
                op.expect_answer(asked);
                assert_eq!(op.value() & 0xfff, asked.cpu.into());
            }
        }
    });
}

/// What a CPU has answered before it went stays; the rest says that it is gone.
fn long_batches_on_a_cpu_that_goes(env: &Env) {
    let cpu = pluggable_cpu();
    while_toggling(env, cpu, 1, |_| {
        let device = Device::open();
        let ops = vec![Op::msr(cpu, TSC_AUX); 20_000];
        let answers = device.batch(&ops);
        let mut gone = false;
        for (asked, op) in ops.iter().zip(&answers) {
            gone |= op.status != 0;
            if gone {
                op.expect_error(asked, libc::ENXIO);
            } else {
                expect_answer_or_loss(asked, op);
            }
        }
    });
}

/// The scheduler moves the readers away, also between planning and calling.
fn readers_on_the_cpu_that_goes(env: &Env) {
    let cpu = pluggable_cpu();
    let cpus = guest::online();
    let device = Device::open();
    while_toggling(env, cpu, 3, |reader| {
        // Fails while the CPU is away, which moves nobody.
        let _ = sys::pin(&[cpu]);
        let mut random = Random::new(env.seed + reader);
        let ops: Vec<Op> = (0..70)
            .map(|_| match random.below(3) {
                0 => Op::msr(SELF, TSC_AUX),
                _ => Op::msr(random.choose(&cpus), TSC_AUX),
            })
            .collect();
        for (asked, op) in ops.iter().zip(device.batch(&ops)) {
            let asked = Op::msr(op.cpu, asked.reg);
            expect_answer_or_loss(&asked, &op);
        }
        let op = device.read(Op::msr(SELF, TSC_AUX));
        op.expect_answer(&Op::msr(op.cpu, TSC_AUX));
        assert_eq!(op.value() & 0xfff, op.cpu.into());
    });
}
