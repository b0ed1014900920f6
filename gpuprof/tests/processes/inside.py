"""Gaps of a Python program, whose cause has returned when they end: python3 inside.py FOLDER_OF_CUDA_PY MILLISECONDS."""

import os
import sys
import time
import zlib

sys.path.insert(0, sys.argv[1])
import cuda

SECONDS = int(sys.argv[2]) / 1000
PACKED = zlib.compress(bytes(number * number % 251 for number in range(50000)))


def cause_python():
    end = time.monotonic() + SECONDS
    count = 0
    while time.monotonic() < end:
        for number in range(1000):
            count += number
    return count


def cause_unpacking():
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        zlib.decompress(PACKED)


def cause_sleep():
    time.sleep(SECONDS)


gpu = cuda.Gpu()
warm = gpu.kernel("warm")
kernels = {cause: gpu.kernel(cause.__name__.removeprefix("cause_")) for cause in (cause_python, cause_unpacking, cause_sleep)}
gpu.launch(warm)
time.sleep(0.1)
for _ in range(5):
    for cause, kernel in kernels.items():
        gpu.launch(warm)
        cause()
        gpu.launch(kernel)
gpu.call("cuCtxSynchronize")
print(os.getpid())
