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
 *  - ENOTTY: no such command;
 *  - EINTR: a fatal signal, which ends every wait.
 *
 * Those that make a descriptor may also fail with EMFILE or ENFILE.
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
/* CPUPEEK_IOC_SAMPLER, _WATCH and _STOP */
#define CPUPEEK_FEATURE_SAMPLER	(1ULL << 4)
/*
 * CPUPEEK_IOC_SET_CPU_WORD and _CLEAR_CPU_WORD: only if the module was asked for
 * it as it was loaded, and the kernel can tell where threads run.
 */
#define CPUPEEK_FEATURE_CPU_WORD	(1ULL << 5)

/**
 * struct cpupeek_info - what this module can do here
 * @size: out: size of this structure as the module knows it
 * @reserved: out: 0
 * @features: out: CPUPEEK_FEATURE_* bits
 * @max_batch_ops: out: most operations in one batch
 * @max_round_ops: out: most operations that one CPU performs for a caller with
 *	its interrupts off at a stretch; for all callers together it is four times
 *	as many, and one for each caller beyond
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
 * @ranges: in: address of an array of &struct cpupeek_range; 0 without
 *	%CPUPEEK_NARROW_MSRS
 * @cpus: in: address of a bitmap of CPU numbers, the lowest bit of the first
 *	64-bit word being CPU 0; a number beyond its end is not in it; 0 without
 *	%CPUPEEK_NARROW_CPUS
 *
 * What a descriptor may do after it is what it might do before and this allows;
 * that holds for everybody who has the descriptor, and for the plans and
 * samplers that are made on it from then on. Those made before keep their
 * rights; a sampler can be narrowed itself. It may no longer set the allowlist,
 * and what it uses of other CPUs' time is on the account of who opened it. E2BIG
 * if there are more ranges than 4,096, also after it was narrowed again.
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

/**
 * DOC: Samplers
 *
 * A sampler reads its registers again and again, each CPU its own from a timer
 * on that CPU, and leaves the values in memory that mmap() of its descriptor
 * shows: to read them needs no system call, and no CPU is interrupted by
 * another. It runs as long as its descriptor is open or mapped anywhere, or
 * until CPUPEEK_IOC_STOP.
 *
 * The mapping is read-only, at offset 0, and &struct cpupeek_sampler.map_size
 * bytes long. It begins with a &struct cpupeek_map, which says where the slots
 * are: one for each CPU with its latest sample and, if
 * &struct cpupeek_sampler.ring_samples is not 0, a ring of that many past ones.
 * A slot is a &struct cpupeek_slot and right behind it its results, which are
 * those of the sampler's operations on that CPU in the order in which they were
 * given.
 *
 * To read a slot:
 *
 *  1. load @seq; if it is odd, the slot is being written: begin again;
 *  2. then load what is wanted;
 *  3. then load @seq again; if it has changed, begin again.
 *
 * (x86 keeps loads in order, so that a compiler barrier does at 2 and 3.)
 *
 * Sample @number n of a CPU is in slot n modulo @ring_samples of that CPU's
 * ring until sample n + @ring_samples takes its place. A reader who finds a
 * larger number there has been overrun, and the numbers say by how much.
 *
 * Whenever something is taken away (the CPU goes offline, the policy or a
 * narrowing takes the register, the sampler is stopped), the values in the
 * slot become 0 and the status says why; in the ring too if a register was
 * taken by the policy or a narrowing.
 *
 * read() of a sampler's descriptor gives a &__u64 (the buffer has at least 8
 * bytes, else EINVAL): how many samples there were since the last read() that
 * matter in the sense of CPUPEEK_IOC_WATCH. It waits for one, or fails with
 * EAGAIN on a descriptor with O_NONBLOCK, and gives 0 after CPUPEEK_IOC_STOP.
 * poll() says POLLIN when read() would not wait, and POLLHUP after
 * CPUPEEK_IOC_STOP.
 */

/* Flags of a sampler, &struct cpupeek_sampler.flags. */

/*
 * By a timer that wakes an idle CPU, from 1 ms on. Without it an idle CPU is
 * left alone and its sample grows old; the interval is rounded up to whole
 * ticks of the kernel's clock.
 */
#define CPUPEEK_SAMPLER_EXACT	(1U << 0)

