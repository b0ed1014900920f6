//! Lanes of a track: slices that overlap without nesting get separate tracks.
//!
//! Trace viewers nest the slices of a track, and drop a slice that begins within another and ends
//! after it.

use std::collections::BTreeSet;

/// The maximum depth of nested slices on a track: Perfetto's trace processor drops slices deeper
/// than 512.
pub(super) const NESTED: usize = 500;

/// No nested slices on a track.
pub(super) const APART: usize = 1;

/// The tracks of one thread or stream. Each slice costs the logarithm of their number.
#[derive(Debug)]
pub(super) struct Lanes {
    /// Maximum nesting depth.
    depth: usize,
    /// The ends of the open slices on each track, innermost last.
    open: Vec<Vec<u64>>,
    /// Tracks with room for a slice that ends no later than this.
    room: BTreeSet<(u64, usize)>,
    /// Tracks at maximum depth, and the time until which they are full.
    full: BTreeSet<(u64, usize)>,
}

impl Lanes {
    pub(super) fn new(depth: usize) -> Self {
        Self { depth, open: Vec::new(), room: BTreeSet::new(), full: BTreeSet::new() }
    }

    /// Returns the track of the next slice. Slices must be added by start, longer ones first.
    /// `around` is the preferred track: the track of the enclosing slice.
    pub(super) fn place(&mut self, start: u64, end: u64, around: Option<usize>) -> usize {
        // `u64::MAX` marks the end of a track without open slices.
        let start = start.min(u64::MAX - 1);
        let end = end.clamp(start, u64::MAX - 1);
        self.close(start);
        let around = around.filter(|&lane| {
            let free_until = self.free_until(lane);
            free_until >= end && self.room.contains(&(free_until, lane))
        });
        let fitting = || self.room.range((end, 0)..).next().map(|(_, lane)| *lane);
        let lane = around.or_else(fitting).unwrap_or_else(|| {
            self.open.push(Vec::new());
            self.open.len() - 1
        });
        self.room.remove(&(self.free_until(lane), lane));
        self.open[lane].push(end);
        let tracks =
            if self.open[lane].len() < self.depth { &mut self.room } else { &mut self.full };
        tracks.insert((end, lane));
        lane
    }

    /// Closes slices that have ended.
    fn close(&mut self, now: u64) {
        while let Some(&(end, lane)) = self.full.first().filter(|(end, _)| *end <= now) {
            self.full.remove(&(end, lane));
            self.open[lane].pop();
            self.room.insert((self.free_until(lane), lane));
        }
        while let Some(&(end, lane)) = self.room.first().filter(|(end, _)| *end <= now) {
            self.room.remove(&(end, lane));
            self.open[lane].pop();
            self.room.insert((self.free_until(lane), lane));
        }
    }

    /// The end of the innermost open slice of a track.
    fn free_until(&self, lane: usize) -> u64 {
        self.open[lane].last().copied().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(depth: usize, slices: &[(u64, u64)]) -> Vec<usize> {
        let mut lanes = Lanes::new(depth);
        slices.iter().map(|&(start, end)| lanes.place(start, end, None)).collect()
    }

    #[test]
    fn crossing_slices_move_to_another_track() {
        assert_eq!(lanes(NESTED, &[(0, 10), (1, 5), (5, 10), (10, 10), (10, 12)]), [0; 5]);
        assert_eq!(lanes(NESTED, &[(0, 10), (5, 15), (6, 9), (12, 20)]), [0, 1, 0, 0]);
        assert_eq!(lanes(APART, &[(0, 10), (0, 10), (5, 6), (10, 11)]), [0, 1, 2, 0]);
        assert_eq!(lanes(2, &[(0, 10), (1, 9), (2, 8), (9, 10)]), [0, 0, 1, 0]);
        assert_eq!(lanes(APART, &[(0, u64::MAX), (u64::MAX, u64::MAX)]), [0, 0]);
    }

    #[test]
    fn slice_prefers_the_track_of_its_parent() {
        let mut lanes = Lanes::new(NESTED);
        assert_eq!((lanes.place(0, 10, None), lanes.place(5, 15, Some(0))), (0, 1));
        assert_eq!((lanes.place(6, 9, Some(1)), lanes.place(7, 9, Some(0))), (1, 0));
    }

    /// Any two slices of a track are disjoint or nested.
    #[test]
    fn no_two_slices_of_a_track_cut_through_each_other() {
        let mut random = fastrand::Rng::with_seed(7);
        for depth in [1, 2, 5, NESTED] {
            for _ in 0..200 {
                let mut slices: Vec<_> = (0..40)
                    .map(|_| {
                        let start = random.u64(0..50);
                        (start, start + random.u64(0..20))
                    })
                    .collect();
                slices.sort_by_key(|&(start, end)| (start, std::cmp::Reverse(end)));
                let mut lanes = Lanes::new(depth);
                let placed: Vec<usize> = slices
                    .iter()
                    .map(|&(start, end)| lanes.place(start, end, Some(0).filter(|_| start > 25)))
                    .collect();
                for (i, a) in slices.iter().enumerate() {
                    let around = (0..i).filter(|&j| {
                        placed[j] == placed[i] && slices[j].1 > a.0 && {
                            assert!(slices[j].1 >= a.1, "{slices:?} {placed:?}");
                            true
                        }
                    });
                    assert!(around.count() < depth);
                }
            }
        }
    }
}
