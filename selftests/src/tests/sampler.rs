// SPDX-License-Identifier: GPL-2.0

//! Samplers: what is refused, and what their mapping shows.

use super::read::faulting_msr;
use super::{tests, Env};
use crate::device::{numbered, uapi, Device, Op};
use crate::device::{BATCH, INFO, OP_SIZE, PREPARE, READ, RUN, SELF, TSC_AUX};
use crate::guest;
use crate::plan::Plan;
use crate::sampler::{
    cpupeek_map, cpupeek_sampler, cpupeek_slot, request, try_sampler, Sampler, EXACT, MS, NARROW,
    SAMPLER, SAMPLER_SIZE, STOP, WATCH,
};
use crate::sys::{self, Errno, Pages};

tests! {
    "sampler";
    flag_bits: [],
    sizes: [],
    intervals: [],
    too_much: [],
    bad_memory: [],
    bad_operations: [],
    of_a_plan: [],
    commands_of_other_descriptors: [],
    layout: [],
    samples_again_and_again: [],
    statuses_of_registers: [Fault],
    mapping_is_read_only: [],
    mapping_is_whole: [],
}

/// The leaf whose EBX has the CPU's own number in its upper byte on every machine of ours.
pub const LEAF: u32 = 1;

pub fn valid() -> Vec<Op> {
    let cpus = guest::online();
    (0..5 * cpus.len())
        .map(|i| match i % 3 {
            0 => Op::cpuid(cpus[i % cpus.len()], LEAF, 0),
            _ => Op::msr(cpus[i % cpus.len()], TSC_AUX),
        })
        .collect()
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("procfs").count()
}

/// Checks that SAMPLER is refused, and leaves neither a descriptor nor a sampler behind.
#[track_caller]
fn expect_refused(device: &Device, change: impl FnOnce(&mut cpupeek_sampler), error: i32) {
    let ops = valid();
    let mut request = request(&ops);
    change(&mut request);
    let before = open_descriptors();
    let result = try_sampler(device.fd(), request);
    assert_eq!(result.err(), Some(Errno(error)), "{request:?}");
    assert_eq!(open_descriptors(), before);
    assert_eq!(guest::attribute("samplers"), 0);
}

fn flag_bits(_: &Env) {
    let device = Device::open();
    for bit in (0..32).filter(|bit| 1 << bit != EXACT) {
        expect_refused(&device, |request| request.flags |= 1 << bit, libc::EINVAL);
    }
}

fn sizes(_: &Env) {
    let device = Device::open();
    let size = OP_SIZE as u32;
    for op_size in [0, 1, 8, 40, size - 1, size + 1, size + 4, u32::MAX] {
        expect_refused(&device, |request| request.op_size = op_size, libc::EINVAL);
    }
    for said in 0..SAMPLER_SIZE as u32 {
        expect_refused(&device, |request| request.size = said, libc::EINVAL);
    }
    for said in [sys::PAGE as u32 + 1, u32::MAX] {
        expect_refused(&device, |request| request.size = said, libc::E2BIG);
    }
}

fn intervals(_: &Env) {
    let device = Device::open();
    for flags in [0, EXACT] {
        for interval in [0, 1, MS - 1, 3_600_000 * MS + 1, u64::MAX] {
            let change = |request: &mut cpupeek_sampler| {
                request.flags = flags;
                request.interval_ns = interval;
            };
            expect_refused(&device, change, libc::EINVAL);
        }
    }
    let ops = valid();
    for interval in [MS, MS + 1, 7 * MS + 3, 3_600_000 * MS] {
        let exact = Sampler::new(&device, &ops, |request| request.interval_ns = interval);
        assert_eq!(exact.answer.interval_ns, interval);
        assert_eq!(exact.mapped.map.interval_ns, interval);
        let deferrable = Sampler::new(&device, &ops, |request| {
            request.interval_ns = interval;
            request.flags = 0;
        });
        // In whole ticks, whose length is 1 to 10 ms.
        let given = deferrable.answer.interval_ns;
        assert!((interval..interval + 10 * MS).contains(&given), "{given}");
        assert_eq!(given % MS, 0);
    }
}

