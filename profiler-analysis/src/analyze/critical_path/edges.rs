//! The edges between threads and the GPU: one pass over the calls in time order.

use std::cmp::Reverse;
use std::time::Duration;

use cupti::{CallClass, CopyKind, MemoryKind, SynchronizationKind};
use profiler_base::order;
use profiler_base::units::nanoseconds;
use rustc_hash::FxHashMap;

use super::events::{Events, StreamId};
use super::fit::{LONG_CALL_NS, Return, fit_returns, fit_starts};
use super::graph::{Builder, Graph, Link};
use super::graph_edges::Direction;
use crate::analyze::matches::Matches;
use profiler_core::profile::Profile;
use profiler_core::tables::{CallId, Interval, Maybe, OperationId, RangeId, ThreadId, What};

/// Nanoseconds by which an operation may seem to precede its call, or to outlast a wait for it.
const LEAST_TOLERANCE_NS: u64 = 2_000;
const MOST_TOLERANCE_NS: u64 = 100_000;
/// The number of last used streams that are searched for an event, or for a wait without a record.
const RECENT: usize = 64;
/// The maximum drift of the GPU's clock against the host's: one nanosecond per this many, which is
/// NTP's maximum correction.
const CLOCKS_APART: u64 = 2_000;

impl Graph {
    /// The graph of a profile. Costs some sorts of calls and operations.
    pub(super) fn new(profile: &Profile) -> Self {
        let mut builder = Builder::new(profile);
        let bounds = profile.hosts().iter().map(|clock| clock.error_bound_ns);
        let off = bounds.fold(nanoseconds(profile.health().facts.clock_error), u64::max);
        builder.assumptions.clock_error = Duration::from_nanos(off);
        let tolerance = nanoseconds(profile.health().facts.clock_error)
            .clamp(LEAST_TOLERANCE_NS, MOST_TOLERANCE_NS);
        let (starts, returns) = Sweep::new(&mut builder, tolerance).run();
        fit_starts(&mut builder, &starts);
        drop(starts);
        fit_returns(&mut builder, &returns);
        drop(returns);
        add_hand_overs(&mut builder);
        builder.measure_moved();
        add_collectives(&mut builder);
        builder.finish()
    }
}

#[derive(Debug, Default)]
struct Stream {
    id: StreamId,
    /// The operation that ends last so far.
    last: Option<OperationId>,
    /// True once the host has waited for it.
    is_drained: bool,
    /// Operations that the stream may wait for, by the events of waits since its last operation.
    waits_for: Vec<OperationId>,
    waits: u64,
    /// Operations that the stream does wait for: those before events with known recordings.
    follows: Vec<OperationId>,
}

struct Sweep<'b, 'p> {
    builder: &'b mut Builder<'p>,
    tolerance: u64,
    streams: Vec<Stream>,
    by_id: FxHashMap<StreamId, usize>,
    /// The last used streams, the newest last.
    recent: Vec<usize>,
    /// The targets of synchronisation calls.
    targets: FxHashMap<CallId, cupti::Synchronization>,
    events: Events,
    direction: Direction,
    /// The edges to the start of each operation.
    starts: Vec<std::ops::Range<u32>>,
    returns: Vec<Return>,
}

impl<'b, 'p> Sweep<'b, 'p> {
    fn new(builder: &'b mut Builder<'p>, tolerance: u64) -> Self {
        let records = builder.store.synchronizations.iter();
        let targets = records.filter_map(|row| Some((row.call.get()?, row.record))).collect();
        let events = Events::new(builder.store);
        Self {
            builder,
            tolerance,
            streams: Vec::new(),
            by_id: FxHashMap::default(),
            recent: Vec::new(),
            targets,
            events,
            direction: Direction::default(),
            starts: Vec::new(),
            returns: Vec::new(),
        }
    }

