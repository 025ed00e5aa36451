// SPDX-License-Identifier: GPL-2.0

//! How structures may grow: "General ioctl format" in the UAPI header, rule by rule.

use super::{tests, Env};
use crate::device::{cpupeek_batch, cpupeek_info, header, sized, Device, Op};
use crate::device::{BATCH, INFO, OP_SIZE, POISON, READ, SELF, TSC_AUX};
use crate::sys::{Errno, Pages, Result, PAGE};

tests! {
    "sizes";
    info_too_short: [],
    info_longer_is_zeroed: [],
    info_poisoned_is_overwritten: [],
    read_too_short: [],
    read_longer_with_zero_tail: [],
    read_longer_with_unknown_tail: [],
    batch_command_too_short: [],
    batch_header_size_too_short: [],
    batch_header_size_longer_with_zero_tail: [],
    batch_header_size_longer_with_unknown_tail: [],
    batch_command_longer: [],
    batch_header_size_over_a_page: [],
}

const INFO_SIZE: usize = size_of::<cpupeek_info>();
const BATCH_SIZE: usize = size_of::<cpupeek_batch>();
/// The most that a command's code can say.
const MAX_SIZE: usize = (1 << 14) - 1;

/// Sizes from `first` to the most, not all of them.
fn longer(first: usize) -> impl Iterator<Item = usize> {
    let last = [64, 65, 128, 4095, 4096, 4097, 8192, MAX_SIZE];
    (first..first + 20).chain(last.into_iter().filter(move |&size| size > first))
}

/// Places in a tail where something unknown may stand: its ends, and between.
fn places(known: usize, size: usize) -> [usize; 3] {
    [known, known + (size - known) / 2, size - 1]
}

fn poisoned(count: usize) -> Pages {
    let pages = Pages::new(count, false);
    pages.fill(POISON);
    pages
}

fn zero(pages: &Pages, from: usize, to: usize) {
    (from..to).for_each(|at| pages.write(at, 0u8));
}

#[track_caller]
fn expect_all(pages: &Pages, from: usize, to: usize, byte: u8) {
    let bytes = pages.bytes(from, to - from);
    let wrong = bytes.iter().position(|&found| found != byte);
    assert_eq!(
        wrong.map(|at| (from + at, bytes[at])),
        None,
        "not {byte:#x}"
    );
}

fn info_too_short(_: &Env) {
    let device = Device::open();
    let pages = poisoned(1);
    for size in 0..INFO_SIZE {
        let result = device.ioctl(sized(INFO, size), pages.address(0));
        assert_eq!(result, Err(Errno(libc::EINVAL)), "{size} bytes");
        expect_all(&pages, 0, PAGE, POISON);
    }
}

fn info_longer_is_zeroed(_: &Env) {
    let device = Device::open();
    let expected = Pages::new(1, false);
    expected.write(0, device.info());
    let pages = Pages::new(5, false);
    for size in longer(INFO_SIZE) {
        pages.fill(POISON);
        let result = device.ioctl(sized(INFO, size), pages.address(0));
        assert_eq!(result, Ok(()), "{size} bytes");
        assert_eq!(pages.bytes(0, INFO_SIZE), expected.bytes(0, INFO_SIZE));
        expect_all(&pages, INFO_SIZE, size, 0);
        expect_all(&pages, size, pages.len(), POISON);
    }
}

fn info_poisoned_is_overwritten(_: &Env) {
    let device = Device::open();
    let answer = |fill| {
        let pages = Pages::new(1, false);
        pages.fill(fill);
        assert_eq!(device.ioctl(INFO, pages.address(0)), Ok(()));
        expect_all(&pages, INFO_SIZE, PAGE, fill);
        pages.bytes(0, INFO_SIZE)
    };
    assert_eq!(answer(POISON), answer(!POISON), "no byte is left out");
}

fn read_sized(device: &Device, pages: &Pages, size: usize) -> Result<()> {
    device.ioctl(sized(READ, size), pages.address(0))
}

fn read_too_short(_: &Env) {
    let device = Device::open();
    let pages = poisoned(1);
    pages.write(0, Op::msr(SELF, TSC_AUX));
    let before = pages.bytes(0, PAGE);
    for size in 0..OP_SIZE {
        let result = read_sized(&device, &pages, size);
        assert_eq!(result, Err(Errno(libc::EINVAL)), "{size} bytes");
        assert_eq!(pages.bytes(0, PAGE), before);
    }
}

fn read_longer_with_zero_tail(_: &Env) {
    let device = Device::open();
    let pages = Pages::new(5, false);
    for size in longer(OP_SIZE) {
        let asked = Op::msr(SELF, TSC_AUX);
        pages.fill(POISON);
        pages.write(0, asked);
        zero(&pages, OP_SIZE, size);
        assert_eq!(read_sized(&device, &pages, size), Ok(()), "{size} bytes");
        pages.read::<Op>(0).expect_answer(&asked);
        expect_all(&pages, OP_SIZE, size, 0);
        expect_all(&pages, size, pages.len(), POISON);
    }
}

