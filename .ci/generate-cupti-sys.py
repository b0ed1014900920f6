#!/usr/bin/env python3
"""Writes cupti-rs/src/sys/generated.rs from facts about CUPTI's headers and libraries.

cupti-rs/facts holds layouts-12.json and layouts-13.json (struct layouts by header version) and record-strides.json (the
bytes from one record to the next, by library). Layouts are facts; no text of NVIDIA's headers is copied. `.ci/generate`
runs this.
"""
import json, pathlib, re

facts = pathlib.Path(__file__).parent.parent / "cupti-rs/facts"
load = lambda name: json.load(open(facts / name))

# --- layouts ------------------------------------------------------------------------------------------------------
def structs():
    out = {}
    for name in ("layouts-12.json", "layouts-13.json"):
        for struct, variants in load(name)["structs"].items():
            out.setdefault(struct, []).extend(variants)
    return out

# The modules that do not have the name of their one kind, and the kinds whose records they lay out; the first is the one
# whose strides were measured.
MODULES = {
    "kernel": "CONCURRENT_KERNEL KERNEL", "api": "DRIVER RUNTIME INTERNAL_LAUNCH_API", "nvlink": "NVLINK",
    "nvlink5": "NVLINK",
}
# Kinds that cupti-rs has neither a type nor lengths for.
LEFT_OUT = set("""
    EVENT METRIC SOURCE_LOCATOR GLOBAL_ACCESS BRANCH CDP_KERNEL PREEMPTION EVENT_INSTANCE METRIC_INSTANCE
    INSTRUCTION_EXECUTION MODULE DEVICE_ATTRIBUTE SHARED_ACCESS PC_SAMPLING PC_SAMPLING_RECORD_INFO INSTRUCTION_CORRELATION
    OPENACC_DATA OPENACC_LAUNCH OPENACC_OTHER INSTANTANEOUS_EVENT INSTANTANEOUS_EVENT_INSTANCE INSTANTANEOUS_METRIC
    INSTANTANEOUS_METRIC_INSTANCE OPENMP
""".split())
# Modules of the other kinds without a type: their lengths alone, and the fields by which the client frees memory.
WITHOUT_TYPE = dict.fromkeys("""
    nvlink marker marker_data context name environment function stream external_correlation memory pcie memory_pool jit
    device_graph_trace mem_decompress confidential_compute_rotation graph_host_node compute_engine_ctx_switch host_launch
    green_context
""".split(), ()) | {"nvlink5": ("typeDev0", "typeDev1", "portDev0", "portDev1")}
# The one family whose newest struct moves fields: its structs up to 4, and 5 with pointers in place of arrays.
SPLIT = {"nvlink": ("CUpti_ActivityNvLink4", "nvlink5"), "nvlink5": ("CUpti_ActivityNvLink5", None)}
# Pointers to memory that the client has to free; and the one that is so from 13.0 on, and CUPTI's own before.
OWNED = {("overhead", "overheadData"), ("nvlink5", "portDev0"), ("nvlink5", "portDev1")}
OWNED_SINCE_13 = {("device", "name")}
# Signed values; dimensions and sizes are signed in the headers and never negative.
SIGNED = {("kernel", "priority"): "i32", ("kernel", "gridId"): "i64"}

def constant(name):
    name = name.removesuffix(".bytes").replace(".", "_")
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).upper()

def rust_type(module, field):
    key = (module, field["name"])
    if key in SIGNED: return SIGNED[key]
    if key in OWNED: return "Owned"
    if key in OWNED_SINCE_13: return "OwnedSince13"
    type, size = field["type"], field["size"]
    if type.endswith("*"): return "Pointer"
    array = re.fullmatch(r"(.+)\[(\d+)\]", type)
    if array: return f"[u{8 * size // int(array[2])}; {array[2]}]"
    return f"u{8 * size}"

def leaves(struct):
    """The fields that hold values: no padding, nothing reserved, no bit field, no struct around other fields."""
    names = [f["name"] for f in struct["fields"]]
    for f in struct["fields"]:
        last = f["name"].split(".")[-1]
        if f["name"] == "kind" or re.fullmatch(r"(pad|padding|reserved)\d*", last): continue
        if any(n.startswith(f["name"] + ".") for n in names): continue
        if ".config." in f["name"]: continue
        if (f["name"], f["size"]) == ("localMemoryTotal", 4): continue # localMemoryTotal_v2 has it in 8 bytes
        yield f

# The releases of CUDA 12 and 13 that the facts are of.
RELEASES = [(12, n) for n in (0, 1, 2, 3, 4, 5, 6, 8, 9)] + [(13, n) for n in range(6)]

def release(wheel):
    major, minor = wheel.split(".")[:2]
    return int(major), int(minor)

def is_old(wheel):
    return wheel.startswith("11.")

