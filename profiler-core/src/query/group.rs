//! Keys of groups of operations or waits.

use std::fmt;
use std::hash::{Hash, Hasher};

use cupti::{CopyKind, MemoryKind};
use profiler_base::aggregate::{Aggregate, Groups};
use profiler_base::kernel_names;
use profiler_base::text::printable;
#[cfg(feature = "serde")]
use serde::{Serialize, Serializer};

use super::Query;
use crate::join::tables::What;
use crate::profile::{ApiCall, GpuOperation, Kernel, Process, RangeNode};

/// The bytes copied or set by an operation.
pub(super) fn bytes(operation: &GpuOperation<'_>) -> u64 {
    match &operation.work().what {
        What::Kernel { .. } | What::Graph(_) => 0,
        What::Copy(copy) => copy.bytes,
        What::Memset(memset) => memset.bytes,
    }
}

/// The name of a kernel. `{}` omits the parameters, unless another kernel of the profile differs
/// only in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelName<'a> {
    name: &'a str,
    demangled: Option<&'a str>,
    is_overloaded: bool,
}

impl<'a> KernelName<'a> {
    /// The name of this kernel.
    pub fn new(kernel: &Kernel<'a>) -> Self {
        let (name, demangled) = (kernel.name(), kernel.demangled());
        Self { name, demangled, is_overloaded: kernel.is_overloaded() }
    }

    /// The mangled name.
    pub fn as_str(&self) -> &'a str {
        self.name
    }

    fn short(&self) -> String {
        kernel_names::label(self.name, self.demangled, self.is_overloaded)
    }
}

impl fmt::Display for KernelName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.short()))
    }
}

/// The text for work outside all ranges.
const OUTSIDE: &str = "(outside any range)";

/// The path of a range, or work outside all ranges.
#[derive(Debug, Clone, Copy)]
pub struct RangePath<'a> {
    node: Option<RangeNode<'a>>,
}

impl<'a> RangePath<'a> {
    pub(super) fn new(node: Option<RangeNode<'a>>) -> Self {
        Self { node }
    }

    /// The path of an operation's range.
    pub fn from_operation(operation: &GpuOperation<'a>) -> Self {
        Self::new(operation.range().map(|range| range.node()))
    }

    pub(super) fn of_call(call: &ApiCall<'a>) -> Self {
        Self::new(call.range().map(|range| range.node()))
    }

    /// The node of the tree; `None` outside all ranges.
    pub fn node(&self) -> Option<RangeNode<'a>> {
        self.node
    }
}

impl PartialEq for RangePath<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.node.map(|node| node.id) == other.node.map(|node| node.id)
    }
}

impl Eq for RangePath<'_> {}

impl Hash for RangePath<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.node.map(|node| node.id).hash(state);
    }
}

impl fmt::Display for RangePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            Some(node) => f.write_str(&printable(&node.cut_path())),
            None => f.write_str(OUTSIDE),
        }
    }
}

/// A stream. Ids are unique only within a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StreamKey {
    /// The kernel's process id; 0 if the process recorded itself.
    pub process: u32,
    /// The device's CUDA ordinal.
    pub device: u32,
    /// CUPTI's context id.
    pub context: u32,
    /// CUPTI's stream id.
    pub stream: u32,
}

impl StreamKey {
    /// The stream of an operation.
    pub fn from_operation(operation: &GpuOperation<'_>) -> Self {
        Self {
            process: operation.process_id(),
            device: operation.device(),
            context: operation.context(),
            stream: operation.stream(),
        }
    }
}

impl fmt::Display for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.process != 0 {
            write!(f, "process {}, ", self.process)?;
        }
        write!(f, "device {}, context {}, stream {}", self.device, self.context, self.stream)
    }
}

/// A thread that makes calls, or the unknown thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CallThread<'a> {
    /// The kernel's process id; 0 if the process recorded itself.
    pub process: u32,
    /// The kernel's thread id; 0 if the call is unknown.
    pub id: u32,
    /// The name, if any.
    pub name: Option<&'a str>,
}

