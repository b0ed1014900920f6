#!/usr/bin/env python3
"""Writes cupti-rs/src/sys/generated.rs from facts about CUPTI's headers and libraries.


cupti-rs/facts holds callback-ids.json (callback ids by name), layouts-12.json and layouts-13.json
(struct layouts by header version) and record-strides.json (the bytes from one record to the next, by library).
Layouts and ids are facts; no text of NVIDIA's headers is copied. `.ci/generate` runs this.
"""
import json, pathlib, re

facts = pathlib.Path(__file__).parent.parent / "cupti-rs/facts"
load = lambda name: json.load(open(facts / name))

# --- driver calls that the call log records, by name --------------------------------------------------------------
CLASSES = [
    ("KernelLaunch", r"^cuLaunch(Cooperative)?(Kernel|Grid|$)"),
    ("GraphLaunch", r"^cuGraphLaunch"),
    ("HostFunction", r"^cuLaunchHostFunc"),
    ("Memcpy", r"^cuMemcpy"),
    ("Memset", r"^cuMemset"),
    ("Synchronize", r"^cu(Ctx|Stream|Event)Synchronize"),
    ("WaitEvent", r"^cuStreamWaitEvent"),
    ("Query", r"^cu(Stream|Event)Query"),
    ("Alloc", r"^cuMem(Alloc|HostAlloc|HostRegister|Create|Map$)"),
    ("Free", r"^cuMem(Free|HostUnregister|Release|Unmap)"),
]
# Where a call's byte count stands in its parameter block, so that a copy of nothing (which gives no record) is known
# for one. All parameters before it take 8 bytes each.
SIZES = [
    (r"^cuMemcpy(HtoD|DtoH|DtoD)(Async)?_v2", [16]),
    (r"^cuMemcpy(Async)?(_ptds|_ptsz)?$", [16]),
    (r"^cuMemcpyPeer(Async)?(_ptds|_ptsz)?$", [32]),
    (r"^cuMemsetD(8|16|32)(_v2|Async)", [16]),
    (r"^cuMemsetD2D(8|16|32)(_v2|Async)", [24, 32]),
]

def driver_calls():
    rows = []
    for id, entry in load("callback-ids.json")["domains"]["driver"].items():
        name = entry["name"]
        for cls, pattern in CLASSES:
            if re.search(pattern, name):
                size = next((s for p, s in SIZES if re.search(p, name)), [])
                rows.append((int(id), name, cls, size))
                break
    return sorted(rows)

# --- layouts ------------------------------------------------------------------------------------------------------
def structs():
    out = {}
    for name in ("layouts-12.json", "layouts-13.json"):
        for struct, variants in load(name)["structs"].items():
            out.setdefault(struct, []).extend(variants)
    return out

