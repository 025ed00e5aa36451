// SPDX-License-Identifier: GPL-2.0

//! Nobody without the capability keeps another CPU busy.
//!
//! The time that a CPU loses is that between the time stamps which its answers bring along, over the
//! time of the same run; and what it loses in all is what the kernel's tracepoints around calls from
//! other CPUs see. Under emulation reading is nearly nothing of that.

use std::time::{Duration, Instant};

use cpupeek_client::uapi::{cpupeek_tsc_pair, CPUPEEK_BATCH_TSC_PAIR};
use cpupeek_selftests::device::{batch_on, header, Device, Op, SELF, TSC_AUX};
use cpupeek_selftests::guest;
use cpupeek_selftests::hold;
use cpupeek_selftests::sys::{self, Child, Exit, Pages};
use cpupeek_selftests::tests::Env;
use cpupeek_selftests::trace::{Event, Trace};

use super::{set, tests};
use crate::policy::Plan;
use crate::who::{as_user, open_to_all, USER};

tests! {
    "fairness";
    a_user_gets_his_share: [Cpus],
    what_an_interrupt_costs_is_charged: [Cpus Trace],
    a_users_processes_have_one_share: [Cpus],
    plans_are_throttled_too: [Cpus],
    what_is_abandoned_is_charged: [Hold],
    root_is_not_throttled: [Cpus],
    who_is_throttled_can_be_killed: [Cpus],
    who_is_throttled_waits_no_longer_than_he_wants: [Cpus],
    settings: [],
}

/// What a user may use at once, besides his share: 200 ms of it.
const BURST: Duration = Duration::from_millis(200);

pub(super) const THREADS: u32 = 6;

/// A round ends by itself after this, so that a longer time between two time stamps is not work.
const ROUND: Duration = Duration::from_micros(100);

/// For each thread, how long the target has worked for it in TSC cycles; shared with children.
pub(super) struct Worked(Pages);

impl Worked {
    pub(super) fn new() -> Self {
        Self(Pages::new(1, true))
    }

    fn set(&self, thread: u32, cycles: u64) {
        self.0.write(thread as usize * 8, cycles);
    }

    fn total(&self) -> u64 {
        (0..sys::PAGE)
            .step_by(8)
            .map(|at| self.0.read::<u64>(at))
            .sum()
    }
}

fn cycles(time: Duration) -> u64 {
    let khz = Device::open().info().tsc_khz;
    assert!(khz != 0, "the TSC has no known frequency here");
    time.as_micros() as u64 * u64::from(khz) / 1000
}

/// What a CPU lost to us, and in what time.
pub(super) struct Lost {
    time: Duration,
    of: Duration,
}

impl Lost {
    fn permille(&self) -> u128 {
        self.time.as_micros() * 1000 / self.of.as_micros().max(1)
    }

    /// Checks that it is what users may take at `permille`: each his share and his burst, and a round
    /// for each thread of his that went off at the same time.
    #[track_caller]
    pub(super) fn expect_within(&self, permille: u32, users: u32, threads: u32) {
        let allowed = (self.of + BURST) * permille / 1000 * users + ROUND * threads;
        println!(
            "{} permille, {permille} are one user's share",
            self.permille()
        );
        assert!(
            self.time <= allowed,
            "{:?} are more than {allowed:?}",
            self.time
        );
    }
}

/// For how many cycles `target` was away in calls of ours, by a trace of the calls to it.
fn away(events: &[Event], target: u32) -> u64 {
    let (mut total, mut entry) = (0, None);
    for event in events.iter().filter(|event| event.cpu == target) {
        if event.name == "csd_function_entry" {
            entry = event.text().contains("cpupeek").then_some(event.tsc);
        } else if let Some(entered) = entry.take() {
            total += event.tsc - entered;
        }
    }
    total
}

/// What a CPU loses while `hog` runs, which says how long it has worked for it.
pub(super) fn lost_by(hog: impl FnOnce(&Worked)) -> Lost {
    let worked = Worked::new();
    let start = Instant::now();
    hog(&worked);
    let of = start.elapsed();
    let khz = u128::from(Device::open().info().tsc_khz);
    let ns = u128::from(worked.total()) * 1_000_000 / khz;
    assert!(ns > 0, "the target has not worked at all");
    Lost {
        time: Duration::from_nanos(ns as u64),
        of,
    }
}

pub(super) fn target() -> u32 {
    guest::online().pop().expect("there are two")
}

pub(super) fn duration(env: &Env) -> Duration {
    env.soak
        .clamp(Duration::from_secs(3), Duration::from_secs(20))
}

