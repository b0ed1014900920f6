"""Runs small distributed PyTorch programs under `gpuprof run`, and compares the collectives of the recordings with what the programs did.

    python ranks.py --library libgpuprof_inject.so --gpuprof gpuprof [--nsys NSYS] [--out FOLDER] [SCENE...]
    python ranks.py ... --rust all_reduce [SCENE...]
    python ranks.py ... --bench [--rounds N]
    python ranks.py ... --windows [--pairs N]
    python ranks.py ... --aligned [SCENE...]

`--rust` names the built example all_reduce of frameworks/cudarc, the scene `rust`, whose ranks are threads of one process.

Needs two GPUs, PyTorch and NCCL 2.26 or newer. A line for each scene; exits with 1 if anything differs. `--nsys` also runs the scenes of
`OF_NSYS` under Nsight Systems, and compares calls and bytes with those of NCCL's NVTX ranges there. `--bench` measures AllReduce
with and without the plugin, and under a full recording, by turns in processes of their own. `--windows` records one training whose steps
are in windows of 50, of which every other one has a straggler, and counts in how many `gpuprof ranks --range` names it, with its cause.
`--aligned` compares the time of the transfer, by function and bytes, with the length of the kernels in a run in which both GPUs begin each
collective together, behind a barrier; and with `--nsys` these lengths with those that Nsight Systems has of such a run.
"""

import argparse
import collections
import csv
import glob
import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

# NVLink multicast stays off on machines that are shared.
ENVIRONMENT = {"NCCL_NVLS_ENABLE": "0", "TORCH_NCCL_ENABLE_MONITORING": "0"}
STEPS = 50
DELAY_US = 2000
SIZES = [128 << 10, 512 << 10, 1 << 20, 4 << 20]
# Of the windows: the least delay by the time of a step, and by the natural skew.
LEAST_DELAY, TIMES_SKEW = 0.05, 3
# What holds a rank up: the cause that is expected, and how the range or kernel ends or begins.
CAUSES = {"sleep": ("host_gap", "checkpoint"), "kernel": ("extra_kernel", "spin_kernel"), "loader": ("data", "load batch")}
# Programs whose calls nsys is asked for, too.
OF_NSYS = ["reduce", "ddp", "fsdp", "pipeline"]
# Programs whose collectives can be aligned, and how far their transfer may be from the aligned one: a share, or microseconds.
ALIGNED = ["reduce", "fsdp", "pipeline"]
MOST_OFF, MOST_OFF_US = 0.05, 3
# Tells a rank to align its collectives, by a barrier of so many bytes.
ALIGN, BARRIER_BYTES = "RANKS_ALIGN", 4


