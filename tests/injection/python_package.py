"""The Python package with real PyTorch: python python_package.py [--bench]. Needs a GPU, PyTorch and the wheel of gpuprof/python.

Each scene runs under `gpuprof run --start wait`, knows how many kernels each module launches, and compares. Exits with 1 if
anything differs.
"""

import csv
import io
import json
import os
import subprocess
import sys
import tempfile
import time

STEPS, LAYERS, KERNELS = 20, 4, 3


def model(torch):
    class Scale(torch.nn.Module):
        """A known number of elementwise kernels."""

        def forward(self, x):
            for _ in range(KERNELS):
                x = x.mul_(1.0)
            if x.shape[0] == 1:
                raise ValueError("one row")
            return x

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = Scale()

        def forward(self, x):
            return self.scale(x).add_(1.0)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(Block() for _ in range(LAYERS))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    return Net().cuda()


def kernels(p):
    rows = csv.DictReader(io.StringIO(p.run("stats", "cuda_gpu_kern_sum", "--format", "csv")))
    return sum(int(row["Instances"]) for row in rows)


def eager(torch, gpuprof):
    """Modules in windows, an error in one of them, and work outside."""
    net, x = model(torch), torch.ones(64, 64, device="cuda")
    gpuprof.annotate(net)
    net(x)
    torch.cuda.synchronize()
    with gpuprof.profile() as p:
        for _ in range(STEPS):
            net(x)
        try:
            net(torch.ones(1, 64, device="cuda"))
        except ValueError:
            pass
        torch.cuda.synchronize()
    net(x)
    torch.cuda.synchronize()
    # The failing call: the tensor's fill, and the kernels of its first layer.
    want = STEPS * LAYERS * (KERNELS + 1) + KERNELS + 1
    return {"kernels": [kernels(p), want], "report": p.report()}


def graph(torch, gpuprof):
    """Kernels of a replayed graph."""
    net, x = model(torch), torch.ones(64, 64, device="cuda")
    gpuprof.annotate(net)
    with gpuprof.profile() as p:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            net(x)
        with gpuprof.range("replay"):
            for _ in range(STEPS):
                captured.replay()
        torch.cuda.synchronize()
    # PyTorch fills the seed and the offset of a graph's random numbers.
    want = STEPS * LAYERS * (KERNELS + 1) + 2
    return {"kernels": [kernels(p), want], "report": p.report()}


def bench(torch, gpuprof):
    """What the hooks and a window cost a step, in microseconds: medians."""
    net, x = model(torch), torch.ones(64, 64, device="cuda")

    def step():
        began = time.perf_counter()
        net(x)
        torch.cuda.synchronize()
        return 1e6 * (time.perf_counter() - began)

    def median(count=300):
        times = sorted(step() for _ in range(count))
        return times[count // 2]

    median()
    found = {"plain": median()}
    with gpuprof.annotate(net):
        found["annotated, not recorded"] = median()
        with gpuprof.profile():
            found["annotated, recorded"] = median()
    with gpuprof.profile():
        found["recorded"] = median()
    switches = []
    for _ in range(20):
        began = time.perf_counter()
        with gpuprof.profile():
            pass
        switches.append(1e3 * (time.perf_counter() - began))
    found["an empty window, ms"] = sorted(switches)[10]
    return {"microseconds": found}


SCENES = {"eager": eager, "graph": graph, "bench": bench}


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--scene":
        import torch

        import gpuprof

        print(json.dumps(SCENES[sys.argv[2]](torch, gpuprof)))
        return 0
    failed = 0
    for name in ["bench"] if "--bench" in sys.argv else ["eager", "graph"]:
        with tempfile.TemporaryDirectory() as folder:
            words = [sys.executable, "-m", "gpuprof", "run", "--quiet", "--start", "wait"]
            words += ["-o", os.path.join(folder, "run"), "--"]
            words += [sys.executable, os.path.abspath(__file__), "--scene", name]
            ran = subprocess.run(words, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            print(f"{name}: FAILED\n{ran.stdout}{ran.stderr}")
            failed += 1
            continue
        answer = json.loads(ran.stdout.splitlines()[-1])
        print(answer.pop("report", ""))
        found, want = answer.get("kernels", (0, 0))
        failed += found != want
        print(f"{name}: {'ok' if found == want else 'FAILED'} {answer}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