class Family:
    def __init__(self, module, kinds, layout, strides):
        self.module, self.kinds = module, [strides[k]["kind"] for k in kinds.split()]
        self.names = kinds.split()
        by_wheel = {w: e for w, e in strides[self.names[0]]["by_cupti"].items() if not is_old(w)}
        last, follower = SPLIT.get(module, (None, None))
        written = {} # wheel: (struct, stride)
        for wheel, e in by_wheel.items():
            stride = e.get("measured") or e.get("header_size")
            if not stride: continue
            assert e["header_size"] == stride, (module, wheel, e)
            written[wheel] = (e["header_struct"], stride)
        newest = last or list(written.values())[-1][0]
        if follower: written = {w: s if s[0] == newest else (None, 0) for w, s in written.items()}
        elif last: written = {w: s for w, s in written.items() if s[0] == newest}
        self.newest = newest
        # Major and minor releases have one layout.
        self.strides = []
        for wheel, (_, stride) in written.items():
            if not self.strides or self.strides[-1][1] != stride: self.strides.append((release(wheel), stride))
        base = "CUpti_ActivityAPI" if newest.endswith("API") else re.sub(r"\d+$", "", newest)
        number = lambda name: int(name[len(base):] or 1)
        self.structs = [] # (name, header variant, releases that write it), oldest first
        oldest = self.strides[0][1]
        for name in sorted((n for n in layout if re.fullmatch(re.escape(base) + r"\d*", n)), key=number):
            if number(name) > number(newest) or (last and name != newest): continue
            for v in layout[name]:
                headers = [w for w in v["headers"] if not is_old(w)]
                # Structs from before 12.0 that no library writes any more.
                if not headers or v["size"] < oldest: continue
                # MEMORY and MEMORY2 are families of their own, in structs of one series.
                if module == "memory" and number(name) > 1 or module == "memory2" and number(name) < 3: continue
                writers = sorted({release(w) for w in headers if written.get(w, (None,))[0] == name})
                shape = lambda v: (v["size"], [(f["name"], f["offset"], f["size"]) for f in leaves(v)])
                same = next((s for s in self.structs if s[0] == name and shape(s[1]) == shape(v)), None)
                if same: same[3].extend(w for w in writers if w not in same[3])
                else: self.structs.append((name, v, release(headers[0]), writers))
        by_name = {f["name"]: f for f in layout[newest][-1]["fields"]}
        self.fields = list(leaves(layout[newest][-1]))
        # Every older struct must be a prefix: the same offset and size wherever the field exists.
        for name, v, _, _ in self.structs:
            for f in leaves(v):
                want = by_name[f["name"]]
                assert (f["offset"], f["size"]) == (want["offset"], want["size"]), (name, f, want)

    def since(self, field):
        """The first release that writes a field whose bytes were padding before; None where the length tells."""
        has = lambda v: any(f["name"] == field["name"] for f in v["fields"])
        end = field["offset"] + field["size"]
        if not any(w and not has(v) and end <= v["size"] for _, v, _, w in self.structs): return None
        return min(w[0] for _, v, _, w in self.structs if w and has(v))

    def print(self):
        p = print
        titles = ", ".join(f"`{n}`" for n in self.names)
        strides = ", ".join(f"({r}, {s})" for r, s in self.strides)
        named = WITHOUT_TYPE.get(self.module)
        read = [f for f in self.fields if named is None or f["name"] in named]
        offsets = f"offsets in `{self.newest}`, of which every older struct of the family is a prefix"
        p(f"    /// {titles}: {offsets if read else 'the lengths alone'}.")
        p(f"    {self.module}: kinds [{', '.join(map(str, self.kinds))}], strides [{strides}];")
        p("    fields {")
        for f in read:
            since = self.since(f)
            gate = f" since {since}" if since else ""
            type = rust_type(self.module, f)
            p(f"        {constant(f['name'])}: {type} = {f['offset']}..{f['offset'] + f['size']}{gate};")
        p("    }")

    def check(self):
        """A reader that knows strides, offsets and first releases finds the fields of each struct, and no other."""
        def found(size, release):
            is_in = lambda f: f["offset"] + f["size"] <= size and (self.since(f) or release) <= release
            return {f["name"] for f in self.fields if is_in(f)}
        for name, v, first, writers in self.structs:
            # Consecutive releases write a struct, from the first that has it.
            last = RELEASES.index(first) + len(writers)
            assert not writers or writers == RELEASES[RELEASES.index(first):last], (name, writers)
            for release in writers or [first]:
                assert found(v["size"], release) == {f["name"] for f in leaves(v)}, (name, release)
            for release in writers:
                stride = [stride for since, stride in self.strides if since <= release][-1]
                assert stride == v["size"], (name, release)

def main():
    p = print
    p("// Generated by .ci/generate-cupti-sys.py from facts about CUPTI 12.0 to 13.5; do not edit.")
    p()
    p("use super::field::{Strides, families};")
    p()
    p("families! {")
    layout, strides = structs(), load("record-strides.json")["kinds"]
    others = set(strides) - LEFT_OUT - set(" ".join(MODULES.values()).split())
    others = {kind.lower(): kind for kind in sorted(others, key=lambda kind: strides[kind]["kind"])}
    for module, kinds in (MODULES | others).items():
        family = Family(module, kinds, layout, strides)
        family.check()
        family.print()
    p("}")

main()
