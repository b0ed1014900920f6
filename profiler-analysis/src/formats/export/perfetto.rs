//! Perfetto's protobuf: packets of `TrackDescriptor` and `TrackEvent`, with names interned.
//!
//! Field numbers are those of `protos/perfetto/trace` in Perfetto's repository.

mod render_stages;

use std::io::{self, Write};

use self::render_stages::RenderStages;
use rustc_hash::FxHashMap;

use crate::counter_track;
use crate::formats::started_at_ns;
use super::args::{self, Args, Value};
use super::counters;
use super::lanes::{APART, Lanes, NESTED};
use super::protobuf::Message;
use super::format::Export;
use super::timeline::{Host, Span, Timeline, ns};
use crate::analyze::matches::Matches;
use profiler_core::series;

/// `TrackEvent.Type`.
const BEGIN: u64 = 1;
const END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

/// `BuiltinClock`: a trace's default clock, and the calendar clock.
const BOOTTIME: u64 = 6;
const REALTIME: u64 = 1;

/// `CounterDescriptor.Unit`.
const UNIT_COUNT: u64 = 2;
const UNIT_BYTES: u64 = 3;

/// Categories, numbered from 1.
const CATEGORIES: [&str; 9] =
    ["range", "process range", "mark", "api", "kernel", "copy", "memset", "graph", "recording"];

pub(super) fn write(
    timeline: &Timeline<'_>,
    export: &Export,
    out: &mut dyn Write,
) -> io::Result<()> {
    let most_samples = export.samples;
    let mut trace = Trace::new(out);
    if let Some(epoch_ns) = started_at_ns(timeline.profile) {
        trace.clocks(epoch_ns)?;
    }
    trace.is_typed = export.typed_events;
    let mut flows = Flows::new(timeline);
    for (at, of) in timeline.hosts.iter().enumerate() {
        let track = trace.track(None, Kind::Process(of))?;
        if at == 0 {
            let args = args::of_recording(timeline, most_samples);
            trace.instant(track, 0, "recording", "recording", &args)?;
        }
        process_ranges(&mut trace, timeline, (of, track))?;
        host(&mut trace, timeline, &mut flows, (of, track))?;
    }
    devices(&mut trace, timeline, &mut flows, most_samples)
}

/// The threads of a process.
fn host(
    trace: &mut Trace<'_>,
    timeline: &Timeline<'_>,
    flows: &mut Flows<'_>,
    (of, process): (&Host, u64),
) -> io::Result<()> {
    for (id, thread) in timeline.threads_of(of) {
        let main = trace.track(Some(process), Kind::Thread(of, id, thread.name))?;
        let mut ranges = Slices::new(main, Some(main), "ranges", NESTED);
        let mut lanes: FxHashMap<usize, usize> = FxHashMap::default();
        for &row in &thread.ranges {
            let range = &timeline.ranges[row];
            let around = range.parent.and_then(|parent| lanes.get(&parent).copied());
            let args = args::of_range(range);
            let slice = Slice { name: range.range.name(), category: "range", args, flows: &[], submitted: &[] };
            lanes.insert(row, ranges.add(trace, range.span, around, &slice)?);
        }
        ranges.finish(trace)?;
        for mark in &thread.marks {
            let (at, args) = (ns(mark.at()), args::of_mark(mark));
            trace.instant(main, at, mark.name(), "mark", &args)?;
        }
        let mut calls = Slices::below(main, "CUDA API", NESTED);
        for &row in &thread.calls {
            let call = &timeline.calls[row];
            let slice = Slice {
                name: call.call.name(),
                category: "api",
                args: args::of_call(timeline, call),
                flows: flows.of_call(row),
                submitted: &call.operations,
            };
            calls.add(trace, call.span, None, &slice)?;
        }
        calls.finish(trace)?;
    }
    Ok(())
}

fn process_ranges(
    trace: &mut Trace<'_>,
    timeline: &Timeline<'_>,
    (of, process): (&Host, u64),
) -> io::Result<()> {
    let mut slices = Slices::below(process, "process ranges", APART);
    for (range, span) in timeline.process_ranges_of(of) {
        let args = args::of_process_range(range);
        let slice = Slice { name: range.name(), category: "process range", args, flows: &[], submitted: &[] };
        slices.add(trace, *span, None, &slice)?;
    }
    slices.finish(trace)
}

