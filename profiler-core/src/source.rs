//! From a recording to the store: decodes CUPTI's bytes, brings all times to one clock, names what has a name.

use cupti::{ActivityKind, Record};
use rustc_hash::FxHashMap;

use crate::health::Health;
use crate::recording::Recording;
use crate::recording::ranges::RangeWord;
use crate::store::{
    Call, Interval, Operation, Range, RangeId, Store, Synchronization, Thread, ThreadId, Work,
};

/// Reads everything a recording holds; what cannot be read is counted in `health`.
pub(crate) fn read(recording: &Recording, health: &mut Health) -> Store {
    let mut store = Store::default();
    let losses = &recording.losses;
    health.unreadable_bytes = losses.unreadable_bytes;
    health.unknown_records = losses.irregular;
    health.dropped_by_cupti = losses.dropped_by_cupti;
    health.over_memory_limit = losses.over_memory_limit;
    health.unfinished_buffers = losses.unfinished_buffers;
    health.refused_records = losses.refused_records;
    health.panics = losses.panics;
    health.handler_panics = losses.handler_panics;
    health.lost_ranges = losses.ranges;
    health.buffers = losses.buffers;
    health.pool_misses = losses.pool_misses;

    let mut threads = FxHashMap::default();
    let first_rows = read_ranges(recording, &mut store, &mut threads, health);
    read_calls(recording, &mut store, &mut threads, &first_rows, health);
    read_records(recording, &mut store, health);
    store
}

fn thread(
    store: &mut Store,
    threads: &mut FxHashMap<u32, ThreadId>,
    id: u32,
    name: Option<&str>,
) -> ThreadId {
    let row = *threads.entry(id).or_insert_with(|| {
        store.threads.push(Thread { id, name: None });
        ThreadId(store.threads.len() as u32 - 1)
    });
    if let Some(name) = name {
        store.threads[row.at()].name = Some(name.into());
    }
    row
}

/// Gives, for each thread's log, the row of its first range and how many there are.
fn read_ranges(
    recording: &Recording,
    store: &mut Store,
    threads: &mut FxHashMap<u32, ThreadId>,
    health: &mut Health,
) -> Vec<(u32, usize)> {
    let mut first_rows = Vec::with_capacity(recording.ranges.len());
    for log in &recording.ranges {
        let thread = thread(store, threads, log.thread_id, log.thread_name.as_deref());
        let names: Vec<_> = log.names.iter().map(|name| store.names.intern(name)).collect();
        let unnamed = store.names.intern("(unknown name)");
        let first = store.ranges.len() as u32;
        first_rows.push((first, log.entries.len()));
        for (slot, entry) in log.entries.iter().enumerate() {
            // Only an earlier range can be around this one; anything else is a damaged file.
            let parent = entry.parent.filter(|&parent| parent < slot as u64);
            health.open_ranges += u64::from(entry.end_ns.is_none());
            store.ranges.push(Range {
                name: names.get(entry.name as usize).copied().unwrap_or(unnamed),
                thread,
                parent: parent.map(|parent| RangeId(first + parent as u32)),
                time: Interval {
                    start_ns: entry.start_ns,
                    end_ns: entry.end_ns.unwrap_or(recording.window_ns.1),
                },
                is_open: entry.end_ns.is_none(),
            });
        }
    }
    first_rows
}

fn read_calls(
    recording: &Recording,
    store: &mut Store,
    threads: &mut FxHashMap<u32, ThreadId>,
    first_rows: &[(u32, usize)],
    health: &mut Health,
) {
    for log in &recording.calls {
        let thread = thread(store, threads, log.thread_id, None);
        for call in &log.calls {
            let word = RangeWord(call.word);
            // A word of another epoch belongs to a range that began before this recording.
            let range = if word.epoch() == recording.epoch && call.word != 0 {
                let (log, slot) = word.place();
                let row = first_rows.get(log).filter(|(_, count)| slot < *count);
                health.calls_in_unknown_ranges += u64::from(row.is_none());
                row.map(|(first, _)| RangeId(first + slot as u32))
            } else {
                None
            };
            store.calls.push(Call { call: *call, thread, range });
        }
    }
}

fn read_records(recording: &Recording, store: &mut Store, health: &mut Health) {
    let clock = recording.clock;
    health.clock_step_ns = clock.step_ns();
    let mut kernel_names = FxHashMap::default();
    for record in &recording.records {
        health.records += 1;
        let (work, place, span, correlation_id) = match record {
            Record::Kernel(kernel) => {
                let name = *kernel_names.entry(kernel.name).or_insert_with(|| {
                    store
                        .names
                        .intern(recording.records.name(kernel.name).unwrap_or("(unknown kernel)"))
                });
                let work = Work::Kernel { name, details: kernel };
                (work, kernel.place, kernel.span, kernel.correlation_id)
            }
            Record::Memcpy(copy) => (Work::Copy(copy), copy.place, copy.span, copy.correlation_id),
            Record::Memset(memset) => {
                (Work::Memset(memset), memset.place, memset.span, memset.correlation_id)
            }
            Record::Synchronization(record) => {
                store.synchronizations.push(Synchronization { record, call: None });
                continue;
            }
            Record::Overhead(overhead) => {
                health.overhead_ns += overhead.span.end_ns.saturating_sub(overhead.span.start_ns);
                continue;
            }
            Record::Unreadable { bytes } => {
                health.records -= 1;
                health.unreadable_bytes += bytes.len() as u64;
                continue;
            }
            Record::Unknown { kind: ActivityKind::CUDA_EVENT, .. } => {
                health.unused_records += 1;
                continue;
            }
            _ => {
                health.unknown_records += 1;
                continue;
            }
        };
        // The start moves to our clock; the duration stays what CUPTI measured.
        let time = span.is_known().then(|| {
            let start_ns = clock.monotonic_ns(span.start_ns);
            Interval {
                start_ns,
                end_ns: start_ns.saturating_add(span.end_ns.saturating_sub(span.start_ns)),
            }
        });
        health.zero_timestamps += u64::from(time.is_none());
        store.operations.push(Operation { work, place, time, correlation_id, call: None });
    }
    store.operations.sort_by_key(|operation| operation.time.map_or(0, |time| time.start_ns));
}
