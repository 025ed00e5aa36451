// SPDX-License-Identifier: GPL-2.0

//! Prints where every field of the ABI is, as this compiler lays it out, and
//! what every constant is: the same table as `table.c`, from the bindings.

#![allow(unused_unsafe)] // Only fields of unions need it.

use core::any::type_name;
use core::mem::{align_of, offset_of, size_of};
use cpupeek_client::uapi::*;

/// What a field that `project` finds in a `T` is: its type as the table has it.
fn kind<T, F>(_project: fn(&T) -> &F) -> String {
    type_name::<F>().replace('i', "s")
}

macro_rules! structure {
    ($type:ident: $($field:ident $(in $($outer:ident).+)?),+) => {
        println!(
            concat!(stringify!($type), " size {} align {}"),
            size_of::<$type>(),
            align_of::<$type>()
        );
        $(println!(
            concat!(stringify!($type), ".", stringify!($field), " at {} {}"),
            offset_of!($type, $($($outer.)+)? $field),
            // SAFETY: The function is never called; it only has a type.
            kind(|it: &$type| unsafe { &it.$($($outer.)+)? $field }),
        );)+
    };
}

macro_rules! constants {
    ($($name:ident $(= $value:ident)?),+) => {
        $(println!(concat!(stringify!($name), " {:#x}"), constants!(@ $name $($value)?));)+
    };
    (@ $name:ident) => { $name };
    (@ $name:ident $value:ident) => { $value };
}

fn main() {
    structure!(cpupeek_op:
        cpu, kind, flags, reg, subleaf, status, reserved, tsc,
        value in __bindgen_anon_1,
        eax in __bindgen_anon_1.__bindgen_anon_1,
        ebx in __bindgen_anon_1.__bindgen_anon_1,
        ecx in __bindgen_anon_1.__bindgen_anon_1,
        edx in __bindgen_anon_1.__bindgen_anon_1);
    structure!(cpupeek_info:
        size, reserved, features, max_batch_ops, max_round_ops, nr_cpu_ids, tsc_khz, tsc_stable,
        read_timeout_ms);
    structure!(cpupeek_batch:
        size, flags, nr_ops, op_size, timeout_ms, reserved, ops, tsc);
    structure!(cpupeek_tsc_pair: start, end);
    structure!(cpupeek_prepare:
        size, flags, nr_ops, op_size, ops, fd, reserved);
    structure!(cpupeek_result:
        status, cpu, tsc,
        value in __bindgen_anon_1,
        eax in __bindgen_anon_1.__bindgen_anon_1,
        ebx in __bindgen_anon_1.__bindgen_anon_1,
        ecx in __bindgen_anon_1.__bindgen_anon_1,
        edx in __bindgen_anon_1.__bindgen_anon_1);
    structure!(cpupeek_run:
        size, flags, timeout_ms, nr_results, results, tsc);
    structure!(cpupeek_range: lo, hi, flags, reserved);
    structure!(cpupeek_allow:
        size, flags, nr_ranges, bad_range, ranges, generation);
    structure!(cpupeek_narrow:
        size, flags, nr_ranges, cpus_size, ranges, cpus);
    structure!(cpupeek_refusal: reg, reserved, count);
    structure!(cpupeek_refusals:
        size, flags, nr_entries, reserved, entries, others);
    structure!(cpupeek_sampler:
        size, flags, nr_ops, op_size, ops, interval_ns, ring_samples, fd, map_size);
    structure!(cpupeek_map:
        size, flags, nr_slots, slot_size, slots, ring, ring_samples, tsc_khz, interval_ns);
    structure!(cpupeek_slot:
        seq, cpu, status, nr_results, number, tsc, time_ns, missed, skipped, busy);
    structure!(cpupeek_condition:
        cpu, result, kind, reserved, mask, bound);
    structure!(cpupeek_watch:
        size, flags, nr_conditions, reserved, conditions);
    structure!(cpupeek_cpu_word: size, flags, address);

    println!("CPUPEEK_DEVICE {}", CPUPEEK_DEVICE.to_string_lossy());
    constants!(
        CPUPEEK_IOC_TYPE,
        CPUPEEK_IOC_INFO = CPUPEEK_CONST_IOC_INFO,
        CPUPEEK_IOC_READ = CPUPEEK_CONST_IOC_READ,
        CPUPEEK_IOC_BATCH = CPUPEEK_CONST_IOC_BATCH,
        CPUPEEK_IOC_PREPARE = CPUPEEK_CONST_IOC_PREPARE,
        CPUPEEK_IOC_RUN = CPUPEEK_CONST_IOC_RUN,
        CPUPEEK_MSR,
        CPUPEEK_CPUID,
        CPUPEEK_CPU_SELF = CPUPEEK_CONST_CPU_SELF,
        CPUPEEK_OP_DISTURB,
        CPUPEEK_FEATURE_READ,
        CPUPEEK_FEATURE_BATCH,
        CPUPEEK_FEATURE_PLAN,
        CPUPEEK_BATCH_SLEEP,
        CPUPEEK_BATCH_SPIN,
        CPUPEEK_BATCH_TSC_PAIR,
        CPUPEEK_RUN_SLEEP,
        CPUPEEK_RUN_SPIN,
        CPUPEEK_RUN_TSC_PAIR,
        CPUPEEK_RUN_MAPPED,
        CPUPEEK_IOC_SET_ALLOW = CPUPEEK_CONST_IOC_SET_ALLOW,
        CPUPEEK_IOC_GET_ALLOW = CPUPEEK_CONST_IOC_GET_ALLOW,
        CPUPEEK_IOC_NARROW = CPUPEEK_CONST_IOC_NARROW,
        CPUPEEK_FEATURE_POLICY,
        CPUPEEK_RANGE_UNSAFE,
        CPUPEEK_NO_RANGE = CPUPEEK_CONST_NO_RANGE,
        CPUPEEK_NARROW_MSRS,
        CPUPEEK_NARROW_CPUS,
        CPUPEEK_NARROW_NO_CPUID,
        CPUPEEK_IOC_REFUSALS = CPUPEEK_CONST_IOC_REFUSALS,
        CPUPEEK_IOC_SAMPLER = CPUPEEK_CONST_IOC_SAMPLER,
        CPUPEEK_IOC_WATCH = CPUPEEK_CONST_IOC_WATCH,
        CPUPEEK_IOC_STOP = CPUPEEK_CONST_IOC_STOP,
        CPUPEEK_FEATURE_SAMPLER,
        CPUPEEK_SAMPLER_EXACT,
        CPUPEEK_WHEN_CHANGED,
        CPUPEEK_WHEN_CROSSED,
        CPUPEEK_CPU_ANY = CPUPEEK_CONST_CPU_ANY,
        CPUPEEK_IOC_SET_CPU_WORD = CPUPEEK_CONST_IOC_SET_CPU_WORD,
        CPUPEEK_IOC_CLEAR_CPU_WORD = CPUPEEK_CONST_IOC_CLEAR_CPU_WORD,
        CPUPEEK_FEATURE_CPU_WORD,
        CPUPEEK_NO_CPU = CPUPEEK_CONST_NO_CPU
    );
}
