"""Small deterministic PyTorch programs, each of which prints what it did as one line of JSON.

    python workloads.py SCENE

The variable STEPS sets the number of steps of train, single_threaded_backward, decode and triton. The line is the last of standard output:
    ranges   how often each NVTX range was opened, by name
    kernels  how many kernels were launched while a range was open on the launching thread, by name of the innermost range, where the
             program knows it: from elementwise operations, of which each is one kernel
    copies   how many copies were made
    children what children printed
    same     pairs of ranges with the same kernels, each with how often it ran
"""

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager

EXPECTED = {"ranges": Counter(), "kernels": Counter(), "copies": 0, "children": [], "same": []}
STACK = threading.local()


def torch_module():
    import torch

    return torch


@contextmanager
def nvtx(name):
    torch = torch_module()
    torch.cuda.nvtx.range_push(name)
    names = STACK.__dict__.setdefault("names", [])
    names.append(name)
    EXPECTED["ranges"][name] += 1
    try:
        yield
    finally:
        names.pop()
        torch.cuda.nvtx.range_pop()


def kernel(tensor):
    """One elementwise kernel."""
    names = STACK.__dict__.get("names")
    EXPECTED["kernels"][names[-1] if names else ""] += 1
    return tensor.add_(1.0)


def zeros():
    """A tensor that a kernel fills, which counts as well."""
    names = STACK.__dict__.get("names")
    EXPECTED["kernels"][names[-1] if names else ""] += 1
    return torch_module().zeros(16, device="cuda")


def done():
    torch_module().cuda.synchronize()


def steps_of(usual):
    """As many steps as the variable says."""
    return int(os.environ.get("STEPS", usual))


def train():
    """An eager training loop with ranges around its phases; the autograd thread launches the backward pass."""
    torch = torch_module()
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(64, 256)
    for step in range(steps_of(20)):
        with nvtx("step"):
            with nvtx("data"):
                x = data.cuda()
                EXPECTED["copies"] += 1
            with nvtx("count"):
                for _ in range(5):
                    kernel(x)
            with nvtx("forward"):
                loss = model(x).square().mean()
            with nvtx("backward"):
                loss.backward()
            with nvtx("optimizer"):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
    done()


def single_threaded_backward():
    """The same with the backward pass on the caller's thread: what inference of ranges is held against."""
    with torch_module().autograd.set_multithreading_enabled(False):
        train()


def decode():
    """A decode loop of CUDA graphs: layers are ranges at the capture only."""
    torch = torch_module()
    layers, tokens = 6, steps_of(50)
    x = torch.zeros(1024, device="cuda")
    kernel(x)
    done()
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    captured = Counter()
    with torch.cuda.graph(graph, stream=stream):
        for layer in range(layers):
            torch.cuda.nvtx.range_push(f"layer {layer}")
            EXPECTED["ranges"][f"layer {layer}"] += 1
            for _ in range(3 + layer):
                x.add_(1.0)
                captured[f"layer {layer}"] += 1
            torch.cuda.nvtx.range_pop()
    for _ in range(tokens):
        with nvtx("decode"):
            graph.replay()
    done()
    # Replayed nodes carry the range of their capture.
    for layer, count in captured.items():
        EXPECTED["kernels"][layer] += tokens * count


def encoder(layers=4, width=256):
    torch = torch_module()
    torch.manual_seed(0)
    make = lambda: torch.nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
    return [make().cuda().eval() for _ in range(layers)]


def transformer():
    """A transformer, eager and as a CUDA graph: the layers are ranges of the eager run, and of the capture."""
    torch = torch_module()
    layers, steps, tokens = encoder(), 5, 50
    x = torch.randn(2, 16, 256).cuda()

    def forward(kind):
        y = x
        for number, layer in enumerate(layers):
            with nvtx(f"{kind} {number}"):
                y = layer(y)
        return y

    with torch.no_grad():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            forward("warm-up")
        done()
        with torch.cuda.stream(stream):
            for _ in range(steps):
                forward("eager")
        done()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            forward("layer")
        for _ in range(tokens):
            with nvtx("decode"):
                graph.replay()
        done()
    # The same kernels, as often as the graph was replayed.
    EXPECTED["same"] = [[f"eager {number}", steps, f"layer {number}", tokens] for number in range(len(layers))]


