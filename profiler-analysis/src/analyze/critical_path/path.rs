//! The critical path: from the end back to the start, always along the deciding edge. Also computes
//! the slack of everything else.

use std::cmp::Reverse;
use std::time::Duration;

use cupti::tables;
use profiler_base::kernel_names::displayed;
use profiler_base::statistics::as_ns;
use profiler_base::units::nanoseconds;
use profiler_base::{getters, named_variants};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::graph::{Edge, Link};
use super::{Dependencies, Window};
use profiler_core::profile::{ApiCall, GpuOperation, OperationKind, Profile, Range};
use profiler_core::query::Span;
use profiler_core::tables::range_tree::NodeId;
use profiler_core::tables::{CallId, Maybe, NameId, OperationId, RangeId, What, WorkId};

named_variants! {
    /// The kind of a segment of a critical path.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum PathKind with text in ALL {
        /// A kernel ran.
        Kernel = "kernel",
        /// A copy ran.
        Copy = "copy",
        /// A memset ran.
        Memset = "memset",
        /// A graph traced as one interval ran.
        Graph = "graph",
        /// A thread was in a CUDA call. Time in which the call waited for the GPU is not included.
        Call = "call",
        /// A thread was in no call.
        Host = "host",
        /// From the start of a call to the start of its operation.
        Launch = "launch latency",
        /// From the end of an operation to the start of a later one that followed it.
        Schedule = "between operations",
        /// From the end of an operation to the return of the call that waited for it.
        Return = "return from a wait",
        /// From one thread to another.
        HandOver = "hand-over",
    }
}

/// A segment of a critical path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    kind: PathKind,
    /// Nanoseconds since the session's start.
    start_ns: u64,
    end_ns: u64,
    operation: Maybe<OperationId>,
    call: Maybe<CallId>,
    range: Maybe<RangeId>,
}

impl Segment {
    getters! {
        /// The kind.
        kind: PathKind = kind;
    }

    /// The interval since the session's start.
    pub fn span(&self) -> Span {
        let [start, end] = [self.start_ns, self.end_ns].map(Duration::from_nanos);
        Span { start, end }
    }

    /// The operation that ran or started.
    pub fn operation<'a>(&self, profile: &'a Profile) -> Option<GpuOperation<'a>> {
        self.operation.get().map(|id| profile.operation(id))
    }

    /// The call that the thread was in or returned from.
    pub fn call<'a>(&self, profile: &'a Profile) -> Option<ApiCall<'a>> {
        self.call.get().map(|id| profile.call(id))
    }

    /// The range of the operation, call or thread.
    pub fn range<'a>(&self, profile: &'a Profile) -> Option<Range<'a>> {
        self.range.get().map(|id| profile.range_at(id))
    }
}

/// A kernel, function or range with its time on the critical path and off it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PathRow {
    /// The kind; for a range, the kind with most of its time on the path.
    pub kind: PathKind,
    /// The name of the kernel or function, or the path of the range; empty for the other kinds.
    pub name: String,
    /// The time on the path.
    #[serde(rename = "on_path_ns", serialize_with = "as_ns")]
    pub on_path: Duration,
    /// The number of segments on the path.
    pub parts: u64,
    /// The time on the path and off it, summed over threads and operations.
    #[serde(rename = "total_ns", serialize_with = "as_ns")]
    pub total: Duration,
    /// The number of segments on the path and off it.
    pub all_parts: u64,
    /// The least slack of its segments off the path: the delay that would not delay the end. `None`
    /// without such segments.
    #[serde(rename = "slack_ns", serialize_with = "optional_ns")]
    pub slack: Option<Duration>,
}

fn optional_ns<S: serde::Serializer>(of: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    of.map(nanoseconds).serialize(to)
}

