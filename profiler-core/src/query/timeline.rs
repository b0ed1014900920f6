//! The activity of each host thread over time: disjoint segments of calls and ranges.

use crate::base::order;
use crate::join::tables::{CallId, Interval, RangeId, Store, ThreadId};

/// A thread's activity during an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostPiece {
    pub(crate) time: Interval,
    /// `None` outside calls.
    pub(crate) call: Option<CallId>,
    /// The range of the call, or the thread's innermost range.
    pub(crate) range: Option<RangeId>,
}

/// An interval of a thread with its call or range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece<T> {
    pub(super) time: Interval,
    pub(super) of: T,
}

/// The segments of one thread, sorted and disjoint.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) calls: Vec<Piece<CallId>>,
    pub(super) ranges: Vec<Piece<RangeId>>,
}

/// The lanes of all threads, by [`ThreadId`].
#[derive(Debug)]
pub(crate) struct Timeline {
    pub(super) lanes: Vec<Lane>,
}

impl Timeline {
    pub(crate) fn new(store: &Store) -> Self {
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
    pub(crate) fn host(&self, store: &Store, thread: ThreadId, time: Interval) -> Vec<HostPiece> {
        let lane = &self.lanes[thread.at()];
        let mut pieces = Vec::new();
        let mut add = |start_ns, end_ns, call, range| {
            if start_ns < end_ns {
                pieces.push(HostPiece { time: Interval { start_ns, end_ns }, call, range });
            }
        };
        let outside_calls = |start_ns: u64, end_ns: u64, add: &mut dyn FnMut(_, _, _, _)| {
            let mut at = start_ns;
            for piece in within(&lane.ranges, Interval { start_ns, end_ns }) {
                add(at, piece.time.start_ns, None, None);
                add(piece.time.start_ns, piece.time.end_ns, None, Some(piece.of));
                at = piece.time.end_ns;
            }
            add(at, end_ns, None, None);
        };
        let mut at = time.start_ns;
        for Piece { time, of } in within(&lane.calls, time) {
            outside_calls(at, time.start_ns, &mut add);
            add(time.start_ns, time.end_ns, Some(of), store.calls[of.at()].range.get());
            at = time.end_ns;
        }
        outside_calls(at, time.end_ns, &mut add);
        pieces
    }
}

/// Resolves overlaps: the segment that began last wins.
pub(super) fn innermost<T: Copy>(mut pieces: Vec<Piece<T>>) -> Vec<Piece<T>> {
    order::sort_by_number(&mut pieces, |piece| piece.time.start_ns);
    let mut cut: Vec<Piece<T>> = Vec::with_capacity(pieces.len());
    let mut open: Vec<Piece<T>> = Vec::new();
    let mut at = 0;
    let advance = |open: &mut Vec<Piece<T>>, at: &mut u64, to: u64, cut: &mut Vec<Piece<T>>| {
        while *at < to {
            while open.last().is_some_and(|piece| piece.time.end_ns <= *at) {
                open.pop();
            }
            let Some(piece) = open.last() else {
                break;
            };
            let end_ns = piece.time.end_ns.min(to);
            cut.push(Piece { time: Interval { start_ns: *at, end_ns }, of: piece.of });
            *at = end_ns;
        }
        *at = to;
    };
    for piece in pieces {
        advance(&mut open, &mut at, piece.time.start_ns, &mut cut);
        open.push(piece);
    }
    let last = open.iter().map(|piece| piece.time.end_ns).max().unwrap_or(0);
    advance(&mut open, &mut at, last, &mut cut);
    cut
}

/// The segments that overlap an interval, clipped to it.
pub(super) fn within<T: Copy>(
    pieces: &[Piece<T>],
    time: Interval,
) -> impl Iterator<Item = Piece<T>> + '_ {
    let first = pieces.partition_point(|piece| piece.time.end_ns <= time.start_ns);
    pieces[first..].iter().take_while(move |piece| piece.time.start_ns < time.end_ns).map(
        move |piece| {
            let start_ns = piece.time.start_ns.max(time.start_ns);
            let end_ns = piece.time.end_ns.min(time.end_ns);
            Piece { time: Interval { start_ns, end_ns }, of: piece.of }
        },
    )
}
