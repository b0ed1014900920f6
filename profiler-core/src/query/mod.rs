//! Queries select GPU operations and compute groups, gaps and their causes, launches, overlap,
//! waits, memory and steps. [`Query`] starts at [`Profile::query`].
//!
//! ```
//! use std::time::Duration;
//!
//! use profiler_core::Profile;
//! use profiler_core::query::Step;
//!
//! # fn main() -> Result<(), profiler_core::Error> {
//! # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
//! let profile = Profile::load(file)?;
//! let backward = profile.query().in_range("batch/backward").kernels();
//! println!("busy {:?} of {:?}", backward.busy_time(), backward.span().map(|span| span.duration()));
//! for kernel in backward.by_kernel().top_share(0.9) {
//!     println!("{:.1} % {}: {}", 100.0 * kernel.share(), kernel.key(), kernel.statistics());
//! }
//!
//! // What the host did while the GPU was idle for 10 us or more.
//! println!("{}", profile.query().gaps(Duration::from_micros(10)));
//! // From call to kernel; copies with their GB/s; copies hidden behind kernels; waits by range.
//! println!("{}", profile.query().kernels().launches().sum().latency);
//! println!("{}", profile.query().copies().by_transfer());
//! println!("{:?}", profile.query().overlap());
//! println!("{}", profile.waits().by_range());
//! // The instances of a range as steps, without warm-up; outliers.
//! let steps = profile.steps("batch").warm();
//! println!("{steps}");
//! for step in steps.outliers(5.0, Step::host_time) {
//!     println!("step {} took {:?}", step.number(), step.host_time());
//! }
//! # Ok(())
//! # }
//! ```

mod gap;
mod group;
mod instructions;
mod launch;
mod memory;
mod overlap;
mod plan;
mod request;
mod step;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod timeline;
mod unattributed;
mod wait;

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use cupti::CopyKind;
use profiler_base::kernel_names::Pattern;
use profiler_base::setters;
use profiler_base::statistics::Statistics;
use profiler_base::units::{nanoseconds as ns, percent, time};

use crate::join::busy::DeviceSweep;
use crate::join::range_tree::NodeId;
use crate::join::tables::{Interval, OperationId, RangeId};
use crate::profile::{GpuOperation, OperationKind, Profile, Range, RangeNode};
pub use gap::{Gap, GapPart, GapSample, GapWait, Gaps, IdleCause, IdleReason};
pub use group::{CallThread, KernelName, RangePath, StreamKey, TransferKey};
pub use instructions::{
    InstructionCounts, Instructions, KernelOfSamples, SampledInstruction, SampledPlace, Stall,
    Stalls,
};
pub use launch::{Launch, LaunchGroup, Launches};
pub use memory::{DeviceMemory, MemoryEvent, MemoryPoint};
pub use overlap::Overlap;
use plan::Operations;
pub use profiler_base::aggregate::{Group, Groups};
pub use request::{Endpoint, Request, RequestQuery, RequestRange, Requests};
pub use step::{Step, Steps};
pub use unattributed::UnattributedThread;
pub use wait::{Wait, WaitTarget, Waits};

/// An interval since the session's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// The start, since the session's start.
    pub start: Duration,
    /// The end, since the session's start.
    pub end: Duration,
}

#[cfg(feature = "serde")]
profiler_base::serialize_fields!(Span, "Span", |span| {
    "start_ns": ns(span.start),
    "end_ns": ns(span.end),
});

impl Span {
    fn since_start(profile: &Profile, time: Interval) -> Self {
        let [start, end] = [time.start_ns, time.end_ns].map(|ns| profile.since_start(ns));
        Self { start, end }
    }

    /// The length of the interval.
    pub fn duration(&self) -> Duration {
        self.end.saturating_sub(self.start)
    }
}

/// Busy and idle times of operations on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceTimes {
    /// The device's CUDA ordinal.
    pub device: u32,
    /// The interval from the first start to the last end.
    pub span: Span,
    /// The time in which an operation other than a collective ran. A collective that waits for
    /// another rank occupies its device without computing, so
    /// [`communication`](Self::communication) is separate.
    pub busy: Duration,
    /// The time in which only collectives ran: kernels of NCCL and similar libraries, recognized by
    /// name. It includes waits for other ranks, which are not recorded.
    pub communication: Duration,
    /// The sum of all times; concurrent operations count separately.
    pub gpu_time: Duration,
}

