//! The range tree: all instances of `batch / forward` are one node with its sums. An index maps
//! each range to its work and calls, with and without descendants.

mod crossings;
mod index;
mod places;

use std::ops::Range as Span;
use std::sync::OnceLock;

use cupti::tables;
use profiler_base::kernel_names::Level;
use profiler_base::order;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::join::tables::{
    Call, CallId, LabelId, NameId, Operation, OperationId, ProcessRangeId, Range, RangeId, ShareId,
    Subject, Tables, What,
};
use crate::join::totals::Totals;

use crossings::{Crossings, LateWork};
use index::{Index, NOWHERE, Owners, SharedIndex};
use places::{Places, RowPlaces};

/// Row of [`Tree::nodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The index of the node.
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

/// A node of the range tree: the ranges of one path.
#[derive(Debug, Default)]
pub struct Node {
    /// The name of its ranges.
    pub name: NameId,
    /// `None` is the default domain.
    pub domain: Option<NameId>,
    /// The enclosing node; `None` for an outermost one.
    pub parent: Option<NodeId>,
    /// Its depth.
    pub level: Level,
    /// The children, in the order they first began.
    pub children: Vec<NodeId>,
    /// The number of its ranges.
    pub instances: u64,
    /// The host time of all instances.
    pub host_ns: u64,
    /// The totals without descendants.
    pub exclusive: Totals,
    /// The totals with descendants, without work submitted after the end of an instance.
    pub inclusive: Totals,
    /// Executions of graph nodes created in the ranges and their descendants.
    pub replayed: Totals,
    /// Shared work of the ranges and their descendants that is attributed to others.
    pub shared: Totals,
    /// Work without a range that is inferred for the ranges and their descendants.
    pub inferred: Totals,
}

/// The tree of ranges: each range is an instance of the node of its path.
#[derive(Debug, Default)]
pub struct Tree {
    /// Parents precede their children.
    pub nodes: Vec<Node>,
    /// The outermost nodes.
    pub roots: Vec<NodeId>,
    /// The node of every range.
    pub of_range: Vec<NodeId>,
    /// Calls and operations outside all ranges, and operations without a call.
    pub outside: Totals,
    /// The activations of each process range, by start.
    pub activations: Vec<Vec<RangeId>>,
    places: Places,
    /// `None` if no range ends before a range that began within it.
    crossings: Option<Box<Crossings>>,
    operations: Index,
    calls: Index,
    /// Operations by the range that created their graph node; empty without any.
    replays: Index,
    /// True if any range has shared work.
    pub has_shared: bool,
    /// [`Tables::shares`] by position of their ranges; empty if there are none.
    shares: SharedIndex,
    /// Operations and calls by share.
    shared_operations: Index,
    shared_calls: Index,
    /// Operations and calls by their inferred range; empty without any.
    inferred_operations: Index,
    inferred_calls: Index,
    /// The instances of each node, computed on first use.
    instances: OnceLock<Index>,
}

impl Tree {
    pub(crate) fn build(store: &Tables) -> Self {
        let mut tree = Self::default();
        let rows = (0..store.ranges.len() as u32).map(RangeId);
        let mut places = RowPlaces::with_capacity(store.ranges.len());
        if tree.add_nodes(store, rows.clone(), |id, range| places.push(id, range)) {
            tree.places = places.finish();
        } else {
            tree = Self::default();
            let mut order = tables::collected(rows);
            store.sort_ranges(&mut order);
            tree.places = Places::new(store, &order);
            tree.add_nodes(store, order.into_iter(), |_, _| true);
        }
        tree.crossings = Crossings::new(store, tree.ranges()).map(Box::new);
        tree.add_work(store);
        tree.add_stays(store);
        tree
    }