/// The critical path of a session, or of the instances of a range: the segments that determined its
/// length. `{}` is a table. Serializable without its segments.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CriticalPath {
    /// The range; `None` for the session.
    pub range: Option<String>,
    /// The number of instances.
    pub instances: u64,
    /// The sum of the instances' lengths, equal to the sum of all segments.
    #[serde(rename = "length_ns", serialize_with = "as_ns")]
    pub length: Duration,
    /// The time before the first known event, which is not on the path.
    #[serde(rename = "unexplained_ns", serialize_with = "as_ns")]
    pub unexplained: Duration,
    pub(super) kinds: Vec<(PathKind, u64)>,
    rows: Vec<PathRow>,
    ranges: Vec<PathRow>,
    #[serde(skip)]
    segments: Vec<Segment>,
}

impl CriticalPath {
    getters! {
        /// The segments in time order, by instance.
        segments: &[Segment] = segments;
        /// Rows by kernel, function and kind, most time on the path first.
        rows: &[PathRow] = rows;
        /// Rows by range, without descendants, most time on the path first. The name is empty
        /// outside all ranges.
        ranges: &[PathRow] = ranges;
    }

    /// The time of a kind on the path.
    pub fn time_of(&self, kind: PathKind) -> Duration {
        let of_kind = self.kinds.iter().find(|(of, _)| *of == kind);
        Duration::from_nanos(of_kind.map_or(0, |(_, ns)| *ns))
    }

    /// The time in which operations ran.
    pub fn gpu_time(&self) -> Duration {
        let gpu = [PathKind::Kernel, PathKind::Copy, PathKind::Memset, PathKind::Graph];
        gpu.into_iter().map(|kind| self.time_of(kind)).sum()
    }

    /// The row of a kernel or function, or of a kind without names.
    pub fn row(&self, kind: PathKind, name: &str) -> Option<&PathRow> {
        self.rows.iter().find(|row| row.kind == kind && row.name == name)
    }
}

/// The subject of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Kernel(NameId),
    Copy(cupti::CopyKind),
    Call(NameId),
    Other(PathKind),
}

#[derive(Debug, Default, Clone)]
struct Sums {
    on_path: u64,
    parts: u64,
    total: u64,
    all_parts: u64,
    slack: Option<u64>,
    /// Its time on the path by kind.
    kinds: [u64; PathKind::ALL.len()],
    work: Option<WorkId>,
}

/// No row yet.
const NONE: u32 = u32::MAX;

/// Rows during summation. The row of an edge is found without hashing.
struct Rows {
    names: Vec<(Key, Sums)>,
    by_key: FxHashMap<Key, u32>,
    /// Rows in `names` by work, kind of call, and kind of path.
    by_work: Vec<u32>,
    by_call_kind: Vec<u32>,
    by_kind: [u32; PathKind::ALL.len()],
    /// By node of the range tree; the first is outside all ranges.
    ranges: Vec<Option<Sums>>,
}

impl Rows {
    fn new(profile: &Profile) -> Self {
        let store = &profile.tables();
        let mut ranges = Vec::new();
        ranges.resize_with(profile.range_tree().nodes.len() + 1, || None);
        Self {
            names: Vec::new(),
            by_key: FxHashMap::default(),
            by_work: vec![NONE; store.works().len()],
            by_call_kind: vec![NONE; store.call_kinds.rows().len()],
            by_kind: [NONE; PathKind::ALL.len()],
            ranges,
        }
    }

    /// The sums of an edge by name and by range.
    fn sums_mut(&mut self, graph: &Dependencies<'_>, edge: &Edge) -> [&mut Sums; 2] {
        let store = &graph.profile.tables();
        let known = match edge.link {
            Link::Call(call) => &mut self.by_call_kind[store.calls[call.at()].kind.at()],
            Link::Work(id) | Link::Transfer(id) => {
                &mut self.by_work[store.operations[id.at()].work.at()]
            }
            _ => &mut self.by_kind[graph.kind_of(edge) as usize],
        };
        if *known == NONE {
            let key = graph.key_of(edge);
            // CAST: names are fewer than works and kinds, which are counted in 32 bits.
            let next = self.names.len() as u32;
            *known = *self.by_key.entry(key).or_insert(next);
            if *known == next {
                self.names.push((key, Sums::default()));
            }
        }
        let range = graph.node_of(edge).map_or(0, |node| node.at() + 1);
        [&mut self.names[*known as usize].1, self.ranges[range].get_or_insert_default()]
    }
}

