//! Selections of GPU operations and what is computed from them: groups, gaps and their causes, launches, overlap, waits,
//! memory, steps. [`Query`] starts at [`Profile::query`].

mod gap;
mod group;
mod launch;
mod memory;
mod overlap;
mod plan;
mod step;
#[cfg(test)]
mod tests;
mod timeline;
mod tree;
mod wait;

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use cupti::CopyKind;

use crate::base::kernel_names::Pattern;
use crate::base::statistics::{Statistics, as_ns};
use crate::base::units::{nanoseconds as ns, time};
use crate::join::busy::DeviceSweep;
use crate::join::range_tree::NodeId;
use crate::join::tables::RangeId;
use crate::profile::{GpuOperation, OperationKind, Profile, Range, RangeNode};
pub use gap::{Gap, Gaps, HostActivity, IdleCause, IdleReason};
pub use group::{CallThread, Group, Groups, KernelName, RangePath, StreamKey, TransferKey};
pub use launch::{Launch, LaunchGroup, Launches};
pub use memory::{DeviceMemory, MemoryEvent, MemoryPoint, MemoryUse};
pub use overlap::Overlap;
pub use plan::Operations;
pub use step::{Step, Steps};
pub(crate) use timeline::Timeline;
pub use tree::{Amounts, Branch, Branches};
pub use wait::{Wait, WaitTarget, Waits};

/// From a first start to a last end, since the session's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
pub struct Span {
    /// When it begins.
    #[serde(rename = "start_ns", serialize_with = "as_ns")]
    pub start: Duration,
    /// When it ends.
    #[serde(rename = "end_ns", serialize_with = "as_ns")]
    pub end: Duration,
}

impl Span {
    /// From its start to its end.
    pub fn duration(&self) -> Duration {
        self.end.saturating_sub(self.start)
    }
}

/// What operations came to on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct DeviceTimes {
    /// Its CUDA ordinal.
    pub device: u32,
    /// From the first start to the last end.
    pub span: Span,
    /// In which at least one of them ran that is no collective. A collective that waits for another rank occupies its
    /// device without computing, so that collectives are apart, in [`communication`](Self::communication).
    #[serde(rename = "busy_ns", serialize_with = "as_ns")]
    pub busy: Duration,
    /// In which only collectives ran: kernels of NCCL and the like, by name. How much of it was spent waiting for other
    /// ranks is not recorded.
    #[serde(rename = "communication_ns", serialize_with = "as_ns")]
    pub communication: Duration,
    /// The times of all, summed, whatever ran at once.
    #[serde(rename = "gpu_time_ns", serialize_with = "as_ns")]
    pub gpu_time: Duration,
}

impl DeviceTimes {
    /// The part of the span in which none of them ran.
    pub fn idle(&self) -> Duration {
        self.span.duration().saturating_sub(self.busy).saturating_sub(self.communication)
    }

    /// The part of the span that is [`busy`](Self::busy), from 0 to 1. Of no span it is 1.
    pub fn utilization(&self) -> f64 {
        let span = self.span.duration().as_secs_f64();
        if span == 0.0 { 1.0 } else { self.busy.as_secs_f64() / span }
    }
}

impl fmt::Display for DeviceTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "device {}: busy {} of {} ({:.1} %)",
            self.device,
            time(self.busy),
            time(self.span.duration()),
            100.0 * self.utilization()
        )?;
        match self.communication {
            Duration::ZERO => Ok(()),
            communication => write!(f, ", communication alone {}", time(communication)),
        }
    }
}

/// How operations come to the ranges that are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum By {
    /// By their call.
    #[default]
    Call,
    /// By the node of a CUDA graph that they were an execution of.
    Capture,
    /// By time.
    Window,
}

/// Which ranges are asked for: by place, domain and category, of each of which any may hold.
#[derive(Debug, Clone, Default)]
struct Selector {
    patterns: Vec<Pattern>,
    nodes: Vec<NodeId>,
    instances: Vec<RangeId>,
    outside: bool,
    domains: Vec<Option<String>>,
    categories: Vec<String>,
    directly: bool,
    by: By,
}

/// Which operations by what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Kind(OperationKind),
    Copies(CopyKind),
}

type Filter<'a> = Rc<dyn Fn(&GpuOperation<'a>) -> bool + 'a>;

