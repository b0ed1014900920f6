//! The one error type of this crate.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use profiler_base::units::{MESSAGE_WIDTH, shortened};

/// The reason why a profile could not be recorded or read.
///
/// Predicates cover what a caller can act on. The text has what failed, on what, why, and what to
/// do.
///
/// ```
/// use profiler_core::Profiler;
///
/// match Profiler::builder().build() {
///     Ok(profiler) => println!("{profiler:?}"),
///     Err(error) if error.is_unavailable() => println!("not profiled: {error}"), // no GPU, driver or CUPTI
///     Err(error) => panic!("{error}"),
/// }
/// ```
#[derive(Clone)]
pub struct Error(Box<Kind>);

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// CUPTI or one of its requirements failed.
    Cupti(cupti::Error),
    /// The range observer of `nvtx` could not be installed.
    Observer(String),
    /// `stop`, `pause`, `resume` or a snapshot of a profiler that is not running.
    NotRunning,
    /// A window that could not begin: the profiler's own threads locked the collection for this
    /// long.
    LockedFor(Duration),
    /// `start` of a running profiler.
    Running,
    /// A session of the parent process in a forked child.
    Forked,
    /// Recording and counting of ranges exclude each other.
    Excluded,
    /// The running collection does not cover the requested session.
    Differs(String),
    /// A file could not be read or written.
    Io { what: &'static str, path: PathBuf, source: Arc<io::Error> },
    /// A source without a path could not be read.
    Read { source: Arc<io::Error> },
    /// Bytes that are not a recording this version can read, with their file if any.
    Format { what: String, path: Option<PathBuf> },
    /// A second copy of a recording.
    Duplicate { process_id: Option<u32> },
    /// Any other reason, as the whole text.
    Other(String),
}

impl Error {
    #[cold]
    pub(crate) fn new(kind: Kind) -> Self {
        Self(Box::new(kind))
    }

    #[cold]
    pub(crate) fn format(what: impl Into<String>) -> Self {
        Self::new(Kind::Format { what: what.into(), path: None })
    }

    #[cold]
    pub(crate) fn other(why: impl Into<String>) -> Self {
        Self::new(Kind::Other(why.into()))
    }

    /// An error in doing something with a file.
    #[cold]
    pub(crate) fn io(what: &'static str, path: &Path, source: impl Into<Arc<io::Error>>) -> Self {
        Self::new(Kind::Io { what, path: path.to_owned(), source: source.into() })
    }

    #[cold]
    pub(crate) fn read(source: io::Error) -> Self {
        Self::new(Kind::Read { source: Arc::new(source) })
    }

    /// Adds the path of the file.
    pub(crate) fn of_file(mut self, file: &Path) -> Self {
        match &mut *self.0 {
            Kind::Format { path, .. } => *path = Some(file.to_owned()),
            Kind::Read { source } => {
                let (what, path, source) = ("read", file.to_owned(), source.clone());
                *self.0 = Kind::Io { what, path, source };
            }
            _ => {}
        }
        self
    }

    /// True if GPU records are unavailable: no driver, no device, no usable CUPTI.
    pub fn is_unavailable(&self) -> bool {
        matches!(&*self.0, Kind::Cupti(error) if error.is_unavailable())
    }

    /// True if another tool or profiler of this process holds CUPTI or the range observer.
    pub fn is_busy(&self) -> bool {
        match &*self.0 {
            Kind::Cupti(error) => error.is_busy(),
            Kind::Observer(_) | Kind::Running | Kind::Excluded | Kind::Differs(_) => true,
            _ => false,
        }
    }

    /// True if CUPTI refused for lack of privileges.
    pub fn is_permission(&self) -> bool {
        matches!(&*self.0, Kind::Cupti(error) if error.is_permission())
    }

    /// True if a stop, pause, resume or snapshot found no running profiler.
    pub fn is_not_running(&self) -> bool {
        matches!(&*self.0, Kind::NotRunning)
    }

    /// True if a merger already has a recording of this process with the same start: this one is a
    /// copy of it, or of its beginning.
    pub fn is_duplicate(&self) -> bool {
        matches!(&*self.0, Kind::Duplicate { .. })
    }

    /// True if bytes are not a recording or capture, are damaged, or are of a newer version.
    pub fn is_format(&self) -> bool {
        matches!(&*self.0, Kind::Format { .. })
    }
}

/// Formats like `Display`: `main` prints the error that it returns with `Debug`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut message = String::new();
        self.write_message(&mut message)?;
        // Paths and texts of files may have any length.
        f.write_str(&shortened(&message, MESSAGE_WIDTH))
    }
}

impl Error {
    fn write_message(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        match &*self.0 {
            Kind::Cupti(error) => write!(f, "{error}"),
            Kind::Observer(why) => write!(f, "ranges cannot be observed: {why}"),
            Kind::Forked => f.write_str(
                "the profiler was started before this process was forked off, and CUPTI does not survive a fork: fork before CUDA \
                 or a profiler is used, or start a new program in the child (exec)",
            ),
            Kind::NotRunning => f.write_str("the profiler is not running: call start first"),
            Kind::LockedFor(time) => write!(
                f,
                "the profiler's own threads were busy for {time:?}, so that CUPTI was not turned on: a later unit tries again"
            ),
            Kind::Running => f.write_str(
                "this profiler runs already: stop it before its next start, or build another one for a session beside it",
            ),
            Kind::Excluded => f.write_str(
                "this process either records or counts hardware events over its ranges, and does one of them: end that first",
            ),
            Kind::Differs(what) => write!(
                f,
                "another session of this process is running, and its CUPTI collection does not cover this one: \
                 {what}; stop the other session first, or request everything in the first one"
            ),
            Kind::Io { what, path, source } => write!(f, "could not {what} {}: {source}", path.display()),
            Kind::Read { source } => write!(f, "could not read the recording: {source}"),
            Kind::Format { what, path: None } => write!(f, "not a readable recording: {what}"),
            Kind::Format { what, path: Some(path) } => {
                write!(f, "{} is not a readable recording: {what}", path.display())
            }
            Kind::Other(why) => f.write_str(why),
            Kind::Duplicate { process_id } => {
                let of = process_id.map(|id| format!(" of process {id}")).unwrap_or_default();
                write!(f, "a copy of another recording{of}, as both began at the same time: it is left out, move it away")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            Kind::Cupti(error) => Some(error),
            Kind::Io { source, .. } | Kind::Read { source } => Some(&**source),
            _ => None,
        }
    }
}

impl From<cupti::Error> for Error {
    fn from(error: cupti::Error) -> Self {
        Self::new(Kind::Cupti(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `fn main() -> Result<(), Error>` prints after `Error: `.
    #[test]
    fn debug_text_is_that_for_people() {
        let source = io::Error::new(io::ErrorKind::NotFound, "no such file");
        let error = Error::read(source).of_file(Path::new("run.gpuprof"));
        assert_eq!(format!("{error:?}"), "could not read run.gpuprof: no such file");
        assert_eq!(format!("{error:?}"), error.to_string());
        // An alternate form, as in `{:#?}` of a result, is no other.
        assert_eq!(format!("{error:#?}"), error.to_string());
    }
}
