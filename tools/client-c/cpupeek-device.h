/* SPDX-License-Identifier: GPL-2.0 */
/*
 * cpupeek from C, all of it in headers: the device, batches, plans, the
 * allowlist and narrowing.
 *
 *	__u64 value;
 *	int fd = cpupeek_open(NULL);
 *	int error = fd < 0 ? fd : cpupeek_read_msr(fd, 3, 0xc0000103, &value);
 *
 *	if (error)
 *		fprintf(stderr, "%s\n", cpupeek_error(error));
 *
 * Functions return 0, or a negative errno if the call as a whole failed; what
 * became of each operation is its @status (cpupeek_status() says it in words).
 * Those that read one register return its status as well, since there is but
 * one. Nothing here allocates; all of it may be called from any thread.
 */
#ifndef CPUPEEK_DEVICE_H
#define CPUPEEK_DEVICE_H

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/cpupeek.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An address, as the ABI has it. */
static inline __u64 cpupeek_address(const void *p)
{
	return (__u64)(unsigned long)p;
}

/* ioctl() with its error as a return value. */
static inline int cpupeek_ioctl(int fd, unsigned long command, void *argument)
{
	return ioctl(fd, command, argument) ? -errno : 0;
}

/* Reads an MSR of a CPU, or of %CPUPEEK_CPU_SELF. */
static inline struct cpupeek_op cpupeek_msr(__u32 cpu, __u32 reg)
{
	struct cpupeek_op op;

	memset(&op, 0, sizeof(op));
	op.cpu = cpu;
	op.kind = CPUPEEK_MSR;
	op.reg = reg;
	return op;
}

/* Executes CPUID on a CPU, or on %CPUPEEK_CPU_SELF. */
static inline struct cpupeek_op cpupeek_cpuid(__u32 cpu, __u32 leaf,
					      __u32 subleaf)
{
	struct cpupeek_op op = cpupeek_msr(cpu, leaf);

	op.kind = CPUPEEK_CPUID;
	op.subleaf = subleaf;
	return op;
}

/* The same, allowed to interrupt an isolated CPU (CAP_SYS_NICE). */
static inline struct cpupeek_op cpupeek_disturb(struct cpupeek_op op)
{
	op.flags |= CPUPEEK_OP_DISTURB;
	return op;
}

/* What the module can do here. */
static inline int cpupeek_info(int fd, struct cpupeek_info *info)
{
	memset(info, 0, sizeof(*info));
	return cpupeek_ioctl(fd, CPUPEEK_IOC_INFO, info);
}

/*
 * Opens the device, %CPUPEEK_DEVICE if @path is NULL. Returns a descriptor, or
 * a negative errno: -ENOENT if the module is not loaded, -EACCES if the caller
 * may not, -ENOTTY if it is not this device, -EPROTO if the module is too old.
 */
static inline int cpupeek_open(const char *path)
{
	struct cpupeek_info info;
	struct stat st;
	int fd, error;

	path = path ? path : CPUPEEK_DEVICE;
	/* Opening has effects on other kinds of file: it waits on a FIFO. */
	if (stat(path, &st))
		return -errno;
	if (!S_ISCHR(st.st_mode))
		return -ENOTTY;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	error = cpupeek_info(fd, &info);
	if (!error && (info.size < sizeof(info) ||
		       !(info.features & CPUPEEK_FEATURE_READ)))
		error = -EPROTO;
	if (error) {
		close(fd);
		return error;
	}
	return fd;
}

/* One operation. Returns why the call failed, or the operation's status. */
static inline int cpupeek_read(int fd, struct cpupeek_op *op)
{
	int error = cpupeek_ioctl(fd, CPUPEEK_IOC_READ, op);

	return error ? error : op->status;
}

/* Reads a model-specific register of a CPU. */
static inline int cpupeek_read_msr(int fd, __u32 cpu, __u32 reg, __u64 *value)
{
	struct cpupeek_op op = cpupeek_msr(cpu, reg);
	int error = cpupeek_read(fd, &op);

	if (!error)
		*value = op.value;
	return error;
}

/* Executes CPUID on a CPU; @regs gets EAX, EBX, ECX and EDX. */
static inline int cpupeek_read_cpuid(int fd, __u32 cpu, __u32 leaf,
				     __u32 subleaf, __u32 regs[4])
{
	struct cpupeek_op op = cpupeek_cpuid(cpu, leaf, subleaf);
	int error = cpupeek_read(fd, &op);

	if (error)
		return error;
	regs[0] = op.eax;
	regs[1] = op.ebx;
	regs[2] = op.ecx;
	regs[3] = op.edx;
	return 0;
}

/*
 * Performs all of @ops, all CPUs at once. @flags are CPUPEEK_BATCH_*,
 * @timeout_ms 0 means for ever. @pairs is an array indexed by CPU number with
 * %CPUPEEK_BATCH_TSC_PAIR, else NULL. More operations than the module's
 * @max_batch_ops are -E2BIG.
 */