class Counted:
    """What this rank did: calls of each function with their bytes, as NCCL states them."""

    def __init__(self):
        import torch
        import torch.distributed as dist

        self.torch, self.dist = torch, dist
        self.rank = int(os.environ["RANK"])
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
        self.calls = collections.Counter()
        self.barrier = torch.zeros(BARRIER_BYTES // 4, device="cuda") if os.environ.get(ALIGN) else None

    def align(self):
        """If collectives are aligned: the next one is queued behind a barrier, which ends on both GPUs at once."""
        if self.barrier is not None:
            self.torch.cuda.synchronize()
            self.torch.cuda._sleep(1_000_000)
            self.dist.all_reduce(self.barrier)

    def count(self, function, tensor):
        self.calls[f"{function} {tensor.numel() * tensor.element_size()}"] += 1

    def done(self, **more):
        self.torch.cuda.synchronize()
        # One write, so that the lines of ranks do not mix.
        sys.stdout.write(json.dumps({"rank": self.rank, "calls": self.calls, **more}) + "\n")
        sys.stdout.flush()
        self.dist.destroy_process_group()


def reduce(counted):
    """AllReduces of several sizes, in ranges."""
    torch, dist = counted.torch, counted.dist
    tensors = [torch.ones(size // 4, device="cuda") for size in SIZES]
    for _ in range(STEPS):
        with torch.cuda.nvtx.range("step"):
            for tensor in tensors:
                counted.align()
                with torch.cuda.nvtx.range(f"reduce {tensor.numel() * 4}"):
                    dist.all_reduce(tensor)
                counted.count("AllReduce", tensor)
    counted.done()


def ddp(counted):
    """A model under DistributedDataParallel: its gradients are one bucket, reduced by autograd's thread."""
    torch = counted.torch
    layers = [torch.nn.Linear(1024, 1024, bias=False) for _ in range(4)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).cuda(), bucket_cap_mb=1000)
    x = torch.randn(64, 1024, device="cuda")
    for _ in range(STEPS):
        with torch.cuda.nvtx.range("step"):
            model(x).sum().backward()
    # The sizes of buckets are DDP's: their sum is that of the gradients, in each step.
    gradients = sum(parameter.numel() * 4 for parameter in model.parameters())
    counted.done(reduced_bytes=gradients * STEPS)


def fsdp(counted):
    """What FSDP does: gathers the shards of parameters, and scatters the sums of gradients."""
    torch, dist = counted.torch, counted.dist
    shard = torch.ones(1 << 18, device="cuda")
    whole = torch.ones(1 << 19, device="cuda")
    for _ in range(STEPS):
        counted.align()
        with torch.cuda.nvtx.range("gather"):
            dist.all_gather_into_tensor(whole, shard)
        counted.count("AllGather", shard)
        counted.align()
        with torch.cuda.nvtx.range("scatter"):
            dist.reduce_scatter_tensor(shard, whole)
        counted.count("ReduceScatter", shard)
    counted.done()


def pipeline(counted):
    """Sends to the next stage and receives from the one before."""
    torch, dist = counted.torch, counted.dist
    x = torch.ones(1 << 16, device="cuda")
    for _ in range(STEPS):
        with torch.cuda.nvtx.range("stage"):
            counted.align()
            dist.send(x, 1) if counted.rank == 0 else dist.recv(x, 0)
            counted.align()
            dist.recv(x, 1) if counted.rank == 0 else dist.send(x, 0)
        counted.count("Send", x)
        counted.count("Recv", x)
    counted.done()


def cycles_per_us(torch):
    """How many cycles of the GPU's clock a microsecond has."""

    def spin(cycles):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        torch.cuda._sleep(cycles)
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) * 1000

    spin(100_000_000)
    return 100_000_000 / spin(100_000_000)


def delayed(counted):
    """Rank 1 comes late by a kernel of known length: it spins on the GPU's own clock."""
    torch, dist = counted.torch, counted.dist
    x = torch.ones(1 << 18, device="cuda")
    y = torch.ones(1 << 24, device="cuda")
    per_us = cycles_per_us(torch)
    lengths = []
    for _ in range(STEPS):
        # Both ranks start together: after a barrier that ends on both GPUs at once, when all that follows is queued.
        torch.cuda._sleep(int(per_us * 1000))
        dist.all_reduce(x)
        counted.count("AllReduce", x)
        with torch.cuda.nvtx.range("work"):
            y.add_(1)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            torch.cuda._sleep(int(per_us * (500 + DELAY_US * counted.rank)))
            end.record()
        with torch.cuda.nvtx.range("late"):
            dist.all_reduce(x[: 1 << 17])
        counted.count("AllReduce", x[: 1 << 17])
        torch.cuda.synchronize()
        lengths.append(begin.elapsed_time(end) * 1000)
    counted.done(length_us=statistics.median(lengths))


def steps(counted, late_s):
    """Steps whose host sleeps this long in a range of its own."""
    torch, dist = counted.torch, counted.dist
    x = torch.ones(1 << 20, device="cuda")
    y = torch.ones(1 << 26, device="cuda")
    for _ in range(STEPS):
        with torch.cuda.nvtx.range("step"):
            for _ in range(10):
                y.add_(1)
            torch.cuda.synchronize()
            with torch.cuda.nvtx.range("checkpoint"):
                time.sleep(late_s)
            dist.all_reduce(x)
            counted.count("AllReduce", x)
            torch.cuda.synchronize()
    counted.done()


def sleeping(counted):
    """Rank 1's host sleeps."""
    steps(counted, DELAY_US * 1e-6 if counted.rank == 1 else 0)


def balanced(counted):
    """No rank sleeps."""
    steps(counted, 0)


def split(counted):
    """Communicators that come and go."""
    torch, dist = counted.torch, counted.dist
    x = torch.ones(1 << 16, device="cuda")
    for _ in range(3):
        group = dist.new_group([0, 1])
        for _ in range(5):
            dist.all_reduce(x, group=group)
            counted.count("AllReduce", x)
        torch.cuda.synchronize()
        dist.destroy_process_group(group)
    counted.done()


class Training:
    """A model under DistributedDataParallel, whose step can be held up. The loss is read in each step, as training loops do."""

    def __init__(self, counted):
        torch = self.torch = counted.torch
        self.dist = counted.dist
        layers = []
        for _ in range(6):
            layers += [torch.nn.Linear(2048, 2048, bias=False), torch.nn.GELU()]
        # In single precision: tensor cores at full load reach the limit of power, which slows one GPU more than the other.
        model = torch.nn.Sequential(*layers).cuda()
        self.model = torch.nn.parallel.DistributedDataParallel(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self.batch = torch.randn(2048, 2048, device="cuda")
        self.hertz = 1e6 * cycles_per_us(torch)

    def step(self, delay=None, seconds=0.0):
        """A step of the training, held up by as many seconds."""
        range_ = self.torch.cuda.nvtx.range
        with range_("step"):
            with range_("load batch"):
                if delay == "loader":
                    time.sleep(seconds)
            with range_("forward"):
                loss = self.model(self.batch).square().mean()
                if delay == "kernel":
                    # Behind others: at the start of a step the GPU waits for the host, and the kernel would cost less than its length.
                    self.torch.cuda._sleep(int(seconds * self.hertz))
            with range_("backward"):
                loss.backward()
            with range_("optimizer"):
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
            loss.item()
            with range_("checkpoint"):
                if delay == "sleep":
                    time.sleep(seconds)

    def all_ranks(self, value):
        """The values of both ranks."""
        mine = self.torch.tensor([value], device="cuda", dtype=self.torch.float64)
        values = [self.torch.zeros_like(mine) for _ in range(2)]
        self.dist.all_gather(values, mine)
        return [float(value.item()) for value in values]


def natural(training):
    """Seconds of a step, and by how much the ranks are apart at the end of a forward pass, which they begin together: medians of 100."""
    torch = training.torch
    lengths, skews = [], []
    for _ in range(100):
        began = time.monotonic()
        training.step()
        lengths.append(time.monotonic() - began)
        with torch.no_grad():
            training.model.module(training.batch)
        torch.cuda.synchronize()
        both = training.all_ranks(time.monotonic())
        skews.append(abs(both[0] - both[1]))
    return statistics.median(lengths), statistics.median(skews)


def windows(counted):
    """Windows of 50 steps, of which every other one has a straggler: which rank, and what holds it up, are drawn by a seed."""
    training = Training(counted)
    for _ in range(20):
        training.step()
    step_s, skew_s = natural(training)
    # Both ranks plan with the numbers of rank 0.
    step_s, skew_s = (training.all_ranks(value)[0] for value in (step_s, skew_s))
    seconds = max(LEAST_DELAY * step_s, TIMES_SKEW * skew_s)
    pairs = int(os.environ["WINDOW_PAIRS"])
    planted = plan(pairs)
    for rank, cause in planted:
        for delay in (None, cause if counted.rank == rank else None):
            with counted.torch.cuda.nvtx.range("window"):
                for _ in range(STEPS):
                    training.step(delay, seconds)
    counted.done(step_us=step_s * 1e6, skew_us=skew_s * 1e6, delay_us=seconds * 1e6)


def plan(pairs):
    """The rank that is late, and what holds it up, in the second window of each pair."""
    draw = random.Random(24)
    return [(draw.randrange(2), draw.choice(sorted(CAUSES))) for _ in range(pairs)]


def straggler(report, late):
    """The rank of a straggler, its cause, and the range or kernel."""
    return report["ranks"][late["rank"]]["rank"], late["cause"], late.get("range") or late.get("kernel") or ""


def check_windows(arguments):
    folder = os.path.join(arguments.out, "windows")
    os.environ["WINDOW_PAIRS"] = str(arguments.pairs)
    began = time.monotonic()
    done = launch(arguments, "windows", folder)
    if done.returncode != 0:
        print(f"FAILED status {done.returncode}: {done.stderr[-1500:]}")
        return 1
    said = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    ran = time.monotonic() - began
    judge = [arguments.gpuprof, "ranks", "--range", "window", "--format", "json", folder]
    report = json.loads(subprocess.run(judge, capture_output=True, text=True, check=True).stdout)
    with open(os.path.join(arguments.out, "windows.json"), "w") as file:
        json.dump({"said": said, "report": report}, file)
    print(
        f"{ran:.0f} s run, {time.monotonic() - began - ran:.0f} s read; step {said['step_us']:.0f} us, natural skew {said['skew_us']:.1f} us, "
        f"delay {said['delay_us']:.0f} us; {report['matched']} matched, {report['unmatched']} not"
    )
    planted = plan(arguments.pairs)
    found = {window["number"]: window for window in report["windows"]}
    if sorted(found) != list(range(2 * arguments.pairs)):
        print(f"FAILED {len(found)} windows instead of {2 * arguments.pairs}")
        return 1
    named, wrong = collections.Counter(), 0
    for at, (rank, cause) in enumerate(planted):
        for number in (2 * at, 2 * at + 1):
            window = found[number]
            late = [straggler(report, one) for one in window["stragglers"]]
            shares = [f"{100 * one['share']:.1f} % {one['deviations']:.1f} dev" for one in window["stragglers"]]
            if number % 2 == 0:
                wrong += bool(late)
                if late:
                    print(f"       balanced window {number}: {late} {shares}")
                continue
            expected, place = CAUSES[cause]
            is_right = [one[:2] for one in late] == [(rank, expected)] and place in late[0][2]
            named[cause] += is_right
            if not is_right:
                print(f"       window {number} with rank {rank}, {cause}: {late} {shares}")
    of = collections.Counter(cause for _, cause in planted)
    total, least = sum(named.values()), 0.95 * arguments.pairs
    causes = ", ".join(f"{cause} {named[cause]} of {of[cause]}" for cause in sorted(of))
    failed = total < least or wrong > 0.01 * arguments.pairs
    print(
        f"{'FAILED' if failed else 'ok':6} named with cause in {total} of {arguments.pairs} windows ({causes}); "
        f"a rank named in {wrong} of {arguments.pairs} balanced windows"
    )
    return int(failed)


def lengths(rows):
    """The lengths of kernels in microseconds by function and bytes, of both ranks, without barriers. What is sent is what is received."""
    of = collections.defaultdict(list)
    for row in rows:
        if row["start_ns"] and row["end_ns"] and int(row["bytes"]) != BARRIER_BYTES:
            function = row["function"].replace("Recv", "Send")
            of[f"{function} {row['bytes']}"].append((int(row["end_ns"]) - int(row["start_ns"])) / 1000)
    return of


def nsys_lengths(arguments, scene, rows):
    """The same from a capture of nsys: its kernels of NCCL on each device are those of the rank, one after the other."""
    report = os.path.join(arguments.out, f"{scene}-aligned-nsys")
    capture(arguments, scene, report)
    ours = {rank: sorted((row for row in rows if int(row["rank"]) == rank and row["start_ns"]), key=lambda row: int(row["start_ns"]))
            for rank in (0, 1)}
    of = []
    with sqlite3.connect(f"{report}.sqlite") as file:
        for rank in (0, 1):
            query = (
                "SELECT k.start, k.end FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName "
                "WHERE s.value LIKE 'ncclDevKernel%' AND k.deviceId = ? ORDER BY k.start"
            )
            theirs = file.execute(query, (rank,)).fetchall()
            if len(theirs) != len(ours[rank]):
                raise ValueError(f"nsys has {len(theirs)} kernels of NCCL on GPU {rank}, we have {len(ours[rank])}")
            of += [{**row, "start_ns": str(start), "end_ns": str(end)} for row, (start, end) in zip(ours[rank], theirs)]
    return lengths(of)


def check_aligned(arguments, scene):
    """The transfer of a run as it is, beside the lengths of kernels in a run whose collectives are aligned."""
    folder = os.path.join(arguments.out, f"{scene}-as-it-is")
    aligned = os.path.join(arguments.out, f"{scene}-aligned")
    runs = [launch(arguments, scene, folder)]
    os.environ[ALIGN] = "1"
    try:
        runs.append(launch(arguments, scene, aligned))
        for done in runs:
            if done.returncode != 0:
                return [f"status {done.returncode}: {done.stderr[-1500:]}"], ""
        rows = list(csv.DictReader(ranks(arguments, aligned, "csv").splitlines()))
        truth = {call: statistics.median(us) for call, us in lengths(rows).items()}
        theirs = nsys_lengths(arguments, scene, rows) if arguments.nsys else {}
    finally:
        del os.environ[ALIGN]
    report = json.loads(ranks(arguments, folder, "json"))
    found = {f"{group['function'].replace('Recv', 'Send')} {group['bytes']}": group["transfer_ns"] / 1000 for group in report["collectives"]}
    errors, text = [], ""
    for call, us in sorted(truth.items()):
        own = found.get(call)
        if own is None:
            errors.append(f"{call} is not in {sorted(found)}")
            continue
        text += f"\n       {call} B: transfer {own:.2f} us, aligned {us:.2f} us"
        if abs(own - us) > max(MOST_OFF * us, MOST_OFF_US):
            errors.append(f"{call}: transfer of {own:.2f} us is too far from {us:.2f}")
        if call in theirs:
            other = statistics.median(theirs[call])
            text += f", nsys aligned {other:.2f} us"
            if abs(other - us) > max(MOST_OFF * us, MOST_OFF_US):
                errors.append(f"{call}: {us:.2f} us is too far from nsys's {other:.2f}")
    if not truth:
        errors.append("no collective has a kernel")
    return errors, text


def bench_rank():
    """The median time of an AllReduce of each size, back to back."""
    counted = Counted()
    torch, dist = counted.torch, counted.dist
    results = {}
    for size in SIZES:
        x = torch.zeros(size // 4, device="cuda")
        for _ in range(200):
            dist.all_reduce(x)
        torch.cuda.synchronize()
        times = []
        for _ in range(20):
            began = time.perf_counter()
            for _ in range(50):
                dist.all_reduce(x)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - began) / 50 * 1e6)
        results[size] = statistics.median(times)
    if counted.rank == 0:
        print(json.dumps(results), flush=True)
    dist.destroy_process_group()


SCENES = {scene.__name__: scene for scene in [reduce, ddp, fsdp, pipeline, delayed, sleeping, balanced, split]}


def torchrun(scene):
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", __file__, "--rank-of", scene]


def program(arguments, scene):
    return [arguments.rust] if scene == "rust" else torchrun(scene)


def nccl_folder(arguments):
    """A folder with PyTorch's NCCL by the name that cudarc looks for."""
    folder = os.path.join(arguments.out, "nccl")
    link = os.path.join(folder, "libnccl.so")
    if not os.path.exists(link):
        os.makedirs(folder, exist_ok=True)
        found = [path for one in sys.path for path in glob.glob(os.path.join(one, "nvidia", "nccl", "lib", "libnccl.so.2"))]
        os.symlink(found[0], link)
    return folder


def launch(arguments, scene, folder, plugin=None):
    command = [arguments.gpuprof, "run", "-q", "--inject", arguments.library, "-o", folder, "--", *program(arguments, scene)]
    environment = {**os.environ, **ENVIRONMENT}
    if scene == "rust":
        before = [environment["LD_LIBRARY_PATH"]] if environment.get("LD_LIBRARY_PATH") else []
        environment["LD_LIBRARY_PATH"] = ":".join([*before, nccl_folder(arguments)])
    if plugin:
        environment["NCCL_PROFILER_PLUGIN"] = plugin
    # A run that hangs leaves time for the others.
    left = max(arguments.until - time.monotonic(), 1)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=min(left, 90 if scene != "windows" else 200))


