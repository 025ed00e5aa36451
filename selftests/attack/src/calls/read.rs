// SPDX-License-Identifier: GPL-2.0

//! Commands that read, and what they need.

use std::os::fd::{FromRawFd, OwnedFd};

use cpupeek_selftests::device::{self, uapi, Op, OP_SIZE, TSC_AUX};
use cpupeek_selftests::plan::{self, RESULT_SIZE};

use super::{check_answer, none, plan_ops, Call, On, Scene, World};
use crate::image::Image;

fn some_op(scene: &mut Scene<'_>) -> Op {
    let cpu = scene.random.choose(scene.cpus);
    let cpu = if scene.random.below(4) == 0 {
        device::SELF
    } else {
        cpu
    };
    match scene.random.below(4) {
        0 => Op::cpuid(cpu, 1, 0),
        1 => Op::cpuid(cpu, 0, 0),
        _ => Op::msr(cpu, TSC_AUX),
    }
}

fn fill_info(image: &mut Image, _: &mut Scene<'_>) {
    image.part(size_of::<device::cpupeek_info>());
}

fn check_info(image: &Image, _: &World, _: &Scene<'_>) {
    let info: device::cpupeek_info = image.get(0, 0);
    assert_eq!(info.size as usize, size_of_val(&info));
    assert_eq!(info.max_round_ops, 64);
}

/// The operation is kept before the structure's pages, where a check finds it again: in part 1.
fn fill_read(image: &mut Image, scene: &mut Scene<'_>) {
    let mut op = some_op(scene);
    if scene.strict {
        // Another CPU than the caller's, which takes memory and an interrupt.
        op.cpu = *scene.cpus.iter().max().expect("there is a CPU");
    }
    let place = image.part(OP_SIZE);
    image.put(place, 0, op);
    let asked = image.part(OP_SIZE);
    image.put(asked, 0, op);
}

fn check_read(image: &Image, _: &World, scene: &Scene<'_>) {
    check_answer(&image.get(1, 0), &image.get(0, 0), scene.strict);
}

const BATCH_OPS: usize = 9;

fn fill_batch(image: &mut Image, scene: &mut Scene<'_>) {
    let head = image.part(size_of::<device::cpupeek_batch>());
    let ops = image.part(BATCH_OPS * OP_SIZE);
    let highest = *scene.cpus.iter().max().expect("there is a CPU");
    let mut asked: Vec<Op> = (0..BATCH_OPS).map(|_| some_op(scene)).collect();
    // So that the last byte of everything is used.
    asked[0].cpu = highest;
    for (i, op) in asked.iter().enumerate() {
        image.put(ops, i * OP_SIZE, *op);
    }
    let with_tsc = scene.strict || scene.random.below(2) == 0;
    let manner = scene
        .random
        .choose(&[0, uapi::CPUPEEK_BATCH_SLEEP, uapi::CPUPEEK_BATCH_SPIN]);
    let tsc = image.part((highest as usize + 1) * size_of::<device::cpupeek_tsc_pair>());
    let header = device::cpupeek_batch {
        flags: manner
            | if with_tsc {
                uapi::CPUPEEK_BATCH_TSC_PAIR
            } else {
                0
            },
        timeout_ms: if scene.strict {
            0
        } else {
            scene.random.choose(&[0, 1, 100])
        },
        ops: image.address(ops) as u64,
        tsc: if with_tsc {
            image.address(tsc) as u64
        } else {
            0
        },
        ..device::header(BATCH_OPS)
    };
    image.put(head, 0, header);
    let copy = image.part(BATCH_OPS * OP_SIZE);
    for (i, op) in asked.iter().enumerate() {
        image.put(copy, i * OP_SIZE, *op);
    }
}

fn check_batch(image: &Image, _: &World, scene: &Scene<'_>) {
    for i in 0..BATCH_OPS {
        let at = i * OP_SIZE;
        check_answer(&image.get(3, at), &image.get(1, at), scene.strict);
    }
}

fn fill_prepare(image: &mut Image, scene: &mut Scene<'_>) {
    let head = image.part(size_of::<plan::cpupeek_prepare>());
    let ops = plan_ops(scene.cpus);
    let place = image.part(ops.len() * OP_SIZE);
    for (i, op) in ops.iter().enumerate() {
        image.put(place, i * OP_SIZE, *op);
    }
    let request = plan::cpupeek_prepare {
        ops: image.address(place) as u64,
        ..plan::request(&ops)
    };
    image.put(head, 0, request);
}

fn check_prepare(image: &Image, _: &World, _: &Scene<'_>) {
    let request: plan::cpupeek_prepare = image.get(0, 0);
    assert!(request.fd > 2, "a descriptor: {request:?}");
    // SAFETY: The descriptor is new, and nobody else's.
    drop(unsafe { OwnedFd::from_raw_fd(request.fd) });
}

fn fill_run(image: &mut Image, scene: &mut Scene<'_>) {
    let ops = plan_ops(scene.cpus);
    let head = image.part(size_of::<plan::cpupeek_run>());
    let results = image.part(ops.len() * RESULT_SIZE);
    let header = plan::cpupeek_run {
        size: size_of::<plan::cpupeek_run>() as u32,
        nr_results: ops.len() as u32,
        timeout_ms: if scene.strict {
            0
        } else {
            scene.random.choose(&[0, 1, 100])
        },
        results: image.address(results) as u64,
        ..Default::default()
    };
    image.put(head, 0, header);
}

fn check_run(image: &Image, world: &World, scene: &Scene<'_>) {
    for (i, op) in world.ops.iter().enumerate() {
        let answer = plan::answer(op, &image.get(1, i * RESULT_SIZE));
        check_answer(op, &answer, scene.strict);
    }
}

pub const CALLS: &[Call] = &[
    Call {
        name: "INFO",
        cmd: uapi::CPUPEEK_CONST_IOC_INFO,
        on: On::Device,
        ops: none,
        fill: fill_info,
        check: check_info,
        used: 1,
        privileged: false,
        lasting: false,
    },
    Call {
        name: "READ",
        cmd: uapi::CPUPEEK_CONST_IOC_READ,
        on: On::Device,
        ops: |_| 1,
        fill: fill_read,
        check: check_read,
        used: 1,
        privileged: false,
        lasting: false,
    },
    Call {
        name: "BATCH",
        cmd: uapi::CPUPEEK_CONST_IOC_BATCH,
        on: On::Device,
        ops: |_| BATCH_OPS as u64,
        fill: fill_batch,
        check: check_batch,
        used: 3,
        privileged: false,
        lasting: false,
    },
    Call {
        name: "PREPARE",
        cmd: uapi::CPUPEEK_CONST_IOC_PREPARE,
        on: On::Device,
        ops: none,
        fill: fill_prepare,
        check: check_prepare,
        used: 2,
        privileged: false,
        lasting: false,
    },
    Call {
        name: "RUN",
        cmd: uapi::CPUPEEK_CONST_IOC_RUN,
        on: On::Plan,
        ops: |image| image.get::<plan::cpupeek_run>(0, 0).nr_results.into(),
        fill: fill_run,
        check: check_run,
        used: 2,
        privileged: false,
        lasting: false,
    },
];
