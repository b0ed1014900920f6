//! A query made ready: what is the same for many operations is decided once.

use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use super::{By, Filter, Query, Selector, Sort};
use crate::base::kernel_names::{self, Pattern};
use crate::join::tables::{Interval, Label, OperationId, RangeId, Store, What, Work};
use crate::profile::{GpuOperation, OperationKind, Profile, RangeNode};

/// The operations of a query, by start.
pub struct Operations<'a> {
    profile: &'a Profile,
    rows: Rows,
    /// By work; empty if all are wanted.
    works: Vec<bool>,
    /// By range, if it matters.
    ranges: Option<Vec<bool>>,
    is_capture: bool,
    outside: bool,
    threads: Vec<bool>,
    times: Vec<(u64, u64)>,
    filters: Vec<Filter<'a>>,
}

impl std::fmt::Debug for Operations<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operations").finish_non_exhaustive()
    }
}

enum Rows {
    All(std::ops::Range<u32>),
    Listed(std::vec::IntoIter<OperationId>),
    InWindows(std::vec::IntoIter<(OperationId, RangeId)>),
}

impl<'a> Operations<'a> {
    pub(super) fn new(query: &Query<'a>) -> Self {
        let profile = query.profile;
        let store = &profile.store;
        let selector = &query.ranges;
        let is_capture = selector.by == By::Capture;
        let rows = match selector.by {
            By::Window => Rows::InWindows(in_windows(profile, selector).into_iter()),
            _ => match selector.listed(profile) {
                Some(rows) => Rows::Listed(rows.into_iter()),
                None => Rows::All(0..store.operations.len() as u32),
            },
        };
        let is_decided = !matches!(rows, Rows::All(_));
        let by_range = !is_decided && (selector.is_set() || is_capture);
        let ranges = by_range.then(|| selector.chosen(profile));
        let threads = query.threads_of(store);
        Self {
            profile,
            rows,
            works: query.works_of(store),
            ranges,
            is_capture,
            outside: selector.outside,
            threads,
            times: query.times.clone(),
            filters: query.filters.clone(),
        }
    }

    fn is_wanted(&self, operation: &GpuOperation<'a>) -> bool {
        let store = &self.profile.store;
        let row = operation.row();
        if !self.works.is_empty() && !self.works[row.work.at()] {
            return false;
        }
        if let Some(ranges) = &self.ranges {
            let range = if self.is_capture { row.captured.get() } else { store.range_of(row.call) };
            let is_in = match range {
                Some(range) => ranges[range.at()],
                None => self.outside && !self.is_capture,
            };
            if !is_in {
                return false;
            }
        }
        if !self.threads.is_empty() {
            let thread = row.call.get().map(|call| store.calls[call.at()].thread);
            if !thread.is_some_and(|thread| self.threads[thread.at()]) {
                return false;
            }
        }
        if !self.times.is_empty() {
            let first_ns = store.session.window_ns.0;
            let ran = |time: Interval, (from, to): (u64, u64)| {
                let start = time.start_ns.saturating_sub(first_ns);
                let end = time.end_ns.saturating_sub(first_ns);
                start < to && (end > from || start >= from)
            };
            let any = |time| self.times.iter().any(|window| ran(time, *window));
            if !row.time().is_some_and(any) {
                return false;
            }
        }
        self.filters.iter().all(|is_wanted| is_wanted(operation))
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = GpuOperation<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let profile = self.profile;
            let operation = match &mut self.rows {
                Rows::All(rows) => profile.operation(OperationId(rows.next()?)),
                Rows::Listed(rows) => profile.operation(rows.next()?),
                Rows::InWindows(rows) => {
                    let (row, range) = rows.next()?;
                    profile.operation(row).in_window(range)
                }
            };
            if self.is_wanted(&operation) {
                return Some(operation);
            }
        }
    }
}

impl Query<'_> {
    /// Which works are wanted; empty if all are.
    fn works_of(&self, store: &Store) -> Vec<bool> {
        let any = |of: &[u32], value: u32| of.is_empty() || of.contains(&value);
        let narrows = !self.sorts.is_empty() || !self.names.is_empty();
        let places = [&self.devices, &self.contexts, &self.streams, &self.processes];
        if !narrows && places.iter().all(|place| place.is_empty()) {
            return Vec::new();
        }
        let mut named = FxHashMap::default();
        let wanted = |work: &Work| {
            let place = &work.place;
            any(&self.devices, place.device)
                && any(&self.contexts, place.context)
                && any(&self.streams, place.stream)
                && any(&self.processes, work.process)
                && (self.sorts.is_empty() || self.sorts.iter().any(|sort| sort.is_of(&work.what)))
                && (self.names.is_empty() || is_named(&self.names, store, &work.what, &mut named))
        };
        store.works().iter().map(wanted).collect()
    }

    /// Which threads are wanted; empty if all are.
    fn threads_of(&self, store: &Store) -> Vec<bool> {
        if self.threads.is_empty() {
            return Vec::new();
        }
        store.threads.iter().map(|thread| self.threads.contains(&thread.id)).collect()
    }
}

fn is_named<'a>(
    patterns: &[Pattern],
    store: &'a Store,
    what: &What,
    known: &mut FxHashMap<&'a str, bool>,
) -> bool {
    let What::Kernel { names, .. } = what else {
        return false;
    };
    let name = store.names.get(names.name);
    *known.entry(name).or_insert_with(|| {
        let shown = match names.demangled {
            Some(demangled) => kernel_names::without_parameters(store.names.get(demangled)),
            None => kernel_names::demangled(name),
        };
        patterns.iter().any(|pattern| pattern.matches(name) || pattern.matches(&shown))
    })
}

