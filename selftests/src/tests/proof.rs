// SPDX-License-Identifier: GPL-2.0

//! What the module says of itself, against what the kernel says: interrupts from /proc/interrupts,
//! calls from the csd tracepoints, sleeps from getrusage().

use std::thread::{self, sleep};
use std::time::Instant;

use super::blocked::with_blocked_cpu;
use super::read::{faulting_msr, pluggable_cpu};
use super::{tests, Env};
use crate::device::{cpupeek_batch, header, uapi, Device, Op, SELF, TSC_AUX};
use crate::guest::{self, attribute};
use crate::sys::{self, Child};
use crate::trace::{Event, Trace};

tests! {
    "proof";
    one_interrupt_for_a_read: [Cpus Trace],
    no_interrupt_for_this_cpu: [Trace],
    one_interrupt_for_each_cpu_of_a_batch: [Cpus Trace],
    interrupts_arrive: [Cpus],
    refused_operations_interrupt_nobody: [Cpus Trace],
    rounds_are_bounded: [Cpus Trace],
    rounds_of_many_callers_are_bounded: [Hold Trace],
    sleeps_are_sleeps: [Hold],
    counters_count: [Cpus],
    losses_are_counted: [Hotplug],
}

const CALLS: &[(&str, &str)] = &[("csd/csd_queue_cpu", ""), ("csd/csd_function_entry", "")];

/// Events that name a function of the module's.
fn ours<'a>(events: &'a [Event], name: &'a str) -> impl Iterator<Item = &'a Event> {
    events
        .iter()
        .filter(move |event| event.name == name && event.text().contains("[cpupeek]"))
}

/// Runs `action` and returns for each CPU in `cpus` how many calls of the module's were queued on
/// it. The module's own count must be the sum, and each call must have run where it should.
#[track_caller]
pub fn calls_during(cpus: &[u32], action: impl FnOnce()) -> Vec<usize> {
    let before = attribute("interrupts");
    let trace = Trace::start(CALLS);
    action();
    let events = trace.stop();
    let interrupts = attribute("interrupts") - before;
    let queued = |cpu: u32| {
        let cpu = cpu.to_string();
        ours(&events, "csd_queue_cpu")
            .filter(|event| event.field("cpu") == Some(&cpu))
            .count()
    };
    let counts: Vec<usize> = cpus.iter().map(|&cpu| queued(cpu)).collect();
    for (&cpu, &count) in cpus.iter().zip(&counts) {
        let ran = ours(&events, "csd_function_entry").filter(|event| event.cpu == cpu);
        assert_eq!(ran.count(), count, "calls that ran on CPU {cpu}");
    }
    let total = ours(&events, "csd_queue_cpu").count();
    assert_eq!(counts.iter().sum::<usize>(), total, "calls of other CPUs");
    assert_eq!(interrupts, total as u64, "the module's own count");
    counts
}

/// The caller's CPU, which it stays on, and the others.
fn here_and_there() -> (u32, Vec<u32>) {
    let mut cpus = guest::online();
    let here = cpus.remove(0);
    sys::pin(&[here]).unwrap();
    (here, cpus)
}

fn one_interrupt_for_a_read(_: &Env) {
    let device = Device::open();
    let (_, others) = here_and_there();
    let reads = 50;
    let calls = calls_during(&others, || {
        for _ in 0..reads {
            for &cpu in &others {
                device.msr(cpu, TSC_AUX);
            }
        }
    });
    assert_eq!(calls, vec![reads; others.len()]);
}

fn no_interrupt_for_this_cpu(_: &Env) {
    let device = Device::open();
    let (here, others) = here_and_there();
    let local = attribute("local_ops");
    let ops: Vec<Op> = (0..500)
        .map(|i| Op::msr([here, SELF][i % 2], TSC_AUX))
        .collect();
    let calls = calls_during(&others, || {
        for &op in &ops {
            device.read(op);
        }
        device.batch(&ops);
    });
    assert_eq!(calls.iter().sum::<usize>(), 0);
    assert_eq!(attribute("local_ops"), local + 1000);
}

fn one_interrupt_for_each_cpu_of_a_batch(_: &Env) {
    let device = Device::open();
    let (here, others) = here_and_there();
    let cpus = guest::online();
    // No more than one round of them.
    let ops: Vec<Op> = (0..10 * cpus.len())
        .map(|i| Op::msr(cpus[i % cpus.len()], TSC_AUX))
        .collect();
    device.batch(&ops);
    let batches = 20;
    let mut rounds = 0;
    let calls = calls_during(&others, || {
        let before = attribute("rounds");
        for _ in 0..batches {
            device.batch(&ops);
        }
        rounds = (attribute("rounds") - before) as usize;
    });
    // A vCPU that the host takes a break from may need another round.
    for &count in &calls {
        assert!((batches..=rounds).contains(&count), "{calls:?} in {rounds}");
    }
    // Nested, one read can take longer than a round may.
    if std::env::var("CPUPEEK_LANE").is_ok_and(|lane| lane == "tcg") {
        assert!(rounds < batches + batches / 2, "{rounds} rounds");
    }
    assert!(!others.contains(&here));
}

