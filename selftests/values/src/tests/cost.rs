// SPDX-License-Identifier: GPL-2.0

//! What a cached value costs, in instructions.

use std::arch::x86_64::{_mm_lfence, _rdtsc};
use std::fs::File;
use std::os::unix::fs::FileExt;

use cpupeek_selftests::sys;
use cpupeek_selftests::tests::Env;

use super::{tests, On};
use crate::files::{self, number};

tests! { "cost";
    a_cached_read: On::Counted, [],
}

fn now() -> u64 {
    // SAFETY: All CPUs have these instructions.
    #[allow(unused_unsafe, reason = "safe in newer versions of Rust")]
    unsafe {
        _mm_lfence();
        _rdtsc()
    }
}

/// Instructions of a read of the file: the median, and the 90th percentile.
fn instructions(path: &str) -> (u64, u64) {
    let file = File::open(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut buffer = [0; 64];
    let mut all: Vec<_> = (0..500)
        .map(|_| {
            let start = now();
            let read = file.read_at(&mut buffer, 0);
            let end = now();
            assert!(read.is_ok_and(|len| len > 1), "{path}");
            end - start
        })
        .collect();
    all.sort_unstable();
    (all[250], all[450])
}

fn a_cached_read(_: &Env) {
    /// What a cached value may cost, over what the kernel's own files cost.
    const GOAL: f64 = 1.5;
    sys::pin(&[0]).expect("CPU 0 is online");
    files::set("cache_ms", 60_000);
    let own = instructions("/sys/devices/system/cpu/cpu0/topology/core_id");
    println!("topology/core_id: {own:?} instructions");
    let mut worst: f64 = 0.0;
    for name in files::names(0) {
        number(0, &name);
        let cost = instructions(&files::path(0, &name));
        let ratio = cost.0 as f64 / own.0 as f64;
        println!("cpupeek/{name}: {cost:?} instructions, {ratio:.2} times as many");
        worst = worst.max(ratio);
    }
    assert!(worst > 0.0 && worst <= GOAL, "{worst:.2} is over {GOAL}");
}
