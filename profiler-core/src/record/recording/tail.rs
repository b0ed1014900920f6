//! The tail of a growing recording: the frames that were appended since the last read, as segments
//! for the streaming join.
//!
//! A [`Part`] has the entries that one state of the file covers. A reader stores one part at a time,
//! the open entries, and the texts of ranges, at most [`MOST_BYTES`] of each.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Seek};
use std::sync::Arc;

use cupti::{
    ActivityKind, Call, Clock, NameKey, Reading, RecordBytes, ThreadCalls, ThreadGraphs,
    UnfinishedCalls, Version, clock,
};
use rustc_hash::FxHashMap;

use super::append::{SessionStart, Taken};
use super::file::{
    CALLS, DEVICES, Devices, EVENTS, GRAPHS, INFO, NAMES, Names, OPEN_CALLS, OPEN_RANGES, Opening,
    RANGES, RECORDS, STATE, State, ThreadHead, add_slots, parse, read_thread,
};
use super::frames::{END, FrameReader, Kind, Next};
use super::logs::{Logs, sort_calls};
use super::ranges::{RangeEntry, Shared, Slots, ThreadSegment};
use super::segment::{CarriedOver, Segment};
use super::{Losses, RecordingInfo, check};
use crate::error::Error;

/// Upper bound of the bytes of one part, of the texts of ranges, and of the open entries.
const MOST_BYTES: u64 = 1 << 30;
/// Bytes that an open entry or a label takes in memory, roughly.
const ENTRY_BYTES: u64 = 64;
/// Upper bound of the windows in which calls count. Calls before the oldest one are ignored.
const MOST_WINDOWS: usize = 1 << 16;

/// The key of an open call: thread, id and start.
type CallKey = (u32, u32, u64);

/// The entries that one state of a recording covers.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) segment: Segment,
    /// The entries that are open at its end.
    open: Vec<ThreadSegment>,
    open_calls: UnfinishedCalls,
}

/// The frames of a part that were read so far.
#[derive(Default)]
struct Pending {
    bytes: u64,
    names: BTreeMap<u64, String>,
    buffers: Vec<Vec<u8>>,
    calls: Logs<ThreadCalls>,
    open_calls: Logs<ThreadCalls>,
    graphs: Logs<ThreadGraphs>,
    ranges: FxHashMap<u32, ThreadSegment>,
    open_ranges: Vec<((u32, u64), RangeEntry)>,
}

/// Reads a recording while another process appends to it.
pub(crate) struct Tail<R> {
    frames: FrameReader<R>,
    content: Vec<u8>,
    most_bytes: u64,
    opening: Opening,
    state: State,
    strides: BTreeMap<u32, u32>,
    pending: Pending,
    /// The logs by their numbers relative to the first one, and the bytes of their texts.
    threads: FxHashMap<u32, Arc<Shared>>,
    text_bytes: u64,
    open_ranges: FxHashMap<(u32, u64), RangeEntry>,
    open_calls: FxHashMap<CallKey, Call>,
    windows_ns: Vec<(u64, u64)>,
    /// The length of all windows so far.
    recorded_ns: u64,
    last_reading: Option<Reading>,
    carried_over: CarriedOver,
    has_ended: bool,
}

impl<R: Read + Seek> Tail<R> {
    /// Reads the header and the first frame.
    ///
    /// # Errors
    /// The source has no complete first frame, is no recording, or has a format without states.
    pub(crate) fn begin(source: R) -> Result<Self, Error> {
        Self::begin_within(source, MOST_BYTES)
    }

    fn begin_within(source: R, most_bytes: u64) -> Result<Self, Error> {
        let mut frames = FrameReader::begin(source, u64::MAX)?;
        if frames.format() < super::frames::FIRST_CHECKED {
            let format = frames.format();
            return Err(Error::format(format!("it has format {format}, which does not grow")));
        }
        let mut content = Vec::new();
        let opening = match frames.next_of_growing(&mut content, most_bytes)? {
            Next::Frame(INFO) => Opening::parse(&content)?,
            _ => return Err(Error::format("it does not begin with the machine's description")),
        };
        if opening.logs.is_none() {
            return Err(Error::format("it has no numbers of its logs of ranges"));
        }
        Ok(Self {
            frames,
            content,
            most_bytes,
            opening,
            state: State::default(),
            strides: BTreeMap::new(),
            pending: Pending::default(),
            threads: FxHashMap::default(),
            text_bytes: 0,
            open_ranges: FxHashMap::default(),
            open_calls: FxHashMap::default(),
            windows_ns: Vec::new(),
            recorded_ns: 0,
            last_reading: None,
            carried_over: CarriedOver::default(),
            has_ended: false,
        })
    }

