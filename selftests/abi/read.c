/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Uses every command of the ABI from C, in a guest; built for 32 and 64 bits.
 * TSC_AUX is the witness: Linux keeps the CPU's own number in it.
 */
#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/cpupeek.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define TSC_AUX 0xc0000103U
#define MAX_CPUS 64
#define POISON 0xcc
#define FEATURES (CPUPEEK_FEATURE_READ | CPUPEEK_FEATURE_BATCH | CPUPEEK_FEATURE_PLAN | \
		  CPUPEEK_FEATURE_SAMPLER)

static int device;
static int failures;
static struct cpupeek_info info;

static void report(int good, const char *name)
{
	printf("%s C, %u bits: %s\n", good ? "ok" : "not ok",
	       (unsigned int)sizeof(void *) * 8, name);
	failures += !good;
}

/* An operation whose every field that the module fills is poisoned. */
static void ask(struct cpupeek_op *op, __u32 cpu, __u16 kind, __u32 reg)
{
	memset(op, POISON, sizeof(*op));
	op->cpu = cpu;
	op->kind = kind;
	op->flags = 0;
	op->reg = reg;
	op->subleaf = 0;
	op->reserved = 0;
}

static int is_number_of_cpu(const struct cpupeek_op *op, __u32 cpu)
{
	return op->status == 0 && op->cpu == cpu && op->value == cpu &&
	       op->eax == cpu && op->ebx == 0 && op->ecx == 0 && op->edx == 0;
}

static int is_leaf_0(const struct cpupeek_op *op)
{
	__u32 eax, ebx, ecx, edx;

	__cpuid(0, eax, ebx, ecx, edx);
	return op->status == 0 && op->eax == eax && op->ebx == ebx &&
	       op->ecx == ecx && op->edx == edx;
}

/* Results of what ask_both() asked for. */
static int are_right(const struct cpupeek_result *results)
{
	int good = 1;
	__u32 cpu, eax, ebx, ecx, edx;

	__cpuid(0, eax, ebx, ecx, edx);
	for (cpu = 0; cpu < info.nr_cpu_ids; cpu++) {
		const struct cpupeek_result *msr = &results[2 * cpu];
		const struct cpupeek_result *leaf = &results[2 * cpu + 1];

		good &= msr->status == 0 && msr->cpu == cpu &&
			msr->value == cpu && msr->eax == cpu &&
			msr->ecx == 0 && msr->edx == 0 && leaf->status == 0 &&
			leaf->cpu == cpu && leaf->eax == eax &&
			leaf->ebx == ebx && leaf->ecx == ecx && leaf->edx == edx;
	}
	return good;
}

static void test_info(void)
{
	memset(&info, POISON, sizeof(info));
	report(ioctl(device, CPUPEEK_IOC_INFO, &info) == 0 &&
	       info.size == sizeof(info) && info.reserved == 0 &&
	       (info.features & FEATURES) == FEATURES &&
	       info.nr_cpu_ids > 0 && info.nr_cpu_ids <= MAX_CPUS &&
	       info.tsc_stable <= 1, "INFO");
}

static void test_read(void)
{
	struct cpupeek_op op;
	int good = 1;
	__u32 cpu;

	for (cpu = 0; cpu < info.nr_cpu_ids; cpu++) {
		ask(&op, cpu, CPUPEEK_MSR, TSC_AUX);
		good &= ioctl(device, CPUPEEK_IOC_READ, &op) == 0 &&
			is_number_of_cpu(&op, cpu);
	}
	report(good, "READ of an MSR of each CPU");

	ask(&op, 0, CPUPEEK_CPUID, 0);
	report(ioctl(device, CPUPEEK_IOC_READ, &op) == 0 && is_leaf_0(&op),
	       "READ of a CPUID leaf");

	ask(&op, info.nr_cpu_ids, CPUPEEK_MSR, TSC_AUX);
	report(ioctl(device, CPUPEEK_IOC_READ, &op) == 0 &&
	       op.status == -ENXIO && op.value == 0 && op.tsc == 0 &&
	       op.ecx == 0 && op.edx == 0, "READ of a CPU that is not there");

	report(ioctl(device, CPUPEEK_IOC_READ, NULL) == -1 && errno == EFAULT,
	       "READ into nothing");
}

