//! Collectives of NCCL, with the kernels that executed them.
//!
//! The injection library's NCCL plugin records a mark for each, on the thread that enqueued it and
//! right after the launch of its kernel. The launch is therefore the last launch of a collective's
//! kernel on that thread. With interface v5 it is also later than the time at which NCCL began to
//! launch. Without the plugin, NCCL's own NVTX ranges begin before the launch.

use profiler_base::collectives::{COLLECTIVES_DOMAIN, fields};
use profiler_base::{named_variants, order};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::join::communication::Communication;
use crate::join::tables::{
    CallId, Details, FieldValue, Label, MarkId, Maybe, NameId, OperationId, RangeId, Subject,
    Tables, ThreadId,
};

/// The domain of NCCL's own ranges, and their fields.
const NCCL_DOMAIN: &str = "NCCL";
const NVTX_COMMUNICATOR: &str = "NCCL communicator ID";
const NVTX_BYTES: &str = "Message size [bytes]";
const NVTX_PEERS: [&str; 2] = ["Root", "Peer rank"];

named_variants! {
    /// A function of NCCL that exchanges data between ranks.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[non_exhaustive]
    pub enum CollectiveFunction with name in ALL {
        /// `ncclAllReduce`
        AllReduce = "AllReduce",
        /// `ncclAllGather`
        AllGather = "AllGather",
        /// `ncclReduceScatter`
        ReduceScatter = "ReduceScatter",
        /// `ncclBroadcast`, `ncclBcast`
        Broadcast = "Broadcast",
        /// `ncclReduce`
        Reduce = "Reduce",
        /// `ncclAlltoAll`
        AllToAll = "AlltoAll",
        /// `ncclGather`
        Gather = "Gather",
        /// `ncclScatter`
        Scatter = "Scatter",
        /// `ncclSend`
        Send = "Send",
        /// `ncclRecv`
        Recv = "Recv",
        /// A function that this version does not support.
        Other = "other",
    }
}

impl CollectiveFunction {
    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|function| function.name() == name)
    }

    /// True for sends and receives, which have one peer.
    pub(crate) const fn is_point_to_point(self) -> bool {
        matches!(self, Self::Send | Self::Recv)
    }

    /// True for functions that no rank finishes before all ranks have started.
    pub const fn waits_for_all(self) -> bool {
        matches!(self, Self::AllReduce | Self::AllGather | Self::ReduceScatter | Self::AllToAll)
    }

    /// The bytes to which the bandwidths of NVIDIA's nccl-tests refer, with `bytes` per rank. For
    /// functions in which each rank's data is a part of the result, it is the sum of all ranks.
    pub fn total_bytes(self, bytes: u64, ranks: u32) -> u64 {
        match self {
            Self::AllGather
            | Self::ReduceScatter
            | Self::AllToAll
            | Self::Gather
            | Self::Scatter => bytes.saturating_mul(ranks.max(1).into()),
            _ => bytes,
        }
    }

    /// The factor from [`total_bytes`](Self::total_bytes) to the bytes that pass the busiest link:
    /// the factors of `PERFORMANCE.md` in nccl-tests. `None` if it defines none.
    pub fn bus_factor(self, ranks: u32) -> Option<f64> {
        let ranks = f64::from(ranks.max(1));
        match self {
            Self::AllReduce => Some(2.0 * (ranks - 1.0) / ranks),
            Self::AllGather
            | Self::ReduceScatter
            | Self::AllToAll
            | Self::Gather
            | Self::Scatter => Some((ranks - 1.0) / ranks),
            Self::Broadcast | Self::Reduce | Self::Send | Self::Recv => Some(1.0),
            Self::Other => None,
        }
    }
}

/// The source of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CollectiveSource {
    /// A mark of gpuprof's plugin for NCCL.
    Plugin(MarkId),
    /// A range of NCCL itself.
    Range(RangeId),
}

/// A collective, send or receive of one rank.
#[derive(Debug, Clone, Copy)]
pub struct CollectiveRow {
    /// The source of the row.
    pub source: CollectiveSource,
    /// The time of the host's call.
    pub at_ns: u64,
    /// The calling thread.
    pub thread: ThreadId,
    /// The kernel's id of the process.
    pub process: u32,
    /// The function.
    pub function: CollectiveFunction,
    /// The source's name of the function.
    pub name: NameId,
    /// The hash of the communicator.
    pub communicator: u64,
    /// The program's name for it, if any.
    pub communicator_name: Option<NameId>,
    /// The rank in the communicator, if known.
    pub rank: Option<u32>,
    /// The ranks of the communicator, if known.
    pub ranks: Option<u32>,
    /// The index among the operations of its function in its communicator.
    pub sequence: u64,
    /// The message size of one rank, if known.
    pub bytes: Option<u64>,
    /// The type of its values, if known.
    pub datatype: Option<NameId>,
    /// NCCL's algorithm, if known.
    pub algorithm: Option<NameId>,
    /// NCCL's protocol, if known.
    pub protocol: Option<NameId>,
    /// The number of channels that it used, if known.
    pub channels: Option<u32>,
    /// The root, or the peer of a send or receive.
    pub other_rank: Option<u32>,
    /// The innermost range of the program around it.
    pub range: Maybe<RangeId>,
    /// Its kernel, if it was recorded.
    pub operation: Option<OperationId>,
    /// The number of collectives that its kernel executes.
    pub in_kernel: u32,
}

