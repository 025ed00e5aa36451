/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * cpupeek: read model-specific registers and CPUID leaves of any CPU.
 */
#ifndef _UAPI_LINUX_CPUPEEK_H
#define _UAPI_LINUX_CPUPEEK_H

#include <linux/ioctl.h>
#include <linux/types.h>

/**
 * DOC: General ioctl format
 *
 * Commands are issued on a descriptor of /dev/cpupeek. A command is recognised
 * by its type and number alone; the size in the command code is the size of the
 * structure that the caller was built with, so that structures may grow at
 * their end:
 *
 *  - a structure shorter than the first version of it is refused (EINVAL);
 *  - a longer one than this kernel knows is accepted if what the kernel does
 *    not know is zero, else refused (E2BIG);
 *  - what the kernel does not fill of a longer answer is zeroed.
 *
 * A command that ran returns 0, and every operation in it carries its own
 * @status (see &struct cpupeek_op). The command itself fails only with:
 *
 *  - EFAULT: memory could not be read or written;
 *  - EINVAL: the header is malformed (an unknown flag, a reserved field that
 *    is not zero, a structure too short);
 *  - E2BIG: more operations than CPUPEEK_IOC_INFO allows, or a longer
 *    structure with something unknown in it;
 *  - ENOMEM: no memory;
 *  - ENOTTY: no such command.
 *
 * A fatal signal ends every wait.
 *
 * All structures have the same layout for 32-bit and 64-bit callers, and no
 * implicit padding. All fields are in the CPU's byte order.
 */

#define CPUPEEK_DEVICE	"/dev/cpupeek"

#define CPUPEEK_IOC_TYPE	0xD0

/* Kinds of operation, &struct cpupeek_op.kind. */
#define CPUPEEK_MSR	1
#define CPUPEEK_CPUID	2

/* Flags of an operation, &struct cpupeek_op.flags. */

/* The operation may interrupt an isolated CPU. */
#define CPUPEEK_OP_DISTURB	(1U << 0)

/* &struct cpupeek_op.cpu: the CPU that the caller happens to be on. */
#define CPUPEEK_CPU_SELF	(~0U)

/**
 * struct cpupeek_op - one register to read, and its value
 * @cpu: in: CPU number, or %CPUPEEK_CPU_SELF; out: with %CPUPEEK_CPU_SELF, the
 *	CPU that was asked, unless the operation is malformed or refused
 * @kind: in: %CPUPEEK_MSR or %CPUPEEK_CPUID
 * @flags: in: %CPUPEEK_OP_DISTURB or 0
 * @reg: in: number of the MSR, or CPUID leaf (EAX)
 * @subleaf: in: CPUID subleaf (ECX); must be 0 for an MSR
 * @status: out: 0 or a negative errno, see below
 * @reserved: must be 0
 * @tsc: out: the target's time stamp counter, read in program order
 *	immediately before the register; 0 on error
 * @value: out: the MSR's value; 0 on error
 * @eax: out: CPUID's EAX; 0 on error
 * @ebx: out: CPUID's EBX; 0 on error
 * @ecx: out: CPUID's ECX; 0 for an MSR and on error
 * @edx: out: CPUID's EDX; 0 for an MSR and on error
 *
 * Fields marked "out" need no particular value on the way in.
 *
 * @status is 0 or:
 *
 *  - -EINVAL: the operation is malformed;
 *  - -EACCES: the policy refuses the register to this descriptor;
 *  - -EPERM: the policy refuses the CPU to this caller;
 *  - -ENXIO: there is no such CPU, or it is offline or went offline;
 *  - -EIO: the CPU refused the register (general protection fault);
 *  - -ETIME: the CPU did not answer in time.
 */
struct cpupeek_op {
	__u32 cpu;
	__u16 kind;
	__u16 flags;
	__u32 reg;
	__u32 subleaf;
	__s32 status;
	__u32 reserved;
	__aligned_u64 tsc;
	union {
		__aligned_u64 value;
		struct {
			__u32 eax;
			__u32 ebx;
			__u32 ecx;
			__u32 edx;
		};
	};
};

/* Feature bits, &struct cpupeek_info.features. */