    /// Returns the edges to the start of each operation, and the waits of the host.
    fn run(mut self) -> (Vec<std::ops::Range<u32>>, Vec<Return>) {
        let store = self.builder.store;
        let mut submitted: Vec<(CallId, OperationId)> = Vec::new();
        for (row, operation) in (0..).map(OperationId).zip(&store.operations) {
            match (operation.call.get(), operation.time()) {
                (Some(call), Some(_)) => submitted.push((call, row)),
                _ => self.builder.assumptions.unmatched += 1,
            }
        }
        submitted.sort_unstable();
        let waits = |class| {
            matches!(
                class,
                CallClass::Synchronize | CallClass::WaitEvent | CallClass::Alloc | CallClass::Free
            )
        };
        // Each call with its operations.
        let mut calls: Vec<(CallId, std::ops::Range<usize>)> = Vec::new();
        let mut at = 0;
        for (id, call) in (0..).map(CallId).zip(&store.calls) {
            let first = at;
            while submitted.get(at).is_some_and(|(of, _)| *of == id) {
                at += 1;
            }
            let kind = store.call_kind(call);
            if first != at || (waits(kind.class) && !kind.is_failure()) {
                calls.push((id, first..at));
            }
        }
        order::sort_by_number(&mut calls, |(id, _)| store.calls[id.at()].time.start_ns);
        if !store.graph_dependencies.is_empty() {
            for (id, operations) in calls.iter().filter(|(_, operations)| operations.len() > 1) {
                if store.call_kind(&store.calls[id.at()]).class == CallClass::GraphLaunch {
                    let launch: Vec<OperationId> =
                        submitted[operations.clone()].iter().map(|(_, id)| *id).collect();
                    let mut direction = std::mem::take(&mut self.direction);
                    let start = |id| self.builder.time(self.builder.start_of(id));
                    direction.add(store, &launch, |one, other| self.ended_by(one) <= start(other));
                    self.direction = direction;
                }
            }
        }
        for (id, operations) in calls {
            match store.call_kind(&store.calls[id.at()]).class {
                CallClass::Synchronize => self.synchronize(id),
                CallClass::WaitEvent => self.wait_event(id),
                CallClass::Alloc | CallClass::Free => self.allocate(id),
                _ => self.submit(id, &submitted[operations]),
            }
        }
        (self.starts, self.returns)
    }

    fn process_of(&self, call: CallId) -> u32 {
        let store = self.builder.store;
        store.threads[store.calls[call.at()].thread.at()].process
    }

    fn stream(&mut self, id: StreamId) -> usize {
        let at = *self.by_id.entry(id).or_insert(self.streams.len());
        if at == self.streams.len() {
            self.streams.push(Stream { id, ..Stream::default() });
        }
        if self.recent.last() != Some(&at) {
            self.recent.retain(|other| *other != at);
            if self.recent.len() == RECENT {
                self.recent.remove(0);
            }
            self.recent.push(at);
        }
        at
    }

    fn end_of(&self, id: OperationId) -> (u32, u64) {
        let end = self.builder.start_of(id) + 1;
        (end, self.builder.time(end))
    }

    /// The end of an operation less the possible clock drift. Starts are corrected to the host's
    /// clock, and ends follow after the measured duration. An end may therefore be too late by the
    /// drift.
    fn ended_by(&self, id: OperationId) -> u64 {
        let (end, end_ns) = self.end_of(id);
        let ns = end_ns - self.builder.time(end - 1);
        end_ns - (ns / CLOCKS_APART + 1).min(ns / 2).min(self.tolerance)
    }

    /// The last operations of recently used streams of a process, latest end first.
    fn last_operations(
        &self,
        process: u32,
        context: Option<u32>,
    ) -> Vec<(u64, usize, OperationId)> {
        let mut last: Vec<(u64, usize, OperationId)> = Vec::new();
        for &at in &self.recent {
            let Stream { id, last: operation, .. } = &self.streams[at];
            let is_there = id.0 == process && context.is_none_or(|context| context == id.1);
            if let Some(operation) = operation.filter(|_| is_there) {
                last.push((self.end_of(operation).1, at, operation));
            }
        }
        last.sort_unstable_by_key(|(end, ..)| Reverse(*end));
        last
    }

