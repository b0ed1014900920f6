//! Writes a store into the tables of a capture.

mod annotations;
mod samples;

use std::time::{Duration, UNIX_EPOCH};

use cupti::record::{KernelDetails, LaunchType};
use cupti::{CopyKind, Kernel, Record, SynchronizationKind};
use profiler_base::distinct::Texts;
use profiler_base::kernel_names;
use profiler_base::units::nanoseconds;
use rustc_hash::{FxHashMap, FxHashSet};

use super::destination::{Cell, Destination, Rows};
use super::format::{self, DRIVER, NO_STREAM, RUNTIME, global, memory_number};
use super::schema;
use crate::formats::epoch_ns;
use profiler_core::profile::Profile;
use profiler_core::tables::{
    Api, Call, Interval, KernelNames, Managed, NameId, Operation, Process, Tables, ThreadId, What,
};

/// The result of a step.
type Result_<T> = Result<(), <T as Destination>::Error>;

pub(crate) struct Writer<'a, T, P> {
    profile: &'a Profile,
    store: &'a Tables,
    tables: T,
    strings: Strings,
    progress: Counter<P>,
}

/// Reports progress at intervals.
struct Counter<P> {
    progress: P,
    written: u64,
    total: u64,
}

/// The number of rows between two reports.
const ROWS_A_REPORT: u64 = 50_000;

impl<P: FnMut(u64, u64)> Counter<P> {
    fn row(&mut self) {
        self.written += 1;
        if self.written.is_multiple_of(ROWS_A_REPORT) {
            self.report();
        }
    }

    fn report(&mut self) {
        (self.progress)(self.written, self.total.max(self.written));
    }
}

/// Texts by id, counted from 0 as in nsys.
#[derive(Default)]
struct Strings {
    texts: Texts,
    names: FxHashMap<NameId, i64>,
    kernels: FxHashMap<KernelNames, [i64; 3]>,
}

impl Strings {
    fn id(&mut self, text: &str) -> i64 {
        self.texts.text(text).into()
    }

    fn name(&mut self, store: &Tables, name: NameId) -> i64 {
        if let Some(&id) = self.names.get(&name) {
            return id;
        }
        let id = self.id(store.names.get(name));
        self.names.insert(name, id);
        id
    }

    /// The ids of a kernel's name with parameters, its short name, and its mangled name.
    fn kernel(&mut self, store: &Tables, names: &KernelNames) -> [i64; 3] {
        if let Some(&ids) = self.kernels.get(names) {
            return ids;
        }
        let raw = store.names.get(names.name);
        let demangled = match names.demangled {
            Some(demangled) => store.names.get(demangled).to_owned(),
            None => kernel_names::with_parameters(raw),
        };
        let short = match names.short {
            Some(short) => store.names.get(short).to_owned(),
            None => kernel_names::without_scope(&demangled).to_owned(),
        };
        let ids = [self.id(&demangled), self.id(&short), self.id(raw)];
        self.kernels.insert(*names, ids);
        ids
    }
}

impl<'a, T: Destination, P: FnMut(u64, u64)> Writer<'a, T, P> {
    /// Writes all tables.
    pub(crate) fn write(profile: &'a Profile, tables: T, progress: P) -> Result_<T> {
        let store = &profile.tables();
        let rows = store.calls.len()
            + store.operations.len()
            + store.synchronizations.len()
            + store.ranges.len()
            + store.process_ranges.len()
            + store.marks.len()
            + store.memory.len()
            + store.managed.len();
        let mut writer = Writer {
            profile,
            store,
            tables,
            strings: Strings::default(),
            progress: Counter { progress, written: 0, total: rows as u64 },
        };
        writer.tables.create(schema::TABLES)?;
        writer.write_enumerations()?;
        writer.write_info()?;
        writer.write_operations()?;
        writer.write_calls()?;
        writer.write_synchronizations()?;
        writer.write_memory()?;
        writer.write_managed_memory()?;
        writer.write_overheads()?;
        writer.write_ranges()?;
        if T::HAS_RANGES {
            writer.write_tree()?;
            writer.write_samples()?;
        } else {
            writer.write_metrics()?;
        }
        writer.write_places()?;
        writer.write_threads()?;
        writer.write_strings()?;
        writer.progress.report();
        Ok(())
    }