/* CPUPEEK_IOC_READ */
#define CPUPEEK_FEATURE_READ	(1ULL << 0)
/* CPUPEEK_IOC_BATCH */
#define CPUPEEK_FEATURE_BATCH	(1ULL << 1)
/* CPUPEEK_IOC_PREPARE and CPUPEEK_IOC_RUN */
#define CPUPEEK_FEATURE_PLAN	(1ULL << 2)
/* CPUPEEK_IOC_SET_ALLOW, _GET_ALLOW, _NARROW and _REFUSALS */
#define CPUPEEK_FEATURE_POLICY	(1ULL << 3)

/**
 * struct cpupeek_info - what this module can do here
 * @size: out: size of this structure as the module knows it
 * @reserved: out: 0
 * @features: out: CPUPEEK_FEATURE_* bits
 * @max_batch_ops: out: most operations in one batch
 * @max_round_ops: out: most operations that one CPU performs with its
 *	interrupts off at a stretch
 * @nr_cpu_ids: out: CPU numbers are below this
 * @tsc_khz: out: frequency of the time stamp counter in kHz, 0 if unknown
 * @tsc_stable: out: 1 if the counters of all CPUs run at one constant rate and
 *	are in step, so that @tsc of different CPUs may be compared; else 0
 * @read_timeout_ms: out: how long CPUPEEK_IOC_READ waits at most
 */
struct cpupeek_info {
	__u32 size;
	__u32 reserved;
	__aligned_u64 features;
	__u32 max_batch_ops;
	__u32 max_round_ops;
	__u32 nr_cpu_ids;
	__u32 tsc_khz;
	__u32 tsc_stable;
	__u32 read_timeout_ms;
};

/* Flags of a batch, &struct cpupeek_batch.flags. */

/* Sleep until the answers are there, never spin. */
#define CPUPEEK_BATCH_SLEEP	(1U << 0)
/* Spin up to the ceiling before sleeping. */
#define CPUPEEK_BATCH_SPIN	(1U << 1)
/* Store each CPU's first and last time stamp at &struct cpupeek_batch.tsc. */
#define CPUPEEK_BATCH_TSC_PAIR	(1U << 2)

/**
 * struct cpupeek_batch - many operations on many CPUs, all CPUs at once
 * @size: in: size of this structure as the caller knows it
 * @flags: in: CPUPEEK_BATCH_* bits; SLEEP and SPIN exclude each other
 * @nr_ops: in: number of operations; 0 succeeds and does nothing
 * @op_size: in: distance between operations in bytes, at least
 *	sizeof(struct cpupeek_op) and a multiple of 8
 * @timeout_ms: in: how long to wait for all of it, 0 for ever; what has not
 *	been answered by then has the status -ETIME
 * @reserved: must be 0
 * @ops: in: address of the first &struct cpupeek_op
 * @tsc: in: with %CPUPEEK_BATCH_TSC_PAIR the address of an array of
 *	&struct cpupeek_tsc_pair, indexed by CPU number and as long as the
 *	highest CPU number of this machine among the operations asks for; else
 *	0. Entries of CPUs that the batch asks nothing of are left alone.
 */
struct cpupeek_batch {
	__u32 size;
	__u32 flags;
	__u32 nr_ops;
	__u32 op_size;
	__u32 timeout_ms;
	__u32 reserved;
	__aligned_u64 ops;
	__aligned_u64 tsc;
};

/**
 * struct cpupeek_tsc_pair - when a CPU worked on a batch
 * @start: out: the CPU's time stamp counter before its first operation
 * @end: out: the same after its last one
 *
 * Both are 0 for a CPU that has not answered.
 */
struct cpupeek_tsc_pair {
	__aligned_u64 start;
	__aligned_u64 end;
};

/**
 * struct cpupeek_prepare - operations to check once and run many times
 * @size: in: size of this structure as the caller knows it
 * @flags: must be 0
 * @nr_ops: in: number of operations
 * @op_size: in: distance between operations in bytes, as in
 *	&struct cpupeek_batch
 * @ops: in: address of the first &struct cpupeek_op
 * @fd: out: a new descriptor of the plan, close-on-exec
 * @reserved: must be 0
 *
 * The plan has the rights of the descriptor that made it. An operation that is
 * malformed or refused does not keep the plan from being made; its result has
 * the status that says so. %CPUPEEK_CPU_SELF is malformed in a plan, since it
 * would be another CPU each time.
 */
struct cpupeek_prepare {
	__u32 size;
	__u32 flags;
	__u32 nr_ops;
	__u32 op_size;
	__aligned_u64 ops;
	__s32 fd;
	__u32 reserved;
};

