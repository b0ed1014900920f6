//! Captures of Nsight Systems: the SQLite file that `nsys export --type sqlite` writes, read and written.
//!
//! The tables and their columns are those of NVIDIA's document "Exported data" of the Nsight Systems user guide; schemas
//! 3.7 to 3.25 are known. Nothing is taken for granted: a table or column that is not there is empty. The same rows go to
//! Parquet files: see `parquet`.

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
use crate::base::error::Error;
#[cfg(feature = "nsys")]
use crate::profile::Profile;

/// How far a capture is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    not(feature = "nsys"),
    allow(unreachable_pub, reason = "named by what nsys needs alone")
)]
pub struct Progress {
    /// Rows that are written.
    pub rows: u64,
    /// All of them, as far as is known.
    pub of: u64,
}

#[cfg(feature = "nsys")]
impl Profile {
    /// Reads a capture of Nsight Systems: the file that `nsys export --type sqlite` wrote.
    ///
    /// Calls and ranges come together by thread and time, and GPU operations join their call by process and correlation
    /// id: see [`Attribution::Contained`](crate::profile::Attribution::Contained). Times are nsys's own, in nanoseconds since its
    /// session's start. Several processes may be in it: [`ApiCall::process_id`](crate::profile::ApiCall::process_id) and the like
    /// tell them apart. What nsys sampled of the devices (`--gpu-metrics-devices`) are [tracks](Self::tracks), in whole percent as
    /// nsys has them. What cannot be read is counted in [`health`](Self::health). There is no
    /// [`recording`](Self::recording). Costs some microsecond an operation.
    ///
    /// Rows may stand in any order. Times before nsys's session (negative ones) are kept: the profile then begins with the
    /// first event, and [reports](crate::reports) have nsys's own times. A range without an end lasts until the end of the
    /// capture. Graphs that nsys traced as one interval each are [operations](crate::profile::OperationKind::Graph).
    ///
    /// A file with a write-ahead log beside it is read with the log's changes, for which SQLite has to write an index in its
    /// folder. Where it cannot, a copy of both files is read, which stands among temporary files (`TMPDIR`) until it is open.
    /// Where the log is empty or gone the file is opened as one that does not change, without a lock: a program
    /// that writes to it meanwhile makes what is read wrong.
    ///
    /// # Errors
    /// The file cannot be opened, or [`is_format`](Error::is_format): no SQLite, no capture, or a damaged one.
    pub fn from_nsys(path: impl AsRef<Path>) -> Result<Self, Error> {
        let (store, info, health) = read::read(&file::File::open(path.as_ref())?)?;
        Ok(Self::from_store(store, info, health))
    }

    /// Writes the profile as such a file, which `nsys stats`, `nsys analyze` and what else reads those of nsys can read. It
    /// is there when it is whole; a file that is there already is replaced, and of a link the file that it leads to.
    /// `progress` is told every 50,000 rows and at the end.
    ///
    /// Ranges of a profile that was read from a capture keep their row's number there, which nsys's reports call `RangeId`.
    /// It holds no environment, user, host name or path. Where the profile has its [`recording`](Self::recording), kernels
    /// have their grid id, launch type and total of local memory. Calls of the driver API are in it as such: nsys's sums and traces
    /// show them, and its rules, which look for names of the runtime API alone, do not. Of a call of the runtime API and the
    /// driver call that it makes it holds the former, as nsys's own do. nsys has no place for the stays of
    /// [`process_ranges`](Self::process_ranges), for where graph nodes were made, for ranges that were handed to other
    /// threads, and for the units of fields. Of what was [sampled](Self::tracks) it holds the counters, with the unit in the name (`DRAM read
    /// [B per sample]`) and values that nsys would round, and not what NVML said. Costs some 2 us an operation with its call.
    ///
    /// # Errors
    /// The file cannot be written, or what is there is no file: a directory, a device, a pipe, a link that leads nowhere.
    pub fn write_nsys(
        &self,
        path: impl AsRef<Path>,
        progress: impl FnMut(Progress),
    ) -> Result<(), Error> {
        sqlite::write(self, path.as_ref(), progress)
    }
}
