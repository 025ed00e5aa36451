// SPDX-License-Identifier: GPL-2.0
/*
 * What is inline or a macro in the kernel's headers, as functions that Rust can
 * call. bindgen reads this file; nothing else does. In about alphabetical order.
 */

/* First: uniprocessor kernels have a macro named like one of its fields. */
#include <linux/cpupeek.h>

#include <linux/anon_inodes.h>
#include <linux/cdev.h>
#include <linux/completion.h>
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/cpumask.h>
#include <linux/cred.h>
#include <linux/device.h>
#include <linux/hardirq.h>
#include <linux/hrtimer.h>
#if __has_include("linux/hrtimer_bases.h")
#include <linux/hrtimer_bases.h>
#endif
#include <linux/irq_work.h>
#include <linux/kernel_stat.h>
#include <linux/preempt.h>
#include <linux/poll.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/isolation.h>
#include <linux/sched/signal.h>
#include <linux/smp.h>
#include <linux/swait.h>
#include <linux/sysfs.h>
#include <linux/timer.h>
#include <linux/topology.h>
#include <linux/uaccess.h>
#include <linux/user_namespace.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <asm/cpufeature.h>
#include <asm/cpuid/api.h>
#include <asm/msr.h>
#include <asm/tsc.h>

int cpupeek_helper_add_cpu_group(u32 cpu, const struct attribute_group *group)
{
	struct device *dev = get_cpu_device(cpu);

	return dev ? sysfs_create_group(&dev->kobj, group) : -ENODEV;
}

struct workqueue_struct *cpupeek_helper_alloc_workqueue(void)
{
	return alloc_workqueue("cpupeek", WQ_UNBOUND, 0);
}

struct file *
cpupeek_helper_anon_inode_getfile(const char *name,
				  const struct file_operations *fops,
				  void *priv, int flags)
{
	return anon_inode_getfile(name, fops, priv, flags);
}

/*
 * Who owns the outermost of the current task's user namespaces, or its own user
 * if it is in none: an owner of subordinate ids has one account, not one for
 * each of them. Those that root owns are of as many containers, and have one
 * each, above what user ids can be.
 */
u64 cpupeek_helper_account(void)
{
	const struct user_namespace *outermost = NULL;
	const struct user_namespace *ns;

	for (ns = current_user_ns(); ns != &init_user_ns; ns = ns->parent)
		outermost = ns;
	if (!outermost)
		return from_kuid(&init_user_ns, current_euid());
	if (uid_eq(outermost->owner, GLOBAL_ROOT_UID))
		return BIT_ULL(32) | outermost->ns.inum;
	return from_kuid(&init_user_ns, outermost->owner);
}

bool cpupeek_helper_are_cpus_isolated(void)
{
	return housekeeping_enabled(HK_TYPE_DOMAIN) ||
	       housekeeping_enabled(HK_TYPE_KERNEL_NOISE);
}

/*
 * The number of the interrupt by another CPU's call that this CPU is in, or 0 if
 * it is in none: an idle CPU also looks for calls by itself.
 */
u64 cpupeek_helper_call_interrupt(void)
{
#ifdef CONFIG_SMP
	if (in_hardirq())
		return BIT_ULL(32) |
		       __this_cpu_read(irq_stat.counts[IRQ_COUNT_CALL_FUNCTION]);
#endif
	return 0;
}

void cpupeek_helper_cond_resched(void)
{
	cond_resched();
}

/* Returns the state, or a negative errno. */
int cpupeek_helper_cpuhp_add(int (*startup)(unsigned int cpu,
					    struct hlist_node *node),
			     int (*teardown)(unsigned int cpu,
					     struct hlist_node *node),
			     struct hlist_node *node)
{
	int state, ret;

	state = cpuhp_setup_state_multi(CPUHP_AP_ONLINE_DYN, "cpupeek:online",
					startup, teardown);
	if (state < 0)
		return state;
	ret = cpuhp_state_add_instance(state, node);
	if (!ret)
		return state;
	cpuhp_remove_multi_state(state);
	return ret;
}

