// SPDX-License-Identifier: GPL-2.0

//! Samplers: their past, what they tell, and what is taken from them.

use std::thread::sleep;
use std::time::Duration;

use super::read::TSC;
use super::sampler::{valid, LEAF};
use super::{tests, Env};
use crate::device::{uapi, Device, Op, TSC_AUX};
use crate::guest;
use crate::sampler::{changed, cpupeek_condition, watch_header, Sample, Sampler, ANY, MS};
use crate::sys::{self, Errno};

tests! {
    "sampler_tell";
    ring_has_every_sample: [],
    ring_tells_an_overrun: [],
    read_and_poll_tell_of_samples: [],
    read_sizes_and_memory: [],
    watch_is_checked: [],
    watch_for_a_change: [],
    watch_under_a_mask: [Counter],
    watch_for_a_bound: [Counter],
    stop: [],
    stop_by_two: [],
    narrowing: [],
    narrowing_to_no_cpu: [Cpus],
    interval_is_kept: [],
}

fn ring_has_every_sample(_: &Env) {
    let cpu = guest::online()[0];
    let ops = [Op::msr(cpu, TSC_AUX), Op::cpuid(cpu, LEAF, 0)];
    let sampler = Sampler::new(&Device::open(), &ops, |request| request.ring_samples = 4096);
    // One look for many samples.
    let last = sampler.wait_beyond(0, 300).slot.number;
    let mut tsc = 0;
    for number in 1..=last {
        let past = sampler.mapped.past(0, number);
        assert_eq!(past.slot.number, number, "{past:?}");
        assert!(past.is_whole() && past.slot.tsc > tsc, "{past:?}");
        assert_eq!(past.value(0) & 0xfff, cpu.into());
        tsc = past.slot.tsc;
    }
}

fn ring_tells_an_overrun(_: &Env) {
    let cpu = guest::online()[0];
    let ops = [Op::msr(cpu, TSC_AUX)];
    let sampler = Sampler::new(&Device::open(), &ops, |request| request.ring_samples = 8);
    sampler.wait_beyond(0, 100);
    let found = sampler.mapped.past(0, 1).slot.number;
    assert!(found > 1 && found % 8 == 1, "{found}");
    let latest = sampler.latest(0).slot.number;
    assert!(found + 16 > latest || latest > 100, "{found} of {latest}");
}

fn read_and_poll_tell_of_samples(_: &Env) {
    let cpu = guest::online()[0];
    let ops = [Op::msr(cpu, TSC_AUX)];
    let device = Device::open();
    let sampler = Sampler::new(&device, &ops, |request| request.interval_ns = 20 * MS);
    let mut total = 0;
    for _ in 0..10 {
        assert_eq!(sampler.poll(30_000), libc::POLLIN);
        let (size, count) = sampler.read(8).expect("readable");
        assert!(size == 8 && count > 0);
        total += count;
    }
    // Waits by itself too.
    let (_, count) = sampler.read(16).expect("a larger buffer is fine");
    total += count;
    let seen = sampler.latest(0).slot.number;
    assert!(total <= seen && seen <= total + 1, "{total} of {seen}");

    let slow = Sampler::new(&device, &ops, |request| {
        request.interval_ns = 3_600_000 * MS
    });
    assert_eq!(slow.read(8), Ok((8, 1)), "the first sample");
    assert_eq!(slow.poll(20), 0, "nothing new");
    sys::set_nonblocking(slow.fd(), true);
    assert_eq!(slow.read(8), Err(Errno(libc::EAGAIN)));
}

