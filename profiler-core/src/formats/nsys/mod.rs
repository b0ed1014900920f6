//! Captures of Nsight Systems: reading and writing the SQLite files of `nsys export --type sqlite`.
//!
//! Tables and columns are those of "Exported data" in NVIDIA's Nsight Systems user guide; schemas
//! 3.7 to 3.25 are known. Missing tables and columns are read as empty. The same rows are written
//! to Parquet files: see `parquet`.

#[cfg(feature = "nsys")]
mod file;
mod format;
#[cfg(feature = "nsys")]
mod metrics;
#[cfg(feature = "nsys")]
mod nesting;
#[cfg(feature = "nsys")]
mod read;
pub(crate) mod schema;
#[cfg(feature = "nsys")]
mod sqlite;
pub(crate) mod tables;
pub(crate) mod write;

#[cfg(feature = "nsys")]
use std::path::Path;

#[cfg(feature = "nsys")]
use crate::error::Error;
#[cfg(feature = "nsys")]
use crate::profile::Profile;

/// The progress of writing a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    not(feature = "nsys"),
    allow(unreachable_pub, reason = "named by what nsys needs alone")
)]
pub struct Progress {
    /// Written rows.
    pub rows: u64,
    /// Total rows, as far as known.
    pub of: u64,
}

#[cfg(feature = "nsys")]
impl Profile {
    /// Reads a capture of Nsight Systems: a file of `nsys export --type sqlite`.
    ///
    /// Calls are matched to ranges by thread and time, and GPU operations to calls by process and
    /// correlation id: see [`Attribution::Contained`](crate::profile::Attribution::Contained).
    /// Times are nsys's, in nanoseconds since its session's start. Several processes are
    /// distinguished by [`ApiCall::process_id`](crate::profile::ApiCall::process_id) and similar
    /// methods. Metrics sampled by nsys (`--gpu-metrics-devices`) are [tracks](Self::tracks), in
    /// whole percent as in nsys. Unreadable data is counted in [`health`](Self::health). There is
    /// no [`recording`](Self::recording). Reading takes about a microsecond an operation.
    ///
    /// Rows may be in any order. Negative times, before nsys's session, are kept: the profile then
    /// starts with the first event, and [reports](crate::reports) have nsys's own times. A range
    /// without an end lasts until the end of the capture. Graphs traced as one interval each are
    /// [operations](crate::profile::OperationKind::Graph).
    ///
    /// A write-ahead log beside the file is read too, for which SQLite writes an index in the
    /// folder. If it cannot, a copy of both files among temporary files (`TMPDIR`) is read. With an
    /// empty or missing log the file is opened as immutable, without a lock: concurrent writes make
    /// the result wrong.
    ///
    /// # Errors
    /// The file cannot be opened, or [`is_format`](Error::is_format): no capture, or a damaged one.
    pub fn from_nsys(path: impl AsRef<Path>) -> Result<Self, Error> {
        let (store, info, health) = read::read(&file::File::open(path.as_ref())?)?;
        Ok(Self::from_store(store, info, health))
    }

    /// Writes the profile as such a file for `nsys stats`, `nsys analyze` and other readers of
    /// nsys's files. The file appears when complete; an existing file is replaced, through a link
    /// if it is one. `progress` is called every 50,000 rows and at the end.
    ///
    /// Ranges read from a capture keep their row number, which nsys's reports call `RangeId`. The
    /// file contains no environment, user, host name or path. With the profile's
    /// [`recording`](Self::recording), kernels have their grid id, launch type and total of local
    /// memory. Calls of the driver API appear in nsys's sums and traces, but not in its rules,
    /// which search for names of the runtime API. A call of the runtime API replaces the driver
    /// call it makes, as in nsys's own files. nsys has no place for activations of
    /// [`process_ranges`](Self::process_ranges), the ranges of graph nodes, ranges handed to other
    /// threads, and units of fields. Of [samples](Self::tracks) the file contains counters, with
    /// the unit in the name (`DRAM read [B per sample]`) and unrounded values, but no NVML samples.
    /// Writing takes about 2 us for an operation with its call.
    ///
    /// # Errors
    /// The file cannot be written, or the path is a directory, device, pipe, or dangling link.
    pub fn write_nsys(
        &self,
        path: impl AsRef<Path>,
        progress: impl FnMut(Progress),
    ) -> Result<(), Error> {
        sqlite::write(self, path.as_ref(), progress)
    }
}
