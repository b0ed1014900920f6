//! The graph log: which CUDA graphs, nodes and executable graphs the program made, and within which call and word.
//!
//! A kernel of a launched graph carries the ids of the executable graph and of a node in it. That node is a clone of
//! one that was made while a stream was captured, perhaps through several copies. These events tell the way back to the
//! moment a node was first made, and to the word that its thread had then.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys::abi::*;
use crate::thread_log::{Reader, Writer};

/// What happened to a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum GraphEventKind {
    /// A graph was made.
    GraphCreated,
    /// A graph is about to go.
    GraphDestroyed,
    /// A graph was made as a copy of another.
    GraphCloned,
    /// A node was made in a graph.
    NodeCreated,
    /// A node is about to go.
    NodeDestroyed,
    /// A node was made as a copy of another, in a copied or an executable graph.
    NodeCloned,
    /// A graph was made ready to launch.
    ExecCreated,
    /// A graph that was ready to launch is about to go.
    ExecDestroyed,
    /// A dependency between two nodes was made.
    DependencyCreated,
    /// A dependency between two nodes is about to go.
    DependencyDestroyed,
    /// An event this version of the crate has no name for.
    Unknown,
}

/// The kinds by their number in the log, each with CUPTI's resource event. Every library has these events.
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

/// When a graph, a node or an executable graph was last made or copied while graph events were logged, in
/// [`now_ns`](crate::clock::now_ns) time; 0 for never.
///
/// An executable graph that is made while the kernel kind is enabled stays slower until it is destroyed. A profiler that switches
/// kinds therefore waits until the program makes no graphs. Costs one load.
#[must_use]
pub fn graphs_last_made_ns() -> u64 {
    LAST_MADE_NS.load(Ordering::Relaxed)
}

/// Notes the time of a logged event.
pub(crate) fn note(kind: GraphEventKind, at_ns: u64) {
    use GraphEventKind::{DependencyDestroyed, ExecDestroyed, GraphDestroyed, NodeDestroyed};
    if !matches!(kind, ExecDestroyed | GraphDestroyed | NodeDestroyed | DependencyDestroyed) {
        LAST_MADE_NS.store(at_ns, Ordering::Relaxed);
    }
}

/// One event. An id that CUPTI did not give is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphEvent {
    /// What happened.
    pub kind: GraphEventKind,
    /// When, in [`now_ns`](crate::clock::now_ns) time.
    pub at_ns: u64,
    /// The thread's word.
    pub word: u64,
    /// The correlation id of the recorded call it happened in, such as the launch that was captured; 0 if in none.
    pub call: u32,
    /// The graph (`cuptiGetGraphId`).
    pub graph: u32,
    /// The graph it was copied from.
    pub original_graph: u32,
    /// The node (`cuptiGetGraphNodeId`).
    pub node: u64,
    /// The node it was copied from; of a dependency the other node. CUPTI does not document which of the two waits.
    pub original_node: u64,
    /// `CUgraphNodeType` of the node: 0 is a kernel, 1 a copy, 2 a fill.
    pub node_type: u32,
    /// The executable graph (`cuptiGetGraphExecId`, 12.3+), which is what kernels, copies and fills name as their graph.
    pub exec: u32,
}

pub(crate) const WORDS: usize = 7;
const AT: usize = 1;

impl GraphEvent {
    /// An event as a recording holds it: the fields in the order of the log's words.
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

    /// The words of the log that make this event.
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
    /// What it did.
    pub events: Vec<GraphEvent>,
}

impl ThreadGraphs {
    /// Events as a recording holds them.
    #[must_use]
    pub fn new(thread_id: u32, events: Vec<GraphEvent>) -> Self {
        Self { thread_id, events }
    }

    /// The events before a time; with `take` they are taken out of the log.
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

/// The reader of a thread's events. One has finished when it is written; its time says on which side of a cut it is.
pub(crate) fn reader(writer: &GraphWriter) -> GraphReader {
    writer.log().reader(Some(AT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_survives_its_words() {
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
