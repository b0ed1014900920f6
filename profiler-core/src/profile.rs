//! A profile and the questions it answers.

use std::path::Path;
use std::time::Duration;

use crate::described::{Described, described_methods};
use crate::error::Error;
use crate::health::Health;
use crate::names::{self, Pattern};
use crate::recording::{Recording, RecordingInfo};
use crate::store::{CallId, Interval, Operation, RangeId, Store, Subject, Work};
use crate::totals::Totals;
use crate::tree::{Node, NodeId, Tree, range_of};
use crate::{correlate, source};

/// What a session saw, joined: every GPU operation with the call that caused it and the range that call was in.
///
/// Times are nanoseconds of `CLOCK_MONOTONIC` since the session's start, or durations. `{}` prints a report for people.
#[derive(Debug)]
pub struct Profile {
    pub(crate) recording: Recording,
    pub(crate) store: Store,
    pub(crate) tree: Tree,
    pub(crate) health: Health,
}

/// How a GPU operation came to its range. More ways will follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Attribution {
    /// The call that caused it was made in the range: known by CUPTI's correlation id, exact.
    Launch,
    /// As [`Launch`](Self::Launch), but the call was made on another thread than the range's, to which a
    /// [`Context`](crate::Context) was handed.
    Handed,
    /// No range was open where the call was made, or the call is not known.
    None,
}

impl Profile {
    /// Reads and joins a recording. Takes about a microsecond an operation.
    #[must_use]
    pub fn from_recording(recording: Recording) -> Self {
        let mut health = Health::default();
        let mut store = source::read(&recording, &mut health);
        correlate::join(&mut store, &recording, &mut health);
        let tree = Tree::build(&store);
        Self { recording, store, tree, health }
    }

    /// Reads and joins a recording that [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// The file cannot be read, or [`is_format`](Error::is_format).
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        Recording::load(path).map(Self::from_recording)
    }

    /// The same, from a file's content.
    ///
    /// # Errors
    /// [`is_format`](Error::is_format): not a recording, cut short, or written by a newer version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Recording::from_bytes(bytes).map(Self::from_recording)
    }

    /// Writes the raw logs to a file, from which the same profile can be made again anywhere. It holds no environment,
    /// user, host name or path.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.recording.save(path)
    }

    /// The raw logs.
    #[must_use]
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Where and when it was recorded.
    #[must_use]
    pub fn recording_info(&self) -> &RecordingInfo {
        self.recording.info()
    }

    /// How far it can be trusted.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// How long the session was on.
    #[must_use]
    pub fn duration(&self) -> Duration {
        let (start, stop) = self.recording.window_ns;
        Duration::from_nanos(stop.saturating_sub(start))
    }

    /// Everything the session saw, in ranges and outside.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = self.tree.outside;
        for root in &self.tree.roots {
            totals += self.tree.node_at(*root).inclusive;
        }
        totals
    }

    /// What was asked for outside any range.
    #[must_use]
    pub fn outside_ranges(&self) -> Totals {
        self.tree.outside
    }

    /// The outermost ranges, by path: all instances of the same name are one node. In the order they first began.
    pub fn roots(&self) -> impl Iterator<Item = RangeNode<'_>> {
        self.tree.roots.iter().map(|&id| RangeNode { profile: self, id })
    }

    /// All ranges of this name, or of this path: `"forward"`, `"batch/forward"`. `None` if there is none.
    ///
    /// A path names the innermost ranges, and may leave out the outermost. A `*` stands for any text, slashes included:
    /// `"layer */attention"`.
    #[must_use]
    pub fn range(&self, path: &str) -> Option<RangeSummary> {
        let path = &Pattern::new(path);
        let mut summary = RangeSummary::default();
        for node in self.nodes() {
            if !node.matches(path) {
                continue;
            }
            summary.nodes += 1;
            summary.instances += node.instances();
            summary.exclusive += node.exclusive();
            // A range within one of the same name is in its sum already.
            if !node.ancestors().any(|ancestor| ancestor.matches(path)) {
                summary.host_ns += node.node().host_ns;
                summary.inclusive += node.inclusive();
                summary.replayed += node.replayed();
            }
        }
        (summary.nodes != 0).then_some(summary)
    }

    /// Every node of the tree, one around others before those within it.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = RangeNode<'_>> {
        (0..self.tree.nodes.len() as u32).map(|id| RangeNode { profile: self, id: NodeId(id) })
    }

    /// Every instance of every range, by thread and in the order they began.
    pub fn ranges(&self) -> impl Iterator<Item = Range<'_>> {
        (0..self.store.ranges.len() as u32).map(|row| Range { profile: self, id: RangeId(row) })
    }

    /// Every GPU operation by start: kernels, copies, memsets.
    pub fn operations(&self) -> impl Iterator<Item = GpuOperation<'_>> {
        self.store.operations.iter().map(|row| GpuOperation { profile: self, row })
    }

    /// Every kernel by start.
    pub fn kernels(&self) -> impl Iterator<Item = Kernel<'_>> {
        self.operations().filter_map(|operation| operation.as_kernel())
    }

    /// Every copy by start.
    pub fn copies(&self) -> impl Iterator<Item = Copy<'_>> {
        self.operations().filter_map(|operation| operation.as_copy())
    }

    /// Every driver call that was recorded, by thread and in the order they were made.
    pub fn calls(&self) -> impl Iterator<Item = DriverCall<'_>> {
        (0..self.store.calls.len() as u32).map(|row| DriverCall { profile: self, id: CallId(row) })
    }

    pub(crate) fn since_start(&self, ns: u64) -> Duration {
        Duration::from_nanos(ns.saturating_sub(self.recording.window_ns.0))
    }
}

