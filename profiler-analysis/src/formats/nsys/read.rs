//! Reads the tables of a capture into a store.

mod annotations;
mod info;
mod kernels;

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cupti::record::Peers;
use cupti::{CallClass, CopyKind, GraphNode, Memcpy, Memset, Place, SynchronizationKind};
use rustc_hash::{FxHashMap, FxHashSet};

use super::file::{Cells, File};
use super::format::{self, NO_STREAM, memory_kind, process_of, thread_of};
use super::nesting::Sweep;
use super::{metrics, schema};
use crate::error::Error;
use profiler_core::Health;
use profiler_core::tables::GraphNodes;
use profiler_core::tables::{
    Builder, Call, CallKind, CallKindId, Interval, Joined, Managed, ManagedMemory, Maybe,
    MemoryEvent, NameId, Operation, Overhead, Process, RangeId, RangesBy, Session, Synchronization,
    Tables, Thread, ThreadId, What, WholeGraph, Work,
};

/// Reads all data of a capture that fits into a store, and counts unreadable data.
pub(super) fn read(file: &File) -> Result<Joined, Error> {
    thread::scope(|scope| read_with(file, kernels::start(scope, file)?))
}

fn read_with(file: &File, kernels: kernels::Reading<'_>) -> Result<Joined, Error> {
    let mut reader = Reader {
        file,
        store: Tables::default(),
        health: Health::default(),
        strings: Strings::read(file)?,
        threads: FxHashMap::default(),
        processes: FxHashMap::default(),
        process_ids: FxHashSet::default(),
        asynchronous: FxHashSet::default(),
        nodes: GraphNodes::new(usize::MAX),
        begin_ns: 0,
        end_ns: 0,
        last_range_ns: 0,
        last_annotation_ns: 0,
    };
    reader.read_processes()?;
    reader.read_threads()?;
    reader.read_ranges()?;
    reader.read_calls()?;
    reader.nest();
    reader.read_graph_nodes()?;
    reader.add_kernels(kernels)?;
    reader.read_copies()?;
    reader.read_memsets()?;
    reader.read_whole_graphs()?;
    reader.read_synchronizations()?;
    reader.read_memory()?;
    reader.read_managed_memory()?;
    reader.read_overheads()?;
    reader.read_diagnostics()?;
    let (series, unreadable) = metrics::read(file)?;
    reader.store.series = series.into_iter().map(Arc::new).collect();
    reader.health.losses.unknown_records += unreadable;
    let info = reader.read_info()?;
    reader.finish();
    let mut builder = Builder::new(info);
    (*builder.tables(), *builder.health()) = (reader.store, reader.health);
    Ok(builder.finish()?)
}

/// The texts of a capture by id, shared by all tables; most are never used.
struct Strings {
    texts: FxHashMap<i64, Box<str>>,
    names: FxHashMap<i64, NameId>,
}

impl Strings {
    fn read(file: &File) -> Result<Self, Error> {
        let mut texts = FxHashMap::default();
        file.rows(schema::STRINGS, |row| {
            if let (Some(id), Some(text)) = (row.number(0), row.text(1)) {
                texts.insert(id, text.into());
            }
        })?;
        Ok(Self { texts, names: FxHashMap::default() })
    }

    fn text(&self, id: i64) -> Option<&str> {
        self.texts.get(&id).map(|text| &**text)
    }

    fn name(&mut self, store: &mut Tables, id: i64) -> Option<NameId> {
        match self.names.entry(id) {
            Entry::Occupied(name) => Some(*name.get()),
            Entry::Vacant(name) => Some(*name.insert(store.names.intern(self.texts.get(&id)?))),
        }
    }
}

struct Reader<'a> {
    file: &'a File,
    store: Tables,
    health: Health,
    strings: Strings,
    /// By `globalTid`.
    threads: FxHashMap<u64, ThreadId>,
    /// Rows of the store by `globalPid` without its thread; and the ids in use.
    processes: FxHashMap<u64, usize>,
    process_ids: FxHashSet<u32>,
    /// Copies and memsets submitted by asynchronous calls, by process and correlation id.
    asynchronous: FxHashSet<(u32, u32)>,
    /// By process and node.
    nodes: GraphNodes<RangeId, (u32, u64)>,
    /// The start of the capture, set by [`read_info`](Self::read_info); and the latest time.
    begin_ns: u64,
    end_ns: u64,
    /// The latest start or end of all ranges, and of all annotations.
    last_range_ns: u64,
    last_annotation_ns: u64,
}

