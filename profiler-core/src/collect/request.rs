//! Requests for sessions, and sinks that consume a session while it runs.

use std::sync::Arc;
use std::time::Duration;

use cupti::{Config, Library};
use parking_lot::Mutex;

use crate::collect::sampling::Sampling;
use crate::record::recording::append::{SessionStart, Taken};

/// How much of the raw logs a session keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Retention {
    /// Everything until its stop.
    #[default]
    All,
    /// The work submitted in the last such time.
    LastTime(Duration),
    /// At least this many of the last operations.
    LastOperations(u64),
    /// Nothing: only its sink sees the logs.
    Nothing,
}

/// The settings of a session.
pub(crate) struct SessionRequest<'a> {
    pub(crate) library: &'a Library,
    pub(crate) config: &'a Config,
    pub(crate) keep: Retention,
    pub(crate) sink: Option<Arc<Mutex<dyn Sink>>>,
    pub(crate) samplings: &'a [Sampling],
    /// How often segments are taken, if they are.
    pub(crate) period: Duration,
    /// Called after each segment by the draining thread, without locks.
    pub(crate) then: Option<Then>,
}

/// Consumes a session segment by segment: sums, the events of a layer, or a file.
pub(crate) trait Sink: std::fmt::Debug + Send {
    /// Starts the session.
    fn begin(&mut self, start: &SessionStart<'_>);

    /// Sets the earliest call id of the collection so far. Once `is_final`, records with earlier
    /// ids belong to calls before the collection.
    fn begins_with(&mut self, first_id: u32, is_final: bool);

    /// Adds a segment.
    fn add(&mut self, taken: &Taken<'_>);

    /// When the longest-waiting call without a record returned.
    fn waits_since_ns(&self) -> Option<u64>;

    /// Whether it uses calls that are logged in pauses.
    fn reads_pauses(&self) -> bool {
        false
    }
}

pub(crate) type Then = Arc<dyn Fn() + Send + Sync>;
