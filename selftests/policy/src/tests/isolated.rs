// SPDX-License-Identifier: GPL-2.0

//! Isolated CPUs are left alone. For guests with `isolcpus=` or `nohz_full=`, and `probe_isolated=1`.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use cpupeek_selftests::device::{Device, Op, SELF, TSC_AUX};
use cpupeek_selftests::guest;
use cpupeek_selftests::sampler::Sampler;
use cpupeek_selftests::sys::{self, Errno, Result};
use cpupeek_selftests::tests::Env;

use super::{set, tests};
use crate::policy::{Plan, DISTURB};
use crate::who::{as_user, as_user_with, expect, outcome, CAP_SYS_NICE};

tests! {
    "isolated";
    left_alone_by_everybody: [Cpus],
    the_flag_and_the_capability_disturb: [Cpus],
    the_flag_alone_does_not: [Cpus],
    a_thread_on_it_reads_it: [Cpus],
    a_plan_leaves_it_alone: [Cpus],
    a_sampler_leaves_it_alone: [Cpus],
    named_values_wait_for_a_thread_there: [Cpus],
    named_values_are_refreshed_if_that_is_set: [Cpus],
    not_probed_unless_asked_for: [Cpus],
}

/// The CPUs that this guest isolates.
fn isolated() -> Vec<u32> {
    let list = |name: &str| {
        let text = guest::read(format!("/sys/devices/system/cpu/{name}")).unwrap_or_default();
        let text = text.trim();
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            guest::parse_list(text)
        } else {
            Vec::new()
        }
    };
    let mut cpus = list("isolated");
    cpus.extend(list("nohz_full"));
    cpus.sort_unstable();
    cpus.dedup();
    assert!(
        !cpus.is_empty(),
        "this guest isolates no CPU: see selftests/policy/run"
    );
    cpus
}

fn others() -> Vec<u32> {
    let isolated = isolated();
    let online = guest::online().into_iter();
    online.filter(|cpu| !isolated.contains(cpu)).collect()
}

fn disturbing(mut op: Op) -> Op {
    op.flags = DISTURB;
    op
}

/// How many calls from other CPUs a CPU has had.
fn interrupts(cpu: u32) -> u64 {
    let all = guest::call_interrupts();
    let one = all.into_iter().find(|(number, _)| *number == cpu);
    one.expect("it is online").1
}

#[track_caller]
fn expect_left_alone(device: &Device) {
    for cpu in isolated() {
        let before = interrupts(cpu);
        for op in [Op::msr(cpu, TSC_AUX), Op::cpuid(cpu, 0, 0)] {
            for _ in 0..20 {
                expect(device, op, Err(libc::EPERM));
            }
        }
        // Each of these calls would have been one; the kernel itself makes a few.
        let made = interrupts(cpu) - before;
        assert!(made < 20, "{made} calls interrupted CPU {cpu}");
    }
    for cpu in others() {
        expect(device, Op::msr(cpu, TSC_AUX), Ok(()));
    }
}

fn off_isolated() {
    sys::pin(&others()).expect("they are online");
}

fn left_alone_by_everybody(_: &Env) {
    off_isolated();
    expect_left_alone(&Device::open());
    as_user(|| {
        let device = Device::open();
        off_isolated();
        expect_left_alone(&device);
        // Not even who may run there, unless he just does.
        for cpu in isolated() {
            let mut refused = false;
            while !refused {
                sys::pin(&others()[..1]).expect("it is online");
                sys::pin(&[others()[0], cpu]).expect("they are online");
                let outcome = device.read(Op::msr(cpu, TSC_AUX)).result();
                refused = outcome == Err(Errno(libc::EPERM));
                assert!(refused || outcome.is_ok(), "{outcome:?}");
            }
        }
    });
}

