#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Reads a register of all CPUs at once, with nothing but Python's own library.

    cpupeek-read.py [REGISTER]        such as 0xc0000103, which it is without one
"""
import ctypes
import errno
import fcntl
import os
import signal
import struct
import sys

INFO, BATCH = 0x8028D000, 0x4028D002
HEADER = struct.Struct("=IIIIIIQQ")  # size, flags, nr_ops, op_size, timeout_ms, reserved, ops, tsc
OP = struct.Struct("=IHHIIiIQQQ")  # cpu, kind, flags, reg, subleaf, status, reserved, tsc, value, (ecx, edx)
MSR = 1


def read_msr(fd, cpus, reg, timeout_ms=1000):
    """Yields (cpu, value), or (cpu, OSError) where it could not be read."""
    ops = ctypes.create_string_buffer(b"".join(OP.pack(cpu, MSR, 0, reg, 0, 0, 0, 0, 0, 0) for cpu in cpus))
    fcntl.ioctl(fd, BATCH, HEADER.pack(HEADER.size, 0, len(cpus), OP.size, timeout_ms, 0, ctypes.addressof(ops), 0))
    for at in range(0, len(cpus) * OP.size, OP.size):
        cpu, _, _, _, _, status, _, _, value, _ = OP.unpack_from(ops, at)
        yield cpu, OSError(-status, os.strerror(-status)) if status else value


def register(words):
    """The register that the command line names."""
    if not words:
        return 0xC0000103
    try:
        (word,) = words
        reg = int(word, 0)
    except ValueError:
        reg = -1
    if not 0 <= reg <= 0xFFFFFFFF:
        sys.exit(f"'{' '.join(words)}' is no register: name one, such as 0xc0000103, or none for that one")
    return reg


def main():
    """Reads the register of each CPU that there can be."""
    # Who reads only the beginning, such as head, has seen enough.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    reg = register(sys.argv[1:])
    try:
        fd = os.open("/dev/cpupeek", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        sys.exit(f"cannot open {error.filename}: {error.strerror}: load the module, and run this as root or a member of its group")
    try:
        info = fcntl.ioctl(fd, INFO, bytes(40))
        nr_cpu_ids = struct.unpack_from("=I", info, 24)[0]
        answers = list(read_msr(fd, range(nr_cpu_ids), reg))
    except OSError as error:
        sys.exit(f"/dev/cpupeek refuses the command: {error.strerror}: use the module and this program of one version")
    failed = False
    for cpu, value in answers:
        if isinstance(value, OSError):
            failed = True
            print(f"{cpu:3}  {errno.errorcode.get(value.errno, value.errno)}")
        else:
            print(f"{cpu:3}  {value:#018x}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
