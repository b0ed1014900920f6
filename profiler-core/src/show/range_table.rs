//! The tree of ranges as a table, with columns for what few profiles have.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::table::{Layout, Table, Tone};
use crate::base::totals::Totals;
use crate::base::units::{bytes, time};
use crate::join::range_tree::{self, NodeId};
use crate::profile::{Profile, RangeNode};

/// Displayed levels of the tree: recursions may be arbitrarily deep.
const LEVELS: usize = 24;

/// The tree of ranges as a table, with a line for each notation that it uses.
pub(crate) struct RangeTable {
    table: Table,
    columns: Columns,
    /// Rows of graph nodes by the range of their capture.
    captures: Captures,
}

/// What few profiles have.
#[derive(Clone, Copy, Default)]
struct Columns {
    has_processes: bool,
    has_replayed: bool,
    has_shared: bool,
    has_inferred: bool,
}

impl RangeTable {
    /// All ranges of a profile, and the work outside.
    pub(crate) fn whole(profile: &Profile) -> Self {
        let mut table = Self::of(Some(profile), profile.roots());
        let outside = profile.outside_ranges();
        if outside != Totals::default() {
            table.add_outside(&outside);
        }
        table
    }

    /// These ranges of a profile with those within them.
    pub(crate) fn of<'a>(
        profile: Option<&'a Profile>,
        roots: impl Iterator<Item = RangeNode<'a>>,
    ) -> Self {
        let captures = profile.map_or_else(Captures::default, Captures::of);
        let columns = profile.map_or_else(Columns::default, |profile| Columns {
            has_processes: profile.has_several_processes(),
            has_replayed: !captures.of_launch.is_empty(),
            has_shared: profile.has_shared_work(),
            has_inferred: profile.health().inferred_operations != 0,
        });
        let mut header = vec!["range"];
        header.extend(columns.has_processes.then_some("processes"));
        header.extend(["times", "host time", "GPU time", "own GPU", "launches", "kernels"]);
        header.extend(["copies", "copied", "memsets", "syncs"]);
        header.extend(columns.has_replayed.then_some("replayed GPU"));
        header.extend(columns.has_shared.then_some("shared GPU"));
        header.extend(
            columns
                .has_inferred
                .then_some(["inferred GPU", "inferred kernels"])
                .into_iter()
                .flatten(),
        );
        // What few profiles have is what they are read for.
        let special = ["replayed GPU", "inferred GPU", "inferred kernels"];
        let table = Table::new(header, 1).with_kept_longer(&special);
        let mut table = Self { table, columns, captures };
        let processes = profile.filter(|profile| profile.has_several_processes());
        let processes = processes.map(processes_of_nodes).unwrap_or_default();
        roots.for_each(|root| table.add(&root, &processes, ("", "", ""), 0));
        table
    }

    /// Adds a range and the ranges within it. `lead` draws the line to the range, `below` continues
    /// it.
    fn add(
        &mut self,
        node: &RangeNode<'_>,
        processes: &[u64],
        (indent, lead, below): (&str, &str, &str),
        level: usize,
    ) {
        let mut row = vec![node.name().to_owned()];
        row.extend(processes.get(node.id.at()).map(u64::to_string));
        row.extend([node.instances().to_string(), time(node.host_time())]);
        row.extend(columns(&node.inclusive(), &node.exclusive()));
        let Columns { has_replayed, has_shared, has_inferred, .. } = self.columns;
        row.extend(has_replayed.then(|| time(node.replayed().gpu_time())));
        row.extend(has_shared.then(|| time(node.shared().gpu_time())));
        if has_inferred {
            let inferred = node.inferred();
            row.extend([time(inferred.gpu_time()), inferred.kernels.to_string()]);
        }
        self.table.add(format!("{indent}{lead}"), Tone::Plain, row);
        let indent = format!("{indent}{below}");
        let captured = self.captures.below(node.profile, Some(node.id));
        let mut children = node.children().peekable();
        let is_followed = children.peek().is_some();
        if level == LEVELS && (is_followed || !captured.is_empty()) {
            self.table.add(format!("{indent}└─ "), Tone::Plain, ["(further in)"]);
            return;
        }
        self.add_captured(node.profile, &captured, &indent, is_followed, level + 1);
        while let Some(child) = children.next() {
            let (lead, below) = branch(children.peek().is_none());
            self.add(&child, processes, (&indent, lead, below), level + 1);
        }
    }

    /// Adds the ranges in which graph nodes were captured below the range that launched them.
    fn add_captured(
        &mut self,
        profile: &Profile,
        captured: &[Captured],
        indent: &str,
        is_followed: bool,
        level: usize,
    ) {
        for (at, of) in captured.iter().enumerate() {
            let (lead, below) = branch(at + 1 == captured.len() && !is_followed);
            let name = RangeNode { profile, id: of.node }.name();
            let mut row = vec![format!("[{name}]")];
            row.resize(row.len() + usize::from(self.columns.has_processes) + 2, String::new());
            row.extend(columns(&of.inclusive, &of.exclusive));
            // The launches and waits are those of the range above.
            let first = row.len() - COLUMNS;
            for without in [first + LAUNCHES, first + SYNCHRONIZATIONS] {
                row[without].clear();
            }
            self.table.add(format!("{indent}{lead}"), Tone::Plain, row);
            let indent = format!("{indent}{below}");
            match level {
                LEVELS if !of.children.is_empty() => {
                    self.table.add(format!("{indent}└─ "), Tone::Plain, ["(further in)"]);
                }
                _ => self.add_captured(profile, &of.children, &indent, false, level + 1),
            }
        }
    }

    fn add_outside(&mut self, outside: &Totals) {
        let mut row = vec!["(outside any range)".to_owned()];
        row.resize(row.len() + usize::from(self.columns.has_processes) + 2, String::new());
        row.extend(columns(outside, outside));
        self.table.add_row(row);
    }
}

