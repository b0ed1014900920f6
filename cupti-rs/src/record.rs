//! Activity records: the bytes as CUPTI wrote them, and what they say.
//!
//! Records are read by offset from byte slices, so that nothing here is unsafe and a record that is shorter or newer
//! than expected is data, not undefined behaviour. In every family a newer struct only adds to an older one; what a
//! library does not write reads as absent.

use std::collections::BTreeMap;
use std::fmt;

use rustc_hash::FxHashMap;

use crate::buffer::Log;
use crate::kind::ActivityKind;
use crate::sys::generated::{kernel, memcpy, memcpy2, memset, overhead, synchronization};

/// The address of a name in the memory of the process that was recorded; see [`RecordBytes::name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameKey(pub u64);

/// Activity records as CUPTI wrote them, with the strides to step over them and the names they point to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordBytes {
    buffers: Vec<Vec<u8>>,
    strides: BTreeMap<u32, u32>,
    names: FxHashMap<u64, String>,
}

impl RecordBytes {
    pub(crate) fn from_log(log: Log) -> Self {
        Self { buffers: log.buffers, strides: log.strides, names: log.names }
    }

    /// Records as a recording holds them: runs of whole records, the stride of each kind, names by address.
    #[must_use]
    pub fn from_parts(
        buffers: Vec<Vec<u8>>,
        strides: impl IntoIterator<Item = (ActivityKind, u32)>,
        names: impl IntoIterator<Item = (NameKey, String)>,
    ) -> Self {
        Self {
            buffers,
            strides: strides.into_iter().map(|(kind, stride)| (kind.0, stride)).collect(),
            names: names.into_iter().map(|(key, name)| (key.0, name)).collect(),
        }
    }

    /// The runs of records, in the order CUPTI completed them; records of several threads and devices are in no order.
    #[must_use]
    pub fn buffers(&self) -> &[Vec<u8>] {
        &self.buffers
    }

    /// Bytes from one record to the next, by kind.
    pub fn strides(&self) -> impl Iterator<Item = (ActivityKind, u32)> {
        self.strides.iter().map(|(&kind, &stride)| (ActivityKind(kind), stride))
    }

    /// All names, by address.
    pub fn names(&self) -> impl Iterator<Item = (NameKey, &str)> {
        self.names.iter().map(|(&key, name)| (NameKey(key), name.as_str()))
    }

    /// The name at an address: a kernel's, mangled as the compiler made it.
    #[must_use]
    pub fn name(&self, key: NameKey) -> Option<&str> {
        self.names.get(&key.0).map(String::as_str)
    }

    /// Every record.
    #[must_use]
    pub fn iter(&self) -> Records<'_> {
        Records { rest: &[], buffers: self.buffers.iter(), strides: &self.strides }
    }
}

impl<'a> IntoIterator for &'a RecordBytes {
    type Item = Record<'a>;
    type IntoIter = Records<'a>;

    fn into_iter(self) -> Records<'a> {
        self.iter()
    }
}

/// Iterates over [`RecordBytes`].
#[derive(Debug, Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
    buffers: std::slice::Iter<'a, Vec<u8>>,
    strides: &'a BTreeMap<u32, u32>,
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        while self.rest.is_empty() {
            self.rest = self.buffers.next()?;
        }
        let all = std::mem::take(&mut self.rest);
        let Some(kind) = all.first_chunk().map(|b| u32::from_ne_bytes(*b)) else {
            return Some(Record::Unreadable { bytes: all });
        };
        match self.strides.get(&kind) {
            Some(&stride) if stride >= 4 && stride as usize <= all.len() => {
                let (record, rest) = all.split_at(stride as usize);
                self.rest = rest;
                Some(Record::decode(ActivityKind(kind), record))
            }
            // Without a stride nothing after this can be told apart.
            _ => Some(Record::Unreadable { bytes: all }),
        }
    }
}

/// One activity record.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Record<'a> {
    /// A kernel.
    Kernel(Kernel),
    /// A copy.
    Memcpy(Memcpy),
    /// A fill.
    Memset(Memset),
    /// A wait.
    Synchronization(Synchronization),
    /// What CUPTI or the driver cost.
    Overhead(Overhead),
    /// A record of a kind this version of the crate has no type for, or one too short for its kind.
    Unknown {
        /// Its kind.
        kind: ActivityKind,
        /// All of it.
        bytes: &'a [u8],
    },
    /// The rest of a buffer that could not be divided into records.
    Unreadable {
        /// All of it.
        bytes: &'a [u8],
    },
}