/**
 * struct cpupeek_sampler - makes a sampler
 * @size: in: size of this structure as the caller knows it
 * @flags: in: CPUPEEK_SAMPLER_* bits
 * @nr_ops: in: number of operations, at least 1 and for one CPU at most
 *	&struct cpupeek_info.max_round_ops (else E2BIG); 0 on a plan's
 *	descriptor, whose operations they are then
 * @op_size: in: distance between operations in bytes, as in
 *	&struct cpupeek_batch; 0 on a plan's descriptor
 * @ops: in: address of the first &struct cpupeek_op; 0 on a plan's descriptor
 * @interval_ns: in: time between samples in ns, 1000000 to 3600000000000; out:
 *	what it is
 * @ring_samples: in: how many past samples to keep for each CPU, 0 for none;
 *	65536 samples and 64 MiB in all are the limit (E2BIG)
 * @fd: out: a new descriptor of the sampler, close-on-exec
 * @map_size: out: length of its mapping
 *
 * The sampler has the rights of the descriptor that made it, and the CPUs that
 * the caller may have interrupted now, as in CPUPEEK_IOC_BATCH; a thread's own
 * CPU is no exception. A refused operation has a status that says so. A
 * malformed one, one on %CPUPEEK_CPU_SELF (both EINVAL) or on a CPU that there
 * is none of (ENXIO) keeps the sampler from being made.
 *
 * It has begun when the command returns, but for CPUs that have not answered in
 * the time that CPUPEEK_IOC_READ waits.
 */
struct cpupeek_sampler {
	__u32 size;
	__u32 flags;
	__u32 nr_ops;
	__u32 op_size;
	__aligned_u64 ops;
	__aligned_u64 interval_ns;
	__u32 ring_samples;
	__s32 fd;
	__aligned_u64 map_size;
};

/**
 * struct cpupeek_map - the beginning of a sampler's mapping
 * @size: size of this structure as the module knows it
 * @flags: CPUPEEK_SAMPLER_* bits
 * @nr_slots: number of slots, one for each CPU, in the order in which the
 *	operations mention them
 * @slot_size: distance between slots in bytes, in the ring too
 * @slots: offset of the first slot, from the beginning of the mapping
 * @ring: offset of the first slot of the first CPU's ring; the next CPU's
 *	begins @ring_samples slots later, in the same order; 0 if there is none
 * @ring_samples: number of slots in each CPU's ring
 * @tsc_khz: as in &struct cpupeek_info
 * @interval_ns: time between samples
 *
 * Nothing of it ever changes.
 */
struct cpupeek_map {
	__u32 size;
	__u32 flags;
	__u32 nr_slots;
	__u32 slot_size;
	__aligned_u64 slots;
	__aligned_u64 ring;
	__u32 ring_samples;
	__u32 tsc_khz;
	__aligned_u64 interval_ns;
};

/**
 * struct cpupeek_slot - one CPU's sample
 * @seq: odd while the slot is being written, another number after it
 * @cpu: the CPU's number; never changes
 * @status: 0, or a negative errno, see below
 * @nr_results: number of &struct cpupeek_result behind this structure; never
 *	changes
 * @number: number of the sample, 1 for the CPU's first; 0 if there is none
 * @tsc: the CPU's time stamp counter before the first register; 0 if there is
 *	no sample
 * @time_ns: CLOCK_MONOTONIC at about the same time
 * @missed: periods without a sample so far because the timer came too late: an
 *	idle CPU, somebody with interrupts off, many other samplers, or a change
 *	to the sampler
 * @skipped: periods without a sample so far because the sampler has used all
 *	the time that it may
 * @busy: for how many cycles of its time stamp counter the CPU has read for
 *	the sampler so far
 *
 * Slots are aligned to 64 bytes. @status is 0 or
 *
 *  - -ENODATA: there has been no sample yet;
 *  - -ENXIO: the CPU is offline;
 *  - -EACCES, -EPERM: of all its operations none is allowed (any more);
 *  - -ECANCELED: the sampler was stopped.
 *
 * Sampling goes on when an offline CPU comes back.
 */
struct cpupeek_slot {
	__u32 seq;
	__u32 cpu;
	__s32 status;
	__u32 nr_results;
	__aligned_u64 number;
	__aligned_u64 tsc;
	__aligned_u64 time_ns;
	__aligned_u64 missed;
	__aligned_u64 skipped;
	__aligned_u64 busy;
};

/* Kinds of condition, &struct cpupeek_condition.kind. */

/* Any bit of the value under the mask has changed. */
#define CPUPEEK_WHEN_CHANGED	1
/* The value under the mask was below the bound and no longer is, or the reverse. */
#define CPUPEEK_WHEN_CROSSED	2

/* &struct cpupeek_condition.cpu: every CPU of the sampler with such a result. */
#define CPUPEEK_CPU_ANY	(~0U)

