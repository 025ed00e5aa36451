// SPDX-License-Identifier: GPL-2.0

//! What is young enough is served without asking the CPU, and what is not is asked for once.

use std::fs::File;
use std::sync::Barrier;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use cpupeek_selftests::guest::{self, attribute};
use cpupeek_selftests::sys::{self, Errno};
use cpupeek_selftests::tests::Env;
use cpupeek_selftests::trace::Trace;

use super::decode::reload;
use super::{tests, On};
use crate::control::Control;
use crate::files::{self, number, reread, try_number};

tests! { "cache";
    age_and_generation: On::Once, [Module],
    a_register_is_read_once_per_period: On::Once, [],
    a_thousand_readers_refresh_once: On::Once, [Cpus Trace],
    readers_all_the_time_refresh_once_per_period: On::Once, [Cpus],
    cached_reads_interrupt_nobody: On::Once, [Cpus Trace],
    errors_are_cached: On::Once, [],
    a_cpu_refreshes_for_itself_only: On::Once, [Cpus],
}

/// Temperature status, which is described wherever these tests run.
const THERM_STATUS: u32 = 0x19c;

fn age_and_generation(env: &Env) {
    reload(env);
    let cpu = guest::online()[0];
    let refreshes = attribute("refreshes");
    assert_eq!(try_number(cpu, "age_ms"), Err(Errno(libc::ENODATA)));
    assert_eq!(number(cpu, "generation"), 0);
    assert_eq!(attribute("refreshes"), refreshes, "asking that is free");

    let start = Instant::now();
    number(cpu, "tsc");
    assert_eq!(number(cpu, "generation"), 1);
    sleep(Duration::from_millis(50));
    let age = number(cpu, "age_ms");
    let most = start.elapsed().as_millis() as i128 + 1;
    assert!((50..=most).contains(&age), "{age} ms, at most {most}");
    assert_eq!(number(cpu, "generation"), 1);

    files::expire();
    assert_eq!(number(cpu, "generation"), 1, "nobody has read a value");
    number(cpu, "tsc");
    assert_eq!(number(cpu, "generation"), 2);
    assert_eq!(attribute("refreshes"), refreshes + 2);
}

fn a_register_is_read_once_per_period(_: &Env) {
    let control = Control::new();
    let cpu = guest::online()[0];
    let mut names = files::names(cpu);
    // A frequency is another matter: it takes two samples.
    names.retain(|name| !["freq_khz", "freq_error_ppm", "c0_permille"].contains(&name.as_str()));
    let read_all = || {
        for name in &names {
            number(cpu, name);
        }
    };
    // Energy that was never read before has to be read from the CPU to begin with.
    read_all();
    for _ in 0..5 {
        files::expire();
        let reads = control.reads(cpu, THERM_STATUS);
        number(cpu, "cpu_thermal_margin");
        files::set("cache_ms", 60_000);
        read_all();
        assert_eq!(control.reads(cpu, THERM_STATUS), reads + 1);
    }
}

/// Calls of ours that a CPU has answered, in a trace.
fn calls(trace: Trace, target: u32) -> usize {
    let events = trace.stop();
    let ours = events
        .iter()
        .filter(|event| event.cpu == target && event.text().contains("cpupeek"));
    ours.count()
}

fn trace_calls() -> Trace {
    Trace::start(&[("csd/csd_function_entry", "")])
}

fn interrupts(target: u32) -> u64 {
    let all = guest::call_interrupts();
    let found = all.into_iter().find(|&(cpu, _)| cpu == target);
    found.expect("the CPU is online").1
}

/// A CPU to ask, and all others.
fn target() -> (u32, Vec<u32>) {
    let mut others = guest::online();
    let target = others.pop().expect("there are CPUs");
    (target, others)
}

fn a_thousand_readers_refresh_once(_: &Env) {
    const READERS: usize = 1000;
    const ROUNDS: u64 = 3;
    let (target, others) = target();
    let (start, end) = (Barrier::new(READERS + 1), Barrier::new(READERS + 1));
    let reader = || {
        sys::pin(&others).expect("the CPUs are online");
        let mut file = File::open(files::path(target, "cpu_thermal_margin")).unwrap();
        let mut values = Vec::new();
        for _ in 0..ROUNDS {
            start.wait();
            values.push(reread(&mut file));
            end.wait();
        }
        values
    };
    thread::scope(|scope| {
        let spawn = |_| {
            let builder = thread::Builder::new().stack_size(64 * 1024);
            builder.spawn_scoped(scope, reader).expect("a thread")
        };
        let readers: Vec<_> = (0..READERS).map(spawn).collect();
        sys::pin(&others).expect("the CPUs are online");
        let mut called = 0;
        for round in 0..ROUNDS {
            files::expire();
            // The readers may take longer than the shortest period.
            files::set("cache_ms", files::SHORTEST_CACHE_MS);
            let trace = trace_calls();
            let before = (
                attribute("refreshes"),
                attribute("interrupts"),
                number(target, "generation"),
            );
            let calls_before = interrupts(target);
            let began = Instant::now();
            start.wait();
            end.wait();
            let ms = began.elapsed().as_millis() as u64;
            let refreshes = attribute("refreshes") - before.0;
            let asked = attribute("interrupts") - before.1;
            let interrupted = interrupts(target) - calls_before;
            let answered = calls(trace, target) as u64;
            called += answered;
            println!(
                "round {round}: {READERS} readers in {ms} ms: {refreshes} refreshes, {asked} interrupts sent, \
                 {answered} answered, CAL {interrupted}"
            );
            assert_eq!(number(target, "generation") - before.2, refreshes.into());
            assert!((1..=1 + ms / files::SHORTEST_CACHE_MS).contains(&refreshes));
            // Registers that are slow to read take more than one turn.
            let most = refreshes * files::names(target).len() as u64;
            assert!((refreshes..=most).contains(&asked), "{asked} interrupts");
            assert_eq!(answered, asked, "all of them, and no other");
            // The kernel sends others of the same kind.
            let others = 50 + ms / 10;
            assert!(
                (answered / 2..=answered + others).contains(&interrupted),
                "CAL {interrupted}"
            );
        }
        assert!(called >= ROUNDS);
        let values: Vec<_> = readers
            .into_iter()
            .flat_map(|reader| reader.join().expect("a panic ends the process"))
            .collect();
        assert_eq!(values.len(), READERS * ROUNDS as usize);
        assert!(values
            .iter()
            .all(|value| *value == values[0] && value.is_ok()));
    });
}

