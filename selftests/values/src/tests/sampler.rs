// SPDX-License-Identifier: GPL-2.0

//! Samplers of registers that are described: related to each other, or slow.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{scope, sleep};

use cpupeek_selftests::device::{Device, Op, TSC_AUX};
use cpupeek_selftests::guest::{self, attribute};
use cpupeek_selftests::sampler::{Mapped, Sample, Sampler, MS};
use cpupeek_selftests::tests::Env;

use super::{tests, On};
use crate::control::{Control, ALL};

tests! { "sampler";
    samples_are_whole: On::Registers(&[TICKET]), [],
    slow_registers: On::Pressure, [],
}

/// One more with each read, and read by nobody else.
const TICKET: u32 = 0x12341;

/// So many tickets in a sample: more than a cache line has.
const TICKETS: u64 = 16;

/// A register that takes its time.
const SLOW: u32 = 0x12340;

/// Whether the tickets are those of one sample. No time is involved: a CPU that the host does not run
/// for a while hands out no tickets either.
fn is_whole(sample: &Sample) -> bool {
    let first = sample.value(0);
    (0..TICKETS).all(|i| sample.value(i as usize) == first + i) && first % TICKETS == 1
}

/// Readers flat out against exact samplers. By the protocol, all tickets are of one sample; without it,
/// they now and then are not, or nothing would be proven.
fn samples_are_whole(env: &Env) {
    let cpus = guest::online();
    let one = |&cpu: &u32| vec![Op::msr(cpu, TICKET); TICKETS as usize];
    let ops: Vec<Op> = cpus.iter().flat_map(one).collect();
    let sampler = Sampler::new(&Device::open(), &ops, |_| ());
    let (looks, torn) = (AtomicU64::new(0), AtomicU64::new(0));
    let over = AtomicBool::new(false);
    let read = |mapped: &Mapped, reader: u32| {
        let index = reader % cpus.len() as u32;
        let mut last = 0;
        while !over.load(Ordering::Relaxed) {
            let (sample, _) = mapped.read_at(mapped.slot_place(index));
            if sample.slot.number != 0 {
                assert!(is_whole(&sample), "torn: {sample:?}");
                assert!(sample.slot.number >= last, "{last}, then {sample:?}");
                last = sample.slot.number;
            }
            looks.fetch_add(1, Ordering::Relaxed);
            let careless = mapped.look(mapped.slot_place(index));
            if careless.slot.number != 0 && !is_whole(&careless) {
                torn.fetch_add(1, Ordering::Relaxed);
            }
        }
        assert!(last > 20, "{last} samples");
    };
    scope(|scope| {
        for reader in 0..2 * cpus.len() as u32 {
            let (read, mapped) = (&read, &sampler.mapped);
            scope.spawn(move || read(mapped, reader));
        }
        sleep(env.soak * 2);
        over.store(true, Ordering::Relaxed);
    });
    let (looks, torn) = (looks.into_inner(), torn.into_inner());
    println!("{looks} looks, {torn} torn without the protocol");
    assert!(torn > 0, "nothing was proven");
}

/// Registers of which each takes longer than a round may: a round for each of them, all in one sample,
/// which takes several periods; and no more of the CPU's time than a sampler may have.
fn slow_registers(_: &Env) {
    const SLOW_US: u64 = 600;
    let cpu = guest::online()[1];
    Control::new().delay_ns(ALL, SLOW, SLOW_US * 1000);
    let device = Device::open();
    let allowed = attribute("sampler_permille");
    let ops = [
        Op::msr(cpu, SLOW),
        Op::msr(cpu, TSC_AUX),
        Op::msr(cpu, SLOW),
        Op::msr(cpu, SLOW),
    ];
    let sampler = Sampler::new(&device, &ops, |request| request.interval_ns = MS);
    let cycles_per_us = u64::from(device.info().tsc_khz) / 1000;
    let first = sampler.wait_beyond(0, 3);
    let last = sampler.wait_beyond(0, first.slot.number + 50);
    for sample in [&first, &last] {
        assert!(sample.results.iter().all(|result| result.status == 0));
        for slow in [0, 2, 3] {
            assert_eq!(sample.value(slow), 0x100 + u64::from(cpu), "{sample:?}");
        }
        assert_eq!(sample.value(1) & 0xfff, u64::from(cpu));
        let apart = sample.results[3].tsc - sample.results[2].tsc;
        assert!(
            apart >= SLOW_US * cycles_per_us,
            "{apart} cycles: {sample:?}"
        );
    }
    let samples = last.slot.number - first.slot.number;
    let busy_ns = (last.slot.busy - first.slot.busy) / cycles_per_us * 1000;
    let took_ns = last.slot.time_ns - first.slot.time_ns;
    println!("{samples} samples in {took_ns} ns, busy for {busy_ns} ns");
    assert!(busy_ns >= samples * 3 * SLOW_US * 1000);
    assert!(
        last.slot.skipped > first.slot.skipped,
        "it is too much for it"
    );
    // What it saved up before, and what one sample is over.
    let spare_ns = 2 * busy_ns / samples + 10 * MS;
    assert!(
        busy_ns <= took_ns * allowed / 1000 + spare_ns,
        "more than {allowed} permille"
    );
    // Nobody else has to wait for all of it.
    device
        .read(Op::msr(cpu, TSC_AUX))
        .expect_answer(&Op::msr(cpu, TSC_AUX));
}
