// SPDX-License-Identifier: GPL-2.0
/*
 * Holds the interrupts of chosen CPUs off, so that tests can see what a caller
 * does while its target does not answer. For test guests only.
 *
 * /sys/kernel/debug/cpupeek_hold/control, one command per write:
 *
 *   start CPU HOLD_US PAUSE_US   again and again for HOLD_US, PAUSE_US apart
 *   hold CPU                     until told otherwise
 *   stop                         all of them, and wait until they have
 *
 * No stretch is longer than the module parameter limit_ms, whatever was asked
 * for and whoever forgot to stop it.
 *
 * /sys/kernel/debug/cpupeek_hold/state, one line per CPU that was told to hold:
 *
 *   CPU HOLDING STRETCHES        HOLDING is 1 while its interrupts are off
 *
 * /sys/kernel/debug/cpupeek_hold/expired: how often "hold" has come to that limit
 */

#include <linux/atomic.h>
#include <linux/cpu.h>
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/nmi.h>
#include <linux/percpu.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>
#include <asm/tsc.h>

#define LIMIT_MS	10000U

static uint limit_ms = LIMIT_MS;
module_param(limit_ms, uint, 0444);
MODULE_PARM_DESC(limit_ms, "Longest stretch with interrupts off, 1 to 10000 ms (default 10000)");

struct hold {
	struct task_struct *task;
	cycles_t cycles;
	unsigned int pause_us;
	unsigned int cpu;
	bool once;
	bool stop;
	bool holding;
	u64 stretches;
};

static DEFINE_PER_CPU(struct hold, holds);
static atomic_t expired = ATOMIC_INIT(0);
/* Protects the tasks, and what is set while a CPU has none. */
static DEFINE_MUTEX(control_lock);

/* Returns false if this is not the CPU that was meant: that one is offline. */
static bool hold_once(struct hold *hold)
{
	unsigned long flags;
	bool right;
	cycles_t start;

	local_irq_save(flags);
	right = smp_processor_id() == hold->cpu;
	if (right) {
		/* Not a clock: the kernel may be changing it, and waiting for us. */
		start = get_cycles();
		WRITE_ONCE(hold->holding, true);
		while (!READ_ONCE(hold->stop) && get_cycles() - start < hold->cycles)
			cpu_relax();
		touch_nmi_watchdog();
		if (hold->once && !READ_ONCE(hold->stop))
			atomic_inc(&expired);
		WRITE_ONCE(hold->stretches, hold->stretches + 1);
		WRITE_ONCE(hold->holding, false);
	}
	local_irq_restore(flags);
	return right;
}

static int hold_thread(void *data)
{
	struct hold *hold = data;

	while (!kthread_should_stop() && hold_once(hold) && !hold->once)
		usleep_range(hold->pause_us, hold->pause_us + 10);

	/* Whoever stops this thread expects to find it. */
	set_current_state(TASK_INTERRUPTIBLE);
	while (!kthread_should_stop()) {
		schedule();
		set_current_state(TASK_INTERRUPTIBLE);
	}
	__set_current_state(TASK_RUNNING);
	return 0;
}

static void stop_all(void)
{
	unsigned int cpu;

	lockdep_assert_held(&control_lock);
	for_each_possible_cpu(cpu)
		WRITE_ONCE(per_cpu(holds, cpu).stop, true);
	for_each_possible_cpu(cpu) {
		struct hold *hold = per_cpu_ptr(&holds, cpu);

		if (hold->task)
			kthread_stop(hold->task);
		hold->task = NULL;
	}
}

static int start(unsigned int cpu, u64 hold_us, unsigned int pause_us, bool once)
{
	struct task_struct *task;
	struct hold *hold;

	lockdep_assert_held(&control_lock);
	if (cpu >= nr_cpu_ids || !cpu_online(cpu))
		return -ENXIO;
	hold = per_cpu_ptr(&holds, cpu);
	if (hold->task)
		return -EBUSY;

	*hold = (struct hold){
		.cycles = min(hold_us, limit_ms * 1000ULL) * tsc_khz / 1000,
		.pause_us = pause_us,
		.cpu = cpu,
		.once = once,
		.stretches = hold->stretches,
	};
	task = kthread_create(hold_thread, hold, "cpupeek_hold/%u", cpu);
	if (IS_ERR(task))
		return PTR_ERR(task);
	kthread_bind(task, cpu);
	hold->task = task;
	wake_up_process(task);
	return 0;
}

static int command(const char *text)
{
	unsigned int cpu, hold_us, pause_us;
	int end = 0;

	if (sscanf(text, "start %u %u %u %n", &cpu, &hold_us, &pause_us, &end) == 3 && !text[end])
		return start(cpu, hold_us, pause_us, false);
	end = 0;
	if (sscanf(text, "hold %u %n", &cpu, &end) == 1 && !text[end])
		return start(cpu, U64_MAX, 0, true);
	if (sysfs_streq(text, "stop")) {
		stop_all();
		return 0;
	}
	return -EINVAL;
}

static ssize_t control_write(struct file *file, const char __user *buf,
			     size_t count, loff_t *pos)
{
	char text[64];
	int ret;

	if (count >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, buf, count))
		return -EFAULT;
	text[count] = '\0';

	mutex_lock(&control_lock);
	ret = command(text);
	mutex_unlock(&control_lock);
	return ret ?: count;
}

static const struct file_operations control_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = control_write,
};

static int state_show(struct seq_file *file, void *unused)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu) {
		const struct hold *hold = per_cpu_ptr(&holds, cpu);

		if (READ_ONCE(hold->task))
			seq_printf(file, "%u %d %llu\n", cpu, READ_ONCE(hold->holding),
				   READ_ONCE(hold->stretches));
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(state);

static struct dentry *directory;

static int __init hold_init(void)
{
	if (limit_ms < 1 || limit_ms > LIMIT_MS) {
		pr_err("limit_ms=%u is out of range, use 1 to %u\n", limit_ms, LIMIT_MS);
		return -EINVAL;
	}
	if (!tsc_khz) {
		pr_err("the rate of the time stamp counter is unknown\n");
		return -ENODEV;
	}
	directory = debugfs_create_dir("cpupeek_hold", NULL);
	debugfs_create_file("control", 0200, directory, NULL, &control_fops);
	debugfs_create_file("state", 0400, directory, NULL, &state_fops);
	debugfs_create_atomic_t("expired", 0400, directory, &expired);
	return 0;
}

static void __exit hold_exit(void)
{
	debugfs_remove(directory);
	mutex_lock(&control_lock);
	stop_all();
	mutex_unlock(&control_lock);
}

module_init(hold_init);
module_exit(hold_exit);

MODULE_DESCRIPTION("Hold interrupts off on chosen CPUs (for tests)");
MODULE_AUTHOR("The cpupeek developers");
MODULE_LICENSE("GPL");
