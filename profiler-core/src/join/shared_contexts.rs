//! Contexts of several ranges: which ranges a word of such a context stands for, and with which others a range shares its
//! work.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::join::tables::{RangeId, ShareId, Store};
use crate::record::recording::ranges::RangeWord;

/// The contexts of several ranges of a recording.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    /// What was joined, by the word of the context: ranges, and contexts that were joined before.
    members: FxHashMap<RangeWord, Vec<RangeWord>>,
    /// What ranges that were opened under such a context share their work with, and those within them.
    of_range: FxHashMap<RangeId, ShareId>,
    of_word: FxHashMap<RangeWord, Place>,
    ids: FxHashMap<Box<[RangeId]>, ShareId>,
}

/// What the word of a context of several ranges stands for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    /// The range that work counts for: the first one that is known.
    pub(crate) range: Option<RangeId>,
    /// The others.
    pub(crate) share: Option<ShareId>,
    /// True if one of them, or the context, is not known.
    pub(crate) is_cut: bool,
}

impl Joined {
    /// Adds a member of a context, after those that were added before.
    pub(crate) fn add(&mut self, context: RangeWord, member: RangeWord) {
        self.members.entry(context).or_default().push(member);
    }

    /// The ranges that a word stands for, each once; `unknown` is told of every word that stands for none.
    fn ranges(
        &self,
        word: RangeWord,
        range_of: impl Fn(RangeWord) -> Option<RangeId>,
        mut unknown: impl FnMut(),
    ) -> Vec<RangeId> {
        let (mut left, mut ranges) = (vec![word], Vec::new());
        // A context was joined after its members; a damaged file need not know that.
        let (mut seen, mut known) = (FxHashSet::default(), FxHashSet::default());
        while let Some(word) = left.pop() {
            if let Some(members) = self.members.get(&word) {
                if seen.insert(word) {
                    left.extend(members.iter().rev());
                }
            } else if let Some(range) = range_of(word) {
                if known.insert(range) {
                    ranges.push(range);
                }
            } else {
                unknown();
            }
        }
        ranges
    }

    /// The range that work counts for under a word.
    pub(crate) fn first(
        &self,
        word: RangeWord,
        range_of: impl Fn(RangeWord) -> Option<RangeId>,
    ) -> Option<RangeId> {
        self.ranges(word, range_of, || ()).first().copied()
    }

    /// Finds what ranges share their work with. `opened` are those that were opened under a context of several ranges, with
    /// its word. Costs a look at every range, in order.
    pub(crate) fn share(
        &mut self,
        store: &mut Store,
        opened: &FxHashMap<RangeId, RangeWord>,
        range_of: impl Fn(RangeWord) -> Option<RangeId>,
    ) {
        if opened.is_empty() {
            return;
        }
        let mut order: Vec<RangeId> = (0..store.ranges.len() as u32).map(RangeId).collect();
        order.sort_unstable_by_key(|&range| store.order(range));
        for range in order {
            let parent = store.ranges[range.at()].parent.get();
            // Those that the range around it shares with are among these.
            let share = match opened.get(&range) {
                Some(&word) => self.place(store, word, &range_of).share,
                None => parent.and_then(|parent| self.of_range.get(&parent).copied()),
            };
            if let Some(share) = share {
                self.of_range.insert(range, share);
            }
        }
    }

    /// What the calls in a range are shared with.
    #[inline]
    pub(crate) fn share_of(&self, range: RangeId) -> Option<ShareId> {
        if self.of_range.is_empty() { None } else { self.of_range.get(&range).copied() }
    }

    /// What a word stands for that is of no range; with what the ranges share that it joins.
    pub(crate) fn place(
        &mut self,
        store: &mut Store,
        word: RangeWord,
        range_of: impl Fn(RangeWord) -> Option<RangeId>,
    ) -> Place {
        if let Some(place) = self.of_word.get(&word) {
            return *place;
        }
        let mut is_cut = false;
        let ranges = self.ranges(word, range_of, || is_cut = true);
        let Some((&range, others)) = ranges.split_first() else {
            return Place { is_cut: true, ..Place::default() };
        };
        let further = ranges.iter().filter_map(|range| self.share_of(*range));
        let further = further.flat_map(|share| store.shares[share.at()].iter());
        let mut known = FxHashSet::default();
        known.insert(range);
        let others = others.iter().chain(further).copied().filter(|other| known.insert(*other));
        let others: Box<[RangeId]> = others.collect();
        let share = (!others.is_empty()).then(|| {
            let next = ShareId(store.shares.len() as u32);
            *self.ids.entry(others).or_insert_with_key(|others| {
                store.shares.push(others.clone());
                next
            })
        });
        let place = Place { range: Some(range), share, is_cut };
        self.of_word.insert(word, place);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_of_contexts_are_all_their_ranges_once_and_end_where_a_file_goes_round() {
        let word = |slot| RangeWord::new(1, slot).unwrap_or(RangeWord(0));
        let context = |slot| RangeWord::joined(1, slot).unwrap_or(RangeWord(0));
        let mut joined = Joined::default();
        let lists = [
            (context(0), vec![word(3), word(1)]),
            (context(1), vec![word(2), context(0), word(3)]),
            (context(2), vec![context(1), word(9), word(5)]),
            (context(3), vec![word(4), context(4)]),
            (context(4), vec![context(3), word(6)]),
        ];
        for (context, members) in lists {
            members.into_iter().for_each(|member| joined.add(context, member));
        }
        let range_of = |word: RangeWord| {
            let (_, slot) = word.place()?;
            (slot < 9).then_some(RangeId(slot as u32))
        };
        let mut unknown = 0;
        let mut ranges = |word| {
            let ranges = joined.ranges(word, range_of, || unknown += 1);
            ranges.iter().map(|range| range.0).collect::<Vec<_>>()
        };
        assert_eq!(ranges(context(0)), [3, 1]);
        assert_eq!(ranges(context(2)), [2, 3, 1, 5]);
        assert_eq!(ranges(context(3)), [4, 6]);
        assert_eq!(ranges(context(4)), [4, 6]);
        assert!(ranges(context(7)).is_empty());
        assert_eq!(unknown, 2, "a range and a context");
        assert_eq!(joined.first(context(1), range_of), Some(RangeId(2)));
    }
}