    fn insert(&self, (table, columns): schema::Columns) -> Result<T::Rows, T::Error> {
        self.tables.insert(table, columns)
    }

    /// A time since the start of nsys's session.
    fn at(&self, ns: u64) -> i64 {
        self.store.session.since_zero(ns)
    }

    /// A time since the profile's start, which may precede nsys's session.
    fn at_since_start(&self, time: Duration) -> i64 {
        let ns = nanoseconds(time);
        self.at(self.store.session.window_ns.0.saturating_add(ns))
    }

    /// Shifts both ends.
    fn span(&self, time: Interval) -> (i64, i64) {
        let start = self.at(time.start_ns);
        (start, start.saturating_add_unsigned(time.ns()))
    }

    fn global(&self, process: u32, thread: u32) -> u64 {
        global(self.profile.process_id(process), thread)
    }

    fn global_thread(&self, thread: ThreadId) -> i64 {
        let thread = &self.store.threads[thread.at()];
        self.global(thread.process, thread.id).cast_signed()
    }

    fn write_enumerations(&self) -> Result_<T> {
        let mut insert = None;
        for line in schema::ENUMERATIONS.lines() {
            let mut cells = line.splitn(3, ' ');
            let row = cells.next().zip(cells.next()).zip(cells.next());
            match (row, &mut insert) {
                (Some(((id, name), label)), Some(insert)) => {
                    let id = id.parse::<u32>().ok();
                    T::Rows::set(insert, id)?.set(name)?.set(label)?.row()?;
                }
                _ => {
                    self.tables.create(&schema::enumeration(line))?;
                    insert = Some(self.tables.insert(line, "id, name, label")?);
                }
            }
        }
        Ok(())
    }

    fn write_info(&self) -> Result_<T> {
        let info = self.profile.recording_info();
        let (major, minor, micro) = schema::VERSION;
        let mut insert = self.insert(("META_DATA_EXPORT", "name, value"))?;
        for (name, value) in [
            ("EXPORT_PRODUCT_NAME", env!("CARGO_PKG_NAME").to_owned()),
            ("EXPORT_PRODUCT_VERSION", env!("CARGO_PKG_VERSION").to_owned()),
            ("EXPORT_SCHEMA_VERSION", format!("{major}.{minor}.{micro}")),
            ("EXPORT_SCHEMA_VERSION_MAJOR", major.to_string()),
            ("EXPORT_SCHEMA_VERSION_MINOR", minor.to_string()),
            ("EXPORT_SCHEMA_VERSION_MICRO", micro.to_string()),
        ] {
            insert.set(name)?.set(&*value)?.row()?;
        }
        let known = |version: u32| (version != 0).then(|| version.to_string());
        let mut insert = self.insert(schema::CAPTURE)?;
        for (name, value) in [
            (format::CUPTI_VERSION, known(info.cupti_version)),
            (format::CUDA_VERSION, known(info.cuda_driver_version)),
            (format::DRIVER_RELEASE, info.driver_release.clone()),
        ] {
            if let Some(value) = value {
                insert.set(name)?.set(&*value)?.row()?;
            }
        }
        let session = &self.store.session;
        let before_ns = session.zero_ns.saturating_sub(session.window_ns.0);
        let start = Duration::from_nanos(epoch_ns(self.profile).saturating_add(before_ns));
        let start = start.min(Duration::from_secs(LAST_SECOND));
        let text = humantime::format_rfc3339_seconds(UNIX_EPOCH + start).to_string();
        let text = text.trim_end_matches('Z');
        let epoch_ns = i64::try_from(start.as_nanos()).unwrap_or(i64::MAX);
        let mut insert = self.insert(schema::SESSION_START)?;
        insert.set(epoch_ns)?.set(text)?.set(text)?.row()?;
        let duration = self.at(self.store.session.window_ns.1);
        let machine = (global(0, 0)).cast_signed();
        let mut insert = self.insert(schema::DETAILS)?;
        insert.set(machine)?.set(duration)?.set(0)?.set(duration)?.row()?;

        let mut insert = self.insert(schema::DEVICES)?;
        for device in &info.devices {
            let (major, minor) = device.compute_capability;
            insert.set(machine)?.set(device.id)?.set(&*device.name)?;
            // 0 means unknown, as for a driver that does not report a value.
            let hertz = device.core_clock_khz.map_or(0, |khz| u64::from(khz) * 1000);
            insert.bits(device.l2_bytes.unwrap_or(0))?.bits(device.memory_bytes)?;
            insert.bits(device.memory_bandwidth.unwrap_or(0))?.bits(hertz)?;
            insert.set(device.multiprocessors)?.set(device.id)?;
            insert.set(major)?.set(minor)?.set(major)?.set(minor)?;
            insert.set(device.pci_bus_id.as_deref())?.row()?;
        }
        let mut insert = self.insert(schema::DEVICE_IDS)?;
        for process in self.processes() {
            for device in &info.devices {
                insert.set(device.id)?.set(device.id)?.set(process & 0xff_ffff)?.row()?;
            }
        }
        Ok(())
    }

