// SPDX-License-Identifier: GPL-2.0
/*
 * Reads registers in all ways that there are: one register, many of them on all
 * CPUs at once, and the same again and again from a plan whose results are
 * mapped.
 *
 *	cc -O2 read.c		(with cpupeek's headers installed)
 */
#include <cpupeek-device.h>
#include <stdio.h>
#include <stdlib.h>

#define TSC_AUX 0xc0000103

int main(void)
{
	const struct cpupeek_result *results;
	struct cpupeek_info info;
	struct cpupeek_op *ops;
	__u32 regs[4], cpu;
	__u64 value;
	int fd, plan, error;

	fd = cpupeek_open(NULL);
	if (fd < 0) {
		fprintf(stderr, "read: %s\n", cpupeek_error(fd));
		return 3;
	}

	/* One register of one CPU, and one leaf of the one that this is on. */
	error = cpupeek_read_msr(fd, 0, TSC_AUX, &value);
	printf("TSC_AUX of CPU 0: %s, %llu\n", cpupeek_status(error),
	       error ? 0ULL : (unsigned long long)value);
	error = cpupeek_read_cpuid(fd, CPUPEEK_CPU_SELF, 0, 0, regs);
	if (error)
		printf("CPUID: %s\n", cpupeek_status(error));
	else
		printf("CPUID knows leaves up to %u\n", regs[0]);

	/* All CPUs at once; each operation says what became of it. */
	error = cpupeek_info(fd, &info);
	if (error) {
		fprintf(stderr, "read: the module says nothing of itself: %s\n",
			strerror(-error));
		return 3;
	}
	ops = calloc(info.nr_cpu_ids, sizeof(*ops));
	if (!ops) {
		fprintf(stderr, "read: no memory for %u operations\n",
			info.nr_cpu_ids);
		return 3;
	}
	for (cpu = 0; cpu < info.nr_cpu_ids; cpu++)
		ops[cpu] = cpupeek_msr(cpu, TSC_AUX);
	error = cpupeek_batch(fd, ops, info.nr_cpu_ids, 0, 1000, NULL);
	if (error) {
		fprintf(stderr, "read: the batch failed: %s\n", strerror(-error));
		return 3;
	}
	for (cpu = 0; cpu < info.nr_cpu_ids; cpu++)
		printf("CPU %u: %s, %llu\n", cpu, cpupeek_status(ops[cpu].status),
		       (unsigned long long)ops[cpu].value);

	/* The same as a plan, whose results are there without a copy. */
	plan = cpupeek_prepare(fd, ops, info.nr_cpu_ids);
	if (plan < 0) {
		fprintf(stderr, "read: no plan: %s\n", strerror(-plan));
		return 3;
	}
	results = cpupeek_plan_map(plan, info.nr_cpu_ids);
	if (!results) {
		perror("read: the results cannot be mapped");
		return 3;
	}
	error = cpupeek_run(plan, NULL, 0, CPUPEEK_RUN_MAPPED, 1000, NULL);
	if (error)
		fprintf(stderr, "read: the plan did not run: %s\n",
			strerror(-error));
	for (cpu = 0; !error && cpu < info.nr_cpu_ids; cpu++)
		printf("CPU %u, from the plan: %s, %llu\n", results[cpu].cpu,
		       cpupeek_status(results[cpu].status),
		       (unsigned long long)results[cpu].value);
	cpupeek_plan_unmap(results, info.nr_cpu_ids);
	close(plan);
	close(fd);
	free(ops);
	return error ? 3 : 0;
}
