//! The range in which each node of a CUDA graph was created.
//!
//! A launch runs a copy of the captured graph, and each of its nodes is a copy of a node. CUPTI
//! reports the copy when the graph is instantiated, cloned, or added to another as a child. A copy
//! belongs to the range of its original.

use std::collections::VecDeque;
use std::hash::Hash;

use cupti::{GraphEvent, GraphEventKind};
use profiler_base::order;
use rustc_hash::{FxHashMap, FxHashSet};

/// Ranges by graph node, for nodes that were created in one. `T` identifies a range, `N` a node.
#[derive(Debug, Default)]
pub struct GraphNodes<T, N = u64> {
    ranges: FxHashMap<N, T>,
    /// Destroyed nodes in the order of destruction: at most `most_destroyed`.
    destroyed: VecDeque<N>,
    most_destroyed: usize,
}

impl<T: Copy, N: Copy + Eq + Hash> GraphNodes<T, N> {
    /// Stores this number of destroyed nodes for records that arrive later.
    pub fn new(most_destroyed: usize) -> Self {
        Self { ranges: FxHashMap::default(), destroyed: VecDeque::new(), most_destroyed }
    }

    /// Adds a node that was created in a range or outside all ranges.
    pub fn create(&mut self, node: N, range: Option<T>) {
        match range {
            Some(range) => _ = self.ranges.insert(node, range),
            None => _ = self.ranges.remove(&node),
        }
    }

    /// Adds a node that is a copy of a known one. The range is the original's range, wherever the
    /// copy was created.
    pub fn copy(&mut self, node: N, original: N) {
        self.create(node, self.range(original));
    }

    /// Returns the range in which a node or its original was created.
    #[inline]
    pub fn range(&self, node: N) -> Option<T> {
        self.ranges.get(&node).copied()
    }

    /// Removes a node later, because its records may still arrive.
    fn destroy(&mut self, node: N) {
        if !self.ranges.contains_key(&node) {
            return;
        }
        if self.destroyed.len() == self.most_destroyed
            && let Some(oldest) = self.destroyed.pop_front()
        {
            self.ranges.remove(&oldest);
        }
        self.destroyed.push_back(node);
    }
}

impl<T: Copy> GraphNodes<T> {
    /// Adds the events of all threads, which are later than all earlier added ones. `range_of`
    /// resolves the tag of an event.
    pub fn add<'a>(
        &mut self,
        events: impl Iterator<Item = &'a GraphEvent>,
        mut range_of: impl FnMut(u64) -> Option<T>,
    ) {
        let mut events: Vec<&GraphEvent> = events.collect();
        order::sort_by_number(&mut events, |event| event.at_ns);
        for event in events {
            match event.kind {
                GraphEventKind::NodeCreated => self.create(event.node, range_of(event.word)),
                // CUPTI reports this after the creation of the copy.
                GraphEventKind::NodeCloned => self.copy(event.node, event.original_node),
                GraphEventKind::NodeDestroyed => self.destroy(event.node),
                _ => {}
            }
        }
    }
}

/// Dependencies between nodes of CUDA graphs, by the nodes that a program created. Copies have the
/// dependencies of their originals.
///
/// CUPTI does not document which node of a reported pair waits. The times of their work determine
/// the direction.
#[derive(Debug, Default)]
pub struct GraphDependencies {
    /// The first original of each copy.
    originals: FxHashMap<u64, u64>,
    /// For each node, the nodes that it was reported with: as the node, and as the dependency.
    reported: FxHashMap<u64, [Vec<u64>; 2]>,
}

