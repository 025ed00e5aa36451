#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
#
# What `make demo` runs in the guest, as root, with the module loaded.

failed=0

# show STATUS COMMAND...: shows a command and what it says, and minds its exit status.
show() {
	wanted=$1
	shift
	printf '\n# %s\n' "$*"
	status=0
	"$@" || status=$?
	[ "$wanted" = any ] || [ "$status" = "$wanted" ] || {
		echo "(exit status $status, not $wanted)"
		failed=1
	}
}
note() { printf '\n== %s\n' "$*"; }

note "Linux $(uname -r), untouched; $(nproc) CPUs; the module is loaded"
show 0 cpupeek info

note "Registers of every CPU: APIC base (CPU 0 started the others), TSC_AUX (the CPU's own number)"
show 0 cpupeek msr 0x1b 0xc0000103 --cpu all

note "CPUID: the vendor, and the family with the APIC id"
show 0 cpupeek cpuid 0 1 --cpu all

note "A register that the CPU refuses: the x2APIC id, while the x2APIC is off"
show any cpupeek msr 0x802 --cpu 0

note "CPU 2 taken offline"
echo 0 >/sys/devices/system/cpu/cpu2/online
show any cpupeek msr 0xc0000103 --cpu 0-3
echo 1 >/sys/devices/system/cpu/cpu2/online

note "Unloaded"
rmmod cpupeek || failed=1
grep -q '^cpupeek ' /proc/modules && failed=1
exit $failed
