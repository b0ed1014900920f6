//! Names and counts as text, to compare with a file.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use profiler_base::text::printable;

use crate::join::range_tree::NodeId;
use crate::join::totals::Totals;
use crate::profile::{Profile, Range, RangeNode};

/// Operations and calls of the ranges of a node, by name.
type Names = BTreeMap<Option<NodeId>, BTreeMap<String, u64>>;

impl Profile {
    /// Names and counts of every range, without times. The text is the same whenever the program
    /// does the same, for comparison with a file or by `insta`.
    ///
    /// Each range has a line with its exclusive counts and its [shared](RangeNode::shared) work.
    /// Its kernels, copies and calls follow by name, then the ranges within it, sorted by name
    /// regardless of threads. Ranges deeper than 64 are indented like the 64th and preceded by
    /// their depth: `… 70: 1 x name`. Kernel names are the same as in the report; libraries may
    /// choose kernels by GPU. The last line states whether anything was lost.
    pub fn counts(&self) -> String {
        let mut names = Names::new();
        let mut add = |range: Option<Range<'_>>, what: String| {
            let node = range.map(|range| range.node().id);
            *names.entry(node).or_default().entry(what).or_default() += 1;
        };
        for operation in self.operations() {
            let range = operation.range();
            if let Some(kernel) = operation.as_kernel() {
                add(range, format!("kernel {}", kernel.demangled_name()));
            } else if let Some(copy) = operation.as_copy() {
                let (kind, details) = (copy.kind(), copy.details());
                add(range, format!("copy {kind}, {} to {}", details.source, details.destination));
            }
        }
        for call in self.calls() {
            add(call.range(), call.name().to_owned());
        }

        let mut out = String::new();
        // The next node is the last. Nesting may exceed any stack.
        let mut nodes = by_name_backwards(self.roots(), 0);
        while let Some((node, depth)) = nodes.pop() {
            add_node(&mut out, &node, depth, &names);
            nodes.extend(by_name_backwards(node.children(), depth + 1));
        }
        let outside = self.outside_ranges();
        if outside != Totals::default() || names.contains_key(&None) {
            let _ = writeln!(out, "(outside any range): {}", counts(&outside));
            add_names(&mut out, 0, names.get(&None));
        }
        let state = if self.health().is_complete() { "complete" } else { "INCOMPLETE" };
        out + state + "\n"
    }
}

fn by_name_backwards<'a>(
    nodes: impl Iterator<Item = RangeNode<'a>>,
    depth: usize,
) -> Vec<(RangeNode<'a>, usize)> {
    let mut nodes: Vec<_> = nodes.map(|node| (node, depth)).collect();
    nodes.sort_by_key(|(node, _)| Reverse((node.name(), node.domain())));
    nodes
}

fn add_node(text: &mut String, node: &RangeNode<'_>, depth: usize, names: &Names) {
    let indent = indent(depth);
    let counts = counts(&node.exclusive());
    let domain = node.domain().map(|domain| format!(" (domain {})", printable(domain)));
    let domain = domain.unwrap_or_default();
    let shared = node.shared();
    let shared = (shared != Totals::default())
        .then_some(shared)
        .map(|shared| format!("; shared: {}", self::counts(&shared)));
    let (instances, name) = (node.instances(), printable(node.name()));
    let shared = shared.unwrap_or_default();
    let _ = writeln!(text, "{indent}{instances} x {name}{domain}: {counts}{shared}");
    add_names(text, depth, names.get(&Some(node.id)));
}

/// Maximum indentation: recursions may be arbitrarily deep.
const INDENTED: usize = 64;

fn indent(depth: usize) -> String {
    let spaces = "  ".repeat(depth.min(INDENTED));
    if depth > INDENTED { format!("{spaces}… {depth}: ") } else { spaces }
}

fn add_names(text: &mut String, depth: usize, names: Option<&BTreeMap<String, u64>>) {
    let indent = indent(depth);
    for (name, count) in names.into_iter().flatten() {
        let _ = writeln!(text, "{indent}  - {count} x {}", printable(name));
    }
}

fn counts(totals: &Totals) -> String {
    let counts: Vec<String> = [
        ("launches", totals.launches),
        ("kernels", totals.kernels),
        ("copies", totals.copies),
        ("bytes copied", totals.copy_bytes),
        ("memsets", totals.memsets),
        ("bytes set", totals.memset_bytes),
        ("graphs traced as a whole", totals.graphs),
        ("synchronisations", totals.synchronizations),
        ("allocations", totals.allocations),
        ("frees", totals.frees),
        ("failed calls", totals.failed_calls),
    ]
    .into_iter()
    .filter(|(_, count)| *count != 0)
    .map(|(name, count)| format!("{count} {name}"))
    .collect();
    if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") }
}