void cpupeek_helper_cpuhp_remove(int state, struct hlist_node *node)
{
	cpuhp_state_remove_instance(state, node);
	cpuhp_remove_multi_state(state);
}

void cpupeek_helper_cpuid_count(u32 leaf, u32 subleaf, u32 *eax, u32 *ebx,
				u32 *ecx, u32 *edx)
{
	cpuid_count(leaf, subleaf, eax, ebx, ecx, edx);
}

/*
 * The online check is for uniprocessor kernels, whose call ignores the CPU's
 * number. *local says whether the call needed no interrupt.
 */
int cpupeek_helper_csd_call(u32 cpu, call_single_data_t *csd, bool *local)
{
	int ret;

	*local = false;
	if (cpu >= nr_cpu_ids || !cpu_online(cpu))
		return -ENXIO;

	preempt_disable();
	*local = cpu == smp_processor_id();
	ret = smp_call_function_single_async(cpu, csd);
	preempt_enable();
	return ret;
}

#ifdef CONFIG_PREEMPT_NOTIFIERS
/* The calling task's notifier with these callbacks, if it has one. */
struct preempt_notifier *
cpupeek_helper_find_preempt_notifier(const struct preempt_ops *ops)
{
	struct preempt_notifier *notifier;

	hlist_for_each_entry(notifier, &current->preempt_notifiers, link) {
		if (notifier->ops == ops)
			return notifier;
	}
	return NULL;
}
#endif

bool cpupeek_helper_fatal_signal_pending(void)
{
	return fatal_signal_pending(current);
}

/*
 * Operations from user space, word by word: a rep movs for each costs more. User
 * memory is open for some operations at a time.
 */
int cpupeek_helper_get_ops(struct cpupeek_op *to, const void __user *from,
			   size_t count, size_t stride)
{
	size_t i, end;

	static_assert(sizeof(*to) == 6 * sizeof(u64));

	for (i = 0; i < count; i = end) {
		end = min(count, i + 64);
		if (!user_read_access_begin(from + i * stride,
					    (end - i - 1) * stride + sizeof(*to)))
			return -EFAULT;
		for (; i < end; i++) {
			const u64 __user *src = from + i * stride;
			u64 *dst = (u64 *)&to[i];

			unsafe_get_user(dst[0], &src[0], efault);
			unsafe_get_user(dst[1], &src[1], efault);
			unsafe_get_user(dst[2], &src[2], efault);
			unsafe_get_user(dst[3], &src[3], efault);
			unsafe_get_user(dst[4], &src[4], efault);
			unsafe_get_user(dst[5], &src[5], efault);
		}
		user_read_access_end();
	}
	return 0;

efault:
	user_read_access_end();
	return -EFAULT;
}

u32 cpupeek_helper_iminor(const struct inode *inode)
{
	return iminor(inode);
}

/* With a barrier, so that who has just begun to wait is seen. */
bool cpupeek_helper_has_waiters(struct wait_queue_head *wq)
{
	return wq_has_sleeper(wq);
}

/*
 * A number that is the same for all timers which expire in one interrupt, and
 * another one in the next. For the function of the timer, on its CPU.
 */
u64 cpupeek_helper_hrtimer_interrupt(const struct hrtimer *timer)
{
#ifdef CONFIG_HIGH_RES_TIMERS
	const struct hrtimer_cpu_base *base = timer->base->cpu_base;

	if (base->hres_active)
		return BIT_ULL(63) | base->nr_events;
#endif
	return get_jiffies_64();
}

u64 cpupeek_helper_jiffies(void)
{
	return get_jiffies_64();
}

void cpupeek_helper_hrtimer_set_expires(struct hrtimer *timer, ktime_t time)
{
	hrtimer_set_expires(timer, time);
}

