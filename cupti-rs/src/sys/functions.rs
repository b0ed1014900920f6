//! CUDA's functions by callback id, and those whose calls the call log records.
//!
//! The names are in `cupti-rs/facts`: line N is the function with id N, with the first CUPTI that has it. The compiler
//! evaluates the tables in each build of a program, so the logged calls are listed by id: to match all names against patterns
//! would take it seconds.

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
pub const DRIVER_CALLS: [LoggedCall; count(&DRIVER_IDS)] =
    logged(&DRIVER_FUNCTIONS, &DRIVER_IDS, &SIZES);
/// The calls of the runtime API that are logged if requested, by id.
pub const RUNTIME_CALLS: [LoggedCall; count(&RUNTIME_IDS)] =
    logged(&RUNTIME_FUNCTIONS, &RUNTIME_IDS, &[]);

/// `cuProfilerStart`.
pub const DRIVER_PROFILER_START: u32 = id_of(&DRIVER_FUNCTIONS, "cuProfilerStart");
/// `cuProfilerStop`.
pub const DRIVER_PROFILER_STOP: u32 = id_of(&DRIVER_FUNCTIONS, "cuProfilerStop");
/// `cudaProfilerStart`.
pub const RUNTIME_PROFILER_START: u32 = id_of(&RUNTIME_FUNCTIONS, "cudaProfilerStart");
/// `cudaProfilerStop`.
pub const RUNTIME_PROFILER_STOP: u32 = id_of(&RUNTIME_FUNCTIONS, "cudaProfilerStop");

/// The logged driver functions by class; the tests below have the patterns of their names.
const DRIVER_IDS: [(CallClass, &[u32]); 10] = [
    (KernelLaunch, &[115, 116, 117, 307, 442, 477, 478, 480, 652, 653]),
    (GraphLaunch, &[514, 515]),
    (HostFunction, &[527, 528, 831, 832]),
    (
        Memcpy,
        &[
            43, 45, 47, 49, 51, 53, 54, 55, 56, 57, 58, 60, 62, 64, 66, 67, 68, 69, 248, 276, 277,
            278, 279, 280, 281, 282, 283, 284, 285, 286, 287, 288, 289, 290, 291, 292, 293, 305,
            306, 318, 319, 320, 321, 397, 398, 399, 400, 401, 402, 403, 404, 405, 406, 407, 408,
            409, 410, 418, 419, 420, 421, 422, 423, 424, 425, 426, 427, 776, 777, 778, 779, 796,
            797, 798, 799, 837, 838, 839, 840,
        ],
    ),
    (
        Memset,
        &[
            71, 73, 75, 77, 79, 81, 216, 218, 220, 222, 224, 226, 249, 250, 251, 252, 253, 254,
            411, 412, 413, 414, 415, 416, 428, 429, 430, 431, 432, 433,
        ],
    ),
    (Synchronize, &[17, 121, 126, 440, 800]),
    (WaitEvent, &[295, 436]),
    (Query, &[120, 125, 439]),
    (Alloc, &[29, 31, 37, 39, 243, 244, 271, 294, 301, 371, 379, 549, 551, 598, 599, 611, 612]),
    (Free, &[33, 38, 245, 302, 550, 552, 600, 601]),
];

/// The logged functions of the runtime API by class.
const RUNTIME_IDS: [(CallClass, &[u32]); 10] = [
    (KernelLaunch, &[13, 211, 213, 214, 269, 270, 272, 430, 431, 505, 506]),
    (GraphLaunch, &[311, 312]),
    (HostFunction, &[284, 285, 550, 551]),
    (
        Memcpy,
        &[
            31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 144, 145, 160,
            161, 162, 163, 215, 216, 217, 218, 219, 220, 221, 222, 223, 224, 225, 226, 227, 228,
            229, 230, 231, 232, 245, 246, 249, 250, 482, 483, 484, 485, 509, 510, 511, 512, 554,
            555, 556, 557,
        ],
    ),
    (Memset, &[49, 50, 51, 52, 142, 143, 233, 234, 235, 236, 243, 244]),
    (Synchronize, &[126, 131, 137, 165, 239]),
    (WaitEvent, &[147, 247]),
    (Query, &[132, 138, 240]),
    (Alloc, &[20, 21, 23, 25, 27, 140, 141, 152, 192, 206, 373, 374, 391, 392]),
    (Free, &[22, 24, 26, 153, 194, 375, 376]),
];

