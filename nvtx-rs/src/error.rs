//! The error type of the crate.

use std::error;
use std::ffi::OsStr;
use std::fmt;

/// The environment variable with the path of a tool's library; NVTX has one for each pointer width.
pub(crate) const PATH_VARIABLE: &str = if cfg!(target_pointer_width = "32") {
    "NVTX_INJECTION32_PATH"
} else {
    "NVTX_INJECTION64_PATH"
};

/// The reason why a tool could not be attached, an observer not installed, or a record not made.
///
/// Ranges continue in every case.
pub struct Error(Kind);

#[derive(Debug)]
enum Kind {
    Mismatch { schema: &'static str, why: String },
    NotLoaded { library: String, reason: String },
    NoEntryPoint { library: String, reason: String },
    Refused { library: String },
    Taken,
    Disabled,
}

impl Error {
    /// True if another observer holds the slot.
    pub fn is_taken(&self) -> bool {
        matches!(self.0, Kind::Taken)
    }

    /// True if the crate was built without its feature `enable`, so that no range is observed.
    pub fn is_disabled(&self) -> bool {
        matches!(self.0, Kind::Disabled)
    }

    /// True if the values of a record do not match its schema.
    pub fn is_mismatch(&self) -> bool {
        matches!(self.0, Kind::Mismatch { .. })
    }

    pub(crate) fn mismatch(schema: &'static str, why: String) -> Error {
        Error(Kind::Mismatch { schema, why })
    }

    pub(crate) fn disabled() -> Error {
        Error(Kind::Disabled)
    }

    pub(crate) fn slot_taken() -> Error {
        Error(Kind::Taken)
    }

    pub(crate) fn not_loaded(library: &OsStr, reason: &dyn error::Error) -> Error {
        Error(Kind::NotLoaded {
            library: library.display().to_string(),
            reason: whole_text(reason),
        })
    }

    pub(crate) fn no_entry_point(library: &OsStr, reason: &dyn error::Error) -> Error {
        Error(Kind::NoEntryPoint {
            library: library.display().to_string(),
            reason: whole_text(reason),
        })
    }

    pub(crate) fn refused(library: &OsStr) -> Error {
        Error(Kind::Refused { library: library.display().to_string() })
    }
}

/// The text of an error and of its sources; the last one is the loader's message.
fn whole_text(error: &dyn error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// The text of `Display`: `main` prints a returned error this way.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Mismatch { schema, why } => write!(
                f,
                "nvtx: could not make a record of the schema `{schema}`: {why}; give values that match its entries"
            ),
            Kind::NotLoaded { library, reason } => write!(
                f,
                "nvtx: could not load the tool `{library}`, which {PATH_VARIABLE} names: {reason}; \
                 correct or unset the variable (ranges go on without the tool)"
            ),
            Kind::NoEntryPoint { library, reason } => write!(
                f,
                "nvtx: `{library}`, which {PATH_VARIABLE} names, is no NVTX v3 tool: {reason}; \
                 correct or unset the variable (ranges go on without the tool)"
            ),
            Kind::Refused { library } => write!(
                f,
                "nvtx: the tool `{library}`, which {PATH_VARIABLE} names, refused to attach: its \
                 InitializeInjectionNvtx2 returned 0; see the tool's own messages, or unset the \
                 variable (ranges go on without the tool)"
            ),
            Kind::Taken => f.write_str(
                "nvtx: could not install the observer: another one holds the slot, and there is one \
                 for the life of the process; use one profiler in a process",
            ),
                    Kind::Disabled => f.write_str(
                "nvtx: could not install the observer: the crate was built without its feature \
                 `enable`, so it would see no range; turn the feature on",
            ),
        }
    }
}

impl error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `fn main() -> Result<(), Error>` prints after `Error: `.
    #[test]
    fn debug_text_is_that_for_people() {
        let error = Error::mismatch("point", "2 values for 3 fields".to_owned());
        assert_eq!(format!("{error:?}"), error.to_string());
        assert!(error.to_string().contains("2 values for 3 fields"), "{error}");
    }
}