void cpupeek_helper_hrtimer_setup(struct hrtimer *timer,
				  enum hrtimer_restart (*func)(struct hrtimer *))
{
	hrtimer_setup(timer, func, CLOCK_MONOTONIC,
		      HRTIMER_MODE_ABS_PINNED_HARD);
}

void cpupeek_helper_hrtimer_start(struct hrtimer *timer, ktime_t time)
{
	hrtimer_start(timer, time, HRTIMER_MODE_ABS_PINNED_HARD);
}

void cpupeek_helper_init_delayed_work(struct delayed_work *work,
				      work_func_t func)
{
	INIT_DELAYED_WORK(work, func);
}

struct attribute *
cpupeek_helper_init_device_attribute(struct device_attribute *attribute,
				     const char *name, umode_t mode,
				     ssize_t (*show)(struct device *dev,
						     struct device_attribute *attr,
						     char *buf),
				     ssize_t (*store)(struct device *dev,
						      struct device_attribute *attr,
						      const char *buf, size_t count))
{
	*attribute = (struct device_attribute){
		.attr = { .name = name, .mode = mode },
		.show = show,
		.store = store,
	};
	sysfs_attr_init(&attribute->attr);
	return &attribute->attr;
}

void cpupeek_helper_init_group(struct attribute_group *group, const char *name,
			       struct attribute **attributes)
{
	*group = (struct attribute_group){ .name = name, .attrs = attributes };
}

void cpupeek_helper_init_csd(call_single_data_t *csd, smp_call_func_t func,
			     void *info)
{
	INIT_CSD(csd, func, info);
}

struct cdev *cpupeek_helper_inode_cdev(const struct inode *inode)
{
	return inode->i_cdev;
}

#ifdef CONFIG_PREEMPT_NOTIFIERS
/*
 * Runs in a hard interrupt on PREEMPT_RT too, since irq_work_sync() waits for
 * others by what may be freed.
 */
void cpupeek_helper_init_hard_irq_work(struct irq_work *work,
				       void (*func)(struct irq_work *work))
{
	*work = IRQ_WORK_INIT_HARD(func);
}

/* Whether the calling task has been scheduled for the last time. */
bool cpupeek_helper_is_current_dead(void)
{
	return READ_ONCE(current->__state) == TASK_DEAD;
}
#endif

void cpupeek_helper_init_irq_work(struct irq_work *work,
				  void (*func)(struct irq_work *))
{
	init_irq_work(work, func);
}

/* The masks may be replaced while somebody looks at them. */
bool cpupeek_helper_is_isolated(u32 cpu)
{
	if (!cpupeek_helper_are_cpus_isolated() || cpu >= nr_cpu_ids)
		return false;
	guard(rcu)();
	return !housekeeping_test_cpu(cpu, HK_TYPE_DOMAIN) ||
	       !housekeeping_test_cpu(cpu, HK_TYPE_KERNEL_NOISE);
}

bool cpupeek_helper_is_online(u32 cpu)
{
	return cpu < nr_cpu_ids && cpu_online(cpu);
}

/* need_resched() alone does not see the lazy kind. */
bool cpupeek_helper_is_resched_wanted(void)
{
	return need_resched() || test_thread_flag(TIF_NEED_RESCHED_LAZY);
}

void cpupeek_helper_local_irq_restore(unsigned long flags)
{
	local_irq_restore(flags);
}

/* @cpu is the CPU that the caller is on until interrupts are restored. */
unsigned long cpupeek_helper_local_irq_save(u32 *cpu)
{
	unsigned long flags;

	local_irq_save(flags);
	*cpu = raw_smp_processor_id();
	return flags;
}

bool cpupeek_helper_may_run_on(u32 cpu)
{
	return cpu < nr_cpu_ids && cpumask_test_cpu(cpu, current->cpus_ptr);
}

#ifdef CONFIG_PREEMPT_NOTIFIERS
/* The list must not change under a switch of the task that changes it. */
void cpupeek_helper_preempt_notifier_register(struct preempt_notifier *notifier)
{
	guard(preempt)();
	preempt_notifier_register(notifier);
}

