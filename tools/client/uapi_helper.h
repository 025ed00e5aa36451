/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What bindgen reads to make tools/client/src/uapi.rs; see scripts/gen-bindings.
 *
 * bindgen does not evaluate the _IOR() family, nor ~0U as an unsigned number:
 * constants let the C compiler do both.
 */
#include <linux/cpupeek.h>

const __u32 CPUPEEK_CONST_CPU_SELF = CPUPEEK_CPU_SELF;
const __u32 CPUPEEK_CONST_NO_RANGE = CPUPEEK_NO_RANGE;
const __u32 CPUPEEK_CONST_IOC_INFO = CPUPEEK_IOC_INFO;
const __u32 CPUPEEK_CONST_IOC_READ = CPUPEEK_IOC_READ;
const __u32 CPUPEEK_CONST_IOC_BATCH = CPUPEEK_IOC_BATCH;
const __u32 CPUPEEK_CONST_IOC_PREPARE = CPUPEEK_IOC_PREPARE;
const __u32 CPUPEEK_CONST_IOC_SET_ALLOW = CPUPEEK_IOC_SET_ALLOW;
const __u32 CPUPEEK_CONST_IOC_GET_ALLOW = CPUPEEK_IOC_GET_ALLOW;
const __u32 CPUPEEK_CONST_IOC_NARROW = CPUPEEK_IOC_NARROW;
const __u32 CPUPEEK_CONST_IOC_REFUSALS = CPUPEEK_IOC_REFUSALS;
const __u32 CPUPEEK_CONST_IOC_RUN = CPUPEEK_IOC_RUN;
