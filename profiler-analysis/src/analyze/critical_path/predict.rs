//! Changes of a program, and their effect as predicted by a replay of the graph.

use std::cmp::Reverse;
use std::ops::RangeInclusive;
use std::time::Duration;

use cupti::{CallClass, CopyKind, MemoryKind};
use profiler_base::kernel_names::Pattern;
use profiler_base::named_variants;
use profiler_base::statistics::{as_ns, upper_median};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::excerpt::{Excerpt, MOST_POINTS};
use super::graph::Link;
use super::lengths;
use super::path::{contiguous_windows, merged, operation_of};
use super::replay::{REMOVED, ReplayError};
use super::what_if::WhatIf;
use super::{CriticalPath, Dependencies, PathKind, Window};
use profiler_core::profile::GpuOperation;
use profiler_core::tables::{Call, CallId, OperationId, RangeId};

/// The predicted effect of a change.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Prediction {
    /// The change.
    pub change: WhatIf,
    /// The measured time of the median step, or of the session.
    #[serde(rename = "before_ns", serialize_with = "as_ns")]
    pub before: Duration,
    /// The predicted time.
    #[serde(rename = "after_ns", serialize_with = "as_ns")]
    pub after: Duration,
    /// The rate of pinned copies in GB/s, if the change has any.
    pub copy_rate: Option<CopyRate>,
}

/// The assumed rate of pinned copies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CopyRate {
    /// In GB/s (10^9 bytes per second).
    pub gigabytes: f64,
    /// True if measured on pinned copies of the recording; false if usual for GPUs of this compute
    /// capability.
    pub is_measured: bool,
}

/// The reason for a missing prediction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "why")]
#[non_exhaustive]
pub enum NoPrediction {
    /// The profile has no kernel, range or copy that matches the change.
    NothingMatches,
    /// The change matches, but alters nothing: a range without waits, or a run whose copies are all
    /// pinned.
    NothingToChange,
    /// The factor is not from 0.01 to a million, nor infinite.
    Times,
    /// The model fails its own check: the [median step](super::ReplayError::median_step) of a
    /// replay has too large an error.
    ModelError {
        /// The error, as a share of the median step.
        median_step: f64,
        /// The maximum error for predictions.
        most: f64,
    },
}

impl std::error::Error for NoPrediction {}

impl Prediction {
    /// The speed-up of the run as a factor.
    pub fn speed_up(&self) -> f64 {
        self.before.as_secs_f64() / self.after.as_secs_f64().max(1e-9)
    }

    /// The time that the change saves.
    pub fn saved(&self) -> Duration {
        self.before.saturating_sub(self.after)
    }
}

named_variants! {
    /// The reliability of predictions.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub(crate) enum ModelConfidence with text {
        /// Fewer than four steps, so that the model's error is unknown.
        Unknown = "unknown",
        /// The error of a replay's median step is above 10 %.
        Low = "low",
        /// The error of a replay's median step is above 2 %.
        Medium = "medium",
        /// The error of a replay's median step is at most 2 %.
        High = "high",
    }
}

impl ModelConfidence {
    /// Computes the confidence from the model's error. With few steps, that error is at least the
    /// error of single steps divided by the root of their number.
    pub(super) fn new(replay: Option<&ReplayError>) -> Self {
        let Some(replay) = replay else { return Self::Unknown };
        match replay.median_step.max(replay.median / (replay.steps as f64).sqrt()) {
            error if error <= HIGH => Self::High,
            error if error <= MOST_ERROR => Self::Medium,
            _ => Self::Low,
        }
    }
}

/// The maximum error of a replay's median step for high confidence.
const HIGH: f64 = 0.02;
/// The maximum error of a replay's median step for predictions.
const MOST_ERROR: f64 = 0.1;
/// The maximum nesting depth of ranges that are tried.
const DEEPEST: usize = 64;
/// The number of changes of each kind that are tried.
const TRIED: usize = 4;
/// The limit of point visits by all changes together, also for a session without steps: some
/// seconds.
const MOST_VISITS: usize = 160_000_000;
/// The minimum saved share of the time for the best changes.
const LEAST_SAVED: f64 = 0.005;
/// The minimum bytes of a copy for measuring the rate.
const LARGE_COPY: u64 = 1 << 20;
/// The number of loading threads in a proposed change.
const THREADS: u32 = 4;

/// The valid finite factors; infinity is also valid.
const TIMES: RangeInclusive<f64> = 0.01..=1e6;

