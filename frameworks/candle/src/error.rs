//! Why a session of candle did not start.

use std::fmt;

use tracing::subscriber::SetGlobalDefaultError;

/// Why a session did not start.
#[non_exhaustive]
pub enum Error {
    /// The profiler's error.
    Profiler(profiler_core::Error),
    /// The process has a subscriber of `tracing`.
    Subscriber(SetGlobalDefaultError),
}

/// The text of `Display`: `main` prints the error that it returns this way.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Profiler(error) => error.fmt(f),
            Self::Subscriber(_) => f.write_str(
                "cannot start: the process has a subscriber of tracing; add gpu_profiler_candle::layer() to that one",
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Profiler(error) => Some(error),
            Self::Subscriber(error) => Some(error),
        }
    }
}

impl From<profiler_core::Error> for Error {
    fn from(error: profiler_core::Error) -> Self {
        Self::Profiler(error)
    }
}
