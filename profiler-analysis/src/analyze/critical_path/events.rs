//! The work before each event, from CUPTI's records of the kind `CUDA_EVENT`.
//!
//! A record has the stream and the correlation id of the call that recorded the event. Correlation
//! ids are in the order of calls. The event therefore follows the last operation of its stream with
//! a smaller id, and the work that the stream waited for after that operation.

use cupti::SynchronizationKind;
use profiler_base::order;
use rustc_hash::{FxHashMap, FxHashSet};

use profiler_core::tables::{EventRecord, OperationId, Tables};

/// A stream by its process, context and CUPTI's id.
pub(super) type StreamId = (u32, u32, u32);

/// The maximum number of recordings that one event is traced through, each via a stream without
/// work in between.
const MOST_FOLLOWED: usize = 64;

/// The recordings of events, and the operations and waits of each stream.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// By process and CUPTI's id of the recording.
    by_sync_id: FxHashMap<(u32, u64), EventRecord>,
    /// By process and event, in the order of calls.
    by_event: FxHashMap<(u32, u32), Vec<EventRecord>>,
    /// The operations of each stream in the order of their calls.
    submitted: FxHashMap<StreamId, Vec<(u32, OperationId)>>,
    /// The waits of each stream for events in the order of their calls.
    waits: FxHashMap<StreamId, Vec<(u32, EventRecord)>>,
    /// The operation that ended last of each launch with several operations, by process and
    /// correlation id.
    last_of_launch: FxHashMap<(u32, u32), OperationId>,
}

impl Events {
    /// Costs nothing for a recording without events, otherwise some sorts of operations.
    pub(super) fn new(store: &Tables) -> Self {
        let mut events = Self::default();
        for record in &store.event_records {
            if let Some(sync_id) = record.sync_id.filter(|id| *id != 0) {
                events.by_sync_id.insert((record.process, sync_id), *record);
            }
            events.by_event.entry((record.process, record.event)).or_default().push(*record);
        }
        if events.by_event.is_empty() {
            return events;
        }
        for records in events.by_event.values_mut() {
            order::sort_by_number(records, |record| record.correlation_id.into());
        }
        for (id, row) in (0..).map(OperationId).zip(&store.operations) {
            let (work, Some(_), Some(time)) = (store.work(row), row.call.get(), row.time()) else {
                continue;
            };
            let (process, place) = (work.process, work.place);
            let of_stream = events.submitted.entry((process, place.context, place.stream));
            of_stream.or_default().push((row.correlation_id, id));
            let last = events.last_of_launch.entry((process, row.correlation_id)).or_insert(id);
            let last_ns = store.operations[last.at()].time().map(|time| time.end_ns);
            if last_ns < Some(time.end_ns) {
                *last = id;
            }
        }
        for operations in events.submitted.values_mut() {
            order::sort_by_number(operations, |(call, _)| (*call).into());
        }
        for row in &store.synchronizations {
            let (cupti::Synchronization { kind, context, stream, .. }, process) =
                (row.record, row.process);
            let (SynchronizationKind::StreamWaitEvent, Some(stream)) = (kind, stream) else {
                continue;
            };
            if let Some(event) = events.recording(process, &row.record) {
                let waits = events.waits.entry((process, context, stream)).or_default();
                waits.push((row.record.correlation_id, event));
            }
        }
        for waits in events.waits.values_mut() {
            order::sort_by_number(waits, |(call, _)| (*call).into());
        }
        events
    }

    /// The recording that a wait waits for: the one with its id, or the event's last one before the
    /// wait.
    pub(super) fn recording(
        &self,
        process: u32,
        wait: &cupti::Synchronization,
    ) -> Option<EventRecord> {
        let sync_id = wait.event_sync_id.filter(|id| *id != 0);
        if let Some(record) = sync_id.and_then(|id| self.by_sync_id.get(&(process, id))) {
            return Some(*record);
        }
        let records = self.by_event.get(&(process, wait.event?))?;
        let before = records.partition_point(|of| of.correlation_id < wait.correlation_id);
        records.get(before.checked_sub(1)?).copied()
    }

    /// The operations before an event: the last one of its stream, and those that the stream waited
    /// for since.
    pub(super) fn sources(&self, event: EventRecord) -> Vec<OperationId> {
        let mut sources = Vec::new();
        let mut next = vec![event];
        let mut followed: FxHashSet<(u32, u32)> = FxHashSet::default();
        while let Some(EventRecord { process, context, stream, correlation_id, .. }) = next.pop() {
            if followed.len() == MOST_FOLLOWED || !followed.insert((process, correlation_id)) {
                continue;
            }
            let id = (process, context, stream);
            let before = |of: &Vec<(u32, OperationId)>| {
                let before = of.partition_point(|(call, _)| *call < correlation_id);
                of.get(before.checked_sub(1)?).copied()
            };
            let last = self.submitted.get(&id).and_then(before);
            // A graph has operations on streams of its own.
            let whole = last.and_then(|(call, _)| self.last_of_launch.get(&(process, call)));
            sources.extend(whole);
            let since = last.map_or(0, |(call, _)| call);
            let waits = self.waits.get(&id).map(Vec::as_slice).unwrap_or_default();
            let first = waits.partition_point(|(call, _)| *call <= since);
            let until = waits.partition_point(|(call, _)| *call < correlation_id);
            // Only the last waits of a stream that waits many times.
            let first = first.max(until.saturating_sub(MOST_FOLLOWED)).min(until);
            next.extend(waits[first..until].iter().map(|(_, event)| *event));
        }
        sources.sort_unstable();
        sources.dedup();
        sources
    }
}
