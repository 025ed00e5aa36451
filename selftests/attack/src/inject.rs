// SPDX-License-Identifier: GPL-2.0

//! The kernel's fault injection: makes the nth thing that can fail in a task fail
//! (Documentation/fault-injection/fault-injection.rst, fail-nth).

use std::fs;
use std::path::Path;

use cpupeek_selftests::guest;

const DEBUGFS: &str = "/sys/kernel/debug";

/// What is made to fail: small and large allocations, and copies from and to users.
const KINDS: [&str; 3] = ["failslab", "fail_page_alloc", "fail_usercopy"];

pub fn is_there() -> bool {
    KINDS
        .iter()
        .all(|kind| Path::new(&format!("{DEBUGFS}/{kind}/require-start")).exists())
}

fn set(kind: &str, name: &str, value: &str) {
    let path = format!("{DEBUGFS}/{kind}/{name}");
    if Path::new(&path).exists() {
        assert_eq!(guest::write(&path, value), Ok(()), "{path}");
    }
}

/// Only what is called, however indirectly, by code between these addresses counts and fails.
pub fn only_in((start, end): (u64, u64)) {
    for kind in KINDS {
        set(kind, "verbose", "0");
        set(kind, "probability", "0");
        set(kind, "ignore-gfp-wait", "N");
        set(kind, "ignore-gfp-highmem", "N");
        set(kind, "min-order", "0");
        set(kind, "stacktrace-depth", "32");
        set(kind, "require-start", &format!("{start:#x}"));
        set(kind, "require-end", &format!("{end:#x}"));
    }
}

/// The addresses of the module's code.
pub fn module_range() -> (u64, u64) {
    let modules = guest::read("/proc/modules").unwrap();
    let line = modules
        .lines()
        .find(|line| line.starts_with("cpupeek "))
        .expect("the module is loaded");
    let words: Vec<&str> = line.split(' ').collect();
    let size: u64 = words[1].parse().expect("a size");
    let start = words[5].trim_start_matches("0x");
    let start = u64::from_str_radix(start, 16).expect("an address");
    assert_ne!(start, 0, "root sees addresses");
    (start, start + size)
}

/// The addresses of the kernel's function that runs the initialisation of modules.
pub fn initcall_range() -> (u64, u64) {
    let symbols = guest::read("/proc/kallsyms").unwrap();
    let mut lines = symbols.lines().map(|line| {
        let mut words = line.split(' ');
        let address = words.next().expect("an address");
        let address = u64::from_str_radix(address, 16).expect("an address");
        (address, words.nth(1).unwrap_or_default())
    });
    let (start, _) = lines
        .find(|&(_, name)| name == "do_one_initcall")
        .expect("kernels have this");
    let end = lines.map(|(address, _)| address).find(|&next| next > start);
    (start, end.expect("it is not the last"))
}

/// A task whose nth thing that can fail is to fail.
pub struct Nth(String);

impl Nth {
    pub fn of_this_thread() -> Self {
        Self("/proc/thread-self/fail-nth".into())
    }

    /// The task with this name.
    pub fn of_task(name: &str) -> Self {
        let named = |pid: &str| {
            let comm = fs::read_to_string(format!("/proc/{pid}/comm"));
            comm.is_ok_and(|comm| comm.trim_end() == name)
        };
        let pid = fs::read_dir("/proc")
            .expect("procfs")
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .find(|pid| pid.parse::<u32>().is_ok() && named(pid));
        Self(format!(
            "/proc/{}/fail-nth",
            pid.expect("there is such a task")
        ))
    }

    /// From now on, the nth fails.
    pub fn arm(&self, n: u32) {
        assert_eq!(guest::write(&self.0, &n.to_string()), Ok(()), "{}", self.0);
    }

    /// Ends that. Returns whether it has failed.
    pub fn disarm(&self) -> bool {
        let left = guest::read(&self.0).unwrap();
        assert_eq!(guest::write(&self.0, "0"), Ok(()));
        left.trim() == "0"
    }
}
