//! What a program asks of the fake, and the record that CUPTI writes for it.

use std::ffi::CStr;

use super::written::Written;
use crate::accessors::setters;
use crate::kind::ActivityKind;
use crate::sys::generated::{kernel, memcpy, memset, synchronization};
use crate::version::Version;

/// One operation: a kernel, a copy, a fill or a wait.
#[derive(Debug, Clone)]
#[must_use]
pub struct Work {
    what: What,
    stream: u32,
    duration_ns: u64,
}

#[derive(Debug, Clone)]
enum What {
    Kernel { name: &'static CStr, grid: u32, block: u32 },
    Memcpy { kind: u8, bytes: u64 },
    Memset { bytes: u64 },
    Synchronize,
}

impl Work {
    fn new(what: What) -> Self {
        Self { what, stream: 7, duration_ns: 1_000 }
    }

    /// A kernel of 128 blocks of 256 threads that takes 1 us on stream 7.
    pub fn kernel(name: &'static CStr) -> Self {
        Self::new(What::Kernel { name, grid: 128, block: 256 })
    }

    /// An asynchronous copy from pageable host memory to the device.
    pub fn host_to_device(bytes: u64) -> Self {
        Self::new(What::Memcpy { kind: 1, bytes })
    }

    /// An asynchronous copy from the device to pageable host memory.
    pub fn device_to_host(bytes: u64) -> Self {
        Self::new(What::Memcpy { kind: 2, bytes })
    }

    /// An asynchronous copy within the device.
    pub fn device_to_device(bytes: u64) -> Self {
        Self::new(What::Memcpy { kind: 8, bytes })
    }

    /// An asynchronous fill.
    pub fn memset(bytes: u64) -> Self {
        Self::new(What::Memset { bytes })
    }

    /// A wait of the host for a stream.
    pub fn synchronize() -> Self {
        Self::new(What::Synchronize)
    }

    setters! {
        /// The same on another stream.
        on_stream(stream: u32) stream = stream;
        /// The same, taking this long.
        taking_ns(duration: u64) duration_ns = duration;
    }

    /// A kernel of so many blocks and threads in a block instead of 128 and 256; other work is as it was.
    pub fn with_shape(mut self, blocks: u32, threads: u32) -> Self {
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
        !matches!(self.what, What::Synchronize)
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
            What::Memcpy { kind: 1, .. } => "cuMemcpyHtoDAsync_v2",
            What::Memcpy { kind: 8, .. } => "cuMemcpyDtoDAsync_v2",
            What::Memcpy { .. } => "cuMemcpyDtoHAsync_v2",
            What::Memset { .. } => "cuMemsetD8Async",
            What::Synchronize => "cuStreamSynchronize",
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
            What::Synchronize => ActivityKind::SYNCHRONIZATION,
        };
        kind.0
    }

    /// The record, byte for byte as a library of this version lays it out, with its times and the graph and node it was of;
    /// `None` if the version has no such record.
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
                let record = record.set(CONTEXT_ID, 1).set(STREAM_ID, self.stream);
                record.set(CORRELATION_ID, correlation)$(.set($field, $value))*
            }};
        }
        let bytes = match self.what {
            What::Kernel { name, grid, block } => written!(
                kernel: GRID_X = grid, GRID_Y = 1, GRID_Z = 1, BLOCK_X = block, BLOCK_Y = 1, BLOCK_Z = 1,
                REGISTERS_PER_THREAD = 32, GRAPH_ID = graph, GRAPH_NODE_ID = node
            )
            .text(kernel::NAME, name)
            .into_bytes(),
            What::Memcpy { kind: copy, bytes } => {
                let (source, destination) = match copy {
                    1 => (1, 3),
                    8 => (3, 3),
                    _ => (3, 1),
                };
                written!(
                    memcpy: COPY_KIND = copy, SRC_KIND = source, DST_KIND = destination, FLAGS = 1, BYTES = bytes,
                    COPY_COUNT = 1, GRAPH_ID = graph, GRAPH_NODE_ID = node
                )
                .into_bytes()
            }
            What::Memset { bytes } => written!(
                memset: BYTES = bytes, FLAGS = 1, MEMORY_KIND = 3, GRAPH_ID = graph, GRAPH_NODE_ID = node
            )
            .into_bytes(),
            What::Synchronize => {
                written!(synchronization: TYPE = 3, CUDA_EVENT_ID = u32::MAX).into_bytes()
            }
        };
        Some(bytes)
    }
}
