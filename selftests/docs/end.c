// SPDX-License-Identifier: GPL-2.0
/*
 * What cpupeek_sample_end() does with a sampling that failed, or has ended:
 * nothing, whatever was in the structure before. Needs no module.
 */
#define _GNU_SOURCE
#include <cpupeek.h>
#include <stdio.h>
#include <stdlib.h>

#define SIZE 4096

static void expect(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "end: %s\n", what);
	exit(1);
}

static int is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static int is_mapped(void *at)
{
	unsigned char in_core;

	return mincore(at, SIZE, &in_core) == 0;
}

int main(void)
{
	int null = open("/dev/null", O_RDWR), other = dup(null);
	void *memory = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	/* What was on the stack: somebody else's. */
	const struct cpupeek_sampling garbage = { other, SIZE,
						  (struct cpupeek_map *)memory };
	struct cpupeek_sampling s = garbage;
	struct cpupeek_op op = cpupeek_msr(0, 0x10);
	void *map;
	int fd;

	expect(null >= 0 && other >= 0 && memory != MAP_FAILED, "no test");
	expect(cpupeek_sample(&s, null, &op, 1, 10000000, 0, 0) == -ENOTTY,
	       "/dev/null is no device");
	cpupeek_sample_end(&s);
	expect(is_open(other), "a failure closes another descriptor");
	expect(is_mapped(memory), "a failure unmaps other memory");

	s = garbage;
	expect(cpupeek_sample_map(&s, null, SIZE) < 0, "/dev/null is mapped");
	cpupeek_sample_end(&s);
	expect(is_open(null), "a descriptor that was not taken is closed");
	expect(is_open(other) && is_mapped(memory), "and others too");

	fd = memfd_create("sampler", 0);
	expect(fd >= 0 && !ftruncate(fd, SIZE), "no memory");
	expect(!cpupeek_sample_map(&s, fd, SIZE), "memory is not mapped");
	map = (void *)(unsigned long)s.map;
	cpupeek_sample_end(&s);
	expect(!is_open(fd) && !is_mapped(map), "it does not end");
	/* Both are given to somebody else. */
	expect(dup2(null, fd) == fd &&
	       mmap(map, SIZE, PROT_READ,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == map,
	       "they cannot be reused");
	cpupeek_sample_end(&s);
	expect(is_open(fd) && is_mapped(map), "it ends twice");

	cpupeek_plan_unmap(NULL, 1);
	puts("ended");
	return 0;
}