    /// Adds a call and the operations it submits, by start.
    fn submit(&mut self, call: CallId, operations: &[(CallId, OperationId)]) {
        let store = self.builder.store;
        let row = &store.calls[call.at()];
        let called =
            self.builder.threads[row.thread.at()].from(&self.builder.times, row.time.start_ns);
        let Some(called) = called else { return };
        let is_graph = operations.len() > 1 && store.call_kind(row).class == CallClass::GraphLaunch;
        // The nodes of the graph by their ends, and the last one that ended before the next one
        // starts.
        let mut ends: Vec<(u64, OperationId)> = Vec::new();
        if is_graph {
            ends = operations.iter().map(|(_, id)| (self.ended_by(*id), *id)).collect();
            ends.sort_unstable();
        }
        let edges = is_graph.then(|| {
            let launch: Vec<OperationId> = operations.iter().map(|(_, id)| *id).collect();
            self.direction.edges(store, &launch)
        });
        let mut edges = edges.flatten().unwrap_or_default().into_iter();
        let (mut ended, mut at) = (None, 0);
        // The last operations of the streams before the graph.
        let mut before: Vec<(usize, Option<OperationId>)> = Vec::new();
        for &(_, id) in operations {
            let start = self.builder.start_of(id);
            self.builder.move_start(start, row.time.start_ns, self.tolerance);
            let start_ns = self.builder.time(start);
            while ends.get(at).is_some_and(|(end, other)| *end <= start_ns && *other != id) {
                ended = Some(ends[at].1);
                at += 1;
            }
            let first = self.builder.edges.len();
            let stream = self.stream(stream_of(self.builder.profile, id));
            let recorded = edges.next().flatten();
            self.builder.assumptions.recorded_in_graphs += u64::from(recorded.is_some());
            let is_inferred = recorded.is_none() && ended.is_some();
            self.builder.assumptions.inferred_in_graphs += u64::from(is_inferred);
            match recorded.unwrap_or_else(|| ended.into_iter().collect()) {
                before if !before.is_empty() => {
                    for before in before {
                        self.start_after(before, start, 4, Link::Graph(id));
                    }
                }
                _ => {
                    let class = [row.kind.0, kind_of(self.builder.profile, id), 0];
                    let class = self.builder.class(2, class);
                    self.builder.add(called, start, Link::Launch(id), class);
                    let known = before.iter().find(|(of, _)| *of == stream);
                    let last = known.map_or(self.streams[stream].last, |(_, last)| *last);
                    if is_graph && known.is_none() {
                        before.push((stream, last));
                    }
                    self.follow(stream, last, id, start);
                }
            }
            // CAST: edges are counted in 32 bits.
            self.starts.push(first as u32..self.builder.edges.len() as u32);
            let (_, end_ns) = self.end_of(id);
            let last = self.streams[stream].last;
            if last.is_none_or(|last| self.end_of(last).1 <= end_ns) {
                (self.streams[stream].last, self.streams[stream].is_drained) = (Some(id), false);
            }
        }
        self.block(call, operations);
    }

    /// Orders the operation after the last one of its stream, and after those that the stream waits
    /// for.
    fn follow(&mut self, stream: usize, last: Option<OperationId>, id: OperationId, start: u32) {
        let start_ns = self.builder.time(start);
        let mut own_end = 0;
        if let Some(last) = last {
            let (end, end_ns) = self.end_of(last);
            own_end = end_ns;
            let class = self.builder.class(3, [kind_of(self.builder.profile, id), 0, 0]);
            if end_ns <= start_ns.saturating_add(self.tolerance) && end_ns > start_ns {
                self.builder.move_start(start, end_ns, self.tolerance);
            }
            if end_ns <= self.builder.time(start) {
                self.builder.add(end, start, Link::Stream(id), class);
            } else {
                // A programmatic dependency lets it start before the other ends.
                let class = self.builder.class(3, [kind_of(self.builder.profile, id), 1, 0]);
                self.builder.assumptions.overlapping_in_stream += 1;
                self.builder.add(end - 1, start, Link::Stream(id), class);
            }
        }
        for other in std::mem::take(&mut self.streams[stream].follows) {
            self.start_after(other, start, 5, Link::Event(id));
        }
        let waits_for = std::mem::take(&mut self.streams[stream].waits_for);
        let waits = std::mem::take(&mut self.streams[stream].waits);
        let start_ns = self.builder.time(start);
        let before = |other: &&OperationId| {
            self.ended_by(**other) <= start_ns && self.end_of(**other).1 > own_end
        };
        let source = waits_for.iter().filter(before).max_by_key(|other| self.end_of(**other).1);
        match source.copied() {
            Some(other) => {
                self.builder.assumptions.inferred_events += 1;
                self.start_after(other, start, 5, Link::Event(id));
            }
            // The event was recorded before the stream's own work, or its work is not recorded.
            None => self.builder.assumptions.events_without_source += waits,
        }
    }

