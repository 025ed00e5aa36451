// SPDX-License-Identifier: GPL-2.0

//! What can never be listed never is, and what needs a mark has it.

use cpupeek_selftests::device::{Device, Op};
use cpupeek_selftests::sys::Errno;
use cpupeek_selftests::tests::Env;

use super::tests;
use crate::known;
use crate::policy::{allow, get_allow, marked, range, set_allow, Plan, Range};
use crate::who::{as_user, enter_namespaces, outcome};

tests! {
    "never";
    what_was_promised_is_in_the_modules_rules: [],
    never_is_refused_in_any_list: [],
    never_is_refused_to_a_user: [],
    never_is_refused_to_root_of_namespaces: [],
    never_is_for_root: [],
    guarded_needs_the_mark: [],
}

fn what_was_promised_is_in_the_modules_rules(_: &Env) {
    let root = Device::open();
    for promised in known::PROMISED {
        for reg in promised.clone() {
            let refused = set_allow(&root, &[marked(reg, reg)]);
            assert_eq!(refused, Err((libc::EACCES, 0)), "{reg:#x}");
        }
    }
    for promised in known::PROMISED_MARKED {
        for reg in promised.clone() {
            assert_eq!(
                set_allow(&root, &[range(reg, reg)]),
                Err((libc::EPERM, 0)),
                "{reg:#x}"
            );
        }
    }
}

fn never_is_refused_in_any_list(_: &Env) {
    let root = Device::open();
    let before = get_allow(&root).1;
    for reg in known::never() {
        let (below, above) = (reg.saturating_sub(1), reg.saturating_add(1));
        for bad in [
            range(reg, reg),
            marked(reg, reg),
            marked(below, reg),
            marked(reg, above),
            marked(below, above),
            marked(0, reg),
            marked(reg, u32::MAX),
        ] {
            assert_eq!(set_allow(&root, &[bad]), Err((libc::EACCES, 0)), "{bad:x?}");
            let second = [range(0x277, 0x277), bad];
            assert_eq!(
                set_allow(&root, &second),
                Err((libc::EACCES, 1)),
                "{bad:x?}"
            );
        }
    }
    assert_eq!(get_allow(&root).1, before, "nothing has changed");
}

/// As much as can be listed around what can never be.
fn around_never() -> Vec<Range> {
    let never = known::never();
    let mut around: Vec<u32> = never
        .iter()
        .flat_map(|&reg| [reg.wrapping_sub(1), reg.wrapping_add(1)])
        .filter(|reg| never.binary_search(reg).is_err())
        .collect();
    around.sort_unstable();
    around.dedup();
    around.into_iter().map(|reg| marked(reg, reg)).collect()
}

/// Checks that a new descriptor gets none of it, in no way.
fn expect_none() {
    let device = Device::open();
    let never = known::never();
    let ops: Vec<Op> = never.iter().map(|&reg| Op::msr(0, reg)).collect();
    for (asked, op) in ops.iter().zip(device.batch(&ops)) {
        op.expect_error(asked, libc::EACCES);
    }
    for asked in &ops {
        device.read(*asked).expect_error(asked, libc::EACCES);
    }
    for result in Plan::new(&device, &ops).run() {
        assert_eq!(outcome(&result), Err(Errno(libc::EACCES)));
    }
    // The list has something in it, right beside.
    let beside = around_never();
    let ops: Vec<Op> = beside.iter().map(|range| Op::msr(0, range.lo)).collect();
    for op in device.batch(&ops) {
        assert_ne!(op.result(), Err(Errno(libc::EACCES)), "{op:?}");
    }
    println!(
        "{} registers never, {} beside them",
        never.len(),
        beside.len()
    );
}

fn never_is_refused_to_a_user(_: &Env) {
    allow(&around_never());
    as_user(expect_none);
}

fn never_is_refused_to_root_of_namespaces(_: &Env) {
    allow(&around_never());
    as_user(|| {
        enter_namespaces();
        expect_none();
    });
}

/// What reading has effects on is left alone.
fn never_is_for_root(_: &Env) {
    let device = Device::open();
    for reg in [
        0x48,
        0x174,
        0x175,
        0x176,
        0xc000_0082,
        0xc000_0100,
        0xc000_0101,
    ] {
        let result = device.read(Op::msr(0, reg)).result();
        assert_ne!(result, Err(Errno(libc::EACCES)), "{reg:#x}");
    }
    let lstar = device.read(Op::msr(0, 0xc000_0082));
    assert_eq!(
        lstar.value() >> 63,
        1,
        "an address of the kernel's: {lstar:?}"
    );
}

fn guarded_needs_the_mark(_: &Env) {
    let root = Device::open();
    for reg in known::guarded() {
        allow(&[]);
        assert_eq!(
            set_allow(&root, &[range(reg, reg)]),
            Err((libc::EPERM, 0)),
            "{reg:#x}"
        );
        as_user(|| {
            let asked = Op::msr(0, reg);
            Device::open()
                .read(asked)
                .expect_error(&asked, libc::EACCES);
        });
    }
    for reg in known::guarded() {
        set_allow(&root, &[marked(reg, reg)]).unwrap_or_else(|e| panic!("{reg:#x}: {e:?}"));
    }
    let all: Vec<Range> = known::guarded().map(|reg| marked(reg, reg)).collect();
    allow(&all);
    as_user(|| {
        let device = Device::open();
        for reg in known::guarded() {
            let result = device.read(Op::msr(0, reg)).result();
            assert_ne!(result, Err(Errno(libc::EACCES)), "{reg:#x}");
        }
    });
}
