// SPDX-License-Identifier: GPL-2.0

//! A kernel that is locked down for confidentiality keeps its secrets from root too. There is no way
//! back, so that these are the last tests of a guest.

use cpupeek_selftests::device::{Device, Op, TSC_AUX};
use cpupeek_selftests::guest;
use cpupeek_selftests::sys::Errno;
use cpupeek_selftests::tests::Env;

use super::tests;
use crate::known;
use crate::policy::Plan;
use crate::who::{as_user, expect, outcome};

tests! {
    "lockdown";
    confidentiality_is_kept_from_root: [],
}

const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

fn confidentiality_is_kept_from_root(_: &Env) {
    let before = Device::open();
    expect(&before, Op::msr(0, 0xc000_0082), Ok(()));
    assert_eq!(guest::write(LOCKDOWN, "confidentiality"), Ok(()));
    let state = guest::read(LOCKDOWN).expect("securityfs is mounted");
    assert!(state.contains("[confidentiality]"), "{state}");

    let root = Device::open();
    let never = known::never();
    let ops: Vec<Op> = never.iter().map(|&reg| Op::msr(0, reg)).collect();
    for (asked, op) in ops.iter().zip(root.batch(&ops)) {
        op.expect_error(asked, libc::EACCES);
    }
    for asked in &ops {
        root.read(*asked).expect_error(asked, libc::EACCES);
    }
    for result in Plan::new(&root, &ops).run() {
        assert_eq!(outcome(&result), Err(Errno(libc::EACCES)));
    }
    // The rest is root's as before, on every list or none.
    for reg in [TSC_AUX, 0x277, 0x1b, 0xe8] {
        expect(&root, Op::msr(0, reg), Ok(()));
    }
    as_user(|| {
        let device = Device::open();
        expect(&device, Op::msr(0, TSC_AUX), Ok(()));
        expect(&device, Op::msr(0, 0xc000_0082), Err(libc::EACCES));
    });
    // Nobody but root is asked about, since asking is logged.
    let logged = || guest::kernel_log().matches("Lockdown: ").count();
    let before_user = logged();
    as_user(|| (0..20).for_each(|_| drop(Device::open())));
    assert_eq!(logged(), before_user);
    // Rights are decided at open.
    expect(&before, Op::msr(0, 0xc000_0082), Ok(()));
}
