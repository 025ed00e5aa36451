// SPDX-License-Identifier: GPL-2.0

//! The longest that a handler has had interrupts off, where the kernel is one that finds bugs
//! (CONFIG_RUST_DEBUG_ASSERTIONS). Elsewhere nothing is noted.

use crate::kapi::regs;
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

static OPS: Atomic<u64> = Atomic::new(0);
static CYCLES: Atomic<u64> = Atomic::new(0);

/// As often as another CPU may be in the way, after which a value may be lost.
const ATTEMPTS: u32 = 16;

fn raise(longest: &Atomic<u64>, value: u64) {
    let mut known = longest.load(Relaxed);
    for _ in 0..ATTEMPTS {
        if value <= known {
            return;
        }
        match longest.cmpxchg(known, value, Relaxed) {
            Ok(_) => return,
            Err(now) => known = now,
        }
    }
}

/// A round is over: its operations, and how long it took in TSC cycles.
pub(crate) fn note(ops: u32, cycles: u64) {
    raise(&OPS, ops.into());
    raise(&CYCLES, cycles);
}

/// Most operations in a round so far.
pub(crate) fn ops() -> u64 {
    OPS.load(Relaxed)
}

/// Longest round so far, in nanoseconds; 0 if the TSC's frequency is unknown.
pub(crate) fn ns() -> u64 {
    regs::cycles_to_ns(CYCLES.load(Relaxed))
}
