//! Source lines of instructions.

use std::ffi::CString;

use super::samples::{PcCubin, SourceLine};
use crate::error::{Error, Kind};
use crate::library::{self, Library};
use crate::sys::api::Api;
use crate::sys::counters::PcSamplingApi;
use crate::sys::{loader, pc_sampling};
use crate::version::Version;

/// A libcupti that finds source lines of instructions. Unlike [`Library`] it needs no GPU, and up to
/// CUPTI 13.1 no driver.
#[derive(Debug, Clone)]
pub struct SourceLines {
    api: PcSamplingApi,
}

impl SourceLines {
    /// Opens the libcupti that [`Library::open`] would open.
    ///
    /// # Errors
    ///
    /// [`is_unavailable`](Error::is_unavailable): no libcupti, or one of 13.2 or later without a
    /// driver.
    pub fn open() -> Result<Self, Error> {
        Self::open_with(loader::open)
    }

    pub(crate) fn open_with(
        open: impl FnOnce(u32) -> Result<loader::Found, Error>,
    ) -> Result<Self, Error> {
        let (api, version, _) = library::open_without_gpu(open)?;
        Self::from_api(&api, version)
    }

    fn from_api(api: &Api, version: Version) -> Result<Self, Error> {
        let lacks = || {
            let what = "source lines of instructions".to_owned();
            Error::new(Kind::Lacks { what, since: "", version })
        };
        Ok(Self { api: api.pc_sampling.ok_or_else(lacks)? })
    }

    /// Returns the source line of an instruction; `None` if the line table lacks it. `pc_offset` is
    /// in bytes from the begin of the function.
    ///
    /// Takes some 20 us: find lines when samples are read, not while the program runs.
    ///
    /// # Errors
    ///
    /// The name contains a NUL, or CUPTI refuses it: the cubin has no such function.
    pub fn find(
        &self,
        cubin: &PcCubin,
        function: &str,
        pc_offset: u64,
    ) -> Result<Option<SourceLine>, Error> {
        let name = CString::new(function)
            .map_err(|_| Error::new(Kind::NotAName { name: function.to_owned() }))?;
        pc_sampling::source_line(&self.api, cubin.bytes(), &name, pc_offset).map(SourceLine::new)
    }
}

impl Library {
    /// Finds source lines with this library.
    ///
    /// # Errors
    /// The library lacks the function.
    pub fn source_lines(&self) -> Result<SourceLines, Error> {
        SourceLines::from_api(&self.api, self.version())
    }
}
