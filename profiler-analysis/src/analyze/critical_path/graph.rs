//! The graph of a run: points in time, and edges with the minimum delay from one point to another.
//!
//! A thread has a point at each start and end of a call or range; an operation has two. Each edge
//! leads forward in measured time, so the order by time is topological.

use std::ops::Range as Span;

use cupti::tables;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Assumptions;
use profiler_core::profile::Profile;
use profiler_core::tables::HostPiece;
use profiler_core::tables::HostTimeline;
use profiler_core::tables::{CallId, Interval, Maybe, OperationId, RangeId, Tables, ThreadId};

/// The meaning of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    /// A thread's own time in a call.
    Call(CallId),
    /// A thread's own time outside calls, in this range.
    Host(Maybe<RangeId>),
    /// An operation from start to end.
    Work(OperationId),
    /// From the start of a call to the start of its operation.
    Launch(OperationId),
    /// The operation follows another of its stream.
    Stream(OperationId),
    /// The operation follows another of the same launch of a graph. Inferred from times.
    Graph(OperationId),
    /// The operation follows one of another stream, whose event its stream waits for. Inferred.
    Event(OperationId),
    /// The operation starts when another of the device ends, without another explanation. Inferred.
    Device(OperationId),
    /// A collective has begun in all ranks only after this operation of one rank has begun.
    Arrival(OperationId),
    /// The operation ends after its collective has begun in all ranks: the transfer.
    Transfer(OperationId),
    /// The call returns after an operation.
    Wait(CallId),
    /// The range continues a range of another thread.
    HandOver(RangeId),
    /// The thread of the outer range continues after this range of another thread. Inferred.
    Join(RangeId),
}

impl Link {
    /// True for a thread's own time and for operations: edges that take time themselves.
    pub(super) fn is_activity(self) -> bool {
        self.is_own_time() || matches!(self, Self::Work(_))
    }

    /// True for a thread's own time.
    pub(super) fn is_own_time(self) -> bool {
        matches!(self, Self::Call(_) | Self::Host(_))
    }
}

/// The point `to` is at least `lag` after the point `from`. Packed, since a graph has five edges
/// per operation.
#[derive(Debug, Clone, Copy)]
#[repr(Rust, packed(4))]
pub(super) struct Edge {
    pub(super) from: u32,
    pub(super) to: u32,
    /// In nanoseconds.
    pub(super) lag: u64,
    pub(super) link: Link,
    /// Edges of one class are expected to have similar lags.
    pub(super) class: u32,
}

/// A class of edges: the number of their kind and up to three properties.
type ClassKey = (u32, [u32; 3]);

/// The points of a thread: its boundaries in time order.
#[derive(Debug)]
pub(super) struct ThreadPoints {
    points: Span<u32>,
    /// The edge from the first point to the second; the other edges of the thread's own time follow
    /// it.
    first_edge: usize,
}

impl ThreadPoints {
    /// The first point at or after a time, given the times of all points.
    pub(super) fn from(&self, times: &[u64], ns: u64) -> Option<u32> {
        let Span { start, end } = self.points;
        let before = times[start as usize..end as usize].partition_point(|time| *time < ns);
        // CAST: points are counted in 32 bits.
        Some(start + before as u32).filter(|point| *point < end)
    }

    /// The last point at or before a time, given the times of all points.
    pub(super) fn last_before(&self, times: &[u64], ns: u64) -> Option<u32> {
        let Span { start, end } = self.points;
        let until = times[start as usize..end as usize].partition_point(|time| *time <= ns);
        Some(start + until.checked_sub(1)? as u32)
    }
}

/// The maximum number of processes whose steps are replayed with the points of all processes. Each
/// step visits all points within its time, so with concurrent processes the visits grow with the
/// square of their number. With more processes, each step is replayed with the points of its own
/// process, and other processes stay at their measured times.
pub(super) const MOST_TOGETHER: usize = 16;

/// The graph and its assumptions.
#[derive(Debug)]
pub(super) struct Graph {
    /// The measured time of each point.
    pub(super) times: Vec<u64>,
    /// Sorted by the point they lead to.
    pub(super) edges: Vec<Edge>,
    /// The first edge to each point, then the number of all edges.
    first_edge: Vec<u32>,
    /// The points in topological order: the order of their times.
    pub(super) order: Vec<u32>,
    /// The points of threads and operations of each process in that order; filled only with more
    /// than [`MOST_TOGETHER`] processes.
    by_process: FxHashMap<u32, Vec<u32>>,
    pub(super) threads: Vec<ThreadPoints>,
    first_operation: u32,
    pub(super) classes: usize,
    pub(super) assumptions: Assumptions,
}