fn read_longer_with_unknown_tail(_: &Env) {
    let device = Device::open();
    let pages = Pages::new(5, false);
    pages.write(0, Op::msr(SELF, TSC_AUX));
    for size in longer(OP_SIZE + 1) {
        for place in places(OP_SIZE, size) {
            pages.write(place, 1u8);
            let before = pages.bytes(0, pages.len());
            let result = read_sized(&device, &pages, size);
            assert_eq!(result, Err(Errno(libc::E2BIG)), "{size} bytes, {place}");
            assert_eq!(pages.bytes(0, pages.len()), before);
            pages.write(place, 0u8);
        }
    }
}

/// A page with a batch of one operation, whose header is at its start and ends with zeroes.
struct OneOp {
    pages: Pages,
    ops: Pages,
}

impl OneOp {
    fn new() -> Self {
        let batch = Self {
            pages: Pages::new(5, false),
            ops: Pages::new(1, false),
        };
        batch.set(|_| {});
        batch
    }

    fn set(&self, change: impl FnOnce(&mut cpupeek_batch)) {
        let mut header = header(1);
        header.ops = self.ops.address(0) as u64;
        change(&mut header);
        self.pages.write(0, header);
        self.ops.write(0, Op::msr(SELF, TSC_AUX));
    }

    fn run(&self, device: &Device, size: usize) -> Result<()> {
        device.ioctl(sized(BATCH, size), self.pages.address(0))
    }

    #[track_caller]
    fn expect_runs(&self, device: &Device, size: usize) {
        assert_eq!(self.run(device, size), Ok(()));
        let asked = Op::msr(SELF, TSC_AUX);
        self.ops.read::<Op>(0).expect_answer(&asked);
    }

    #[track_caller]
    fn expect_refused(&self, device: &Device, size: usize, error: i32) {
        assert_eq!(self.run(device, size), Err(Errno(error)));
        let asked = Op::msr(SELF, TSC_AUX);
        assert_eq!(
            self.ops.read::<Op>(0).tsc,
            asked.tsc,
            "it was not performed"
        );
    }
}

fn batch_command_too_short(_: &Env) {
    let device = Device::open();
    let batch = OneOp::new();
    for size in 0..BATCH_SIZE {
        batch.expect_refused(&device, size, libc::EINVAL);
    }
    batch.expect_runs(&device, BATCH_SIZE);
}

fn batch_header_size_too_short(_: &Env) {
    let device = Device::open();
    let batch = OneOp::new();
    for said in 0..BATCH_SIZE as u32 {
        batch.set(|header| header.size = said);
        batch.expect_refused(&device, BATCH_SIZE, libc::EINVAL);
        batch.expect_refused(&device, BATCH_SIZE + 8, libc::EINVAL);
    }
}

fn batch_header_size_longer_with_zero_tail(_: &Env) {
    let device = Device::open();
    let batch = OneOp::new();
    for said in longer(BATCH_SIZE).filter(|&said| said <= PAGE) {
        batch.set(|header| header.size = said as u32);
        // What is after that is nobody's business.
        batch.pages.write(said, POISON);
        batch.expect_runs(&device, BATCH_SIZE);
        batch.pages.write(said, 0u8);
    }
}

fn batch_header_size_longer_with_unknown_tail(_: &Env) {
    let device = Device::open();
    let batch = OneOp::new();
    for said in longer(BATCH_SIZE + 1).filter(|&said| said <= PAGE) {
        for place in places(BATCH_SIZE, said) {
            batch.set(|header| header.size = said as u32);
            batch.pages.write(place, 1u8);
            batch.expect_refused(&device, BATCH_SIZE, libc::E2BIG);
            batch.pages.write(place, 0u8);
        }
    }
}

fn batch_command_longer(_: &Env) {
    let device = Device::open();
    let batch = OneOp::new();
    for size in longer(BATCH_SIZE + 1) {
        batch.set(|_| {});
        batch.expect_runs(&device, size);
        for place in places(BATCH_SIZE, size) {
            batch.set(|_| {});
            batch.pages.write(place, 1u8);
            batch.expect_refused(&device, size, libc::E2BIG);
            batch.pages.write(place, 0u8);
        }
    }
}

fn batch_header_size_over_a_page(_: &Env) {
    let device = Device::open();
    let batch = OneOp::new();
    for said in [PAGE as u32 + 1, 8192, 1 << 31, u32::MAX] {
        batch.set(|header| header.size = said);
        batch.expect_refused(&device, BATCH_SIZE, libc::E2BIG);
    }
}
