//! The recording: three append-only logs (CUPTI's bytes, driver calls, ranges) with what is needed to read them
//! anywhere. Live runs, replays and tests all go through it; nothing in it is joined or judged yet.

mod file;
mod info;
pub(crate) mod parts;
pub(crate) mod ranges;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cupti::{
    ActivityKind, AttributeSetting, Clock, Reading, RecordBytes, RuntimeFunction, ThreadCalls,
    ThreadGraphs,
};

use crate::error::{Error, Kind};
use crate::series::Series;
pub use info::{DeviceInfo, RecordingInfo};
use parts::ThreadRanges;

/// The raw logs of one session, whole or up to a snapshot. [`Profile::from_recording`](crate::Profile::from_recording) reads them.
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
    /// The epoch that the range words of its calls carry.
    pub(crate) epoch: u32,
    /// Records that have no call and a correlation id up to this are of calls before those that were kept.
    pub(crate) before_id: u32,
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
    pub(crate) ranges: u64,
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
            ranges: 0,
            forgotten_lanes: 0,
        }
    }

    /// As a file says, which may be damaged: no number that is added to overflows.
    pub(crate) fn clamped(self) -> Self {
        const MOST: u64 = 1 << 48;
        Self {
            dropped_by_cupti: self.dropped_by_cupti.min(MOST),
            over_memory_limit: self.over_memory_limit.min(MOST),
            irregular: self.irregular.min(MOST),
            unreadable_bytes: self.unreadable_bytes.min(MOST),
            panics: self.panics.min(MOST),
            unfinished_buffers: self.unfinished_buffers.min(MOST),
            buffers: self.buffers.min(MOST),
            pool_misses: self.pool_misses.min(MOST),
            refused_buffers: self.refused_buffers.min(MOST),
            refused_records: self.refused_records.min(MOST),
            before_switch: self.before_switch.min(MOST),
            handler_panics: self.handler_panics.min(MOST),
            ranges: self.ranges.min(MOST),
            forgotten_lanes: self.forgotten_lanes.min(MOST),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.dropped_by_cupti += other.dropped_by_cupti;
        self.over_memory_limit += other.over_memory_limit;
        self.irregular += other.irregular;
        self.unreadable_bytes += other.unreadable_bytes;
        self.panics += other.panics;
        self.unfinished_buffers += other.unfinished_buffers;
        self.buffers += other.buffers;
        self.pool_misses += other.pool_misses;
        self.refused_buffers += other.refused_buffers;
        self.refused_records += other.refused_records;
        self.before_switch += other.before_switch;
        self.handler_panics += other.handler_panics;
        self.ranges += other.ranges;
        self.forgotten_lanes += other.forgotten_lanes;
    }
}

impl Recording {
    /// Where and when it was made.
    #[must_use]
    pub fn info(&self) -> &RecordingInfo {
        &self.info
    }

    /// The parts of the session that count, in nanoseconds of `CLOCK_MONOTONIC`: those in which it was neither paused nor
    /// switched off. In order and apart.
    #[must_use]
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
    #[must_use]
    pub fn is_snapshot(&self) -> bool {
        self.pending_from_ns.is_some()
    }

    /// The calls of the runtime API, by thread, where they were logged.
    #[must_use]
    pub fn runtime_calls(&self) -> &[ThreadCalls<RuntimeFunction>] {
        &self.runtime_calls
    }

    /// What was done to CUDA graphs, by thread, where that was logged.
    #[must_use]
    pub fn graphs(&self) -> &[ThreadGraphs] {
        &self.graphs
    }

    /// CUPTI's attributes that the session had set.
    #[must_use]
    pub fn attributes(&self) -> &[AttributeSetting] {
        &self.attributes
    }

    /// Kinds of records that were asked for where known, and that the library did not have.
    #[must_use]
    pub fn missing_kinds(&self) -> &[ActivityKind] {
        &self.missing_kinds
    }

    /// CUPTI's activity records, as it wrote them.
    #[must_use]
    pub fn records(&self) -> &RecordBytes {
        &self.records
    }

    /// The driver calls that were logged, by thread.
    #[must_use]
    pub fn calls(&self) -> &[ThreadCalls] {
        &self.calls
    }

    /// What samplers saw of the devices meanwhile.
    #[must_use]
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

    /// Writes it to a file, replacing what is there.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        fs::write(path, self.to_bytes()).map_err(|source| {
            Error::new(Kind::Io { what: "write", path: path.to_owned(), source: Arc::new(source) })
        })
    }

    /// Reads a file that [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// The file cannot be read, or [`is_format`](Error::is_format).
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let bytes = fs::read(path).map_err(|source| {
            Error::new(Kind::Io { what: "read", path: path.to_owned(), source: Arc::new(source) })
        })?;
        Self::from_bytes(&bytes).map_err(|error| error.of_file(path))
    }

    /// The file's content.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        file::write(self)
    }

    /// Reads the content of a file.
    ///
    /// # Errors
    /// [`is_format`](Error::is_format): not a recording, cut short, or written by a newer version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        file::read(bytes)
    }
}