/// One batch. Returns for how many cycles the target has worked, unless it was the caller's own.
fn batch_work(fd: i32, ops: &mut [Op], target: u32, round: u64) -> u64 {
    let mut pairs = vec![cpupeek_tsc_pair::default(); target as usize + 1];
    let mut header = header(0);
    header.flags = CPUPEEK_BATCH_TSC_PAIR;
    header.tsc = pairs.as_mut_ptr().expose_provenance() as u64;
    let (first, rest) = ops.split_first_mut().expect("there are some");
    *first = Op::cpuid(SELF, 0, 0);
    rest.fill(Op::msr(target, TSC_AUX));
    assert_eq!(batch_on(fd, header, ops), Ok(()));
    if ops[0].cpu == target {
        return 0;
    }
    // Between two rounds, the target has done something else.
    let stamps: Vec<u64> = ops[1..].iter().map(|op| op.tsc).collect();
    let pauses = stamps
        .windows(2)
        .map(|two| two[1] - two[0])
        .filter(|&pause| pause > round);
    let pair = &pairs[target as usize];
    (pair.end - pair.start) - pauses.sum::<u64>()
}

/// Has `threads` threads read as much of `target` as they can. `first` is the number of the first.
pub(super) fn read_hard(
    worked: &Worked,
    fds: &[i32],
    (first, threads): (u32, u32),
    target: u32,
    duration: Duration,
) {
    let start = Instant::now();
    let round = cycles(ROUND);
    std::thread::scope(|scope| {
        for thread in first..first + threads {
            scope.spawn(move || {
                let mut ops = vec![Op::cpuid(SELF, 0, 0); 65];
                let mut total = 0;
                for fd in fds.iter().cycle().skip(thread as usize) {
                    if start.elapsed() > duration {
                        break;
                    }
                    total += batch_work(*fd, &mut ops, target, round);
                    worked.set(thread, total);
                }
            });
        }
    });
}

/// Keeps the threads of tests off a CPU, as good as can be: what they read there themselves is their
/// own time.
fn occupy(cpu: u32) -> Child {
    sys::fork(|| {
        sys::die_with_parent();
        sys::pin(&[cpu]).expect("it is online");
        let highest = libc::sched_param { sched_priority: 1 };
        // SAFETY: The parameters are what they are said to be.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &highest) };
        loop {
            std::hint::spin_loop();
        }
    })
}

fn a_user_gets_his_share(env: &Env) {
    let (target, duration) = (target(), duration(env));
    let hog = |worked: &Worked| {
        as_user(|| {
            let device = Device::open();
            read_hard(worked, &[device.fd()], (0, THREADS), target, duration);
        });
    };
    // Under emulation that is little, and so is what is allowed.
    set("unprivileged_permille", 1000);
    let throttled = guest::attribute("throttled");
    let unlimited = lost_by(hog);
    println!("without a limit: {} permille", unlimited.permille());
    assert_eq!(guest::attribute("throttled"), throttled);
    set("unprivileged_permille", 1);
    lost_by(hog).expect_within(1, 1, THREADS);
    assert!(
        guest::attribute("throttled") > throttled,
        "it was never throttled"
    );
}

/// The share is of the CPU's time, whatever it is lost with.
fn what_an_interrupt_costs_is_charged(env: &Env) {
    const PERMILLE: u32 = 50;
    let (target, duration) = (target(), duration(env));
    let trace = Trace::start(&[
        ("csd/csd_function_entry", ""),
        ("csd/csd_function_exit", ""),
    ]);
    let start = Instant::now();
    as_user(|| {
        let device = Device::open();
        read_hard(
            &Worked::new(),
            &[device.fd()],
            (0, THREADS),
            target,
            duration,
        );
    });
    let of = start.elapsed();
    let us = away(&trace.stop(), target) * 1000 / u64::from(Device::open().info().tsc_khz);
    let away = Duration::from_micros(us);
    let allowed = (of + BURST) * PERMILLE / 1000;
    println!("away for {away:?} of {of:?}, of which {allowed:?} were allowed");
    // Tracing costs too, and the processor that is emulated does not always run.
    assert!(
        away > Duration::ZERO && away <= 2 * allowed,
        "far more than was allowed"
    );
}

fn a_users_processes_have_one_share(env: &Env) {
    let (target, duration) = (target(), duration(env));
    open_to_all();
    set("unprivileged_permille", 1);
    let lost = lost_by(|worked| {
        let hog = |first| {
            sys::become_user(USER);
            let device = Device::open();
            read_hard(worked, &[device.fd()], (first, 2), target, duration);
        };
        let processes: Vec<Child> = (0..4).map(|i| sys::fork(|| hog(2 * i))).collect();
        processes.into_iter().for_each(Child::expect_success);
    });
    lost.expect_within(1, 1, 8);
}

fn plans_are_throttled_too(_: &Env) {
    let target = target();
    set("unprivileged_permille", 1);
    let occupier = occupy(target);
    let before = guest::attribute("throttled");
    let child = user_who(|device| {
        let plan = Plan::new(device, &vec![Op::msr(target, TSC_AUX); 64]);
        loop {
            plan.run();
        }
    });
    wait_until_throttled(before);
    child.kill(libc::SIGKILL);
    child.wait();
    let before = guest::attribute("throttled");
    let child = user_who(|device| loop {
        device.read(Op::msr(target, TSC_AUX));
    });
    wait_until_throttled(before);
    for child in [child, occupier] {
        child.kill(libc::SIGKILL);
        child.wait();
    }
}

