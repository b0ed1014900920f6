//! CUDA's functions by callback id, and those whose calls the call log records.
//!
//! The names are in `cupti-rs/facts`: line N is the function with id N, with the first CUPTI that has it.

use crate::call_class::CallClass::{self, *};

/// A function whose calls the call log records.
#[derive(Debug, Clone, Copy)]
pub struct LoggedCall {
    /// CUPTI's callback id; ids were never renumbered from 11.8 to 13.5.
    pub id: u32,
    /// The function's name, without the version that CUPTI adds to names of the runtime API. Functions of that API with
    /// several versions have several ids, the oldest version first.
    pub name: &'static str,
    /// What the call does.
    pub class: CallClass,
    /// Offsets in the driver's parameter block of the sizes whose product is the requested work; empty if not known.
    pub sizes: &'static [usize],
}

impl LoggedCall {
    const NONE: Self = Self { id: 0, name: "", class: CallClass::Unknown, sizes: &[] };
}

const DRIVER: &str = include_str!("../../facts/driver-functions.txt");
const RUNTIME: &str = include_str!("../../facts/runtime-functions.txt");

/// The driver functions by callback id; id 0 is none.
pub const DRIVER_FUNCTIONS: [&str; lines(DRIVER) + 1] = names(DRIVER);
/// The runtime functions by callback id, with their versions, such as `cudaMalloc_v3020`; id 0 is none.
pub const RUNTIME_FUNCTIONS: [&str; lines(RUNTIME) + 1] = names(RUNTIME);

/// The driver calls that are logged, by id.
pub const DRIVER_CALLS: [LoggedCall; logged_count(&DRIVER_FUNCTIONS, &DRIVER_CLASSES)] =
    logged(&DRIVER_FUNCTIONS, &DRIVER_CLASSES);
/// The calls of the runtime API that are logged if requested, by id.
pub const RUNTIME_CALLS: [LoggedCall; logged_count(&RUNTIME_FUNCTIONS, &RUNTIME_CLASSES)] =
    logged(&RUNTIME_FUNCTIONS, &RUNTIME_CLASSES);

/// `cuProfilerStart`.
pub const DRIVER_PROFILER_START: u32 = id_of(&DRIVER_FUNCTIONS, "cuProfilerStart");
/// `cuProfilerStop`.
pub const DRIVER_PROFILER_STOP: u32 = id_of(&DRIVER_FUNCTIONS, "cuProfilerStop");
/// `cudaProfilerStart`.
pub const RUNTIME_PROFILER_START: u32 = id_of(&RUNTIME_FUNCTIONS, "cudaProfilerStart");
/// `cudaProfilerStop`.
pub const RUNTIME_PROFILER_STOP: u32 = id_of(&RUNTIME_FUNCTIONS, "cudaProfilerStop");

/// The beginning of a name, or a whole name where it ends in `$`.
type Pattern = &'static str;

/// The class of the calls whose names match a pattern; the first match counts.
const DRIVER_CLASSES: [(&[Pattern], CallClass); 10] = [
    (&["cuLaunch$", "cuLaunchKernel", "cuLaunchGrid", "cuLaunchCooperativeKernel"], KernelLaunch),
    (&["cuGraphLaunch"], GraphLaunch),
    (&["cuLaunchHostFunc"], HostFunction),
    (&["cuMemcpy"], Memcpy),
    (&["cuMemset"], Memset),
    (&["cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize"], Synchronize),
    (&["cuStreamWaitEvent"], WaitEvent),
    (&["cuStreamQuery", "cuEventQuery"], Query),
    (&["cuMemAlloc", "cuMemHostAlloc", "cuMemHostRegister", "cuMemCreate", "cuMemMap$"], Alloc),
    (&["cuMemFree", "cuMemHostUnregister", "cuMemRelease", "cuMemUnmap"], Free),
];

/// As [`DRIVER_CLASSES`], of names without their version.
const RUNTIME_CLASSES: [(&[Pattern], CallClass); 10] = [
    (
        &[
            "cudaLaunch$",
            "cudaLaunch_",
            "cudaLaunchKernel",
            "cudaLaunchCooperative",
            "__cudaLaunchKernel",
        ],
        KernelLaunch,
    ),
    (&["cudaGraphLaunch"], GraphLaunch),
    (&["cudaLaunchHostFunc"], HostFunction),
    (&["cudaMemcpy"], Memcpy),
    (&["cudaMemset"], Memset),
    (
        &[
            "cudaDeviceSynchronize",
            "cudaThreadSynchronize",
            "cudaStreamSynchronize",
            "cudaEventSynchronize",
        ],
        Synchronize,
    ),
    (&["cudaStreamWaitEvent"], WaitEvent),
    (&["cudaStreamQuery", "cudaEventQuery"], Query),
    (&["cudaMalloc", "cudaHostAlloc", "cudaHostRegister"], Alloc),
    (&["cudaFree", "cudaHostUnregister"], Free),
];

