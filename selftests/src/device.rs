// SPDX-License-Identifier: GPL-2.0

//! The device under test, its structures, and its commands.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::sys::{self, Errno, Pages, Result};
pub use cpupeek_client::uapi::{self, cpupeek_batch, cpupeek_info, cpupeek_op, cpupeek_tsc_pair};

pub const PATH: &str = "/dev/cpupeek";

pub const INFO: u32 = uapi::CPUPEEK_CONST_IOC_INFO;
pub const READ: u32 = uapi::CPUPEEK_CONST_IOC_READ;
pub const BATCH: u32 = uapi::CPUPEEK_CONST_IOC_BATCH;
pub const PREPARE: u32 = uapi::CPUPEEK_CONST_IOC_PREPARE;
pub const RUN: u32 = uapi::CPUPEEK_CONST_IOC_RUN;
pub const SELF: u32 = uapi::CPUPEEK_CONST_CPU_SELF;
pub const MSR: u16 = uapi::CPUPEEK_MSR as u16;
pub const CPUID: u16 = uapi::CPUPEEK_CPUID as u16;
pub const OP_SIZE: usize = size_of::<cpupeek_op>();

/// Linux keeps a CPU's number in this register, for RDPID and RDTSCP.
pub const TSC_AUX: u32 = 0xc000_0103;

/// What answers are filled with before they come.
pub const POISON: u8 = 0xa5;

/// `cmd` for a structure of `size` bytes.
pub fn sized(cmd: u32, size: usize) -> u32 {
    assert!(size < 1 << 14);
    cmd & !(0x3fff << 16) | (size as u32) << 16
}

/// `cmd` with another number.
pub fn numbered(cmd: u32, nr: u32) -> u32 {
    cmd & !0xff | nr
}

/// `struct cpupeek_op`. What the kernel is to fill is poisoned at first.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Op(pub cpupeek_op);

impl Op {
    pub fn new(cpu: u32, kind: u16, reg: u32, subleaf: u32) -> Self {
        let mut op = Self(cpupeek_op {
            cpu,
            kind,
            reg,
            subleaf,
            status: i32::from_ne_bytes([POISON; 4]),
            tsc: u64::from_ne_bytes([POISON; 8]),
            ..Default::default()
        });
        let poison = u32::from_ne_bytes([POISON; 4]);
        op.__bindgen_anon_1.__bindgen_anon_1 = uapi::cpupeek_op__bindgen_ty_1__bindgen_ty_1 {
            eax: poison,
            ebx: poison,
            ecx: poison,
            edx: poison,
        };
        op
    }

    pub fn msr(cpu: u32, reg: u32) -> Self {
        Self::new(cpu, MSR, reg, 0)
    }

    pub fn cpuid(cpu: u32, leaf: u32, subleaf: u32) -> Self {
        Self::new(cpu, CPUID, leaf, subleaf)
    }

    pub fn value(&self) -> u64 {
        // SAFETY: All fields of the union are integers.
        unsafe { self.__bindgen_anon_1.value }
    }

    /// EAX, EBX, ECX and EDX.
    pub fn words(&self) -> [u32; 4] {
        // SAFETY: All fields of the union are integers.
        let regs = unsafe { self.__bindgen_anon_1.__bindgen_anon_1 };
        [regs.eax, regs.ebx, regs.ecx, regs.edx]
    }

    /// The status as a result.
    pub fn result(&self) -> Result<()> {
        match self.status {
            0 => Ok(()),
            status => Err(Errno(-status)),
        }
    }

    /// Checks that this is the successful answer to `asked`.
    #[track_caller]
    pub fn expect_answer(&self, asked: &Op) {
        assert_eq!(self.result(), Ok(()), "{self:?}");
        self.expect_question(asked);
        assert_ne!(self.tsc, 0, "an answer has a time: {self:?}");
        assert_ne!(self.tsc, u64::from_ne_bytes([POISON; 8]), "{self:?}");
        if self.kind == MSR {
            assert_eq!(self.words()[2..], [0, 0], "an MSR has 64 bits: {self:?}");
        }
    }

    /// Checks that this is an answer to `asked` with the error `error` and nothing else in it.
    #[track_caller]
    pub fn expect_error(&self, asked: &Op, error: i32) {
        assert_eq!(self.result(), Err(Errno(error)), "{self:?}");
        self.expect_question(asked);
        assert_eq!(self.tsc, 0, "no time with an error: {self:?}");
        assert_eq!(self.words(), [0; 4], "no value with an error: {self:?}");
    }

