// SPDX-License-Identifier: GPL-2.0
/*
 * Compares three ways to ask a steal-time record whether its virtual CPU is
 * preempted: in Rust, in C, and as the kernel does; and the record's steal time
 * with what the kernel has accounted. For test guests only.
 *
 * /sys/kernel/debug/cpupeek_steal, each time that it is read:
 *
 *   copy VALUES MISMATCHES
 *	all values of the byte, on a copy: Rust, C and the kernel's instructions.
 *	The live record is never written, since the kernel has the host flush
 *	the TLBs of preempted CPUs through it.
 *   cpu CPU COMPARED MISMATCHES PREEMPTED RECORD_NS KERNEL_NS
 *	for each CPU with a record: how often Rust and vcpu_is_preempted() were
 *	compared on the live one while it did not change, with how many
 *	differences, and how often both said that it is preempted; its steal
 *	time, and what the kernel has accounted a moment before.
 *   invalid COUNT
 *	CPUs whose register has no address of memory
 */

#include <linux/build_bug.h>
#include <linux/cpu.h>
#include <linux/debugfs.h>
#include <linux/io.h>
#include <linux/kernel_stat.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <asm/kvm_para.h>
#include <asm/msr.h>

#include "steal.h"

#define SAMPLES 2000

/* steal_predicate.rs holds its own definition against the same numbers. */
static_assert(offsetof(struct kvm_steal_time, steal) == 0);
static_assert(offsetof(struct kvm_steal_time, version) == 8);
static_assert(offsetof(struct kvm_steal_time, flags) == 12);
static_assert(offsetof(struct kvm_steal_time, preempted) == 16);
static_assert(sizeof_field(struct kvm_steal_time, preempted) == 1);
static_assert(sizeof(struct kvm_steal_time) == 64);
static_assert(KVM_VCPU_PREEMPTED == 1 << 0);

static bool c_is_preempted(const struct kvm_steal_time *record)
{
	return READ_ONCE(record->preempted) & KVM_VCPU_PREEMPTED;
}

/* The instructions of the kernel's function, on any record. */
static bool kernels_is_preempted(const struct kvm_steal_time *record)
{
	bool preempted;

	asm volatile("cmpb $0, %c[at](%[record])\n\t"
		     "setne %[preempted]"
		     : [preempted] "=q" (preempted)
		     : [record] "r" (record),
		       [at] "i" (offsetof(struct kvm_steal_time, preempted))
		     : "cc", "memory");
	return preempted;
}

static void compare_copy(struct seq_file *file)
{
	/* What the host writes, and what the kernel adds to the first. */
	const u8 known = KVM_VCPU_PREEMPTED | KVM_VCPU_FLUSH_TLB;
	struct kvm_steal_time copy;
	unsigned int value, mismatches = 0;

	for (value = 0; value < 256; value++) {
		bool rust;

		/* All other bytes say the contrary. */
		memset(&copy, value & KVM_VCPU_PREEMPTED ? 0 : 0xff, sizeof(copy));
		copy.preempted = value;
		rust = cpupeek_rust_is_preempted(&copy);
		mismatches += rust != c_is_preempted(&copy);
		mismatches += rust != (value & 1);
		/* The kernel's takes any bit for an answer, and there are no others. */
		if (!(value & ~known) && value != KVM_VCPU_FLUSH_TLB)
			mismatches += rust != kernels_is_preempted(&copy);
	}
	seq_printf(file, "copy %u %u\n", value, mismatches);
}

static const struct kvm_steal_time *find_record(unsigned int cpu, unsigned int *invalid)
{
	phys_addr_t address;
	u64 value;

	if (rdmsrq_safe_on_cpu(cpu, MSR_KVM_STEAL_TIME, &value) ||
	    !(value & KVM_MSR_ENABLED))
		return NULL;
	address = value & KVM_STEAL_VALID_BITS;
	if (!pfn_valid(PHYS_PFN(address)) || !page_is_ram(PHYS_PFN(address))) {
		*invalid += 1;
		return NULL;
	}
	return phys_to_virt(address);
}

static u64 steal(const struct kvm_steal_time *record)
{
	u32 version;
	u64 ns;

	do {
		version = READ_ONCE(record->version);
		virt_rmb(); /* The host makes it odd before it writes... */
		ns = READ_ONCE(record->steal);
		virt_rmb(); /* ... and even again afterwards. */
	} while ((version & 1) || version != READ_ONCE(record->version));
	return ns;
}

static void compare_live(struct seq_file *file, unsigned int cpu,
			 const struct kvm_steal_time *record)
{
	unsigned int i, compared = 0, mismatches = 0, preempted = 0;
	u64 accounted;

	for (i = 0; i < SAMPLES; i++) {
		/* A CPU that has run in between has another version. */
		u32 version = READ_ONCE(record->version);
		u8 before = READ_ONCE(record->preempted);
		bool rust, kernel;

		virt_rmb(); /* What is compared, between two looks at both... */
		rust = cpupeek_rust_is_preempted(record);
		kernel = vcpu_is_preempted(cpu);
		virt_rmb(); /* ... which are the same if nothing has changed. */
		if (READ_ONCE(record->preempted) != before ||
		    READ_ONCE(record->version) != version)
			continue;
		compared++;
		mismatches += rust != kernel || rust != (before & 1);
		preempted += rust && kernel;
		cond_resched();
	}
	accounted = READ_ONCE(kcpustat_cpu(cpu).cpustat[CPUTIME_STEAL]);
	seq_printf(file, "cpu %u %u %u %u %llu %llu\n", cpu, compared,
		   mismatches, preempted, steal(record), accounted);
}

static int cpupeek_steal_show(struct seq_file *file, void *unused)
{
	unsigned int cpu, invalid = 0;

	compare_copy(file);
	guard(cpus_read_lock)();
	for_each_online_cpu(cpu) {
		const struct kvm_steal_time *record = find_record(cpu, &invalid);

		if (record)
			compare_live(file, cpu, record);
	}
	seq_printf(file, "invalid %u\n", invalid);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(cpupeek_steal);

static struct dentry *dentry;

static int __init cpupeek_steal_init(void)
{
	dentry = debugfs_create_file("cpupeek_steal", 0400, NULL, NULL,
				     &cpupeek_steal_fops);
	return PTR_ERR_OR_ZERO(dentry);
}
module_init(cpupeek_steal_init);

static void __exit cpupeek_steal_exit(void)
{
	debugfs_remove(dentry);
}
module_exit(cpupeek_steal_exit);

MODULE_DESCRIPTION("Compare ways to read steal-time records, for tests of cpupeek");
MODULE_LICENSE("GPL");
