//! GPU operations: kernels, copies, memsets and whole graphs.

use std::time::Duration;

use profiler_base::{getters, named_variants};

use super::{ApiCall, Profile, Range};
use crate::join::tables::{
    CallId, Interval, KernelNames, Operation, OperationId, RangeId, RangesBy, SAME_ID, What,
    WholeGraph, Work,
};

/// The way in which a GPU operation was attributed to its range. More ways may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Attribution {
    /// The call that submitted it was made in the range, by CUPTI's correlation id. Exact.
    Launch,
    /// Like [`Launch`](Self::Launch), with the call on another thread that received a
    /// [`Context`](crate::Context).
    Handed,
    /// By thread and time: the call was made on the range's thread during the range. For captures
    /// of Nsight Systems, whose calls do not refer to ranges.
    Contained,
    /// By time alone: it started on the GPU while the host was in the range. Only for
    /// [`Query::by_window`](crate::query::Query::by_window).
    Window,
    /// By the CUDA graph node that it executed, which was created in the range. Only for
    /// [`Query::replays`](crate::query::Query::replays).
    Capture,
    /// By inference: a thread without ranges submitted it while the range's thread waited. Only for
    /// [`Query::with_inferred`](crate::query::Query::with_inferred).
    Inferred,
    /// The call was made outside all ranges, or is unknown.
    None,
}

named_variants! {
    /// The kind of a GPU operation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
    pub enum OperationKind with name {
        /// A kernel.
        Kernel = "kernel",
        /// A copy.
        Copy = "copy",
        /// A memset.
        Memset = "memset",
        /// A CUDA graph traced as one interval. The operations in it have no records.
        Graph = "graph",
    }
}

/// A kernel, copy, memset, or CUDA graph traced as one interval.
#[derive(Debug, Clone, Copy)]
pub struct GpuOperation<'a> {
    pub(super) profile: &'a Profile,
    pub(super) id: OperationId,
    /// The range that a query attributed it to, and the way.
    pub(super) assigned: Option<(RangeId, Attribution)>,
}

impl<'a> GpuOperation<'a> {
    /// Attributes it to the range of a query.
    pub(crate) fn assigned_to(self, range: RangeId, by: Attribution) -> Self {
        Self { assigned: Some((range, by)), ..self }
    }

