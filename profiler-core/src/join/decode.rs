//! Decodes a recording into the store: CUPTI's bytes become rows, all times use one clock, names
//! are interned.

use std::time::Duration;

use cupti::{CallClass, GraphNode, Record, tables};
use profiler_base::order;
use rustc_hash::FxHashMap;

use crate::join::attribute::Owner;
use crate::join::graph_nodes::{GraphDependencies, GraphNodes};
use crate::join::health::Health;
use crate::join::shared_contexts::SharedContexts;
use crate::join::tables::{
    Api, Call, CallKind, CallKindId, Field, FieldValue, HostPart, Interval, KernelNames, Label,
    LabelId, Mark, MarkId, NameId, Operation, ProcessRange, ProcessRangeId, Range, RangeId,
    RangesBy, Session, ShareId, Subject, Tables, Thread, ThreadId, What, WholeGraph, Work,
};
use crate::record::recording::Recording;
use crate::record::recording::ranges::{
    self, Detail, Event, RangeTag, Slots, Subject as EntryOf, Value,
};
use crate::record::recording::segment::{ThreadRanges, WORK};

/// Reads a whole recording. Unreadable entries are counted in `health`.
pub(crate) fn read(recording: &Recording, health: &mut Health) -> Tables {
    let mut store = Tables::default();
    health.add_losses(&recording.losses);
    health.losses.truncated = u64::from(recording.is_truncated);
    health.facts.unchecked_recordings = u64::from(!recording.has_checksums);
    health.facts.refused_kinds = recording.missing_kinds.len() as u64;
    store.session = Session {
        window_ns: recording.window_ns,
        windows_ns: recording.windows_ns.clone(),
        pending_from_ns: recording.pending_from_ns,
        before_id: recording.before_id,
        ranges_by: RangesBy::Calls,
        zero_ns: recording.window_ns.0,
        last_annotation_ns: 0,
    };

    store.series = recording.series.clone();
    store.series.iter().for_each(|series| health.add_series(series));

    store.instructions.extend(recording.instructions.iter().map(|log| (0, log.clone())));
    if !recording.host_stacks.is_empty() {
        store.host_stacks.push(recording.host_stacks.clone());
    }

    let mut threads = FxHashMap::default();
    let (rows, mut shared) = read_ranges(recording, &mut store, &mut threads, health);
    read_calls(recording, &mut store, &mut threads, (&rows, &mut shared), health);
    let mut nodes = GraphNodes::new(usize::MAX);
    let events = recording.graphs.iter().flat_map(|thread| &thread.events);
    let dependencies = GraphDependencies::new(events.clone());
    if !dependencies.is_empty() {
        store.graph_dependencies.insert(0, dependencies);
    }
    nodes.add(events, |tag| {
        let find = |tag| Some((shared.contexts.first(tag, |tag| rows.range(tag))?, false));
        Owner::resolve(tag, &recording.logs, find).range()
    });
    read_records(recording, &nodes, &mut store, health);
    store
}

fn thread(
    store: &mut Tables,
    threads: &mut FxHashMap<u32, ThreadId>,
    id: u32,
    name: Option<&str>,
) -> ThreadId {
    let row = *threads.entry(id).or_insert_with(|| {
        store.threads.push(Thread { id, process: 0, name: None, priority: None });
        ThreadId(store.threads.len() as u32 - 1)
    });
    if let Some(name) = name {
        // The range logs precede other sources: they have the full name.
        store.threads[row.at()].name.get_or_insert_with(|| name.into());
    }
    row
}

/// The store rows of all threads' logs.
struct Rows<'a> {
    threads: Vec<ThreadRows<'a>>,
    /// The number of the first log.
    first: u64,
    /// Indices by the log's number minus `first`; `None` if the logs are in order, as in most
    /// recordings.
    places: Option<FxHashMap<u64, usize>>,
}

impl<'a> Rows<'a> {
    #[inline]
    fn of_number(&self, number: u64) -> Option<&ThreadRows<'a>> {
        let number = number.checked_sub(self.first)?;
        match &self.places {
            // CAST: pointers have 64 bits where CUDA runs.
            None => self.threads.get(number as usize),
            Some(places) => self.threads.get(*places.get(&number)?),
        }
    }

    /// The range of a tag of this recording.
    #[inline]
    fn range(&self, tag: RangeTag) -> Option<RangeId> {
        let (log, slot) = tag.place()?;
        self.of_number(log)?.range(slot)
    }
}

