// SPDX-License-Identifier: GPL-2.0

//! What the policy costs, in instructions: for a guest that counts them (`qemu/run --icount`).

use std::arch::x86_64::{_mm_lfence, _rdtsc};

use cpupeek_selftests::device::{Device, Op, SELF, TSC_AUX};
use cpupeek_selftests::sys;
use cpupeek_selftests::tests::Env;

use super::tests;
use crate::policy::{range, Narrow};
use crate::who::open_to_all;

tests! {
    "count";
    a_local_read_of_a_listed_register: [],
}

/// What the policy may add.
const GOAL: u64 = 60;

fn now() -> u64 {
    // SAFETY: All CPUs have these instructions.
    #[allow(unused_unsafe, reason = "safe in newer versions of Rust")]
    unsafe {
        _mm_lfence();
        _rdtsc()
    }
}

/// Instructions of a READ on the caller's own CPU: the median, and the 90th percentile.
fn instructions(device: &Device) -> (u64, u64) {
    let mut all: Vec<u64> = (0..500)
        .map(|_| {
            let op = Op::msr(SELF, TSC_AUX);
            let start = now();
            let op = device.read(op);
            let end = now();
            assert_eq!(op.result(), Ok(()));
            end - start
        })
        .collect();
    all.sort_unstable();
    (all[250], all[450])
}

fn a_local_read_of_a_listed_register(_: &Env) {
    sys::pin(&[0]).expect("CPU 0 is online");
    open_to_all();
    let root = Device::open();
    let narrowed = Device::open();
    Narrow::to_msrs(&[range(TSC_AUX, TSC_AUX)])
        .apply(&narrowed)
        .expect("NARROW");
    // SAFETY: Has no preconditions.
    assert_eq!(unsafe { libc::seteuid(crate::who::USER) }, 0);
    let user = Device::open();
    // SAFETY: As above.
    assert_eq!(unsafe { libc::seteuid(0) }, 0);

    let of_root = instructions(&root);
    let of_user = instructions(&user);
    println!("a READ by root: {of_root:?} instructions; by a user: {of_user:?}");
    println!("by root, narrowed: {:?}", instructions(&narrowed));
    let added = of_user.0.saturating_sub(of_root.0);
    println!("the allowlist adds {added}, goal {GOAL}");
    assert!(
        of_root.0 > 300,
        "less than a system call: nothing was counted"
    );
    assert!(added <= GOAL, "{added} is over {GOAL}");
}
