// SPDX-License-Identifier: GPL-2.0

//! A CPU that holds its interrupts off, and processes that wait for it.

use std::thread::sleep;
use std::time::Duration;

use crate::guest;
use crate::hold;
use crate::sys::{self, Child};

/// A CPU whose interrupts are held off.
pub struct Blocked {
    pub cpu: u32,
    /// The other CPUs online.
    pub others: Vec<u32>,
}

impl Blocked {
    /// Whether it has been held without a break until now.
    pub fn is_held(&self) -> bool {
        hold::is_holding(self.cpu)
    }

    pub fn let_go(&self) {
        hold::stop();
    }

    /// Gives others time to do what they must not.
    pub fn linger(&self) {
        sleep(Duration::from_millis(100));
    }
}

/// Runs `test` as the last CPU is held, which tests with [`super::Need::Hold`] never run on.
#[track_caller]
pub fn with_blocked_cpu(test: impl FnOnce(&Blocked)) {
    let mut others = guest::online();
    let cpu = others.pop().expect("a CPU is online");
    assert!(
        !sys::affinity().contains(&cpu),
        "the test is kept off CPU {cpu}"
    );
    hold::hold(cpu);
    test(&Blocked { cpu, others });
    hold::stop();
}

/// Whether a process sleeps in a command, and may be woken by fatal signals only.
pub fn is_waiting(child: Child) -> bool {
    let Ok(stat) = guest::read(format!("/proc/{}/stat", child.0)) else {
        return false;
    };
    let Ok(call) = guest::read(format!("/proc/{}/syscall", child.0)) else {
        return false;
    };
    // What follows the name, which ends with the last parenthesis.
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    let ioctl = format!("{} ", libc::SYS_ioctl);
    state == Some('D') && call.starts_with(&ioctl)
}

#[track_caller]
pub fn wait_until_waiting(child: Child) {
    guest::wait_until("the reader waits", || {
        assert_eq!(child.try_wait(), None, "the reader does not wait");
        is_waiting(child)
    });
}
