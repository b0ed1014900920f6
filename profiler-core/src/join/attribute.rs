//! Attribution: the range of a call, the ranges linked by a context, the call of a record.
//!
//! A finished recording (`decode`, `correlate`), a running session (`streaming`) and a capture of
//! another tool store their data in different ways. They look up rows themselves and share the
//! decisions in this module.

use std::hash::Hash;
use std::ops::RangeBounds;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::record::id_window::is_up_to;
use crate::record::recording::ranges::RangeTag;

/// The result of resolving the tag of a call.
#[derive(Debug, Clone)]
pub(crate) enum Owner<T> {
    /// The call was made outside all ranges.
    OutsideRanges,
    /// The call was made in a range of an earlier recording that its thread had not left.
    EarlierRecording,
    /// The recording has no range for this tag.
    Unknown,
    Range {
        range: T,
        /// True if the tag belongs to a context with an unknown range.
        is_partial: bool,
    },
}

impl<T> Owner<T> {
    /// Resolves a tag. `logs` are the numbers of the recording's range logs. `find` returns the
    /// range of a tag of one of these logs, or of a context, and whether a range of that context is
    /// unknown.
    #[inline]
    pub(crate) fn resolve(
        tag: u64,
        logs: &impl RangeBounds<u64>,
        find: impl FnOnce(RangeTag) -> Option<(T, bool)>,
    ) -> Self {
        let tag = RangeTag(tag);
        if tag.0 == 0 {
            return Self::OutsideRanges;
        }
        if !logs.contains(&tag.log()) {
            return Self::EarlierRecording;
        }
        match find(tag) {
            Some((range, is_partial)) => Self::Range { range, is_partial },
            None => Self::Unknown,
        }
    }

    /// True if the range, or one of a context, is not in the recording.
    #[inline]
    pub(crate) fn is_incomplete(&self) -> bool {
        !matches!(self, Self::OutsideRanges | Self::Range { is_partial: false, .. })
    }

    pub(crate) fn range(self) -> Option<T> {
        match self {
            Self::Range { range, .. } => Some(range),
            _ => None,
        }
    }
}

/// Contexts of several ranges, by their tags.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    members: FxHashMap<RangeTag, Vec<RangeTag>>,
}

/// The ranges of a context.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Members {
    /// The ranges without duplicates, in the order they were joined. Work is attributed to the
    /// first and linked to the others.
    pub(crate) ranges: Vec<RangeTag>,
    /// The number of unknown tags of ranges and contexts.
    pub(crate) unknown: u64,
}

impl Contexts {
    /// Adds members of a context, after earlier members.
    pub(crate) fn add(&mut self, context: RangeTag, members: impl IntoIterator<Item = RangeTag>) {
        self.members.entry(context).or_default().extend(members);
    }

    pub(crate) fn remove(&mut self, context: RangeTag) {
        self.members.remove(&context);
    }

    #[cfg(test)]
    pub(crate) fn contains(&self, context: RangeTag) -> bool {
        self.members.contains_key(&context)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Collects the ranges of a tag, through contexts that were joined before.
    pub(crate) fn members(&self, tag: RangeTag, is_range: impl Fn(RangeTag) -> bool) -> Members {
        let (mut left, mut members) = (vec![tag], Members::default());
        // A context is joined after its members; a damaged file may contain a cycle.
        let mut seen = FxHashSet::default();
        while let Some(tag) = left.pop() {
            if !seen.insert(tag) {
                continue;
            }
            if let Some(joined) = self.members.get(&tag) {
                left.extend(joined.iter().rev());
            } else if is_range(tag) {
                members.ranges.push(tag);
            } else {
                members.unknown += 1;
            }
        }
        members
    }

    /// The range to which work under a tag is attributed: the first known range of a context.
    pub(crate) fn first<T>(
        &self,
        tag: RangeTag,
        range_of: impl Fn(RangeTag) -> Option<T>,
    ) -> Option<T> {
        if !tag.is_joined() {
            return range_of(tag);
        }
        let members = self.members(tag, |tag| range_of(tag).is_some());
        range_of(*members.ranges.first()?)
    }
}

/// The links of work that is attributed to `first`: without duplicates and without `first`.
pub(crate) fn links<T: Copy + Eq + Hash>(first: T, mut others: Vec<T>) -> Vec<T> {
    let mut known = FxHashSet::default();
    known.insert(first);
    others.retain(|other| known.insert(*other));
    others
}

/// Counts of calls of a helper (a thread without ranges) that coincided with an open range of
/// another thread.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Encounters {
    /// Calls of the helper while the range was open.
    pub(crate) calls: u64,
    /// Calls of the helper that overlapped a call of the other thread.
    pub(crate) overlapping: u64,
}

/// The maximum overlap, relative to chance, between calls of threads that take turns.
const TURN_TAKING: f64 = 0.1;

impl Encounters {
    /// True if the threads take turns: one waits while the other works. `share` is the share of the
    /// time in its ranges that the thread with ranges spends in calls. Calls of independent threads
    /// overlap at least that often; with few calls, not even one may overlap.
    pub(crate) fn take_turns(self, share: f64) -> bool {
        self.overlapping as f64 <= (TURN_TAKING * share * self.calls as f64).floor()
    }
}

