// SPDX-License-Identifier: GPL-2.0
//! Tells a kernel complaint on the console from an ordinary line.

use std::borrow::Cow;

use regex_lite::Regex;

use crate::error::{Error, Result};

/// What a kernel writes when something is wrong. Every pattern applies to the text after the time stamp and is anchored
/// there: ordinary boot lines contain words such as "bug" and "warning" further on.
const COMPLAINTS: &[(&str, &str)] = &[
    ("panic", r"Kernel panic - not syncing"),
    ("panic", r"(traps: )?PANIC: "),
    ("warning", r"WARNING: "),
    ("bug", r"(watchdog: )?BUG:? "),
    ("bug", r"kernel BUG at "),
    ("lock debugging", r"DEBUG_LOCKS_WARN_ON\("),
    ("lock debugging", r"INFO: trying to register non-static key"),
    ("oops", r"Oops(: |\[)"),
    (
        "fault",
        r"(general protection fault|invalid opcode|stack segment|double fault|int3|divide error)\b.*(\[#\d+\]|: [0-9a-f]{4})",
    ),
    ("fault", r"unable to handle "),
    ("msr", r"unchecked MSR access error: "),
    ("ubsan", r"UBSAN: "),
    ("hung task", r"INFO: task .+ blocked for more than "),
    ("rcu stall", r"(rcu: )?INFO: rcu\w* .*(stall|starved)"),
    ("rcu stall", r"rcu: rcu\w* .*kthread starved"),
    ("lockup", r"(NMI )?watchdog: .*(LOCKUP|lockup|stuck for)"),
    ("csd lock", r"(smp: )?csd: "),
    ("refcount", r"refcount_t: "),
    ("list corruption", r"list_(add|del)\b.* corruption"),
    ("debug objects", r"ODEBUG: "),
    ("leak", r"kmemleak: \d+ new suspected memory leak"),
    ("rust panic", r"rust_kernel: panicked at"),
    ("memory", r".{1,64}: page allocation failure"),
    ("sysfs", r"sysfs: cannot create duplicate filename"),
    ("kobject", r"kobject(:|_add_internal).*(failed|tried)"),
];

/// `[    1.234567] ` and, where the kernel names the caller, `[    1.234567][    T1] `.
const STAMP: &str = r"^\[ *\d+\.\d+\](\[ *[TC]\d+\])? ";

/// One console line that is a complaint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The kind of trouble.
    pub kind: &'static str,
    /// The line as it was printed.
    pub line: String,
}

/// The compiled patterns.
pub struct Patterns {
    stamp: Regex,
    complaints: Vec<(&'static str, Regex)>,
    expected: Vec<(Regex, bool)>,
}

impl Patterns {
    /// Compiles the table; lines that match one of `expected` are wanted instead.
    pub fn new(expected: &[String]) -> Result<Self> {
        let compile = |text: &str| {
            Regex::new(text)
                .map_err(|cause| Error::new(format!("'{text}' is no regular expression ({cause})")))
        };
        Ok(Self {
            stamp: compile(STAMP)?,
            complaints: COMPLAINTS
                .iter()
                .map(|(kind, text)| Ok((*kind, compile(&format!("^(?:{text})"))?)))
                .collect::<Result<_>>()?,
            expected: expected
                .iter()
                .map(|text| Ok((compile(text)?, false)))
                .collect::<Result<_>>()?,
        })
    }

    /// The complaint in `line`, unless it was expected.
    pub fn complaint(&mut self, line: &str) -> Option<Complaint> {
        let text = self.text(line);
        let kind = self
            .complaints
            .iter()
            .find(|(_, pattern)| pattern.is_match(&text))
            .map(|(kind, _)| *kind);
        let mut wanted = false;
        for (pattern, seen) in &mut self.expected {
            if pattern.is_match(&text) {
                *seen = true;
                wanted = true;
            }
        }
        let kind = kind.filter(|_| !wanted)?;
        Some(Complaint {
            kind,
            line: line.to_owned(),
        })
    }

