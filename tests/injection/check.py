"""Runs the programs of workloads.py with the injection library, and compares the recordings with what the programs know.

    python check.py --library libgpuprof_inject.so --gpuprof gpuprof [--nsys nsys] [--out FOLDER] [SCENE...]

With --nsys, deterministic programs run once more under Nsight Systems, and both recordings are compared by nsys.py. Needs a GPU and
PyTorch; the scenes cupy and jax need these packages, and nvtx. Exits with 1 if anything differs, a program failed that ran without the
library, or a file cannot be read.
"""

import argparse
import csv
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter

import nsys

HERE = os.path.dirname(os.path.abspath(__file__))
WORKLOADS = os.path.join(HERE, "workloads.py")
# Further variables of a scene, and what is known of its processes: the states of their manifests in any order.
SCENES = {
    "train": ({}, ["finished"]),
    "single_threaded_backward": ({}, ["finished"]),
    "decode": ({}, ["finished"]),
    "transformer": ({}, ["finished"]),
    "triton": ({}, ["finished"]),
    "cupy": ({}, ["finished"]),
    "jax": ({}, ["finished"]),
    "data_loader_fork": ({}, ["finished"]),
    "data_loader_spawn": ({}, ["finished"]),
    "child": ({}, ["finished", "finished"]),
    # The launcher may or may not initialise CUDA.
    "torchrun": ({}, None),
    "threads": ({}, ["finished"]),
    "open_before": ({}, ["finished"]),
    "device_reset": ({"AFTER_RESET": ""}, ["finished"]),
    "profiler_api": ({"GPUPROF_OPTIONS": "start=cuda-profiler-api"}, ["finished"]),
    "range_start": ({"GPUPROF_OPTIONS": "start=range=wanted,stop=ranges=2"}, ["finished"]),
    "keep_last": ({"GPUPROF_OPTIONS": "keep-last=seconds=600,trigger=slow=0.3:slow"}, ["finished"]),
    "exit_without_synchronising": ({}, ["finished"]),
    "exit_in_thread": ({}, ["finished"]),
    "fork_after_cuda": ({}, ["finished"]),
    "torch_profiler": ({}, None),
    "idle": ({}, ["idle"]),
}
# Scenes of which the program does not know all ranges, since windows leave some out.
IN_WINDOWS = {"profiler_api", "range_start"}
# Scenes that do the same in every run, in one process. Of jax, nsys 2025.3 leaves no kernel, copy or call.
DETERMINISTIC = {"train", "single_threaded_backward", "decode", "transformer", "triton", "cupy", "threads", "open_before"}
NSYS = ["profile", "-t", "cuda,nvtx", "-s", "none", "--cpuctxsw=none", "--cuda-graph-trace=node", "-f", "true"]


