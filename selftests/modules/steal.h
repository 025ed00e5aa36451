/* SPDX-License-Identifier: GPL-2.0 */
#ifndef CPUPEEK_STEAL_H
#define CPUPEEK_STEAL_H

#include <linux/types.h>
#include <asm/kvm_para.h>

/* In steal_predicate.rs. */
bool cpupeek_rust_is_preempted(const struct kvm_steal_time *record);

#endif /* CPUPEEK_STEAL_H */
