// SPDX-License-Identifier: GPL-2.0

//! Loading and unloading.

use super::blocked::{wait_until_waiting, with_blocked_cpu};
use super::read::pluggable_cpu;
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
    unload_waits_for_calls_in_flight: [Module Hold],
    load_with_a_cpu_offline: [Module Hotplug],
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
    env.repeat(100, || {
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
    });
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
    (0..2 * cpus.len()).map(|_| sys::fork(read_all)).collect()
}

fn unload_after_a_storm(env: &Env) {
    env.repeat(50, || {
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
    });
}

/// A reader is killed as it waits, and its call is still queued on a CPU when the module goes.
fn unload_waits_for_calls_in_flight(env: &Env) {
    with_blocked_cpu(|blocked| {
        guest::set_read_timeout_ms(60_000);
        let ops = [Op::msr(blocked.cpu, TSC_AUX); 70];
        for _ in 0..3 {
            let reader = sys::fork(|| drop(Device::open().batch(&ops)));
            wait_until_waiting(reader);
            reader.kill(libc::SIGKILL);
            assert_eq!(reader.wait(), Exit::Signal(libc::SIGKILL));
        }
        assert_eq!(guest::module_users(), 0, "nobody has it open");
        let unloader = sys::fork(unload);
        blocked.linger();
        assert_eq!(unloader.try_wait(), None, "calls to its code are queued");
        assert!(blocked.is_held(), "nothing was proven: the CPU was let go");
        blocked.let_go();
        unloader.expect_success();
        assert_eq!(sys::load_module(&env.module, ""), Ok(()));
        Device::open().msr(blocked.cpu, TSC_AUX);
    });
}

fn load_with_a_cpu_offline(env: &Env) {
    let cpu = pluggable_cpu();
    unload();
    guest::set_online(cpu, false);
    assert_eq!(sys::load_module(&env.module, ""), Ok(()));
    let device = Device::open();
    let asked = Op::msr(cpu, TSC_AUX);
    device.read(asked).expect_error(&asked, libc::ENXIO);
    device.batch(&[asked])[0].expect_error(&asked, libc::ENXIO);
    guest::set_online(cpu, true);
    assert_eq!(device.msr(cpu, TSC_AUX) & 0xfff, cpu.into());
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
