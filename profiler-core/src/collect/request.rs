//! What a session is to do, and who takes what it sees while it goes on.

use std::sync::Arc;
use std::time::Duration;

use cupti::{Config, Library};
use parking_lot::Mutex;

use crate::collect::sampling::Sampling;
use crate::record::recording::ranges::ThreadSegment;
use crate::record::recording::segment::Segment;

/// What a session keeps of the raw logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Retention {
    /// All until its stop.
    #[default]
    All,
    /// What was asked for in the last such time.
    LastTime(Duration),
    /// At least the last so many operations.
    LastOperations(u64),
    /// None: it is followed while it goes on.
    Nothing,
}

/// What a session is to do.
pub(crate) struct SessionRequest<'a> {
    pub(crate) library: &'a Library,
    pub(crate) config: &'a Config,
    pub(crate) keep: Retention,
    pub(crate) sink: Option<Arc<Mutex<dyn Sink>>>,
    pub(crate) samplings: &'a [Sampling],
    /// How often the logs are taken out, if they are.
    pub(crate) period: Duration,
    /// What the thread that does it calls each time, with no lock held.
    pub(crate) then: Option<Then>,
}

/// Takes what a session sees while it goes on, part by part: sums, or the events of a layer.
pub(crate) trait Sink: std::fmt::Debug + Send {
    /// The session begins: the number of its first log of ranges, the highest correlation id of calls before it, and when
    /// that is.
    fn begin(&mut self, first_log: u64, before_id: u32, start_ns: u64);

    /// Sets the id of the first call of the collection so far: records that come with earlier ones are of calls before it,
    /// once `is_final` says that no earlier call is to come.
    fn begins_with(&mut self, first_id: u32, is_final: bool);

    /// Adds a part. `open` is what was open at its end, and calls outside the windows do not count.
    fn add(&mut self, part: &Segment, open: &[ThreadSegment], windows_ns: &[(u64, u64)]);

    /// Since when what lacks its records longest does.
    fn waits_since_ns(&self) -> Option<u64>;
}

pub(crate) type Then = Arc<dyn Fn() + Send + Sync>;