fn read_sizes_and_memory(_: &Env) {
    let cpu = guest::online()[0];
    let sampler = Sampler::new(&Device::open(), &[Op::msr(cpu, TSC_AUX)], |_| ());
    for size in 0..8 {
        assert_eq!(sampler.read(size), Err(Errno(libc::EINVAL)), "{size}");
    }
    for address in [8, 1 << 47, 0xffff_ffff_8100_0000] {
        let result = sys::read_to(sampler.fd(), address, 8);
        assert_eq!(result, Err(Errno(libc::EFAULT)));
    }
    assert!(sampler.read(8).is_ok());
    // What could not be told is told the next time.
    sampler.wait_beyond(0, 10);
    assert_eq!(sampler.stop(), Ok(()));
    let result = sys::read_to(sampler.fd(), 8, 8);
    assert_eq!(result, Err(Errno(libc::EFAULT)));
    let (size, told) = sampler.read(8).expect("there are samples");
    assert!(size == 8 && told > 0, "{told} samples in {size} bytes");
    assert_eq!(sampler.read(8), Ok((0, 0)), "the end");
}

fn watch_is_checked(_: &Env) {
    let cpus = guest::online();
    let ops: Vec<Op> = vec![Op::msr(cpus[0], TSC_AUX); 2];
    let sampler = Sampler::new(&Device::open(), &ops, |_| ());
    let good = changed(cpus[0]);
    assert_eq!(sampler.watch(&[good]), Ok(()));
    let invalid = Err(Errno(libc::EINVAL));
    for bad in [
        cpupeek_condition { cpu: 4095, ..good },
        cpupeek_condition { result: 2, ..good },
        cpupeek_condition {
            result: u32::MAX,
            cpu: ANY,
            ..good
        },
        cpupeek_condition { kind: 0, ..good },
        cpupeek_condition { kind: 3, ..good },
        cpupeek_condition {
            reserved: 1,
            ..good
        },
        cpupeek_condition { mask: 0, ..good },
        cpupeek_condition { bound: 1, ..good },
    ] {
        assert_eq!(sampler.watch(&[bad]), invalid, "{bad:?}");
        assert_eq!(sampler.watch(&[good, bad]), invalid, "{bad:?}");
    }
    let header = watch_header(&[good]);
    for bit in 0..32 {
        let mut bad = header;
        bad.flags = 1 << bit;
        assert_eq!(sampler.try_watch(bad), invalid);
        bad = header;
        bad.reserved = 1 << bit;
        assert_eq!(sampler.try_watch(bad), invalid);
    }
    for said in 0..header.size {
        let mut bad = header;
        bad.size = said;
        assert_eq!(sampler.try_watch(bad), invalid);
    }
    let mut bad = header;
    bad.nr_conditions = 0;
    assert_eq!(sampler.try_watch(bad), invalid, "an address of nothing");
    for conditions in [0, 8, 1 << 47] {
        let mut bad = header;
        bad.conditions = conditions;
        assert_eq!(sampler.try_watch(bad), Err(Errno(libc::EFAULT)));
    }
    for nr_conditions in [65_537, u32::MAX] {
        let mut bad = header;
        bad.nr_conditions = nr_conditions;
        assert_eq!(sampler.try_watch(bad), Err(Errno(libc::E2BIG)));
    }
    assert_eq!(sampler.watch(&vec![good; 64]), Ok(()));
    assert_eq!(sampler.watch(&vec![good; 65]), Err(Errno(libc::E2BIG)));
    assert_eq!(sampler.watch(&[]), Ok(()));
    sampler.drain();
    assert_eq!(sampler.poll(30_000), libc::POLLIN, "every sample again");
}

/// A register that never changes does not wake anybody.
fn watch_for_a_change(_: &Env) {
    let cpus = guest::online();
    let ops: Vec<Op> = cpus.iter().map(|&cpu| Op::msr(cpu, TSC_AUX)).collect();
    let sampler = Sampler::new(&Device::open(), &ops, |_| ());
    assert_eq!(sampler.watch(&[changed(ANY)]), Ok(()));
    sampler.drain();
    let before = sampler.latest(0).slot.number;
    assert_eq!(sampler.poll(100), 0);
    assert!(sampler.latest(0).slot.number > before, "it did sample");
    // A status that changes does.
    sampler.stop().unwrap();
    assert_eq!(sampler.poll(30_000) & libc::POLLIN, libc::POLLIN);
}

