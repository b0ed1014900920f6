//! The tree of ranges as a table, with optional columns for data that few profiles have.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use profiler_base::display::{Layout, Tone};
use profiler_base::order;
use profiler_base::table::Table;
use profiler_base::units::{bytes, time};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::join::range_tree::{self, NodeId};
use crate::join::totals::Totals;
use crate::profile::{Profile, RangeNode};

/// Displayed levels of the tree: recursions may be arbitrarily deep.
const LEVELS: usize = 24;
/// The upper bound of ranges with their own row; a range that would be the only one in a row for
/// others is not counted. JAX has a thousand for compilation.
const ROWS: usize = 100;

/// The columns that a narrow table omits first. Counts, host time and GPU time are omitted last.
const LEFT_OUT_FIRST: [&str; 10] = [
    "inferred kernels",
    "inferred GPU",
    "copied",
    "memsets",
    "processes",
    "shared GPU",
    "copies",
    "syncs",
    "own GPU",
    "replayed GPU",
];

/// The tree of ranges as a table, with a line for each notation that it uses.
pub(crate) struct RangeTable {
    table: Table,
    columns: Columns,
    /// Rows of graph nodes by the range of their capture.
    captures: Captures,
    /// The ranges with their own row, if not all have one.
    shown: Option<FxHashSet<NodeId>>,
    summed_up: usize,
    /// Ranges that end before a range that began within them.
    outlived: Option<String>,
}

