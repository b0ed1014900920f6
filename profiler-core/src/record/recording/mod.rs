//! The recording: three append-only logs (CUPTI's bytes, driver calls, ranges) with what is needed to read them
//! anywhere. Live runs, replays and tests all go through it; nothing in it is joined or judged yet.

mod check;
mod entries;
mod file;
mod frames;
mod info;
pub(crate) mod ranges;
pub(crate) mod segment;
mod slots;
pub(crate) mod tag;

use std::fs;
use std::io::{self, BufWriter, Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cupti::{
    ActivityKind, AttributeSetting, Clock, Reading, RecordBytes, RuntimeFunction, ThreadCalls,
    ThreadGraphs,
};

use crate::base::error::{Error, Kind};
use crate::base::replace;
use crate::record::series::Series;
pub use info::{DeviceInfo, RecordingInfo};
use segment::ThreadRanges;

/// Heads of frames and what is smaller than this are written together.
const WRITE_BYTES: usize = 64 << 10;

/// The raw logs of one session, whole or up to a snapshot. [`Profile::from_recording`](crate::Profile::from_recording) joins them.
///
/// ```
/// use profiler_core::{Profile, Recording};
///
/// # fn main() -> Result<(), profiler_core::Error> {
/// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
/// let recording = Recording::load(file)?;
/// println!("{}, truncated: {}", recording.info(), recording.is_truncated());
/// let profile = Profile::from_recording(recording);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    pub(crate) info: RecordingInfo,
    /// When the session was on, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) window_ns: (u64, u64),
    /// The parts of it that count: not paused, and switched on. In order and apart.
    pub(crate) windows_ns: Vec<(u64, u64)>,
    /// In a snapshot: from when on returned calls may have records that have not come yet.
    pub(crate) pending_from_ns: Option<u64>,
    pub(crate) clocks: Clocks,
    /// The numbers of its threads' logs, which the range tags of its calls carry.
    pub(crate) logs: Range<u64>,
    /// Records that have no call and a correlation id up to this are of calls before those that were kept.
    pub(crate) before_id: u32,
    /// Ranges of its collection that ended before it are not in it: what was started in them elsewhere has no outer range.
    pub(crate) begins_late: bool,
    pub(crate) records: RecordBytes,
    pub(crate) calls: Vec<ThreadCalls>,
    pub(crate) runtime_calls: Vec<ThreadCalls<RuntimeFunction>>,
    pub(crate) graphs: Vec<ThreadGraphs>,
    pub(crate) ranges: Vec<ThreadRanges>,
    pub(crate) attributes: Vec<AttributeSetting>,
    /// Kinds that were asked for where known, and that the library did not have.
    pub(crate) missing_kinds: Vec<ActivityKind>,
    pub(crate) losses: Losses,
    /// What samplers saw meanwhile.
    pub(crate) series: Vec<Arc<Series>>,
    /// It was read from a file that ends before the recording does.
    pub(crate) is_truncated: bool,
}

/// How the records' timestamps relate to `CLOCK_MONOTONIC`: readings in order, at least two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Clocks(Vec<Reading>);

impl Clocks {
    pub(crate) fn new(readings: Vec<Reading>) -> Self {
        Self(readings)
    }

    fn readings(&self) -> &[Reading] {
        &self.0
    }

    fn between(&self, first: usize) -> Clock {
        let none = Reading { at_ns: 0, offset_ns: 0 };
        let at = |at: usize| self.0.get(at).or(self.0.last()).copied().unwrap_or(none);
        Clock { start: at(first), stop: at(first + 1) }
    }

    /// A timestamp of CUPTI in `CLOCK_MONOTONIC`.
    #[inline]
    pub(crate) fn monotonic_ns(&self, cupti_ns: u64) -> u64 {
        let begun = match self.0.len() {
            0..=2 => 1,
            _ => self.0.partition_point(|reading| {
                cupti_ns.wrapping_add_signed(reading.offset_ns.wrapping_neg()) >= reading.at_ns
            }),
        };
        let last = self.0.len().saturating_sub(2);
        self.between(begun.saturating_sub(1).min(last)).monotonic_ns(cupti_ns)
    }

    /// By how much CUPTI's clock was set between any two readings.
    pub(crate) fn step_ns(&self) -> u64 {
        let steps = (0..self.0.len().saturating_sub(1)).map(|first| self.between(first).step_ns());
        steps.max().unwrap_or(0)
    }
}

