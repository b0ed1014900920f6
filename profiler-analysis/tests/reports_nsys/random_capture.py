"""Writes a random capture as `nsys export --type sqlite` would: random_capture.py SEED OUT.sqlite

Several processes and threads; nested, overlapping, open and handed-over ranges; both APIs; graphs; managed memory.
"""
import random
import sqlite3
import sys

seed, path = int(sys.argv[1]), sys.argv[2]
rng = random.Random(seed)
db = sqlite3.connect(path)
place = "deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER"
span = "start INTEGER NOT NULL, end INTEGER NOT NULL"
db.executescript(f"""
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
CREATE TABLE ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, cuDevice INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({span}, {place}, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
  registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL,
  blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY ({span}, {place}, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER,
  srcDeviceId INTEGER, srcContextId INTEGER, dstDeviceId INTEGER, dstContextId INTEGER, graphNodeId INTEGER, virtualAddress INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET ({span}, {place}, value INTEGER NOT NULL, bytes INTEGER NOT NULL, graphNodeId INTEGER, memKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME ({span}, eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL,
  returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER, color INTEGER, text TEXT,
  globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER,
  int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT);
CREATE TABLE PROFILER_OVERHEAD ({span}, globalTid INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
CREATE TABLE CUDA_UM_CPU_PAGE_FAULT_EVENTS (start INTEGER NOT NULL, globalPid INTEGER NOT NULL, address INTEGER NOT NULL, originalFaultPc INTEGER,
  CpuInstruction INTEGER NOT NULL, module INTEGER);
CREATE TABLE CUDA_UM_GPU_PAGE_FAULT_EVENTS ({span}, globalPid INTEGER NOT NULL, deviceId INTEGER NOT NULL, address INTEGER NOT NULL,
  numberOfPageFaults INTEGER NOT NULL, faultAccessType INTEGER NOT NULL);
CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
""")


def insert(table, **values):
    columns, marks = ", ".join(values), ", ".join("?" * len(values))
    db.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", list(values.values()))


strings = {}


def string(text):
    if text not in strings:
        strings[text] = len(strings) + 1
        insert("StringIds", id=strings[text], value=text)
    return strings[text]


copies = ["Unknown", "Host-to-Device", "Device-to-Host", "Host-to-Array", "Array-to-Host", "Array-to-Array", "Array-to-Device", "Device-to-Array",
          "Device-to-Device", "Host-to-Host", "Peer-to-Peer", "Unified Host-to-Device", "Unified Device-to-Host", "Unified Device-to-Device"]
kinds = ["Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown"]
for number, label in enumerate(copies):
    insert("ENUM_CUDA_MEMCPY_OPER", id=number, name=f"KIND_{number}", label=label)
for number, label in enumerate(kinds):
    insert("ENUM_CUDA_MEM_KIND", id=number, name=f"KIND_{number}", label=label)
for name, value in [("EXPORT_SCHEMA_VERSION", "3.7.2"), ("EXPORT_PRODUCT_NAME", "random"), ("EXPORT_PRODUCT_VERSION", "1")]:
    insert("META_DATA_EXPORT", name=name, value=value)
for device in range(2):
    insert("TARGET_INFO_GPU", vmId=1, id=device, name="NVIDIA H200", cuDevice=device)

kernels = [("void ns::gemm<float, (int)4>(float *, int)", "gemm", "_ZN2ns4gemmIfLi4EEEvPfi"), ("void ns::gemm<double, (int)4>(double *, int)", "gemm", None),
           ("saxpy(float *, int)", "saxpy", "saxpy"), ("sm90_xmma", "sm90_xmma", "sm90_xmma")]