static inline int cpupeek_batch(int fd, struct cpupeek_op *ops, __u32 nr_ops,
				__u32 flags, __u32 timeout_ms,
				struct cpupeek_tsc_pair *pairs)
{
	struct cpupeek_batch batch;

	memset(&batch, 0, sizeof(batch));
	batch.size = sizeof(batch);
	batch.flags = flags;
	batch.nr_ops = nr_ops;
	batch.op_size = sizeof(*ops);
	batch.timeout_ms = timeout_ms;
	batch.ops = cpupeek_address(ops);
	batch.tsc = cpupeek_address(pairs);
	return cpupeek_ioctl(fd, CPUPEEK_IOC_BATCH, &batch);
}

/*
 * Has the module check @ops and keep them. Returns a descriptor of the plan,
 * which has the rights of @fd, or a negative errno.
 */
static inline int cpupeek_prepare(int fd, const struct cpupeek_op *ops,
				  __u32 nr_ops)
{
	struct cpupeek_prepare prepare;
	int error;

	memset(&prepare, 0, sizeof(prepare));
	prepare.size = sizeof(prepare);
	prepare.nr_ops = nr_ops;
	prepare.op_size = sizeof(*ops);
	prepare.ops = cpupeek_address(ops);
	prepare.fd = -1;
	error = cpupeek_ioctl(fd, CPUPEEK_IOC_PREPARE, &prepare);
	return error ? error : prepare.fd;
}

/*
 * Performs a plan. @results has room for as many as the plan has operations;
 * or is NULL with %CPUPEEK_RUN_MAPPED in @flags, see cpupeek_plan_map().
 */
static inline int cpupeek_run(int plan, struct cpupeek_result *results,
			      __u32 nr_results, __u32 flags, __u32 timeout_ms,
			      struct cpupeek_tsc_pair *pairs)
{
	struct cpupeek_run run;

	memset(&run, 0, sizeof(run));
	run.size = sizeof(run);
	run.flags = flags;
	run.timeout_ms = timeout_ms;
	run.nr_results = results ? nr_results : 0;
	run.results = cpupeek_address(results);
	run.tsc = cpupeek_address(pairs);
	return cpupeek_ioctl(plan, CPUPEEK_IOC_RUN, &run);
}

/*
 * Maps a plan's own results, which a run with %CPUPEEK_RUN_MAPPED fills: no
 * copy is made. NULL on an error, which errno says.
 */
static inline const struct cpupeek_result *cpupeek_plan_map(int plan,
							    __u32 nr_ops)
{
	void *map = mmap(NULL, nr_ops * sizeof(struct cpupeek_result),
			 PROT_READ, MAP_SHARED, plan, 0);

	return map == MAP_FAILED ? NULL : (const struct cpupeek_result *)map;
}

/* Nothing happens if @results is NULL. */
static inline void cpupeek_plan_unmap(const struct cpupeek_result *results,
				      __u32 nr_ops)
{
	if (results)
		munmap((void *)(unsigned long)results, nr_ops * sizeof(*results));
}

/*
 * Replaces the allowlist, or leaves it on an error; the generation of the new
 * one is at @generation, and the index of the range that it is refused for at
 * @bad, %CPUPEEK_NO_RANGE if it is not for one. Either may be NULL.
 */
static inline int cpupeek_set_allowed(int fd, const struct cpupeek_range *ranges,
				      __u32 nr_ranges, __u64 *generation,
				      __u32 *bad)
{
	struct cpupeek_allow allow;
	int error;

	memset(&allow, 0, sizeof(allow));
	allow.size = sizeof(allow);
	allow.nr_ranges = nr_ranges;
	allow.bad_range = CPUPEEK_NO_RANGE;
	allow.ranges = cpupeek_address(ranges);
	error = cpupeek_ioctl(fd, CPUPEEK_IOC_SET_ALLOW, &allow);
	if (bad)
		*bad = allow.bad_range;
	if (!error && generation)
		*generation = allow.generation;
	return error;
}

/*
 * Gets the allowlist. @nr_ranges says how much room there is, and afterwards
 * how many ranges the list has, which may be more.
 */
static inline int cpupeek_get_allowed(int fd, struct cpupeek_range *ranges,
				      __u32 *nr_ranges, __u64 *generation)
{
	struct cpupeek_allow allow;
	int error;

	memset(&allow, 0, sizeof(allow));
	allow.size = sizeof(allow);
	allow.nr_ranges = *nr_ranges;
	allow.ranges = cpupeek_address(ranges);
	error = cpupeek_ioctl(fd, CPUPEEK_IOC_GET_ALLOW, &allow);
	if (error)
		return error;
	*nr_ranges = allow.nr_ranges;
	if (generation)
		*generation = allow.generation;
	return 0;
}

