//! Ranges: single instances, tree nodes, and sums by pattern.

use std::borrow::Cow;
use std::time::Duration;

use profiler_base::getters;

use super::{ApiCall, GpuOperation, Profile};
use crate::join::range_tree::{Node, NodeId};
use crate::join::tables::{self, RangeId, Subject};
use crate::join::totals::Totals;
use crate::profile::labels::{Labelled, label_methods};

/// The sums of all ranges of one name or path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RangeSummary {
    pub(super) nodes: u64,
    pub(super) instances: u64,
    pub(super) host_ns: u64,
    pub(super) inclusive: Totals,
    pub(super) exclusive: Totals,
    pub(super) replayed: Totals,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub(super) shared: Totals,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub(super) inferred: Totals,
}

#[cfg(feature = "serde")]
fn is_none(totals: &Totals) -> bool {
    *totals == Totals::default()
}

impl RangeSummary {
    getters! {
        /// The number of instances.
        instances: u64 = instances;
        /// The totals with descendants, for work submitted before an instance's end: see
        /// [`Range::inclusive`].
        inclusive: Totals = inclusive;
        /// The totals without descendants.
        exclusive: Totals = exclusive;
        /// The executions of graph nodes that were captured or created in the ranges and their
        /// descendants, wherever the graphs were launched. The [`inclusive`](Self::inclusive)
        /// totals of the launching range contain them, too.
        replayed: Totals = replayed;
        /// Work submitted together with other ranges ([`Context::join`](crate::Context::join)) and
        /// attributed to one of those. [`inclusive`](Self::inclusive) does not contain it; both
        /// together are all submitted work. Sums over ranges that share work contain it several
        /// times.
        shared: Totals = shared;
        /// Work of threads without ranges that is [inferred](crate::Profile::with_inferred_ranges)
        /// for these ranges, whose thread waited meanwhile. [`inclusive`](Self::inclusive) does not
        /// contain it; the work outside all ranges does.
        inferred: Totals = inferred;
        /// The sum of GPU times, with descendants.
        gpu_time: Duration = inclusive.gpu_time();
        /// The sum of host times; a range within one of the same pattern counts once.
        host_time: Duration = Duration::from_nanos(host_ns);
        /// The number of kernels, with descendants.
        kernels: u64 = inclusive.kernels;
        /// The number of kernel and graph launches, with descendants.
        launches: u64 = inclusive.launches;
        /// The number of copies, with descendants.
        copies: u64 = inclusive.copies;
        /// The number of synchronisation calls, with descendants.
        synchronizations: u64 = inclusive.synchronizations;
    }
}

/// A node of the tree of ranges: all instances of one path.
#[derive(Debug, Clone, Copy)]
pub struct RangeNode<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) id: NodeId,
}

impl<'a> RangeNode<'a> {
    /// Its row of the range tree.
    pub fn node(&self) -> &'a Node {
        self.profile.tree.node_at(self.id)
    }

    /// The ancestors, innermost first.
    pub fn ancestors(&self) -> impl Iterator<Item = RangeNode<'a>> + use<'a> {
        let profile = self.profile;
        std::iter::successors(self.node().parent, |id| profile.tree.node_at(*id).parent)
            .map(move |id| RangeNode { profile, id })
    }

    /// The ranges' name.
    pub fn name(&self) -> &'a str {
        self.profile.store.names.get(self.node().name)
    }

    /// The domain's name; `None` is the default domain. Domains have separate nodes.
    pub fn domain(&self) -> Option<&'a str> {
        self.node().domain.map(|domain| self.profile.store.names.get(domain))
    }

    /// The full path with the names of all ancestors: `batch/forward`.
    pub fn path(&self) -> String {
        let mut names: Vec<_> = self.ancestors().map(|ancestor| ancestor.name()).collect();
        names.reverse();
        names.push(self.name());
        names.join("/")
    }

    /// The path for outputs of many nodes: beyond 128 names, the first and last 64 with the number
    /// omitted between them, `…(7 more)…`.
    pub fn cut_path(&self) -> String {
        self.path_names().join("/")
    }

    /// True if this is its full path.
    pub fn is_path(&self, path: &str) -> bool {
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

    /// The names of [`cut_path`](Self::cut_path), outermost first.
    pub fn path_names(&self) -> Vec<Cow<'a, str>> {
        let profile = self.profile;
        self.node().level.names(self.id.at(), |row| {
            let node = RangeNode { profile, id: NodeId(row as u32) };
            std::iter::once(node).chain(node.ancestors()).map(|node| node.name())
        })
    }

    getters! {
        /// The number of instances.
        instances: u64 = node().instances;
        /// The totals with descendants.
        inclusive: Totals = node().inclusive;
        /// The totals without descendants.
        exclusive: Totals = node().exclusive;
        /// Executions of graph nodes created in it; see [`RangeSummary::replayed`].
        replayed: Totals = node().replayed;
        /// Work shared with the ranges to which it is attributed; see [`RangeSummary::shared`].
        shared: Totals = node().shared;
        /// Inferred work of threads without ranges; see [`RangeSummary::inferred`].
        inferred: Totals = node().inferred;
        /// The sum of host times.
        host_time: Duration = Duration::from_nanos(node().host_ns);
        /// Its index in the range tree.
        id: NodeId = id;
        /// The profile that contains it.
        profile: &'a Profile = profile;
        /// The number of ancestors.
        depth: usize = node().level.depth();
    }

    /// Its instances, by thread in start order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<'a>> + Clone + use<'a> {
        let profile = self.profile;
        profile.tree.instances(self.id).map(move |id| Range { profile, id })
    }

    /// The parent node.
    pub fn parent(&self) -> Option<RangeNode<'a>> {
        self.node().parent.map(|id| RangeNode { profile: self.profile, id })
    }

    /// The node and its descendants with their depth, 0 for itself: see [`Profile::walk`].
    pub fn walk(&self) -> impl Iterator<Item = (usize, RangeNode<'a>)> + use<'a> {
        Walk::new(std::iter::once(*self))
    }

    /// The child nodes in the order they first began.
    pub fn children(&self) -> impl Iterator<Item = RangeNode<'a>> + use<'a> {
        let profile = self.profile;
        self.node().children.iter().map(move |&id| RangeNode { profile, id })
    }
}

