// SPDX-License-Identifier: GPL-2.0
/*
 * Has two CPUs read a register a hundred times a second each, waits for a
 * sample, and looks at the latest values, for which no system call is made and
 * no CPU interrupted.
 *
 *	cc -O2 sample.c		(with cpupeek's headers installed)
 */
#include <cpupeek.h>
#include <stdio.h>

#define TSC_AUX 0xc0000103
#define INTERVAL_NS 10000000

int main(void)
{
	struct cpupeek_op ops[] = { cpupeek_msr(0, TSC_AUX),
				    cpupeek_msr(1, TSC_AUX) };
	struct cpupeek_condition changed =
		cpupeek_changed(CPUPEEK_CPU_ANY, 0, ~0ULL);
	struct cpupeek_slot header;
	struct cpupeek_sampling s;
	__u64 value = 0, number = 0, samples;
	int fd = cpupeek_open(NULL), error;
	__u32 cpu;

	if (fd < 0) {
		fprintf(stderr, "sample: %s\n", cpupeek_error(fd));
		return 3;
	}
	error = cpupeek_sample(&s, fd, ops, 2, INTERVAL_NS,
			       CPUPEEK_SAMPLER_EXACT, 16);
	if (error) {
		fprintf(stderr, "sample: no sampler: %s\n", strerror(-error));
		return 3;
	}
	error = cpupeek_wait(&s, &samples);
	if (error) {
		fprintf(stderr, "sample: cannot wait: %s\n", strerror(-error));
		return 3;
	}

	for (cpu = 0; cpu < 2; cpu++) {
		/* Another CPU may have been the first. */
		do
			error = cpupeek_slot_value(cpupeek_latest_of(&s, cpu),
						   0, &value, &number);
		while (error == -ENODATA && !cpupeek_wait(&s, &samples));
		printf("CPU %u: %s, in sample %llu: %llu\n", cpu,
		       cpupeek_status(error), (unsigned long long)number,
		       (unsigned long long)value);
		/* The one before is in the ring. */
		if (!error && number > 1 &&
		    !cpupeek_slot_read(cpupeek_past(&s, cpu, number - 1),
				       &header, NULL, 0))
			printf("CPU %u: sample %llu was at %llu ns\n", cpu,
			       (unsigned long long)header.number,
			       (unsigned long long)header.time_ns);
	}

	/* From now on only a value that has changed matters; and the end. */
	error = cpupeek_watch(&s, &changed, 1);
	printf("watched: %s\n", error ? "no" : "yes");
	error = cpupeek_stop(&s);
	/* What was before the end is told first. */
	do
		samples = 0;
	while (!error && !(error = cpupeek_wait(&s, &samples)) && samples);
	printf("stopped: %s\n", error ? "no" : "yes");
	cpupeek_sample_end(&s);
	close(fd);
	return 0;
}
