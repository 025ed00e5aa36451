// SPDX-License-Identifier: GPL-2.0

//! bindgen's view of `include/uapi/linux/cpupeek.h`, and what may be done with its bytes.

use kernel::transmute::{
    AsBytes,
    FromBytes, //
};

#[expect(
    clippy::undocumented_unsafe_blocks,
    dead_code,
    non_camel_case_types,
    unreachable_pub,
    reason = "generated"
)]
mod generated {
    use kernel::ffi;

    include!(concat!(env!("CPUPEEK_OBJ"), "/uapi_generated.rs"));
}

pub(crate) use generated::CPUPEEK_CONST_CPU_ANY as CPU_ANY;
pub(crate) use generated::CPUPEEK_CONST_CPU_SELF as CPU_SELF;
pub(crate) use generated::*;
pub(crate) use {
    cpupeek_allow as Allow,
    cpupeek_batch as Batch,
    cpupeek_condition as Condition,
    cpupeek_cpu_word as CpuWord,
    cpupeek_info as Info,
    cpupeek_map as Map,
    cpupeek_narrow as Narrow,
    cpupeek_op as Op,
    cpupeek_prepare as Prepare,
    cpupeek_range as Range,
    cpupeek_refusal as Refusal,
    cpupeek_refusals as Refusals,
    cpupeek_result as OpResult,
    cpupeek_run as Run,
    cpupeek_sampler as SamplerRequest,
    cpupeek_slot as Slot,
    cpupeek_tsc_pair as TscPair,
    cpupeek_watch as Watch, //
};

/// Reads and writes the bytes of ABI structures from and to user space.
macro_rules! plain_bytes {
    ($type:ty, $size:expr) => {
        const _: () = assert!(size_of::<$type>() == $size);
        // SAFETY: All fields are integers, for which every pattern is valid.
        unsafe impl FromBytes for $type {}
        // SAFETY: The fields add up to the size asserted above, so there is no padding.
        unsafe impl AsBytes for $type {}
        // SAFETY: All fields are integers.
        unsafe impl pin_init::Zeroable for $type {}
    };
}

plain_bytes!(Op, 4 + 2 + 2 + 4 * 4 + 8 + 16);
plain_bytes!(Info, 2 * 4 + 8 + 6 * 4);
plain_bytes!(Batch, 6 * 4 + 2 * 8);
plain_bytes!(TscPair, 2 * 8);
plain_bytes!(Prepare, 4 * 4 + 8 + 2 * 4);
plain_bytes!(OpResult, 2 * 4 + 8 + 16);
plain_bytes!(Run, 4 * 4 + 2 * 8);
plain_bytes!(Range, 4 * 4);
plain_bytes!(Refusal, 2 * 4 + 8);
plain_bytes!(Refusals, 4 * 4 + 2 * 8);
plain_bytes!(Allow, 4 * 4 + 2 * 8);
plain_bytes!(Narrow, 4 * 4 + 2 * 8);
plain_bytes!(CpuWord, 2 * 4 + 8);
plain_bytes!(SamplerRequest, 4 * 4 + 2 * 8 + 2 * 4 + 8);
plain_bytes!(Map, 4 * 4 + 2 * 8 + 2 * 4 + 8);
plain_bytes!(Slot, 4 * 4 + 6 * 8);
plain_bytes!(Condition, 4 * 4 + 2 * 8);
plain_bytes!(Watch, 4 * 4 + 8);

impl OpResult {
    /// The bytes of some results.
    pub(crate) fn bytes_of(results: &[Self]) -> &[u8] {
        AsBytes::as_bytes(results)
    }
}

/// The status of an operation that was admitted and is not answered: `ETIME`, if it stays so.
const AWAITING: i32 = -(kernel::bindings::ETIME as i32);

impl Op {
    /// Reading an MSR.
    pub(crate) fn msr(cpu: u32, reg: u32) -> Self {
        Self {
            cpu,
            reg,
            kind: CPUPEEK_MSR as u16,
            ..pin_init::zeroed()
        }
    }

    /// Reading a CPUID leaf, subleaf 0.
    pub(crate) fn cpuid(cpu: u32, leaf: u32) -> Self {
        Self {
            kind: CPUPEEK_CPUID as u16,
            ..Self::msr(cpu, leaf)
        }
    }

    /// The same of another subleaf.
    pub(crate) fn with_subleaf(self, subleaf: u32) -> Self {
        Self { subleaf, ..self }
    }

    /// The bytes of the answer, of which an MSR has 8, or why there is none.
    pub(crate) fn answer_bytes(&self) -> kernel::error::Result<&[u8]> {
        kernel::error::to_result(self.status)?;
        let at = core::mem::offset_of!(Self, __bindgen_anon_1);
        AsBytes::as_bytes(self)
            .get(at..)
            .ok_or(kernel::error::code::EINVAL)
    }

    /// The status, and the first half of the value.
    pub(crate) fn reading(&self) -> (i32, u64) {
        // SAFETY: The union is 16 bytes of integers.
        (self.status, unsafe { self.__bindgen_anon_1.value })
    }

    /// The value of an MSR, or why there is none.
    pub(crate) fn value(&self) -> kernel::error::Result<u64> {
        kernel::error::to_result(self.status)?;
        // SAFETY: The union is 16 bytes of integers.
        Ok(unsafe { self.__bindgen_anon_1.value })
    }

    /// Stores the answer: status 0, the time stamp, and the four words of the value.
    pub(crate) fn answer(&mut self, tsc: u64, [eax, ebx, ecx, edx]: [u32; 4]) {
        self.status = 0;
        self.tsc = tsc;
        self.__bindgen_anon_1 = cpupeek_op__bindgen_ty_1 {
            __bindgen_anon_1: cpupeek_op__bindgen_ty_1__bindgen_ty_1 { eax, ebx, ecx, edx },
        };
    }

    /// Stores a negative errno as the status, and zeroes the answer.
    pub(crate) fn refuse(&mut self, error: kernel::error::Error) {
        self.answer(0, [0; 4]);
        self.status = error.to_errno();
    }

    /// Stores what there is before an answer: `ETIME` if the operation was admitted, else why not.
    #[inline]
    pub(crate) fn await_answer(&mut self, admitted: kernel::error::Result) {
        self.answer(0, [0; 4]);
        self.status = match admitted {
            Ok(()) => AWAITING,
            Err(error) => error.to_errno(),
        };
    }

    /// Whether the operation was admitted, and is not answered.
    #[inline]
    pub(crate) fn is_awaiting_answer(&self) -> bool {
        self.status == AWAITING
    }

    /// The answer alone.
    pub(crate) fn result(&self) -> OpResult {
        // SAFETY: Both unions are 16 bytes of integers.
        let value = unsafe { self.__bindgen_anon_1.__bindgen_anon_1 };
        OpResult {
            status: self.status,
            cpu: self.cpu,
            tsc: self.tsc,
            __bindgen_anon_1: cpupeek_result__bindgen_ty_1 {
                __bindgen_anon_1: cpupeek_result__bindgen_ty_1__bindgen_ty_1 {
                    eax: value.eax,
                    ebx: value.ebx,
                    ecx: value.ecx,
                    edx: value.edx,
                },
            },
        }
    }

    /// Takes the answer of `other`.
    pub(crate) fn take_answer(&mut self, other: &Self) {
        self.status = other.status;
        self.tsc = other.tsc;
        self.__bindgen_anon_1 = other.__bindgen_anon_1;
    }
}
