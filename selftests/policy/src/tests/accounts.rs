// SPDX-License-Identifier: GPL-2.0

//! On whose account the use of another CPU's time is.

use cpupeek_selftests::device::{header, Device, Op, TSC_AUX};
use cpupeek_selftests::guest;
use cpupeek_selftests::sys::{self, Child};
use cpupeek_selftests::tests::Env;

use super::fairness::{
    duration, lost_by, read_hard, target, wait_until_throttled, Worked, THREADS,
};
use super::{set, tests};
use crate::policy::Narrow;
use crate::who::{as_user, open_to_all, OTHER, USER};

tests! {
    "accounts";
    subordinate_ids_have_one_share: [Cpus],
    containers_of_root_have_a_share_each: [Cpus],
    narrowed_descriptors_of_root_have_a_share: [Cpus],
    descriptors_opened_by_turns_are_no_trick: [Cpus],
}

/// A child that does this with one of a user's subordinate ids, in a user namespace of his.
fn subordinate(number: u32, does: impl FnOnce()) -> Child {
    let user = || sys::become_user(USER);
    in_namespace(
        user,
        &format!("0 {USER} 1\n1 {} 1\n", 100_000 + number),
        does,
    )
}

/// A child that does this as user 1 of a user namespace which `before` is done to make, where ids are
/// mapped so. As newuidmap does it, by /etc/subuid.
fn in_namespace(before: impl FnOnce(), map: &str, does: impl FnOnce()) -> Child {
    let (here, there) = sys::socket_pair();
    let mut byte = [0];
    let child = sys::fork(|| {
        before();
        sys::enter_user_namespace();
        let mut byte = [0];
        there.send(&byte).expect("the parent lives");
        there.recv(&mut byte).expect("the parent lives");
        // SAFETY: Has no preconditions.
        assert_eq!(unsafe { libc::setresuid(1, 1, 1) }, 0);
        does();
    });
    here.recv(&mut byte).expect("the child lives");
    guest::write(format!("/proc/{}/uid_map", child.0), map).expect("root may map");
    here.send(&byte).expect("the child lives");
    child
}

fn subordinate_ids_have_one_share(env: &Env) {
    const IDS: u32 = 12;
    let (target, duration) = (target(), duration(env));
    open_to_all();
    set("unprivileged_permille", 1);
    let lost = lost_by(|worked| {
        let hog = |first| {
            let device = Device::open();
            read_hard(worked, &[device.fd()], (first, 1), target, duration);
        };
        let processes: Vec<Child> = (0..IDS).map(|i| subordinate(i, || hog(i))).collect();
        processes.into_iter().for_each(Child::expect_success);
    });
    lost.expect_within(1, 1, IDS);
}

/// What one takes, another one does not miss.
fn containers_of_root_have_a_share_each(env: &Env) {
    let (target, duration) = (target(), duration(env));
    let container = |number: u32, does: &dyn Fn()| {
        let ids = 200_000 + 1000 * number;
        in_namespace(|| (), &format!("0 {ids} 2\n"), does)
    };
    open_to_all();
    // At once 400 us of the target's time, which is some interrupts.
    set("unprivileged_permille", 2);
    let before = guest::attribute("throttled");
    let greedy = container(0, &|| {
        let device = Device::open();
        let all = &Worked::new();
        read_hard(all, &[device.fd()], (0, THREADS), target, duration);
    });
    wait_until_throttled(before);
    let modest = container(1, &|| {
        let device = Device::open();
        let asked = Op::msr(target, TSC_AUX);
        let mut hasty = header(0);
        hasty.timeout_ms = 30;
        for _ in 0..2 {
            device.batch_with(hasty, &[asked])[0].expect_answer(&asked);
        }
    });
    modest.expect_success();
    greedy.expect_success();
}

/// What is handed to others is rationed, whoever has opened it.
fn narrowed_descriptors_of_root_have_a_share(env: &Env) {
    let (target, duration) = (target(), duration(env));
    set("unprivileged_permille", 1);
    let device = Device::open();
    Narrow::to_cpus(&guest::online())
        .apply(&device)
        .expect("NARROW");
    let throttled = guest::attribute("throttled");
    let lost = lost_by(|worked| {
        read_hard(worked, &[device.fd()], (0, THREADS), target, duration);
    });
    lost.expect_within(1, 1, THREADS);
    assert!(guest::attribute("throttled") > throttled);
}

/// Opens the device as a user, and comes back.
fn open_as(user: u32) -> Device {
    // SAFETY: Has no preconditions.
    assert_eq!(unsafe { libc::seteuid(user) }, 0);
    let device = Device::open();
    // SAFETY: As above.
    assert_eq!(unsafe { libc::seteuid(0) }, 0);
    device
}

fn descriptors_opened_by_turns_are_no_trick(env: &Env) {
    let (target, duration) = (target(), duration(env));
    open_to_all();
    set("unprivileged_permille", 1);
    let devices: Vec<Device> = (0..40)
        .map(|i| open_as(if i % 2 == 0 { USER } else { OTHER }))
        .collect();
    let fds: Vec<i32> = devices.iter().map(Device::fd).collect();
    let lost = lost_by(|worked| {
        as_user(|| read_hard(worked, &fds, (0, 40), target, duration));
    });
    lost.expect_within(1, 2, 40);
}