fn readers_all_the_time_refresh_once_per_period(env: &Env) {
    const PERIOD_MS: u64 = 250;
    let (target, others) = target();
    files::set("cache_ms", PERIOD_MS);
    let start = Instant::now();
    let until = start + env.soak.min(Duration::from_secs(60)) / 2;
    let before = (number(target, "generation"), attribute("refreshes"));
    let reader = |_| {
        let others = &others;
        move || {
            sys::pin(others).expect("the CPUs are online");
            let mut file = File::open(files::path(target, "cpu_thermal_margin")).unwrap();
            let mut count = 0u64;
            while Instant::now() < until {
                reread(&mut file).expect("it is valid");
                count += 1;
            }
            count
        }
    };
    let reads: u64 = thread::scope(|scope| {
        let readers: Vec<_> = (0..8).map(|n| scope.spawn(reader(n))).collect();
        let join = readers
            .into_iter()
            .map(|reader| reader.join().expect("no panic"));
        join.sum()
    });
    let ms = start.elapsed().as_millis() as u64;
    let refreshes = attribute("refreshes") - before.1;
    println!("{reads} reads in {ms} ms, {refreshes} refreshes");
    assert_eq!(number(target, "generation") - before.0, refreshes.into());
    // One to begin with, and then one for each period at most.
    assert!((2..=1 + ms / PERIOD_MS).contains(&refreshes));
    assert!(reads > 10 * refreshes);
}

fn cached_reads_interrupt_nobody(_: &Env) {
    const READS: u64 = 3000;
    let (target, others) = target();
    sys::pin(&others[..1]).expect("the CPU is online");
    let mut opened: Vec<_> = files::names(target)
        .iter()
        .map(|name| File::open(files::path(target, name)).unwrap())
        .collect();
    files::set("cache_ms", 60_000);
    for file in &mut opened {
        reread(file).expect("valid");
    }
    let trace = trace_calls();
    let sum = || -> u64 {
        guest::call_interrupts()
            .iter()
            .map(|(_, count)| count)
            .sum()
    };
    let before = (
        sum(),
        interrupts(target),
        attribute("interrupts"),
        attribute("refreshes"),
    );
    for n in 0..READS {
        let file = n as usize % opened.len();
        reread(&mut opened[file]).expect("valid");
    }
    let after = (
        sum(),
        interrupts(target),
        attribute("interrupts"),
        attribute("refreshes"),
    );
    let all = trace.stop();
    let ours = all.iter().filter(|event| event.text().contains("cpupeek"));
    println!(
        "{READS} reads: CAL {} on the CPU, {} on all",
        after.1 - before.1,
        after.0 - before.0
    );
    assert_eq!(ours.count(), 0);
    assert_eq!((after.2, after.3), (before.2, before.3));
    assert!(
        after.1 - before.1 < READS / 100,
        "what there is comes from elsewhere"
    );
}

fn errors_are_cached(_: &Env) {
    let control = Control::new();
    let cpu = guest::online()[0];
    control.fault(cpu, THERM_STATUS);
    files::expire();
    let error = try_number(cpu, "cpu_thermal_margin").expect_err("faults");
    files::set("cache_ms", 60_000);
    let (reads, refreshes) = (control.reads(cpu, THERM_STATUS), attribute("refreshes"));
    for _ in 0..100 {
        assert_eq!(try_number(cpu, "cpu_thermal_margin"), Err(error));
        assert_eq!(try_number(cpu, "temp_input"), Err(error));
    }
    assert_eq!(control.reads(cpu, THERM_STATUS), reads);
    assert_eq!(attribute("refreshes"), refreshes);
}

fn a_cpu_refreshes_for_itself_only(_: &Env) {
    let cpus = guest::online();
    files::expire();
    let generations = || -> Vec<_> { cpus.iter().map(|&cpu| number(cpu, "generation")).collect() };
    let mut before = generations();
    number(cpus[1], "tsc");
    before[1] += 1;
    assert_eq!(generations(), before);
}
