//! What ran on the GPU: kernels, copies, memsets.

use std::time::Duration;

use super::{ApiCall, Profile, Range};
use crate::base::kernel_names;
use crate::join::tables::{
    CallId, Interval, Maybe, Operation, OperationId, RangeId, RangesBy, SAME_ID, What, WholeGraph,
    Work,
};

/// How a GPU operation came to its range. More ways will follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Attribution {
    /// The call that caused it was made in the range: known by CUPTI's correlation id, exact.
    Launch,
    /// As [`Launch`](Self::Launch), but the call was made on another thread than the range's, to which a
    /// [`Context`](crate::Context) was handed.
    Handed,
    /// By thread and time: the call that caused it was made on the range's thread, between its start and its end. What a
    /// capture of Nsight Systems gives, in which calls do not say their range.
    Contained,
    /// By time alone: it started on the GPU while the host was in the range, whoever asked for it. Only where that was
    /// asked for ([`Query::by_window`](crate::query::Query::by_window)).
    Window,
    /// No range was open where the call was made, or the call is not known.
    None,
}

/// What kind of GPU operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OperationKind {
    /// A kernel ran.
    Kernel,
    /// Memory was copied.
    Copy,
    /// Memory was filled.
    Memset,
    /// A CUDA graph ran and was traced as one interval. What ran in it has no records.
    Graph,
}

/// A kernel, a copy, a memset, or a CUDA graph that was traced as one interval.
#[derive(Debug, Clone, Copy)]
pub struct GpuOperation<'a> {
    pub(super) profile: &'a Profile,
    pub(super) id: OperationId,
    /// The range that a query by time found it in.
    pub(super) window: Maybe<RangeId>,
}

impl<'a> GpuOperation<'a> {
    /// The same, as a query by time found it.
    pub(crate) fn in_window(self, range: RangeId) -> Self {
        Self { window: Some(range).into(), ..self }
    }

