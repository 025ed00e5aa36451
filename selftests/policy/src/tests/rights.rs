// SPDX-License-Identifier: GPL-2.0

//! Rights are decided at open: the list that was then, and the list that is now.

use cpupeek_selftests::device::{Device, Op, SELF, TSC_AUX};
use cpupeek_selftests::guest;
use cpupeek_selftests::sys::{self, Errno};
use cpupeek_selftests::tests::Env;

use super::tests;
use crate::known;
use crate::policy::{allow, list, refusals, Plan};
use crate::who::{as_user, as_user_with, enter_namespaces, expect, open_to_all, outcome};

tests! {
    "rights";
    a_user_reads_what_is_listed: [],
    root_of_namespaces_reads_what_is_listed: [],
    rights_stay_when_root_is_given_up: [],
    a_users_descriptor_is_a_users_in_roots_hands: [],
    a_longer_list_is_for_later_descriptors: [],
    a_shorter_list_counts_at_once: [],
    the_creator_decides_what_a_plan_may_do: [],
    refusals_are_counted: [],
}

/// Known to all machines, and not on the default list.
const APERF: u32 = 0xe8;
const PAT: u32 = 0x277;

/// Whether the policy lets a descriptor read a register, whatever the hardware says.
#[track_caller]
fn expect_allowed(device: &Device, reg: u32) {
    let result = crate::who::ask(device, Op::msr(0, reg));
    assert!(
        matches!(result, Ok(()) | Err(Errno(libc::EIO))),
        "{reg:#x}: {result:?}"
    );
}

fn expect_default_rights() {
    let device = Device::open();
    for reg in known::free() {
        expect_allowed(&device, reg);
    }
    for reg in known::guarded().chain([0x1b, 0x12345, 0xffff_ffff]) {
        expect(&device, Op::msr(0, reg), Err(libc::EACCES));
    }
    for cpu in guest::online().into_iter().chain([SELF]) {
        expect(&device, Op::msr(cpu, TSC_AUX), Ok(()));
        expect(&device, Op::cpuid(cpu, 0, 0), Ok(()));
        expect(&device, Op::msr(cpu, APERF), Err(libc::EACCES));
    }
}

fn a_user_reads_what_is_listed(_: &Env) {
    as_user(expect_default_rights);
}

fn root_of_namespaces_reads_what_is_listed(_: &Env) {
    as_user(|| {
        enter_namespaces();
        sys::set_capabilities(u64::MAX);
        expect_default_rights();
    });
}

fn rights_stay_when_root_is_given_up(_: &Env) {
    let device = Device::open();
    let plan = Plan::new(&device, &[Op::msr(0, 0xc000_0082)]);
    sys::become_user(crate::who::USER);
    expect(&device, Op::msr(0, 0xc000_0082), Ok(()));
    for cpu in guest::online() {
        expect(&device, Op::msr(cpu, TSC_AUX), Ok(()));
    }
    assert_eq!(outcome(&plan.run()[0]), Ok(()));
}

fn a_users_descriptor_is_a_users_in_roots_hands(_: &Env) {
    open_to_all();
    let (here, there) = sys::socket_pair();
    let child = sys::fork(|| {
        sys::become_user(crate::who::USER);
        sys::send_fd(&there, Device::open().fd());
    });
    let device = Device::from(sys::receive_fd(&here));
    child.expect_success();
    expect(&device, Op::msr(0, APERF), Err(libc::EACCES));
    expect(&device, Op::msr(0, TSC_AUX), Ok(()));
}

fn a_longer_list_is_for_later_descriptors(_: &Env) {
    allow(&list(&[TSC_AUX]));
    let root = Device::open();
    as_user(|| {
        let before = Device::open();
        let plan = Plan::new(&before, &[Op::msr(0, TSC_AUX), Op::msr(0, PAT)]);
        let widened = crate::policy::set_allow(&root, &list(&[TSC_AUX, PAT]));
        widened.expect("root's descriptor may set the list in anybody's hands");
        expect(&before, Op::msr(0, PAT), Err(libc::EACCES));
        expect(&before, Op::msr(0, TSC_AUX), Ok(()));
        let results = plan.run();
        assert_eq!(outcome(&results[0]), Ok(()));
        assert_eq!(outcome(&results[1]), Err(Errno(libc::EACCES)));
        let after = Device::open();
        expect(&after, Op::msr(0, PAT), Ok(()));
        expect(&after, Op::msr(0, TSC_AUX), Ok(()));
    });
}