fn devices(
    trace: &mut Trace<'_>,
    timeline: &Timeline<'_>,
    flows: &mut Flows<'_>,
    most_samples: usize,
) -> io::Result<()> {
    let mut sampled = counters::sampled(timeline, most_samples).peekable();
    let (queued, bandwidth) = (counters::queued(timeline), counters::copy_bandwidth(timeline));
    let memory = counter_track::memory(timeline.profile);
    if trace.is_typed && !timeline.streams.is_empty() {
        trace.gpus(timeline.devices().into_iter())?;
    }
    let whole = |event: &mut Message, value| event.signed(30, value); // counter_value
    let real = |event: &mut Message, value| event.double(44, value); // double_counter_value
    for (device, name) in timeline.devices() {
        let gpu = trace.track(None, Kind::Plain(&name))?;
        for (place, rows) in timeline.streams_of(device) {
            let name = timeline.stream_name(place);
            stream(trace, timeline, flows, (gpu, &name), rows)?;
            if let Some(samples) = queued.get(&place) {
                let name = format!("{name}: operations submitted and not finished");
                trace.counter(gpu, (&name, Unit::Known(UNIT_COUNT)), samples, whole)?;
            }
        }
        if let Some(samples) = bandwidth.get(&device) {
            trace.counter(gpu, ("copy bandwidth", Unit::Named("B/s")), samples, whole)?;
        }
        if let Some(samples) = memory.get(&device) {
            let name = "device memory allocated since the start";
            trace.counter(gpu, (name, Unit::Known(UNIT_BYTES)), samples, whole)?;
        }
        // Both are sorted by device.
        while let Some(sampled) = sampled.next_if(|sampled| sampled.device == device) {
            let unit = sampled.unit.to_string();
            let unit = match sampled.unit {
                series::Unit::Count => Unit::Known(UNIT_COUNT),
                series::Unit::Bytes => Unit::Known(UNIT_BYTES),
                _ => Unit::Named(&unit),
            };
            trace.counter(gpu, (&sampled.name, unit), &sampled.values, real)?;
        }
    }
    Ok(())
}

fn stream(
    trace: &mut Trace<'_>,
    timeline: &Timeline<'_>,
    flows: &mut Flows<'_>,
    (gpu, name): (u64, &str),
    rows: &[usize],
) -> io::Result<()> {
    let mut slices = Slices::below(gpu, name, APART);
    for &row in rows {
        let operation = &timeline.operations[row];
        let Some(span) = operation.span else { continue };
        let slice = Slice {
            name: timeline.name(operation),
            category: operation.category(),
            args: args::of_operation(timeline, operation),
            flows: flows.of_operation(row),
            submitted: &[],
        };
        slices.add(trace, span, None, &slice)?;
        if trace.is_typed {
            trace.render_stage(timeline, (row, name), span)?;
        }
    }
    slices.finish(trace)
}

/// Flow ids. An operation with a call has one, equal on both. A matched collective has one, equal
/// on the kernels of its ranks.
struct Flows<'a> {
    timeline: &'a Timeline<'a>,
    ids: Vec<u64>,
    /// The flow of matched collectives, by the number of the kernel.
    collectives: FxHashMap<usize, u64>,
}

impl<'a> Flows<'a> {
    fn new(timeline: &'a Timeline<'a>) -> Self {
        let profile = timeline.profile;
        let first = timeline.operations.len() as u64 + 1;
        let collectives = (first..).zip(Matches::new(profile).all).flat_map(|(id, matched)| {
            let kernels = matched.members.into_iter();
            kernels.filter_map(move |one| Some((profile.collective_rows()[one.row].operation?.at(), id)))
        });
        Self { timeline, ids: Vec::new(), collectives: collectives.collect() }
    }

    fn of_call(&mut self, call: usize) -> &[u64] {
        self.ids.clear();
        self.ids.extend(self.timeline.calls[call].operations.iter().map(|&row| row as u64 + 1));
        &self.ids
    }

    fn of_operation(&mut self, operation: usize) -> &[u64] {
        let row = &self.timeline.operations[operation];
        self.ids.clear();
        self.ids.extend(row.call.map(|_| operation as u64 + 1));
        self.ids.extend(self.collectives.get(&row.operation.number()));
        &self.ids
    }
}

struct Slice<'a> {
    name: &'a str,
    category: &'static str,
    args: Args<'a>,
    flows: &'a [u64],
    /// The operations that a call submitted.
    submitted: &'a [usize],
}

/// The slices of one thread or stream in order, on as many tracks as needed.
struct Slices<'a> {
    parent: Option<u64>,
    name: &'a str,
    lanes: Lanes,
    /// The tracks, each with the ends of its open slices.
    tracks: Vec<(u64, Vec<u64>)>,
}

impl<'a> Slices<'a> {
    /// Slices whose first track exists already.
    fn new(first: u64, parent: Option<u64>, name: &'a str, depth: usize) -> Self {
        Self { parent, name, lanes: Lanes::new(depth), tracks: vec![(first, Vec::new())] }
    }

