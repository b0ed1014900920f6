//! Conditions that start and stop recording.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

/// The maximum delay and duration in seconds: one year.
const MAX_SECONDS: f64 = 365.0 * 86_400.0;
/// The maximum length of a range name, in bytes.
const MAX_NAME: usize = 1024;

/// The condition that starts recording. As text: `now`, `wait`, `after=SECONDS`, `range=NAME`,
/// `cuda-profiler-api`.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub enum Start {
    /// At the first CUDA call of the process.
    #[default]
    Now,
    /// On the request `on`.
    Wait,
    /// This long after the first CUDA call of the process.
    After(Duration),
    /// While an NVTX range with exactly this name is open, in any domain.
    Range(String),
    /// From `cudaProfilerStart` to `cudaProfilerStop`.
    CudaProfilerApi,
}

/// The condition that stops recording. As text: `duration=SECONDS`, `ranges=COUNT`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Stop {
    /// This long after recording started.
    Duration(Duration),
    /// At the end of this instance of the range named by [`Start::Range`].
    Ranges(NonZeroU32),
}

impl Start {
    /// The name of the range that starts recording, if one does.
    pub fn range(&self) -> Option<&str> {
        match self {
            Self::Range(name) => Some(name),
            _ => None,
        }
    }
}

impl FromStr for Start {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=').map_or((text, None), |(key, value)| (key, Some(value))) {
            ("now", None) => Ok(Self::Now),
            ("wait", None) => Ok(Self::Wait),
            ("cuda-profiler-api", None) => Ok(Self::CudaProfilerApi),
            ("after", Some(seconds)) => Ok(Self::After(self::seconds(seconds)?)),
            ("range", Some(name)) => range_name(name).map(|()| Self::Range(name.to_owned())),
            _ => Err("give now, wait, after=SECONDS, range=NAME or cuda-profiler-api".to_owned()),
        }
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now => f.write_str("now"),
            Self::Wait => f.write_str("wait"),
            Self::After(delay) => write!(f, "after={}", delay.as_secs_f64()),
            Self::Range(name) => write!(f, "range={name}"),
            Self::CudaProfilerApi => f.write_str("cuda-profiler-api"),
        }
    }
}

impl FromStr for Stop {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some(("duration", seconds)) => match self::seconds(seconds)? {
                Duration::ZERO => Err("the duration is 0: give one above 0".to_owned()),
                duration => Ok(Self::Duration(duration)),
            },
            Some(("ranges", count)) => {
                let why = |_| format!("{count:?} is not a number of ranges from 1 on");
                Ok(Self::Ranges(count.parse().map_err(why)?))
            }
            _ => Err("give duration=SECONDS or ranges=COUNT".to_owned()),
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duration(duration) => write!(f, "duration={}", duration.as_secs_f64()),
            Self::Ranges(count) => write!(f, "ranges={count}"),
        }
    }
}

/// Parses a time in seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok();
    let seconds = seconds.filter(|seconds| (0.0..=MAX_SECONDS).contains(seconds));
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| format!("{text:?} is not a number of seconds from 0 to {MAX_SECONDS}"))
}

/// Checks that the name of a range is valid.
pub(crate) fn range_name(name: &str) -> Result<(), String> {
    match name {
        "" => Err("the name of the range is empty".to_owned()),
        name if name.contains('\0') => Err("the name of the range contains a NUL".to_owned()),
        name if name.len() > MAX_NAME => {
            Err(format!("the name of the range has more than {MAX_NAME} bytes"))
        }
        _ => Ok(()),
    }
}