/// The optional columns that a profile needs.
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
        let mut table = Self::new(Some(profile), profile.roots());
        table.outlived = profile.outlived_in_words();
        let outside = profile.outside_ranges();
        if outside != Totals::default() {
            table.add_outside(&outside);
        }
        table
    }

    /// Some ranges of a profile, with their descendants.
    pub(crate) fn new<'a>(
        profile: Option<&'a Profile>,
        roots: impl Iterator<Item = RangeNode<'a>>,
    ) -> Self {
        let captures = profile.map_or_else(Captures::default, Captures::new);
        let columns = profile.map_or_else(Columns::default, |profile| Columns {
            has_processes: profile.has_several_processes(),
            has_replayed: !captures.of_launch.is_empty(),
            has_shared: profile.has_shared_work(),
            has_inferred: profile.health().facts.inferred_operations != 0,
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
        let table = Table::new(header, 1).with_left_out_first(&LEFT_OUT_FIRST);
        let roots: Vec<_> = roots.collect();
        let shown = shown(&roots);
        let mut table = Self { table, columns, captures, shown, summed_up: 0, outlived: None };
        let processes = profile.filter(|profile| profile.has_several_processes());
        let processes = processes.map(processes_of_nodes).unwrap_or_default();
        let others = table.take_others(&roots);
        for root in roots.iter().filter(|root| table.has_row(root)).collect::<Vec<_>>() {
            table.add(root, &processes, ("", "", ""), 0);
        }
        table.add_others(others, "");
        table
    }

    fn has_row(&self, node: &RangeNode<'_>) -> bool {
        self.shown.as_ref().is_none_or(|shown| shown.contains(&node.id))
    }

    /// Returns the sums of the siblings that have no row.
    fn take_others(&self, siblings: &[RangeNode<'_>]) -> Others {
        let mut others = Others::default();
        for node in siblings.iter().filter(|node| !self.has_row(node)) {
            others.ranges += with_descendants(&[*node], usize::MAX).count();
            others.instances += node.instances();
            others.host_time = others.host_time.saturating_add(node.host_time());
            others.totals += node.inclusive();
        }
        others
    }

    fn add_others(&mut self, others: Others, lead: &str) {
        if others.ranges == 0 {
            return;
        }
        self.summed_up += others.ranges;
        let mut row = vec![format!("({} other ranges)", others.ranges)];
        row.resize(row.len() + usize::from(self.columns.has_processes), String::new());
        row.extend([others.instances.to_string(), time(others.host_time)]);
        row.extend(columns(&others.totals, &others.totals));
        self.table.add(lead.to_owned(), Tone::Plain, row);
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
        let children: Vec<_> = node.children().collect();
        let is_followed = !children.is_empty();
        if level == LEVELS && (is_followed || !captured.is_empty()) {
            self.table.add(format!("{indent}└─ "), Tone::Plain, ["(further in)"]);
            return;
        }
        self.add_captured(node.profile, &captured, &indent, is_followed, level + 1);
        let others = self.take_others(&children);
        let mut children = children.iter().filter(|child| self.has_row(child)).collect::<Vec<_>>();
        let last = children.pop();
        for child in children {
            let (lead, below) = branch(false);
            self.add(child, processes, (&indent, lead, below), level + 1);
        }
        if let Some(child) = last {
            let (lead, below) = branch(others.ranges == 0);
            self.add(child, processes, (&indent, lead, below), level + 1);
        }
        self.add_others(others, &format!("{indent}└─ "));
    }

    /// Adds the ranges in which graph nodes were captured, below the range that launched them.
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
            // The launches and waits are already in the row of the range above.
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

/// Ranges without a row among siblings that have one.
#[derive(Default)]
struct Others {
    /// Their number, with descendants.
    ranges: usize,
    instances: u64,
    host_time: Duration,
    totals: Totals,
}

/// Ranges with those within them to a level, parents first.
fn with_descendants<'a>(
    roots: &[RangeNode<'a>],
    most: usize,
) -> impl Iterator<Item = RangeNode<'a>> {
    let mut rest: Vec<_> = roots.iter().map(|root| (*root, 0)).collect();
    std::iter::from_fn(move || {
        let (next, level) = rest.pop()?;
        if level < most {
            rest.extend(next.children().map(|child| (child, level + 1)));
        }
        Some(next)
    })
}

/// Selects the ranges with the most GPU time (then the most host time) and their ancestors, if
/// there are too many.
fn shown(roots: &[RangeNode<'_>]) -> Option<FxHashSet<NodeId>> {
    let mut all: Vec<_> = with_descendants(roots, LEVELS).collect();
    if all.len() <= ROWS {
        return None;
    }
    let gpu_time = |node: &RangeNode<'_>| {
        let [own, replayed] = [node.inclusive(), node.replayed()].map(|totals| totals.gpu_time());
        own.saturating_add(replayed).saturating_add(node.inferred().gpu_time())
    };
    // A range is sorted after its ancestors.
    order::sort_by_key(&mut all, |node| {
        (Reverse(gpu_time(node)), Reverse(node.host_time()), node.id)
    });
    let mut shown = FxHashSet::default();
    for node in all {
        let around = std::iter::successors(Some(node), RangeNode::parent);
        let missing: Vec<_> =
            around.map(|node| node.id).take_while(|id| !shown.contains(id)).collect();
        if shown.len() + missing.len() > ROWS {
            break;
        }
        shown.extend(missing);
    }
    // A row for others with a single range is replaced by that range's own row.
    let mut alone = Vec::new();
    for node in with_descendants(roots, LEVELS).filter(|node| shown.contains(&node.id)) {
        let mut others = node.children().filter(|child| !shown.contains(&child.id));
        if let (Some(other), None) = (others.next(), others.next())
            && other.children().next().is_none()
        {
            alone.push(other.id);
        }
    }
    shown.extend(alone);
    Some(shown)
}

/// The lead of a row and its continuation below.
fn branch(is_last: bool) -> (&'static str, &'static str) {
    if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") }
}

impl RangeTable {
    pub(crate) fn text(&self, layout: Layout) -> String {
        if self.table.is_empty() {
            return "no ranges and no GPU work".to_owned();
        }
        let mut text = self.table.render(layout);
        if self.summed_up != 0 {
            let _ = write!(
                text,
                "\n{} ranges with the least GPU time and host time have no row; JSON and the page have all",
                self.summed_up
            );
        }
        if let Some(outlived) = &self.outlived {
            let _ = write!(text, "\n{outlived}");
        }
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

/// The number of columns of sums, and the columns among them that a replay lacks.
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
    fn new(profile: &Profile) -> Self {
        Self { of_launch: range_tree::captures(&profile.store, &profile.tree) }
    }

    /// True if a range launched work that was captured in another range.
    fn is_shown(&self) -> bool {
        self.of_launch.iter().any(|(launch, captures)| {
            launch.is_some() && captures.keys().any(|node| Some(*node) != *launch)
        })
    }

    /// The ranges in which work launched by a range was captured, without common ancestors of both.
    fn below(&self, profile: &Profile, launch: Option<NodeId>) -> Vec<Captured> {
        let Some(captures) = self.of_launch.get(&launch) else { return Vec::new() };
        let tree = &profile.tree;
        let parent = |node: NodeId| tree.node_at(node).parent;
        let around = |node: Option<NodeId>| std::iter::successors(node, |node| parent(*node));
        let shared: FxHashSet<NodeId> = around(launch).collect();
        // A node follows its parent.
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

/// Counts the processes that have each node's ranges.
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