    pub(crate) fn profile(&self) -> &'a Profile {
        self.profile
    }

    pub(crate) fn row(&self) -> &'a Operation {
        &self.profile.store.operations[self.id.at()]
    }

    pub(crate) fn work(&self) -> &'a Work {
        self.profile.store.work(self.row())
    }

    /// True for a kernel of communication between GPUs, by its name.
    pub(crate) fn is_collective(&self) -> bool {
        self.profile.collectives().contains(self.row().work)
    }

    /// Its number among all operations of the profile, by start.
    pub fn number(&self) -> usize {
        self.id.at()
    }

    /// What kind it is of.
    pub fn kind(&self) -> OperationKind {
        match self.work().what {
            What::Kernel { .. } => OperationKind::Kernel,
            What::Copy(_) => OperationKind::Copy,
            What::Memset(_) => OperationKind::Memset,
            What::Graph(_) => OperationKind::Graph,
        }
    }

    /// When it started on the GPU, since the session's start. `None` where CUPTI had no timestamps.
    pub fn start(&self) -> Option<Duration> {
        self.row().time().map(|time| self.profile.since_start(time.start_ns))
    }

    /// When it ended on the GPU, since the session's start. `None` where CUPTI had no timestamps.
    pub fn end(&self) -> Option<Duration> {
        self.row().time().map(|time| self.profile.since_start(time.end_ns))
    }

    /// How long it ran on the GPU. `None` where CUPTI had no timestamps.
    pub fn gpu_time(&self) -> Option<Duration> {
        self.row().time().map(|time| Duration::from_nanos(Interval::ns(time)))
    }

    /// It as a kernel, if it is one.
    pub fn as_kernel(&self) -> Option<Kernel<'a>> {
        match self.work().what {
            What::Kernel { names, mut details } => {
                (details.span, details.correlation_id) = self.instance();
                let store = &self.profile.store;
                let name = |id| store.names.get(id);
                let demangled = names.demangled.map(name);
                Some(Kernel { operation: *self, name: name(names.name), demangled, details })
            }
            _ => None,
        }
    }

    /// It as a copy, if it is one.
    pub fn as_copy(&self) -> Option<Copy<'a>> {
        match self.work().what {
            What::Copy(mut details) => {
                (details.span, details.correlation_id) = self.instance();
                if details.runtime_correlation_id == Some(SAME_ID) {
                    details.runtime_correlation_id = Some(self.correlation_id());
                }
                Some(Copy { operation: *self, details })
            }
            _ => None,
        }
    }

    /// It as a memset, if it is one.
    pub fn as_memset(&self) -> Option<Memset<'a>> {
        match self.work().what {
            What::Memset(mut details) => {
                (details.span, details.correlation_id) = self.instance();
                Some(Memset { operation: *self, details })
            }
            _ => None,
        }
    }

    /// It as a graph that was traced as one interval, if it is one.
    pub fn as_graph(&self) -> Option<Graph<'a>> {
        match self.work().what {
            What::Graph(graph) => Some(Graph { operation: *self, graph }),
            _ => None,
        }
    }

    /// What the store does not keep with what many operations share.
    fn instance(&self) -> (cupti::Span, u32) {
        let mut span = cupti::Span::default();
        if let Some(time) = self.row().time() {
            (span.start_ns, span.end_ns) = (time.start_ns, time.end_ns);
        }
        (span, self.row().correlation_id)
    }

    /// The id that the call that caused it has too.
    pub fn correlation_id(&self) -> u32 {
        self.row().correlation_id
    }

    /// The device's CUDA ordinal.
    pub fn device(&self) -> u32 {
        self.work().place.device
    }

    /// CUPTI's id of the stream; contexts number theirs apart.
    pub fn stream(&self) -> u32 {
        self.work().place.stream
    }

    /// CUPTI's id of the context.
    pub fn context(&self) -> u32 {
        self.work().place.context
    }

    /// The kernel's id of its process; 0 if one process was recorded, by itself.
    pub fn process_id(&self) -> u32 {
        self.work().process
    }

    /// The node of a CUDA graph that it was.
    pub fn graph_node(&self) -> Option<cupti::GraphNode> {
        self.work().what.graph_node()
    }

    /// Where and when it ran.
    pub(crate) fn interval(&self) -> Option<Interval> {
        self.row().time()
    }

    pub(crate) fn call_id(&self) -> Option<CallId> {
        self.row().call.get()
    }

    /// The call that caused it.
    pub fn call(&self) -> Option<ApiCall<'a>> {
        self.row().call.get().map(|id| self.profile.call(id))
    }

    /// The range in which that call was made; [`attribution`](Self::attribution) says how it is known.
    #[must_use]
    pub fn range(&self) -> Option<Range<'a>> {
        let profile = self.profile;
        let range = self.window.get().or_else(|| profile.store.range_of(self.row().call));
        range.map(|id| Range { profile, id })
    }

    /// All ranges that it belongs to, each once: first [`range`](Self::range), for which it counts, and then those that were
    /// [joined](crate::Context::join) with it. Mostly one, and none outside of ranges. Some of them may lie in others.
    pub fn ranges(&self) -> impl Iterator<Item = Range<'a>> + Clone + use<'a> {
        let profile = self.profile;
        let others = if self.window.get().is_some() { &[][..] } else { self.shares() };
        self.range().into_iter().chain(others.iter().map(move |&id| Range { profile, id }))
    }

    /// True if it belongs to several ranges.
    pub fn is_shared(&self) -> bool {
        self.ranges().nth(1).is_some()
    }

    fn shares(&self) -> &'a [RangeId] {
        let store = &self.profile.store;
        self.row().call.get().map_or(&[], |call| store.shares_of(&store.calls[call.at()]))
    }

    /// The range in which the node of a CUDA graph that it was an execution of was made: by capture, or by hand. `None`
    /// where it was no such node, where the node was made outside any range, or before the session. The range of its
    /// launch is [`range`](Self::range).
    #[must_use]
    pub fn captured_in(&self) -> Option<Range<'a>> {
        let profile = self.profile;
        self.row().captured.get().map(|id| Range { profile, id })
    }

    /// How it came to that range.
    pub fn attribution(&self) -> Attribution {
        if self.window.get().is_some() {
            return Attribution::Window;
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

/// A kernel that ran.
#[derive(Debug, Clone, Copy)]
pub struct Kernel<'a> {
    operation: GpuOperation<'a>,
    name: &'a str,
    /// Where the source of the profile had it.
    demangled: Option<&'a str>,
    details: cupti::Kernel,
}

impl<'a> Kernel<'a> {
    /// Its name as the compiler made it.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// A C++ name without its parameters, as the report shows it; another as it is. Costs microseconds.
    pub fn demangled_name(&self) -> String {
        match self.demangled {
            Some(name) => kernel_names::without_parameters(name),
            None => kernel_names::demangled(self.name),
        }
    }

    /// With its parameters, where the source of the profile had it so.
    pub(crate) fn demangled(&self) -> Option<&'a str> {
        self.demangled
    }

    /// Blocks in x, y, z.
    pub fn grid(&self) -> [u32; 3] {
        self.details.grid
    }

    /// Threads in a block in x, y, z.
    pub fn block(&self) -> [u32; 3] {
        self.details.block
    }

    /// The record's other fields. Its times are `CLOCK_MONOTONIC`'s.
    pub fn details(&self) -> &cupti::Kernel {
        &self.details
    }
}