#[cfg(feature = "serde")]
profiler_base::serialize_fields!(DeviceTimes, "DeviceTimes", |times| {
    "device": times.device,
    "span": times.span,
    "busy_ns": ns(times.busy),
    "communication_ns": ns(times.communication),
    "gpu_time_ns": ns(times.gpu_time),
});

impl DeviceTimes {
    /// The time of the span in which no operation ran.
    pub fn idle(&self) -> Duration {
        self.span.duration().saturating_sub(self.busy).saturating_sub(self.communication)
    }

    /// The share of the span that is [`busy`](Self::busy), 0 to 1; 1 for an empty span.
    pub fn utilization(&self) -> f64 {
        let span = self.span.duration().as_secs_f64();
        if span == 0.0 { 1.0 } else { self.busy.as_secs_f64() / span }
    }
}

impl fmt::Display for DeviceTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "device {}: busy {} of {} ({})",
            self.device,
            time(self.busy),
            time(self.span.duration()),
            percent(self.utilization())
        )?;
        match self.communication {
            Duration::ZERO => Ok(()),
            communication => write!(f, ", communication alone {}", time(communication)),
        }
    }
}

/// The attribution of operations to ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum AttributionMode {
    /// By their call.
    #[default]
    Call,
    /// By the CUDA graph node that they executed.
    Capture,
    /// By time alone.
    Window,
}

/// Selects ranges by position, domain and category. Alternatives of one filter are combined with
/// "or".
#[derive(Debug, Clone, Default)]
struct Selector {
    /// Operations by start, instead of the operations of ranges.
    rows: Option<Rc<[OperationId]>>,
    patterns: Vec<Pattern>,
    nodes: Vec<NodeId>,
    instances: Vec<RangeId>,
    outside: bool,
    domains: Vec<Option<String>>,
    categories: Vec<String>,
    directly: bool,
    mode: AttributionMode,
    with_inferred: bool,
}

/// A filter on the kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KindFilter {
    Kind(OperationKind),
    Copies(CopyKind),
}

type Filter<'a> = Rc<dyn Fn(&GpuOperation<'a>) -> bool + 'a>;

/// A lazy selection of GPU operations, from [`Profile::query`]. Each result costs one pass over the
/// operations: some nanoseconds per operation, or some tens of nanoseconds with grouping.
///
/// Filters of one kind are alternatives; filters of different kinds must all match: kernels or
/// memsets, on stream 7 or 8.
///
/// ```no_run
/// use std::time::Duration;
///
/// # fn main() -> Result<(), profiler_core::Error> {
/// # let profile = profiler_core::Profile::load("run.gpuprof")?;
/// let forward = profile.query().in_range("batch/forward").kernels();
/// println!("{} kernels, {:?} on the GPU", forward.count(), forward.gpu_time());
/// println!("median {:?}", forward.statistics().median());
/// for group in forward.by_kernel().top_share(0.9) {
///     println!("{:5.1} % {}", 100.0 * group.share(), group.key());
/// }
/// // What the host did while the GPU was idle.
/// println!("{}", profile.query().gaps(Duration::from_micros(10)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a query does nothing until a result is computed"]
pub struct Query<'a> {
    profile: &'a Profile,
    selection: Selection,
    filters: Vec<Filter<'a>>,
}

/// The filters of a query, except closures.
#[derive(Debug, Clone, Default)]
struct Selection {
    ranges: Selector,
    kinds: Vec<KindFilter>,
    names: Vec<Pattern>,
    /// The ranges in which graph nodes were captured.
    captured: Vec<Pattern>,
    devices: Vec<u32>,
    contexts: Vec<u32>,
    streams: Vec<u32>,
    threads: Vec<u32>,
    processes: Vec<u32>,
    /// Nanoseconds since the session's start.
    times: Vec<(u64, u64)>,
}

impl fmt::Debug for Query<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query")
            .field("selection", &self.selection)
            .field("filters", &self.filters.len())
            .finish_non_exhaustive()
    }
}

impl Profile {
    /// A query of all GPU operations.
    pub fn query(&self) -> Query<'_> {
        Query { profile: self, selection: Selection::default(), filters: Vec::new() }
    }
}