def run(scene, environment, before=(), timeout=300):
    began = time.monotonic()
    done = subprocess.run(
        [*before, sys.executable, WORKLOADS, scene],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return done, time.monotonic() - began


def rows(arguments, report, file):
    done = subprocess.run(
        [arguments.gpuprof, "stats", report, "--format", "csv", file], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise ValueError(f"{os.path.basename(file)} is not readable: {done.stderr.strip()}")
    return list(csv.DictReader(done.stdout.splitlines()))


def of_domain(name):
    """The name of a range of the default domain."""
    return name[1:] if name.startswith(":") else None


def replayed(arguments, file):
    """The ranges in which work of CUDA graphs was captured."""
    done = subprocess.run(
        [arguments.gpuprof, "report", "--format", "jsonl", file], capture_output=True, text=True, check=True
    )
    lines = (json.loads(line) for line in done.stdout.splitlines())
    return [line for line in lines if "path" in line and line.get("replayed", {}).get("kernels")]


def recorded(arguments, files):
    ranges, kernels, total, copies, incomplete = Counter(), Counter(), 0, 0, []
    for file in files:
        for row in rows(arguments, "nvtx_sum", file):
            ranges[of_domain(row["Range"])] += int(row["Instances"])
        for row in rows(arguments, "nvtx_kern_sum", file):
            kernels[of_domain(row["NVTX Range"])] += int(row["Kern Inst"])
        total += sum(int(row["Instances"]) for row in rows(arguments, "cuda_gpu_kern_sum", file))
        for row in rows(arguments, "cuda_gpu_mem_size_sum", file):
            copies += int(row["Count"]) if "memcpy" in row["Operation"] else 0
        for row in replayed(arguments, file):
            kernels[row["path"].rsplit("/", 1)[-1]] += row["replayed"]["kernels"]
        report = subprocess.run([arguments.gpuprof, "report", file], capture_output=True, text=True)
        incomplete += [line.strip() for line in report.stdout.splitlines() if "INCOMPLETE" in line]
    return ranges, kernels, total, copies, incomplete


def compared(arguments, scene, folder, file):
    """What nsys.py says of a second run under Nsight Systems."""
    capture, own = (os.path.join(folder, name) for name in ("nsys", "ours.sqlite"))
    done, _ = run(scene, {}, [arguments.nsys, *NSYS, "-o", capture])
    steps = [
        [arguments.nsys, "export", "--type", "sqlite", "-f", "true", "-o", f"{capture}.sqlite", f"{capture}.nsys-rep"],
        [arguments.gpuprof, "export", "--format", "nsys", "--no-inferred", "-o", own, file],
    ]
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True)
        if done.returncode != 0:
            return [], [f"{step[:2]}: {done.stderr[-1000:]}"]
    return nsys.compare(own, f"{capture}.sqlite")


def incidents(arguments, folder, environment):
    """What is wrong with the one file that the range `slow` has written."""
    files = glob.glob(os.path.join(folder, "incidents", "*.gpuprof"))
    if "trigger=" not in environment.get("GPUPROF_OPTIONS", ""):
        return [f"incidents {files}"] if files else []
    if len(files) != 1 or not files[0].endswith("-1-slow.gpuprof"):
        return [f"incidents {files} instead of one of a slow range"]
    slow = [row for row in rows(arguments, "nvtx_kern_sum", files[0]) if of_domain(row["NVTX Range"]) == "slow"]
    return [] if slow else ["the incident has no kernel in the slow range"]


def all_expected(expected):
    for child in expected["children"]:
        yield from all_expected(child)
    yield expected


def check(arguments, scene):
    environment, states = SCENES[scene]
    plain, plain_s = run(scene, {})
    if plain.returncode != 0:
        return [f"it fails without the library, too: {plain.stderr[-2000:]}"], ""
    folder = os.path.join(arguments.out, scene)
    os.makedirs(folder)
    injected, injected_s = run(
        scene,
        {
            "CUDA_INJECTION64_PATH": arguments.library,
            "NVTX_INJECTION64_PATH": arguments.library,
            "GPUPROF_RUN": folder,
            **environment,
            "GPUPROF_OPTIONS": ",".join(filter(None, ["log=stderr", environment.get("GPUPROF_OPTIONS")])),
        },
    )
    errors = []
    if injected.returncode != plain.returncode:
        errors.append(f"status {injected.returncode}: {injected.stderr[-2000:]}")
    if "gpuprof:" in injected.stderr:
        errors.append(injected.stderr[-2000:])
    lines = [line for line in injected.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return errors + [f"no counts in {injected.stdout[-500:]!r}"], ""
    expected = json.loads(lines[-1])
    manifests = [json.load(open(file)) for file in glob.glob(os.path.join(folder, "*.json"))]
    found = sorted(manifest["state"] for manifest in manifests)
    if states is not None and found != sorted(states):
        errors.append(f"states {found} instead of {states}: {[m.get('reason') for m in manifests]}")
    files = sorted(glob.glob(os.path.join(folder, "*.gpuprof")))
    try:
        ranges, kernels, total, copies, incomplete = recorded(arguments, files)
        errors += incidents(arguments, folder, environment)
    except ValueError as error:
        return errors + [str(error)], ""
    for program in all_expected(expected):
        for name, count in program["ranges"].items():
            right = ranges[name] >= count if scene in IN_WINDOWS else ranges[name] == count
            if not right:
                errors.append(f"{ranges[name]} ranges {name!r} instead of {count}")
        for name, count in program["kernels"].items():
            if name and kernels[name] != count:
                errors.append(f"{kernels[name]} kernels in {name!r} instead of {count}")
        for one, times, other, other_times in program["same"]:
            if not kernels[one] or kernels[one] * other_times != kernels[other] * times:
                errors.append(f"{kernels[one]} kernels in {times} {one!r}, {kernels[other]} in {other_times} {other!r}")
    if scene in IN_WINDOWS and total != sum(expected["kernels"].values()):
        errors.append(f"{total} kernels in the windows instead of {sum(expected['kernels'].values())}")
    if copies < expected["copies"]:
        errors.append(f"{copies} copies instead of {expected['copies']} or more")
    # Two users of CUPTI take records from each other.
    errors += incomplete if scene != "torch_profiler" else []
    text = (
        f"{len(manifests)} processes, {len(files)} files, {total} kernels, {copies} copies, "
        f"{sum(ranges.values())} ranges; {plain_s:.1f} s without and {injected_s:.1f} s with the library"
    )
    if arguments.nsys and scene in DETERMINISTIC and not errors:
        lines, errors = compared(arguments, scene, folder, files[0])
        text += "".join(f"\n       nsys: {line}" for line in lines)
    # What else a program said of itself.
    return errors, text + "".join(f"\n       {line}" for line in injected.stdout.splitlines() if line[:1] != "{")


def bench(arguments):
    """The cost of launches, steps and ranges, by turns."""
    results = {"without": [], "with": []} | ({"nsys": []} if arguments.nsys else {})
    for round_ in range(arguments.rounds):
        for name in results:
            environment = {}
            if name == "with":
                folder = os.path.join(arguments.out, f"bench-{round_}")
                os.makedirs(folder)
                environment = {
                    "CUDA_INJECTION64_PATH": arguments.library,
                    "NVTX_INJECTION64_PATH": arguments.library,
                    "GPUPROF_RUN": folder,
                }
            before = [arguments.nsys, *NSYS, "-o", os.path.join(arguments.out, "bench")] if name == "nsys" else []
            done, _ = run("bench", environment, before)
            results[name].append(json.loads(next(line for line in done.stdout.splitlines() if line[:1] == "{")))
            print(f"{name}: " + ", ".join(f"{key} {value:.0f}" for key, value in results[name][-1].items()), flush=True)
    for key in results["without"][0]:
        for name, rounds in results.items():
            values = [one[key] for one in rounds]
            print(f"{key} {name}: median {statistics.median(values):.0f}, {min(values):.0f} to {max(values):.0f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True, type=os.path.abspath)
    parser.add_argument("--gpuprof", required=True, type=os.path.abspath)
    parser.add_argument("--nsys", default=None, type=os.path.abspath)
    parser.add_argument("--out", default=None)
    parser.add_argument("--bench", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("scenes", nargs="*")
    arguments = parser.parse_args()
    arguments.out = os.path.abspath(arguments.out or tempfile.mkdtemp(prefix="injection-"))
    if arguments.bench:
        return bench(arguments)
    failed = 0
    for scene in arguments.scenes or SCENES:
        try:
            errors, text = check(arguments, scene)
        except subprocess.TimeoutExpired as error:
            errors, text = [f"it does not end: {error}"], ""
        failed += bool(errors)
        print(f"{'FAILED' if errors else 'ok':6} {scene}: {text}", flush=True)
        for error in errors:
            print(f"       {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
