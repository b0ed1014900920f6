//! The operations of a query in the tree of ranges.

use std::fmt;
use std::time::Duration;

use profiler_base::iterate;
use profiler_base::table::{Layout, Table, Tone};
use profiler_base::units::time;

use super::Query;
use crate::profile::RangeNode;

/// A number of operations with their time and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Amounts {
    /// The number of operations.
    pub count: u64,
    /// The sum of GPU times.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "gpu_time_ns", serialize_with = "profiler_base::statistics::as_ns")
    )]
    pub gpu_time: Duration,
    /// Bytes copied and set.
    pub bytes: u64,
}

impl Amounts {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.gpu_time = self.gpu_time.saturating_add(other.gpu_time);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// A node of the range tree with the operations of a query in it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Branch<'a> {
    /// The node; `None` for work outside all ranges.
    pub node: Option<RangeNode<'a>>,
    /// The number of enclosing ranges.
    pub depth: usize,
    /// The operations of the node's own ranges.
    pub exclusive: Amounts,
    /// The operations of the node's own ranges and of descendants.
    pub inclusive: Amounts,
}

#[cfg(feature = "serde")]
profiler_base::serialize_fields!(Branch<'_>, "Branch", |branch| {
    "path": branch.node.map(|node| node.cut_path()),
    "exclusive": branch.exclusive,
    "inclusive": branch.inclusive,
});

/// The range tree with operations of a query, depth first. Work outside all ranges is last.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(transparent))]
pub struct Branches<'a> {
    branches: Vec<Branch<'a>>,
}

impl<'a> Branches<'a> {
    /// The branches.
    pub fn iter(&self) -> std::slice::Iter<'_, Branch<'a>> {
        self.branches.iter()
    }

    /// The branch of a path: `batch/forward`.
    pub fn get(&self, path: &str) -> Option<&Branch<'a>> {
        self.branches.iter().find(|branch| branch.node.is_some_and(|node| node.is_path(path)))
    }
}

iterate!(Branches<'a>: Branch<'a>);

impl<'a> Query<'a> {
    /// Sums inclusively and exclusively by the tree of ranges.
    pub fn tree(&self) -> Branches<'a> {
        let profile = self.profile;
        let mut exclusive = vec![Amounts::default(); profile.tree.nodes.len()];
        let mut outside = Amounts::default();
        // Late work, exclusive, and inclusive for the ranges to which it is attributed.
        let mut late: Vec<(usize, Amounts)> = Vec::new();
        let mut late_inclusive: Vec<(usize, Amounts)> = Vec::new();
        for operation in self.iter() {
            let amounts = Amounts {
                count: 1,
                gpu_time: operation.gpu_time().unwrap_or_default(),
                bytes: super::group::bytes(&operation),
            };
            let Some(range) = operation.range() else {
                outside.add(amounts);
                continue;
            };
            let own = range.node().id.at();
            match operation.late_chain() {
                None => exclusive[own].add(amounts),
                Some(chain) => {
                    late.push((own, amounts));
                    late_inclusive.extend(chain.map(|range| (range.node().id.at(), amounts)));
                }
            }
        }
        let mut inclusive = exclusive.clone();
        // Children follow their parent.
        for (row, node) in profile.tree.nodes.iter().enumerate().rev() {
            if let Some(parent) = node.parent {
                let within = inclusive[row];
                inclusive[parent.at()].add(within);
            }
        }
        late.into_iter().for_each(|(node, amounts)| exclusive[node].add(amounts));
        late_inclusive.into_iter().for_each(|(node, amounts)| inclusive[node].add(amounts));
        let branch = |(depth, node): (usize, RangeNode<'a>)| Branch {
            node: Some(node),
            depth,
            exclusive: exclusive[node.id.at()],
            inclusive: inclusive[node.id.at()],
        };
        let is_in = |branch: &Branch<'_>| branch.inclusive.count != 0;
        let mut branches: Vec<_> = profile.walk().map(branch).filter(is_in).collect();
        if outside.count != 0 {
            let (exclusive, inclusive) = (outside, outside);
            branches.push(Branch { node: None, depth: 0, exclusive, inclusive });
        }
        Branches { branches }
    }
}

/// The upper bound of displayed levels of the tree; recursions may have many more.
const LEVELS: usize = 24;

impl fmt::Display for Branches<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.branches.is_empty() {
            return f.write_str("none");
        }
        let mut table = Table::new(["range", "count", "GPU time", "own count", "own GPU"], 1);
        for branch in self.branches.iter().filter(|branch| branch.depth <= LEVELS) {
            let name = branch.node.map_or("(outside any range)", |node| node.name());
            let Branch { inclusive, exclusive, .. } = branch;
            let cells = [
                name.to_owned(),
                inclusive.count.to_string(),
                time(inclusive.gpu_time),
                exclusive.count.to_string(),
                time(exclusive.gpu_time),
            ];
            table.add("  ".repeat(branch.depth), Tone::Plain, cells);
        }
        f.write_str(&table.render(Layout::from_formatter(f)))?;
        match self.branches.iter().filter(|branch| branch.depth > LEVELS).count() {
            0 => Ok(()),
            more => write!(f, "\n({more} further in)"),
        }
    }
}