/// The properties that a collective shares between all its ranks: function and number, or sender
/// and receiver and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CollectiveKey {
    /// The hash of the communicator.
    pub communicator: u64,
    /// The function.
    pub function: CollectiveFunction,
    pair: (u32, u32),
    sequence: u64,
}

impl CollectiveRow {
    /// `None` for a send or receive without its ranks.
    pub fn key(&self) -> Option<CollectiveKey> {
        let (function, pair) = match self.function {
            CollectiveFunction::Send => (CollectiveFunction::Send, (self.rank?, self.other_rank?)),
            CollectiveFunction::Recv => (CollectiveFunction::Send, (self.other_rank?, self.rank?)),
            function => (function, (0, 0)),
        };
        let (communicator, sequence) = (self.communicator, self.sequence);
        Some(CollectiveKey { communicator, function, pair, sequence })
    }
}

/// Launches of collectives' kernels by thread, in order.
type Launches = FxHashMap<ThreadId, Vec<(u64, CallId, OperationId)>>;

/// The collectives of all processes, by process and time. Costs a pass over operations, marks and
/// ranges.
pub(crate) fn collectives(store: &Tables, kernels: &Communication) -> Vec<CollectiveRow> {
    let domain = |name| store.names.find(name);
    let (plugin, nvtx) = (domain(COLLECTIVES_DOMAIN), domain(NCCL_DOMAIN));
    if plugin.is_none() && nvtx.is_none() {
        return Vec::new();
    }
    let launches = launches(store, kernels);
    let reader = Reader { store, nvtx, launches };
    let mut rows: Vec<CollectiveRow> = Vec::new();
    if plugin.is_some() {
        let marks = (0..).zip(&store.marks);
        let ours = marks.filter(|(_, mark)| store.label(mark.label).domain == plugin);
        rows.extend(ours.filter_map(|(row, _)| reader.of_mark(MarkId(row))));
    }
    if nvtx.is_some() {
        let with_plugin: FxHashSet<u32> = rows.iter().map(|row| row.process).collect();
        let ranges = (0..).zip(&store.ranges).filter(|(_, range)| {
            let process = store.threads[range.thread.at()].process;
            store.label(range.label).domain == nvtx && !with_plugin.contains(&process)
        });
        rows.extend(ranges.filter_map(|(row, _)| reader.of_range(RangeId(row))));
    }
    order::sort_by_key(&mut rows, |row| (row.process, row.at_ns));
    number_ranges(&mut rows);
    let mut in_kernel: FxHashMap<OperationId, u32> = FxHashMap::default();
    for operation in rows.iter().filter_map(|row| row.operation) {
        *in_kernel.entry(operation).or_default() += 1;
    }
    for row in &mut rows {
        row.in_kernel = row.operation.and_then(|id| in_kernel.get(&id).copied()).unwrap_or(0);
    }
    rows
}

fn launches(store: &Tables, kernels: &Communication) -> Launches {
    let mut launches: Launches = FxHashMap::default();
    for (row, operation) in (0..).zip(&store.operations) {
        // Nodes of graphs are launched with their graph.
        let is_collective =
            kernels.contains(operation.work) && store.work(operation).what.graph_node().is_none();
        let Some(id) = operation.call.get().filter(|_| is_collective) else { continue };
        let call = &store.calls[id.at()];
        let of_thread = launches.entry(call.thread).or_default();
        of_thread.push((call.time.start_ns, id, OperationId(row)));
    }
    launches.values_mut().for_each(|of_thread| of_thread.sort_unstable());
    launches
}

/// Numbers the collectives of NCCL's ranges, which have no sequence number: by function,
/// communicator and peer from the first recorded one.
fn number_ranges(rows: &mut [CollectiveRow]) {
    let mut next: FxHashMap<(u32, u64, CollectiveFunction, Option<u32>), u64> =
        FxHashMap::default();
    for row in rows {
        if let CollectiveSource::Range(_) = row.source {
            let peer = row.other_rank.filter(|_| row.function.is_point_to_point());
            let count =
                next.entry((row.process, row.communicator, row.function, peer)).or_default();
            row.sequence = *count;
            *count += 1;
        }
    }
}

struct Reader<'a> {
    store: &'a Tables,
    nvtx: Option<NameId>,
    launches: Launches,
}