    fn add_shared_index(&mut self, store: &Tables) {
        if store.shares.is_empty() {
            return;
        }
        let places = &self.places;
        let shares = (0..).zip(&store.shares).map(|(row, share)| {
            (row, share.iter().map(|range| places.position(*range)).collect::<Vec<u32>>())
        });
        self.shares = SharedIndex::new(store.ranges.len(), shares);
        let share = |call: &Call| store.call_kind(call).share.map_or(NOWHERE, |share| share.0);
        let of_calls: Vec<u32> = store.calls.iter().map(share).collect();
        let of_operation =
            |row: &Operation| row.call.get().map_or(NOWHERE, |call| of_calls[call.at()]);
        let of_operations: Vec<u32> = store.operations.iter().map(of_operation).collect();
        self.shared_operations = Index::new(store.shares.len(), of_operations);
        self.shared_calls = Index::new(store.shares.len(), of_calls);
    }

    /// The rows shared with these positions, without duplicates, in order.
    fn shared_rows(&self, index: &Index, places: &Span<usize>) -> std::vec::IntoIter<u32> {
        let shares = self.shares.rows(places.clone()).map(|share| share as usize);
        let mut rows: Vec<u32> =
            shares.flat_map(|share| index.rows(share..share + 1)).copied().collect();
        rows.sort_unstable();
        rows.into_iter()
    }

    fn add_stays(&mut self, store: &Tables) {
        self.activations.resize_with(store.process_ranges.len(), Vec::new);
        let mut activations: Vec<(RangeId, ProcessRangeId)> = store
            .details
            .iter()
            .filter_map(|(subject, details)| match subject {
                Subject::Range(range) => Some((*range, details.within?)),
                _ => None,
            })
            .collect();
        order::sort_by_key(&mut activations, |(range, _)| store.order(*range));
        for (range, whole) in activations {
            self.activations[whole.at()].push(range);
        }
    }

    /// Adds the nodes of ranges; returns false once `goes_on` is false for a range. Children are in
    /// the order they first began, on any thread.
    fn add_nodes(
        &mut self,
        store: &Tables,
        order: impl Iterator<Item = RangeId>,
        mut goes_on: impl FnMut(RangeId, &Range) -> bool,
    ) -> bool {
        let mut ids = FxHashMap::default();
        // Labels that differ only in colour or category share a node.
        let mut by_label: FxHashMap<(u32, LabelId), NodeId> = FxHashMap::default();
        // The node of the previous range, which the next one usually shares.
        let mut last = None;
        self.of_range = tables::filled(NodeId(0), store.ranges.len());
        for range in order {
            let row = &store.ranges[range.at()];
            if !goes_on(range, row) {
                return false;
            }
            let parent = row.parent.get().map(|parent| self.of_range[parent.at()]);
            let key = (parent.map_or(u32::MAX, |parent| parent.0), row.label);
            let node = match last {
                Some((last, node)) if last == key => node,
                _ => *by_label
                    .entry(key)
                    .or_insert_with(|| self.add_node(store, parent, row.label, &mut ids)),
            };
            last = Some((key, node));
            self.of_range[range.at()] = node;
            let node = &mut self.nodes[node.at()];
            node.instances += 1;
            node.host_ns = node.host_ns.saturating_add(row.time.ns());
        }
        true
    }

    fn add_node(
        &mut self,
        store: &Tables,
        parent: Option<NodeId>,
        label: LabelId,
        ids: &mut FxHashMap<(Option<NodeId>, Option<NameId>, NameId), NodeId>,
    ) -> NodeId {
        let label = store.label(label);
        *ids.entry((parent, label.domain, label.name)).or_insert_with(|| {
            let id = NodeId(self.nodes.len() as u32);
            let around = parent.map(|parent| self.nodes[parent.at()].level);
            self.nodes.push(Node {
                name: label.name,
                domain: label.domain,
                parent,
                level: Level::new(id.at(), around),
                ..Node::default()
            });
            match parent {
                Some(parent) => self.nodes[parent.at()].children.push(id),
                None => self.roots.push(id),
            }
            id
        })
    }