/// The lags of a changed program.
struct Changed<'g> {
    excerpt: Excerpt<'g>,
    /// By edge; lags outside the excerpt have no meaning.
    lags: Vec<u64>,
    /// The minimum length: work of other threads or copies that run ahead.
    at_least: u64,
    copy_rate: Option<CopyRate>,
}

/// Memory that consecutive replays share: proportional to the edges and points of the graph.
#[derive(Default)]
struct Scratch {
    lags: Vec<u64>,
    earliest: Vec<u64>,
}

impl Dependencies<'_> {
    /// Predicts the time that a change saves of the median step, or of the session, by a replay of
    /// the changed graph. Costs some passes over the graph.
    ///
    /// # Errors
    ///
    /// If the change matches nothing, alters nothing or has an invalid factor, or if the model
    /// fails its own check.
    pub fn predict(&self, change: WhatIf) -> Result<Prediction, NoPrediction> {
        if let WhatIf::Kernel { times, .. }
        | WhatIf::RangeGpu { times, .. }
        | WhatIf::Host { times, .. } = &change
            && !(TIMES.contains(times) || *times == f64::INFINITY)
        {
            return Err(NoPrediction::Times);
        }
        if !self.has_match(&change) {
            return Err(NoPrediction::NothingMatches);
        }
        self.check_model()?;
        let mut scratch = Scratch::default();
        let changed = self.changed(&change, self.whole_excerpt(), &mut scratch);
        let mut edges = self.edges_of(changed.excerpt);
        if changed.at_least == 0 && edges.all(|(at, edge)| edge.lag == changed.lags[at]) {
            return Err(NoPrediction::NothingToChange);
        }
        Ok(self.replay(change, changed, &self.windows(), &mut scratch))
    }

    /// Fails if the error of the replayed median step exceeds 10 %.
    pub(super) fn check_model(&self) -> Result<(), NoPrediction> {
        match self.replay_error() {
            Some(ReplayError { median_step, .. }) if median_step > MOST_ERROR => {
                Err(NoPrediction::ModelError { median_step, most: MOST_ERROR })
            }
            _ => Ok(()),
        }
    }

    fn has_match(&self, change: &WhatIf) -> bool {
        let profile = self.profile;
        match change {
            WhatIf::Kernel { name, .. } => {
                profile.query().kernels().named(name).iter().any(|_| true)
            }
            change => match change.range() {
                Some(path) => {
                    profile.matching(&Pattern::new(path)).into_iter().any(|is_match| is_match)
                }
                None => profile.copies().any(|_| true),
            },
        }
    }

    fn changed<'g>(
        &'g self,
        change: &WhatIf,
        excerpt: Excerpt<'g>,
        scratch: &mut Scratch,
    ) -> Changed<'g> {
        let mut lags = std::mem::take(&mut scratch.lags);
        if lags.len() != self.graph.edges.len() {
            // Zeroed memory costs nothing until it is written.
            lags = vec![0; self.graph.edges.len()];
        }
        self.edges_of(excerpt).for_each(|(at, edge)| lags[at] = edge.lag);
        let mut changed = Changed { excerpt, lags, at_least: 0, copy_rate: None };
        self.apply(change, &mut changed);
        changed
    }

    #[cfg(test)]
    pub(super) fn replayed_on(
        &self,
        change: WhatIf,
        windows: &[Window],
        excerpt: Excerpt<'_>,
    ) -> Prediction {
        let mut scratch = Scratch::default();
        let changed = self.changed(&change, excerpt, &mut scratch);
        self.replay(change, changed, windows, &mut scratch)
    }

    fn replay(
        &self,
        change: WhatIf,
        mut changed: Changed<'_>,
        windows: &[Window],
        scratch: &mut Scratch,
    ) -> Prediction {
        let graph = &self.graph;
        // Each point is written before it is read.
        let (earliest, Excerpt { points, start, .. }) = (&mut scratch.earliest, changed.excerpt);
        graph.replay(points, start, |at, _| changed.lags[at], earliest);
        let before = lengths(windows, |point| graph.time(point));
        let after = lengths(windows, |point| earliest[point as usize]);
        scratch.lags = std::mem::take(&mut changed.lags);
        // The median of steps of two lengths may be either one, before and after, so savings are
        // compared step by step.
        let longer = before
            .iter()
            .zip(&after)
            .map(|(before, after)| i128::from(*after) - i128::from(*before));
        let longer = upper_median(longer.collect()).unwrap_or_default();
        let before = upper_median(before).unwrap_or_default();
        let after = (i128::from(before) + longer).clamp(0, i128::from(u64::MAX)) as u64;
        let at_least = changed.at_least / windows.len().max(1) as u64;
        Prediction {
            change,
            before: Duration::from_nanos(before),
            after: Duration::from_nanos(after.max(at_least)),
            copy_rate: changed.copy_rate,
        }
    }

    /// The median length of the steps, or the length of the session.
    pub(super) fn clock_ns(&self) -> u64 {
        upper_median(lengths(&self.windows(), |point| self.graph.time(point))).unwrap_or_default()
    }

    /// The changes suggested by the critical path that save most: at most this many, each with at
    /// least 0.5 % of the time. They are not independent: savings of two changes may overlap.
    /// Ranges within 64 others are not tried. In a run with more than 500,000 starts and ends of
    /// calls, ranges and operations, changes are tried on the first steps with that many. Empty if
    /// the model fails its own check.
    pub fn best_changes(&self, most: usize) -> Vec<Prediction> {
        if self.check_model().is_err() {
            return Vec::new();
        }
        let windows = self.windows();
        self.best_changes_of(&self.path_of(None, &windows, false), &windows, most)
    }

    pub(super) fn best_changes_of(
        &self,
        path: &CriticalPath,
        windows: &[Window],
        most: usize,
    ) -> Vec<Prediction> {
        let (tried, excerpt) = self.first_steps(windows, MOST_POINTS);
        let tries = (MOST_VISITS / excerpt.points.len().max(1)).max(8);
        let mut predictions: Vec<Prediction> = Vec::new();
        let mut scratch = Scratch::default();
        for change in self.candidates(path, windows).into_iter().take(tries) {
            let changed = self.changed(&change, excerpt, &mut scratch);
            let prediction = self.replay(change, changed, tried, &mut scratch);
            let least = LEAST_SAVED * prediction.before.as_secs_f64();
            if prediction.saved().as_secs_f64() >= least {
                predictions.push(prediction);
            }
        }
        predictions.sort_by_key(|prediction| Reverse(prediction.saved()));
        predictions.truncate(most);
        predictions
    }

    fn candidates(&self, path: &CriticalPath, windows: &[Window]) -> Vec<WhatIf> {
        let mut changes = Vec::new();
        let kernels = path.rows().iter().filter(|row| row.kind == PathKind::Kernel);
        for row in kernels.take(TRIED) {
            changes.push(WhatIf::Kernel { name: row.name.clone(), times: 2.0 });
        }
        let times = self.range_times(windows);
        for path in self.largest(&times, |times| times.host) {
            changes.push(WhatIf::Host { path: path.clone(), times: 2.0 });
            // A part of a step can be done ahead, a whole step cannot.
            if !self.is_steps_path(&path) {
                changes.push(WhatIf::Ahead { path, threads: THREADS });
            }
        }
        for path in self.largest(&times, |times| times.waits) {
            changes.push(WhatIf::OneWait { path: path.clone() });
            // A step without any wait has no end.
            if !self.is_steps_path(&path) {
                changes.push(WhatIf::NoWait { path });
            }
        }
        let mut add = |of: fn(&Times) -> u64, change: fn(String) -> WhatIf| {
            changes.extend(self.largest(&times, of).into_iter().map(change));
        };
        add(|times| times.allocations, |path| WhatIf::NoAllocations { path });
        add(|times| times.launches, |path| WhatIf::OneGraph { path });
        add(|times| times.copies, |path| WhatIf::OneCopy { path });
        add(|times| times.events, |path| WhatIf::NoEvents { path });
        if path.time_of(PathKind::Copy) != Duration::ZERO {
            changes.push(WhatIf::Pinned);
            changes.push(WhatIf::CopiesAhead);
        }
        changes
    }

    /// The times of ranges with descendants on the critical path, for the choice of changes.
    fn range_times(&self, windows: &[Window]) -> Vec<Times> {
        let store = &self.profile.tables();
        let mut times = vec![Times::default(); self.profile.range_tree().nodes.len()];
        let walks = contiguous_windows(windows).into_iter().map(|windows| merged(&windows));
        for edge in walks.flat_map(|window| self.walk(&window).0) {
            let edge = &self.graph.edges[edge];
            let ns = self.graph.time(edge.to) - self.graph.time(edge.from);
            let Some(node) = self.node_of(edge) else { continue };
            let times = &mut times[node.at()];
            let class = |call: CallId| store.call_kind(&store.calls[call.at()]).class;
            match edge.link {
                Link::Host(_) => times.host += ns,
                Link::Call(call) if is_launch(class(call)) => times.launches += ns,
                Link::Call(call) | Link::Wait(call) if is_allocation(class(call)) => {
                    times.allocations += ns;
                }
                Link::Launch(_) => times.launches += ns,
                Link::Wait(call) if class(call) == CallClass::Memcpy => times.copies += ns,
                Link::Work(id) if self.profile.operation(id).as_copy().is_some() => {
                    times.copies += ns;
                }
                Link::Wait(call) if class(call) == CallClass::Synchronize => times.waits += ns,
                Link::Event(_) => times.events += ns.max(1),
                _ => {}
            }
        }
        // Parents precede their children.
        for at in (0..times.len()).rev() {
            if let Some(parent) = self.profile.range_tree().nodes[at].parent {
                let own = times[at];
                let times = &mut times[parent.at()];
                times.waits += own.waits;
                times.launches += own.launches;
                times.events += own.events;
                times.copies += own.copies;
                times.allocations += own.allocations;
            }
        }
        times
    }

    /// The paths of the ranges with most of a time. Very deep ranges are left out: their paths are
    /// as long as the tree is deep.
    fn largest(&self, times: &[Times], of: impl Fn(&Times) -> u64) -> Vec<String> {
        let mut rows: Vec<_> = self.profile.nodes().zip(times.iter().map(of)).collect();
        rows.retain(|(node, time)| *time != 0 && node.depth() < DEEPEST);
        rows.sort_by_key(|(_, time)| Reverse(*time));
        rows.iter().take(TRIED).map(|(node, _)| node.path()).collect()
    }

    /// For each node of the range tree, true if it or a node around it matches.
    fn is_in(&self, path: &str) -> Vec<bool> {
        let matching = self.profile.matching(&Pattern::new(path));
        let within = self.profile.is_within(&matching);
        matching.into_iter().zip(within).map(|(is_it, within)| is_it || within).collect()
    }

    fn apply(&self, change: &WhatIf, changed: &mut Changed<'_>) {
        let excerpt = changed.excerpt;
        let query = self.profile.query();
        let faster =
            |ns: u64, times: f64| (ns as f64 / times.max(f64::MIN_POSITIVE)).round() as u64;
        match change {
            WhatIf::Kernel { name, times } => {
                self.scale(query.kernels().named(name).iter(), *times, changed);
            }
            WhatIf::RangeGpu { path, times } => {
                self.scale(query.in_range(path).iter(), *times, changed);
            }
            WhatIf::Host { path, times } => {
                self.host_edges(path, excerpt, |at, ns| changed.lags[at] = faster(ns, *times));
            }
            WhatIf::Ahead { path, threads } => {
                let mut total = 0;
                self.host_edges(path, excerpt, |at, ns| {
                    changed.lags[at] = 0;
                    total += ns;
                });
                changed.at_least = total / u64::from((*threads).max(1));
            }
            WhatIf::NoWait { path } => self.remove_waits(path, 0, changed),
            WhatIf::OneWait { path } => self.remove_waits(path, 1, changed),
            WhatIf::NoAllocations { path } => {
                let store = &self.profile.tables();
                let class = |id: &CallId| store.call_kind(&store.calls[id.at()]).class;
                let calls = self.calls_of(path, excerpt).into_values().flatten();
                self.remove_calls(&calls.filter(|id| is_allocation(class(id))).collect(), changed);
            }
            WhatIf::NoEvents { path } => {
                let is_in = self.is_in(path);
                for (at, edge) in self.edges_of(excerpt) {
                    let is_event = matches!(edge.link, Link::Event(_));
                    if is_event && self.node_of(edge).is_some_and(|node| is_in[node.at()]) {
                        changed.lags[at] = REMOVED;
                    }
                }
            }
            WhatIf::OneGraph { path } => self.launch_once(path, changed),
            WhatIf::OneCopy { path } => self.copy_once(path, changed),
            WhatIf::Pinned => self.pin(false, changed),
            WhatIf::CopiesAhead => self.pin(true, changed),
        }
    }

    fn scale<'p>(
        &self,
        operations: impl Iterator<Item = GpuOperation<'p>>,
        times: f64,
        changed: &mut Changed<'_>,
    ) {
        let ends = operations
            .map(|operation| self.graph.start_of(OperationId(operation.number() as u32)) + 1);
        for end in ends.filter(|end| changed.excerpt.has(self.graph.time(*end))) {
            for at in self.graph.edges_to(end) {
                let ns = changed.lags[at] as f64 / times.max(f64::MIN_POSITIVE);
                changed.lags[at] = ns.round() as u64;
            }
        }
    }

    /// The own times of threads in a range, outside calls, with the numbers of their edges.
    fn host_edges(&self, path: &str, excerpt: Excerpt<'_>, mut each: impl FnMut(usize, u64)) {
        let is_in = self.is_in(path);
        for (at, edge) in self.edges_of(excerpt) {
            let Link::Host(range) = edge.link else { continue };
            let Some(range) = range.get() else { continue };
            if is_in[self.profile.range_tree().of_range[range.at()].at()] {
                each(at, edge.lag);
            }
        }
    }

    /// For each matching range, the outermost matching range around it. Visits each range once.
    fn outermost(&self, is_in: &[bool]) -> Vec<Option<RangeId>> {
        let store = &self.profile.tables();
        let mut outermost: Vec<Option<RangeId>> = vec![None; store.ranges.len()];
        let mut within = Vec::new();
        for id in (0..store.ranges.len() as u32).map(RangeId) {
            let mut around = Some(id);
            let mut found = None;
            while let Some(at) = around {
                found = outermost[at.at()];
                if found.is_some() || !is_in[self.profile.range_tree().of_range[at.at()].at()] {
                    break;
                }
                within.push(at);
                around = store.ranges[at.at()].parent.get();
            }
            while let Some(at) = within.pop() {
                outermost[at.at()] = Some(*found.get_or_insert(at));
            }
        }
        outermost
    }

    /// The calls of an excerpt in a range, by its outermost instance and by thread in time order.
    fn calls_of(&self, path: &str, excerpt: Excerpt<'_>) -> FxHashMap<RangeId, Vec<CallId>> {
        let outermost = self.outermost(&self.is_in(path));
        let mut calls: FxHashMap<RangeId, Vec<CallId>> = FxHashMap::default();
        let all = (0..).map(CallId).zip(&self.profile.tables().calls);
        for (id, call) in all.filter(|(_, call)| excerpt.has(call.time.start_ns)) {
            if let Some(instance) = call.range.get().and_then(|range| outermost[range.at()]) {
                calls.entry(instance).or_default().push(id);
            }
        }
        calls
    }

    /// Removes all waits but the last ones of each thread in each instance.
    fn remove_waits(&self, path: &str, kept: usize, changed: &mut Changed<'_>) {
        let store = &self.profile.tables();
        let mut removed: FxHashSet<CallId> = FxHashSet::default();
        for mut calls in self.calls_of(path, changed.excerpt).into_values() {
            calls.retain(|id| {
                store.call_kind(&store.calls[id.at()]).class == CallClass::Synchronize
            });
            let thread = |id: &CallId| store.calls[id.at()].thread;
            for calls in calls.chunk_by(|call, next| thread(call) == thread(next)) {
                removed.extend(&calls[..calls.len().saturating_sub(kept)]);
            }
        }
        self.remove_calls(&removed, changed);
    }

    /// Removes calls, and the waits for work in them.
    fn remove_calls(&self, removed: &FxHashSet<CallId>, changed: &mut Changed<'_>) {
        for (at, edge) in self.edges_of(changed.excerpt) {
            match edge.link {
                Link::Wait(call) if removed.contains(&call) => changed.lags[at] = REMOVED,
                Link::Call(call) if removed.contains(&call) => changed.lags[at] = 0,
                _ => {}
            }
        }
    }

    fn launch_once(&self, path: &str, changed: &mut Changed<'_>) {
        let store = &self.profile.tables();
        let excerpt = changed.excerpt;
        let waits = self.edges_of(excerpt).filter_map(|(_, edge)| match edge.link {
            Link::Wait(call) => Some(call),
            _ => None,
        });
        let waiting: FxHashSet<CallId> = waits.collect();
        let kind = |id: CallId| {
            let class = store.call_kind(&store.calls[id.at()]).class;
            (is_launch(class) && !waiting.contains(&id)).then_some(())
        };
        let joined = self.join(path, kind, changed).into_iter();
        let joined: FxHashMap<CallId, u64> =
            joined.map(|(first, id)| (id, store.calls[first.at()].time.ns())).collect();
        // The first call submits the work of the others, at its start.
        for (at, edge) in self.edges_of(excerpt) {
            let Link::Launch(id) = edge.link else { continue };
            let call = store.operations[id.at()].call.get();
            if let Some(ns) = call.and_then(|call| joined.get(&call)) {
                changed.lags[at] = changed.lags[at].saturating_sub(*ns);
            }
        }
    }

    /// Joins consecutive calls of a thread in a range with the same kind; calls without a kind stay.
    /// Returns each joined call after the first call of its group.
    fn join<K: PartialEq>(
        &self,
        path: &str,
        kind: impl Fn(CallId) -> Option<K>,
        changed: &mut Changed<'_>,
    ) -> Vec<(CallId, CallId)> {
        let call = |id: CallId| &self.profile.tables().calls[id.at()];
        let is_same = |one: &CallId, next: &CallId| {
            let of_one = kind(*one);
            let is_kind = of_one.is_some() && of_one == kind(*next);
            is_kind && call(*one).thread == call(*next).thread
        };
        let mut joined = Vec::new();
        for calls in self.calls_of(path, changed.excerpt).into_values() {
            for group in calls.chunk_by(is_same) {
                for pair in group.windows(2) {
                    self.skip(call(pair[0]), call(pair[1]), changed);
                    joined.push((group[0], pair[1]));
                }
            }
        }
        joined
    }

    /// Removes the thread's own time from the return of a call to the return of the next joined
    /// one.
    fn skip(&self, call: &Call, next: &Call, changed: &mut Changed<'_>) {
        let points = &self.graph.threads[next.thread.at()];
        let ends =
            [call.time.end_ns, next.time.end_ns].map(|end| points.from(&self.graph.times, end));
        let [Some(from), Some(to)] = ends else { return };
        for at in (from + 1..=to).flat_map(|point| self.graph.edges_to(point)) {
            let link = self.graph.edges[at].link;
            if link.is_own_time() || matches!(link, Link::Wait(_)) {
                changed.lags[at] = 0;
            }
        }
    }

    fn copy_once(&self, path: &str, changed: &mut Changed<'_>) {
        // The copies of each call.
        let mut copies: FxHashMap<CallId, Vec<(OperationId, CopyKind, u64)>> = FxHashMap::default();
        for copy in self.profile.copies() {
            let Some(call) = copy.call_id() else { continue };
            let id = OperationId(copy.number() as u32);
            copies.entry(call).or_default().push((id, copy.kind(), copy.bytes()));
        }
        let mut rates: FxHashMap<CopyKind, CopyRate> = FxHashMap::default();
        let kind = |id: CallId| copies.get(&id)?.first().map(|(_, kind, _)| *kind);
        for (first, id) in self.join(path, kind, changed) {
            let (of, kind, _) = copies[&first][0];
            let rate = *rates.entry(kind).or_insert_with(|| self.copy_rate(kind));
            for (copy, _, bytes) in &copies[&id] {
                let start = self.graph.start_of(*copy);
                for at in self.graph.edges_to(start).chain(self.graph.edges_to(start + 1)) {
                    changed.lags[at] = 0;
                }
                for at in self.graph.edges_to(self.graph.start_of(of) + 1) {
                    changed.lags[at] += (*bytes as f64 / rate.gigabytes).round() as u64;
                }
            }
        }
    }

    /// The rate of pinned copies of a direction.
    fn copy_rate(&self, kind: CopyKind) -> CopyRate {
        let copies = self.profile.copies().filter(|copy| {
            let ends = [copy.source(), copy.destination()];
            copy.kind() == kind && copy.bytes() >= LARGE_COPY && ends.contains(&MemoryKind::PINNED)
        });
        let mut rates: Vec<f64> = copies.filter_map(|copy| copy.bandwidth()).collect();
        rates.sort_by(f64::total_cmp);
        if let Some(rate) = rates.get(rates.len() / 2) {
            return CopyRate { gigabytes: *rate, is_measured: true };
        }
        let devices = &self.profile.recording_info().devices;
        let major = devices.iter().map(|device| device.compute_capability.0).max();
        // PCIe 5, 4 and 3 with sixteen lanes, at the rate that copies achieve.
        let gigabytes = match major.unwrap_or_default() {
            9.. => 50.0,
            8 => 24.0,
            _ => 12.0,
        };
        CopyRate { gigabytes, is_measured: false }
    }

    fn pin(&self, is_ahead: bool, changed: &mut Changed<'_>) {
        let mut unblocked: FxHashSet<CallId> = FxHashSet::default();
        let mut alone: FxHashSet<OperationId> = FxHashSet::default();
        let mut rates: FxHashMap<CopyKind, CopyRate> = FxHashMap::default();
        let mut engines: FxHashMap<CopyKind, u64> = FxHashMap::default();
        for copy in self.profile.copies() {
            let is_between = matches!(copy.kind(), CopyKind::HostToDevice | CopyKind::DeviceToHost);
            let ends = [copy.source(), copy.destination()];
            let is_pageable = ends.contains(&MemoryKind::PAGEABLE);
            let id = OperationId(copy.number() as u32);
            let end = self.graph.start_of(id) + 1;
            let is_tried = changed.excerpt.has(self.graph.time(end));
            if !(is_tried && is_between && (is_pageable || is_ahead)) {
                continue;
            }
            let rate = *rates.entry(copy.kind()).or_insert_with(|| self.copy_rate(copy.kind()));
            changed.copy_rate = changed.copy_rate.or(Some(rate));
            for at in self.graph.edges_to(end) {
                if is_pageable {
                    // One byte per nanosecond is 1 GB/s.
                    let ns = (copy.bytes() as f64 / rate.gigabytes).round() as u64;
                    changed.lags[at] = ns.min(changed.lags[at]);
                }
                *engines.entry(copy.kind()).or_default() += changed.lags[at];
            }
            unblocked.extend(copy.call_id().filter(|_| is_pageable));
            if is_ahead {
                alone.insert(id);
            }
        }
        if is_ahead {
            changed.at_least = engines.into_values().max().unwrap_or_default();
        }
        self.unblock(&unblocked, &alone, changed);
    }

    /// Removes copies from the order of their streams, and lets their calls return at once.
    fn unblock(
        &self,
        unblocked: &FxHashSet<CallId>,
        alone: &FxHashSet<OperationId>,
        changed: &mut Changed<'_>,
    ) {
        let store = &self.profile.tables();
        let call_of = |id: OperationId| store.operations[id.at()].call.get();
        let launches = store
            .calls
            .iter()
            .filter(|call| store.call_kind(call).class == CallClass::KernelLaunch)
            .map(|call| call.time.ns());
        // The duration of a call that only submits work.
        let submitting = upper_median(launches.collect()).unwrap_or(5_000);
        let first = self.graph.start_of(OperationId(0));
        let of_point = |point: u32| point.checked_sub(first).map(|at| OperationId(at / 2));
        let mut used: FxHashMap<CallId, u64> = FxHashMap::default();
        for (at, edge) in self.edges_of(changed.excerpt) {
            let lag = &mut changed.lags[at];
            match edge.link {
                Link::Wait(call) if unblocked.contains(&call) => *lag = REMOVED,
                Link::Call(call) if unblocked.contains(&call) => {
                    let used = used.entry(call).or_default();
                    *lag = (self.graph.time(edge.to) - self.graph.time(edge.from))
                        .min(submitting - *used);
                    *used += *lag;
                }
                Link::Launch(id) if call_of(id).is_some_and(|call| unblocked.contains(&call)) => {
                    *lag = (*lag).min(submitting);
                }
                Link::Work(_) => {}
                _ => {
                    let is_alone = |id: OperationId| alone.contains(&id);
                    let from_copy = of_point(edge.from).is_some_and(is_alone);
                    let to_copy = operation_of(edge).is_some_and(is_alone);
                    if from_copy || (to_copy && !matches!(edge.link, Link::Launch(_))) {
                        *lag = REMOVED;
                    }
                }
            }
        }
    }
}

fn is_launch(class: CallClass) -> bool {
    matches!(class, CallClass::KernelLaunch | CallClass::Memcpy | CallClass::Memset)
}

fn is_allocation(class: CallClass) -> bool {
    matches!(class, CallClass::Alloc | CallClass::Free)
}

/// The times of a range on the critical path.
#[derive(Debug, Default, Clone, Copy)]
struct Times {
    host: u64,
    waits: u64,
    launches: u64,
    events: u64,
    copies: u64,
    allocations: u64,
}
