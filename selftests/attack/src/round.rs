// SPDX-License-Identifier: GPL-2.0

//! How long CPUs have their interrupts off for the module, which it notes on kernels that find bugs.
//! The number of operations holds everywhere. The time says something only where nobody takes the
//! guest's CPUs away in the middle: with instructions counted in place of time (CPUPEEK_EXACT_TIME).

use cpupeek_selftests::device::{Device, Op, TSC_AUX};
use cpupeek_selftests::guest;
use cpupeek_selftests::sys;
use cpupeek_selftests::tests::Env;

use crate::calls;
use crate::tests;

tests! {
    "round";
    is_bounded: [],
}

fn is_bounded(_: &Env) {
    let path = guest::attribute_path("longest_round_ops");
    if !std::path::Path::new(&path).exists() {
        println!("this kernel has no CONFIG_RUST_DEBUG_ASSERTIONS: nothing is noted");
        assert_ne!(std::env::var("CPUPEEK_FLAVOUR").as_deref(), Ok("debug"));
        return;
    }
    let device = Device::open();
    let max = u64::from(device.info().max_round_ops);
    let cpus = calls::cpus();
    for &here in &cpus {
        // Its own CPU too, and more than fits a round.
        sys::pin(&[here]).expect("it is online");
        let ops: Vec<Op> = (0..max as usize * 3)
            .flat_map(|_| cpus.iter().map(|&cpu| Op::msr(cpu, TSC_AUX)))
            .collect();
        let rounds = guest::attribute("rounds");
        for (asked, answer) in ops.iter().zip(device.batch(&ops)) {
            calls::check_answer(asked, &answer, true);
        }
        assert!(guest::attribute("rounds") >= rounds + 3);
    }
    let (ops, ns) = (
        guest::attribute("longest_round_ops"),
        guest::attribute("longest_round_ns"),
    );
    println!("longest round: {ops} operations, {ns} ns");
    assert!((1..=max).contains(&ops), "{ops} operations in a round");
    if std::env::var_os("CPUPEEK_EXACT_TIME").is_some() {
        // The bound, and one operation that was begun just before it.
        assert!((1..=200_000).contains(&ns), "{ns} ns");
    }
}
