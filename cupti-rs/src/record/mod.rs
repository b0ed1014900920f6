//! Activity records: CUPTI's bytes and their typed form.
//!
//! Fields are read by offset from byte slices, without unsafe code, so that shorter or newer
//! records are safe to read. In every family a newer struct extends an older one. A field is `None`
//! if the library does not write it. The record's length decides that; for fields in former
//! padding, the library's version.
//!
//! Records of a kind that has [no type](ActivityKind::is_without_type) here are
//! [`Record::Unknown`], with their bytes.
//!
//! Times are nanoseconds of CUPTI's clock, which [`Clock`](crate::Clock) maps to the host's. 0 is
//! unknown.

mod api_call;
mod device;
mod fields;
mod graph;
mod kernel;
mod memory;
mod overhead;
mod synchronization;
mod transfer;

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

pub use api_call::*;
pub use device::*;
use fields::{Raw, words};
pub use graph::*;
pub use kernel::*;
pub use memory::*;
pub use overhead::*;
pub use synchronization::*;
pub use transfer::*;

use crate::kind::ActivityKind;
use crate::sys::os;
use crate::version::Version;

/// The key of a record's text; see [`RecordBytes::name`]. Usually the text's address in the
/// recorded process; another number if that memory was freed or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct NameKey(pub u64);

impl NameKey {
    /// A null pointer means no text.
    #[inline]
    fn new(key: u64) -> Option<Self> {
        (key != 0).then_some(Self(key))
    }
}

/// The key of bytes outside the record; see [`RecordBytes::data`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DataKey(pub u64);

impl DataKey {
    fn new(key: u64) -> Option<Self> {
        (key != 0).then_some(Self(key))
    }
}

/// Activity records as CUPTI wrote them, with their strides and the names they point to.
///
/// A clone shares them. Keys replace pointers to memory that the client has to free; all other
/// bytes are CUPTI's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordBytes {
    pub(crate) version: Version,
    pub(crate) buffers: Vec<Arc<Vec<u8>>>,
    pub(crate) strides: BTreeMap<u32, u32>,
    pub(crate) names: Arc<FxHashMap<u64, Arc<str>>>,
    pub(crate) data: Arc<FxHashMap<u64, Vec<u8>>>,
}

impl RecordBytes {
    /// Builds records from a recording: the version of the library that wrote them, runs of whole
    /// records, the stride of each kind, names by key.
    #[must_use]
    pub fn from_parts(
        version: Version,
        buffers: Vec<Vec<u8>>,
        strides: impl IntoIterator<Item = (ActivityKind, u32)>,
        names: impl IntoIterator<Item = (NameKey, String)>,
    ) -> Self {
        // `collect` would compile a sort for each type of iterator.
        let mut by_kind = BTreeMap::new();
        by_kind.extend(strides.into_iter().map(|(kind, stride)| (kind.0, stride)));
        Self {
            version,
            buffers: buffers.into_iter().map(Arc::new).collect(),
            strides: by_kind,
            names: Arc::new(names.into_iter().map(|(key, name)| (key.0, name.into())).collect()),
            data: Arc::default(),
        }
    }

    /// Adds the bytes outside the records, by key.
    #[must_use]
    pub fn with_data(mut self, data: impl IntoIterator<Item = (DataKey, Vec<u8>)>) -> Self {
        self.data = Arc::new(data.into_iter().map(|(key, bytes)| (key.0, bytes)).collect());
        self
    }

    /// Adds the records of a later drain of the same collection. Copies no record.
    pub fn append(&mut self, later: &Self) {
        self.buffers.extend(later.buffers.iter().cloned());
        self.strides.extend(&later.strides);
        if self.names.is_empty() {
            self.names = later.names.clone();
        } else if later.names.keys().any(|key| !self.names.contains_key(key)) {
            let names = later.names.iter().map(|(key, name)| (*key, name.clone()));
            Arc::make_mut(&mut self.names).extend(names);
        }
        if !later.data.is_empty() {
            let data = later.data.iter().map(|(key, data)| (*key, data.clone()));
            Arc::make_mut(&mut self.data).extend(data);
        }
    }