impl<'a> Range<'a> {
    /// A query of the operations submitted in this range and its descendants.
    pub fn query(&self) -> Query<'a> {
        self.profile.query().in_instance(*self)
    }
}

impl<'a> RangeNode<'a> {
    /// A query of the operations submitted in the node's ranges and their descendants.
    pub fn query(&self) -> Query<'a> {
        self.profile.query().in_node(*self)
    }
}

impl<'a> Query<'a> {
    /// The profile that it selects from.
    pub fn profile(&self) -> &'a Profile {
        self.profile
    }

    /// Selects these operations, given by start.
    pub fn with_operations(mut self, rows: Vec<OperationId>) -> Self {
        self.selection.ranges.rows = Some(rows.into());
        self
    }
}

/// Filters.
impl<'a> Query<'a> {
    setters! {
        /// Selects operations submitted in ranges of this name, path or pattern (see
        /// [`Profile::range`]), or in their descendants.
        in_range(path: &str) selection.ranges.patterns += Pattern::new(path);
        /// Selects operations submitted in the ranges of this node, or in their descendants.
        in_node(node: RangeNode<'a>) selection.ranges.nodes += node.id;
        /// Selects operations submitted in this range, or in its descendants.
        in_instance(range: Range<'a>) selection.ranges.instances += range.id;
        /// Selects operations submitted outside any range, or by an unknown call.
        outside_ranges() selection.ranges.outside = true;
        /// Selects ranges of this category; otherwise like [`domain`](Self::domain).
        category(category: &str) selection.ranges.categories += category.to_owned();
        /// Excludes descendants of the selected ranges: exclusive instead of inclusive.
        directly() selection.ranges.directly = true;
        /// Attributes executions of CUDA graph nodes to the range that created the node instead of
        /// the range that launched the graph
        /// ([`Attribution::Capture`](crate::profile::Attribution::Capture)). Other operations are
        /// excluded.
        replays() selection.ranges.mode = AttributionMode::Capture;
        /// Selects executions of CUDA graph nodes that were created in ranges of this name, path or
        /// pattern, or in their descendants. [`in_range`](Self::in_range) still selects by the
        /// launch.
        captured_in(path: &str) selection.captured += Pattern::new(path);
        /// Attributes work without a range to its [inferred range](GpuOperation::inferred_range),
        /// if it has one ([`Attribution::Inferred`](crate::profile::Attribution::Inferred)). Other
        /// attribution is unchanged.
        with_inferred() selection.ranges.with_inferred = true;
        /// Selects by time alone: operations that started on the GPU while the host was in such a
        /// range, whatever thread submitted them. An operation is attributed to the range that
        /// began last ([`Attribution::Window`](crate::profile::Attribution::Window)), as exactly as
        /// CUPTI's clock allows ([`Facts::clock_error`](crate::profile::Facts::clock_error)).
        /// [`directly`](Self::directly) and [`outside_ranges`](Self::outside_ranges) have no
        /// effect.
        by_window() selection.ranges.mode = AttributionMode::Window;
        /// Selects operations submitted on this thread, by the kernel's id.
        thread(id: u32) selection.threads += id;
        /// Selects a process by its id ([`Process::id`](crate::profile::Process::id)); 0 if a
        /// process recorded itself.
        process(id: u32) selection.processes += id;
        /// Selects a device by CUDA ordinal.
        device(device: u32) selection.devices += device;
        /// Selects a context by CUPTI's id.
        context(context: u32) selection.contexts += context;
        /// Selects a stream by CUPTI's id, which is unique only within a context.
        stream(stream: u32) selection.streams += stream;
        /// Selects operations that ran in `start..end` since the session's start. Their whole time
        /// counts.
        between(start: Duration, end: Duration) selection.times += (ns(start), ns(end));
        /// Selects kernels.
        kernels() selection.kinds += KindFilter::Kind(OperationKind::Kernel);
        /// Selects copies.
        copies() selection.kinds += KindFilter::Kind(OperationKind::Copy);
        /// Selects copies in this direction.
        copies_of(kind: CopyKind) selection.kinds += KindFilter::Copies(kind);
        /// Selects memsets.
        memsets() selection.kinds += KindFilter::Kind(OperationKind::Memset);
        /// Selects CUDA graphs traced as one interval.
        graphs() selection.kinds += KindFilter::Kind(OperationKind::Graph);
        /// Selects kernels by mangled or displayed name; `*` matches any text.
        named(name: &str) selection.names += Pattern::new(name);
    }

    /// Selects ranges of this domain; `None` is the default domain. Combined with
    /// [`in_range`](Self::in_range), the same range must match both.
    pub fn domain<'d>(mut self, domain: impl Into<Option<&'d str>>) -> Self {
        self.selection.ranges.domains.push(domain.into().map(str::to_owned));
        self
    }

    /// Selects operations for which `is_wanted` is true. Several closures must all hold.
    pub fn filter(mut self, is_wanted: impl Fn(&GpuOperation<'a>) -> bool + 'a) -> Self {
        self.filters.push(Rc::new(is_wanted));
        self
    }
}

/// Results.
impl<'a> Query<'a> {
    /// The operations by start, first the operations without timestamps.
    pub fn iter(&self) -> impl Iterator<Item = GpuOperation<'a>> + use<'a> {
        Operations::new(self)
    }

    /// The number of operations.
    pub fn count(&self) -> u64 {
        self.iter().count() as u64
    }

    /// Bytes copied and set.
    pub fn bytes(&self) -> u64 {
        self.iter().fold(0, |sum, operation| sum.saturating_add(group::bytes(&operation)))
    }

    /// The sum of GPU times; concurrent operations count separately.
    pub fn gpu_time(&self) -> Duration {
        let ns = self.iter().fold(0_u64, |sum, operation| sum.saturating_add(operation.row().ns()));
        Duration::from_nanos(ns)
    }

    /// Busy and idle times by device. Operations without timestamps are excluded.
    pub fn devices(&self) -> Vec<DeviceTimes> {
        device_times(self.profile, self.iter())
    }

    /// The time in which an operation other than a collective ran, summed over devices.
    pub fn busy_time(&self) -> Duration {
        sum(self.devices().iter().map(|device| device.busy))
    }

    /// The time in which only collectives ran, summed over devices
    /// ([`DeviceTimes::communication`]).
    pub fn communication_time(&self) -> Duration {
        sum(self.devices().iter().map(|device| device.communication))
    }

    /// The time in which no operation ran between the first start and the last end on each device,
    /// summed over devices. [`gaps`](Self::gaps) has the causes.
    pub fn idle(&self) -> Duration {
        sum(self.devices().iter().map(DeviceTimes::idle))
    }

    /// The interval from the first start to the last end on any device. `None` without timestamps.
    pub fn span(&self) -> Option<Span> {
        span_of(&self.devices())
    }

    /// Statistics of GPU times. Operations without timestamps are excluded.
    pub fn statistics(&self) -> Statistics {
        let times = self.iter().filter_map(|operation| operation.interval());
        Statistics::from_nanos(times.map(|time| time.ns()).collect())
    }
}

/// Sums times; saturates at `Duration::MAX`.
fn sum(times: impl Iterator<Item = Duration>) -> Duration {
    times.fold(Duration::ZERO, Duration::saturating_add)
}

fn span_of(devices: &[DeviceTimes]) -> Option<Span> {
    let start = devices.iter().map(|device| device.span.start).min()?;
    let end = devices.iter().map(|device| device.span.end).max()?;
    Some(Span { start, end })
}

fn device_times<'a>(
    profile: &'a Profile,
    by_start: impl Iterator<Item = GpuOperation<'a>>,
) -> Vec<DeviceTimes> {
    let mut sweeps: BTreeMap<u32, DeviceSweep> = BTreeMap::new();
    for operation in by_start {
        if let Some(time) = operation.interval() {
            let sweep = sweeps.entry(operation.device()).or_default();
            sweep.add(time, operation.is_collective());
        }
    }
    let times = |(device, sweep): (u32, DeviceSweep)| DeviceTimes {
        device,
        span: Span::since_start(profile, sweep.span()),
        busy: Duration::from_nanos(sweep.busy_ns()),
        communication: Duration::from_nanos(sweep.communication_ns()),
        gpu_time: Duration::from_nanos(sweep.gpu_ns()),
    };
    sweeps.into_iter().map(times).collect()
}
