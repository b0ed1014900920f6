//! The Firefox Profiler's processed profile: markers for ranges, calls and operations, samples for
//! the call tree. Idle time and instruction samples are samples alone.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use fxprof_processed_profile as fx;
use rustc_hash::FxHashMap;
use profiler_base::distinct::Texts;
use profiler_base::text::write_json;
use serde_json::{Value, json};

use crate::formats::epoch_ns;
use super::HOST;
use super::args::{self, Args};
use super::format::Export;
use super::timeline::{Host, OperationRow, Span, Timeline, ns};
use crate::formats::places::thread_title;
use crate::formats::stacks::{self, Frame, FrameKind, Stack, StackRoot};
use profiler_core::profile::RangeNode;

pub(super) fn write(
    timeline: &Timeline<'_>,
    export: &Export,
    out: &mut dyn Write,
) -> io::Result<()> {
    if !export.has_work() {
        return write_stacks(timeline, export, out);
    }
    let spans = timeline.operations.iter().filter_map(|operation| operation.span);
    let mut to = Target::new(timeline, spans.map(Span::ns).max().unwrap_or(0));
    for host in &timeline.hosts {
        add_host(&mut to, timeline, host);
    }
    for (device, name) in timeline.devices() {
        let process = to.process(&name, HOST + 1 + u64::from(device));
        for (place, rows) in timeline.streams_of(device) {
            let mut thread = to.thread(process, place.stream, &timeline.stream_name(place));
            for &row in rows {
                let operation = &timeline.operations[row];
                let Some(span) = operation.span else { continue };
                let args = args::of_operation(timeline, operation);
                let name = timeline.name(operation);
                to.interval(&thread, (operation.category(), name), span, &args);
            }
            let timed = rows.iter().map(|&row| &timeline.operations[row]);
            let timed = timed.filter_map(|operation| Some((operation.span?.end, operation)));
            to.samples(timeline, &mut thread, timed.collect(), true);
        }
    }
    write_json(out, &to.profile).map_err(io::Error::from)
}

/// Writes stacks of idle time or of instruction samples, which have no time: all are at the start.
fn write_stacks(timeline: &Timeline<'_>, export: &Export, out: &mut dyn Write) -> io::Result<()> {
    let stacks = export.stacks_of(timeline.profile, StackRoot::Threads);
    let weight = |stack: &Stack<'_>| stack.weights.get(stacks.weights()[0]);
    let mut to = Target::new(timeline, stacks.iter().map(|stack| weight(&stack)).max().unwrap_or(0));
    let mut processes = FxHashMap::default();
    let mut rest = 0;
    let mut rows = stacks.iter().peekable();
    for id in 0.. {
        let Some(first) = rows.peek() else { break };
        let root = root_of(first).to_vec();
        let labels: Vec<_> = root.iter().map(Frame::label).collect();
        let (process, name) = match &labels[..] {
            [] => ("all processes", "all threads".to_owned()),
            [process, names @ ..] => (&**process, names.join(", ")),
        };
        let new = || to.process(process, id.into());
        let process = *processes.entry(process.to_owned()).or_insert_with(new);
        let thread = to.thread(process, id, &name);
        to.edge(&thread, timestamp(0));
        while let Some(row) = rows.next_if(|row| root_of(row) == root) {
            let stack = row.frames[root.len()..].iter().fold(None, |stack, frame| {
                let kind = frame.kind.key();
                let stack = to.frame(&thread, stack, kind, &frame.label());
                Some(frame.place().map_or(stack, |place| {
                    to.frame(&thread, Some(stack), kind, &format!("{PLACE}{place}"))
                }))
            });
            let weight = to.weight(&mut rest, weight(&row));
            let at = timestamp(0);
            to.profile.add_sample(thread.handle, at, stack, fx::CpuDelta::ZERO, weight);
        }
        to.edge(&thread, to.end);
    }
    let mut profile = serde_json::to_value(&to.profile)?;
    let threads = profile.get_mut("threads").and_then(Value::as_array_mut);
    threads.into_iter().flatten().for_each(add_places);
    write_json(out, &profile).map_err(io::Error::from)
}

/// The frames before the path of ranges.
fn root_of<'s, 'a>(stack: &'s Stack<'a>) -> &'s [Frame<'a>] {
    &stack.frames[..stack.frames.partition_point(|frame| frame.kind < FrameKind::Range)]
}

/// Precedes a file and line as the name of a frame. No other name has it.
const PLACE: char = '\0';

