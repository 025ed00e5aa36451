// SPDX-License-Identifier: GPL-2.0

//! A frequency is within its error bound, or there is none.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use cpupeek_selftests::device::Device;
use cpupeek_selftests::guest;
use cpupeek_selftests::sys::Errno;
use cpupeek_selftests::tests::Env;
use cpupeek_selftests::util::Random;

use super::decode::reload;
use super::{tests, On};
use crate::control::{Control, ALL};
use crate::files::{self, number, try_number};

tests! { "frequency";
    memory_pressure: On::Pressure, [],
    a_stopped_cpu_says_what_it_ran_at: On::Once, [Module],
    a_counter_that_was_set: On::Once, [],
    too_short_a_run_is_no_data: On::Once, [Module],
    no_window_is_cached_too: On::Once, [],
}

const MPERF: u32 = 0xe7;
const APERF: u32 = 0xe8;
const MAX_ERROR_PPM: i128 = 10_000;
const NO_DATA: Errno = Errno(libc::ENODATA);

/// How far two values of the frequency were off, relative to the truth.
struct Off {
    ours: f64,
    bound: f64,
    naive: f64,
}

fn memory_pressure(env: &Env) {
    const SAMPLES: usize = 1000;
    // A host that is so busy that they take longer gets away with fewer.
    const LIMIT: Duration = Duration::from_secs(150);
    const FEWEST: usize = 100;
    const TRUE_KHZ: f64 = 3_000_000.0;
    let control = Control::new();
    let tsc_khz = Device::open().info().tsc_khz;
    // MPERF counts with the TSC, so that the truth is what it is.
    control.rate(ALL, MPERF, u64::from(tsc_khz) * 1000);
    control.rate(ALL, APERF, TRUE_KHZ as u64 * 1000);
    files::set("cache_ms", files::SHORTEST_CACHE_MS);
    // No window reaches back to when the counters ran otherwise.
    sleep(Duration::from_millis(10 * files::SHORTEST_CACHE_MS));

    let start = Instant::now();
    let none = AtomicU64::new(0);
    let cpus = guest::online();
    let per_cpu = SAMPLES.div_ceil(cpus.len());
    let sample = |cpu: u32| {
        let control = Control::through(cpu);
        let device = Device::open();
        let mut random = Random::new(env.seed ^ u64::from(cpu));
        let one = || {
            for register in [APERF, MPERF] {
                control.delay_ns(cpu, register, 500 + random.below(299_500));
            }
            let Some((khz, ppm)) = khz_and_ppm(cpu) else {
                none.fetch_add(1, Relaxed);
                return None;
            };
            assert!((0..=MAX_ERROR_PPM).contains(&ppm), "{ppm} ppm");
            let off = |khz: f64| (khz - TRUE_KHZ).abs() / TRUE_KHZ;
            Some(Off {
                // The value is rounded to a kHz.
                ours: off(khz as f64) - 0.5 / TRUE_KHZ,
                bound: ppm as f64 / 1e6,
                naive: off(naive_khz(&device, cpu, tsc_khz)),
            })
        };
        let in_time = |_: &Option<Off>| start.elapsed() < LIMIT;
        std::iter::repeat_with(one)
            .take_while(in_time)
            .flatten()
            .take(per_cpu)
            .collect::<Vec<_>>()
    };
    let all: Vec<Off> = thread::scope(|scope| {
        let sample = &sample;
        let threads: Vec<_> = cpus
            .iter()
            .map(|&cpu| scope.spawn(move || sample(cpu)))
            .collect();
        let join = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        join.flatten().collect()
    });

    let late = start.elapsed() >= LIMIT;
    println!(
        "{} samples in {:?}, and {} times no value",
        all.len(),
        start.elapsed(),
        none.into_inner()
    );
    assert!(all.len() >= if late { FEWEST } else { SAMPLES });
    let wrong = all.iter().filter(|off| off.ours > off.bound).count();
    let show = |name: &str, of: fn(&Off) -> f64| {
        let mut values: Vec<f64> = all.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        let percent = |share: f64| 100.0 * values[((values.len() - 1) as f64 * share) as usize];
        println!(
            "{name:18} median {:7.3} %  90th {:8.3} %  worst {:9.3} %",
            percent(0.5),
            percent(0.9),
            percent(1.0)
        );
        values[values.len() - 1]
    };
    println!(
        "{} samples of {TRUE_KHZ} kHz, reads delayed by 0.5 to 300 us; off by:",
        all.len()
    );
    show("freq_khz", |off| off.ours.max(0.0));
    show("  its error bound", |off| off.bound);
    let naive = show("two reads 2 us off", |off| off.naive);
    assert_eq!(wrong, 0, "samples out of their error bound");
    assert!(naive > 0.2, "there was no pressure");
}

