#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
#
# Runs in the guest of qemu/test that has the machine of machine.toml: one line per check, "ok WHAT" or
# "not ok WHAT".

# msr CPU REG: the value in hexadecimal, most significant byte first, or "fault".
msr() {
	bytes=$(dd if="/dev/cpu/$1/msr" bs=8 count=1 iflag=skip_bytes skip=$(($2)) 2>/dev/null | xxd -p)
	[ -n "$bytes" ] || { echo fault; return; }
	echo "$bytes" | sed 's/\(..\)\(..\)\(..\)\(..\)\(..\)\(..\)\(..\)\(..\)/\8\7\6\5\4\3\2\1/'
}

# eax CPU LEAF: EAX in hexadecimal.
eax() { cpupeek cpuid "$2" --cpu "$1" --json | sed -n 's/.*"eax":\([0-9]*\).*/\1/p' | xargs printf %08x; }

# yes TEST...: the word yes or no.
yes() { if [ "$@" ]; then echo yes; else echo no; fi; }

# check WHAT GOT WANTED
check() {
	if [ "$2" = "$3" ]; then
		echo "ok $1"
	else
		echo "not ok $1: '$2' instead of '$3'"
	fi
}

# milliseconds COMMAND...: how long it took.
milliseconds() {
	read -r before _ </proc/uptime
	"$@" >/dev/null
	read -r after _ </proc/uptime
	echo $(((${after%.*} - ${before%.*}) * 1000 + (1${after#*.} - 1${before#*.}) * 10))
}

check "a constant of 64 bits" "$(msr 0 0x12300)" fedcba9876543210
check "the register of CPU 0" "$(msr 0 0x12301)" 0000000000001111
check "the register of CPU 1" "$(msr 1 0x12301)" 0000000000002222
check "a step, before it wraps" "$(msr 1 0x12302)" 00000000fffffffe
check "a step, after it has wrapped" "$(msr 1 0x12302)" 0000000000000001
check "steps are each CPU's own" "$(msr 0 0x12302)" 00000000fffffffe
check "a described fault" "$(msr 0 0x12305)" fault
check "a register that nobody knows" "$(msr 0 0xdead0000)" fault
check "a register that KVM knows too" "$(msr 1 0x611)" 000000000000600d
check "steal time is at an address of its own per CPU" "$(msr 0 0x4b564d03 | grep -c '[1-9a-f]')" 1
check "and not at the same one" "$(yes "$(msr 0 0x4b564d03)" != "$(msr 1 0x4b564d03)")" yes
check "CPUID of CPU 0" "$(eax 0 0x1a)" 40000001
check "CPUID of CPU 1" "$(eax 1 0x1a)" 20000001

# One call, so that both are read in one burst; it may fall on the edge of two, but not three times.
ratio=other
for _ in 1 2 3; do
	# shellcheck disable=SC2046 # two words
	set -- $(cpupeek msr 0x12303 0x12304 --cpu 0 | sed -n 's/.* 0x0*12[0-9a-f]* *//p')
	[ $(($1 * 3)) != $(($2)) ] || { ratio=3; break; }
done
check "counters of one burst keep their ratio" "$ratio" 3
later=$((0x$(msr 0 0x12303)))
usleep 200000
check "a counter advances with time" "$(yes $((0x$(msr 0 0x12303) - later)) -ge 200000000)" yes

msr 0 0x12306 >/dev/null
check "a delay" "$(yes "$(milliseconds msr 0 0x12306)" -ge 390)" yes
machine delay-us 0x12306 700000 0
check "a delay that was changed" "$(yes "$(milliseconds msr 0 0x12306)" -ge 690)" yes
check "the value of a slow register" "$(msr 0 0x12306)" 0000000000005105

machine value 0x12301 0x8000000000000003 1
check "a value that was changed" "$(msr 1 0x12301)" 8000000000000003
check "on that CPU only" "$(msr 0 0x12301)" 0000000000001111
machine fault 0x12301 0
check "a fault that was made" "$(msr 0 0x12301)" fault
machine value 0x12301 0x77
check "a value for every CPU" "$(msr 0 0x12301) $(msr 1 0x12301)" "0000000000000077 0000000000000077"
check "reads are counted" "$(machine reads 0x12301)" 7
check "on one CPU as well" "$(machine reads 0x12301 1)" 3
machine rate 0x12303 0
check "a counter that was stopped" "$(msr 0 0x12303)" "$(msr 0 0x12303)"
printf '\11\0\0\0\0\0\0\0' | dd of=/dev/cpu/1/msr bs=8 count=1 conv=notrunc oflag=seek_bytes seek=$((0x12307)) 2>/dev/null
check "a writable register" "$(msr 0 0x12307) $(msr 1 0x12307)" "0000000000000005 0000000000000009"
machine value 0x99999 1 2>/dev/null
check "a register that is not described cannot be changed" $? 2
check "what KVM does not know is a fault of the hardware to cpupeek too" \
	"$(cpupeek msr 0xdead0000 --cpu 1 --json | sed -n 's/.*"errno":"\([A-Z]*\)","kind":"\([a-z]*\)".*/\1 \2/p')" "EIO hardware"