    fn processes(&self) -> Vec<u32> {
        let of = |process| self.profile.process_id(process);
        let threads = self.store.threads.iter().map(|thread| of(thread.process));
        let named = self.store.processes.iter().map(|process| process.id);
        let mut processes: Vec<u32> = threads.chain(named).collect();
        processes.sort_unstable();
        processes.dedup();
        processes
    }

    fn write_operations(&mut self) -> Result_<T> {
        let mut kernels = self.insert(schema::KERNELS)?;
        let mut copies = self.insert(schema::COPIES)?;
        let mut memsets = self.insert(schema::MEMSETS)?;
        let mut graphs = match self.profile.totals().graphs {
            0 => None,
            _ => {
                // The table exists only with graphs traced as one interval.
                self.tables.create(schema::GRAPHS_TABLE)?;
                Some(self.insert(schema::GRAPHS)?)
            }
        };
        let mut migrations = self.migrations();
        let mut launched = self.launched();
        let store = self.store;
        for operation in &store.operations {
            self.progress.row();
            let work = store.work(operation);
            let node = work.what.graph_node();
            let graph = node.map(|node| node.graph).filter(|graph| *graph != u32::MAX);
            let node = node.map(|node| node.node.cast_signed());
            let (range, captured) = (store.range_of(operation.call), operation.captured.get());
            match &work.what {
                What::Kernel { names, details } => {
                    self.operation(&mut kernels, operation)?;
                    let [demangled, short, mangled] = self.strings.kernel(store, names);
                    kernels.set(demangled)?.set(short)?.set(mangled)?;
                    kernels.set(details.registers_per_thread)?;
                    for &size in details.grid.iter().chain(&details.block) {
                        kernels.set(size)?;
                    }
                    kernels.set(details.static_shared_bytes)?.set(details.dynamic_shared_bytes)?;
                    kernels.set(details.local_bytes_per_thread)?.set(node)?.set(graph)?;
                    for size in details.cluster {
                        kernels.set((size != 0).then_some(size))?;
                    }
                    let key = kernel_key(operation, details);
                    let more = launched.get_mut(&key).and_then(Vec::pop);
                    kernels.set(more.map(|more| more.local_bytes.cast_signed()))?;
                    kernels.set(more.map(|more| more.grid_id))?;
                    kernels.set(more.map(|more| launch_type(more.launch)))?;
                    kernels.set(more.map(|more| u32::from(more.cache_executed.0) + 1))?;
                    let executed = work.shared_memory.executed_bytes;
                    let executed = (executed != 0).then_some(executed);
                    kernels.set(more.map(|more| more.shared_executed_bytes).or(executed))?;
                    kernels.set(more.map(|more| more.shared_limit.0))?;
                    kernels.ranges(range, captured)?.row()?;
                }
                What::Copy(copy) => {
                    self.operation(&mut copies, operation)?;
                    let kind = match work.copy_kind {
                        0 => copy_kind(copy.kind),
                        kind => kind,
                    };
                    copies.bits(copy.bytes)?.set(kind)?;
                    copies.set(memory_number(copy.source))?.set(memory_number(copy.destination))?;
                    copies.set(node)?.set(graph)?.set(copy.copies.map(u64::cast_signed))?;
                    let peers = copy.peers.as_ref();
                    copies.set(peers.map(|peers| peers.source_device))?;
                    copies.set(peers.map(|peers| peers.source_context))?;
                    copies.set(peers.map(|peers| peers.destination_device))?;
                    copies.set(peers.map(|peers| peers.destination_context))?;
                    let key = (work.process, operation.start_ns(), kind);
                    let address = migrations.get_mut(&key).and_then(Vec::pop);
                    copies.set(address.map(u64::cast_signed))?;
                    copies.ranges(range, captured)?.row()?;
                }
                What::Memset(memset) => {
                    self.operation(&mut memsets, operation)?;
                    memsets.set(memset.value)?.bits(memset.bytes)?;
                    memsets.set(memory_number(memset.memory))?.set(node)?.set(graph)?;
                    memsets.ranges(range, captured)?.row()?;
                }
                What::Graph(graph) => {
                    let Some(graphs) = &mut graphs else { continue };
                    self.operation(graphs, operation)?;
                    // A recording contains only the executable graph.
                    graphs.set(graph.template.unwrap_or(graph.executable))?;
                    graphs.set(graph.executable)?.ranges(range, captured)?.row()?;
                }
            }
        }
        Ok(())
    }

