//! The joined contexts of a finished recording: the ranges with which a call shares its work.

use rustc_hash::FxHashMap;

use crate::join::attribute::{Contexts, links};
use crate::join::tables::{RangeId, ShareId, Tables};
use crate::record::recording::ranges::RangeTag;

/// Links of ranges and contexts, each set of ranges stored once in [`Tables::shares`].
#[derive(Debug, Default)]
pub(crate) struct SharedContexts {
    pub(crate) contexts: Contexts,
    /// The links of ranges that were opened under a joined context, and of ranges within them.
    of_range: FxHashMap<RangeId, ShareId>,
    resolved: FxHashMap<RangeTag, Resolved>,
    ids: FxHashMap<Box<[RangeId]>, ShareId>,
}

/// The range to which the work of a context is attributed, with its links; and whether a range of
/// the context is unknown.
type Resolved = ((RangeId, Option<ShareId>), bool);

impl SharedContexts {
    /// Finds the links of ranges. `opened` has the ranges that were opened under a context, with
    /// its tag. If there are any, visits every range in order.
    pub(crate) fn link(
        &mut self,
        store: &mut Tables,
        opened: &FxHashMap<RangeId, RangeTag>,
        range_of: impl Fn(RangeTag) -> Option<RangeId>,
    ) {
        if opened.is_empty() {
            return;
        }
        let mut order: Vec<RangeId> = (0..store.ranges.len() as u32).map(RangeId).collect();
        store.sort_ranges(&mut order);
        for range in order {
            let parent = store.ranges[range.at()].parent.get();
            // The links of the context include the links of the outer range.
            let share = match opened.get(&range) {
                Some(&tag) => self.resolve(store, tag, &range_of).and_then(|((_, share), _)| share),
                None => parent.and_then(|parent| self.of_range.get(&parent).copied()),
            };
            if let Some(share) = share {
                self.of_range.insert(range, share);
            }
        }
    }

    /// The links of the calls in a range.
    #[inline]
    pub(crate) fn share_of(&self, range: RangeId) -> Option<ShareId> {
        if self.of_range.is_empty() { None } else { self.of_range.get(&range).copied() }
    }

    /// Resolves the tag of a context. Links of its ranges are among its own.
    pub(crate) fn resolve(
        &mut self,
        store: &mut Tables,
        tag: RangeTag,
        range_of: impl Fn(RangeTag) -> Option<RangeId>,
    ) -> Option<Resolved> {
        if let Some(resolved) = self.resolved.get(&tag) {
            return Some(*resolved);
        }
        let members = self.contexts.members(tag, |tag| range_of(tag).is_some());
        let mut ranges: Vec<RangeId> = members.ranges.into_iter().filter_map(range_of).collect();
        let first = *ranges.first()?;
        for at in 0..ranges.len() {
            if let Some(share) = self.share_of(ranges[at]) {
                ranges.extend_from_slice(&store.shares[share.at()]);
            }
        }
        let links = links(first, ranges).into_boxed_slice();
        let share = (!links.is_empty()).then(|| {
            let next = ShareId(store.shares.len() as u32);
            *self.ids.entry(links).or_insert_with_key(|links| {
                store.shares.push(links.clone());
                next
            })
        });
        let resolved = ((first, share), members.unknown != 0);
        self.resolved.insert(tag, resolved);
        Some(resolved)
    }
}
