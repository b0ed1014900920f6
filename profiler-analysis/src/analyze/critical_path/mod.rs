//! The critical path of a run, and the predicted effect of changes.
//!
//! ```
//! use profiler_analysis::prelude::*;
//! use profiler_core::Profile;
//! use profiler_analysis::critical_path::WhatIf;
//!
//! # fn main() -> Result<(), profiler_analysis::Error> {
//! # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
//! let profile = Profile::load(file)?;
//! let dependencies = profile.dependencies();
//! println!("{}", dependencies.critical_path());
//! if let Some(path) = dependencies.critical_path_of("batch/backward") {
//!     for row in path.rows().iter().take(3) {
//!         println!("{} {}: {:?} on the path", row.kind, row.name, row.on_path);
//!     }
//! }
//! // What would it bring?
//! let change = WhatIf::Kernel { name: "*gemm*".to_owned(), times: 2.0 };
//! match dependencies.predict(change) {
//!     Ok(prediction) => println!("{prediction}"),
//!     Err(why) => println!("no prediction: {why}"),
//! }
//! for prediction in dependencies.best_changes(10) {
//!     println!("{prediction}");
//! }
//! println!("error of the model: {:?}", dependencies.replay_error());
//! # Ok(())
//! # }
//! ```
//!
//! # The graph
//! A thread has a point at each start and end of a call or range; an operation has two. An edge
//! states the minimum delay from one point to another. Edges are a thread's own time, operations,
//! launches, stream order, and the order in a graph launch. Waits of streams and of the host, and
//! hand-overs between threads are edges, too. In each group of edges to one point, the deciding
//! edge retains its measured time, and the others get the usual time of their kind. A replay
//! without a change therefore reproduces the recording, and the critical path has the length of the
//! step.
//!
//! # What is not recorded
//! CUDA does not record the work before an event, the edges of a graph, or a thread's wait for
//! another thread. These are inferred; [`Assumptions`] counts them. A thread's time outside calls
//! is treated as work of that thread. Ranks wait for each other in collectives with known kernels;
//! other waits of one rank for another are part of the kernel.
//!
//! # The model's error
//! [`Dependencies::replay_error`] fits the host's delays on odd steps and replays the even ones
//! with them. If the median step is off by more than 10 %, no predictions are made.
//!
//! Steps of up to 16 processes are replayed with the concurrent work of all processes. With more
//! processes, each step is replayed with its own process alone, and the others stay at their
//! measured times. Otherwise the cost would grow with the square of their number.

mod edges;
mod events;
mod excerpt;
mod fit;
mod graph;
mod graph_edges;
mod path;
mod predict;
mod replay;
#[cfg(test)]
mod tests;
mod text;
mod what_if;

use std::cmp::Reverse;
use std::sync::OnceLock;
use std::time::Duration;

use profiler_base::kernel_names::Pattern;
use profiler_base::statistics::as_ns;
use rustc_hash::FxHashMap;
use serde::Serialize;

use excerpt::MOST_POINTS;
use graph::Graph;
pub use path::{CriticalPath, PathKind, PathRow, Segment};
use predict::ModelConfidence;
pub use predict::{NoPrediction, Prediction};
use profiler_core::profile::{Profile, Range, RangeNode};
use profiler_core::tables::range_tree::NodeId;
use profiler_core::tables::{CallId, Interval, OperationId, RangeId, ThreadId};
pub use replay::ReplayError;
pub use what_if::WhatIf;

/// Counts of inferences in the graph, and of records that did not fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Assumptions {
    /// Starts and ends of operations that were moved, because they appear to precede their call or
    /// to outlast a wait for them. Clock differences cause this.
    pub clock_corrections: u64,
    /// Edges that would lead back in time; left out.
    pub contradicted: u64,
    /// Edges of cycles at one time; left out.
    pub cycles: u64,
    /// Operations without a call or times; no edge leads to them.
    pub unmatched: u64,
    /// Graph operations that follow the operation that ended last before: the graph's edges are not
    /// recorded.
    pub inferred_in_graphs: u64,
    /// Operations of a graph with known dependencies
    /// ([`Config::graph_dependencies`](cupti::Config::graph_dependencies)).
    pub recorded_in_graphs: u64,
    /// Waits of streams and of the host for events with inferred work: the operation of another
    /// stream that ended last before.
    pub inferred_events: u64,
    /// Waits of streams and of the host for events with a known recording (CUPTI's kind
    /// `CUDA_EVENT`).
    pub recorded_events: u64,
    /// Waits of streams for events without such an operation: they delayed nothing.
    pub events_without_source: u64,
    /// Operations that started when another of their device ended, for no other known reason.
    pub inferred_on_device: u64,
    /// Calls that allocate or free and waited for the GPU.
    pub inferred_waits: u64,
    /// Operations that started before the last one of their stream ended.
    pub overlapping_in_stream: u64,
    /// Operations that started later than any known reason explains.
    pub late_starts: u64,
    /// Collectives of several ranks; no rank ends one before all ranks have begun it.
    pub collectives: u64,
    /// The maximum clock error: between the GPUs and the host, or between hosts if that is larger.
    #[serde(rename = "clock_error_ns", serialize_with = "as_ns")]
    pub clock_error: Duration,
    /// Ranges, and inferred calls, that continue a range of another thread.
    pub hand_overs: u64,
}

