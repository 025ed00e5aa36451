// SPDX-License-Identifier: GPL-2.0

//! Samplers: whose rights they have, what is taken from them, and what they may cost.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::sampler_life::{exact, on_each_cpu};
use super::{tests, Env};
use crate::device::{uapi, Device, Op, PATH, TSC_AUX};
use crate::guest::{self, attribute};
use crate::sampler::{Sampler, EXACT};
use crate::sys::{self, Errno};
use crate::trace::Trace;

tests! {
    "sampler_rights";
    allowlist_becomes_shorter: [],
    rights_are_those_of_the_maker: [],
    cpus_of_the_maker: [Cpus],
    cost_is_bounded: [],
    users_pay: [],
    starts_wait_for_their_share: [Cpus],
    many_samplers_expire_seldom: [Trace],
}

/// The allowlist, as GET_ALLOW gives it.
pub fn allowlist(device: &Device) -> Vec<uapi::cpupeek_range> {
    let mut ranges = vec![uapi::cpupeek_range::default(); 4096];
    let mut header = uapi::cpupeek_allow {
        size: size_of::<uapi::cpupeek_allow>() as u32,
        nr_ranges: ranges.len() as u32,
        ranges: ranges.as_mut_ptr().expose_provenance() as u64,
        ..Default::default()
    };
    let address = (&raw mut header).expose_provenance();
    assert_eq!(
        device.ioctl(uapi::CPUPEEK_CONST_IOC_GET_ALLOW, address),
        Ok(())
    );
    ranges.truncate(header.nr_ranges as usize);
    ranges
}

pub fn set_allowlist(device: &Device, ranges: &[uapi::cpupeek_range]) {
    let mut header = uapi::cpupeek_allow {
        size: size_of::<uapi::cpupeek_allow>() as u32,
        nr_ranges: ranges.len() as u32,
        ranges: ranges.as_ptr().expose_provenance() as u64,
        ..Default::default()
    };
    let address = (&raw mut header).expose_provenance();
    assert_eq!(
        device.ioctl(uapi::CPUPEEK_CONST_IOC_SET_ALLOW, address),
        Ok(())
    );
}

/// Makes a descriptor as a user without capabilities would, and gives it to `f`.
fn as_user(f: impl FnOnce(Device)) {
    sys::set_mode(PATH, 0o666);
    let (here, there) = sys::socket_pair();
    let child = sys::fork(|| {
        sys::become_user(1000);
        let device = Device::open();
        sys::send_fd(&there, device.fd());
    });
    let device = Device::from(sys::receive_fd(&here));
    child.expect_success();
    f(device);
}

/// Registers that the default list has and every guest answers.
const LISTED: [u32; 2] = [0xce, 0x1a2];

fn allowlist_becomes_shorter(_: &Env) {
    let root = Device::open();
    let before = allowlist(&root);
    let range = |reg| uapi::cpupeek_range {
        lo: reg,
        hi: reg,
        flags: uapi::CPUPEEK_RANGE_UNSAFE,
        ..Default::default()
    };
    set_allowlist(&root, &LISTED.map(range));
    for flags in [EXACT, 0] {
        set_allowlist(&root, &LISTED.map(range));
        as_user(|device| {
            let ops: Vec<Op> = guest::online()
                .iter()
                .flat_map(|&cpu| LISTED.map(|reg| Op::msr(cpu, reg)))
                .collect();
            let sampler = Sampler::new(&device, &ops, |request| {
                request.flags = flags;
                request.ring_samples = 8;
            });
            let before = sampler.latest(0);
            assert_ne!(before.results[0].status, -libc::EACCES, "{before:?}");
            // At once, on idle CPUs too.
            set_allowlist(&root, &[range(LISTED[1])]);
            for index in 0..sampler.mapped.map.nr_slots {
                let sample = sampler.latest(index);
                assert_eq!(sample.results[0].status, -libc::EACCES, "{sample:?}");
                assert_eq!((sample.value(0), sample.results[0].tsc), (0, 0));
                assert_ne!(sample.results[1].status, -libc::EACCES, "{sample:?}");
                for number in 0..8 {
                    let past = sampler.mapped.past(index, number);
                    assert_eq!((past.value(0), past.results[0].tsc), (0, 0), "{past:?}");
                }
            }
            // What was taken does not come back.
            set_allowlist(&root, &LISTED.map(range));
            sampler.wait_beyond(0, sampler.latest(0).slot.number + 1);
            assert_eq!(sampler.latest(0).results[0].status, -libc::EACCES);
            set_allowlist(&root, &[]);
            sampler.latest(0).expect_nothing(libc::EACCES);
        });
    }
    // Root's own is not concerned.
    let sampler = exact(&on_each_cpu());
    set_allowlist(&root, &before);
    sampler.wait_beyond(0, sampler.latest(0).slot.number);
    assert_eq!(sampler.latest(0).slot.status, 0);
}

fn rights_are_those_of_the_maker(_: &Env) {
    as_user(|device| {
        // A kernel address, which no allowlist can hold.
        let ops = [Op::msr(0, 0xc000_0082), Op::cpuid(0, 0, 0)];
        let sampler = Sampler::new(&device, &ops, |_| ());
        let sample = sampler.wait_beyond(0, 2);
        assert_eq!(sample.results[0].status, -libc::EACCES);
        assert_eq!((sample.value(0), sample.results[0].tsc), (0, 0));
        assert_eq!(sample.results[1].status, 0);
        let nothing = Sampler::new(&device, &ops[..1], |_| ());
        nothing.latest(0).expect_nothing(libc::EACCES);
    });
}

