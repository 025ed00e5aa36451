// SPDX-License-Identifier: GPL-2.0

//! Signals that do not kill, debuggers and freezers, as a process waits for a CPU.

use std::fs::{self, File};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use super::blocked::{is_waiting, wait_until_waiting, with_blocked_cpu, Blocked};
use super::{tests, Env};
use crate::device::{Device, Op, TSC_AUX};
use crate::guest::{self, CGROUP};
use crate::hold;
use crate::sys::{self, Child, Exit};

tests! {
    "stop";
    handled_signal_does_not_end_the_wait: [Hold],
    stopped_and_continued: [Hold],
    stopped_and_killed: [Hold],
    debugger_attaches: [Hold],
    debugger_seizes_and_interrupts: [Hold],
    frozen_and_thawed: [Hold Freezer],
    frozen_and_killed: [Hold Freezer],
    readers_frozen_again_and_again: [Cpus Freezer],
}

static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// A process that reads the blocked CPU when it is told to, and will say so if the answer is not the
/// right one in the end.
fn prepare_reader(blocked: &Blocked) -> (Child, File) {
    guest::set_read_timeout_ms(60_000);
    let (wait, go) = sys::pipe();
    let child = sys::fork(|| {
        sys::handle_signal(libc::SIGUSR1, count_signal);
        let device = Device::open();
        assert!(sys::readable(&wait, 60_000), "the parent is gone");
        let asked = Op::msr(blocked.cpu, TSC_AUX);
        let op = device.read(asked);
        op.expect_answer(&asked);
        assert_eq!(op.value() & 0xfff, blocked.cpu.into());
        // The signals that came have been counted.
        sys::exit(SIGNALS.load(Ordering::Relaxed) as i32);
    });
    (child, go)
}

/// A process that is waiting for the blocked CPU.
fn start_reader(blocked: &Blocked) -> Child {
    let (child, go) = prepare_reader(blocked);
    sys::send_byte(&go);
    wait_until_waiting(child);
    child
}

/// The same in a cgroup of its own, which is being frozen.
fn start_freezing_reader(blocked: &Blocked) -> Child {
    // Moving a process takes a grace period of RCU, which a held CPU does not let pass.
    blocked.let_go();
    let (child, go) = prepare_reader(blocked);
    move_to_cgroup(child);
    hold::hold(blocked.cpu);
    sys::send_byte(&go);
    wait_until_waiting(child);
    freeze(true);
    child
}

/// Checks that what has been done to the reader has not ended its wait.
#[track_caller]
fn expect_still_waiting(blocked: &Blocked, child: Child) {
    blocked.linger();
    assert!(is_waiting(child), "the wait has ended");
    assert_eq!(child.try_wait(), None);
    assert!(blocked.is_held(), "nothing was proven: the CPU was let go");
}

fn handled_signal_does_not_end_the_wait(_: &Env) {
    with_blocked_cpu(|blocked| {
        let child = start_reader(blocked);
        child.kill(libc::SIGUSR1);
        expect_still_waiting(blocked, child);
        blocked.let_go();
        assert_eq!(child.wait(), Exit::Code(1), "one signal was handled");
    });
}

fn stopped_and_continued(_: &Env) {
    with_blocked_cpu(|blocked| {
        let child = start_reader(blocked);
        child.kill(libc::SIGSTOP);
        expect_still_waiting(blocked, child);
        blocked.let_go();
        assert_eq!(child.wait_stopped(), Exit::Stopped(libc::SIGSTOP));
        child.kill(libc::SIGCONT);
        assert_eq!(child.wait(), Exit::Code(0));
    });
}

fn stopped_and_killed(_: &Env) {
    with_blocked_cpu(|blocked| {
        let child = start_reader(blocked);
        child.kill(libc::SIGSTOP);
        expect_still_waiting(blocked, child);
        child.kill(libc::SIGKILL);
        assert_eq!(child.wait(), Exit::Signal(libc::SIGKILL));
        assert!(blocked.is_held(), "nothing was proven: the CPU was let go");
    });
}

