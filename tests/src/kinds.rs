//! Checks of the records of a program that uses as many activity kinds as the hardware supports.
//!
//! On a GPU the records are checked as they arrive; a recording of them on every machine.

#![allow(clippy::panic, clippy::expect_used)] // checks of a test

use std::collections::BTreeMap;

use cupti::record::MemoryOperationKind;
use cupti::{ActivityKind, CopyKind, Kernel, NameKey, Record, RecordBytes};
use serde::{Deserialize, Serialize};

/// The kinds requested beyond those of every session, also some without a type. Kinds that a library
/// lacks are left out.
///
/// Every CUPTI tried refuses MODULE (INVALID_KIND) and DEVICE_ATTRIBUTE (NOT_COMPATIBLE).
pub const REQUESTED: [ActivityKind; 16] = [
    ActivityKind::DRIVER,
    ActivityKind::RUNTIME,
    ActivityKind::INTERNAL_LAUNCH_API,
    ActivityKind::DEVICE,
    ActivityKind::CONTEXT,
    ActivityKind::STREAM,
    ActivityKind::FUNCTION,
    ActivityKind::JIT,
    ActivityKind::CUDA_EVENT,
    ActivityKind::MEMORY,
    ActivityKind::MEMORY2,
    ActivityKind::MEMORY_POOL,
    ActivityKind::ENVIRONMENT,
    ActivityKind::PCIE,
    ActivityKind::NVLINK,
    ActivityKind::NAME,
];

/// Values that CUDA and the operating system report of the program; the records must agree.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Facts {
    /// CUPTI's API version.
    pub version: u32,
    /// The process id.
    pub process: u32,
    /// The kernel's id of the thread that made the calls.
    pub thread: u32,
    /// `cuDeviceGetName`.
    pub device_name: String,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Major and minor.
    pub compute_capability: (u32, u32),
    /// `cuDeviceTotalMem`.
    pub memory_bytes: u64,
    /// The highest clock in kHz, bytes a second of memory, and bytes of L2, if queried.
    #[serde(default)]
    pub speeds: Option<(u32, u64, u64)>,
    /// The kernel's grid, block and dynamic shared memory.
    pub launch: ([u32; 3], [u32; 3], u32),
    /// Address and size of `cuMemAlloc`.
    pub allocated: (u64, u64),
    /// Address and size of `cuMemAllocAsync`.
    pub allocated_async: (u64, u64),
    /// Bytes of the copies: host to device from pageable memory, and within the device.
    pub copied: (u64, u64),
    /// The value and bytes of the fill.
    pub filled: (u32, u64),
    /// The number of nodes of the graph, each a kernel, and the number of its launches.
    pub graph: (u64, u64),
    /// Whether a call of the runtime API could be made.
    pub runtime: bool,
}

/// The number of records of each kind.
#[must_use]
pub fn counts(records: &RecordBytes) -> BTreeMap<ActivityKind, u64> {
    let mut counts = BTreeMap::new();
    for buffer in records.buffers() {
        let mut rest = buffer;
        let strides: BTreeMap<u32, u32> = records.strides().map(|(kind, n)| (kind.0, n)).collect();
        while let Some(kind) = rest.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)) {
            *counts.entry(ActivityKind(kind)).or_insert(0) += 1;
            rest = strides.get(&kind).and_then(|&n| rest.get(n as usize..)).unwrap_or_default();
        }
    }
    counts
}

fn only<T>(what: &str, mut found: impl Iterator<Item = T>) -> T {
    match (found.next(), found.next()) {
        (Some(one), None) => one,
        (first, _) => {
            panic!("{} records of {what}", if first.is_some() { "several" } else { "no" })
        }
    }
}

macro_rules! of {
    ($records:expr, $variant:ident) => {
        $records.iter().filter_map(|record| match record {
            Record::$variant(record) => Some(record),
            _ => None,
        })
    };
}