    /// Slices on tracks of one name below another track; Perfetto shows these tracks as one.
    fn below(parent: u64, name: &'a str, depth: usize) -> Self {
        Self { parent: Some(parent), name, lanes: Lanes::new(depth), tracks: Vec::new() }
    }

    fn add(
        &mut self,
        trace: &mut Trace<'_>,
        span: Span,
        around: Option<usize>,
        slice: &Slice<'_>,
    ) -> io::Result<usize> {
        let end = span.end.max(span.start);
        let lane = self.lanes.place(span.start, end, around);
        if lane == self.tracks.len() {
            let track = trace.track(self.parent, Kind::Plain(self.name))?;
            self.tracks.push((track, Vec::new()));
        }
        let (track, open) = &mut self.tracks[lane];
        while let Some(ended) = open.pop_if(|end| *end <= span.start) {
            trace.end(*track, ended)?;
        }
        open.push(end);
        trace.event(*track, span.start, BEGIN, slice)?;
        Ok(lane)
    }

    fn finish(self, trace: &mut Trace<'_>) -> io::Result<()> {
        for (track, mut open) in self.tracks {
            while let Some(end) = open.pop() {
                trace.end(track, end)?;
            }
        }
        Ok(())
    }
}

enum Kind<'a> {
    Process(&'a Host),
    Thread(&'a Host, u32, Option<&'a str>),
    Plain(&'a str),
    Counter(&'a str, Unit<'a>),
}

enum Unit<'a> {
    Known(u64),
    Named(&'a str),
}

/// Interned texts.
#[derive(Default)]
struct Interned(FxHashMap<Box<str>, u64>);

impl Interned {
    /// The number of a text; a new text is added to the packet's `InternedData`.
    fn id(&mut self, text: &str, field: u64, data: &mut Message) -> u64 {
        if let Some(id) = self.0.get(text) {
            return *id;
        }
        let id = self.0.len() as u64 + 1;
        self.0.insert(text.into(), id);
        let mut entry = Message::default();
        entry.number(1, id); // iid
        entry.text(2, text); // name, str
        data.message(field, &entry);
        id
    }
}

struct Trace<'w> {
    out: &'w mut dyn Write,
    tracks: u64,
    packets: u64,
    names: Interned,
    arg_names: Interned,
    texts: Interned,
    /// True if operations are also written as typed GPU events.
    is_typed: bool,
    stages: RenderStages,
    /// The interned data of the next packet.
    interned: Message,
    event: Message,
    arg: Message,
    element: Message,
    packet: Message,
    head: Message,
}

impl<'w> Trace<'w> {
    fn new(out: &'w mut dyn Write) -> Self {
        let mut interned = Message::default();
        for (id, name) in (1..).zip(CATEGORIES) {
            let mut entry = Message::default();
            entry.number(1, id);
            entry.text(2, name);
            interned.message(1, &entry); // event_categories
        }
        Self {
            out,
            tracks: 0,
            packets: 0,
            names: Interned::default(),
            arg_names: Interned::default(),
            texts: Interned::default(),
            is_typed: false,
            stages: RenderStages::default(),
            interned,
            event: Message::default(),
            arg: Message::default(),
            element: Message::default(),
            packet: Message::default(),
            head: Message::default(),
        }
    }

    /// Writes the calendar time at time 0 of the trace.
    fn clocks(&mut self, epoch_ns: u64) -> io::Result<()> {
        let mut snapshot = Message::default();
        for (clock, at_ns) in [(BOOTTIME, 0), (REALTIME, epoch_ns)] {
            let mut inner = Message::default();
            inner.number(1, clock); // clock_id
            inner.number(2, at_ns); // timestamp
            snapshot.message(1, &inner); // clocks
        }
        self.packet.clear();
        self.packet.message(6, &snapshot); // clock_snapshot
        self.finish_packet()
    }

    fn track(&mut self, parent: Option<u64>, kind: Kind<'_>) -> io::Result<u64> {
        self.tracks += 1;
        let id = self.tracks;
        let mut track = Message::default();
        track.number(1, id); // uuid
        if let Some(parent) = parent {
            track.number(5, parent); // parent_uuid
        }
        let mut inner = Message::default();
        match kind {
            Kind::Process(host) => {
                inner.number(1, host.pid); // pid
                inner.text(6, &host.name); // process_name
                track.message(3, &inner); // process
            }
            Kind::Thread(host, id, name) => {
                inner.number(1, host.pid); // pid
                inner.number(2, id.into()); // tid
                if let Some(name) = name {
                    inner.text(5, name); // thread_name
                }
                track.message(4, &inner); // thread
            }
            Kind::Plain(name) => track.text(2, name),
            Kind::Counter(name, unit) => {
                match unit {
                    Unit::Known(unit) => inner.number(3, unit), // unit
                    Unit::Named(unit) => inner.text(6, unit),   // unit_name
                }
                track.text(2, name);
                track.message(8, &inner); // counter
            }
        }
        // Children appear in the order of their descriptors.
        track.number(11, 3); // child_ordering: EXPLICIT
        track.number(12, id); // sibling_order_rank
        self.packet.clear();
        self.packet.message(60, &track); // track_descriptor
        self.finish_packet()?;
        Ok(id)
    }