/// What all ranges of one name or path came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[non_exhaustive]
pub struct RangeSummary {
    nodes: u64,
    instances: u64,
    host_ns: u64,
    inclusive: Totals,
    exclusive: Totals,
    replayed: Totals,
}

impl RangeSummary {
    /// How often such a range was entered.
    #[must_use]
    pub fn instances(&self) -> u64 {
        self.instances
    }

    /// The host time in it, summed over instances; a range within one of the same name counts once.
    #[must_use]
    pub fn host_time(&self) -> Duration {
        Duration::from_nanos(self.host_ns)
    }

    /// What was asked for in it and in ranges within it.
    #[must_use]
    pub fn inclusive(&self) -> Totals {
        self.inclusive
    }

    /// What was asked for in it directly.
    #[must_use]
    pub fn exclusive(&self) -> Totals {
        self.exclusive
    }

    /// What graph launches, wherever they were made, ran of the nodes that were captured, or added by hand, in it and
    /// within. The same operations are in the [`inclusive`](Self::inclusive) totals of the range of each launch.
    #[must_use]
    pub fn replayed(&self) -> Totals {
        self.replayed
    }

    /// The time of the GPU operations asked for in it and within, summed.
    #[must_use]
    pub fn gpu_time(&self) -> Duration {
        self.inclusive.gpu_time()
    }

    /// The kernels launched in it and within.
    #[must_use]
    pub fn kernels(&self) -> u64 {
        self.inclusive.kernels
    }

    /// The kernel and graph launches made in it and within.
    #[must_use]
    pub fn launches(&self) -> u64 {
        self.inclusive.launches
    }

    /// The copies asked for in it and within.
    #[must_use]
    pub fn copies(&self) -> u64 {
        self.inclusive.copies
    }

    /// The synchronisation calls made in it and within.
    #[must_use]
    pub fn synchronizations(&self) -> u64 {
        self.inclusive.synchronizations
    }
}

/// A node of the tree of ranges: all instances of one path.
#[derive(Debug, Clone, Copy)]
pub struct RangeNode<'a> {
    profile: &'a Profile,
    pub(crate) id: NodeId,
}

impl<'a> RangeNode<'a> {
    fn node(&self) -> &'a Node {
        self.profile.tree.node_at(self.id)
    }

    /// The ranges around it, the innermost first.
    pub(crate) fn ancestors(&self) -> impl Iterator<Item = RangeNode<'a>> {
        let profile = self.profile;
        std::iter::successors(self.node().parent, |id| profile.tree.node_at(*id).parent)
            .map(move |id| RangeNode { profile, id })
    }

    /// True for its name, or a path that ends with it. A name may itself hold slashes.
    pub(crate) fn matches(&self, pattern: &Pattern) -> bool {
        let mut path = self.name().to_owned();
        if pattern.matches(&path) {
            return true;
        }
        self.ancestors().any(|ancestor| {
            path.insert(0, '/');
            path.insert_str(0, ancestor.name());
            pattern.matches(&path)
        })
    }

    /// The range's name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.profile.store.names.get(self.node().name)
    }

    /// Its domain's name; `None` is the default one. Ranges of one name in different domains are different nodes.
    #[must_use]
    pub fn domain(&self) -> Option<&'a str> {
        self.node().domain.map(|domain| self.profile.store.names.get(domain))
    }

    /// Its name with those of the ranges around it: `batch/forward`.
    #[must_use]
    pub fn path(&self) -> String {
        let mut names: Vec<_> = self.ancestors().map(|ancestor| ancestor.name()).collect();
        names.reverse();
        names.push(self.name());
        names.join("/")
    }

    /// How often it was entered.
    #[must_use]
    pub fn instances(&self) -> u64 {
        self.node().instances
    }

    /// The host time in it, summed over instances.
    #[must_use]
    pub fn host_time(&self) -> Duration {
        Duration::from_nanos(self.node().host_ns)
    }

    /// What was asked for in it and in ranges within it.
    #[must_use]
    pub fn inclusive(&self) -> Totals {
        self.node().inclusive
    }

    /// What was asked for in it directly.
    #[must_use]
    pub fn exclusive(&self) -> Totals {
        self.node().exclusive
    }

    /// What graph launches ran of the nodes that were made in it and within; see [`RangeSummary::replayed`].
    #[must_use]
    pub fn replayed(&self) -> Totals {
        self.node().replayed
    }

    /// The ranges within it, in the order they first began.
    pub fn children(&self) -> impl Iterator<Item = RangeNode<'a>> {
        let profile = self.profile;
        self.node().children.iter().map(move |&id| RangeNode { profile, id })
    }
}

