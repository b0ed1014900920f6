//! Calls that could be left out, or made once.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;

use cupti::CallClass;
use rustc_hash::{FxHashMap, FxHashSet};

use super::clock::{Part, Piece};
use super::finding::{Draft, Finding, FindingKind};
use super::sign::{Sign, SignUnit};
use super::{Run, nanoseconds};
use crate::base::statistics::Statistics;
use crate::join::tables::{CallId, OperationId};
use crate::profile::{GpuOperation, OperationKind};
use crate::query::WaitTarget;

/// How much longer than usual the first launch of a kernel takes if it loads or compiles it: loading takes some hundred
/// microseconds and more, a launch three to five.
const LOADING_FACTOR: u64 = 10;
/// Calls that load or compile code, by parts of their names.
const LOADS: [&str; 4] = ["ModuleLoad", "LibraryLoad", "LinkComplete", "KernelGetFunction"];

impl Run<'_> {
    pub(super) fn repeated_allocation(&self) -> Option<Finding> {
        let totals = self.profile.totals();
        let least = self.thresholds.get_least_repeats();
        // What is kept to the end is not freed.
        if totals.allocations < least || totals.frees < totals.allocations / 2 {
            return None;
        }
        let store = &self.profile.store;
        let class = |call: CallId| store.call_kind(&store.calls[call.at()]).class;
        let is_one = |piece: &Piece| {
            let class = piece.call.map(class);
            piece.is_idle && matches!(class, Some(CallClass::Alloc | CallClass::Free))
        };
        let count = totals.allocations as f64;
        self.finish(Draft {
            kind: FindingKind::RepeatedAllocation,
            title: format!("{} allocations and {} frees", totals.allocations, totals.frees),
            pieces: self.whole(is_one),
            signs: vec![
                Sign::at_least("allocations", count, SignUnit::Count, least as f64).deciding(),
            ],
        })
    }

    /// Waits with nothing to wait for.
    pub(super) fn redundant_syncs(&self) -> Option<Finding> {
        let store = &self.profile.store;
        // When work was asked of each stream, and of each context (`None`), which are each process's own.
        let mut asked: FxHashMap<(u32, u32, Option<u32>), Vec<u64>> = FxHashMap::default();
        for operation in self.profile.operations() {
            let Some(call) = operation.call_id() else {
                return None; // a wait for work that is not known looks like one for nothing
            };
            let start = store.calls[call.at()].time.start_ns;
            for stream in [Some(operation.stream()), None] {
                let of = (operation.process_id(), operation.context(), stream);
                asked.entry(of).or_default().push(start);
            }
        }
        asked.values_mut().for_each(|times| times.sort_unstable());

        let mut waits: Vec<_> = self.profile.waits().iter().collect();
        waits.sort_by_key(|wait| wait.start());
        // When the last wait began that has returned, and when it returned.
        let mut last: FxHashMap<(u32, u32, Option<u32>), (u64, u64)> = FxHashMap::default();
        let mut redundant: FxHashSet<u64> = FxHashSet::default();
        let count = waits.len();
        for wait in waits {
            let (context, stream) = match wait.target() {
                WaitTarget::Stream { context, stream } => (context, Some(stream)),
                WaitTarget::Context(context) => (context, None),
                _ => continue,
            };
            let (process, time) = (wait.call().process_id(), wait.call().interval());
            let start = time.start_ns;
            // A wait for the context is one for its streams. Two threads may wait for the same work at once.
            let of = |stream| last.get(&(process, context, stream)).copied();
            let before = of(stream).max(of(None)).filter(|(_, end)| *end <= start);
            let is_asked = |since: u64| {
                let times = asked.get(&(process, context, stream)).map_or(&[][..], Vec::as_slice);
                let next = times.partition_point(|time| *time < since);
                times.get(next).is_some_and(|time| *time < start)
            };
            if before.is_some_and(|(since, _)| !is_asked(since)) {
                redundant.insert(start);
            }
            last.insert((process, context, stream), (start, time.end_ns));
        }
        let is_one = |piece: &Piece| {
            let start = |call: CallId| store.calls[call.at()].time.start_ns;
            piece.is_idle
                && piece.call.is_some_and(|call| {
                    let kind = store.call_kind(&store.calls[call.at()]);
                    kind.class == CallClass::Synchronize && redundant.contains(&start(call))
                })
        };
        let part = redundant.len() as f64 / count.max(1) as f64;
        self.finish(Draft {
            kind: FindingKind::RedundantSyncs,
            title: format!("{} of {count} waits had nothing to wait for", redundant.len()),
            pieces: self.whole(is_one),
            signs: vec![Sign::at_least("redundant waits", part, SignUnit::Share, 0.0).deciding()],
        })
    }

    /// Calls that load or compile code: those that are named so, and first launches that take much longer than usual.
    pub(super) fn lazy_loading(&self) -> Option<Finding> {
        let mut first: FxHashMap<&str, (CallId, u64)> = FxHashMap::default();
        let mut later: Vec<u64> = Vec::new();
        let mut launches: Vec<_> = self.profile.query().kernels().launches().iter().collect();
        launches.sort_by_key(|launch| launch.call().start());
        // The very first of a session takes some hundred microseconds for CUPTI's sake, whatever it launches.
        for launch in launches.into_iter().skip(1) {
            let operation = launch.operation();
            if operation.graph_node().is_some() {
                continue;
            }
            let (Some(kernel), Some(call), Some(time)) =
                (operation.as_kernel(), operation.call_id(), launch.api_time())
            else {
                continue;
            };
            match first.entry(kernel.name()) {
                Entry::Vacant(place) => {
                    place.insert((call, nanoseconds(time)));
                }
                Entry::Occupied(_) => later.push(nanoseconds(time)),
            }
        }
        let mut loading: FxHashMap<CallId, f64> = FxHashMap::default();
        let mut loaders = 0;
        // Of few launches nobody knows what is usual.
        if later.len() as u64 >= self.thresholds.get_least_repeats() {
            let usual = nanoseconds(Statistics::of_ns(later).median()).max(1);
            for (call, took) in first.into_values() {
                if took >= LOADING_FACTOR.saturating_mul(usual) {
                    loading.insert(call, 1.0 - usual as f64 / took as f64);
                    loaders += 1;
                }
            }
        }
        for (row, call) in (0..).map(CallId).zip(self.profile.calls()) {
            if LOADS.iter().any(|name| call.name().contains(name)) {
                loading.insert(row, 1.0);
            }
        }
        let part = |piece: &Piece| {
            piece.call.filter(|_| piece.is_idle).and_then(|call| loading.get(&call).copied())
        };
        let pieces: Vec<_> =
            self.clock.pieces.iter().filter_map(|piece| Some((*piece, part(piece)?))).collect();
        let share = pieces.iter().map(|(piece, part)| piece.time.ns() as f64 * part).sum::<f64>()
            / self.clock.total();
        let least = self.thresholds.get_finding_share();
        let others = loading.len() - loaders;
        self.finish(Draft {
            kind: FindingKind::LazyLoading,
            title: format!("{loaders} first launches and {others} calls load or compile kernels"),
            pieces,
            signs: vec![
                Sign::at_least("GPU idle for them", share, SignUnit::Share, least).deciding(),
            ],
        })
    }
}

