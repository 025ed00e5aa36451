// SPDX-License-Identifier: GPL-2.0

//! Bad pointers: memory that is not there, only half there, or not for writing.

use super::{tests, Env};
use crate::device::{cpupeek_batch, cpupeek_info, cpupeek_tsc_pair, header, uapi, Device, Op};
use crate::device::{BATCH, INFO, OP_SIZE, POISON, READ, SELF, TSC_AUX};
use crate::guest::{self, attribute};
use crate::sys::{Errno, Pages, PAGE};

tests! {
    "memory";
    nowhere: [],
    info_half_mapped: [],
    info_read_only: [],
    read_half_mapped: [],
    read_half_writable: [],
    read_read_only: [],
    read_of_a_refused_op_read_only: [],
    batch_header_half_mapped: [],
    batch_header_read_only: [],
    batch_header_tail_half_mapped: [],
    batch_ops_nowhere: [],
    batch_ops_half_mapped: [],
    batch_ops_half_writable: [],
    batch_ops_wrap_around: [],
    batch_gaps_are_left_alone: [],
    batch_gaps_need_not_be_mapped: [],
    batch_ops_at_any_alignment: [],
    batch_tsc_nowhere: [],
    batch_tsc_half_writable: [],
    errors_leave_the_descriptor_working: [],
}

const EFAULT: Result<(), Errno> = Err(Errno(libc::EFAULT));

/// Addresses where a process has nothing: null, the first page, the end of user space and what is
/// after it, not canonical ones, kernel memory and the last bytes of all.
const NOWHERE: &[usize] = &[
    0,
    8,
    0xff8,
    0x7fff_ffff_f000,
    0x8000_0000_0000,
    0x0100_0000_0000_0000,
    0xffff_8880_0000_0000,
    0xffff_ffff_8100_0000,
    usize::MAX - 7,
    usize::MAX,
];

fn nowhere(_: &Env) {
    let device = Device::open();
    for &address in NOWHERE {
        for cmd in [INFO, READ, BATCH] {
            assert_eq!(device.ioctl(cmd, address), EFAULT, "{cmd:#x} {address:#x}");
        }
    }
}

/// Two pages, of which the second one has the protection `prot`.
fn two_pages(prot: i32) -> Pages {
    let pages = Pages::new(2, false);
    pages.fill(POISON);
    pages.protect(1, prot);
    pages
}

/// Places of a structure of `size` bytes that ends in the second page.
fn straddling(size: usize) -> impl Iterator<Item = usize> {
    (PAGE - size + 1..=PAGE).filter(|at| at % 8 == 0)
}

fn info_half_mapped(_: &Env) {
    let device = Device::open();
    for prot in [libc::PROT_NONE, libc::PROT_READ] {
        let pages = two_pages(prot);
        for at in straddling(size_of::<cpupeek_info>()) {
            assert_eq!(device.ioctl(INFO, pages.address(at)), EFAULT, "{at}");
        }
        let fits = PAGE - size_of::<cpupeek_info>();
        assert_eq!(device.ioctl(INFO, pages.address(fits)), Ok(()));
    }
}

fn info_read_only(_: &Env) {
    let device = Device::open();
    let pages = two_pages(libc::PROT_READ);
    assert_eq!(device.ioctl(INFO, pages.address(PAGE)), EFAULT);
    assert_eq!(pages.bytes(PAGE, PAGE), [POISON; PAGE]);
}

fn read_half_mapped(_: &Env) {
    let device = Device::open();
    for at in straddling(OP_SIZE) {
        let pages = Pages::new(2, false);
        pages.write(at, Op::msr(SELF, TSC_AUX));
        pages.protect(1, libc::PROT_NONE);
        let before = pages.bytes(0, PAGE);
        assert_eq!(device.ioctl(READ, pages.address(at)), EFAULT, "{at}");
        assert_eq!(pages.bytes(0, PAGE), before, "nothing was performed");
    }
    let pages = two_pages(libc::PROT_NONE);
    let (fits, asked) = (PAGE - OP_SIZE, Op::msr(SELF, TSC_AUX));
    pages.write(fits, asked);
    assert_eq!(device.ioctl(READ, pages.address(fits)), Ok(()));
    pages.read::<Op>(fits).expect_answer(&asked);
}