impl<'a> Reader<'a> {
    fn value(&self, details: &'a Details, name: &str) -> Option<FieldValue> {
        let name = self.store.names.find(name)?;
        let named = details.fields.iter().rfind(|field| field.name == name);
        named.map(|field| field.value)
    }

    fn number(&self, details: &'a Details, name: &str) -> Option<u64> {
        match self.value(details, name)? {
            FieldValue::U64(value) => Some(value),
            FieldValue::I64(value) => u64::try_from(value).ok(),
            _ => None,
        }
    }

    fn small(&self, details: &'a Details, name: &str) -> Option<u32> {
        self.number(details, name).and_then(|value| u32::try_from(value).ok())
    }

    fn text(&self, details: &'a Details, name: &str) -> Option<NameId> {
        match self.value(details, name)? {
            FieldValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The innermost enclosing range that is not NCCL's own.
    fn application_range(&self, mut range: Option<RangeId>) -> Maybe<RangeId> {
        while let Some(id) = range {
            let row = &self.store.ranges[id.at()];
            if self.store.label(row.label).domain != self.nvtx || self.nvtx.is_none() {
                break;
            }
            range = row.parent.get();
        }
        range.into()
    }

    fn row(&self, source: CollectiveSource, label: &Label, thread: ThreadId) -> CollectiveRow {
        CollectiveRow {
            source,
            at_ns: 0,
            thread,
            process: self.store.threads[thread.at()].process,
            function: CollectiveFunction::Other,
            name: label.name,
            communicator: 0,
            communicator_name: None,
            rank: None,
            ranks: None,
            sequence: 0,
            bytes: None,
            datatype: None,
            algorithm: None,
            protocol: None,
            channels: None,
            other_rank: None,
            range: Maybe::NONE,
            operation: None,
            in_kernel: 0,
        }
    }

    /// `None` for a mark of the domain that is not the plugin's.
    fn of_mark(&self, id: MarkId) -> Option<CollectiveRow> {
        let store = self.store;
        let mark = &store.marks[id.at()];
        let details = store.details.get(&Subject::Mark(id))?;
        let label = store.label(mark.label);
        let launch_ns = self.number(details, fields::LAUNCH);
        let function = CollectiveFunction::named(store.names.get(label.name));
        Some(CollectiveRow {
            at_ns: mark.at_ns,
            function: function.unwrap_or(CollectiveFunction::Other),
            communicator: self.number(details, fields::COMMUNICATOR)?,
            communicator_name: self.text(details, fields::NAME),
            rank: self.small(details, fields::RANK),
            ranks: self.small(details, fields::RANKS),
            sequence: self.number(details, fields::SEQUENCE)?,
            bytes: self.number(details, fields::BYTES),
            datatype: self.text(details, fields::DATATYPE),
            algorithm: self.text(details, fields::ALGORITHM),
            protocol: self.text(details, fields::PROTOCOL),
            channels: self.small(details, fields::CHANNELS),
            other_rank: self.small(details, fields::OTHER_RANK),
            range: self.application_range(mark.parent),
            operation: self.launched_before(mark.thread, mark.at_ns, launch_ns.unwrap_or(0)),
            ..self.row(CollectiveSource::Plugin(id), label, mark.thread)
        })
    }

    /// `None` for ranges of NCCL's other functions.
    fn of_range(&self, id: RangeId) -> Option<CollectiveRow> {
        let store = self.store;
        let range = &store.ranges[id.at()];
        let label = store.label(range.label);
        let function =
            CollectiveFunction::named(store.names.get(label.name).strip_prefix("nccl")?)?;
        let details = store.details.get(&Subject::Range(id))?;
        let peer = NVTX_PEERS.iter().find_map(|name| self.small(details, name));
        Some(CollectiveRow {
            at_ns: range.time.start_ns,
            function,
            communicator: self.number(details, NVTX_COMMUNICATOR)?,
            bytes: self.number(details, NVTX_BYTES),
            other_rank: peer,
            range: self.application_range(range.parent.get()),
            operation: self.launched_after(range.thread, range.time.start_ns),
            ..self.row(CollectiveSource::Range(id), label, range.thread)
        })
    }

    /// The kernel whose launch is the last of the thread before a time, and not before another one.
    fn launched_before(&self, thread: ThreadId, ns: u64, from_ns: u64) -> Option<OperationId> {
        let launches = self.launches.get(&thread)?;
        let end = launches.partition_point(|launch| launch.0 <= ns);
        let (start_ns, _, operation) = launches[..end].last()?;
        (*start_ns >= from_ns).then_some(*operation)
    }

    /// The kernel whose launch is the first of the thread from a time on.
    fn launched_after(&self, thread: ThreadId, ns: u64) -> Option<OperationId> {
        let launches = self.launches.get(&thread)?;
        let first = launches.partition_point(|launch| launch.0 < ns);
        launches.get(first).map(|launch| launch.2)
    }
}
