//! Operations that a program submits to the fake, and the record that CUPTI writes for each.

use std::ffi::CStr;

use cupti::sys::generated::{cuda_event, kernel, memcpy, memset, synchronization};
use cupti::{ActivityKind, MemoryKind, Version};

use crate::written::Written;

/// One operation: a kernel, a copy, a memset or a wait. It is in context 1 on device 0 by default.
#[derive(Debug, Clone)]
#[must_use]
pub struct Work {
    what: What,
    device: u32,
    context: u32,
    stream: u32,
    duration_ns: u64,
    /// The flags of copies and memsets: asynchronous.
    flags: u8,
}

#[derive(Debug, Clone)]
enum What {
    Kernel { name: &'static CStr, grid: [u32; 3], block: [u32; 3] },
    Memcpy { from: MemoryKind, to: MemoryKind, bytes: u64 },
    Memset { bytes: u64 },
    Synchronize { of: u32, event: Option<u32> },
    RecordEvent(u32),
}

impl Work {
    fn new(what: What) -> Self {
        Self { what, device: 0, context: 1, stream: 7, duration_ns: 1_000, flags: 1 }
    }

    /// A kernel of 128 blocks of 256 threads that takes 1 us on stream 7.
    pub fn kernel(name: &'static CStr) -> Self {
        Self::new(What::Kernel { name, grid: [128, 1, 1], block: [256, 1, 1] })
    }

    /// An asynchronous copy from pageable host memory to the device.
    pub fn host_to_device(bytes: u64) -> Self {
        Self::copy(MemoryKind::PAGEABLE, MemoryKind::DEVICE, bytes)
    }

    /// An asynchronous copy from the device to pageable host memory.
    pub fn device_to_host(bytes: u64) -> Self {
        Self::copy(MemoryKind::DEVICE, MemoryKind::PAGEABLE, bytes)
    }

    /// An asynchronous copy within the device.
    pub fn device_to_device(bytes: u64) -> Self {
        Self::copy(MemoryKind::DEVICE, MemoryKind::DEVICE, bytes)
    }

    /// An asynchronous copy from one kind of memory to another.
    pub fn copy(from: MemoryKind, to: MemoryKind, bytes: u64) -> Self {
        Self::new(What::Memcpy { from, to, bytes })
    }

    /// An asynchronous memset.
    pub fn memset(bytes: u64) -> Self {
        Self::new(What::Memset { bytes })
    }

    /// A wait of the host for a stream.
    pub fn synchronize() -> Self {
        Self::synchronization(3)
    }

    /// A wait of the host for an event.
    pub fn synchronize_event() -> Self {
        Self::synchronization(1)
    }

    /// A wait of the host for a context, which is on no stream.
    pub fn synchronize_context() -> Self {
        Self::synchronization(4).on_stream(u32::MAX)
    }

    /// A wait of a stream for an event.
    pub fn wait_event() -> Self {
        Self::synchronization(2)
    }

    fn synchronization(of: u32) -> Self {
        Self::new(What::Synchronize { of, event: None })
    }

    /// Records an event in a stream. The number identifies both the event and this recording of it.
    pub fn record_event(number: u32) -> Self {
        Self::new(What::RecordEvent(number))
    }

    /// Makes a wait for an event wait for the one that was recorded with this number; other work is
    /// unchanged.
    pub fn for_event(mut self, number: u32) -> Self {
        if let What::Synchronize { event, .. } = &mut self.what {
            *event = Some(number);
        }
        self
    }

    setters! {
        /// Moves it to another device.
        on_device(device: u32) device = device;
        /// Moves it to another context.
        in_context(context: u32) context = context;
        /// Moves it to another stream.
        on_stream(stream: u32) stream = stream;
        /// Sets its duration in nanoseconds.
        taking_ns(duration: u64) duration_ns = duration;
    }

    /// Makes a copy or memset blocking: the host waits for it.
    pub fn blocking(mut self) -> Self {
        self.flags = 0;
        self
    }

    /// Sets a kernel's number of blocks and of threads in a block, instead of 128 and 256; other
    /// work is unchanged.
    pub fn with_shape(self, blocks: u32, threads: u32) -> Self {
        self.with_grid([blocks, 1, 1], [threads, 1, 1])
    }

    /// As [`with_shape`](Self::with_shape), in three dimensions.
    pub fn with_grid(mut self, blocks: [u32; 3], threads: [u32; 3]) -> Self {
        if let What::Kernel { grid, block, .. } = &mut self.what {
            (*grid, *block) = (blocks, threads);
        }
        self
    }

    pub(super) fn stream(&self) -> u32 {
        self.stream
    }

    pub(super) fn duration_ns(&self) -> u64 {
        self.duration_ns
    }

    pub(super) fn is_on_gpu(&self) -> bool {
        !matches!(self.what, What::Synchronize { .. } | What::RecordEvent(_))
    }

    pub(super) fn context(&self) -> u32 {
        self.context
    }

    /// The stream that is the first parameter of its call, for calls that wait.
    pub(super) fn waits_for(&self) -> Option<u32> {
        matches!(self.what, What::Synchronize { of: 2 | 3, .. }).then_some(self.stream)
    }

