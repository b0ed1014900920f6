//! Folded stacks: a line for each range path and operation name, with the GPU time.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

use super::format::{About, Export};
use super::timeline::Timeline;
use crate::base::text::printable;
use crate::profile::RangeNode;

pub(super) const ABOUT: About = About {
    key: "folded",
    title: "folded stacks",
    summary: "Folded stacks, for flame graphs",
    extension: "folded",
    has_samples: false,
    has_rank: false,
    is_text: true,
};

pub(super) fn write(timeline: &Timeline<'_>, _: &Export, out: &mut dyn Write) -> io::Result<()> {
    let mut nodes: BTreeMap<Option<usize>, Node<'_>> = BTreeMap::new();
    for operation in &timeline.operations {
        let range = operation.range.map(|row| timeline.ranges[row].range.node());
        let node = nodes.entry(range.map(|range| range.id.at())).or_default();
        node.range = range;
        let time = node.times.entry(timeline.name(operation)).or_default();
        *time = operation.span.map_or(*time, |span| time.saturating_add(span.ns()));
    }
    let mut whole = WHOLE;
    for node in nodes.values() {
        let stack = node.range.map(|range| stack(&range, &mut whole)).unwrap_or_default();
        for (name, ns) in &node.times {
            writeln!(out, "{stack}{} {ns}", frame(name))?;
        }
    }
    Ok(())
}

#[derive(Default)]
struct Node<'a> {
    range: Option<RangeNode<'a>>,
    times: BTreeMap<&'a str, u64>,
}

/// Names in unshortened paths of all lines: the paths of a recursion have quadratic length.
const WHOLE: usize = 100_000;

/// The names from the outermost range, each followed by `;`. Shortened as by
/// [`RangeNode::cut_path`] after [`WHOLE`] names.
fn stack(node: &RangeNode<'_>, whole: &mut usize) -> String {
    let mut names = node.path_names();
    let depth = node.depth() + 1;
    if names.len() < depth && depth <= *whole {
        *whole -= depth;
        let around = node.ancestors().map(|node| node.name().into());
        names = std::iter::once(node.name().into()).chain(around).collect();
        names.reverse();
    }
    names.iter().flat_map(|name| [frame(name), ";".into()]).collect()
}

/// A name without the separators of the format.
fn frame(name: &str) -> Cow<'_, str> {
    if name.trim().is_empty() {
        return "(no name)".into();
    }
    let name = printable(name);
    match name.contains(';') {
        true => name.replace(';', ":").into(),
        false => name,
    }
}
