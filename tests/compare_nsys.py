#!/usr/bin/env python3
"""Compares our counts and kernel times with those of NVIDIA's nsys, on a machine with a GPU.

usage: tests/compare_nsys.py QUICKSTART SUMMARY NSYS [ROUNDS]

QUICKSTART and SUMMARY are the built examples, NSYS the nsys program. In alternation it profiles QUICKSTART with our
profiler, and runs the same binary with the profiler off under nsys. Then: the GPU operations of every range must be
equal to nsys's nvtx_gpu_proj_sum ("Total GPU Ops"), and the medians of total kernel time within 3 %. Only Python's own
modules are used. Exit status 1 if something differs.
"""
import csv, io, json, os, sqlite3, statistics, subprocess, sys, tempfile

quickstart, summary, nsys = sys.argv[1:4]
rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 5


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


def ours(folder):
    file = os.path.join(folder, "ours.gpuprof")
    run(quickstart, "--save", file)
    rows = [json.loads(line) for line in run(summary, file).splitlines()]
    operations = {}
    for row in rows[:-1]:
        t = row["inclusive"]
        operations[row["path"].split("/")[-1]] = (row["instances"], t["kernels"] + t["copies"] + t["memsets"])
    assert rows[-1]["complete"], rows[-1]["health"]
    return operations, rows[-1]["inclusive"]["kernel_ns"], rows[-1]["inclusive"]["kernels"]


def theirs(folder):
    report, database = os.path.join(folder, "r.nsys-rep"), os.path.join(folder, "r.sqlite")
    run(nsys, "profile", "-t", "cuda,nvtx", "-s", "none", "--cpuctxsw=none", "-f", "true", "-o", report, quickstart,
        "--no-profiler")
    run(nsys, "export", "--type", "sqlite", "-f", "true", "-o", database, report)
    text = subprocess.run([nsys, "stats", "-q", "--format", "csv", "-r", "nvtx_gpu_proj_sum", database], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    rows = csv.DictReader(io.StringIO(text.strip()))
    operations = {r["Range"].lstrip(":"): (int(r["Range Instances"]), int(r["Total GPU Ops"])) for r in rows}
    # The warm-up runs before the first range.
    kernels, time = sqlite3.connect(database).execute(
        "SELECT count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL"
        " WHERE start > (SELECT min(start) FROM NVTX_EVENTS WHERE text = 'batch')").fetchone()
    return operations, time, kernels


times = {"ours": [], "nsys": []}
failed = False
with tempfile.TemporaryDirectory() as folder:
    for round in range(rounds):
        ours_ops, ours_ns, ours_kernels = ours(folder)
        nsys_ops, nsys_ns, nsys_kernels = theirs(folder)
        times["ours"].append(ours_ns)
        times["nsys"].append(nsys_ns)
        if ours_ops != nsys_ops or ours_kernels != nsys_kernels:
            failed = True
            print(f"round {round}: counts differ: ours {ours_ops} {ours_kernels}, nsys {nsys_ops} {nsys_kernels}")
print("(instances, GPU operations) by range, ours = nsys:" if not failed else "DIFFERENT:", json.dumps(ours_ops))
for who, values in times.items():
    print(f"{who}: kernel time in us, median {statistics.median(values) / 1e3:.1f}, min {min(values) / 1e3:.1f}, "
          f"max {max(values) / 1e3:.1f} of {len(values)} runs")
ratio = statistics.median(times["ours"]) / statistics.median(times["nsys"])
print(f"ratio of medians ours/nsys {ratio:.4f}")
sys.exit(failed or not 0.97 <= ratio <= 1.03)
