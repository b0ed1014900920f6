//! The one error type of this crate.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The reason why an option, a run folder or a live process could not be used.
///
/// Predicates cover what a caller can act on. The text has what failed, on what, why, and what to
/// do.
pub struct Error(Box<Kind>);

#[derive(Debug)]
pub(crate) enum Kind {
    /// An invalid value of an environment variable.
    Variable { name: &'static str, value: String, why: String },
    /// An operation of the system on a path.
    Io { what: &'static str, path: PathBuf, source: io::Error },
    /// A folder or file with an unacceptable type, owner, mode or content.
    Path { path: PathBuf, why: String },
    /// A process that does not exist, or no longer.
    Gone(String),
    /// A live process without a socket, by its pid.
    NoSocket(u32),
    /// A socket that does not belong to the process or the user.
    Peer { pid: u32, why: String },
    /// No answer of the process in time.
    TimedOut(u32),
    /// An answer that this version cannot read.
    Answer { pid: u32, why: String },
    /// The process received the request and refused it.
    Refused { pid: u32, why: String },
    /// A request beyond its limits.
    Request(String),
}

impl Error {
    #[cold]
    pub(crate) fn new(kind: Kind) -> Self {
        Self(Box::new(kind))
    }

    #[cold]
    pub(crate) fn io(what: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::new(Kind::Io { what, path: path.to_owned(), source: source.into() })
    }

    #[cold]
    pub(crate) fn path(path: &Path, why: impl Into<String>) -> Self {
        Self::new(Kind::Path { path: path.to_owned(), why: why.into() })
    }

    /// True if the process does not exist, or no longer.
    pub fn is_gone(&self) -> bool {
        matches!(&*self.0, Kind::Gone(_))
    }

    /// True if the process lives and has no socket, or a closed one.
    pub fn is_no_socket(&self) -> bool {
        matches!(&*self.0, Kind::NoSocket(_))
    }

    /// True if the process did not answer in time.
    pub fn is_timeout(&self) -> bool {
        matches!(&*self.0, Kind::TimedOut(_))
    }

    /// True if the process received the request and refused it.
    pub fn is_refused(&self) -> bool {
        matches!(&*self.0, Kind::Refused { .. })
    }

    /// True if the file or folder does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(&*self.0, Kind::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
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
        match &*self.0 {
            Kind::Variable { name, value, why } => write!(f, "{name}={value}: {why}"),
            Kind::Io { what, path, source } => {
                write!(f, "could not {what} {}: {source}", path.display())
            }
            Kind::Path { path, why } => write!(f, "{} {why}", path.display()),
            Kind::Gone(why) => f.write_str(why),
            Kind::NoSocket(pid) => {
                write!(f, "process {pid} has no open control socket")
            }
            Kind::Peer { pid, why } => {
                write!(f, "the control socket of process {pid} is not used: {why}")
            }
            Kind::TimedOut(pid) => write!(
                f,
                "process {pid} did not answer in time: it may be stopped or busy; try again"
            ),
            Kind::Answer { pid, why } => {
                write!(f, "process {pid} gave an answer that cannot be read: {why}")
            }
            Kind::Refused { pid, why } => {
                write!(f, "process {pid} refused the request: {why}")
            }
            Kind::Request(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            Kind::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `fn main() -> Result<(), Error>` prints after `Error: `.
    #[test]
    fn debug_text_is_that_for_people() {
        let (value, why) = ("x".to_owned(), "no number".to_owned());
        let error = Error(Box::new(Kind::Variable { name: "GPUPROF_X", value, why }));
        assert_eq!(format!("{error:?}"), error.to_string());
        assert!(error.to_string().contains("GPUPROF_X"), "{error}");
    }
}
