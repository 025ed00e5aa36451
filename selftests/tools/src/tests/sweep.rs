// SPDX-License-Identifier: GPL-2.0

//! One call for the snapshots of all CPUs: the attribute `refresh`, and what scrapes metrics.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use cpupeek_selftests::guest::{self, attribute};
use cpupeek_selftests::sys;
use cpupeek_selftests::tests::Env;

use super::{calls_during, tests};

tests! {
    "sweep";
    one_call_for_all: [Cpus Trace],
    a_scrape_is_one_call: [Cpus Trace],
    readers_and_hotplug_in_between: [Hotplug],
}

const LONG_MS: u64 = 60_000;
const SHORT_MS: u64 = 100;

fn set_cache_ms(ms: u64) {
    let path = guest::attribute_path("cache_ms");
    assert_eq!(guest::write(path, &ms.to_string()), Ok(()));
}

fn value(cpu: u32, name: &str) -> Result<u64, String> {
    let text = guest::read(format!("/sys/devices/system/cpu/cpu{cpu}/cpupeek/{name}"))?;
    text.trim_end().parse().map_err(|_| text)
}

/// Sees to it that every snapshot is old, and once another has been taken stays young.
fn let_them_age() {
    set_cache_ms(SHORT_MS);
    sleep(Duration::from_millis(2 * SHORT_MS));
}

/// Whether the CPUs have a frequency, for whose window there is a second call where nothing has been
/// read for long.
fn calls_at_most() -> u64 {
    let cpu = guest::online()[0];
    let has_frequency = value(cpu, "mperf").is_ok();
    if has_frequency {
        2
    } else {
        1
    }
}

fn called(calls: &[u32], cpu: u32) -> u64 {
    calls.iter().filter(|&&other| other == cpu).count() as u64
}

fn one_call_for_all(_: &Env) {
    let cpus = guest::online();
    sys::pin(&cpus[..1]).expect("it is online");
    let_them_age();
    let generations: Vec<_> = cpus.iter().map(|&cpu| value(cpu, "generation")).collect();
    let (rounds, mut taken) = (attribute("rounds"), 0);
    let calls = calls_during(|| taken = attribute("refresh"));
    let times = attribute("rounds") - rounds;
    assert!((1..=calls_at_most()).contains(&times), "{times} rounds");
    assert_eq!(taken, times * cpus.len() as u64);
    // Each CPU once in each round, and the one that this runs on not at all.
    assert_eq!(called(&calls, cpus[0]), 0);
    for &cpu in &cpus[1..] {
        assert_eq!(called(&calls, cpu), times, "CPU {cpu}");
    }
    for (&cpu, before) in cpus.iter().zip(generations) {
        assert_eq!(
            value(cpu, "generation"),
            before.map(|before| before + times)
        );
    }

    // Now all of the files cost nothing, and nor does asking again.
    set_cache_ms(LONG_MS);
    let calls = calls_during(|| {
        for &cpu in &cpus {
            assert!(value(cpu, "tsc").is_ok_and(|tsc| tsc != 0), "CPU {cpu}");
        }
        assert_eq!(attribute("refresh"), 0);
    });
    assert_eq!(calls, []);
}

fn a_scrape_is_one_call(_: &Env) {
    let cpus = guest::online();
    let_them_age();
    // Reading takes longer here than snapshots of 100 ms last: with the default they do.
    set_cache_ms(1000);
    sleep(Duration::from_millis(600));
    let rounds = attribute("rounds");
    let mut text = String::new();
    let calls = calls_during(|| {
        let scrape = Command::new("/bin/cpupeek")
            .arg("metrics")
            .stderr(Stdio::inherit())
            .output();
        let scrape = scrape.expect("the command");
        assert!(scrape.status.success());
        text = String::from_utf8(scrape.stdout).expect("text");
    });
    let times = attribute("rounds") - rounds;
    eprintln!("{} CPUs, {} calls, {times} rounds", cpus.len(), calls.len());
    assert!((1..=calls_at_most()).contains(&times), "{times} rounds");
    for &cpu in &cpus {
        assert!(called(&calls, cpu) <= times, "CPU {cpu}");
        assert!(text.contains(&format!("cpupeek_tsc_cycles_total{{cpu=\"{cpu}\"}} ")));
    }
    assert!(calls.len() as u64 >= times * (cpus.len() as u64 - 1));
    set_cache_ms(1000);
}

/// Snapshots are numbered without a gap or a step back, whoever takes them.
fn readers_and_hotplug_in_between(env: &Env) {
    let cpus = guest::online();
    let cpu = *cpus
        .iter()
        .rev()
        .find(|&&cpu| guest::can_go_offline(cpu))
        .expect("one");
    let others: Vec<_> = cpus.iter().copied().filter(|&other| other != cpu).collect();
    let_them_age();
    let end = Instant::now() + env.soak;
    let children: Vec<_> = (0..4)
        .map(|number| {
            sys::fork(|| {
                let mut last = vec![0; others.len()];
                while Instant::now() < end {
                    if number < 2 {
                        attribute("refresh");
                    }
                    for (&cpu, last) in others.iter().zip(&mut last) {
                        assert!(value(cpu, "tsc").is_ok(), "CPU {cpu}");
                        let generation = value(cpu, "generation").expect("online");
                        assert!(generation >= *last, "CPU {cpu}");
                        *last = generation;
                    }
                }
                assert!(last.iter().all(|&last| last > 1), "{last:?}");
            })
        })
        .collect();
    while Instant::now() < end {
        guest::set_online(cpu, false);
        guest::set_online(cpu, true);
        assert!(value(cpu, "tsc").is_ok());
    }
    for child in children {
        child.expect_success();
    }
    set_cache_ms(1000);
}
