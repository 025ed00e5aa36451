// SPDX-License-Identifier: GPL-2.0

//! Commands about rights.

use cpupeek_selftests::device::{uapi, Op, TSC_AUX};
use cpupeek_selftests::sys::Errno;

use super::{none, Call, On, Scene, World};
use crate::image::Image;

/// Registers that anybody may be allowed.
const LIST: [(u32, u32); 3] = [(0x10, 0x10), (0xe7, 0xe8), (TSC_AUX, TSC_AUX)];

fn put_ranges(image: &mut Image, flags: u32) -> usize {
    let size = size_of::<uapi::cpupeek_range>();
    let place = image.part(LIST.len() * size);
    for (i, &(lo, hi)) in LIST.iter().enumerate() {
        let range = uapi::cpupeek_range {
            lo,
            hi,
            flags,
            ..Default::default()
        };
        image.put(place, i * size, range);
    }
    place
}

fn fill_allow(image: &mut Image, _: &mut Scene<'_>) {
    let head = image.part(size_of::<uapi::cpupeek_allow>());
    let ranges = put_ranges(image, uapi::CPUPEEK_RANGE_UNSAFE);
    let header = uapi::cpupeek_allow {
        size: size_of::<uapi::cpupeek_allow>() as u32,
        nr_ranges: LIST.len() as u32,
        ranges: image.address(ranges) as u64,
        ..Default::default()
    };
    image.put(head, 0, header);
}

fn check_set_allow(image: &Image, world: &World, scene: &Scene<'_>) {
    let header: uapi::cpupeek_allow = image.get(0, 0);
    assert_eq!(header.bad_range, uapi::CPUPEEK_CONST_NO_RANGE);
    if scene.strict {
        let mut now = uapi::cpupeek_allow {
            size: size_of::<uapi::cpupeek_allow>() as u32,
            ..Default::default()
        };
        let result = world.device.ioctl(
            uapi::CPUPEEK_CONST_IOC_GET_ALLOW,
            (&raw mut now).expose_provenance(),
        );
        assert_eq!(result, Ok(()));
        assert_eq!(now.generation, header.generation);
        assert_eq!(now.nr_ranges as usize, LIST.len());
    }
}

fn fill_get_allow(image: &mut Image, _: &mut Scene<'_>) {
    let head = image.part(size_of::<uapi::cpupeek_allow>());
    let ranges = image.part(size_of::<uapi::cpupeek_range>());
    let header = uapi::cpupeek_allow {
        size: size_of::<uapi::cpupeek_allow>() as u32,
        nr_ranges: 1,
        ranges: image.address(ranges) as u64,
        ..Default::default()
    };
    image.put(head, 0, header);
}

fn check_get_allow(image: &Image, _: &World, _: &Scene<'_>) {
    let header: uapi::cpupeek_allow = image.get(0, 0);
    let first: uapi::cpupeek_range = image.get(1, 0);
    assert!(header.nr_ranges > 0 && first.lo <= first.hi, "{header:?}");
}

pub fn fill_narrow(image: &mut Image, _: &mut Scene<'_>) {
    let head = image.part(size_of::<uapi::cpupeek_narrow>());
    let ranges = put_ranges(image, 0);
    let cpus = image.part(size_of::<u64>());
    image.put(cpus, 0, 1u64);
    let header = uapi::cpupeek_narrow {
        size: size_of::<uapi::cpupeek_narrow>() as u32,
        flags: uapi::CPUPEEK_NARROW_MSRS
            | uapi::CPUPEEK_NARROW_CPUS
            | uapi::CPUPEEK_NARROW_NO_CPUID,
        nr_ranges: LIST.len() as u32,
        cpus_size: size_of::<u64>() as u32,
        ranges: image.address(ranges) as u64,
        cpus: image.address(cpus) as u64,
    };
    image.put(head, 0, header);
}

fn check_narrow(_: &Image, world: &World, scene: &Scene<'_>) {
    // It would be one operation more than the others have counted.
    if !scene.strict {
        return;
    }
    let answer = world.device.read(Op::cpuid(0, 0, 0));
    assert_eq!(answer.result(), Err(Errno(libc::EACCES)), "was narrowed");
}

fn fill_refusals(image: &mut Image, _: &mut Scene<'_>) {
    let head = image.part(size_of::<uapi::cpupeek_refusals>());
    let entries = image.part(size_of::<uapi::cpupeek_refusal>());
    let header = uapi::cpupeek_refusals {
        size: size_of::<uapi::cpupeek_refusals>() as u32,
        nr_entries: 1,
        entries: image.address(entries) as u64,
        ..Default::default()
    };
    image.put(head, 0, header);
}

fn check_refusals(image: &Image, _: &World, scene: &Scene<'_>) {
    let header: uapi::cpupeek_refusals = image.get(0, 0);
    let first: uapi::cpupeek_refusal = image.get(1, 0);
    assert!(!scene.strict || header.nr_entries > 0);
    assert!(header.nr_entries == 0 || first.count > 0, "{first:?}");
}

pub const CALLS: &[Call] = &[
    Call {
        name: "SET_ALLOW",
        cmd: uapi::CPUPEEK_CONST_IOC_SET_ALLOW,
        on: On::Device,
        ops: none,
        fill: fill_allow,
        check: check_set_allow,
        used: 2,
        privileged: true,
        lasting: false,
    },
    Call {
        name: "GET_ALLOW",
        cmd: uapi::CPUPEEK_CONST_IOC_GET_ALLOW,
        on: On::Device,
        ops: none,
        fill: fill_get_allow,
        check: check_get_allow,
        used: 2,
        privileged: false,
        lasting: false,
    },
    Call {
        name: "NARROW",
        cmd: uapi::CPUPEEK_CONST_IOC_NARROW,
        on: On::Device,
        ops: none,
        fill: fill_narrow,
        check: check_narrow,
        used: 3,
        privileged: false,
        lasting: true,
    },
    Call {
        name: "REFUSALS",
        cmd: uapi::CPUPEEK_CONST_IOC_REFUSALS,
        on: On::Device,
        ops: none,
        fill: fill_refusals,
        check: check_refusals,
        used: 2,
        privileged: true,
        lasting: false,
    },
];