/// One instance of a range.
#[derive(Debug, Clone, Copy)]
pub struct Range<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) id: RangeId,
}

described_methods!(Range);

impl<'a> Range<'a> {
    fn row(&self) -> &'a crate::store::Range {
        &self.profile.store.ranges[self.id.at()]
    }

    pub(crate) fn described(&self) -> Described<'a> {
        let (store, label) = (&self.profile.store, self.row().label);
        Described { store, label, subject: Subject::Range(self.id) }
    }

    /// When it began, since the session's start.
    #[must_use]
    pub fn start(&self) -> Duration {
        self.profile.since_start(self.row().time.start_ns)
    }

    /// How long the host was in it; until the stop, if it had not ended.
    #[must_use]
    pub fn host_time(&self) -> Duration {
        Duration::from_nanos(self.row().time.ns())
    }

    /// True if it had not ended at the stop, or at the snapshot.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.row().is_open
    }

    /// The kernel's id of its thread.
    #[must_use]
    pub fn thread_id(&self) -> u32 {
        self.profile.store.threads[self.row().thread.at()].id
    }

    /// Its thread's name, if it has one.
    #[must_use]
    pub fn thread_name(&self) -> Option<&'a str> {
        self.profile.store.threads[self.row().thread.at()].name.as_deref()
    }

    /// The range it lies in.
    #[must_use]
    pub fn parent(&self) -> Option<Range<'a>> {
        let profile = self.profile;
        self.row().parent.map(|id| Range { profile, id })
    }

    /// The node of the tree that it is an instance of.
    #[must_use]
    pub fn node(&self) -> RangeNode<'a> {
        RangeNode { profile: self.profile, id: self.profile.tree.of_range[self.id.at()] }
    }

    /// What was asked for in it and in ranges within it.
    #[must_use]
    pub fn inclusive(&self) -> Totals {
        self.profile.tree.range_totals[self.id.at()]
    }

    /// What graph launches ran of the nodes that were made in it and within; see [`RangeSummary::replayed`].
    #[must_use]
    pub fn replayed(&self) -> Totals {
        self.profile.tree.range_replayed[self.id.at()]
    }
}

/// A kernel, a copy or a memset.
#[derive(Debug, Clone, Copy)]
pub struct GpuOperation<'a> {
    profile: &'a Profile,
    row: &'a Operation,
}

impl<'a> GpuOperation<'a> {
    /// When it started on the GPU, since the session's start. `None` where CUPTI had no timestamps.
    #[must_use]
    pub fn start(&self) -> Option<Duration> {
        self.row.time.map(|time| self.profile.since_start(time.start_ns))
    }

    /// How long it ran on the GPU. `None` where CUPTI had no timestamps.
    #[must_use]
    pub fn gpu_time(&self) -> Option<Duration> {
        self.row.time.map(|time| Duration::from_nanos(Interval::ns(time)))
    }

    /// It as a kernel, if it is one.
    #[must_use]
    pub fn as_kernel(&self) -> Option<Kernel<'a>> {
        match self.row.work {
            Work::Kernel { name, details } => {
                Some(Kernel { operation: *self, name: self.profile.store.names.get(name), details })
            }
            _ => None,
        }
    }

    /// It as a copy, if it is one.
    #[must_use]
    pub fn as_copy(&self) -> Option<Copy<'a>> {
        match self.row.work {
            Work::Copy(details) => Some(Copy { operation: *self, details }),
            _ => None,
        }
    }

    /// The device's CUDA ordinal.
    #[must_use]
    pub fn device(&self) -> u32 {
        self.row.place.device
    }

    /// CUPTI's id of the stream; contexts number theirs apart.
    #[must_use]
    pub fn stream(&self) -> u32 {
        self.row.place.stream
    }

    /// CUPTI's id of the context.
    #[must_use]
    pub fn context(&self) -> u32 {
        self.row.place.context
    }

    /// Where and when it ran.
    pub(crate) fn interval(&self) -> Option<Interval> {
        self.row.time
    }

    /// The call that caused it.
    #[must_use]
    pub fn call(&self) -> Option<DriverCall<'a>> {
        let profile = self.profile;
        self.row.call.map(|id| DriverCall { profile, id })
    }

    /// The range in which that call was made.
    #[must_use]
    pub fn range(&self) -> Option<Range<'a>> {
        let profile = self.profile;
        range_of(&profile.store, self.row.call).map(|id| Range { profile, id })
    }

    /// The range in which the node of a CUDA graph that it was an execution of was made: by capture, or by hand. `None`
    /// where it was no such node, where the node was made outside any range, or before the session. The range of its
    /// launch is [`range`](Self::range).
    #[must_use]
    pub fn captured_in(&self) -> Option<Range<'a>> {
        let profile = self.profile;
        self.row.captured.map(|id| Range { profile, id })
    }

    /// How it came to that range.
    #[must_use]
    pub fn attribution(&self) -> Attribution {
        let store = &self.profile.store;
        match range_of(store, self.row.call).zip(self.row.call) {
            None => Attribution::None,
            Some((range, call))
                if store.ranges[range.at()].thread == store.calls[call.at()].thread =>
            {
                Attribution::Launch
            }
            Some(_) => Attribution::Handed,
        }
    }
}