    fn instant(
        &mut self,
        track: u64,
        at: u64,
        name: &str,
        category: &'static str,
        args: &Args<'_>,
    ) -> io::Result<()> {
        self.begin_event(track, INSTANT);
        self.describe(name, category, args);
        self.finish_event(at)
    }

    fn event(&mut self, track: u64, at: u64, kind: u64, slice: &Slice<'_>) -> io::Result<()> {
        self.begin_event(track, kind);
        self.describe(slice.name, slice.category, &slice.args);
        for &flow in slice.flows {
            self.event.fixed(47, flow); // flow_ids
        }
        if self.is_typed && !slice.submitted.is_empty() {
            self.submissions(slice.submitted);
        }
        self.finish_event(at)
    }

    fn end(&mut self, track: u64, at: u64) -> io::Result<()> {
        self.begin_event(track, END);
        self.finish_event(at)
    }

    /// Writes a counter track; `set` adds a value to the event of its time.
    fn counter<V: Copy>(
        &mut self,
        parent: u64,
        (name, unit): (&str, Unit<'_>),
        samples: &[(u64, V)],
        set: impl Fn(&mut Message, V),
    ) -> io::Result<()> {
        let track = self.track(Some(parent), Kind::Counter(name, unit))?;
        for &(at, value) in samples {
            self.begin_event(track, COUNTER);
            set(&mut self.event, value);
            self.finish_event(at)?;
        }
        Ok(())
    }

    fn begin_event(&mut self, track: u64, kind: u64) {
        self.event.clear();
        self.event.number(9, kind); // type
        self.event.number(11, track); // track_uuid
    }

    fn describe(&mut self, name: &str, category: &'static str, args: &Args<'_>) {
        let category = CATEGORIES.iter().position(|known| *known == category);
        if let Some(category) = category {
            self.event.number(3, category as u64 + 1); // category_iids
        }
        let name = self.names.id(name, 2, &mut self.interned); // event_names
        self.event.number(10, name); // name_iid
        for (name, value) in args.iter() {
            self.arg.clear();
            let name = self.arg_names.id(name, 3, &mut self.interned); // debug_annotation_names
            self.arg.number(1, name); // name_iid
            match value {
                Value::U64(value) => self.arg.number(3, *value), // uint_value
                Value::I64(value) => self.arg.signed(4, *value), // int_value
                Value::F64(value) => self.arg.double(5, *value), // double_value
                Value::Bool(value) => self.arg.number(2, u64::from(*value)), // bool_value
                Value::Text(text) => {
                    let id = self.texts.id(text, 29, &mut self.interned); // debug_annotation_string_values
                    self.arg.number(17, id); // string_value_iid
                }
                Value::Sizes(sizes) => {
                    for size in sizes {
                        self.element.clear();
                        self.element.number(3, u64::from(*size));
                        self.arg.message(12, &self.element); // array_values
                    }
                }
            }
            self.event.message(4, &self.arg); // debug_annotations
        }
    }

    fn finish_event(&mut self, at: u64) -> io::Result<()> {
        self.packet.clear();
        // Times are nanoseconds since the session's start, in the trace's default clock.
        self.packet.number(8, at); // timestamp
        self.packet.message(11, &self.event); // track_event
        self.finish_packet()
    }

    fn finish_packet(&mut self) -> io::Result<()> {
        let first = self.packets == 0;
        self.packets += 1;
        self.packet.number(10, 1); // trusted_packet_sequence_id
        // SEQ_NEEDS_INCREMENTAL_STATE; the first packet adds SEQ_INCREMENTAL_STATE_CLEARED.
        self.packet.number(13, if first { 3 } else { 2 }); // sequence_flags
        if first {
            self.packet.number(87, 1); // first_packet_on_sequence
        }
        if !self.interned.is_empty() {
            self.packet.message(12, &self.interned); // interned_data
            self.interned.clear();
        }
        self.head.clear();
        self.head.message(1, &self.packet); // Trace.packet
        self.out.write_all(self.head.as_bytes())
    }
}
