//! The recording: three append-only logs (CUPTI's bytes, driver calls, ranges) with what is needed to read them
//! anywhere. Live runs, replays and tests all go through it; nothing in it is joined or judged yet.

mod file;
mod info;
pub(crate) mod ranges;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use cupti::{
    ActivityKind, AttributeSetting, Clock, RecordBytes, RuntimeFunction, ThreadCalls, ThreadGraphs,
};

use crate::error::{Error, Kind};
pub use info::{DeviceInfo, RecordingInfo};
use ranges::ThreadRanges;

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
    pub(crate) clock: Clock,
    /// The epoch that the range words of its calls carry.
    pub(crate) epoch: u32,
    pub(crate) records: RecordBytes,
    pub(crate) calls: Vec<ThreadCalls>,
    pub(crate) runtime_calls: Vec<ThreadCalls<RuntimeFunction>>,
    pub(crate) graphs: Vec<ThreadGraphs>,
    pub(crate) ranges: Vec<ThreadRanges>,
    pub(crate) attributes: Vec<AttributeSetting>,
    /// Kinds that were asked for where known, and that the library did not have.
    pub(crate) missing_kinds: Vec<ActivityKind>,
    pub(crate) losses: Losses,
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
        Self::from_bytes(&bytes)
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