/// A kernel that ran.
#[derive(Debug, Clone, Copy)]
pub struct Kernel<'a> {
    operation: GpuOperation<'a>,
    name: &'a str,
    details: cupti::Kernel,
}

impl<'a> Kernel<'a> {
    /// Its name as the compiler made it.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// A C++ name without its parameters, as the report shows it; another as it is. Costs microseconds.
    #[must_use]
    pub fn demangled_name(&self) -> String {
        names::demangled(self.name)
    }

    /// Blocks in x, y, z.
    #[must_use]
    pub fn grid(&self) -> [u32; 3] {
        self.details.grid
    }

    /// Threads in a block in x, y, z.
    #[must_use]
    pub fn block(&self) -> [u32; 3] {
        self.details.block
    }

    /// The record's other fields. Its times are CUPTI's.
    #[must_use]
    pub fn details(&self) -> &cupti::Kernel {
        &self.details
    }
}

impl<'a> std::ops::Deref for Kernel<'a> {
    type Target = GpuOperation<'a>;
    fn deref(&self) -> &GpuOperation<'a> {
        &self.operation
    }
}

/// A copy that ran.
#[derive(Debug, Clone, Copy)]
pub struct Copy<'a> {
    operation: GpuOperation<'a>,
    details: cupti::Memcpy,
}

impl Copy<'_> {
    /// From where to where.
    #[must_use]
    pub fn kind(&self) -> cupti::CopyKind {
        self.details.kind
    }

    /// Bytes moved.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.details.bytes
    }

    /// The record's other fields. Its times are CUPTI's.
    #[must_use]
    pub fn details(&self) -> &cupti::Memcpy {
        &self.details
    }
}

impl<'a> std::ops::Deref for Copy<'a> {
    type Target = GpuOperation<'a>;
    fn deref(&self) -> &GpuOperation<'a> {
        &self.operation
    }
}

/// A driver call.
#[derive(Debug, Clone, Copy)]
pub struct DriverCall<'a> {
    profile: &'a Profile,
    id: CallId,
}

impl<'a> DriverCall<'a> {
    fn row(&self) -> &'a crate::store::Call {
        &self.profile.store.calls[self.id.at()]
    }

    /// The function: its name and what it does.
    #[must_use]
    pub fn function(&self) -> cupti::DriverFunction {
        self.row().call.function
    }

    /// When it was called, since the session's start.
    #[must_use]
    pub fn start(&self) -> Duration {
        self.profile.since_start(self.row().call.start_ns)
    }

    /// How long it took on the host. `None` if it had not returned at the stop, or at the snapshot.
    #[must_use]
    pub fn host_time(&self) -> Option<Duration> {
        let call = &self.row().call;
        call.end_ns.map(|end| Duration::from_nanos(end.saturating_sub(call.start_ns)))
    }

    /// Its `CUresult`; 0 is success.
    #[must_use]
    pub fn result(&self) -> u32 {
        self.row().call.result
    }

    /// True if it returned an error. A query that says "not yet" returned none.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        correlate::is_failure(&self.row().call)
    }

    /// True if it made a node of a CUDA graph instead of doing its work (stream capture).
    #[must_use]
    pub fn is_captured(&self) -> bool {
        self.row().call.captured
    }

    /// The kernel's id of the thread that made it.
    #[must_use]
    pub fn thread_id(&self) -> u32 {
        self.profile.store.threads[self.row().thread.at()].id
    }

    /// The range in which it was made.
    #[must_use]
    pub fn range(&self) -> Option<Range<'a>> {
        let profile = self.profile;
        self.row().range.map(|id| Range { profile, id })
    }
}
