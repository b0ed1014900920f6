//! Streams: missing overlap, and use of the default stream.

use std::collections::BTreeMap;

use cupti::{CallClass, SynchronizationKind};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Run;
use super::clock::{Part, Piece, stream_key};
use super::finding::{Finding, FindingKind};
use super::sign::{Sign, SignUnit};
use profiler_core::tables::busy::Sweep;
use profiler_core::tables::{self, OperationId};

/// The minimum share of kernel time for a stream to count.
const LEAST_SHARE: f64 = 0.1;
/// The maximum mean number of concurrent kernels for streams without overlap.
const MOST_AT_ONCE: f64 = 1.05;
/// Context and CUPTI's number of the default stream of a process.
const DEFAULT_STREAM: (u32, u32) = (1, 7);

impl Run<'_> {
    /// Kernels of several streams of one device that do not overlap although they would fit.
    pub(super) fn serial_streams(&self) -> Vec<Finding> {
        let mut devices: BTreeMap<u32, Vec<&[OperationId]>> = BTreeMap::new();
        for stream in self.kernels_by_stream().values() {
            // A collective waits for other ranks, and for the results of concurrent kernels.
            if stream.iter().any(|id| self.is_communication(*id)) {
                continue;
            }
            devices.entry(self.profile.operation(stream[0]).device()).or_default().push(stream);
        }
        let devices = devices.into_iter();
        devices.filter_map(|(device, streams)| self.serial_streams_of(device, streams)).collect()
    }

    fn serial_streams_of(&self, device: u32, streams: Vec<&[OperationId]>) -> Option<Finding> {
        let store = &self.profile.tables();
        let ns = |id: &OperationId| store.operations[id.at()].ns();
        let sum = |stream: &&[OperationId]| stream.iter().map(ns).fold(0, u64::saturating_add);
        let all = streams.iter().map(sum).fold(0, u64::saturating_add);
        let least = LEAST_SHARE * all as f64;
        let busy: Vec<_> =
            streams.into_iter().filter(|stream| sum(stream) as f64 >= least).collect();
        if busy.len() < 2 {
            return None;
        }
        let longest = busy.iter().map(sum).max()? as f64;
        let mut ids: Vec<OperationId> = busy.iter().copied().flatten().copied().collect();
        ids.sort_unstable();
        let mut times = ids.iter().filter_map(|id| store.operations[id.at()].time());
        let mut sweep = Sweep::new(times.next()?);
        times.for_each(|time| _ = sweep.add(time));
        let union = sweep.busy_ns as f64;
        let at_once = sweep.gpu_ns as f64 / union.max(1.0);
        if at_once > MOST_AT_ONCE {
            return None;
        }
        // The lower bound is the longest stream, or the sum of the kernels that fill the GPU.
        let full = |id: &OperationId| {
            ns(id) as f64
                * self.known.shapes.shape(self.profile, *id).map_or(1.0, |shape| shape.fill)
        };
        let ideal = ids.iter().map(full).sum::<f64>().max(longest);
        let part = (1.0 - ideal / union.max(1.0)).max(0.0);
        let stream_of = |id: &OperationId| stream_key(&self.profile.operation(*id));
        let changes = ids.windows(2).filter(|pair| stream_of(&pair[0]) != stream_of(&pair[1]));
        let changes: FxHashSet<OperationId> = changes.map(|pair| pair[1]).collect();
        let ours: FxHashSet<OperationId> = ids.iter().copied().collect();
        let cost = |piece: &Piece| {
            let id = piece.operation.get().filter(|id| ours.contains(id))?;
            match piece.part {
                Part::Kernels => Some(part),
                // The time between streams vanishes as well.
                Part::Scheduling if changes.contains(&id) && part > 0.0 => Some(1.0),
                _ => None,
            }
        };
        let signs = vec![
            Sign::at_most("kernels at once", at_once, SignUnit::Count, MOST_AT_ONCE),
            Sign::share_at_least("of their time that could be saved", part, 0.1),
        ];
        let title = format!("{} {} on GPU {device}", busy.len(), FindingKind::SerialStreams);
        self.finish(FindingKind::SerialStreams, title, self.pieces(cost), signs)
    }

    /// True if a collective may have to wait for kernels or copies. Such a collective is a graph
    /// node, or its stream has earlier work or an earlier wait for an event. Advice to overlap it
    /// would be wrong.
    pub(super) fn collectives_depend(&self) -> bool {
        *self.known.collectives_depend.get_or_init(|| self.find_dependent_collective())
    }

    fn find_dependent_collective(&self) -> bool {
        let store = &self.profile.tables();
        // The first event wait of each stream.
        let mut waits: FxHashMap<(u32, u32, u32), u64> = FxHashMap::default();
        for row in &store.synchronizations {
            let cupti::Synchronization { kind, context, stream, .. } = row.record;
            if kind != SynchronizationKind::StreamWaitEvent {
                continue;
            }
            let called_ns = row.call.get().map_or(0, |call| store.calls[call.at()].time.start_ns);
            // A wait without a recorded stream may be on any stream.
            let Some(stream) = stream else { return true };
            let first = waits.entry((row.process, context, stream)).or_insert(called_ns);
            *first = (*first).min(called_ns);
        }
        // The streams of waits without a record are unknown.
        let is_wait = |call: &&tables::Call| store.call_kind(call).class == CallClass::WaitEvent;
        let with_record = store.synchronizations.iter().filter(|row| {
            row.record.kind == SynchronizationKind::StreamWaitEvent && row.call.get().is_some()
        });
        if store.calls.iter().filter(is_wait).count() > with_record.count() {
            return true;
        }
        let mut others: FxHashSet<(u32, u32, u32)> = FxHashSet::default();
        self.profile.operations().any(|operation| {
            let stream = stream_key(&operation);
            if !operation.is_collective() {
                others.insert(stream);
                return false;
            }
            let called_ns =
                operation.call_id().map_or(u64::MAX, |call| store.calls[call.at()].time.start_ns);
            operation.graph_node().is_some()
                || others.contains(&stream)
                || waits.get(&stream).is_some_and(|first_ns| *first_ns <= called_ns)
        })
    }

    /// Kernels on the legacy default stream beside kernels on other streams. A note: its cost is
    /// part of serial streams.
    pub(super) fn default_stream(&self) -> Option<Finding> {
        let streams = self.kernels_by_stream();
        let (context, stream) = DEFAULT_STREAM;
        let is_default = |key: &(u32, u32, u32)| (key.1, key.2) == (context, stream);
        let kernels: usize =
            streams.iter().filter(|(key, _)| is_default(key)).map(|(_, ids)| ids.len()).sum();
        let others = streams.keys().filter(|key| key.1 == context && !is_default(key)).count();
        if kernels == 0 || others == 0 {
            return None;
        }
        let title =
            format!("{kernels} kernels on the default stream, beside those of {others} more");
        Some(self.costing(FindingKind::DefaultStream, title, 0.0, Vec::new()))
    }
}