    /// Details of kernels from the records, which the store lacks. The first of equal keys is at
    /// the end.
    fn launched(&self) -> FxHashMap<KernelKey, Vec<KernelDetails>> {
        let mut launched: FxHashMap<_, Vec<_>> = FxHashMap::default();
        let Some(recording) = self.profile.recording() else { return launched };
        for record in recording.records() {
            if let Record::Kernel(kernel) = record {
                let span = kernel.span;
                let start_ns = span.is_known().then(|| recording.monotonic_ns(span.start_ns));
                let node = kernel.graph_node.map(|node| node.node);
                let key = (kernel.correlation_id, start_ns.unwrap_or(0), kernel.place.stream, node);
                launched.entry(key).or_default().push(kernel.details());
            }
        }
        launched.values_mut().for_each(|of| of.reverse());
        launched
    }

    /// The addresses of migrations, which operations lack. The first of equal keys is at the end.
    fn migrations(&self) -> FxHashMap<(u32, u64, u8), Vec<u64>> {
        let mut migrations: FxHashMap<_, Vec<u64>> = FxHashMap::default();
        for event in self.store.managed.iter().rev() {
            let kind = match event.what {
                Managed::ToDevice { .. } => 11,
                Managed::ToHost { .. } => 12,
                _ => continue,
            };
            let key = (event.process, event.time.start_ns, kind);
            migrations.entry(key).or_default().push(event.address);
        }
        migrations
    }

    /// Fills the columns of all operations.
    #[inline]
    fn operation(&self, insert: &mut T::Rows, operation: &Operation) -> Result_<T> {
        let work = self.store.work(operation);
        let place = work.place;
        let (start, end) = operation.time().map_or((0, 0), |time| self.span(time));
        insert.set(start)?.set(end)?.set(place.device)?.set(place.context)?;
        insert.set(work.green_context)?.set(place.stream)?;
        insert.set(operation.correlation_id)?.bits(self.global(work.process, 0))?;
        Ok(())
    }

    /// Writes calls. For a runtime call and its driver call, nsys stores only the runtime call.
    fn write_calls(&mut self) -> Result_<T> {
        let store = self.store;
        let key = |call: &Call| (store.threads[call.thread.at()].process, call.correlation_id);
        let outer: FxHashSet<(u32, u32)> = store.outer_calls.iter().map(key).collect();
        let mut insert = self.insert(schema::CALLS)?;
        let mut nodes = self.insert(schema::GRAPH_NODES)?;
        let inner =
            store.calls.iter().filter(|call| outer.is_empty() || !outer.contains(&key(call)));
        for call in store.outer_calls.iter().chain(inner) {
            self.progress.row();
            let kind = store.call_kind(call);
            let name = self.strings.name(store, kind.name);
            let class = match kind.api {
                Api::Runtime => RUNTIME,
                Api::Driver => DRIVER,
            };
            let thread = self.global_thread(call.thread);
            let (start, end) = self.span(call.time);
            insert.set(start)?.set(end)?.set(class)?.set(thread)?;
            insert.set(call.correlation_id)?.set(name)?.set(kind.result)?;
            insert.ranges(call.range.get(), None)?.row()?;
            if kind.captured {
                nodes.set(start)?.set(end)?.set(GRAPH_NODE_CREATION)?.set(thread)?;
                nodes.set(name)?.set(0)?.row()?;
            }
        }
        Ok(())
    }

