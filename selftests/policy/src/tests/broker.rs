// SPDX-License-Identifier: GPL-2.0

//! A privileged program hands a little of what it may do to one that may do nothing.

use cpupeek_selftests::device::{Device, Op, SELF, TSC_AUX};
use cpupeek_selftests::sys;
use cpupeek_selftests::tests::Env;

use super::tests;
use crate::policy::{range, set_allow, Narrow, Plan};
use crate::who::{enter_namespaces, hide_devices, outcome, USER};

tests! {
    "broker";
    to_a_user_inside_namespaces: [Cpus],
    from_there_to_another: [Cpus],
    a_plan_alone: [Cpus],
}

/// On no default list: what is handed on is the broker's.
const APERF: u32 = 0xe8;

/// Nobody at all: in namespaces of his own, and without the device.
fn become_nobody() {
    sys::become_user(USER);
    enter_namespaces();
    hide_devices();
}

fn for_hire() -> Device {
    let device = Device::open();
    let to = Narrow::to_msrs(&[range(0xe7, APERF)])
        .and(Narrow::to_cpus(&[0, 1]))
        .and(Narrow::no_cpuid());
    to.apply(&device).expect("NARROW");
    device
}

fn expect_little(device: &Device) {
    sys::pin(&[0]).expect("it is online");
    // As the broker may, whatever the affinity.
    for cpu in [0, 1] {
        assert_eq!(device.read(Op::msr(cpu, APERF)).result(), Ok(()));
    }
    let asked = [
        (Op::msr(2, APERF), libc::EPERM),
        (Op::msr(0, TSC_AUX), libc::EACCES),
        (Op::msr(0, 0xc000_0082), libc::EACCES),
        (Op::cpuid(SELF, 0, 0), libc::EACCES),
        (Op::cpuid(0, 0, 0), libc::EACCES),
    ];
    for (asked, error) in asked {
        device.read(asked).expect_error(&asked, error);
    }
    assert_eq!(set_allow(device, &[]).map_err(|e| e.0), Err(libc::EPERM));
    let ops = [Op::msr(1, APERF), Op::msr(2, APERF), Op::msr(1, TSC_AUX)];
    let results = Plan::new(device, &ops).run();
    let errors: Vec<i32> = results.iter().map(|result| -result.status).collect();
    assert_eq!(errors, [0, libc::EPERM, libc::EACCES]);
}

fn to_a_user_inside_namespaces(_: &Env) {
    let (here, there) = sys::socket_pair();
    let child = sys::fork(|| {
        become_nobody();
        expect_little(&Device::from(sys::receive_fd(&there)));
    });
    sys::send_fd(&here, for_hire().fd());
    child.expect_success();
}

fn from_there_to_another(_: &Env) {
    let (here, there) = sys::socket_pair();
    let (hence, thence) = sys::socket_pair();
    let second = sys::fork(|| {
        become_nobody();
        let device = Device::from(sys::receive_fd(&thence));
        assert_eq!(device.read(Op::msr(0, APERF)).result(), Ok(()));
        let asked = Op::msr(1, APERF);
        device.read(asked).expect_error(&asked, libc::EPERM);
    });
    let first = sys::fork(|| {
        become_nobody();
        let device = Device::from(sys::receive_fd(&there));
        expect_little(&device);
        Narrow::to_cpus(&[0]).apply(&device).expect("NARROW");
        sys::send_fd(&hence, device.fd());
    });
    sys::send_fd(&here, for_hire().fd());
    first.expect_success();
    second.expect_success();
}

fn a_plan_alone(_: &Env) {
    let (here, there) = sys::socket_pair();
    let child = sys::fork(|| {
        become_nobody();
        let plan = Plan::received(sys::receive_fd(&there), 2);
        for result in plan.run() {
            assert_eq!(outcome(&result), Ok(()));
        }
    });
    let plan = Plan::new(&Device::open(), &[Op::msr(0, APERF), Op::msr(1, APERF)]);
    sys::send_fd(&here, plan.fd());
    drop(plan);
    child.expect_success();
}