/// A choice of GPU operations, and questions about them. Made by [`Profile::query`]; nothing is looked at before a question
/// is asked, and each costs one pass over the operations: some nanoseconds each, and
/// some tens where they are grouped.
///
/// Filters of one sort are alternatives, those of different sorts have all to hold: kernels or memsets, on stream 7 or 8.
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
/// // What the host was in while the GPU had nothing to do.
/// println!("{}", profile.query().gaps(Duration::from_micros(10)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a query that is asked nothing does nothing"]
pub struct Query<'a> {
    profile: &'a Profile,
    ranges: Selector,
    sorts: Vec<Sort>,
    names: Vec<Pattern>,
    devices: Vec<u32>,
    contexts: Vec<u32>,
    streams: Vec<u32>,
    threads: Vec<u32>,
    processes: Vec<u32>,
    /// In nanoseconds since the session's start.
    times: Vec<(u64, u64)>,
    filters: Vec<Filter<'a>>,
}

impl fmt::Debug for Query<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query")
            .field("ranges", &self.ranges)
            .field("sorts", &self.sorts)
            .field("names", &self.names)
            .field("devices", &self.devices)
            .field("contexts", &self.contexts)
            .field("streams", &self.streams)
            .field("threads", &self.threads)
            .field("processes", &self.processes)
            .field("times", &self.times)
            .field("filters", &self.filters.len())
            .finish_non_exhaustive()
    }
}

impl Profile {
    /// All GPU operations, to be narrowed down and asked about.
    pub fn query(&self) -> Query<'_> {
        Query {
            profile: self,
            ranges: Selector::default(),
            sorts: Vec::new(),
            names: Vec::new(),
            devices: Vec::new(),
            contexts: Vec::new(),
            streams: Vec::new(),
            threads: Vec::new(),
            processes: Vec::new(),
            times: Vec::new(),
            filters: Vec::new(),
        }
    }
}

impl<'a> Range<'a> {
    /// The operations asked for in it and in ranges within it, to be narrowed down and asked about.
    pub fn query(&self) -> Query<'a> {
        self.profile.query().in_instance(*self)
    }
}

impl<'a> RangeNode<'a> {
    /// The operations asked for in its ranges and in ranges within them, to be narrowed down and asked about.
    pub fn query(&self) -> Query<'a> {
        self.profile.query().in_node(*self)
    }
}

impl<'a> Query<'a> {
    pub(crate) fn profile(&self) -> &'a Profile {
        self.profile
    }
}

/// Which operations.
impl<'a> Query<'a> {
    /// Asked for in a range of this name, path or pattern, as [`Profile::range`] has it, or in ranges within it.
    pub fn in_range(mut self, path: &str) -> Self {
        self.ranges.patterns.push(Pattern::new(path));
        self
    }

    /// Asked for in the ranges of this path of the tree, or within them.
    pub fn in_node(mut self, node: RangeNode<'a>) -> Self {
        self.ranges.nodes.push(node.id);
        self
    }

    /// Asked for in this one range, or in ranges within it.
    pub fn in_instance(mut self, range: Range<'a>) -> Self {
        self.ranges.instances.push(range.id);
        self
    }

    /// Asked for outside any range, or by no call that is known.
    pub fn outside_ranges(mut self) -> Self {
        self.ranges.outside = true;
        self
    }