    /// Its row of the tables.
    pub fn row(&self) -> &'a Operation {
        &self.profile.store.operations[self.id.at()]
    }

    /// The row that it shares with other operations.
    pub fn work(&self) -> &'a Work {
        self.profile.store.work(self.row())
    }

    /// True for communication kernels between GPUs, recognized by name.
    pub fn is_collective(&self) -> bool {
        self.profile.collective_kernels().contains(self.row().work)
    }

    getters! {
        /// Its index among all operations of the profile, by start.
        number: usize = id.at();
        /// The id shared with the call that submitted it.
        correlation_id: u32 = row().correlation_id;
        /// The device's CUDA ordinal.
        device: u32 = work().place.device;
        /// CUPTI's stream id, unique within a context only.
        stream: u32 = work().place.stream;
        /// CUPTI's context id.
        context: u32 = work().place.context;
        /// The kernel's process id; 0 if the process recorded itself.
        process_id: u32 = work().process;
        /// The CUDA graph node that it executed.
        graph_node: Option<cupti::GraphNode> = work().what.graph_node();
        /// True if it has several ranges.
        is_shared: bool = ranges().nth(1).is_some();
        /// The profile that contains it.
        profile: &'a Profile = profile;
        /// The interval in the store's clock.
        interval: Option<Interval> = row().time();
        /// The row of its call, if it is known.
        call_id: Option<CallId> = row().call.get();
    }

    /// The kind of operation.
    pub fn kind(&self) -> OperationKind {
        match self.work().what {
            What::Kernel { .. } => OperationKind::Kernel,
            What::Copy(_) => OperationKind::Copy,
            What::Memset(_) => OperationKind::Memset,
            What::Graph(_) => OperationKind::Graph,
        }
    }

    /// The start on the GPU since the session's start. `None` without timestamps.
    pub fn start(&self) -> Option<Duration> {
        self.row().time().map(|time| self.profile.since_start(time.start_ns))
    }

    /// The end on the GPU since the session's start. `None` without timestamps.
    pub fn end(&self) -> Option<Duration> {
        self.row().time().map(|time| self.profile.since_start(time.end_ns))
    }

    /// The time on the GPU. `None` without timestamps.
    pub fn gpu_time(&self) -> Option<Duration> {
        self.row().time().map(|time| Duration::from_nanos(Interval::ns(time)))
    }

    /// The kernel, if it is one.
    pub fn as_kernel(&self) -> Option<Kernel<'a>> {
        let What::Kernel { names, mut details } = self.work().what else { return None };
        (details.span, details.correlation_id) = self.instance();
        let name = |id| self.profile.store.names.get(id);
        let (name, demangled) = (name(names.name), names.demangled.map(name));
        Some(Kernel { operation: *self, names, name, demangled, details })
    }

    /// The copy, if it is one.
    pub fn as_copy(&self) -> Option<MemoryCopy<'a>> {
        let What::Copy(mut details) = self.work().what else { return None };
        (details.span, details.correlation_id) = self.instance();
        if details.runtime_correlation_id == Some(SAME_ID) {
            details.runtime_correlation_id = Some(self.correlation_id());
        }
        Some(MemoryCopy { operation: *self, details })
    }

    /// The memset, if it is one.
    pub fn as_memset(&self) -> Option<Memset<'a>> {
        let What::Memset(mut details) = self.work().what else { return None };
        (details.span, details.correlation_id) = self.instance();
        Some(Memset { operation: *self, details })
    }

    /// The graph traced as one interval, if it is one.
    pub fn as_graph(&self) -> Option<Graph<'a>> {
        let What::Graph(graph) = self.work().what else { return None };
        Some(Graph { operation: *self, graph })
    }

    /// The fields that the store has for each operation.
    fn instance(&self) -> (cupti::Span, u32) {
        let mut span = cupti::Span::default();
        if let Some(time) = self.row().time() {
            (span.start_ns, span.end_ns) = (time.start_ns, time.end_ns);
        }
        (span, self.row().correlation_id)
    }

    /// The call that submitted it.
    pub fn call(&self) -> Option<ApiCall<'a>> {
        self.row().call.get().map(|id| self.profile.call(id))
    }

    /// The range it is attributed to; see [`attribution`](Self::attribution).
    pub fn range(&self) -> Option<Range<'a>> {
        let profile = self.profile;
        let assigned = self.assigned.map(|(range, _)| range);
        let range = assigned.or_else(|| profile.store.range_of(self.row().call));
        range.map(|id| Range { profile, id })
    }

    /// The ranges that it is attributed to, innermost first, if an ancestor of its range excludes
    /// it.
    pub fn late_chain(&self) -> Option<impl Iterator<Item = Range<'a>> + use<'a>> {
        self.profile.tree.crossings()?;
        self.call().filter(|_| self.assigned.is_none())?.late_chain()
    }

    /// The inferred range of its call: see [`Profile::with_inferred_ranges`]. `None` if the call
    /// has a range, or none was inferred.
    pub fn inferred_range(&self) -> Option<Range<'a>> {
        let id = self.profile.store.inferred_range_of(self.row().call)?;
        Some(Range { profile: self.profile, id })
    }

    /// All its ranges, without duplicates: first [`range`](Self::range), then those
    /// [joined](crate::Context::join) with it. Some may contain others.
    pub fn ranges(&self) -> impl Iterator<Item = Range<'a>> + Clone + use<'a> {
        let profile = self.profile;
        let others = if self.assigned.is_some() { &[][..] } else { self.shares() };
        self.range().into_iter().chain(others.iter().map(move |&id| Range { profile, id }))
    }

    fn shares(&self) -> &'a [RangeId] {
        let store = &self.profile.store;
        self.row().call.get().map_or(&[], |call| store.shares_of(&store.calls[call.at()]))
    }

    /// The range in which its CUDA graph node was created, by capture or explicitly. `None` if it
    /// is no node, or the node was created outside all ranges or before the session. The range of
    /// its launch is [`range`](Self::range), or in a query of
    /// [`replays`](crate::query::Query::replays) the range of its [`call`](Self::call).
    pub fn captured_in(&self) -> Option<Range<'a>> {
        self.row().captured.get().map(|id| Range { profile: self.profile, id })
    }

    /// The way in which it was attributed to its range.
    pub fn attribution(&self) -> Attribution {
        if let Some((_, by)) = self.assigned {
            return by;
        }
        let store = &self.profile.store;
        let call = self.row().call.get().map(|call| &store.calls[call.at()]);
        match call.and_then(|call| Some((call, call.range.get()?))) {
            None => Attribution::None,
            Some(_) if store.session.ranges_by == RangesBy::Containment => Attribution::Contained,
            Some((call, range)) if store.ranges[range.at()].thread == call.thread => {
                Attribution::Launch
            }
            Some(_) => Attribution::Handed,
        }
    }
}

