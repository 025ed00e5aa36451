// SPDX-License-Identifier: GPL-2.0

//! CPUs that a cgroup isolates while the machine runs.

use cpupeek_client::uapi::{self, cpupeek_narrow};
use cpupeek_selftests::device::{Device, Op, TSC_AUX};
use cpupeek_selftests::guest::{self, CGROUP};
use cpupeek_selftests::sampler::Sampler;
use cpupeek_selftests::sys;
use cpupeek_selftests::tests::Env;

use super::tests;
use crate::policy::{range, DISTURB};
use crate::who::expect;

tests! {
    "partition";
    isolated_from_now_on: [Cpus Freezer],
    a_running_sampler_leaves_it_alone: [Cpus Freezer],
}

const PAT: u32 = 0x277;

fn write(file: &str, text: &str) {
    let done = guest::write(format!("{CGROUP}/{file}"), text);
    assert_eq!(done, Ok(()), "{text:?} to {file}");
}

/// The last CPU, which is in a cgroup of its own until the test is over.
fn make_partition() -> u32 {
    let cpu = *guest::online().last().expect("a CPU is online");
    guest::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset").expect("cpusets");
    std::fs::create_dir(CGROUP).expect("the cgroup of the test before is gone");
    write("cpuset.cpus", &cpu.to_string());
    cpu
}

#[track_caller]
fn isolate(cpu: u32) {
    write("cpuset.cpus.partition", "isolated");
    let state = guest::read(format!("{CGROUP}/cpuset.cpus.partition")).unwrap();
    assert_eq!(state.trim(), "isolated");
    let list = guest::read("/sys/fs/cgroup/cpuset.cpus.isolated").unwrap();
    assert_eq!(guest::parse_list(list.trim()), [cpu]);
}

fn isolated_from_now_on(_: &Env) {
    let cpu = make_partition();
    let asked = Op::msr(cpu, TSC_AUX);
    let mut disturbing = asked;
    disturbing.flags = DISTURB;
    let device = Device::open();
    for _ in 0..3 {
        expect(&device, asked, Ok(()));
        isolate(cpu);
        expect(&device, asked, Err(libc::EPERM));
        expect(&device, disturbing, Ok(()));
        expect(&device, Op::msr(0, TSC_AUX), Ok(()));
        write("cpuset.cpus.partition", "member");
    }
}

/// The past stays, until it becomes what may not be read.
fn a_running_sampler_leaves_it_alone(_: &Env) {
    const RING: u32 = 16;
    let cpu = make_partition();
    let ops = [0, cpu].map(|cpu| [Op::msr(cpu, TSC_AUX), Op::msr(cpu, PAT)]);
    let sampler = Sampler::new(&Device::open(), ops.as_flattened(), |request| {
        request.ring_samples = RING;
    });
    sampler.wait_beyond(1, u64::from(RING));
    isolate(cpu);
    guest::wait_until("the timer has seen it", || {
        sampler.latest(1).slot.status == -libc::EPERM
    });
    sampler.latest(1).expect_nothing(libc::EPERM);
    for number in 0..u64::from(RING) {
        let past = sampler.mapped.past(1, number);
        assert_eq!(past.slot.status, 0);
        assert_eq!(past.value(0) & 0xfff, cpu.into(), "{past:?}");
    }

    let ranges = [range(PAT, PAT)];
    let to_pat = cpupeek_narrow {
        size: size_of::<cpupeek_narrow>() as u32,
        flags: uapi::CPUPEEK_NARROW_MSRS,
        nr_ranges: 1,
        ranges: ranges.as_ptr().expose_provenance() as u64,
        ..Default::default()
    };
    let pat = sampler.mapped.past(1, 0).value(1);
    assert_ne!(pat, 0, "what is left is told from what is wiped");
    assert_eq!(sampler.narrow(to_pat), Ok(()));
    for number in 0..u64::from(RING) {
        let past = sampler.mapped.past(1, number);
        assert_eq!(past.results[0].status, -libc::EACCES, "{past:?}");
        assert_eq!((past.value(0), past.results[0].tsc), (0, 0), "{past:?}");
        assert_eq!(
            (past.results[1].status, past.value(1)),
            (0, pat),
            "{past:?}"
        );
    }

    // It does not come back by itself; the other CPU was none of this.
    write("cpuset.cpus.partition", "member");
    sampler.wait_beyond(0, sampler.latest(0).slot.number + 2);
    let slot = sampler.latest(1).slot;
    assert_eq!((slot.status, slot.number), (-libc::EACCES, 0));
    sys::pin(&[cpu]).expect("it is online");
    expect(&Device::open(), Op::msr(cpu, PAT), Ok(()));
}