impl GraphDependencies {
    /// Reads the dependencies from the events of all threads. Empty, and without cost, if there are
    /// no events of dependencies.
    pub fn new<'a>(events: impl Iterator<Item = &'a GraphEvent> + Clone) -> Self {
        use GraphEventKind::{DependencyCreated, DependencyDestroyed, NodeCloned};
        let mut known = Self::default();
        let is_dependency =
            |event: &GraphEvent| matches!(event.kind, DependencyCreated | DependencyDestroyed);
        if !events.clone().any(is_dependency) {
            return known;
        }
        let mut events: Vec<&GraphEvent> = events.collect();
        order::sort_by_number(&mut events, |event| event.at_ns);
        let mut pairs: FxHashSet<(u64, u64)> = FxHashSet::default();
        let mut copied: FxHashSet<u64> = FxHashSet::default();
        for event in events {
            let [node, other] = [event.node, event.original_node].map(|node| known.original(node));
            match event.kind {
                NodeCloned => {
                    known.originals.insert(event.node, other);
                    copied.insert(other);
                }
                DependencyCreated => _ = pairs.insert((node, other)),
                // Destroying a graph does not change its copies.
                DependencyDestroyed if !copied.contains(&node) => {
                    pairs.remove(&(node, other));
                }
                _ => {}
            }
        }
        let mut pairs: Vec<(u64, u64)> = pairs.into_iter().collect();
        pairs.sort_unstable();
        for (node, other) in pairs {
            known.reported.entry(node).or_default()[0].push(other);
            known.reported.entry(other).or_default()[1].push(node);
        }
        known
    }

    /// True if there are no dependencies.
    pub fn is_empty(&self) -> bool {
        self.reported.is_empty()
    }

    /// The original of a node, through any number of copies, or the node itself.
    pub fn original(&self, node: u64) -> u64 {
        self.originals.get(&node).copied().unwrap_or(node)
    }

    /// The nodes that were reported as dependencies of an original node; with `reversed` the nodes
    /// that depend on it.
    pub fn neighbours(&self, node: u64, reversed: bool) -> &[u64] {
        self.reported.get(&node).map_or(&[], |reported| &reported[usize::from(reversed)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: GraphEventKind, node: u64, original_node: u64, at_ns: u64) -> GraphEvent {
        let mut event = GraphEvent::from_words([0; 7]);
        (event.kind, event.node, event.original_node) = (kind, node, original_node);
        (event.at_ns, event.word) = (at_ns, 10 * node);
        event
    }

    #[test]
    fn copy_of_a_copy_belongs_to_the_range_of_its_original_whatever_the_order_of_threads() {
        use GraphEventKind::{NodeCloned, NodeCreated, NodeDestroyed};
        let mut nodes = GraphNodes::new(usize::MAX);
        let events = [
            event(NodeCreated, 3, 0, 50),
            event(NodeCloned, 3, 2, 51),
            event(NodeDestroyed, 2, 0, 60),
            event(NodeCreated, 1, 0, 10),
            event(NodeCreated, 2, 0, 20),
            event(NodeCloned, 2, 1, 21),
        ];
        nodes.add(events.iter(), Some);
        assert_eq!(
            [1, 2, 3, 4].map(|node| nodes.range(node)),
            [Some(10), Some(10), Some(10), None]
        );
    }

    #[test]
    fn dependencies_match_originals() {
        use GraphEventKind::{DependencyCreated, DependencyDestroyed, NodeCloned};
        let events = [
            event(DependencyCreated, 2, 1, 10),
            event(DependencyCreated, 3, 1, 11),
            event(DependencyCreated, 3, 2, 12),
            event(DependencyDestroyed, 3, 2, 13),
            event(NodeCloned, 12, 2, 20),
            event(NodeCloned, 22, 12, 21),
            // Of the original, which has a copy, and of the copy.
            event(DependencyDestroyed, 2, 1, 22),
            event(DependencyDestroyed, 12, 1, 22),
            // The same once more.
            event(DependencyCreated, 12, 1, 23),
        ];
        let known = GraphDependencies::new(events.iter());
        assert_eq!((known.original(22), known.original(3)), (2, 3));
        assert_eq!((known.neighbours(2, false), known.neighbours(3, false)), (&[1][..], &[1][..]));
        assert_eq!((known.neighbours(1, true), known.neighbours(1, false)), (&[2, 3][..], &[][..]));
        let others = [event(NodeCloned, 12, 2, 20)];
        assert!(GraphDependencies::new(others.iter()).is_empty());
    }

    #[test]
    fn destroyed_nodes_are_forgotten_in_the_end() {
        let mut nodes = GraphNodes::new(100);
        for node in 1..=110 {
            let created = event(GraphEventKind::NodeCreated, node, 0, 1);
            let destroyed = event(GraphEventKind::NodeDestroyed, node, 0, 2);
            nodes.add([created, destroyed].iter(), Some);
        }
        assert_eq!((nodes.ranges.len(), nodes.destroyed.len()), (100, 100));
        assert_eq!((nodes.range(10), nodes.range(11)), (None, Some(110)));
    }
}