/**
 * struct cpupeek_condition - what makes a sample matter
 * @cpu: a CPU of the sampler, or %CPUPEEK_CPU_ANY
 * @result: number of the result in the CPU's slot, 0 for the first
 * @kind: CPUPEEK_WHEN_*
 * @reserved: must be 0
 * @mask: bits of the value that count, not 0
 * @bound: with %CPUPEEK_WHEN_CROSSED the bound, else 0
 *
 * The value is &struct cpupeek_result.value: of a CPUID leaf EAX, and EBX in
 * the upper half. It is compared with that of the sample before, beginning with
 * the first one after CPUPEEK_IOC_WATCH. A status that has changed always
 * fulfils the condition.
 */
struct cpupeek_condition {
	__u32 cpu;
	__u32 result;
	__u32 kind;
	__u32 reserved;
	__aligned_u64 mask;
	__aligned_u64 bound;
};

/**
 * struct cpupeek_watch - which samples make a sampler's descriptor readable
 * @size: in: size of this structure as the caller knows it
 * @flags: must be 0
 * @nr_conditions: in: number of conditions, for one CPU at most 64 (else
 *	E2BIG); 0: every sample matters
 * @reserved: must be 0
 * @conditions: in: address of an array of &struct cpupeek_condition; 0 if there
 *	are none
 *
 * A sample matters if it fulfils any of them. They replace the ones before;
 * samples that have not been told of by read() are forgotten.
 */
struct cpupeek_watch {
	__u32 size;
	__u32 flags;
	__u32 nr_conditions;
	__u32 reserved;
	__aligned_u64 conditions;
};

/* No number of a CPU, see &struct cpupeek_cpu_word. */
#define CPUPEEK_NO_CPU	(~0U)

/**
 * struct cpupeek_cpu_word - where a thread wants to have its CPU's number
 * @size: in: size of this structure as the caller knows it
 * @flags: must be 0
 * @address: in: address of a __u32, a multiple of 4
 *
 * CPUPEEK_IOC_SET_CPU_WORD has the kernel keep the number of the CPU that the
 * calling thread runs on at @address: it is there when the command returns, and
 * after the thread has got another CPU it is there before the thread runs in
 * user space again. Other threads may look too, and see where it was last. The
 * memory must be left to that until it has ended, or the thread.
 *
 * That ends, and in the first two cases the word becomes %CPUPEEK_NO_CPU,
 *
 *  - with CPUPEEK_IOC_CLEAR_CPU_WORD by the same thread on the same descriptor,
 *    which takes no argument; ENOENT if there is no such word;
 *  - some time after the last close of the descriptor, or at once if it is the
 *    thread's own;
 *  - with the thread, and with exec; a child has no word, whatever its parent
 *    has;
 *  - when the word cannot be written any more.
 *
 * The command fails with
 *
 *  - EINVAL if @address is not a multiple of 4;
 *  - EFAULT if there is no memory that can be written;
 *  - EBUSY if the thread has a word already, of whatever descriptor;
 *  - EOPNOTSUPP without %CPUPEEK_FEATURE_CPU_WORD;
 *  - ENFILE if the system has too many open files.
 */
struct cpupeek_cpu_word {
	__u32 size;
	__u32 flags;
	__aligned_u64 address;
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
#define CPUPEEK_IOC_SET_CPU_WORD	_IOW(CPUPEEK_IOC_TYPE, 0x10, struct cpupeek_cpu_word)
#define CPUPEEK_IOC_CLEAR_CPU_WORD	_IO(CPUPEEK_IOC_TYPE, 0x11)
/* On a descriptor of a plan. */
#define CPUPEEK_IOC_RUN		_IOW(CPUPEEK_IOC_TYPE, 0x04, struct cpupeek_run)
/* On a descriptor of CPUPEEK_DEVICE, or of a plan. */
#define CPUPEEK_IOC_SAMPLER	_IOWR(CPUPEEK_IOC_TYPE, 0x09, struct cpupeek_sampler)
/* On a descriptor of a sampler; CPUPEEK_IOC_NARROW too. STOP wants 0. */
#define CPUPEEK_IOC_WATCH	_IOW(CPUPEEK_IOC_TYPE, 0x0A, struct cpupeek_watch)
#define CPUPEEK_IOC_STOP	_IO(CPUPEEK_IOC_TYPE, 0x0B)
/* All numbers of this type up to 0x1F are cpupeek's. */

#endif /* _UAPI_LINUX_CPUPEEK_H */
