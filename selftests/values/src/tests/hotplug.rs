// SPDX-License-Identifier: GPL-2.0

//! CPUs and the module come and go while values are read.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use cpupeek_selftests::device::Device;
use cpupeek_selftests::guest;
use cpupeek_selftests::sys::{self, Errno};
use cpupeek_selftests::tests::Env;
use cpupeek_selftests::util::Random;

use super::decode::reload;
use super::{tests, On};
use crate::expect::{self, Expected};
use crate::files::{self, number, reread, try_number};

tests! { "hotplug";
    a_cpus_files_go_and_come: On::Once, [Hotplug],
    offline_under_readers: On::Once, [Hotplug],
    unload_under_readers: On::Once, [Module],
    a_file_held_open_over_unloading: On::Once, [Module],
}

const GONE: Errno = Errno(libc::ENODEV);

fn a_cpus_files_go_and_come(_: &Env) {
    let cpus = guest::online();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    let names = files::all_names(last);
    let mut held: Vec<_> = names
        .iter()
        .map(|name| File::open(files::path(last, name)).unwrap())
        .collect();
    number(last, "tsc");
    guest::set_online(last, false);
    assert!(!Path::new(&files::directory(last)).exists());
    for file in &mut held {
        assert_eq!(reread(file), Err(GONE));
    }
    number(first, "tsc");
    guest::set_online(last, true);
    assert_eq!(files::all_names(last), names);
    assert_eq!(
        number(last, "generation"),
        0,
        "nothing is left of the time before"
    );
    number(last, "tsc");
    for file in &mut held {
        assert_eq!(reread(file), Err(GONE), "a file of before stays gone");
    }
}

/// Reads everything of all CPUs in eight threads while `f` runs. What is read is right, or gone.
fn with_readers(env: &Env, f: impl FnOnce()) {
    let device = Device::open();
    let cpus = guest::online();
    let mut constants = Vec::new();
    let mut others = Vec::new();
    for &cpu in &cpus {
        for (name, expected) in expect::files(&device, cpu) {
            match expected {
                Expected::Number(number) => constants.push((cpu, name, number)),
                _ => others.push((cpu, name)),
            }
        }
    }
    drop(device);
    assert!(!constants.is_empty() && !others.is_empty());
    files::set("cache_ms", files::SHORTEST_CACHE_MS);
    let stop = AtomicBool::new(false);
    let (good, gone) = (AtomicU64::new(0), AtomicU64::new(0));
    let count = |result: Result<i128, Errno>, what: &str| {
        match result {
            Ok(_) => good.fetch_add(1, Relaxed),
            Err(error) => {
                let allowed = [libc::ENODEV, libc::ENOENT, libc::ENODATA];
                assert!(allowed.contains(&error.0), "{what}: {error:?}");
                gone.fetch_add(1, Relaxed)
            }
        };
    };
    let reader = |seed: u64| {
        let mut random = Random::new(env.seed ^ seed);
        let mut held: Option<(u32, &str, File)> = None;
        while !stop.load(Relaxed) {
            let (cpu, name, due) = random.choose(&constants);
            let result = try_number(cpu, name);
            if let Ok(found) = result {
                assert_eq!(found, due, "{name} of CPU {cpu}");
            }
            count(result, name);
            let (cpu, name) = random.choose(&others);
            count(try_number(cpu, name), name);
            // And one that is held open for a while.
            match &mut held {
                Some((_, name, file)) if random.below(8) != 0 => count(reread(file), name),
                _ => {
                    held = File::open(files::path(cpu, name))
                        .ok()
                        .map(|file| (cpu, name, file))
                }
            }
        }
    };
    thread::scope(|scope| {
        for seed in 0..8 {
            let reader = &reader;
            scope.spawn(move || reader(seed));
        }
        f();
        stop.store(true, Relaxed);
    });
    let (good, gone) = (good.into_inner(), gone.into_inner());
    println!("{good} reads with a value, {gone} of what was gone");
    assert!(good > 0 && gone > 0);
    for (cpu, name, due) in constants {
        assert_eq!(files::fresh(cpu, name), due, "all is as before");
    }
}

fn offline_under_readers(env: &Env) {
    let cpus = guest::online();
    let mut random = Random::new(env.seed);
    let pluggable: Vec<_> = cpus
        .into_iter()
        .filter(|&cpu| guest::can_go_offline(cpu))
        .collect();
    with_readers(env, || {
        env.repeat(60, || {
            let cpu = random.choose(&pluggable);
            guest::set_online(cpu, false);
            guest::set_online(cpu, true);
        });
    });
}

fn unload_under_readers(env: &Env) {
    with_readers(env, || {
        env.repeat(60, || {
            reload(env);
            guest::wait_until("somebody reads", || guest::attribute("refreshes") > 0);
        });
        files::set("cache_ms", files::SHORTEST_CACHE_MS);
    });
}

fn a_file_held_open_over_unloading(env: &Env) {
    let cpu = guest::online()[0];
    let mut files = ["tsc", "age_ms"].map(|name| File::open(files::path(cpu, name)).unwrap());
    assert_eq!(sys::unload_module(guest::MODULE), Ok(()));
    for file in &mut files {
        assert_eq!(reread(file), Err(GONE));
    }
    assert_eq!(sys::load_module(&env.module, ""), Ok(()));
    for file in &mut files {
        assert_eq!(reread(file), Err(GONE));
    }
    number(cpu, "tsc");
}
