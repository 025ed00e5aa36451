#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Prints a multiboot kernel that does nothing and says nothing: cli; hlt; jmp back.
set -euo pipefail

# word N: four little-endian bytes.
word() {
	local n=$1 i
	for i in 0 8 16 24; do
		printf '%b' "\\x$(printf %02x $((n >> i & 255)))"
	done
}

load=$((0x100000)) magic=$((0x1badb002)) flags=$((0x10000)) header=32
word $magic
word $flags
word $((-(magic + flags) & 0xffffffff))
word $load                       # where the header goes
word $load                       # where the file goes
word $((load + header + 4))      # its end
word $((load + header + 4))      # nothing after it
word $((load + header))          # where it starts
printf '\xfa\xf4\xeb\xfc'