/// A frequency and its error, from the same refresh. `None` if there is no value now.
fn khz_and_ppm(cpu: u32) -> Option<(i128, i128)> {
    loop {
        sleep(Duration::from_millis(files::SHORTEST_CACHE_MS));
        let khz = match try_number(cpu, "freq_khz") {
            Ok(khz) => khz,
            Err(error) => {
                assert_eq!(error, NO_DATA);
                return None;
            }
        };
        let generation = number(cpu, "generation");
        // On a busy host there may be another refresh between them, with another outcome.
        let ppm = try_number(cpu, "freq_error_ppm");
        let is_same = try_number(cpu, "freq_khz") == Ok(khz);
        if is_same && number(cpu, "generation") == generation {
            return Some((khz, ppm.expect("a frequency has an error bound")));
        }
    }
}

/// How one does it who has not heard of any of this: both counters, one after the other, twice.
fn naive_khz(device: &Device, cpu: u32, tsc_khz: u32) -> f64 {
    let read = || (device.msr(cpu, APERF), device.msr(cpu, MPERF));
    let (aperf0, mperf0) = read();
    let start = Instant::now();
    while start.elapsed() < Duration::from_micros(2) {
        spin_loop();
    }
    let (aperf1, mperf1) = read();
    (aperf1 - aperf0) as f64 / (mperf1 - mperf0) as f64 * f64::from(tsc_khz)
}

/// Stops both counters where they are.
fn stop(control: &Control, device: &Device, cpu: u32) {
    for register in [APERF, MPERF] {
        control.value(cpu, register, device.msr(cpu, register));
    }
}

fn a_stopped_cpu_says_what_it_ran_at(env: &Env) {
    let (control, device) = (Control::new(), Device::open());
    let cpu = guest::online()[0];
    files::set("cache_ms", files::SHORTEST_CACHE_MS);
    files::patient_number(cpu, "freq_khz");
    stop(&control, &device, cpu);
    // Windows over the stop, and then it stands still.
    guest::wait_until("it stands still", || {
        files::try_fresh(cpu, "c0_permille") == Ok(0)
    });
    let khz = number(cpu, "freq_khz");
    for _ in 0..5 {
        assert_eq!(files::fresh(cpu, "c0_permille"), 0);
        assert_eq!(number(cpu, "freq_khz"), khz, "what it last ran at");
    }
    // A CPU that has never run since it is known cannot say.
    drop(device);
    reload(env);
    files::set("cache_ms", files::SHORTEST_CACHE_MS);
    for _ in 0..3 {
        assert_eq!(files::try_fresh(cpu, "freq_khz"), Err(NO_DATA));
        assert_eq!(try_number(cpu, "freq_error_ppm"), Err(NO_DATA));
        assert!([Ok(0), Err(NO_DATA)].contains(&try_number(cpu, "c0_permille")));
    }
}

fn a_counter_that_was_set(_: &Env) {
    let control = Control::new();
    let cpu = guest::online()[0];
    files::set("cache_ms", files::SHORTEST_CACHE_MS);
    let khz = files::patient_number(cpu, "freq_khz");
    for register in [APERF, MPERF] {
        // Back to the beginning, from where it goes on. Once only: a counter that has not got far since
        // could be past where it was by the time that it is read.
        control.value(cpu, register, 1);
        control.reset();
        files::expire();
        // No number may come of a window in which a counter went backwards. Later ones may be as short
        // as a reading is long, in which this machine is not exact.
        match try_number(cpu, "freq_khz") {
            Ok(now) => assert!((khz / 2..=khz * 2).contains(&now), "{now}, not {khz} kHz"),
            Err(error) => assert_eq!(error, NO_DATA),
        }
        match try_number(cpu, "c0_permille") {
            Ok(permille) => assert!((1..=1000).contains(&permille), "{permille}"),
            Err(error) => assert_eq!(error, NO_DATA),
        }
    }
}

fn too_short_a_run_is_no_data(env: &Env) {
    let control = Control::new();
    let tsc_khz = Device::open().info().tsc_khz;
    // It runs for a tenth of a permille of the time: shorter than a reading takes here.
    for register in [APERF, MPERF] {
        control.rate(ALL, register, u64::from(tsc_khz) / 10);
    }
    reload(env);
    files::set("cache_ms", files::SHORTEST_CACHE_MS);
    let cpu = guest::online()[0];
    for _ in 0..5 {
        assert_eq!(files::try_fresh(cpu, "freq_khz"), Err(NO_DATA));
        assert!([Ok(0), Err(NO_DATA)].contains(&try_number(cpu, "c0_permille")));
    }
}

fn no_window_is_cached_too(_: &Env) {
    let control = Control::new();
    let cpu = guest::online()[0];
    control.fault(cpu, APERF);
    files::expire();
    files::set("cache_ms", 60_000);
    let read = || {
        // What it last ran at, or nothing.
        let _ = try_number(cpu, "freq_khz");
        let _ = try_number(cpu, "c0_permille");
    };
    read();
    let refreshes = guest::attribute("refreshes");
    for _ in 0..10 {
        read();
    }
    assert_eq!(guest::attribute("refreshes"), refreshes, "in one period");
}