/**
 * struct cpupeek_result - what became of an operation of a plan
 * @status: out: as in &struct cpupeek_op
 * @cpu: out: CPU number
 * @tsc: out: as in &struct cpupeek_op
 * @value: out: as in &struct cpupeek_op
 * @eax: out: as in &struct cpupeek_op
 * @ebx: out: as in &struct cpupeek_op
 * @ecx: out: as in &struct cpupeek_op
 * @edx: out: as in &struct cpupeek_op
 */
struct cpupeek_result {
	__s32 status;
	__u32 cpu;
	__aligned_u64 tsc;
	union {
		__aligned_u64 value;
		struct {
			__u32 eax;
			__u32 ebx;
			__u32 ecx;
			__u32 edx;
		};
	};
};

/* Flags of a run, &struct cpupeek_run.flags: as in &struct cpupeek_batch. */
#define CPUPEEK_RUN_SLEEP	(1U << 0)
#define CPUPEEK_RUN_SPIN	(1U << 1)
#define CPUPEEK_RUN_TSC_PAIR	(1U << 2)
/* Leave the results in the plan's own buffer, which mmap() shows. */
#define CPUPEEK_RUN_MAPPED	(1U << 3)

/**
 * struct cpupeek_run - performs a plan
 * @size: in: size of this structure as the caller knows it
 * @flags: in: CPUPEEK_RUN_* bits; SLEEP and SPIN exclude each other
 * @timeout_ms: in: as in &struct cpupeek_batch
 * @nr_results: in: number of operations of the plan; 0 with
 *	%CPUPEEK_RUN_MAPPED
 * @results: in: address of that many &struct cpupeek_result, in the order of
 *	the plan's operations; 0 with %CPUPEEK_RUN_MAPPED
 * @tsc: in: as in &struct cpupeek_batch
 *
 * With %CPUPEEK_RUN_MAPPED the results are where mmap() of the plan's
 * descriptor at offset 0, read-only and shared, shows them: an array of
 * &struct cpupeek_result from the first byte on. A run in another thread
 * overwrites them.
 */
struct cpupeek_run {
	__u32 size;
	__u32 flags;
	__u32 timeout_ms;
	__u32 nr_results;
	__aligned_u64 results;
	__aligned_u64 tsc;
};

/* Flags of a range, &struct cpupeek_range.flags. */

/*
 * Allow registers that are not known to be harmless: performance counters,
 * voltages, energy, and whatever the module does not know.
 */
#define CPUPEEK_RANGE_UNSAFE	(1U << 0)

/**
 * struct cpupeek_range - numbers of MSRs
 * @lo: first number
 * @hi: last number, not below @lo
 * @flags: %CPUPEEK_RANGE_UNSAFE or 0; must be 0 in CPUPEEK_IOC_NARROW
 * @reserved: must be 0
 */
struct cpupeek_range {
	__u32 lo;
	__u32 hi;
	__u32 flags;
	__u32 reserved;
};

/**
 * struct cpupeek_allow - the allowlist: MSRs for everybody who can open the
 *	device
 * @size: in: size of this structure as the caller knows it
 * @flags: must be 0
 * @nr_ranges: in: number of ranges at @ranges; out (CPUPEEK_IOC_GET_ALLOW):
 *	number of ranges in the list
 * @bad_range: out (CPUPEEK_IOC_SET_ALLOW): index of the range that the list is
 *	refused for, %CPUPEEK_NO_RANGE if it is not for one
 * @ranges: address of an array of &struct cpupeek_range
 * @generation: out: number of the list, which every new list raises
 *
 * CPUPEEK_IOC_SET_ALLOW replaces the whole list, or nothing. It needs a
 * descriptor that was opened with CAP_SYS_RAWIO (else EPERM), and refuses the
 * list with
 *
 *  - EINVAL for a malformed range;
 *  - EACCES for a range with a register in it that nobody may list, see
 *    Documentation/registers.md;
 *  - EPERM for a range with a register in it that is not known to be harmless,
 *    without %CPUPEEK_RANGE_UNSAFE;
 *  - E2BIG for too many ranges, or ranges spread too far.
 *
 * A descriptor may read what was on the list when it was opened and is on it
 * now: a shorter list counts at once for everybody, a longer one for
 * descriptors that are opened later.
 *
 * CPUPEEK_IOC_GET_ALLOW copies out as many ranges as there is room for.
 */
