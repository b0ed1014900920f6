//! Why a session of burn did not start.

use std::fmt;

use tracing::subscriber::SetGlobalDefaultError;

/// Why a session did not start, or its profile could not be had.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The profiler's error.
    Profiler(profiler_core::Error),
    /// The process has a subscriber of `tracing`.
    Subscriber(SetGlobalDefaultError),
    /// The process has as many functions for changes of ranges as are possible.
    Hooks,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Profiler(error) => error.fmt(f),
            Self::Subscriber(_) => f.write_str(
                "cannot start: the process has a subscriber of tracing; add gpu_profiler_burn::layer() to that one, and start \
                 with builder().subscriber(false)",
            ),
            Self::Hooks => f.write_str(
                "cannot start: eight other functions follow the ranges of this process (Context::on_change); remove one",
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Profiler(error) => Some(error),
            Self::Subscriber(error) => Some(error),
            Self::Hooks => None,
        }
    }
}

impl From<profiler_core::Error> for Error {
    fn from(error: profiler_core::Error) -> Self {
        Self::Profiler(error)
    }
}