def triton():
    """A kernel that Triton compiles, beside PyTorch's own."""
    torch = torch_module()
    source = """
import triton
import triton.language as tl

@triton.jit
def add_one(pointer, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    tl.store(pointer + offsets, tl.load(pointer + offsets, mask=mask) + 1.0, mask=mask)
"""
    import importlib.util
    import tempfile

    # Triton reads the source of a kernel from its file.
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernels.py")
        with open(path, "w") as file:
            file.write(source)
        spec = importlib.util.spec_from_file_location("kernels", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        x = torch.zeros(1000, device="cuda")
        with nvtx("compile"):
            module.add_one[(4,)](x, 1000, BLOCK=256)
            EXPECTED["kernels"]["compile"] += 1
        steps = steps_of(50)
        for _ in range(steps):
            with nvtx("triton"):
                module.add_one[(4,)](x, 1000, BLOCK=256)
                EXPECTED["kernels"]["triton"] += 1
                kernel(x)
        done()
    assert float(x[0]) == 1.0 + 2.0 * steps, float(x[0])


@contextmanager
def plain_nvtx(name):
    """A range without PyTorch."""
    import nvtx as package

    EXPECTED["ranges"][name] += 1
    with package.annotate(name):
        yield


def cupy():
    """CuPy: kernels that NVRTC compiles, elementwise ones, and copies."""
    import cupy as cp
    import numpy

    add = cp.RawKernel('extern "C" __global__ void add(float* x) { x[threadIdx.x] += 1.0f; }', "add")
    x = cp.asarray(numpy.zeros(16, dtype=numpy.float32))
    for _ in range(50):
        with plain_nvtx("raw"):
            add((1,), (16,), (x,))
            EXPECTED["kernels"]["raw"] += 1
        with plain_nvtx("elementwise"):
            cp.add(x, x, out=x)
            EXPECTED["kernels"]["elementwise"] += 1
    with plain_nvtx("product"):
        cp.dot(cp.ones((64, 64), dtype=cp.float32), cp.ones((64, 64), dtype=cp.float32)).sum()
    EXPECTED["copies"] += 2
    cp.asnumpy(x)


def jax():
    """JAX: a compiled training step, of which XLA chooses the kernels."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    # The choice of kernels by their times differs from run to run.
    os.environ.setdefault("XLA_FLAGS", "--xla_gpu_autotune_level=0")
    import jax
    import jax.numpy as jnp

    assert jax.devices()[0].platform == "gpu", jax.devices()

    @jax.jit
    def step(weights, x):
        loss = lambda weights: jnp.square(jnp.tanh(x @ weights)).mean()
        return weights - 0.1 * jax.grad(loss)(weights)

    weights, x = jnp.ones((64, 64)), jnp.ones((32, 64))
    weights = step(weights, x).block_until_ready()
    for _ in range(50):
        with plain_nvtx("step"):
            weights = step(weights, x).block_until_ready()


class Numbers:
    def __len__(self):
        return 64

    def __getitem__(self, index):
        import torch

        return torch.full((16,), float(index))


def data_loader(method):
    torch = torch_module()
    x = torch.zeros(16, device="cuda")
    kernel(x)
    loader = torch.utils.data.DataLoader(
        Numbers(), batch_size=8, num_workers=2, multiprocessing_context=method
    )
    for batch in loader:
        with nvtx("batch"):
            y = batch.cuda()
            EXPECTED["copies"] += 1
            kernel(y)
    done()


def child():
    """Another program that uses the GPU."""
    output = subprocess.run(
        [sys.executable, __file__, "in_child"], check=True, capture_output=True, text=True
    ).stdout
    EXPECTED["children"].append(json.loads(output.splitlines()[-1]))
    with nvtx("parent"):
        kernel(zeros())
    done()


def in_child():
    x = torch_module().zeros(16, device="cuda")
    with nvtx("child"):
        for _ in range(7):
            kernel(x)
    done()


def torchrun():
    """One process of torchrun, whose parent initialises CUDA and launches nothing."""
    output = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1", __file__, "in_rank"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    line = next(line for line in output.splitlines() if line.startswith("{"))
    EXPECTED["children"].append(json.loads(line))


def in_rank():
    torch = torch_module()
    torch.distributed.init_process_group("nccl")
    x = torch.ones(1 << 20, device="cuda")
    for _ in range(3):
        with nvtx("reduce"):
            torch.distributed.all_reduce(x)
    with nvtx("count"):
        kernel(x)
    done()
    torch.distributed.destroy_process_group()


def threads():
    """Ranges and launches of several threads."""
    torch = torch_module()

    def work(name):
        x = torch.zeros(16, device="cuda")
        for _ in range(50):
            with nvtx(name):
                kernel(x)

    all_threads = [threading.Thread(target=work, args=(f"thread {i}",)) for i in range(4)]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()
    done()


def open_before():
    """A range that is open when CUDA is initialised."""
    with nvtx("main"):
        kernel(zeros())
        done()


def device_reset():
    """cudaDeviceReset before the end: what was done before must be in the recording."""
    torch = torch_module()
    x = torch.zeros(16, device="cuda")
    with nvtx("before"):
        for _ in range(10):
            kernel(x)
    done()
    cudart = ctypes.CDLL("libcudart.so." + torch.version.cuda.split(".")[0])
    print("reset", cudart.cudaDeviceReset())
    print_expected()
    # PyTorch's own teardown does not expect it.
    os._exit(0) if os.environ.get("AFTER_RESET") == "_exit" else None


def profiler_api():
    """Work inside and outside of cudaProfilerStart and cudaProfilerStop, with GPUPROF_OPTIONS=start=cuda-profiler-api."""
    torch = torch_module()
    x = torch.zeros(16, device="cuda")
    for round_ in range(5):
        x.mul_(1.0)
        torch.cuda.cudart().cudaProfilerStart()
        with nvtx("inside"):
            for _ in range(3):
                kernel(x)
        torch.cuda.cudart().cudaProfilerStop()
        x.mul_(1.0)
    done()


def range_start():
    """With GPUPROF_OPTIONS=start=range=wanted,stop=ranges=2: two of five instances."""
    torch = torch_module()
    x = torch.zeros(16, device="cuda")
    for round_ in range(5):
        torch.cuda.nvtx.range_push("other")
        x.mul_(1.0)
        torch.cuda.nvtx.range_pop()
        if round_ in (1, 2):
            with nvtx("wanted"):
                for _ in range(4):
                    kernel(x)
        elif round_ > 2:
            torch.cuda.nvtx.range_push("wanted")
            x.mul_(1.0)
            torch.cuda.nvtx.range_pop()
    done()


def keep_last():
    """With keep-last and trigger=slow=0.3:slow in GPUPROF_OPTIONS: all of it is the last part, and one range has an incident."""
    torch = torch_module()
    x = torch.zeros(16, device="cuda")
    for round_ in range(100):
        with nvtx("slow" if round_ == 70 else "request"):
            kernel(x)
            torch.cuda.synchronize()
            if round_ == 70:
                time.sleep(0.5)
    # The trigger is looked for once a period.
    time.sleep(2)
    done()


def exit_without_synchronising():
    """Work is still running when the program ends."""
    x = torch_module().zeros(1 << 26, device="cuda")
    with nvtx("late"):
        for _ in range(100):
            kernel(x)


def exit_in_thread():
    x = torch_module().zeros(16, device="cuda")
    with nvtx("before"):
        kernel(x)
    done()
    print_expected()
    thread = threading.Thread(target=lambda: ctypes.CDLL(None).exit(0))
    thread.start()
    thread.join()


def fork_after_cuda():
    """A child that is forked off after CUDA was used, and ends by itself."""
    x = torch_module().zeros(16, device="cuda")
    with nvtx("parent"):
        kernel(x)
    done()
    pid = os.fork()
    if pid == 0:
        torch_module().cuda.nvtx.range_push("in the child")
        torch_module().cuda.nvtx.range_pop()
        ctypes.CDLL(None).exit(0)
    os.waitpid(pid, 0)
    with nvtx("after"):
        kernel(x)
    done()


def torch_profiler():
    """PyTorch's own profiler, another user of CUPTI in the process: what either of them gets is not compared."""
    torch = torch_module()
    from torch.profiler import ProfilerActivity, profile

    x = torch.zeros(16, device="cuda")
    for _ in range(3):
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            for _ in range(20):
                x.add_(1.0)
            done()
        events = sum(1 for event in profiler.events() if "CUDA" in str(event.device_type))
        print("events of the GPU in torch.profiler:", events)
    done()


def idle():
    """CUDA is initialised and not used."""
    torch_module().cuda.init()


def bench():
    """Prints times: of a step of an eager loop of small kernels, of a training step, of a graph's replay, of a push and pop."""
    torch = torch_module()

    def median_us(step, steps):
        times = []
        for _ in range(steps):
            began = time.perf_counter()
            step()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
        return sorted(times)[steps // 2] * 1e6

    x = torch.zeros(16, device="cuda")

    def small():
        for _ in range(168):
            x.add_(1.0)

    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(12)]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(64, 256).cuda()
    push, pop = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop

    def training():
        push("forward")
        loss = model(data).square().mean()
        pop()
        push("backward")
        loss.backward()
        pop()
        push("optimizer")
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        pop()

    for _ in range(30):
        small()
        training()
    torch.cuda.synchronize()
    layers = encoder(12)
    tokens = torch.randn(2, 16, 256).cuda()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        for layer in layers:
            layer(tokens)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            for layer in layers:
                layer(tokens)
    times = {
        "small_us": median_us(small, 100),
        "training_us": median_us(training, 200),
        "replay_us": median_us(graph.replay, 300),
    }
    began = time.perf_counter()
    for _ in range(200000):
        push("a range")
        pop()
    times["push_pop_ns"] = (time.perf_counter() - began) / 200000 * 1e9
    print(json.dumps(times), flush=True)
    sys.exit(0)


def print_expected():
    print(json.dumps(EXPECTED), flush=True)


SCENES = {
    "train": train,
    "single_threaded_backward": single_threaded_backward,
    "decode": decode,
    "transformer": transformer,
    "triton": triton,
    "cupy": cupy,
    "jax": jax,
    "data_loader_fork": lambda: data_loader("fork"),
    "data_loader_spawn": lambda: data_loader("spawn"),
    "child": child,
    "in_child": in_child,
    "torchrun": torchrun,
    "in_rank": in_rank,
    "threads": threads,
    "open_before": open_before,
    "device_reset": device_reset,
    "profiler_api": profiler_api,
    "range_start": range_start,
    "keep_last": keep_last,
    "exit_without_synchronising": exit_without_synchronising,
    "exit_in_thread": exit_in_thread,
    "fork_after_cuda": fork_after_cuda,
    "torch_profiler": torch_profiler,
    "idle": idle,
    "bench": bench,
}

if __name__ == "__main__":
    SCENES[sys.argv[1]]()
    if sys.argv[1] != "device_reset":
        print_expected()
