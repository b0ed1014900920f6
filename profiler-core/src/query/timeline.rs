//! The activity of each host thread over time: disjoint segments of calls and ranges.

use crate::join::segments::{Piece, clipped, innermost};
use crate::join::tables::{CallId, Interval, RangeId, Tables, ThreadId};

/// A thread's activity during an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostPiece {
    /// Its time.
    pub time: Interval,
    /// `None` outside calls.
    pub call: Option<CallId>,
    /// The range of the call, or the thread's innermost range.
    pub range: Option<RangeId>,
}

/// The segments of one thread, sorted and disjoint.
#[derive(Debug, Default)]
struct Lane {
    calls: Vec<Piece<CallId>>,
    ranges: Vec<Piece<RangeId>>,
}

/// The lanes of all threads, by [`ThreadId`].
#[derive(Debug)]
pub struct HostTimeline {
    lanes: Vec<Lane>,
}

impl HostTimeline {
    /// The lanes of all threads. Costs a sort of the calls and ranges.
    pub fn new(store: &Tables) -> Self {
        let stop_ns = store.session.window_ns.1;
        let mut calls: Vec<Vec<Piece<CallId>>> = Vec::new();
        calls.resize_with(store.threads.len(), Vec::new);
        for (row, call) in (0..).map(CallId).zip(&store.calls) {
            let mut time = call.time;
            if !store.call_kind(call).has_returned {
                time.end_ns = stop_ns.max(time.start_ns);
            }
            calls[call.thread.at()].push(Piece { time, of: row });
        }
        let mut ranges: Vec<Vec<Piece<RangeId>>> = Vec::new();
        ranges.resize_with(store.threads.len(), Vec::new);
        for (row, range) in (0..).map(RangeId).zip(&store.ranges) {
            ranges[range.thread.at()].push(Piece { time: range.time, of: row });
        }
        let lane = |(calls, ranges)| Lane { calls: innermost(calls), ranges: innermost(ranges) };
        Self { lanes: calls.into_iter().zip(ranges).map(lane).collect() }
    }

    /// The activity of a thread, in time order without holes.
    pub fn host(&self, store: &Tables, thread: ThreadId, time: Interval) -> Vec<HostPiece> {
        let mut pieces = Vec::new();
        self.each_host_piece(store, thread, time, |piece| pieces.push(piece));
        pieces
    }

    /// Visits the activity of a thread, in time order without holes.
    pub fn each_host_piece(
        &self,
        store: &Tables,
        thread: ThreadId,
        time: Interval,
        mut each: impl FnMut(HostPiece),
    ) {
        let lane = &self.lanes[thread.at()];
        let mut add = |start_ns, end_ns, call, range| {
            if start_ns < end_ns {
                each(HostPiece { time: Interval { start_ns, end_ns }, call, range });
            }
        };
        let outside_calls = |start_ns: u64, end_ns: u64, add: &mut dyn FnMut(_, _, _, _)| {
            let mut at = start_ns;
            for piece in clipped(&lane.ranges, Interval { start_ns, end_ns }) {
                add(at, piece.time.start_ns, None, None);
                add(piece.time.start_ns, piece.time.end_ns, None, Some(piece.of));
                at = piece.time.end_ns;
            }
            add(at, end_ns, None, None);
        };
        let mut at = time.start_ns;
        for Piece { time, of } in clipped(&lane.calls, time) {
            outside_calls(at, time.start_ns, &mut add);
            add(time.start_ns, time.end_ns, Some(of), store.calls[of.at()].range.get());
            at = time.end_ns;
        }
        outside_calls(at, time.end_ns, &mut add);
    }
}