/// A process that keeps a CPU from idling, so that calls to it need interrupts.
fn keep_busy(cpu: u32) -> Child {
    sys::fork(|| {
        sys::pin(&[cpu]).unwrap();
        loop {
            std::hint::spin_loop();
        }
    })
}

fn interrupts_arrive(_: &Env) {
    let device = Device::open();
    let (_, others) = here_and_there();
    let busy: Vec<Child> = others.iter().take(2).map(|&cpu| keep_busy(cpu)).collect();
    let reads = 40;
    for &cpu in others.iter().take(2) {
        let count = || {
            let counts = guest::call_interrupts().into_iter();
            counts
                .filter(|&(number, _)| number == cpu)
                .map(|(_, count)| count)
                .sum::<u64>()
        };
        // An idle control, of the same length or longer.
        let start = Instant::now();
        let (before, said) = (count(), attribute("interrupts"));
        for _ in 0..reads {
            device.msr(cpu, TSC_AUX);
        }
        let arrived = count() - before;
        assert_eq!(
            attribute("interrupts") - said,
            reads,
            "the module's own count"
        );
        let took = start.elapsed();
        let before = count();
        sleep(took);
        let control = count() - before;
        assert!(arrived >= reads, "{arrived} on CPU {cpu} for {reads}");
        // Ours, and about as many of others as without us.
        assert!(
            arrived <= reads + 2 * control + reads / 2,
            "{arrived} on CPU {cpu} for {reads}, and {control} without us"
        );
    }
    for child in busy {
        child.kill(libc::SIGKILL);
        child.wait();
    }
}

fn refused_operations_interrupt_nobody(_: &Env) {
    let device = Device::open();
    let (_, others) = here_and_there();
    let mut ops = Vec::new();
    for &cpu in &others {
        let mut malformed = Op::msr(cpu, TSC_AUX);
        malformed.reserved = 1;
        ops.extend([
            malformed,
            Op::new(cpu, 3, 0, 0),
            Op::msr(SELF - cpu, TSC_AUX),
        ]);
    }
    let calls = calls_during(&others, || {
        for &op in &ops {
            device.read(op);
        }
        device.batch(&ops);
    });
    assert_eq!(calls.iter().sum::<usize>(), 0);
}

fn rounds_are_bounded(_: &Env) {
    let device = Device::open();
    let (_, others) = here_and_there();
    let cpu = others[0];
    let limit = device.info().max_round_ops as usize;
    // One more in each round, and there is a round less.
    let count = limit * (limit + 1);
    let ops = vec![Op::msr(cpu, TSC_AUX); count];
    let mut answers = Vec::new();
    let calls = calls_during(&[cpu], || answers = device.batch(&ops));
    eprintln!("{} rounds for {count} operations", calls[0]);
    assert!(
        calls[0] > limit,
        "{} rounds for {count} operations",
        calls[0]
    );
    for (asked, op) in ops.iter().zip(&answers) {
        op.expect_answer(asked);
    }
    // A round also ends after some time, which on a busy host is soon over: some of many small
    // batches get as far as the number of operations.
    let ops = &ops[..limit + 1];
    for _ in 0..200 {
        let before = attribute("interrupts");
        device.batch(ops);
        let calls = attribute("interrupts") - before;
        assert!(calls > 1, "one round for {} operations", ops.len());
    }
}

/// One interrupt has a CPU do what everybody has asked of it until then. Together that is four rounds,
/// and one operation of each caller who comes after them.
fn rounds_of_many_callers_are_bounded(_: &Env) {
    const CALLERS: usize = 16;
    const INTERRUPT: &[(&str, &str)] = &[
        ("irq_vectors/call_function_single_entry", ""),
        ("irq_vectors/call_function_single_exit", ""),
    ];
    let limit = Device::open().info().max_round_ops as usize;
    // Starting it needs all CPUs.
    let trace = Trace::start(INTERRUPT);
    with_blocked_cpu(|blocked| {
        let ops = vec![Op::msr(blocked.cpu, TSC_AUX); limit];
        let before = attribute("interrupts");
        let answers: Vec<Op> = thread::scope(|scope| {
            let call = || {
                sys::pin(&blocked.others).expect("they are online");
                Device::open().batch(&ops)
            };
            let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(call)).collect();
            guest::wait_until("all of them have called", || {
                attribute("interrupts") - before == CALLERS as u64
            });
            blocked.let_go();
            let answers = callers
                .into_iter()
                .flat_map(|caller| caller.join().unwrap());
            answers.collect()
        });
        let events = trace.stop();

        let mut times: Vec<u64> = answers.iter().map(|op| op.tsc).collect();
        times.sort_unstable();
        let (mut largest, mut all) = (0, 0);
        let mut entered = None;
        for event in events.iter().filter(|event| event.cpu == blocked.cpu) {
            if event.name == "call_function_single_entry" {
                entered = Some(event.tsc);
            } else if let Some(entry) = entered.take() {
                // One event is switched on before the other, with interrupts in between.
                let within = |&&tsc: &&u64| entry < tsc && tsc < event.tsc;
                let count = times.iter().filter(within).count();
                largest = largest.max(count);
                all += count;
            }
        }
        eprintln!("at most {largest} operations in an interrupt, {all} in all");
        assert!(all >= limit, "interrupts performed {all} operations only");
        let most = 4 * limit + CALLERS;
        assert!(largest < most, "{largest} operations in an interrupt");
        assert!(
            largest >= CALLERS,
            "only {largest}: they did not come together"
        );
    });
}

