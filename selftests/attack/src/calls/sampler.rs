// SPDX-License-Identifier: GPL-2.0

//! Samplers.

use std::os::fd::{FromRawFd, OwnedFd};

use cpupeek_selftests::device::{uapi, OP_SIZE};
use cpupeek_selftests::sampler::{self, changed, cpupeek_condition, cpupeek_watch};

use super::policy::fill_narrow;
use super::{none, plan_ops, Call, On, Scene, World};
use crate::image::Image;

fn fill(image: &mut Image, scene: &mut Scene<'_>) {
    let head = image.part(size_of::<uapi::cpupeek_sampler>());
    let ops = plan_ops(scene.cpus);
    let place = image.part(ops.len() * OP_SIZE);
    for (i, op) in ops.iter().enumerate() {
        image.put(place, i * OP_SIZE, *op);
    }
    let header = uapi::cpupeek_sampler {
        size: size_of::<uapi::cpupeek_sampler>() as u32,
        nr_ops: ops.len() as u32,
        op_size: OP_SIZE as u32,
        ops: image.address(place) as u64,
        interval_ns: 10_000_000,
        ring_samples: scene.random.choose(&[0, 4]),
        ..Default::default()
    };
    image.put(head, 0, header);
}

fn check(image: &Image, _: &World, _: &Scene<'_>) {
    let header: uapi::cpupeek_sampler = image.get(0, 0);
    assert!(header.fd > 2 && header.map_size > 0, "{header:?}");
    // SAFETY: The descriptor is new, and nobody else's.
    drop(unsafe { OwnedFd::from_raw_fd(header.fd) });
}

/// Of a plan's operations.
fn fill_of_plan(image: &mut Image, _: &mut Scene<'_>) {
    let head = image.part(size_of::<uapi::cpupeek_sampler>());
    let header = uapi::cpupeek_sampler {
        size: size_of::<uapi::cpupeek_sampler>() as u32,
        flags: sampler::EXACT,
        interval_ns: 5_000_000,
        ..Default::default()
    };
    image.put(head, 0, header);
}

/// Registers that never change.
fn fill_watch(image: &mut Image, scene: &mut Scene<'_>) {
    let conditions: Vec<cpupeek_condition> = scene.cpus.iter().map(|&cpu| changed(cpu)).collect();
    let head = image.part(size_of::<cpupeek_watch>());
    let place = image.part(size_of_val(&*conditions));
    for (i, condition) in conditions.iter().enumerate() {
        image.put(place, i * size_of::<cpupeek_condition>(), *condition);
    }
    let header = cpupeek_watch {
        size: size_of::<cpupeek_watch>() as u32,
        nr_conditions: conditions.len() as u32,
        conditions: image.address(place) as u64,
        ..Default::default()
    };
    image.put(head, 0, header);
}

fn check_watch(_: &Image, world: &World, scene: &Scene<'_>) {
    assert!(
        !scene.strict || world.sampler.poll(0) == 0,
        "nothing has changed"
    );
    assert_eq!(world.sampler.watch(&[]), Ok(()));
}

fn fill_stop(_: &mut Image, _: &mut Scene<'_>) {}

/// Every slot says so. While lists and affinities change, some registers or CPUs may have been refused
/// before.
fn check_stop(_: &Image, world: &World, scene: &Scene<'_>) {
    for index in 0..world.sampler.mapped.map.nr_slots {
        let sample = world.sampler.latest(index);
        if scene.strict {
            sample.expect_nothing(libc::ECANCELED);
        }
        let slot = &sample.slot;
        assert_eq!((slot.number, slot.tsc), (0, 0), "{sample:?}");
        let mut statuses = sample.results.iter().map(|result| result.status);
        let why = [-libc::ECANCELED, -libc::EACCES, -libc::EPERM];
        assert!(statuses.all(|status| why.contains(&status)), "{sample:?}");
    }
}

/// The first CPU's slot has lost the CPUID leaf.
fn check_narrowed(_: &Image, world: &World, scene: &Scene<'_>) {
    let sample = world.sampler.latest(0);
    assert!(
        !scene.strict || sample.results[1].status == -libc::EACCES,
        "{sample:?}"
    );
}

pub const CALLS: &[Call] = &[
    Call {
        name: "SAMPLER",
        cmd: sampler::SAMPLER,
        on: On::Device,
        ops: none,
        fill,
        check,
        used: 2,
        privileged: false,
        lasting: false,
    },
    Call {
        name: "SAMPLER_OF_PLAN",
        cmd: sampler::SAMPLER,
        on: On::Plan,
        ops: none,
        fill: fill_of_plan,
        check,
        used: 1,
        privileged: false,
        lasting: false,
    },
    Call {
        name: "WATCH",
        cmd: sampler::WATCH,
        on: On::Sampler,
        ops: none,
        fill: fill_watch,
        check: check_watch,
        used: 2,
        privileged: false,
        lasting: false,
    },
    Call {
        name: "STOP",
        cmd: sampler::STOP,
        on: On::Sampler,
        ops: none,
        fill: fill_stop,
        check: check_stop,
        used: 0,
        privileged: false,
        lasting: true,
    },
    Call {
        name: "NARROW_SAMPLER",
        cmd: sampler::NARROW,
        on: On::Sampler,
        ops: none,
        fill: fill_narrow,
        check: check_narrowed,
        used: 3,
        privileged: false,
        lasting: true,
    },
];