fn read_half_writable(_: &Env) {
    let device = Device::open();
    for asked in [Op::msr(SELF, TSC_AUX), Op::cpuid(0, 0, 0)] {
        for at in straddling(OP_SIZE) {
            let pages = Pages::new(2, false);
            pages.write(at, asked);
            pages.protect(1, libc::PROT_READ);
            let before = pages.bytes(PAGE, PAGE);
            assert_eq!(device.ioctl(READ, pages.address(at)), EFAULT, "{at}");
            assert_eq!(pages.bytes(PAGE, PAGE), before);
        }
    }
}

#[track_caller]
fn expect_efault_read_only(asked: Op) {
    let device = Device::open();
    let pages = Pages::new(1, false);
    pages.write(0, asked);
    pages.protect(0, libc::PROT_READ);
    let before = pages.bytes(0, PAGE);
    assert_eq!(device.ioctl(READ, pages.address(0)), EFAULT, "{asked:?}");
    assert_eq!(pages.bytes(0, PAGE), before);
}

fn read_read_only(_: &Env) {
    expect_efault_read_only(Op::msr(SELF, TSC_AUX));
    for cpu in guest::online() {
        expect_efault_read_only(Op::msr(cpu, TSC_AUX));
        expect_efault_read_only(Op::cpuid(cpu, 0, 0));
    }
}

fn read_of_a_refused_op_read_only(_: &Env) {
    expect_efault_read_only(Op::msr(SELF - 1, TSC_AUX));
    let mut malformed = Op::msr(0, TSC_AUX);
    malformed.kind = 0;
    expect_efault_read_only(malformed);
}

/// Operations on all CPUs.
fn good_ops(count: usize) -> Vec<Op> {
    let cpus = guest::online();
    let cpus = cpus.iter().cycle().take(count);
    cpus.map(|&cpu| Op::msr(cpu, TSC_AUX)).collect()
}

/// The same, and the same with a malformed one in the middle: batches with and without refusals
/// may take different ways through the module.
fn good_and_mixed_ops(count: usize) -> [Vec<Op>; 2] {
    let good = good_ops(count);
    let mut mixed = good.clone();
    mixed[count / 2].reserved = 1;
    [good, mixed]
}

#[track_caller]
fn expect_outcome(asked: &Op, op: &Op) {
    if asked.reserved == 0 {
        op.expect_answer(asked);
    } else {
        op.expect_error(asked, libc::EINVAL);
    }
}

/// Operations on all CPUs, at the start of pages of their own.
fn mapped_ops(count: usize) -> (Vec<Op>, Pages) {
    let ops = good_ops(count);
    let pages = Pages::new((count * OP_SIZE).div_ceil(PAGE), false);
    for (i, op) in ops.iter().enumerate() {
        pages.write(i * OP_SIZE, *op);
    }
    (ops, pages)
}

fn batch_header_half_mapped(_: &Env) {
    let device = Device::open();
    let (_, ops) = mapped_ops(4);
    let mut header = header(4);
    header.ops = ops.address(0) as u64;
    for at in straddling(size_of::<cpupeek_batch>()) {
        let pages = Pages::new(2, false);
        pages.write(at, header);
        pages.protect(1, libc::PROT_NONE);
        assert_eq!(device.ioctl(BATCH, pages.address(at)), EFAULT, "{at}");
        assert_eq!(ops.bytes(24, 8), [POISON; 8], "nothing was performed");
    }
}

fn batch_header_read_only(_: &Env) {
    let device = Device::open();
    let (asked, ops) = mapped_ops(4);
    let pages = Pages::new(1, false);
    let mut header = header(4);
    header.ops = ops.address(0) as u64;
    pages.write(0, header);
    pages.protect(0, libc::PROT_READ);
    assert_eq!(device.ioctl(BATCH, pages.address(0)), Ok(()), "_IOW");
    for (i, asked) in asked.iter().enumerate() {
        ops.read::<Op>(i * OP_SIZE).expect_answer(asked);
    }
}

