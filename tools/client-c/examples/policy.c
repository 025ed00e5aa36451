// SPDX-License-Identifier: GPL-2.0
/*
 * As root: shows the allowlist and what was refused, and keeps of its rights
 * only what it needs, as a broker does before it hands a descriptor on.
 */
#include <cpupeek-device.h>
#include <stdio.h>

#define PLATFORM_ID 0x17
#define TSC_AUX 0xc0000103

int main(void)
{
	static struct cpupeek_range list[4096];
	static struct cpupeek_refusal refused[16];
	const struct cpupeek_range only = { TSC_AUX, TSC_AUX, 0, 0 };
	struct cpupeek_narrow narrow = cpupeek_narrowing();
	__u64 cpus = 1, generation, again, others, value;
	__u32 nr = 4096, nr_refused = 16, bad;
	int fd = cpupeek_open(NULL), error;

	if (fd < 0) {
		fprintf(stderr, "policy: %s\n", cpupeek_error(fd));
		return 3;
	}
	error = cpupeek_get_allowed(fd, list, &nr, &generation);
	if (error) {
		fprintf(stderr, "policy: no list: %s\n", strerror(-error));
		return 3;
	}
	printf("list number %llu has %u ranges\n", (unsigned long long)generation, nr);
	/* Before the list is replaced, which begins the counts anew. */
	error = cpupeek_refusals(fd, refused, &nr_refused, &others);
	if (error)
		fprintf(stderr, "policy: no refusals: %s\n", strerror(-error));
	else
		printf("%u registers were refused to users\n", nr_refused);
	/* What there is, once more, which is a list of its own. */
	error = cpupeek_set_allowed(fd, list, nr, &again, &bad);
	if (error)
		fprintf(stderr, "policy: range %u is refused: %s\n", bad,
			strerror(-error));
	else
		printf("loaded again: %s\n", again > generation ? "yes" : "no");

	cpupeek_only_msrs(&narrow, &only, 1);
	cpupeek_only_cpus(&narrow, &cpus, 1);
	cpupeek_no_cpuid(&narrow);
	error = cpupeek_narrow(fd, &narrow);
	if (error) {
		fprintf(stderr, "policy: not narrowed: %s\n", strerror(-error));
		return 3;
	}
	error = cpupeek_read_msr(fd, 0, TSC_AUX, &value);
	printf("TSC_AUX of CPU 0: %s\n", cpupeek_status(error));
	error = cpupeek_read_msr(fd, 1, TSC_AUX, &value);
	printf("TSC_AUX of CPU 1: %s\n", cpupeek_status(error));
	error = cpupeek_read_msr(fd, 0, PLATFORM_ID, &value);
	printf("PLATFORM_ID of CPU 0: %s\n", cpupeek_status(error));
	close(fd);
	return 0;
}