    /// Orders the start of an operation after the end of another one, by a link of a kind.
    fn start_after(&mut self, other: OperationId, start: u32, kind: u32, link: Link) {
        let (end, end_ns) = self.end_of(other);
        self.builder.move_start(start, end_ns, self.tolerance);
        let class = self.builder.class(kind, [0; 3]);
        self.builder.add(end, start, link, class);
    }

    /// Makes the call wait for its operations that end before it returns.
    fn block(&mut self, call: CallId, operations: &[(CallId, OperationId)]) {
        let store = self.builder.store;
        let row = &store.calls[call.at()];
        if !matches!(store.call_kind(row).class, CallClass::Memcpy | CallClass::Memset) {
            return;
        }
        let Some((_, returned)) = self.builder.points_of(call) else { return };
        let returned_ns = self.builder.time(returned);
        for (_, id) in operations {
            // Copies to pageable memory always block. Others may block, if they end before the
            // return.
            if self.blocks(*id) {
                self.end_by(*id, returned_ns);
            }
        }
        let ended = operations.iter().map(|(_, id)| *id);
        let ended = ended.filter(|id| self.end_of(*id).1 <= returned_ns);
        if let Some(last) = ended.max_by_key(|id| self.end_of(*id).1) {
            self.wait_for(call, &[last]);
        }
    }

    fn blocks(&self, id: OperationId) -> bool {
        match &self.builder.store.work(&self.builder.store.operations[id.at()]).what {
            What::Copy(copy) => {
                copy.kind == CopyKind::DeviceToHost && copy.destination == MemoryKind::PAGEABLE
            }
            _ => false,
        }
    }

    /// Moves the end of an operation to the return of the call that waited for it. Returns false if
    /// it is later by more than the clock error.
    fn end_by(&mut self, id: OperationId, returned_ns: u64) -> bool {
        let (end, _) = self.end_of(id);
        self.builder.move_end(end, returned_ns, self.tolerance)
    }

    /// Adds edges from the ends of operations to the return of a call.
    fn wait_for(&mut self, call: CallId, operations: &[OperationId]) {
        let Some((_, returned)) = self.builder.points_of(call) else { return };
        let kind = self.builder.store.calls[call.at()].kind.0;
        let class = self.builder.class(7, [kind, 0, 0]);
        let first = self.builder.edges.len();
        for &id in operations {
            let (end, _) = self.end_of(id);
            self.builder.add(end, returned, Link::Wait(call), class);
        }
        if first != self.builder.edges.len() {
            self.returns.push(Return { call, edges: first..self.builder.edges.len() });
        }
    }

    fn synchronize(&mut self, call: CallId) {
        let process = self.process_of(call);
        let store = self.builder.store;
        let time = store.calls[call.at()].time;
        let until = time.end_ns;
        let target = self.targets.get(&call).copied();
        let kind = target.map(|record| record.kind);
        let stream = target.and_then(|record| record.stream);
        let context = target.map(|record| record.context);
        match (kind, stream) {
            (Some(SynchronizationKind::Stream), Some(stream)) => {
                let id = (process, context.unwrap_or_default(), stream);
                let Some(&at) = self.by_id.get(&id) else { return };
                let Some(last) = self.streams[at].last else { return };
                if self.end_by(last, until) {
                    self.streams[at].is_drained = true;
                    self.wait_for(call, &[last]);
                } else {
                    self.builder.assumptions.contradicted += 1;
                }
            }
            (Some(SynchronizationKind::Event), _) => {
                let record = target.and_then(|target| self.events.recording(process, &target));
                if let Some(record) = record {
                    self.builder.assumptions.recorded_events += 1;
                    let mut sources = self.events.sources(record);
                    let before = sources.len();
                    sources.retain(|id| self.end_by(*id, until));
                    self.builder.assumptions.contradicted += (before - sources.len()) as u64;
                    self.wait_for(call, &sources);
                    return;
                }
                let mut last = self.last_operations(process, None);
                last.retain(|(.., id)| self.end_by(*id, until));
                if let Some((_, _, operation)) = last.first() {
                    self.builder.assumptions.inferred_events += 1;
                    self.wait_for(call, &[*operation]);
                }
            }
            _ => {
                let mut last = self.last_operations(process, context);
                last.retain(|(.., id)| self.end_by(*id, until));
                // For streams that the host has already waited for, the last operation is enough.
                let mut is_first = true;
                last.retain(|(_, at, _)| {
                    !self.streams[*at].is_drained || std::mem::take(&mut is_first)
                });
                let operations: Vec<OperationId> = last.iter().map(|(.., id)| *id).collect();
                for (_, at, _) in last {
                    self.streams[at].is_drained = true;
                }
                self.wait_for(call, &operations);
            }
        }
    }