struct cpupeek_allow {
	__u32 size;
	__u32 flags;
	__u32 nr_ranges;
	__u32 bad_range;
	__aligned_u64 ranges;
	__aligned_u64 generation;
};

#define CPUPEEK_NO_RANGE	(~0U)

/* Flags of a narrowing, &struct cpupeek_narrow.flags. At least one is set. */

/* No MSRs but those in @ranges. */
#define CPUPEEK_NARROW_MSRS	(1U << 0)
/* No CPUs but those in @cpus. */
#define CPUPEEK_NARROW_CPUS	(1U << 1)
/* No CPUID. */
#define CPUPEEK_NARROW_NO_CPUID	(1U << 2)

/**
 * struct cpupeek_narrow - takes rights away from a descriptor, for good
 * @size: in: size of this structure as the caller knows it
 * @flags: in: CPUPEEK_NARROW_* bits
 * @nr_ranges: in: number of ranges at @ranges, which may be 0; 0 without
 *	%CPUPEEK_NARROW_MSRS
 * @cpus_size: in: size of the bitmap at @cpus in bytes, a multiple of 8; 0
 *	without %CPUPEEK_NARROW_CPUS
 * @ranges: in: address of an array of &struct cpupeek_range, else 0
 * @cpus: in: address of a bitmap of CPU numbers, the lowest bit of the first
 *	64-bit word being CPU 0; a number beyond its end is not in it; else 0
 *
 * What a descriptor may do after it is what it might do before and this allows;
 * that holds for everybody who has the descriptor, and for the plans that are
 * prepared on it from then on. It may no longer set the allowlist.
 */
struct cpupeek_narrow {
	__u32 size;
	__u32 flags;
	__u32 nr_ranges;
	__u32 cpus_size;
	__aligned_u64 ranges;
	__aligned_u64 cpus;
};

/**
 * struct cpupeek_refusal - how often an MSR was refused
 * @reg: number of the MSR
 * @reserved: 0
 * @count: refusals since the allowlist was last replaced
 */
struct cpupeek_refusal {
	__u32 reg;
	__u32 reserved;
	__aligned_u64 count;
};

/**
 * struct cpupeek_refusals - which MSRs were refused
 * @size: in: size of this structure as the caller knows it
 * @flags: must be 0
 * @nr_entries: in: room at @entries; out: number of MSRs that are counted
 * @reserved: must be 0
 * @entries: in: address of an array of &struct cpupeek_refusal, which is filled
 *	as far as there is room, in no particular order
 * @others: out: refusals of MSRs that the module has no room to count alone
 *
 * Needs a descriptor that was opened with CAP_SYS_RAWIO and was not narrowed,
 * else EPERM.
 */
struct cpupeek_refusals {
	__u32 size;
	__u32 flags;
	__u32 nr_entries;
	__u32 reserved;
	__aligned_u64 entries;
	__aligned_u64 others;
};

/* On a descriptor of CPUPEEK_DEVICE. */
#define CPUPEEK_IOC_INFO	_IOR(CPUPEEK_IOC_TYPE, 0x00, struct cpupeek_info)
#define CPUPEEK_IOC_READ	_IOWR(CPUPEEK_IOC_TYPE, 0x01, struct cpupeek_op)
#define CPUPEEK_IOC_BATCH	_IOW(CPUPEEK_IOC_TYPE, 0x02, struct cpupeek_batch)
#define CPUPEEK_IOC_PREPARE	_IOWR(CPUPEEK_IOC_TYPE, 0x03, struct cpupeek_prepare)
#define CPUPEEK_IOC_SET_ALLOW	_IOWR(CPUPEEK_IOC_TYPE, 0x05, struct cpupeek_allow)
#define CPUPEEK_IOC_GET_ALLOW	_IOWR(CPUPEEK_IOC_TYPE, 0x06, struct cpupeek_allow)
#define CPUPEEK_IOC_NARROW	_IOW(CPUPEEK_IOC_TYPE, 0x07, struct cpupeek_narrow)
#define CPUPEEK_IOC_REFUSALS	_IOWR(CPUPEEK_IOC_TYPE, 0x08, struct cpupeek_refusals)
/* On a descriptor of a plan. */
#define CPUPEEK_IOC_RUN		_IOW(CPUPEEK_IOC_TYPE, 0x04, struct cpupeek_run)
/* Numbers 0x09 to 0x1F of this type are cpupeek's too. */

#endif /* _UAPI_LINUX_CPUPEEK_H */
