// SPDX-License-Identifier: GPL-2.0

//! What the kernel itself says of samplers: interrupts, timers, and whether CPUs idle on; and that
//! nobody ever sees a torn slot.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::blocked::with_blocked_cpu;
use super::{tests, Env};
use crate::device::{Device, Op, TSC_AUX};
use crate::guest;
use crate::sampler::{Sample, Sampler, EXACT, MS};
use crate::sys;
use crate::trace::{Event, Trace};

tests! {
    "sampler_proof";
    never_torn: [Cpus],
    past_samples_are_never_torn: [Cpus],
    first_sample_is_there_at_once: [],
    one_call_for_each_cpu_at_the_start: [Cpus Trace],
    no_calls_after_the_start: [Cpus Trace],
    timers_stay_on_their_cpus: [Cpus Trace],
    idle_cpus_are_not_woken: [Cpus Trace],
    nothing_runs_after_the_end: [Trace],
    timers_of_one_interrupt_are_bounded_together: [Hold Trace],
    deferrable_timers_all_have_their_turn: [],
}

fn sixteen_on_each(cpus: &[u32]) -> Vec<Op> {
    let each = |&cpu: &u32| (0..16).map(move |_| Op::msr(cpu, TSC_AUX));
    cpus.iter().flat_map(each).collect()
}

/// Readers flat out against exact samplers: those who keep to the protocol never see a slot that
/// is not whole, and those who do not keep to it see some, or nothing would be proven.
fn never_torn(env: &Env) {
    let cpus = guest::online();
    let ops = sixteen_on_each(&cpus);
    let sampler = Sampler::new(&Device::open(), &ops, |request| request.ring_samples = 2048);
    let (looks, again, torn) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let over = AtomicBool::new(false);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for reader in 0..2 * cpus.len() as u32 {
            let (sampler, over) = (&sampler, &over);
            let (looks, again, torn) = (&looks, &again, &torn);
            scope.spawn(move || {
                let index = reader % sampler.mapped.map.nr_slots;
                let place = sampler.mapped.slot_place(index);
                // What is in the ring was written another time.
                let is_torn = |sample: &Sample| {
                    let past = sampler.mapped.past(index, sample.slot.number);
                    past.slot.number == sample.slot.number && !past.is_same(sample)
                };
                let careless = reader == 0;
                while !over.load(Ordering::Relaxed) {
                    looks.fetch_add(1, Ordering::Relaxed);
                    if careless {
                        let look = sampler.mapped.look(place);
                        torn.fetch_add(is_torn(&look).into(), Ordering::Relaxed);
                        continue;
                    }
                    let (sample, more) = sampler.mapped.read_at(place);
                    assert!(sample.is_whole() && !is_torn(&sample), "torn: {sample:?}");
                    again.fetch_add(more, Ordering::Relaxed);
                }
            });
        }
        // A full soak is twice as long as what most tests take of it.
        while start.elapsed() < env.soak * 2
            || (torn.load(Ordering::Relaxed) == 0 && start.elapsed() < env.soak * 8)
        {
            sleep(Duration::from_millis(10));
        }
        over.store(true, Ordering::Relaxed);
    });
    println!("{looks:?} looks, {again:?} times again, {torn:?} torn without the protocol");
    assert_ne!(torn.load(Ordering::Relaxed), 0, "nothing was proven");
}

fn past_samples_are_never_torn(env: &Env) {
    let cpu = guest::online()[1];
    let ops = sixteen_on_each(&[cpu]);
    let sampler = Sampler::new(&Device::open(), &ops, |request| request.ring_samples = 2);
    let start = Instant::now();
    let mut seen = 0;
    while start.elapsed() < env.soak / 2 {
        let latest = sampler.latest(0).slot.number;
        for number in [latest.saturating_sub(1), latest, latest + 1] {
            let past = sampler.mapped.past(0, number);
            assert!(past.is_whole(), "torn: {past:?}");
            assert!(past.slot.number <= number || past.slot.number >= number + 2);
            seen += u64::from(past.slot.number == number);
        }
    }
    assert_ne!(seen, 0);
}

const CALLS: &[(&str, &str)] = &[
    ("csd/csd_queue_cpu", ""),
    ("csd/csd_function_entry", ""),
    ("ipi/ipi_send_cpu", ""),
    ("ipi/ipi_send_cpumask", ""),
];

fn is_ours(event: &&Event) -> bool {
    event.text().contains("[cpupeek]")
}

