"""Longer runs of the PyTorch programs of workloads.py, and how well a replay of their steps matches steps that it has not seen.

    python replay.py --library libgpuprof_inject.so --gpuprof gpuprof [--steps 300] [--runs 2] [--out FOLDER] [SCENE...]

Of each run it prints a line: the error of the median step, by how much the medians of the two halves of the steps differ, the median
error of single steps, by how much steps vary, and the error with dependencies left out. With --out the numbers go
to FOLDER/replay.json. Needs a GPU and PyTorch, the scene triton Triton and a C compiler; exits with 1 if a run fails.
"""

import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
# The range that is a step of each.
SCENES = {"train": "step", "single_threaded_backward": "step", "decode": "decode", "triton": "triton"}


def replay(arguments, scene, folder):
    """What `gpuprof critical-path` says of the model's error in one run."""
    run = os.path.join(folder, "run")
    done = subprocess.run(
        [
            *(arguments.gpuprof, "run", "--inject", arguments.library, "-o", run, "--force", "--"),
            *(sys.executable, os.path.join(HERE, "workloads.py"), scene),
        ],
        env={**os.environ, "STEPS": str(arguments.steps)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode != 0:
        raise ValueError(f"status {done.returncode}: {done.stderr.strip()[-1500:]}")
    files = sorted(glob.glob(os.path.join(run, "*.gpuprof")), key=os.path.getsize)
    path = subprocess.run(
        [arguments.gpuprof, "critical-path", "--json", "--steps", SCENES[scene], files[-1]], capture_output=True, text=True
    )
    if path.returncode != 0:
        raise ValueError(path.stderr.strip())
    outlook = json.loads(path.stdout)
    return {**outlook["replay"], "confidence": outlook["confidence"], "bytes": os.path.getsize(files[-1])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--gpuprof", required=True)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--out")
    parser.add_argument("scenes", nargs="*", metavar="SCENE")
    arguments = parser.parse_args()
    arguments.library, arguments.gpuprof = os.path.abspath(arguments.library), os.path.abspath(arguments.gpuprof)
    failed, found = 0, {}
    print(f"{'scene':<26} steps  median step  error: of it, halves, of steps, spread, without dependencies")
    for scene in arguments.scenes or SCENES:
        for _ in range(arguments.runs):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    error = replay(arguments, scene, folder)
                except (ValueError, IndexError, subprocess.TimeoutExpired) as why:
                    print(f"{scene:<26} FAILED: {why}", flush=True)
                    failed = 1
                    continue
            found.setdefault(scene, []).append(error)
            percent = (100 * error[name] for name in ("median_step", "halves", "median", "spread", "without_edges"))
            texts = "  ".join(f"{value:6.2f} %" for value in percent)
            print(f"{scene:<26} {error['steps']:5}  {error['measured_ns'] / 1e3:8.1f} us  {texts}  {error['confidence']}", flush=True)
    if arguments.out:
        with open(os.path.join(arguments.out, "replay.json"), "w") as file:
            json.dump(found, file, indent=1)
    sys.exit(failed)


if __name__ == "__main__":
    main()
