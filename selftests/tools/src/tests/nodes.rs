// SPDX-License-Identifier: GPL-2.0

//! /dev/cpupeek-cpu/N against /dev/cpu/N, the kernel's own.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use cpupeek_selftests::guest;
use cpupeek_selftests::sys::{self, Errno, Pages};
use cpupeek_selftests::tests::Env;

use super::{calls_during, tests};

tests! {
    "nodes";
    they_say_what_the_kernels_say: [Cpus Msr],
    positions_are_the_kernels: [Msr],
    memory_is_treated_as_by_the_kernel: [Msr],
    nothing_is_written: [],
    the_policy_decides: [Cpus],
    offline_cpus_have_none: [Hotplug],
    a_read_is_one_interrupt: [Cpus Trace],
    an_open_file_keeps_the_module: [Module],
}

const KERNELS: &str = "/dev/cpu";
const OURS: &str = "/dev/cpupeek-cpu";

const TSC_AUX: u64 = 0xc000_0103;

/// Registers that stay what they are, one that is not there, and numbers with more than 32 bits.
const MSRS: &[u64] = &[
    0x1b,
    0x277,
    0x2ff,
    0x174,
    0xc000_0080,
    0xc000_0081,
    0xc000_0082,
    TSC_AUX,
    0x802,
    0x1_0000_001b,
    0x7fff_ffff_0000_001b,
];

const LEAVES: &[u64] = &[
    0,
    2,
    4,
    1 << 32 | 4,
    2 << 32 | 4,
    7,
    0xb,
    1 << 32 | 0xb,
    0x8000_0000,
    0x8000_0002,
    0x8000_0008,
    0xffff_ffff,
    0x4000_0000,
];

const LENGTHS: &[usize] = &[0, 1, 4, 7, 8, 12, 15, 16, 24, 32, 48, 4096, 4097];

