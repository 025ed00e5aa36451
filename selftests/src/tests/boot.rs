// SPDX-License-Identifier: GPL-2.0

//! Guests that were booted with fewer CPUs than they have.

use super::{tests, Env};
use crate::device::{Device, Op, SELF, TSC_AUX};
use crate::guest::{self, attribute};
use crate::sys;

tests! {
    "boot";
    spare_cpu_is_enxio_until_it_is_online: [Spare],
    spare_cpu_comes_under_load: [Spare],
    only_cpu_is_read_without_interrupts: [],
}

fn spare_cpu_is_enxio_until_it_is_online(_: &Env) {
    let device = Device::open();
    let spare = guest::offline();
    for &cpu in &spare {
        for asked in [Op::msr(cpu, TSC_AUX), Op::cpuid(cpu, 0, 0)] {
            device.read(asked).expect_error(&asked, libc::ENXIO);
            device.batch(&[asked])[0].expect_error(&asked, libc::ENXIO);
        }
    }
    for &cpu in &spare {
        guest::set_online(cpu, true);
        assert_eq!(device.msr(cpu, TSC_AUX) & 0xfff, cpu.into());
    }
    let ops: Vec<Op> = spare.iter().map(|&cpu| Op::msr(cpu, TSC_AUX)).collect();
    for (asked, op) in ops.iter().zip(device.batch(&ops)) {
        op.expect_answer(asked);
        assert_eq!(op.value() & 0xfff, asked.cpu.into());
    }
}

fn spare_cpu_comes_under_load(_: &Env) {
    let spare = guest::offline();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            sys::fork(|| {
                let device = Device::open();
                let ops: Vec<Op> = spare.iter().map(|&cpu| Op::msr(cpu, TSC_AUX)).collect();
                while device.batch(&ops).iter().any(|op| op.status != 0) {}
            })
        })
        .collect();
    for &cpu in &spare {
        guest::set_online(cpu, true);
    }
    readers.into_iter().for_each(sys::Child::expect_success);
}

fn only_cpu_is_read_without_interrupts(_: &Env) {
    let cpus = guest::online();
    sys::pin(&cpus[..1]).unwrap();
    let device = Device::open();
    let before = attribute("interrupts");
    for asked in [Op::msr(SELF, TSC_AUX), Op::msr(cpus[0], TSC_AUX)] {
        device.read(asked).expect_answer(&asked);
        for op in device.batch(&[asked; 200]) {
            op.expect_answer(&asked);
        }
    }
    assert_eq!(attribute("interrupts"), before);
}