impl Graph {
    /// The edges to a point, as a range of edge numbers.
    #[inline]
    pub(super) fn edges_to(&self, point: u32) -> Span<usize> {
        let at = point as usize;
        self.first_edge[at] as usize..self.first_edge[at + 1] as usize
    }

    /// The start of an operation; its end is the next point.
    pub(super) fn start_of(&self, id: OperationId) -> u32 {
        self.first_operation + 2 * id.0
    }

    pub(super) fn time(&self, point: u32) -> u64 {
        self.times[point as usize]
    }

    /// The points within a time in topological order: all, or those for the replay of this process.
    pub(super) fn slice(&self, process: Option<u32>, time: Interval) -> &[u32] {
        let of_process = process.and_then(|process| self.by_process.get(&process));
        let points = of_process.unwrap_or(&self.order);
        let start = points.partition_point(|point| self.time(*point) < time.start_ns);
        let end = points.partition_point(|point| self.time(*point) <= time.end_ns);
        &points[start..end]
    }

    /// True if each process is replayed alone; edges may then lead from points of other processes.
    pub(super) fn is_by_process(&self) -> bool {
        !self.by_process.is_empty()
    }
}

/// Builds a graph: points first, then edges.
pub(super) struct Builder<'p> {
    pub(super) profile: &'p Profile,
    pub(super) store: &'p Tables,
    pub(super) times: Vec<u64>,
    pub(super) edges: Vec<Edge>,
    pub(super) threads: Vec<ThreadPoints>,
    first_operation: u32,
    classes: FxHashMap<ClassKey, u32>,
    pub(super) assumptions: Assumptions,
}

/// No row, point or edge.
const NONE: u32 = u32::MAX;

impl<'p> Builder<'p> {
    /// Points and own times of all threads and operations.
    pub(super) fn new(profile: &'p Profile) -> Self {
        let store = &profile.tables();
        let mut builder = Self {
            profile,
            store,
            times: Vec::new(),
            edges: Vec::new(),
            threads: Vec::new(),
            first_operation: 0,
            classes: FxHashMap::default(),
            assumptions: Assumptions::default(),
        };
        builder.add_threads();
        builder.add_operations();
        builder
    }

    pub(super) fn class(&mut self, kind: u32, of: [u32; 3]) -> u32 {
        let next = self.classes.len() as u32;
        *self.classes.entry((kind, of)).or_insert(next)
    }

    /// The number of classes so far.
    pub(super) fn classes(&self) -> usize {
        self.classes.len()
    }

    fn add_threads(&mut self) {
        let store = self.store;
        let (start_ns, stop_ns) = store.session.window_ns;
        let mut times: Vec<Vec<u64>> = Vec::new();
        times.resize_with(store.threads.len(), Vec::new);
        for call in &store.calls {
            let end_ns = match store.call_kind(call).has_returned {
                true => call.time.end_ns,
                false => stop_ns.max(call.time.start_ns),
            };
            times[call.thread.at()].extend([call.time.start_ns, end_ns]);
        }
        for range in &store.ranges {
            times[range.thread.at()].extend([range.time.start_ns, range.time.end_ns]);
        }
        let timeline = HostTimeline::new(store);
        let operations = store.operations.len();
        let most = times.iter().map(|times| times.len() + 1).sum::<usize>();
        tables::reserve(&mut self.times, most + 2 * operations);
        // An operation has edges for itself, its launch and its predecessor; a wait has one or
        // more.
        let waits = 2 * store.synchronizations.len();
        tables::reserve(&mut self.edges, most + 3 * operations + waits);
        for (row, mut times) in (0..).zip(times) {
            if !times.is_empty() {
                times.push(start_ns);
                times.sort_unstable();
                times.dedup();
            }
            self.add_thread(ThreadId(row), &timeline, times);
        }
    }

