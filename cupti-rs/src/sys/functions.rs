//! CUDA's functions by callback id, and those whose calls the call log records.
//!
//! The names are in `cupti-rs/facts`: line N is the function with id N, with the first CUPTI that has it. The compiler
//! evaluates the tables in each build of a program: the loops over names call few functions, as each call costs it microseconds.

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
pub const DRIVER_CALLS: [LoggedCall; LOGGED_DRIVER.count] = LOGGED_DRIVER.to_array();
/// The calls of the runtime API that are logged if requested, by id.
pub const RUNTIME_CALLS: [LoggedCall; LOGGED_RUNTIME.count] = LOGGED_RUNTIME.to_array();

const LOGGED_DRIVER: LoggedCalls = LoggedCalls::new(&DRIVER_FUNCTIONS, &DRIVER_CLASSES);
const LOGGED_RUNTIME: LoggedCalls = LoggedCalls::new(&RUNTIME_FUNCTIONS, &RUNTIME_CLASSES);

/// `cuProfilerStart`.
pub const DRIVER_PROFILER_START: u32 = id_of(&DRIVER_FUNCTIONS, b"cuProfilerStart");
/// `cuProfilerStop`.
pub const DRIVER_PROFILER_STOP: u32 = id_of(&DRIVER_FUNCTIONS, b"cuProfilerStop");
/// `cudaProfilerStart`.
pub const RUNTIME_PROFILER_START: u32 = id_of(&RUNTIME_FUNCTIONS, b"cudaProfilerStart");
/// `cudaProfilerStop`.
pub const RUNTIME_PROFILER_STOP: u32 = id_of(&RUNTIME_FUNCTIONS, b"cudaProfilerStop");

/// The beginning of a name, or a whole name where it ends in `$`.
type Pattern = &'static [u8];

/// The class of the calls whose names match a pattern; the first match counts.
const DRIVER_CLASSES: [(&[Pattern], CallClass); 10] = [
    (
        &[b"cuLaunch$", b"cuLaunchKernel", b"cuLaunchGrid", b"cuLaunchCooperativeKernel"],
        KernelLaunch,
    ),
    (&[b"cuGraphLaunch"], GraphLaunch),
    (&[b"cuLaunchHostFunc"], HostFunction),
    (&[b"cuMemcpy"], Memcpy),
    (&[b"cuMemset"], Memset),
    (&[b"cuCtxSynchronize", b"cuStreamSynchronize", b"cuEventSynchronize"], Synchronize),
    (&[b"cuStreamWaitEvent"], WaitEvent),
    (&[b"cuStreamQuery", b"cuEventQuery"], Query),
    (
        &[b"cuMemAlloc", b"cuMemHostAlloc", b"cuMemHostRegister", b"cuMemCreate", b"cuMemMap$"],
        Alloc,
    ),
    (&[b"cuMemFree", b"cuMemHostUnregister", b"cuMemRelease", b"cuMemUnmap"], Free),
];

/// As [`DRIVER_CLASSES`], of names without their version.
const RUNTIME_CLASSES: [(&[Pattern], CallClass); 10] = [
    (
        &[
            b"cudaLaunch$",
            b"cudaLaunch_",
            b"cudaLaunchKernel",
            b"cudaLaunchCooperative",
            b"__cudaLaunchKernel",
        ],
        KernelLaunch,
    ),
    (&[b"cudaGraphLaunch"], GraphLaunch),
    (&[b"cudaLaunchHostFunc"], HostFunction),
    (&[b"cudaMemcpy"], Memcpy),
    (&[b"cudaMemset"], Memset),
    (
        &[
            b"cudaDeviceSynchronize",
            b"cudaThreadSynchronize",
            b"cudaStreamSynchronize",
            b"cudaEventSynchronize",
        ],
        Synchronize,
    ),
    (&[b"cudaStreamWaitEvent"], WaitEvent),
    (&[b"cudaStreamQuery", b"cudaEventQuery"], Query),
    (&[b"cudaMalloc", b"cudaHostAlloc", b"cudaHostRegister"], Alloc),
    (&[b"cudaFree", b"cudaHostUnregister"], Free),
];

