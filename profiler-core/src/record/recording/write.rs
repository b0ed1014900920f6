//! Writes frames: shared by [`Recording::save`] and the appender of a running session.

use std::io::{self, Write};
use std::ops::Range;

use cupti::{AttributeSetting, Call, GraphEvent, Reading, RecordBytes, ThreadCalls, ThreadGraphs};
use serde_core::Serialize;

use super::Recording;
use super::file::{
    CALLS, ENTRIES, EVENTS, GRAPHS, HOST_STACKS, INFO, INSTRUCTIONS, NAMES, Names, Opening, RANGES,
    RECORDS, RUNTIME_CALLS, SERIES, STATE, State, ThreadHead,
};
use super::frames::{Chain, FrameWriter, Kind as FrameKind};
use super::segment::ThreadRanges;
use crate::record::host_stacks::HostStacks;
use crate::record::instructions::InstructionLog;
use crate::record::series::Series;

/// Serializes to JSON; types of strings and numbers cannot fail.
fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// Reduces a path to its last component: a recording must not reveal the host's folders.
/// Compilation records contain the path of the cache. Function names never start with `/`.
fn without_folder(name: &str) -> String {
    let path = name.strip_prefix('/').and_then(|path| path.rsplit('/').next());
    path.unwrap_or(name).to_owned()
}

impl Names {
    /// The names and strides of records, without names whose key is `known`.
    pub(super) fn new(records: &RecordBytes, mut known: impl FnMut(u64) -> bool) -> Self {
        let mut names = Self::default();
        names.strides.extend(records.strides().map(|(kind, stride)| (kind.0, stride)));
        let new = records.names().filter(|(key, _)| !known(key.0));
        names.names.extend(new.map(|(key, name)| (key.0, without_folder(name))));
        names.data.extend(records.all_data().map(|(key, data)| (key.0, data.to_owned())));
        names
    }
}

impl State {
    pub(super) fn attribute(setting: &AttributeSetting) -> (u32, u64, u64, u64) {
        (setting.attribute.id(), setting.before, setting.asked, setting.set)
    }

    pub(super) fn reading(reading: Reading) -> (u64, i64) {
        (reading.at_ns, reading.offset_ns)
    }

    fn new(recording: &Recording) -> Self {
        let readings = recording.clocks.readings().iter().copied();
        Self {
            window_ns: recording.window_ns,
            windows_ns: Some(recording.windows_ns.clone()),
            pending_from_ns: recording.pending_from_ns,
            attributes: recording.attributes.iter().map(Self::attribute).collect(),
            missing_kinds: recording.missing_kinds.iter().map(|kind| kind.0).collect(),
            clock_ns: readings.map(Self::reading).collect(),
            before_id: recording.before_id,
            begins_late: recording.begins_late,
            losses: recording.losses,
            ..Self::default()
        }
    }
}

/// A thread's range log: its kernel id and its number relative to the first log.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogId {
    pub(super) thread_id: u32,
    pub(super) number: Option<u32>,
}

impl LogId {
    /// A recording has fewer than 2^32 logs.
    pub(super) fn new(thread_id: u32, number: u64, first_log: u64) -> Self {
        Self { thread_id, number: u32::try_from(number.saturating_sub(first_log)).ok() }
    }
}

/// Writes the contents of a recording as frames. Frames of logs contain the length of a JSON head,
/// the head, and words.
pub(super) struct LogWriter<'a> {
    frames: FrameWriter<'a>,
    /// A buffer for the words or bytes of a frame.
    words: Vec<u8>,
}

impl<'a> LogWriter<'a> {
    /// Writes the header and the first frame.
    pub(super) fn begin(out: &'a mut dyn Write, opening: &Opening) -> io::Result<Self> {
        let mut frames = FrameWriter::begin(out)?;
        frames.frame(INFO, &[&json(opening)])?;
        Ok(Self { frames, words: Vec::new() })
    }

    /// Continues after the last frame of an earlier writer.
    pub(super) fn resume(out: &'a mut dyn Write, chain: Chain) -> Self {
        Self { frames: FrameWriter::resume(out, chain), words: Vec::new() }
    }

    pub(super) fn chain(&self) -> Chain {
        self.frames.chain()
    }

    /// Writes the last frame.
    pub(super) fn end(self) -> io::Result<Chain> {
        self.frames.end()
    }

    /// Writes a frame of JSON.
    pub(super) fn json(&mut self, kind: FrameKind, value: &impl Serialize) -> io::Result<()> {
        self.frames.frame(kind, &[&json(value)])
    }

    pub(super) fn records(&mut self, records: &RecordBytes) -> io::Result<()> {
        records.buffers().try_for_each(|buffer| self.frames.frame(RECORDS, &[buffer]))
    }

    /// Writes a log in one or more frames. `first` is the first frame's head; `head` adds slots.
    fn log<T, const WORDS: usize>(
        &mut self,
        kind: FrameKind,
        thread_id: u32,
        mut first: Option<ThreadHead>,
        head: impl Fn(ThreadHead, Range<usize>) -> ThreadHead,
        rows: &[T],
        to_words: impl Fn(&T) -> [u64; WORDS],
    ) -> io::Result<()> {
        let mut from = 0;
        while from < rows.len() || first.is_some() {
            let end = rows.len().min(from + ENTRIES);
            let of_frame = first.take().unwrap_or_else(|| ThreadHead::new(thread_id));
            let head = head(of_frame, from..end);
            self.words.clear();
            for row in &rows[from..end] {
                self.words.extend_from_slice(to_words(row).map(u64::to_le_bytes).as_flattened());
            }
            self.headed(kind, &head)?;
            from = end;
        }
        Ok(())
    }

