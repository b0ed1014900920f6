//! Errors: the profiler's own, and those of the driver with what failed.

use std::fmt;

use cudarc::driver::DriverError;

/// Why the profiler could not do something with an object of cudarc's.
#[non_exhaustive]
pub enum Error {
    /// The profiler's own error.
    Profiler(profiler_core::Error),
    /// CUPTI's error.
    Cupti(cupti::Error),
    /// The driver's error, with what it refused.
    Driver {
        /// What failed, such as `recording an event`.
        what: &'static str,
        /// The driver's error as cudarc has it.
        source: DriverError,
    },
    /// The capture recorded no work, so there is no graph. Launches of another stream or thread are not captured.
    EmptyCapture,
}

impl Error {
    pub(crate) fn driver(what: &'static str) -> impl Fn(DriverError) -> Self {
        move |source| Self::Driver { what, source }
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
        match self {
            Self::Profiler(error) => error.fmt(f),
            Self::Cupti(error) => error.fmt(f),
            Self::Driver { what, source } => write!(f, "{what} failed: {:?}", source.0),
            Self::EmptyCapture => f.write_str(
                "the capture recorded no work: launch on the stream that is captured, on the thread that captures it",
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Profiler(error) => Some(error),
            Self::Cupti(error) => Some(error),
            Self::Driver { source, .. } => Some(source),
            Self::EmptyCapture => None,
        }
    }
}

impl From<profiler_core::Error> for Error {
    fn from(error: profiler_core::Error) -> Self {
        Self::Profiler(error)
    }
}

impl From<cupti::Error> for Error {
    fn from(error: cupti::Error) -> Self {
        Self::Cupti(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `fn main() -> Result<(), Error>` prints after `Error: `.
    #[test]
    fn debug_text_is_that_for_people() {
        let error = Error::EmptyCapture;
        assert_eq!(format!("{error:?}"), error.to_string());
        assert!(error.to_string().starts_with("the capture recorded no work"), "{error}");
    }
}
