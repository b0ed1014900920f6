"""Gaps of planted causes on a real driver: what `gpuprof run --stacks` and `--host-samples` name.

    python causes_on_gpu.py --gpuprof gpuprof --library libgpuprof_inject.so [--programs FOLDER] [--out FOLDER] [--runs 3]

The programs are gaps.c, inside.c and inside.py, of which the two in C are compiled here, or taken from a folder where there is no
compiler. Of each cause a line says which share of the time of its gaps has its function, or the system call that it waits in where
nothing else can be known: PASS from 0.95 on. Of several runs the best counts, as the machine may have stopped the thread outside of
the function; the others are printed. perf is denied by seccomp in the program itself. Needs a GPU; exits with 1 if a cause fails or
a run does.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DRIVER = os.path.join(HERE, "..", "..", "..", "tests", "fake_cuda", "programs")
PYTHON_DRIVER = os.path.join(HERE, "..", "unmodified", "programs")
LEAST = 0.95
SHORTEST = "20us"

# By the kernel after the gap: the system calls in which the cause waits, none if it uses the CPU.
ENDED = {
    "sleep": [],
    "busy_loop": [],
    "lock": [],
    "page_faults": [],
    "allocation": [],
    "file_reading": [],
    "channel_wait": [],
    "pool_starvation": [],
    "compiled": [],
    "trampoline": [],
}
INSIDE = {
    "sleep": ["clock_nanosleep", "nanosleep"],
    "busy_loop": [],
    "lock": ["futex"],
    "page_faults": [],
    "allocation": [],
    "file_reading": [],
    "decompression": [],
    "channel_wait": ["read"],
    "pool_starvation": ["futex"],
    "garbage_collection": [],
    "compiled": [],
}
PYTHON = {"python": [], "unpacking": [], "sleep": ["clock_nanosleep", "select", "pselect6"]}
# With the trampoline also what a stripped interpreter does not tell.
NAMED_PYTHON = {**PYTHON, "collecting": []}


def compiled(folder, arguments, name):
    """The path of a program in C."""
    if arguments.programs:
        return os.path.join(arguments.programs, name)
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        sys.exit("there is no compiler: set CC, or bring the programs and say --programs FOLDER")
    program = os.path.join(folder, name)
    subprocess.run(
        [compiler, "-std=gnu11", "-O1", "-pthread", "-I", DRIVER, os.path.join(HERE, f"{name}.c"), "-o", program, "-ldl"],
        check=True,
    )
    return program


def gaps(arguments, folder, options, program):
    """The gaps of a recorded run, and what is said of its samples."""
    job = os.path.join(folder, "job")
    run = [arguments.gpuprof, "run", "--inject", arguments.library, "-o", job, "--force", *options, "--", *program]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(run)} ended with {done.returncode}: {done.stderr[-2000:]}")
    report = subprocess.run(
        [arguments.gpuprof, "gaps", "--json", "--shortest", SHORTEST, "--longest", "100000", job],
        capture_output=True,
        text=True,
    )
    if report.returncode != 0:
        raise RuntimeError(report.stderr)
    pid = done.stdout.split()[0] if done.stdout.split() else ""
    if pid.isdigit() and os.path.exists(f"/tmp/perf-{pid}.map"):
        os.remove(f"/tmp/perf-{pid}.map")
    return json.loads(report.stdout)


def is_function(frame, cause):
    """Names of the trampoline of CPython have the file after a colon."""
    return frame == f"cause_{cause}" or frame.startswith(f"py::cause_{cause}:")


def ended_by(cause, _, gap):
    """By the stack of the launch that ended the gap."""
    named = any(is_function(frame, cause) for frame in gap["stack"])
    return gap["time_ns"] if named else 0


def sampled(cause, calls, gap, by_call):
    """By samples inside the gap."""
    waits = {f"waiting in {call}" for call in calls}

    def names(part):
        if by_call and calls:
            return part["state"].split(",")[0] in waits
        return any(is_function(frame, cause) for frame in part["stack"])

    return sum(part["time_ns"] for part in gap["samples"] if names(part))


def without_trampoline(cause, calls, gap):
    """Of a Python without perf's trampoline: the interpreter, a library in C, the system call."""

    def names(part):
        text = " ".join(part["stack"])
        if cause == "python":
            return "_PyEval_EvalFrameDefault" in text
        if cause == "unpacking":
            return "decompress" in text or "inflate" in text or "zlib" in text or "libz" in text
        return part["state"].split(",")[0] in {f"waiting in {call}" for call in calls}

    return sum(part["time_ns"] for part in gap["samples"] if names(part))


