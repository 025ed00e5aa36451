// SPDX-License-Identifier: GPL-2.0

//! Prepared plans: their structures and commands.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::device::{uapi, Device, Op, OP_SIZE, POISON, PREPARE, RUN};
use crate::sys::{self, Errno, Pages, Result};
pub use cpupeek_client::uapi::{cpupeek_prepare, cpupeek_result, cpupeek_run};

pub const RESULT_SIZE: usize = size_of::<cpupeek_result>();

/// PREPARE's structure for `ops`.
pub fn request(ops: &[Op]) -> cpupeek_prepare {
    cpupeek_prepare {
        size: size_of::<cpupeek_prepare>() as u32,
        nr_ops: ops.len() as u32,
        op_size: OP_SIZE as u32,
        ops: ops.as_ptr().expose_provenance() as u64,
        fd: i32::from_ne_bytes([POISON; 4]),
        ..Default::default()
    }
}

/// PREPARE with this structure. Its descriptor is in the answer, and is the caller's to close.
pub fn try_prepare(device: &Device, mut request: cpupeek_prepare) -> Result<Plan> {
    device.ioctl(PREPARE, (&raw mut request).expose_provenance())?;
    assert!(request.fd >= 0, "a plan has a descriptor: {request:?}");
    // SAFETY: The descriptor is new, and nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(request.fd) };
    Ok(Plan {
        fd,
        len: request.nr_ops as usize,
    })
}

/// The answer of one of a plan's operations as that operation.
pub fn answer(asked: &Op, result: &cpupeek_result) -> Op {
    let mut op = *asked;
    op.status = result.status;
    op.cpu = result.cpu;
    op.tsc = result.tsc;
    // SAFETY: All fields of the unions are integers.
    let words = unsafe { result.__bindgen_anon_1.__bindgen_anon_1 };
    op.__bindgen_anon_1.__bindgen_anon_1 = uapi::cpupeek_op__bindgen_ty_1__bindgen_ty_1 {
        eax: words.eax,
        ebx: words.ebx,
        ecx: words.ecx,
        edx: words.edx,
    };
    op
}

/// A prepared plan.
pub struct Plan {
    fd: OwnedFd,
    len: usize,
}

impl Plan {
    #[track_caller]
    pub fn new(device: &Device, ops: &[Op]) -> Self {
        match try_prepare(device, request(ops)) {
            Ok(plan) => plan,
            Err(error) => panic!("PREPARE of {} operations: {error:?}", ops.len()),
        }
    }

    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// RUN's structure with results in `pages`.
    pub fn header(&self, pages: &Pages) -> cpupeek_run {
        cpupeek_run {
            size: size_of::<cpupeek_run>() as u32,
            nr_results: self.len as u32,
            results: pages.address(0) as u64,
            ..Default::default()
        }
    }

    /// Room for its results, poisoned.
    pub fn pages(&self) -> Pages {
        let pages = Pages::new((self.len * RESULT_SIZE).div_ceil(sys::PAGE).max(1), false);
        pages.fill(POISON);
        pages
    }

    pub fn try_run(&self, header: cpupeek_run) -> Result<()> {
        sys::ioctl(self.fd(), RUN, (&raw const header).expose_provenance())
    }

    /// RUN, which must run. Returns the answers to `ops`, which it was prepared for.
    #[track_caller]
    pub fn run(&self, ops: &[Op]) -> Vec<Op> {
        self.run_with(ops, 0)
    }

    #[track_caller]
    pub fn run_with(&self, ops: &[Op], timeout_ms: u32) -> Vec<Op> {
        let pages = self.pages();
        let header = cpupeek_run {
            timeout_ms,
            ..self.header(&pages)
        };
        assert_eq!(self.try_run(header), Ok(()));
        answers(ops, &pages)
    }

    /// Checks that RUN with this structure fails, and leaves the results alone.
    #[track_caller]
    pub fn expect_refused(&self, change: impl FnOnce(&mut cpupeek_run), error: i32) {
        let pages = self.pages();
        let mut header = self.header(&pages);
        change(&mut header);
        assert_eq!(self.try_run(header), Err(Errno(error)));
        let bytes = pages.bytes(0, pages.len());
        assert!(bytes.iter().all(|&byte| byte == POISON));
    }
}

/// The answers to `ops` that are at the start of `pages`.
pub fn answers(ops: &[Op], pages: &Pages) -> Vec<Op> {
    let result = |(i, op)| answer(op, &pages.read(i * RESULT_SIZE));
    ops.iter().enumerate().map(result).collect()
}