fn too_much(_: &Env) {
    let device = Device::open();
    let max = device.info().max_batch_ops;
    for count in [max + 1, 1 << 31, u32::MAX] {
        expect_refused(&device, |request| request.nr_ops = count, libc::E2BIG);
    }
    expect_refused(&device, |request| request.nr_ops = 0, libc::EINVAL);
    for ring in [65_537, 1 << 31, u32::MAX] {
        expect_refused(&device, |request| request.ring_samples = ring, libc::E2BIG);
    }
    let cpu = guest::online()[0];
    let round = device.info().max_round_ops as usize;
    for (count, ring, error) in [
        (round, 0, None),
        (round + 1, 0, Some(libc::E2BIG)),
        (round, 65_536, Some(libc::E2BIG)),
        (1, 65_536, None),
    ] {
        let ops = vec![Op::msr(cpu, TSC_AUX); count];
        let request = cpupeek_sampler {
            ring_samples: ring,
            ..request(&ops)
        };
        let made = try_sampler(device.fd(), request);
        assert_eq!(made.err(), error.map(Errno), "{count} {ring}");
    }
}

fn bad_memory(_: &Env) {
    let device = Device::open();
    for address in [0, 8, 1 << 47, u64::MAX - 7, 0xffff_ffff_8100_0000] {
        expect_refused(&device, |request| request.ops = address, libc::EFAULT);
        let result = device.ioctl(SAMPLER, address as usize);
        assert_eq!(result, Err(Errno(libc::EFAULT)));
    }
    // The descriptor's number cannot be told: then there is none, and no sampler.
    let pages = Pages::new(1, false);
    let ops = valid();
    pages.write(0, request(&ops));
    pages.protect(0, libc::PROT_READ);
    let before = open_descriptors();
    let result = device.ioctl(SAMPLER, pages.address(0));
    assert_eq!(result, Err(Errno(libc::EFAULT)));
    assert_eq!(open_descriptors(), before);
    guest::wait_until("no sampler", || guest::attribute("samplers") == 0);
}

fn bad_operations(_: &Env) {
    let device = Device::open();
    let cpu = guest::online()[0];
    let good = Op::msr(cpu, TSC_AUX);
    let mut reserved = good;
    reserved.reserved = 1;
    let mut flags = good;
    flags.flags = 2;
    for (bad, error) in [
        (reserved, libc::EINVAL),
        (flags, libc::EINVAL),
        (Op::new(cpu, 3, 0, 0), libc::EINVAL),
        (Op::new(cpu, 1, TSC_AUX, 1), libc::EINVAL),
        (Op::msr(SELF, TSC_AUX), libc::EINVAL),
        (Op::msr(device.info().nr_cpu_ids, TSC_AUX), libc::ENXIO),
        (Op::msr(u32::MAX - 1, TSC_AUX), libc::ENXIO),
    ] {
        for ops in [[bad, good], [good, bad]] {
            let made = try_sampler(device.fd(), request(&ops));
            assert_eq!(made.err(), Some(Errno(error)), "{bad:?}");
        }
    }
}

/// SAMPLER's structure for a plan's descriptor.
fn of_plan() -> cpupeek_sampler {
    cpupeek_sampler {
        op_size: 0,
        ops: 0,
        ..request(&[])
    }
}

fn of_a_plan(_: &Env) {
    let device = Device::open();
    let ops = valid();
    let plan = Plan::new(&device, &ops);
    drop(device);
    for change in [
        |request: &mut cpupeek_sampler| request.nr_ops = 1,
        |request: &mut cpupeek_sampler| request.op_size = OP_SIZE as u32,
        |request: &mut cpupeek_sampler| request.ops = 8,
        |request: &mut cpupeek_sampler| request.flags = 2,
        |request: &mut cpupeek_sampler| request.interval_ns = 0,
    ] {
        let mut request = of_plan();
        change(&mut request);
        let made = try_sampler(plan.fd(), request);
        assert_eq!(made.err(), Some(Errno(libc::EINVAL)), "{request:?}");
    }
    let (fd, answer) = try_sampler(plan.fd(), of_plan()).expect("of a plan");
    drop(plan);
    let sampler = Sampler::from_parts(fd, answer);
    expect_samples_of(&sampler, &ops);

    let hopeless = [Op::msr(0, TSC_AUX), Op::msr(SELF, TSC_AUX)];
    let plan = Plan::new(&Device::open(), &hopeless);
    let made = try_sampler(plan.fd(), of_plan());
    assert_eq!(made.err(), Some(Errno(libc::EINVAL)));
    let made = try_sampler(Plan::new(&Device::open(), &[]).fd(), of_plan());
    assert_eq!(made.err(), Some(Errno(libc::EINVAL)));
}