/// Where an operation ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub struct Place {
    /// CUDA ordinal (`deviceId`).
    pub device: u32,
    /// CUPTI's id of the context (`contextId`).
    pub context: u32,
    /// CUPTI's id of the stream (`streamId`).
    pub stream: u32,
}

/// When an operation ran, in CUPTI's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Span {
    /// Nanoseconds (`start`); 0 if CUPTI has none.
    pub start_ns: u64,
    /// Nanoseconds (`end`); 0 if CUPTI has none.
    pub end_ns: u64,
}

impl Span {
    /// False where CUPTI could not tell when the operation ran.
    #[must_use]
    pub fn is_known(self) -> bool {
        self.start_ns != 0 && self.end_ns != 0
    }
}

/// The node of a CUDA graph that an operation was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct GraphNode {
    /// The executable graph (`graphId`).
    pub graph: u32,
    /// Its node (`graphNodeId`).
    pub node: u64,
}

impl GraphNode {
    fn new(graph: u32, node: u64) -> Option<Self> {
        (graph != 0).then_some(Self { graph, node })
    }
}

/// A kernel (`CONCURRENT_KERNEL`).
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Kernel {
    /// Its name.
    pub name: NameKey,
    /// When it ran.
    pub span: Span,
    /// Where it ran.
    pub place: Place,
    /// The id of the call that launched it (`correlationId`); all nodes of a graph launch share one.
    pub correlation_id: u32,
    /// Blocks in x, y, z (`gridX`...).
    pub grid: [u32; 3],
    /// Threads in a block in x, y, z (`blockX`...).
    pub block: [u32; 3],
    /// Blocks in a cluster in x, y, z (`clusterX`...); zeros without clusters.
    pub cluster: [u32; 3],
    /// Registers a thread (`registersPerThread`).
    pub registers_per_thread: u16,
    /// Bytes of shared memory a block, fixed at compile time (`staticSharedMemory`).
    pub static_shared_bytes: u32,
    /// Bytes of shared memory a block, asked for at launch (`dynamicSharedMemory`).
    pub dynamic_shared_bytes: u32,
    /// Bytes of local memory a thread, spills among them (`localMemoryPerThread`).
    pub local_bytes_per_thread: u32,
    /// The node it was, if a graph launched it.
    pub graph_node: Option<GraphNode>,
}

/// Where memory lies (`CUpti_ActivityMemoryKind`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemoryKind(pub u8);

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            1 => "pageable",
            2 => "pinned",
            3 => "device",
            4 => "array",
            5 => "managed",
            6 => "device static",
            7 => "managed static",
            _ => "unknown",
        })
    }
}

/// From where to where a copy goes (`CUpti_ActivityMemcpyKind`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CopyKind {
    /// Host to device, arrays among them.
    HostToDevice,
    /// Device to host, arrays among them.
    DeviceToHost,
    /// Within a device, arrays among them.
    DeviceToDevice,
    /// Within the host.
    HostToHost,
    /// From one device to another.
    PeerToPeer,
    /// A value this version of the crate does not know.
    Unknown(u8),
}

impl CopyKind {
    /// From CUPTI's value.
    #[must_use]
    pub fn from_raw(value: u8) -> Self {
        match value {
            1 | 3 => Self::HostToDevice,
            2 | 4 => Self::DeviceToHost,
            5..=8 => Self::DeviceToDevice,
            9 => Self::HostToHost,
            10 => Self::PeerToPeer,
            other => Self::Unknown(other),
        }
    }
}

impl fmt::Display for CopyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HostToDevice => "host to device",
            Self::DeviceToHost => "device to host",
            Self::DeviceToDevice => "device to device",
            Self::HostToHost => "host to host",
            Self::PeerToPeer => "peer to peer",
            Self::Unknown(_) => "unknown",
        })
    }
}

