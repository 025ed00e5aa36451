// SPDX-License-Identifier: GPL-2.0

//! One test for each value that is refused, with everything else valid.

use super::{tests, Env};
use crate::device::{cpupeek_batch, header, numbered, uapi, Device, Op};
use crate::device::{BATCH, CPUID, INFO, MSR, OP_SIZE, PREPARE, READ, SELF, TSC_AUX};
use crate::sys::{Errno, Pages};

tests! {
    "reject";
    kind: [],
    op_flag_bits: [],
    op_reserved_bits: [],
    msr_with_subleaf: [],
    status_and_answer_need_no_value: [],
    malformed_op_spoils_no_other: [],
    batch_flag_bits: [],
    batch_sleep_and_spin: [],
    batch_reserved_bits: [],
    batch_tsc_without_its_flag: [],
    batch_op_size: [],
    unknown_command: [],
    wrong_type: [],
}

/// Checks that `asked` is refused as malformed, alone and among others.
#[track_caller]
fn expect_malformed(device: &Device, asked: Op) {
    device.read(asked).expect_error(&asked, libc::EINVAL);
    let good = [Op::msr(SELF, TSC_AUX), Op::cpuid(0, 0, 0)];
    let answers = device.batch(&[good[0], asked, good[1]]);
    answers[0].expect_answer(&good[0]);
    answers[1].expect_error(&asked, libc::EINVAL);
    answers[2].expect_answer(&good[1]);
}

/// Valid operations to spoil.
fn valid() -> [Op; 4] {
    [
        Op::msr(0, TSC_AUX),
        Op::msr(SELF, TSC_AUX),
        Op::cpuid(0, 4, 1),
        Op::cpuid(SELF, 0, 0),
    ]
}

fn kind(_: &Env) {
    let device = Device::open();
    for good in valid() {
        device.read(good).expect_answer(&good);
        for kind in [
            0, 3, 4, 5, 8, 0x7f, 0x80, 0xff, 0x100, 0x101, 0x102, 0x8001, 0xffff,
        ] {
            let mut op = good;
            op.kind = kind;
            expect_malformed(&device, op);
        }
    }
}

fn op_flag_bits(_: &Env) {
    let device = Device::open();
    for good in valid() {
        for bit in 0..16 {
            let mut op = good;
            op.flags = 1 << bit;
            if u32::from(op.flags) == uapi::CPUPEEK_OP_DISTURB {
                device.read(op).expect_answer(&op);
            } else {
                expect_malformed(&device, op);
                op.flags |= uapi::CPUPEEK_OP_DISTURB as u16;
                expect_malformed(&device, op);
            }
        }
    }
}

fn op_reserved_bits(_: &Env) {
    let device = Device::open();
    for good in valid() {
        for bit in 0..32 {
            let mut op = good;
            op.reserved = 1 << bit;
            expect_malformed(&device, op);
        }
    }
}

fn msr_with_subleaf(_: &Env) {
    let device = Device::open();
    for bit in 0..32 {
        let mut op = Op::msr(0, TSC_AUX);
        op.subleaf = 1 << bit;
        expect_malformed(&device, op);
        let op = Op::cpuid(0, 0, 1 << bit);
        device.read(op).expect_answer(&op);
    }
}

fn status_and_answer_need_no_value(_: &Env) {
    let device = Device::open();
    for status in [0, 1, -1, -libc::ETIME, -libc::EIO, i32::MIN, i32::MAX] {
        for mut op in valid() {
            op.status = status;
            device.read(op).expect_answer(&op);
            device.batch(&[op])[0].expect_answer(&op);
            op.reserved = 1;
            expect_malformed(&device, op);
        }
    }
}

fn malformed_op_spoils_no_other(_: &Env) {
    let device = Device::open();
    let ops: Vec<Op> = (0..100)
        .map(|i| {
            let mut op = if i % 2 == 0 {
                Op::msr(SELF, TSC_AUX)
            } else {
                Op::cpuid(0, 0, 0)
            };
            if i % 3 == 0 {
                op.kind = 7;
            }
            op
        })
        .collect();
    for (i, (asked, op)) in ops.iter().zip(device.batch(&ops)).enumerate() {
        if i % 3 == 0 {
            op.expect_error(asked, libc::EINVAL);
        } else {
            op.expect_answer(asked);
        }
    }
}

/// Checks that a batch with this header fails as a whole, and leaves its operations alone.
#[track_caller]
fn expect_refused(device: &Device, header: cpupeek_batch, error: i32) {
    let asked = [Op::msr(SELF, TSC_AUX), Op::cpuid(0, 0, 0)];
    let mut ops = asked;
    assert_eq!(device.try_batch(header, &mut ops), Err(Errno(error)));
    for (op, asked) in ops.iter().zip(&asked) {
        assert_eq!(op.status, asked.status, "the operations are left alone");
        assert_eq!((op.tsc, op.words()), (asked.tsc, asked.words()));
    }
}