fn one_call_for_each_cpu_at_the_start(_: &Env) {
    let cpus = guest::online();
    sys::pin(&cpus[..1]).unwrap();
    let device = Device::open();
    for flags in [0, EXACT] {
        let ops = sixteen_on_each(&cpus);
        let trace = Trace::start(&CALLS[..2]);
        let sampler = Sampler::new(&device, &ops, |request| {
            request.flags = flags;
            request.interval_ns = 10 * MS;
        });
        // Where a register takes long, one round does not have all of them; no call has the others.
        for index in 0..sampler.mapped.map.nr_slots {
            sampler.wait_beyond(index, 0);
        }
        let events = trace.stop();
        let queued = |event: &&Event| event.name == "csd_queue_cpu";
        let calls = events.iter().filter(is_ours).filter(queued).count();
        assert_eq!(calls, cpus.len() - 1, "{events:?}");
    }
}

fn first_sample_is_there_at_once(_: &Env) {
    let device = Device::open();
    for flags in [0, EXACT] {
        let ops: Vec<Op> = guest::online()
            .iter()
            .map(|&cpu| Op::msr(cpu, TSC_AUX))
            .collect();
        let sampler = Sampler::new(&device, &ops, |request| {
            request.flags = flags;
            request.interval_ns = 1000 * MS;
        });
        for index in 0..sampler.mapped.map.nr_slots {
            assert_ne!(sampler.latest(index).slot.number, 0, "CPU {index}");
        }
    }
}

/// A sampler of 16 registers on every CPU at 100 Hz.
fn no_calls_after_the_start(env: &Env) {
    let cpus = guest::online();
    let ops = sixteen_on_each(&cpus);
    let device = Device::open();
    for flags in [EXACT, 0] {
        let sampler = Sampler::new(&device, &ops, |request| {
            request.flags = flags;
            request.interval_ns = 10 * MS;
        });
        let samples = guest::attribute("samples");
        let trace = Trace::start(CALLS);
        sleep(env.soak / 2);
        // Nobody but this reader waits for anything of ours.
        for index in 0..sampler.mapped.map.nr_slots {
            sampler.latest(index);
        }
        let events = trace.stop();
        let ours: Vec<&Event> = events.iter().filter(is_ours).collect();
        assert!(ours.is_empty(), "{ours:?}");
        let taken = guest::attribute("samples") - samples;
        println!("{taken} samples, {} events of others", events.len());
        assert!(taken > 0, "nothing was proven");
    }
}

/// Timers of ours that have expired, by CPU.
fn expired(events: &[Event]) -> Vec<u32> {
    let entry = ["hrtimer_expire_entry", "timer_expire_entry"];
    events
        .iter()
        .filter(|event| entry.contains(&&*event.name))
        .filter(is_ours)
        .map(|event| event.cpu)
        .collect()
}

const TIMERS: &[(&str, &str)] = &[
    ("timer/hrtimer_expire_entry", ""),
    ("timer/timer_expire_entry", ""),
    ("timer/hrtimer_start", ""),
    ("timer/timer_start", ""),
];

fn timers_stay_on_their_cpus(env: &Env) {
    let cpus = guest::online();
    let sampled = [cpus[1]];
    let sampler = Sampler::new(&Device::open(), &sixteen_on_each(&sampled), |request| {
        request.interval_ns = 5 * MS;
    });
    let trace = Trace::start(TIMERS);
    sleep(env.soak / 5);
    let seen = expired(&trace.stop());
    assert!(!seen.is_empty(), "nothing was proven");
    assert!(seen.iter().all(|&cpu| cpu == cpus[1]), "{seen:?}");
    assert_ne!(sampler.latest(0).slot.number, 0);
}

/// How often a CPU's own timer has interrupted it, from /proc/interrupts.
fn timer_interrupts(cpu: u32) -> u64 {
    let text = guest::read("/proc/interrupts").unwrap();
    let row = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("LOC:"));
    let row = row.expect("/proc/interrupts has a LOC row");
    let place = guest::online().iter().position(|&other| other == cpu);
    let word = row
        .split_whitespace()
        .nth(place.expect("the CPU is online"));
    word.expect("a count").parse().expect("a number")
}

