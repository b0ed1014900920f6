//! The error type of this crate.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The reason why an option, a run folder or a live process could not be used.
///
/// The predicates cover every error that a caller can handle. The text states what failed, on what,
/// why, and the remedy.
pub struct Error(Box<Kind>);

#[derive(Debug)]
pub(crate) enum Kind {
    /// An environment variable with an invalid value.
    Variable { name: &'static str, value: String, why: String },
    /// A failed system operation on a path.
    Io { what: &'static str, path: PathBuf, source: io::Error },
    /// A folder or file with an unacceptable type, owner, mode or content.
    Path { path: PathBuf, why: String },
    /// A process that has ended or never existed.
    Gone(String),
    /// A live process without a socket, by its pid.
    NoSocket(u32),
    /// A socket that does not belong to the process or the user.
    Peer { pid: u32, why: String },
    /// The process did not answer in time.
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

    /// True if the process has ended or never existed.
    pub fn is_gone(&self) -> bool {
        matches!(&*self.0, Kind::Gone(_))
    }

    /// True if the process is alive but has no socket, or has closed it.
    pub fn is_no_socket(&self) -> bool {
        matches!(&*self.0, Kind::NoSocket(_))
    }

    /// True if the file or folder does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(&*self.0, Kind::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Writes the text of `Display`, because `main` prints a returned error with `Debug`.
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
