// SPDX-License-Identifier: GPL-2.0

//! Several users of one descriptor.

use std::time::Instant;

use super::{tests, Env};
use crate::device::{batch_on, header, Device, Op, SELF, TSC_AUX};
use crate::guest;
use crate::sys;
use crate::util::Random;

tests! {
    "share";
    threads_on_one_descriptor: [],
    processes_on_one_descriptor: [],
    descriptor_sent_to_another_process: [],
    descriptor_closed_under_a_reader: [Cpus],
    descriptors_of_their_own: [],
}

/// Reads random CPUs for a while, singly and in batches, and checks that each answer is the one to
/// its own question.
fn read_for_a_while(device: &Device, seed: u64, env: &Env) {
    let mut random = Random::new(seed);
    let cpus = guest::online();
    let start = Instant::now();
    while start.elapsed() < env.soak / 4 {
        let cpu = random.choose(&cpus);
        assert_eq!(device.msr(cpu, TSC_AUX) & 0xfff, cpu.into());
        let count = random.below(100);
        let ops: Vec<Op> = (0..count)
            .map(|_| match random.below(4) {
                0 => Op::cpuid(SELF, 0, 0),
                _ => Op::msr(random.choose(&cpus), TSC_AUX),
            })
            .collect();
        for (asked, op) in ops.iter().zip(device.batch(&ops)) {
            op.expect_answer(asked);
            if asked.reg == TSC_AUX {
                assert_eq!(op.value() & 0xfff, asked.cpu.into(), "{op:?}");
            }
        }
    }
}

fn threads_on_one_descriptor(env: &Env) {
    let device = Device::open();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let device = &device;
            scope.spawn(move || read_for_a_while(device, env.seed + thread, env));
        }
    });
}

fn in_children(count: u64, read: impl Fn(u64)) {
    let children: Vec<_> = (0..count).map(|i| sys::fork(|| read(i))).collect();
    children.into_iter().for_each(sys::Child::expect_success);
}

fn processes_on_one_descriptor(env: &Env) {
    let device = Device::open();
    in_children(4, |i| read_for_a_while(&device, env.seed + i, env));
}

fn descriptors_of_their_own(env: &Env) {
    in_children(4, |i| read_for_a_while(&Device::open(), env.seed + i, env));
}

fn descriptor_sent_to_another_process(env: &Env) {
    let (here, there) = sys::socket_pair();
    let child = sys::fork(|| {
        let device = Device::from(sys::receive_fd(&there));
        read_for_a_while(&device, env.seed, env);
    });
    let device = Device::open();
    sys::send_fd(&here, device.fd());
    read_for_a_while(&device, env.seed + 1, env);
    drop(device);
    child.expect_success();
}

/// The last descriptor of a file is closed while a command runs on it.
fn descriptor_closed_under_a_reader(env: &Env) {
    let start = Instant::now();
    while start.elapsed() < env.soak / 5 {
        let device = Device::open();
        let ops: Vec<Op> = (0..2000)
            .map(|i| Op::msr(i % 2, TSC_AUX))
            .filter(|op| guest::online().contains(&op.cpu))
            .collect();
        let fd = device.fd();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut answers = ops.clone();
                let mut calls = 0;
                while batch_on(fd, header(0), &mut answers).is_ok() {
                    for (asked, op) in ops.iter().zip(&answers) {
                        op.expect_answer(asked);
                    }
                    calls += 1;
                }
                calls
            });
            let calls = guest::attribute("calls");
            guest::wait_until("the reader reads", || guest::attribute("calls") > calls);
            drop(device);
            reader.join().expect("panics end the process");
        });
        guest::wait_until("the module is free", || guest::module_users() == 0);
    }
}
