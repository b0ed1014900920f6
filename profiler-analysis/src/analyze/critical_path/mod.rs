//! The critical path of a run, and what changes of it would bring.
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
//! A thread has a point at each start and end of a call or range, an operation has two. Edges say how long after one
//! point another is at the earliest: a thread's own time, operations, launches, stream order, the order in a launch of a
//! graph, waits of streams and of the host, hand-overs between threads. In each group of edges that lead to one point,
//! the one that decided keeps its measured time, the others get the time that is usual for their kind. So a replay
//! without a change is the recording, and the critical path has the length of the step.
//!
//! # What is not recorded
//! What an event was recorded after, the edges of a graph, and when a thread waits for another are inferred;
//! [`Assumptions`] counts it. A thread's time outside calls is taken for work of that thread. Ranks wait for each other in
//! collectives whose kernels are known; other waits of one rank for another are part of the kernel.
//!
//! # The model's error
//! [`Dependencies::replay_error`] fits the host's delays on odd steps and replays the even ones with them. If the median step is
//! off by more than 10 %, nothing is predicted. Steps of up to 16 processes are replayed with the work of all processes at their
//! time. With more processes each step is replayed with its own process alone, and the others are at their measured times: the
//! cost would grow with the square of their number. A program can put the
//! model to the test: an [`Intervention`] delays half of its steps at one place, and [`Dependencies::responses`] compares what
//! that did with what the model predicts.

mod edges;
mod events;
mod excerpt;
mod fit;
mod graph;
mod graph_edges;
mod intervention;
mod path;
mod predict;
mod replay;
mod response;
#[cfg(test)]
mod tests;
mod text;

use std::sync::OnceLock;
use std::time::Duration;

use profiler_base::kernel_names::Pattern;
use profiler_base::statistics::as_ns;
use rustc_hash::FxHashMap;
use serde::Serialize;

use excerpt::MOST_POINTS;
use graph::Graph;
pub use intervention::Intervention;
pub use path::{CriticalPath, PathKind, PathRow, Segment};
pub use predict::{NoPrediction, Prediction, WhatIf};
use profiler_core::profile::{Profile, Range, RangeNode};
use profiler_core::tables::range_tree::NodeId;
use profiler_core::tables::{CallId, Interval, OperationId, RangeId, ThreadId};
pub use replay::ReplayError;
pub use response::{Agreement, ModelConfidence, Response};

/// What was inferred to make the graph, and what did not fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Assumptions {
    /// Starts and ends of operations that were moved, since they appear to precede their call or to outlast a wait for
    /// them: clocks differ.
    pub clock_corrections: u64,
    /// Edges that would lead back in time, and are left out.
    pub contradicted: u64,
    /// Edges of cycles at one time, which are left out.
    pub cycles: u64,
    /// Operations without a call or times, which nothing precedes.
    pub unmatched: u64,
    /// Operations of a graph that follow the one that ended last before: the graph's edges are not recorded.
    pub inferred_in_graphs: u64,
    /// Operations of a graph with known dependencies ([`Config::graph_dependencies`](cupti::Config::graph_dependencies)).
    pub recorded_in_graphs: u64,
    /// Waits for events, of streams and of the host, whose work was inferred: the operation of another stream that ended
    /// last before.
    pub inferred_events: u64,
    /// Waits for events, of streams and of the host, whose recording is known (CUPTI's kind `CUDA_EVENT`).
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
    /// Collectives of several ranks, which no rank ends before all have begun.
    pub collectives: u64,
    /// By how much clocks may be off, in nanoseconds: of the GPUs and the host, or of hosts if that is more.
    pub clock_error_ns: u64,
    /// Ranges, and inferred calls, that continue a range of another thread.
    pub hand_overs: u64,
}

/// The graph of what depends on what in a run, from [`Profile::dependencies`](crate::prelude::ProfileExt::dependencies).
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

/// Fewer instances of a range are no steps.
const LEAST_STEPS: usize = 4;

/// [`ProfileExt::dependencies`](crate::prelude::ProfileExt::dependencies).
pub(crate) fn dependencies(profile: &Profile) -> Dependencies<'_> {
    let graph = Graph::new(profile);
    let mut of_most_time = None;
    for node in profile.nodes().filter(|node| node.instances() >= LEAST_STEPS as u64) {
        let is_more = |most: &RangeNode<'_>| node.host_time() > most.host_time();
        if of_most_time.as_ref().is_none_or(is_more) {
            of_most_time = Some(node);
        }
    }
    let steps = of_most_time.map(|node| Steps {
        label: node.path(),
        nodes: vec![node.id()],
        ranges: profile.range_tree().instances(node.id()).collect(),
    });
    Dependencies { profile, graph, steps, replay: OnceLock::new() }.ordered()
}

impl<'a> Dependencies<'a> {
    fn ordered(mut self) -> Self {
        if let Some(steps) = &mut self.steps {
            self.profile.tables().sort_ranges(&mut steps.ranges);
        }
        self
    }

    /// The path of the range whose instances are taken for steps: of those with four or more, the one with the
    /// most host time. A pattern of [`with_steps`](Self::with_steps) that several ranges match is returned itself.
    pub fn steps_path(&self) -> Option<String> {
        self.steps.as_ref().map(|steps| steps.label.clone())
    }

    /// True if instances of the range with this path are steps.
    fn is_steps_path(&self, path: &str) -> bool {
        let node = |id: &NodeId| self.profile.node(*id);
        self.steps.iter().flat_map(|steps| &steps.nodes).any(|id| node(id).is_path(path))
    }

