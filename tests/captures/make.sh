#!/usr/bin/env bash
# On a machine with a GPU and nsys: captures capture_program and keeps what nsys says of it.
#   NSYS=nsys tests/captures/make.sh PROGRAM OUT      writes OUT/captures.tar.gz and OUT/log.txt
# Of each capture: NAME.sqlite without what names the machine, NAME/REPORT.csv of `nsys stats`, NAME/rule_RULE.csv of
# `nsys analyze`. python3 is needed.
set -uo pipefail
program=$(realpath "${1:?usage: make.sh PROGRAM OUT}"); out=${2:?usage: make.sh PROGRAM OUT}; nsys=${NSYS:-nsys}
mkdir -p "$out"; out=$(realpath "$out"); work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
nsys=$(command -v "$nsys") || { echo "no nsys: set NSYS" >&2; exit 127; }; nsys=$(realpath "$nsys")
reports="cuda_api_gpu_sum cuda_api_sum cuda_api_trace cuda_gpu_kern_gb_sum cuda_gpu_kern_sum cuda_gpu_mem_size_sum
cuda_gpu_mem_time_sum cuda_gpu_sum cuda_gpu_trace cuda_kern_exec_sum cuda_kern_exec_trace nvtx_gpu_proj_sum
nvtx_gpu_proj_trace nvtx_kern_sum nvtx_pushpop_sum nvtx_pushpop_trace nvtx_startend_sum nvtx_sum um_cpu_page_faults_sum
um_sum um_total_sum"
rules="cuda_api_sync cuda_memcpy_async cuda_memcpy_sync cuda_memset_sync gpu_gaps gpu_time_util"

capture() { # capture NAME MODE OPTIONS...
  local name=$1 mode=$2; shift 2; cd "$work" || return
  if ! "$nsys" profile -t cuda,nvtx -s none --cpuctxsw=none "$@" -f true -o "$name" "$program" "$mode"; then
    echo "== $name: nsys profile said $?"
  fi
  "$nsys" export --type sqlite -f true -q -o "$name.sqlite" "$name.nsys-rep" || { echo "== $name: no export"; return; }
  mkdir -p "made/$name"
  for report in $reports; do
    "$nsys" stats -q --format csv -r "$report" "$name.sqlite" >"made/$name/$report.csv" 2>"$name.err" || cat "$name.err"
  done
  for rule in $rules; do
    "$nsys" analyze -q --format csv -r "$rule" "$name.sqlite" >"made/$name/rule_$rule.csv" 2>"$name.err" || cat "$name.err"
  done
  python3 - "$name.sqlite" "made/$name.sqlite" <<'P'
import os, shutil, sqlite3, sys
shutil.copyfile(sys.argv[1], sys.argv[2])
db = sqlite3.connect(sys.argv[2])
tables = [name for name, in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
columns = {table: [row[1] for row in db.execute(f"PRAGMA table_info({table})")] for table in tables}
# The environment, the command line, the host, files, and what nsys says of itself.
dropped = {"TARGET_INFO_SYSTEM_ENV", "TARGET_INFO_NIC_INFO", "META_DATA_CAPTURE", "ANALYSIS_FILE", "ANALYSIS_DETAILS",
           "DIAGNOSTIC_EVENT", "ProcessStreams", "CUDA_CALLCHAINS", "EXPORT_METADATA"}
for table in dropped & set(tables):
    db.execute(f"DROP TABLE {table}")
tables = [table for table in tables if table not in dropped]
# Of all that ran on the machine what was captured.
work = [table for table in tables if table.startswith(("CUPTI_", "NVTX_"))]
ids = [(table, name) for table in work for name in ("globalTid", "globalPid") if name in columns[table]]
captured = {row[0] >> 24 for table, name in ids for row in db.execute(f"SELECT DISTINCT {name} FROM {table}") if row[0]}
for table, column in (("PROCESSES", "globalPid"), ("ThreadNames", "globalTid")):
    for row, of in db.execute(f"SELECT rowid, {column} FROM {table}").fetchall() if table in tables else []:
        if of >> 24 not in captured:
            db.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))
for row, name in db.execute("SELECT rowid, name FROM PROCESSES").fetchall():
    db.execute("UPDATE PROCESSES SET name = ? WHERE rowid = ?", (os.path.basename(name or ""), row))
if "TARGET_INFO_GPU" in tables:
    db.execute("UPDATE TARGET_INFO_GPU SET uuid = NULL, busLocation = NULL, ctxswDevPath = NULL, ctrlDevPath = NULL")
# Texts that some table has; files without their folder.
named = ("nameId", "textId", "jsonTextId", "demangledName", "shortName", "mangledName", "CpuInstruction", "module", "sourceFile")
texts = [(table, name) for table in tables for name in columns[table] if name in named]
used = {row[0] for table, name in texts for row in db.execute(f"SELECT DISTINCT {name} FROM {table}")}
for id, text in db.execute("SELECT id, value FROM StringIds").fetchall():
    if id not in used:
        db.execute("DELETE FROM StringIds WHERE id = ?", (id,))
    elif text.startswith("/"):
        db.execute("UPDATE StringIds SET value = ? WHERE id = ?", (os.path.basename(text), id))
db.execute("DELETE FROM META_DATA_EXPORT WHERE value LIKE '%/%' OR name LIKE '%PATH%' OR name LIKE '%COMMAND%' OR name IN ('EXPORT_HOST', 'EXPORT_USER')")
db.commit()
db.execute("VACUUM")
for name, in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
    count, = db.execute(f"SELECT count(*) FROM {name}").fetchone()
    if count and not name.startswith("ENUM"):
        print(os.path.basename(sys.argv[2]), name, count)
P
}

{
  "$nsys" --version
  # One after the other: nsys profiles one program at a time.
  capture one one --cuda-graph-trace=node
  capture whole_graphs one --cuda-graph-trace=graph
  capture family family --cuda-graph-trace=node --trace-fork-before-exec=true
  capture managed managed --cuda-um-cpu-page-faults=true --cuda-um-gpu-page-faults=true --cuda-memory-usage=true
} >"$out/log.txt" 2>&1
tar -C "$work/made" -czf "$out/captures.tar.gz" .
cat "$out/log.txt"
