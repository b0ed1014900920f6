//! Common parts of Chrome's and Kineto's traces: threads, streams, arrows from calls to operations.

use std::borrow::Cow;
use std::io;

use rustc_hash::FxHashMap;

use super::args::{self, Args};
use super::counters;
use super::json::{Event, Events, Micros, Named, Track, TrackIds};
use super::lanes::{Lanes, NESTED};
use super::timeline::{Host, Place, Span, Timeline, ns};
use crate::formats::places::thread_title;

/// The naming rules of a format. Ranges, calls and operations are given by row.
pub(super) trait Dialect {
    /// The category of arrows.
    const ARROW: &'static str;
    /// The maximum nesting of operations on a track.
    const DEPTH: usize;

    /// The process id of a device.
    fn pid(&self, device: u32) -> u64;
    fn range(&self, row: usize) -> SliceText<'_>;
    fn call(&self, row: usize) -> SliceText<'_>;
    fn operation(&self, row: usize) -> SliceText<'_>;

    /// The slice of a range's work on a stream, if the format has one.
    fn projection(&self, _row: usize) -> Option<SliceText<'_>> {
        None
    }
}

pub(super) struct SliceText<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) category: &'static str,
    pub(super) args: Args<'a>,
}

impl SliceText<'_> {
    fn slice(&self, track: (u64, u64), span: Span) -> Event<'_> {
        let event = Event::new("X", &self.name, track, span.start);
        let event = Event { dur: Some(Micros(span.ns())), ..event };
        event.category(self.category).args(self.args.clone())
    }
}

pub(super) fn write(
    events: &mut Events<'_>,
    timeline: &Timeline<'_>,
    ids: &mut TrackIds,
    dialect: &impl Dialect,
) -> io::Result<()> {
    let mut calls = vec![0; timeline.calls.len()];
    let mut process_range_ids = 1..;
    for (at, of) in (0..).zip(&timeline.hosts) {
        events.name(Named::Process, (of.pid, 0), &of.name, at)?;
        host(events, timeline, ids, dialect, (of, &mut calls))?;
        process_ranges(events, timeline, of, &mut process_range_ids)?;
    }
    let hosts = timeline.hosts.len() as u64;
    let mut projections = timeline.projections();
    for (device, name) in timeline.devices() {
        let pid = dialect.pid(device);
        events.name(Named::Process, (pid, 0), &name, hosts + u64::from(device))?;
        for (place, rows) in timeline.streams_of(device) {
            let ranges = projections.remove(&place).unwrap_or_default();
            stream(events, timeline, ids, dialect, place, (rows, &ranges), &calls)?;
        }
    }
    Ok(())
}

/// Writes the samples of each device, downsampled to a maximum number of values.
pub(super) fn sampled(
    events: &mut Events<'_>,
    timeline: &Timeline<'_>,
    ids: &mut TrackIds,
    dialect: &impl Dialect,
    most: usize,
) -> io::Result<()> {
    for sampled in counters::sampled(timeline, most) {
        let pid = dialect.pid(sampled.device);
        let tid = ids.get(Track::Counters(sampled.device), 0);
        events.name(Named::Thread, (pid, tid), "counters", tid)?;
        // Viewers show the value's name after the counter's.
        let unit = match sampled.unit.to_string() {
            unit if unit.is_empty() => "value".to_owned(),
            unit => unit,
        };
        for &(at, value) in &sampled.values {
            let mut args = Args::default();
            args.add(&*unit, value);
            events.add(&Event::new("C", &sampled.name, (pid, tid), at).args(args))?;
        }
    }
    Ok(())
}

/// Writes ranges, calls and marks of every thread of a process. Sets the track of every call.
fn host(
    events: &mut Events<'_>,
    timeline: &Timeline<'_>,
    ids: &mut TrackIds,
    dialect: &impl Dialect,
    (of, of_calls): (&Host, &mut [u64]),
) -> io::Result<()> {
    for (id, thread) in timeline.threads_of(of) {
        let name = thread_title(id, thread.name);
        let mut tracks = Tracks::new(Track::Thread(of.process, id), of.pid, &name, NESTED);
        // A range with the same time as a call encloses the call.
        let ranges = thread.ranges.iter().map(|&row| (timeline.ranges[row].span, 0, row));
        let calls = thread.calls.iter().map(|&row| (timeline.calls[row].span, 1, row));
        let mut slices: Vec<(Span, u8, usize)> = ranges.chain(calls).collect();
        slices.sort_by_key(|(span, kind, _)| (span.order(), *kind));
        let mut lanes: FxHashMap<usize, usize> = FxHashMap::default();
        for (span, kind, row) in slices {
            let is_range = kind == 0;
            let parent =
                if is_range { timeline.ranges[row].parent } else { timeline.calls[row].range };
            let around = parent.and_then(|parent| lanes.get(&parent).copied());
            let (lane, tid) = tracks.place(events, ids, span, around)?;
            let slice = if is_range {
                lanes.insert(row, lane);
                dialect.range(row)
            } else {
                of_calls[row] = tid;
                dialect.call(row)
            };
            events.add(&slice.slice((of.pid, tid), span))?;
        }
        // Marks create no track.
        if thread.ranges.is_empty() && thread.calls.is_empty() {
            tracks.name(events, ids, 0)?;
        }
        for mark in &thread.marks {
            let event = Event::new("i", mark.name(), (of.pid, id.into()), ns(mark.at()));
            let event = Event { s: Some("t"), ..event };
            events.add(&event.category("mark").args(args::of_mark(mark)))?;
        }
    }
    Ok(())
}

