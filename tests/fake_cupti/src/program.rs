//! Functions for a fake libcuda: work within its own calls, the time of each stream, graphs by
//! their launches.

use std::sync::OnceLock;

use cupti::sys::abi::RESOURCE_GRAPH_DESTROY_STARTING;

use crate::state::STATE;
use crate::{Fake, FakeExec, FakeGraph, Work, calls};

/// Finds a stream's number by its context (0 for the current one) and its handle.
type StreamNumbers = fn(u32, u64) -> Option<u32>;

static STREAM_NUMBERS: OnceLock<StreamNumbers> = OnceLock::new();

/// The number of a stream in records: its handle, unless the driver has another number.
pub(super) fn stream_id(context: u32, handle: u64) -> Option<u32> {
    match STREAM_NUMBERS.get() {
        Some(number) => number(context, handle),
        None => u32::try_from(handle).ok(),
    }
}

impl Fake {
    /// Makes CUPTI get the numbers of streams from the driver, since the special handles of default
    /// streams have no numbers of their own. The first driver stays.
    pub fn number_streams(&self, number: fn(context: u32, handle: u64) -> Option<u32>) {
        STREAM_NUMBERS.get_or_init(|| number);
    }

    /// CUPTI's time.
    pub fn now_ns(&self) -> u64 {
        STATE.lock().now()
    }

    /// Runs work within the call of this correlation id; returns its end.
    pub fn execute(&self, work: &Work, correlation: u32) -> u64 {
        calls::execute(work, correlation, None)
    }

    /// Runs the nodes of a graph within the call of this correlation id, one after the other where
    /// `place` moves them.
    pub fn execute_graph(&self, exec: &FakeExec, correlation: u32, place: impl Fn(Work) -> Work) {
        for (node, work) in &exec.0.nodes {
            calls::execute(&place(work.clone()), correlation, Some((exec.id(), *node)));
        }
    }

    /// Writes the record of a wait that began at this time and ends now.
    pub fn waited(&self, wait: &Work, correlation: u32, since_ns: u64) {
        let until = self.now_ns().max(since_ns);
        calls::record(wait, correlation, (since_ns, until), None);
    }

    /// The end of all work of a stream; 0 if it never had any.
    pub fn stream_end_ns(&self, stream: u32) -> u64 {
        STATE.lock().streams.get(&stream).copied().unwrap_or_default()
    }

    /// Prevents a stream from beginning more work before this time.
    pub fn delay_stream(&self, stream: u32, until_ns: u64) {
        let mut state = STATE.lock();
        let end = state.streams.entry(stream).or_default();
        *end = until_ns.max(*end);
    }

    /// Destroys a graph, which its executable graphs outlive.
    pub fn destroy_graph(&self, graph: FakeGraph) {
        calls::graph_event(RESOURCE_GRAPH_DESTROY_STARTING, graph.ids());
    }
}
