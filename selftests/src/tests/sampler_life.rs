// SPDX-License-Identifier: GPL-2.0

//! Samplers as CPUs and owners come and go.

use std::os::fd::AsRawFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::blocked::with_blocked_cpu;
use super::read::pluggable_cpu;
use super::sampler_rights::{allowlist, set_allowlist};
use super::{tests, Env};
use crate::device::{Device, Op, TSC_AUX};
use crate::guest::{self, attribute};
use crate::sampler::{request, try_sampler, Mapped, Sampler, EXACT, MS};
use crate::sys::{self, Child, Errno, Exit, Pages};
use crate::util::Random;

tests! {
    "sampler_life";
    ends_with_its_descriptor: [],
    lives_as_long_as_its_mapping: [],
    lives_in_a_forked_child: [],
    is_sent_to_another_process: [],
    owner_is_killed: [],
    owner_is_stopped: [],
    sixty_four_at_once: [],
    cpu_goes_and_comes: [Hotplug],
    cpu_goes_and_comes_under_many: [Hotplug],
    cpu_was_offline_at_first: [Hotplug],
    cpu_does_not_answer_at_first: [Hold],
    maker_is_killed: [Hold],
    chaos: [Hotplug],
}

pub fn on_each_cpu() -> Vec<Op> {
    let cpus = guest::online();
    cpus.iter().map(|&cpu| Op::msr(cpu, TSC_AUX)).collect()
}

pub fn exact(ops: &[Op]) -> Sampler {
    Sampler::new(&Device::open(), ops, |_| ())
}

/// Checks that no sampler is left, and that nothing samples.
#[track_caller]
fn expect_none() {
    guest::wait_until("no sampler", || attribute("samplers") == 0);
    let samples = attribute("samples");
    sleep(Duration::from_millis(20));
    assert_eq!(attribute("samples"), samples);
    guest::wait_until("the module is free", || guest::module_users() == 0);
}

fn ends_with_its_descriptor(_: &Env) {
    for flags in [0, EXACT] {
        let ops = on_each_cpu();
        let device = Device::open();
        let (fd, _) = try_sampler(
            device.fd(),
            crate::sampler::cpupeek_sampler {
                flags,
                ..request(&ops)
            },
        )
        .expect("SAMPLER");
        drop(device);
        assert_eq!(attribute("samplers"), 1);
        assert_eq!(guest::module_users(), 1);
        let unload = sys::unload_module(guest::MODULE);
        assert_eq!(unload, Err(Errno(libc::EWOULDBLOCK)));
        drop(fd);
        expect_none();
    }
}

fn lives_as_long_as_its_mapping(_: &Env) {
    let ops = on_each_cpu();
    let (fd, answer) = try_sampler(Device::open().fd(), request(&ops)).expect("SAMPLER");
    let mapped = Mapped::new(fd.as_raw_fd(), answer.map_size);
    drop(fd);
    let number = mapped.latest(0).slot.number;
    guest::wait_until("more samples", || mapped.latest(0).slot.number > number + 5);
    assert_eq!(attribute("samplers"), 1);
    drop(mapped);
    expect_none();
}

fn lives_in_a_forked_child(_: &Env) {
    let sampler = exact(&on_each_cpu());
    let (go, done) = (sys::pipe(), sys::pipe());
    let child = sys::fork(|| {
        use std::io::Read;
        let number = sampler.latest(0).slot.number;
        sampler.wait_beyond(0, number + 3);
        sys::send_byte(&done.1);
        let mut byte = [0];
        (&go.0).read_exact(&mut byte).expect("the parent lives");
        let number = sampler.latest(0).slot.number;
        sampler.wait_beyond(0, number + 3);
        assert!(sampler.read(8).is_ok());
    });
    assert!(sys::readable(&done.0, 30_000));
    drop(sampler);
    assert_eq!(attribute("samplers"), 1, "the child's");
    sys::send_byte(&go.1);
    child.expect_success();
    expect_none();
}

fn is_sent_to_another_process(_: &Env) {
    let (here, there) = sys::socket_pair();
    let size = exact(&on_each_cpu()).answer.map_size;
    let child = sys::fork(|| {
        // Whoever is given it needs no rights of his own.
        let fd = sys::receive_fd(&there);
        sys::become_user(1000);
        let mapped = Mapped::new(fd.as_raw_fd(), size);
        let number = mapped.latest(0).slot.number;
        guest::wait_until("more samples", || mapped.latest(0).slot.number > number);
    });
    let sampler = exact(&on_each_cpu());
    sys::send_fd(&here, sampler.fd());
    drop(sampler);
    child.expect_success();
    drop(here);
    expect_none();
}