/// The inferred range of a call outside all ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inference<T> {
    /// No thread waited in a range.
    None,
    /// Exactly one thread waited, in this range.
    Waiting(T),
    /// Several threads waited, and nothing is inferred.
    Undecided,
}

impl<T> Inference<T> {
    /// Decides by the innermost ranges of the threads that waited during the whole call.
    pub(crate) fn decide(waiting: impl IntoIterator<Item = T>) -> Self {
        let mut waiting = waiting.into_iter();
        match (waiting.next(), waiting.next()) {
            (None, _) => Self::None,
            (Some(range), None) => Self::Waiting(range),
            (Some(_), Some(_)) => Self::Undecided,
        }
    }
}

/// The reason why a record has no known call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unmatched {
    /// The call was made before the session, or before the retained data. The record is ignored.
    BeforeSession,
    /// The call was made while the session stopped. The record is ignored.
    AfterStop,
    /// The call is missing.
    Missing,
}

impl Unmatched {
    /// Decides for a record with this correlation id. Ids up to `before_id` belong to calls before
    /// the session; 0 if there were none. `start_ns` is the start of its operation, if it has one,
    /// on the clock of `stop_ns`.
    #[inline]
    pub(crate) fn classify(id: u32, before_id: u32, start_ns: Option<u64>, stop_ns: u64) -> Self {
        if before_id != 0 && is_up_to(id, before_id) {
            Self::BeforeSession
        } else if start_ns.is_some_and(|start_ns| start_ns >= stop_ns) {
            Self::AfterStop
        } else {
            Self::Missing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_of_contexts_has_each_range_once_and_a_circle_ends() {
        let tag = |slot| RangeTag::new(1, slot).unwrap_or(RangeTag(0));
        let context = |slot| RangeTag::joined(1, slot).unwrap_or(RangeTag(0));
        let mut contexts = Contexts::default();
        let lists = [
            (context(0), vec![tag(3), tag(1)]),
            (context(1), vec![tag(2), context(0), tag(3)]),
            (context(2), vec![context(1), tag(9), tag(5)]),
            (context(3), vec![tag(4), context(4)]),
            (context(4), vec![context(3), tag(6)]),
        ];
        for (context, members) in lists {
            members.into_iter().for_each(|member| contexts.add(context, [member]));
        }
        let members =
            |tag| contexts.members(tag, |tag| tag.place().is_some_and(|(_, slot)| slot < 9));
        let ranges = |tag| members(tag).ranges.iter().map(|tag| tag.slot()).collect::<Vec<_>>();
        assert_eq!(ranges(context(0)), [3, 1]);
        assert_eq!(ranges(context(1)), [2, 3, 1]);
        assert_eq!(ranges(context(2)), [2, 3, 1, 5]);
        assert_eq!(ranges(context(3)), [4, 6]);
        assert_eq!(ranges(context(4)), [4, 6]);
        assert_eq!((members(context(2)).unknown, members(context(3)).unknown), (1, 0));
        assert_eq!(members(context(7)), Members { ranges: Vec::new(), unknown: 1 });
    }

    #[test]
    fn threads_take_turns_if_their_calls_overlap_less_than_by_chance() {
        let turns = |calls, overlapping, share| Encounters { calls, overlapping }.take_turns(share);
        assert!(turns(3_000, 0, 0.0) && turns(3_000, 0, 0.3));
        // 900 would be chance.
        assert!(turns(3_000, 90, 0.3) && !turns(3_000, 91, 0.3));
        // Of few, or of a thread that hardly calls, none.
        assert!(turns(20, 0, 0.3) && !turns(20, 1, 0.3) && !turns(3_000, 1, 0.003));
    }

    #[test]
    fn nothing_is_inferred_if_several_threads_wait() {
        assert_eq!(Inference::decide([7]), Inference::Waiting(7));
        assert_eq!(Inference::decide([7, 7]), Inference::Undecided);
        assert_eq!(Inference::decide([0; 0]), Inference::None);
    }

    #[test]
    fn links_hold_each_other_range_once() {
        assert_eq!(links(1, vec![2, 1, 3, 2]), [2, 3]);
        assert!(links(1, vec![1]).is_empty());
    }

    #[test]
    fn record_without_call_is_before_the_session_after_its_stop_or_missing() {
        let of = |id, start_ns| Unmatched::classify(id, 100, start_ns, 5_000);
        assert_eq!(of(100, Some(9_000)), Unmatched::BeforeSession);
        assert_eq!(of(101, Some(5_000)), Unmatched::AfterStop);
        assert_eq!(of(101, Some(4_999)), Unmatched::Missing);
        assert_eq!(of(101, None), Unmatched::Missing);
        assert_eq!(Unmatched::classify(7, 0, None, 5_000), Unmatched::Missing);
    }

    #[test]
    fn tag_of_an_earlier_recording_differs_from_an_unknown_one() {
        let tag = |log, slot| RangeTag::new(log, slot).map_or(0, |tag| tag.0);
        let owner =
            |of| Owner::resolve(of, &(5..), |tag| (tag.slot() < 3).then_some((tag.slot(), false)));
        assert!(matches!(owner(0), Owner::OutsideRanges));
        assert!(matches!(owner(tag(4, 1)), Owner::EarlierRecording));
        assert!(matches!(owner(tag(5, 1)), Owner::Range { range: 1, is_partial: false }));
        assert!(matches!(owner(tag(5, 3)), Owner::Unknown));
    }
}