    /// Expected patterns that no line has matched.
    pub fn missing(&self) -> Vec<String> {
        self.expected
            .iter()
            .filter(|(_, seen)| !seen)
            .map(|(pattern, _)| pattern.as_str().to_owned())
            .collect()
    }

    fn text<'a>(&self, line: &'a str) -> Cow<'a, str> {
        self.stamp.replace(line, "")
    }
}

/// Splits a stream into lines, without what a terminal would not show.
#[derive(Default)]
pub struct Lines {
    partial: Vec<u8>,
}

impl Lines {
    /// Adds `bytes` and returns the lines that they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for byte in bytes {
            match byte {
                b'\n' => lines.push(clean(&std::mem::take(&mut self.partial))),
                _ => self.partial.push(*byte),
            }
        }
        lines
    }

    /// What came after the last complete line.
    pub fn rest(&self) -> Option<String> {
        let rest = clean(&self.partial);
        (!rest.trim().is_empty()).then_some(rest)
    }
}

fn clean(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => {
                if chars.next_if_eq(&'[').is_some() {
                    // A control sequence ends with its first letter.
                    while chars.next().is_some_and(|c| !c.is_ascii_alphabetic()) {}
                } else {
                    chars.next();
                }
            }
            '\t' => out.push(' '),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_found() {
        let lines = [
            "[    5.1] WARNING: CPU: 0 PID: 61 at kernel/smp.c:807 smp_call_function+0x1/0x2",
            "[    5.123456] WARNING: kernel/smp.c:807 at smp_call+0x12/0x30, CPU#1: insmod/99",
            "[    5.123456][   T61] WARNING: possible circular locking dependency detected",
            "[    5.123456] WARNING: suspicious RCU usage",
            "[    5.123456][    C1] BUG: KASAN: slab-use-after-free in f+0x1/0x2 [cpupeek]",
            "[    5.123456] BUG: KCSAN: data-race in a / b",
            "[    5.123456] BUG: kernel NULL pointer dereference, address: 0000000000000008",
            "[    5.123456] BUG: unable to handle page fault for address: ffffffffc0a01000",
            "[    5.123456] BUG: scheduling while atomic: cpupeek/71/0x00010000",
            "[    5.123456] BUG: sleeping function called from invalid context at mm/slub.c:1",
            "[    5.123456] BUG kmalloc-64 (Not tainted): Redzone overwritten",
            "[   30.123456] watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [sh:1]",
            "[   30.123456] watchdog: Watchdog detected hard LOCKUP on cpu 1",
            "[    5.123456] kernel BUG at mm/slub.c:563!",
            "[    5.123456] Oops: 0000 [#1] SMP NOPTI",
            "[    5.123456] Oops: general protection fault, probably for non-canonical address 0x1: 0000 [#1]",
            "[    5.123456] general protection fault, probably for non-canonical address: 0000 [#1] SMP",
            "[    5.123456] invalid opcode: 0000 [#1] PREEMPT SMP",
            "[    5.123456] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100",
            "[    5.123456] UBSAN: array-index-out-of-bounds in kernel/x.c:3:2",
            "[  130.123456] INFO: task cpupeek:71 blocked for more than 120 seconds.",
            "[   30.123456] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks: { 1-...D } 5250 jiffies s: 9",
            "[   30.123456] rcu: INFO: rcu_preempt self-detected stall on CPU",
            "[   30.123456] rcu: rcu_preempt kthread starved for 5250 jiffies! g1 f0x0",
            "[   30.123456] smp: csd: Detected non-responsive CSD lock (#1) on CPU#0, waiting 5000 ns for CPU#01",
            "[    5.123456] refcount_t: underflow; use-after-free.",
            "[    5.123456] list_del corruption. prev->next should be ffff, but was dead",
            "[    5.123456] list_add double add corruption: new=1",
            "[    5.123456] ODEBUG: free active (active state 0) object: 1 object type: timer_list",
            "[   60.123456] kmemleak: 2 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
            "[    5.123456] rust_kernel: panicked at rust/engine.rs:9:5:",
            "[    5.123456] unchecked MSR access error: RDMSR from 0x1b1 at rIP: 0xffffffff8106",
            "[    5.123456] cpupeek: page allocation failure: order:9, mode:0xcc0(GFP_KERNEL)",
            "[    5.123456] sysfs: cannot create duplicate filename '/class/misc/cpupeek'",
            "[    5.123456] INFO: trying to register non-static key.",
            "[    0.000000] DEBUG_LOCKS_WARN_ON(lock->magic != lock)",
            "BUG: unable to handle page fault for address: 0000000000000000",
        ];
        let mut patterns = Patterns::new(&[]).unwrap();
        for line in lines {
            assert!(patterns.complaint(line).is_some(), "missed: {line}");
        }
    }

    #[test]
    fn ordinary_lines_are_left_alone() {
        let lines = [
            "[    0.000000] Linux version 7.2.12+deb14-cloud-amd64 (debian-kernel@lists.debian.org)",
            "[    0.512345] ACPI: If ACPI=off works better, report a bug. BUG: none",
            "[    0.400000] Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on",
            "[    9.000000] kvm [77]: vcpu0, guest rIP: 0xfff Unhandled WRMSR(0xc0010115) = 0x0",
            "[    9.000000] cpupeek: loading out-of-tree module taints kernel.",
            "[    9.000000] cpupeek: module verification failed: signature and/or required key missing - tainting kernel",
            "[    1.000000] Warning: unable to open an initial console.",
            "[    1.000000] NMI watchdog: Perf NMI watchdog permanently disabled",
            "[    1.000000] NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",
            "[    9.000000] traps: victim[71] general protection fault ip:401000 sp:7ffc error:0 in victim",
            "[    9.000000] victim[71]: segfault at 0 ip 0000000000401000 sp 00007ffc error 4 in victim",
            "[    1.000000] rcu: Hierarchical RCU implementation.",
            "[    1.000000] rcu: \tRCU CPU stall warnings timeout set to 21 (rcu_cpu_stall_timeout).",
            "[    1.000000] kmemleak: Kernel memory leak detector initialized (mem pool available: 15768)",
            "[    1.000000] kmemleak: Automatic memory scanning thread started",
            "[    1.000000] Oops handling installed",
            "[    5.000000] FAULT_INJECTION: forcing a failure.",
            "[    5.000000] Call Trace:",
            "[    1.000000] workqueue: bug reports welcome",
            "[    1.000000] smp: Bringing up secondary CPUs ...",
            "the command says: BUG: not the kernel",
        ];
        let mut patterns = Patterns::new(&[]).unwrap();
        for line in lines {
            assert_eq!(patterns.complaint(line), None, "{line}");
        }
    }

    #[test]
    fn an_expected_complaint_is_wanted() {
        let mut patterns = Patterns::new(&["^WARNING: .* at provoke".to_owned()]).unwrap();
        assert_eq!(patterns.missing().len(), 1);
        let wanted = "[    5.1] WARNING: CPU: 0 PID: 61 at provoke+0x1/0x2";
        assert_eq!(patterns.complaint(wanted), None);
        assert!(patterns.missing().is_empty());
        assert!(patterns
            .complaint("[    5.1] WARNING: CPU: 0 PID: 61 at other")
            .is_some());
    }

    #[test]
    fn lines_are_what_a_terminal_shows() {
        let mut lines = Lines::default();
        assert!(lines.push(b"\x1b[2J\x1b[01;31mone\r").is_empty());
        assert_eq!(lines.push(b"\ntwo\n\xffthr"), ["one", "two"]);
        assert_eq!(lines.rest().unwrap(), "\u{fffd}thr");
    }
}