fn batch_header_tail_half_mapped(_: &Env) {
    let device = Device::open();
    let pages = Pages::new(2, false);
    let at = PAGE - size_of::<cpupeek_batch>();
    let mut header = header(0);
    header.size += 8;
    pages.write(at, header);
    assert_eq!(device.ioctl(BATCH, pages.address(at)), Ok(()));
    pages.protect(1, libc::PROT_NONE);
    assert_eq!(device.ioctl(BATCH, pages.address(at)), EFAULT);
}

fn batch_ops_nowhere(_: &Env) {
    let device = Device::open();
    let pages = Pages::new(1, false);
    for &address in NOWHERE {
        for count in [1, 2, 1000] {
            let mut header = header(count);
            header.ops = address as u64;
            assert_eq!(device.batch_in(&pages, 0, header), EFAULT, "{address:#x}");
        }
    }
}

fn batch_ops_half_mapped(_: &Env) {
    let device = Device::open();
    let headers = Pages::new(1, false);
    let count = 2 * PAGE / OP_SIZE;
    // The second page begins in an operation, or between two.
    for shift in [0, 16] {
        let pages = Pages::new(3, false);
        let (asked, _) = mapped_ops(count);
        for (i, op) in asked.iter().enumerate() {
            pages.write(shift + i * OP_SIZE, *op);
        }
        pages.protect(1, libc::PROT_NONE);
        let before = pages.bytes(0, PAGE);
        let interrupts = attribute("interrupts");
        let mut header = header(count);
        header.ops = pages.address(shift) as u64;
        assert_eq!(device.batch_in(&headers, 0, header), EFAULT);
        assert_eq!(pages.bytes(0, PAGE), before, "nothing was performed");
        assert_eq!(attribute("interrupts"), interrupts, "nobody was called");
    }
}

fn batch_ops_half_writable(_: &Env) {
    let device = Device::open();
    let headers = Pages::new(1, false);
    for stride in [OP_SIZE, OP_SIZE + 8, 1024] {
        let count = 2 * PAGE / stride;
        for (writable, asked) in good_and_mixed_ops(count)
            .iter()
            .flat_map(|ops| [(0, ops), (1, ops)])
        {
            let pages = Pages::new(2, false);
            for (i, op) in asked.iter().enumerate() {
                pages.write(i * stride, *op);
            }
            pages.protect(writable, libc::PROT_READ);
            let before = pages.bytes(writable * PAGE, PAGE);
            let mut header = header(count);
            header.ops = pages.address(0) as u64;
            header.op_size = stride as u32;
            assert_eq!(device.batch_in(&headers, 0, header), EFAULT, "{stride}");
            assert_eq!(pages.bytes(writable * PAGE, PAGE), before);
        }
    }
}

fn batch_ops_wrap_around(_: &Env) {
    let device = Device::open();
    let headers = Pages::new(1, false);
    let max = device.info().max_batch_ops as usize;
    for (count, op_size) in [
        (2, u32::MAX - 7),
        (max, u32::MAX - 7),
        (max, OP_SIZE as u32),
    ] {
        for ops in [u64::MAX - 63, u64::MAX - OP_SIZE as u64 * 2, 1 << 63] {
            let header = cpupeek_batch {
                op_size,
                ops,
                ..header(count)
            };
            assert_eq!(device.batch_in(&headers, 0, header), EFAULT);
        }
    }
}

fn batch_gaps_are_left_alone(_: &Env) {
    let device = Device::open();
    let headers = Pages::new(1, false);
    let strides = (OP_SIZE..OP_SIZE + 80).step_by(8);
    for stride in strides.chain([512, 1000, 4096]) {
        let count = 50;
        for asked in good_and_mixed_ops(count) {
            let pages = Pages::new((count * stride).div_ceil(PAGE), false);
            pages.fill(POISON);
            for (i, op) in asked.iter().enumerate() {
                pages.write(i * stride, *op);
            }
            let mut header = header(count);
            header.ops = pages.address(0) as u64;
            header.op_size = stride as u32;
            assert_eq!(device.batch_in(&headers, 0, header), Ok(()));
            for (i, asked) in asked.iter().enumerate() {
                expect_outcome(asked, &pages.read::<Op>(i * stride));
                let gap = pages.bytes(i * stride + OP_SIZE, stride - OP_SIZE);
                assert!(gap.iter().all(|&byte| byte == POISON), "stride {stride}");
            }
        }
    }
}