fn sleeps_are_sleeps(_: &Env) {
    with_blocked_cpu(|blocked| {
        let device = Device::open();
        sys::pin(&blocked.others[..1]).unwrap();
        guest::set_read_timeout_ms(20);
        let sleeps = attribute("sleeps");
        let switches = sys::voluntary_switches();
        let header = cpupeek_batch {
            flags: uapi::CPUPEEK_BATCH_SLEEP,
            timeout_ms: 20,
            ..header(0)
        };
        let ops = [Op::msr(blocked.cpu, TSC_AUX)];
        for _ in 0..10 {
            let answers = device.batch_with(header, &ops);
            answers[0].expect_error(&ops[0], libc::ETIME);
        }
        let switches = sys::voluntary_switches() - switches;
        assert!(blocked.is_held(), "nothing was proven: the CPU was let go");
        assert_eq!(switches, 10, "sleeps that the scheduler saw");
        assert_eq!(attribute("sleeps") - sleeps, 10, "the module's own count");
    });
    // The control: this CPU makes nobody sleep.
    let device = Device::open();
    let (sleeps, switches) = (attribute("sleeps"), sys::voluntary_switches());
    for _ in 0..100 {
        device.msr(SELF, TSC_AUX);
    }
    assert_eq!(sys::voluntary_switches(), switches);
    assert_eq!(attribute("sleeps"), sleeps, "the module's own count");
}

fn counters_count(_: &Env) {
    let names = [
        "calls",
        "ops",
        "local_ops",
        "interrupts",
        "timeouts",
        "losses",
        "abandoned",
    ];
    let all = || names.map(attribute);
    let device = Device::open();
    let (here, others) = here_and_there();
    let expect = |what: &str, before: [u64; 7], increase: [u64; 7]| {
        let after = all();
        let found: Vec<u64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
        assert_eq!(found, increase, "{what}: {names:?}");
    };
    let before = all();
    device.msr(here, TSC_AUX);
    device.msr(SELF, TSC_AUX);
    expect("local reads", before, [2, 2, 2, 0, 0, 0, 0]);
    let before = all();
    device.msr(others[0], TSC_AUX);
    expect("a remote read", before, [1, 1, 0, 1, 0, 0, 0]);
    let before = all();
    device.read(Op::new(0, 9, 0, 0));
    expect("a malformed read", before, [1, 1, 0, 0, 0, 0, 0]);
    let before = all();
    device.batch(&[]);
    expect("an empty batch", before, [1, 0, 0, 0, 0, 0, 0]);
    let ops = [
        Op::msr(here, TSC_AUX),
        Op::msr(SELF, TSC_AUX),
        Op::msr(others[0], TSC_AUX),
        Op::msr(others[0], faulting_msr().unwrap_or(TSC_AUX)),
        Op::new(0, 9, 0, 0),
    ];
    let before = all();
    device.batch(&ops);
    let increase = [1, 5, 2, 1, 0, 0, 0];
    let after = all();
    // One more interrupt if the host took a break between the two operations.
    let second_round = after[3] - before[3] == 2;
    expect(
        "a batch",
        before,
        if second_round {
            [1, 5, 2, 2, 0, 0, 0]
        } else {
            increase
        },
    );
    let before = all();
    let info = device.info();
    assert_eq!(info.reserved, 0);
    expect("INFO", before, [0; 7]);
}

fn losses_are_counted(_: &Env) {
    let device = Device::open();
    let cpu = pluggable_cpu();
    guest::set_online(cpu, false);
    let before = attribute("losses");
    let asked = Op::msr(cpu, TSC_AUX);
    device.read(asked).expect_error(&asked, libc::ENXIO);
    assert_eq!(attribute("losses"), before + 1);
    for op in device.batch(&[asked; 10]) {
        op.expect_error(&asked, libc::ENXIO);
    }
    assert_eq!(attribute("losses"), before + 11);
}
