//! Captures of Nsight Systems: the SQLite file that `nsys export --type sqlite` writes, read and written.
//!
//! The tables and their columns are those of NVIDIA's document "Exported data" of the Nsight Systems user guide; schemas
//! 3.7 to 3.25 are known. Nothing is taken for granted: a table or column that is not there is empty.

mod file;
mod format;
mod nesting;
mod read;

use std::path::Path;

use crate::error::Error;
use crate::profile::Profile;

impl Profile {
    /// Reads a capture of Nsight Systems: the file that `nsys export --type sqlite` wrote.
    ///
    /// Calls and ranges come together by thread and time, and GPU operations join their call by process and correlation
    /// id: see [`Attribution::Contained`](crate::Attribution::Contained). Times are nsys's own, in nanoseconds since its
    /// session's start. Several processes may be in it: [`ApiCall::process_id`](crate::ApiCall::process_id) and the like
    /// tell them apart. What cannot be read is counted in [`health`](Self::health). There is no
    /// [`recording`](Self::recording). Costs some microsecond an operation.
    ///
    /// # Errors
    /// The file cannot be opened, or [`is_format`](Error::is_format): no SQLite, no capture, or a damaged one.
    pub fn from_nsys(path: impl AsRef<Path>) -> Result<Self, Error> {
        let (store, info, health) = read::read(&file::File::open(path.as_ref())?)?;
        Ok(Self::from_store(store, info, health))
    }
}