# Module and the kinds whose records it lays out; the first is the one whose strides were measured.
FAMILIES = [
    ("kernel", "CONCURRENT_KERNEL KERNEL"), ("memcpy", "MEMCPY"), ("memcpy2", "MEMCPY2"), ("memset", "MEMSET"),
    ("api", "DRIVER RUNTIME INTERNAL_LAUNCH_API"), ("marker", "MARKER"), ("marker_data", "MARKER_DATA"),
    ("external_correlation", "EXTERNAL_CORRELATION"), ("synchronization", "SYNCHRONIZATION"), ("overhead", "OVERHEAD"),
    ("graph_trace", "GRAPH_TRACE"), ("device_graph_trace", "DEVICE_GRAPH_TRACE"), ("graph_host_node", "GRAPH_HOST_NODE"),
    ("host_launch", "HOST_LAUNCH"), ("memory", "MEMORY"), ("memory2", "MEMORY2"), ("memory_pool", "MEMORY_POOL"),
    ("unified_memory_counter", "UNIFIED_MEMORY_COUNTER"), ("cuda_event", "CUDA_EVENT"), ("stream", "STREAM"),
    ("context", "CONTEXT"), ("green_context", "GREEN_CONTEXT"),
    ("compute_engine_ctx_switch", "COMPUTE_ENGINE_CTX_SWITCH"), ("device", "DEVICE"),
    ("device_attribute", "DEVICE_ATTRIBUTE"), ("environment", "ENVIRONMENT"), ("name", "NAME"), ("module", "MODULE"),
    ("function", "FUNCTION"), ("nvlink", "NVLINK"), ("nvlink5", "NVLINK"), ("pcie", "PCIE"), ("jit", "JIT"),
    ("mem_decompress", "MEM_DECOMPRESS"), ("confidential_compute_rotation", "CONFIDENTIAL_COMPUTE_ROTATION"),
]
# The one family whose newest struct moves fields: its structs up to 4, and 5 with pointers in place of arrays.
SPLIT = {"nvlink": ("CUpti_ActivityNvLink4", "nvlink5"), "nvlink5": ("CUpti_ActivityNvLink5", None)}
# Pointers to memory that the client has to free; and the one that is so from 13.0 on, and CUPTI's own before.
OWNED = {("overhead", "overheadData"), ("nvlink5", "portDev0"), ("nvlink5", "portDev1")}
OWNED_SINCE_13 = {("device", "name")}
# Signed values; dimensions and sizes are signed in the headers and never negative.
SIGNED = {("kernel", "priority"): "i32", ("kernel", "gridId"): "i64", ("device_attribute", "value.vInt32"): "i32",
          ("device_attribute", "value.vInt64"): "i64", ("marker_data", "payload.metricValueInt64"): "i64"}

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
    if type == "double": return "f64"
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
        p(f"/// {titles}: offsets in `{self.newest}`, of which every older struct of the family is a prefix.")
        p(f"pub mod {self.module} {{")
        p("    use crate::sys::field::*;")
        p("    #[derive(Debug)]")
        p("    pub enum Layout {}")
        p("    impl Family for Layout {")
        p("        const KINDS: &'static [u32] = KINDS;")
        p("        const STRIDES: Strides = STRIDES;")
        p("    }")
        p(f"    pub const KINDS: &[u32] = &[{', '.join(map(str, self.kinds))}];")
        p(f"    pub const STRIDES: Strides = &[{', '.join(f'({r}, {s})' for r, s in self.strides)}];")
        for f in self.fields:
            since = self.since(f)
            gate = f".since{since}" if since else ""
            type = rust_type(self.module, f)
            p(f"    pub const {constant(f['name'])}: Field<Layout, {type}> = Field::at({f['offset']}){gate};")
        p("}")
        p()

    def print_layouts(self):
        for name, v, first, writers in self.structs:
            have = list(leaves(v))
            names = {f["name"] for f in have}
            lacks = [constant(f["name"]) for f in self.fields if f["name"] not in names]
            print(f"        {self.module}: {name}, {v['size']} bytes, from {first}, written by [{', '.join(map(str, writers))}];")
            line = "            has"
            for i, f in enumerate(have):
                part = f" {constant(f['name'])} {f['offset']} {f['size']}" + ("," if i < len(have) - 1 else ";")
                if len(line) + len(part) > 120: print(line); line = "               "
                line += part
            print(line)
            print(f"            lacks [{', '.join(lacks)}];")

def functions(domain, title):
    names = {int(id): entry["name"] for id, entry in load("callback-ids.json")["domains"][domain].items()}
    names[0] = ""
    print(f"/// The {title}s by callback id; empty where an id has none.")
    print(f"pub const {domain.upper()}_FUNCTIONS: [&str; {max(names) + 1}] = [")
    for id in range(max(names) + 1): print(f'    "{names.get(id, "")}",')
    print("];")
    print()

def main():
    p = print
    p("// Generated by .ci/generate-cupti-sys.py from facts about CUPTI 12.0 to 13.5; do not edit.")
    p()
    p("use crate::call_class::CallClass;")
    p()
    p("/// One driver call that the call log records.")
    p("#[derive(Debug)]")
    p("pub struct DriverCall {")
    p("    /// CUPTI's callback id in the driver domain; never renumbered from 11.8 to 13.5.")
    p("    pub id: u32,")
    p("    /// The function's name.")
    p("    pub name: &'static str,")
    p("    /// What the call does.")
    p("    pub class: CallClass,")
    p("    /// Offsets in the parameter block of the sizes whose product is the work asked for; empty if not known.")
    p("    pub sizes: &'static [usize],")
    p("}")
    p()
    rows = driver_calls()
    p("/// The driver calls that the call log records, by id.")
    p(f"pub const DRIVER_CALLS: [DriverCall; {len(rows)}] = [")
    for id, name, cls, size in rows:
        p(f'    DriverCall {{ id: {id}, name: "{name}", class: CallClass::{cls}, sizes: &{size} }},')
    p("];")
    p()
    functions("driver", "driver function")
    functions("runtime", "runtime function")
    layout, strides = structs(), load("record-strides.json")["kinds"]
    families = [Family(module, kinds, layout, strides) for module, kinds in FAMILIES]
    for family in families: family.print()
    p("/// Every family: its kinds and its strides.")
    p(f"pub const FAMILIES: [(&[u32], crate::sys::field::Strides); {len(families)}] = [")
    for family in families: p(f"    ({family.module}::KINDS, {family.module}::STRIDES),")
    p("];")
    p()
    p("/// The structs of CUPTI's headers, field by field: the offset and size that each has there.")
    p("mod layouts {")
    p("    crate::sys::field::layouts! {")
    for family in families: family.print_layouts()
    p("    }")
    p("}")

main()