impl Dependencies<'_> {
    /// Computes the path of these windows, with or without its segments.
    pub(super) fn path_of(
        &self,
        range: Option<String>,
        windows: &[Window],
        with_segments: bool,
    ) -> CriticalPath {
        let mut rows = Rows::new(self.profile);
        let mut segments = Vec::new();
        let mut of_kinds = [0; PathKind::ALL.len()];
        let mut on_path = tables::filled(false, self.graph.edges.len());
        let (mut length, mut unexplained) = (0, 0);
        let mut latest = tables::filled(u64::MAX, self.graph.times.len());
        for windows in contiguous_windows(windows) {
            let whole = merged(&windows);
            let (edges, reached) = self.walk(&whole);
            let time = self.interval(&whole);
            length += time.ns();
            unexplained += reached.saturating_sub(time.start_ns);
            edges.iter().for_each(|edge| on_path[*edge] = true);
            for window in &windows {
                self.add_slack(window, time.start_ns, &on_path, &mut latest, &mut rows);
            }
            for edge in edges.into_iter().rev() {
                on_path[edge] = false;
                let edge = &self.graph.edges[edge];
                let start_ns = self.graph.time(edge.from).max(time.start_ns);
                let Some(segment) = self.add_segment(edge, start_ns, &mut rows) else { continue };
                of_kinds[segment.kind as usize] += segment.end_ns - segment.start_ns;
                segments.extend(with_segments.then_some(segment));
            }
        }
        let mut kinds: Vec<_> = PathKind::ALL.into_iter().zip(of_kinds).collect();
        kinds.retain(|(_, ns)| *ns != 0);
        kinds.sort_unstable_by_key(|(kind, ns)| (Reverse(*ns), *kind));
        let names = rows.names.into_iter().map(|(key, sums)| self.named_row(key, sums));
        let ranges = rows.ranges.into_iter().zip(0_u32..);
        let ranges = ranges.filter_map(|(sums, row)| Some((row.checked_sub(1).map(NodeId), sums?)));
        let ranges = ranges.map(|(node, sums)| self.range_row(node, sums));
        CriticalPath {
            range,
            instances: windows.len() as u64,
            length: Duration::from_nanos(length),
            unexplained: Duration::from_nanos(unexplained),
            kinds,
            rows: ranked(names.collect()),
            ranges: ranked(ranges.collect()),
            segments,
        }
    }

    /// Returns the edges from the end back to the start of a window, and the time that was reached.
    pub(super) fn walk(&self, window: &Window) -> (Vec<usize>, u64) {
        let graph = &self.graph;
        let start_ns = graph.time(window.start);
        let mut edges = Vec::new();
        let mut at = window.end;
        while graph.time(at) > start_ns {
            // The own time of a thread comes first, so among two deciding edges the walk takes the
            // dependency.
            let reached = |edge: &usize| {
                let Edge { from, lag, .. } = graph.edges[*edge];
                graph.time(from).saturating_add(lag)
            };
            let Some(edge) = graph.edges_to(at).max_by_key(reached) else { break };
            edges.push(edge);
            at = graph.edges[edge].from;
        }
        (edges, graph.time(at).max(start_ns))
    }

    /// Adds the activities that end in a window and start after `since_ns` to the rows, with the
    /// slack of those off the path. An activity that ends with the previous window belongs to that
    /// window.
    fn add_slack(
        &self,
        window: &Window,
        since_ns: u64,
        on_path: &[bool],
        latest: &mut [u64],
        rows: &mut Rows,
    ) {
        let graph = &self.graph;
        let time = self.interval(window);
        let part = self.points_of(window);
        let is_first = time.start_ns == since_ns;
        for &point in part.iter().rev() {
            if graph.time(point) == time.start_ns && !is_first {
                continue;
            }
            // A point without successors may last until the end.
            if latest[point as usize] == u64::MAX {
                latest[point as usize] = time.end_ns;
            }
            let until = latest[point as usize];
            for at in graph.edges_to(point) {
                let edge = &graph.edges[at];
                let from_ns = graph.time(edge.from);
                if from_ns >= time.start_ns {
                    let latest = &mut latest[edge.from as usize];
                    *latest = (*latest).min(until.saturating_sub(edge.lag));
                }
                if !edge.link.is_activity() || from_ns < since_ns {
                    continue;
                }
                // Activities on the path have no slack; waits are no activity.
                let slack = (!on_path[at] && edge.lag != 0)
                    .then(|| until.saturating_sub(from_ns.saturating_add(edge.lag)));
                for sums in rows.sums_mut(self, edge) {
                    sums.total = sums.total.saturating_add(edge.lag);
                    sums.all_parts += u64::from(edge.lag != 0);
                    sums.slack = match (sums.slack, slack) {
                        (Some(least), Some(slack)) => Some(least.min(slack)),
                        (least, slack) => least.or(slack),
                    };
                    sums.work = self.work_of(edge).or(sums.work);
                }
            }
        }
        for &point in part {
            latest[point as usize] = u64::MAX;
            if graph.is_by_process() {
                for edge in &graph.edges[graph.edges_to(point)] {
                    latest[edge.from as usize] = u64::MAX;
                }
            }
        }
    }

    /// Returns the segment of an edge from this time on, and adds its sums to the rows. `None` if
    /// it takes no time.
    fn add_segment(&self, edge: &Edge, start_ns: u64, rows: &mut Rows) -> Option<Segment> {
        let end_ns = self.graph.time(edge.to);
        if end_ns <= start_ns {
            return None;
        }
        let kind = self.kind_of(edge);
        let ns = end_ns - start_ns;
        let is_activity = edge.link.is_activity();
        for sums in rows.sums_mut(self, edge) {
            sums.on_path = sums.on_path.saturating_add(ns);
            sums.parts += 1;
            sums.kinds[kind as usize] += ns;
            sums.work = self.work_of(edge).or(sums.work);
            // The transfer of a collective is counted with its kernel.
            if !is_activity && !matches!(edge.link, Link::Transfer(_)) {
                sums.total = sums.total.saturating_add(ns);
                sums.all_parts += 1;
            }
        }
        let (operation, call) = match edge.link {
            Link::Call(call) | Link::Wait(call) => (None, Some(call)),
            _ => (operation_of(edge), None),
        };
        let since = |ns| nanoseconds(self.profile.since_start(ns));
        Some(Segment {
            kind,
            start_ns: since(start_ns),
            end_ns: since(end_ns),
            operation: operation.into(),
            call: call.into(),
            range: self.range_of_edge(edge).into(),
        })
    }

    pub(super) fn range_of_edge(&self, edge: &Edge) -> Option<RangeId> {
        match edge.link {
            Link::Host(range) => range.get(),
            Link::Call(call) | Link::Wait(call) => self.range_of_call(call),
            Link::HandOver(range) | Link::Join(range) => Some(range),
            _ => operation_of(edge).and_then(|id| self.range_of(id)),
        }
    }

    pub(super) fn node_of(&self, edge: &Edge) -> Option<NodeId> {
        self.range_of_edge(edge).map(|range| self.profile.range_tree().of_range[range.at()])
    }

    fn work_of(&self, edge: &Edge) -> Option<WorkId> {
        let (Link::Work(id) | Link::Transfer(id)) = edge.link else { return None };
        Some(self.profile.tables().operations[id.at()].work)
    }

    fn kind_of(&self, edge: &Edge) -> PathKind {
        match edge.link {
            Link::Call(_) => PathKind::Call,
            Link::Host(_) => PathKind::Host,
            Link::Work(id) | Link::Transfer(id) => match self.profile.operation(id).kind() {
                OperationKind::Kernel => PathKind::Kernel,
                OperationKind::Copy => PathKind::Copy,
                OperationKind::Memset => PathKind::Memset,
                OperationKind::Graph => PathKind::Graph,
            },
            Link::Launch(_) => PathKind::Launch,
            Link::Stream(_)
            | Link::Graph(_)
            | Link::Event(_)
            | Link::Device(_)
            | Link::Arrival(_) => PathKind::Schedule,
            Link::Wait(_) => PathKind::Return,
            Link::HandOver(_) | Link::Join(_) => PathKind::HandOver,
        }
    }

    fn key_of(&self, edge: &Edge) -> Key {
        let store = &self.profile.tables();
        let kind = self.kind_of(edge);
        match edge.link {
            Link::Call(call) => Key::Call(store.call_kind(&store.calls[call.at()]).name),
            Link::Work(id) | Link::Transfer(id) => {
                match &store.work(&store.operations[id.at()]).what {
                    What::Kernel { names, .. } => Key::Kernel(names.name),
                    What::Copy(copy) => Key::Copy(copy.kind),
                    _ => Key::Other(kind),
                }
            }
            _ => Key::Other(kind),
        }
    }

    fn named_row(&self, key: Key, sums: Sums) -> PathRow {
        let store = &self.profile.tables();
        let (kind, name) = match key {
            Key::Call(name) => (PathKind::Call, store.names.get(name).to_owned()),
            Key::Other(kind) => (kind, String::new()),
            Key::Copy(kind) => (PathKind::Copy, kind.to_string()),
            Key::Kernel(name) => {
                let what = sums.work.map(|work| store.works()[work.at()].what);
                let label = match what {
                    Some(What::Kernel { names, .. }) => self.profile.kernel_label(&names),
                    _ => displayed(store.names.get(name), None),
                };
                (PathKind::Kernel, label)
            }
        };
        sums.row(kind, name)
    }

    fn range_row(&self, node: Option<NodeId>, sums: Sums) -> PathRow {
        let name = node.map(|id| self.profile.node(id).cut_path());
        let kinds = PathKind::ALL.into_iter().zip(sums.kinds).filter(|(_, ns)| *ns != 0);
        let most = kinds.max_by_key(|(kind, ns)| (*ns, Reverse(*kind)));
        let kind = most.map_or(PathKind::Host, |(kind, _)| kind);
        sums.row(kind, name.unwrap_or_default())
    }
}

