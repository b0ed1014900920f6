//! What a program asks of the stand-in, and the record that CUPTI writes for it.

use std::ffi::CStr;

use crate::library::Version;
use crate::sys::generated::{kernel, memcpy, memset, synchronization};

/// One operation: a kernel, a copy, a fill or a wait.
#[derive(Debug, Clone)]
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
    #[must_use]
    pub fn kernel(name: &'static CStr) -> Self {
        Self::new(What::Kernel { name, grid: 128, block: 256 })
    }

    /// An asynchronous copy from pageable host memory to the device.
    #[must_use]
    pub fn host_to_device(bytes: u64) -> Self {
        Self::new(What::Memcpy { kind: 1, bytes })
    }

    /// An asynchronous copy from the device to pageable host memory.
    #[must_use]
    pub fn device_to_host(bytes: u64) -> Self {
        Self::new(What::Memcpy { kind: 2, bytes })
    }

    /// An asynchronous fill.
    #[must_use]
    pub fn memset(bytes: u64) -> Self {
        Self::new(What::Memset { bytes })
    }

    /// A wait of the host for a stream.
    #[must_use]
    pub fn synchronize() -> Self {
        Self::new(What::Synchronize)
    }

    /// The same on another stream.
    #[must_use]
    pub fn on_stream(mut self, stream: u32) -> Self {
        self.stream = stream;
        self
    }

    /// The same, taking this long.
    #[must_use]
    pub fn taking_ns(mut self, duration: u64) -> Self {
        self.duration_ns = duration;
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
            What::Memcpy { .. } => "cuMemcpyDtoHAsync_v2",
            What::Memset { .. } => "cuMemsetD8Async",
            What::Synchronize => "cuStreamSynchronize",
        }
    }

    pub(super) fn kind(&self) -> u32 {
        match self.what {
            What::Kernel { .. } => kernel::KIND,
            What::Memcpy { .. } => memcpy::KIND,
            What::Memset { .. } => memset::KIND,
            What::Synchronize => synchronization::KIND,
        }
    }

    /// The record, byte for byte as a library of this version lays it out.
    pub(super) fn record(
        &self,
        version: Version,
        correlation: u32,
        start: u64,
        end: u64,
    ) -> Vec<u8> {
        let mut record = Bytes(vec![0; stride(self.kind(), version).unwrap_or(8)]);
        record.u32(0, self.kind());
        match self.what {
            What::Kernel { name, grid, block } => {
                use kernel::*;
                record
                    .u64(START, start)
                    .u64(END, end)
                    .u32(CONTEXT_ID, 1)
                    .u32(STREAM_ID, self.stream);
                record.u32(GRID_X, grid).u32(GRID_Y, 1).u32(GRID_Z, 1);
                record.u32(BLOCK_X, block).u32(BLOCK_Y, 1).u32(BLOCK_Z, 1);
                record.u32(CORRELATION_ID, correlation).u64(NAME, name.as_ptr() as u64);
                record.u16(REGISTERS_PER_THREAD, 32);
            }
            What::Memcpy { kind, bytes } => {
                use memcpy::*;
                let (source, destination) = if kind == 1 { (1, 3) } else { (3, 1) };
                record
                    .u8(COPY_KIND, kind)
                    .u8(SRC_KIND, source)
                    .u8(DST_KIND, destination)
                    .u8(FLAGS, 1);
                record.u64(BYTES, bytes).u64(START, start).u64(END, end);
                record
                    .u32(CONTEXT_ID, 1)
                    .u32(STREAM_ID, self.stream)
                    .u32(CORRELATION_ID, correlation);
            }
            What::Memset { bytes } => {
                use memset::*;
                record
                    .u64(BYTES, bytes)
                    .u64(START, start)
                    .u64(END, end)
                    .u16(FLAGS, 1)
                    .u16(MEMORY_KIND, 3);
                record
                    .u32(CONTEXT_ID, 1)
                    .u32(STREAM_ID, self.stream)
                    .u32(CORRELATION_ID, correlation);
            }
            What::Synchronize => {
                use synchronization::*;
                record
                    .u32(TYPE, 3)
                    .u64(START, start)
                    .u64(END, end)
                    .u32(CORRELATION_ID, correlation);
                record.u32(CONTEXT_ID, 1).u32(STREAM_ID, self.stream).u32(CUDA_EVENT_ID, u32::MAX);
            }
        }
        record.0
    }
}

/// A record in the making; a field beyond its end is one that this version does not have.
struct Bytes(Vec<u8>);

impl Bytes {
    fn put<const N: usize>(&mut self, at: usize, value: [u8; N]) -> &mut Self {
        if let Some(place) = self.0.get_mut(at..at + N) {
            place.copy_from_slice(&value);
        }
        self
    }
    fn u8(&mut self, at: usize, value: u8) -> &mut Self {
        self.put(at, [value])
    }
    fn u16(&mut self, at: usize, value: u16) -> &mut Self {
        self.put(at, value.to_ne_bytes())
    }
    fn u32(&mut self, at: usize, value: u32) -> &mut Self {
        self.put(at, value.to_ne_bytes())
    }
    fn u64(&mut self, at: usize, value: u64) -> &mut Self {
        self.put(at, value.to_ne_bytes())
    }
}

/// The bytes from one record of this kind to the next, in a library of this version.
pub(super) fn stride(kind: u32, version: Version) -> Option<usize> {
    use crate::sys::generated::*;
    let strides: &[((u32, u32), usize)] = match kind {
        kernel::KIND => &kernel::STRIDES,
        memcpy::KIND => &memcpy::STRIDES,
        memcpy2::KIND => &memcpy2::STRIDES,
        memset::KIND => &memset::STRIDES,
        synchronization::KIND => &synchronization::STRIDES,
        overhead::KIND => &overhead::STRIDES,
        _ => return None,
    };
    let release = version.cuda_release();
    strides.iter().rev().find(|(since, _)| *since <= release).map(|(_, stride)| *stride)
}
