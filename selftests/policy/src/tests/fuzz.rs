// SPDX-License-Identifier: GPL-2.0

//! Random bytes in every command, from somebody who may do nothing.

use std::time::Instant;

use cpupeek_client::uapi;
use cpupeek_selftests::device::{numbered, sized, Device, Op, TSC_AUX};
use cpupeek_selftests::guest;
use cpupeek_selftests::sys::{self, Pages, PAGE};
use cpupeek_selftests::tests::Env;
use cpupeek_selftests::util::Random;

use super::tests;
use crate::policy::{get_allow, Plan};
use crate::who::{as_user, expect};

tests! {
    "fuzz";
    random_bytes_from_a_user: [],
}

const COMMANDS: [u32; 9] = [
    uapi::CPUPEEK_CONST_IOC_INFO,
    uapi::CPUPEEK_CONST_IOC_READ,
    uapi::CPUPEEK_CONST_IOC_BATCH,
    uapi::CPUPEEK_CONST_IOC_PREPARE,
    uapi::CPUPEEK_CONST_IOC_RUN,
    uapi::CPUPEEK_CONST_IOC_SET_ALLOW,
    uapi::CPUPEEK_CONST_IOC_GET_ALLOW,
    uapi::CPUPEEK_CONST_IOC_NARROW,
    uapi::CPUPEEK_CONST_IOC_REFUSALS,
];

/// A 32-bit word as it may be in a structure.
fn word(random: &mut Random) -> u32 {
    match random.below(8) {
        0 => random.next() as u32,
        1 => 1 << random.below(32),
        2 => u32::MAX,
        3 => 48,
        4 => random.below(300) as u32,
        _ => random.below(4) as u32,
    }
}

fn some_command(random: &mut Random) -> u32 {
    let cmd = random.choose(&COMMANDS);
    match random.below(8) {
        0 => random.next() as u32,
        1 => numbered(cmd, random.below(40) as u32),
        2 => sized(cmd, random.below(1 << 14) as usize),
        _ => cmd,
    }
}

/// Fills a page with what may be structures that point into `pages`.
fn fill(random: &mut Random, pages: &Pages, cmd: u32) {
    let size = cmd >> 16 & 0x3fff;
    for at in (0..PAGE).step_by(4) {
        // Most of a page is never looked at, but may be by a longer structure.
        if at < 256 || random.below(64) == 0 {
            pages.write(at, word(random));
        }
    }
    // Those that say their size say it right now and then, or nothing else would ever be looked at.
    if random.below(4) != 0 {
        pages.write(0, size);
    }
    for at in (8..48).step_by(8) {
        if random.below(2) == 0 {
            let inside = random.below(2 * PAGE as u64) as usize;
            pages.write(at, pages.address(inside & !7) as u64);
        }
    }
}

/// One user, for a while. Returns how many commands ran.
fn fuzz(env: &Env, seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let pages = Pages::new(3, false);
    let (mut device, mut ran) = (Device::open(), 0);
    let mut plan = Plan::new(&device, &[Op::msr(0, TSC_AUX), Op::cpuid(0, 0, 0)]);
    let start = Instant::now();
    while start.elapsed() < env.soak {
        for _ in 0..200 {
            let cmd = some_command(&mut random);
            fill(&mut random, &pages, cmd);
            let at = match random.below(16) {
                0 => random.next() as usize,
                1 => pages.address(0) + random.below(3 * PAGE as u64) as usize,
                _ => pages.address(0),
            };
            let fd = if random.below(4) == 0 {
                plan.fd()
            } else {
                device.fd()
            };
            if sys::ioctl(fd, cmd, at).is_ok() {
                ran += 1;
            }
        }
        // Narrowing has had its effect by now, and PREPARE may have opened more.
        close_others(&[device.fd(), plan.fd()]);
        device = Device::open();
        plan = Plan::new(&device, &[Op::msr(0, TSC_AUX), Op::cpuid(0, 0, 0)]);
    }
    ran
}

/// Closes all descriptors but the usual ones and those in `but`.
fn close_others(but: &[i32]) {
    for fd in (3..256).filter(|fd| !but.contains(fd)) {
        // SAFETY: The descriptors that are somebody's are not closed; the harness's are in its own
        // process.
        unsafe { libc::close(fd) };
    }
}

fn random_bytes_from_a_user(env: &Env) {
    let root = Device::open();
    let before = get_allow(&root);
    let children: Vec<_> = (0..2)
        .map(|i| {
            crate::who::open_to_all();
            sys::fork(|| {
                sys::become_user(crate::who::USER);
                let ran = fuzz(env, env.seed + i);
                println!("{ran} commands ran");
                assert!(ran > 100, "nothing but errors proves little");
            })
        })
        .collect();
    children.into_iter().for_each(sys::Child::expect_success);
    let after = get_allow(&root);
    assert_eq!(after.1, before.1, "a user has set the allowlist");
    assert_eq!(after.0.len(), before.0.len());
    guest::wait_until("no descriptor is left", || guest::module_users() == 1);
    as_user(|| expect(&Device::open(), Op::msr(0, TSC_AUX), Ok(())));
    expect(&root, Op::msr(0, 0xc000_0082), Ok(()));
}