impl Run<'_> {
    /// True for an idle piece that goes away with the call of its operation: the call itself, what it takes to start, and
    /// the little that a library does on the host before it.
    pub(super) fn is_of_calls(&self, piece: &Piece) -> bool {
        let little = nanoseconds(self.thresholds.get_small_kernel());
        piece.is_idle
            && match piece.part {
                Part::Host => piece.time.ns() <= little,
                Part::Launching | Part::Scheduling | Part::Waiting => true,
                _ => false,
            }
    }

    /// The pieces for which this is true, each whole.
    pub(super) fn whole(&self, is_one: impl Fn(&Piece) -> bool) -> Vec<(Piece, f64)> {
        self.clock.pieces.iter().filter(|piece| is_one(piece)).map(|piece| (*piece, 1.0)).collect()
    }

    /// The part of the clock that these pieces take.
    pub(super) fn share_of(&self, is_one: impl Fn(&Piece) -> bool) -> f64 {
        let ns: u64 = self.clock.pieces.iter().filter(|p| is_one(p)).map(|p| p.time.ns()).sum();
        ns as f64 / self.clock.total()
    }

    /// The kernels of each stream by start; the streams by process, context and number.
    pub(super) fn kernels_by_stream(&self) -> &BTreeMap<(u32, u32, u32), Vec<OperationId>> {
        self.known.streams.get_or_init(|| {
            let mut streams: BTreeMap<(u32, u32, u32), Vec<OperationId>> = BTreeMap::new();
            let is_kernel =
                |operation: &GpuOperation<'_>| operation.kind() == OperationKind::Kernel;
            for kernel in self.profile.operations().filter(is_kernel) {
                let stream = (kernel.process_id(), kernel.context(), kernel.stream());
                streams.entry(stream).or_default().push(OperationId(kernel.number() as u32));
            }
            streams
        })
    }
}