    pub(super) fn bytes(&self) -> u64 {
        match self.what {
            What::Memcpy { bytes, .. } | What::Memset { bytes } => bytes,
            _ => 1,
        }
    }

    pub(super) fn function(&self) -> &'static str {
        match self.what {
            What::Kernel { .. } => "cuLaunchKernel",
            What::Memcpy { from, to, .. } => match copy_kind(from, to) {
                1 => "cuMemcpyHtoDAsync_v2",
                2 => "cuMemcpyDtoHAsync_v2",
                8 => "cuMemcpyDtoDAsync_v2",
                _ => "cuMemcpyAsync",
            },
            What::Memset { .. } => "cuMemsetD8Async",
            What::Synchronize { of: 1, .. } => "cuEventSynchronize",
            What::Synchronize { of: 2, .. } => "cuStreamWaitEvent",
            What::Synchronize { of: 4, .. } => "cuCtxSynchronize",
            What::Synchronize { .. } => "cuStreamSynchronize",
            What::RecordEvent(_) => "cuEventRecord",
        }
    }

    /// The kernel's name.
    pub(super) fn name(&self) -> Option<&'static CStr> {
        match self.what {
            What::Kernel { name, .. } => Some(name),
            _ => None,
        }
    }

    pub(super) fn kind(&self) -> u32 {
        let kind = match self.what {
            What::Kernel { .. } => ActivityKind::CONCURRENT_KERNEL,
            What::Memcpy { .. } => ActivityKind::MEMCPY,
            What::Memset { .. } => ActivityKind::MEMSET,
            What::Synchronize { .. } => ActivityKind::SYNCHRONIZATION,
            What::RecordEvent(_) => ActivityKind::CUDA_EVENT,
        };
        kind.0
    }

    /// The record, byte for byte in the layout of a library of this version, with its times and its
    /// graph and node; `None` if the version has no such record.
    pub(super) fn record(
        &self,
        version: Version,
        correlation: u32,
        (start, end): (u64, u64),
        node: Option<(u32, u64)>,
    ) -> Option<Vec<u8>> {
        let (graph, node) = node.unwrap_or_default();
        let kind = ActivityKind(self.kind());
        // The fields that all records have, and some of their own.
        macro_rules! written {
            ($family:ident: $($field:ident = $value:expr),*) => {{
                use $family::*;
                let record = Written::new(kind, version)?.set(START, start).set(END, end);
                let record = record.set(CONTEXT_ID, self.context).set(STREAM_ID, self.stream);
                record.set(CORRELATION_ID, correlation)$(.set($field, $value))*
            }};
        }
        let bytes = match self.what {
            What::Kernel { name, grid: [gx, gy, gz], block: [bx, by, bz] } => written!(
                kernel: DEVICE_ID = self.device, GRID_X = gx, GRID_Y = gy, GRID_Z = gz, BLOCK_X = bx, BLOCK_Y = by,
                BLOCK_Z = bz, REGISTERS_PER_THREAD = 32, GRAPH_ID = graph, GRAPH_NODE_ID = node
            )
            .text(kernel::NAME, name)
            .into_bytes(),
            What::Memcpy { from, to, bytes } => written!(
                memcpy: DEVICE_ID = self.device, COPY_KIND = copy_kind(from, to), SRC_KIND = from.0, DST_KIND = to.0,
                FLAGS = self.flags, BYTES = bytes, COPY_COUNT = 1, GRAPH_ID = graph, GRAPH_NODE_ID = node
            )
            .into_bytes(),
            What::Memset { bytes } => written!(
                memset: DEVICE_ID = self.device, BYTES = bytes, FLAGS = self.flags.into(), MEMORY_KIND = 3, GRAPH_ID = graph,
                GRAPH_NODE_ID = node
            )
            .into_bytes(),
            What::Synchronize { of, event } => written!(
                synchronization: TYPE = of, CUDA_EVENT_ID = event.unwrap_or(u32::MAX),
                CUDA_EVENT_SYNC_ID = u64::from(event.unwrap_or(u32::MAX))
            )
            .into_bytes(),
            What::RecordEvent(number) => {
                use cuda_event::*;
                let record = Written::new(kind, version)?.set(CONTEXT_ID, self.context);
                let record = record.set(STREAM_ID, self.stream).set(CORRELATION_ID, correlation);
                let record = record.set(EVENT_ID, number).set(DEVICE_ID, self.device);
                record.set(CUDA_EVENT_SYNC_ID, u64::from(number)).into_bytes()
            }
        };
        Some(bytes)
    }
}

/// `CUpti_ActivityMemcpyKind` of a copy.
fn copy_kind(from: MemoryKind, to: MemoryKind) -> u8 {
    let is_host = |kind| matches!(kind, MemoryKind::PAGEABLE | MemoryKind::PINNED);
    match (is_host(from), is_host(to)) {
        (true, false) => 1,
        (false, true) => 2,
        (false, false) => 8,
        (true, true) => 9,
    }
}