impl Sort {
    fn is_of(self, what: &What) -> bool {
        match (self, what) {
            (Self::Kind(OperationKind::Kernel), What::Kernel { .. })
            | (Self::Kind(OperationKind::Copy), What::Copy(_))
            | (Self::Kind(OperationKind::Memset), What::Memset(_))
            | (Self::Kind(OperationKind::Graph), What::Graph(_)) => true,
            (Self::Copies(kind), What::Copy(copy)) => copy.kind == kind,
            _ => false,
        }
    }
}

impl Selector {
    /// True if a place in the tree of ranges is asked for.
    fn has_place(&self) -> bool {
        !(self.patterns.is_empty() && self.nodes.is_empty() && self.instances.is_empty())
    }

    /// True if not every range will do.
    fn is_set(&self) -> bool {
        self.has_place()
            || self.outside
            || self.directly
            || !self.domains.is_empty()
            || !self.categories.is_empty()
    }

    /// The operations of one range, or of one node, which the tree has an index of; `None` if more is asked for.
    fn listed(&self, profile: &Profile) -> Option<Vec<OperationId>> {
        let more = !self.patterns.is_empty()
            || self.outside
            || !self.domains.is_empty()
            || !self.categories.is_empty();
        if more {
            return None;
        }
        let tree = &profile.tree;
        let of_range = |range: RangeId, into: &mut Vec<OperationId>| match (self.by, self.directly)
        {
            (By::Capture, false) => into.extend(tree.replays(range)),
            (_, false) => into.extend(tree.operations(range)),
            (_, true) => into.extend(tree.own_operations(range)),
        };
        if self.by == By::Capture && self.directly {
            return None;
        }
        let mut rows = Vec::new();
        match (&self.instances[..], &self.nodes[..]) {
            ([range], []) => of_range(*range, &mut rows),
            // None of its instances lies in another: that would be of another node.
            ([], [node]) => tree.instances(*node).for_each(|range| of_range(range, &mut rows)),
            _ => return None,
        }
        rows.sort_unstable();
        Some(rows)
    }

    /// Of every range, whether it is one of those that are asked for.
    fn asked_for(&self, profile: &Profile) -> Vec<bool> {
        let (store, tree) = (&profile.store, &profile.tree);
        // Outside ranges alone is in none of them.
        let none_else = self.domains.is_empty() && self.categories.is_empty();
        let is_narrow = self.has_place() || (self.outside && none_else);
        let domain = |node: &RangeNode<'_>| {
            self.domains.is_empty()
                || self.domains.iter().any(|domain| domain.as_deref() == node.domain())
        };
        let mut is_here = vec![!is_narrow; tree.nodes.len()];
        for node in &self.nodes {
            is_here.get_mut(node.at()).into_iter().for_each(|is_here| *is_here = true);
        }
        for pattern in &self.patterns {
            let matching = profile.matching(pattern);
            is_here.iter_mut().zip(matching).for_each(|(is_here, is_it)| *is_here |= is_it);
        }
        let nodes: Vec<(bool, bool)> =
            profile.nodes().map(|node| (is_here[node.id.at()], domain(&node))).collect();
        let category = |label: &Label| {
            let name = label.category.map(|category| store.names.get(category));
            self.categories.is_empty() || self.categories.iter().any(|of| Some(of.as_str()) == name)
        };
        let labels: Vec<bool> = store.labels.iter().map(category).collect();
        let mut asked: Vec<bool> = (store.ranges.iter())
            .zip(&tree.of_range)
            .map(|(range, node)| {
                let (is_here, in_domain) = nodes[node.at()];
                is_here && in_domain && labels[range.label.at()]
            })
            .collect();
        for range in &self.instances {
            let (_, in_domain) = nodes[tree.of_range[range.at()].at()];
            let label = store.ranges[range.at()].label;
            asked[range.at()] |= in_domain && labels[label.at()];
        }
        asked
    }

    /// Of every range, whether work that was asked for in it counts.
    fn chosen(&self, profile: &Profile) -> Vec<bool> {
        let mut chosen = self.asked_for(profile);
        if !self.directly {
            for range in profile.tree.ranges() {
                let parent = profile.store.ranges[range.at()].parent.get();
                chosen[range.at()] |= parent.is_some_and(|parent| chosen[parent.at()]);
            }
        }
        chosen
    }
}

/// Every operation that started while a range was open, with the one that began last.
fn in_windows(profile: &Profile, selector: &Selector) -> Vec<(OperationId, RangeId)> {
    let store = &profile.store;
    let asked = selector.asked_for(profile);
    let rows = (0..store.ranges.len() as u32).map(RangeId);
    let mut windows: Vec<RangeId> = rows.filter(|range| asked[range.at()]).collect();
    store.sort_ranges(&mut windows);
    let mut next = windows.into_iter().peekable();
    // The one that began last on top. One that has ended will not come back.
    let mut open = BinaryHeap::new();
    let mut found = Vec::new();
    for (row, operation) in (0..).zip(&store.operations) {
        let Some(time) = operation.time() else {
            continue;
        };
        let at = time.start_ns;
        let time_of = |range: RangeId| store.ranges[range.at()].time;
        while let Some(range) = next.next_if(|&range| time_of(range).start_ns <= at) {
            open.push(store.order(range));
        }
        while open.peek().is_some_and(|&(_, range)| time_of(range).end_ns <= at) {
            open.pop();
        }
        if let Some(&(_, range)) = open.peek() {
            found.push((OperationId(row), range));
        }
    }
    found
}
