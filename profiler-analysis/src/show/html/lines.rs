//! Instruction samples by range, kernel and line.

use profiler_base::distinct::Texts;
use profiler_core::profile::Profile;
use serde::Serialize;

use super::names::NameRow;

/// The samples of a line of a kernel in the launches of a range.
#[derive(Serialize)]
pub(super) struct LineRow {
    /// The node of the range plus one; 0 outside all ranges.
    node: usize,
    /// The place: `gather.cu:12`, or the kernel without lines.
    name: NameRow,
    kernel: NameRow,
    /// Samples by the state of the warp, in words.
    stalls: Vec<(NameRow, f64)>,
}

/// Samples of known launches; the other samples are in no range.
pub(super) fn lines(profile: &Profile, names: &mut Texts) -> Vec<LineRow> {
    let node = |operation: &profiler_core::profile::GpuOperation<'_>| {
        operation.range().map(|range| range.node().id())
    };
    let mut groups: Vec<_> = profile.query().instructions_by(node).collect();
    groups.sort_by_key(|(node, _)| *node);
    let mut rows = Vec::new();
    for (node, samples) in groups {
        for line in samples.by_line() {
            let name = names.text(&line.place());
            let kernel = names.text(&line.kernel.to_string());
            let stalls = line.stalls.iter();
            let stalls = stalls.map(|(stall, samples)| (names.text(&stall.to_string()), samples));
            let stalls = stalls.collect();
            rows.push(LineRow { node: node.map_or(0, |node| node.at() + 1), name, kernel, stalls });
        }
    }
    rows
}