    /// Reads up to the next state. Returns `None` at the end of the bytes so far, and at the end of
    /// the recording.
    ///
    /// # Errors
    /// The source cannot be read, is damaged, or needs more memory than the bound.
    pub(crate) fn next(&mut self) -> Result<Option<Part>, Error> {
        while !self.has_ended {
            let mut content = std::mem::take(&mut self.content);
            let next = self.frames.next_of_growing(&mut content, self.most_bytes);
            let applied = match next? {
                Next::Truncated => return Ok(None),
                Next::Frame(kind) => self.apply(kind, &mut content),
            };
            self.content = content;
            if applied? {
                return self.take().map(Some);
            }
        }
        Ok(None)
    }
}

impl<R> Tail<R> {
    /// The machine, versions and time of the recording.
    pub(crate) fn info(&self) -> &RecordingInfo {
        &self.opening.info
    }

    /// The number of bytes in the frames so far.
    pub(crate) fn position(&self) -> u64 {
        self.frames.position()
    }

    /// True once the last frame was read.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The losses up to the last state.
    pub(crate) fn losses(&self) -> Losses {
        self.state.losses.clamped()
    }

    /// The start of the session and the end of the last state.
    pub(crate) fn window_ns(&self) -> (u64, u64) {
        self.state.window_ns
    }

    /// The time in which the session was on, without pauses.
    pub(crate) fn recorded_ns(&self) -> u64 {
        self.recorded_ns
    }

    /// The times in which the session was on, the latest ones.
    pub(crate) fn windows_ns(&self) -> &[(u64, u64)] {
        &self.windows_ns
    }