fn watch_under_a_mask(_: &Env) {
    let cpu = guest::online()[0];
    let sampler = Sampler::new(&Device::open(), &[Op::msr(cpu, TSC)], |_| ());
    assert_eq!(sampler.watch(&[changed(cpu)]), Ok(()));
    sampler.drain();
    assert_eq!(sampler.poll(30_000), libc::POLLIN);
    let top = cpupeek_condition {
        mask: 1 << 63,
        ..changed(cpu)
    };
    assert_eq!(sampler.watch(&[top]), Ok(()));
    sampler.drain();
    assert_eq!(sampler.poll(100), 0);
}

fn watch_for_a_bound(_: &Env) {
    let cpu = guest::online()[0];
    let device = Device::open();
    let sampler = Sampler::new(&device, &[Op::msr(cpu, TSC)], |_| ());
    let now = device.msr(cpu, TSC);
    let ms = u64::from(device.info().tsc_khz);
    let crossed = |bound| cpupeek_condition {
        kind: uapi::CPUPEEK_WHEN_CROSSED,
        bound,
        ..changed(cpu)
    };
    assert_eq!(
        sampler.watch(&[crossed(1), crossed(now + 100 * ms)]),
        Ok(())
    );
    sampler.drain();
    assert_eq!(sampler.poll(30_000), libc::POLLIN);
    assert!(device.msr(cpu, TSC) >= now + 100 * ms);
    assert_eq!(sampler.read(8), Ok((8, 1)));
    assert_eq!(sampler.poll(50), 0, "once");
}

fn stop(_: &Env) {
    let ops = valid();
    let sampler = Sampler::new(&Device::open(), &ops, |request| request.ring_samples = 64);
    let past = sampler.wait_beyond(0, 5).slot.number - 1;
    assert_eq!(sampler.stop(), Ok(()));
    for index in 0..sampler.mapped.map.nr_slots {
        sampler.latest(index).expect_nothing(libc::ECANCELED);
    }
    assert_eq!(
        sampler.mapped.past(0, past).slot.number,
        past,
        "the past stays"
    );
    let samples = guest::attribute("samples");
    assert_eq!(sampler.poll(0), libc::POLLIN | libc::POLLHUP);
    assert!(sampler.read(8).is_ok(), "those before the end");
    assert_eq!(sampler.read(8), Ok((0, 0)));
    assert_eq!(sampler.read(8), Ok((0, 0)));
    assert_eq!(sampler.stop(), Ok(()), "again");
    sleep(Duration::from_millis(50));
    assert_eq!(guest::attribute("samples"), samples, "nothing runs");
}

fn stop_by_two(_: &Env) {
    let device = Device::open();
    for _ in 0..200 {
        let sampler = Sampler::new(&device, &[Op::cpuid(0, 0, 0)], |_| ());
        let start = std::sync::Barrier::new(2);
        let stop = || {
            start.wait();
            assert_eq!(sampler.stop(), Ok(()));
        };
        std::thread::scope(|scope| {
            scope.spawn(stop);
            stop();
        });
        assert_eq!(sampler.poll(0), libc::POLLIN | libc::POLLHUP);
    }
}

fn narrow_header() -> uapi::cpupeek_narrow {
    uapi::cpupeek_narrow {
        size: size_of::<uapi::cpupeek_narrow>() as u32,
        ..Default::default()
    }
}