/// The store rows of a thread's logs.
struct ThreadRows<'a> {
    /// The row of its first range.
    first: u32,
    slots: &'a Slots,
    labels: Vec<LabelId>,
    texts: Vec<NameId>,
    thread: ThreadId,
    /// By entry of the second log.
    process_ranges: FxHashMap<u64, ProcessRangeId>,
    /// Later fields of process ranges of any thread: the time and the range by entry.
    process_fields: FxHashMap<u64, (u64, RangeTag)>,
    marks: FxHashMap<u64, MarkId>,
}

impl ThreadRows<'_> {
    #[inline]
    fn range(&self, slot: u64) -> Option<RangeId> {
        // CAST: fewer than 2^30 ranges fit into a log.
        self.slots.row(slot).map(|row| RangeId(self.first + row as u32))
    }
}

fn read_ranges<'a>(
    recording: &'a Recording,
    store: &mut Tables,
    threads: &mut FxHashMap<u32, ThreadId>,
    health: &mut Health,
) -> (Rows<'a>, SharedContexts) {
    let mut rows = Vec::with_capacity(recording.ranges.len());
    let mut labels = FxHashMap::default();
    tables::reserve(&mut store.ranges, recording.ranges.iter().map(|log| log.entries.len()).sum());
    let unnamed = store.names.intern("(unknown name)");
    let mut open_ranges = 0;
    for log in &recording.ranges {
        let thread = thread(store, threads, log.thread_id, log.thread_name.as_deref());
        let texts: Vec<_> = log.texts.texts.iter().map(|text| store.names.intern(text)).collect();
        let text = |index: u32| texts.get(index as usize).copied().unwrap_or(unnamed);
        let mut label = |label: Label| {
            *labels.entry(label).or_insert_with(|| {
                store.labels.push(label);
                LabelId(store.labels.len() as u32 - 1)
            })
        };
        let of_log = |label: &ranges::Label| Label {
            name: text(label.name),
            domain: label.domain.map(text),
            category: label.category.map(text),
            color: label.color,
        };
        let mut of_thread: Vec<_> =
            log.texts.labels.iter().map(|read| label(of_log(read))).collect();
        // The last label is used for entries without a valid one, as in a damaged file.
        of_thread.push(label(Label { name: unnamed, domain: None, category: None, color: None }));
        let thread_rows = ThreadRows {
            first: store.ranges.len() as u32,
            slots: &log.slots,
            labels: of_thread,
            texts,
            thread,
            process_ranges: FxHashMap::default(),
            process_fields: FxHashMap::default(),
            marks: FxHashMap::default(),
        };
        for (row, entry) in log.entries.iter().enumerate() {
            // A parent is an earlier range; other entries are damaged.
            let parent = entry.parent().filter(|&parent| parent < log.slots.slot(row));
            let parent = parent.and_then(|parent| thread_rows.range(parent));
            let is_early = |parent: &RangeId| {
                let of = store.ranges.get(parent.at());
                of.is_some_and(|parent| parent.time.start_ns <= entry.start_ns())
            };
            let around = parent.filter(is_early);
            health.losses.unknown_range_entries += u64::from(around != parent);
            open_ranges += u64::from(entry.end_ns().is_none());
            store.ranges.push(Range {
                label: thread_rows.label(entry.label()),
                thread,
                parent: around.into(),
                time: Interval {
                    start_ns: entry.start_ns(),
                    end_ns: entry.end_ns().unwrap_or(recording.window_ns.1),
                },
                is_open: entry.end_ns().is_none(),
            });
        }
        rows.push(thread_rows);
    }
    let first = recording.logs.start;
    let numbers = || recording.ranges.iter().map(|log| log.number.saturating_sub(first));
    let in_order = numbers().zip(0..).all(|(number, place): (u64, u64)| number == place);
    let places = || numbers().zip(0..).collect();
    let places = (!in_order).then(places);
    let mut rows = Rows { threads: rows, first, places };
    let shared = read_events(recording, store, &mut rows, open_ranges, health);
    (rows, shared)
}

