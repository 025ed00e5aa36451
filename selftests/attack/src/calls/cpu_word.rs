// SPDX-License-Identifier: GPL-2.0

//! A thread's CPU number in its memory. The guests load the module with that allowed.

use cpupeek_selftests::device::uapi;

use super::{none, Call, On, Scene, World};
use crate::image::Image;

pub const SET: u32 = uapi::CPUPEEK_CONST_IOC_SET_CPU_WORD;
pub const CLEAR: u32 = uapi::CPUPEEK_CONST_IOC_CLEAR_CPU_WORD;

fn fill(image: &mut Image, _: &mut Scene<'_>) {
    let head = image.part(size_of::<uapi::cpupeek_cpu_word>());
    let word = image.part(size_of::<u32>());
    let header = uapi::cpupeek_cpu_word {
        size: size_of::<uapi::cpupeek_cpu_word>() as u32,
        flags: 0,
        address: image.address(word) as u64,
    };
    image.put(head, 0, header);
}

fn check(image: &Image, world: &World, scene: &Scene<'_>) {
    let cpu: u32 = image.get(1, 0);
    assert!(scene.cpus.contains(&cpu), "CPU {cpu}");
    assert_eq!(world.device.ioctl(CLEAR, 0), Ok(()));
    let cpu: u32 = image.get(1, 0);
    assert_eq!(cpu, uapi::CPUPEEK_CONST_NO_CPU);
}

pub const CALLS: &[Call] = &[Call {
    name: "SET_CPU_WORD",
    cmd: SET,
    on: On::Device,
    ops: none,
    fill,
    check,
    used: 2,
    privileged: false,
    lasting: false,
}];