/// The dependency graph of a run, from
/// [`Profile::dependencies`](crate::prelude::ProfileExt::dependencies).
#[derive(Debug)]
pub struct Dependencies<'a> {
    profile: &'a Profile,
    graph: Graph,
    steps: Option<Steps>,
    replay: OnceLock<Option<ReplayError>>,
}

/// The ranges that are steps.
#[derive(Debug)]
struct Steps {
    /// The path of their node, or the pattern of several.
    label: String,
    nodes: Vec<NodeId>,
    ranges: Vec<RangeId>,
}

/// A range with fewer instances does not count as steps.
const LEAST_STEPS: usize = 4;

/// [`ProfileExt::dependencies`](crate::prelude::ProfileExt::dependencies).
pub(crate) fn dependencies(profile: &Profile) -> Dependencies<'_> {
    let graph = Graph::new(profile);
    let repeated = profile.nodes().filter(|node| node.instances() >= LEAST_STEPS as u64);
    // The first one of those with equal times.
    let of_most_time = repeated.min_by_key(|node| Reverse(node.host_time()));
    let steps = of_most_time.map(|node| Steps::new(profile, node.path(), vec![node.id()]));
    Dependencies { profile, graph, steps, replay: OnceLock::new() }
}

impl Steps {
    fn new(profile: &Profile, label: String, nodes: Vec<NodeId>) -> Self {
        let tree = profile.range_tree();
        let mut ranges: Vec<RangeId> = nodes.iter().flat_map(|id| tree.instances(*id)).collect();
        profile.tables().sort_ranges(&mut ranges);
        Self { label, nodes, ranges }
    }
}

impl<'a> Dependencies<'a> {
    /// The path of the range whose instances count as steps: among ranges with four or more
    /// instances, the one with the most host time. Returns a pattern of
    /// [`with_steps`](Self::with_steps) itself if several ranges match it.
    pub fn steps_path(&self) -> Option<String> {
        self.steps.as_ref().map(|steps| steps.label.clone())
    }

    /// True if instances of the range with this path are steps.
    fn is_steps_path(&self, path: &str) -> bool {
        let node = |id: &NodeId| self.profile.node(*id);
        self.steps.iter().flat_map(|steps| &steps.nodes).any(|id| node(id).is_path(path))
    }

    /// Uses the outermost instances of this name, path or pattern as steps. `None` without a match.
    #[must_use]
    pub fn with_steps(self, path: &str) -> Option<Self> {
        let steps = self.instances(path)?;
        Some(Self { steps: Some(steps), replay: OnceLock::new(), ..self })
    }

    /// Leaves out steps by process and start, unless too few remain.
    #[must_use]
    pub(crate) fn with_steps_where(mut self, is_wanted: impl Fn(u32, u64) -> bool) -> Self {
        let store = &self.profile.tables();
        if let Some(Steps { ranges: steps, .. }) = &mut self.steps {
            let is_step = |id: &&RangeId| {
                let range = &store.ranges[id.at()];
                is_wanted(store.threads[range.thread.at()].process, range.time.start_ns)
            };
            let wanted: Vec<RangeId> = steps.iter().filter(is_step).copied().collect();
            if wanted.len() >= LEAST_STEPS {
                *steps = wanted;
            }
        }
        self
    }

    /// Counts of inferences, and of records that did not fit.
    pub fn assumptions(&self) -> &Assumptions {
        &self.graph.assumptions
    }

