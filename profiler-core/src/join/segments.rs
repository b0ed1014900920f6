//! Disjoint segments of a thread's time, each with the innermost call or range.

use profiler_base::order;

use crate::join::tables::Interval;

/// An interval of a thread with its call or range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece<T> {
    pub(crate) time: Interval,
    pub(crate) of: T,
}

/// Resolves overlaps: the segment that began last wins.
pub(crate) fn innermost<T: Copy>(mut pieces: Vec<Piece<T>>) -> Vec<Piece<T>> {
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
pub(crate) fn clipped<T: Copy>(
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