def ranks(arguments, folder, format_):
    done = subprocess.run(
        [arguments.gpuprof, "ranks", "--format", format_, folder], capture_output=True, text=True, check=True
    )
    return done.stdout


def counts_of(rows):
    """Calls of each function with bytes, by rank of the first communicator."""
    calls = {0: collections.Counter(), 1: collections.Counter()}
    for row in rows:
        calls[int(row["rank"])][f"{row['function']} {row['bytes']}"] += 1
    return calls


def capture(arguments, scene, report):
    """A capture of nsys, exported."""
    quiet = {"env": {**os.environ, **ENVIRONMENT}, "capture_output": True, "text": True, "check": True, "timeout": 120}
    profile = [arguments.nsys, "profile", "-t", "cuda,nvtx", "-s", "none", "--cpuctxsw=none", "-f", "true", "-o", report]
    subprocess.run([*profile, *torchrun(scene)], **quiet)
    export = [arguments.nsys, "export", "--type", "sqlite", "--include-json", "true", "-f", "true", "-o", f"{report}.sqlite", f"{report}.nsys-rep"]
    subprocess.run(export, **quiet)


def nsys_counts(arguments, scene):
    """Calls of each function with bytes of both ranks, from NCCL's NVTX ranges in a capture of nsys."""
    report = os.path.join(arguments.out, f"{scene}-nsys")
    capture(arguments, scene, report)
    calls = collections.Counter()
    with sqlite3.connect(f"{report}.sqlite") as file:
        query = (
            "SELECT coalesce(e.text, t.value), coalesce(e.jsonText, j.value) FROM NVTX_EVENTS e "
            "LEFT JOIN StringIds t ON t.id = e.textId LEFT JOIN StringIds j ON j.id = e.jsonTextId"
        )
        for name, payload in file.execute(query):
            if not payload or not name or not name.startswith("nccl"):
                continue
            sizes = [value for key, value in json.loads(payload).items() if "size" in key.lower() or "byte" in key.lower()]
            if sizes:
                calls[f"{name.removeprefix('nccl')} {int(sizes[0])}"] += 1
    return calls