/// Process ranges may overlap, so each has an id.
fn process_ranges(
    events: &mut Events<'_>,
    timeline: &Timeline<'_>,
    of: &Host,
    ids: &mut impl Iterator<Item = u64>,
) -> io::Result<()> {
    for ((range, span), id) in timeline.process_ranges_of(of).zip(ids) {
        let thread = (of.pid, range.thread_id().into());
        let end = |ph, at| Event {
            id: Some(id),
            ..Event::new(ph, range.name(), thread, at).category("process range")
        };
        events.add(&end("b", span.start).args(args::of_process_range(range)))?;
        events.add(&end("e", span.end.max(span.start)))?;
    }
    Ok(())
}

fn stream<D: Dialect>(
    events: &mut Events<'_>,
    timeline: &Timeline<'_>,
    ids: &mut TrackIds,
    dialect: &D,
    place: Place,
    (operations, ranges): (&[usize], &[(usize, Span)]),
    calls: &[u64],
) -> io::Result<()> {
    let (pid, name) = (dialect.pid(place.device), timeline.stream_name(place));
    let mut tracks = Tracks::new(Track::Stream(place), pid, &name, D::DEPTH);
    let projected = ranges.iter().map(|&(row, span)| (span, 0, row));
    let operations = operations
        .iter()
        .filter_map(|&row| timeline.operations[row].span.map(|span| (span, 1, row)));
    let mut slices: Vec<(Span, u8, usize)> = operations.collect();
    if D::DEPTH > 1 {
        slices.extend(projected);
    }
    // A stable sort: enclosing ranges are first.
    slices.sort_by_key(|(span, kind, _)| (span.order(), *kind));
    for (span, kind, row) in slices {
        let slice = match kind {
            0 => dialect.projection(row),
            _ => Some(dialect.operation(row)),
        };
        let Some(slice) = slice else { continue };
        let (_, tid) = tracks.place(events, ids, span, None)?;
        events.add(&slice.slice((pid, tid), span))?;
        if kind == 1
            && let Some(call) = timeline.operations[row].call
        {
            let from = timeline.calls[call].span;
            let thread = (timeline.pid(place.process), calls[call]);
            arrow(events, D::ARROW, row, (from, thread), (span, (pid, tid)))?;
        }
    }
    Ok(())
}

/// Writes an arrow from a call to an operation. If clock errors reverse their order, the arrow is
/// reversed too: readers drop an arrow that ends before it begins.
fn arrow(
    events: &mut Events<'_>,
    category: &'static str,
    operation: usize,
    (from, thread): (Span, (u64, u64)),
    (to, stream): (Span, (u64, u64)),
) -> io::Result<()> {
    let mut ends = [(from.start, thread), (to.start, stream)];
    ends.sort_by_key(|(at, _)| *at);
    let [begin, end] = ends.map(|(at, track)| {
        let event = Event::new("s", category, track, at).category(category);
        Event { id: Some(operation as u64 + 1), ..event }
    });
    events.add(&begin)?;
    events.add(&Event { ph: "f", bp: Some("e"), ..end })
}

/// The tracks of a thread or stream, named at first use.
struct Tracks<'a> {
    track: Track,
    pid: u64,
    name: &'a str,
    lanes: Lanes,
    tids: Vec<u64>,
}

impl<'a> Tracks<'a> {
    fn new(track: Track, pid: u64, name: &'a str, depth: usize) -> Self {
        Self { track, pid, name, lanes: Lanes::new(depth), tids: Vec::new() }
    }

    fn place(
        &mut self,
        events: &mut Events<'_>,
        ids: &mut TrackIds,
        span: Span,
        around: Option<usize>,
    ) -> io::Result<(usize, u64)> {
        let lane = self.lanes.place(span.start, span.end, around);
        if lane == self.tids.len() {
            let tid = self.name(events, ids, lane)?;
            self.tids.push(tid);
        }
        Ok((lane, self.tids[lane]))
    }

    fn name(&self, events: &mut Events<'_>, ids: &mut TrackIds, lane: usize) -> io::Result<u64> {
        let tid = ids.get(self.track, lane);
        let name = match lane {
            0 => self.name.to_owned(),
            lane => format!("{} ({})", self.name, lane + 1),
        };
        events.name(Named::Thread, (self.pid, tid), &name, tid)?;
        Ok(tid)
    }
}