/// How often something happens on a CPU in `time` with a sampler of `flags`, or without one:
/// expiries of our timers, and interrupts of its timer.
fn wakeups(cpu: u32, flags: Option<u32>, time: Duration) -> (usize, u64) {
    let sampler = flags.map(|flags| {
        Sampler::new(&Device::open(), &sixteen_on_each(&[cpu]), |request| {
            request.flags = flags;
            request.interval_ns = 10 * MS;
        })
    });
    let trace = Trace::start(TIMERS);
    let before = timer_interrupts(cpu);
    sleep(time);
    let interrupts = timer_interrupts(cpu) - before;
    let events = trace.stop();
    if let Some(sampler) = sampler {
        assert_ne!(
            sampler.latest(0).slot.number,
            0,
            "the first sample is there"
        );
    }
    let ours = expired(&events)
        .iter()
        .filter(|&&other| other == cpu)
        .count();
    (ours, interrupts)
}

/// A deferrable sampler's timer expires only when the CPU is awake anyway; an exact one's every
/// time, or the measure would see nothing.
fn idle_cpus_are_not_woken(env: &Env) {
    let cpus = guest::online();
    sys::pin(&cpus[..1]).unwrap();
    // The one that tests are kept off.
    let cpu = *cpus.last().expect("several CPUs");
    let time = env.soak.max(Duration::from_secs(2)) / 2;
    let due = time.as_millis() as usize / 10;
    // Whatever else the guest does on that CPU, some tries are quiet.
    let mut seen = Vec::new();
    for _ in 0..5 {
        let none = wakeups(cpu, None, time);
        let deferrable = wakeups(cpu, Some(0), time);
        let exact = wakeups(cpu, Some(EXACT), time);
        seen.push((none, deferrable, exact));
        println!("(ours, interrupts) in {due} periods: none {none:?}, deferrable {deferrable:?}, exact {exact:?}");
        assert_eq!(none.0, 0);
        // As often as it was awake at most, which its own timer's interrupts tell.
        assert!(deferrable.0 as u64 <= deferrable.1 + 2, "{seen:?}");
        let quiet = deferrable.0 < due / 2 && deferrable.1 < none.1 + due as u64 / 4;
        if quiet && exact.0 > 2 * deferrable.0 && exact.1 > deferrable.1 {
            return;
        }
    }
    panic!("{seen:?}");
}

fn nothing_runs_after_the_end(_: &Env) {
    let ops = sixteen_on_each(&guest::online());
    let device = Device::open();
    for flags in [EXACT, 0] {
        for stopped in [false, true] {
            let sampler = Sampler::new(&device, &ops, |request| request.flags = flags);
            sampler.wait_beyond(0, 2);
            // One that was stopped is kept, and still nothing runs.
            let kept = if stopped {
                assert_eq!(sampler.stop(), Ok(()));
                Some(sampler)
            } else {
                drop(sampler);
                None
            };
            let trace = Trace::start(TIMERS);
            sleep(Duration::from_millis(200));
            let events = trace.stop();
            assert!(!events.is_empty(), "the trace sees nothing at all");
            let ours: Vec<&Event> = events.iter().filter(is_ours).collect();
            assert!(ours.is_empty(), "{ours:?}");
            drop(kept);
        }
    }
}

/// Samplers of a CPU, for one interrupt to sample all of them.
const TOGETHER: usize = 48;

/// As many registers each: together they take longer than one interrupt may.
const REGISTERS: usize = 64;

const TIMERS_IN_INTERRUPTS: &[(&str, &str)] = &[
    ("irq_vectors/local_timer_entry", ""),
    ("irq_vectors/local_timer_exit", ""),
    ("timer/hrtimer_expire_entry", ""),
];

/// In one interrupt of a CPU's timer, at most: how many registers were read; how many timers of ours have
/// expired.
fn busiest(events: &[Event], cpu: u32, times: &[u64]) -> (usize, usize) {
    let (mut entered, mut expired, mut busiest) = (None, 0, (0, 0));
    for event in events.iter().filter(|event| event.cpu == cpu) {
        match &*event.name {
            "local_timer_entry" => (entered, expired) = (Some(event.tsc), 0),
            "local_timer_exit" => {
                if let Some(entry) = entered.take() {
                    let within = |&&tsc: &&u64| entry < tsc && tsc < event.tsc;
                    let read = times.iter().filter(within).count();
                    busiest = (read.max(busiest.0), expired.max(busiest.1));
                }
            }
            _ => expired += usize::from(is_ours(&event)),
        }
    }
    busiest
}

fn tscs(sample: &Sample) -> Vec<u64> {
    let tscs = sample.results.iter().map(|result| result.tsc);
    tscs.collect()
}

