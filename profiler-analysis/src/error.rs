//! The one error type of this crate.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use profiler_base::units::{MESSAGE_WIDTH, shortened};

/// The reason why a profile could not be read, compared, measured or written.
///
/// Predicates cover the cases that a caller can handle. The text states what failed, on what, why,
/// and what to do. An error of `profiler_core` converts to it, with the same text and predicates.
#[derive(Clone)]
pub struct Error(Box<Kind>);

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// A profile could not be recorded, read or saved.
    Core(profiler_core::Error),
    /// A file could not be read or written.
    Io { what: &'static str, path: PathBuf, source: Arc<io::Error> },
    /// Profiles cannot be pushed.
    #[cfg(feature = "push")]
    Push { why: String },
    /// A profile could not be written in another format.
    Export { format: &'static str, source: Arc<io::Error> },
    /// An invalid capture of another tool, or one that cannot be read or written.
    #[cfg(any(feature = "kineto", feature = "nsys"))]
    Capture { what: String },
    /// A query that is refused, or exceeds a limit.
    #[cfg(feature = "nsys")]
    Query { what: String },
    /// A missing baseline, or runs that cannot be compared with it.
    Baseline(String),
    /// Invalid peaks of a device.
    Peaks { why: String },
    /// Counts that do not match a profile.
    Counts(String),
    /// Work that cannot be measured.
    Measure(String),
    /// An unknown name.
    Name { what: &'static str, name: String, known: Vec<&'static str> },
}

impl Error {
    #[cold]
    pub(crate) fn new(kind: Kind) -> Self {
        Self(Box::new(kind))
    }

    /// A file that could not be read or written.
    #[cold]
    pub(crate) fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::new(Kind::Io { what, path: path.to_owned(), source: Arc::new(source) })
    }

    /// The error of `profiler_core`, if it is one.
    fn core(&self) -> Option<&profiler_core::Error> {
        match &*self.0 {
            Kind::Core(error) => Some(error),
            _ => None,
        }
    }

    /// True if GPU records are unavailable: no driver, no device, no usable CUPTI.
    pub fn is_unavailable(&self) -> bool {
        self.core().is_some_and(profiler_core::Error::is_unavailable)
    }

    /// True if another tool or profiler of this process holds CUPTI or the range observer.
    pub fn is_busy(&self) -> bool {
        self.core().is_some_and(profiler_core::Error::is_busy)
    }

    /// True if CUPTI refused for lack of privileges.
    pub fn is_permission(&self) -> bool {
        self.core().is_some_and(profiler_core::Error::is_permission)
    }

    /// True if the bytes are no recording or capture, are damaged, or have a newer version.
    pub fn is_format(&self) -> bool {
        match &*self.0 {
            Kind::Core(error) => error.is_format(),
            Kind::Peaks { .. } => true,
            #[cfg(any(feature = "kineto", feature = "nsys"))]
            Kind::Capture { .. } => true,
            _ => false,
        }
    }
}

/// The text of `Display`: `main` prints the error that it returns this way.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = match &*self.0 {
            Kind::Core(error) => return fmt::Display::fmt(error, f),
            #[cfg(feature = "push")]
            Kind::Push { why } => format!("profiles cannot be pushed: {why}"),
            Kind::Io { what, path, source } => {
                format!("could not {what} {}: {source}", path.display())
            }
            Kind::Export { format, source } => {
                format!("could not write the profile as {format}: {source}")
            }
            #[cfg(any(feature = "kineto", feature = "nsys"))]
            Kind::Capture { what } => what.clone(),
            #[cfg(feature = "nsys")]
            Kind::Query { what } => what.clone(),
            Kind::Baseline(what) | Kind::Counts(what) | Kind::Measure(what) => what.clone(),
            Kind::Peaks { why } => {
                format!("not the peaks of a device: {why}; give the output of Peaks::to_json")
            }
            Kind::Name { what, name, known } => {
                format!("there is no {what} {name:?}; there are: {}", known.join(", "))
            }
        };
        // Paths and texts of files may have any length.
        f.write_str(&shortened(&message, MESSAGE_WIDTH))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            Kind::Core(error) => std::error::Error::source(error),
            Kind::Io { source, .. } | Kind::Export { source, .. } => Some(&**source),
            _ => None,
        }
    }
}

impl From<profiler_core::Error> for Error {
    fn from(error: profiler_core::Error) -> Self {
        Self::new(Kind::Core(error))
    }
}

impl From<cupti::Error> for Error {
    fn from(error: cupti::Error) -> Self {
        profiler_core::Error::from(error).into()
    }
}
