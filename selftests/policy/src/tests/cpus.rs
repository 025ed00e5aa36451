// SPDX-License-Identifier: GPL-2.0

//! Which CPUs somebody without the capability may ask: those that he may run on.

use cpupeek_client::{allowed_cpus, WidenedAffinity};
use cpupeek_selftests::device::{Device, Op, SELF, TSC_AUX};
use cpupeek_selftests::guest::{self, CGROUP};
use cpupeek_selftests::sys::{self, Errno};
use cpupeek_selftests::tests::Env;

use super::tests;
use crate::policy::Plan;
use crate::who::{as_user, enter_namespaces, expect, outcome};

tests! {
    "cpus";
    a_user_asks_where_he_may_run: [Cpus],
    root_of_namespaces_asks_where_he_may_run: [Cpus],
    a_plan_asks_where_its_runner_may_run: [Cpus],
    root_asks_everywhere: [Cpus],
    absent_cpus_are_absent_for_everybody: [Hotplug],
    widening_reaches_the_cpuset_and_is_undone: [Hotplug Freezer],
    refused_cpus_are_counted: [Cpus],
}

#[track_caller]
fn expect_only(device: &Device, allowed: &[u32]) {
    for cpu in guest::online() {
        let expected = if allowed.contains(&cpu) {
            Ok(())
        } else {
            Err(libc::EPERM)
        };
        expect(device, Op::msr(cpu, TSC_AUX), expected);
        expect(device, Op::cpuid(cpu, 0, 0), expected);
    }
    expect(device, Op::msr(SELF, TSC_AUX), Ok(()));
}

fn expect_affinity_counts() {
    let device = Device::open();
    let online = guest::online();
    expect_only(&device, &online);
    for &cpu in &online {
        sys::pin(&[cpu]).expect("it is online");
        expect_only(&device, &[cpu]);
        // One of a batch that is refused does not spoil the others.
        let ops: Vec<_> = online.iter().map(|&cpu| Op::msr(cpu, TSC_AUX)).collect();
        for (asked, op) in ops.iter().zip(device.batch(&ops)) {
            if asked.cpu == cpu {
                op.expect_answer(asked);
            } else {
                op.expect_error(asked, libc::EPERM);
            }
        }
    }
    sys::pin(&online).expect("they are online");
    expect_only(&device, &online);
}

fn a_user_asks_where_he_may_run(_: &Env) {
    as_user(expect_affinity_counts);
}

fn root_of_namespaces_asks_where_he_may_run(_: &Env) {
    as_user(|| {
        enter_namespaces();
        expect_affinity_counts();
    });
}

fn a_plan_asks_where_its_runner_may_run(_: &Env) {
    as_user(|| {
        let online = guest::online();
        let device = Device::open();
        let ops: Vec<_> = online.iter().map(|&cpu| Op::msr(cpu, TSC_AUX)).collect();
        let mut plan = Plan::new(&device, &ops);
        plan.map();
        for allowed in [&online[..], &online[..1], &online[1..], &online[..]] {
            sys::pin(allowed).expect("they are online");
            for results in [plan.run(), plan.run_mapped()] {
                for (result, cpu) in results.iter().zip(&online) {
                    let expected = if allowed.contains(cpu) {
                        Ok(())
                    } else {
                        Err(Errno(libc::EPERM))
                    };
                    assert_eq!(outcome(result), expected, "CPU {cpu}");
                }
            }
        }
    });
}

fn root_asks_everywhere(_: &Env) {
    let device = Device::open();
    let online = guest::online();
    for &cpu in &online {
        sys::pin(&[cpu]).expect("it is online");
        expect_only(&device, &online);
    }
    // The right came with the descriptor, not with the one who has it.
    sys::become_user(crate::who::USER);
    expect_only(&device, &online);
}

fn absent_cpus_are_absent_for_everybody(_: &Env) {
    let last = guest::online().pop().expect("there is one");
    guest::set_online(last, false);
    as_user(|| {
        let device = Device::open();
        expect(&device, Op::msr(SELF - 1, TSC_AUX), Err(libc::ENXIO));
        expect(&device, Op::cpuid(100_000, 0, 0), Err(libc::ENXIO));
        // Whoever may run on it learns that it is offline.
        let result = device.read(Op::msr(last, TSC_AUX)).result();
        assert!(
            matches!(result, Err(Errno(libc::ENXIO | libc::EPERM))),
            "{result:?}"
        );
    });
    expect(&Device::open(), Op::msr(last, TSC_AUX), Err(libc::ENXIO));
    guest::set_online(last, true);
}

fn widening_reaches_the_cpuset_and_is_undone(_: &Env) {
    let put = |file: &str, text: &str| {
        let path = format!("{CGROUP}/{file}");
        assert_eq!(guest::write(&path, text), Ok(()), "{path}");
    };
    let control = "/sys/fs/cgroup/cgroup.subtree_control";
    assert_eq!(guest::write(control, "+cpuset"), Ok(()));
    std::fs::create_dir(CGROUP).expect("cgroup2 is mounted");
    put("cpuset.cpus", "0-1");
    as_user(|| ());
    let child = sys::fork(|| {
        put("cgroup.procs", "0");
        sys::become_user(crate::who::USER);
        let device = Device::open();
        sys::pin(&[1]).expect("in the cpuset");
        expect_only(&device, &[1]);
        let widened = WidenedAffinity::new().expect("nobody is refused that");
        assert_eq!(allowed_cpus().expect("a mask"), [0, 1]);
        expect_only(&device, &[0, 1]);
        drop(widened);
        assert_eq!(allowed_cpus().expect("a mask"), [1]);
        expect_only(&device, &[1]);
    });
    child.expect_success();
}

fn refused_cpus_are_counted(_: &Env) {
    let before = guest::attribute("refused_cpus");
    as_user(|| {
        let device = Device::open();
        sys::pin(&[0]).expect("it is online");
        for _ in 0..3 {
            device.read(Op::msr(1, TSC_AUX));
            device.batch(&[Op::msr(1, TSC_AUX), Op::msr(0, TSC_AUX)]);
        }
    });
    assert_eq!(guest::attribute("refused_cpus") - before, 6);
}