/// A kernel operation.
#[derive(Debug, Clone, Copy)]
pub struct Kernel<'a> {
    operation: GpuOperation<'a>,
    names: KernelNames,
    name: &'a str,
    /// The demangled name, if the source of the profile has it.
    demangled: Option<&'a str>,
    details: cupti::Kernel,
}

impl<'a> Kernel<'a> {
    /// The demangled name without parameters for C++ names; other names are unchanged. Kernels of
    /// the profile that differ only in their parameters have them. Costs microseconds.
    pub fn demangled_name(&self) -> String {
        self.operation.profile.kernel_label(&self.names)
    }

    pub(crate) fn is_overloaded(&self) -> bool {
        self.operation.profile.is_overloaded(&self.names)
    }

    getters! {
        /// The mangled name.
        name: &'a str = name;
        /// Blocks of the grid in x, y, z.
        grid: [u32; 3] = details.grid;
        /// Threads of a block in x, y, z.
        block: [u32; 3] = details.block;
        /// The remaining fields of the record. Times are of `CLOCK_MONOTONIC`.
        details: &cupti::Kernel = details;
        /// The demangled name with parameters, if the source of the profile has it.
        demangled: Option<&'a str> = demangled;
    }
}

/// A copy operation.
#[derive(Debug, Clone, Copy)]
pub struct MemoryCopy<'a> {
    operation: GpuOperation<'a>,
    details: cupti::Memcpy,
}

impl MemoryCopy<'_> {
    getters! {
        /// The direction.
        kind: cupti::CopyKind = details.kind;
        /// The bytes moved.
        bytes: u64 = details.bytes;
        /// The memory kind of the source (`srcKind`).
        source: cupti::MemoryKind = details.source;
        /// The memory kind of the destination (`dstKind`).
        destination: cupti::MemoryKind = details.destination;
        /// The remaining fields of the record. Times are of `CLOCK_MONOTONIC`.
        details: &cupti::Memcpy = details;
    }

    /// Bytes per GPU time in GB/s (10^9 bytes per second). `None` without a GPU time.
    pub fn bandwidth(&self) -> Option<f64> {
        let ns = self.operation.row().ns();
        // One byte per nanosecond equals one GB/s.
        (ns != 0).then(|| self.details.bytes as f64 / ns as f64)
    }
}

/// A memset operation.
#[derive(Debug, Clone, Copy)]
pub struct Memset<'a> {
    operation: GpuOperation<'a>,
    details: cupti::Memset,
}

impl Memset<'_> {
    getters! {
        /// The bytes written.
        bytes: u64 = details.bytes;
        /// The remaining fields of the record. Times are of `CLOCK_MONOTONIC`.
        details: &cupti::Memset = details;
    }
}

/// A launch of a CUDA graph traced as one interval, from the first node's start to the last node's
/// end: CUPTI's kind `GRAPH_TRACE`, and `nsys profile --cuda-graph-trace=graph`. The kernels and
/// idle times in it are not recorded.
#[derive(Debug, Clone, Copy)]
pub struct Graph<'a> {
    operation: GpuOperation<'a>,
    graph: WholeGraph,
}

impl Graph<'_> {
    getters! {
        /// CUPTI's id of the executable graph.
        executable_id: u32 = graph.executable;
        /// CUPTI's id of the graph it was instantiated from. `None` for CUPTI's records; captures
        /// of Nsight Systems have it.
        template_id: Option<u32> = graph.template;
    }
}

/// Implements `Deref` to [`GpuOperation`] for each kind.
macro_rules! deref_to_operation {
    ($($kind:ident)+) => {$(
        impl<'a> std::ops::Deref for $kind<'a> {
            type Target = GpuOperation<'a>;
            fn deref(&self) -> &GpuOperation<'a> {
                &self.operation
            }
        }
    )+};
}
deref_to_operation!(Kernel MemoryCopy Memset Graph);
