//! Source lines of instructions.

use std::ffi::CString;
use std::fmt;

use super::samples::PcCubin;
use crate::error::{Error, Kind};
use crate::library::Library;
use crate::sys::pc_sampling;

/// A line of a program's source.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct SourceLine {
    /// The folder, as the compiler wrote it; may be empty.
    pub folder: String,
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.folder.is_empty() {
            write!(f, "{}/", self.folder)?;
        }
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl Library {
    /// Returns the source line of an instruction; `None` if the line table lacks it.
    ///
    /// Takes some 20 us: resolve lines when samples are read, not while a program runs. Needs
    /// neither a GPU nor a collection.
    ///
    /// # Errors
    ///
    /// The library lacks the function, the name contains a NUL, or CUPTI refuses: with UNKNOWN (999)
    /// if the cubin has no such function.
    pub fn source_line(
        &self,
        cubin: &PcCubin,
        function: &str,
        pc_offset: u64,
    ) -> Result<Option<SourceLine>, Error> {
        let lacks = || self.lacks("source lines of instructions".into(), "");
        let api = self.api.pc_sampling.as_ref().ok_or_else(lacks)?;
        let name = CString::new(function)
            .map_err(|_| Error::new(Kind::NotAName { name: function.to_owned() }))?;
        let (folder, file, line) = pc_sampling::source_line(api, &cubin.bytes, &name, pc_offset)?;
        Ok((!file.is_empty() && line != 0).then_some(SourceLine { folder, file, line }))
    }
}
