//! A session of tch.

use profiler_core::{Error, Profile, Profiler};

/// A session, whose profile has the backward pass. Made by [`start`]; dropping it ends it.
#[derive(Debug)]
#[must_use = "the session ends when this is dropped"]
pub struct Session {
    profiler: Profiler,
}

/// Starts a session with the default settings.
///
/// A program with settings of its own uses [`Profiler`] and, on its profile,
/// [`with_inferred_ranges`](Profile::with_inferred_ranges).
///
/// # Errors
/// As [`ProfilerBuilder::build`](profiler_core::ProfilerBuilder::build) and [`Profiler::start`];
/// [`is_unavailable`](Error::is_unavailable) without a GPU.
pub fn start() -> Result<Session, Error> {
    let profiler = Profiler::builder().build()?;
    profiler.start()?;
    Ok(Session { profiler })
}

impl Session {
    /// The profile so far, with the inferred ranges of the backward pass.
    ///
    /// # Errors
    /// As [`Profiler::snapshot`].
    pub fn snapshot(&self) -> Result<Profile, Error> {
        Ok(self.profiler.snapshot()?.with_inferred_ranges())
    }

    /// Ends the session and returns its profile, with the inferred ranges of the backward pass.
    ///
    /// # Errors
    /// As [`Profiler::stop`].
    pub fn finish(self) -> Result<Profile, Error> {
        Ok(self.profiler.stop()?.with_inferred_ranges())
    }
}