    fn add_thread(&mut self, thread: ThreadId, timeline: &HostTimeline, times: Vec<u64>) {
        let first = self.times.len() as u32;
        let points = first..first + times.len() as u32;
        let first_edge = self.edges.len();
        self.times.extend(&times);
        if let [start_ns, .., end_ns] = times[..] {
            let time = Interval { start_ns, end_ns };
            let (mut pairs, mut before) = ((first..).zip(times.windows(2)).peekable(), NONE);
            timeline.each_host_piece(
                self.store,
                thread,
                time,
                |HostPiece { time, call, range }| {
                    let node =
                        range.map_or(NONE, |id| self.profile.range_tree().of_range[id.at()].0);
                    let kind = call.map_or(NONE, |id| self.store.calls[id.at()].kind.0);
                    // A call's range is the range around it.
                    let link = call.map_or(Link::Host(range.into()), Link::Call);
                    while let Some((from, pair)) = pairs.next_if(|(_, pair)| pair[0] < time.end_ns)
                    {
                        let class = self.class(0, [kind, node, before]);
                        before = kind;
                        let lag = pair[1] - pair[0];
                        self.edges.push(Edge { from, to: from + 1, lag, link, class });
                    }
                },
            );
        }
        self.threads.push(ThreadPoints { points, first_edge });
    }

    fn add_operations(&mut self) {
        self.first_operation = self.times.len() as u32;
        let class = self.class(1, [0; 3]);
        for (row, operation) in (0..).zip(&self.store.operations) {
            let time = operation.time().unwrap_or_default();
            let from = self.times.len() as u32;
            self.times.extend([time.start_ns, time.end_ns.max(time.start_ns)]);
            if operation.time().is_some() {
                let link = Link::Work(OperationId(row));
                self.edges.push(Edge { from, to: from + 1, lag: time.ns(), link, class });
            }
        }
    }

    /// The start of an operation; its end is the next point.
    pub(super) fn start_of(&self, id: OperationId) -> u32 {
        self.first_operation + 2 * id.0
    }

    pub(super) fn time(&self, point: u32) -> u64 {
        self.times[point as usize]
    }

    /// The points of a call's start and end.
    pub(super) fn points_of(&self, id: CallId) -> Option<(u32, u32)> {
        let call = &self.store.calls[id.at()];
        let thread = &self.threads[call.thread.at()];
        let end_ns = match self.store.call_kind(call).has_returned {
            true => call.time.end_ns,
            false => return None,
        };
        let point = |ns| thread.from(&self.times, ns);
        Some((point(call.time.start_ns)?, point(end_ns)?))
    }

    /// The thread's own time that ends at one of its points; `None` for its first point.
    pub(super) fn own_time_to(&mut self, thread: ThreadId, point: u32) -> Option<&mut Edge> {
        let ThreadPoints { points, first_edge } = &self.threads[thread.at()];
        let before = point.checked_sub(points.start + 1)?;
        self.edges.get_mut(first_edge + before as usize)
    }

    /// Adds an edge with the measured lag. Rejects an edge that leads back in time by more than the
    /// clock error.
    pub(super) fn add(&mut self, from: u32, to: u32, link: Link, class: u32) -> bool {
        let Some(lag) = self.time(to).checked_sub(self.time(from)) else {
            self.assumptions.contradicted += 1;
            return false;
        };
        self.edges.push(Edge { from, to, lag, link, class });
        true
    }

    /// Moves the start of an operation that appears to precede its call by at most the clock error.
    pub(super) fn move_start(&mut self, start: u32, to_ns: u64, tolerance_ns: u64) {
        let (now, end) = (self.time(start), self.time(start + 1));
        if now < to_ns && to_ns <= end && to_ns - now <= tolerance_ns {
            self.times[start as usize] = to_ns;
            self.assumptions.clock_corrections += 1;
        }
    }

    /// Moves the end of an operation that appears to outlast a wait for it by at most the clock
    /// error. Returns false if it is later.
    pub(super) fn move_end(&mut self, end: u32, to_ns: u64, tolerance_ns: u64) -> bool {
        let (start, now) = (self.time(end - 1), self.time(end));
        let is_late = now > to_ns;
        if is_late && start <= to_ns && now - to_ns <= tolerance_ns {
            self.times[end as usize] = to_ns;
            self.assumptions.clock_corrections += 1;
        }
        self.time(end) <= to_ns
    }

    /// Updates the lengths of moved operations.
    pub(super) fn measure_moved(&mut self) {
        for edge in &mut self.edges {
            if matches!(edge.link, Link::Work(_)) {
                edge.lag = self.times[edge.to as usize] - self.times[edge.from as usize];
            }
        }
    }

    /// Adds a point that belongs to no thread and no operation.
    pub(super) fn add_point(&mut self, ns: u64) -> u32 {
        self.times.push(ns);
        // CAST: points are counted in 32 bits.
        self.times.len() as u32 - 1
    }