    /// Records that the stream will wait for an event. CUPTI's record contains its stream, and a
    /// separate record the work before the event. Without the latter, the candidates are the last
    /// operations of the other streams.
    fn wait_event(&mut self, call: CallId) {
        let process = self.process_of(call);
        let record = self.targets.get(&call).copied();
        let Some((record, stream)) = record.and_then(|record| Some((record, record.stream?)))
        else {
            self.builder.assumptions.events_without_source += 1;
            return;
        };
        let at = self.stream((process, record.context, stream));
        if let Some(event) = self.events.recording(process, &record) {
            self.builder.assumptions.recorded_events += 1;
            let follows = &mut self.streams[at].follows;
            follows.extend(self.events.sources(event));
            follows.sort_unstable();
            follows.dedup();
            keep_last(follows);
            return;
        }
        let others = self.last_operations(process, None);
        let others = others.iter().filter(|(_, of, _)| *of != at).map(|(.., id)| *id);
        self.streams[at].waits_for.extend(others);
        self.streams[at].waits += 1;
        keep_last(&mut self.streams[at].waits_for);
    }

    /// Detects a wait in a long call: it returns soon after the end of an operation that was
    /// running when it began.
    fn allocate(&mut self, call: CallId) {
        let time = self.builder.store.calls[call.at()].time;
        if time.ns() < LONG_CALL_NS {
            return;
        }
        let last = self.last_operations(self.process_of(call), None);
        let is_waited_for = |end: u64| {
            end > time.start_ns && end <= time.end_ns && (time.end_ns - end) <= time.ns() / 2
        };
        if let Some((.., id)) = last.into_iter().find(|(end, ..)| is_waited_for(*end)) {
            self.builder.assumptions.inferred_waits += 1;
            self.wait_for(call, &[id]);
        }
    }
}

/// Keeps the last `RECENT` operations of a stream.
fn keep_last(operations: &mut Vec<OperationId>) {
    operations.drain(..operations.len().saturating_sub(RECENT));
}

fn stream_of(profile: &Profile, id: OperationId) -> StreamId {
    let work = profile.tables().work(&profile.tables().operations[id.at()]);
    (work.process, work.place.context, work.place.stream)
}

/// The kind of an operation, for the classes of edges.
fn kind_of(profile: &Profile, id: OperationId) -> u32 {
    match &profile.tables().work(&profile.tables().operations[id.at()]).what {
        What::Kernel { .. } => 0,
        What::Memset(_) => 1,
        What::Graph(_) => 2,
        What::Copy(copy) => 3 + u32::from(copy.bytes > 64 << 10),
    }
}

