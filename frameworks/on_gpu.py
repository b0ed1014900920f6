#!/usr/bin/env python3
"""Runs what is to be shown of candle, burn, cudarc and tch on a GPU, in less than 8 minutes, and prints one JSON.

usage: frameworks/on_gpu.py FOLDER [--seconds S] [--steps N] [--rounds N] [--nsys NSYS] [--kernels FOLDER] [--only NAME,...]

FOLDER holds the built examples `gpt`, `train`, `digits` and `server`: frameworks/bundle makes it. Those that are missing, or do not
fit into the time, are named in the result. Burn compiles its kernels for minutes, unless `--kernels` names the folder that an earlier
run has filled (`[compilation.cache]` of cubecl.toml). For each example:

  attributed    kernels and their GPU time in ranges, of all
  alone         kernels by range, beside a run that waits for the GPU at every boundary and counts by time: all equal?
  order         kernels in the order of their start, beside those that nsys saw of a run without the profiler: equal?
  step_ms       median step times without a profiler, with it, and under nsys, in turn
  nsys          kernels by range name, ours and nsys's of as many kernels at the end of its run

What a program prints, and what its threads did when it took too long, goes to standard error. Only Python's own modules are used.
"""
import argparse, glob, importlib.util, json, os, shutil, site, sqlite3, statistics, subprocess, sys, tempfile, time

import thread_dump

parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
parser.add_argument("folder")
parser.add_argument("--seconds", type=float, default=470)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--nsys", default=shutil.which("nsys"))
parser.add_argument("--kernels", type=os.path.abspath)
parser.add_argument("--only", default="gpt,server,digits,train,train-fusion")
options = parser.parse_args()
began = time.monotonic()

# Name: the program, its own options, the seconds of all its runs, and those that one may take.
PROGRAMS = {
    "gpt": ("gpt", [], 100, 40),
    "server": ("server", [], 20, 20),
    "digits": ("digits", [], 70, 40),
    "train": ("train", [], 160, 130),
    "train-fusion": ("train", ["--fusion"], 160, 130),
}
# The type of an NVTX event that is a range pushed and popped.
PUSH_POP = 59


deadline = began + options.seconds
# The time at which the runs of the present example end.
end_of_share = deadline


def left():
    return min(deadline, end_of_share) - time.monotonic()


class TooLong(Exception):
    pass


def packages():
    """The folders of Python's packages, the one with PyTorch among them."""
    torch = importlib.util.find_spec("torch")
    origins = [os.path.dirname(os.path.dirname(torch.origin))] if torch and torch.origin else []
    return sorted({path for path in [*origins, *site.getsitepackages()] if os.path.isdir(path)})


def environment(work):
    """The libraries of NVIDIA's Python packages and of PyTorch, which the GPU's machine has."""
    sites = packages()
    found = [path for one in sites for path in glob.glob(f"{one}/nvidia/*/lib") + glob.glob(f"{one}/torch/lib")]
    homes = ["/usr/local/cuda", *(home for one in sites for home in glob.glob(f"{one}/nvidia/cu1[0-9]"))]
    home = next((home for home in homes if os.path.exists(f"{home}/include/cuda_runtime.h")), None)
    home = os.environ.get("CUDA_PATH") or home or os.path.join(options.folder, "cuda")
    before = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path]
    # Without a limit of the driver's cache, burn's kernels are compiled once.
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(before + found), "CUDA_PATH": home, "CUBECL_AUTOTUNE_LEVEL": "minimal",
            "CUDA_CACHE_MAXSIZE": str(1 << 32), "HOME": os.environ.get("HOME") or work}


def run(command, seconds, work, **more):
    """What the command printed; a dump of its threads goes to standard error if it takes longer."""
    seconds = min(seconds, left())
    if seconds <= 1:
        raise TooLong("no time left")
    log = os.path.join(work, "output")
    with open(log, "w") as out:
        process = subprocess.Popen(command, cwd=work, env={**environment(work), **more}, stdout=out, stderr=subprocess.STDOUT)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            print("\n".join(thread_dump.dump(process.pid)), file=sys.stderr)
            process.kill()
            process.wait()
            status = None
    with open(log, errors="replace") as out:
        text = out.read()
    shown = "\n".join(line[:300] for line in text.splitlines() if not line.startswith("checks "))
    print(f"$ {' '.join(command)}\n{shown[-6000:]}", file=sys.stderr, flush=True)
    if status is None:
        raise TooLong(f"{' '.join(command[-4:])} was ended after {seconds:.0f} s")
    if status != 0:
        raise RuntimeError(f"{' '.join(command[-4:])} ended with {status}: {shown[-400:]}")
    return text


def checks(text):
    """The lines that checks.rs writes."""
    found = {}
    for line in text.splitlines():
        if line.startswith("checks "):
            found.update(json.loads(line.removeprefix("checks ")))
    return found