    /// Computes sums and index in one pass, because calls and operations exceed the caches.
    fn add_work(&mut self, store: &Tables) {
        let count = store.ranges.len();
        // Late work is added to the exclusive sums after these were added to the ancestors' sums.
        let mut crossings = self.crossings.take();
        // The position of each call's range.
        let mut of_calls = Owners::new(count, store.calls.len());
        for (row, call) in (0..).zip(&store.calls) {
            let range = call.range.get();
            of_calls.push(range.map_or(NOWHERE, |range| self.places.position(range)));
            if let Some(crossings) = &mut crossings
                && let Some(late) = crossings.late(store, call)
            {
                crossings.add_call(CallId(row), late);
                continue;
            }
            add_call(self.own_totals(range), store, call);
        }
        let mut of_operations = Owners::new(count, store.operations.len());
        let mut has_captured = false;
        for (row, operation) in (0..).zip(&store.operations) {
            let place = operation.call.get().map_or(NOWHERE, |call| of_calls.of[call.at()]);
            of_operations.push(place);
            match late_of(crossings.as_deref(), operation) {
                Some(late) => crossings
                    .iter_mut()
                    .for_each(|crossings| crossings.add_operation(OperationId(row), late)),
                None => add_operation(self.own_totals(self.places.range(place)), store, operation),
            }
            if let Some(range) = operation.captured.get() {
                has_captured = true;
                let node = self.of_range[range.at()];
                add_operation(&mut self.nodes[node.at()].replayed, store, operation);
            }
        }
        self.calls = of_calls.into_index();
        self.operations = of_operations.into_index();
        if has_captured {
            let of_capture = |row: &Operation| {
                row.captured.get().map_or(NOWHERE, |range| self.places.position(range))
            };
            let of_captures = tables::collected(store.operations.iter().map(of_capture));
            self.replays = Index::new(count, of_captures);
        }
        // Children follow their parent: going backwards, nodes are complete before they are added.
        for row in (0..self.nodes.len()).rev() {
            let node = &mut self.nodes[row];
            let exclusive = node.exclusive;
            node.inclusive += exclusive;
            let (inclusive, replayed, parent) = (node.inclusive, node.replayed, node.parent);
            if let Some(parent) = parent {
                self.nodes[parent.at()].inclusive += inclusive;
                self.nodes[parent.at()].replayed += replayed;
            }
        }
        self.crossings = crossings;
        self.add_late_work(store);
        self.add_shared(store);
        self.add_shared_index(store);
    }

    /// Adds late work to the sums of the ranges to which it is attributed.
    fn add_late_work(&mut self, store: &Tables) {
        let Some(crossings) = &self.crossings else { return };
        let (nodes, of_range) = (&mut self.nodes, &self.of_range);
        let mut add_all = |late: LateWork, add: &dyn Fn(&mut Totals)| {
            for (at, range) in crossings.chain(late).enumerate() {
                let node = &mut nodes[of_range[range.at()].at()];
                add(&mut node.inclusive);
                if at == 0 {
                    add(&mut node.exclusive);
                }
            }
        };
        let (calls, operations) = crossings.late_work();
        for (call, late) in calls {
            add_all(late, &|totals| add_call(totals, store, &store.calls[call.at()]));
        }
        for (row, late) in operations {
            let operation = &store.operations[row.at()];
            add_all(late, &|totals| add_operation(totals, store, operation));
        }
    }

    /// The ranges that cross; `None` if no range ends before a range that began within it.
    pub fn crossings(&self) -> Option<&Crossings> {
        self.crossings.as_deref()
    }

    /// The ranges to which the work of a call is attributed, innermost first, if an ancestor of its
    /// range excludes it.
    #[inline]
    pub fn late_chain(&self, store: &Tables, call: &Call) -> Option<impl Iterator<Item = RangeId>> {
        let crossings = self.crossings()?;
        crossings.late(store, call).map(|late| crossings.chain(late))
    }