impl ThreadRows<'_> {
    fn label(&self, index: u64) -> LabelId {
        let last = self.labels.len() - 1;
        self.labels[usize::try_from(index).map_or(last, |index| index.min(last))]
    }
}

/// Reads marks, process ranges, joined contexts and details. Starts are read first: an end or an
/// activation may be in the log of any thread.
fn read_events(
    recording: &Recording,
    store: &mut Tables,
    rows: &mut Rows<'_>,
    open_ranges: u64,
    health: &mut Health,
) -> SharedContexts {
    let mut shared = SharedContexts::default();
    for (log, rows) in recording.ranges.iter().zip(&mut rows.threads) {
        read_starts(log, rows, recording, store, &mut shared, health);
    }
    let mut reader = DetailReader { recording, rows, shared: &mut shared, in_several: Vec::new() };
    let mut later = Vec::new();
    for (log, rows) in recording.ranges.iter().zip(&reader.rows.threads) {
        for words in &log.events {
            let event = Event::from_words(*words);
            let fields = match event {
                Event::Detail { of: EntryOf::Event(slot), .. } => rows.process_fields.get(&slot),
                _ => None,
            };
            match fields {
                Some((at_ns, _)) => later.push((*at_ns, event, log.number, rows)),
                None => reader.read(event, log.number, rows, store, health),
            }
        }
    }
    // The last value of a field is the one that was set last, by whichever thread.
    order::sort_by_number(&mut later, |(at_ns, ..)| *at_ns);
    for (_, event, number, rows) in later {
        reader.read(event, number, rows, store, health);
    }
    // The parent of a range in a joined context is the context's first range.
    let mut opened = FxHashMap::default();
    for (subject, tag) in reader.in_several {
        let first = shared.contexts.first(tag, |tag| rows.range(tag));
        hand(store, subject, first, recording, health);
        if let Subject::Range(range) = subject {
            opened.insert(range, tag);
        }
    }
    shared.link(store, &opened, |tag| rows.range(tag));
    let open = store.process_ranges.iter().filter(|range| range.end_thread.is_none());
    let open = open_ranges + open.count() as u64;
    if recording.is_snapshot() {
        health.facts.pending_ranges = open;
    } else {
        health.facts.open_ranges = open;
    }
    shared
}

/// Reads a thread's marks, starts of process ranges, and contexts.
fn read_starts(
    log: &ThreadRanges,
    rows: &mut ThreadRows<'_>,
    recording: &Recording,
    store: &mut Tables,
    shared: &mut SharedContexts,
    health: &mut Health,
) {
    for (row, words) in log.events.iter().enumerate() {
        let slot = log.event_slots.slot(row);
        match Event::from_words(*words) {
            Event::Mark { label, at_ns, parent } => {
                rows.marks.insert(slot, MarkId(store.marks.len() as u32));
                store.marks.push(Mark {
                    label: rows.label(label.into()),
                    thread: rows.thread,
                    at_ns,
                    parent: parent.and_then(|parent| rows.range(parent)),
                });
            }
            Event::ProcessStart { label, at_ns, parent } => {
                let id = ProcessRangeId(store.process_ranges.len() as u32);
                rows.process_ranges.insert(slot, id);
                store.process_ranges.push(ProcessRange {
                    label: rows.label(label.into()),
                    thread: rows.thread,
                    parent: parent.and_then(|parent| rows.range(parent)),
                    time: Interval { start_ns: at_ns, end_ns: recording.window_ns.1 },
                    end_thread: None,
                });
            }
            Event::ProcessFields { of, at_ns } => _ = rows.process_fields.insert(slot, (at_ns, of)),
            Event::Joined { first, second } => match RangeTag::joined(log.number, slot) {
                Some(context) => shared.contexts.add(context, [first, second]),
                None => health.losses.unknown_range_entries += 1,
            },
            Event::Unknown => health.losses.unknown_range_entries += 1,
            _ => {}
        }
    }
}

/// Reads ends and details, whose subjects may belong to any thread.
struct DetailReader<'a> {
    recording: &'a Recording,
    rows: &'a Rows<'a>,
    shared: &'a mut SharedContexts,
    /// Subjects whose parent is a joined context.
    in_several: Vec<(Subject, RangeTag)>,
}

