// SPDX-License-Identifier: GPL-2.0

//! What nobody reads costs nothing.

use std::thread::sleep;
use std::time::Duration;

use cpupeek_selftests::guest::{self, attribute};
use cpupeek_selftests::tests::Env;
use cpupeek_selftests::trace::{Event, Trace};

use super::decode::reload;
use super::{set_unit, tests, On};
use crate::control::Control;
use crate::files::{self, number};

tests! { "idle";
    nobody_reads: On::Once, [Module Trace],
    energy_is_counted_for_a_while: On::Once, [Module Trace],
}

const EVENTS: &[(&str, &str)] = &[
    ("timer/timer_start", ""),
    ("timer/hrtimer_start", ""),
    ("workqueue/workqueue_queue_work", ""),
    ("workqueue/workqueue_execute_start", ""),
    ("csd/csd_queue_cpu", ""),
    ("csd/csd_function_entry", ""),
];

fn is_ours(event: &&Event) -> bool {
    event.text().contains("cpupeek")
}

/// Traces for a while in which nobody reads, and expects nothing of ours.
fn expect_nothing(timers: &[String], seconds: u64) {
    let counters = || ["refreshes", "windows", "interrupts", "rounds", "ops"].map(attribute);
    let before = counters();
    let trace = Trace::start(EVENTS);
    sleep(Duration::from_secs(seconds));
    let events = trace.stop();
    assert_eq!(counters(), before);
    println!("{} events in {seconds} s", events.len());
    assert!(!events.is_empty(), "the trace sees nothing at all");
    let ours: Vec<_> = events.iter().filter(is_ours).collect();
    assert!(ours.is_empty(), "{ours:?}");
    let started = events.iter().filter_map(|event| event.field("timer"));
    let again: Vec<_> = started
        .filter(|timer| timers.iter().any(|t| t == timer))
        .collect();
    assert!(again.is_empty(), "{again:?}");
}

fn nobody_reads(env: &Env) {
    reload(env);
    expect_nothing(&[], 3);
    let all = [
        "calls",
        "ops",
        "interrupts",
        "rounds",
        "allocations",
        "refreshes",
        "windows",
    ];
    assert_eq!(all.map(attribute), [0; 7]);
}

fn energy_is_counted_for_a_while(env: &Env) {
    const HOLD_S: u64 = 2;
    // Half of the shortest wrap at 2^-20 J.
    const TICK_MS: u64 = 1024;
    set_unit(&Control::new(), env, 20 << 8);
    files::set("energy_hold_s", HOLD_S);
    let cpu = guest::online()[0];
    let refreshes = attribute("refreshes");
    let trace = Trace::start(EVENTS);
    number(cpu, "energy_pkg_uj");
    // The last tick finds that nobody wants another one.
    sleep(Duration::from_millis(HOLD_S * 1000 + 2 * TICK_MS));
    let events = trace.stop();
    let ticks = events
        .iter()
        .filter(is_ours)
        .filter(|event| event.name == "workqueue_execute_start")
        .count();
    let counted = attribute("refreshes") - refreshes;
    println!("{ticks} ticks, {counted} refreshes");
    assert!((1..=1 + HOLD_S * 1000 / TICK_MS + 1).contains(&(ticks as u64)));
    assert!(
        (2..=1 + ticks as u64).contains(&counted),
        "read, and counted along"
    );
    let timers: Vec<_> = events
        .iter()
        .filter(|event| event.name == "timer_start")
        .filter(|event| event.field("function") == Some("delayed_work_timer_fn"))
        .filter_map(|event| event.field("timer").map(str::to_owned))
        .collect();
    assert!(!timers.is_empty());
    // Other parts of the kernel have such timers as well, which go on.
    let others = Trace::start(EVENTS);
    sleep(Duration::from_secs(2));
    assert_eq!(others.stop().iter().filter(is_ours).count(), 0);
    expect_nothing(&[], 2);
}
