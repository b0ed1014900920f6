"""Gaps of a Python program: python3 inside.py FOLDER_OF_CUDA_PY MILLISECONDS [ended].

Their cause has returned when they end, or with the last argument ends them itself."""

import gc
import os
import sys
import time
import zlib

sys.path.insert(0, sys.argv[1])
import cuda

SECONDS = int(sys.argv[2]) / 1000
PACKED = zlib.compress(bytes(number * number % 251 for number in range(50000)))


IS_ENDED = "ended" in sys.argv[3:]


def cause_python(end_gap):
    end = time.monotonic() + SECONDS
    count = 0
    while time.monotonic() < end:
        for number in range(1000):
            count += number
    end_gap()
    return count


def cause_unpacking(end_gap):
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        zlib.decompress(PACKED)
    end_gap()


def cause_collecting(end_gap):
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        gc.collect()
    end_gap()


def cause_sleep(end_gap):
    time.sleep(SECONDS)
    end_gap()


CAUSES = (cause_python, cause_unpacking, cause_collecting, cause_sleep)
# What a collection looks through.
OBJECTS = [[number] for number in range(50000)]
gpu = cuda.Gpu()
warm = gpu.kernel("warm")
kernels = {cause: gpu.kernel(cause.__name__.removeprefix("cause_")) for cause in CAUSES}
gpu.launch(warm)
time.sleep(0.1)
for _ in range(5):
    for cause, kernel in kernels.items():
        gpu.launch(warm)
        launch = lambda: gpu.launch(kernel)
        cause(launch if IS_ENDED else lambda: None)
        if not IS_ENDED:
            launch()
gpu.call("cuCtxSynchronize")
print(os.getpid())