impl DetailReader<'_> {
    fn process_range(&self, tag: RangeTag) -> Option<ProcessRangeId> {
        let (log, slot) = tag.place()?;
        self.rows.of_number(log)?.process_ranges.get(&slot).copied()
    }

    fn read(
        &mut self,
        event: Event,
        log: u64,
        rows: &ThreadRows<'_>,
        store: &mut Tables,
        health: &mut Health,
    ) {
        let is_known = match event {
            Event::ProcessEnd { of, at_ns } => self.process_range(of).is_some_and(|id| {
                let range = &mut store.process_ranges[id.at()];
                (range.time.end_ns, range.end_thread) = (at_ns, Some(rows.thread));
                true
            }),
            Event::Detail { of: EntryOf::Event(slot), detail: Detail::Member(member) } => {
                let context = RangeTag::joined(log, slot);
                context.is_some_and(|context| {
                    self.shared.contexts.add(context, [member]);
                    true
                })
            }
            Event::Detail { of, detail } => {
                let subject = match of {
                    EntryOf::Range(slot) => rows.range(slot).map(Subject::Range),
                    EntryOf::Event(slot) => {
                        let range = rows.process_ranges.get(&slot).copied();
                        let later = || self.process_range(rows.process_fields.get(&slot)?.1);
                        let mark = || rows.marks.get(&slot).map(|mark| Subject::Mark(*mark));
                        range.or_else(later).map(Subject::ProcessRange).or_else(mark)
                    }
                };
                let read = |subject| self.read_detail(subject, detail, rows, store, health);
                subject.is_some_and(read)
            }
            _ => true,
        };
        health.losses.unknown_range_entries += u64::from(!is_known);
    }

    /// Reads a detail; false if it is unreadable.
    fn read_detail(
        &mut self,
        subject: Subject,
        detail: Detail,
        rows: &ThreadRows<'_>,
        store: &mut Tables,
        health: &mut Health,
    ) -> bool {
        if let Detail::Handed(tag) = detail {
            match self.rows.range(tag) {
                None if tag.is_joined() => self.in_several.push((subject, tag)),
                parent => hand(store, subject, parent, self.recording, health),
            }
            return true;
        }
        let within = match detail {
            Detail::Within(tag) => self.process_range(tag),
            _ => None,
        };
        let details = store.details.entry(subject).or_default();
        match detail {
            Detail::Handed(_) | Detail::Member(_) => {}
            // The texts of a recording are in its table.
            Detail::Piece(_) => return false,
            Detail::Within(_) => details.within = within,
            Detail::Payload(payload) => details.payload = Some(payload),
            Detail::Field { name, unit, value } => match field(rows, name, unit, value) {
                Some(field) => details.fields.push(field),
                None => return false,
            },
        }
        true
    }
}

/// Returns a field if the table has its texts.
fn field(rows: &ThreadRows<'_>, name: u32, unit: u32, value: Value) -> Option<Field> {
    let text = |index: u32| rows.texts.get(index as usize).copied();
    let value = match value {
        Value::U64(value) => FieldValue::U64(value),
        Value::I64(value) => FieldValue::I64(value),
        Value::F64(value) => FieldValue::F64(value),
        Value::Bool(value) => FieldValue::Bool(value),
        Value::Text(index) => FieldValue::Text(text(index)?),
        Value::LongText(_) => return None,
    };
    Some(Field { name: text(name)?, unit: text(unit)?, value })
}

/// Sets the parent of a range or mark to a range of another thread.
fn hand(
    store: &mut Tables,
    subject: Subject,
    parent: Option<RangeId>,
    recording: &Recording,
    health: &mut Health,
) {
    let Some(parent) = parent else {
        let count = match recording.begins_late {
            true => &mut health.facts.orphaned_ranges,
            false => &mut health.losses.unknown_range_entries,
        };
        *count += 1;
        return;
    };
    match subject {
        Subject::Range(range) if store.order(parent) < store.order(range) => {
            store.ranges[range.at()].parent = Some(parent).into();
        }
        // Later stages rely on this order; only a damaged file breaks it.
        Subject::Range(_) => health.losses.unknown_range_entries += 1,
        Subject::ProcessRange(range) => store.process_ranges[range.at()].parent = Some(parent),
        Subject::Mark(mark) => store.marks[mark.at()].parent = Some(parent),
    }
}