/// The time of a row; `None` if it ends before it starts.
fn interval(row: Cells<'_>, start: usize, end: usize) -> Option<Interval> {
    let (start_ns, end_ns) = (row.time(start)?, row.time(end)?);
    (start_ns <= end_ns).then_some(Interval { start_ns, end_ns })
}

/// The stream and device of an operation.
fn place(row: Cells<'_>) -> Place {
    let mut place = Place::default();
    place.device = row.number(2).unwrap_or(0);
    place.context = row.number(3).unwrap_or(0);
    place.stream = row.number(5).unwrap_or(NO_STREAM);
    place
}

const UNKNOWN_NAME: &str = "(unknown name)";

/// Overheads during which nsys's own rules treat the GPU as busy.
const HOLDS_GPU: [&str; 3] = [
    "CUDA profiling overhead",
    "CUDA profiling data flush overhead",
    "CUDA profiling stop overhead",
];

struct OperationRow {
    time: Option<Interval>,
    place: Place,
    correlation_id: u32,
    process: u32,
    green_context: Option<u32>,
}

impl Reader<'_> {
    fn process(&mut self, global: u64) -> u32 {
        let row = self.process_row(global);
        self.store.processes[row].id
    }

    fn process_row(&mut self, global: u64) -> usize {
        let whole = process_of(global);
        if let Some(&known) = self.processes.get(&whole) {
            return known;
        }
        // Process ids are unique per machine; the 8 bits above their 24 keep them distinct.
        let mut id = thread_of(whole);
        while !self.process_ids.insert(id)
            && let Some(next) = id.checked_add(1 << 24)
        {
            id = next;
        }
        let row = self.store.processes.len();
        self.processes.insert(whole, row);
        self.store.processes.push(Process { id, name: None, recorded: None });
        row
    }

    /// The process of work; if unknown, the only process.
    fn process_or_only(&mut self, global: Option<u64>) -> u32 {
        match (global, &self.store.processes[..]) {
            (Some(global), _) => self.process(global),
            (None, [only]) => only.id,
            (None, _) => 0,
        }
    }

    fn thread(&mut self, global: u64) -> ThreadId {
        if let Some(&thread) = self.threads.get(&global) {
            return thread;
        }
        let process = self.process(global);
        let thread = ThreadId(self.store.threads.len() as u32);
        self.store.threads.push(Thread {
            id: thread_of(global),
            process,
            name: None,
            priority: None,
        });
        self.threads.insert(global, thread);
        thread
    }

    fn unreadable(&mut self) {
        self.health.losses.unknown_records += 1;
    }

    fn read_processes(&mut self) -> Result<(), Error> {
        let file = self.file;
        let mut names: BTreeMap<u64, Option<Box<str>>> = BTreeMap::new();
        file.rows(schema::PROCESSES, |row| {
            let Some(global) = row.bits(0) else { return self.unreadable() };
            let name = row.text(2).map(Box::from);
            let known = names.entry(global).or_default();
            // Among several names, the alphabetically first one.
            if name.is_some() && (known.is_none() || name < *known) {
                *known = name;
            }
        })?;
        for (global, name) in names {
            let row = self.process_row(global);
            if name.is_some() {
                self.store.processes[row].name = name;
            }
        }
        Ok(())
    }

    /// Creates threads in the order of their ids; the order of rows is meaningless.
    fn read_threads(&mut self) -> Result<(), Error> {
        let file = self.file;
        let odd_cells = file.odd_cells.get();
        let mut threads = BTreeSet::new();
        for (table, columns) in [
            ("NVTX_EVENTS", "globalTid, endGlobalTid"),
            ("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid, globalTid"),
            ("CUDA_GRAPH_NODE_EVENTS", "globalTid, globalTid"),
            ("CUDA_GRAPH_EVENTS", "globalTid, globalTid"),
        ] {
            let mut last = None;
            file.rows((table, columns), |row| {
                let of_row = (row.bits(0), row.bits(1));
                if last != Some(of_row) {
                    threads.extend([of_row.0, of_row.1].into_iter().flatten());
                    last = Some(of_row);
                }
            })?;
        }
        // Cells of an unexpected type are counted when the tables are read.
        file.odd_cells.set(odd_cells);
        threads.into_iter().for_each(|global| _ = self.thread(global));
        Ok(())
    }

    /// Sets thread names from outside NVTX; among several, the one with the highest priority.
    fn name_threads(&mut self) -> Result<(), Error> {
        let file = self.file;
        let mut best: FxHashMap<u64, (Option<i64>, i64)> = FxHashMap::default();
        file.rows(schema::THREADS, |row| {
            let (Some(global), Some(name)) = (row.bits(2), row.number(0)) else {
                return self.unreadable();
            };
            // Among equal priorities the smallest id, independent of the order of rows.
            let order = |(priority, name): (Option<i64>, i64)| (priority, Reverse(name));
            let named = (row.number(1), name);
            let known = best.entry(global).or_insert(named);
            if order(*known) < order(named) {
                *known = named;
            }
        })?;
        for (global, (priority, name)) in best {
            if let Some(thread) = self.threads.get(&global) {
                let thread = &mut self.store.threads[thread.at()];
                thread.name = self.strings.text(name).map(Into::into);
                thread.priority = priority;
            }
        }
        Ok(())
    }

    fn read_calls(&mut self) -> Result<(), Error> {
        let file = self.file;
        let mut kinds: FxHashMap<(i64, Option<i64>, u32), (CallKindId, bool)> =
            FxHashMap::default();
        file.rows(schema::CALLS, |row| {
            let fields = (interval(row, 0, 1), row.bits(3), row.number(5));
            let (Some(time), Some(thread), Some(name)) = fields else { return self.unreadable() };
            let thread = self.thread(thread);
            let correlation_id = row.number(4).unwrap_or(0);
            let (class, result) = (row.number(2), row.number(6).unwrap_or(0));
            let (kind, is_asynchronous) = *kinds
                .entry((name, class, result))
                .or_insert_with(|| self.call_kind(name, class, result));
            if is_asynchronous {
                let process = self.store.threads[thread.at()].process;
                self.asynchronous.insert((process, correlation_id));
            }
            self.end_ns = self.end_ns.max(time.end_ns);
            let range = Maybe::NONE;
            self.store.calls.push(Call { time, correlation_id, kind, thread, range });
        })?;
        // Enclosing calls come first.
        self.store.calls.sort_by_key(|call| {
            let Call { thread, time, correlation_id, .. } = *call;
            (thread, time.start_ns, Reverse(time.end_ns), correlation_id)
        });
        self.name_threads()
    }

    /// The kind of a call, and if its work is asynchronous.
    fn call_kind(
        &mut self,
        name: i64,
        event_class: Option<i64>,
        result: u32,
    ) -> (CallKindId, bool) {
        let id = self.name_or_unknown(Some(name));
        let text = self.store.names.get(id);
        let (api, class) = format::call_class(text, event_class);
        let is_transfer = matches!(class, CallClass::Memcpy | CallClass::Memset);
        let is_asynchronous = is_transfer && text.contains("Async");
        let kind = CallKind { result, ..CallKind::new(id, api, class) };
        (self.store.intern_call_kind(kind), is_asynchronous)
    }

    fn name_or_unknown(&mut self, id: Option<i64>) -> NameId {
        let known = id.and_then(|id| self.strings.name(&mut self.store, id));
        known.unwrap_or_else(|| {
            self.unreadable();
            self.store.names.intern(UNKNOWN_NAME)
        })
    }

    /// Sets the range around each range, process range, mark and call: of the open ranges of all
    /// domains, the one that began last. A call is within a range that is open until it returns.
    ///
    /// A range without an end contains a call after the last end of all ranges only if all ranges
    /// around it have no end either.
    fn nest(&mut self) {
        let last_ns = self.last_range_ns;
        let Tables { ranges, process_ranges, marks, calls, threads, .. } = &mut self.store;
        let mut sweep = Sweep::default();
        // Ranges without an end whose outer ranges have none either.
        let mut is_open = vec![false; ranges.len()];
        let (mut next, mut next_call, mut next_process, mut next_mark) = (0, 0, 0, 0);
        for thread in (0..threads.len() as u32).map(ThreadId) {
            sweep.clear();
            loop {
                let range = ranges.get(next).filter(|range| range.thread == thread);
                let until_ns = range.map_or(u64::MAX, |range| range.time.start_ns);
                let is_last = range.is_none();
                // Events that start together with a range belong to it.
                let is_due =
                    |of: ThreadId, at_ns: u64| of == thread && (is_last || at_ns < until_ns);
                while let Some(call) = calls.get_mut(next_call)
                    && is_due(call.thread, call.time.start_ns)
                {
                    let is_around =
                        |range: &u32| call.time.end_ns <= last_ns || is_open[*range as usize];
                    let around = sweep.innermost(call.time.end_ns).filter(is_around);
                    call.range = around.map(RangeId).into();
                    next_call += 1;
                }
                while let Some(process) = process_ranges.get_mut(next_process)
                    && is_due(process.thread, process.time.start_ns)
                {
                    process.parent = sweep.innermost(process.time.start_ns).map(RangeId);
                    next_process += 1;
                }
                while let Some(mark) = marks.get_mut(next_mark)
                    && is_due(mark.thread, mark.at_ns)
                {
                    mark.parent = sweep.innermost(mark.at_ns).map(RangeId);
                    next_mark += 1;
                }
                if is_last {
                    break;
                }
                let range = &mut ranges[next];
                let Interval { start_ns, end_ns } = range.time;
                // A range that ends when this one begins is no longer open.
                let parent = sweep.innermost(end_ns.min(start_ns.saturating_add(1)));
                range.parent = parent.map(RangeId).into();
                let around = sweep.innermost(end_ns.min(last_ns));
                is_open[next] =
                    range.is_open && around.is_none_or(|around| is_open[around as usize]);
                sweep.begin(next as u32, start_ns, end_ns);
                next += 1;
            }
        }
    }

    /// Reads the columns of all GPU operations.
    fn operation(&mut self, row: Cells<'_>) -> Option<OperationRow> {
        let Some(time) = interval(row, 0, 1) else {
            self.unreadable();
            return None;
        };
        Some(OperationRow {
            time: self.known_time(time),
            place: place(row),
            correlation_id: row.number(6).unwrap_or(0),
            process: self.process_or_only(row.bits(7)),
            green_context: row.number(4),
        })
    }

    /// The time of an operation; `None` if both times of the row are 0, which means unknown.
    fn known_time(&mut self, time: Interval) -> Option<Interval> {
        self.end_ns = self.end_ns.max(time.end_ns);
        let zero_ns = self.file.zero_ns;
        Some(time).filter(|time| (time.start_ns, time.end_ns) != (zero_ns, zero_ns))
    }

    fn push_operation(&mut self, row: &OperationRow, what: What, copy_kind: u8) {
        self.push_work(row, Work { copy_kind, ..Work::new(what, row.place) });
    }

    fn push_work(&mut self, row: &OperationRow, work: Work) {
        self.health.records += 1;
        let node = work.what.graph_node();
        let captured = node.and_then(|node| self.nodes.range((row.process, node.node)));
        let (process, green_context) = (row.process, row.green_context);
        let work = Work { process, green_context, ..work };
        let work = self.store.intern_work(work);
        let mut operation = Operation::new(work, row.time, row.correlation_id);
        operation.captured = captured.into();
        self.store.operations.push(operation);
    }

    fn read_copies(&mut self) -> Result<(), Error> {
        let file = self.file;
        file.rows(schema::COPIES, |row| {
            let Some(operation) = self.operation(row) else { return };
            let Some(bytes) = row.bits(8) else { return self.unreadable() };
            let kind = row.number(9).unwrap_or(0);
            let mut copy = Memcpy::default();
            copy.kind = CopyKind::from_raw(kind);
            copy.source = memory_kind(row.number(10));
            copy.destination = memory_kind(row.number(11));
            copy.bytes = bytes;
            copy.place = operation.place;
            if let (Some(source), Some(destination)) = (row.number(15), row.number(17)) {
                let contexts = (row.number(16).unwrap_or(0), row.number(18).unwrap_or(0));
                copy.peers = Some(Peers::new((source, contexts.0), (destination, contexts.1)));
            }
            copy.graph_node = graph_node(row, 12, 13);
            copy.copies = row.bits(14);
            copy.asynchronous = copy.graph_node.is_some()
                || self.asynchronous.contains(&(operation.process, operation.correlation_id));
            let what = match kind {
                11 => Some(Managed::ToDevice { bytes }),
                12 => Some(Managed::ToHost { bytes }),
                _ => None,
            };
            if let Some(what) = what {
                self.store.managed.push(ManagedMemory {
                    what,
                    address: row.bits(19).unwrap_or(0),
                    time: operation.time.unwrap_or_default(),
                    device: Some(operation.place.device),
                    process: operation.process,
                });
            }
            self.push_operation(&operation, What::Copy(copy), kind);
        })
    }

    fn read_memsets(&mut self) -> Result<(), Error> {
        let file = self.file;
        file.rows(schema::MEMSETS, |row| {
            let Some(operation) = self.operation(row) else { return };
            let Some(bytes) = row.bits(9) else { return self.unreadable() };
            let mut memset = Memset::default();
            memset.value = row.number(8).unwrap_or(0);
            memset.bytes = bytes;
            memset.memory = memory_kind(row.number(10));
            memset.place = operation.place;
            memset.graph_node = graph_node(row, 11, 12);
            memset.asynchronous = memset.graph_node.is_some()
                || self.asynchronous.contains(&(operation.process, operation.correlation_id));
            self.push_operation(&operation, What::Memset(memset), 0);
        })
    }

    /// Reads launches of graphs traced as one interval each.
    fn read_whole_graphs(&mut self) -> Result<(), Error> {
        let file = self.file;
        file.rows(schema::GRAPHS, |row| {
            let Some(operation) = self.operation(row) else { return };
            let template = row.number(8);
            let executable = row.number(9).or(template).unwrap_or(0);
            let graph = What::Graph(WholeGraph { executable, template });
            self.push_operation(&operation, graph, 0);
        })
    }

    fn read_synchronizations(&mut self) -> Result<(), Error> {
        let file = self.file;
        let (table, columns) = schema::SYNCHRONIZATIONS;
        file.rows((table, &format!("{columns}, deprecatedSyncType")), |row| {
            let Some(time) = interval(row, 0, 1) else { return self.unreadable() };
            self.health.records += 1;
            self.end_ns = self.end_ns.max(time.end_ns);
            let id = |column: usize| row.number(column).filter(|id| *id != u32::MAX);
            let mut record = cupti::Synchronization::default();
            let kind = row.number(6).or_else(|| row.number(9)).unwrap_or(0);
            record.kind = SynchronizationKind::from_raw(kind);
            (record.span.start_ns, record.span.end_ns) = (time.start_ns, time.end_ns);
            record.context = row.number(2).unwrap_or(0);
            record.stream = id(3);
            record.event = id(7);
            record.event_sync_id = row.bits(8).filter(|id| *id != u64::from(u32::MAX));
            record.correlation_id = row.number(4).unwrap_or(0);
            let process = self.process_or_only(row.bits(5));
            let call = Maybe::NONE;
            self.store.synchronizations.push(Synchronization { record, call, process });
        })
    }

    fn read_memory(&mut self) -> Result<(), Error> {
        let file = self.file;
        file.rows(schema::MEMORY, |row| {
            let fields = (row.time(0), row.bits(4), row.number::<u32>(6));
            let (Some(at_ns), Some(bytes), Some(operation)) = fields else {
                return self.unreadable();
            };
            self.health.records += 1;
            self.end_ns = self.end_ns.max(at_ns);
            let process = self.process_or_only(row.bits(1));
            self.store.memory.push(MemoryEvent {
                at_ns,
                is_allocation: operation == 0,
                kind: memory_kind(row.number(5)),
                bytes,
                address: row.bits(3).unwrap_or(0),
                device: row.number(2).unwrap_or(0),
                correlation_id: row.number(7).unwrap_or(0),
                call: Maybe::NONE,
                process,
                is_repeat: false,
            });
        })
    }

    fn read_managed_memory(&mut self) -> Result<(), Error> {
        let file = self.file;
        file.rows(schema::HOST_FAULTS, |row| {
            let Some(at_ns) = row.time(0) else { return self.unreadable() };
            let instruction = row.number(3).and_then(|id| self.strings.name(&mut self.store, id));
            let file = row.number(4).and_then(|id| self.strings.name(&mut self.store, id));
            let line = file.zip(row.number(5));
            let process = self.process_or_only(row.bits(1));
            self.push_fault(ManagedMemory {
                what: Managed::HostFault { instruction, line },
                address: row.bits(2).unwrap_or(0),
                time: Interval { start_ns: at_ns, end_ns: at_ns },
                device: None,
                process,
            });
        })?;
        file.rows(schema::DEVICE_FAULTS, |row| {
            let Some(time) = interval(row, 0, 1) else { return self.unreadable() };
            let process = self.process_or_only(row.bits(2));
            self.push_fault(ManagedMemory {
                what: Managed::DeviceFaults { count: row.bits(5).unwrap_or(0) },
                address: row.bits(4).unwrap_or(0),
                time,
                device: row.number(3),
                process,
            });
        })
    }

    fn push_fault(&mut self, fault: ManagedMemory) {
        self.health.records += 1;
        self.end_ns = self.end_ns.max(fault.time.end_ns);
        self.store.managed.push(fault);
    }

    fn read_overheads(&mut self) -> Result<(), Error> {
        let file = self.file;
        for table in ["PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD"] {
            file.rows((table, schema::OVERHEADS.1), |row| {
                let Some(time) = interval(row, 0, 1) else { return self.unreadable() };
                let process = self.process_or_only(row.bits(2));
                let name = row.number(3).and_then(|id| self.strings.text(id));
                let holds_gpu = name.is_some_and(|name| HOLDS_GPU.contains(&name));
                self.end_ns = self.end_ns.max(time.end_ns);
                let overhead = &mut self.health.facts.overhead;
                *overhead = overhead.saturating_add(Duration::from_nanos(time.ns()));
                self.store.overheads.push(Overhead { time, process, holds_gpu });
            })?;
        }
        Ok(())
    }

    /// Reads the innermost range of the thread in which each graph node was created.
    fn read_graph_nodes(&mut self) -> Result<(), Error> {
        let file = self.file;
        let (mut made, mut calls, mut copies) = (Vec::new(), Vec::new(), Vec::new());
        for table in ["CUDA_GRAPH_NODE_EVENTS", "CUDA_GRAPH_EVENTS"] {
            let columns = "start, end, globalTid, graphNodeId, originalGraphNodeId";
            file.rows((table, columns), |row| {
                // Newer captures store graphs in the second table.
                let Some(node) = row.bits(3) else { return };
                let (Some(time), Some(global)) = (interval(row, 0, 1), row.bits(2)) else {
                    return self.unreadable();
                };
                let thread = self.thread(global);
                let process = self.store.threads[thread.at()].process;
                calls.push((thread, time));
                // 0 is an unknown node.
                if node == 0 {
                    return;
                }
                match row.bits(4).filter(|original| *original != 0 && *original != node) {
                    Some(original) => {
                        copies.push((time.start_ns, (process, node), (process, original)));
                    }
                    None => made.push((thread, time, process, node)),
                }
            })?;
        }
        made.sort_by_key(|(thread, time, ..)| (*thread, time.start_ns, Reverse(time.end_ns)));
        let mut sweep = Sweep::default();
        let (mut next, mut of) = (0, None);
        for (thread, time, process, node) in made {
            if of != Some(thread) {
                of = Some(thread);
                sweep.clear();
                next = self.store.ranges.partition_point(|range| range.thread < thread);
            }
            while let Some(range) = self.store.ranges.get(next)
                && range.thread == thread
                && range.time.start_ns <= time.start_ns
            {
                sweep.begin(next as u32, range.time.start_ns, range.time.end_ns);
                next += 1;
            }
            if let Some(range) = sweep.innermost(time.end_ns) {
                self.nodes.create((process, node), Some(RangeId(range)));
            }
        }
        copies.sort_unstable();
        for (_, copy, original) in copies {
            self.nodes.copy(copy, original);
        }
        for (thread, time) in calls {
            self.mark_captured(thread, time);
        }
        Ok(())
    }

    /// Marks the call that created a graph node as captured: the call did not run its work.
    fn mark_captured(&mut self, thread: ThreadId, time: Interval) {
        let calls = &self.store.calls;
        let after = calls
            .partition_point(|call| (call.thread, call.time.start_ns) <= (thread, time.start_ns));
        // Calls may nest, and the next call of a thread may start at once.
        let made = calls[..after]
            .iter()
            .rev()
            .take(2)
            .position(|call| call.thread == thread && call.time.end_ns >= time.end_ns);
        let Some(made) = made else { return };
        let row = after - 1 - made;
        let kind = *self.store.call_kind(&self.store.calls[row]);
        let is_work = matches!(
            kind.class,
            CallClass::KernelLaunch
                | CallClass::GraphLaunch
                | CallClass::Memcpy
                | CallClass::Memset
                | CallClass::HostFunction
                | CallClass::WaitEvent
                | CallClass::Alloc
                | CallClass::Free
        );
        if is_work {
            let kind = CallKind { captured: true, ..kind };
            self.store.calls[row].kind = self.store.intern_call_kind(kind);
        }
    }

    fn read_diagnostics(&mut self) -> Result<(), Error> {
        let file = self.file;
        file.rows(("DIAGNOSTIC_EVENT", "severity, text"), |row| {
            // 2 and 3 are warnings and errors.
            if !matches!(row.number::<i64>(0), Some(2 | 3)) {
                return;
            }
            let text = row.text(1).unwrap_or_default().to_ascii_lowercase();
            let loss_words = ["dropped", "lost", "not all", "discarded"];
            if loss_words.iter().any(|words| text.contains(words)) {
                self.health.losses.capture_losses += 1;
            } else {
                self.health.facts.capture_warnings += 1;
            }
        })
    }

    /// Retains only processes with events: nsys lists all processes of the machine.
    fn keep_active_processes(&mut self) {
        let store = &self.store;
        let active: FxHashSet<u32> = (store.threads.iter().map(|thread| thread.process))
            .chain(store.works().iter().map(|work| work.process))
            .chain(store.synchronizations.iter().map(|row| row.process))
            .chain(store.memory.iter().map(|event| event.process))
            .chain(store.managed.iter().map(|event| event.process))
            .chain(store.overheads.iter().map(|overhead| overhead.process))
            .collect();
        let listed = self.store.processes.len();
        // A single listed process stays, also in an empty capture.
        if listed > 1 {
            self.store.processes.retain(|process| active.contains(&process.id));
        }
        self.health.facts.silent_processes = (listed - self.store.processes.len()) as u64;
    }

    fn finish(&mut self) {
        self.keep_active_processes();
        let store = &mut self.store;
        // Independent of the order of rows; simultaneous operations by id.
        let mut operations = std::mem::take(&mut store.operations);
        let rest = |operation: &Operation| {
            let work = store.work(operation);
            let place = (work.process, work.place.device, work.place.context, work.place.stream);
            let node = work.what.graph_node().map(|node| node.node);
            (operation.ns(), operation.correlation_id, place, node)
        };
        operations
            .sort_by(|a, b| a.start_ns().cmp(&b.start_ns()).then_with(|| rest(a).cmp(&rest(b))));
        store.operations = operations;
        store.synchronizations.sort_by_key(|row| {
            let cupti::Span { start_ns, end_ns, .. } = row.record.span;
            (start_ns, end_ns, row.process, row.record.correlation_id)
        });
        store.memory.sort_by_key(|event| {
            (event.at_ns, event.process, event.correlation_id, event.address, event.is_allocation)
        });
        store.managed.sort_by_key(|event| (event.time.start_ns, event.process, event.address));
        store.overheads.sort_by_key(|overhead| {
            (overhead.time.start_ns, overhead.time.end_ns, overhead.process, overhead.holds_gpu)
        });
        self.health.losses.unknown_records += self.file.odd_cells.get();
        self.health.losses.computed_tables = self.file.computed_tables;
        store.session = Session {
            window_ns: (self.begin_ns, self.end_ns),
            windows_ns: vec![(0, u64::MAX)],
            ranges_by: RangesBy::Containment,
            zero_ns: self.file.zero_ns,
            last_annotation_ns: self.last_annotation_ns,
            ..Session::default()
        };
    }
}

/// A graph node. Without a column for it, the graph is in the upper half of the node's number.
fn graph_node(row: Cells<'_>, node: usize, graph: usize) -> Option<GraphNode> {
    let node = row.bits(node).filter(|node| *node != 0)?;
    let graph = row.number(graph).filter(|graph| *graph != 0);
    // CAST: the upper half.
    let graph = graph.unwrap_or((node >> 32) as u32);
    GraphNode::new(if graph == 0 { u32::MAX } else { graph }, node)
}
