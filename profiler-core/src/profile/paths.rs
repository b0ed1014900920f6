//! The paths of all nodes, as files have them: short, however deep ranges lie in each other.

use super::{Profile, RangeNode};
use crate::tree::NodeId;

/// Names that a path keeps at its start and at its end.
pub(crate) const KEPT: usize = 64;

/// The paths of a profile's nodes.
pub(crate) struct Paths<'a> {
    profile: &'a Profile,
    /// By node: how many are around it, and the one of the first [`KEPT`] that is nearest to it.
    places: Vec<(usize, NodeId)>,
}

impl<'a> Paths<'a> {
    pub(crate) fn new(profile: &'a Profile) -> Self {
        let mut places: Vec<(usize, NodeId)> = Vec::with_capacity(profile.tree.nodes.len());
        for node in profile.nodes() {
            let place = match node.node().parent.map(|parent| places[parent.at()]) {
                None => (0, node.id),
                Some((depth, head)) => (depth + 1, if depth + 1 < KEPT { node.id } else { head }),
            };
            places.push(place);
        }
        Self { profile, places }
    }

    /// Names with `/` between them: of more than twice [`KEPT`] the first and the last, and between them how many are not
    /// said.
    pub(crate) fn get(&self, node: RangeNode<'a>) -> String {
        let (depth, head) = self.places[node.id.at()];
        if depth < 2 * KEPT {
            return node.path();
        }
        let last = std::iter::once(node).chain(node.ancestors()).take(KEPT);
        let mut names: Vec<_> = last.map(|node| node.name()).collect();
        names.reverse();
        let head = RangeNode { profile: self.profile, id: head };
        format!("{}/…({} more)…/{}", head.path(), depth + 1 - 2 * KEPT, names.join("/"))
    }
}