def shares(report, causes, named):
    """The share of the time of each cause's gaps, and that time."""
    sums = {cause: [0, 0] for cause in causes}
    for gap in report["longest"]:
        if gap["after"] in causes:
            of_cause = sums[gap["after"]]
            of_cause[0] += gap["time_ns"]
            of_cause[1] += named(gap["after"], causes[gap["after"]], gap)
    return {cause: (part / whole if whole else 0.0, whole) for cause, (whole, part) in sums.items()}


def check(arguments, folder, title, options, program, causes, named):
    """Prints a line for each cause; returns how many failed."""
    runs, report = [], None
    for _ in range(arguments.runs):
        try:
            report = gaps(arguments, folder, options, program)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"{title}: FAIL: {error}", flush=True)
            return len(causes)
        runs.append(shares(report, causes, named))
    samples, stacks = report["samples"], report["stacks"]
    print(f"== {title}: samples {json.dumps(samples)}; stacks {json.dumps(stacks)}", flush=True)
    failed = 0
    for cause in causes:
        best = max(run[cause][0] for run in runs)
        others = ", ".join(f"{run[cause][0]:.3f}" for run in runs)
        verdict = "PASS" if best >= LEAST else "FAIL"
        failed += best < LEAST
        print(f"{verdict} {title}, {cause}: {best:.3f} named of {runs[-1][cause][1] / 1e6:.1f} ms (runs {others})", flush=True)
        if best < LEAST:
            parts = [part for gap in report["longest"] if gap["after"] == cause for part in gap["samples"]]
            ends = [gap["stack"] for gap in report["longest"] if gap["after"] == cause]
            print(f"     parts {parts[:3]}\n     ended by {ends[:1]}", flush=True)
    if arguments.out:
        name = title.replace(" ", "-").replace(",", "")
        with open(os.path.join(arguments.out, f"{name}.json"), "w") as file:
            json.dump({"runs": runs, "samples": samples, "stacks": stacks}, file)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpuprof", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--programs", help="a folder with the programs `gaps` and `inside`")
    parser.add_argument("--out", help="a folder for the numbers as JSON")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    arguments.gpuprof, arguments.library = os.path.abspath(arguments.gpuprof), os.path.abspath(arguments.library)
    with open("/proc/sys/kernel/perf_event_paranoid") as file:
        print(f"perf_event_paranoid {file.read().strip()}, user {os.getuid()}, {os.cpu_count()} CPUs", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        ended, inside = (compiled(folder, arguments, name) for name in ("gaps", "inside"))
        python = [sys.executable, "-B", os.path.join(HERE, "inside.py"), PYTHON_DRIVER]
        trampoline = [sys.executable, "-X", "perf", *python[1:]]
        has_trampoline = hasattr(sys, "activate_stack_trampoline")
        by_function = lambda *of: sampled(*of, by_call=False)
        by_call = lambda *of: sampled(*of, by_call=True)
        waiting = {cause: calls for cause, calls in INSIDE.items() if calls}
        cases = [
            ("stacks", ["--stacks"], [ended], ENDED, ended_by),
            ("perf", ["--host-samples"], [inside, "20"], INSIDE, by_function),
            ("timers, perf denied", ["--host-samples=timers"], [inside, "60", "denied"], INSIDE, by_call),
            ("waits, perf denied", ["--host-samples"], [inside, "60", "denied"], waiting, by_call),
            ("Python", ["--host-samples=timers"], [*python, "60"], PYTHON, without_trampoline),
        ]
        if has_trampoline:
            cases.append(("Python with -X perf", ["--host-samples=timers"], [*trampoline, "60"], NAMED_PYTHON, by_function))
            cases.append(("Python with -X perf, stacks", ["--stacks"], [*trampoline, "10", "ended"], NAMED_PYTHON, ended_by))
        else:
            print(f"not run: Python {sys.version.split()[0]} has no trampoline for perf, 3.12 is the first")
        failed = sum(check(arguments, folder, *case) for case in cases)
    print(f"{'FAIL' if failed else 'PASS'}: {failed} causes below {LEAST}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