fn owner_is_killed(env: &Env) {
    let (started, starts) = sys::pipe();
    env.repeat(20, || {
        let child = sys::fork(|| {
            let samplers: Vec<Sampler> = (0..4).map(|_| exact(&on_each_cpu())).collect();
            sys::send_byte(&starts);
            loop {
                let _ = samplers[0].read(8);
            }
        });
        use std::io::Read;
        (&started).read_exact(&mut [0]).expect("the child lives");
        child.kill(libc::SIGKILL);
        assert_eq!(child.wait(), Exit::Signal(libc::SIGKILL));
        expect_none();
    });
}

fn owner_is_stopped(_: &Env) {
    let pages = Pages::new(1, true);
    let child = sys::fork(|| {
        let sampler = Sampler::new(&Device::open(), &on_each_cpu(), |request| {
            request.ring_samples = 16;
        });
        sampler.wait_beyond(0, 3);
        pages.write(0, 1u64);
        loop {
            let latest = sampler.latest(0);
            assert!(latest.is_whole() && latest.slot.status == 0, "{latest:?}");
            pages.write(8, latest.slot.number);
        }
    });
    guest::wait_until("the child samples", || pages.read::<u64>(0) == 1);
    child.kill(libc::SIGSTOP);
    assert_eq!(child.wait_stopped(), Exit::Stopped(libc::SIGSTOP));
    let number: u64 = pages.read(8);
    let samples = attribute("samples");
    guest::wait_until("samples go on", || attribute("samples") > samples + 100);
    child.kill(libc::SIGCONT);
    guest::wait_until("the child looks again", || pages.read::<u64>(8) > number);
    child.kill(libc::SIGKILL);
    child.wait();
    expect_none();
}

fn sixty_four_at_once(_: &Env) {
    let device = Device::open();
    let ops = on_each_cpu();
    let samplers: Vec<Sampler> = (0..64)
        .map(|i| {
            Sampler::new(&device, &ops, |request| {
                request.flags = [0, EXACT][i % 2];
                request.interval_ns = (20 + i as u64) * MS;
                request.ring_samples = i as u32;
            })
        })
        .collect();
    assert_eq!(attribute("samplers"), 64);
    for sampler in &samplers {
        // The CPU that this runs on is not idle, whatever the kind.
        let here = guest::online()[0];
        sys::pin(&[here]).unwrap();
        let sample = sampler.wait_beyond(0, 3);
        assert_eq!(sample.slot.cpu, here);
        assert_eq!(sample.value(0) & 0xfff, here.into());
    }
    drop(samplers);
    drop(device);
    expect_none();
}

/// The place of a CPU's slot.
fn index_of(sampler: &Sampler, cpu: u32) -> u32 {
    (0..sampler.mapped.map.nr_slots)
        .find(|&index| sampler.latest(index).slot.cpu == cpu)
        .expect("the CPU is sampled")
}

fn cpu_goes_and_comes(_: &Env) {
    let cpu = pluggable_cpu();
    for flags in [EXACT, 0] {
        let ops = on_each_cpu();
        let sampler = Sampler::new(&Device::open(), &ops, |request| {
            request.flags = flags;
            request.ring_samples = 64;
        });
        let index = index_of(&sampler, cpu);
        for _ in 0..3 {
            let last = sampler.wait_beyond(index, 0).slot.number;
            guest::set_online(cpu, false);
            sampler.latest(index).expect_nothing(libc::ENXIO);
            assert!(sampler.mapped.past(index, last).slot.number >= last);
            let other = sampler.latest(0).slot.number;
            sampler.wait_beyond(0, other);
            sampler.latest(index).expect_nothing(libc::ENXIO);
            guest::set_online(cpu, true);
            let back = sampler.wait_beyond(index, last);
            assert_eq!((back.slot.status, back.slot.cpu), (0, cpu));
            assert_eq!(back.value(0) & 0xfff, cpu.into(), "{back:?}");
        }
    }
}

fn cpu_goes_and_comes_under_many(env: &Env) {
    let cpu = pluggable_cpu();
    let device = Device::open();
    let ops = on_each_cpu();
    let samplers: Vec<Sampler> = (0..16)
        .map(|i| Sampler::new(&device, &ops, |request| request.flags = [0, EXACT][i % 2]))
        .collect();
    env.repeat(30, || {
        guest::set_online(cpu, false);
        guest::set_online(cpu, true);
        for sampler in &samplers {
            for index in 0..sampler.mapped.map.nr_slots {
                let sample = sampler.latest(index);
                if sample.slot.status == 0 && sample.slot.number != 0 {
                    let expected = u64::from(sample.slot.cpu);
                    assert_eq!(sample.value(0) & 0xfff, expected, "{sample:?}");
                    assert_eq!(sample.results[0].cpu, sample.slot.cpu);
                }
            }
        }
    });
}

