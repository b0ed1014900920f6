//! Ranges: each instance, all of one path, and all of a pattern.

use std::borrow::Cow;
use std::time::Duration;

use super::{ApiCall, GpuOperation, Profile};
use crate::base::totals::Totals;
use crate::join::range_tree::{Node, NodeId};
use crate::join::tables::{self, RangeId, Subject};
use crate::profile::labels::{Described, described_methods};

/// What all ranges of one name or path came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[non_exhaustive]
pub struct RangeSummary {
    pub(super) nodes: u64,
    pub(super) instances: u64,
    pub(super) host_ns: u64,
    pub(super) inclusive: Totals,
    pub(super) exclusive: Totals,
    pub(super) replayed: Totals,
    #[serde(skip_serializing_if = "is_none")]
    pub(super) shared: Totals,
}

fn is_none(totals: &Totals) -> bool {
    *totals == Totals::default()
}

impl RangeSummary {
    /// How often such a range was entered.
    pub fn instances(&self) -> u64 {
        self.instances
    }

    /// The host time in it, summed over instances; a range within one of the same name counts once.
    pub fn host_time(&self) -> Duration {
        Duration::from_nanos(self.host_ns)
    }

    /// What was asked for in it and in ranges within it.
    pub fn inclusive(&self) -> Totals {
        self.inclusive
    }

    /// What was asked for in it directly.
    pub fn exclusive(&self) -> Totals {
        self.exclusive
    }

    /// What graph launches, wherever they were made, ran of the nodes that were captured, or added by hand, in it and
    /// within. The same operations are in the [`inclusive`](Self::inclusive) totals of the range of each launch.
    pub fn replayed(&self) -> Totals {
        self.replayed
    }

    /// What was asked for in it and within together with other ranges ([`Context::join`](crate::Context::join)), and
    /// counts for one of these: each launch and operation once, and none that is in [`inclusive`](Self::inclusive). Both
    /// together are all that it asked for; sums over ranges that share work have it more than once.
    pub fn shared(&self) -> Totals {
        self.shared
    }

    /// The time of the GPU operations asked for in it and within, summed.
    pub fn gpu_time(&self) -> Duration {
        self.inclusive.gpu_time()
    }

    /// The kernels launched in it and within.
    pub fn kernels(&self) -> u64 {
        self.inclusive.kernels
    }

    /// The kernel and graph launches made in it and within.
    pub fn launches(&self) -> u64 {
        self.inclusive.launches
    }

    /// The copies asked for in it and within.
    pub fn copies(&self) -> u64 {
        self.inclusive.copies
    }

    /// The synchronisation calls made in it and within.
    pub fn synchronizations(&self) -> u64 {
        self.inclusive.synchronizations
    }
}

/// A node of the tree of ranges: all instances of one path.
#[derive(Debug, Clone, Copy)]
pub struct RangeNode<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) id: NodeId,
}

