#!/usr/bin/env python3
"""Runs what is to be shown of candle, burn, cudarc and tch on a GPU, in less than 8 minutes, and prints one JSON.

usage: frameworks/on_gpu.py FOLDER [--seconds S] [--steps N] [--rounds N] [--nsys NSYS] [--kernels FOLDER] [--only NAME,...]
                            [--faults] [--devices N] [--record FOLDER]

FOLDER holds `examples/` with `gpt`, `train`, `digits` and `server`, and `tests/` with the tests of the packages: frameworks/bundle
makes it. Those that are missing, or do not fit into the time, are named in the result. Burn compiles its kernels for minutes, unless
`--kernels` names the folder that an earlier run has filled (`[compilation.cache]` of cubecl.toml); `FOLDER/kernels` is one if it is
there. For each example:

  attributed    kernels and their GPU time in ranges, of all
  on_streams    kernels on the stream of each device of candle's, by its own type
  alone         kernels by range, beside a run that waits for the GPU at every boundary and counts by time: all equal?
  order         kernels in the order of their start, beside those that nsys saw of a run without the profiler: equal?
  step_ms       median step times without a profiler, with it, and under nsys, in turn
  nsys          kernels by range name, ours and nsys's of as many kernels at the end of its run

With one of these options the examples run only if `--only` names them:

  --faults      PASS or FAIL of each test of a fault: the framework's error goes through, and the profile has what is missing
  --record F    writes candle.gpuprof.gz, a small recording of candle's GPT for the tests of the profiler, and what the program printed
  --devices N   PASS or FAIL of a GPT whose layers are on N GPUs, each with the kernels that it has on one, and of each test of two

What a program prints, and what its threads did when it took too long, goes to standard error. Only Python's own modules are used.
"""
import argparse, collections, glob, gzip, importlib.util, json, os, shutil, site, sqlite3, statistics, subprocess, sys, tempfile, time

import thread_dump

parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
parser.add_argument("folder")
parser.add_argument("--seconds", type=float, default=470)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--nsys", default=shutil.which("nsys"))
parser.add_argument("--kernels", type=os.path.abspath)
parser.add_argument("--only")
parser.add_argument("--faults", action="store_true")
parser.add_argument("--devices", type=int)
parser.add_argument("--record", type=os.path.abspath)
options = parser.parse_args()
if options.only is None:
    options.only = "" if options.faults or options.devices or options.record else "gpt,server,digits,train,train-fusion"
options.folder = os.path.abspath(options.folder)
if options.kernels is None and os.path.isdir(os.path.join(options.folder, "kernels")):
    options.kernels = os.path.join(options.folder, "kernels")
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

# The tests of faults by package, and what each shows. None of them needs a second GPU.
FAULTS = {
    "cudarc": {
        "program_without_a_driver_gets_an_error": "no libcuda",
        "errors_of_the_driver_go_through_and_are_counted": "no memory in a step",
        "failed_captures_leave_the_stream_unchanged": "an error and a panic in a capture",
        "session_without_cupti_is_an_error_with_a_reason": "another tool has CUPTI",
    },
    "candle": {
        "program_without_a_library_of_cuda_is_refused_by_the_loader_which_names_it": "no libcuda, no cuBLAS",
        "errors_and_panics_of_candle_go_through_and_end_their_range": "no memory in a step, an error and a panic in a module",
        "session_beside_that_of_candle_has_the_same_ranges": "two sessions, launches after the first",
        "model_built_before_the_profiler_is_named_in_the_report": "a session after the model",
    },
    "burn": {
        "program_without_a_driver_gets_burns_own_panic": "no libcuda",
        "errors_and_panics_of_burn_go_through_and_end_their_range": "no memory in a step, a panic in a module",
        "sessions_overlap_and_the_device_thread_outlives_them": "two sessions, a device thread that outlives them",
    },
    "tch": {
        "program_without_a_driver_trains_without_a_session": "no libcuda",
        "panics_of_tch_go_through_and_end_their_range": "no memory in a step, an error in a module",
        "sessions_overlap_and_threads_with_models_of_their_own_keep_their_ranges": "two sessions, threads that outlive them",
    },
}
# Those of two devices.
TWO_DEVICES = {
    "cudarc": {"sessions_overlap_and_devices_are_apart": "two contexts, two sessions"},
    "candle": {"model_on_two_devices_keeps_its_ranges": "a model on two devices"},
    "burn": {
        "model_on_two_devices_keeps_its_ranges": "a model on two devices",
        "threads_with_a_device_each_keep_their_ranges": "a thread for each of two devices",
    },
}


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


def example(name):
    return os.path.join(options.folder, "examples", name)


def for_torch():
    """PyTorch's CUDA build, of which tch uses no symbol."""
    found = [lib for one in packages() for lib in glob.glob(f"{one}/torch/lib/libtorch_cuda.so")]
    return {"LD_PRELOAD": found[0]} if found else {}