    /// Takes the outermost instances of this name, path or pattern for steps. `None` if there are none.
    #[must_use]
    pub fn with_steps(self, path: &str) -> Option<Self> {
        let steps = self.instances(path)?;
        Some(Self { steps: Some(steps), replay: OnceLock::new(), ..self })
    }

    /// Leaves out steps whose process and start are not wanted, unless too few remain.
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

    /// What was inferred, and what did not fit.
    pub fn assumptions(&self) -> &Assumptions {
        &self.graph.assumptions
    }

    /// The critical path of the session: from its start to the end of its last call, range or operation.
    pub fn critical_path(&self) -> CriticalPath {
        self.path_of(None, self.whole().as_slice(), true)
    }

    /// The critical paths of the outermost instances of this name, path or pattern, together. Each is from the start of
    /// the range, or the end of the instance before on its thread if that is later, to its end, or to the end of its last
    /// operation. `None` if there are none.
    pub fn critical_path_of(&self, path: &str) -> Option<CriticalPath> {
        let steps = self.instances(path)?;
        let mut windows: Vec<Window> =
            steps.ranges.iter().filter_map(|id| self.window(*id)).collect();
        self.start_after_previous(&mut windows, |window| window.thread.0);
        Some(self.path_of(Some(path.to_owned()), &windows, true))
    }

    /// The critical path of one instance of a range of this profile. `None` if the range has no times.
    pub fn critical_path_of_instance(&self, range: &Range<'_>) -> Option<CriticalPath> {
        let window = self.window(range.id())?;
        Some(self.path_of(Some(range.node().path()), &[window], true))
    }

    /// The outermost instances of a name, path or pattern; `None` if there are none.
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
        let nodes: Vec<NodeId> = nodes.iter().map(|node| node.id()).collect();
        let mut ranges: Vec<RangeId> =
            nodes.iter().flat_map(|id| profile.range_tree().instances(*id)).collect();
        profile.tables().sort_ranges(&mut ranges);
        Some(Steps { label, nodes, ranges })
    }

    /// The steps, or the session.
    ///
    /// A step lasts until the next one of its process begins, or until its last operation ends if that is later. It
    /// starts where the one before ends, so that each operation is in one step, also where the host runs ahead.
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

    /// Moves the start of each window to the end of the one before with the same key, if that is later.
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

    /// From the first point to the last; `None` without any.
    fn whole(&self) -> Option<Window> {
        let order = &self.graph.order;
        // Operations without times are at 0.
        let start = order.iter().copied().find(|point| self.graph.time(*point) != 0)?;
        let end = *order.last()?;
        let (next, range, thread) = (None, None, ThreadId(0));
        Some(Window { start, end, host_end: end, gpu_end: end, next, range, process: 0, thread })
    }

    /// From the start of a range to its end or that of its last operation.
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

    /// The points that a window is replayed with.
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

/// The points between which a path is looked for.
#[derive(Debug, Clone, Copy)]
struct Window {
    start: u32,
    end: u32,
    /// The end of the range on its thread.
    host_end: u32,
    /// The end of its last operation, or that of the range if it has none.
    gpu_end: u32,
    /// The start of the next step of the process.
    next: Option<u32>,
    /// The range; `None` for the session.
    range: Option<RangeId>,
    process: u32,
    thread: ThreadId,
}

impl Window {
    /// The points of which the latest is its end.
    fn ends(&self) -> impl Iterator<Item = u32> {
        [Some(self.host_end), Some(self.gpu_end), self.next].into_iter().flatten()
    }
}

/// The lengths of steps: of the first of each process from its start, of the others from the end of the one before.
fn lengths(windows: &[Window], time: impl Fn(u32) -> u64) -> Vec<u64> {
    let mut before: FxHashMap<u32, u64> = FxHashMap::default();
    let length = |window: &Window| {
        // A change may have another point come last.
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
    /// The path of the steps if there are any, otherwise of the session.
    pub path: CriticalPath,
    /// How well a replay matches steps whose delays it has not seen; `None` with fewer than four steps.
    pub replay: Option<ReplayError>,
    /// What inserted delays did: see [`Intervention`].
    pub responses: Vec<Response>,
    /// How far the predictions can be trusted, by the model's error and these.
    pub confidence: ModelConfidence,
    /// The changes that bring most, the best first.
    pub changes: Vec<Prediction>,
    /// Why there are no predictions.
    pub no_prediction: Option<NoPrediction>,
    /// The number of steps that the changes were tried on, in a large run: the first ones. `None` for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tried_steps: Option<u64>,
    /// What the graph was made with.
    pub assumptions: Assumptions,
    /// The measured time that the changes refer to: of the median step, or of the session.
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

    /// The same without the segments of the path, which take as much memory as a third of the graph.
    pub(crate) fn outlook_without_segments(&self) -> Outlook {
        self.outlook_with(false)
    }

    fn outlook_with(&self, segments: bool) -> Outlook {
        let (replay, responses) = (self.replay_error(), self.responses());
        let confidence = ModelConfidence::of(replay.as_ref(), &responses);
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
            responses,
            confidence,
            changes,
            no_prediction,
            tried_steps: (tried < windows.len()).then_some(tried as u64),
            assumptions: self.graph.assumptions,
            clock: Duration::from_nanos(self.clock_ns()),
        }
    }
}