fn open(directory: &str, cpu: u32, file: &str) -> File {
    let path = format!("{directory}/{cpu}/{file}");
    File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The bytes, or the number of the error.
fn outcome(bytes: Vec<u8>, read: io::Result<usize>) -> Result<Vec<u8>, i32> {
    match read {
        Ok(len) => Ok(bytes[..len].to_vec()),
        Err(error) => Err(error.raw_os_error().expect("an error of the kernel's")),
    }
}

fn read_at(file: &File, len: usize, at: u64) -> Result<Vec<u8>, i32> {
    let mut bytes = vec![0xaa; len];
    let read = file.read_at(&mut bytes, at);
    outcome(bytes, read)
}

fn they_say_what_the_kernels_say(_: &Env) {
    let mut compared = 0;
    for cpu in guest::online() {
        for (name, positions) in [("msr", MSRS), ("cpuid", LEAVES)] {
            let (kernels, ours) = (open(KERNELS, cpu, name), open(OURS, cpu, name));
            for &at in positions.iter().chain(&[u64::MAX, 1 << 63]) {
                for &len in LENGTHS {
                    let expected = read_at(&kernels, len, at);
                    let got = read_at(&ours, len, at);
                    assert_eq!(got, expected, "{name} of CPU {cpu}: {len} bytes at {at:#x}");
                    compared += 1;
                }
            }
        }
    }
    eprintln!("{compared} compared");
    // The comparison would be worth nothing if all of it were errors, or of one CPU.
    for cpu in guest::online() {
        let number = read_at(&open(OURS, cpu, "msr"), 8, TSC_AUX).expect("TSC_AUX");
        assert_eq!(number[..4], cpu.to_le_bytes());
    }
}

/// Where a file is after each step of a walk, and what it has read.
fn walk(mut file: File) -> Vec<Result<Vec<u8>, i32>> {
    let mut steps = Vec::new();
    let seek = |file: &mut File, to: SeekFrom| {
        let at = file.seek(to).map(|at| at.to_le_bytes().to_vec());
        at.map_err(|error| error.raw_os_error().expect("an error of the kernel's"))
    };
    steps.push(seek(&mut file, SeekFrom::Start(4)));
    for len in [16, 32, 0, 8, 16] {
        let mut bytes = vec![0; len];
        let read = file.read(&mut bytes);
        steps.push(outcome(bytes, read));
        steps.push(seek(&mut file, SeekFrom::Current(0)));
    }
    for to in [
        SeekFrom::End(0),
        SeekFrom::End(-8),
        SeekFrom::Current(-1000),
        SeekFrom::Current(1 << 32),
        SeekFrom::Start(0x8000_0000),
        SeekFrom::Start(u64::MAX),
    ] {
        steps.push(seek(&mut file, to));
    }
    steps
}

fn positions_are_the_kernels(_: &Env) {
    for name in ["msr", "cpuid"] {
        let (kernels, ours) = (walk(open(KERNELS, 0, name)), walk(open(OURS, 0, name)));
        // Register 4 may be any, but not another each time.
        assert_eq!(ours, kernels, "{name}");
    }
}

/// pread() to any address.
fn read_to(file: &File, address: usize, len: usize, at: i64) -> Result<usize, i32> {
    // SAFETY: The kernel checks addresses; the memory is nobody's but the test's.
    let read = unsafe { libc::pread(file.as_raw_fd(), address as *mut libc::c_void, len, at) };
    usize::try_from(read).map_err(|_| sys::last_error().0)
}

fn memory_is_treated_as_by_the_kernel(_: &Env) {
    let pages = Pages::new(2, false);
    pages.protect(1, libc::PROT_NONE);
    for (name, unit) in [("msr", 8), ("cpuid", 16)] {
        let at = if name == "msr" { TSC_AUX as i64 } else { 0 };
        let (kernels, ours) = (open(KERNELS, 0, name), open(OURS, 0, name));
        for (address, len) in [
            (0, unit),
            (pages.address(4096), unit),
            (pages.address(4096 - unit), 2 * unit),
            (pages.address(4096 - 3 * unit), 8 * unit),
            (pages.address(4096 - unit / 2), unit),
            (usize::MAX - 4095, unit),
        ] {
            let expected = read_to(&kernels, address, len, at);
            assert_eq!(read_to(&ours, address, len, at), expected, "{name} {len}");
        }
    }
}

fn nothing_is_written(_: &Env) {
    let path = format!("{OURS}/0/msr");
    let before = read_at(&open(OURS, 0, "msr"), 8, TSC_AUX);
    let error = |result: io::Result<usize>| result.map_err(|error| error.raw_os_error());
    for read in [false, true] {
        let file = OpenOptions::new().read(read).write(true).open(&path);
        let mut file = file.expect("as a tool opens it that also writes");
        for len in [0, 8, 16] {
            // A write of nothing does not get as far as the file.
            let expected = if len == 0 {
                Ok(0)
            } else {
                Err(Some(libc::EPERM))
            };
            let written = error(file.write_at(&vec![0; len], TSC_AUX));
            assert!(written == expected || len == 0, "{written:?}");
        }
        assert_eq!(error(file.write(&[0; 8])), Err(Some(libc::EPERM)));
    }
    let file = open(OURS, 0, "msr");
    assert_eq!(error(file.write_at(&[0; 8], 0)), Err(Some(libc::EBADF)));
    assert_eq!(read_at(&file, 8, TSC_AUX), before);
    assert_eq!(
        Pages::map(file.as_raw_fd(), 1, libc::PROT_READ).err(),
        Some(Errno(libc::ENODEV))
    );
    // The command of the kernel's own file, which takes all registers.
    assert_eq!(
        sys::ioctl(file.as_raw_fd(), 0xc020_63a0, 0),
        Err(Errno(libc::ENOTTY))
    );
}

fn the_policy_decides(_: &Env) {
    let [here, there, ..] = guest::online()[..] else {
        panic!("two CPUs");
    };
    for cpu in [here, there] {
        sys::set_mode(&format!("{OURS}/{cpu}/msr"), 0o444);
    }
    let child = sys::fork(|| {
        sys::become_user(1000);
        let file = open(OURS, there, "msr");
        let error = |at| read_at(&file, 8, at).expect_err("not for users");
        assert!(read_at(&file, 8, TSC_AUX).is_ok());
        // Where system calls enter: on no list, ever.
        assert_eq!(error(0xc000_0082), libc::EACCES);
        assert_eq!(error(0x174), libc::EACCES);
        sys::pin(&[here]).expect("it is online");
        assert_eq!(error(TSC_AUX), libc::EPERM);
        assert!(read_at(&open(OURS, here, "msr"), 8, TSC_AUX).is_ok());
        let cpuid = File::open(format!("{OURS}/{here}/cpuid"));
        assert_eq!(
            cpuid.map_err(|error| error.kind()).err(),
            Some(io::ErrorKind::PermissionDenied)
        );
    });
    child.expect_success();
    // The rights are those of whoever opened it.
    let file = open(OURS, there, "msr");
    let child = sys::fork(|| {
        sys::become_user(1000);
        assert!(read_at(&file, 8, 0xc000_0082).is_ok());
    });
    child.expect_success();
    for cpu in [here, there] {
        sys::set_mode(&format!("{OURS}/{cpu}/msr"), 0o600);
    }
}

fn offline_cpus_have_none(env: &Env) {
    let cpu = guest::online()
        .into_iter()
        .rev()
        .find(|&cpu| guest::can_go_offline(cpu))
        .expect("a CPU that can be taken offline");
    let path = format!("{OURS}/{cpu}/msr");
    let number = fs::metadata(&path).expect("online").rdev();
    env.repeat(20, || {
        let file = open(OURS, cpu, "msr");
        guest::set_online(cpu, false);
        assert!(!Path::new(&path).exists());
        assert!(!Path::new(&format!("{OURS}/{cpu}")).exists());
        assert_eq!(read_at(&file, 8, TSC_AUX), Err(libc::ENXIO));
        // Somebody may have kept the node.
        let kept = c"/tmp/cpupeek-node";
        let _ = fs::remove_file("/tmp/cpupeek-node");
        // SAFETY: The path is a string.
        let made = unsafe { libc::mknod(kept.as_ptr(), libc::S_IFCHR | 0o600, number) };
        assert_eq!(made, 0, "{:?}", sys::last_error());
        let opened = File::open("/tmp/cpupeek-node").map_err(|error| error.raw_os_error());
        assert_eq!(opened.err(), Some(Some(libc::ENXIO)));
        guest::set_online(cpu, true);
        for file in [&file, &open(OURS, cpu, "msr")] {
            let number = read_at(file, 8, TSC_AUX).expect("online");
            assert_eq!(number[..4], cpu.to_le_bytes());
        }
    });
    let _ = fs::remove_file("/tmp/cpupeek-node");
}

fn a_read_is_one_interrupt(_: &Env) {
    let [here, there, ..] = guest::online()[..] else {
        panic!("two CPUs");
    };
    sys::pin(&[here]).expect("it is online");
    let files = [
        open(OURS, here, "msr"),
        open(OURS, there, "msr"),
        open(OURS, there, "cpuid"),
    ];
    let calls = calls_during(|| {
        for _ in 0..10 {
            assert!(read_at(&files[0], 8, TSC_AUX).is_ok());
            assert!(read_at(&files[1], 8, TSC_AUX).is_ok());
            assert!(read_at(&files[2], 32, 0).is_ok());
        }
    });
    assert_eq!(calls, vec![there; 10 + 2 * 10]);
}

fn an_open_file_keeps_the_module(env: &Env) {
    let file = open(OURS, 0, "cpuid");
    assert_ne!(guest::module_users(), 0);
    assert_eq!(
        sys::unload_module(guest::MODULE),
        Err(Errno(libc::EWOULDBLOCK))
    );
    drop(file);
    assert_eq!(guest::module_users(), 0);
    env.repeat(20, || {
        assert_eq!(sys::unload_module(guest::MODULE), Ok(()));
        assert!(!Path::new(OURS).exists());
        assert!(!Path::new("/sys/class/cpupeek-cpu").exists());
        assert_eq!(sys::load_module(&env.module, ""), Ok(()));
        for cpu in guest::online() {
            assert!(read_at(&open(OURS, cpu, "cpuid"), 16, 0).is_ok());
        }
    });
}
