//! Reads the tables of a capture into a store.

mod annotations;
mod info;
mod kernels;

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;

use cupti::record::Peers;
use cupti::{CallClass, CopyKind, GraphNode, Memcpy, Memset, Place, SynchronizationKind};
use rustc_hash::{FxHashMap, FxHashSet};

use super::file::{Cells, File};
use super::format::{self, NO_STREAM, memory_kind, process_of, thread_of};
use super::{metrics, schema};
use crate::error::Error;
use crate::formats::capture::{Capture, Function, OperationRow, Sweep, UNKNOWN_NAME};
use profiler_core::tables::{
    CallKind, Interval, Joined, Managed, ManagedMemory, Maybe, MemoryEvent, NameId, Process,
    RangeId, Synchronization, Tables, Thread, ThreadId, What, WholeGraph,
};

/// Reads all data of a capture that fits into a store, and counts unreadable data.
pub(super) fn read(file: &File) -> Result<Joined, Error> {
    thread::scope(|scope| read_with(file, kernels::start(scope, file)?))
}

fn read_with(file: &File, kernels: kernels::Reading<'_>) -> Result<Joined, Error> {
    let mut reader = Reader {
        file,
        capture: Capture::default(),
        strings: Strings::read(file)?,
        threads: FxHashMap::default(),
        processes: FxHashMap::default(),
        process_ids: FxHashSet::default(),
    };
    reader.read_processes()?;
    reader.read_threads()?;
    reader.read_ranges()?;
    reader.read_calls()?;
    reader.capture.nest();
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
    reader.capture.store.series = series.into_iter().map(Arc::new).collect();
    reader.capture.health.losses.unknown_records += unreadable;
    let info = reader.read_info()?;
    reader.keep_active_processes();
    let losses = &mut reader.capture.health.losses;
    losses.unknown_records += file.odd_cells.get();
    losses.computed_tables = file.computed_tables;
    reader.capture.finish(info, file.zero_ns)
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
    capture: Capture,
    strings: Strings,
    /// By `globalTid`.
    threads: FxHashMap<u64, ThreadId>,
    /// Rows of the store by `globalPid` without its thread; and the ids in use.
    processes: FxHashMap<u64, usize>,
    process_ids: FxHashSet<u32>,
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

/// Overheads during which nsys's own rules treat the GPU as busy.
const HOLDS_GPU: [&str; 3] = [
    "CUDA profiling overhead",
    "CUDA profiling data flush overhead",
    "CUDA profiling stop overhead",
];

impl Reader<'_> {
    fn process(&mut self, global: u64) -> u32 {
        let row = self.process_row(global);
        self.capture.store.processes[row].id
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
        let row = self.capture.store.processes.len();
        self.processes.insert(whole, row);
        self.capture.store.processes.push(Process { id, name: None, recorded: None });
        row
    }

    /// The process of work; if unknown, the only process.
    fn process_or_only(&mut self, global: Option<u64>) -> u32 {
        match (global, &self.capture.store.processes[..]) {
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
        let thread = ThreadId(self.capture.store.threads.len() as u32);
        self.capture.store.threads.push(Thread {
            id: thread_of(global),
            process,
            name: None,
            priority: None,
        });
        self.threads.insert(global, thread);
        thread
    }

    fn unreadable(&mut self) {
        self.capture.unreadable();
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
                self.capture.store.processes[row].name = name;
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
                let thread = &mut self.capture.store.threads[thread.at()];
                thread.name = self.strings.text(name).map(Into::into);
                thread.priority = priority;
            }
        }
        Ok(())
    }

    fn read_calls(&mut self) -> Result<(), Error> {
        let file = self.file;
        let mut functions: FxHashMap<(i64, Option<i64>, u32), Function> = FxHashMap::default();
        file.rows(schema::CALLS, |row| {
            let fields = (interval(row, 0, 1), row.bits(3), row.number(5));
            let (Some(time), Some(thread), Some(name)) = fields else { return self.unreadable() };
            let thread = self.thread(thread);
            let correlation_id = row.number(4).unwrap_or(0);
            let (class, result) = (row.number(2), row.number(6).unwrap_or(0));
            let key = (name, class, result);
            let function = *functions.entry(key).or_insert_with(|| {
                let name = self.name_or_unknown(Some(name));
                self.capture.function(name, format::api(class), result)
            });
            self.capture.push_call(function, time, correlation_id, thread);
        })?;
        self.capture.sort_calls();
        self.name_threads()
    }

    fn name_or_unknown(&mut self, id: Option<i64>) -> NameId {
        let known = id.and_then(|id| self.strings.name(&mut self.capture.store, id));
        known.unwrap_or_else(|| {
            self.unreadable();
            self.capture.store.names.intern(UNKNOWN_NAME)
        })
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
        self.capture.end_ns = self.capture.end_ns.max(time.end_ns);
        let zero_ns = self.file.zero_ns;
        Some(time).filter(|time| (time.start_ns, time.end_ns) != (zero_ns, zero_ns))
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
            copy.asynchronous =
                copy.graph_node.is_some() || self.capture.is_asynchronous(&operation);
            let what = match kind {
                11 => Some(Managed::ToDevice { bytes }),
                12 => Some(Managed::ToHost { bytes }),
                _ => None,
            };
            if let Some(what) = what {
                self.capture.store.managed.push(ManagedMemory {
                    what,
                    address: row.bits(19).unwrap_or(0),
                    time: operation.time.unwrap_or_default(),
                    device: Some(operation.place.device),
                    process: operation.process,
                });
            }
            self.capture.push_operation(&operation, What::Copy(copy), kind);
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
            memset.asynchronous =
                memset.graph_node.is_some() || self.capture.is_asynchronous(&operation);
            self.capture.push_operation(&operation, What::Memset(memset), 0);
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
            self.capture.push_operation(&operation, graph, 0);
        })
    }

    fn read_synchronizations(&mut self) -> Result<(), Error> {
        let file = self.file;
        let (table, columns) = schema::SYNCHRONIZATIONS;
        file.rows((table, &format!("{columns}, deprecatedSyncType")), |row| {
            let Some(time) = interval(row, 0, 1) else { return self.unreadable() };
            self.capture.health.records += 1;
            self.capture.end_ns = self.capture.end_ns.max(time.end_ns);
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
            self.capture.store.synchronizations.push(Synchronization { record, call, process });
        })
    }

    fn read_memory(&mut self) -> Result<(), Error> {
        let file = self.file;
        file.rows(schema::MEMORY, |row| {
            let fields = (row.time(0), row.bits(4), row.number::<u32>(6));
            let (Some(at_ns), Some(bytes), Some(operation)) = fields else {
                return self.unreadable();
            };
            self.capture.health.records += 1;
            self.capture.end_ns = self.capture.end_ns.max(at_ns);
            let process = self.process_or_only(row.bits(1));
            self.capture.store.memory.push(MemoryEvent {
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
            let instruction =
                row.number(3).and_then(|id| self.strings.name(&mut self.capture.store, id));
            let file = row.number(4).and_then(|id| self.strings.name(&mut self.capture.store, id));
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
        self.capture.health.records += 1;
        self.capture.end_ns = self.capture.end_ns.max(fault.time.end_ns);
        self.capture.store.managed.push(fault);
    }

    fn read_overheads(&mut self) -> Result<(), Error> {
        let file = self.file;
        for table in ["PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD"] {
            file.rows((table, schema::OVERHEADS.1), |row| {
                let Some(time) = interval(row, 0, 1) else { return self.unreadable() };
                let process = self.process_or_only(row.bits(2));
                let name = row.number(3).and_then(|id| self.strings.text(id));
                let holds_gpu = name.is_some_and(|name| HOLDS_GPU.contains(&name));
                self.capture.push_overhead(time, process, holds_gpu);
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
                let process = self.capture.store.threads[thread.at()].process;
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
                next = self.capture.store.ranges.partition_point(|range| range.thread < thread);
            }
            while let Some(range) = self.capture.store.ranges.get(next)
                && range.thread == thread
                && range.time.start_ns <= time.start_ns
            {
                sweep.begin(next as u32, range.time.start_ns, range.time.end_ns);
                next += 1;
            }
            if let Some(range) = sweep.innermost(time.end_ns) {
                self.capture.nodes.create((process, node), Some(RangeId(range)));
            }
        }
        copies.sort_unstable();
        for (_, copy, original) in copies {
            self.capture.nodes.copy(copy, original);
        }
        for (thread, time) in calls {
            self.mark_captured(thread, time);
        }
        Ok(())
    }

    /// Marks the call that created a graph node as captured: the call did not run its work.
    fn mark_captured(&mut self, thread: ThreadId, time: Interval) {
        let calls = &self.capture.store.calls;
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
        let kind = *self.capture.store.call_kind(&self.capture.store.calls[row]);
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
            self.capture.store.calls[row].kind = self.capture.store.intern_call_kind(kind);
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
                self.capture.health.losses.capture_losses += 1;
            } else {
                self.capture.health.facts.capture_warnings += 1;
            }
        })
    }

    /// Retains only processes with events: nsys lists all processes of the machine.
    fn keep_active_processes(&mut self) {
        let store = &self.capture.store;
        let active: FxHashSet<u32> = (store.threads.iter().map(|thread| thread.process))
            .chain(store.works().iter().map(|work| work.process))
            .chain(store.synchronizations.iter().map(|row| row.process))
            .chain(store.memory.iter().map(|event| event.process))
            .chain(store.managed.iter().map(|event| event.process))
            .chain(store.overheads.iter().map(|overhead| overhead.process))
            .collect();
        let listed = self.capture.store.processes.len();
        // A single listed process stays, also in an empty capture.
        if listed > 1 {
            self.capture.store.processes.retain(|process| active.contains(&process.id));
        }
        self.capture.health.facts.silent_processes =
            (listed - self.capture.store.processes.len()) as u64;
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