    /// The crossings, if they affect a range and the work of its descendants.
    #[inline]
    fn crossings_of(&self, range: RangeId) -> Option<&Crossings> {
        self.crossings().filter(|crossings| crossings.is_outlived(range))
    }

    /// The totals that are attributed to one of these ranges, but not to the outermost of them
    /// around it.
    pub(crate) fn late_totals(&self, store: &Tables, is_of: impl Fn(RangeId) -> bool) -> Totals {
        let Some(crossings) = self.crossings() else { return Totals::default() };
        let is_missing = |late: LateWork| {
            let outermost = crossings.ancestors(late).filter(|range| is_of(*range)).last();
            outermost.is_some_and(|outermost| crossings.leaves_out(outermost, Some(late)))
                && crossings.chain(late).any(&is_of)
        };
        let (calls, operations) = crossings.late_work();
        let operations = operations.filter(|(_, late)| is_missing(*late)).map(|(row, _)| row);
        totals(store, operations, calls.filter(|(_, late)| is_missing(*late)).map(|(row, _)| row))
    }

    /// Adds each call and its work once to every path that contains one of its ranges, except the
    /// range to which it is attributed.
    fn add_shared(&mut self, store: &Tables) {
        if store.shares.is_empty() {
            return;
        }
        // Work shared by the same ranges is added to the same paths.
        let mut sums: FxHashMap<(Option<NodeId>, ShareId), Totals> = FxHashMap::default();
        let key = |call: &Call| {
            let node = call.range.get().map(|range| self.of_range[range.at()]);
            Some((node, store.call_kind(call).share?))
        };
        for operation in &store.operations {
            let call = operation.call.get().map(|call| &store.calls[call.at()]);
            if let Some(key) = call.and_then(key) {
                add_operation(sums.entry(key).or_default(), store, operation);
            }
        }
        for call in &store.calls {
            if let Some(key) = key(call) {
                add_call(sums.entry(key).or_default(), store, call);
            }
        }
        let mut marks = Marks::new(self.nodes.len());
        for ((node, share), sum) in sums {
            for node in self.shared_nodes(node, &store.shares[share.at()], &mut marks) {
                self.has_shared = true;
                self.nodes[node.at()].shared += sum;
            }
        }
    }

    /// Adds the sums and the index of [`Tables::inferred`].
    pub(crate) fn add_inferred(&mut self, store: &Tables) {
        if store.inferred.is_empty() {
            return;
        }
        let count = store.ranges.len();
        self.nodes.iter_mut().for_each(|node| node.inferred = Totals::default());
        let mut of_calls = Owners::new(count, store.calls.len());
        for (call, range) in store.calls.iter().zip(&store.inferred) {
            of_calls.push(range.get().map_or(NOWHERE, |range| self.places.position(range)));
            if let Some(range) = range.get() {
                add_call(&mut self.nodes[self.of_range[range.at()].at()].inferred, store, call);
            }
        }
        let mut of_operations = Owners::new(count, store.operations.len());
        for operation in &store.operations {
            let place = operation.call.get().map_or(NOWHERE, |call| of_calls.of[call.at()]);
            of_operations.push(place);
            if let Some(range) = self.places.range(place) {
                let node = &mut self.nodes[self.of_range[range.at()].at()];
                add_operation(&mut node.inferred, store, operation);
            }
        }
        self.inferred_calls = of_calls.into_index();
        self.inferred_operations = of_operations.into_index();
        // Children follow their parent.
        for row in (0..self.nodes.len()).rev() {
            let (inferred, parent) = (self.nodes[row].inferred, self.nodes[row].parent);
            parent.into_iter().for_each(|parent| self.nodes[parent.at()].inferred += inferred);
        }
    }