/* Two registers of each CPU. */
static void ask_both(struct cpupeek_op *ops)
{
	__u32 cpu;

	for (cpu = 0; cpu < info.nr_cpu_ids; cpu++) {
		ask(&ops[2 * cpu], cpu, CPUPEEK_MSR, TSC_AUX);
		ask(&ops[2 * cpu + 1], cpu, CPUPEEK_CPUID, 0);
	}
}

static void prepare(struct cpupeek_batch *batch, struct cpupeek_op *ops)
{
	memset(batch, 0, sizeof(*batch));
	batch->size = sizeof(*batch);
	batch->nr_ops = 2 * info.nr_cpu_ids;
	batch->op_size = sizeof(*ops);
	batch->ops = (__u64)(unsigned long)ops;
}

static void test_batch(void)
{
	static struct cpupeek_op ops[2 * MAX_CPUS];
	struct cpupeek_batch batch;
	int good;
	__u32 cpu;

	ask_both(ops);
	prepare(&batch, ops);
	good = ioctl(device, CPUPEEK_IOC_BATCH, &batch) == 0;
	for (cpu = 0; cpu < info.nr_cpu_ids; cpu++)
		good &= is_number_of_cpu(&ops[2 * cpu], cpu) &&
			is_leaf_0(&ops[2 * cpu + 1]);
	report(good, "BATCH of two registers of each CPU");

	/* All 64 bits of the address count, also from a 32-bit caller. */
	prepare(&batch, ops);
	batch.ops |= (__u64)1 << 63;
	report(ioctl(device, CPUPEEK_IOC_BATCH, &batch) == -1 &&
	       errno == EFAULT, "BATCH at an address beyond user space");
}

static void test_plan(void)
{
	static struct cpupeek_op ops[2 * MAX_CPUS];
	static struct cpupeek_result results[2 * MAX_CPUS];
	struct cpupeek_prepare prepare;
	struct cpupeek_run run;
	void *mapped;

	ask_both(ops);
	memset(&prepare, 0, sizeof(prepare));
	prepare.size = sizeof(prepare);
	prepare.nr_ops = 2 * info.nr_cpu_ids;
	prepare.op_size = sizeof(*ops);
	prepare.ops = (__u64)(unsigned long)ops;
	prepare.fd = -1;
	report(ioctl(device, CPUPEEK_IOC_PREPARE, &prepare) == 0 &&
	       prepare.fd > device, "PREPARE");

	memset(results, POISON, sizeof(results));
	memset(&run, 0, sizeof(run));
	run.size = sizeof(run);
	run.nr_results = prepare.nr_ops;
	run.results = (__u64)(unsigned long)results;
	report(ioctl(prepare.fd, CPUPEEK_IOC_RUN, &run) == 0 &&
	       are_right(results), "RUN");

	run.results |= (__u64)1 << 63;
	report(ioctl(prepare.fd, CPUPEEK_IOC_RUN, &run) == -1 &&
	       errno == EFAULT, "RUN with results beyond user space");

	mapped = mmap(NULL, prepare.nr_ops * sizeof(*results), PROT_READ,
		      MAP_SHARED, prepare.fd, 0);
	run.flags = CPUPEEK_RUN_MAPPED;
	run.nr_results = 0;
	run.results = 0;
	report(mapped != MAP_FAILED &&
	       ioctl(prepare.fd, CPUPEEK_IOC_RUN, &run) == 0 &&
	       are_right((const struct cpupeek_result *)mapped),
	       "RUN with mapped results");
	close(prepare.fd);
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	device = open(CPUPEEK_DEVICE, O_RDONLY | O_CLOEXEC);
	if (device < 0) {
		perror(CPUPEEK_DEVICE);
		return 1;
	}
	test_info();
	if (failures)
		return 1;
	test_read();
	test_batch();
	test_plan();
	return failures != 0;
}