/// A caller who does not wait for the answer has used the target's time all the same. Else he could
/// pile up any number of rounds for a CPU that does not answer for a while, and by dying.
fn what_is_abandoned_is_charged(_: &Env) {
    let target = target();
    set("unprivileged_permille", 1);
    hold::hold(target);
    let before = guest::attribute("throttled");
    let abandoned = guest::attribute("abandoned");
    // What one may use at once is 200 us of the target's time, and each of these is at least a
    // tenth of that.
    as_user(|| {
        sys::pin(&guest::online()).expect("they are online");
        let device = Device::open();
        let mut impatient = header(0);
        impatient.timeout_ms = 1;
        for _ in 0..200 {
            device.batch_with(impatient, &[Op::msr(target, TSC_AUX); 64]);
        }
    });
    let abandoned = guest::attribute("abandoned") - abandoned;
    println!("{abandoned} calls abandoned");
    assert!(abandoned > 0 || guest::attribute("throttled") > before);
    hold::stop();
    guest::wait_until("the CPU is back", || {
        Device::open().read(Op::msr(target, TSC_AUX)).result() == Ok(())
    });
    let ops = [Op::msr(target, TSC_AUX); 64];
    as_user(|| {
        sys::pin(&guest::online()).expect("they are online");
        let mut patient = header(0);
        patient.timeout_ms = 50;
        Device::open().batch_with(patient, &ops);
    });
    assert!(
        guest::attribute("throttled") > before,
        "nothing was charged"
    );
}

fn root_is_not_throttled(env: &Env) {
    let (target, duration) = (target(), duration(env));
    set("unprivileged_permille", 1);
    let throttled = guest::attribute("throttled");
    let lost = lost_by(|worked| {
        let device = Device::open();
        read_hard(worked, &[device.fd()], (0, THREADS), target, duration);
    });
    println!("root: {} permille", lost.permille());
    assert_eq!(guest::attribute("throttled"), throttled);
    assert!(lost.permille() > 1, "that much is more than a user might");
}

pub(super) fn wait_until_throttled(before: u64) {
    guest::wait_until("the reader is throttled", || {
        guest::attribute("throttled") > before
    });
}

/// A child that does this as a user.
fn user_who(does: impl FnOnce(&Device)) -> Child {
    open_to_all();
    sys::fork(|| {
        sys::become_user(USER);
        does(&Device::open());
    })
}

/// A child that reads until it is throttled, and so on.
fn throttled_reader(target: u32) -> Child {
    set("unprivileged_permille", 1);
    let before = guest::attribute("throttled");
    let child = user_who(|device| {
        let ops = vec![Op::msr(target, TSC_AUX); 5000];
        loop {
            device.batch(&ops);
        }
    });
    wait_until_throttled(before);
    child
}

fn who_is_throttled_can_be_killed(_: &Env) {
    let occupier = occupy(target());
    for _ in 0..5 {
        let child = throttled_reader(target());
        child.kill(libc::SIGKILL);
        assert_eq!(child.wait(), Exit::Signal(libc::SIGKILL));
    }
    guest::wait_until("the module is free", || guest::module_users() == 0);
    occupier.kill(libc::SIGKILL);
    occupier.wait();
}

fn who_is_throttled_waits_no_longer_than_he_wants(_: &Env) {
    let target = target();
    let occupier = occupy(target);
    let child = throttled_reader(target);
    as_user(|| {
        let device = Device::open();
        let mut impatient = header(0);
        impatient.timeout_ms = 1;
        let asked = Op::msr(target, TSC_AUX);
        for _ in 0..5 {
            let answers = device.batch_with(impatient, &[asked]);
            // It may also be lucky, or on that very CPU.
            if answers[0].status != 0 {
                answers[0].expect_error(&asked, libc::ETIME);
            }
        }
    });
    child.kill(libc::SIGKILL);
    child.wait();
    occupier.kill(libc::SIGKILL);
    occupier.wait();
}

fn settings(env: &Env) {
    let path = guest::attribute_path("unprivileged_permille");
    for bad in ["0", "1001", "-1", "x", "18446744073709551616"] {
        assert!(guest::write(&path, bad).is_err(), "{bad:?}");
        assert_eq!(guest::attribute("unprivileged_permille"), 50);
    }
    for good in ["1", "1000"] {
        assert_eq!(guest::write(&path, good), Ok(()));
    }
    sys::unload_module(guest::MODULE).expect("nobody uses it");
    for bad in ["0", "1001"] {
        let result = sys::load_module(&env.module, &format!("unprivileged_permille={bad}"));
        assert_eq!(result, Err(sys::Errno(libc::EINVAL)));
    }
    sys::load_module(&env.module, "unprivileged_permille=7").expect("loads");
    assert_eq!(guest::attribute("unprivileged_permille"), 7);
}
