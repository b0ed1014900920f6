//! CUDA's functions by callback id, and those whose calls the call log records.
//!
//! The names are in `cupti-rs/facts`: line N is the function with id N, with the first CUPTI that
//! has it. The tables are made at their first use: constants would be evaluated again in each build
//! of a program.

use std::ops::Deref;
use std::sync::LazyLock;

use crate::call_class::CallClass::{self, *};

/// A function whose calls the call log records.
#[derive(Debug, Clone, Copy)]
pub struct LoggedCall {
    /// CUPTI's callback id; ids were never renumbered from 11.8 to 13.5.
    pub id: u32,
    /// The function's name, without the version that CUPTI adds to names of the runtime API.
    /// Functions of that API with several versions have several ids, the oldest version first.
    pub name: &'static str,
    /// The class of the call.
    pub class: CallClass,
    /// Offsets in the driver's parameter block of the sizes whose product is the requested work;
    /// empty if unknown.
    pub sizes: &'static [usize],
}

/// The logged functions of one API, ordered by id.
#[derive(Debug)]
pub struct LoggedCalls {
    calls: Vec<LoggedCall>,
    /// Indices in `calls` plus 1, by id; 0 for other ids.
    places: Vec<u8>,
}

impl LoggedCalls {
    fn new(functions: &[&'static str], classes: &[(&[Pattern], CallClass)]) -> Self {
        let (mut calls, mut places) = (Vec::new(), Vec::new());
        for (id, name) in (0..).zip(functions) {
            let name = unversioned(name);
            let class = first_match(name, classes);
            calls.extend(class.map(|class| LoggedCall {
                id,
                name,
                class,
                sizes: first_match(name, &SIZES).unwrap_or_default(),
            }));
            places.push(if class.is_some() { calls.len() as u8 } else { 0 });
        }
        Self { calls, places }
    }

    /// The function with this id, if its calls are logged.
    #[inline]
    pub fn by_id(&self, id: u32) -> Option<&LoggedCall> {
        let place = *self.places.get(id as usize)?;
        self.calls.get((place as usize).checked_sub(1)?)
    }
}

impl Deref for LoggedCalls {
    type Target = [LoggedCall];

    fn deref(&self) -> &[LoggedCall] {
        &self.calls
    }
}

/// The driver functions by callback id; id 0 is none.
pub static DRIVER_FUNCTIONS: LazyLock<Vec<&str>> =
    LazyLock::new(|| names(include_str!("../../facts/driver-functions.txt")));
/// The runtime functions by callback id, with their versions, such as `cudaMalloc_v3020`; id 0 is
/// none.
pub static RUNTIME_FUNCTIONS: LazyLock<Vec<&str>> =
    LazyLock::new(|| names(include_str!("../../facts/runtime-functions.txt")));

/// The driver calls that are logged. A start makes the table before callbacks read it.
pub static DRIVER_CALLS: LazyLock<LoggedCalls> =
    LazyLock::new(|| LoggedCalls::new(&DRIVER_FUNCTIONS, &DRIVER_CLASSES));
/// The calls of the runtime API that are logged if requested.
pub static RUNTIME_CALLS: LazyLock<LoggedCalls> =
    LazyLock::new(|| LoggedCalls::new(&RUNTIME_FUNCTIONS, &RUNTIME_CLASSES));

/// `cuProfilerStart`.
pub const DRIVER_PROFILER_START: u32 = 308;
/// `cuProfilerStop`.
pub const DRIVER_PROFILER_STOP: u32 = 309;
/// `cudaProfilerStart`.
pub const RUNTIME_PROFILER_START: u32 = 171;
/// `cudaProfilerStop`.
pub const RUNTIME_PROFILER_STOP: u32 = 172;

/// The beginning of a name, or a whole name if it ends in `$`.
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

/// As [`DRIVER_CLASSES`], for names without their version.
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

/// The offset of a driver call's byte count in its parameter block: a copy of nothing writes no
/// record. All parameters before it have 8 bytes each. Names of the runtime API do not match.
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

fn first_match<T: Copy>(name: &str, rows: &[(&[Pattern], T)]) -> Option<T> {
    let matches = |pattern: &Pattern| match pattern.strip_suffix('$') {
        Some(whole) => name == whole,
        None => name.starts_with(pattern),
    };
    rows.iter().find(|(patterns, _)| patterns.iter().any(matches)).map(|(_, value)| *value)
}

/// The first word of each line, from index 1 on.
fn names(text: &str) -> Vec<&str> {
    let first_word = |line| str::split_once(line, ' ').map_or(line, |(name, _)| name);
    std::iter::once("").chain(text.lines().map(first_word)).collect()
}

/// The name without a final version such as `_v3020` or `_v12060`.
#[must_use]
pub fn unversioned(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((short, version))
            if version.len() >= 4 && version.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            short
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logged_calls_have_classes_and_sizes_by_name() {
        let driver = |id| DRIVER_CALLS.by_id(id).map(|call| (call.name, call.class, call.sizes));
        assert_eq!(driver(307), Some(("cuLaunchKernel", KernelLaunch, &[][..])));
        assert_eq!(driver(276), Some(("cuMemcpyHtoD_v2", Memcpy, &[16][..])));
        assert_eq!(driver(318), Some(("cuMemcpyPeer", Memcpy, &[32][..])));
        assert_eq!(driver(414), Some(("cuMemsetD2D8_v2_ptds", Memset, &[24, 32][..])));
        assert_eq!([driver(0), driver(1), driver(100_000)], [None; 3]);
        let runtime = |id| RUNTIME_CALLS.by_id(id).map(|call| (call.name, call.class, call.sizes));
        assert_eq!(runtime(211), Some(("cudaLaunchKernel", KernelLaunch, &[][..])));
        // Lists of these ids were compared with CUPTI's headers once.
        let counts = |calls: &LoggedCalls| {
            [
                KernelLaunch,
                GraphLaunch,
                HostFunction,
                Memcpy,
                Memset,
                Synchronize,
                WaitEvent,
                Query,
                Alloc,
                Free,
            ]
            .map(|class| calls.iter().filter(|call| call.class == class).count())
        };
        assert_eq!(counts(&DRIVER_CALLS), [10, 2, 4, 79, 30, 5, 2, 3, 17, 8]);
        assert_eq!(counts(&RUNTIME_CALLS), [11, 2, 4, 58, 12, 5, 2, 3, 14, 7]);
        let sizes = DRIVER_CALLS.iter().filter(|call| !call.sizes.is_empty());
        assert_eq!(sizes.count(), 44);
        assert!(DRIVER_CALLS.len() < 256 && RUNTIME_CALLS.len() < 256, "places are bytes");
    }

    #[test]
    fn ids_of_the_profiler_switch_match_the_header_facts() {
        let driver = [DRIVER_PROFILER_START, DRIVER_PROFILER_STOP];
        let names = driver.map(|id| unversioned(DRIVER_FUNCTIONS[id as usize]));
        assert_eq!(names, ["cuProfilerStart", "cuProfilerStop"]);
        let runtime = [RUNTIME_PROFILER_START, RUNTIME_PROFILER_STOP];
        let names = runtime.map(|id| unversioned(RUNTIME_FUNCTIONS[id as usize]));
        assert_eq!(names, ["cudaProfilerStart", "cudaProfilerStop"]);
    }
}
