#!/usr/bin/env python3
"""Compares our counts and kernel times with those of NVIDIA's nsys, on a machine with a GPU.

usage: tests/compare_nsys.py QUICKSTART SUMMARY NSYS [ROUNDS]

QUICKSTART and SUMMARY are the built examples, NSYS the nsys program. In alternation it profiles QUICKSTART with our
profiler, and runs the same binary with the profiler off under nsys. Then: the GPU operations of every range must be
equal to nsys's nvtx_gpu_proj_sum ("Total GPU Ops"), and the medians of the kernel time, in all and of each range, within
3 %. nsys's kernel time of a range is that of the kernels whose call began in it on its thread. Only Python's own modules are
used. Exit status 1 if something differs.
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
    operations, sums = {}, {}
    for row in rows[:-1]:
        t, name = row["inclusive"], row["path"].split("/")[-1]
        operations[name] = (row["instances"], t["kernels"] + t["copies"] + t["memsets"])
        if t["kernel_ns"]:
            sums[name] = t["kernel_ns"]
    assert rows[-1]["complete"], rows[-1]["health"]
    sums["(all)"] = rows[-1]["inclusive"]["kernel_ns"]
    return operations, sums, rows[-1]["inclusive"]["kernels"]


# The type of an NVTX event that is a range pushed and popped.
PUSH_POP = 59


def range_sums(database):
    """The kernel time by range of a capture."""
    name = "coalesce(n.text, (SELECT value FROM StringIds WHERE id = n.textId))"
    return dict(sqlite3.connect(database).execute(
        f"SELECT ltrim({name}, ':'), sum(k.end - k.start) FROM NVTX_EVENTS n"
        " JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.globalTid = n.globalTid AND r.start BETWEEN n.start AND n.end"
        " JOIN CUPTI_ACTIVITY_KIND_KERNEL k ON k.correlationId = r.correlationId"
        f" WHERE n.eventType = {PUSH_POP} GROUP BY 1"))


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
    return operations, {**range_sums(database), "(all)": time}, kernels


times = {"ours": {}, "nsys": {}}
failed = False
with tempfile.TemporaryDirectory() as folder:
    for round in range(rounds):
        ours_ops, ours_sums, ours_kernels = ours(folder)
        nsys_ops, nsys_sums, nsys_kernels = theirs(folder)
        for who, sums in (("ours", ours_sums), ("nsys", nsys_sums)):
            for name, ns in sums.items():
                times[who].setdefault(name, []).append(ns)
        if ours_ops != nsys_ops or ours_kernels != nsys_kernels:
            failed = True
            print(f"round {round}: counts differ: ours {ours_ops} {ours_kernels}, nsys {nsys_ops} {nsys_kernels}")
print("(instances, GPU operations) by range, ours = nsys:" if not failed else "DIFFERENT:", json.dumps(ours_ops))
print("kernel time in us, median (min to max) of", rounds, "runs:")
for name in times["ours"]:
    medians = []
    for who in ("ours", "nsys"):
        values = times[who].get(name, [])
        medians.append(statistics.median(values) if values else 0)
        low, high = (min(values) / 1e3, max(values) / 1e3) if values else (0, 0)
        print(f"  {name:<16} {who} {medians[-1] / 1e3:9.1f} ({low:.1f} to {high:.1f})")
    ratio = medians[0] / max(medians[1], 1)
    print(f"  {name:<16} ratio of medians ours/nsys {ratio:.4f}")
    failed |= not 0.97 <= ratio <= 1.03
sys.exit(failed)