fn batch_gaps_need_not_be_mapped(_: &Env) {
    let device = Device::open();
    let headers = Pages::new(1, false);
    let count = 8;
    let place = |i: usize| 2 * i * PAGE + PAGE - OP_SIZE;
    for asked in good_and_mixed_ops(count) {
        let pages = Pages::new(2 * count, false);
        for (i, op) in asked.iter().enumerate() {
            pages.write(place(i), *op);
        }
        // Each change reaches to the end, so that every other page stays closed.
        for i in 0..count {
            pages.protect(2 * i + 1, libc::PROT_NONE);
            if i + 1 < count {
                pages.protect(2 * i + 2, libc::PROT_READ | libc::PROT_WRITE);
            }
        }
        let mut header = header(count);
        header.ops = pages.address(place(0)) as u64;
        header.op_size = 2 * PAGE as u32;
        assert_eq!(device.batch_in(&headers, 0, header), Ok(()));
        for (i, asked) in asked.iter().enumerate() {
            expect_outcome(asked, &pages.read::<Op>(place(i)));
        }
    }
}

fn batch_ops_at_any_alignment(_: &Env) {
    let device = Device::open();
    let headers = Pages::new(1, false);
    let asked = Op::msr(SELF, TSC_AUX);
    let aligned = Pages::new(1, false);
    aligned.write(0, asked);
    let bytes = aligned.bytes(0, OP_SIZE);
    for shift in 0..16 {
        let pages = Pages::new(1, false);
        for (i, &byte) in bytes.iter().enumerate() {
            pages.write(shift + i, byte);
        }
        let mut header = header(1);
        header.ops = pages.address(shift) as u64;
        assert_eq!(device.batch_in(&headers, 0, header), Ok(()));
        for (i, byte) in pages.bytes(shift, OP_SIZE).into_iter().enumerate() {
            aligned.write(i, byte);
        }
        aligned.read::<Op>(0).expect_answer(&asked);
    }
}

fn batch_tsc_nowhere(_: &Env) {
    let device = Device::open();
    for &address in NOWHERE {
        let header = cpupeek_batch {
            flags: uapi::CPUPEEK_BATCH_TSC_PAIR,
            tsc: address as u64,
            ..header(0)
        };
        let mut ops = [Op::msr(0, TSC_AUX)];
        assert_eq!(device.try_batch(header, &mut ops), EFAULT, "{address:#x}");
    }
}

fn batch_tsc_half_writable(_: &Env) {
    let device = Device::open();
    let cpus = guest::online();
    let pages = two_pages(libc::PROT_READ);
    for &cpu in &cpus {
        let pair = size_of::<cpupeek_tsc_pair>();
        // So that this CPU's pair, and only the later ones, are not writable.
        let start = PAGE - pair * cpu as usize;
        let with_tsc = cpupeek_batch {
            flags: uapi::CPUPEEK_BATCH_TSC_PAIR,
            tsc: pages.address(start) as u64,
            ..header(0)
        };
        let mut ops = [Op::msr(cpu, TSC_AUX)];
        assert_eq!(device.try_batch(with_tsc, &mut ops), EFAULT, "CPU {cpu}");
        assert_eq!(pages.bytes(PAGE, PAGE), [POISON; PAGE]);
        let fits = cpupeek_batch {
            tsc: with_tsc.tsc - pair as u64,
            ..with_tsc
        };
        assert_eq!(device.try_batch(fits, &mut ops), Ok(()), "CPU {cpu}");
    }
}

fn errors_leave_the_descriptor_working(_: &Env) {
    let device = Device::open();
    let headers = Pages::new(1, false);
    let cpus = guest::online();
    for round in 0..100 {
        let mut bad = header(4);
        bad.ops = NOWHERE[round % NOWHERE.len()] as u64;
        assert_eq!(device.batch_in(&headers, 0, bad), EFAULT);
        let ops: Vec<Op> = cpus.iter().map(|&cpu| Op::msr(cpu, TSC_AUX)).collect();
        for (asked, op) in ops.iter().zip(device.batch(&ops)) {
            op.expect_answer(asked);
            assert_eq!(op.value() & 0xfff, u64::from(asked.cpu));
        }
    }
}
