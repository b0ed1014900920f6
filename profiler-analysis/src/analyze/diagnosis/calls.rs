//! Calls that are redundant or repeated.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use cupti::CallClass;
use profiler_base::statistics::Statistics;
use rustc_hash::{FxHashMap, FxHashSet};

use super::clock::{Part, Piece, stream_key};
use super::finding::{Finding, FindingKind};
use super::sign::{Sign, SignUnit};
use super::{Run, nanoseconds};
use profiler_core::profile::{GpuOperation, OperationKind};
use profiler_core::query::Wait;
use profiler_core::query::WaitTarget;
use profiler_core::tables::NameId;
use profiler_core::tables::What;
use profiler_core::tables::{CallId, CallKind, OperationId};

/// The minimum factor of a first launch over the usual time, if it loads or compiles its kernel.
/// Loading takes some hundred microseconds or more, a launch three to five.
const LOADING_FACTOR: u64 = 10;
/// Substrings of the names of calls that load or compile code.
const LOADS: [&str; 4] = ["ModuleLoad", "LibraryLoad", "LinkComplete", "KernelGetFunction"];

impl Run<'_> {
    pub(super) fn repeated_allocation(&self) -> Option<Finding> {
        let (allocations, frees) = self.allocations();
        let least = self.thresholds.get_least_repeats();
        // Memory in use until the end is not freed.
        if allocations < least || frees < allocations / 2 {
            return None;
        }
        let store = &self.profile.tables();
        let class = |call: CallId| store.call_kind(&store.calls[call.at()]).class;
        let is_one = |piece: &Piece| {
            let class = piece.call.get().map(class);
            piece.is_idle && matches!(class, Some(CallClass::Alloc | CallClass::Free))
        };
        let sign = Sign::at_least("allocations", allocations as f64, SignUnit::Count, least as f64);
        let title = format!("{allocations} allocations and {frees} frees");
        self.finish(FindingKind::RepeatedAllocation, title, self.whole(is_one), vec![sign])
    }

    /// Allocations and frees.
    fn allocations(&self) -> (u64, u64) {
        let totals = self.profile.totals();
        if self.section.is_none() {
            return (totals.allocations, totals.frees);
        }
        let store = &self.profile.tables();
        let calls = (0..).map(CallId).zip(&store.calls);
        let of_phase = calls.filter(|(id, _)| self.includes_call(*id));
        of_phase.fold((0, 0), |(allocations, frees), (_, call)| match store.call_kind(call).class {
            CallClass::Alloc => (allocations + 1, frees),
            CallClass::Free => (allocations, frees + 1),
            _ => (allocations, frees),
        })
    }

    /// Waits without work to wait for.
    pub(super) fn redundant_syncs(&self) -> Option<Finding> {
        let store = &self.profile.tables();
        let target = |wait: &Wait<'_>| {
            let (context, stream) = match wait.target() {
                WaitTarget::Stream { context, stream, .. } => (context, Some(stream)),
                WaitTarget::Context { context, .. } => (context, None),
                _ => return None,
            };
            Some((wait.call().process_id(), context, stream))
        };
        let mut waits: Vec<_> = self.profile.waits().iter().collect();
        waits.sort_by_key(|wait| wait.start());
        // Submission times by the target of a wait: a stream, or a context (`None`), of a process.
        let mut submitted: FxHashMap<(u32, u32, Option<u32>), Vec<u64>> =
            waits.iter().filter_map(target).map(|target| (target, Vec::new())).collect();
        for operation in self.profile.operations() {
            // A wait for work without a known call would appear redundant.
            let call = operation.call_id()?;
            let start = store.calls[call.at()].time.start_ns;
            for stream in [Some(operation.stream()), None] {
                let key = (operation.process_id(), operation.context(), stream);
                if let Some(times) = submitted.get_mut(&key) {
                    times.push(start);
                }
            }
        }
        submitted.values_mut().for_each(|times| times.sort_unstable());

        // Start and end of the last wait that returned.
        let mut last: FxHashMap<(u32, u32, Option<u32>), (u64, u64)> = FxHashMap::default();
        let mut redundant: FxHashSet<u64> = FxHashSet::default();
        let count = waits.iter().filter(|wait| self.includes_wait(wait)).count();
        for wait in waits {
            let Some((process, context, stream)) = target(&wait) else { continue };
            let time = wait.call().interval();
            let start = time.start_ns;
            // A wait for the context includes its streams. Several threads may wait for the same
            // work.
            let last_of = |stream| last.get(&(process, context, stream)).copied();
            let before = last_of(stream).max(last_of(None)).filter(|(_, end)| *end <= start);
            let has_work = |since: u64| {
                let key = (process, context, stream);
                let times = submitted.get(&key).map_or(&[][..], Vec::as_slice);
                let next = times.partition_point(|time| *time < since);
                times.get(next).is_some_and(|time| *time < start)
            };
            if self.includes_wait(&wait) && before.is_some_and(|(since, _)| !has_work(since)) {
                redundant.insert(start);
            }
            last.insert((process, context, stream), (start, time.end_ns));
        }
        let is_one = |piece: &Piece| {
            let start = |call: CallId| store.calls[call.at()].time.start_ns;
            piece.is_idle
                && piece.call.get().is_some_and(|call| {
                    let kind = store.call_kind(&store.calls[call.at()]);
                    kind.class == CallClass::Synchronize && redundant.contains(&start(call))
                })
        };
        let share = redundant.len() as f64 / count.max(1) as f64;
        let title = format!("{} of {count} waits had nothing to wait for", redundant.len());
        let sign = Sign::share_at_least("redundant waits", share, 0.0);
        self.finish(FindingKind::RedundantSyncs, title, self.whole(is_one), vec![sign])
    }

    /// Calls that load or compile code, by name, and first launches much longer than usual.
    pub(super) fn lazy_loading(&self) -> Option<Finding> {
        let store = &self.profile.tables();
        let mut first: FxHashMap<NameId, (CallId, u64)> = FxHashMap::default();
        let mut later: Vec<u64> = Vec::new();
        let mut launches: Vec<(Duration, OperationId)> = Vec::new();
        self.profile.query().kernels().each_launch(|launch| {
            let id = OperationId(launch.operation().number() as u32);
            launches.push((launch.call().start(), id));
        });
        launches.sort_unstable();
        // The first launch of a session takes some hundred microseconds because of CUPTI.
        for (_, id) in launches.into_iter().skip(1) {
            let operation = self.profile.operation(id);
            let What::Kernel { names, .. } = &store.work(operation.row()).what else { continue };
            let call = operation.call_id().filter(|_| operation.graph_node().is_none());
            let Some(call) = call else { continue };
            let Some(time) = self.profile.call(call).host_time() else { continue };
            match first.entry(names.name) {
                Entry::Vacant(entry) => _ = entry.insert((call, nanoseconds(time))),
                Entry::Occupied(_) => later.push(nanoseconds(time)),
            }
        }
        let mut loading: FxHashMap<CallId, f64> = FxHashMap::default();
        let mut loaders = 0;
        // Few launches do not show a usual time.
        if later.len() as u64 >= self.thresholds.get_least_repeats() {
            let usual = nanoseconds(Statistics::from_nanos(later).median()).max(1);
            for (call, took) in first.into_values() {
                if took >= LOADING_FACTOR.saturating_mul(usual) && self.includes_call(call) {
                    loading.insert(call, 1.0 - usual as f64 / took as f64);
                    loaders += 1;
                }
            }
        }
        let is_load = |kind: &CallKind| {
            let function = store.names.get(kind.name);
            LOADS.iter().any(|name| function.contains(name))
        };
        let is_load: Vec<bool> = store.call_kinds.rows().iter().map(is_load).collect();
        for (row, call) in (0..).map(CallId).zip(&store.calls) {
            if is_load[call.kind.at()] && self.includes_call(row) {
                loading.insert(row, 1.0);
            }
        }
        let part = |piece: &Piece| {
            piece.call.get().filter(|_| piece.is_idle).and_then(|call| loading.get(&call).copied())
        };
        let pieces = self.pieces(part);
        let ns: f64 = pieces.iter().map(|(piece, part)| piece.time.ns() as f64 * part).sum();
        let least = self.thresholds.get_finding_share();
        let sign = Sign::share_at_least("GPU idle for them", ns / self.clock.total(), least);
        let others = loading.len() - loaders;
        let title = format!("{loaders} first launches and {others} calls load or compile kernels");
        self.finish(FindingKind::LazyLoading, title, pieces, vec![sign])
    }
}