/// Where a call's byte count is in its parameter block: a copy of nothing writes no record. All parameters before it have 8
/// bytes each.
const SIZES: [(&[Pattern], &[usize]); 4] = [
    (
        &[
            "cuMemcpyHtoD_v2",
            "cuMemcpyDtoH_v2",
            "cuMemcpyDtoD_v2",
            "cuMemcpyHtoDAsync_v2",
            "cuMemcpyDtoHAsync_v2",
            "cuMemcpyDtoDAsync_v2",
            "cuMemcpy$",
            "cuMemcpy_ptds$",
            "cuMemcpyAsync$",
            "cuMemcpyAsync_ptsz$",
        ],
        &[16],
    ),
    (
        &["cuMemcpyPeer$", "cuMemcpyPeer_ptds$", "cuMemcpyPeerAsync$", "cuMemcpyPeerAsync_ptsz$"],
        &[32],
    ),
    (
        &[
            "cuMemsetD8_v2",
            "cuMemsetD16_v2",
            "cuMemsetD32_v2",
            "cuMemsetD8Async",
            "cuMemsetD16Async",
            "cuMemsetD32Async",
        ],
        &[16],
    ),
    (
        &[
            "cuMemsetD2D8_v2",
            "cuMemsetD2D16_v2",
            "cuMemsetD2D32_v2",
            "cuMemsetD2D8Async",
            "cuMemsetD2D16Async",
            "cuMemsetD2D32Async",
        ],
        &[24, 32],
    ),
];

const fn lines(text: &str) -> usize {
    let (mut lines, mut at) = (0, 0);
    while at < text.len() {
        lines += (text.as_bytes()[at] == b'\n') as usize;
        at += 1;
    }
    lines
}

/// The first word of each line, from index 1 on.
const fn names<const N: usize>(text: &'static str) -> [&'static str; N] {
    let mut names = [""; N];
    let (mut rest, mut line) = (text, 1);
    while line < N {
        names[line] = rest.split_at(find(rest, b' ')).0;
        rest = rest.split_at(find(rest, b'\n') + 1).1;
        line += 1;
    }
    names
}

const fn find(text: &str, byte: u8) -> usize {
    let mut at = 0;
    while text.as_bytes()[at] != byte {
        at += 1;
    }
    at
}

const fn logged_count(functions: &[&'static str], classes: &[(&[Pattern], CallClass)]) -> usize {
    let (mut count, mut id) = (0, 0);
    while id < functions.len() {
        count += first_match(unversioned(functions[id]), classes).is_some() as usize;
        id += 1;
    }
    count
}

const fn logged<const N: usize>(
    functions: &[&'static str],
    classes: &[(&[Pattern], CallClass)],
) -> [LoggedCall; N] {
    let mut calls = [LoggedCall::NONE; N];
    let (mut count, mut id) = (0, 0);
    while id < functions.len() {
        let name = unversioned(functions[id]);
        if let Some(class) = first_match(name, classes) {
            let sizes = match first_match(name, &SIZES) {
                Some(sizes) => sizes,
                None => &[],
            };
            calls[count] = LoggedCall { id: id as u32, name, class, sizes };
            count += 1;
        }
        id += 1;
    }
    calls
}

/// The value of the first row with a pattern that matches.
const fn first_match<T: Copy>(name: &str, rows: &[(&[Pattern], T)]) -> Option<T> {
    let mut row = 0;
    while row < rows.len() {
        let mut at = 0;
        while at < rows[row].0.len() {
            if matches(name, rows[row].0[at]) {
                return Some(rows[row].1);
            }
            at += 1;
        }
        row += 1;
    }
    None
}

const fn matches(name: &str, pattern: Pattern) -> bool {
    let (name, pattern) = (name.as_bytes(), pattern.as_bytes());
    let mut at = 0;
    while at < pattern.len() && pattern[at] != b'$' {
        if at >= name.len() || name[at] != pattern[at] {
            return false;
        }
        at += 1;
    }
    at == pattern.len() || at == name.len()
}

/// The name without the version at the end, as `_v3020` or `_v12060`.
const fn unversioned(name: &'static str) -> &'static str {
    let bytes = name.as_bytes();
    let mut start = bytes.len();
    while start > 0 && bytes[start - 1].is_ascii_digit() {
        start -= 1;
    }
    let is_version = start > 2
        && bytes.len() - start >= 4
        && bytes[start - 1] == b'v'
        && bytes[start - 2] == b'_';
    if is_version { name.split_at(start - 2).0 } else { name }
}

const fn id_of(functions: &[&str], name: Pattern) -> u32 {
    let mut id = 0;
    while !matches(functions[id], name) {
        id += 1;
    }
    id as u32
}