/// Checks that a batch with this header runs.
#[track_caller]
fn expect_runs(device: &Device, header: cpupeek_batch) {
    let ops = [Op::msr(SELF, TSC_AUX), Op::cpuid(0, 0, 0)];
    for (asked, op) in ops.iter().zip(device.batch_with(header, &ops)) {
        op.expect_answer(asked);
    }
}

fn batch_flag_bits(_: &Env) {
    let device = Device::open();
    let pages = Pages::new(1, false);
    let known = uapi::CPUPEEK_BATCH_SLEEP | uapi::CPUPEEK_BATCH_SPIN | uapi::CPUPEEK_BATCH_TSC_PAIR;
    for bit in 0..32 {
        let flags = 1 << bit;
        let mut with_flag = cpupeek_batch { flags, ..header(0) };
        if flags & known == 0 {
            expect_refused(&device, with_flag, libc::EINVAL);
            with_flag.flags |= uapi::CPUPEEK_BATCH_SLEEP;
            expect_refused(&device, with_flag, libc::EINVAL);
        } else {
            if flags == uapi::CPUPEEK_BATCH_TSC_PAIR {
                with_flag.tsc = pages.address(0) as u64;
            }
            expect_runs(&device, with_flag);
        }
    }
}

fn batch_sleep_and_spin(_: &Env) {
    let flags = uapi::CPUPEEK_BATCH_SLEEP | uapi::CPUPEEK_BATCH_SPIN;
    expect_refused(
        &Device::open(),
        cpupeek_batch { flags, ..header(0) },
        libc::EINVAL,
    );
}

fn batch_reserved_bits(_: &Env) {
    let device = Device::open();
    for bit in 0..32 {
        let reserved = 1 << bit;
        expect_refused(
            &device,
            cpupeek_batch {
                reserved,
                ..header(0)
            },
            libc::EINVAL,
        );
    }
}

fn batch_tsc_without_its_flag(_: &Env) {
    let device = Device::open();
    let pages = Pages::new(1, false);
    for tsc in [1, pages.address(0) as u64, 1 << 63] {
        expect_refused(&device, cpupeek_batch { tsc, ..header(0) }, libc::EINVAL);
    }
}

fn batch_op_size(_: &Env) {
    let device = Device::open();
    let size = OP_SIZE as u32;
    for op_size in [
        0,
        1,
        8,
        24,
        40,
        size - 1,
        size + 1,
        size + 4,
        size + 7,
        u32::MAX,
    ] {
        expect_refused(
            &device,
            cpupeek_batch {
                op_size,
                ..header(0)
            },
            libc::EINVAL,
        );
    }
}

fn unknown_command(_: &Env) {
    let device = Device::open();
    let pages = Pages::new(1, false);
    let known = [
        INFO,
        READ,
        BATCH,
        PREPARE,
        uapi::CPUPEEK_CONST_IOC_SET_ALLOW,
        uapi::CPUPEEK_CONST_IOC_GET_ALLOW,
        uapi::CPUPEEK_CONST_IOC_NARROW,
        uapi::CPUPEEK_CONST_IOC_REFUSALS,
        uapi::CPUPEEK_CONST_IOC_SAMPLER,
        uapi::CPUPEEK_CONST_IOC_SET_CPU_WORD,
        uapi::CPUPEEK_CONST_IOC_CLEAR_CPU_WORD,
    ]
    .map(|cmd| cmd & 0xff);
    for cmd in [INFO, READ, BATCH] {
        for nr in (0..=0xff).filter(|nr| !known.contains(nr)) {
            let result = device.ioctl(numbered(cmd, nr), pages.address(0));
            assert_eq!(result, Err(Errno(libc::ENOTTY)), "number {nr:#x}");
        }
    }
    assert_eq!(pages.bytes(0, pages.len()), vec![0; pages.len()]);
}

fn wrong_type(_: &Env) {
    let device = Device::open();
    let pages = Pages::new(1, false);
    pages.write(0, Op::msr(0, TSC_AUX));
    let before = pages.bytes(0, pages.len());
    for cmd in [INFO, READ, BATCH] {
        for kind in (0..=0xff).filter(|&kind| kind != uapi::CPUPEEK_IOC_TYPE) {
            let other = cmd & !0xff00 | kind << 8;
            // The kernel itself knows some commands for any file: FIONREAD, FIOCLEX and the like
            // have the types 'T' and 'f', and none of them these sizes.
            let result = device.ioctl(other, pages.address(0));
            assert_eq!(result, Err(Errno(libc::ENOTTY)), "type {kind:#x}");
        }
    }
    assert_eq!(pages.bytes(0, pages.len()), before);
    assert_eq!((MSR, CPUID), (1, 2), "what the ABI promises");
}