    /// Orders points and edges. Costs a sort of each.
    pub(super) fn finish(self) -> Graph {
        let Self {
            store,
            times,
            mut edges,
            threads,
            first_operation,
            classes,
            mut assumptions,
            ..
        } = self;
        // The sort merges a few sorted runs.
        edges.sort_by_key(|edge| edge.to);
        let mut order = topological(times.len(), &mut edges, &mut assumptions);
        order.sort_by_key(|point| times[*point as usize]);
        let mut first_edge = tables::with_capacity(times.len() + 1);
        let mut at = 0;
        for point in 0..=times.len() as u32 {
            while edges.get(at).is_some_and(|edge| edge.to < point) {
                at += 1;
            }
            first_edge.push(at as u32);
        }
        // If the deciding edge was left out, the closest one decides.
        for pair in first_edge.windows(2) {
            let edges = &mut edges[pair[0] as usize..pair[1] as usize];
            let since = |edge: &Edge| times[edge.to as usize] - times[edge.from as usize];
            if edges.iter().all(|edge| edge.lag < since(edge))
                && let Some(edge) = edges.iter_mut().min_by_key(|edge| since(edge) - edge.lag)
            {
                edge.lag = since(edge);
            }
        }
        let by_process = by_process(store, &threads, first_operation, &order);
        let classes = classes.len();
        Graph {
            times,
            edges,
            first_edge,
            order,
            by_process,
            threads,
            first_operation,
            classes,
            assumptions,
        }
    }
}

/// The points of threads and operations by process, in this order; empty with at most
/// [`MOST_TOGETHER`] processes.
fn by_process(
    store: &Tables,
    threads: &[ThreadPoints],
    first_operation: u32,
    order: &[u32],
) -> FxHashMap<u32, Vec<u32>> {
    let all: FxHashSet<u32> = store.threads.iter().map(|thread| thread.process).collect();
    if all.len() <= MOST_TOGETHER {
        return FxHashMap::default();
    }
    let of_threads = threads.iter().zip(&store.threads);
    let of_threads = of_threads.flat_map(|(of, thread)| of.points.clone().map(|_| thread.process));
    let of_operations = store.operations.iter().flat_map(|row| [store.work(row).process; 2]);
    // Points of threads come first. Points after the operations belong to several processes.
    let processes: Vec<u32> =
        of_threads.take(first_operation as usize).chain(of_operations).collect();
    let mut by_process: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    for &point in order {
        if let Some(process) = processes.get(point as usize) {
            by_process.entry(*process).or_default().push(point);
        }
    }
    by_process
}

/// Returns the points in a topological order. Only points at the same time can form cycles, since
/// no edge leads back in time. Removes the edges of such cycles, except own times of threads and
/// operations, which form none.
fn topological(points: usize, edges: &mut Vec<Edge>, assumptions: &mut Assumptions) -> Vec<u32> {
    let mut missing: Vec<u32> = tables::filled(0, points);
    // For each point the end of its targets; once all targets are placed, the first.
    let mut from: Vec<u32> = tables::filled(0, points + 1);
    for edge in edges.iter() {
        from[edge.from as usize] += 1;
        missing[edge.to as usize] += 1;
    }
    for at in 0..points {
        from[at + 1] += from[at];
    }
    let mut targets: Vec<u32> = tables::filled(0, edges.len());
    for edge in edges.iter().rev() {
        let slot = &mut from[edge.from as usize];
        *slot -= 1;
        targets[*slot as usize] = edge.to;
    }
    let mut order = tables::with_capacity(points);
    let mut ready: Vec<u32> = (0..points as u32).filter(|at| missing[*at as usize] == 0).collect();
    while let Some(point) = ready.pop() {
        order.push(point);
        for &to in &targets[from[point as usize] as usize..from[point as usize + 1] as usize] {
            missing[to as usize] -= 1;
            if missing[to as usize] == 0 {
                ready.push(to);
            }
        }
    }
    if order.len() == points {
        return order;
    }
    let before = edges.len();
    let mut is_in_order = vec![false; points];
    order.iter().for_each(|point| is_in_order[*point as usize] = true);
    let is_in_cycle =
        |edge: &Edge| !is_in_order[edge.from as usize] && !is_in_order[edge.to as usize];
    edges.retain(|edge| edge.link.is_activity() || !is_in_cycle(edge));
    assumptions.cycles += (before - edges.len()) as u64;
    topological(points, edges, assumptions)
}