    /// The session as it began, once a part was read.
    pub(crate) fn session_start(&self) -> SessionStart<'_> {
        SessionStart {
            info: &self.opening.info,
            first_log: self.first_log(),
            before_id: self.state.before_id,
            start_ns: self.state.window_ns.0,
            begins_late: self.state.begins_late,
            carried_over: &self.carried_over,
        }
    }

    /// A part as the sinks of a running session receive it.
    pub(crate) fn with_state<'a>(&'a self, part: &'a Part) -> Taken<'a> {
        Taken {
            info: &self.opening.info,
            segment: &part.segment,
            open: &part.open,
            open_calls: &part.open_calls,
            call_windows_ns: &self.windows_ns,
            windows_ns: &self.windows_ns,
            enabled_ns: None,
            attributes: &[],
            missing_kinds: &[],
            observer_panics: 0,
        }
    }

    fn first_log(&self) -> u64 {
        self.opening.logs.map_or(0, |(first, _)| first)
    }

    /// Adds a frame. Returns true if it covers the frames before it.
    fn apply(&mut self, kind: Kind, content: &mut Vec<u8>) -> Result<bool, Error> {
        self.pending.bytes += content.len() as u64;
        self.check_size(self.pending.bytes, "entries without a state")?;
        match kind {
            STATE => {
                self.add_state(parse(content, "a state")?);
                return Ok(self.opening.appended);
            }
            END => {
                self.has_ended = true;
                return Ok(!self.opening.appended);
            }
            INFO => return Err(Error::format("it has the description of the machine twice")),
            DEVICES => {
                let Devices { devices } = parse(content, "the list of devices")?;
                self.opening.info.devices = devices;
            }
            NAMES => {
                let names: Names = parse(content, "the table of kernel names")?;
                self.strides.extend(names.strides);
                self.pending.names.extend(names.names);
            }
            RECORDS => self.pending.buffers.push(std::mem::take(content)),
            CALLS => self.pending.calls.add_calls(content, "a thread's call log")?,
            OPEN_CALLS => {
                self.pending.open_calls.add_calls(content, "a thread's log of open calls")?;
            }
            GRAPHS => {
                let what = "a thread's graph log";
                let (head, entries) = read_thread(content, what, cupti::GraphEvent::from_words)?;
                let id = head.thread_id;
                let thread = self.pending.graphs.thread(id, || ThreadGraphs::new(id, Vec::new()));
                check::graph_events(&mut thread.events, entries, what)?;
            }
            RANGES => {
                let what = "a thread's range log";
                let (head, entries) = read_thread(content, what, RangeEntry::from_words)?;
                let count = entries.len();
                let slots = (head.first_slot, head.slots.clone());
                let thread = self.thread(head, what)?;
                thread.entries.extend(entries);
                add_slots(&mut thread.slots, slots, count, what)?;
            }
            OPEN_RANGES => {
                let what = "a thread's log of open ranges";
                let (head, entries) = read_thread(content, what, RangeEntry::from_words)?;
                let mut slots = Slots::default();
                add_slots(&mut slots, (head.first_slot, head.slots), entries.len(), what)?;
                let number = head.number.ok_or_else(|| no_number(what))?;
                let keys = slots.iter().map(|slot| (number, slot));
                self.pending.open_ranges.extend(keys.zip(entries));
            }
            EVENTS => {
                let what = "a thread's log of events";
                let (head, events) = read_thread(content, what, |words| words)?;
                let mut slots = Slots::default();
                let of_head = (head.first_slot, head.slots.clone());
                add_slots(&mut slots, of_head, events.len(), what)?;
                self.thread(head, what)?.events.extend(slots.iter().zip(events));
            }
            _ => {}
        }
        Ok(false)
    }

    fn check_size(&self, bytes: u64, what: &str) -> Result<(), Error> {
        if bytes <= self.most_bytes {
            return Ok(());
        }
        let most = self.most_bytes;
        Err(Error::format(format!(
            "it has more than {most} bytes of {what}: it is read no further while it grows"
        )))
    }

    /// The pending entries of a thread. Adds the texts and labels of a frame's head.
    fn thread(&mut self, head: ThreadHead, what: &str) -> Result<&mut ThreadSegment, Error> {
        let number = head.number.ok_or_else(|| no_number(what))?;
        let labels = head.labels.unwrap_or_default();
        let texts = head.names.iter().map(|text| ENTRY_BYTES + text.len() as u64).sum::<u64>();
        self.text_bytes += texts + ENTRY_BYTES * labels.len() as u64;
        self.check_size(self.text_bytes, "names of ranges")?;
        let absolute = self.first_log().saturating_add(number.into());
        let new = || Shared::of_file(absolute, head.thread_id);
        let shared = self.threads.entry(number).or_insert_with(new);
        if shared.thread_id != head.thread_id {
            return Err(Error::format(format!("{what} belongs to two threads: it is damaged")));
        }
        {
            let mut known = shared.texts.lock();
            known.texts.extend(head.names);
            known.labels.extend(labels);
        }
        let shared = &*shared;
        Ok(self.pending.ranges.entry(number).or_insert_with(|| ThreadSegment::empty(shared)))
    }

    fn add_state(&mut self, mut state: State) {
        let windows_ns = match state.windows_ns.take() {
            Some(windows_ns) => windows_ns,
            None => vec![state.window_ns],
        };
        let length = |window: (u64, u64)| window.1.saturating_sub(window.0);
        for window in windows_ns {
            let last = self.windows_ns.pop_if(|last| last.0 == window.0);
            let more_ns = length(window).saturating_sub(last.map_or(0, length));
            self.recorded_ns = self.recorded_ns.saturating_add(more_ns);
            self.windows_ns.push(window);
        }
        if self.windows_ns.len() > MOST_WINDOWS {
            self.windows_ns.drain(..MOST_WINDOWS / 2);
        }
        self.state = state;
    }

    /// The clock of a part: from the last reading before it to the last one in it.
    fn clock(&mut self) -> Clock {
        let readings = std::mem::take(&mut self.state.clock_ns);
        let mut readings =
            readings.into_iter().map(|(at_ns, offset_ns)| Reading { at_ns, offset_ns });
        let first = self.last_reading.or_else(|| readings.next());
        let start = first.unwrap_or(Reading { at_ns: 0, offset_ns: 0 });
        let stop = readings.next_back().unwrap_or(start);
        self.last_reading = first.map(|_| stop);
        Clock { start, stop }
    }

    /// Takes the pending frames as a part.
    fn take(&mut self) -> Result<Part, Error> {
        let pending = std::mem::take(&mut self.pending);
        let clock = self.clock();
        let open_ranges = self.take_open_ranges(&pending);
        let open_calls = self.take_open_calls(&pending);
        let open = self.open_ranges.len() + self.open_calls.len();
        self.check_size(ENTRY_BYTES * open as u64, "open entries")?;
        let version = Version(self.opening.info.cupti_version);
        let strides = self.strides.iter().map(|(kind, stride)| (ActivityKind(*kind), *stride));
        let names = pending.names.into_iter().map(|(key, name)| (NameKey(key), name));
        let until_ns = self.state.window_ns.1;
        let settled_ns = self.state.pending_from_ns.unwrap_or(until_ns).min(until_ns);
        let segment = Segment {
            until_ns,
            settled_ns,
            // A file does not contain the times of flushes.
            answered_ns: settled_ns,
            records: RecordBytes::from_parts(version, pending.buffers, strides, names),
            clock,
            calls: pending.calls.sorted(),
            runtime_calls: Vec::new(),
            graphs: pending.graphs.threads,
            ranges: pending.ranges.into_values().collect(),
            instructions: None,
            losses: Losses::default(),
            last_id: 0,
            operations: 0,
            entries: 0,
        };
        Ok(Part { segment, open: open_ranges, open_calls })
    }

    /// The ranges that are open at the end of a part, by thread.
    fn take_open_ranges(&mut self, pending: &Pending) -> Vec<ThreadSegment> {
        self.open_ranges.extend(pending.open_ranges.iter().copied());
        for (number, thread) in &pending.ranges {
            for slot in thread.slots.iter() {
                self.open_ranges.remove(&(*number, slot));
            }
        }
        let mut open: BTreeMap<u32, ThreadSegment> = BTreeMap::new();
        let mut entries: Vec<_> = self.open_ranges.iter().collect();
        entries.sort_unstable_by_key(|(key, _)| **key);
        for ((number, slot), entry) in entries {
            let Some(shared) = self.threads.get(number) else { continue };
            let thread = open.entry(*number).or_insert_with(|| ThreadSegment::empty(shared));
            thread.entries.push(*entry);
            thread.slots.push(*slot);
        }
        open.into_values().collect()
    }

    /// The calls that had not returned at the end of a part.
    fn take_open_calls(&mut self, pending: &Pending) -> UnfinishedCalls {
        let key = |thread: &ThreadCalls, call: &Call| -> CallKey {
            (thread.thread_id, call.correlation_id, call.start_ns)
        };
        for thread in &pending.open_calls.threads {
            self.open_calls.extend(thread.calls.iter().map(|call| (key(thread, call), *call)));
        }
        for thread in &pending.calls.threads {
            thread.calls.iter().for_each(|call| _ = self.open_calls.remove(&key(thread, call)));
        }
        let mut by_thread: Logs<ThreadCalls> = Logs::default();
        for ((thread_id, ..), call) in &self.open_calls {
            let new = || ThreadCalls::new(*thread_id, None, Vec::new());
            by_thread.thread(*thread_id, new).calls.push(*call);
        }
        sort_calls(&mut by_thread.threads);
        let mut open = UnfinishedCalls::default();
        open.calls = by_thread.threads;
        open
    }
}