fn a_shorter_list_counts_at_once(_: &Env) {
    allow(&list(&[TSC_AUX, PAT]));
    let root = Device::open();
    as_user(|| {
        let device = Device::open();
        let ops: Vec<_> = guest::online()
            .into_iter()
            .flat_map(|cpu| [Op::msr(cpu, TSC_AUX), Op::msr(cpu, PAT)])
            .collect();
        let mut plan = Plan::new(&device, &ops);
        plan.map();
        let refused = [libc::EACCES, 0];
        for pat in [0, libc::EACCES, 0, libc::EACCES] {
            let regs: &[u32] = if pat == 0 {
                &[PAT, TSC_AUX]
            } else {
                &[TSC_AUX]
            };
            crate::policy::set_allow(&root, &list(regs)).expect("root's descriptor");
            let expected = if pat == 0 { Ok(()) } else { Err(refused[0]) };
            for results in [plan.run(), plan.run_mapped(), plan.run_mapped(), plan.run()] {
                for (i, result) in results.iter().enumerate() {
                    let expected = if i % 2 == 0 { Ok(()) } else { expected };
                    assert_eq!(outcome(result), expected.map_err(Errno), "operation {i}");
                }
            }
            expect(&device, Op::msr(0, PAT), expected);
            expect(&device, Op::msr(0, TSC_AUX), Ok(()));
        }
        crate::policy::set_allow(&root, &[]).expect("root's descriptor");
        expect(&device, Op::msr(0, TSC_AUX), Err(libc::EACCES));
        expect(&device, Op::msr(SELF, TSC_AUX), Err(libc::EACCES));
        expect(&device, Op::cpuid(0, 0, 0), Ok(()));
        for result in plan.run_mapped() {
            assert_eq!(outcome(&result), Err(Errno(libc::EACCES)));
        }
    });
}

fn the_creator_decides_what_a_plan_may_do(_: &Env) {
    open_to_all();
    let ops = [Op::msr(0, APERF), Op::msr(0, TSC_AUX)];
    let of_root = Plan::new(&Device::open(), &ops);
    let (here, there) = sys::socket_pair();
    let child = sys::fork(|| {
        sys::become_user(crate::who::USER);
        let results = of_root.run();
        assert_eq!(
            outcome(&results[0]),
            Ok(()),
            "root's plan in a user's hands"
        );
        sys::send_fd(&there, Plan::new(&Device::open(), &ops).fd());
        sys::receive_fd(&there);
    });
    let of_user = Plan::received(sys::receive_fd(&here), ops.len());
    let results = of_user.run();
    assert_eq!(
        outcome(&results[0]),
        Err(Errno(libc::EACCES)),
        "a user's plan in root's hands"
    );
    assert_eq!(outcome(&results[1]), Ok(()));
    sys::send_fd(&here, of_user.fd());
    child.expect_success();
}

fn refusals_are_counted(_: &Env) {
    const UNLIKELY: u32 = 0x1234_5678;
    let root = Device::open();
    let count = || {
        let (entries, others) = refusals(&root).expect("root may see them");
        let one = entries.iter().find(|entry| entry.reg == UNLIKELY);
        (one.map_or(0, |entry| entry.count), others)
    };
    let before = (count(), guest::attribute("refused_registers"));
    as_user(|| {
        let device = Device::open();
        for _ in 0..5 {
            device.read(Op::msr(0, UNLIKELY));
            device.batch(&[Op::msr(0, UNLIKELY), Op::msr(0, TSC_AUX)]);
        }
        assert_eq!(refusals(&device).err(), Some(Errno(libc::EPERM)));
    });
    // Others may have filled the table; then they are counted together.
    let after = (count(), guest::attribute("refused_registers"));
    let counted = after.0 .0 - before.0 .0 + (after.0 .1 - before.0 .1);
    assert_eq!((counted, after.1 - before.1), (10, 10));
    // What the capability sees is the same without it, if the descriptor was opened with it.
    as_user_with(1 << sys::CAP_SYS_RAWIO, || {
        assert!(refusals(&Device::open()).is_ok());
    });
}
