//! The sink of an always-on session: joins it while it runs, and counts failed calls.

use crate::collect::request::Sink;
use crate::join::account::is_failure;
use crate::join::streaming::StreamingJoin;
use crate::record::recording::append::{SessionStart, Taken};

#[derive(Debug)]
pub(super) struct Sampler {
    pub(super) join: StreamingJoin,
    /// The total of failed calls.
    pub(super) failed_calls: u64,
}

impl Sink for Sampler {
    fn begin(&mut self, start: &SessionStart<'_>) {
        self.join.begin(start);
    }

    fn begins_with(&mut self, first_id: u32, is_final: bool) {
        self.join.begins_with(first_id, is_final);
    }

    fn add(&mut self, taken: &Taken<'_>) {
        let calls = taken.segment.calls.iter().flat_map(|thread| &thread.calls);
        let failed = calls.filter(|call| is_failure(call.function.class(), call.result));
        self.failed_calls += failed.count() as u64;
        self.join.add(taken);
    }

    fn waits_since_ns(&self) -> Option<u64> {
        self.join.waits_since_ns()
    }
}
