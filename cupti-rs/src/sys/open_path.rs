//! CUPTI from a file that the program names.

use std::path::Path;

use super::loader::open_file;
use crate::error::Error;

impl crate::Library {
    /// Opens CUPTI from this file and no other.
    ///
    /// # Safety
    /// The file is a libcupti, or cannot be loaded: its initialisers run, and functions of CUPTI's
    /// names in it are called as CUPTI declares them.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub unsafe fn open_path(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(|_| {
            // SAFETY: the caller's promise.
            unsafe { open_file(path.as_ref()) }
        })
    }
}

impl crate::counters::HostLibrary {
    /// Opens CUPTI from this file and no other.
    ///
    /// # Safety
    /// As for [`Library::open_path`](crate::Library::open_path).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub unsafe fn open_path(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(|_| {
            // SAFETY: the caller's promise.
            unsafe { open_file(path.as_ref()) }
        })
    }
}
