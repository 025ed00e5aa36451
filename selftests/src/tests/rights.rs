// SPDX-License-Identifier: GPL-2.0

//! Who may read what. Rights are decided when a descriptor is opened, and stay with it.

use super::{tests, Env};
use crate::device::{Device, Op, PATH, SELF, TSC_AUX};
use crate::guest;
use crate::sys::{self, Errno};

tests! {
    "rights";
    node_keeps_others_out: [],
    user_has_no_secret_msr: [],
    user_has_cpuid: [],
    user_is_told_what_to_mend_first: [],
    descriptor_keeps_its_rights_after_setuid: [],
    descriptor_of_a_user_gives_root_nothing: [],
    capability_suffices: [],
    root_without_capability_has_no_secret_msr: [],
    root_of_a_user_namespace_has_no_secret_msr: [],
    attributes_are_for_root_to_write: [],
}

const USER: u32 = 1000;

/// The system call's entry: a kernel address, which no allowlist can hold.
const LSTAR: u32 = 0xc000_0082;

/// Registers that no allowlist can hold.
const SECRET: &[u32] = &[
    0x174,
    0x175,
    0x176,
    0xc000_0081,
    LSTAR,
    0xc000_0083,
    0xc000_0100,
    0xc000_0101,
    0xc000_0102,
];

#[track_caller]
fn expect_no_secret_msr(device: &Device) {
    for cpu in guest::online().into_iter().chain([SELF]) {
        for &reg in SECRET {
            let asked = Op::msr(cpu, reg);
            device.read(asked).expect_error(&asked, libc::EACCES);
        }
        // The rest of a batch is none the worse.
        let ops = [
            Op::cpuid(cpu, 0, 0),
            Op::msr(cpu, LSTAR),
            Op::cpuid(0, 0, 0),
        ];
        let answers = device.batch(&ops);
        answers[0].expect_answer(&ops[0]);
        answers[1].expect_error(&ops[1], libc::EACCES);
        answers[2].expect_answer(&ops[2]);
    }
}

#[track_caller]
fn expect_msrs(device: &Device) {
    for cpu in guest::online() {
        assert_ne!(device.msr(cpu, LSTAR), 0);
        let ops = [Op::msr(cpu, LSTAR), Op::msr(SELF, LSTAR)];
        for (asked, op) in ops.iter().zip(device.batch(&ops)) {
            op.expect_answer(asked);
        }
    }
}

/// Lets everybody open the node, until the test is over.
fn open_to_all() {
    sys::set_mode(PATH, 0o666);
}

fn node_keeps_others_out(_: &Env) {
    sys::become_user(USER);
    assert_eq!(Device::try_open().err(), Some(Errno(libc::EACCES)));
}

/// Runs `test` as a user who may open the node.
fn as_user(test: impl FnOnce()) {
    open_to_all();
    let child = sys::fork(|| {
        sys::become_user(USER);
        test();
    });
    child.expect_success();
}

fn user_has_no_secret_msr(_: &Env) {
    as_user(|| expect_no_secret_msr(&Device::open()));
}

fn user_has_cpuid(_: &Env) {
    as_user(|| {
        let device = Device::open();
        for cpu in guest::online() {
            let asked = Op::cpuid(cpu, 0, 0);
            device.read(asked).expect_answer(&asked);
            device.batch(&[asked])[0].expect_answer(&asked);
        }
    });
}

fn user_is_told_what_to_mend_first(_: &Env) {
    as_user(|| {
        let device = Device::open();
        let mut malformed = Op::msr(SELF - 1, TSC_AUX);
        malformed.reserved = 1;
        device
            .read(malformed)
            .expect_error(&malformed, libc::EINVAL);
        let refused = Op::msr(SELF - 1, LSTAR);
        device.read(refused).expect_error(&refused, libc::EACCES);
        let absent = Op::cpuid(SELF - 1, 0, 0);
        device.read(absent).expect_error(&absent, libc::ENXIO);
    });
}

fn descriptor_keeps_its_rights_after_setuid(_: &Env) {
    let device = Device::open();
    sys::become_user(USER);
    assert_eq!(Device::try_open().err(), Some(Errno(libc::EACCES)));
    expect_msrs(&device);
}

fn descriptor_of_a_user_gives_root_nothing(_: &Env) {
    open_to_all();
    let (here, there) = sys::socket_pair();
    let child = sys::fork(|| {
        sys::become_user(USER);
        sys::send_fd(&there, Device::open().fd());
    });
    let device = Device::from(sys::receive_fd(&here));
    child.expect_success();
    assert_eq!(sys::geteuid(), 0);
    expect_no_secret_msr(&device);
    // Root's own, opened now, is another matter.
    expect_msrs(&Device::open());
}

fn capability_suffices(_: &Env) {
    open_to_all();
    let child = sys::fork(|| {
        sys::keep_capabilities();
        sys::become_user(USER);
        sys::set_capabilities(1 << sys::CAP_SYS_RAWIO);
        expect_msrs(&Device::open());
        sys::set_capabilities(0);
        expect_no_secret_msr(&Device::open());
    });
    child.expect_success();
}

fn root_without_capability_has_no_secret_msr(_: &Env) {
    sys::set_capabilities(!(1 << sys::CAP_SYS_RAWIO));
    expect_no_secret_msr(&Device::open());
}

fn root_of_a_user_namespace_has_no_secret_msr(_: &Env) {
    as_user(|| {
        // All capabilities, but none over this machine.
        sys::enter_user_namespace();
        sys::set_capabilities(u64::MAX);
        expect_no_secret_msr(&Device::open());
    });
}

fn attributes_are_for_root_to_write(_: &Env) {
    sys::become_user(USER);
    assert_eq!(guest::attribute("read_timeout_ms"), 1000);
    let path = guest::attribute_path("read_timeout_ms");
    assert_eq!(guest::write(path, "5"), Err(Errno(libc::EACCES)));
}
