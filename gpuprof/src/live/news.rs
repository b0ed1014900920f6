//! Messages to the thread of the screen.

use super::observation::Observation;

pub(super) enum News {
    Observed(Box<Observation>),
    /// The answers to a request as one line, or what failed.
    Answered(Result<String, String>),
    /// The reason why the run folder cannot be read any more.
    Failed(String),
}
