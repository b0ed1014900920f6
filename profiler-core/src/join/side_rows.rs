//! Rows of records that are not GPU operations, such as waits, allocations and overheads. Each has a
//! constructor from its record and a [`SideRow`] of the parts that later steps change.

use cupti::record::{
    CudaEvent, Device, MemoryOperation, MemoryOperationKind, UnifiedMemory, UnifiedMemoryKind,
};

use crate::join::ids::*;
use crate::join::intern::{NameId, Names};
use crate::join::rows::*;
use crate::record::recording::Clocks;

/// The parts of a row that joining calls, merging processes and aligning hosts change.
#[derive(Default)]
pub(crate) struct SideRow<'a> {
    pub(crate) process: Option<&'a mut u32>,
    /// A correlation id and the call with that id.
    pub(crate) call: Option<(u32, &'a mut Maybe<CallId>)>,
    /// True if the account of calls counts the row.
    pub(crate) is_wait: bool,
    pub(crate) device: Option<&'a mut u32>,
    pub(crate) times: [Option<&'a mut u64>; 2],
    pub(crate) names: [Option<&'a mut NameId>; 2],
}

impl Interval {
    /// Converts the start to the host's clock; the duration remains CUPTI's measurement.
    fn of_span(span: cupti::Span, clock: &Clocks) -> Self {
        let start_ns = clock.monotonic_ns(span.start_ns);
        let ns = span.end_ns.saturating_sub(span.start_ns);
        Self { start_ns, end_ns: start_ns.saturating_add(ns) }
    }

    fn times(&mut self) -> [Option<&mut u64>; 2] {
        [Some(&mut self.start_ns), Some(&mut self.end_ns)]
    }
}

/// A synchronisation of the host with the GPU, or of streams with an event.
#[derive(Debug)]
pub struct Synchronization {
    /// Its record.
    pub record: cupti::Synchronization,
    /// The waiting call, set by the join.
    pub call: Maybe<CallId>,
    /// The kernel's id of the process; 0 as for [`Thread::process`].
    pub process: u32,
}

impl Synchronization {
    pub(crate) fn new(record: &cupti::Synchronization, clock: &Clocks) -> Self {
        let mut record = *record;
        let known = record.span.is_known().then(|| Interval::of_span(record.span, clock));
        let Interval { start_ns, end_ns } = known.unwrap_or_default();
        (record.span.start_ns, record.span.end_ns) = (start_ns, end_ns);
        Self { record, call: Maybe::NONE, process: 0 }
    }

    pub(crate) fn side_row(&mut self) -> SideRow<'_> {
        let span = &mut self.record.span;
        SideRow {
            process: Some(&mut self.process),
            call: Some((self.record.correlation_id, &mut self.call)),
            is_wait: true,
            times: [Some(&mut span.start_ns), Some(&mut span.end_ns)],
            ..SideRow::default()
        }
    }
}

/// An event was recorded into a stream: work submitted to the stream before, by correlation id,
/// precedes the event.
#[derive(Debug, Clone, Copy)]
pub struct EventRecord {
    /// The kernel's id of the process; 0 as for [`Thread::process`].
    pub process: u32,
    /// CUPTI's id of the context.
    pub context: u32,
    /// CUPTI's id of the stream.
    pub stream: u32,
    /// CUPTI's id of the event, which a program may record several times.
    pub event: u32,
    /// The correlation id of the call that recorded it.
    pub correlation_id: u32,
    /// CUPTI's id of this recording; from 12.8.
    pub sync_id: Option<u64>,
}

impl EventRecord {
    pub(crate) fn new(event: &CudaEvent) -> Self {
        Self {
            process: 0,
            context: event.context,
            stream: event.stream,
            event: event.event,
            correlation_id: event.correlation_id,
            sync_id: event.event_sync_id,
        }
    }

    pub(crate) fn side_row(&mut self) -> SideRow<'_> {
        SideRow { process: Some(&mut self.process), ..SideRow::default() }
    }
}

/// An allocation or a free.
#[derive(Debug, Clone, Copy)]
pub struct MemoryEvent {
    /// Its time.
    pub at_ns: u64,
    /// False for a free.
    pub is_allocation: bool,
    /// The kind of memory.
    pub kind: cupti::MemoryKind,
    /// The size.
    pub bytes: u64,
    /// The address.
    pub address: u64,
    /// The CUDA ordinal of the device.
    pub device: u32,
    /// The correlation id of its call.
    pub correlation_id: u32,
    /// The call, set by the join.
    pub call: Maybe<CallId>,
    /// The kernel's id of the process; 0 as for [`Thread::process`].
    pub process: u32,
    /// True for a duplicate record of the same call, which CUPTI 12.8 and 13.0 write for
    /// `cuMemAlloc` and `cuMemFree`. Set by `correlate`.
    pub is_repeat: bool,
}

impl MemoryEvent {
    pub(crate) fn new(record: &MemoryOperation, clock: &Clocks) -> Self {
        Self {
            at_ns: clock.monotonic_ns(record.at_ns),
            is_allocation: record.operation == MemoryOperationKind::ALLOCATION,
            kind: record.kind,
            bytes: record.bytes,
            address: record.address,
            device: record.device,
            correlation_id: record.correlation_id,
            call: Maybe::NONE,
            process: 0,
            is_repeat: false,
        }
    }

