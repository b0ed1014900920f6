//! The evaluation of a query: decisions shared by many operations are made once.

use std::collections::BinaryHeap;

use profiler_base::kernel_names::{self, Pattern};
use rustc_hash::FxHashMap;

use super::{AttributionMode, Filter, KindFilter, Query, Selection, Selector};
use crate::join::tables::{Interval, Label, OperationId, RangeId, Tables, What, Work};
use crate::profile::{Attribution, GpuOperation, OperationKind, Profile, RangeNode};

/// The operations of a query, by start.
pub(super) struct Operations<'a> {
    profile: &'a Profile,
    rows: Rows,
    /// Selected works, by id; empty for all.
    works: Vec<bool>,
    /// Selected ranges, if needed.
    ranges: Option<Vec<bool>>,
    is_capture: bool,
    with_inferred: bool,
    /// For each range, true if it is selected itself; used only for late calls.
    selected: Vec<bool>,
    /// Ranges in which graph nodes were captured, if selected.
    captured: Option<Vec<bool>>,
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
        let selection = &query.selection;
        let selector = &selection.ranges;
        let is_capture = selector.mode == AttributionMode::Capture;
        let rows = match selector.mode {
            AttributionMode::Window => Rows::InWindows(in_windows(profile, selector).into_iter()),
            _ => match selector.listed(profile) {
                Some(rows) => Rows::Listed(rows.into_iter()),
                None => Rows::All(0..store.operations.len() as u32),
            },
        };
        let is_decided = !matches!(rows, Rows::All(_));
        let by_range = !is_decided && (selector.is_set() || is_capture);
        let is_crossed = by_range && !selector.directly && profile.tree.crossings().is_some();
        Self {
            profile,
            rows,
            works: selection.works_of(store),
            ranges: by_range.then(|| selector.selected_with_descendants(profile)),
            selected: if is_crossed { selector.selected(profile) } else { Vec::new() },
            is_capture,
            with_inferred: selector.with_inferred && !is_capture,
            captured: selection.captured_in(profile),
            outside: selector.outside,
            threads: selection.threads_of(store),
            times: selection.times.clone(),
            filters: query.filters.clone(),
        }
    }

    /// Returns the operation with its range by the mode of the query. `None` if capture mode finds
    /// no range.
    fn attributed(&self, id: OperationId) -> Option<GpuOperation<'a>> {
        let operation = self.profile.operation(id);
        if self.is_capture {
            let captured = operation.row().captured.get()?;
            return Some(operation.assigned_to(captured, Attribution::Capture));
        }
        if !self.with_inferred {
            return Some(operation);
        }
        Some(match operation.inferred_range() {
            Some(range) => operation.assigned_to(range.id, Attribution::Inferred),
            None => operation,
        })
    }

    /// Returns true if a late operation is attributed to a selected range; `None` for all other
    /// operations.
    fn is_late_selected(&self, operation: &GpuOperation<'a>) -> Option<bool> {
        if self.selected.is_empty() {
            return None;
        }
        Some(operation.late_chain()?.any(|range| self.selected[range.id.at()]))
    }

    fn is_wanted(&self, operation: &GpuOperation<'a>) -> bool {
        let store = &self.profile.store;
        let row = operation.row();
        let is_captured = |ranges: &Vec<bool>| row.captured.get().is_some_and(|id| ranges[id.at()]);
        if !self.captured.as_ref().is_none_or(is_captured) {
            return false;
        }
        if !self.works.is_empty() && !self.works[row.work.at()] {
            return false;
        }
        if let Some(ranges) = &self.ranges {
            let is_in = match operation.range().map(|range| range.id) {
                Some(range) => self.is_late_selected(operation).unwrap_or(ranges[range.at()]),
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
            let row = match &mut self.rows {
                Rows::All(rows) => OperationId(rows.next()?),
                Rows::Listed(rows) => rows.next()?,
                Rows::InWindows(rows) => {
                    let (row, range) = rows.next()?;
                    let operation = self.profile.operation(row);
                    let operation = operation.assigned_to(range, Attribution::Window);
                    if self.is_wanted(&operation) {
                        return Some(operation);
                    }
                    continue;
                }
            };
            let Some(operation) = self.attributed(row) else { continue };
            if self.is_wanted(&operation) {
                return Some(operation);
            }
        }
    }
}

impl Selection {
    /// Selected works, by id; empty for all.
    fn works_of(&self, store: &Tables) -> Vec<bool> {
        let any = |of: &[u32], value: u32| of.is_empty() || of.contains(&value);
        let narrows = !self.kinds.is_empty() || !self.names.is_empty();
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
                && (self.kinds.is_empty() || self.kinds.iter().any(|kind| kind.matches(&work.what)))
                && (self.names.is_empty() || is_named(&self.names, store, &work.what, &mut named))
        };
        store.works().iter().map(wanted).collect()
    }

    /// For each range, true if graph nodes captured in it are selected; `None` if all operations
    /// are.
    fn captured_in(&self, profile: &Profile) -> Option<Vec<bool>> {
        let selector = Selector { patterns: self.captured.clone(), ..Selector::default() };
        (!self.captured.is_empty()).then(|| selector.selected_with_descendants(profile))
    }

    /// Selected threads, by id; empty for all.
    fn threads_of(&self, store: &Tables) -> Vec<bool> {
        if self.threads.is_empty() {
            return Vec::new();
        }
        store.threads.iter().map(|thread| self.threads.contains(&thread.id)).collect()
    }
}