/// Groups windows by process and by continuity: consecutive windows, each starting at the end of
/// the previous one, have one path.
pub(super) fn contiguous_windows(windows: &[Window]) -> Vec<Vec<Window>> {
    let mut windows = windows.to_vec();
    windows.sort_by_key(|window| window.process);
    let goes_on = |a: &Window, b: &Window| a.process == b.process && a.end == b.start;
    windows.chunk_by(goes_on).map(<[Window]>::to_vec).collect()
}

/// One window from the start of the first to the end of the last.
pub(super) fn merged(windows: &[Window]) -> Window {
    let (first, last) = (windows[0], windows[windows.len() - 1]);
    Window { end: last.end, ..first }
}

pub(super) fn operation_of(edge: &Edge) -> Option<OperationId> {
    match edge.link {
        Link::Work(id)
        | Link::Launch(id)
        | Link::Stream(id)
        | Link::Graph(id)
        | Link::Event(id)
        | Link::Arrival(id)
        | Link::Transfer(id)
        | Link::Device(id) => Some(id),
        _ => None,
    }
}

impl Sums {
    fn row(self, kind: PathKind, name: String) -> PathRow {
        PathRow {
            kind,
            name,
            on_path: Duration::from_nanos(self.on_path),
            parts: self.parts,
            total: Duration::from_nanos(self.total),
            all_parts: self.all_parts,
            slack: self.slack.map(Duration::from_nanos),
        }
    }
}

/// Sorts by time on the path, then by total time, both descending, then by name.
fn ranked(mut rows: Vec<PathRow>) -> Vec<PathRow> {
    rows.sort_by(|a, b| {
        let key = |row: &PathRow| (Reverse(row.on_path), Reverse(row.total), row.kind);
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
    rows
}