/// Checks the fields of the records of every required kind.
///
/// # Panics
/// If a record does not agree with the facts.
pub fn check(records: &RecordBytes, facts: &Facts) {
    let name = |key: NameKey| records.name(key).unwrap_or_default();
    for record in records {
        match record {
            Record::Unknown { kind, bytes } if !kind.is_without_type() => {
                panic!("{kind} of {} bytes is unknown", bytes.len());
            }
            Record::Unreadable { bytes } => panic!("{} bytes are unreadable", bytes.len()),
            _ => {}
        }
    }

    // The kernel outside the graph, and its call.
    let (grid, block, shared) = facts.launch;
    let kernel = only("that kernel", of!(records, Kernel).filter(|k| k.grid == grid));
    assert_eq!((kernel.block, kernel.dynamic_shared_bytes), (block, shared));
    assert_eq!((name(kernel.name), kernel.place.device), ("empty", 0));
    assert!(kernel.span.is_known() && kernel.span.start_ns <= kernel.span.end_ns);
    assert!(kernel.graph_node.is_none() && kernel.registers_per_thread > 0);
    let call = only(
        "its call",
        of!(records, ApiCall).filter(|call| {
            call.correlation_id == kernel.correlation_id
                && call.function.name().is_some_and(|name| name.starts_with("cuLaunchKernel"))
        }),
    );
    assert_eq!((call.process, call.thread, call.result), (facts.process, facts.thread, 0));
    assert!(call.span.start_ns <= call.span.end_ns);
    assert!(call.span.start_ns <= kernel.span.start_ns, "{call:?} {kernel:?}");

    check_transfers(records, facts, &kernel);
    check_allocations(records, facts);
    check_environment(records, facts, &kernel);
    check_graph(records, facts);
    if facts.runtime {
        let mut names = of!(records, ApiCall).filter_map(|call| call.function.name());
        assert!(names.any(|name| name.starts_with("cudaDeviceSynchronize")));
    }
}

fn check_transfers(records: &RecordBytes, facts: &Facts, kernel: &Kernel) {
    let (from_host, within) = facts.copied;
    let copy = only("a copy from the host", of!(records, Memcpy).filter(|c| c.bytes == from_host));
    assert_eq!(copy.kind, CopyKind::HostToDevice);
    assert_eq!(
        (copy.source.to_string(), copy.destination.to_string()),
        ("pageable".into(), "device".into())
    );
    let copy = only("a copy within the device", of!(records, Memcpy).filter(|c| c.bytes == within));
    assert_eq!((copy.kind, copy.asynchronous), (CopyKind::DeviceToDevice, true));
    let fill = only("the fill", of!(records, Memset).filter(|fill| fill.bytes == facts.filled.1));
    assert_eq!((fill.value, fill.place.context), (facts.filled.0, kernel.place.context));
}

fn check_allocations(records: &RecordBytes, facts: &Facts) {
    for ((address, bytes), asynchronous) in
        [(facts.allocated, false), (facts.allocated_async, true)]
    {
        for operation in [MemoryOperationKind::ALLOCATION, MemoryOperationKind::RELEASE] {
            let found = of!(records, MemoryOperation)
                .find(|found| found.address == address && found.operation == operation);
            let found = found.unwrap_or_else(|| panic!("no {operation} at {address:#x}"));
            assert_eq!(
                (found.process, found.device, found.asynchronous),
                (facts.process, 0, asynchronous)
            );
            assert_eq!(found.pool.is_some(), asynchronous, "{found:?}");
            assert!(operation == MemoryOperationKind::RELEASE || found.bytes == bytes, "{found:?}");
        }
    }
}

/// The device and events.
fn check_environment(records: &RecordBytes, facts: &Facts, kernel: &Kernel) {
    let name = |key: NameKey| records.name(key).unwrap_or_default();
    // CUPTI writes the device's record only if the kind was enabled before the first context.
    for device in of!(records, Device) {
        assert_eq!(device.name.map(name), Some(facts.device_name.as_str()));
        assert_eq!(
            (device.multiprocessors, device.compute_capability, device.memory_bytes),
            (facts.multiprocessors, facts.compute_capability, facts.memory_bytes)
        );
        if let Some((clock_khz, bandwidth, l2_bytes)) = facts.speeds {
            assert_eq!((device.core_clock_khz, u64::from(device.l2_bytes)), (clock_khz, l2_bytes));
            // The record is in whole kB/s.
            let recorded = device.memory_bandwidth_kb_per_s * 1000;
            assert!(recorded.abs_diff(bandwidth) <= 1000, "{recorded} is not {bandwidth}");
        }
        assert_eq!(device.limits().threads_per_warp, 32);
    }
    let event = of!(records, CudaEvent).find(|event| event.stream == kernel.place.stream);
    assert_eq!(event.expect("an event on its stream").context, kernel.place.context);
}

/// Checks that every launch of the graph has a record of each node, with its correlation id.
fn check_graph(records: &RecordBytes, facts: &Facts) {
    let (nodes, launches) = facts.graph;
    let of_graph: Vec<_> =
        of!(records, Kernel).filter_map(|k| Some((k.graph_node?, k.correlation_id))).collect();
    assert_eq!(of_graph.len() as u64, nodes * launches);
    let distinct = |mut ids: Vec<u64>| {
        ids.sort_unstable();
        ids.dedup();
        ids.len() as u64
    };
    assert_eq!(distinct(of_graph.iter().map(|(node, _)| node.node).collect()), nodes);
    assert_eq!(distinct(of_graph.iter().map(|(node, _)| node.graph.into()).collect()), 1);
    assert_eq!(distinct(of_graph.iter().map(|(_, id)| u64::from(*id)).collect()), launches);
}
