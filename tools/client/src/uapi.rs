// SPDX-License-Identifier: GPL-2.0

// Made from include/uapi/linux/cpupeek.h by scripts/gen-bindings.

pub const CPUPEEK_DEVICE: &::core::ffi::CStr = c"/dev/cpupeek";
pub const CPUPEEK_IOC_TYPE: u32 = 208;
pub const CPUPEEK_MSR: u32 = 1;
pub const CPUPEEK_CPUID: u32 = 2;
pub const CPUPEEK_OP_DISTURB: u32 = 1;
pub const CPUPEEK_FEATURE_READ: u32 = 1;
pub const CPUPEEK_FEATURE_BATCH: u32 = 2;
pub const CPUPEEK_FEATURE_PLAN: u32 = 4;
pub const CPUPEEK_FEATURE_POLICY: u32 = 8;
pub const CPUPEEK_FEATURE_SAMPLER: u32 = 16;
pub const CPUPEEK_FEATURE_CPU_WORD: u32 = 32;
pub const CPUPEEK_BATCH_SLEEP: u32 = 1;
pub const CPUPEEK_BATCH_SPIN: u32 = 2;
pub const CPUPEEK_BATCH_TSC_PAIR: u32 = 4;
pub const CPUPEEK_RUN_SLEEP: u32 = 1;
pub const CPUPEEK_RUN_SPIN: u32 = 2;
pub const CPUPEEK_RUN_TSC_PAIR: u32 = 4;
pub const CPUPEEK_RUN_MAPPED: u32 = 8;
pub const CPUPEEK_RANGE_UNSAFE: u32 = 1;
pub const CPUPEEK_NARROW_MSRS: u32 = 1;
pub const CPUPEEK_NARROW_CPUS: u32 = 2;
pub const CPUPEEK_NARROW_NO_CPUID: u32 = 4;
pub const CPUPEEK_SAMPLER_EXACT: u32 = 1;
pub const CPUPEEK_WHEN_CHANGED: u32 = 1;
pub const CPUPEEK_WHEN_CROSSED: u32 = 2;
pub type __u16 = ::core::ffi::c_ushort;
pub type __s32 = ::core::ffi::c_int;
pub type __u32 = ::core::ffi::c_uint;
pub type __u64 = ::core::ffi::c_ulonglong;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct cpupeek_op {
    pub cpu: __u32,
    pub kind: __u16,
    pub flags: __u16,
    pub reg: __u32,
    pub subleaf: __u32,
    pub status: __s32,
    pub reserved: __u32,
    pub tsc: __u64,
    pub __bindgen_anon_1: cpupeek_op__bindgen_ty_1,
}
#[repr(C)]
#[repr(align(8))]
#[derive(Copy, Clone)]
pub union cpupeek_op__bindgen_ty_1 {
    pub value: __u64,
    pub __bindgen_anon_1: cpupeek_op__bindgen_ty_1__bindgen_ty_1,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct cpupeek_op__bindgen_ty_1__bindgen_ty_1 {
    pub eax: __u32,
    pub ebx: __u32,
    pub ecx: __u32,
    pub edx: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cpupeek_op__bindgen_ty_1__bindgen_ty_1"]
        [::core::mem::size_of::<cpupeek_op__bindgen_ty_1__bindgen_ty_1>() - 16usize];
    ["Alignment of cpupeek_op__bindgen_ty_1__bindgen_ty_1"]
        [::core::mem::align_of::<cpupeek_op__bindgen_ty_1__bindgen_ty_1>() - 4usize];
    ["Offset of field: cpupeek_op__bindgen_ty_1__bindgen_ty_1::eax"]
        [::core::mem::offset_of!(cpupeek_op__bindgen_ty_1__bindgen_ty_1, eax) - 0usize];
    ["Offset of field: cpupeek_op__bindgen_ty_1__bindgen_ty_1::ebx"]
        [::core::mem::offset_of!(cpupeek_op__bindgen_ty_1__bindgen_ty_1, ebx) - 4usize];
    ["Offset of field: cpupeek_op__bindgen_ty_1__bindgen_ty_1::ecx"]
        [::core::mem::offset_of!(cpupeek_op__bindgen_ty_1__bindgen_ty_1, ecx) - 8usize];
    ["Offset of field: cpupeek_op__bindgen_ty_1__bindgen_ty_1::edx"]
        [::core::mem::offset_of!(cpupeek_op__bindgen_ty_1__bindgen_ty_1, edx) - 12usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cpupeek_op__bindgen_ty_1"]
        [::core::mem::size_of::<cpupeek_op__bindgen_ty_1>() - 16usize];
    ["Alignment of cpupeek_op__bindgen_ty_1"]
        [::core::mem::align_of::<cpupeek_op__bindgen_ty_1>() - 8usize];
    ["Offset of field: cpupeek_op__bindgen_ty_1::value"]
        [::core::mem::offset_of!(cpupeek_op__bindgen_ty_1, value) - 0usize];
};
impl Default for cpupeek_op__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cpupeek_op"][::core::mem::size_of::<cpupeek_op>() - 48usize];
    ["Alignment of cpupeek_op"][::core::mem::align_of::<cpupeek_op>() - 8usize];
    ["Offset of field: cpupeek_op::cpu"][::core::mem::offset_of!(cpupeek_op, cpu) - 0usize];
    ["Offset of field: cpupeek_op::kind"][::core::mem::offset_of!(cpupeek_op, kind) - 4usize];
    ["Offset of field: cpupeek_op::flags"][::core::mem::offset_of!(cpupeek_op, flags) - 6usize];
    ["Offset of field: cpupeek_op::reg"][::core::mem::offset_of!(cpupeek_op, reg) - 8usize];
    ["Offset of field: cpupeek_op::subleaf"]
        [::core::mem::offset_of!(cpupeek_op, subleaf) - 12usize];
    ["Offset of field: cpupeek_op::status"][::core::mem::offset_of!(cpupeek_op, status) - 16usize];
    ["Offset of field: cpupeek_op::reserved"]
        [::core::mem::offset_of!(cpupeek_op, reserved) - 20usize];
    ["Offset of field: cpupeek_op::tsc"][::core::mem::offset_of!(cpupeek_op, tsc) - 24usize];
};
impl Default for cpupeek_op {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Default, Copy, Clone)]
pub struct cpupeek_info {
    pub size: __u32,
    pub reserved: __u32,
    pub features: __u64,
    pub max_batch_ops: __u32,
    pub max_round_ops: __u32,
    pub nr_cpu_ids: __u32,
    pub tsc_khz: __u32,
    pub tsc_stable: __u32,
    pub read_timeout_ms: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cpupeek_info"][::core::mem::size_of::<cpupeek_info>() - 40usize];
    ["Alignment of cpupeek_info"][::core::mem::align_of::<cpupeek_info>() - 8usize];
    ["Offset of field: cpupeek_info::size"][::core::mem::offset_of!(cpupeek_info, size) - 0usize];
    ["Offset of field: cpupeek_info::reserved"]
        [::core::mem::offset_of!(cpupeek_info, reserved) - 4usize];
    ["Offset of field: cpupeek_info::features"]
        [::core::mem::offset_of!(cpupeek_info, features) - 8usize];
    ["Offset of field: cpupeek_info::max_batch_ops"]
        [::core::mem::offset_of!(cpupeek_info, max_batch_ops) - 16usize];
    ["Offset of field: cpupeek_info::max_round_ops"]
        [::core::mem::offset_of!(cpupeek_info, max_round_ops) - 20usize];
    ["Offset of field: cpupeek_info::nr_cpu_ids"]
        [::core::mem::offset_of!(cpupeek_info, nr_cpu_ids) - 24usize];
    ["Offset of field: cpupeek_info::tsc_khz"]
        [::core::mem::offset_of!(cpupeek_info, tsc_khz) - 28usize];
    ["Offset of field: cpupeek_info::tsc_stable"]
        [::core::mem::offset_of!(cpupeek_info, tsc_stable) - 32usize];
    ["Offset of field: cpupeek_info::read_timeout_ms"]
        [::core::mem::offset_of!(cpupeek_info, read_timeout_ms) - 36usize];
};
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Default, Copy, Clone)]
pub struct cpupeek_batch {
    pub size: __u32,
    pub flags: __u32,
    pub nr_ops: __u32,
    pub op_size: __u32,
    pub timeout_ms: __u32,
    pub reserved: __u32,
    pub ops: __u64,
    pub tsc: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cpupeek_batch"][::core::mem::size_of::<cpupeek_batch>() - 40usize];
    ["Alignment of cpupeek_batch"][::core::mem::align_of::<cpupeek_batch>() - 8usize];
    ["Offset of field: cpupeek_batch::size"][::core::mem::offset_of!(cpupeek_batch, size) - 0usize];
    ["Offset of field: cpupeek_batch::flags"]
        [::core::mem::offset_of!(cpupeek_batch, flags) - 4usize];
    ["Offset of field: cpupeek_batch::nr_ops"]
        [::core::mem::offset_of!(cpupeek_batch, nr_ops) - 8usize];
    ["Offset of field: cpupeek_batch::op_size"]
        [::core::mem::offset_of!(cpupeek_batch, op_size) - 12usize];
    ["Offset of field: cpupeek_batch::timeout_ms"]
        [::core::mem::offset_of!(cpupeek_batch, timeout_ms) - 16usize];
    ["Offset of field: cpupeek_batch::reserved"]
        [::core::mem::offset_of!(cpupeek_batch, reserved) - 20usize];
    ["Offset of field: cpupeek_batch::ops"][::core::mem::offset_of!(cpupeek_batch, ops) - 24usize];
    ["Offset of field: cpupeek_batch::tsc"][::core::mem::offset_of!(cpupeek_batch, tsc) - 32usize];
};
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Default, Copy, Clone)]
pub struct cpupeek_tsc_pair {
    pub start: __u64,
    pub end: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cpupeek_tsc_pair"][::core::mem::size_of::<cpupeek_tsc_pair>() - 16usize];
    ["Alignment of cpupeek_tsc_pair"][::core::mem::align_of::<cpupeek_tsc_pair>() - 8usize];
    ["Offset of field: cpupeek_tsc_pair::start"]
        [::core::mem::offset_of!(cpupeek_tsc_pair, start) - 0usize];
    ["Offset of field: cpupeek_tsc_pair::end"]
        [::core::mem::offset_of!(cpupeek_tsc_pair, end) - 8usize];
};
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Default, Copy, Clone)]
pub struct cpupeek_prepare {
    pub size: __u32,
    pub flags: __u32,
    pub nr_ops: __u32,
    pub op_size: __u32,
    pub ops: __u64,
    pub fd: __s32,
    pub reserved: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cpupeek_prepare"][::core::mem::size_of::<cpupeek_prepare>() - 32usize];
    ["Alignment of cpupeek_prepare"][::core::mem::align_of::<cpupeek_prepare>() - 8usize];
    ["Offset of field: cpupeek_prepare::size"]
        [::core::mem::offset_of!(cpupeek_prepare, size) - 0usize];
    ["Offset of field: cpupeek_prepare::flags"]
        [::core::mem::offset_of!(cpupeek_prepare, flags) - 4usize];
    ["Offset of field: cpupeek_prepare::nr_ops"]
        [::core::mem::offset_of!(cpupeek_prepare, nr_ops) - 8usize];
    ["Offset of field: cpupeek_prepare::op_size"]
        [::core::mem::offset_of!(cpupeek_prepare, op_size) - 12usize];
    ["Offset of field: cpupeek_prepare::ops"]
        [::core::mem::offset_of!(cpupeek_prepare, ops) - 16usize];
    ["Offset of field: cpupeek_prepare::fd"]
        [::core::mem::offset_of!(cpupeek_prepare, fd) - 24usize];
    ["Offset of field: cpupeek_prepare::reserved"]
        [::core::mem::offset_of!(cpupeek_prepare, reserved) - 28usize];
};
#[repr(C)]
#[derive(Copy, Clone)]
pub struct cpupeek_result {
    pub status: __s32,
    pub cpu: __u32,
    pub tsc: __u64,
    pub __bindgen_anon_1: cpupeek_result__bindgen_ty_1,
}
#[repr(C)]
#[repr(align(8))]
#[derive(Copy, Clone)]
pub union cpupeek_result__bindgen_ty_1 {
    pub value: __u64,
    pub __bindgen_anon_1: cpupeek_result__bindgen_ty_1__bindgen_ty_1,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct cpupeek_result__bindgen_ty_1__bindgen_ty_1 {
    pub eax: __u32,
    pub ebx: __u32,
    pub ecx: __u32,
    pub edx: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cpupeek_result__bindgen_ty_1__bindgen_ty_1"]
        [::core::mem::size_of::<cpupeek_result__bindgen_ty_1__bindgen_ty_1>() - 16usize];
    ["Alignment of cpupeek_result__bindgen_ty_1__bindgen_ty_1"]
        [::core::mem::align_of::<cpupeek_result__bindgen_ty_1__bindgen_ty_1>() - 4usize];
    ["Offset of field: cpupeek_result__bindgen_ty_1__bindgen_ty_1::eax"]
        [::core::mem::offset_of!(cpupeek_result__bindgen_ty_1__bindgen_ty_1, eax) - 0usize];
    ["Offset of field: cpupeek_result__bindgen_ty_1__bindgen_ty_1::ebx"]
        [::core::mem::offset_of!(cpupeek_result__bindgen_ty_1__bindgen_ty_1, ebx) - 4usize];
    ["Offset of field: cpupeek_result__bindgen_ty_1__bindgen_ty_1::ecx"]
        [::core::mem::offset_of!(cpupeek_result__bindgen_ty_1__bindgen_ty_1, ecx) - 8usize];
    ["Offset of field: cpupeek_result__bindgen_ty_1__bindgen_ty_1::edx"]
        [::core::mem::offset_of!(cpupeek_result__bindgen_ty_1__bindgen_ty_1, edx) - 12usize];
};
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cpupeek_result__bindgen_ty_1"]
        [::core::mem::size_of::<cpupeek_result__bindgen_ty_1>() - 16usize];
    ["Alignment of cpupeek_result__bindgen_ty_1"]
        [::core::mem::align_of::<cpupeek_result__bindgen_ty_1>() - 8usize];
    ["Offset of field: cpupeek_result__bindgen_ty_1::value"]
        [::core::mem::offset_of!(cpupeek_result__bindgen_ty_1, value) - 0usize];
};
impl Default for cpupeek_result__bindgen_ty_1 {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cpupeek_result"][::core::mem::size_of::<cpupeek_result>() - 32usize];
    ["Alignment of cpupeek_result"][::core::mem::align_of::<cpupeek_result>() - 8usize];
    ["Offset of field: cpupeek_result::status"]
        [::core::mem::offset_of!(cpupeek_result, status) - 0usize];
    ["Offset of field: cpupeek_result::cpu"][::core::mem::offset_of!(cpupeek_result, cpu) - 4usize];
    ["Offset of field: cpupeek_result::tsc"][::core::mem::offset_of!(cpupeek_result, tsc) - 8usize];
};
impl Default for cpupeek_result {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Default, Copy, Clone)]
pub struct cpupeek_run {
    pub size: __u32,
    pub flags: __u32,
    pub timeout_ms: __u32,
    pub nr_results: __u32,
    pub results: __u64,
    pub tsc: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cpupeek_run"][::core::mem::size_of::<cpupeek_run>() - 32usize];
    ["Alignment of cpupeek_run"][::core::mem::align_of::<cpupeek_run>() - 8usize];
    ["Offset of field: cpupeek_run::size"][::core::mem::offset_of!(cpupeek_run, size) - 0usize];
    ["Offset of field: cpupeek_run::flags"][::core::mem::offset_of!(cpupeek_run, flags) - 4usize];
    ["Offset of field: cpupeek_run::timeout_ms"]
        [::core::mem::offset_of!(cpupeek_run, timeout_ms) - 8usize];
    ["Offset of field: cpupeek_run::nr_results"]
        [::core::mem::offset_of!(cpupeek_run, nr_results) - 12usize];
    ["Offset of field: cpupeek_run::results"]
        [::core::mem::offset_of!(cpupeek_run, results) - 16usize];
    ["Offset of field: cpupeek_run::tsc"][::core::mem::offset_of!(cpupeek_run, tsc) - 24usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct cpupeek_range {
    pub lo: __u32,
    pub hi: __u32,
    pub flags: __u32,
    pub reserved: __u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cpupeek_range"][::core::mem::size_of::<cpupeek_range>() - 16usize];
    ["Alignment of cpupeek_range"][::core::mem::align_of::<cpupeek_range>() - 4usize];
    ["Offset of field: cpupeek_range::lo"][::core::mem::offset_of!(cpupeek_range, lo) - 0usize];
    ["Offset of field: cpupeek_range::hi"][::core::mem::offset_of!(cpupeek_range, hi) - 4usize];
    ["Offset of field: cpupeek_range::flags"]
        [::core::mem::offset_of!(cpupeek_range, flags) - 8usize];
    ["Offset of field: cpupeek_range::reserved"]
        [::core::mem::offset_of!(cpupeek_range, reserved) - 12usize];
};
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Default, Copy, Clone)]
pub struct cpupeek_allow {
    pub size: __u32,
    pub flags: __u32,
    pub nr_ranges: __u32,
    pub bad_range: __u32,
    pub ranges: __u64,
    pub generation: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cpupeek_allow"][::core::mem::size_of::<cpupeek_allow>() - 32usize];
    ["Alignment of cpupeek_allow"][::core::mem::align_of::<cpupeek_allow>() - 8usize];
    ["Offset of field: cpupeek_allow::size"][::core::mem::offset_of!(cpupeek_allow, size) - 0usize];
    ["Offset of field: cpupeek_allow::flags"]
        [::core::mem::offset_of!(cpupeek_allow, flags) - 4usize];
    ["Offset of field: cpupeek_allow::nr_ranges"]
        [::core::mem::offset_of!(cpupeek_allow, nr_ranges) - 8usize];
    ["Offset of field: cpupeek_allow::bad_range"]
        [::core::mem::offset_of!(cpupeek_allow, bad_range) - 12usize];
    ["Offset of field: cpupeek_allow::ranges"]
        [::core::mem::offset_of!(cpupeek_allow, ranges) - 16usize];
    ["Offset of field: cpupeek_allow::generation"]
        [::core::mem::offset_of!(cpupeek_allow, generation) - 24usize];
};
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Default, Copy, Clone)]
pub struct cpupeek_narrow {
    pub size: __u32,
    pub flags: __u32,
    pub nr_ranges: __u32,
    pub cpus_size: __u32,
    pub ranges: __u64,
    pub cpus: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cpupeek_narrow"][::core::mem::size_of::<cpupeek_narrow>() - 32usize];
    ["Alignment of cpupeek_narrow"][::core::mem::align_of::<cpupeek_narrow>() - 8usize];
    ["Offset of field: cpupeek_narrow::size"]
        [::core::mem::offset_of!(cpupeek_narrow, size) - 0usize];
    ["Offset of field: cpupeek_narrow::flags"]
        [::core::mem::offset_of!(cpupeek_narrow, flags) - 4usize];
    ["Offset of field: cpupeek_narrow::nr_ranges"]
        [::core::mem::offset_of!(cpupeek_narrow, nr_ranges) - 8usize];
    ["Offset of field: cpupeek_narrow::cpus_size"]
        [::core::mem::offset_of!(cpupeek_narrow, cpus_size) - 12usize];
    ["Offset of field: cpupeek_narrow::ranges"]
        [::core::mem::offset_of!(cpupeek_narrow, ranges) - 16usize];
    ["Offset of field: cpupeek_narrow::cpus"]
        [::core::mem::offset_of!(cpupeek_narrow, cpus) - 24usize];
};
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Default, Copy, Clone)]
pub struct cpupeek_refusal {
    pub reg: __u32,
    pub reserved: __u32,
    pub count: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cpupeek_refusal"][::core::mem::size_of::<cpupeek_refusal>() - 16usize];
    ["Alignment of cpupeek_refusal"][::core::mem::align_of::<cpupeek_refusal>() - 8usize];
    ["Offset of field: cpupeek_refusal::reg"]
        [::core::mem::offset_of!(cpupeek_refusal, reg) - 0usize];
    ["Offset of field: cpupeek_refusal::reserved"]
        [::core::mem::offset_of!(cpupeek_refusal, reserved) - 4usize];
    ["Offset of field: cpupeek_refusal::count"]
        [::core::mem::offset_of!(cpupeek_refusal, count) - 8usize];
};
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Default, Copy, Clone)]
pub struct cpupeek_refusals {
    pub size: __u32,
    pub flags: __u32,
    pub nr_entries: __u32,
    pub reserved: __u32,
    pub entries: __u64,
    pub others: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cpupeek_refusals"][::core::mem::size_of::<cpupeek_refusals>() - 32usize];
    ["Alignment of cpupeek_refusals"][::core::mem::align_of::<cpupeek_refusals>() - 8usize];
    ["Offset of field: cpupeek_refusals::size"]
        [::core::mem::offset_of!(cpupeek_refusals, size) - 0usize];
    ["Offset of field: cpupeek_refusals::flags"]
        [::core::mem::offset_of!(cpupeek_refusals, flags) - 4usize];
    ["Offset of field: cpupeek_refusals::nr_entries"]
        [::core::mem::offset_of!(cpupeek_refusals, nr_entries) - 8usize];
    ["Offset of field: cpupeek_refusals::reserved"]
        [::core::mem::offset_of!(cpupeek_refusals, reserved) - 12usize];
    ["Offset of field: cpupeek_refusals::entries"]
        [::core::mem::offset_of!(cpupeek_refusals, entries) - 16usize];
    ["Offset of field: cpupeek_refusals::others"]
        [::core::mem::offset_of!(cpupeek_refusals, others) - 24usize];
};
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Default, Copy, Clone)]
pub struct cpupeek_sampler {
    pub size: __u32,
    pub flags: __u32,
    pub nr_ops: __u32,
    pub op_size: __u32,
    pub ops: __u64,
    pub interval_ns: __u64,
    pub ring_samples: __u32,
    pub fd: __s32,
    pub map_size: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cpupeek_sampler"][::core::mem::size_of::<cpupeek_sampler>() - 48usize];
    ["Alignment of cpupeek_sampler"][::core::mem::align_of::<cpupeek_sampler>() - 8usize];
    ["Offset of field: cpupeek_sampler::size"]
        [::core::mem::offset_of!(cpupeek_sampler, size) - 0usize];
    ["Offset of field: cpupeek_sampler::flags"]
        [::core::mem::offset_of!(cpupeek_sampler, flags) - 4usize];
    ["Offset of field: cpupeek_sampler::nr_ops"]
        [::core::mem::offset_of!(cpupeek_sampler, nr_ops) - 8usize];
    ["Offset of field: cpupeek_sampler::op_size"]
        [::core::mem::offset_of!(cpupeek_sampler, op_size) - 12usize];
    ["Offset of field: cpupeek_sampler::ops"]
        [::core::mem::offset_of!(cpupeek_sampler, ops) - 16usize];
    ["Offset of field: cpupeek_sampler::interval_ns"]
        [::core::mem::offset_of!(cpupeek_sampler, interval_ns) - 24usize];
    ["Offset of field: cpupeek_sampler::ring_samples"]
        [::core::mem::offset_of!(cpupeek_sampler, ring_samples) - 32usize];
    ["Offset of field: cpupeek_sampler::fd"]
        [::core::mem::offset_of!(cpupeek_sampler, fd) - 36usize];
    ["Offset of field: cpupeek_sampler::map_size"]
        [::core::mem::offset_of!(cpupeek_sampler, map_size) - 40usize];
};
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Default, Copy, Clone)]
pub struct cpupeek_map {
    pub size: __u32,
    pub flags: __u32,
    pub nr_slots: __u32,
    pub slot_size: __u32,
    pub slots: __u64,
    pub ring: __u64,
    pub ring_samples: __u32,
    pub tsc_khz: __u32,
    pub interval_ns: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cpupeek_map"][::core::mem::size_of::<cpupeek_map>() - 48usize];
    ["Alignment of cpupeek_map"][::core::mem::align_of::<cpupeek_map>() - 8usize];
    ["Offset of field: cpupeek_map::size"][::core::mem::offset_of!(cpupeek_map, size) - 0usize];
    ["Offset of field: cpupeek_map::flags"][::core::mem::offset_of!(cpupeek_map, flags) - 4usize];
    ["Offset of field: cpupeek_map::nr_slots"]
        [::core::mem::offset_of!(cpupeek_map, nr_slots) - 8usize];
    ["Offset of field: cpupeek_map::slot_size"]
        [::core::mem::offset_of!(cpupeek_map, slot_size) - 12usize];
    ["Offset of field: cpupeek_map::slots"][::core::mem::offset_of!(cpupeek_map, slots) - 16usize];
    ["Offset of field: cpupeek_map::ring"][::core::mem::offset_of!(cpupeek_map, ring) - 24usize];
    ["Offset of field: cpupeek_map::ring_samples"]
        [::core::mem::offset_of!(cpupeek_map, ring_samples) - 32usize];
    ["Offset of field: cpupeek_map::tsc_khz"]
        [::core::mem::offset_of!(cpupeek_map, tsc_khz) - 36usize];
    ["Offset of field: cpupeek_map::interval_ns"]
        [::core::mem::offset_of!(cpupeek_map, interval_ns) - 40usize];
};
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Default, Copy, Clone)]
pub struct cpupeek_slot {
    pub seq: __u32,
    pub cpu: __u32,
    pub status: __s32,
    pub nr_results: __u32,
    pub number: __u64,
    pub tsc: __u64,
    pub time_ns: __u64,
    pub missed: __u64,
    pub skipped: __u64,
    pub busy: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cpupeek_slot"][::core::mem::size_of::<cpupeek_slot>() - 64usize];
    ["Alignment of cpupeek_slot"][::core::mem::align_of::<cpupeek_slot>() - 8usize];
    ["Offset of field: cpupeek_slot::seq"][::core::mem::offset_of!(cpupeek_slot, seq) - 0usize];
    ["Offset of field: cpupeek_slot::cpu"][::core::mem::offset_of!(cpupeek_slot, cpu) - 4usize];
    ["Offset of field: cpupeek_slot::status"]
        [::core::mem::offset_of!(cpupeek_slot, status) - 8usize];
    ["Offset of field: cpupeek_slot::nr_results"]
        [::core::mem::offset_of!(cpupeek_slot, nr_results) - 12usize];
    ["Offset of field: cpupeek_slot::number"]
        [::core::mem::offset_of!(cpupeek_slot, number) - 16usize];
    ["Offset of field: cpupeek_slot::tsc"][::core::mem::offset_of!(cpupeek_slot, tsc) - 24usize];
    ["Offset of field: cpupeek_slot::time_ns"]
        [::core::mem::offset_of!(cpupeek_slot, time_ns) - 32usize];
    ["Offset of field: cpupeek_slot::missed"]
        [::core::mem::offset_of!(cpupeek_slot, missed) - 40usize];
    ["Offset of field: cpupeek_slot::skipped"]
        [::core::mem::offset_of!(cpupeek_slot, skipped) - 48usize];
    ["Offset of field: cpupeek_slot::busy"][::core::mem::offset_of!(cpupeek_slot, busy) - 56usize];
};
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Default, Copy, Clone)]
pub struct cpupeek_condition {
    pub cpu: __u32,
    pub result: __u32,
    pub kind: __u32,
    pub reserved: __u32,
    pub mask: __u64,
    pub bound: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cpupeek_condition"][::core::mem::size_of::<cpupeek_condition>() - 32usize];
    ["Alignment of cpupeek_condition"][::core::mem::align_of::<cpupeek_condition>() - 8usize];
    ["Offset of field: cpupeek_condition::cpu"]
        [::core::mem::offset_of!(cpupeek_condition, cpu) - 0usize];
    ["Offset of field: cpupeek_condition::result"]
        [::core::mem::offset_of!(cpupeek_condition, result) - 4usize];
    ["Offset of field: cpupeek_condition::kind"]
        [::core::mem::offset_of!(cpupeek_condition, kind) - 8usize];
    ["Offset of field: cpupeek_condition::reserved"]
        [::core::mem::offset_of!(cpupeek_condition, reserved) - 12usize];
    ["Offset of field: cpupeek_condition::mask"]
        [::core::mem::offset_of!(cpupeek_condition, mask) - 16usize];
    ["Offset of field: cpupeek_condition::bound"]
        [::core::mem::offset_of!(cpupeek_condition, bound) - 24usize];
};
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Default, Copy, Clone)]
pub struct cpupeek_watch {
    pub size: __u32,
    pub flags: __u32,
    pub nr_conditions: __u32,
    pub reserved: __u32,
    pub conditions: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cpupeek_watch"][::core::mem::size_of::<cpupeek_watch>() - 24usize];
    ["Alignment of cpupeek_watch"][::core::mem::align_of::<cpupeek_watch>() - 8usize];
    ["Offset of field: cpupeek_watch::size"][::core::mem::offset_of!(cpupeek_watch, size) - 0usize];
    ["Offset of field: cpupeek_watch::flags"]
        [::core::mem::offset_of!(cpupeek_watch, flags) - 4usize];
    ["Offset of field: cpupeek_watch::nr_conditions"]
        [::core::mem::offset_of!(cpupeek_watch, nr_conditions) - 8usize];
    ["Offset of field: cpupeek_watch::reserved"]
        [::core::mem::offset_of!(cpupeek_watch, reserved) - 12usize];
    ["Offset of field: cpupeek_watch::conditions"]
        [::core::mem::offset_of!(cpupeek_watch, conditions) - 16usize];
};
#[repr(C)]
#[repr(align(8))]
#[derive(Debug, Default, Copy, Clone)]
pub struct cpupeek_cpu_word {
    pub size: __u32,
    pub flags: __u32,
    pub address: __u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cpupeek_cpu_word"][::core::mem::size_of::<cpupeek_cpu_word>() - 16usize];
    ["Alignment of cpupeek_cpu_word"][::core::mem::align_of::<cpupeek_cpu_word>() - 8usize];
    ["Offset of field: cpupeek_cpu_word::size"]
        [::core::mem::offset_of!(cpupeek_cpu_word, size) - 0usize];
    ["Offset of field: cpupeek_cpu_word::flags"]
        [::core::mem::offset_of!(cpupeek_cpu_word, flags) - 4usize];
    ["Offset of field: cpupeek_cpu_word::address"]
        [::core::mem::offset_of!(cpupeek_cpu_word, address) - 8usize];
};
pub const CPUPEEK_CONST_CPU_SELF: __u32 = 4294967295;
pub const CPUPEEK_CONST_CPU_ANY: __u32 = 4294967295;
pub const CPUPEEK_CONST_NO_CPU: __u32 = 4294967295;
pub const CPUPEEK_CONST_NO_RANGE: __u32 = 4294967295;
pub const CPUPEEK_CONST_IOC_INFO: __u32 = 2150158336;
pub const CPUPEEK_CONST_IOC_READ: __u32 = 3224424449;
pub const CPUPEEK_CONST_IOC_BATCH: __u32 = 1076416514;
pub const CPUPEEK_CONST_IOC_PREPARE: __u32 = 3223375875;
pub const CPUPEEK_CONST_IOC_SET_ALLOW: __u32 = 3223375877;
pub const CPUPEEK_CONST_IOC_GET_ALLOW: __u32 = 3223375878;
pub const CPUPEEK_CONST_IOC_NARROW: __u32 = 1075892231;
pub const CPUPEEK_CONST_IOC_REFUSALS: __u32 = 3223375880;
pub const CPUPEEK_CONST_IOC_SAMPLER: __u32 = 3224424457;
pub const CPUPEEK_CONST_IOC_WATCH: __u32 = 1075367946;
pub const CPUPEEK_CONST_IOC_STOP: __u32 = 53259;
pub const CPUPEEK_CONST_IOC_SET_CPU_WORD: __u32 = 1074843664;
pub const CPUPEEK_CONST_IOC_CLEAR_CPU_WORD: __u32 = 53265;
pub const CPUPEEK_CONST_IOC_RUN: __u32 = 1075892228;