impl Run<'_> {
    /// True for an idle piece that would vanish with the call of its operation. These are the call,
    /// the start of the operation, and short host time of a library before it.
    pub(super) fn is_of_calls(&self, piece: &Piece) -> bool {
        let little = nanoseconds(self.thresholds.get_small_kernel());
        piece.is_idle
            && match piece.part {
                Part::Host => piece.time.ns() <= little,
                Part::Launching | Part::Scheduling | Part::Waiting => true,
                _ => false,
            }
    }

    /// The pieces with a removable part, and that part.
    pub(super) fn pieces(&self, part: impl Fn(&Piece) -> Option<f64>) -> Vec<(Piece, f64)> {
        self.clock.pieces.iter().filter_map(|piece| Some((*piece, part(piece)?))).collect()
    }

    /// The pieces that are removed as a whole.
    pub(super) fn whole(&self, is_one: impl Fn(&Piece) -> bool) -> Vec<(Piece, f64)> {
        self.pieces(|piece| is_one(piece).then_some(1.0))
    }

    /// The share of these pieces in the clock.
    pub(super) fn share_of(&self, is_one: impl Fn(&Piece) -> bool) -> f64 {
        let ns: u64 = self.clock.pieces.iter().filter(|p| is_one(p)).map(|p| p.time.ns()).sum();
        ns as f64 / self.clock.total()
    }

    /// Kernels by stream (process, context and number), in start order.
    pub(super) fn kernels_by_stream(&self) -> &BTreeMap<(u32, u32, u32), Vec<OperationId>> {
        self.streams.get_or_init(|| {
            let mut streams: BTreeMap<(u32, u32, u32), Vec<OperationId>> = BTreeMap::new();
            let is_kernel =
                |operation: &GpuOperation<'_>| operation.kind() == OperationKind::Kernel;
            for kernel in self.operations().filter(is_kernel) {
                let id = OperationId(kernel.number() as u32);
                streams.entry(stream_key(&kernel)).or_default().push(id);
            }
            streams
        })
    }
}
