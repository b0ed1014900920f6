#!/usr/bin/env python3
"""Prints what the threads of a process do, without a debugger: for a program that seems to hang.

usage: frameworks/thread_dump.py PID [SECONDS]

A line for each thread: its id, name, state, the share of a core that it took in SECONDS (1 by default), the function of the kernel
in which it waits, its system call, and the library of the instruction after that call. Compilers of CUDA kernels show as a thread
that runs at 100 %; a deadlock as threads that all wait in futex at 0 %. Some of it needs the rights to trace the process; what
cannot be read is "-".
"""
import os, sys, time

# Of x86_64 and aarch64; others are printed as numbers.
CALLS = {
    "x86_64": {0: "read", 1: "write", 7: "poll", 16: "ioctl", 23: "select", 24: "sched_yield", 35: "nanosleep", 61: "wait4",
               202: "futex", 230: "clock_nanosleep", 232: "epoll_wait", 271: "ppoll", 270: "pselect6", 281: "epoll_pwait"},
    "aarch64": {22: "epoll_pwait", 29: "ioctl", 63: "read", 64: "write", 73: "ppoll", 98: "futex", 101: "nanosleep",
                115: "clock_nanosleep", 124: "sched_yield", 260: "wait4"},
}.get(os.uname().machine, {})


def read(*path):
    try:
        with open(os.path.join("/proc", *map(str, path))) as file:
            return file.read().strip() or "-"
    except OSError:
        return "-"


def library(maps, address):
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        begin, end = (int(part, 16) for part in fields[0].split("-"))
        if begin <= address < end:
            return os.path.basename(fields[5]) if len(fields) > 5 else "(memory)"
    return "-"


def cpu_ticks(pid, thread):
    # The name is in parentheses and may hold anything.
    fields = read(pid, "task", thread, "stat").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12]) if len(fields) > 12 else 0


def dump(pid, seconds=1.0):
    """The lines of all threads, the busiest first."""
    try:
        threads = sorted(int(thread) for thread in os.listdir(f"/proc/{pid}/task"))
    except OSError as error:
        return [f"no process {pid}: {error}"]
    before = {thread: cpu_ticks(pid, thread) for thread in threads}
    since = time.monotonic()
    time.sleep(seconds)
    took = (time.monotonic() - since) * os.sysconf("SC_CLK_TCK")
    maps = read(pid, "maps")
    rows = []
    for thread in threads:
        share = 100 * (cpu_ticks(pid, thread) - before[thread]) / took
        state = read(pid, "task", thread, "stat").rpartition(")")[2].split()[:1] or ["-"]
        call = read(pid, "task", thread, "syscall").split()
        name, where = call[0], "-"
        if len(call) > 1:
            where = library(maps, int(call[-1], 16))
            name = CALLS.get(int(name), name)
        wait = read(pid, "task", thread, "wchan")
        rows.append((-share, thread, read(pid, "task", thread, "comm"), state[0], wait, name, where))
    lines = ["    TID NAME             STATE   CPU WAITS IN                  CALL             FROM"]
    for share, thread, name, state, wait, call, where in sorted(rows):
        lines.append(f"{thread:7} {name:16} {state:5} {-share:4.0f}% {wait:25} {call:16} {where}")
    parts = ("nvrtc", "ptxjit", "nvvm", "cupti", "libcuda.so", "libtorch")
    loaded = {os.path.basename(line.split()[-1]) for line in maps.splitlines() if any(part in line for part in parts)}
    lines.append("loaded: " + (", ".join(sorted(loaded)) or "none of CUDA's libraries"))
    return lines


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    print("\n".join(dump(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) == 3 else 1.0)))