    #[track_caller]
    fn expect_question(&self, asked: &Op) {
        let question = |op: &Op| (op.kind, op.flags, op.reg, op.subleaf, op.reserved);
        assert_eq!(question(self), question(asked), "the question has changed");
        if asked.cpu != SELF {
            assert_eq!(self.cpu, asked.cpu, "another CPU than asked: {self:?}");
        }
    }
}

impl Deref for Op {
    type Target = cpupeek_op;

    fn deref(&self) -> &cpupeek_op {
        &self.0
    }
}

impl DerefMut for Op {
    fn deref_mut(&mut self) -> &mut cpupeek_op {
        &mut self.0
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "op(cpu {:#x} kind {} flags {:#x} reg {:#x} subleaf {:#x} status {} reserved {:#x} tsc {:#x} value {:x?})",
            self.cpu,
            self.kind,
            self.flags,
            self.reg,
            self.subleaf,
            self.status,
            self.reserved,
            self.tsc,
            self.words(),
        )
    }
}

/// A batch's header for `count` operations, without the address of any.
pub fn header(count: usize) -> cpupeek_batch {
    cpupeek_batch {
        size: size_of::<cpupeek_batch>() as u32,
        nr_ops: count as u32,
        op_size: OP_SIZE as u32,
        ..Default::default()
    }
}

/// BATCH of `ops` on any descriptor, or one that is closed.
pub fn batch_on(fd: RawFd, mut header: cpupeek_batch, ops: &mut [Op]) -> Result<()> {
    header.nr_ops = ops.len() as u32;
    header.ops = ops.as_mut_ptr().expose_provenance() as u64;
    sys::ioctl(fd, BATCH, (&raw mut header).expose_provenance())
}

/// An open descriptor.
pub struct Device(OwnedFd);

impl From<OwnedFd> for Device {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl Device {
    #[track_caller]
    pub fn open() -> Self {
        match Self::try_open() {
            Ok(device) => device,
            Err(error) => panic!("{PATH} does not open: {error:?}"),
        }
    }

    pub fn try_open() -> Result<Self> {
        sys::open(PATH, libc::O_RDWR).map(Self)
    }

    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub fn ioctl(&self, cmd: u32, address: usize) -> Result<()> {
        sys::ioctl(self.fd(), cmd, address)
    }

    #[track_caller]
    pub fn info(&self) -> cpupeek_info {
        let mut info = cpupeek_info::default();
        let result = self.ioctl(INFO, (&raw mut info).expose_provenance());
        assert_eq!(result, Ok(()), "INFO");
        info
    }

    /// READ, which must run.
    #[track_caller]
    pub fn read(&self, mut op: Op) -> Op {
        let result = self.ioctl(READ, (&raw mut op).expose_provenance());
        assert_eq!(result, Ok(()), "READ of {op:?}");
        op
    }

    /// The value of an MSR, which must be there.
    #[track_caller]
    pub fn msr(&self, cpu: u32, reg: u32) -> u64 {
        let asked = Op::msr(cpu, reg);
        let op = self.read(asked);
        op.expect_answer(&asked);
        op.value()
    }

    /// BATCH of `ops` with what is said in `header`.
    pub fn try_batch(&self, header: cpupeek_batch, ops: &mut [Op]) -> Result<()> {
        batch_on(self.fd(), header, ops)
    }

    /// BATCH of `ops`, which must run. Returns the answers.
    #[track_caller]
    pub fn batch(&self, ops: &[Op]) -> Vec<Op> {
        self.batch_with(header(0), ops)
    }

    #[track_caller]
    pub fn batch_with(&self, header: cpupeek_batch, ops: &[Op]) -> Vec<Op> {
        let mut answers = ops.to_vec();
        let result = self.try_batch(header, &mut answers);
        assert_eq!(result, Ok(()), "BATCH of {} operations", ops.len());
        answers
    }

    /// BATCH whose header and operations are in `pages`, from `at` on.
    pub fn batch_in(&self, pages: &Pages, at: usize, header: cpupeek_batch) -> Result<()> {
        pages.write(at, header);
        self.ioctl(BATCH, pages.address(at))
    }
}