fn commands_of_other_descriptors(_: &Env) {
    let device = Device::open();
    let ops = valid();
    let sampler = Sampler::new(&device, &ops, |_| ());
    let pages = Pages::new(1, false);
    let not_here = Err(Errno(libc::ENOTTY));
    for cmd in [INFO, READ, BATCH, PREPARE, RUN, SAMPLER] {
        assert_eq!(sys::ioctl(sampler.fd(), cmd, pages.address(0)), not_here);
    }
    let here = [WATCH, STOP, NARROW].map(|cmd| cmd & 0xff);
    for nr in (0..=0xff).filter(|nr| !here.contains(nr)) {
        let result = sys::ioctl(sampler.fd(), numbered(WATCH, nr), pages.address(0));
        assert_eq!(result, not_here, "number {nr}");
    }
    for kind in (0..=0xff).filter(|&kind| kind != uapi::CPUPEEK_IOC_TYPE) {
        let other = WATCH & !0xff00 | kind << 8;
        assert_eq!(sys::ioctl(sampler.fd(), other, pages.address(0)), not_here);
    }
    let plan = Plan::new(&device, &ops);
    for fd in [device.fd(), plan.fd()] {
        for cmd in [WATCH, STOP] {
            assert_eq!(sys::ioctl(fd, cmd, pages.address(0)), not_here);
        }
    }
    assert_eq!(sys::ioctl(sampler.fd(), STOP, 1), Err(Errno(libc::EINVAL)));
}

fn layout(_: &Env) {
    let device = Device::open();
    let cpus = guest::online();
    // The first CPU mentioned has the first slot, and more results than the others.
    let mut ops: Vec<Op> = vec![Op::msr(cpus[0], TSC_AUX); 9];
    ops.extend(cpus.iter().rev().map(|&cpu| Op::msr(cpu, TSC_AUX)));
    let sampler = Sampler::new(&device, &ops, |request| request.ring_samples = 3);
    let map = sampler.mapped.map;
    assert_eq!(map.size as usize, size_of::<cpupeek_map>());
    assert_eq!(map.flags, EXACT);
    assert_eq!(map.nr_slots as usize, cpus.len());
    assert_eq!(map.ring_samples, 3);
    assert_eq!(map.tsc_khz, device.info().tsc_khz);
    assert_eq!(
        (map.slots % 64, map.slot_size % 64, map.ring % 64),
        (0, 0, 0)
    );
    assert!(map.slots >= size_of::<cpupeek_map>() as u64);
    assert!(map.slot_size as usize >= size_of::<cpupeek_slot>() + 10 * 32);
    assert!(map.ring >= map.slots + u64::from(map.nr_slots * map.slot_size));
    let end = map.ring + u64::from(3 * map.nr_slots * map.slot_size);
    assert!((end..end + sys::PAGE as u64).contains(&sampler.answer.map_size));
    let mut expected = cpus.clone();
    expected[1..].reverse();
    for (index, &cpu) in expected.iter().enumerate() {
        let results = if index == 0 { 10 } else { 1 };
        let sample = sampler.latest(index as u32);
        assert_eq!((sample.slot.cpu, sample.slot.nr_results), (cpu, results));
        for number in 0..3 {
            let past = sampler.mapped.past(index as u32, number);
            assert_eq!((past.slot.cpu, past.slot.nr_results), (cpu, results));
        }
    }
    let none = Sampler::new(&device, &ops, |_| ());
    assert_eq!((none.mapped.map.ring, none.mapped.map.ring_samples), (0, 0));
}

/// Checks that each CPU's slot has its own answers, in the order of the operations.
#[track_caller]
fn expect_samples_of(sampler: &Sampler, ops: &[Op]) {
    for index in 0..sampler.mapped.map.nr_slots {
        let sample = sampler.wait_beyond(index, 0);
        assert_eq!(sample.slot.status, 0, "{sample:?}");
        assert!(sample.is_whole(), "{sample:?}");
        let cpu = sample.slot.cpu;
        let asked: Vec<&Op> = ops.iter().filter(|op| op.cpu == cpu).collect();
        assert_eq!(asked.len(), sample.results.len());
        for (i, op) in asked.iter().enumerate() {
            assert_eq!((sample.results[i].status, sample.results[i].cpu), (0, cpu));
            if op.reg == TSC_AUX {
                assert_eq!(sample.value(i) & 0xfff, cpu.into());
            } else {
                let device = Device::open();
                let answer = device.read(**op);
                assert_eq!(sample.value(i), answer.value(), "CPUID of CPU {cpu}");
            }
        }
    }
}