    /// The version of the library that wrote them.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The runs of records, in the order in which CUPTI completed them. Records of several threads
    /// and devices are unordered.
    pub fn buffers(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        self.buffers.iter().map(|buffer| buffer.as_slice())
    }

    /// Bytes from one record to the next, by kind.
    pub fn strides(&self) -> impl Iterator<Item = (ActivityKind, u32)> {
        self.strides.iter().map(|(&kind, &stride)| (ActivityKind(kind), stride))
    }

    /// All names, by key.
    pub fn names(&self) -> impl Iterator<Item = (NameKey, &str)> {
        self.names.iter().map(|(&key, name)| (NameKey(key), &**name))
    }

    /// The text of a key; kernel names are mangled. Costs a hash table look-up.
    pub fn name(&self, key: NameKey) -> Option<&str> {
        self.names.get(&key.0).map(|name| &**name)
    }

    /// All bytes outside the records, by key.
    pub fn all_data(&self) -> impl Iterator<Item = (DataKey, &[u8])> {
        self.data.iter().map(|(&key, bytes)| (DataKey(key), bytes.as_slice()))
    }

    /// The bytes of a key, as in the memory of the recorded process.
    pub fn data(&self, key: DataKey) -> Option<&[u8]> {
        self.data.get(&key.0).map(Vec::as_slice)
    }

    /// Iterates over the records. Decodes each on request, in about 15 ns or the time to read it
    /// from memory.
    pub fn iter(&self) -> Records<'_> {
        let mut low_strides = [0; LOW_KINDS];
        for (place, kind) in low_strides.iter_mut().zip(0..) {
            *place = self.strides.get(&kind).copied().unwrap_or(0);
        }
        Records {
            rest: &[],
            buffers: self.buffers.iter(),
            low_strides,
            strides: &self.strides,
            release: self.version.cuda_release(),
        }
    }
}

impl<'a> IntoIterator for &'a RecordBytes {
    type Item = Record<'a>;
    type IntoIter = Records<'a>;

    fn into_iter(self) -> Records<'a> {
        self.iter()
    }
}

/// Kinds below this have their stride in a table.
const LOW_KINDS: usize = 64;

/// The prefetch distance in bytes: processors do not prefetch across pages.
const AHEAD: usize = 1024;

/// Iterates over [`RecordBytes`].
#[derive(Debug, Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
    buffers: std::slice::Iter<'a, Arc<Vec<u8>>>,
    low_strides: [u32; LOW_KINDS],
    strides: &'a BTreeMap<u32, u32>,
    release: (u32, u32),
}

impl<'a> Records<'a> {
    #[inline]
    fn stride(&self, kind: u32) -> usize {
        let stride = match self.low_strides.get(kind as usize) {
            Some(stride) => *stride,
            None => self.strides.get(&kind).copied().unwrap_or(0),
        };
        stride as usize
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Record<'a>> {
        while self.rest.is_empty() {
            self.rest = self.buffers.next()?;
        }
        let all = std::mem::take(&mut self.rest);
        let Some(kind) = all.first_chunk().map(|b| u32::from_ne_bytes(*b)) else {
            return Some(Record::Unreadable { bytes: all });
        };
        match all.split_at_checked(self.stride(kind)) {
            Some((bytes, rest)) if bytes.len() >= 4 => {
                self.rest = rest;
                // Prefetches one record's length for each record read.
                os::prefetch(rest.get(AHEAD..AHEAD + bytes.len()).unwrap_or_default());
                Some(Record::decode(ActivityKind(kind), Raw { bytes, release: self.release }))
            }
            // Without a stride the rest cannot be divided into records.
            _ => Some(Record::Unreadable { bytes: all }),
        }
    }
}

