//! A session where CUPTI works, and ranges timed by events where it does not.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaStream;
use profiler_core::{Profile, Profiler, ProfilerBuilder};

use crate::error::Error;
use crate::events::{EventRange, EventReport, EventTimer};

/// A session of the profiler, or an [`EventTimer`] of a stream where CUPTI is not to be had: no library, not permitted, or
/// held by another tool.
///
/// The report states the source. Only the stream's own ranges of [`range`](Self::range) are timed by events; a session has all
/// ranges and streams of the process.
#[derive(Debug)]
pub struct StreamSession(Method);

#[derive(Debug)]
enum Method {
    Session(Box<Profiler>),
    Events(EventTimer, String),
}

/// The result of a [`StreamSession`]. `{}` prints the profile, or a table marked as timed by events.
#[derive(Debug)]
#[non_exhaustive]
pub enum StreamReport {
    /// A profile: kernels, copies and all that CUPTI records.
    Profile(Box<Profile>),
    /// Times between CUDA events.
    Events(EventReport),
}

/// An open range of a [`StreamSession`]; dropping it ends it.
#[derive(Debug)]
#[must_use = "the range ends when this guard is dropped: keep it in a variable, `let _range = ...`"]
pub struct StreamRange<'s> {
    _range: Option<nvtx::Range>,
    _events: Option<EventRange<'s>>,
}

impl StreamSession {
    /// Starts a session of the default settings, or the timer.
    ///
    /// # Errors
    /// Those of the profiler but for CUPTI's absence.
    pub fn start(stream: &Arc<CudaStream>) -> Result<Self, Error> {
        Self::start_with(Profiler::builder(), stream)
    }

    /// Starts a session of these settings, or the timer.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(profiler: ProfilerBuilder, stream: &Arc<CudaStream>) -> Result<Self, Error> {
        let started = profiler.build().and_then(|profiler| {
            profiler.start()?;
            Ok(profiler)
        });
        match started {
            Ok(profiler) => Ok(Self(Method::Session(Box::new(profiler)))),
            Err(error) if error.is_unavailable() || error.is_busy() || error.is_permission() => {
                Ok(Self(Method::Events(EventTimer::new(stream), error.to_string())))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Why ranges are timed by events; `None` if a session runs.
    pub fn fallback_reason(&self) -> Option<&str> {
        match &self.0 {
            Method::Session(_) => None,
            Method::Events(_, reason) => Some(reason),
        }
    }

    /// Starts a range on this thread.
    pub fn range(&self, name: &str) -> StreamRange<'_> {
        match &self.0 {
            Method::Session(_) => StreamRange { _range: Some(nvtx::range(name)), _events: None },
            Method::Events(timer, _) => {
                StreamRange { _range: None, _events: Some(timer.range(name)) }
            }
        }
    }

    /// Ends it and returns the profile, or the times.
    ///
    /// # Errors
    /// As [`Profiler::stop`] and [`EventTimer::finish`].
    pub fn finish(self) -> Result<StreamReport, Error> {
        match self.0 {
            Method::Session(profiler) => Ok(StreamReport::Profile(Box::new(profiler.stop()?))),
            Method::Events(timer, reason) => {
                let fallback_reason = Some(reason);
                Ok(StreamReport::Events(EventReport { fallback_reason, ..timer.finish()? }))
            }
        }
    }
}

impl fmt::Display for StreamReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Profile(profile) => profile.fmt(f),
            Self::Events(report) => report.fmt(f),
        }
    }
}
