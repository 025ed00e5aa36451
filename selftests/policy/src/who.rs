// SPDX-License-Identifier: GPL-2.0

//! Whoever opens the device, and what they are told.

use cpupeek_client::uapi::cpupeek_result;
use cpupeek_selftests::device::{Device, Op, PATH, SELF};
use cpupeek_selftests::sys::{self, Errno, Result};

use crate::policy::{value, Plan};

pub const USER: u32 = 1000;
pub const OTHER: u32 = 1001;

pub const CAP_SYS_NICE: u32 = 23;

/// Lets everybody open the node, until the test is over.
pub fn open_to_all() {
    sys::set_mode(PATH, 0o666);
}

/// Runs `test` as a user who may open the node, and waits for its end.
#[track_caller]
pub fn as_user(test: impl FnOnce()) {
    as_user_with(0, test);
}

/// The same, with these capabilities.
#[track_caller]
pub fn as_user_with(capabilities: u64, test: impl FnOnce()) {
    open_to_all();
    let child = sys::fork(|| {
        if capabilities != 0 {
            sys::keep_capabilities();
        }
        sys::become_user(USER);
        if capabilities != 0 {
            sys::set_capabilities(capabilities);
        }
        test();
    });
    child.expect_success();
}

/// Makes the process root of a user namespace and of a mount namespace in it, with all capabilities
/// over those and none over the machine.
pub fn enter_namespaces() {
    sys::enter_user_namespace();
    // SAFETY: The process has one thread, and may be dumped, or /proc/self would be root's.
    let ret = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1) | libc::unshare(libc::CLONE_NEWNS) };
    assert!(ret == 0, "unshare: {:?}", sys::last_error());
    let write = |file: &str, text: &str| {
        std::fs::write(format!("/proc/self/{file}"), text)
            .unwrap_or_else(|error| panic!("{file}: {error}"));
    };
    write("setgroups", "deny");
    write("uid_map", &format!("0 {USER} 1"));
    write("gid_map", &format!("0 {USER} 1"));
    assert_eq!(sys::geteuid(), 0, "root of the namespace");
}

/// Hides the machine's devices from the process.
pub fn hide_devices() {
    // SAFETY: The strings are strings, and there is no data.
    let ret = unsafe {
        libc::mount(
            c"none".as_ptr(),
            c"/dev".as_ptr(),
            c"tmpfs".as_ptr(),
            0,
            std::ptr::null(),
        )
    };
    assert!(ret == 0, "mount: {:?}", sys::last_error());
    assert_eq!(Device::try_open().err(), Some(Errno(libc::ENOENT)));
}

/// The result of a plan's operation, as a result.
pub fn outcome(result: &cpupeek_result) -> Result<()> {
    if result.status == 0 {
        assert_ne!(result.tsc, 0, "an answer has a time");
        return Ok(());
    }
    assert_eq!(result.tsc, 0, "no time with an error");
    assert_eq!(value(result), 0, "no value with an error");
    Err(Errno(-result.status))
}

/// What a descriptor gets for an operation, in each way that there is.
#[track_caller]
pub fn ask(device: &Device, op: Op) -> Result<()> {
    let single = device.read(op);
    let cpuid = Op::cpuid(SELF, 0, 0);
    let batch = device.batch(&[cpuid, op, op]);
    for answer in [&single, &batch[1], &batch[2]] {
        assert_eq!(answer.result(), single.result(), "{op:?}");
        match single.result() {
            Ok(()) => answer.expect_answer(&op),
            Err(Errno(error)) => answer.expect_error(&op, error),
        }
    }
    if op.cpu != SELF {
        let plan = Plan::new(device, &[op, op]);
        for _ in 0..2 {
            for result in &plan.run() {
                assert_eq!(outcome(result), single.result(), "a plan of {op:?}");
            }
        }
    }
    single.result()
}

/// Checks what a descriptor gets for an operation.
#[track_caller]
pub fn expect(device: &Device, op: Op, expected: std::result::Result<(), i32>) {
    assert_eq!(ask(device, op), expected.map_err(Errno), "{op:?}");
}