def tests(by_package, work, counts=False):
    """PASS or FAIL of tests, those that have to print counts by device with these."""
    results = {}
    for package, shown in by_package.items():
        program = os.path.join(options.folder, "tests", package)
        if not os.path.exists(program):
            results[package] = {"missing": program}
            continue
        results[package] = {}
        for test, shows in shown.items():
            since = time.monotonic()
            result = results[package][test] = {"shows": shows, "result": "FAIL"}
            try:
                text = run([program, "--exact", test, "--nocapture"], 90, work, **(for_torch() if package == "tch" else {}))
                printed = checks(text)
                if counts:
                    result["by_device"] = printed.get("by_device")
                if "1 passed" in text and (not counts or printed.get("by_device")):
                    result["result"] = "PASS"
                else:
                    result["because"] = text[-400:]
            except (TooLong, RuntimeError) as error:
                result["because"] = str(error)
            result["took_s"] = round(time.monotonic() - since, 1)
    return results


def several_devices(work):
    """A GPT on several GPUs: where its layers ran, and whether each range has the kernels that it has on one GPU."""
    if not os.path.exists(example("gpt")):
        return {"missing": example("gpt")}
    layers, steps = 2 * options.devices, 3
    command = [example("gpt"), "--checks", "--steps", str(steps), "--layers", str(layers)]
    result = {"result": "FAIL"}
    try:
        on_one = checks(run(command, 60, work))
        ours = checks(run([*command, "--devices", str(options.devices)], 60, work))
    except (TooLong, RuntimeError) as error:
        return {**result, "because": str(error)}
    by_device = {int(device): ranges for device, ranges in ours["by_device"].items()}
    by_layer = {n: {device: sum(count for path, count in ranges.items() if f"layer {n}" in path.split("/"))
                    for device, ranges in by_device.items()} for n in range(layers)}
    elsewhere = sum(count for n, found in by_layer.items() for device, count in found.items() if device != n // 2)
    # The gradient of a copy to another device is added to one of zeros.
    more = {path: steps * (options.devices - 1) for path in ("step", "step/backward")}
    rows = {path: [counts[0] + more.get(path, 0), ours["ranges"].get(path, [0])[0]] for path, counts in on_one["ranges"].items()}
    differ = {path: row for path, row in rows.items() if row[0] != row[1]}
    # By name, those that one GPU has not as often, and the other way round.
    names = collections.Counter(ours["order"])
    names.subtract(on_one["order"])
    result.update(names={name: count for name, count in names.items() if count}, by_layer=by_layer, elsewhere=elsewhere, differ=differ, on_streams=ours["on_streams"],
                  kernels=[ours["kernels"] - ours["outside"], ours["kernels"]], on_one=on_one["kernels"], complete=ours["complete"])
    is_right = elsewhere == 0 and not differ and ours["complete"] and sum(ours["on_streams"]) == ours["kernels"]
    if is_right and all(found.get(n // 2, 0) > 0 for n, found in by_layer.items()):
        result["result"] = "PASS"
    return result


def record(work):
    """A recording of candle's GPT, small enough to be committed."""
    if not os.path.exists(example("gpt")):
        return {"missing": example("gpt")}
    os.makedirs(options.record, exist_ok=True)
    saved, kept = os.path.join(work, "candle.gpuprof"), os.path.join(options.record, "candle.gpuprof.gz")
    command = [example("gpt"), "--steps", "1", "--layers", "2", "--tokens", "3", "--save", saved]
    try:
        text = run(command, 60, work)
    except (TooLong, RuntimeError) as error:
        return {"because": str(error)}
    with open(saved, "rb") as recording, gzip.open(kept, "wb", 9) as file:
        shutil.copyfileobj(recording, file)
    with open(os.path.join(options.record, "candle.txt"), "w") as file:
        file.write(text)
    return {"file": kept, "bytes": os.path.getsize(kept)}


def show(name, program, own, first, work):
    """What is shown of one example. Every part is there as soon as it is known, also if the time ends before the next."""
    result = {}
    path = example(program)
    if not os.path.exists(path):
        return {"missing": path}
    more = for_torch() if program == "digits" else {}
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
        if "on_streams" in ours:
            result["on_streams"] = [ours["on_streams"], ours["kernels"]]
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
        if options.faults:
            results["faults"] = tests(FAULTS, work)
        if options.record:
            results["record"] = record(work)
        if options.devices:
            results["devices"] = {"gpt": several_devices(work), **tests(TWO_DEVICES, work, counts=True)}
        for name in filter(None, options.only.split(",")):
            program, own, share, first = PROGRAMS[name]
            since = time.monotonic()
            end_of_share = since + share
            results[name] = show(name, program, own, first, work)
            results[name]["took_s"] = round(time.monotonic() - since, 1)
    results["took_s"] = round(time.monotonic() - began, 1)
    print(json.dumps(results, indent=1))


main()
