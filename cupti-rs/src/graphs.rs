//! The graph log: the CUDA graphs, nodes and executable graphs that the program made, with the call
//! and tag of each.
//!
//! A kernel of a launched graph carries the ids of the executable graph and of a node in it. That
//! node is a clone of one that was made during stream capture, perhaps through several copies.
//! These events lead back to the first creation of a node, and to its thread's tag at that time.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys::abi::*;
use crate::thread_log::{Reader, Writer};

/// The kind of a graph event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum GraphEventKind {
    /// A graph was made.
    GraphCreated,
    /// A graph is about to be destroyed.
    GraphDestroyed,
    /// A graph was made as a copy of another.
    GraphCloned,
    /// A node was made in a graph.
    NodeCreated,
    /// A node is about to be destroyed.
    NodeDestroyed,
    /// A node was made as a copy of another, in a copied or an executable graph.
    NodeCloned,
    /// A graph was instantiated for launch.
    ExecCreated,
    /// An executable graph is about to be destroyed.
    ExecDestroyed,
    /// A dependency between two nodes was made.
    DependencyCreated,
    /// A dependency between two nodes is about to be removed.
    DependencyDestroyed,
    /// An event without a name in this version of the crate.
    Unknown,
}

/// The kinds by their number in the log, each with CUPTI's resource event. Every library has these
/// events.
pub(crate) const KINDS: [(u32, GraphEventKind); 10] = [
    (RESOURCE_GRAPH_CREATED, GraphEventKind::GraphCreated),
    (RESOURCE_GRAPH_DESTROY_STARTING, GraphEventKind::GraphDestroyed),
    (RESOURCE_GRAPH_CLONED, GraphEventKind::GraphCloned),
    (RESOURCE_GRAPHNODE_CREATED, GraphEventKind::NodeCreated),
    (RESOURCE_GRAPHNODE_DESTROY_STARTING, GraphEventKind::NodeDestroyed),
    (RESOURCE_GRAPHNODE_CLONED, GraphEventKind::NodeCloned),
    (RESOURCE_GRAPHEXEC_CREATED, GraphEventKind::ExecCreated),
    (RESOURCE_GRAPHEXEC_DESTROY_STARTING, GraphEventKind::ExecDestroyed),
    (RESOURCE_GRAPHNODE_DEPENDENCY_CREATED, GraphEventKind::DependencyCreated),
    (RESOURCE_GRAPHNODE_DEPENDENCY_DESTROY_STARTING, GraphEventKind::DependencyDestroyed),
];

static LAST_MADE_NS: AtomicU64 = AtomicU64::new(0);

/// Returns when a graph, a node or an executable graph was last made or copied while graph events
/// were logged, in [`now_ns`](crate::clock::now_ns) time; 0 for never.
///
/// An executable graph that is made while the kernel kind is enabled stays slower until it is
/// destroyed. A profiler that switches kinds therefore waits until the program makes no graphs.
/// Costs one load.
#[must_use]
pub fn graphs_last_made_ns() -> u64 {
    LAST_MADE_NS.load(Ordering::Relaxed)
}

/// Records the time of a logged event.
pub(crate) fn note(kind: GraphEventKind, at_ns: u64) {
    use GraphEventKind::{DependencyDestroyed, ExecDestroyed, GraphDestroyed, NodeDestroyed};
    if !matches!(kind, ExecDestroyed | GraphDestroyed | NodeDestroyed | DependencyDestroyed) {
        LAST_MADE_NS.store(at_ns, Ordering::Relaxed);
    }
}

