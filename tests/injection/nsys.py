"""Compares a recording of the injection library with a capture of Nsight Systems of the same deterministic program.

    python nsys.py OURS.sqlite NSYS.sqlite
    python nsys.py --counts NSYS.sqlite > COUNTS.tsv

Both files have the tables of `nsys export --type sqlite`; `gpuprof export --format nsys` writes ours. What is compared are multisets:
    kernels  by mangled name, grid, block and the NVTX range that was innermost on the launching thread when the launch began
    copies   by direction, bytes and that range; memsets by bytes and that range
    calls    by what they do: nsys has those of the runtime API, ours the driver calls that these make
    ranges   by domain and name
Exits with 1 if they differ. With --counts a file's kernels and copies are printed, a line each, as tests read them.
"""

import bisect
import sqlite3
import sys
from collections import Counter, defaultdict

# NVTX_EVENTS.eventType of push/pop ranges and of domains.
PUSH_POP, START_END, DOMAIN = 59, 60, 75
# The low bits of a global thread id are the thread.
THREAD = 0xFF_FFFF

# What calls of both APIs do, by how their names begin.
CALLS = {
    "kernel": ("LaunchKernel", "LaunchCooperativeKernel"),
    "graph": ("GraphLaunch",),
    "copy": ("Memcpy",),
    "fill": ("Memset",),
    "wait": ("StreamSynchronize", "CtxSynchronize", "DeviceSynchronize", "EventSynchronize"),
    "wait for event": ("StreamWaitEvent",),
    "allocate": ("Malloc", "MemAlloc", "MemHostAlloc", "HostAlloc"),
}


def call_class(name):
    name = name.removeprefix("cuda").removeprefix("cu")
    return next((call for call, begins in CALLS.items() if name.startswith(begins)), None)


class Capture:
    def __init__(self, path):
        self.db = sqlite3.connect(path)
        self.tables = {name for (name,) in self.db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        self.texts = dict(self.db.execute("SELECT id, value FROM StringIds"))
        self.domains = {}
        self.ranges = Counter()
        self.by_thread = defaultdict(list)
        self.read_ranges()
        self.launches = defaultdict(list)
        self.calls, seen = Counter(), {}
        for start, thread, correlation, name in self.rows(
            "CUPTI_ACTIVITY_KIND_RUNTIME", "start, globalTid, correlationId, nameId"
        ):
            # A driver call within a call of the runtime API shares its id.
            call = call_class(self.texts[name])
            if call and call not in seen.setdefault((thread, correlation), []):
                seen[thread, correlation].append(call)
                self.calls[call] += 1
            self.launches[thread & ~THREAD, correlation].append((start, thread))

    def rows(self, table, columns):
        return self.db.execute(f"SELECT {columns} FROM {table}") if table in self.tables else ()

    def read_ranges(self):
        columns = "eventType, text, textId, domainId, globalTid, start, end"
        events = list(self.rows("NVTX_EVENTS", columns))
        for kind, text, text_id, domain, thread, _, _ in events:
            if kind == DOMAIN:
                self.domains[thread & ~THREAD, domain] = text or self.texts.get(text_id)
        opened = defaultdict(list)
        for kind, text, text_id, domain, thread, start, end in events:
            if kind not in (PUSH_POP, START_END):
                continue
            name = text if text is not None else self.texts.get(text_id, "")
            name = f"{self.domains.get((thread & ~THREAD, domain), '')}:{name}"
            self.ranges[name] += 1
            if kind == PUSH_POP:
                opened[thread].append((start, end if end is not None else 1 << 62, name))
        for thread, ranges in opened.items():
            # What is innermost changes where a range begins or ends.
            stack, changes = [], self.by_thread[thread]
            for start, end, name in sorted(ranges, key=lambda one: (one[0], -one[1])):
                while stack and stack[-1][0] <= start:
                    at = stack.pop()[0]
                    changes.append((at, stack[-1][1] if stack else None))
                stack.append((end, name))
                changes.append((start, name))
            while stack:
                at = stack.pop()[0]
                changes.append((at, stack[-1][1] if stack else None))

    def range_at(self, thread, at):
        changes = self.by_thread.get(thread, ())
        index = bisect.bisect_right(changes, at, key=lambda one: one[0])
        return changes[index - 1][1] if index else None

    def range_of(self, process, correlation):
        launches = self.launches.get((process, correlation))
        if not launches:
            return "(no call)"
        # A call of the runtime API and the driver call that it makes share an id.
        start, thread = min(launches)
        return self.range_at(thread, start)

    def kernels(self):
        columns = "coalesce(mangledName, demangledName), gridX, gridY, gridZ, blockX, blockY, blockZ, globalPid, correlationId"
        return Counter(
            (self.texts[name], *sizes, self.range_of(process, correlation))
            for name, *sizes, process, correlation in self.rows("CUPTI_ACTIVITY_KIND_KERNEL", columns)
        )

    def copies(self):
        copies = self.rows("CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind, bytes, globalPid, correlationId")
        fills = self.rows("CUPTI_ACTIVITY_KIND_MEMSET", "'memset', bytes, globalPid, correlationId")
        return Counter(
            (kind, size, self.range_of(process, correlation))
            for rows in (copies, fills)
            for kind, size, process, correlation in rows
        )


def compare(ours, nsys):
    """A line for each thing that is compared, and the differences."""
    ours, nsys = Capture(ours), Capture(nsys)
    lines, errors = [], []
    pairs = {
        "kernels": (ours.kernels(), nsys.kernels()),
        "copies": (ours.copies(), nsys.copies()),
        "calls": (ours.calls, nsys.calls),
        "ranges": (ours.ranges, nsys.ranges),
    }
    for what, (own, other) in pairs.items():
        lines.append(f"{what}: {own.total()} of ours, {other.total()} of nsys, {(own & other).total()} equal")
        errors += [f"{what}: {count} more of ours: {key}" for key, count in (own - other).most_common(20)]
        errors += [f"{what}: {count} more of nsys: {key}" for key, count in (other - own).most_common(20)]
    if not pairs["kernels"][0].total():
        errors.append("no kernels at all")
    return lines, errors


def print_counts(path):
    capture = Capture(path)
    for what, counts in {"kernel": capture.kernels(), "copy": capture.copies()}.items():
        for key, count in sorted(counts.items(), key=str):
            print(what, count, *("" if field is None else field for field in key), sep="\t")


if __name__ == "__main__":
    if sys.argv[1] == "--counts":
        sys.exit(print_counts(sys.argv[2]))
    lines, errors = compare(*sys.argv[1:3])
    print("\n".join(lines + errors))
    sys.exit(1 if errors else 0)