fn is_named<'a>(
    patterns: &[Pattern],
    store: &'a Tables,
    what: &What,
    known: &mut FxHashMap<&'a str, bool>,
) -> bool {
    let What::Kernel { names, .. } = what else {
        return false;
    };
    let name = store.names.get(names.name);
    *known.entry(name).or_insert_with(|| {
        let shown = kernel_names::displayed(name, names.demangled.map(|id| store.names.get(id)));
        patterns.iter().any(|pattern| pattern.matches(name) || pattern.matches(&shown))
    })
}

impl KindFilter {
    fn matches(self, what: &What) -> bool {
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
    /// True if positions in the range tree are selected.
    fn has_position(&self) -> bool {
        !(self.patterns.is_empty() && self.nodes.is_empty() && self.instances.is_empty())
    }

    /// True if any filter is set.
    fn is_set(&self) -> bool {
        self.has_position()
            || self.outside
            || self.directly
            || !self.domains.is_empty()
            || !self.categories.is_empty()
    }

    /// The listed operations, or the operations of a single range or node from the index of the
    /// tree; `None` for other selections.
    fn listed(&self, profile: &Profile) -> Option<Vec<OperationId>> {
        if let Some(rows) = &self.rows {
            return Some(rows.to_vec());
        }
        let more = !self.patterns.is_empty()
            || self.outside
            || !self.domains.is_empty()
            || !self.categories.is_empty();
        if more {
            return None;
        }
        let tree = &profile.tree;
        let is_capture = self.mode == AttributionMode::Capture;
        let of_range =
            |range: RangeId, into: &mut Vec<OperationId>| match (is_capture, self.directly) {
                (true, false) => into.extend(tree.replays(range)),
                (_, false) => into.extend(tree.operations(range)),
                (_, true) => into.extend(tree.own_operations(range)),
            };
        let of_range = |range: RangeId, into: &mut Vec<OperationId>| {
            of_range(range, into);
            match self.directly {
                _ if !self.with_inferred || is_capture => {}
                true => into.extend(tree.own_inferred_operations(range)),
                false => into.extend(tree.inferred_operations(range)),
            }
        };
        if is_capture && self.directly {
            return None;
        }
        let mut rows = Vec::new();
        match (&self.instances[..], &self.nodes[..]) {
            ([range], []) => of_range(*range, &mut rows),
            // Instances of a node never contain each other.
            ([], [node]) => tree.instances(*node).for_each(|range| of_range(range, &mut rows)),
            _ => return None,
        }
        rows.sort_unstable();
        Some(rows)
    }

    /// For each range, true if it is selected.
    fn selected(&self, profile: &Profile) -> Vec<bool> {
        let (store, tree) = (&profile.store, &profile.tree);
        // "Outside ranges" alone selects no range.
        let none_else = self.domains.is_empty() && self.categories.is_empty();
        let is_narrow = self.has_position() || (self.outside && none_else);
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
        let mut selected: Vec<bool> = (store.ranges.iter())
            .zip(&tree.of_range)
            .map(|(range, node)| {
                let (is_here, in_domain) = nodes[node.at()];
                is_here && in_domain && labels[range.label.at()]
            })
            .collect();
        for range in &self.instances {
            let (_, in_domain) = nodes[tree.of_range[range.at()].at()];
            let label = store.ranges[range.at()].label;
            selected[range.at()] |= in_domain && labels[label.at()];
        }
        selected
    }

    /// For each range, true if work submitted in it is selected.
    fn selected_with_descendants(&self, profile: &Profile) -> Vec<bool> {
        let mut selected = self.selected(profile);
        if !self.directly {
            for range in profile.tree.ranges() {
                let parent = profile.store.ranges[range.at()].parent.get();
                selected[range.at()] |= parent.is_some_and(|parent| selected[parent.at()]);
            }
        }
        selected
    }
}

/// The operations that started while a selected range was open, with the range that began last.
fn in_windows(profile: &Profile, selector: &Selector) -> Vec<(OperationId, RangeId)> {
    let store = &profile.store;
    let selected = selector.selected(profile);
    let rows = (0..store.ranges.len() as u32).map(RangeId);
    let mut windows: Vec<RangeId> = rows.filter(|range| selected[range.at()]).collect();
    store.sort_ranges(&mut windows);
    let mut next = windows.into_iter().peekable();
    // The range that began last is on top; ended ranges are popped and never return.
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
