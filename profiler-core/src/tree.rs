//! Ranges by path: all instances of `batch / forward` are one node, with what they came to.

use rustc_hash::FxHashMap;

use crate::correlate::is_failure;
use crate::store::{CallId, NameId, ProcessRangeId, RangeId, Store, Subject, Work};
use crate::totals::Totals;
use cupti::CallClass;

/// Row of [`Tree::nodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeId(pub(crate) u32);

impl NodeId {
    pub(crate) fn at(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: NameId,
    /// `None` is the default one.
    pub(crate) domain: Option<NameId>,
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
    /// What graph launches made of the nodes that were made in them and in ranges within.
    pub(crate) replayed: Totals,
}

/// What the ranges of threads that are stays in a range of the process came to.
#[derive(Debug, Default)]
pub(crate) struct Stays {
    pub(crate) ranges: Vec<RangeId>,
    pub(crate) totals: Totals,
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
    /// What graph launches made of the nodes that were made in every range, with those within it.
    pub(crate) range_replayed: Vec<Totals>,
    /// The stays of each range of the process, and what they came to.
    pub(crate) process_ranges: Vec<Stays>,
    /// What was asked for outside any range, or by no call that is known.
    pub(crate) outside: Totals,
}

impl Tree {
    pub(crate) fn build(store: &Store) -> Self {
        let mut tree = Self::default();
        let mut order: Vec<RangeId> = (0..store.ranges.len() as u32).map(RangeId).collect();
        order.sort_unstable_by_key(|&range| store.order(range));
        tree.add_nodes(store, &order);
        tree.add_work(store);
        tree.sum_up(store, &order);
        tree.add_stays(store);
        tree
    }

    fn add_stays(&mut self, store: &Store) {
        self.process_ranges.resize_with(store.process_ranges.len(), Stays::default);
        let within = |range: RangeId| store.details.get(&Subject::Range(range))?.within;
        let mut stays: Vec<(RangeId, ProcessRangeId)> = (0..store.ranges.len() as u32)
            .map(RangeId)
            .filter_map(|range| Some((range, within(range)?)))
            .collect();
        stays.sort_by_key(|(range, _)| store.ranges[range.at()].time.start_ns);
        for (range, whole) in stays {
            let outer = std::iter::successors(store.ranges[range.at()].parent, |parent| {
                store.ranges[parent.at()].parent
            });
            let stays = &mut self.process_ranges[whole.at()];
            stays.ranges.push(range);
            // A stay within a stay is in its sum already.
            if outer.into_iter().all(|outer| within(outer) != Some(whole)) {
                stays.totals += self.range_totals[range.at()];
            }
        }
    }

    /// Children stand in the order they first began, whatever thread they are of.
    fn add_nodes(&mut self, store: &Store, order: &[RangeId]) {
        let mut ids = FxHashMap::default();
        self.of_range = vec![NodeId(0); store.ranges.len()];
        for &range in order {
            self.add_node(store, range, &mut ids);
        }
    }

    /// The range that it lies in has a node already.
    fn add_node(
        &mut self,
        store: &Store,
        range: RangeId,
        ids: &mut FxHashMap<(Option<NodeId>, Option<NameId>, NameId), NodeId>,
    ) {
        let row = &store.ranges[range.at()];
        let parent = row.parent.map(|parent| self.of_range[parent.at()]);
        let label = store.label(row.label);
        let node = *ids.entry((parent, label.domain, label.name)).or_insert_with(|| {
            let id = NodeId(self.nodes.len() as u32);
            self.nodes.push(Node {
                name: label.name,
                domain: label.domain,
                parent,
                children: Vec::new(),
                instances: 0,
                host_ns: 0,
                exclusive: Totals::default(),
                inclusive: Totals::default(),
                replayed: Totals::default(),
            });
            match parent {
                Some(parent) => self.nodes[parent.0 as usize].children.push(id),
                None => self.roots.push(id),
            }
            id
        });
        self.of_range[range.at()] = node;
        self.nodes[node.0 as usize].instances += 1;
        self.nodes[node.0 as usize].host_ns += row.time.ns();
    }

    fn add_work(&mut self, store: &Store) {
        self.range_totals = vec![Totals::default(); store.ranges.len()];
        self.range_replayed = self.range_totals.clone();
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
            if let Some(range) = operation.captured {
                self.range_replayed[range.at()] += totals;
            }
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
    fn sum_up(&mut self, store: &Store, order: &[RangeId]) {
        for (row, node) in self.of_range.iter().enumerate() {
            self.nodes[node.0 as usize].exclusive += self.range_totals[row];
            self.nodes[node.0 as usize].replayed += self.range_replayed[row];
        }
        // A range comes after the one around it, so that backwards every range is whole before it is added.
        for range in order.iter().rev() {
            if let Some(parent) = store.ranges[range.at()].parent {
                let totals = self.range_totals[range.at()];
                self.range_totals[parent.at()] += totals;
                let replayed = self.range_replayed[range.at()];
                self.range_replayed[parent.at()] += replayed;
            }
        }
        for row in (0..self.nodes.len()).rev() {
            let node = &mut self.nodes[row];
            let exclusive = node.exclusive;
            node.inclusive += exclusive;
            let (inclusive, replayed, parent) = (node.inclusive, node.replayed, node.parent);
            if let Some(parent) = parent {
                self.nodes[parent.0 as usize].inclusive += inclusive;
                self.nodes[parent.0 as usize].replayed += replayed;
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
