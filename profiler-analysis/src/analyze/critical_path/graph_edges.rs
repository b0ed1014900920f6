//! The edges between nodes of a launched graph, where the program logged its dependencies.

use rustc_hash::FxHashMap;

use profiler_core::tables::GraphDependencies;
use profiler_core::tables::{OperationId, Tables};

/// The maximum number of nodes without work, such as empty ones, that one node is traced through.
const MOST_FOLLOWED: usize = 64;
/// The maximum number of node pairs compared to find the waiting node, plus those of one launch.
const MOST_COMPARED: usize = 1 << 16;

/// The direction of each reported pair of nodes, by the number of pairs that ran in each order.
#[derive(Debug, Default)]
pub(super) struct Direction {
    forward: usize,
    backward: usize,
}

impl Direction {
    /// Compares the nodes of a launch that were reported together. `precedes` is true if the first
    /// ended before the second began.
    pub(super) fn add(
        &mut self,
        store: &Tables,
        launch: &[OperationId],
        precedes: impl Fn(OperationId, OperationId) -> bool,
    ) {
        if self.forward + self.backward >= MOST_COMPARED {
            return;
        }
        let Some((known, by_node)) = nodes(store, launch) else { return };
        for (node, id) in &by_node {
            for other in
                known.neighbours(*node, false).iter().filter_map(|other| by_node.get(other))
            {
                self.forward += usize::from(precedes(*other, *id));
                self.backward += usize::from(precedes(*id, *other));
            }
        }
    }

    /// For each operation of a launch, the operations that it waits for. Empty if there are none,
    /// `None` if unknown.
    pub(super) fn edges(
        &self,
        store: &Tables,
        launch: &[OperationId],
    ) -> Option<Vec<Option<Vec<OperationId>>>> {
        if self.forward == self.backward {
            return None;
        }
        let (known, by_node) = nodes(store, launch)?;
        let is_backward = self.backward > self.forward;
        let waits_for = |id: &OperationId| {
            let node = node_of(store, known, *id)?;
            let mut next = known.neighbours(node, is_backward).to_vec();
            let (mut found, mut followed) = (Vec::new(), 0);
            while let Some(node) = next.pop() {
                match by_node.get(&node) {
                    Some(id) => found.push(*id),
                    None if followed == MOST_FOLLOWED => return None,
                    None => {
                        followed += 1;
                        next.extend(known.neighbours(node, is_backward));
                    }
                }
            }
            found.sort_unstable();
            found.dedup();
            Some(found)
        };
        Some(launch.iter().map(waits_for).collect())
    }
}

/// The original node of an operation.
fn node_of(store: &Tables, known: &GraphDependencies, id: OperationId) -> Option<u64> {
    let work = store.work(&store.operations[id.at()]);
    Some(known.original(work.what.graph_node()?.node))
}

/// The dependencies of a launch's process, and its operations by original node. `None` without
/// dependencies, or if two operations have one node: a graph that contains another one twice.
fn nodes<'s>(
    store: &'s Tables,
    launch: &[OperationId],
) -> Option<(&'s GraphDependencies, FxHashMap<u64, OperationId>)> {
    let process = store.work(&store.operations[launch.first()?.at()]).process;
    let known = store.graph_dependencies.get(&process)?;
    let mut by_node = FxHashMap::default();
    for id in launch {
        if by_node.insert(node_of(store, known, *id)?, *id).is_some() {
            return None;
        }
    }
    let is_known = |node: &u64| {
        !known.neighbours(*node, false).is_empty() || !known.neighbours(*node, true).is_empty()
    };
    by_node.keys().any(is_known).then_some((known, by_node))
}