/// Collectives of several ranks: none ends before the last one has begun. The part of a rank's
/// kernel until then is not its own work. One common point for all arrivals limits the edges to the
/// number of ranks.
fn add_collectives(builder: &mut Builder<'_>) {
    if builder.store.processes.len() < 2 {
        return;
    }
    let profile = builder.profile;
    let rows = profile.collective_rows();
    let matches = Matches::new(profile);
    let mut transfers: FxHashMap<u32, u64> = FxHashMap::default();
    for matched in matches.all.iter().filter(|matched| matched.function.waits_for_all()) {
        let operations = matched.members.iter().filter_map(|member| rows[member.row].operation);
        let starts: Vec<(OperationId, u32)> =
            operations.map(|id| (id, builder.start_of(id))).collect();
        let Some(latest_ns) = starts.iter().map(|(_, start)| builder.time(*start)).max() else {
            continue;
        };
        let all = builder.add_point(latest_ns);
        let (arrival, transfer) = (builder.class(11, [0; 3]), builder.class(12, [0; 3]));
        for (id, start) in starts {
            // It ended before the last one began, even within the clock error.
            if !builder.add(all, start + 1, Link::Transfer(id), transfer) {
                continue;
            }
            transfers.insert(start + 1, builder.time(start + 1) - latest_ns);
            builder.add(start, all, Link::Arrival(id), arrival);
            if let Some(edge) = builder.edges.last_mut() {
                edge.lag = 0;
            }
        }
        builder.assumptions.collectives += 1;
    }
    for edge in builder.edges.iter_mut().filter(|edge| matches!(edge.link, Link::Work(_))) {
        edge.lag = transfers.get(&edge.to).map_or(edge.lag, |ns| edge.lag.min(*ns));
    }
}

/// Work of a thread for a range of another thread.
struct HandOver {
    /// The range that the path names for it.
    range: RangeId,
    outer: RangeId,
    thread: ThreadId,
    time: Interval,
}

/// Adds ranges that continue a range of another thread, and calls that are inferred to belong to
/// one. The time of the hand-over is not recorded. The model assumes that the work waits for the
/// last action of the other thread before it. The other thread then continues when the work ends.
fn add_hand_overs(builder: &mut Builder<'_>) {
    let store = builder.store;
    let mut found: Vec<HandOver> = Vec::new();
    for (range, row) in (0..).map(RangeId).zip(&store.ranges) {
        let Some(outer) = row.parent.get() else { continue };
        found.push(HandOver { range, outer, thread: row.thread, time: row.time });
    }
    // Calls between two points of the waiting thread are one piece of work.
    let mut last_from = None;
    for (id, call) in (0..).map(CallId).zip(&store.calls) {
        let Some(outer) = store.inferred_range_of(Some(id).into()) else { continue };
        let other = &builder.threads[store.ranges[outer.at()].thread.at()];
        let (thread, time) = (call.thread, call.time);
        let from = (other.last_before(&builder.times, time.start_ns), thread, outer);
        match found.last_mut().filter(|_| last_from == Some(from)) {
            Some(last) => last.time.end_ns = time.end_ns.max(last.time.end_ns),
            None => found.push(HandOver { range: outer, outer, thread, time }),
        }
        last_from = Some(from);
    }
    for hand_over in found {
        if store.ranges[hand_over.outer.at()].thread != hand_over.thread {
            add_hand_over(builder, &hand_over);
        }
    }
}

fn add_hand_over(builder: &mut Builder<'_>, of: &HandOver) {
    let outer = &builder.store.ranges[of.outer.at()];
    let Interval { start_ns, end_ns } = of.time;
    let [own, other] = [of.thread, outer.thread].map(|thread| &builder.threads[thread.at()]);
    let times = &builder.times;
    let (from, to) = (other.last_before(times, start_ns), own.from(times, start_ns));
    let (ended, next) = (own.from(times, end_ns), other.from(times, end_ns));
    let next = next.filter(|next| builder.time(*next) <= outer.time.end_ns);
    if let (Some(from), Some(to)) = (from, to) {
        let class = builder.class(8, [0; 3]);
        if builder.add(from, to, Link::HandOver(of.range), class) {
            builder.assumptions.hand_overs += 1;
            // Before that, the thread waited for work.
            if let Some(edge) = builder.own_time_to(of.thread, to)
                && matches!(edge.link, Link::Host(range) if range == Maybe::NONE)
            {
                edge.lag = 0;
            }
        }
    }
    let (Some(ended), Some(next)) = (ended, next) else { return };
    let lag = builder.time(next).saturating_sub(builder.time(ended));
    let own_time = builder.own_time_to(outer.thread, next);
    let is_idle = own_time.is_some_and(|edge| matches!(edge.link, Link::Host(_)));
    let class = builder.class(9, [0; 3]);
    if is_idle
        && builder.add(ended, next, Link::Join(of.range), class)
        && let Some(edge) = builder.own_time_to(outer.thread, next)
    {
        edge.lag = lag.min(edge.lag);
    }
}