    /// The critical path of the session: from its start to the end of its last call, range or
    /// operation.
    pub fn critical_path(&self) -> CriticalPath {
        self.path_of(None, self.whole().as_slice(), true)
    }

    /// The joint critical path of the outermost instances of this name, path or pattern. `None`
    /// without a match.
    ///
    /// The path of an instance starts at the start of the range. If the previous instance on its
    /// thread ends later, it starts there. It ends at the end of the range or of its last
    /// operation.
    pub fn critical_path_of(&self, path: &str) -> Option<CriticalPath> {
        let steps = self.instances(path)?;
        let mut windows: Vec<Window> =
            steps.ranges.iter().filter_map(|id| self.window(*id)).collect();
        self.start_after_previous(&mut windows, |window| window.thread.0);
        Some(self.path_of(Some(path.to_owned()), &windows, true))
    }

    /// The critical path of one instance of a range of this profile. `None` if the range has no
    /// times.
    pub fn critical_path_of_instance(&self, range: &Range<'_>) -> Option<CriticalPath> {
        let window = self.window(range.id())?;
        Some(self.path_of(Some(range.node().path()), &[window], true))
    }

    /// The outermost instances of a name, path or pattern; `None` without a match.
    fn instances(&self, path: &str) -> Option<Steps> {
        let profile = self.profile;
        let outermost = profile.outermost(&Pattern::new(path));
        let nodes: Vec<RangeNode<'_>> =
            profile.nodes().filter(|node| outermost[node.id().at()]).collect();
        let label = match &nodes[..] {
            [] => return None,
            [node] => node.path(),
            _ => path.to_owned(),
        };
        Some(Steps::new(profile, label, nodes.iter().map(|node| node.id()).collect()))
    }

    /// The steps, or the session.
    ///
    /// A step ends when the next one of its process begins, or at the end of its last operation if
    /// later. It starts at the end of the previous step. Each operation is therefore in one step,
    /// even if the host runs ahead.
    fn windows(&self) -> Vec<Window> {
        let Some(steps) = &self.steps else { return self.whole().into_iter().collect() };
        let mut windows: Vec<Window> =
            steps.ranges.iter().filter_map(|id| self.window(*id)).collect();
        let mut last: FxHashMap<u32, usize> = FxHashMap::default();
        for at in 0..windows.len() {
            let Window { process, start, .. } = windows[at];
            if let Some(before) = last.insert(process, at) {
                windows[before].next = Some(start);
            }
        }
        for window in &mut windows {
            let ends = window.ends();
            window.end = ends.max_by_key(|point| self.graph.time(*point)).unwrap_or(window.end);
        }
        self.start_after_previous(&mut windows, |window| window.process);
        windows
    }

    /// Moves the start of each window to the end of the previous window with the same key, if that
    /// is later.
    fn start_after_previous(&self, windows: &mut [Window], key: impl Fn(&Window) -> u32) {
        let mut ends: FxHashMap<u32, u32> = FxHashMap::default();
        let later = |a: u32, b: u32| if self.graph.time(b) > self.graph.time(a) { b } else { a };
        for window in windows {
            let end = ends.entry(key(window)).or_insert(window.start);
            window.start = later(*end, window.start);
            window.end = later(window.start, window.end);
            *end = window.end;
        }
    }

    /// From the first point to the last; `None` without points.
    fn whole(&self) -> Option<Window> {
        let order = &self.graph.order;
        // Operations without times are at 0.
        let start = order.iter().copied().find(|point| self.graph.time(*point) != 0)?;
        let end = *order.last()?;
        let (next, range, thread) = (None, None, ThreadId(0));
        Some(Window { start, end, host_end: end, gpu_end: end, next, range, process: 0, thread })
    }

    /// From the start of a range to its end or the end of its last operation.
    fn window(&self, id: RangeId) -> Option<Window> {
        let store = &self.profile.tables();
        let range = &store.ranges[id.at()];
        let points = &self.graph.threads[range.thread.at()];
        let start = points.from(&self.graph.times, range.time.start_ns)?;
        let host_end = points.from(&self.graph.times, range.time.end_ns)?;
        let ends = self.profile.range_tree().operations(id);
        let ends = ends.filter(|id| store.operations[id.at()].time().is_some());
        let ends = ends.map(|id| self.graph.start_of(id) + 1);
        let last = ends.max_by_key(|point| self.graph.time(*point));
        let gpu_end = last.unwrap_or(host_end);
        let end = match self.graph.time(gpu_end) > self.graph.time(host_end) {
            true => gpu_end,
            false => host_end,
        };
        let (process, thread) = (store.threads[range.thread.at()].process, range.thread);
        let (next, range) = (None, Some(id));
        Some(Window { start, end, host_end, gpu_end, next, range, process, thread })
    }