void cpupeek_helper_preempt_notifier_unregister(struct preempt_notifier *notifier)
{
	guard(preempt)();
	preempt_notifier_unregister(notifier);
}
#endif

void cpupeek_helper_poll_wait(struct file *file, struct wait_queue_head *wq,
			      struct poll_table_struct *table)
{
	poll_wait(file, wq, table);
}

/*
 * Answers to user space, each where its number, in @reserved, says; @size is
 * that of all there may be.
 */
int cpupeek_helper_put_answers(void __user *to, size_t size, size_t stride,
			       const struct cpupeek_op *ops, size_t count)
{
	size_t i, end;

	for (i = 0; i < count; i = end) {
		end = min(count, i + 64);
		if (!user_write_access_begin(to, size))
			return -EFAULT;
		for (; i < end; i++) {
			const struct cpupeek_op *op = &ops[i];
			struct cpupeek_op __user *dst =
				to + op->reserved * stride;

			unsafe_put_user(op->status, &dst->status, efault);
			unsafe_put_user(op->tsc, &dst->tsc, efault);
			unsafe_put_user(op->value, &dst->value, efault);
			unsafe_put_user((u64)op->edx << 32 | op->ecx,
					(u64 __user *)&dst->ecx, efault);
		}
		user_write_access_end();
	}
	return 0;

efault:
	user_write_access_end();
	return -EFAULT;
}

/* The same for a single operation, with the CPU that it was. */
int cpupeek_helper_put_op(struct cpupeek_op __user *to,
			  const struct cpupeek_op *op)
{
	if (!user_write_access_begin(to, sizeof(*to)))
		return -EFAULT;
	unsafe_put_user(op->cpu, &to->cpu, efault);
	unsafe_put_user(op->status, &to->status, efault);
	unsafe_put_user(op->tsc, &to->tsc, efault);
	unsafe_put_user(op->value, &to->value, efault);
	unsafe_put_user((u64)op->edx << 32 | op->ecx, (u64 __user *)&to->ecx,
			efault);
	user_write_access_end();
	return 0;

efault:
	user_write_access_end();
	return -EFAULT;
}

/* The same for a plan's results. */
int cpupeek_helper_put_results(struct cpupeek_result __user *to, size_t size,
			       const struct cpupeek_op *ops, size_t count)
{
	size_t i, end;

	for (i = 0; i < count; i = end) {
		end = min(count, i + 64);
		if (!user_write_access_begin(to, size))
			return -EFAULT;
		for (; i < end; i++) {
			const struct cpupeek_op *op = &ops[i];
			struct cpupeek_result __user *dst = &to[op->reserved];

			unsafe_put_user((u64)op->cpu << 32 | (u32)op->status,
					(u64 __user *)&dst->status, efault);
			unsafe_put_user(op->tsc, &dst->tsc, efault);
			unsafe_put_user(op->value, &dst->value, efault);
			unsafe_put_user((u64)op->edx << 32 | op->ecx,
					(u64 __user *)&dst->ecx, efault);
		}
		user_write_access_end();
	}
	return 0;

efault:
	user_write_access_end();
	return -EFAULT;
}

/* In one store, since other threads may look. */
int cpupeek_helper_put_u32(u32 value, u32 __user *to)
{
	return put_user(value, to);
}

void cpupeek_helper_queue_delayed_work(struct delayed_work *work,
				       unsigned long delay)
{
	queue_delayed_work(system_dfl_wq, work, delay);
}

void cpupeek_helper_queue_work(struct workqueue_struct *wq,
			       struct work_struct *work)
{
	queue_work(wq, work);
}

/* @tsc is the time stamp counter immediately before. */
int cpupeek_helper_rdmsrq_safe(u32 msr, u64 *tsc, u64 *value)
{
	*tsc = rdtsc_ordered();
	return rdmsrq_safe(msr, value);
}