def check(arguments, scene):
    folder = os.path.join(arguments.out, scene)
    done = launch(arguments, scene, folder)
    if done.returncode != 0:
        return [f"status {done.returncode}: {done.stderr[-1500:]}"], ""
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(said) != 2:
        return [f"{len(said)} ranks counted: {done.stdout[-500:]}"], ""
    rows = list(csv.DictReader(ranks(arguments, folder, "csv").splitlines()))
    report = json.loads(ranks(arguments, folder, "json"))
    errors = []
    if any(row["source"] != "plugin" for row in rows):
        # Ranks are the plugin's; without them nothing else can be compared.
        return [f"the plugin was not loaded: {report['without_plugin']}"], ""
    found = counts_of(rows)
    for rank in said:
        own = found[rank["rank"]]
        for call, count in rank["calls"].items():
            if own[call] != count:
                errors.append(f"rank {rank['rank']}: {own[call]} of {call} instead of {count}; {dict(own)}")
        if "reduced_bytes" in rank:
            of_range = [row for row in rows if int(row["rank"]) == rank["rank"] and row["function"] == "AllReduce"]
            reduced = sum(int(row["bytes"]) for row in of_range)
            # DDP also compares the model's parameters when it begins.
            if not rank["reduced_bytes"] <= reduced <= rank["reduced_bytes"] * 1.05:
                errors.append(f"rank {rank['rank']}: {reduced} bytes reduced instead of {rank['reduced_bytes']}")
    without_kernel = sum(not row["start_ns"] for row in rows)
    if without_kernel:
        errors.append(f"{without_kernel} of {len(rows)} collectives have no kernel")
    if arguments.nsys and scene in OF_NSYS:
        of_nsys, ours = nsys_counts(arguments, scene), found[0] + found[1]
        if of_nsys != ours:
            errors.append(f"nsys has {dict(of_nsys - ours)} more and {dict(ours - of_nsys)} less than {dict(ours)}")
    text = f"{len(rows)} collectives, {report['matched']} matched, {report['unmatched']} not"
    names = [report["ranks"][late["rank"]]["rank"] for late in report["stragglers"]]
    causes = [late["cause"] for late in report["stragglers"]]
    text += f"; stragglers {list(zip(names, causes))}"
    if scene in ("sleeping", "delayed") and names[:1] != [1]:
        errors.append("rank 1 is not named")
    if scene == "sleeping" and causes[:1] != ["host_gap"]:
        errors.append(f"the cause is {causes}")
    if scene == "delayed" and causes[:1] != ["longer_kernel"]:
        errors.append(f"the cause is {causes}")
    if scene == "balanced" and names:
        errors.append("a rank is named in a balanced run")
    if scene == "delayed":
        late = collections.defaultdict(list)
        for row in rows:
            if row["range"].endswith("late"):
                late[row["sequence"]].append(int(row["start_ns"]))
        skew = statistics.median(max(starts) - min(starts) for starts in late.values() if len(starts) == 2) / 1000
        planted = said[0]["length_us"] - said[1]["length_us"]
        planted = abs(planted)
        text += f"; skew {skew:.1f} us, planted {planted:.1f} us"
        if abs(skew - planted) > 3:
            errors.append(f"skew is {skew - planted:+.1f} us from the planted delay")
    for group in report["collectives"][:4]:
        bus = group["bus_bandwidth"] or 0
        text += (
            f"\n       {group['function']} {group['bytes']} B x {group['count']}: skew {group['skew_ns'] / 1000:.1f} us, "
            f"transfer {group['transfer_ns'] / 1000:.1f} us, bus {bus:.1f} GB/s"
        )
    return errors, text


