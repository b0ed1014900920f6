"""Instruction samples of unmodified programs: what they find in planted Triton kernels, and what they cost.

    python lines.py --gpuprof gpuprof                    # line and dominant stall of the four kernels of planted.py
    python lines.py --gpuprof gpuprof --cost [SCENE...]  # blocks of 50 steps with and without recording by turns in one process

Needs a GPU, PyTorch and Triton, gpt2 also transformers. Exits with 1 if a kernel's line or stall is another one.
"""

import argparse
import glob
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PLANTED = os.path.join(HERE, "planted.py")
STALLS = {
    "gather": ["long_scoreboard"],
    "chain": ["wait"],
    "atomics": ["long_scoreboard", "lg_throttle"],
    "spill": ["long_scoreboard", "lg_throttle", "short_scoreboard", "mio_throttle"],
}
# Steps of a block, and the seconds after a stop and a start that are not timed: CUPTI stays on for a second after a stop.
STEPS, UNTIMED_S = 50, (1.7, 0.5)


def record(arguments, options, command):
    """Records a program, and returns its file and what it printed."""
    folder = tempfile.mkdtemp(prefix="lines-")
    run = [arguments.gpuprof, "run", "-o", folder, *options, "--", sys.executable, *command]
    done = subprocess.run(run, capture_output=True, text=True, timeout=500)
    if done.returncode:
        raise SystemExit(f"{run}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    files = glob.glob(os.path.join(folder, "**", "*.gpurun"), recursive=True)
    files += glob.glob(os.path.join(folder, "**", "*.gpuprof"), recursive=True)
    if not files:
        raise SystemExit(f"{run}: no recording\n{done.stdout}\n{done.stderr}")
    return max(files, key=os.path.getsize), done.stdout


def lines(arguments, file, *options):
    command = [arguments.gpuprof, "lines", "--format", "json", *options, file]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def planted(arguments):
    with open(PLANTED) as source:
        texts = list(enumerate(source.read().splitlines(), 1))
    file, _ = record(arguments, ["--lines", "--keep-cubins"], [PLANTED])
    wrong = 0
    for name, stalls in STALLS.items():
        own = [number for number, text in texts if text.endswith(f"# {name}")]
        found = lines(arguments, file, "--range", name, "--kernel", f"^{name}$")
        line, kernel = found["lines"][0], found["kernels"][0]
        waits = [(count, stall) for stall, count in kernel["stalls"].items() if stall not in ("selected", "not_selected")]
        dominant = max(waits)[1]
        place = (os.path.basename(line.get("file") or ""), line.get("line"))
        is_right = place[0] == "planted.py" and place[1] in own and dominant in stalls
        wrong += not is_right
        print(
            f"{'ok' if is_right else 'WRONG':6} {name}: {found['samples']:.0f} samples, {100 * found['exact_share']:.1f} % exact,"
            f" {place[0]}:{place[1]} of {own} {100 * line['share']:.1f} %, {dominant}",
            flush=True,
        )
    print(found["account"])
    command = [arguments.gpuprof, "lines", "--sass", "--kernel", "^gather$", file]
    shown = subprocess.run(command, capture_output=True, text=True)
    code = shown.stdout[shown.stdout.rfind("\ngather") :]
    hottest = max((line for line in code.splitlines() if "%" in line[:9]), key=lambda line: float(line.split()[0]), default="")
    print(shown.stderr, code)
    # The warps wait for the load before the instruction that needs it.
    return wrong + (" LDG" not in code or "planted.py:15" not in hottest)


def gpt2():
    """A training step of GPT-2 (124 M parameters, random weights) of the package transformers, in bf16."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config()).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    words = torch.randint(0, 50257, (16, 512), device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(words, labels=words).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def encoder():
    """A training step that waits for its host: 12 encoder layers over few tokens."""
    import torch

    layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).cuda().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x = torch.randn(2, 64, 768, device="cuda", dtype=torch.bfloat16)

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(x).float().square().mean().backward()
        optimizer.step()

    return step


def triton():
    """The gather and the chain of planted.py."""
    import torch
    import planted

    numbers = torch.arange(1 << 25, device="cuda", dtype=torch.int64)
    table = ((numbers * 1664525 + 1013904223) % (1 << 25)).to(torch.int32)
    to = torch.zeros((1 << 25) + 1, device="cuda", dtype=torch.int32)

    def step():
        for kernel in (planted.gather, planted.chain) * 5:
            kernel[(1056,)](to, table, 1 << 25, ROUNDS=16, BLOCK=256)

    return step


def graph():
    """A replayed CUDA graph of 12 encoder layers."""
    import torch

    layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, dropout=0.0)
    model = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).cuda().bfloat16()
    x = torch.randn(8, 512, 768, device="cuda", dtype=torch.bfloat16)
    captured = torch.cuda.CUDAGraph()
    with torch.no_grad():
        for _ in range(3):
            model(x)
        torch.cuda.synchronize()
        with torch.cuda.graph(captured):
            model(x)
    return captured.replay


COSTS = {"gpt2": gpt2, "triton": triton, "graph": graph, "encoder": encoder}


def blocks(scene, seconds):
    """Prints the times of steps of blocks, in ms, in the order without, with, with, without."""
    import torch

    step = COSTS[scene]()
    times = []

    def steps(count):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(count):
            step()
        torch.cuda.synchronize()
        return (time.perf_counter() - began) / count * 1e3

    steps(2 * STEPS)
    untimed = [math.ceil(seconds * 1e3 / steps(STEPS)) for seconds in UNTIMED_S]
    was_on = False
    ends = time.monotonic() + seconds
    while time.monotonic() < ends or len(times) < 2:
        quartet = []
        for is_on in (False, True, True, False):
            if is_on != was_on:
                (torch.cuda.profiler.start if is_on else torch.cuda.profiler.stop)()
                steps(untimed[is_on])
                was_on = is_on
            quartet.append(steps(STEPS))
        times.append(quartet)
    print(json.dumps(times))


def interval(values):
    """The Hodges-Lehmann estimate of the middle, with its 95 % interval by the signed-rank test's normal approximation."""
    count = len(values)
    means = sorted((values[a] + values[b]) / 2 for a in range(count) for b in range(a, count))
    middle, spread = count * (count + 1) / 4, math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
    cut = max(0, math.floor(middle - 1.96 * spread))
    return statistics.median(means), means[cut], means[-1 - cut]


def cost(arguments):
    """The cost of a recording by quartets of blocks, without and with lines, and the difference."""
    for scene in arguments.scenes or COSTS:
        costs = []
        for name, options in [("lines", ["--lines"]), ("records", [])]:
            options = ["--start", "cuda-profiler-api", *options]
            command = [os.path.abspath(__file__), "--blocks", scene, "--seconds", str(arguments.seconds)]
            file, text = record(arguments, options, command)
            times = json.loads(next(line for line in text.splitlines() if line[:2] == "[["))
            costs.append(interval([100 * (math.log(on + more) - math.log(off + last)) for off, on, more, last in times]))
            plain = statistics.median(one for quartet in times for one in (quartet[0], quartet[3]))
            middle, low, high = costs[-1]
            print(
                f"{scene} {name}: {middle:+.2f} % ({low:+.2f} to {high:+.2f}) of {plain:.2f} ms,"
                f" {len(times)} quartets of blocks of {STEPS} steps; {os.path.getsize(file) >> 20} MiB",
                flush=True,
            )
            if name == "lines":
                print(f"  {lines(arguments, file)['account']}", flush=True)
        (one, low, high), (other, other_low, other_high) = costs
        below, above = math.hypot(one - low, other_high - other), math.hypot(high - one, other - other_low)
        print(f"{scene} lines beside records: {one - other:+.2f} % ({one - other - below:+.2f} to {one - other + above:+.2f})", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpuprof", type=os.path.abspath)
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--blocks", choices=COSTS, help=argparse.SUPPRESS)
    parser.add_argument("scenes", nargs="*")
    arguments = parser.parse_args()
    if arguments.blocks:
        return blocks(arguments.blocks, arguments.seconds)
    if arguments.cost:
        return cost(arguments)
    return 1 if planted(arguments) else 0


if __name__ == "__main__":
    sys.exit(main())