    fn interval(&self, window: &Window) -> Interval {
        let [start_ns, end_ns] = [window.start, window.end].map(|point| self.graph.time(point));
        Interval { start_ns, end_ns }
    }

    /// The points for the replay of a window.
    fn points_of(&self, window: &Window) -> &[u32] {
        self.graph.slice(window.range.map(|_| window.process), self.interval(window))
    }

    /// The range of an operation.
    fn range_of(&self, id: OperationId) -> Option<RangeId> {
        let store = &self.profile.tables();
        store.range_of(store.operations[id.at()].call)
    }

    fn range_of_call(&self, id: CallId) -> Option<RangeId> {
        self.profile.tables().calls[id.at()].range.get()
    }
}

/// The two ends of a critical path.
#[derive(Debug, Clone, Copy)]
struct Window {
    start: u32,
    end: u32,
    /// The end of the range on its thread.
    host_end: u32,
    /// The end of its last operation; the end of the range if it has none.
    gpu_end: u32,
    /// The start of the next step of the process.
    next: Option<u32>,
    /// The range; `None` for the session.
    range: Option<RangeId>,
    process: u32,
    thread: ThreadId,
}

impl Window {
    /// The candidates for the end point; the latest is the end.
    fn ends(&self) -> impl Iterator<Item = u32> {
        [Some(self.host_end), Some(self.gpu_end), self.next].into_iter().flatten()
    }
}

/// The lengths of steps. The first step of a process counts from its start, the others from the end
/// of the previous one.
fn lengths(windows: &[Window], time: impl Fn(u32) -> u64) -> Vec<u64> {
    let mut before: FxHashMap<u32, u64> = FxHashMap::default();
    let length = |window: &Window| {
        // A change may make another point the latest.
        let end = window.ends().map(&time).max().unwrap_or_default();
        let start = before.get(&window.process).copied().unwrap_or_else(|| time(window.start));
        before.insert(window.process, end.max(start));
        end.saturating_sub(start)
    };
    windows.iter().map(length).collect()
}

/// The critical path, the model's error and the best changes of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Outlook {
    /// The path of the steps if any, otherwise of the session.
    pub path: CriticalPath,
    /// The match of a replay with steps whose delays it was not fitted on; `None` with fewer than
    /// four steps.
    pub replay: Option<ReplayError>,
    /// The reliability of the predictions, by the model's error.
    pub(crate) confidence: ModelConfidence,
    /// The changes that save most, best first.
    pub changes: Vec<Prediction>,
    /// The reason for missing predictions.
    pub no_prediction: Option<NoPrediction>,
    /// In a large run, the number of steps at its beginning that the changes were tried on. `None`
    /// for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tried_steps: Option<u64>,
    /// The assumptions of the graph.
    pub assumptions: Assumptions,
    /// The measured time that the changes refer to: the median step or the session.
    #[serde(rename = "clock_ns", serialize_with = "as_ns")]
    pub clock: Duration,
}

/// Changes in an outlook.
const CHANGES: usize = 10;

impl Dependencies<'_> {
    /// The path, the model's error and the ten best changes.
    pub fn outlook(&self) -> Outlook {
        self.outlook_with(true)
    }

    /// Like `outlook`, without the segments of the path, which take a third of the graph's memory.
    pub(crate) fn outlook_without_segments(&self) -> Outlook {
        self.outlook_with(false)
    }

    fn outlook_with(&self, segments: bool) -> Outlook {
        let replay = self.replay_error();
        let windows = self.windows();
        let path = self.path_of(self.steps_path(), &windows, segments);
        let no_prediction = self.check_model().err();
        let changes = match no_prediction {
            None => self.best_changes_of(&path, &windows, CHANGES),
            Some(_) => Vec::new(),
        };
        let tried = self.first_steps(&windows, MOST_POINTS).0.len();
        Outlook {
            path,
            replay,
            confidence: ModelConfidence::new(replay.as_ref()),
            changes,
            no_prediction,
            tried_steps: (tried < windows.len()).then_some(tried as u64),
            assumptions: self.graph.assumptions,
            clock: Duration::from_nanos(self.clock_ns()),
        }
    }
}
