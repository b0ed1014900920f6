//! Requests for sessions, and sinks that consume a session while it runs.

use std::sync::Arc;
use std::time::Duration;

use cupti::{Config, Library};
use parking_lot::Mutex;

use crate::collect::sampling::Sampling;
use crate::record::recording::append::{SessionStart, Taken};

/// The part of the raw logs that a session retains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Retention {
    /// Everything until its stop.
    #[default]
    All,
    /// The work submitted within this time before now.
    LastTime(Duration),
    /// At least this many of the last operations.
    LastOperations(u64),
    /// Nothing: only its sink receives the logs.
    Nothing,
}

/// The settings of a session.
pub(crate) struct SessionRequest<'a> {
    pub(crate) library: &'a Library,
    pub(crate) config: &'a Config,
    pub(crate) keep: Retention,
    pub(crate) sink: Option<Arc<Mutex<dyn Sink>>>,
    pub(crate) samplings: &'a [Sampling],
    /// The interval at which segments are taken, if any are.
    pub(crate) period: Duration,
    /// Called after each segment by the draining thread, without locks.
    pub(crate) then: Option<Then>,
}

/// Consumes a session segment by segment: sums, the events of a layer, or a file.
pub(crate) trait Sink: std::fmt::Debug + Send {
    /// Starts the session.
    fn begin(&mut self, _start: &SessionStart<'_>) {}

    /// Sets the earliest call id of the collection so far. Once `is_final`, records with earlier
    /// ids belong to calls before the collection.
    fn begins_with(&mut self, _first_id: u32, _is_final: bool) {}

    /// Adds a segment.
    fn add(&mut self, taken: &Taken<'_>);

    /// The return time of the call that has waited longest for its record.
    fn waits_since_ns(&self) -> Option<u64> {
        None
    }
}

pub(crate) type Then = Arc<dyn Fn() + Send + Sync>;