/// How many cycles a register takes, unless a sample takes more than `limit`: then nothing can be said
/// of many of them, since each takes a round or more.
fn quick_register(sampler: &Sampler, limit: u64) -> Option<u64> {
    let first = tscs(&sampler.wait_beyond(0, 0));
    let mut gaps: Vec<u64> = first.windows(2).map(|two| two[1] - two[0]).collect();
    gaps.sort_unstable();
    let each = gaps[gaps.len() / 2].max(1);
    let is_quick = each * REGISTERS as u64 <= limit;
    if !is_quick {
        println!("a register takes {each} cycles, and 100 us are {limit}: nothing to be proven");
    }
    is_quick.then_some(each)
}

/// Timers that expire while interrupts are off come in one interrupt. Together they may sample for as
/// long as one may alone; the others come soon after, all of them.
fn timers_of_one_interrupt_are_bounded_together(_: &Env) {
    const TIMES: usize = 5;
    let interval = 400 * MS;
    let device = Device::open();
    let cpu = *guest::online().last().expect("a CPU is online");
    let ops = vec![Op::msr(cpu, TSC_AUX); REGISTERS];
    let samplers: Vec<Sampler> = (0..TOGETHER)
        .map(|_| {
            Sampler::new(&device, &ops, |request| {
                request.interval_ns = interval;
                request.ring_samples = 16;
            })
        })
        .collect();
    let limit = u64::from(device.info().tsc_khz) / 10;
    let Some(each) = quick_register(&samplers[0], limit) else {
        return;
    };
    // What takes 100 us, and what each that was put off and came again reads in 1 us.
    let together = 2 * (limit / each) as usize;
    let turn = 2 + 2 * (limit / 100 / each) as usize;

    for _ in 0..TIMES {
        let trace = Trace::start(TIMERS_IN_INTERRUPTS);
        let number = |sampler: &Sampler| sampler.latest(0).slot.number;
        let mut before = Vec::new();
        with_blocked_cpu(|_| {
            before.extend(samplers.iter().map(number));
            sleep(Duration::from_nanos(interval + interval / 4));
        });
        let next = |(sampler, before): (&Sampler, &u64)| {
            sampler.wait_beyond(0, *before);
            let sample = sampler.mapped.past(0, before + 1);
            assert_eq!(sample.slot.number, before + 1, "it has been overwritten");
            sample
        };
        let samples: Vec<Sample> = samplers.iter().zip(&before).map(next).collect();
        let events = trace.stop();

        let times: Vec<u64> = samples.iter().flat_map(tscs).collect();
        let (read, expired) = busiest(&events, cpu, &times);
        let begun = samples.iter().map(|sample| sample.slot.time_ns);
        let spread = begun
            .clone()
            .max()
            .zip(begun.min())
            .map(|(last, first)| last - first);
        let spread = spread.expect("there are samples");
        println!(
            "{read} registers read, of {} timers, in {spread} ns all",
            expired
        );
        assert!(expired >= TOGETHER / 2, "they did not expire together");
        let most = together + expired * turn;
        assert!(read <= most, "more than {most} in one interrupt");
        assert!(read >= 1, "nothing is proven");
        assert!(spread < interval, "some had to wait for long");
    }
}

/// More than fits into the time that they have together, in every tick: all go slower, and none is left
/// behind.
fn deferrable_timers_all_have_their_turn(env: &Env) {
    let cpu = guest::online()[0];
    let ops = vec![Op::msr(cpu, TSC_AUX); REGISTERS];
    let device = Device::open();
    let make = |_| Sampler::new(&device, &ops, |request| request.flags = 0);
    let samplers: Vec<Sampler> = (0..TOGETHER).map(make).collect();
    let limit = u64::from(device.info().tsc_khz) / 10;
    if quick_register(&samplers[0], limit).is_none() {
        return;
    }
    // The tick goes on.
    let busy = sys::fork(|| {
        sys::pin(&[cpu]).unwrap();
        loop {
            std::hint::spin_loop();
        }
    });
    sleep(env.soak / 2);
    busy.kill(libc::SIGKILL);
    busy.wait();
    let numbers: Vec<u64> = samplers
        .iter()
        .map(|sampler| sampler.latest(0).slot.number)
        .collect();
    println!("samples of each: {numbers:?}");
    let (least, most) = (numbers.iter().min(), numbers.iter().max());
    let (least, most) = (*least.unwrap(), *most.unwrap());
    assert!(most > 20, "they do not run");
    assert!(
        least > most / 10,
        "{least} samples of one, {most} of another"
    );
}