impl<'a> RangeNode<'a> {
    pub(super) fn node(&self) -> &'a Node {
        self.profile.tree.node_at(self.id)
    }

    /// The ranges around it, the innermost first.
    pub(crate) fn ancestors(&self) -> impl Iterator<Item = RangeNode<'a>> + use<'a> {
        let profile = self.profile;
        std::iter::successors(self.node().parent, |id| profile.tree.node_at(*id).parent)
            .map(move |id| RangeNode { profile, id })
    }

    /// The range's name.
    pub fn name(&self) -> &'a str {
        self.profile.store.names.get(self.node().name)
    }

    /// Its domain's name; `None` is the default one. Ranges of one name in different domains are different nodes.
    pub fn domain(&self) -> Option<&'a str> {
        self.node().domain.map(|domain| self.profile.store.names.get(domain))
    }

    /// Its name with those of the ranges around it: `batch/forward`. All of them, however many there are.
    pub fn path(&self) -> String {
        let mut names: Vec<_> = self.ancestors().map(|ancestor| ancestor.name()).collect();
        names.reverse();
        names.push(self.name());
        names.join("/")
    }

    /// [`path`](Self::path) for outputs that have those of all nodes: of more than 128 names it has the first and the last 64,
    /// and between them how many are left out: `…(7 more)…`.
    pub(crate) fn cut_path(&self) -> String {
        self.path_names().join("/")
    }

    /// True if this is its whole path.
    pub(crate) fn is_path(&self, path: &str) -> bool {
        let mut rest = path.strip_suffix(self.name());
        for around in self.ancestors() {
            let of_around = rest.and_then(|rest| rest.strip_suffix('/'));
            rest = of_around.and_then(|rest| rest.strip_suffix(around.name()));
            if rest.is_none() {
                return false;
            }
        }
        rest == Some("")
    }

    /// How many nodes are around it.
    pub(crate) fn depth(&self) -> usize {
        self.node().level.depth()
    }

    /// The names of its path, the outermost first, cut as [`cut_path`](Self::cut_path) says.
    pub(crate) fn path_names(&self) -> Vec<Cow<'a, str>> {
        let profile = self.profile;
        self.node().level.names(self.id.at(), |row| {
            let node = RangeNode { profile, id: NodeId(row as u32) };
            std::iter::once(node).chain(node.ancestors()).map(|node| node.name())
        })
    }

    /// How often it was entered.
    pub fn instances(&self) -> u64 {
        self.node().instances
    }

    /// The host time in it, summed over instances.
    pub fn host_time(&self) -> Duration {
        Duration::from_nanos(self.node().host_ns)
    }

    /// What was asked for in it and in ranges within it.
    pub fn inclusive(&self) -> Totals {
        self.node().inclusive
    }

    /// What was asked for in it directly.
    pub fn exclusive(&self) -> Totals {
        self.node().exclusive
    }

    /// What graph launches ran of the nodes that were made in it and within; see [`RangeSummary::replayed`].
    pub fn replayed(&self) -> Totals {
        self.node().replayed
    }

    /// What was asked for in it and within together with others, and counts for these; see [`RangeSummary::shared`].
    pub fn shared(&self) -> Totals {
        self.node().shared
    }

    /// Its instances, by thread and in the order they began.
    pub fn ranges(&self) -> impl Iterator<Item = Range<'a>> + Clone + use<'a> {
        let profile = self.profile;
        profile.tree.instances(self.id).map(move |id| Range { profile, id })
    }

    /// The node around it.
    pub fn parent(&self) -> Option<RangeNode<'a>> {
        self.node().parent.map(|id| RangeNode { profile: self.profile, id })
    }

    /// It and all nodes within it with their depth, 0 for itself: see [`Profile::walk`].
    pub fn walk(&self) -> impl Iterator<Item = (usize, RangeNode<'a>)> + use<'a> {
        Walk::new(std::iter::once(*self))
    }

    /// The ranges within it, in the order they first began.
    pub fn children(&self) -> impl Iterator<Item = RangeNode<'a>> + use<'a> {
        let profile = self.profile;
        self.node().children.iter().map(move |&id| RangeNode { profile, id })
    }
}

/// The nodes of a tree in depth first order.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    /// The next one is the last.
    left: Vec<(usize, RangeNode<'a>)>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(roots: impl Iterator<Item = RangeNode<'a>>) -> Self {
        let mut left: Vec<_> = roots.map(|root| (0, root)).collect();
        left.reverse();
        Self { left }
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = (usize, RangeNode<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (depth, node) = self.left.pop()?;
        let first = self.left.len();
        self.left.extend(node.children().map(|child| (depth + 1, child)));
        self.left[first..].reverse();
        Some((depth, node))
    }
}

/// One instance of a range: its times, its calls, the GPU operations attributed to it.
///
/// ```
/// use profiler_core::Profile;
///
/// # fn main() -> Result<(), profiler_core::Error> {
/// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
/// let profile = Profile::load(file)?;
/// let longest = profile.ranges().max_by_key(|range| range.host_time());
/// if let Some(range) = longest {
///     println!("{}: {} kernels in {:?}", range.node().path(), range.inclusive().kernels, range.host_time());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Range<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) id: RangeId,
}

described_methods!(Range);