    fn shared_nodes(
        &self,
        counts_for: Option<NodeId>,
        shares: &[RangeId],
        marks: &mut Marks,
    ) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        let up =
            |node: NodeId| std::iter::successors(Some(node), |node| self.nodes[node.at()].parent);
        let around = |range: &RangeId| up(self.of_range[range.at()]);
        marks.clear();
        counts_for.into_iter().flat_map(up).for_each(|node| _ = marks.mark(node));
        for range in shares {
            // Ancestors of a marked node are marked.
            nodes.extend(around(range).take_while(|node| marks.mark(*node)));
        }
        nodes
    }

    /// The shared work of the nodes for which `is_of` is true; each call and operation counts once.
    pub(crate) fn shared_of(&self, store: &Tables, is_of: impl Fn(NodeId) -> bool) -> Totals {
        let mut totals = Totals::default();
        if store.shares.is_empty() {
            return totals;
        }
        let mut of: Vec<bool> = tables::with_capacity(self.nodes.len());
        for (row, node) in (0..).zip(&self.nodes) {
            let is_within = node.parent.is_some_and(|parent| of[parent.at()]);
            of.push(is_within || is_of(NodeId(row)));
        }
        let is_in = |range: RangeId| of[self.of_range[range.at()].at()];
        let is_share_in: Vec<bool> =
            store.shares.iter().map(|share| share.iter().copied().any(is_in)).collect();
        let counts = |call: &Call| {
            let is_counted = call.range.get().is_some_and(is_in);
            let share = store.call_kind(call).share;
            !is_counted && share.is_some_and(|share| is_share_in[share.at()])
        };
        for operation in &store.operations {
            if operation.call.get().is_some_and(|call| counts(&store.calls[call.at()])) {
                add_operation(&mut totals, store, operation);
            }
        }
        let calls = store.calls.iter().filter(|call| counts(call));
        calls.for_each(|call| add_call(&mut totals, store, call));
        totals
    }

    #[inline]
    fn own_totals(&mut self, range: Option<RangeId>) -> &mut Totals {
        match range {
            Some(range) => &mut self.nodes[self.of_range[range.at()].at()].exclusive,
            None => &mut self.outside,
        }
    }

    /// The node with this index.
    pub fn node_at(&self, id: NodeId) -> &Node {
        &self.nodes[id.at()]
    }

    /// The instances of a node, by thread in start order.
    pub fn instances(&self, node: NodeId) -> impl Iterator<Item = RangeId> + Clone {
        let instances = self.instances.get_or_init(|| {
            let of: Vec<_> = self.of_range.iter().map(|node| node.0).collect();
            Index::new(self.nodes.len(), of)
        });
        instances.rows(node.at()..node.at() + 1).iter().copied().map(RangeId)
    }

    /// All ranges, parents before their children.
    pub fn ranges(&self) -> impl Iterator<Item = RangeId> {
        self.places.ranges(0..self.of_range.len())
    }

    /// The positions of a range and its descendants in depth-first order.
    pub fn places(&self, range: RangeId) -> Span<usize> {
        self.places.subtree(range)
    }

    /// A range and its descendants in depth-first order.
    pub fn subtree(&self, range: RangeId) -> impl Iterator<Item = RangeId> + Clone {
        self.places.ranges(self.places.subtree(range))
    }

    /// The GPU operations of a range with descendants: range by range, each by start. Excludes
    /// operations submitted after its end.
    pub fn operations(&self, range: RangeId) -> impl Iterator<Item = OperationId> + Clone {
        let operations = self.operations.rows(self.places.subtree(range)).iter().copied();
        let crossings = self.crossings_of(range);
        operations.map(OperationId).filter(move |row| {
            crossings.is_none_or(|of| !of.leaves_out(range, of.late_operation(*row)))
        })
    }

    /// The GPU operations of a range without descendants.
    pub fn own_operations(&self, range: RangeId) -> impl Iterator<Item = OperationId> + Clone {
        let place = self.places.position(range) as usize;
        self.operations.rows(place..place + 1).iter().copied().map(OperationId)
    }

    /// The executions of graph nodes created in a range and its descendants.
    pub(crate) fn replays(&self, range: RangeId) -> impl Iterator<Item = OperationId> + Clone {
        self.replays.rows(self.places.subtree(range)).iter().copied().map(OperationId)
    }

    /// Shared operations of a range with descendants, attributed to others; no duplicates.
    pub(crate) fn shared_operations(
        &self,
        store: &Tables,
        range: RangeId,
    ) -> impl Iterator<Item = OperationId> + Clone {
        let within = self.places.subtree(range);
        let operations = self.shared_rows(&self.shared_operations, &within).map(OperationId);
        operations.filter(move |row| {
            let counts_for = store.range_of(store.operations[row.at()].call);
            !self.is_at(counts_for, &within)
        })
    }

    /// Shared calls of a range with descendants, attributed to others; no duplicates.
    pub(crate) fn shared_calls(
        &self,
        store: &Tables,
        range: RangeId,
    ) -> impl Iterator<Item = CallId> + Clone {
        let within = self.places.subtree(range);
        let calls = self.shared_rows(&self.shared_calls, &within).map(CallId);
        calls.filter(move |row| !self.is_at(store.calls[row.at()].range.get(), &within))
    }

    fn is_at(&self, range: Option<RangeId>, places: &Span<usize>) -> bool {
        range.is_some_and(|range| places.contains(&(self.places.position(range) as usize)))
    }

    /// The calls of a range with descendants: range by range, each in call order. Excludes calls
    /// after its end.
    pub fn calls(&self, range: RangeId) -> impl Iterator<Item = CallId> + Clone {
        let crossings = self.crossings_of(range);
        let calls = self.calls.rows(self.places.subtree(range)).iter().copied().map(CallId);
        calls
            .filter(move |row| crossings.is_none_or(|of| !of.leaves_out(range, of.late_call(*row))))
    }

    /// The calls of a range without descendants.
    pub(crate) fn own_calls(&self, range: RangeId) -> impl Iterator<Item = CallId> + Clone {
        let place = self.places.position(range) as usize;
        self.calls.rows(place..place + 1).iter().copied().map(CallId)
    }

    /// The totals of a range with descendants.
    pub fn inclusive(&self, store: &Tables, range: RangeId) -> Totals {
        totals(store, self.operations(range), self.calls(range))
    }

    /// The totals of a range without descendants.
    pub fn exclusive(&self, store: &Tables, range: RangeId) -> Totals {
        totals(store, self.own_operations(range), self.own_calls(range))
    }

    /// The work that graph launches executed with nodes that this range created.
    pub fn replayed(&self, store: &Tables, range: RangeId) -> Totals {
        totals(store, self.replays(range), std::iter::empty())
    }

    /// The operations without a range that are inferred for a range with descendants.
    pub(crate) fn inferred_operations(
        &self,
        range: RangeId,
    ) -> impl Iterator<Item = OperationId> + Clone {
        let places = self.places.subtree(range);
        self.inferred_operations.rows(places).iter().copied().map(OperationId)
    }

    /// The operations that are inferred for a range without descendants.
    pub(crate) fn own_inferred_operations(
        &self,
        range: RangeId,
    ) -> impl Iterator<Item = OperationId> + Clone {
        let place = self.places.position(range) as usize;
        self.inferred_operations.rows(place..place + 1).iter().copied().map(OperationId)
    }

    /// The work outside all ranges that is [inferred](crate::Profile::with_inferred_ranges) for
    /// this range.
    pub fn inferred(&self, store: &Tables, range: RangeId) -> Totals {
        let calls = self.inferred_calls.rows(self.places.subtree(range));
        totals(store, self.inferred_operations(range), calls.iter().copied().map(CallId))
    }

    /// The work of other ranges that this range shares.
    pub fn shared(&self, store: &Tables, range: RangeId) -> Totals {
        totals(store, self.shared_operations(store, range), self.shared_calls(store, range))
    }

    /// The totals of the activations of a process range.
    pub fn of_process_range(&self, store: &Tables, whole: ProcessRangeId) -> Totals {
        let mut places: Vec<(Span<usize>, RangeId)> = self.activations[whole.at()]
            .iter()
            .map(|&activation| (self.places.subtree(activation), activation))
            .collect();
        order::sort_by_number(&mut places, |(places, _)| places.start as u64);
        let (mut totals, mut until) = (Totals::default(), 0);
        for (places, activation) in places {
            // The sum of an enclosing activation includes it.
            if places.start >= until {
                totals += self.inclusive(store, activation);
                until = places.end;
            }
        }
        if self.crossings.is_some() {
            let activations: FxHashSet<RangeId> =
                self.activations[whole.at()].iter().copied().collect();
            totals += self.late_totals(store, |range| activations.contains(&range));
        }
        totals
    }
}