impl<R> fmt::Debug for Tail<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Tail");
        out.field("position", &self.position()).field("has_ended", &self.has_ended);
        out.finish_non_exhaustive()
    }
}

impl Part {
    /// The earliest id of its calls, returned or not.
    pub(crate) fn first_id(&self) -> Option<u32> {
        let threads = self.segment.calls.iter().chain(&self.open_calls.calls);
        let ids = threads.flat_map(|thread| &thread.calls).map(|call| call.correlation_id);
        ids.reduce(super::segment::earlier_id)
    }
}

fn no_number(what: &str) -> Error {
    Error::format(format!("{what} does not have its number"))
}

/// The part of an interval in which a session was on.
pub(crate) fn recorded_ns(windows_ns: &[(u64, u64)], from_ns: u64, until_ns: u64) -> u64 {
    let parts = clock::intersection(windows_ns, &[(from_ns, until_ns)]);
    parts.iter().map(|(start, stop)| stop - start).sum()
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    const FILE: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");

    #[test]
    fn file_that_needs_more_than_the_bound_is_refused() {
        let file = std::fs::read(FILE).unwrap();
        let length = file.len() as u64;
        let read = |most_bytes| {
            let mut tail = Tail::begin_within(Cursor::new(&file), most_bytes)?;
            while tail.next()?.is_some() {}
            Ok::<_, Error>(tail)
        };
        let tail = read(length).unwrap();
        assert!(tail.has_ended() && tail.position() == length);
        for most_bytes in [1_000, 10_000, length / 2] {
            let error = read(most_bytes).unwrap_err();
            // One frame has too much, or all of a part together.
            let is_named = ["the limit is", "bytes of entries without a state"]
                .into_iter()
                .any(|text| error.to_string().contains(text));
            assert!(error.is_format() && is_named, "{error}");
        }
    }
}
