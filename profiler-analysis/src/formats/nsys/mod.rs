//! Captures of Nsight Systems: reading and writing the SQLite files of `nsys export --type sqlite`.
//!
//! Tables and columns follow "Exported data" in NVIDIA's Nsight Systems user guide, for schemas 3.7
//! to 3.25. Missing tables and columns are read as empty. The same rows are written to Parquet
//! files: see `parquet`.

#[cfg(feature = "nsys")]
mod database;
pub(crate) mod destination;
#[cfg(feature = "nsys")]
mod file;
mod format;
#[cfg(feature = "nsys")]
mod metrics;
#[cfg(feature = "nsys")]
mod read;
pub(crate) mod schema;
#[cfg(feature = "nsys")]
mod sqlite;
pub(crate) mod write;

#[cfg(feature = "nsys")]
use std::collections::BTreeSet;
#[cfg(feature = "nsys")]
use std::fmt;
#[cfg(feature = "nsys")]
use std::path::Path;

#[cfg(feature = "nsys")]
use crate::error::Error;
#[cfg(feature = "nsys")]
pub use database::{Database, DatabaseLimits, QueryPage};
#[cfg(feature = "nsys")]
use profiler_core::profile::Profile;
#[cfg(feature = "nsys")]
use profiler_core::tables::Joined;

/// Reads a capture of Nsight Systems: a file of `nsys export --type sqlite`.
///
/// Calls are matched to ranges by thread and time, and GPU operations to calls by process and
/// correlation id: see [`Attribution::Contained`](profiler_core::profile::Attribution::Contained).
/// Times are nsys's, in nanoseconds since its session's start.
/// [`ApiCall::process_id`](profiler_core::profile::ApiCall::process_id) and similar methods
/// distinguish several processes. Metrics sampled by nsys (`--gpu-metrics-devices`) are
/// [tracks](Profile::tracks), in whole percent like in nsys. [`health`](Profile::health) counts
/// unreadable data. There is no [`recording`](Profile::recording). Reading takes about a
/// microsecond per operation.
///
/// Rows may be in any order. Negative times, before nsys's session, are retained: the profile then
/// starts with the first event, and [reports](crate::reports) have nsys's own times. A range
/// without an end lasts until the end of the capture. Each graph traced as one interval is an
/// [operation](profiler_core::profile::OperationKind::Graph).
///
/// A write-ahead log beside the file is read too. SQLite writes an index for it in the folder. If
/// SQLite cannot, a copy of both files among temporary files (`TMPDIR`) is read. With an empty or
/// missing log the file is opened as immutable, without a lock: concurrent writes make the result
/// wrong.
///
/// # Errors
/// The file cannot be opened. [`is_format`](Error::is_format): the file is no capture, or a damaged
/// one.
#[cfg(feature = "nsys")]
pub fn read(path: impl AsRef<Path>) -> Result<Profile, Error> {
    read_rows(path).map(Profile::from)
}

/// Reads the rows of a capture, for a [`Merger`](profiler_core::profile::Merger) of several.
///
/// # Errors
/// As for [`read`].
#[cfg(feature = "nsys")]
pub fn read_rows(path: impl AsRef<Path>) -> Result<Joined, Error> {
    read::read(&file::File::open(path.as_ref())?)
}

/// The place of a capture in a job: its machine and the environment of `nsys profile`.
#[cfg(feature = "nsys")]
#[derive(Default)]
pub struct Origin {
    machine: Option<String>,
    mpi_rank: Option<u32>,
    /// Private: it contains the user's secrets.
    environment: String,
}

#[cfg(feature = "nsys")]
impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Origin");
        shown.field("machine", &self.machine).field("mpi_rank", &self.mpi_rank);
        shown.finish_non_exhaustive()
    }
}

#[cfg(feature = "nsys")]
impl Origin {
    /// Reads the tables about the machine, and of MPI's ranks.
    ///
    /// # Errors
    /// As for [`read`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self, Error> {
        let file = file::File::open(path.as_ref())?;
        let mut origin = Self::default();
        file.rows(schema::MACHINE, |row| match (row.text(0).as_deref(), row.text(1)) {
            (Some("Hostname"), Some(name)) => origin.machine = Some(name.into_owned()),
            (Some("DeviceEnvironment"), Some(text)) => origin.environment = text.into_owned(),
            _ => {}
        })?;
        let mut ranks = BTreeSet::new();
        file.rows(schema::MPI_RANKS, |row| ranks.extend(row.number::<u32>(1)))?;
        origin.mpi_rank = ranks.first().copied().filter(|_| ranks.len() == 1);
        Ok(origin)
    }

    /// The name of the machine.
    pub fn machine(&self) -> Option<&str> {
        self.machine.as_deref()
    }

    /// The rank of the traced calls of MPI (`nsys profile --trace=mpi`). `None` without them, and
    /// if the capture has several.
    pub fn mpi_rank(&self) -> Option<u32> {
        self.mpi_rank
    }

    /// A variable in the environment of `nsys profile`; `None` without it, and in a capture without
    /// an environment.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let is_zero_terminated = self.environment.contains('\0');
        let end = if is_zero_terminated { '\0' } else { '\n' };
        let mut variables = self.environment.split(end);
        variables.find_map(|variable| variable.strip_prefix(name)?.strip_prefix('='))
    }
}

#[cfg(feature = "nsys")]
/// [`ProfileExt::write_nsys`](crate::prelude::ProfileExt::write_nsys).
pub(crate) fn write_nsys(
    profile: &Profile,
    path: impl AsRef<Path>,
    progress: impl FnMut(u64, u64),
) -> Result<(), Error> {
    sqlite::write(profile, path.as_ref(), progress)
}