fn narrowing(_: &Env) {
    let cpu = guest::online()[0];
    let ops = [
        Op::msr(cpu, TSC_AUX),
        Op::cpuid(cpu, LEAF, 0),
        Op::msr(cpu, 0xc000_0080),
    ];
    let sampler = Sampler::new(&Device::open(), &ops, |request| request.ring_samples = 16);
    let before = sampler.wait_beyond(0, 40);
    assert_eq!(before.results[0].status, 0);
    assert_eq!(
        sampler.narrow(narrow_header()),
        Err(Errno(libc::EINVAL)),
        "to nothing in particular"
    );
    let no_cpuid = uapi::cpupeek_narrow {
        flags: uapi::CPUPEEK_NARROW_NO_CPUID,
        ..narrow_header()
    };
    assert_eq!(sampler.narrow(no_cpuid), Ok(()));
    let statuses = |sample: &Sample| -> Vec<i32> {
        sample.results.iter().map(|result| result.status).collect()
    };
    for _ in 0..2 {
        let sample = sampler.latest(0);
        assert_eq!(statuses(&sample), [0, -libc::EACCES, 0]);
        assert_eq!((sample.value(1), sample.results[1].tsc), (0, 0));
        sampler.wait_beyond(0, sample.slot.number);
    }
    for number in 0..16 {
        let past = sampler.mapped.past(0, number);
        assert_eq!(statuses(&past)[1], -libc::EACCES);
        assert_eq!((past.value(1), past.results[1].tsc), (0, 0));
    }
    let ranges = [uapi::cpupeek_range {
        lo: 0xc000_0080,
        hi: 0xc000_0080,
        ..Default::default()
    }];
    let one_msr = uapi::cpupeek_narrow {
        flags: uapi::CPUPEEK_NARROW_MSRS,
        nr_ranges: 1,
        ranges: ranges.as_ptr().expose_provenance() as u64,
        ..narrow_header()
    };
    assert_eq!(sampler.narrow(one_msr), Ok(()));
    assert_eq!(
        statuses(&sampler.latest(0)),
        [-libc::EACCES, -libc::EACCES, 0]
    );
    sampler.wait_beyond(0, sampler.latest(0).slot.number);
    let none = uapi::cpupeek_narrow {
        flags: uapi::CPUPEEK_NARROW_MSRS,
        ..narrow_header()
    };
    assert_eq!(sampler.narrow(none), Ok(()));
    sampler.latest(0).expect_nothing(libc::EACCES);
    let samples = guest::attribute("samples");
    sleep(Duration::from_millis(20));
    assert_eq!(
        guest::attribute("samples"),
        samples,
        "nothing is left to do"
    );
}

fn narrowing_to_no_cpu(_: &Env) {
    let cpus = guest::online();
    let ops: Vec<Op> = cpus.iter().map(|&cpu| Op::msr(cpu, TSC_AUX)).collect();
    let sampler = Sampler::new(&Device::open(), &ops, |_| ());
    let mask = [1u64 << cpus[0], 0];
    let one_cpu = uapi::cpupeek_narrow {
        flags: uapi::CPUPEEK_NARROW_CPUS,
        cpus_size: 16,
        cpus: mask.as_ptr().expose_provenance() as u64,
        ..narrow_header()
    };
    assert_eq!(sampler.narrow(one_cpu), Ok(()));
    for index in 1..sampler.mapped.map.nr_slots {
        sampler.latest(index).expect_nothing(libc::EPERM);
    }
    sampler.wait_beyond(0, sampler.latest(0).slot.number + 2);
    sampler.latest(1).expect_nothing(libc::EPERM);
}

fn interval_is_kept(_: &Env) {
    let cpu = guest::online()[0];
    let ops = [Op::msr(cpu, TSC_AUX)];
    let interval = 10 * MS;
    let sampler = Sampler::new(&Device::open(), &ops, |request| {
        request.interval_ns = interval;
        request.ring_samples = 256;
    });
    let last = sampler.wait_beyond(0, 60).slot;
    let first = sampler.mapped.past(0, 1).slot;
    // However late single samples were: samples, and periods without one, add up to the time.
    let periods = last.number - first.number + last.missed + last.skipped;
    let elapsed = last.time_ns - first.time_ns;
    assert!(
        elapsed / interval <= periods + 1,
        "{elapsed} ns, {periods} periods"
    );
    assert!(
        elapsed / interval + 1 >= periods,
        "{elapsed} ns, {periods} periods"
    );
}
