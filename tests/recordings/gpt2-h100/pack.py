# Packs what phases need of an exported recording: one line a column, deltas in microseconds.
import gzip, sqlite3, sys
c = sqlite3.connect(sys.argv[1]); names = dict(c.execute("select id, value from StringIds"))
calls = {i: (s, e, t & 0xffffff) for s, e, t, i in c.execute("select start, end, globalTid, correlationId from CUPTI_ACTIVITY_KIND_RUNTIME")}
kinds = {2: "DtoH", 1: "HtoD", 8: "DtoD"}
ops = [(s, e, i, st, names[n]) for s, e, i, st, n in c.execute("select start, end, correlationId, streamId, demangledName from CUPTI_ACTIVITY_KIND_KERNEL")]
ops += [(s, e, i, st, kinds.get(k, f"copy {k}")) for s, e, i, st, k in c.execute("select start, end, correlationId, streamId, copyKind from CUPTI_ACTIVITY_KIND_MEMCPY")]
ops += [(s, e, i, st, "memset") for s, e, i, st in c.execute("select start, end, correlationId, streamId from CUPTI_ACTIVITY_KIND_MEMSET")]
waits = [(*calls[i],) for i, in c.execute("select correlationId from CUPTI_ACTIVITY_KIND_SYNCHRONIZATION where syncType != 2") if i in calls]
ranges = [(s, e, t & 0xffffff, x or names.get(n)) for s, e, t, x, n in c.execute("select start, end, globalTid, text, textId from NVTX_EVENTS where end > 0")]
ops.sort(key=lambda o: calls[o[2]][0]); waits.sort(); ranges.sort()
U = 1000
def times(rows):
    out, last = ([], [], [], []), 0
    for row in rows:
        s, e = (round(x / U) for x in row[:2]); out[0].append(s - last); out[1].append(e - s); last = s
    return [" ".join(map(str, col)) for col in out[:2]]
short = sorted({o[4] for o in ops}, key=lambda n: -sum(o[4] == n for o in ops))
ids = {n: i for i, n in enumerate(short)}
threads = sorted({calls[o[2]][2] for o in ops} | {r[2] for r in ranges} | {w[2] for w in waits}); th = {t: i for i, t in enumerate(threads)}
L = ["|".join(dict.fromkeys(r[3] for r in ranges))]; rn = {n: i for i, n in enumerate(L[0].split("|"))}
L += times(ranges) + [" ".join(str(th[r[2]]) for r in ranges), " ".join(str(rn[r[3]]) for r in ranges)]
L += times(waits) + [" ".join(str(th[w[2]]) for w in waits)]
L += times([calls[o[2]] for o in ops]) + [" ".join(str(th[calls[o[2]][2]]) for o in ops), " ".join(str(ids[o[4]]) for o in ops)]
L += [" ".join(str(round(o[0] / U) - round(calls[o[2]][0] / U)) for o in ops), " ".join(str(round(o[1] / U) - round(o[0] / U)) for o in ops)]
print(len(ops), len(waits), len(ranges), len(short), [n for n in short if len(n) < 8], threads)
copy = [i for i, n in enumerate(short) if n in ("DtoH", "HtoD", "DtoD") or n.startswith("copy")]; ms = [i for i, n in enumerate(short) if n == "memset"]
L = [" ".join(map(str, copy)), " ".join(map(str, ms))] + L
gzip.GzipFile(sys.argv[2], "wb", 9, mtime=0).write("\n".join(L).encode() + b"\n")