/// What the collectors lost, for the health report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Losses {
    pub(crate) dropped_by_cupti: u64,
    pub(crate) over_memory_limit: u64,
    pub(crate) irregular: u64,
    pub(crate) unreadable_bytes: u64,
    pub(crate) panics: u64,
    pub(crate) unfinished_buffers: u64,
    pub(crate) buffers: u64,
    pub(crate) pool_misses: u64,
    #[serde(default)]
    pub(crate) refused_buffers: u64,
    #[serde(default)]
    pub(crate) refused_records: u64,
    #[serde(default)]
    pub(crate) before_switch: u64,
    #[serde(default)]
    pub(crate) handler_panics: u64,
    #[serde(default)]
    pub(crate) unlogged_calls: u64,
    #[serde(default)]
    pub(crate) missed_callbacks: u64,
    #[serde(default)]
    pub(crate) mismatched_buffers: u64,
    pub(crate) ranges: u64,
    #[serde(default)]
    pub(crate) earlier_contexts: u64,
    #[serde(default)]
    pub(crate) failed_threads: u64,
    #[serde(default)]
    pub(crate) forgotten_lanes: u64,
}

impl Losses {
    pub(crate) fn of(losses: &cupti::Losses) -> Self {
        Self {
            dropped_by_cupti: losses.dropped_by_cupti,
            over_memory_limit: losses.over_memory_limit,
            irregular: losses.irregular,
            unreadable_bytes: losses.unreadable_bytes,
            panics: losses.panics,
            unfinished_buffers: losses.unfinished_buffers,
            buffers: losses.buffers,
            pool_misses: losses.pool_misses,
            refused_buffers: losses.refused_buffers,
            refused_records: losses.refused_records,
            before_switch: losses.before_switch,
            handler_panics: losses.handler_panics,
            unlogged_calls: losses.unlogged_calls,
            missed_callbacks: losses.missed_callbacks,
            mismatched_buffers: losses.mismatched_buffers,
            ..Self::default()
        }
    }

    /// Every count.
    fn counts(&mut self) -> [&mut u64; 19] {
        let Self {
            dropped_by_cupti,
            over_memory_limit,
            irregular,
            unreadable_bytes,
            panics,
            unfinished_buffers,
            buffers,
            pool_misses,
            refused_buffers,
            refused_records,
            before_switch,
            handler_panics,
            unlogged_calls,
            missed_callbacks,
            mismatched_buffers,
            ranges,
            earlier_contexts,
            failed_threads,
            forgotten_lanes,
        } = self;
        [
            dropped_by_cupti,
            over_memory_limit,
            irregular,
            unreadable_bytes,
            panics,
            unfinished_buffers,
            buffers,
            pool_misses,
            refused_buffers,
            refused_records,
            before_switch,
            handler_panics,
            unlogged_calls,
            missed_callbacks,
            mismatched_buffers,
            ranges,
            earlier_contexts,
            failed_threads,
            forgotten_lanes,
        ]
    }

    /// As a file says, which may be damaged: no number that is added to overflows.
    pub(crate) fn clamped(mut self) -> Self {
        const MOST: u64 = 1 << 48;
        self.counts().into_iter().for_each(|count| *count = (*count).min(MOST));
        self
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let mut other = *other;
        for (sum, count) in self.counts().into_iter().zip(other.counts()) {
            *sum = sum.saturating_add(*count);
        }
    }
}

impl Recording {
    /// Where and when it was made.
    pub fn info(&self) -> &RecordingInfo {
        &self.info
    }

    /// The parts of the session that count, in nanoseconds of `CLOCK_MONOTONIC`: those in which it was neither paused nor
    /// switched off. In order and apart.
    pub fn windows_ns(&self) -> &[(u64, u64)] {
        &self.windows_ns
    }

