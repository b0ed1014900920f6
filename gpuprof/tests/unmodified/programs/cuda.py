"""CUDA's driver through ctypes, and programs that use it: python3 cuda.py PROGRAM FOLDER."""

import ctypes
import multiprocessing
import os
import subprocess
import sys
import threading
import time


def say(line):
    """A line in one piece, beside those of other threads and processes."""
    os.write(1, f"{line}\n".encode())


class Gpu:
    """Device 0."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.context = context
        self.enter()

    def enter(self):
        """Makes the context current on this thread."""
        self.call("cuCtxSetCurrent", self.context)

    def call(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name} returned {result}")

    def kernel(self, name):
        """A kernel of this name, which does nothing."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        image = f".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry {name}() {{ ret; }}\n"
        self.call("cuModuleLoadData", ctypes.byref(module), image.encode())
        self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        return function

    def launch(self, function):
        self.call("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, None, None, None)

    def work(self, name, launches):
        function = self.kernel(name)
        for _ in range(launches):
            self.launch(function)
        self.call("cuCtxSynchronize")
        say(f"kernel {name} {launches}")


def plain():
    Gpu().work("plain", 100)


def raises():
    Gpu().work("raises", 10)
    raise ValueError("of the program")


def exits():
    Gpu().work("exits", 10)
    sys.exit(9)


def threads():
    gpu = Gpu()

    def run(name):
        gpu.enter()
        gpu.work(name, 50)

    started = [threading.Thread(target=run, args=(f"thread_{i}",)) for i in range(4)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


def starts_others():
    Gpu().work("parent", 10)
    for _ in range(2):
        subprocess.run([sys.executable, __file__, "plain", sys.argv[2]], check=True)


def without_cuda(number):
    say(f"square {number * number}")


def with_cuda(number):
    Gpu().work(f"worker_{number}", 10)


def with_cuda_settled(number):
    """Waits until the recording has the work: a forked worker ends without handlers."""
    with_cuda(number)
    if "GPUPROF_RUN" in os.environ:
        path = f"{sys.argv[2]}/settle.{os.getpid()}"
        with open(path + ".part", "w") as file:
            file.write("10")
        os.rename(path + ".part", path)
        while os.path.exists(path):
            time.sleep(0.001)


def workers(method, function, before):
    """Two workers that work at the same time: a pool may give all tasks to one."""
    if before:
        Gpu().work("parent", 10)
    context = multiprocessing.get_context(method)
    started = [context.Process(target=function, args=(number,)) for number in range(2)]
    for worker in started:
        worker.start()
    for worker in started:
        worker.join()
    say(f"workers {[worker.exitcode for worker in started]}")
    if before:
        Gpu().work("parent", 10)


def forks_workers():
    """As a DataLoader with its default: workers without CUDA, forked from a process with it."""
    workers("fork", without_cuda, True)


def spawns_workers():
    """Workers with CUDA of their own."""
    workers("spawn", with_cuda, True)


def forks_server():
    workers("forkserver", with_cuda_settled, False)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