/// The lead of a row and what continues it below.
fn branch(is_last: bool) -> (&'static str, &'static str) {
    if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") }
}

impl RangeTable {
    pub(crate) fn text(&self, layout: Layout) -> String {
        if self.table.is_empty() {
            return "no ranges and no GPU work".to_owned();
        }
        let mut text = self.table.render(layout);
        if self.captures.is_shown() {
            text.push_str(
                "\n[range]: work of CUDA graphs by the range of its capture; it counts for the range above, which launched it",
            );
        }
        if self.columns.has_replayed {
            text.push_str("\nreplayed GPU: work of CUDA graphs captured in the range, wherever it was launched");
        }
        if self.columns.has_inferred {
            text.push_str(
                "\ninferred: work outside any range that another thread launched while the range's thread waited; in no other column",
            );
        }
        text
    }
}

/// The columns of sums, and those of what a replay has none of.
const COLUMNS: usize = 8;
const LAUNCHES: usize = 2;
const SYNCHRONIZATIONS: usize = 7;

pub(super) fn columns(inclusive: &Totals, exclusive: &Totals) -> [String; COLUMNS] {
    [
        time(inclusive.gpu_time()),
        time(exclusive.gpu_time()),
        inclusive.launches.to_string(),
        inclusive.kernels.to_string(),
        inclusive.copies.to_string(),
        bytes(inclusive.copy_bytes),
        inclusive.memsets.to_string(),
        inclusive.synchronizations.to_string(),
    ]
}

/// Work of CUDA graphs by the range that launched it and the range of its capture.
#[derive(Default)]
struct Captures {
    of_launch: FxHashMap<Option<NodeId>, FxHashMap<NodeId, Totals>>,
}

/// The range of a capture with those within it.
struct Captured {
    node: NodeId,
    exclusive: Totals,
    inclusive: Totals,
    children: Vec<Captured>,
}

impl Captures {
    fn of(profile: &Profile) -> Self {
        Self { of_launch: range_tree::captures(&profile.store, &profile.tree) }
    }

    /// True if a range launched what was captured in another one.
    fn is_shown(&self) -> bool {
        self.of_launch.iter().any(|(launch, captures)| {
            launch.is_some() && captures.keys().any(|node| Some(*node) != *launch)
        })
    }

    /// The ranges in which work launched by a range was captured, without the ranges around both.
    fn below(&self, profile: &Profile, launch: Option<NodeId>) -> Vec<Captured> {
        let Some(captures) = self.of_launch.get(&launch) else { return Vec::new() };
        let tree = &profile.tree;
        let parent = |node: NodeId| tree.node_at(node).parent;
        let around = |node: Option<NodeId>| std::iter::successors(node, |node| parent(*node));
        let shared: FxHashSet<NodeId> = around(launch).collect();
        // A node comes after its parent.
        let mut sums: BTreeMap<NodeId, (Totals, Totals)> = BTreeMap::new();
        for (&node, &totals) in captures {
            sums.entry(node).or_default().0 += totals;
            for around in around(Some(node)).take_while(|node| !shared.contains(node)) {
                sums.entry(around).or_default().1 += totals;
            }
        }
        sums.retain(|node, _| !shared.contains(node));
        let mut of_parents: BTreeMap<Option<NodeId>, Vec<Captured>> = BTreeMap::new();
        for (node, (exclusive, inclusive)) in sums.into_iter().rev() {
            let mut children = of_parents.remove(&Some(node)).unwrap_or_default();
            children.reverse();
            let parent = parent(node).filter(|parent| !shared.contains(parent));
            let captured = Captured { node, exclusive, inclusive, children };
            of_parents.entry(parent).or_default().push(captured);
        }
        let mut outermost = of_parents.remove(&None).unwrap_or_default();
        outermost.reverse();
        outermost
    }
}

/// How many processes have each node's ranges.
fn processes_of_nodes(profile: &Profile) -> Vec<u64> {
    let store = &profile.store;
    let mut counts = vec![0; profile.tree.nodes.len()];
    let mut seen = FxHashSet::default();
    for (range, node) in store.ranges.iter().zip(&profile.tree.of_range) {
        if seen.insert((*node, store.threads[range.thread.at()].process)) {
            counts[node.at()] += 1;
        }
    }
    counts
}