fn samples_again_and_again(_: &Env) {
    let device = Device::open();
    let ops = valid();
    for flags in [0, EXACT] {
        let sampler = Sampler::new(&device, &ops, |request| request.flags = flags);
        expect_samples_of(&sampler, &ops);
        // A deferrable one goes on where something happens: here.
        let here = guest::online()[0];
        sys::pin(&[here]).unwrap();
        let mut last = sampler.latest(0);
        assert_eq!(last.slot.cpu, here);
        for _ in 0..20 {
            let next = sampler.wait_beyond(0, last.slot.number);
            assert!(next.slot.tsc > last.slot.tsc);
            assert!(next.slot.time_ns > last.slot.time_ns);
            assert!(next.slot.busy > last.slot.busy);
            assert!(next.results[0].tsc > last.results[0].tsc);
            last = next;
        }
    }
}

fn statuses_of_registers(_: &Env) {
    let cpu = guest::online()[0];
    let bad = faulting_msr().expect("an MSR that faults");
    let ops = [
        Op::msr(cpu, TSC_AUX),
        Op::msr(cpu, bad),
        Op::cpuid(cpu, LEAF, 0),
    ];
    let sampler = Sampler::new(&Device::open(), &ops, |_| ());
    let sample = sampler.wait_beyond(0, 2);
    let statuses: Vec<i32> = sample.results.iter().map(|result| result.status).collect();
    assert_eq!(statuses, [0, -libc::EIO, 0]);
    assert_eq!((sample.value(1), sample.results[1].tsc), (0, 0));
    assert_eq!(sample.slot.status, 0);
}

fn mapping_is_read_only(_: &Env) {
    let sampler = Sampler::new(&Device::open(), &valid(), |_| ());
    let size = sampler.answer.map_size as usize;
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    for flags in [libc::MAP_SHARED, libc::MAP_PRIVATE] {
        for prot in [
            writable,
            libc::PROT_WRITE,
            libc::PROT_READ | libc::PROT_EXEC,
        ] {
            let mapped = sys::try_mmap(sampler.fd(), size, prot, flags, 0);
            assert!(mapped.is_err(), "{prot:#x} {flags:#x}");
        }
        let mapped = sys::try_mmap(sampler.fd(), size, libc::PROT_READ, flags, 0);
        assert_eq!(mapped, Ok(()));
    }
    let pages = sampler.mapped.pages();
    assert!(pages.try_protect(0, writable).is_err(), "nor later");
    assert!(pages.try_protect(0, libc::PROT_WRITE).is_err());
    // Debuggers and /proc/PID/mem override read-only private mappings, not these.
    let memory = std::fs::File::options()
        .write(true)
        .open("/proc/self/mem")
        .expect("procfs");
    use std::os::unix::fs::FileExt;
    let written = memory.write_at(&[1; 8], pages.address(0) as u64);
    assert!(written.is_err(), "{written:?}");
}

fn mapping_is_whole(_: &Env) {
    let sampler = Sampler::new(&Device::open(), &valid(), |request| {
        request.ring_samples = 99
    });
    let size = sampler.answer.map_size as usize;
    assert!(size > 2 * sys::PAGE && size % sys::PAGE == 0);
    let map = |size: usize, offset: usize| {
        let flags = libc::MAP_SHARED;
        sys::try_mmap(sampler.fd(), size, libc::PROT_READ, flags, offset as i64)
    };
    assert_eq!(map(size, 0), Ok(()));
    let invalid = Err(Errno(libc::EINVAL));
    assert_eq!(map(size + sys::PAGE, 0), invalid);
    assert_eq!(map(size - sys::PAGE, 0), invalid);
    assert_eq!(map(sys::PAGE, 0), invalid);
    for offset in [sys::PAGE, size, 1 << 40] {
        assert_eq!(map(size, offset), invalid, "{offset:#x}");
        assert_eq!(map(sys::PAGE, offset), invalid, "{offset:#x}");
    }
    let pages = sampler.mapped.pages();
    let larger = sys::try_mremap(pages.address(0), size, size + sys::PAGE);
    assert_eq!(larger, Err(Errno(libc::EFAULT)));
}