impl<'a> Range<'a> {
    pub(crate) fn row(&self) -> &'a tables::Range {
        &self.profile.store.ranges[self.id.at()]
    }

    pub(crate) fn described(&self) -> Described<'a> {
        let (store, label) = (&self.profile.store, self.row().label);
        Described { store, label, subject: Subject::Range(self.id) }
    }

    /// When it began, since the session's start.
    pub fn start(&self) -> Duration {
        self.profile.since_start(self.row().time.start_ns)
    }

    /// When it ended, since the session's start; the stop, if it had not.
    pub fn end(&self) -> Duration {
        self.profile.since_start(self.row().time.end_ns)
    }

    /// How long the host was in it; until the stop, if it had not ended.
    pub fn host_time(&self) -> Duration {
        Duration::from_nanos(self.row().time.ns())
    }

    /// True if it had not ended at the stop, or at the snapshot.
    pub fn is_open(&self) -> bool {
        self.row().is_open
    }

    /// The kernel's id of its thread.
    pub fn thread_id(&self) -> u32 {
        self.profile.store.threads[self.row().thread.at()].id
    }

    /// Its thread's name, if it has one.
    pub fn thread_name(&self) -> Option<&'a str> {
        self.profile.store.threads[self.row().thread.at()].name.as_deref()
    }

    /// The range it lies in.
    #[must_use]
    pub fn parent(&self) -> Option<Range<'a>> {
        let profile = self.profile;
        self.row().parent.get().map(|id| Range { profile, id })
    }

    /// The node of the tree that it is an instance of.
    pub fn node(&self) -> RangeNode<'a> {
        RangeNode { profile: self.profile, id: self.profile.tree.of_range[self.id.at()] }
    }

    /// What was asked for in it and in ranges within it. Sums it up each time, some nanoseconds an operation.
    pub fn inclusive(&self) -> Totals {
        self.profile.tree.inclusive(&self.profile.store, self.id)
    }

    /// What was asked for in it directly. Sums it up each time.
    pub fn exclusive(&self) -> Totals {
        self.profile.tree.exclusive(&self.profile.store, self.id)
    }

    /// What graph launches ran of the nodes that were made in it and within; see [`RangeSummary::replayed`].
    pub fn replayed(&self) -> Totals {
        self.profile.tree.replayed(&self.profile.store, self.id)
    }

    /// What was asked for in it and within together with others, and counts for these; see [`RangeSummary::shared`]. Sums it
    /// up each time.
    pub fn shared(&self) -> Totals {
        self.profile.tree.shared(&self.profile.store, self.id)
    }

    /// The GPU operations asked for in it and within: range by range, and in each by start.
    pub fn operations(&self) -> impl Iterator<Item = GpuOperation<'a>> + Clone + use<'a> {
        let profile = self.profile;
        profile.tree.operations(self.id).map(move |id| profile.operation(id))
    }

    /// The GPU operations asked for in it directly, by start.
    pub fn own_operations(&self) -> impl Iterator<Item = GpuOperation<'a>> + Clone + use<'a> {
        let profile = self.profile;
        profile.tree.own_operations(self.id).map(move |id| profile.operation(id))
    }

    /// The operations of graph launches whose node was made in it and within.
    pub fn replayed_operations(&self) -> impl Iterator<Item = GpuOperation<'a>> + Clone + use<'a> {
        let profile = self.profile;
        profile.tree.replays(self.id).map(move |id| profile.operation(id))
    }

    /// The operations of [`shared`](Self::shared), each once and by start.
    pub fn shared_operations(&self) -> impl Iterator<Item = GpuOperation<'a>> + Clone + use<'a> {
        let profile = self.profile;
        let operations = profile.tree.shared_operations(&profile.store, self.id);
        operations.map(move |id| profile.operation(id))
    }

    /// The calls of [`shared`](Self::shared), each once: by thread, and in each in the order they were made.
    pub fn shared_calls(&self) -> impl Iterator<Item = ApiCall<'a>> + Clone + use<'a> {
        let profile = self.profile;
        profile.tree.shared_calls(&profile.store, self.id).map(move |id| profile.call(id))
    }

    /// The calls made in it and within: range by range, and in each in the order they were made.
    pub fn calls(&self) -> impl Iterator<Item = ApiCall<'a>> + Clone + use<'a> {
        let profile = self.profile;
        profile.tree.calls(self.id).map(move |id| profile.call(id))
    }

    /// The calls made in it directly, in order.
    pub fn own_calls(&self) -> impl Iterator<Item = ApiCall<'a>> + Clone + use<'a> {
        let profile = self.profile;
        profile.tree.own_calls(self.id).map(move |id| profile.call(id))
    }

    /// The ranges within it, at whatever depth: each directly before those within it.
    pub fn descendants(&self) -> impl Iterator<Item = Range<'a>> + Clone + use<'a> {
        let profile = self.profile;
        profile.tree.within(self.id).skip(1).map(move |id| Range { profile, id })
    }

    /// The ranges directly within it, by start.
    pub fn children(&self) -> impl Iterator<Item = Range<'a>> + Clone + use<'a> {
        let id = self.id;
        let is_child = move |range: &Range<'a>| range.row().parent.get() == Some(id);
        self.descendants().filter(is_child)
    }
}
