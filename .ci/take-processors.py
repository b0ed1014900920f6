#!/usr/bin/env python3
"""Takes each processor away from everything else for up to 0.6 s at a time, two fifths of the time, as a hypervisor does.

Threads of a program then stand still one at a time, where busy loops only slow all of them down. Needs the right to
real-time scheduling; ends with the process that started it."""
import ctypes, os, random, signal, time

TAKEN = 0.4
PR_SET_PDEATHSIG = 1

for processor in os.sched_getaffinity(0):
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.sched_setaffinity(0, {processor})
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        while True:
            burst = random.choice([0.01, 0.03, 0.1, 0.3, 0.6])
            end = time.monotonic() + burst
            while time.monotonic() < end:
                pass
            time.sleep(burst * (1 - TAKEN) / TAKEN * random.uniform(0.3, 1.7))
for _ in os.sched_getaffinity(0):
    os.wait()
    raise SystemExit("no right to real-time scheduling")