/// Iterates over nodes in depth-first order.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    /// A stack: the next node is last.
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

/// One instance of a range: its times, calls and attributed GPU operations.
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

label_methods!(Range);

impl<'a> Range<'a> {
    /// Its row of the tables.
    pub fn row(&self) -> &'a tables::Range {
        &self.profile.store.ranges[self.id.at()]
    }

    /// The start since the session's start.
    pub fn start(&self) -> Duration {
        self.profile.since_start(self.row().time.start_ns)
    }

    /// The end since the session's start; the stop if it had not ended.
    pub fn end(&self) -> Duration {
        self.profile.since_start(self.row().time.end_ns)
    }

    getters! {
        /// The host time; until the stop if it had not ended.
        host_time: Duration = Duration::from_nanos(row().time.ns());
        /// True if it had not ended at the stop or snapshot.
        is_open: bool = row().is_open;
        /// Its index in the tables.
        id: RangeId = id;
    }

    /// Its thread's name, if any.
    pub fn thread_name(&self) -> Option<&'a str> {
        self.profile.store.threads[self.row().thread.at()].name.as_deref()
    }

    /// The parent range.
    pub fn parent(&self) -> Option<Range<'a>> {
        self.row().parent.get().map(|id| Range { profile: self.profile, id })
    }

    /// The tree node of the range.
    pub fn node(&self) -> RangeNode<'a> {
        RangeNode { profile: self.profile, id: self.profile.tree.of_range[self.id.at()] }
    }

    /// The totals with descendants. Summed on each call: some nanoseconds per operation.
    ///
    /// A descendant on the thread may end later, as with ranges of several domains; its work after
    /// the end of this range is excluded. Work under a handed-over context is included.
    pub fn inclusive(&self) -> Totals {
        self.profile.tree.inclusive(&self.profile.store, self.id)
    }

    /// The totals without descendants. Summed on each call.
    pub fn exclusive(&self) -> Totals {
        self.profile.tree.exclusive(&self.profile.store, self.id)
    }

    /// Executions of graph nodes created in it; see [`RangeSummary::replayed`].
    pub fn replayed(&self) -> Totals {
        self.profile.tree.replayed(&self.profile.store, self.id)
    }

    /// Work shared with others; see [`RangeSummary::shared`]. Summed on each call.
    pub fn shared(&self) -> Totals {
        self.profile.tree.shared(&self.profile.store, self.id)
    }

    /// Inferred work of threads without ranges; see [`RangeSummary::inferred`]. Summed on each
    /// call.
    pub fn inferred(&self) -> Totals {
        self.profile.tree.inferred(&self.profile.store, self.id)
    }

    /// The descendants in depth-first order.
    pub fn descendants(&self) -> impl Iterator<Item = Range<'a>> + Clone + use<'a> {
        let profile = self.profile;
        profile.tree.subtree(self.id).skip(1).map(move |id| Range { profile, id })
    }

    /// The children by start.
    pub fn children(&self) -> impl Iterator<Item = Range<'a>> + Clone + use<'a> {
        let id = self.id;
        let is_child = move |range: &Range<'a>| range.row().parent.get() == Some(id);
        self.descendants().filter(is_child)
    }
}

macro_rules! rows_of_range {
    ($($(#[$doc:meta])* $name:ident: $item:ident = $row:ident of $rows:ident($($store:ident)?);)+) => {
        impl<'a> Range<'a> {$(
            $(#[$doc])*
            pub fn $name(&self) -> impl Iterator<Item = $item<'a>> + Clone + use<'a> {
                let profile = self.profile;
                profile.tree.$rows($(&profile.$store,)? self.id).map(move |id| profile.$row(id))
            }
        )+}
    };
}
rows_of_range! {
    /// The GPU operations of the range and its descendants: range by range, each by start.
    operations: GpuOperation = operation of operations();
    /// The GPU operations of the range without descendants, by start.
    own_operations: GpuOperation = operation of own_operations();
    /// The executions of graph nodes created in it and its descendants.
    replayed_operations: GpuOperation = operation of replays();
    /// The operations of [`shared`](Self::shared), without duplicates, by start.
    shared_operations: GpuOperation = operation of shared_operations(store);
    /// The operations of [`inferred`](Self::inferred): range by range, each by start.
    inferred_operations: GpuOperation = operation of inferred_operations();
    /// The calls of the range and its descendants: range by range, each in call order.
    calls: ApiCall = call of calls();
    /// The calls of the range without descendants, in order.
    own_calls: ApiCall = call of own_calls();
    /// The calls of [`shared`](Self::shared), without duplicates, by thread in call order.
    shared_calls: ApiCall = call of shared_calls(store);
}
