//! Failures of the program and their exit statuses.

use std::error::Error as _;
use std::io;

#[derive(Debug)]
pub(crate) enum Failure {
    /// The failed operation, its error and a remedy.
    Error(String),
    /// Contradictory arguments.
    Usage(String),
    /// A failed gate.
    Gate(String),
    /// The exit status of `gpuprof run`, with a message if the program did not run.
    Run(u8, String),
    /// The reader closed the output.
    Closed,
}

impl Failure {
    /// Prefixes the message of an error with its subject.
    pub(crate) fn context(self, what: &str) -> Self {
        match self {
            Self::Error(message) => Self::Error(format!("{what}: {message}")),
            Self::Usage(message) => Self::Usage(format!("{what}: {message}")),
            other => other,
        }
    }

    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Error(message)
            | Self::Usage(message)
            | Self::Gate(message)
            | Self::Run(_, message) => message,
            Self::Closed => "",
        }
    }

    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Closed => 0,
            Self::Error(_) => 1,
            Self::Usage(_) => 2,
            Self::Gate(_) => 3,
            Self::Run(status, _) => *status,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Error(format!("could not write the output: {error}")),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Error(format!("could not make JSON of the result: {error}"))
    }
}

impl From<gpuprof_control::Error> for Failure {
    fn from(error: gpuprof_control::Error) -> Self {
        Self::Error(error.to_string())
    }
}

impl From<profiler_core::Error> for Failure {
    fn from(error: profiler_core::Error) -> Self {
        profiler_analysis::Error::from(error).into()
    }
}

impl From<profiler_analysis::Error> for Failure {
    fn from(error: profiler_analysis::Error) -> Self {
        let cause = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        match cause.map(io::Error::kind) {
            Some(io::ErrorKind::BrokenPipe) => Self::Closed,
            _ => Self::Error(error.to_string()),
        }
    }
}