    fn write_synchronizations(&mut self) -> Result_<T> {
        let mut insert = self.insert(schema::SYNCHRONIZATIONS)?;
        let store = self.store;
        for synchronization in &store.synchronizations {
            self.progress.row();
            let record = &synchronization.record;
            let cupti::Span { start_ns, end_ns, .. } = record.span;
            let (start, end) = self.span(Interval { start_ns, end_ns });
            insert.set(start)?.set(end)?.set(record.context)?;
            insert.set(record.stream.unwrap_or(NO_STREAM))?.set(record.correlation_id)?;
            insert.bits(self.global(synchronization.process, 0))?;
            insert.set(match record.kind {
                SynchronizationKind::Event => 1,
                SynchronizationKind::StreamWaitEvent => 2,
                SynchronizationKind::Stream => 3,
                SynchronizationKind::Context => 4,
                SynchronizationKind::Unknown(other) => other,
                _ => 0,
            })?;
            insert.set(record.event.unwrap_or(u32::MAX))?;
            insert.set(record.event_sync_id.map(u64::cast_signed))?;
            insert.ranges(store.range_of(synchronization.call), None)?.row()?;
        }
        Ok(())
    }

    fn write_memory(&mut self) -> Result_<T> {
        let mut insert = self.insert(schema::MEMORY)?;
        let store = self.store;
        for event in store.memory_events() {
            self.progress.row();
            insert
                .set(self.at(event.at_ns))?
                .bits(self.global(event.process, 0))?
                .set(event.device)?;
            insert.bits(event.address)?.bits(event.bytes)?.set(memory_number(event.kind))?;
            insert.set(u32::from(!event.is_allocation))?.set(event.correlation_id)?;
            insert.ranges(store.range_of(event.call), None)?.row()?;
        }
        Ok(())
    }

    fn write_managed_memory(&mut self) -> Result_<T> {
        let store = self.store;
        let is_fault =
            |what| matches!(what, Managed::HostFault { .. } | Managed::DeviceFaults { .. });
        if !store.managed.iter().any(|event| is_fault(event.what)) {
            return Ok(());
        }
        self.tables.create(schema::MANAGED_TABLES)?;
        let mut host = self.insert(schema::HOST_FAULTS)?;
        let mut device = self.insert(schema::DEVICE_FAULTS)?;
        for event in &store.managed {
            self.progress.row();
            let (start, end) = self.span(event.time);
            let process = self.global(event.process, 0);
            match event.what {
                Managed::HostFault { instruction, line } => {
                    let instruction = match instruction {
                        Some(name) => self.strings.name(store, name),
                        None => self.strings.id(""),
                    };
                    let file = line.map(|(file, _)| self.strings.name(store, file));
                    host.set(start)?
                        .bits(process)?
                        .bits(event.address)?
                        .set(instruction)?
                        .set(file)?
                        .set(line.map(|(_, line)| line))?
                        .row()?;
                }
                Managed::DeviceFaults { count } => {
                    device.set(start)?.set(end)?.bits(process)?.set(event.device.unwrap_or(0))?;
                    device.bits(event.address)?.bits(count)?.row()?;
                }
                Managed::ToDevice { .. } | Managed::ToHost { .. } => {}
            }
        }
        Ok(())
    }

