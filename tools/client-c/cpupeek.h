/* SPDX-License-Identifier: GPL-2.0 */
/*
 * cpupeek from C, all of it in headers: samplers, whose values a program looks
 * at without a system call. The device itself is in cpupeek-device.h.
 *
 *	struct cpupeek_sampling s;
 *	struct cpupeek_op ops[] = { cpupeek_msr(0, 0xe7), cpupeek_msr(0, 0xe8) };
 *	int fd = cpupeek_open(NULL);
 *	int error = cpupeek_sample(&s, fd, ops, 2, 10000000, CPUPEEK_SAMPLER_EXACT, 0);
 *
 *	if (!error) {
 *		const struct cpupeek_slot *slot = cpupeek_latest(&s, 0);
 *		__u64 value;
 *
 *		error = cpupeek_slot_value(slot, 0, &value, NULL);
 *		...
 *		cpupeek_sample_end(&s);
 *	}
 *
 * Functions return 0 or a negative errno. Nothing here allocates, and what only
 * looks at slots makes no system call. poll() of @fd says when cpupeek_wait()
 * would not wait.
 */
#ifndef CPUPEEK_CLIENT_H
#define CPUPEEK_CLIENT_H

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpupeek-device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A sampler, and its mapping; @fd is -1 and @map NULL where there is none. */
struct cpupeek_sampling {
	int fd;
	size_t size;
	const struct cpupeek_map *map;
};

/* What cpupeek_sample_end() has nothing to do with. */
static inline void cpupeek_sample_none(struct cpupeek_sampling *s)
{
	s->fd = -1;
	s->size = 0;
	s->map = NULL;
}

/*
 * Maps a sampler that somebody has made; @size is what the module said. @fd is
 * the sampling's own then, and remains the caller's on an error.
 */
static inline int cpupeek_sample_map(struct cpupeek_sampling *s, int fd,
				     __u64 size)
{
	void *map;

	cpupeek_sample_none(s);
	if ((size_t)size != size)
		return -EOVERFLOW;
	map = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	s->fd = fd;
	s->size = (size_t)size;
	s->map = (const struct cpupeek_map *)map;
	return 0;
}

/*
 * Has every CPU read its own of @ops every @interval_ns. @on is a descriptor of
 * the device; or of a plan, with @nr_ops 0. @flags are CPUPEEK_SAMPLER_*.
 */
static inline int cpupeek_sample(struct cpupeek_sampling *s, int on,
				 const struct cpupeek_op *ops, __u32 nr_ops,
				 __u64 interval_ns, __u32 flags,
				 __u32 ring_samples)
{
	struct cpupeek_sampler request;
	int error;

	cpupeek_sample_none(s);
	memset(&request, 0, sizeof(request));
	request.size = sizeof(request);
	request.flags = flags;
	request.interval_ns = interval_ns;
	request.ring_samples = ring_samples;
	if (nr_ops) {
		request.nr_ops = nr_ops;
		request.op_size = sizeof(*ops);
		request.ops = cpupeek_address(ops);
	}
	error = cpupeek_ioctl(on, CPUPEEK_IOC_SAMPLER, &request);
	if (error)
		return error;
	error = cpupeek_sample_map(s, request.fd, request.map_size);
	if (error)
		close(request.fd);
	return error;
}

/* Any bit of a result under @mask has changed; @cpu may be %CPUPEEK_CPU_ANY. */
static inline struct cpupeek_condition cpupeek_changed(__u32 cpu, __u32 result,
						       __u64 mask)
{
	struct cpupeek_condition condition;

	memset(&condition, 0, sizeof(condition));
	condition.cpu = cpu;
	condition.result = result;
	condition.kind = CPUPEEK_WHEN_CHANGED;
	condition.mask = mask;
	return condition;
}

/* A result under @mask was below @bound and no longer is, or the reverse. */
static inline struct cpupeek_condition cpupeek_crossed(__u32 cpu, __u32 result,
						       __u64 mask, __u64 bound)
{
	struct cpupeek_condition condition = cpupeek_changed(cpu, result, mask);

	condition.kind = CPUPEEK_WHEN_CROSSED;
	condition.bound = bound;
	return condition;
}

/* Only samples that fulfil a condition matter from now on; with none, all do. */
static inline int cpupeek_watch(const struct cpupeek_sampling *s,
				const struct cpupeek_condition *conditions,
				__u32 nr_conditions)
{
	struct cpupeek_watch watch;

	memset(&watch, 0, sizeof(watch));
	watch.size = sizeof(watch);
	watch.nr_conditions = nr_conditions;
	if (nr_conditions)
		watch.conditions = cpupeek_address(conditions);
	return cpupeek_ioctl(s->fd, CPUPEEK_IOC_WATCH, &watch);
}

/*
 * Waits for samples that matter. @samples is how many there were since the last
 * time; 0 if the sampler was stopped and what was before has been told.
 */
