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
pub struct Error {
    kind: Kind,
    text: String,
}

#[derive(PartialEq, Eq)]
enum Kind {
    Mismatch,
    Tool,
    Taken,
    Disabled,
}

impl Error {
    /// True if another observer holds the slot.
    pub fn is_taken(&self) -> bool {
        self.kind == Kind::Taken
    }

    /// True if the crate was built without its feature `enable`, so that no range is observed.
    pub fn is_disabled(&self) -> bool {
        self.kind == Kind::Disabled
    }

    /// True if the values of a record do not match its schema.
    pub fn is_mismatch(&self) -> bool {
        self.kind == Kind::Mismatch
    }

    pub(crate) fn mismatch(schema: &str, why: &str) -> Error {
        let text = format!(
            "could not make a record of the schema `{schema}`: {why}; give values that match its entries"
        );
        Error { kind: Kind::Mismatch, text }
    }

    pub(crate) fn disabled() -> Error {
        let text = "could not install the observer: the crate was built without its feature \
                    `enable`, so it would see no range; turn the feature on";
        Error { kind: Kind::Disabled, text: text.to_owned() }
    }

    pub(crate) fn slot_taken() -> Error {
        let text = "could not install the observer: another one holds the slot, and there is one \
                    for the life of the process; use one profiler in a process";
        Error { kind: Kind::Taken, text: text.to_owned() }
    }

    pub(crate) fn not_loaded(library: &OsStr, reason: &dyn error::Error) -> Error {
        let (library, reason) = (library.display(), whole_text(reason));
        let text = format!(
            "could not load the tool `{library}`, which {PATH_VARIABLE} names: {reason}; \
             correct or unset the variable (ranges go on without the tool)"
        );
        Error { kind: Kind::Tool, text }
    }

    pub(crate) fn no_entry_point(library: &OsStr, reason: &dyn error::Error) -> Error {
        let (library, reason) = (library.display(), whole_text(reason));
        let text = format!(
            "`{library}`, which {PATH_VARIABLE} names, is no NVTX v3 tool: {reason}; \
             correct or unset the variable (ranges go on without the tool)"
        );
        Error { kind: Kind::Tool, text }
    }

    pub(crate) fn refused(library: &OsStr) -> Error {
        let text = format!(
            "the tool `{}`, which {PATH_VARIABLE} names, refused to attach: its \
             InitializeInjectionNvtx2 returned 0; see the tool's own messages, or unset the \
             variable (ranges go on without the tool)",
            library.display()
        );
        Error { kind: Kind::Tool, text }
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
        write!(f, "nvtx: {}", self.text)
    }
}

impl error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `fn main() -> Result<(), Error>` prints after `Error: `.
    #[test]
    fn debug_text_is_that_for_people() {
        let error = Error::mismatch("point", "2 values for 3 fields");
        assert_eq!(format!("{error:?}"), error.to_string());
        assert!(error.to_string().contains("2 values for 3 fields"), "{error}");
    }
}