/// A copy (`MEMCPY`, or `MEMCPY2` between devices).
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Memcpy {
    /// From where to where.
    pub kind: CopyKind,
    /// The kind of memory it reads.
    pub source: MemoryKind,
    /// The kind of memory it writes.
    pub destination: MemoryKind,
    /// Bytes moved.
    pub bytes: u64,
    /// True if the call was asynchronous (`flags`).
    pub asynchronous: bool,
    /// When it ran.
    pub span: Span,
    /// Where it ran.
    pub place: Place,
    /// The devices it went between, from and to, where they differ (`srcDeviceId`, `dstDeviceId`).
    pub peers: Option<(u32, u32)>,
    /// The id of the call that asked for it.
    pub correlation_id: u32,
    /// The node it was, if a graph launched it.
    pub graph_node: Option<GraphNode>,
}

/// A fill (`MEMSET`).
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Memset {
    /// The value written.
    pub value: u32,
    /// Bytes written.
    pub bytes: u64,
    /// The kind of memory.
    pub memory: MemoryKind,
    /// True if the call was asynchronous (`flags`).
    pub asynchronous: bool,
    /// When it ran.
    pub span: Span,
    /// Where it ran.
    pub place: Place,
    /// The id of the call that asked for it.
    pub correlation_id: u32,
    /// The node it was, if a graph launched it.
    pub graph_node: Option<GraphNode>,
}

/// What was waited for (`CUpti_ActivitySynchronizationType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SynchronizationKind {
    /// The host waited for an event.
    Event,
    /// A stream waits for an event; the host does not.
    StreamWaitEvent,
    /// The host waited for a stream. Asking a stream whether it is done is recorded so, too.
    Stream,
    /// The host waited for a context.
    Context,
    /// A value this version of the crate does not know.
    Unknown(u32),
}

/// A wait (`SYNCHRONIZATION`), in host time. It says nothing of the thread: the call with its correlation id does.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Synchronization {
    /// What was waited for.
    pub kind: SynchronizationKind,
    /// From the call's start to its end.
    pub span: Span,
    /// CUPTI's id of the context.
    pub context: u32,
    /// CUPTI's id of the stream, where there is one.
    pub stream: Option<u32>,
    /// CUPTI's id of the event, where there is one.
    pub event: Option<u32>,
    /// The id of the call.
    pub correlation_id: u32,
}

/// What CUPTI or the driver cost (`OVERHEAD`).
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Overhead {
    /// What for.
    pub kind: OverheadKind,
    /// When, in host time.
    pub span: Span,
    /// The id of the call within which it happened; 0 if none. From CUPTI 12.3.
    pub correlation_id: u32,
}

/// What an overhead was for (`CUpti_ActivityOverheadKind`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OverheadKind(pub u32);

impl fmt::Display for OverheadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            1 => "driver compiler",
            0x1_0000 => "CUPTI buffer flush",
            0x2_0000 => "CUPTI instrumentation",
            0x3_0000 => "CUPTI resource",
            0x4_0000 => "runtime-triggered module loading",
            0x5_0000 => "lazy function loading",
            0x6_0000 => "command buffer full",
            0x7_0000 => "activity buffer request",
            0x8_0000 => "UVM activity initialisation",
            _ => "unknown",
        })
    }
}

/// `CUPTI_SYNCHRONIZATION_INVALID_VALUE`: no stream, no event.
const NO_ID: u32 = u32::MAX;

/// The fields of a record, by offset. `N` bytes are known to be there, so that reads within them need no check.
struct Fields<'a, const N: usize> {
    known: &'a [u8; N],
}

impl<const N: usize> Fields<'_, N> {
    #[inline]
    fn u8(&self, at: usize) -> u8 {
        self.known[at]
    }
    #[inline]
    fn u16(&self, at: usize) -> u16 {
        u16::from_ne_bytes([self.known[at], self.known[at + 1]])
    }
    #[inline]
    fn u32(&self, at: usize) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.known[at..at + 4]);
        u32::from_ne_bytes(bytes)
    }
    #[inline]
    fn u64(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.known[at..at + 8]);
        u64::from_ne_bytes(bytes)
    }
    #[inline]
    fn u32x3(&self, x: usize, y: usize, z: usize) -> [u32; 3] {
        [self.u32(x), self.u32(y), self.u32(z)]
    }
    #[inline]
    fn span(&self, start: usize, end: usize) -> Span {
        Span { start_ns: self.u64(start), end_ns: self.u64(end) }
    }
    #[inline]
    fn place(&self, device: usize, context: usize, stream: usize) -> Place {
        Place { device: self.u32(device), context: self.u32(context), stream: self.u32(stream) }
    }
    #[inline]
    fn id(&self, at: usize) -> Option<u32> {
        Some(self.u32(at)).filter(|&id| id != NO_ID)
    }
}

