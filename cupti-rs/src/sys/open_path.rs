//! CUPTI from a file that the program names, or from functions of the program.

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use super::api::Api;
use super::driver::Contexts;
use super::loader::open_file;
use crate::device::Driver;
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

    /// Builds a library from functions instead of a file: those that `function` finds by CUPTI's
    /// names, and by the driver's for contexts and memory. `path` names the library in texts.
    ///
    /// # Safety
    /// A function that is found has the type that CUPTI or the driver declares for its name, and
    /// stays as long as the process.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[doc(hidden)]
    pub unsafe fn from_functions(
        function: impl Fn(&str) -> Option<NonNull<c_void>>,
        path: impl Into<PathBuf>,
        driver: Driver,
    ) -> Result<Self, Error> {
        let path = path.into();
        // SAFETY: the caller's promise.
        let api = unsafe { Api::load(&function, &path) }?;
        // SAFETY: as above.
        let contexts = unsafe { Contexts::load(&function) }.ok();
        Self::from_parts(Api { contexts, ..api }, path, driver)
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

impl crate::pc_sampling::SourceLines {
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
