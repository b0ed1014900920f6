//! Ranges by path: all instances of `batch / forward` are one node, with what they came to.

use rustc_hash::FxHashMap;

use crate::correlate::is_failure;
use crate::store::{CallId, NameId, RangeId, Store, Work};
use crate::totals::Totals;
use cupti::CallClass;

/// Row of [`Tree::nodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct NodeId(pub(crate) u32);

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: NameId,
    pub(crate) parent: Option<NodeId>,
    /// In the order they first began.
    pub(crate) children: Vec<NodeId>,
    pub(crate) instances: u64,
    /// The host time of all instances.
    pub(crate) host_ns: u64,
    /// What was asked for in the ranges themselves, not in ranges within them.
    pub(crate) exclusive: Totals,
    /// With all ranges within them.
    pub(crate) inclusive: Totals,
}

#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// A parent comes before its children.
    pub(crate) nodes: Vec<Node>,
    pub(crate) roots: Vec<NodeId>,
    /// The node of every range.
    pub(crate) of_range: Vec<NodeId>,
    /// What every range came to, with those within it.
    pub(crate) range_totals: Vec<Totals>,
    /// What was asked for outside any range, or by no call that is known.
    pub(crate) outside: Totals,
}

impl Tree {
    pub(crate) fn build(store: &Store) -> Self {
        let mut tree = Self::default();
        tree.add_nodes(store);
        tree.add_work(store);
        tree.sum_up(store);
        tree
    }

    fn add_nodes(&mut self, store: &Store) {
        let mut ids = FxHashMap::default();
        // Children stand in the order they first began, whatever thread they are of.
        let mut order: Vec<usize> = (0..store.ranges.len()).collect();
        order.sort_by_key(|&row| store.ranges[row].time.start_ns);
        let mut node_of = vec![None; store.ranges.len()];
        for row in order {
            self.node(store, RangeId(row as u32), &mut ids, &mut node_of);
        }
        self.of_range = node_of.into_iter().flatten().collect();
    }

    fn node(
        &mut self,
        store: &Store,
        range: RangeId,
        ids: &mut FxHashMap<(Option<NodeId>, NameId), NodeId>,
        node_of: &mut [Option<NodeId>],
    ) -> NodeId {
        // From the outermost range that has no node yet, inwards.
        let mut missing = vec![range];
        while let Some(parent) = store.ranges[missing[missing.len() - 1].at()].parent
            && node_of[parent.at()].is_none()
        {
            missing.push(parent);
        }
        let mut node = NodeId(0);
        for range in missing.into_iter().rev() {
            if let Some(known) = node_of[range.at()] {
                node = known;
                continue;
            }
            let row = &store.ranges[range.at()];
            let parent = row.parent.and_then(|parent| node_of[parent.at()]);
            node = *ids.entry((parent, row.name)).or_insert_with(|| {
                let id = NodeId(self.nodes.len() as u32);
                self.nodes.push(Node {
                    name: row.name,
                    parent,
                    children: Vec::new(),
                    instances: 0,
                    host_ns: 0,
                    exclusive: Totals::default(),
                    inclusive: Totals::default(),
                });
                match parent {
                    Some(parent) => self.nodes[parent.0 as usize].children.push(id),
                    None => self.roots.push(id),
                }
                id
            });
            node_of[range.at()] = Some(node);
            self.nodes[node.0 as usize].instances += 1;
            self.nodes[node.0 as usize].host_ns += row.time.ns();
        }
        node
    }

    fn add_work(&mut self, store: &Store) {
        self.range_totals = vec![Totals::default(); store.ranges.len()];
        for operation in &store.operations {
            let ns = operation.time.map_or(0, |time| time.ns());
            let mut totals = Totals::default();
            match operation.work {
                Work::Kernel { .. } => (totals.kernels, totals.kernel_ns) = (1, ns),
                Work::Copy(copy) => {
                    (totals.copies, totals.copy_ns, totals.copy_bytes) = (1, ns, copy.bytes);
                }
                Work::Memset(memset) => {
                    (totals.memsets, totals.memset_ns, totals.memset_bytes) = (1, ns, memset.bytes);
                }
            }
            self.add(range_of(store, operation.call), totals);
        }
        for call in &store.calls {
            self.add(call.range, of_call(&call.call));
        }
    }

    fn add(&mut self, range: Option<RangeId>, totals: Totals) {
        match range {
            Some(range) => self.range_totals[range.at()] += totals,
            None => self.outside += totals,
        }
    }

    /// So far every range has only its own work.
    fn sum_up(&mut self, store: &Store) {
        for (row, node) in self.of_range.iter().enumerate() {
            self.nodes[node.0 as usize].exclusive += self.range_totals[row];
        }
        // A range comes after the one around it, so that backwards every range is whole before it is added.
        for row in (0..store.ranges.len()).rev() {
            if let Some(parent) = store.ranges[row].parent {
                let totals = self.range_totals[row];
                self.range_totals[parent.at()] += totals;
            }
        }
        for row in (0..self.nodes.len()).rev() {
            let node = &mut self.nodes[row];
            let exclusive = node.exclusive;
            node.inclusive += exclusive;
            let (inclusive, parent) = (node.inclusive, node.parent);
            if let Some(parent) = parent {
                self.nodes[parent.0 as usize].inclusive += inclusive;
            }
        }
    }

    pub(crate) fn node_at(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }
}

/// The range whose call caused this work.
pub(crate) fn range_of(store: &Store, call: Option<CallId>) -> Option<RangeId> {
    store.calls[call?.at()].range
}

/// What one call adds, apart from its work on the GPU.
fn of_call(call: &cupti::Call) -> Totals {
    let mut totals = Totals::default();
    if is_failure(call) {
        totals.failed_calls = 1;
        return totals;
    }
    match call.function.class() {
        CallClass::KernelLaunch | CallClass::GraphLaunch => {
            totals.launches = u64::from(!call.captured)
        }
        CallClass::Synchronize => {
            totals.synchronizations = 1;
            totals.synchronization_ns =
                call.end_ns.map_or(0, |end| end.saturating_sub(call.start_ns));
        }
        CallClass::Alloc => totals.allocations = 1,
        CallClass::Free => totals.frees = 1,
        _ => {}
    }
    totals
}