/// The late call of an operation.
#[inline]
fn late_of(crossings: Option<&Crossings>, operation: &Operation) -> Option<LateWork> {
    crossings?.late_call(operation.call.get()?)
}

/// Marked nodes, which can all be unmarked at once.
struct Marks {
    /// The round in which each node was last marked.
    rounds: Vec<u64>,
    round: u64,
}

impl Marks {
    fn new(nodes: usize) -> Self {
        Self { rounds: tables::filled(0, nodes), round: 0 }
    }

    fn clear(&mut self) {
        self.round += 1;
    }

    /// Marks a node; false if it was marked.
    fn mark(&mut self, node: NodeId) -> bool {
        let round = &mut self.rounds[node.at()];
        std::mem::replace(round, self.round) != self.round
    }
}

/// Replays of graph nodes with a known capture, by the node of the launch and the node of the
/// capture.
pub(crate) fn captures(
    store: &Tables,
    tree: &Tree,
) -> FxHashMap<Option<NodeId>, FxHashMap<NodeId, Totals>> {
    let mut captures: FxHashMap<Option<NodeId>, FxHashMap<NodeId, Totals>> = FxHashMap::default();
    for operation in &store.operations {
        let Some(captured) = operation.captured.get() else { continue };
        let launch = store.range_of(operation.call).map(|range| tree.of_range[range.at()]);
        let of_launch = captures.entry(launch).or_default();
        let totals = of_launch.entry(tree.of_range[captured.at()]).or_default();
        add_operation(totals, store, operation);
    }
    captures
}

