/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Samples registers of every CPU through the C client, in a guest; built for 32
 * and 64 bits. TSC_AUX is the witness: Linux keeps the CPU's own number in it.
 */
#include <cpupeek.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>

#define TSC_AUX 0xc0000103U
#define MAX_CPUS 64
#define MS 1000000ULL
#define RING 512

static int failures;

static void report(int good, const char *name)
{
	printf("%s C client, %u bits: %s\n", good ? "ok" : "not ok",
	       (unsigned int)sizeof(void *) * 8, name);
	failures += !good;
}

static void pause_ms(long ms)
{
	struct timespec time = { 0, ms * 1000000 };

	nanosleep(&time, NULL);
}

/* A sample of CPU @cpu: its number, and CPUID leaf 0. */
static int is_right(const struct cpupeek_slot *header,
		    const struct cpupeek_result *results, __u32 cpu)
{
	return header->status == 0 && header->cpu == cpu &&
	       header->nr_results == 2 && header->seq % 2 == 0 &&
	       results[0].status == 0 && results[0].cpu == cpu &&
	       results[0].value == cpu && results[0].tsc >= header->tsc &&
	       results[1].status == 0 && results[1].tsc >= results[0].tsc &&
	       results[1].ebx != 0;
}

static void test_latest(const struct cpupeek_sampling *s, __u32 nr_cpus)
{
	struct cpupeek_result results[2];
	struct cpupeek_slot header;
	__u64 value, number;
	int good = 1, i;
	__u32 cpu;

	for (i = 0; i < 2000; i++) {
		for (cpu = 0; cpu < nr_cpus; cpu++) {
			const struct cpupeek_slot *slot = cpupeek_latest(s, cpu);

			good &= cpupeek_slot_read(slot, &header, results, 9) == 0 &&
				is_right(&header, results, cpu);
			good &= cpupeek_slot_value(slot, 0, &value, &number) == 0 &&
				value == cpu && number >= header.number;
		}
	}
	report(good, "latest samples");
	report(cpupeek_latest_of(s, nr_cpus - 1) == cpupeek_latest(s, nr_cpus - 1) &&
	       !cpupeek_latest_of(s, 4000), "slot of a CPU");
	report(cpupeek_slot_value(cpupeek_latest(s, 0), 2, &value, NULL) == -EINVAL,
	       "value of a register that is not sampled");
}

static void test_past(const struct cpupeek_sampling *s)
{
	struct cpupeek_result results[2];
	struct cpupeek_slot header;
	__u64 last = 0, number, value, tsc = 0;
	int good = 1;

	while (last < 100) {
		pause_ms(1);
		cpupeek_slot_value(cpupeek_latest(s, 0), 0, &value, &last);
	}
	for (number = 1; number <= 100; number++) {
		cpupeek_slot_read(cpupeek_past(s, 0, number), &header, results, 2);
		good &= (header.number == number || header.number == number + RING) &&
			is_right(&header, results, 0) && header.tsc > tsc;
		tsc = header.tsc;
	}
	report(good, "past samples, each of them");
}

static void test_events(const struct cpupeek_sampling *s)
{
	struct pollfd poll_fd;
	__u64 count = 0;

	poll_fd.fd = s->fd;
	poll_fd.events = POLLIN;
	report(poll(&poll_fd, 1, 30000) == 1 &&
	       read(s->fd, &count, sizeof(count)) == sizeof(count) && count > 0,
	       "poll() and read()");
	report(ioctl(s->fd, CPUPEEK_IOC_STOP, 0) == 0 &&
	       cpupeek_slot_value(cpupeek_latest(s, 0), 0, &count, NULL) == -ECANCELED &&
	       count == 0, "STOP");
}

int main(void)
{
	static struct cpupeek_op ops[2 * MAX_CPUS];
	struct cpupeek_sampling s;
	long online = sysconf(_SC_NPROCESSORS_ONLN);
	__u32 nr_cpus = online < MAX_CPUS ? (__u32)online : MAX_CPUS;
	__u32 cpu;
	int device, error;

	setvbuf(stdout, NULL, _IOLBF, 0);
	device = open(CPUPEEK_DEVICE, O_RDONLY | O_CLOEXEC);
	if (device < 0) {
		perror(CPUPEEK_DEVICE);
		return 1;
	}
	for (cpu = 0; cpu < nr_cpus; cpu++) {
		ops[2 * cpu] = cpupeek_msr(cpu, TSC_AUX);
		ops[2 * cpu + 1] = cpupeek_cpuid(cpu, 0, 0);
	}
	error = cpupeek_sample(&s, device, ops, 2 * nr_cpus, MS - 1,
			       CPUPEEK_SAMPLER_EXACT, RING);
	report(error == -EINVAL, "an interval that is too short");
	error = cpupeek_sample(&s, device, ops, 2 * nr_cpus, MS,
			       CPUPEEK_SAMPLER_EXACT, RING);
	report(error == 0, "a sampler");
	if (error)
		return 1;
	test_latest(&s, nr_cpus);
	test_past(&s);
	test_events(&s);
	cpupeek_sample_end(&s);
	close(device);
	return failures != 0;
}
