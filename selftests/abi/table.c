/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Prints where every field of the ABI is, as this compiler lays it out, and
 * what every constant is. Compiles as C90 and as C++98; see run.
 */
#include <linux/cpupeek.h>
#include <stddef.h>
#include <stdio.h>

#define STRUCT(type) \
	printf("%s size %lu align %lu\n", #type, \
	       (unsigned long)sizeof(struct type), \
	       (unsigned long)__alignof__(struct type))

#define FIELD(type, field) \
	printf("%s.%s at %lu %c%lu\n", #type, #field, \
	       (unsigned long)offsetof(struct type, field), \
	       (__typeof__(((struct type *)NULL)->field))-1 < 1 ? 's' : 'u', \
	       (unsigned long)sizeof(((struct type *)NULL)->field) * 8)

#define CONSTANT(name) \
	printf("%s 0x%llx\n", #name, (unsigned long long)(name))

static void op(void)
{
	STRUCT(cpupeek_op);
	FIELD(cpupeek_op, cpu);
	FIELD(cpupeek_op, kind);
	FIELD(cpupeek_op, flags);
	FIELD(cpupeek_op, reg);
	FIELD(cpupeek_op, subleaf);
	FIELD(cpupeek_op, status);
	FIELD(cpupeek_op, reserved);
	FIELD(cpupeek_op, tsc);
	FIELD(cpupeek_op, value);
	FIELD(cpupeek_op, eax);
	FIELD(cpupeek_op, ebx);
	FIELD(cpupeek_op, ecx);
	FIELD(cpupeek_op, edx);
}

static void info(void)
{
	STRUCT(cpupeek_info);
	FIELD(cpupeek_info, size);
	FIELD(cpupeek_info, reserved);
	FIELD(cpupeek_info, features);
	FIELD(cpupeek_info, max_batch_ops);
	FIELD(cpupeek_info, max_round_ops);
	FIELD(cpupeek_info, nr_cpu_ids);
	FIELD(cpupeek_info, tsc_khz);
	FIELD(cpupeek_info, tsc_stable);
	FIELD(cpupeek_info, read_timeout_ms);
}

static void batch(void)
{
	STRUCT(cpupeek_batch);
	FIELD(cpupeek_batch, size);
	FIELD(cpupeek_batch, flags);
	FIELD(cpupeek_batch, nr_ops);
	FIELD(cpupeek_batch, op_size);
	FIELD(cpupeek_batch, timeout_ms);
	FIELD(cpupeek_batch, reserved);
	FIELD(cpupeek_batch, ops);
	FIELD(cpupeek_batch, tsc);

	STRUCT(cpupeek_tsc_pair);
	FIELD(cpupeek_tsc_pair, start);
	FIELD(cpupeek_tsc_pair, end);
}

static void plan(void)
{
	STRUCT(cpupeek_prepare);
	FIELD(cpupeek_prepare, size);
	FIELD(cpupeek_prepare, flags);
	FIELD(cpupeek_prepare, nr_ops);
	FIELD(cpupeek_prepare, op_size);
	FIELD(cpupeek_prepare, ops);
	FIELD(cpupeek_prepare, fd);
	FIELD(cpupeek_prepare, reserved);

	STRUCT(cpupeek_result);
	FIELD(cpupeek_result, status);
	FIELD(cpupeek_result, cpu);
	FIELD(cpupeek_result, tsc);
	FIELD(cpupeek_result, value);
	FIELD(cpupeek_result, eax);
	FIELD(cpupeek_result, ebx);
	FIELD(cpupeek_result, ecx);
	FIELD(cpupeek_result, edx);

	STRUCT(cpupeek_run);
	FIELD(cpupeek_run, size);
	FIELD(cpupeek_run, flags);
	FIELD(cpupeek_run, timeout_ms);
	FIELD(cpupeek_run, nr_results);
	FIELD(cpupeek_run, results);
	FIELD(cpupeek_run, tsc);
}

static void policy(void)
{
	STRUCT(cpupeek_range);
	FIELD(cpupeek_range, lo);
	FIELD(cpupeek_range, hi);
	FIELD(cpupeek_range, flags);
	FIELD(cpupeek_range, reserved);

	STRUCT(cpupeek_allow);
	FIELD(cpupeek_allow, size);
	FIELD(cpupeek_allow, flags);
	FIELD(cpupeek_allow, nr_ranges);
	FIELD(cpupeek_allow, bad_range);
	FIELD(cpupeek_allow, ranges);
	FIELD(cpupeek_allow, generation);

	STRUCT(cpupeek_narrow);
	FIELD(cpupeek_narrow, size);
	FIELD(cpupeek_narrow, flags);
	FIELD(cpupeek_narrow, nr_ranges);
	FIELD(cpupeek_narrow, cpus_size);
	FIELD(cpupeek_narrow, ranges);
	FIELD(cpupeek_narrow, cpus);

	STRUCT(cpupeek_refusal);
	FIELD(cpupeek_refusal, reg);
	FIELD(cpupeek_refusal, reserved);
	FIELD(cpupeek_refusal, count);

	STRUCT(cpupeek_refusals);
	FIELD(cpupeek_refusals, size);
	FIELD(cpupeek_refusals, flags);
	FIELD(cpupeek_refusals, nr_entries);
	FIELD(cpupeek_refusals, reserved);
	FIELD(cpupeek_refusals, entries);
	FIELD(cpupeek_refusals, others);
}

static void sampler(void)
{
	STRUCT(cpupeek_sampler);
	FIELD(cpupeek_sampler, size);
	FIELD(cpupeek_sampler, flags);
	FIELD(cpupeek_sampler, nr_ops);
	FIELD(cpupeek_sampler, op_size);
	FIELD(cpupeek_sampler, ops);
	FIELD(cpupeek_sampler, interval_ns);
	FIELD(cpupeek_sampler, ring_samples);
	FIELD(cpupeek_sampler, fd);
	FIELD(cpupeek_sampler, map_size);

	STRUCT(cpupeek_map);
	FIELD(cpupeek_map, size);
	FIELD(cpupeek_map, flags);
	FIELD(cpupeek_map, nr_slots);
	FIELD(cpupeek_map, slot_size);
	FIELD(cpupeek_map, slots);
	FIELD(cpupeek_map, ring);
	FIELD(cpupeek_map, ring_samples);
	FIELD(cpupeek_map, tsc_khz);
	FIELD(cpupeek_map, interval_ns);

	STRUCT(cpupeek_slot);
	FIELD(cpupeek_slot, seq);
	FIELD(cpupeek_slot, cpu);
	FIELD(cpupeek_slot, status);
	FIELD(cpupeek_slot, nr_results);
	FIELD(cpupeek_slot, number);
	FIELD(cpupeek_slot, tsc);
	FIELD(cpupeek_slot, time_ns);
	FIELD(cpupeek_slot, missed);
	FIELD(cpupeek_slot, skipped);
	FIELD(cpupeek_slot, busy);

	STRUCT(cpupeek_condition);
	FIELD(cpupeek_condition, cpu);
	FIELD(cpupeek_condition, result);
	FIELD(cpupeek_condition, kind);
	FIELD(cpupeek_condition, reserved);
	FIELD(cpupeek_condition, mask);
	FIELD(cpupeek_condition, bound);

	STRUCT(cpupeek_watch);
	FIELD(cpupeek_watch, size);
	FIELD(cpupeek_watch, flags);
	FIELD(cpupeek_watch, nr_conditions);
	FIELD(cpupeek_watch, reserved);
	FIELD(cpupeek_watch, conditions);
}

static void cpu_word(void)
{
	STRUCT(cpupeek_cpu_word);
	FIELD(cpupeek_cpu_word, size);
	FIELD(cpupeek_cpu_word, flags);
	FIELD(cpupeek_cpu_word, address);
}

static void constants(void)
{
	printf("CPUPEEK_DEVICE %s\n", CPUPEEK_DEVICE);
	CONSTANT(CPUPEEK_IOC_TYPE);
	CONSTANT(CPUPEEK_IOC_INFO);
	CONSTANT(CPUPEEK_IOC_READ);
	CONSTANT(CPUPEEK_IOC_BATCH);
	CONSTANT(CPUPEEK_IOC_PREPARE);
	CONSTANT(CPUPEEK_IOC_RUN);
	CONSTANT(CPUPEEK_MSR);
	CONSTANT(CPUPEEK_CPUID);
	CONSTANT(CPUPEEK_CPU_SELF);
	CONSTANT(CPUPEEK_OP_DISTURB);
	CONSTANT(CPUPEEK_FEATURE_READ);
	CONSTANT(CPUPEEK_FEATURE_BATCH);
	CONSTANT(CPUPEEK_FEATURE_PLAN);
	CONSTANT(CPUPEEK_BATCH_SLEEP);
	CONSTANT(CPUPEEK_BATCH_SPIN);
	CONSTANT(CPUPEEK_BATCH_TSC_PAIR);
	CONSTANT(CPUPEEK_RUN_SLEEP);
	CONSTANT(CPUPEEK_RUN_SPIN);
	CONSTANT(CPUPEEK_RUN_TSC_PAIR);
	CONSTANT(CPUPEEK_RUN_MAPPED);
	CONSTANT(CPUPEEK_IOC_SET_ALLOW);
	CONSTANT(CPUPEEK_IOC_GET_ALLOW);
	CONSTANT(CPUPEEK_IOC_NARROW);
	CONSTANT(CPUPEEK_FEATURE_POLICY);
	CONSTANT(CPUPEEK_RANGE_UNSAFE);
	CONSTANT(CPUPEEK_NO_RANGE);
	CONSTANT(CPUPEEK_NARROW_MSRS);
	CONSTANT(CPUPEEK_NARROW_CPUS);
	CONSTANT(CPUPEEK_NARROW_NO_CPUID);
	CONSTANT(CPUPEEK_IOC_REFUSALS);
	CONSTANT(CPUPEEK_IOC_SAMPLER);
	CONSTANT(CPUPEEK_IOC_WATCH);
	CONSTANT(CPUPEEK_IOC_STOP);
	CONSTANT(CPUPEEK_FEATURE_SAMPLER);
	CONSTANT(CPUPEEK_SAMPLER_EXACT);
	CONSTANT(CPUPEEK_WHEN_CHANGED);
	CONSTANT(CPUPEEK_WHEN_CROSSED);
	CONSTANT(CPUPEEK_CPU_ANY);
	CONSTANT(CPUPEEK_IOC_SET_CPU_WORD);
	CONSTANT(CPUPEEK_IOC_CLEAR_CPU_WORD);
	CONSTANT(CPUPEEK_FEATURE_CPU_WORD);
	CONSTANT(CPUPEEK_NO_CPU);
}

int main(void)
{
	op();
	info();
	batch();
	plan();
	policy();
	sampler();
	cpu_word();
	constants();
	return 0;
}