impl<'a> Record<'a> {
    fn decode(kind: ActivityKind, bytes: &'a [u8]) -> Self {
        let decoded = match kind {
            ActivityKind::CONCURRENT_KERNEL => Kernel::decode(bytes).map(Self::Kernel),
            ActivityKind::MEMCPY => Memcpy::decode(bytes).map(Self::Memcpy),
            ActivityKind::MEMCPY2 => Memcpy::decode_peer(bytes).map(Self::Memcpy),
            ActivityKind::MEMSET => Memset::decode(bytes).map(Self::Memset),
            ActivityKind::SYNCHRONIZATION => {
                Synchronization::decode(bytes).map(Self::Synchronization)
            }
            ActivityKind::OVERHEAD => Overhead::decode(bytes).map(Self::Overhead),
            _ => None,
        };
        decoded.unwrap_or(Self::Unknown { kind, bytes })
    }
}

/// The oldest stride of a family: what every library from 12.0 on writes.
const fn oldest(strides: &[((u32, u32), usize)]) -> usize {
    strides[0].1
}

impl Kernel {
    fn decode(bytes: &[u8]) -> Option<Self> {
        use kernel::*;
        let f: Fields<'_, { oldest(&STRIDES) }> = Fields { known: bytes.first_chunk()? };
        Some(Self {
            name: NameKey(f.u64(NAME)),
            span: f.span(START, END),
            place: f.place(DEVICE_ID, CONTEXT_ID, STREAM_ID),
            correlation_id: f.u32(CORRELATION_ID),
            grid: f.u32x3(GRID_X, GRID_Y, GRID_Z),
            block: f.u32x3(BLOCK_X, BLOCK_Y, BLOCK_Z),
            cluster: f.u32x3(CLUSTER_X, CLUSTER_Y, CLUSTER_Z),
            registers_per_thread: f.u16(REGISTERS_PER_THREAD),
            static_shared_bytes: f.u32(STATIC_SHARED_MEMORY),
            dynamic_shared_bytes: f.u32(DYNAMIC_SHARED_MEMORY),
            local_bytes_per_thread: f.u32(LOCAL_MEMORY_PER_THREAD),
            graph_node: GraphNode::new(f.u32(GRAPH_ID), f.u64(GRAPH_NODE_ID)),
        })
    }
}

/// `CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC` and `..._MEMSET_ASYNC`.
const FLAG_ASYNC: u16 = 1;

impl Memcpy {
    fn decode(bytes: &[u8]) -> Option<Self> {
        use memcpy::*;
        let f: Fields<'_, { oldest(&STRIDES) }> = Fields { known: bytes.first_chunk()? };
        Some(Self {
            kind: CopyKind::from_raw(f.u8(COPY_KIND)),
            source: MemoryKind(f.u8(SRC_KIND)),
            destination: MemoryKind(f.u8(DST_KIND)),
            bytes: f.u64(BYTES),
            asynchronous: u16::from(f.u8(FLAGS)) & FLAG_ASYNC != 0,
            span: f.span(START, END),
            place: f.place(DEVICE_ID, CONTEXT_ID, STREAM_ID),
            peers: None,
            correlation_id: f.u32(CORRELATION_ID),
            graph_node: GraphNode::new(f.u32(GRAPH_ID), f.u64(GRAPH_NODE_ID)),
        })
    }

    fn decode_peer(bytes: &[u8]) -> Option<Self> {
        use memcpy2::*;
        let f: Fields<'_, { oldest(&STRIDES) }> = Fields { known: bytes.first_chunk()? };
        Some(Self {
            kind: CopyKind::from_raw(f.u8(COPY_KIND)),
            source: MemoryKind(f.u8(SRC_KIND)),
            destination: MemoryKind(f.u8(DST_KIND)),
            bytes: f.u64(BYTES),
            asynchronous: u16::from(f.u8(FLAGS)) & FLAG_ASYNC != 0,
            span: f.span(START, END),
            place: f.place(DEVICE_ID, CONTEXT_ID, STREAM_ID),
            peers: Some((f.u32(SRC_DEVICE_ID), f.u32(DST_DEVICE_ID))),
            correlation_id: f.u32(CORRELATION_ID),
            graph_node: GraphNode::new(f.u32(GRAPH_ID), f.u64(GRAPH_NODE_ID)),
        })
    }
}

