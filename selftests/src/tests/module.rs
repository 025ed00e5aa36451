// SPDX-License-Identifier: GPL-2.0

//! Loading and unloading.

use std::time::Instant;

use super::{tests, Env};
use crate::device::{Device, Op, SELF, TSC_AUX};
use crate::guest::{self, attribute, attribute_path, MODULE};
use crate::sys::{self, Child, Errno, Exit};

tests! {
    "module";
    open_descriptor_keeps_it: [],
    descriptor_of_a_child_keeps_it: [],
    unload_and_reload: [Module],
    many_cycles: [Module],
    unload_after_a_storm: [Module Cpus],
    parameters_in_range: [Module],
    parameters_out_of_range: [Module],
    device_node_is_roots: [],
    attributes_are_numbers: [],
    read_timeout_attribute_out_of_range: [],
}

#[track_caller]
fn unload() {
    assert_eq!(sys::unload_module(MODULE), Ok(()), "unload");
}

/// The system call's word for a module in use; rmmod says "busy" or "in use" to that.
#[track_caller]
fn expect_in_use() {
    assert_eq!(sys::unload_module(MODULE), Err(Errno(libc::EWOULDBLOCK)));
}

fn open_descriptor_keeps_it(_: &Env) {
    let device = Device::open();
    assert_eq!(guest::module_users(), 1);
    expect_in_use();
    let another = Device::open();
    assert_eq!(guest::module_users(), 2);
    expect_in_use();
    drop(device);
    assert_eq!(guest::module_users(), 1);
    expect_in_use();
    another.msr(SELF, TSC_AUX);
    drop(another);
    assert_eq!(guest::module_users(), 0);
}

fn descriptor_of_a_child_keeps_it(_: &Env) {
    let (wait, go) = sys::pipe();
    let device = Device::open();
    let child = sys::fork(|| {
        assert!(sys::readable(&wait, 60_000), "the parent is gone");
        device.msr(SELF, TSC_AUX);
    });
    drop(device);
    expect_in_use();
    sys::send_byte(&go);
    child.expect_success();
    assert_eq!(guest::module_users(), 0);
}

fn unload_and_reload(env: &Env) {
    unload();
    assert_eq!(Device::try_open().err(), Some(Errno(libc::ENOENT)));
    assert!(!std::path::Path::new(&attribute_path("calls")).exists());
    assert_eq!(sys::load_module(&env.module, ""), Ok(()));
    let again = sys::load_module(&env.module, "");
    assert_eq!(again, Err(Errno(libc::EEXIST)), "twice");
    let device = Device::open();
    for cpu in guest::online() {
        assert_eq!(device.msr(cpu, TSC_AUX) & 0xfff, u64::from(cpu));
    }
}

fn many_cycles(env: &Env) {
    for _ in 0..env.scaled(100) {
        unload();
        assert_eq!(sys::load_module(&env.module, ""), Ok(()));
        let device = Device::open();
        let ops: Vec<Op> = guest::online()
            .into_iter()
            .map(|cpu| Op::msr(cpu, TSC_AUX))
            .collect();
        for (asked, op) in ops.iter().zip(device.batch(&ops)) {
            op.expect_answer(asked);
        }
        assert_eq!(attribute("calls"), 1, "counts from 0 again");
    }
}

/// Processes that read all CPUs as fast as they can until they are killed.
fn start_storm() -> Vec<Child> {
    let cpus = guest::online();
    let ops: Vec<Op> = (0..4)
        .flat_map(|_| cpus.iter().map(|&cpu| Op::msr(cpu, TSC_AUX)))
        .collect();
    let read_all = || {
        let device = Device::open();
        loop {
            device.batch(&ops);
            for &op in &ops {
                device.read(op);
            }
        }
    };
    let start = || sys::fork(|| read_all());
    (0..2 * cpus.len()).map(|_| start()).collect()
}

fn unload_after_a_storm(env: &Env) {
    let start = Instant::now();
    while start.elapsed() < env.soak {
        let storm = start_storm();
        guest::wait_until("the storm blows", || {
            attribute("calls") > 20 * storm.len() as u64
        });
        for child in &storm {
            child.kill(libc::SIGKILL);
        }
        for child in &storm {
            assert_eq!(child.wait(), Exit::Signal(libc::SIGKILL));
        }
        unload();
        assert_eq!(sys::load_module(&env.module, ""), Ok(()));
    }
}

fn parameters_in_range(env: &Env) {
    for ms in [1, 2, 1000, 3_600_000] {
        unload();
        let parameter = format!("read_timeout_ms={ms}");
        assert_eq!(sys::load_module(&env.module, &parameter), Ok(()));
        assert_eq!(attribute("read_timeout_ms"), ms);
        assert_eq!(u64::from(Device::open().info().read_timeout_ms), ms);
    }
}

/// What no number of milliseconds from 1 to 3600000 is.
const NOT_MS: &[&str] = &[
    "0",
    "3600001",
    "4294967295",
    "4294967296",
    "4294968296",
    "18446744073709551616",
    "-1",
    "1.5",
    "x",
    "10x",
    "0x",
    "",
];

fn parameters_out_of_range(env: &Env) {
    unload();
    for value in NOT_MS {
        let parameter = format!("read_timeout_ms={value}");
        let result = sys::load_module(&env.module, &parameter);
        assert_eq!(result, Err(Errno(libc::EINVAL)), "{parameter}");
        assert_eq!(Device::try_open().err(), Some(Errno(libc::ENOENT)));
    }
}

fn read_timeout_attribute_out_of_range(_: &Env) {
    let path = attribute_path("read_timeout_ms");
    for ms in [1, 3_600_000, 1000] {
        guest::set_read_timeout_ms(ms);
        assert_eq!(attribute("read_timeout_ms"), ms);
    }
    // An empty write does not reach the attribute.
    for value in NOT_MS.iter().filter(|value| !value.is_empty()) {
        assert_eq!(
            guest::write(&path, value),
            Err(Errno(libc::EINVAL)),
            "{value:?}"
        );
        assert_eq!(attribute("read_timeout_ms"), 1000);
    }
}

fn device_node_is_roots(_: &Env) {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let node = std::fs::metadata("/dev/cpupeek").unwrap();
    assert!(node.file_type().is_char_device());
    assert_eq!(node.mode() & 0o7777, 0o600);
    assert_eq!((node.uid(), node.gid()), (0, 0));
}

fn attributes_are_numbers(_: &Env) {
    let directory = attribute_path("");
    let known = [
        "calls",
        "ops",
        "interrupts",
        "local_ops",
        "rounds",
        "sleeps",
        "timeouts",
        "losses",
        "allocations",
        "abandoned",
        "read_timeout_ms",
    ];
    for name in known {
        attribute(name);
        let path = format!("{directory}{name}");
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
        let writable = name == "read_timeout_ms";
        assert_eq!(mode & 0o777, if writable { 0o644 } else { 0o444 }, "{name}");
    }
}