static inline int cpupeek_wait(const struct cpupeek_sampling *s, __u64 *samples)
{
	ssize_t got;

	*samples = 0;
	do
		got = read(s->fd, samples, sizeof(*samples));
	while (got < 0 && errno == EINTR);
	return got < 0 ? -errno : 0;
}

/* Stops it for everybody who has it. */
static inline int cpupeek_stop(const struct cpupeek_sampling *s)
{
	return cpupeek_ioctl(s->fd, CPUPEEK_IOC_STOP, NULL);
}

/*
 * Ends it, unless others have it too. Nothing happens if it has ended, or if
 * cpupeek_sample() or cpupeek_sample_map() failed.
 */
static inline void cpupeek_sample_end(struct cpupeek_sampling *s)
{
	if (s->map)
		munmap((void *)(unsigned long)s->map, s->size);
	if (s->fd >= 0)
		close(s->fd);
	cpupeek_sample_none(s);
}

static inline const struct cpupeek_slot *
cpupeek_slot_at(const struct cpupeek_sampling *s, __u64 offset)
{
	return (const struct cpupeek_slot *)((const char *)s->map + offset);
}

/* The latest sample of the @index'th CPU among the operations. */
static inline const struct cpupeek_slot *
cpupeek_latest(const struct cpupeek_sampling *s, __u32 index)
{
	__u64 before = (__u64)index * s->map->slot_size;

	return cpupeek_slot_at(s, s->map->slots + before);
}

/* The latest sample of a CPU, NULL if it is not sampled. */
static inline const struct cpupeek_slot *
cpupeek_latest_of(const struct cpupeek_sampling *s, __u32 cpu)
{
	__u32 i;

	for (i = 0; i < s->map->nr_slots; i++)
		if (cpupeek_latest(s, i)->cpu == cpu)
			return cpupeek_latest(s, i);
	return NULL;
}

/*
 * Where sample @number of that CPU is or was, NULL without a ring. Whether it is
 * still there, or already, the slot's own number says.
 */
static inline const struct cpupeek_slot *
cpupeek_past(const struct cpupeek_sampling *s, __u32 index, __u64 number)
{
	const struct cpupeek_map *map = s->map;
	__u64 slot;

	if (!map->ring_samples)
		return NULL;
	slot = (__u64)index * map->ring_samples + number % map->ring_samples;
	return cpupeek_slot_at(s, map->ring + slot * map->slot_size);
}

/* Results of a slot; to be loaded between the two functions below only. */
static inline const struct cpupeek_result *
cpupeek_results(const struct cpupeek_slot *slot)
{
	return (const struct cpupeek_result *)(slot + 1);
}

/* Waits until the slot is not being written. */
static inline __u32 cpupeek_slot_begin(const struct cpupeek_slot *slot)
{
	__u32 seq;

	while ((seq = __atomic_load_n(&slot->seq, __ATOMIC_ACQUIRE)) & 1)
		__builtin_ia32_pause();
	return seq;
}

/* Whether what was loaded since then may be torn: begin again if so. */
static inline int cpupeek_slot_retry(const struct cpupeek_slot *slot, __u32 seq)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(&slot->seq, __ATOMIC_RELAXED) != seq;
}

/*
 * Copies a slot, and at most @nr of its results. Returns the slot's status. The
 * header's @seq is that of the copy, and even.
 */
static inline int cpupeek_slot_read(const struct cpupeek_slot *slot,
				    struct cpupeek_slot *header,
				    struct cpupeek_result *results, __u32 nr)
{
	const volatile __u64 *from = (const volatile __u64 *)slot;
	size_t words = sizeof(*header) / sizeof(*from);
	size_t more, i;
	__u64 word;
	__u32 seq;

	if (nr > slot->nr_results)
		nr = slot->nr_results;
	more = nr * sizeof(*results) / sizeof(*from);
	do {
		seq = cpupeek_slot_begin(slot);
		for (i = 0; i < words; i++) {
			word = from[i];
			memcpy((char *)header + i * sizeof(word), &word,
			       sizeof(word));
		}
		for (i = 0; i < more; i++) {
			word = from[words + i];
			memcpy((char *)results + i * sizeof(word), &word,
			       sizeof(word));
		}
	} while (cpupeek_slot_retry(slot, seq));
	header->seq = seq;
	return header->status;
}

/* The latest value of one register, and the number of its sample if wanted. */
static inline int cpupeek_slot_value(const struct cpupeek_slot *slot,
				     __u32 index, __u64 *value, __u64 *number)
{
	const volatile struct cpupeek_result *result =
		cpupeek_results(slot) + index;
	const volatile __u64 *from = &slot->number;
	__u64 got, sample;
	__u32 seq;
	int status;

	if (index >= slot->nr_results)
		return -EINVAL;
	do {
		seq = cpupeek_slot_begin(slot);
		status = result->status;
		got = result->value;
		sample = *from;
	} while (cpupeek_slot_retry(slot, seq));
	*value = got;
	if (number)
		*number = sample;
	return status;
}

#ifdef __cplusplus
}
#endif

#endif /* CPUPEEK_CLIENT_H */