fn cpu_was_offline_at_first(_: &Env) {
    let cpu = pluggable_cpu();
    let ops = on_each_cpu();
    guest::set_online(cpu, false);
    let sampler = exact(&ops);
    let index = index_of(&sampler, cpu);
    sampler.latest(index).expect_nothing(libc::ENXIO);
    guest::set_online(cpu, true);
    let sample = sampler.wait_beyond(index, 3);
    assert_eq!(sample.value(0) & 0xfff, cpu.into());
    // It may be stopped while it is away, and does not begin again.
    guest::set_online(cpu, false);
    assert_eq!(sampler.stop(), Ok(()));
    guest::set_online(cpu, true);
    sleep(Duration::from_millis(20));
    sampler.latest(index).expect_nothing(libc::ECANCELED);
}

fn cpu_does_not_answer_at_first(_: &Env) {
    with_blocked_cpu(|blocked| {
        guest::set_read_timeout_ms(20);
        let ops = [
            Op::msr(blocked.cpu, TSC_AUX),
            Op::msr(blocked.others[0], TSC_AUX),
        ];
        let sampler = exact(&ops);
        sampler.wait_beyond(1, 3);
        if blocked.is_held() {
            sampler.latest(0).expect_nothing(libc::ENODATA);
        }
        blocked.let_go();
        let sample = sampler.wait_beyond(0, 0);
        assert_eq!(sample.value(0) & 0xfff, blocked.cpu.into());
        // Nor does it keep anybody from ending a sampler that waits for it.
    });
    with_blocked_cpu(|blocked| {
        let sampler = exact(&[Op::msr(blocked.cpu, TSC_AUX)]);
        drop(sampler);
        assert!(blocked.is_held(), "nothing was proven: the CPU was let go");
        blocked.let_go();
    });
    expect_none();
}

fn maker_is_killed(_: &Env) {
    with_blocked_cpu(|blocked| {
        guest::set_read_timeout_ms(60_000);
        let child = sys::fork(|| {
            sys::pin(&blocked.others).unwrap();
            exact(&[Op::msr(blocked.cpu, TSC_AUX)]);
        });
        guest::wait_until("it waits", || super::blocked::is_waiting(child));
        child.kill(libc::SIGKILL);
        assert_eq!(child.wait(), Exit::Signal(libc::SIGKILL));
        assert!(blocked.is_held(), "nothing was proven: the CPU was let go");
        blocked.let_go();
    });
    expect_none();
}

/// Everything at once, in several processes.
fn chaos(env: &Env) {
    let cpu = pluggable_cpu();
    let cpus = guest::possible();
    let children: Vec<Child> = (0..3)
        .map(|i| {
            sys::fork(|| {
                let mut random = Random::new(env.seed + i);
                let device = Device::open();
                let mut samplers: Vec<Sampler> = Vec::new();
                let start = Instant::now();
                while start.elapsed() < env.soak / 2 {
                    random_step(&mut random, &device, &cpus, &mut samplers);
                }
            })
        })
        .collect();
    let start = Instant::now();
    let root = Device::open();
    let list = allowlist(&root);
    while start.elapsed() < env.soak / 2 {
        guest::set_online(cpu, false);
        set_allowlist(&root, &list[..list.len() / 2]);
        guest::set_online(cpu, true);
        set_allowlist(&root, &list);
    }
    children.into_iter().for_each(Child::expect_success);
    drop(root);
    expect_none();
}

fn random_step(random: &mut Random, device: &Device, cpus: &[u32], samplers: &mut Vec<Sampler>) {
    match random.below(5) {
        0 => {
            let ops: Vec<Op> = (0..1 + random.below(20))
                .map(|_| Op::msr(random.choose(cpus), TSC_AUX))
                .collect();
            let (flags, ring) = (random.choose(&[0, EXACT]), random.below(50) as u32);
            samplers.push(Sampler::new(device, &ops, |request| {
                request.flags = flags;
                request.ring_samples = ring;
            }));
        }
        1 if !samplers.is_empty() => {
            let index = random.below(samplers.len() as u64) as usize;
            samplers.swap_remove(index);
        }
        2 if !samplers.is_empty() => {
            let _ = samplers[0].watch(&[crate::sampler::changed(random.choose(cpus))]);
        }
        3 if random.below(10) == 0 => samplers.clear(),
        _ => {
            for sampler in samplers.iter() {
                for index in 0..sampler.mapped.map.nr_slots {
                    let sample = sampler.latest(index);
                    assert!(sample.is_whole(), "{sample:?}");
                    if sample.slot.number != 0 {
                        let expected = u64::from(sample.slot.cpu);
                        assert_eq!(sample.value(0) & 0xfff, expected, "{sample:?}");
                    }
                }
            }
        }
    }
    if samplers.len() > 8 {
        samplers.clear();
    }
}