/// Gives frames of lines their file and line, whose columns the crate leaves empty.
fn add_places(thread: &mut Value) {
    let column = |column: &Value| -> Vec<usize> {
        let rows = column.as_array().into_iter().flatten().filter_map(Value::as_u64);
        rows.map(|row| row as usize).collect()
    };
    let mut texts = Texts::default();
    let (mut names, mut files, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    for row in column(&thread["funcTable"]["name"]) {
        let name = thread["stringArray"][row].as_str().unwrap_or_default();
        let place = name.strip_prefix(PLACE);
        let parts = place.and_then(|place| place.rsplit_once(':'));
        names.push(texts.text(place.unwrap_or(name)));
        files.push(parts.map(|(file, _)| texts.text(file)));
        lines.push(parts.and_then(|(_, line)| line.parse::<u32>().ok()));
    }
    let functions = column(&thread["frameTable"]["func"]).into_iter();
    let of_frames: Vec<_> = functions.map(|row| lines.get(row).copied().flatten()).collect();
    thread["frameTable"]["line"] = json!(of_frames);
    thread["funcTable"]["name"] = json!(names);
    thread["funcTable"]["fileName"] = json!(files);
    thread["funcTable"]["lineNumber"] = json!(lines);
    thread["stringArray"] = texts.values().iter().map(|text| &**text).collect();
}

fn add_host(to: &mut Target, timeline: &Timeline<'_>, host: &Host) {
    let process = to.process(&host.name, host.pid);
    let mut submitted: FxHashMap<u32, Vec<(u64, &OperationRow<'_>)>> = FxHashMap::default();
    for operation in &timeline.operations {
        if operation.place.process == host.process
            && let (Some(call), Some(_)) = (operation.call, operation.span)
        {
            let call = &timeline.calls[call];
            let of_thread = submitted.entry(call.call.thread_id()).or_default();
            of_thread.push((call.span.start, operation));
        }
    }
    for (id, rows) in timeline.threads_of(host) {
        let mut thread = to.thread(process, id, &thread_title(id, rows.name));
        for &row in &rows.ranges {
            let range = &timeline.ranges[row];
            let args = args::of_range(range);
            to.interval(&thread, ("range", range.range.name()), range.span, &args);
        }
        for &row in &rows.calls {
            let call = &timeline.calls[row];
            let args = args::of_call(timeline, call);
            to.interval(&thread, ("api", call.call.name()), call.span, &args);
        }
        for mark in &rows.marks {
            let at = fx::MarkerTiming::Instant(timestamp(ns(mark.at())));
            to.marker(&thread, ("mark", mark.name()), at, &args::of_mark(mark));
        }
        to.samples(timeline, &mut thread, submitted.remove(&id).unwrap_or_default(), false);
    }
    let mut ranges = timeline.process_ranges_of(host).peekable();
    if ranges.peek().is_some() {
        let thread = to.thread(process, 0, "process ranges");
        for (range, span) in ranges {
            let args = args::of_process_range(range);
            to.interval(&thread, ("process range", range.name()), *span, &args);
        }
    }
}

/// The nanoseconds or instruction samples in one unit of a sample's weight: 1, or a power of 1,000 if
/// the largest weight needs it. Weights have 31 bits.
fn unit_of(longest: u64) -> u64 {
    let mut unit = 1;
    while longest / unit > i32::MAX as u64 {
        unit *= 1_000;
    }
    unit
}

fn timestamp(ns: u64) -> fx::Timestamp {
    fx::Timestamp::from_nanos_since_reference(ns)
}

/// A field of a marker: the name of the argument, and its display format.
type Field = (&'static str, fx::MarkerFieldFormat);

/// The kinds of markers, their colours, and the fields that all markers of a kind have. Other
/// arguments are in the field `more`.
fn kinds() -> [(&'static str, fx::CategoryColor, Vec<Field>); 8] {
    use fx::CategoryColor as Color;
    use fx::MarkerFieldFormat::{Bytes, Integer, String};
    let registers = ("registers a thread", Integer);
    let fixed = ("static shared memory [B]", Bytes);
    let dynamic = ("dynamic shared memory [B]", Bytes);
    let path = || ("path", String);
    let correlation = || ("correlation", Integer);
    let kernel =
        vec![path(), correlation(), ("grid", String), ("block", String), registers, fixed, dynamic];
    let copy =
        vec![path(), correlation(), ("bytes", Bytes), ("from", String), ("to", String)];
    let process_range = vec![("GPU operations", Integer), ("GPU time [ns]", Integer)];
    [
        ("range", Color::Blue, vec![("domain", String), ("category", String)]),
        ("process range", Color::LightBlue, process_range),
        ("mark", Color::Red, vec![("domain", String), ("category", String)]),
        ("api", Color::Gray, vec![path(), correlation()]),
        ("kernel", Color::Green, kernel),
        ("copy", Color::Orange, copy),
        ("memset", Color::Yellow, vec![path(), correlation()]),
        ("graph", Color::Purple, vec![path(), correlation()]),
    ]
}

/// A kind of markers registered in the profile.
struct Kind {
    marker: fx::MarkerTypeHandle,
    category: fx::CategoryHandle,
    fields: Vec<Field>,
}

struct Target {
    profile: fx::Profile,
    end: fx::Timestamp,
    /// See [`unit_of`].
    unit: u64,
    unshortened: usize,
    kinds: FxHashMap<&'static str, Kind>,
}

struct Thread {
    handle: fx::ThreadHandle,
    /// Stacks of the nodes of the range tree.
    nodes: FxHashMap<usize, fx::StackHandle>,
}

impl Target {
    /// `longest` is the largest weight of a sample.
    fn new(timeline: &Timeline<'_>, longest: u64) -> Self {
        let start = Duration::from_nanos(epoch_ns(timeline.profile));
        let start = fx::ReferenceTimestamp::from_duration_since_unix_epoch(start);
        let unit = unit_of(longest);
        let interval = fx::SamplingInterval::from_nanos(unit);
        let mut profile = fx::Profile::new("GPU profile", start, interval);
        let end = timestamp(timeline.end());
        let mut kinds_by_name = FxHashMap::default();
        for (name, color, fields) in kinds() {
            let category = profile.add_category(name, color);
            let field = |(key, format): Field| fx::RuntimeSchemaMarkerField {
                key: key.to_owned(),
                label: key.to_owned(),
                format,
                flags: fx::MarkerFieldFlags::SEARCHABLE,
            };
            let more = ("more", fx::MarkerFieldFormat::String);
            let marker = profile.register_marker_type(fx::RuntimeSchemaMarkerSchema {
                type_name: name.to_owned(),
                description: None,
                locations: fx::MarkerLocations::MARKER_CHART | fx::MarkerLocations::MARKER_TABLE,
                chart_label: Some("{marker.name}".to_owned()),
                tooltip_label: None,
                table_label: Some("{marker.name}".to_owned()),
                fields: fields.iter().cloned().chain([more]).map(field).collect(),
                graphs: Vec::new(),
            });
            kinds_by_name.insert(name, Kind { marker, category, fields });
        }
        profile.set_symbolicated(true); // the names are whole
        Self { profile, end, unit, unshortened: stacks::UNSHORTENED, kinds: kinds_by_name }
    }

    fn process(&mut self, name: &str, pid: u64) -> fx::ProcessHandle {
        self.profile.add_process(name, u32::try_from(pid).unwrap_or(0), timestamp(0))
    }

    fn thread(&mut self, process: fx::ProcessHandle, id: u32, name: &str) -> Thread {
        let handle = self.profile.add_thread(process, id, timestamp(0), false);
        self.profile.set_thread_name(handle, name);
        // Viewers hide threads without CPU time.
        self.profile.add_initial_visible_thread(handle);
        Thread { handle, nodes: FxHashMap::default() }
    }

    fn interval(
        &mut self,
        thread: &Thread,
        of: (&'static str, &str),
        span: Span,
        args: &Args<'_>,
    ) {
        let (start, end) = (timestamp(span.start), timestamp(span.end.max(span.start)));
        self.marker(thread, of, fx::MarkerTiming::Interval(start, end), args);
    }

    fn marker(
        &mut self,
        thread: &Thread,
        (kind, name): (&'static str, &str),
        timing: fx::MarkerTiming,
        args: &Args<'_>,
    ) {
        let Some(kind) = self.kinds.get(kind) else { return };
        let name = self.profile.intern_string(name);
        let mut values = Vec::with_capacity(kind.fields.len() + 1);
        for (key, format) in &kind.fields {
            let value = args.iter().find(|(name, _)| name == key).map(|(_, value)| value);
            let text = value.map(ToString::to_string).unwrap_or_default();
            values.push(match format {
                fx::MarkerFieldFormat::String => {
                    FieldValue::Text(self.profile.intern_string(&text))
                }
                _ => FieldValue::Number(text.parse().unwrap_or(0.0)),
            });
        }
        let mut more = String::new();
        for (name, value) in args.iter() {
            if !kind.fields.iter().any(|(key, _)| *key == name) {
                let comma = if more.is_empty() { "" } else { ", " };
                let _ = write!(more, "{comma}{name}: {value}");
            }
        }
        values.push(FieldValue::Text(self.profile.intern_string(&more)));
        let marker =
            Marker { marker: kind.marker, category: kind.category, name, values };
        self.profile.add_marker(thread.handle, timing, marker);
    }

    /// Adds operations as samples at these times. With `is_busy`, their GPU time becomes the
    /// thread's CPU time since the previous sample, which the viewer draws as activity.
    fn samples(
        &mut self,
        timeline: &Timeline<'_>,
        thread: &mut Thread,
        mut operations: Vec<(u64, &OperationRow<'_>)>,
        is_busy: bool,
    ) {
        operations.sort_by_key(|(at, _)| *at);
        self.edge(thread, timestamp(0));
        // CPU times are in whole microseconds; the remainder counts for the next sample.
        let mut busy_ns = 0;
        let mut rest_ns = 0;
        for (at, operation) in operations {
            let range = operation.range.map(|row| timeline.ranges[row].range.node());
            let parent = match operation.operation.late_chain() {
                None => range.and_then(|node| self.stack(thread, node)),
                // Ranges that ended before the launch are left out of its stack.
                Some(chain) => {
                    let around: Vec<_> = chain.map(|range| range.name()).collect();
                    around.into_iter().rev().fold(None, |stack, name| {
                        Some(self.frame(thread, stack, "range", name))
                    })
                }
            };
            let name = timeline.name(operation);
            let stack = self.frame(thread, parent, operation.category(), name);
            let ns = operation.span.map_or(0, Span::ns);
            busy_ns += if is_busy { ns } else { 0 };
            let busy = fx::CpuDelta::from_nanos(busy_ns);
            busy_ns %= 1_000;
            let weight = self.weight(&mut rest_ns, ns);
            self.profile.add_sample(thread.handle, timestamp(at), Some(stack), busy, weight);
        }
        self.edge(thread, self.end);
    }

    /// Viewers show the time from the first to the last sample.
    fn edge(&mut self, thread: &Thread, at: fx::Timestamp) {
        self.profile.add_sample(thread.handle, at, None, fx::CpuDelta::ZERO, 0);
    }

    /// A weight in units. The remainder below a unit counts for the next sample.
    fn weight(&self, rest: &mut u64, weight: u64) -> i32 {
        *rest = rest.saturating_add(weight);
        let units = *rest / self.unit;
        *rest %= self.unit;
        i32::try_from(units).unwrap_or(i32::MAX)
    }

    /// The stack of a range's path, shortened like in
    /// [`Stacks::iter`](crate::formats::stacks::Stacks::iter). Each thread has its own stacks, and
    /// paths may lead through many threads.
    fn stack(&mut self, thread: &mut Thread, node: RangeNode<'_>) -> Option<fx::StackHandle> {
        if let Some(stack) = thread.nodes.get(&node.id().at()) {
            return Some(*stack);
        }
        let mut stack = None;
        for name in stacks::path(node, &mut self.unshortened) {
            stack = Some(self.frame(thread, stack, "range", &name));
        }
        thread.nodes.extend(stack.map(|stack| (node.id().at(), stack)));
        stack
    }

    fn frame(
        &mut self,
        thread: &Thread,
        parent: Option<fx::StackHandle>,
        kind: &'static str,
        name: &str,
    ) -> fx::StackHandle {
        let name = self.profile.intern_string(name);
        let category = self.kinds.get(kind).map_or(fx::CategoryHandle::OTHER, |kind| kind.category);
        let frame = fx::FrameInfo {
            frame: fx::Frame::Label(name),
            category_pair: category.into(),
            flags: fx::FrameFlags::empty(),
        };
        let frame = self.profile.intern_frame(thread.handle, frame);
        self.profile.intern_stack(thread.handle, parent, frame)
    }
}

enum FieldValue {
    Text(fx::StringHandle),
    Number(f64),
}

struct Marker {
    marker: fx::MarkerTypeHandle,
    category: fx::CategoryHandle,
    name: fx::StringHandle,
    values: Vec<FieldValue>,
}

impl fx::Marker for Marker {
    fn marker_type(&self, _: &mut fx::Profile) -> fx::MarkerTypeHandle {
        self.marker
    }

    fn name(&self, _: &mut fx::Profile) -> fx::StringHandle {
        self.name
    }

    fn category(&self, _: &mut fx::Profile) -> fx::CategoryHandle {
        self.category
    }

    fn string_field_value(&self, field: u32) -> fx::StringHandle {
        match self.values.get(field as usize) {
            Some(FieldValue::Text(text)) => *text,
            _ => self.name,
        }
    }

    fn number_field_value(&self, field: u32) -> f64 {
        match self.values.get(field as usize) {
            Some(FieldValue::Number(number)) => *number,
            _ => 0.0,
        }
    }
}