impl Memset {
    fn decode(bytes: &[u8]) -> Option<Self> {
        use memset::*;
        let f: Fields<'_, { oldest(&STRIDES) }> = Fields { known: bytes.first_chunk()? };
        Some(Self {
            value: f.u32(VALUE),
            bytes: f.u64(BYTES),
            memory: MemoryKind(f.u16(MEMORY_KIND) as u8),
            asynchronous: f.u16(FLAGS) & FLAG_ASYNC != 0,
            span: f.span(START, END),
            place: f.place(DEVICE_ID, CONTEXT_ID, STREAM_ID),
            correlation_id: f.u32(CORRELATION_ID),
            graph_node: GraphNode::new(f.u32(GRAPH_ID), f.u64(GRAPH_NODE_ID)),
        })
    }
}

impl Synchronization {
    fn decode(bytes: &[u8]) -> Option<Self> {
        use synchronization::*;
        let f: Fields<'_, { oldest(&STRIDES) }> = Fields { known: bytes.first_chunk()? };
        Some(Self {
            kind: match f.u32(TYPE) {
                1 => SynchronizationKind::Event,
                2 => SynchronizationKind::StreamWaitEvent,
                3 => SynchronizationKind::Stream,
                4 => SynchronizationKind::Context,
                other => SynchronizationKind::Unknown(other),
            },
            span: f.span(START, END),
            context: f.u32(CONTEXT_ID),
            stream: f.id(STREAM_ID),
            event: f.id(CUDA_EVENT_ID),
            correlation_id: f.u32(CORRELATION_ID),
        })
    }
}

impl Overhead {
    fn decode(bytes: &[u8]) -> Option<Self> {
        use overhead::*;
        let f: Fields<'_, { oldest(&STRIDES) }> = Fields { known: bytes.first_chunk()? };
        let correlation = bytes.get(CORRELATION_ID..).and_then(|rest| rest.first_chunk());
        Some(Self {
            kind: OverheadKind(f.u32(OVERHEAD_KIND)),
            span: f.span(START, END),
            correlation_id: correlation.map_or(0, |b| u32::from_ne_bytes(*b)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn garbage_is_given_back_and_never_panics() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..2_000 {
            let len = random() as usize % 700;
            let mut buffer: Vec<u8> = (0..len).map(|_| random() as u8).collect();
            if len >= 4 {
                let kind = [10u32, 1, 2, 22, 38, 17, 99][random() as usize % 7];
                buffer[..4].copy_from_slice(&kind.to_ne_bytes());
            }
            let strides =
                [10, 1, 2, 22, 38, 17].map(|k| (ActivityKind(k), (random() % 300) as u32));
            let records = RecordBytes::from_parts(vec![buffer.clone(), vec![]], strides, []);
            let mut bytes = 0;
            for record in &records {
                match record {
                    Record::Unreadable { bytes: rest } => bytes += rest.len(),
                    Record::Unknown { bytes: rest, .. } => bytes += rest.len(),
                    Record::Kernel(_) => bytes += records.strides[&10] as usize,
                    Record::Memcpy(_) => bytes += len - bytes, // of either kind; the rest is not followed up
                    Record::Memset(_) => bytes += records.strides[&2] as usize,
                    Record::Synchronization(_) => bytes += records.strides[&38] as usize,
                    Record::Overhead(_) => bytes += records.strides[&17] as usize,
                }
                if bytes >= len {
                    break;
                }
            }
            assert_eq!(bytes, len, "every byte is accounted for");
        }
    }

    #[test]
    fn a_record_shorter_than_its_kind_is_unknown() {
        let mut bytes = vec![0u8; 100];
        bytes[..4].copy_from_slice(&kernel::KIND.to_ne_bytes());
        let records =
            RecordBytes::from_parts(vec![bytes], [(ActivityKind::CONCURRENT_KERNEL, 100)], []);
        let all: Vec<_> = records.iter().collect();
        assert!(
            matches!(all[..], [Record::Unknown { kind: ActivityKind::CONCURRENT_KERNEL, bytes }] if bytes.len() == 100)
        );
    }
}