/// Where a call's byte count is in its parameter block: a copy of nothing writes no record. All parameters before it have 8
/// bytes each.
const SIZES: [(&[Pattern], &[usize]); 4] = [
    (
        &[
            b"cuMemcpyHtoD_v2",
            b"cuMemcpyDtoH_v2",
            b"cuMemcpyDtoD_v2",
            b"cuMemcpyHtoDAsync_v2",
            b"cuMemcpyDtoHAsync_v2",
            b"cuMemcpyDtoDAsync_v2",
            b"cuMemcpy$",
            b"cuMemcpy_ptds$",
            b"cuMemcpyAsync$",
            b"cuMemcpyAsync_ptsz$",
        ],
        &[16],
    ),
    (
        &[
            b"cuMemcpyPeer$",
            b"cuMemcpyPeer_ptds$",
            b"cuMemcpyPeerAsync$",
            b"cuMemcpyPeerAsync_ptsz$",
        ],
        &[32],
    ),
    (
        &[
            b"cuMemsetD8_v2",
            b"cuMemsetD16_v2",
            b"cuMemsetD32_v2",
            b"cuMemsetD8Async",
            b"cuMemsetD16Async",
            b"cuMemsetD32Async",
        ],
        &[16],
    ),
    (
        &[
            b"cuMemsetD2D8_v2",
            b"cuMemsetD2D16_v2",
            b"cuMemsetD2D32_v2",
            b"cuMemsetD2D8Async",
            b"cuMemsetD2D16Async",
            b"cuMemsetD2D32Async",
        ],
        &[24, 32],
    ),
];

const fn lines(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut lines, mut at) = (0, 0);
    while at < bytes.len() {
        lines += (bytes[at] == b'\n') as usize;
        at += 1;
    }
    lines
}

/// The first word of each line, from index 1 on.
const fn names<const N: usize>(text: &'static str) -> [&'static str; N] {
    let bytes = text.as_bytes();
    let mut names = [""; N];
    let (mut at, mut line) = (0, 1);
    while line < N {
        let start = at;
        while bytes[at] != b' ' {
            at += 1;
        }
        names[line] = text.split_at(at).0.split_at(start).1;
        while bytes[at] != b'\n' {
            at += 1;
        }
        at += 1;
        line += 1;
    }
    names
}

/// The first `count` of the calls are logged; an index in [`calls`](crate::calls) has 8 bits.
struct LoggedCalls {
    calls: [LoggedCall; 255],
    count: usize,
}

impl LoggedCalls {
    const fn new(functions: &[&'static str], classes: &[(&[Pattern], CallClass)]) -> Self {
        let mut logged = Self { calls: [LoggedCall::NONE; 255], count: 0 };
        let mut id = 0;
        while id < functions.len() {
            let name = unversioned(functions[id]);
            if let Some(class) = first_match(name, classes) {
                let sizes = match first_match(name, &SIZES) {
                    Some(sizes) => sizes,
                    None => &[],
                };
                logged.calls[logged.count] = LoggedCall { id: id as u32, name, class, sizes };
                logged.count += 1;
            }
            id += 1;
        }
        logged
    }

    const fn to_array<const N: usize>(&self) -> [LoggedCall; N] {
        let mut calls = [LoggedCall::NONE; N];
        let mut at = 0;
        while at < N {
            calls[at] = self.calls[at];
            at += 1;
        }
        calls
    }
}

/// The value of the first row with a pattern that matches.
const fn first_match<T: Copy>(name: &str, rows: &[(&[Pattern], T)]) -> Option<T> {
    let name = name.as_bytes();
    let mut row = 0;
    while row < rows.len() {
        let patterns = rows[row].0;
        let mut at = 0;
        while at < patterns.len() {
            let pattern = patterns[at];
            // Most names are too short or differ at the pattern's last byte.
            let last = pattern.len() - 1;
            let may_match = name.len() >= last
                && (pattern[last] == b'$' || name.len() > last && name[last] == pattern[last]);
            if may_match && matches(name, pattern) {
                return Some(rows[row].1);
            }
            at += 1;
        }
        row += 1;
    }
    None
}

const fn matches(name: &[u8], pattern: Pattern) -> bool {
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
    while !matches(functions[id].as_bytes(), name) {
        id += 1;
    }
    id as u32
}