    /// In a range of this domain; `None` is the default one. With [`in_range`](Self::in_range) one range has to be both.
    pub fn domain<'d>(mut self, domain: impl Into<Option<&'d str>>) -> Self {
        self.ranges.domains.push(domain.into().map(str::to_owned));
        self
    }

    /// In a range of this category; otherwise as [`domain`](Self::domain).
    pub fn category(mut self, category: &str) -> Self {
        self.ranges.categories.push(category.to_owned());
        self
    }

    /// In the ranges themselves, not in ranges within them: exclusive where it is otherwise inclusive.
    pub fn directly(mut self) -> Self {
        self.ranges.directly = true;
        self
    }

    /// By the range in which a node of a CUDA graph was made instead of the one in which the graph was launched. Operations
    /// that were no such node are left out.
    pub fn replays(mut self) -> Self {
        self.ranges.by = By::Capture;
        self
    }

    /// By time alone: what started on the GPU while the host was in such a range, whoever asked for it. It counts for the
    /// range that began last, which is then its [`range`](GpuOperation::range), by
    /// [`Attribution::Window`](crate::profile::Attribution::Window). As exact as CUPTI's clock
    /// ([`Health::clock_error_ns`](crate::Health::clock_error_ns)). [`directly`](Self::directly) and
    /// [`outside_ranges`](Self::outside_ranges) change nothing of it.
    pub fn by_window(mut self) -> Self {
        self.ranges.by = By::Window;
        self
    }

    /// Whose call was made on this thread, by the kernel's id.
    pub fn thread(mut self, id: u32) -> Self {
        self.threads.push(id);
        self
    }

    /// Of this process, by the kernel's id; 0 if one process was recorded, by itself.
    pub fn process(mut self, id: u32) -> Self {
        self.processes.push(id);
        self
    }

    /// On this device, by CUDA ordinal.
    pub fn device(mut self, device: u32) -> Self {
        self.devices.push(device);
        self
    }

    /// In this context, by CUPTI's id.
    pub fn context(mut self, context: u32) -> Self {
        self.contexts.push(context);
        self
    }

    /// On this stream, by CUPTI's id; contexts number theirs apart.
    pub fn stream(mut self, stream: u32) -> Self {
        self.streams.push(stream);
        self
    }

    /// That ran at some time from `start` to before `end`, since the session's start. They count whole.
    pub fn between(mut self, start: Duration, end: Duration) -> Self {
        self.times.push((ns(start), ns(end)));
        self
    }

    /// Kernels.
    pub fn kernels(mut self) -> Self {
        self.sorts.push(Sort::Kind(OperationKind::Kernel));
        self
    }

    /// Copies.
    pub fn copies(mut self) -> Self {
        self.sorts.push(Sort::Kind(OperationKind::Copy));
        self
    }

    /// Copies in this direction.
    pub fn copies_of(mut self, kind: CopyKind) -> Self {
        self.sorts.push(Sort::Copies(kind));
        self
    }

    /// Memsets.
    pub fn memsets(mut self) -> Self {
        self.sorts.push(Sort::Kind(OperationKind::Memset));
        self
    }

    /// CUDA graphs that were traced as one interval.
    pub fn graphs(mut self) -> Self {
        self.sorts.push(Sort::Kind(OperationKind::Graph));
        self
    }

    /// Kernels of this name, as the compiler made it or as the report shows it. A `*` stands for any text.
    pub fn named(mut self, name: &str) -> Self {
        self.names.push(Pattern::new(name));
        self
    }

    /// For which this is true. Of several such filters all have to hold.
    pub fn filter(mut self, is_wanted: impl Fn(&GpuOperation<'a>) -> bool + 'a) -> Self {
        self.filters.push(Rc::new(is_wanted));
        self
    }
}

/// What they came to.
impl<'a> Query<'a> {
    /// Each of them by start, with its call and range. Those without timestamps come first.
    pub fn iter(&self) -> Operations<'a> {
        Operations::new(self)
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.iter().count() as u64
    }

    /// Bytes copied and set.
    pub fn bytes(&self) -> u64 {
        self.iter().fold(0, |sum, operation| sum.saturating_add(group::bytes(&operation)))
    }

    /// Their times on the GPU, summed: those that ran at once count each.
    pub fn gpu_time(&self) -> Duration {
        let ns = self.iter().fold(0_u64, |sum, operation| sum.saturating_add(operation.row().ns()));
        Duration::from_nanos(ns)
    }

    /// What they came to on each device, by its number. Operations without timestamps are left out.
    pub fn devices(&self) -> Vec<DeviceTimes> {
        device_times(self.profile, self.iter())
    }

    /// The time in which at least one of them ran that is no collective: their union on each device, summed over devices.
    pub fn busy_time(&self) -> Duration {
        self.sum_of(|device| device.busy)
    }

    /// The time in which only collectives ran, summed over devices: see [`DeviceTimes::communication`].
    pub fn communication_time(&self) -> Duration {
        self.sum_of(|device| device.communication)
    }

    fn sum_of(&self, time: fn(&DeviceTimes) -> Duration) -> Duration {
        self.devices().iter().map(time).fold(Duration::ZERO, Duration::saturating_add)
    }

    /// The time in which none of them ran, between the first start and the last end on each device, summed over devices.
    /// [`gaps`](Self::gaps) says why.
    pub fn idle(&self) -> Duration {
        self.sum_of(DeviceTimes::idle)
    }

    /// From the first start to the last end, on whatever device. `None` if there are none with timestamps.
    pub fn span(&self) -> Option<Span> {
        let devices = self.devices();
        let start = devices.iter().map(|device| device.span.start).min()?;
        let end = devices.iter().map(|device| device.span.end).max()?;
        Some(Span { start, end })
    }

    /// Of their times on the GPU. Those without timestamps are left out.
    pub fn statistics(&self) -> Statistics {
        let times = self.iter().filter_map(|operation| operation.interval());
        Statistics::of_ns(times.map(|time| time.ns()).collect())
    }
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
        span: Span {
            start: profile.since_start(sweep.span().start_ns),
            end: profile.since_start(sweep.span().end_ns),
        },
        busy: Duration::from_nanos(sweep.busy_ns()),
        communication: Duration::from_nanos(sweep.communication_ns()),
        gpu_time: Duration::from_nanos(sweep.gpu_ns()),
    };
    sweeps.into_iter().map(times).collect()
}