def bench(arguments):
    """Plain, with the library and without the plugin, and with both, by turns."""
    results = {name: collections.defaultdict(list) for name in ("plain", "without plugin", "with plugin")}
    for round_ in range(arguments.rounds):
        for name in results:
            if name == "plain":
                done = subprocess.run(
                    torchrun("bench"), env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, timeout=120
                )
            else:
                folder = os.path.join(arguments.out, f"bench-{round_}-{name}")
                done = launch(arguments, "bench", folder, "none" if name == "without plugin" else None)
            line = next(line for line in done.stdout.splitlines() if line.startswith("{"))
            for size, us in json.loads(line).items():
                results[name][int(size)].append(us)
    for size in SIZES:
        for name, of_name in results.items():
            values = sorted(of_name[size])
            print(
                f"AllReduce of {size >> 10} KiB, {name}: median {statistics.median(values):.1f} us, "
                f"{values[0]:.1f} to {values[-1]:.1f} in {len(values)} processes",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank-of", help="run one rank of this scene")
    parser.add_argument("--library", type=os.path.abspath)
    parser.add_argument("--gpuprof", type=os.path.abspath)
    parser.add_argument("--rust", type=os.path.abspath, help="the built example all_reduce")
    parser.add_argument("--nsys", type=os.path.abspath, help="also compares with captures of this nsys")
    parser.add_argument("--out", default=None)
    parser.add_argument("--bench", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--windows", action="store_true")
    parser.add_argument("--aligned", action="store_true")
    parser.add_argument("--pairs", type=int, default=100, help="of windows, one balanced and one not")
    parser.add_argument("--seconds", type=float, default=230, help="after which scenes end")
    parser.add_argument("scenes", nargs="*")
    arguments = parser.parse_args()
    if arguments.rank_of == "bench":
        return bench_rank()
    if arguments.rank_of == "windows":
        return windows(Counted())
    if arguments.rank_of:
        return SCENES[arguments.rank_of](Counted())
    arguments.out = os.path.abspath(arguments.out or tempfile.mkdtemp(prefix="ranks-"))
    os.makedirs(arguments.out, exist_ok=True)
    arguments.until = time.monotonic() + (float("inf") if arguments.bench else arguments.seconds)
    if arguments.bench:
        return bench(arguments)
    if arguments.windows:
        return check_windows(arguments)
    failed = 0
    judge, scenes = (check_aligned, ALIGNED) if arguments.aligned else (check, [*SCENES, *(["rust"] if arguments.rust else [])])
    for scene in arguments.scenes or scenes:
        began = time.monotonic()
        try:
            errors, text = judge(arguments, scene)
        except (subprocess.SubprocessError, ValueError, KeyError) as error:
            errors, text = [repr(error), getattr(error, "stderr", None) or ""], ""
        failed += bool(errors)
        print(f"{'FAILED' if errors else 'ok':6} {scene} ({time.monotonic() - began:.0f} s): {text}", flush=True)
        for error in errors:
            print(f"       {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