launch = ["cudaLaunchKernel_v7000", "cuLaunchKernel", "cudaLaunchKernelExC_v11060", "cudaGraphLaunch_v10000"]
copy = ["cudaMemcpyAsync_v3020", "cudaMemcpy_v3020", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoH_v2", "cudaMemcpy2DAsync_v3020"]
fill = ["cudaMemset_v3020", "cudaMemsetAsync_v3020", "cuMemsetD8_v2"]
other = ["cudaDeviceSynchronize_v3020", "cudaStreamSynchronize_v3020", "cuCtxSynchronize", "cudaEventSynchronize_v3020", "cudaMalloc_v3020"]
scale = rng.choice([10, 1000, 10_000_000])
busy = {}


def work(pid_global, correlation, name, after):
    device, stream = rng.randrange(2), rng.choice([7, 13])
    start = max(after + rng.randrange(-scale, 3 * scale), 1)
    # Two operations of a stream do not overlap.
    start = max(start, busy.get((pid_global, device, stream), 0))
    end = start + rng.randrange(0, 4 * scale)
    busy[pid_global, device, stream] = end
    common = dict(start=start, end=end, deviceId=device, contextId=device + 1, greenContextId=rng.choice([0, 0, 5]), streamId=stream,
                  correlationId=correlation, globalPid=pid_global)
    if "aunch" in name:
        demangled, short, mangled = rng.choice(kernels)
        insert("CUPTI_ACTIVITY_KIND_KERNEL", **common, demangledName=string(demangled), shortName=string(short), mangledName=mangled and string(mangled),
               registersPerThread=rng.randrange(16, 255), gridX=rng.choice([1, 4096]), gridY=2, gridZ=1, blockX=rng.choice([32, 1024]), blockY=1, blockZ=1,
               staticSharedMemory=rng.randrange(5000), dynamicSharedMemory=0, localMemoryPerThread=0, graphNodeId=None)
    elif "emcpy" in name:
        peer = rng.randrange(4) == 0
        insert("CUPTI_ACTIVITY_KIND_MEMCPY", **common, bytes=rng.choice([0, 4, 63_999, 64_000, 64_001, 16 << 20]), copyKind=rng.choice([1, 1, 2, 3, 8, 9, 10]),
               srcKind=rng.randrange(7), dstKind=rng.randrange(7), srcDeviceId=rng.randrange(2) if peer else None, srcContextId=1 if peer else None,
               dstDeviceId=rng.randrange(2) if peer else None, dstContextId=1 if peer else None)
    else:
        insert("CUPTI_ACTIVITY_KIND_MEMSET", **common, value=0, bytes=rng.randrange(1 << 20), memKind=rng.randrange(7))


def name_of(domain):
    text = rng.choice(["forward", "backward", "step", "a, b"])
    if rng.randrange(2):
        return dict(text=text, textId=None, domainId=domain)
    return dict(text=None, textId=string(text), domainId=domain)


for process in range(rng.choice([1, 1, 2, 3])):
    pid = 400 + process
    pid_global = (1 << 48) | (pid << 24)
    insert("PROCESSES", globalPid=pid_global, pid=pid, name="program")
    insert("NVTX_EVENTS", start=1, eventType=75, globalTid=pid_global | pid, domainId=1, text="library")
    correlation = 0
    tids = [pid + thread for thread in range(rng.choice([1, 2, 3]))]
    for tid in tids:
        tid_global = pid_global | tid
        insert("ThreadNames", nameId=string(f"thread {tid}"), priority=20, globalTid=tid_global)
        now, stack = rng.randrange(1, 5 * scale), []
        for _ in range(rng.randrange(10, 120)):
            now += rng.randrange(1, 2 * scale)
            choice = rng.randrange(10)
            if choice < 3:
                stack.append((now, rng.choice([0, 0, 1])))
            elif choice < 5 and stack:
                start, domain = stack.pop()
                insert("NVTX_EVENTS", start=start, end=now, eventType=59, globalTid=tid_global, **name_of(domain))
            elif choice == 5 and rng.randrange(3) == 0:
                end = None if rng.randrange(6) == 0 else now + rng.randrange(1, 9 * scale)
                end_global = pid_global | rng.choice(tids) if end else None
                insert("NVTX_EVENTS", start=now, end=end, eventType=60, globalTid=tid_global, endGlobalTid=None if end_global == tid_global else end_global,
                       **name_of(0))
            else:
                correlation += 1
                name = rng.choice(launch * 4 + copy + fill + other)
                end = now + rng.randrange(1, scale)
                insert("CUPTI_ACTIVITY_KIND_RUNTIME", start=now, end=end, eventClass=int(not name.startswith("cuda")), globalTid=tid_global,
                       correlationId=correlation, nameId=string(name), returnValue=0)
                if name not in other:
                    for _ in range(rng.randrange(2, 5) if "Graph" in name else 1):
                        work(pid_global, correlation, name, end)
                now = end
        for start, domain in reversed(stack):
            now += 1
            insert("NVTX_EVENTS", start=start, end=now, eventType=59, globalTid=tid_global, **name_of(domain))
    for name in ["CUDA profiling data flush overhead", "CUDA profiling initialization"]:
        start = rng.randrange(1, 100 * scale)
        insert("PROFILER_OVERHEAD", start=start, end=start + rng.randrange(20 * scale), globalTid=pid_global | pid, nameId=string(name), returnValue=0)
    for _ in range(rng.randrange(30)):
        start, address = rng.randrange(1, 100 * scale), 0x7F0000000000 + rng.randrange(4) * 4096
        kind = rng.randrange(4)
        if kind < 2:
            insert("CUPTI_ACTIVITY_KIND_MEMCPY", start=start, end=start + rng.randrange(1, scale), deviceId=0, contextId=1, greenContextId=0, streamId=0,
                   correlationId=0, globalPid=pid_global, bytes=4096, copyKind=11 + kind, srcKind=4, dstKind=4, virtualAddress=address)
        elif kind == 2:
            insert("CUDA_UM_CPU_PAGE_FAULT_EVENTS", start=start, globalPid=pid_global, address=address, CpuInstruction=string(rng.choice(["main", "0x7fff12", "copy(int, int)"])))
        else:
            insert("CUDA_UM_GPU_PAGE_FAULT_EVENTS", start=start, end=start + 5, globalPid=pid_global, deviceId=0, address=address, numberOfPageFaults=3,
                   faultAccessType=1)
# Rare rows, in captures of their own: graphs that were traced as one interval in all of them.
db.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE ({span}, {place}, graphId INTEGER NOT NULL, graphExecId INTEGER NOT NULL)")
calls = db.execute("SELECT start, end, globalTid, correlationId, nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY rowid").fetchall()
for start, end, tid_global, correlation, name in calls:
    if name == strings.get("cudaGraphLaunch_v10000") and rng.randrange(2):
        insert("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=end, end=end + scale, deviceId=0, contextId=1, streamId=7, correlationId=correlation,
               globalPid=tid_global >> 24 << 24, graphId=1, graphExecId=2)
rare = seed % 4
if rare == 1:
    # Before the session's start.
    last, = db.execute("SELECT max(end) FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()
    shift = rng.randrange(1, last)
    for table in ["KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "GRAPH_TRACE"]:
        db.execute(f"UPDATE CUPTI_ACTIVITY_KIND_{table} SET start = start - ?, end = end - ?", (shift, shift))
    for table in ["NVTX_EVENTS", "PROFILER_OVERHEAD", "CUDA_UM_GPU_PAGE_FAULT_EVENTS"]:
        db.execute(f"UPDATE {table} SET start = start - ?, end = end - ?", (shift, shift))
    db.execute("UPDATE CUDA_UM_CPU_PAGE_FAULT_EVENTS SET start = start - ?", (shift,))
if rare == 2:
    # Several calls of one correlation id, on one thread or on two.
    for start, end, tid_global, correlation, _ in calls:
        if rng.randrange(8) == 0:
            start = start + rng.randrange(-scale, scale)
            insert("CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=start + rng.randrange(1, scale), eventClass=1,
                   globalTid=tid_global if rng.randrange(2) else tid_global + 50, correlationId=correlation, nameId=string("cuLaunchKernel"), returnValue=0)
if rare == 3:
    # Ranges without an end, the last of their thread.
    for tid_global, in db.execute("SELECT DISTINCT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchall():
        row, = db.execute("SELECT rowid FROM NVTX_EVENTS WHERE globalTid = ? AND eventType = 59 ORDER BY end DESC LIMIT 1", (tid_global,)).fetchone() or (None,)
        if row is not None:
            db.execute("UPDATE NVTX_EVENTS SET end = NULL WHERE rowid = ?", (row,))
db.commit()