def under_nsys(command, kernels, seconds, work, **more):
    """Output, the last kernels by name of the range that the launching thread was in, and all kernels in order."""
    report, database = os.path.join(work, "r.nsys-rep"), os.path.join(work, "r.sqlite")
    text = run([options.nsys, "profile", "-t", "cuda,nvtx", "-s", "none", "--cpuctxsw=none", "-f", "true", "-o", report, *command],
               seconds, work, **more)
    run([options.nsys, "export", "--type", "sqlite", "-f", "true", "-o", database, report], seconds, work)
    data = sqlite3.connect(database)
    order = [name for name, in data.execute(
        "SELECT s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = coalesce(k.mangledName, k.demangledName)"
        " ORDER BY k.start")]
    since = [start for start, in data.execute("SELECT start FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start")][-kernels:][0]
    name = "coalesce(n.text, (SELECT value FROM StringIds WHERE id = n.textId))"
    by_name = dict(data.execute(
        f"SELECT ltrim({name}, ':'), count(DISTINCT k.correlationId) FROM NVTX_EVENTS n"
        " JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.globalTid = n.globalTid AND r.start BETWEEN n.start AND n.end"
        " JOIN CUPTI_ACTIVITY_KIND_KERNEL k ON k.correlationId = r.correlationId"
        f" WHERE n.eventType = {PUSH_POP} AND k.start >= {since} GROUP BY 1"))
    return text, by_name, order


def by_leaf(ranges, column):
    names = {}
    for path, counts in ranges.items():
        name = path.rsplit("/", 1)[-1]
        names[name] = names.get(name, 0) + counts[column]
    return names


def show(name, program, own, first, work):
    """What is shown of one example. Every part is there as soon as it is known, also if the time ends before the next."""
    result = {}
    path = os.path.abspath(os.path.join(options.folder, program))
    if not os.path.exists(path):
        return {"missing": path}
    more = {}
    torch = [lib for one in packages() for lib in glob.glob(f"{one}/torch/lib/libtorch_cuda.so")]
    if program == "digits" and torch:
        more["LD_PRELOAD"] = torch[0]
    steps = ["--checks", "--steps", str(options.steps)]
    command = [path, *own, *steps]
    try:
        since = time.monotonic()
        if program == "server":
            text = run([path, os.path.join(work, "server.gpuprof")], first, work)
            result["report"] = [line for line in text.splitlines() if line.startswith(("worker ", "slowest", "health", "request"))]
            return result
        ours = checks(run(command, first, work, **more))
        result["first_run_s"] = round(time.monotonic() - since, 1)
        ranges = ours["ranges"]
        inferred = sum(counts[2] for path, counts in ranges.items() if "/" not in path)
        result["attributed"] = {
            "kernels": [ours["kernels"] - ours["outside"], ours["kernels"]], "inferred": inferred,
            "gpu_ns": [ours["kernel_ns"] - ours["outside_ns"], ours["kernel_ns"]], "complete": ours["complete"]}
        alone = checks(run([*command, "--alone"], first, work, **more))
        # Of a kernel that several ranges share, each has one.
        rows = {path: [sum(counts[:3]), alone["ranges"].get(path, [0] * 4)[3]] for path, counts in ranges.items()}
        result["alone"] = {"equal": ours["kernels"] > 0 and all(a == b for a, b in rows.values()), "ranges": rows}
        if "--fusion" in own:
            result["alone"]["note"] = "nothing is fused across a wait: modules that run alone are another program"
        plain = [*command, "--plain", *(["--nvtx"] if program == "gpt" else [])]
        times = {"none": [], "ours": [ours["step_ns"]], "nsys": []}
        for turn in range(options.rounds):
            times["none"].append(checks(run(plain, first, work, **more))["step_ns"])
            if turn > 0:
                times["ours"].append(checks(run(command, first, work, **more))["step_ns"])
            if options.nsys:
                text, theirs, order = under_nsys(plain, len(ours["order"]), first, work, **more)
                times["nsys"].append(checks(text)["step_ns"])
                result["nsys"] = {name: [count, theirs.get(name, 0)] for name, count in by_leaf(ranges, 0).items()}
                last = order[-len(ours["order"]):]
                result["order"] = {"equal": last == ours["order"], "kernels": [len(ours["order"]), len(order)]}
                differ = [pair for pair in zip(ours["order"], last) if pair[0] != pair[1]]
                result["order"]["first_difference"] = differ[:1]
            # The first steps of a process are others.
            result["step_ms"] = {who: [milliseconds(runs) for runs in sorted(statistics.median(run[2:] or run) for run in of)]
                                 for who, of in times.items()}
    except (TooLong, RuntimeError, KeyError) as error:
        result["ended_by"] = str(error) or repr(error)
    return result


def milliseconds(ns):
    return round(ns / 1e6, 3)


def main():
    global end_of_share
    results = {"steps": options.steps, "nsys": options.nsys, "gpu": None}
    try:
        results["gpu"] = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                                        capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        results["gpu"] = str(error)
    with tempfile.TemporaryDirectory() as work:
        # Burn keeps what it compiled and tuned beside the first Cargo.toml above, or in this folder.
        with open(os.path.join(work, "Cargo.toml"), "w"):
            pass
        with open(os.path.join(work, "cubecl.toml"), "w") as file:
            file.write(f'[compilation.cache]\nfile = "{options.kernels or os.path.join(work, "kernels")}"\n')
        for name in options.only.split(","):
            program, own, share, first = PROGRAMS[name]
            since = time.monotonic()
            end_of_share = since + share
            results[name] = show(name, program, own, first, work)
            results[name]["took_s"] = round(time.monotonic() - since, 1)
    results["took_s"] = round(time.monotonic() - began, 1)
    print(json.dumps(results, indent=1))


main()