    /// How long the session was on.
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_nanos(self.window_ns.1.saturating_sub(self.window_ns.0))
    }

    /// Calls that had not returned at the end.
    pub(crate) fn open_calls(&self) -> impl Iterator<Item = &cupti::Call> {
        let calls = self.calls.iter().flat_map(|thread| &thread.calls);
        calls.filter(|call| call.end_ns.is_none())
    }

    /// True if it is a snapshot of a session that went on.
    pub fn is_snapshot(&self) -> bool {
        self.pending_from_ns.is_some()
    }

    /// True if it was read from a file that ends before the recording does: the writer was killed, the disk was full, or
    /// it is still being written. [`Health::truncated`](crate::Health::truncated) counts it.
    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// The calls of the runtime API, by thread, where they were logged.
    pub fn runtime_calls(&self) -> &[ThreadCalls<RuntimeFunction>] {
        &self.runtime_calls
    }

    /// What was done to CUDA graphs, by thread, where that was logged.
    pub fn graphs(&self) -> &[ThreadGraphs] {
        &self.graphs
    }

    /// CUPTI's attributes that the session had set.
    pub fn attributes(&self) -> &[AttributeSetting] {
        &self.attributes
    }

    /// Kinds of records that were asked for where known, and that the library did not have.
    pub fn missing_kinds(&self) -> &[ActivityKind] {
        &self.missing_kinds
    }

    /// CUPTI's activity records, as it wrote them.
    pub fn records(&self) -> &RecordBytes {
        &self.records
    }

    /// The driver calls that were logged, by thread.
    pub fn calls(&self) -> &[ThreadCalls] {
        &self.calls
    }

    /// What samplers saw of the devices meanwhile.
    pub fn series(&self) -> &[Arc<Series>] {
        &self.series
    }

    /// The same with one more series: of another sampler, or made by a program. Its times are those of
    /// [`windows_ns`](Self::windows_ns).
    #[must_use]
    pub fn with_series(mut self, series: Series) -> Self {
        self.series.push(Arc::new(series));
        self
    }

    /// Writes it to a file. What is there already is replaced when the new one is whole, by one with the same permissions; a
    /// link is followed. After an error it is as it was.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let content = |file: &fs::File| self.write_to(BufWriter::with_capacity(WRITE_BYTES, file));
        replace::write(path, content).map_err(|source| {
            Error::new(Kind::Io { what: "write", path: path.to_owned(), source: Arc::new(source) })
        })
    }

    /// Writes it to a file, a pipe or a socket, in many small writes: give a buffered one.
    ///
    /// # Errors
    /// Those of the writer. What it has then is a truncated recording.
    pub fn write_to(&self, out: impl Write) -> io::Result<()> {
        file::write(self, out)?.flush()
    }

    /// The size of the largest file that [`load`](Self::load) reads: 4 GiB, some 14 million kernels with their launches.
    pub const MAX_BYTES: u64 = 4 << 30;

    /// Reads a file that [`save`](Self::save) wrote, of at most [`MAX_BYTES`](Self::MAX_BYTES).
    ///
    /// A file that ends before the recording does is no error: see [`is_truncated`](Self::is_truncated).
    ///
    /// # Errors
    /// The file cannot be read, or [`is_format`](Error::is_format): not a recording, damaged, too large, or written by a
    /// newer version.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::load_up_to(path, Self::MAX_BYTES)
    }

    /// The same with another limit. Reading takes up to ten times the memory of the file, which holds for damaged files
    /// too.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_up_to(path: impl AsRef<Path>, max_bytes: u64) -> Result<Self, Error> {
        let path = path.as_ref();
        let io_error = |source| {
            Error::new(Kind::Io { what: "read", path: path.to_owned(), source: Arc::new(source) })
        };
        let file = fs::File::open(path).map_err(io_error)?;
        let about = file.metadata().map_err(io_error)?;
        if about.is_file() && about.len() > max_bytes {
            return Err(frames::too_large(about.len(), max_bytes).of_file(path));
        }
        Self::read_from(file, max_bytes).map_err(|error| error.of_file(path))
    }

    /// Reads a recording from a file, a pipe or a socket to its end, and at most so many bytes. Its frames are read and
    /// verified one by one: a source without an end is an error as soon as it sends what is no frame, or the limit is
    /// reached.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn read_from(source: impl Read, max_bytes: u64) -> Result<Self, Error> {
        file::read(source, max_bytes)
    }

    /// The file's content.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Writing to memory does not fail.
        file::write(self, Vec::new()).unwrap_or_default()
    }

    /// Reads the content of a file.
    ///
    /// # Errors
    /// [`is_format`](Error::is_format): not a recording, damaged, or written by a newer version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Self::read_from(bytes, u64::MAX)
    }
}