fn read_calls(
    recording: &Recording,
    store: &mut Tables,
    threads: &mut FxHashMap<u32, ThreadId>,
    (rows, shared): (&Rows<'_>, &mut SharedContexts),
    health: &mut Health,
) {
    let driver = recording.calls.iter().map(|log| log.calls.len()).sum::<usize>();
    let runtime = recording.runtime_calls.iter().map(|log| log.calls.len()).sum::<usize>();
    tables::reserve(&mut store.calls, driver + runtime);
    let mut reader = CallReader { recording, rows, shared, last: None };
    let stacks = recording.host_stacks.places();
    for log in &recording.calls {
        let thread = thread(store, threads, log.thread_id, log.thread_name.as_deref());
        for call in &log.calls {
            let row = reader.read(store, Api::Driver, thread, call, health);
            store.calls.push(row);
            match stacks.get(&call.stack) {
                Some(place) => {
                    _ = store.call_stacks.insert((thread, call.start_ns), (0, *place));
                }
                None => store.missing_stacks += u64::from(call.stack != 0),
            }
        }
    }
    for (id, start_ns, ns, stack, doing) in &recording.host_stacks.samples.parts {
        // Threads that were sampled made calls.
        let Some(thread) = threads.get(id).copied() else { continue };
        let time = Interval { start_ns: *start_ns, end_ns: start_ns + ns };
        let stack = stacks.get(stack).copied();
        store.host_samples.push(HostPart { thread, time, table: 0, stack, doing: *doing });
    }
    store.sort_host_samples();
    for log in &recording.runtime_calls {
        let thread = thread(store, threads, log.thread_id, log.thread_name.as_deref());
        for call in &log.calls {
            let row = reader.read(store, Api::Runtime, thread, call, health);
            store.calls.push(row);
        }
    }
}

/// A function of an API.
trait Named: cupti::Function {
    fn named(self) -> (&'static str, CallClass);
}

impl Named for cupti::DriverFunction {
    fn named(self) -> (&'static str, CallClass) {
        (self.name(), self.class())
    }
}

impl Named for cupti::RuntimeFunction {
    fn named(self) -> (&'static str, CallClass) {
        (self.name(), self.class())
    }
}

/// The properties of a call that determine its kind: API, function, result, four flags (captured,
/// empty, returned, made in an unknown range), and share.
type KindKey = (Api, u32, u32, (bool, bool, bool, bool), Option<ShareId>);

struct CallReader<'a> {
    recording: &'a Recording,
    rows: &'a Rows<'a>,
    shared: &'a mut SharedContexts,
    /// The kind of the previous call, which most calls share.
    last: Option<(KindKey, CallKindId)>,
}

impl CallReader<'_> {
    #[inline]
    fn read<F: Named>(
        &mut self,
        store: &mut Tables,
        api: Api,
        thread: ThreadId,
        call: &cupti::Call<F>,
        health: &mut Health,
    ) -> Call {
        let owner =
            Owner::resolve(call.word, &self.recording.logs, |tag| match self.rows.range(tag) {
                Some(range) => Some(((range, self.shared.share_of(range)), false)),
                None => self.shared.resolve(store, tag, |tag| self.rows.range(tag)),
            });
        // The range of a call outside the windows may be missing, too.
        let is_within = || cupti::clock::is_within(&self.recording.windows_ns, call.start_ns);
        if owner.is_incomplete() && is_within() {
            health.count_owner(&owner);
        }
        let is_unknown = owner.is_incomplete();
        let (range, share) = owner.range().unzip();
        let share = share.flatten();
        let end_ns = call.end_ns;
        let id = call.function.id();
        let flags = (call.captured, call.empty, end_ns.is_some(), is_unknown);
        let key = (api, id, call.result, flags, share);
        let kind = match self.last {
            Some((last, kind)) if last == key => kind,
            _ => {
                let (name, class) = call.function.named();
                let name = store.names.intern(name);
                let kind = store.intern_call_kind(CallKind {
                    name,
                    api,
                    class,
                    result: call.result,
                    captured: call.captured,
                    empty: call.empty,
                    has_returned: end_ns.is_some(),
                    share,
                    range_is_unknown: is_unknown,
                });
                self.last = Some((key, kind));
                kind
            }
        };
        Call {
            time: Interval { start_ns: call.start_ns, end_ns: end_ns.unwrap_or(call.start_ns) },
            correlation_id: call.correlation_id,
            kind,
            thread,
            range: range.into(),
        }
    }
}