fn cpus_of_the_maker(_: &Env) {
    let cpus = guest::online();
    let (other, own) = (cpus[1], cpus[0]);
    as_user(|device| {
        sys::become_user(1000);
        sys::pin(&[own]).unwrap();
        let ops = [Op::cpuid(own, 0, 0), Op::cpuid(other, 0, 0)];
        let sampler = Sampler::new(&device, &ops, |_| ());
        sampler.wait_beyond(0, 2);
        sampler.latest(1).expect_nothing(libc::EPERM);
        // They are those that the maker might use then.
        let calls = attribute("skipped_samples");
        sys::pin(&cpus).unwrap();
        sampler.latest(1).expect_nothing(libc::EPERM);
        assert!(attribute("skipped_samples") >= calls);
    });
}

fn cost_is_bounded(_: &Env) {
    let path = guest::attribute_path("sampler_permille");
    for bad in ["0", "1001", "-1", "x", "\n"] {
        assert_eq!(
            guest::write(&path, bad),
            Err(Errno(libc::EINVAL)),
            "{bad:?}"
        );
    }
    let before = attribute("sampler_permille");
    assert_eq!(guest::write(&path, "1"), Ok(()));
    let cpu = guest::online()[0];
    let ops = vec![Op::cpuid(cpu, 0, 0); 8];
    let sampler = Sampler::new(&Device::open(), &ops, |request| request.ring_samples = 4096);
    // A burst of 0.1 ms at first, then 1 us in each of the periods.
    guest::wait_until("samples are left out", || {
        attribute("skipped_samples") > 100
    });
    guest::wait_until("samples are taken all the same", || {
        let slot = sampler.latest(0).slot;
        slot.number > 3 && slot.skipped > 0
    });
    let slot = sampler.latest(0).slot;
    let first = sampler.mapped.past(0, 1).slot;
    let elapsed = slot.time_ns - first.time_ns;
    let busy_ns = slot.busy * 1_000_000 / u64::from(sampler.mapped.map.tsc_khz).max(1);
    // The last sample is not paid for yet.
    let last_ns = busy_ns / slot.number * 4;
    assert!(
        busy_ns <= elapsed / 1000 + 200_000 + last_ns,
        "{busy_ns} ns in {elapsed} ns: {slot:?}"
    );
    assert_eq!(guest::write(&path, &before.to_string()), Ok(()));
}

fn users_pay(_: &Env) {
    as_user(|device| {
        let cpu = guest::online()[0];
        let ops = vec![Op::cpuid(cpu, 0, 0); 64];
        let _samplers: Vec<Sampler> = (0..8)
            .map(|_| Sampler::new(&device, &ops, |_| ()))
            .collect();
        // 42 us are charged for each of eight samples a millisecond, and 50 are allowed.
        let skipped = attribute("skipped_samples");
        guest::wait_until("a user has used his share", || {
            attribute("skipped_samples") > skipped + 100
        });
        // Root's account is another.
        let own = exact(&[Op::msr(cpu, TSC_AUX)]);
        own.wait_beyond(0, 20);
        assert_eq!(own.latest(0).slot.skipped, 0);
    });
}

fn set(name: &str, value: u64) {
    let path = guest::attribute_path(name);
    assert_eq!(guest::write(path, &value.to_string()), Ok(()), "{name}");
}

/// However long that takes: nobody would begin later.
fn starts_wait_for_their_share(_: &Env) {
    let cpus = guest::online();
    let other = *cpus.last().expect("there are two");
    as_user(|device| {
        set("unprivileged_permille", 1);
        let throttled = attribute("throttled");
        // Each call costs 10 ms of a permille.
        guest::wait_until("the share is used", || {
            device.read(Op::cpuid(other, 0, 0));
            attribute("throttled") > throttled
        });
        set("read_timeout_ms", 1);
        let sampler = Sampler::new(&device, &[Op::cpuid(other, 0, 0)], |_| ());
        set("unprivileged_permille", 1000);
        sampler.wait_beyond(0, 0);
    });
}

/// Samplers of a user who has used his share look whether there is something so seldom that all of their
/// looks are within his share.
fn many_samplers_expire_seldom(env: &Env) {
    const SAMPLERS: usize = 200;
    /// What the module takes an expiry to cost.
    const LOOK: Duration = Duration::from_micros(1);
    const PERMILLE: u32 = 1;
    as_user(|device| {
        let cpu = guest::online()[0];
        let ops = vec![Op::cpuid(cpu, 0, 0); 16];
        let samplers: Vec<Sampler> = (0..SAMPLERS)
            .map(|_| Sampler::new(&device, &ops, |_| ()))
            .collect();
        set("unprivileged_permille", PERMILLE.into());
        // What he could use at once is used up.
        sleep(Duration::from_secs(1));
        let start = Instant::now();
        let trace = Trace::start(&[("timer/hrtimer_expire_entry", "")]);
        sleep(env.soak / 5);
        let events = trace.stop();
        let share = start.elapsed() * PERMILLE / 1000;
        let expired = events
            .iter()
            .filter(|event| event.text().contains("[cpupeek]"))
            .count() as u32;
        let busy: u64 = samplers
            .iter()
            .map(|sampler| sampler.latest(0).slot.busy)
            .sum();
        let khz = u64::from(samplers[0].mapped.map.tsc_khz).max(1);
        let used = Duration::from_nanos(busy * 1_000_000 / khz);
        println!(
            "{expired} expiries in {:?}; used so far: {used:?}",
            start.elapsed()
        );
        // As many looks, and as many again that read something.
        assert!(
            LOOK * expired <= share * 2 + LOOK * SAMPLERS as u32,
            "{expired} of {LOOK:?} each where the share is {share:?}"
        );
        // Where reading is slow, they have nothing to look for until long after this.
        assert!(expired > 0 || used > 2 * share, "they do not look at all");
    });
}