u64 cpupeek_helper_rdtsc(void)
{
	return rdtsc();
}

u64 cpupeek_helper_rdtsc_ordered(void)
{
	return rdtsc_ordered();
}

void cpupeek_helper_remove_cpu_group(u32 cpu,
				     const struct attribute_group *group)
{
	struct device *dev = get_cpu_device(cpu);

	if (dev)
		sysfs_remove_group(&dev->kobj, group);
}

/* Until @end (CLOCK_MONOTONIC), or a fatal signal. */
void cpupeek_helper_sleep_until(ktime_t end)
{
	set_current_state(TASK_KILLABLE);
	if (fatal_signal_pending(current))
		__set_current_state(TASK_RUNNING);
	else
		schedule_hrtimeout_range(&end, 50 * NSEC_PER_USEC,
					 HRTIMER_MODE_ABS_PINNED);
}

u64 cpupeek_helper_steal_ns(u32 cpu)
{
	if (cpu >= nr_cpu_ids || !cpu_possible(cpu))
		return 0;
	return READ_ONCE(kcpustat_cpu(cpu).cpustat[CPUTIME_STEAL]);
}

void cpupeek_helper_smp_wmb(void)
{
	/* For a sequence count, see rust/logic/sampling/slot.rs. */
	smp_wmb();
}

u64 cpupeek_helper_tick_ns(void)
{
	return NSEC_PER_SEC / HZ;
}

void cpupeek_helper_timer_setup(struct timer_list *timer,
				void (*func)(struct timer_list *))
{
	timer_setup(timer, func, TIMER_DEFERRABLE | TIMER_PINNED);
}

/* On this CPU: the caller has interrupts off. */
void cpupeek_helper_timer_start(struct timer_list *timer, unsigned long ticks)
{
	mod_timer(timer, jiffies + ticks);
}

u32 cpupeek_helper_topology_core_id(u32 cpu)
{
	return topology_core_id(cpu);
}

u32 cpupeek_helper_topology_die_id(u32 cpu)
{
	return topology_die_id(cpu);
}

u32 cpupeek_helper_topology_package_id(u32 cpu)
{
	return topology_physical_package_id(cpu);
}

bool cpupeek_helper_tsc_stable(void)
{
	return boot_cpu_has(X86_FEATURE_CONSTANT_TSC) && !check_tsc_unstable();
}

bool cpupeek_helper_vcpu_is_preempted(u32 cpu)
{
	return cpu < nr_cpu_ids && vcpu_is_preempted(cpu);
}

/* Returns 0, or -ERESTARTSYS on a signal. */
int cpupeek_helper_wait_nonzero(struct wait_queue_head *wq, const u64 *count)
{
	return wait_event_interruptible(*wq, READ_ONCE(*count));
}

/*
 * wait_for_completion_killable_timeout() by an hrtimer of the caller's own CPU.
 * The timer wheel's timers of an idle CPU are another CPU's to expire, and that
 * may be the very one that does not answer. Returns 1 if there was a notice, 0
 * if @deadline (CLOCK_MONOTONIC) is over, -EINTR on a fatal signal.
 */
int cpupeek_helper_wait_until(struct completion *x, ktime_t deadline)
{
	DECLARE_SWAITQUEUE(wait);
	int ret = -EINTR;

	for (;;) {
		prepare_to_swait_exclusive(&x->wait, &wait, TASK_KILLABLE);
		if (READ_ONCE(x->done) || fatal_signal_pending(current))
			break;
		if (!schedule_hrtimeout_range(&deadline, 50 * NSEC_PER_USEC,
					      HRTIMER_MODE_ABS_PINNED)) {
			ret = 0;
			break;
		}
	}
	finish_swait(&x->wait, &wait);
	return try_wait_for_completion(x) ? 1 : ret;
}

void cpupeek_helper_wake_pollers(struct wait_queue_head *wq)
{
	wake_up_interruptible_poll(wq, EPOLLIN | EPOLLRDNORM | EPOLLHUP);
}
