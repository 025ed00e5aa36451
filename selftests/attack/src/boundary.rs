// SPDX-License-Identifier: GPL-2.0

//! Every command with every part of its memory ending too early: at each word, in a page that is not
//! there and in one that cannot be written. The kernel's fault injection does not see what is copied by
//! unsafe_get_user() and unsafe_put_user(); this does.

use cpupeek_selftests::sys::{self, Errno};
use cpupeek_selftests::tests::Env;
use cpupeek_selftests::util::Random;

use crate::calls::{self, Call, Scene, World};
use crate::image::{Cut, Image};
use crate::state::State;
use crate::tests;

tests! {
    "boundary";
    memory_that_ends_anywhere: [],
}

/// One attempt. Returns how it has ended.
fn attempt(call: &Call, cut: Option<Cut>) -> sys::Result<()> {
    let cpus = calls::cpus();
    let world = World::new(&cpus);
    let mut scene = Scene {
        cpus: &cpus,
        random: Random::new(1),
        strict: true,
    };
    let mut image = Image::new(cut);
    (call.fill)(&mut image, &mut scene);
    let before = State::now();
    image.seal();
    let result = world.run(call, &image);
    match result {
        Ok(()) => {
            (call.check)(&image, &world, &scene);
        }
        Err(error) => {
            assert_eq!(error, Errno(libc::EFAULT), "{} {cut:?}", call.name);
            assert_eq!(State::now(), before, "{} {cut:?}", call.name);
            world.expect_intact();
        }
    }
    result
}

fn lens(call: &Call) -> Vec<usize> {
    let cpus = calls::cpus();
    let mut scene = Scene {
        cpus: &cpus,
        random: Random::new(1),
        strict: true,
    };
    let mut image = Image::new(None);
    (call.fill)(&mut image, &mut scene);
    image.lens()
}

fn memory_that_ends_anywhere(env: &Env) {
    calls::stay_away();
    // The machine is slow: in a short run, words that are further apart in long parts.
    let most = if env.soak.as_secs() >= 30 { 4096 } else { 24 };
    let mut attempts = 0;
    for call in calls::all() {
        // A new list has no refusals.
        calls::have_a_refusal();
        assert_eq!(attempt(call, None), Ok(()), "{}", call.name);
        for (part, len) in lens(call).into_iter().take(call.used).enumerate() {
            let step = (len / 4).div_ceil(most) * 4;
            for bytes in (4..=len).step_by(step) {
                let gone = Cut {
                    part,
                    bytes,
                    prot: libc::PROT_NONE,
                };
                let result = attempt(call, Some(gone));
                assert_eq!(result, Err(Errno(libc::EFAULT)), "{} {gone:?}", call.name);
                let fixed = Cut {
                    prot: libc::PROT_READ,
                    ..gone
                };
                // What is only read may lie there.
                let _ = attempt(call, Some(fixed));
                attempts += 2;
            }
        }
    }
    println!("{attempts} attempts in {} commands", calls::count());
    assert!(attempts > 300, "that is not all of them");
}