fn the_flag_and_the_capability_disturb(_: &Env) {
    off_isolated();
    let device = Device::open();
    for cpu in isolated() {
        expect(&device, disturbing(Op::msr(cpu, TSC_AUX)), Ok(()));
        expect(&device, disturbing(Op::cpuid(cpu, 0, 0)), Ok(()));
        // Only the operation that has it.
        let ops = [Op::msr(cpu, TSC_AUX), disturbing(Op::msr(cpu, TSC_AUX))];
        let answers = device.batch(&ops);
        answers[0].expect_error(&ops[0], libc::EPERM);
        answers[1].expect_answer(&ops[1]);
    }
    as_user_with(1 << CAP_SYS_NICE, || {
        let device = Device::open();
        sys::set_capabilities(0);
        for cpu in isolated() {
            // He may not run there.
            expect(&device, disturbing(Op::msr(cpu, TSC_AUX)), Err(libc::EPERM));
            let everywhere: Vec<u32> = others().into_iter().chain([cpu]).collect();
            sys::pin(&everywhere).expect("they are online");
            expect(&device, disturbing(Op::msr(cpu, TSC_AUX)), Ok(()));
            off_isolated();
        }
    });
}

fn the_flag_alone_does_not(_: &Env) {
    off_isolated();
    let check = || {
        let device = Device::open();
        for cpu in isolated() {
            expect(&device, disturbing(Op::msr(cpu, TSC_AUX)), Err(libc::EPERM));
            expect(&device, disturbing(Op::cpuid(cpu, 0, 0)), Err(libc::EPERM));
        }
        for cpu in others() {
            expect(&device, disturbing(Op::msr(cpu, TSC_AUX)), Ok(()));
        }
    };
    as_user(check);
    as_user_with(1 << sys::CAP_SYS_RAWIO, check);
}

fn a_thread_on_it_reads_it(_: &Env) {
    let check = || {
        let device = Device::open();
        for cpu in isolated() {
            sys::pin(&[cpu]).expect("it is online");
            expect(&device, Op::msr(cpu, TSC_AUX), Ok(()));
            expect(&device, Op::msr(SELF, TSC_AUX), Ok(()));
            assert_eq!(device.msr(SELF, TSC_AUX) & 0xfff, cpu.into());
        }
    };
    check();
    as_user(check);
}

fn a_plan_leaves_it_alone(_: &Env) {
    let device = Device::open();
    let isolated = isolated();
    let mut ops = vec![Op::msr(0, TSC_AUX)];
    ops.extend(isolated.iter().map(|&cpu| Op::msr(cpu, TSC_AUX)));
    sys::pin(&[isolated[0]]).expect("it is online");
    let plan = Plan::new(&device, &ops);
    let results = |of: &Plan| of.run().iter().map(outcome).collect::<Vec<Result<()>>>();
    let here = results(&plan);
    assert_eq!((here[0], here[1]), (Ok(()), Ok(())), "its own CPU");
    off_isolated();
    let elsewhere = results(&plan);
    assert_eq!(elsewhere[0], Ok(()));
    for result in &elsewhere[1..] {
        assert_eq!(*result, Err(Errno(libc::EPERM)));
    }
    let ops: Vec<Op> = ops.into_iter().map(disturbing).collect();
    for result in results(&Plan::new(&device, &ops)) {
        assert_eq!(result, Ok(()));
    }
}

/// Neither its start nor its timers are there, unless they were asked for.
fn a_sampler_leaves_it_alone(_: &Env) {
    off_isolated();
    let device = Device::open();
    let cpu = isolated()[0];
    let ops = [Op::msr(0, TSC_AUX), Op::msr(cpu, TSC_AUX)];
    let before = interrupts(cpu);
    for _ in 0..20 {
        let sampler = Sampler::new(&device, &ops, |_| ());
        sampler.wait_beyond(0, 3);
        sampler.latest(1).expect_nothing(libc::EPERM);
    }
    let made = interrupts(cpu) - before;
    assert!(made < 20, "{made} calls interrupted CPU {cpu}");

    let ops = ops.map(disturbing);
    let sampler = Sampler::new(&device, &ops, |_| ());
    let sample = sampler.wait_beyond(1, 3);
    assert_eq!(sample.value(0) & 0xfff, cpu.into());
    as_user(|| {
        let sampler = Sampler::new(&Device::open(), &ops, |_| ());
        sampler.latest(1).expect_nothing(libc::EPERM);
    });
}