impl<'a> CallThread<'a> {
    pub(super) fn new(thread: &'a crate::join::tables::Thread) -> Self {
        Self { process: thread.process, id: thread.id, name: thread.name.as_deref() }
    }

    const UNKNOWN: Self = Self { process: 0, id: 0, name: None };
}

impl fmt::Display for CallThread<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.id, self.name) {
            (0, _) => f.write_str("(unknown thread)"),
            (id, Some(name)) => write!(f, "thread {id} ({})", printable(name)),
            (id, None) => write!(f, "thread {id}"),
        }
    }
}

/// The direction and memory kinds of copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct TransferKey {
    /// The direction.
    pub kind: CopyKind,
    /// The memory kind of the source.
    pub source: MemoryKind,
    /// The memory kind of the destination.
    pub destination: MemoryKind,
}

impl fmt::Display for TransferKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} to {}", self.kind, self.source, self.destination)
    }
}

#[cfg(feature = "serde")]
profiler_base::serialize_as_text!(TransferKey);

/// Serializes the name without parameters.
#[cfg(feature = "serde")]
impl Serialize for KernelName<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.short())
    }
}

/// Serializes the full path.
#[cfg(feature = "serde")]
impl Serialize for RangePath<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.node {
            Some(node) => serializer.serialize_str(&node.path()),
            None => serializer.serialize_str(OUTSIDE),
        }
    }
}

/// Groups.
impl<'a> Query<'a> {
    /// Groups by `key`; operations without a key are excluded.
    #[must_use]
    pub fn group_by<K: Eq + Hash>(
        &self,
        key: impl Fn(&GpuOperation<'a>) -> Option<K>,
    ) -> Groups<K> {
        let mut groups = Aggregate::default();
        for operation in self.iter() {
            if let Some(key) = key(&operation) {
                let ns = operation.interval().map(|time| time.ns());
                groups.add(key, ns, bytes(&operation));
            }
        }
        groups.ranked()
    }

    /// Groups kernels by name.
    pub fn by_kernel(&self) -> Groups<KernelName<'a>> {
        self.group_by(|operation| Some(KernelName::new(&operation.as_kernel()?)))
    }

    /// Groups by the path of the range; exclusive times that add up to the total.
    pub fn by_range(&self) -> Groups<RangePath<'a>> {
        self.group_by(|operation| Some(RangePath::from_operation(operation)))
    }

    /// Groups executions of CUDA graph nodes by the path of the range that created the node. Other
    /// operations are excluded.
    pub fn by_capture(&self) -> Groups<RangePath<'a>> {
        self.group_by(|operation| Some(RangePath::new(Some(operation.captured_in()?.node()))))
    }

    /// Groups by stream.
    pub fn by_stream(&self) -> Groups<StreamKey> {
        self.group_by(|operation| Some(StreamKey::from_operation(operation)))
    }

    /// Groups by device.
    pub fn by_device(&self) -> Groups<u32> {
        self.group_by(|operation| Some(operation.device()))
    }

    /// Groups by process.
    pub fn by_process(&self) -> Groups<Process<'a>> {
        let process = self.profile.processes_by_id();
        self.group_by(|operation| Some(process(operation.process_id())))
    }

    /// Groups by the thread of the call.
    pub fn by_thread(&self) -> Groups<CallThread<'a>> {
        let threads = &self.profile.store.threads;
        self.group_by(|operation| {
            let thread = operation.call().map(|call| &threads[call.row.thread.at()]);
            Some(thread.map_or(CallThread::UNKNOWN, CallThread::new))
        })
    }

    /// Groups copies by direction.
    pub fn by_copy_kind(&self) -> Groups<CopyKind> {
        self.group_by(|operation| Some(operation.as_copy()?.kind()))
    }

    /// Groups copies by direction and memory kinds.
    pub fn by_transfer(&self) -> Groups<TransferKey> {
        self.group_by(|operation| {
            let copy = operation.as_copy()?;
            let (source, destination) = (copy.source(), copy.destination());
            Some(TransferKey { kind: copy.kind(), source, destination })
        })
    }
}