    fn write_overheads(&mut self) -> Result_<T> {
        if self.store.overheads.is_empty() {
            return Ok(());
        }
        self.tables.create(schema::OVERHEAD_TABLE)?;
        // The names that nsys's rules search for, and one for overhead that did not block a GPU.
        let holds_gpu = self.strings.id("CUDA profiling overhead");
        let other = self.strings.id("profiler overhead");
        let mut insert = self.insert(schema::OVERHEADS)?;
        for overhead in &self.store.overheads {
            let (start, end) = self.span(overhead.time);
            let name = if overhead.holds_gpu { holds_gpu } else { other };
            insert.set(start)?.set(end)?.bits(self.global(overhead.process, 0))?.set(name)?;
            insert.set(0)?.row()?;
        }
        Ok(())
    }

    /// Writes the contexts and streams with work.
    fn write_places(&self) -> Result_<T> {
        let places = self.store.operations.iter().map(|operation| {
            let work = self.store.work(operation);
            (
                self.profile.process_id(work.process),
                work.place.context,
                work.place.device,
                work.place.stream,
            )
        });
        let mut places: Vec<_> = places.collect::<FxHashSet<_>>().into_iter().collect();
        places.sort_unstable();
        let mut contexts = self.insert(schema::CONTEXTS)?;
        let mut streams = self.insert(schema::STREAMS)?;
        let mut last = None;
        for (process, context, device, stream) in places {
            let machine = 1 + (process >> 24);
            let process = process & 0xff_ffff;
            if last != Some((machine, process, context, device)) {
                last = Some((machine, process, context, device));
                contexts.set(Cell::Null)?.set(0)?.set(machine)?.set(process)?.set(device)?;
                contexts.set(context)?.row()?;
            }
            streams.set(stream)?.set(0)?.set(machine)?.set(process)?.set(context)?;
            streams.set(0)?.row()?;
        }
        Ok(())
    }

    fn write_threads(&mut self) -> Result_<T> {
        let mut insert = self.insert(schema::PROCESSES)?;
        let named: FxHashMap<u32, &Process> =
            self.store.processes.iter().map(|process| (process.id, process)).collect();
        for id in self.processes() {
            let known = named.get(&id).copied();
            // A name may include the program's path.
            let name =
                known.and_then(|process| process.name.as_deref()?.rsplit(['/', '\\']).next());
            insert.bits(global(id, 0))?.set(id & 0xff_ffff)?.set(name)?.row()?;
        }
        let mut insert = self.insert(schema::THREADS)?;
        let store = self.store;
        for thread in &store.threads {
            if let Some(name) = &thread.name {
                insert.set(self.strings.id(name))?.set(thread.priority)?;
                insert.bits(self.global(thread.process, thread.id))?.row()?;
            }
        }
        Ok(())
    }

    fn write_strings(&self) -> Result_<T> {
        let mut insert = self.insert(schema::STRINGS)?;
        for (id, text) in (0i64..).zip(self.strings.texts.values()) {
            insert.set(id)?.set(&**text)?.row()?;
        }
        Ok(())
    }
}

/// Identifies a kernel of a recording: correlation id, start, stream and graph node.
type KernelKey = (u32, u64, u32, Option<u64>);

fn kernel_key(operation: &Operation, kernel: &Kernel) -> KernelKey {
    let node = kernel.graph_node.map(|node| node.node);
    (operation.correlation_id, operation.start_ns(), kernel.place.stream, node)
}

/// 31st of December 9999.
const LAST_SECOND: u64 = 253_402_300_799;

/// `ENUM_NSYS_EVENT_CLASS`.
const GRAPH_NODE_CREATION: i64 = 77;

/// `ENUM_CUDA_KERNEL_LAUNCH_TYPE` is CUPTI's value plus 1; nsys's cache settings follow the same
/// rule.
fn launch_type(launch: LaunchType) -> u32 {
    match launch {
        LaunchType::REGULAR => 1,
        LaunchType::COOPERATIVE_SINGLE_DEVICE => 2,
        LaunchType::COOPERATIVE_MULTI_DEVICE => 3,
        _ => 0,
    }
}

fn copy_kind(kind: CopyKind) -> u8 {
    match kind {
        CopyKind::HostToDevice => 1,
        CopyKind::DeviceToHost => 2,
        CopyKind::DeviceToDevice => 8,
        CopyKind::HostToHost => 9,
        CopyKind::PeerToPeer => 10,
        CopyKind::Unknown(other) => other,
        _ => 0,
    }
}