impl<'a> std::ops::Deref for Kernel<'a> {
    type Target = GpuOperation<'a>;
    fn deref(&self) -> &GpuOperation<'a> {
        &self.operation
    }
}

/// A copy that ran.
#[derive(Debug, Clone, Copy)]
pub struct Copy<'a> {
    operation: GpuOperation<'a>,
    details: cupti::Memcpy,
}

impl Copy<'_> {
    /// From where to where.
    pub fn kind(&self) -> cupti::CopyKind {
        self.details.kind
    }

    /// Bytes moved.
    pub fn bytes(&self) -> u64 {
        self.details.bytes
    }

    /// The kind of memory it read (`srcKind`).
    pub fn source(&self) -> cupti::MemoryKind {
        self.details.source
    }

    /// The kind of memory it wrote (`dstKind`).
    pub fn destination(&self) -> cupti::MemoryKind {
        self.details.destination
    }

    /// Bytes over its time on the GPU, in GB/s (10^9 bytes a second). `None` where CUPTI had no timestamps, or both are
    /// the same.
    pub fn bandwidth(&self) -> Option<f64> {
        let ns = self.operation.row().ns();
        // A byte a nanosecond is a GB/s.
        (ns != 0).then(|| self.details.bytes as f64 / ns as f64)
    }

    /// The record's other fields. Its times are `CLOCK_MONOTONIC`'s.
    pub fn details(&self) -> &cupti::Memcpy {
        &self.details
    }
}

impl<'a> std::ops::Deref for Copy<'a> {
    type Target = GpuOperation<'a>;
    fn deref(&self) -> &GpuOperation<'a> {
        &self.operation
    }
}

/// A memset that ran.
#[derive(Debug, Clone, Copy)]
pub struct Memset<'a> {
    operation: GpuOperation<'a>,
    details: cupti::Memset,
}

impl Memset<'_> {
    /// Bytes written.
    pub fn bytes(&self) -> u64 {
        self.details.bytes
    }

    /// The record's other fields. Its times are `CLOCK_MONOTONIC`'s.
    pub fn details(&self) -> &cupti::Memset {
        &self.details
    }
}

impl<'a> std::ops::Deref for Memset<'a> {
    type Target = GpuOperation<'a>;
    fn deref(&self) -> &GpuOperation<'a> {
        &self.operation
    }
}

/// A launch of a CUDA graph that was traced as one interval, from the start of its first node to the end of its last:
/// what CUPTI's kind `GRAPH_TRACE` records, and `nsys profile --cuda-graph-trace=graph`. How many kernels ran in it, and
/// when it was idle, is not recorded.
#[derive(Debug, Clone, Copy)]
pub struct Graph<'a> {
    operation: GpuOperation<'a>,
    graph: WholeGraph,
}

impl Graph<'_> {
    /// CUPTI's id of the executable graph.
    pub fn executable_id(&self) -> u32 {
        self.graph.executable
    }

    /// CUPTI's id of the graph that it was instantiated from. `None` where the source has none: CUPTI's records do not,
    /// captures of Nsight Systems do.
    pub fn template_id(&self) -> Option<u32> {
        self.graph.template
    }
}

impl<'a> std::ops::Deref for Graph<'a> {
    type Target = GpuOperation<'a>;
    fn deref(&self) -> &GpuOperation<'a> {
        &self.operation
    }
}
