//! The rows of a trace's events.

use std::cmp::Reverse;

use cupti::{
    CopyKind, GraphNode, Kernel, Memcpy, MemoryKind, Memset, Place, SynchronizationKind,
    record::Peers,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::json::{self, Category, Event, Key, Object, Trace};
use crate::error::Error;
use crate::formats::capture::{Capture, Function, OperationRow};
use crate::reports::memory_kind;
use profiler_core::profile::{DeviceInfo, RecordingInfo};
use profiler_core::tables::{
    Api, Interval, Joined, KernelNames, Label, LabelId, Maybe, Multiprocessor, NameId, Process,
    Range, Synchronization, Thread, ThreadId, What, WholeGraph,
};

/// Older versions of PyTorch cut times to microseconds: a call may end after its range.
const ROUNDING_NS: u64 = 1000;

pub(super) fn joined(mut trace: Trace) -> Result<Joined, Error> {
    let events = std::mem::take(&mut trace.events);
    let starts = events.iter().map(|event| event.start_ns);
    let earliest = starts.chain(trace.windows.iter().map(|window| window.0)).min().unwrap_or(1);
    // All times become positive: an operation with times 0 to 0 has none.
    let zero_ns = 1_i64.saturating_sub(earliest).max(0);
    let mut capture = Capture::default();
    capture.rounding_ns = ROUNDING_NS;
    capture.store.names = std::mem::take(&mut trace.names);
    capture.health.losses.unknown_records = trace.unreadable;
    capture.health.facts.unused_records = trace.unused;
    capture.begin_ns = earliest.saturating_add(zero_ns).unsigned_abs();
    let window_end = trace.windows.iter().map(|window| window.1).max().unwrap_or(earliest);
    capture.end_ns = window_end.saturating_add(zero_ns).unsigned_abs();
    let mut rows = Rows {
        capture,
        zero_ns,
        threads: FxHashMap::default(),
        functions: FxHashMap::default(),
        labels: FxHashMap::default(),
        processes: FxHashMap::default(),
        process: 0,
    };
    rows.add_threads(&events, &trace);
    let (on_gpu, on_host): (Vec<_>, Vec<_>) =
        events.into_iter().partition(|event| event.work.is_some());
    on_host.iter().for_each(|event| rows.add_on_host(event));
    rows.capture.sort_calls();
    rows.capture
        .store
        .ranges
        .sort_by_key(|range| (range.thread, range.time.start_ns, Reverse(range.time.end_ns)));
    rows.capture.nest();
    on_gpu.iter().for_each(|event| rows.add_on_gpu(event));
    let info = rows.info(&trace, earliest);
    rows.capture.finish(info, zero_ns.unsigned_abs())
}

struct Rows {
    capture: Capture,
    /// Added to the trace's times.
    zero_ns: i64,
    /// By process and thread of the trace.
    threads: FxHashMap<(i64, i64), ThreadId>,
    functions: FxHashMap<(NameId, Api), Function>,
    labels: FxHashMap<NameId, LabelId>,
    /// The processes of calls, if there are several, by correlation id. Work has no process.
    processes: FxHashMap<u32, u32>,
    /// The process of other work.
    process: u32,
}

/// The kernel's id of a process.
fn process_id(pid: i64) -> Option<u32> {
    u32::try_from(pid).ok()
}

impl Rows {
    /// Adds processes and threads in the order of their ids.
    fn add_threads(&mut self, events: &[Event], trace: &Trace) {
        let on_host = || {
            let on_thread = |event: &&Event| event.work.is_none() && is_on_thread(event.category);
            events.iter().filter(on_thread)
        };
        let tracks = on_host().filter_map(|event| {
            process_id(event.pid)?;
            Some((event.pid, event.tid))
        });
        let mut tracks: Vec<(i64, i64)> = tracks.collect::<FxHashSet<_>>().into_iter().collect();
        tracks.sort_unstable();
        let titles: FxHashMap<(i64, i64), NameId> = trace.titles.iter().copied().collect();
        let store = &mut self.capture.store;
        for (pid, tid) in tracks {
            let Some(process) = process_id(pid) else { continue };
            if store.processes.last().is_none_or(|last| last.id != process) {
                let name = titles.get(&(pid, -1)).map(|name| store.names.get(*name).into());
                store.processes.push(Process { id: process, name, recorded: None });
            }
            // CAST: a thread's id of Linux, or of our own tracks, has 32 bits.
            let id = tid as u32;
            let title = titles.get(&(pid, tid)).map(|title| store.names.get(*title));
            let name = title.and_then(|title| thread_name(title, id)).map(Into::into);
            self.threads.insert((pid, tid), ThreadId(store.threads.len() as u32));
            store.threads.push(Thread { id, process, name, priority: None });
        }
        self.process = store.processes.first().map_or(0, |process| process.id);
        if store.processes.len() > 1 {
            let calls = on_host().filter(|event| api(event.category).is_some());
            let process = |event: &Event| Some((event.correlation, process_id(event.pid)?));
            self.processes = calls.filter_map(process).collect();
        }
    }

    fn time(&self, event: &Event) -> Interval {
        let at = |ns: i64| ns.saturating_add(self.zero_ns).unsigned_abs();
        Interval { start_ns: at(event.start_ns), end_ns: at(event.end_ns) }
    }

    fn add_on_host(&mut self, event: &Event) {
        let time = self.time(event);
        if event.category == Category::Overhead {
            return self.capture.push_overhead(time, self.process, false);
        }
        let Some(&thread) = self.threads.get(&(event.pid, event.tid)) else {
            return self.capture.unreadable();
        };
        if let Some(api) = api(event.category) {
            let function = *self
                .functions
                .entry((event.name, api))
                .or_insert_with(|| self.capture.function(event.name, Some(api), 0));
            return self.capture.push_call(function, time, event.correlation, thread);
        }
        let store = &mut self.capture.store;
        let label = *self.labels.entry(event.name).or_insert_with(|| {
            store.labels.push(Label {
                name: event.name,
                domain: None,
                category: None,
                color: None,
            });
            LabelId(store.labels.len() as u32 - 1)
        });
        store.ranges.push(Range { time, label, thread, parent: Maybe::NONE, is_open: false });
        let capture = &mut self.capture;
        capture.end_ns = capture.end_ns.max(time.end_ns);
        capture.last_range_ns = capture.last_range_ns.max(time.end_ns);
        capture.last_annotation_ns = capture.last_annotation_ns.max(time.end_ns);
    }

    fn add_on_gpu(&mut self, event: &Event) {
        let (Some(work), time) = (&event.work, self.time(event)) else { return };
        let mut place = Place::default();
        let track = |id: i64| u32::try_from(id).ok();
        place.device = work.device.or_else(|| track(event.pid)).unwrap_or(0);
        place.context = work.context;
        place.stream = work.stream.or_else(|| track(event.tid)).unwrap_or(u32::MAX);
        let process = self.processes.get(&event.correlation).copied().unwrap_or(self.process);
        self.capture.end_ns = self.capture.end_ns.max(time.end_ns);
        let row = OperationRow {
            time: Some(time),
            place,
            correlation_id: event.correlation,
            process,
            green_context: None,
        };
        let text = self.capture.store.names.get(event.name);
        let node = GraphNode::new(work.graph, work.node);
        let what = match event.category {
            Category::Kernel => {
                let names =
                    KernelNames { name: event.name, demangled: Some(event.name), short: None };
                What::Kernel { names, details: kernel(work, place, node) }
            }
            Category::Copy => {
                let Some(bytes) = work.bytes else { return self.capture.unreadable() };
                let mut copy = Memcpy::default();
                (copy.kind, copy.source, copy.destination) = copy_of(text);
                (copy.bytes, copy.place, copy.graph_node) = (bytes, place, node);
                copy.peers = work.peers.map(|(from, to)| Peers::new(from, to));
                copy.asynchronous = node.is_some() || self.capture.is_asynchronous(&row);
                What::Copy(copy)
            }
            Category::Memset => {
                let Some(bytes) = work.bytes else { return self.capture.unreadable() };
                let mut memset = Memset::default();
                memset.memory = memory_kind(inner(text));
                (memset.bytes, memset.place, memset.graph_node) = (bytes, place, node);
                memset.asynchronous = node.is_some() || self.capture.is_asynchronous(&row);
                What::Memset(memset)
            }
            Category::Graph => What::Graph(WholeGraph { executable: work.graph, template: None }),
            _ => return self.add_wait(event, work, &row),
        };
        self.capture.push_operation(&row, what, 0);
    }

    fn add_wait(&mut self, event: &Event, work: &json::Work, row: &OperationRow) {
        let time = self.time(event);
        let mut record = cupti::Synchronization::default();
        record.kind = match self.capture.store.names.get(event.name) {
            "Event Sync" => SynchronizationKind::Event,
            "Stream Wait Event" => SynchronizationKind::StreamWaitEvent,
            "Stream Sync" => SynchronizationKind::Stream,
            "Context Sync" => SynchronizationKind::Context,
            _ => SynchronizationKind::Unknown(0),
        };
        (record.span.start_ns, record.span.end_ns) = (time.start_ns, time.end_ns);
        (record.context, record.stream, record.event) = (work.context, work.stream, work.event);
        record.correlation_id = row.correlation_id;
        self.capture.health.records += 1;
        let (call, process) = (Maybe::NONE, row.process);
        self.capture.store.synchronizations.push(Synchronization { record, call, process });
    }

    fn info(&mut self, trace: &Trace, earliest: i64) -> RecordingInfo {
        let base = trace.file.number::<i64>(Key::BaseTime);
        // Older traces count from 1970.
        let base = base.or((earliest > YEAR_2001_NS).then_some(0));
        let mut info = RecordingInfo::default();
        info.utc_offset_ns = base.and_then(|base| base.checked_sub(self.zero_ns));
        let started = base.and_then(|base| u64::try_from(base.checked_add(earliest)?).ok());
        info.recorded_at_s = started.map(|ns| ns / 1_000_000_000);
        info.cuda_driver_version = trace.file.number(Key::DriverVersion).unwrap_or(0);
        let of_rank = |of: &Object| {
            let (rank, all): (u32, Option<u32>) =
                (of.number(Key::Rank)?, of.number(Key::WorldSize));
            Some(match all {
                Some(all) => format!(", rank {rank} of {all}"),
                None => format!(", rank {rank}"),
            })
        };
        let rank = of_rank(&trace.distributed).unwrap_or_default();
        info.recorder_version = format!("torch.profiler (Kineto){rank}");
        for device in &trace.devices {
            let Some(id) = device.number::<u32>(Key::Id) else {
                self.capture.unreadable();
                continue;
            };
            if info.devices.iter().all(|known| known.id != id) {
                info.devices.push(self.device(id, device));
            }
        }
        info.devices.sort_by_key(|device| device.id);
        self.capture.store.multiprocessors.sort_by_key(|of| of.device);
        info
    }

    fn device(&mut self, id: u32, of: &Object) -> DeviceInfo {
        let number = |key| of.number::<u32>(key).unwrap_or(0);
        let mut device = DeviceInfo::default();
        device.id = id;
        device.name = of.name().unwrap_or_default().to_owned();
        device.compute_capability = (number(Key::Major), number(Key::Minor));
        device.multiprocessors = number(Key::Multiprocessors);
        device.memory_bytes = of.number(Key::Memory).unwrap_or(0);
        self.capture.store.multiprocessors.push(Multiprocessor {
            device: id,
            compute_capability: device.compute_capability,
            multiprocessors: device.multiprocessors,
            warps: number(Key::Threads).checked_div(number(Key::WarpSize)).unwrap_or(0),
            blocks: 0,
            registers: number(Key::RegistersEach),
            registers_per_block: number(Key::RegistersPerBlock),
            shared_bytes: number(Key::SharedEach),
            shared_bytes_per_block: number(Key::SharedPerBlock),
        });
        device
    }
}

const YEAR_2001_NS: i64 = 1_000_000_000_000_000_000;

fn is_on_thread(category: Category) -> bool {
    matches!(category, Category::Operator | Category::Annotation) || api(category).is_some()
}

fn api(category: Category) -> Option<Api> {
    match category {
        Category::Runtime => Some(Api::Runtime),
        Category::Driver => Some(Api::Driver),
        _ => None,
    }
}

fn kernel(work: &json::Work, place: Place, node: Option<GraphNode>) -> Kernel {
    let mut kernel = Kernel::default();
    (kernel.place, kernel.graph_node) = (place, node);
    (kernel.grid, kernel.block) = (work.grid, work.block);
    kernel.registers_per_thread = work.registers;
    kernel.dynamic_shared_bytes = work.shared_bytes;
    kernel
}

/// The text in parentheses.
fn inner(name: &str) -> &str {
    name.split_once('(').map_or("", |(_, rest)| rest.trim_end_matches(')'))
}

/// Of `Memcpy HtoD (Pageable -> Device)`.
fn copy_of(name: &str) -> (CopyKind, MemoryKind, MemoryKind) {
    let kind = match name.split(' ').nth(1) {
        Some("HtoD" | "HtoA") => CopyKind::HostToDevice,
        Some("DtoH" | "AtoH") => CopyKind::DeviceToHost,
        Some("DtoD" | "AtoA" | "AtoD" | "DtoA") => CopyKind::DeviceToDevice,
        Some("HtoH") => CopyKind::HostToHost,
        Some("PtoP") => CopyKind::PeerToPeer,
        _ => CopyKind::default(),
    };
    let (source, destination) = inner(name).split_once(" -> ").unwrap_or_default();
    (kind, memory_kind(source), memory_kind(destination))
}

/// The name in `thread 7 (loader)`; `None` for `thread 7`.
fn thread_name(title: &str, id: u32) -> Option<&str> {
    let Some(rest) = title.strip_prefix(&format!("thread {id}")) else { return Some(title) };
    match rest.trim_start().strip_prefix('(') {
        Some(name) => name.strip_suffix(')').filter(|name| !name.is_empty()),
        None if rest.is_empty() => None,
        None => Some(title),
    }
}