fn debugger_attaches(_: &Env) {
    with_blocked_cpu(|blocked| {
        let child = start_reader(blocked);
        sys::trace(child, libc::PTRACE_ATTACH);
        expect_still_waiting(blocked, child);
        blocked.let_go();
        assert_eq!(child.wait_stopped(), Exit::Stopped(libc::SIGSTOP));
        sys::trace(child, libc::PTRACE_DETACH);
        assert_eq!(child.wait(), Exit::Code(0));
    });
}

fn debugger_seizes_and_interrupts(_: &Env) {
    with_blocked_cpu(|blocked| {
        let child = start_reader(blocked);
        sys::trace(child, libc::PTRACE_SEIZE);
        sys::trace(child, libc::PTRACE_INTERRUPT);
        expect_still_waiting(blocked, child);
        blocked.let_go();
        assert_eq!(child.wait_stopped(), Exit::Stopped(libc::SIGTRAP));
        sys::trace(child, libc::PTRACE_CONT);
        assert_eq!(child.wait(), Exit::Code(0));
    });
}

fn move_to_cgroup(child: Child) {
    if !std::path::Path::new(CGROUP).exists() {
        fs::create_dir(CGROUP).unwrap();
    }
    let procs = format!("{CGROUP}/cgroup.procs");
    assert_eq!(guest::write(procs, &child.0.to_string()), Ok(()));
}

fn freeze(frozen: bool) {
    let text = if frozen { "1" } else { "0" };
    assert_eq!(
        guest::write(format!("{CGROUP}/cgroup.freeze"), text),
        Ok(())
    );
}

fn is_frozen() -> bool {
    let events = guest::read(format!("{CGROUP}/cgroup.events")).unwrap();
    events.lines().any(|line| line == "frozen 1")
}

fn frozen_and_thawed(_: &Env) {
    with_blocked_cpu(|blocked| {
        let child = start_freezing_reader(blocked);
        expect_still_waiting(blocked, child);
        blocked.let_go();
        guest::wait_until("the reader is frozen", is_frozen);
        assert_eq!(child.try_wait(), None);
        freeze(false);
        assert_eq!(child.wait(), Exit::Code(0));
    });
}

fn frozen_and_killed(_: &Env) {
    with_blocked_cpu(|blocked| {
        let child = start_freezing_reader(blocked);
        expect_still_waiting(blocked, child);
        child.kill(libc::SIGKILL);
        assert_eq!(child.wait(), Exit::Signal(libc::SIGKILL));
        assert!(blocked.is_held(), "nothing was proven: the CPU was let go");
    });
}

fn readers_frozen_again_and_again(env: &Env) {
    let cpus = guest::online();
    let ops: Vec<Op> = cpus.iter().map(|&cpu| Op::msr(cpu, TSC_AUX)).collect();
    let (wait, go) = sys::pipe();
    let readers: Vec<Child> = (0..4)
        .map(|_| {
            sys::fork(|| {
                let device = Device::open();
                while !sys::readable(&wait, 0) {
                    for (asked, op) in ops.iter().zip(device.batch(&ops)) {
                        op.expect_answer(asked);
                        assert_eq!(op.value() & 0xfff, asked.cpu.into());
                    }
                }
            })
        })
        .collect();
    readers.iter().for_each(|&child| move_to_cgroup(child));
    env.repeat(200, || {
        freeze(true);
        guest::wait_until("the readers are frozen", is_frozen);
        let calls = guest::attribute("calls");
        sleep(Duration::from_millis(2));
        assert_eq!(guest::attribute("calls"), calls, "frozen ones read nothing");
        freeze(false);
        guest::wait_until("the readers go on", || guest::attribute("calls") > calls);
    });
    sys::send_byte(&go);
    readers.into_iter().for_each(Child::expect_success);
}