/// One event. An id that CUPTI did not report is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphEvent {
    /// The kind of the event.
    pub kind: GraphEventKind,
    /// The time, in [`now_ns`](crate::clock::now_ns) time.
    pub at_ns: u64,
    /// The thread's tag.
    pub word: u64,
    /// The correlation id of the recorded call that caused it, such as a captured launch; 0 if
    /// none.
    pub call: u32,
    /// The graph (`cuptiGetGraphId`).
    pub graph: u32,
    /// The graph it was copied from.
    pub original_graph: u32,
    /// The node (`cuptiGetGraphNodeId`).
    pub node: u64,
    /// The node it was copied from; for a dependency, the other node. CUPTI does not document which
    /// of the two waits.
    pub original_node: u64,
    /// `CUgraphNodeType` of the node: 0 is a kernel, 1 a copy, 2 a memset.
    pub node_type: u32,
    /// The executable graph (`cuptiGetGraphExecId`, 12.3+), which is the graph id in the records of
    /// kernels, copies and memsets.
    pub exec: u32,
}

pub(crate) const WORDS: usize = 7;
const AT: usize = 1;

impl GraphEvent {
    /// Builds an event from a recording's words: the fields in the order of the log.
    #[must_use]
    pub fn from_words(words: [u64; WORDS]) -> Self {
        let [head, at_ns, word, graphs, node, original_node, exec] = words;
        Self {
            kind: KINDS
                .get((head & 0xffff) as usize)
                .map_or(GraphEventKind::Unknown, |kind| kind.1),
            node_type: u32::from((head >> 16) as u16),
            call: (head >> 32) as u32,
            at_ns,
            word,
            graph: graphs as u32,
            original_graph: (graphs >> 32) as u32,
            node,
            original_node,
            exec: exec as u32,
        }
    }

    /// Returns the words of the log that make this event.
    pub fn to_words(&self) -> [u64; WORDS] {
        let kind = KINDS.iter().position(|(_, kind)| *kind == self.kind).unwrap_or(KINDS.len());
        [
            kind as u64 | u64::from(self.node_type as u16) << 16 | u64::from(self.call) << 32,
            self.at_ns,
            self.word,
            u64::from(self.graph) | u64::from(self.original_graph) << 32,
            self.node,
            self.original_node,
            u64::from(self.exec),
        ]
    }
}

/// The graph events of one thread, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ThreadGraphs {
    /// The kernel's id of the thread (`gettid`).
    pub thread_id: u32,
    /// Its events.
    pub events: Vec<GraphEvent>,
}

impl ThreadGraphs {
    /// Builds a thread's events from a recording.
    #[must_use]
    pub fn new(thread_id: u32, events: Vec<GraphEvent>) -> Self {
        Self { thread_id, events }
    }

    /// Returns the events before a time; with `take` they are removed from the log.
    pub(crate) fn read(
        thread_id: u32,
        reader: &mut GraphReader,
        until_ns: u64,
        take: bool,
    ) -> Self {
        let mut events = Vec::with_capacity(reader.len());
        let visit = |_, words| {
            let event = GraphEvent::from_words(words);
            if event.at_ns < until_ns {
                events.push(event);
            }
        };
        if take {
            reader.drain(until_ns, visit)
        } else {
            reader.rest(visit)
        }
        Self { thread_id, events }
    }
}

pub(crate) type GraphWriter = Writer<WORDS>;
pub(crate) type GraphReader = Reader<WORDS>;

/// Returns the reader of a thread's events. An event has finished when it is written; its time
/// decides the side of a cut.
pub(crate) fn reader(writer: &GraphWriter) -> GraphReader {
    writer.log().reader(Some(AT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_round_trips_through_its_words() {
        for (_, kind) in KINDS {
            let event = GraphEvent {
                kind,
                at_ns: u64::MAX,
                word: 1 << 63,
                call: u32::MAX,
                graph: u32::MAX - 1,
                original_graph: 3,
                node: u64::MAX - 2,
                original_node: 5,
                node_type: 12,
                exec: u32::MAX - 3,
            };
            assert_eq!(GraphEvent::from_words(event.to_words()), event);
        }
        let newer = [u64::from(u16::MAX), 0, 0, 0, 0, 0, 0];
        assert_eq!(GraphEvent::from_words(newer).kind, GraphEventKind::Unknown);
    }
}
