/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What bindgen turns into the module's view of the ABI. It cannot evaluate the
 * command codes, and gives some constants other types than C; let C do it.
 */
#include <linux/cpupeek.h>

const __u32 CPUPEEK_CONST_CPU_SELF = CPUPEEK_CPU_SELF;
const __u64 CPUPEEK_CONST_FEATURES =
	CPUPEEK_FEATURE_READ | CPUPEEK_FEATURE_BATCH | CPUPEEK_FEATURE_PLAN;
const __u32 CPUPEEK_CONST_IOC_INFO = CPUPEEK_IOC_INFO;
const __u32 CPUPEEK_CONST_IOC_READ = CPUPEEK_IOC_READ;
const __u32 CPUPEEK_CONST_IOC_BATCH = CPUPEEK_IOC_BATCH;
const __u32 CPUPEEK_CONST_IOC_PREPARE = CPUPEEK_IOC_PREPARE;
const __u32 CPUPEEK_CONST_IOC_RUN = CPUPEEK_IOC_RUN;