fn value_of(cpu: u32, name: &str) -> Result<u64> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpupeek/{name}");
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().parse().unwrap_or(u64::MAX)),
        Err(error) => Err(Errno(error.raw_os_error().unwrap_or(0))),
    }
}

/// Names of the CPU's values.
fn names(cpu: u32) -> Vec<String> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpupeek");
    let entries = std::fs::read_dir(path).expect("with probe_isolated=1 it has values");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry
            .expect("an entry")
            .file_name()
            .into_string()
            .expect("UTF-8")
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.retain(|name| name != "age_ms" && name != "generation");
    assert!(!names.is_empty());
    names
}

/// Loads the module anew, so that nothing is cached.
fn reload(env: &Env, parameters: &str) {
    sys::unload_module(guest::MODULE).expect("nobody uses it");
    sys::load_module(&env.module, parameters).expect("loads");
}

fn named_values_wait_for_a_thread_there(env: &Env) {
    reload(env, "probe_isolated=1");
    set("cache_ms", 100);
    for cpu in isolated() {
        off_isolated();
        let names = names(cpu);
        for name in &names {
            assert_eq!(value_of(cpu, name), Err(Errno(libc::ENODATA)), "{name}");
        }
        assert_eq!(value_of(cpu, "age_ms"), Err(Errno(libc::ENODATA)));

        sys::pin(&[cpu]).expect("it is online");
        let readable: Vec<&String> = names
            .iter()
            .filter(|name| value_of(cpu, name).is_ok())
            .collect();
        println!("CPU {cpu} has {names:?}, and {readable:?} can be read there");
        assert!(!readable.is_empty());

        off_isolated();
        let generation = value_of(cpu, "generation").expect("there is a snapshot");
        sleep(Duration::from_millis(300));
        let before = interrupts(cpu);
        for _ in 0..50 {
            for name in &readable {
                assert!(value_of(cpu, name).is_ok(), "{name} is served, however old");
            }
        }
        let made = interrupts(cpu) - before;
        assert!(made < 50, "{made} calls interrupted CPU {cpu}");
        assert_eq!(value_of(cpu, "generation"), Ok(generation));
        let age = value_of(cpu, "age_ms").expect("there is a snapshot");
        assert!(age >= 300, "it is not {age} ms old");
    }
}

fn named_values_are_refreshed_if_that_is_set(env: &Env) {
    reload(env, "probe_isolated=1");
    set("cache_ms", 100);
    off_isolated();
    let cpu = isolated()[0];
    let names = names(cpu);
    set("refresh_isolated", 1);
    let read = || {
        names
            .iter()
            .filter(|name| value_of(cpu, name).is_ok())
            .count()
    };
    assert!(read() > 0);
    let generation = value_of(cpu, "generation").expect("there is a snapshot");
    sleep(Duration::from_millis(300));
    assert!(read() > 0);
    let refreshed = value_of(cpu, "generation").expect("there is a snapshot");
    assert!(refreshed > generation);
    set("refresh_isolated", 0);
    sleep(Duration::from_millis(300));
    assert!(read() > 0);
    assert_eq!(value_of(cpu, "generation"), Ok(refreshed));
    for bad in ["2", "-1", "x"] {
        assert!(guest::write(guest::attribute_path("refresh_isolated"), bad).is_err());
    }
}

fn not_probed_unless_asked_for(env: &Env) {
    sys::unload_module(guest::MODULE).expect("nobody uses it");
    let before: Vec<u64> = isolated().into_iter().map(interrupts).collect();
    sys::load_module(&env.module, "").expect("loads");
    for (cpu, before) in isolated().into_iter().zip(before) {
        let directory = format!("/sys/devices/system/cpu/cpu{cpu}/cpupeek");
        assert!(!Path::new(&directory).exists(), "{directory}");
        println!(
            "loading made {} calls to CPU {cpu}",
            interrupts(cpu) - before
        );
    }
    for cpu in others() {
        assert!(!names(cpu).is_empty());
    }
}
