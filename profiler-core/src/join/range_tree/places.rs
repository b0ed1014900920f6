//! The positions of ranges in a depth-first order.

use std::ops::Range as Span;

use cupti::tables;

use super::index::NOWHERE;
use crate::join::tables::{Range, RangeId, Tables};

/// A depth-first order of all ranges: descendants directly follow their range.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// `None` if the position of each range is its row.
    moved: Option<Moved>,
    /// By position: the number of positions of the range with its descendants.
    sizes: Vec<u32>,
}

#[derive(Debug)]
struct Moved {
    /// The position of each range.
    of: Vec<u32>,
    /// The range at each position.
    ranges: Vec<RangeId>,
}

/// Computes [`Places`] of ranges whose rows are already in depth-first order and
/// [`Tables::order`](crate::join::tables::Tables::order), as for most single threads.
#[derive(Default)]
pub(super) struct RowPlaces {
    sizes: Vec<u32>,
    /// The ancestors of the last range, and the range itself.
    around: Vec<RangeId>,
    last_ns: u64,
}

impl RowPlaces {
    pub(super) fn with_capacity(ranges: usize) -> Self {
        Self { sizes: tables::with_capacity(ranges), ..Self::default() }
    }

    /// Adds the next row; false if it breaks the order.
    #[inline]
    pub(super) fn push(&mut self, id: RangeId, range: &Range) -> bool {
        let parent = range.parent.get();
        while self.around.last().copied() != parent {
            let Some(ended) = self.around.pop() else { return false };
            self.sizes[ended.at()] = id.0 - ended.0;
        }
        if range.time.start_ns < self.last_ns {
            return false;
        }
        self.last_ns = range.time.start_ns;
        self.around.push(id);
        self.sizes.push(1);
        true
    }

    pub(super) fn finish(self) -> Places {
        let Self { mut sizes, around, .. } = self;
        let count = sizes.len() as u32;
        around.into_iter().for_each(|ended| sizes[ended.at()] = count - ended.0);
        Places { moved: None, sizes }
    }
}

impl Places {
    /// `order` has parents before their children.
    pub(super) fn new(store: &Tables, order: &[RangeId]) -> Self {
        let count = order.len();
        let parent = |range: RangeId| store.ranges[range.at()].parent.get();
        let mut size = tables::filled(1, count);
        for &range in order.iter().rev() {
            if let Some(parent) = parent(range) {
                size[parent.at()] += size[range.at()];
            }
        }
        // The position of the next child of each range; the last one is for outermost ranges.
        let mut next = tables::filled(0, count + 1);
        let mut sizes = tables::filled(0, count);
        let mut moved =
            Moved { of: tables::filled(0, count), ranges: tables::filled(RangeId(0), count) };
        for &range in order {
            let next_in = parent(range).map_or(count, RangeId::at);
            let place = next[next_in];
            next[next_in] += size[range.at()];
            next[range.at()] = place + 1;
            moved.of[range.at()] = place;
            moved.ranges[place as usize] = range;
            sizes[place as usize] = size[range.at()];
        }
        Self { moved: Some(moved), sizes }
    }

    #[inline]
    pub(super) fn position(&self, range: RangeId) -> u32 {
        self.moved.as_ref().map_or(range.0, |moved| moved.of[range.at()])
    }

    /// The range at a position; `None` for [`NOWHERE`].
    #[inline]
    pub(super) fn range(&self, place: u32) -> Option<RangeId> {
        match &self.moved {
            None => (place != NOWHERE).then_some(RangeId(place)),
            Some(moved) => moved.ranges.get(place as usize).copied(),
        }
    }

    /// The ranges at these positions.
    pub(super) fn ranges(&self, places: Span<usize>) -> impl Iterator<Item = RangeId> + Clone {
        // CAST: positions are 32-bit numbers.
        places.filter_map(|place| self.range(place as u32))
    }

    /// The positions of a range and its descendants.
    pub(super) fn subtree(&self, range: RangeId) -> Span<usize> {
        let place = self.position(range) as usize;
        place..place + self.sizes[place] as usize
    }
}