/// The totals of each process.
pub fn totals_by_process(store: &Tables) -> FxHashMap<u32, Totals> {
    let mut totals: FxHashMap<u32, Totals> = FxHashMap::default();
    for operation in &store.operations {
        let of_process = totals.entry(store.work(operation).process).or_default();
        add_operation(of_process, store, operation);
    }
    for call in &store.calls {
        let process = store.threads[call.thread.at()].process;
        add_call(totals.entry(process).or_default(), store, call);
    }
    totals
}

fn totals(
    store: &Tables,
    operations: impl Iterator<Item = OperationId>,
    calls: impl Iterator<Item = CallId>,
) -> Totals {
    let mut totals = Totals::default();
    operations.for_each(|row| add_operation(&mut totals, store, &store.operations[row.at()]));
    calls.for_each(|row| add_call(&mut totals, store, &store.calls[row.at()]));
    totals
}

#[inline]
pub(crate) fn add_operation(totals: &mut Totals, store: &Tables, operation: &Operation) {
    let ns = operation.ns();
    match &store.work(operation).what {
        What::Kernel { .. } => totals.add_kernel(ns),
        What::Copy(copy) => totals.add_copy(ns, copy.bytes),
        What::Memset(memset) => totals.add_memset(ns, memset.bytes),
        What::Graph(_) => totals.add_graph(ns),
    }
}

#[inline]
pub(crate) fn add_call(totals: &mut Totals, store: &Tables, call: &Call) {
    let kind = store.call_kind(call);
    totals.add_call(kind.class, kind.is_failure(), kind.captured, call.time.ns());
}