/* What a descriptor is to be narrowed to; begin with cpupeek_narrowing(). */
static inline struct cpupeek_narrow cpupeek_narrowing(void)
{
	struct cpupeek_narrow narrow;

	memset(&narrow, 0, sizeof(narrow));
	narrow.size = sizeof(narrow);
	return narrow;
}

/* No MSRs but those in @ranges, which must live until cpupeek_narrow(). */
static inline void cpupeek_only_msrs(struct cpupeek_narrow *narrow,
				     const struct cpupeek_range *ranges,
				     __u32 nr_ranges)
{
	narrow->flags |= CPUPEEK_NARROW_MSRS;
	narrow->nr_ranges = nr_ranges;
	narrow->ranges = nr_ranges ? cpupeek_address(ranges) : 0;
}

/* No CPUs but those in the bitmap @cpus, which must live as long too. */
static inline void cpupeek_only_cpus(struct cpupeek_narrow *narrow,
				     const __u64 *cpus, __u32 nr_words)
{
	narrow->flags |= CPUPEEK_NARROW_CPUS;
	narrow->cpus_size = nr_words * sizeof(*cpus);
	narrow->cpus = nr_words ? cpupeek_address(cpus) : 0;
}

/* No CPUID. */
static inline void cpupeek_no_cpuid(struct cpupeek_narrow *narrow)
{
	narrow->flags |= CPUPEEK_NARROW_NO_CPUID;
}

/* Takes rights away from the descriptor, for good. */
static inline int cpupeek_narrow(int fd, struct cpupeek_narrow *to)
{
	return cpupeek_ioctl(fd, CPUPEEK_IOC_NARROW, to);
}

/*
 * Which MSRs were refused to anybody. @nr_entries says how much room there is,
 * and afterwards how many there are; @others those without room in the module.
 */
static inline int cpupeek_refusals(int fd, struct cpupeek_refusal *entries,
				   __u32 *nr_entries, __u64 *others)
{
	struct cpupeek_refusals refusals;
	int error;

	memset(&refusals, 0, sizeof(refusals));
	refusals.size = sizeof(refusals);
	refusals.nr_entries = *nr_entries;
	refusals.entries = cpupeek_address(entries);
	error = cpupeek_ioctl(fd, CPUPEEK_IOC_REFUSALS, &refusals);
	if (error)
		return error;
	*nr_entries = refusals.nr_entries;
	if (others)
		*others = refusals.others;
	return 0;
}

/*
 * Has the kernel keep the number of the CPU that the calling thread runs on at
 * @word, until cpupeek_clear_cpu_word(), the last close of @fd, or the thread's
 * end. Only a module that has %CPUPEEK_FEATURE_CPU_WORD can do this.
 */
static inline int cpupeek_set_cpu_word(int fd, __u32 *word)
{
	struct cpupeek_cpu_word set;

	memset(&set, 0, sizeof(set));
	set.size = sizeof(set);
	set.address = cpupeek_address(word);
	return cpupeek_ioctl(fd, CPUPEEK_IOC_SET_CPU_WORD, &set);
}

/* Ends it; the word is %CPUPEEK_NO_CPU then. */
static inline int cpupeek_clear_cpu_word(int fd)
{
	return cpupeek_ioctl(fd, CPUPEEK_IOC_CLEAR_CPU_WORD, NULL);
}

/* What the status of an operation means, in words. */
static inline const char *cpupeek_status(int status)
{
	switch (status) {
	case 0:
		return "read";
	case -EINVAL:
		return "malformed operation (EINVAL)";
	case -EACCES:
		return "policy: register not on the allowlist (EACCES)";
	case -EPERM:
		return "policy: CPU not allowed to this caller (EPERM)";
	case -ENXIO:
		return "CPU absent or offline (ENXIO)";
	case -EIO:
		return "refused by the CPU (EIO)";
	case -ETIME:
		return "no answer in time (ETIME)";
	case -ENODATA:
		return "not sampled yet (ENODATA)";
	case -ECANCELED:
		return "the sampler was stopped (ECANCELED)";
	default:
		return "unknown error";
	}
}

/* Why cpupeek_open() failed, and what to do. */
static inline const char *cpupeek_error(int error)
{
	switch (error) {
	case -ENOENT:
	case -ENXIO:
	case -ENODEV:
		return "there is no " CPUPEEK_DEVICE
		       ": load the module as root with 'modprobe cpupeek'";
	case -EACCES:
	case -EPERM:
		return "permission to open " CPUPEEK_DEVICE
		       " is denied: run this as root, or as a member of the device's group";
	case -ENOTTY:
		return "that is not a cpupeek device: name the right one, usually "
		       CPUPEEK_DEVICE;
	case -EPROTO:
		return "the module is of another ABI: install both from the same version";
	default:
		return strerror(-error);
	}
}

#ifdef __cplusplus
}
#endif

#endif /* CPUPEEK_DEVICE_H */