/// The shortest record of work. Shorter ones are not decoded.
const MIN_RECORD: usize = 32;

/// Returns the device, context and stream of the first node, or of the last one if the first ran on
/// the host.
fn device_of_graph(graph: &cupti::record::GraphTrace) -> cupti::Place {
    let mut place = graph.place;
    // CUPTI's number for the host instead of a device.
    let is_device = |device: &u32| *device != i32::MAX as u32;
    let last = graph.end_device.filter(is_device).zip(graph.end_context);
    if let (false, Some((device, context))) = (is_device(&place.device), last) {
        (place.device, place.context) = (device, context);
    }
    place
}

/// Reserves rows for all operations. No record of work is shorter than the shortest kind's stride,
/// so that this reserves more memory than is used. A damaged stride reserves no more rows than the
/// bytes can hold.
fn reserve_operations(recording: &Recording, store: &mut Tables) {
    let bytes: usize = recording.records.buffers().map(<[u8]>::len).sum();
    let strides = recording.records.strides().filter(|(kind, _)| WORK.contains(kind));
    let strides = strides.map(|(_, stride)| stride as usize).filter(|stride| *stride > 0);
    let shortest = strides.min().map(|shortest| shortest.max(MIN_RECORD));
    tables::reserve(&mut store.operations, shortest.map_or(0, |shortest| bytes / shortest));
}

fn read_records(
    recording: &Recording,
    nodes: &GraphNodes<RangeId>,
    store: &mut Tables,
    health: &mut Health,
) {
    let clock = &recording.clocks;
    health.losses.clock_step = Duration::from_nanos(clock.step_ns());
    // Avoids the search for the pair of each record.
    let only = clock.only();
    let (mut last_ns, mut is_in_order) = (0, true);
    let mut add = |work, span: cupti::Span, correlation_id, node: Option<GraphNode>| {
        // The start is converted to our clock; the duration remains CUPTI's measurement.
        let time = span.is_known().then(|| {
            let start_ns = match &only {
                Some(clock) => clock.monotonic_ns(span.start_ns),
                None => clock.monotonic_ns(span.start_ns),
            };
            let end_ns = start_ns.saturating_add(span.end_ns.saturating_sub(span.start_ns));
            Interval { start_ns, end_ns }
        });
        let mut operation = Operation::new(work, time, correlation_id);
        is_in_order &= last_ns <= operation.start_ns();
        last_ns = operation.start_ns();
        operation.captured = node.and_then(|node| nodes.range(node.node)).into();
        operation
    };
    reserve_operations(recording, store);
    let mut last_kernel = None;
    for record in &recording.records {
        health.records += 1;
        let (what, place, span, correlation_id) = match record {
            Record::Kernel(kernel) => {
                let shared_memory = kernel.shared_memory();
                let work = store.intern_kernel(&kernel, shared_memory, last_kernel, |names| {
                    let name = recording.records.name(kernel.name).unwrap_or("(unknown kernel)");
                    KernelNames { name: names.intern(name), demangled: None, short: None }
                });
                last_kernel = Some(work);
                let row = add(work, kernel.span, kernel.correlation_id, kernel.graph_node);
                store.operations.push(row);
                continue;
            }
            Record::Memcpy(copy) => (What::Copy(copy), copy.place, copy.span, copy.correlation_id),
            Record::Memset(memset) => {
                (What::Memset(memset), memset.place, memset.span, memset.correlation_id)
            }
            Record::GraphTrace(graph) => {
                let what = WholeGraph { executable: graph.graph, template: None };
                (What::Graph(what), device_of_graph(&graph), graph.span, graph.correlation_id)
            }
            other => {
                if !store.add_side_row(&other, clock) {
                    health.count_other(&other);
                }
                continue;
            }
        };
        let node = what.graph_node();
        let work = store.intern_work(Work::new(what, place));
        store.operations.push(add(work, span, correlation_id, node));
    }
    if !is_in_order {
        order::sort_by_number(&mut store.operations, Operation::start_ns);
    }
    store.sort_side_rows();
}