/// Where a driver call's byte count is in its parameter block: a copy of nothing writes no record. All parameters before it
/// have 8 bytes each.
const SIZES: [(&[usize], &[u32]); 3] = [
    (
        &[16],
        &[
            216, 218, 220, 249, 250, 251, 276, 277, 278, 279, 280, 281, 305, 306, 397, 398, 399,
            408, 411, 412, 413, 418, 421, 422, 423, 428, 429, 430,
        ],
    ),
    (&[24, 32], &[222, 224, 226, 252, 253, 254, 414, 415, 416, 431, 432, 433]),
    (&[32], &[318, 319, 409, 426]),
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

const fn count(classes: &[(CallClass, &[u32])]) -> usize {
    let (mut count, mut class) = (0, 0);
    while class < classes.len() {
        count += classes[class].1.len();
        class += 1;
    }
    count
}

/// The logged calls by id.
const fn logged<const N: usize>(
    functions: &[&'static str],
    classes: &[(CallClass, &[u32])],
    sizes: &[(&'static [usize], &[u32])],
) -> [LoggedCall; N] {
    let mut by_id = [LoggedCall::NONE; 1024];
    let mut row = 0;
    while row < classes.len() {
        let (class, ids) = classes[row];
        let mut at = 0;
        while at < ids.len() {
            let name = unversioned(functions[ids[at] as usize]);
            by_id[ids[at] as usize] = LoggedCall { id: ids[at], name, class, sizes: &[] };
            at += 1;
        }
        row += 1;
    }
    row = 0;
    while row < sizes.len() {
        let (sizes, ids) = sizes[row];
        let mut at = 0;
        while at < ids.len() {
            by_id[ids[at] as usize].sizes = sizes;
            at += 1;
        }
        row += 1;
    }
    let mut calls = [LoggedCall::NONE; N];
    let (mut count, mut id) = (0, 0);
    while count < N {
        if by_id[id].id != 0 {
            calls[count] = by_id[id];
            count += 1;
        }
        id += 1;
    }
    calls
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

const fn id_of(functions: &[&'static str], name: &str) -> u32 {
    let mut id = 0;
    while !is(unversioned(functions[id]), name) {
        id += 1;
    }
    id as u32
}

const fn is(name: &str, other: &str) -> bool {
    let (name, other) = (name.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < name.len() && at < other.len() && name[at] == other[at] {
        at += 1;
    }
    at == name.len() && at == other.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of a name, or a whole name where it ends in `$`.
    type Pattern = &'static str;

    /// The class of the calls whose names match a pattern; the first match counts.
    const DRIVER_CLASSES: [(&[Pattern], CallClass); 10] = [
        (
            &["cuLaunch$", "cuLaunchKernel", "cuLaunchGrid", "cuLaunchCooperativeKernel"],
            KernelLaunch,
        ),
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
    const SIZE_PATTERNS: [(&[Pattern], &[usize]); 4] = [
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
            &[
                "cuMemcpyPeer$",
                "cuMemcpyPeer_ptds$",
                "cuMemcpyPeerAsync$",
                "cuMemcpyPeerAsync_ptsz$",
            ],
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

    #[test]
    fn logged_calls_are_those_whose_names_match() {
        let tables = [
            (&DRIVER_FUNCTIONS[..], &DRIVER_CALLS[..], &DRIVER_CLASSES),
            (&RUNTIME_FUNCTIONS, &RUNTIME_CALLS, &RUNTIME_CLASSES),
        ];
        for (functions, calls, classes) in tables {
            let expected = functions.iter().enumerate().filter_map(|(id, name)| {
                let name = unversioned(name);
                let class = first_match(name, classes)?;
                let sizes = first_match(name, &SIZE_PATTERNS).unwrap_or_default();
                Some((id as u32, name, class, sizes))
            });
            let found = calls.iter().map(|call| (call.id, call.name, call.class, call.sizes));
            assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        }
    }
}