    pub(crate) fn side_row(&mut self) -> SideRow<'_> {
        SideRow {
            process: Some(&mut self.process),
            call: Some((self.correlation_id, &mut self.call)),
            device: Some(&mut self.device),
            times: [Some(&mut self.at_ns), None],
            ..SideRow::default()
        }
    }
}

/// A migration or page fault of managed memory.
#[derive(Debug, Clone, Copy)]
pub struct ManagedMemory {
    /// The kind of event.
    pub what: Managed,
    /// The address.
    pub address: u64,
    /// Its time.
    pub time: Interval,
    /// The CUDA ordinal of the device, if known.
    pub device: Option<u32>,
    /// The kernel's id of the process; 0 as for [`Thread::process`].
    pub process: u32,
}

/// The kind of event of managed memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Managed {
    /// A migration to a device, which is also an operation.
    ToDevice {
        /// Its size.
        bytes: u64,
    },
    /// A migration to the host, which is also an operation.
    ToHost {
        /// Its size.
        bytes: u64,
    },
    /// A fault of the host at this instruction: a function of the program, or an address.
    HostFault {
        /// The function or address.
        instruction: Option<NameId>,
        /// The source line; 0 in the source if unknown.
        line: Option<(NameId, u32)>,
    },
    /// A number of faults of the device.
    DeviceFaults {
        /// The number of faults.
        count: u64,
    },
}

impl ManagedMemory {
    /// Returns `None` for kinds of counters that no query uses.
    pub(crate) fn new(record: &UnifiedMemory, clock: &Clocks, names: &mut Names) -> Option<Self> {
        let value = record.value;
        let (what, device) = match record.kind {
            UnifiedMemoryKind::HOST_TO_DEVICE => {
                (Managed::ToDevice { bytes: value }, Some(record.destination))
            }
            UnifiedMemoryKind::DEVICE_TO_HOST => {
                (Managed::ToHost { bytes: value }, Some(record.source))
            }
            UnifiedMemoryKind::CPU_PAGE_FAULT => {
                let instruction = (value != 0).then(|| format!("{value:#x}"));
                let instruction = instruction.map(|text| names.intern(&text));
                (Managed::HostFault { instruction, line: None }, None)
            }
            UnifiedMemoryKind::GPU_PAGE_FAULT => {
                (Managed::DeviceFaults { count: value }, Some(record.source))
            }
            _ => return None,
        };
        // Faults of the host have no end.
        let time = Interval::of_span(record.span, clock);
        Some(Self { what, address: record.address, time, device, process: 0 })
    }

    pub(crate) fn side_row(&mut self) -> SideRow<'_> {
        let names = match &mut self.what {
            Managed::HostFault { instruction, line } => {
                [instruction.as_mut(), line.as_mut().map(|(file, _)| file)]
            }
            _ => [None, None],
        };
        let (process, device) = (Some(&mut self.process), self.device.as_mut());
        SideRow { process, device, times: self.time.times(), names, ..SideRow::default() }
    }
}

/// The limits of a device's multiprocessor; 0 if unknown.
#[derive(Debug, Clone, Copy, Default)]
pub struct Multiprocessor {
    /// The CUDA ordinal.
    pub device: u32,
    /// Major and minor version: (9, 0) is sm_90.
    pub compute_capability: (u32, u32),
    /// The number of multiprocessors of the device.
    pub multiprocessors: u32,
    /// The maximum number of warps.
    pub warps: u32,
    /// The maximum number of blocks.
    pub blocks: u32,
    /// The number of registers.
    pub registers: u32,
    /// The maximum number of registers of one block.
    pub registers_per_block: u32,
    /// Bytes of shared memory.
    pub shared_bytes: u32,
    /// Bytes of shared memory of one block, for kernels that opted in.
    pub shared_bytes_per_block: u32,
}

impl Multiprocessor {
    pub(crate) fn new(device: &Device<'_>) -> Self {
        let limits = device.limits();
        Self {
            device: device.id,
            compute_capability: device.compute_capability,
            multiprocessors: device.multiprocessors,
            warps: limits.warps_per_multiprocessor,
            blocks: limits.blocks_per_multiprocessor,
            registers: limits.registers_per_multiprocessor,
            registers_per_block: limits.registers_per_block,
            shared_bytes: limits.shared_bytes_per_multiprocessor,
            // The record has the limit of kernels that did not opt in.
            shared_bytes_per_block: 0,
        }
    }

    pub(crate) fn side_row(&mut self) -> SideRow<'_> {
        SideRow { device: Some(&mut self.device), ..SideRow::default() }
    }
}

/// Time spent by the profiler.
#[derive(Debug, Clone, Copy)]
pub struct Overhead {
    /// Its time.
    pub time: Interval,
    /// The kernel's id of the process.
    pub process: u32,
    /// True if no work could be submitted to the device.
    pub holds_gpu: bool,
}

impl Overhead {
    pub(crate) fn side_row(&mut self) -> SideRow<'_> {
        let (process, times) = (Some(&mut self.process), self.time.times());
        SideRow { process, times, ..SideRow::default() }
    }
}