    /// Writes a frame with this head and the buffered words or bytes.
    fn headed(&mut self, kind: FrameKind, head: &impl Serialize) -> io::Result<()> {
        let head = json(head);
        let length = (head.len() as u64).to_le_bytes();
        self.frames.frame(kind, &[&length, &head, &self.words])
    }

    /// Writes calls of a thread.
    pub(super) fn calls<F: cupti::Function>(
        &mut self,
        kind: FrameKind,
        thread: &ThreadCalls<F>,
        calls: &[Call<F>],
    ) -> io::Result<()> {
        let (id, thread_name) = (thread.thread_id, thread.thread_name.clone());
        let first = Some(ThreadHead { thread_name, ..ThreadHead::new(id) });
        self.log(kind, id, first, |head, _| head, calls, Call::to_words)
    }

    fn all_calls<F: cupti::Function>(
        &mut self,
        kind: FrameKind,
        threads: &[ThreadCalls<F>],
    ) -> io::Result<()> {
        threads.iter().try_for_each(|thread| self.calls(kind, thread, &thread.calls))
    }

    pub(super) fn graphs(&mut self, threads: &[ThreadGraphs]) -> io::Result<()> {
        threads.iter().try_for_each(|thread| {
            let (id, first) = (thread.thread_id, Some(ThreadHead::new(thread.thread_id)));
            self.log(GRAPHS, id, first, |head, _| head, &thread.events, GraphEvent::to_words)
        })
    }

    /// Writes a range log, or events after its ranges. A frame with this `first` head is written
    /// even without rows.
    pub(super) fn numbered<T, const WORDS: usize>(
        &mut self,
        kind: FrameKind,
        log: LogId,
        first: Option<ThreadHead>,
        slot: impl Fn(usize) -> u64,
        rows: &[T],
        to_words: impl Fn(&T) -> [u64; WORDS],
    ) -> io::Result<()> {
        let head = |head: ThreadHead, rows: Range<usize>| {
            ThreadHead { number: log.number, ..head }.at(rows.map(&slot).collect())
        };
        self.log(kind, log.thread_id, first, head, rows, to_words)
    }

    fn all_ranges(&mut self, thread: &ThreadRanges, first_log: u64) -> io::Result<()> {
        let log = LogId::new(thread.thread_id, thread.number, first_log);
        let first = ThreadHead {
            thread_name: thread.thread_name.clone(),
            names: thread.texts.texts.clone(),
            labels: Some(thread.texts.labels.clone()),
            ..ThreadHead::new(thread.thread_id)
        };
        let slot = |row| thread.slots.slot(row);
        self.numbered(RANGES, log, Some(first), slot, &thread.entries, |entry| entry.to_words())?;
        let slot = |row| thread.event_slots.slot(row);
        self.numbered(EVENTS, log, None, slot, &thread.events, |words| *words)
    }

    pub(super) fn series(&mut self, series: &Series) -> io::Result<()> {
        self.words.clear();
        series.words().for_each(|word| self.words.extend_from_slice(&word.to_le_bytes()));
        self.headed(SERIES, &series.head)
    }

    pub(super) fn instructions(&mut self, log: Option<&InstructionLog>) -> io::Result<()> {
        let Some(log) = log else { return Ok(()) };
        let (head, rows) = log.to_frame();
        self.words = rows;
        self.headed(INSTRUCTIONS, &head)
    }

    pub(super) fn host_stacks(&mut self, stacks: &HostStacks) -> io::Result<()> {
        if stacks.is_empty() { Ok(()) } else { self.json(HOST_STACKS, stacks) }
    }
}

/// Writes format 3. A truncated recording remains truncated.
pub(super) fn write(recording: &Recording, out: &mut dyn Write) -> io::Result<()> {
    let opening = Opening {
        info: recording.info.clone(),
        logs: Some((recording.logs.start, recording.logs.end)),
        appended: false,
    };
    let mut out = LogWriter::begin(out, &opening)?;
    // Before the logs, so that a truncated file has windows and clocks.
    out.json(STATE, &State::new(recording))?;
    out.json(NAMES, &Names::new(&recording.records, |_| false))?;
    out.records(&recording.records)?;
    out.all_calls(CALLS, &recording.calls)?;
    out.all_calls(RUNTIME_CALLS, &recording.runtime_calls)?;
    out.graphs(&recording.graphs)?;
    let first_log = recording.logs.start;
    recording.ranges.iter().try_for_each(|thread| out.all_ranges(thread, first_log))?;
    recording.series.iter().try_for_each(|series| out.series(series))?;
    out.instructions(recording.instructions.as_deref())?;
    out.host_stacks(&recording.host_stacks)?;
    if recording.is_truncated { Ok(()) } else { out.end().map(drop) }
}