/// Defines [`Record`] and the constants of [`ActivityKind`]. A variant has the documentation of its
/// kinds.
macro_rules! kinds {
    (
        frequent { $($($(#[$frequent_doc:meta])* $frequent_kind:ident = $frequent_number:literal),+
            => $frequent:ident($frequent_type:ty);)* }
        rare { $($($(#[$doc:meta])* $kind:ident = $number:literal),+ => $variant:ident($type:ty);)* }
        without_type { $($(#[$bare_doc:meta])* $bare_kind:ident = $bare_number:literal;)* }
    ) => {
        impl ActivityKind {
            $($($(#[$frequent_doc])* pub const $frequent_kind: Self = Self($frequent_number);)+)*
            $($($(#[$doc])* pub const $kind: Self = Self($number);)+)*
            $($(#[$bare_doc])* pub const $bare_kind: Self = Self($bare_number);)*

            /// Every kind with a name.
            pub const ALL: &'static [Self] = &[
                $($(Self::$frequent_kind,)+)*
                $($(Self::$kind,)+)*
                $(Self::$bare_kind,)*
            ];

            /// CUPTI's name without its prefix, if the kind has one here.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $($(Self::$frequent_kind => Some(stringify!($frequent_kind)),)+)*
                    $($(Self::$kind => Some(stringify!($kind)),)+)*
                    $(Self::$bare_kind => Some(stringify!($bare_kind)),)*
                    _ => None,
                }
            }

            /// True if records of this kind have no type here although the kind has a name: they
            /// are [`Record::Unknown`], with their bytes.
            pub fn is_without_type(self) -> bool {
                matches!(self, $(Self::$bare_kind)|*)
            }
        }

        /// One activity record.
        #[derive(Debug, Clone, Copy, PartialEq)]
        #[non_exhaustive]
        pub enum Record<'a> {
            $($($(#[$frequent_doc])*)+ $frequent($frequent_type),)*
            $($($(#[$doc])*)+ $variant($type),)*
            /// A record without a type in this version of the crate, or too short for its kind.
            Unknown {
                /// Its kind.
                kind: ActivityKind,
                /// All of the record.
                bytes: &'a [u8],
            },
            /// The rest of a buffer that could not be divided into records.
            Unreadable {
                /// All of the rest.
                bytes: &'a [u8],
            },
        }

        impl<'a> Record<'a> {
            #[inline(always)]
            fn decode(kind: ActivityKind, raw: Raw<'a>) -> Self {
                match kind {
                    $($(ActivityKind::$frequent_kind)|+ => {
                        if let Some(record) = <$frequent_type>::decode(raw) {
                            return Self::$frequent(record);
                        }
                    })*
                    _ => {}
                }
                Self::decode_rare(kind, raw)
            }

            /// A separate function, so that the loop over frequent kinds stays small.
            #[inline(never)]
            fn decode_rare(kind: ActivityKind, raw: Raw<'a>) -> Self {
                let decoded = match kind {
                    $($(ActivityKind::$kind)|+ => <$type>::decode(raw).map(Self::$variant),)*
                    _ => None,
                };
                decoded.unwrap_or(Self::Unknown { kind, bytes: raw.bytes })
            }
        }
    };
}

kinds! {
    frequent {
        /// Kernels, including concurrent ones.
        CONCURRENT_KERNEL = 10,
        /// Kernels, serialised by CUPTI.
        KERNEL = 3
            => Kernel(KernelRecord<'a>);
        /// Copies within a device, or between it and the host.
        MEMCPY = 1,
        /// Copies between devices.
        MEMCPY2 = 22
            => Memcpy(Memcpy);
        /// Memsets.
        MEMSET = 2 => Memset(Memset);
        /// Waits for streams, events and contexts.
        SYNCHRONIZATION = 38 => Synchronization(Synchronization);
        /// Driver API calls.
        DRIVER = 4,
        /// Runtime API calls.
        RUNTIME = 5,
        /// Launches that the driver makes on its own.
        INTERNAL_LAUNCH_API = 48
            => ApiCall(ApiCall);
    }
    rare {
        /// Overhead of CUPTI and the driver.
        OVERHEAD = 17 => Overhead(Overhead);
        /// Launches of CUDA graphs, each as a whole.
        GRAPH_TRACE = 51 => GraphTrace(GraphTrace);
        /// Allocations and frees, one record each.
        MEMORY2 = 49 => MemoryOperation(MemoryOperation);
        /// Transfers and page faults of managed memory
        /// ([`Config::unified_memory_counters`](crate::Config::unified_memory_counters)).
        UNIFIED_MEMORY_COUNTER = 25 => UnifiedMemory(UnifiedMemory);
        /// Recorded CUDA events. Libraries before 12.9 write them along with synchronisations.
        CUDA_EVENT = 36 => CudaEvent(CudaEvent);
        /// Devices.
        DEVICE = 8 => Device(Device<'a>);
    }
    without_type {
        /// NVTX ranges and marks.
        MARKER = 12;
        /// Payload, colour and category of an NVTX range or mark.
        MARKER_DATA = 13;
        /// Ids of other users of CUPTI, tied to correlation ids.
        EXTERNAL_CORRELATION = 39;
        /// Launches of CUDA graphs from a device.
        DEVICE_GRAPH_TRACE = 53;
        /// Host functions of CUDA graphs.
        GRAPH_HOST_NODE = 56;
        /// Host functions of streams.
        HOST_LAUNCH = 58;
        /// Allocations with their whole lifetime.
        MEMORY = 45;
        /// Memory pools.
        MEMORY_POOL = 50;
        /// Streams.
        STREAM = 37;
        /// Contexts.
        CONTEXT = 9;
        /// Green contexts.
        GREEN_CONTEXT = 59;
        /// Switches of the compute engine between contexts.
        COMPUTE_ENGINE_CTX_SWITCH = 57;
        /// Clocks, temperature, power and fan of a device.
        ENVIRONMENT = 20;
        /// Names given to threads, devices, contexts and streams (NVTX).
        NAME = 11;
        /// Functions of modules.
        FUNCTION = 26;
        /// NVLinks between devices.
        NVLINK = 40;
        /// The PCI Express topology.
        PCIE = 46;
        /// Just-in-time compilation.
        JIT = 52;
        /// Batches of decompression.
        MEM_DECOMPRESS = 54;
        /// Key rotations of confidential computing.
        CONFIDENTIAL_COMPUTE_ROTATION = 55;
        /// Kernels launched by kernels, on devices before sm_70.
        CDP_KERNEL = 18;
        /// Preemptions of such kernels.
        PREEMPTION = 19;
        /// Loaded modules.
        MODULE = 27;
        /// Attributes of devices.
        DEVICE_ATTRIBUTE = 28;
        /// OpenACC data events.
        OPENACC_DATA = 33;
        /// OpenACC launches.
        OPENACC_LAUNCH = 34;
        /// Other OpenACC events.
        OPENACC_OTHER = 35;
        /// OpenMP events.
        OPENMP = 47;
    }
}

/// Records are moved by value; fields that would make them longer are read on request.
const _: () = assert!(size_of::<Record<'_>>() <= 160);

/// The device, context and stream of an operation.
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

/// A time span by CUPTI's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Span {
    /// Nanoseconds (`start`); 0 if CUPTI has none.
    pub start_ns: u64,
    /// Nanoseconds (`end`); 0 if CUPTI has none.
    pub end_ns: u64,
}

impl Span {
    /// False if CUPTI has no times, or an end before the start. Both were reported for CUPTI 13.0
    /// once its device buffers are full.
    pub fn is_known(self) -> bool {
        self.start_ns != 0 && self.start_ns <= self.end_ns
    }
}

/// A node of a CUDA graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct GraphNode {
    /// The graph: the executable one (`graphId`), or its source (`sourceGraphId`).
    pub graph: u32,
    /// Its node (`graphNodeId`, `sourceGraphNodeId`).
    pub node: u64,
}

impl GraphNode {
    /// Builds a node from CUPTI's values; `None` without a graph.
    #[inline]
    #[must_use]
    pub fn new(graph: u32, node: u64) -> Option<Self> {
        (graph != 0).then_some(Self { graph, node })
    }
}

/// A channel of the hardware: a queue of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Channel {
    /// Its number (`channelID`).
    pub id: u32,
    /// The type (`channelType`).
    pub kind: ChannelKind,
}

impl Channel {
    /// Returns `None` for `CUPTI_INVALID_CHANNEL_ID`.
    #[inline]
    fn new(id: u32, kind: u32) -> Option<Self> {
        (id != u32::MAX).then_some(Self { id, kind: ChannelKind(kind) })
    }
}

words! {
    /// The type of a channel (`CUpti_ChannelType`).
    ChannelKind(u32) {
        INVALID = 0 "invalid",
        COMPUTE = 1 "compute",
        ASYNC_MEMCPY = 2 "asynchronous copies",
        DECOMPRESSION = 3 "decompression",
    }
}

/// The object of a record (`CUpti_ActivityObjectKind`, `CUpti_ActivityObjectKindId`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ObjectId {
    /// A process.
    Process(u32),
    /// A thread.
    Thread {
        /// Its process (`pt.processId`).
        process: u32,
        /// The thread (`pt.threadId`).
        thread: u32,
    },
    /// A device, by CUDA ordinal.
    Device(u32),
    /// A context.
    Context {
        /// CUDA ordinal (`dcs.deviceId`).
        device: u32,
        /// CUPTI's id (`dcs.contextId`).
        context: u32,
    },
    /// A stream.
    Stream(Place),
    /// A kind unknown to this version of the crate.
    Unknown(u32),
}

impl ObjectId {
    fn new(kind: u32, [first, second, third]: [u32; 3]) -> Self {
        match kind {
            1 => Self::Process(first),
            2 => Self::Thread { process: first, thread: second },
            3 => Self::Device(first),
            4 => Self::Context { device: first, context: second },
            5 => Self::Stream(Place { device: first, context: second, stream: third }),
            other => Self::Unknown(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::generated::FAMILIES;

    /// Every byte of a buffer is in one record, whatever the buffer, the strides and the version are, and reading all
    /// that a record has does not panic.
    #[test]
    fn garbage_is_given_back_and_never_panics() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let kinds: Vec<u32> =
            FAMILIES.iter().flat_map(|(kinds, _)| *kinds).copied().chain([99]).collect();
        for _ in 0..20_000 {
            let len = random() as usize % 700;
            let mut buffer: Vec<u8> = (0..len).map(|_| random() as u8).collect();
            if len >= 4 {
                let kind = kinds[random() as usize % kinds.len()];
                buffer[..4].copy_from_slice(&kind.to_ne_bytes());
            }
            let strides: Vec<_> =
                kinds.iter().map(|&kind| (ActivityKind(kind), (random() % 320) as u32)).collect();
            let version = Version([18, 22, 26, 130_001, 130_202, 130_500][random() as usize % 6]);
            let records =
                RecordBytes::from_parts(version, vec![buffer.clone(), vec![]], strides, []);
            let mut left = len;
            for record in &records {
                let kind = buffer.get(len - left..).and_then(|rest| rest.first_chunk());
                let stride = kind.and_then(|kind| records.strides.get(&u32::from_ne_bytes(*kind)));
                left -= match record {
                    Record::Unreadable { bytes } | Record::Unknown { bytes, .. } => bytes.len(),
                    _ => *stride.unwrap() as usize,
                };
                let _ = format!("{record:?}");
                match record {
                    Record::Kernel(kernel) => _ = kernel.details(),
                    Record::Device(device) => _ = device.limits(),
                    Record::Overhead(overhead) => _ = overhead.command_buffer(&records),
                    Record::ApiCall(call) => _ = call.function.name(),
                    _ => {}
                }
            }
            assert_eq!(left, 0, "every byte is accounted for");
        }
    }

    #[test]
    fn a_record_shorter_than_its_kind_is_unknown() {
        let mut bytes = vec![0u8; 100];
        bytes[..4].copy_from_slice(&ActivityKind::CONCURRENT_KERNEL.0.to_ne_bytes());
        let strides = [(ActivityKind::CONCURRENT_KERNEL, 100)];
        let records = RecordBytes::from_parts(Version(130_001), vec![bytes], strides, []);
        let all: Vec<_> = records.iter().collect();
        assert!(
            matches!(all[..], [Record::Unknown { kind: ActivityKind::CONCURRENT_KERNEL, bytes }] if bytes.len() == 100)
        );
    }
}
