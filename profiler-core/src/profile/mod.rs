//! A profile and its parts: ranges, GPU operations, calls, marks, tracks, totals.
//!
//! ```
//! use profiler_core::Profile;
//! use profiler_core::profile::Attribution;
//!
//! # fn main() -> Result<(), profiler_core::Error> {
//! # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
//! let profile = Profile::load(file)?;
//! for kernel in profile.kernels().take(3) {
//!     let path = kernel.range().map(|range| range.node().path());
//!     println!("{} in {path:?}: {:?}", kernel.demangled_name(), kernel.gpu_time());
//!     assert_eq!(kernel.attribution(), Attribution::Launch);
//! }
//! # Ok(())
//! # }
//! ```

mod call;
mod clocks;
mod collective;
mod host_stack;
pub(crate) mod labels;
pub(crate) mod mark;
mod operation;
mod part;
pub(crate) mod process;
pub(crate) mod process_range;
pub(crate) mod profiles;
mod range;
pub(crate) mod summary;
mod track;

use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::Error;
use crate::join::busy::{SessionTime, extent, time_in_windows};
use crate::join::collectives::{self, CollectiveRow};
use crate::join::communication::Communication;
use crate::join::health::Health;
pub use crate::join::health::{Account, Accounts, Facts, Losses};
use crate::join::infer;
use crate::join::joined::Joined;
pub use crate::join::merge::Merger;
use crate::join::range_tree::{NodeId, Tree};
use crate::join::sampled_slices::SampledSlices;
use crate::join::tables::{
    BYTES_A_KERNEL, CallId, KernelNames, Label, LabelId, Maybe, OperationId, RangeId, Tables, What,
    Work,
};
pub use crate::join::totals::Totals;
use crate::record::recording::Recording;
pub use crate::record::recording::{DeviceInfo, RecordingInfo};
pub use call::ApiCall;
pub use clocks::DeviceClocks;
pub use collective::{Collective, CollectiveFunction};
pub use host_stack::{
    HostFrame, HostSampleCounts, HostStack, HostStackCounts, HostState, SampleLosses, SampleSource,
    StackLosses,
};
pub use mark::Mark;
pub use operation::{Attribution, GpuOperation, Graph, Kernel, MemoryCopy, Memset, OperationKind};
pub use process::Process;
pub use process_range::{ProcessRange, ProcessRangeGroup};
use profiler_base::getters;
use profiler_base::kernel_names::{Pattern, label, overloaded};
pub use profiles::Profiles;
use range::Walk;
pub use range::{Range, RangeNode, RangeSummary};
pub use summary::{PathSummary, ProcessRangeSummary};
pub use track::{Sampled, Track, TrackSample};

/// The joined result of a session: every GPU operation with the call that submitted it and the
/// range of that call.
///
/// Times are nanoseconds of `CLOCK_MONOTONIC` since the session's start, or durations. `{}` prints
/// a report for people; [`report`](Self::report) can have more sections.
///
/// ```
/// use profiler_core::Profile;
///
/// # fn main() -> Result<(), profiler_core::Error> {
/// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
/// let profile = Profile::load(file)?;
/// println!("{profile}");
/// println!("{} kernels took {:?}", profile.totals().kernels, profile.totals().kernel_time());
/// for range in profile.ranges().take(3) {
///     println!("{}: {:?} on the GPU", range.node().path(), range.inclusive().gpu_time());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Profile {
    /// `None` if the profile has another source, or the recording was dropped.
    recording: Option<Recording>,
    info: RecordingInfo,
    pub(crate) store: Tables,
    pub(crate) tree: Tree,
    pub(crate) health: Health,
    collective_kernels: OnceLock<Communication>,
    collective_rows: OnceLock<Vec<CollectiveRow>>,
    overloads: OnceLock<FxHashSet<KernelNames>>,
    sampled_slices: OnceLock<SampledSlices>,
}

impl From<Joined> for Profile {
    fn from(Joined { tables: store, info, health }: Joined) -> Self {
        let tree = Tree::build(&store);
        Self {
            recording: None,
            info,
            store,
            tree,
            health,
            collective_kernels: OnceLock::new(),
            collective_rows: OnceLock::new(),
            overloads: OnceLock::new(),
            sampled_slices: OnceLock::new(),
        }
    }
}

impl Profile {
    /// Joins a recording. Costs about 0.2 us per operation.
    #[must_use]
    pub fn from_recording(recording: Recording) -> Self {
        let joined = Joined::of_recording(&recording);
        Self { recording: Some(recording), ..Self::from(joined) }
    }

    /// The operations that are collectives, determined from their names on first use.
    pub fn collective_kernels(&self) -> &Communication {
        self.collective_kernels.get_or_init(|| Communication::new(&self.store))
    }

    /// Adds kernels that move data between GPUs to the ones recognized by name. They count as
    /// communication instead of compute, and have the class of collectives.
    ///
    /// `is_communication` is called twice for each kernel: with the name in reports (demangled,
    /// without parameters) and with the mangled name. A later call replaces an earlier one. Costs
    /// microseconds for each kernel name.
    ///
    /// ```
    /// use profiler_core::Profile;
    ///
    /// # fn main() -> Result<(), profiler_core::Error> {
    /// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/recordings/quickstart-h200.gpuprof");
    /// let profile = Profile::load(file)?.with_communication(|name| name.starts_with("my_ring::"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_communication(mut self, is_communication: impl Fn(&str) -> bool) -> Self {
        self.collective_kernels =
            Communication::with_patterns(&self.store, is_communication).into();
        self.collective_rows = OnceLock::new();
        self
    }

    /// The kernels whose instruction samples slices may have, determined on first use.
    pub(crate) fn sampled_slices(&self) -> &SampledSlices {
        self.sampled_slices.get_or_init(|| SampledSlices::new(&self.store))
    }

    /// True if another function of the profile differs only in its parameters.
    pub(crate) fn is_overloaded(&self, names: &KernelNames) -> bool {
        let overloads = self.overloads.get_or_init(|| {
            let names_of = |work: &Work| match work.what {
                What::Kernel { names, .. } => Some(names),
                _ => None,
            };
            let all: FxHashSet<_> = self.store.works().iter().filter_map(names_of).collect();
            let text = |id| self.store.names.get(id);
            let kernels =
                all.iter().map(|names| (*names, text(names.name), names.demangled.map(text)));
            overloaded(kernels)
        });
        !overloads.is_empty() && overloads.contains(names)
    }

    /// The name of a kernel in reports.
    pub fn kernel_label(&self, names: &KernelNames) -> String {
        let text = |id| self.store.names.get(id);
        label(text(names.name), names.demangled.map(text), self.is_overloaded(names))
    }

    /// The collectives of all processes, by process and time, determined on first use.
    pub fn collective_rows(&self) -> &[CollectiveRow] {
        let rows = || collectives::collectives(&self.store, self.collective_kernels());
        self.collective_rows.get_or_init(rows)
    }

    /// Renames nodes of the range tree. Nodes with the same name in one parent are merged, also in
    /// everything later derived from the profile. Costs a pass over the ranges, and the range tree.
    #[must_use]
    pub fn with_node_names<'n>(mut self, name_of: impl Fn(NodeId) -> Option<&'n str>) -> Self {
        let mut labels: FxHashMap<(LabelId, NodeId), LabelId> = FxHashMap::default();
        let mut known: FxHashMap<Label, LabelId> = FxHashMap::default();
        let store = &mut self.store;
        for (range, &node) in store.ranges.iter_mut().zip(&self.tree.of_range) {
            let Some(name) = name_of(node) else { continue };
            range.label = *labels.entry((range.label, node)).or_insert_with(|| {
                let label =
                    Label { name: store.names.intern(name), ..store.labels[range.label.at()] };
                *known.entry(label).or_insert_with(|| {
                    store.labels.push(label);
                    LabelId(store.labels.len() as u32 - 1)
                })
            });
        }
        self.tree = Tree::build(&self.store);
        self.tree.add_inferred(&self.store);
        self
    }

    /// Infers ranges for work that was submitted outside all ranges: the range of the thread that
    /// waited meanwhile. Example: the caller of PyTorch's `backward` waits while autograd's thread
    /// launches.
    ///
    /// Exact attribution is unchanged: such work remains in
    /// [`outside_ranges`](Self::outside_ranges) and in no inclusive or exclusive sum. It is in
    /// [`RangeSummary::inferred`], similar methods and
    /// [`Query::with_inferred`](crate::query::Query::with_inferred). Two conditions apply. Exactly
    /// one thread of the process was in one range during the whole call and made no call itself.
    /// The calls of the two threads overlap at most a tenth as often as by chance. With two waiting
    /// threads nothing is inferred, and [`Facts::undecided_calls`] counts the call. Inference is a
    /// guess except for programs whose threads really wait; a [`Context`](crate::Context) is exact.
    /// Costs a sort of the ranges and of the calls outside ranges.
    #[must_use]
    pub fn with_inferred_ranges(mut self) -> Self {
        let inferred = infer::infer(&self.store);
        self.store.inferred = inferred.ranges;
        self.tree.add_inferred(&self.store);
        self.count_inferred();
        self.health.facts.undecided_calls = inferred.undecided;
        self
    }

    fn count_inferred(&mut self) {
        let count = |of: &mut dyn Iterator<Item = Option<RangeId>>| of.flatten().count() as u64;
        let store = &self.store;
        let operations = &mut store.operations.iter().map(|row| store.inferred_range_of(row.call));
        self.health.facts.inferred_operations = count(operations);
        self.health.facts.inferred_calls =
            count(&mut store.inferred.iter().map(|range| range.get()));
    }

    /// Drops the raw logs, which take most of the memory: about 50 bytes per driver call and more
    /// than 200 per kernel. The rest is at most [`BYTES_A_KERNEL`](Self::BYTES_A_KERNEL) per kernel
    /// with its launch, 56 bytes per range, and shared data. The profile can no longer be saved.
    #[must_use]
    pub fn without_recording(self) -> Self {
        Self { recording: None, ..self }
    }

    /// Bytes of a kernel with its launch in a profile without its recording.
    pub const BYTES_A_KERNEL: usize = BYTES_A_KERNEL;

    /// Reads and joins a recording that [`save`](Self::save) wrote. A truncated recording is not
    /// [complete](Health::is_complete). [`Recording::load_up_to`] reads files larger than 4 GiB.
    ///
    /// # Errors
    /// The file cannot be read, or [`is_format`](Error::is_format).
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        Recording::load(path).map(Self::from_recording)
    }

    /// Reads and joins the content of a file.
    ///
    /// # Errors
    /// [`is_format`](Error::is_format): not a recording, damaged, or written by a newer version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Recording::from_bytes(bytes).map(Self::from_recording)
    }

    /// Writes the raw logs to a file that [`load`](Self::load) reads anywhere. It contains no
    /// environment, user, host name or path.
    ///
    /// # Errors
    /// The file cannot be written, or there is no [`recording`](Self::recording).
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        match &self.recording {
            Some(recording) => recording.save(path),
            None => Err(Error::other(
                "this profile has no raw logs to save: they were let go, or it was made of something else than a \
                 recording; save the recording itself, or export the profile",
            )),
        }
    }

    getters! {
        /// The rows of the profile.
        tables: &Tables = store;
        /// The tree of ranges, with the sums of each.
        range_tree: &Tree = tree;
        /// The raw logs; `None` if the profile has another source, or they were
        /// [dropped](Self::without_recording).
        recording: Option<&Recording> = recording.as_ref();
        /// The machine, versions and time of the recording.
        recording_info: &RecordingInfo = info;
        /// True if it is a snapshot of a running session.
        is_snapshot: bool = store.session.pending_from_ns.is_some();
        /// Completeness and losses.
        health: &Health = health;
        /// The totals outside all ranges.
        outside_ranges: Totals = tree.outside;
        /// True if any range has [shared work](RangeSummary::shared).
        has_shared_work: bool = tree.has_shared;
        /// True if any range has [inferred work](RangeSummary::inferred).
        has_inferred_work: bool = store.inferred.first().is_some();
    }

    /// The time of the session's start, or of a capture's start, from the host's clock when
    /// recording began; later adjustments of that clock are not included. `None` if the recording
    /// lacks it; [`RecordingInfo::recorded_at_s`] then has the second.
    pub fn started_at(&self) -> Option<SystemTime> {
        let since_epoch =
            self.store.session.window_ns.0.checked_add_signed(self.info.utc_offset_ns?)?;
        UNIX_EPOCH.checked_add(Duration::from_nanos(since_epoch))
    }

    /// The kernel's id of a process; in the store, 0 is the only process.
    pub fn process_id(&self, process: u32) -> u32 {
        if process == 0 { self.info.process_id.unwrap_or(0) } else { process }
    }

    /// The length of the session; of several processes, from the first start to the last end.
    pub fn duration(&self) -> Duration {
        let (start, stop) = self.store.session.window_ns;
        Duration::from_nanos(stop.saturating_sub(start))
    }

    /// The wall time of the run: the time in which the session recorded, without pauses, until the
    /// end of its last operation. For a capture, which has no session, the time from the first to
    /// the last recorded activity.
    pub fn wall_time(&self) -> Duration {
        let (windows, active) = (&self.store.session.windows_ns, extent(&self.store));
        let session = SessionTime::new(windows, active).map(|session| session.ns);
        Duration::from_nanos(session.unwrap_or_else(|| time_in_windows(windows, active)))
    }

    /// The totals of the session, in ranges and outside.
    pub fn totals(&self) -> Totals {
        let mut totals = self.tree.outside;
        // Summing the roots would miss work that descendants submit after the end of their
        // ancestor.
        self.tree.nodes.iter().for_each(|node| totals += node.exclusive);
        totals
    }

    /// The number of ranges that end before a range that began within them, as ranges of several
    /// domains can; 0 if no work was submitted in between.
    ///
    /// Work submitted after the end of a range is not attributed to it. The sums of the inner range
    /// may then exceed the sums of the outer one.
    pub fn outlived_ranges(&self) -> usize {
        self.tree.crossings().map_or(0, |crossings| crossings.count())
    }

    /// A sentence on [`outlived_ranges`](Self::outlived_ranges), whose sums do not nest; `None`
    /// without any.
    pub fn outlived_in_words(&self) -> Option<String> {
        let (ranges, end) = match self.outlived_ranges() {
            0 => return None,
            1 => ("1 range".to_owned(), "ends"),
            more => (format!("{more} ranges"), "end"),
        };
        Some(format!(
            "{ranges} {end} before a range that began within: work after the end is in the inner range alone, whose sums may exceed those of the outer one"
        ))
    }

    /// The outermost nodes of the range tree in order of first start. A path is one node.
    pub fn roots(&self) -> impl Iterator<Item = RangeNode<'_>> {
        self.tree.roots.iter().map(|&id| RangeNode { profile: self, id })
    }

    /// Sums all ranges of a name or path: `"forward"`, `"batch/forward"`. `None` if there are none.
    ///
    /// A path may omit outer ranges. `*` matches any text, slashes included: `"layer */attention"`.
    pub fn range(&self, path: &str) -> Option<RangeSummary> {
        let matching = self.matching(&Pattern::new(path));
        let mut summary = RangeSummary::default();
        for (node, around) in self.nodes().zip(self.is_within(&matching)) {
            if !matching[node.id.at()] {
                continue;
            }
            summary.nodes += 1;
            summary.instances += node.instances();
            summary.exclusive += node.exclusive();
            // An enclosing range of the same pattern already includes this sum.
            if !around {
                summary.host_ns = summary.host_ns.saturating_add(node.node().host_ns);
                summary.inclusive += node.inclusive();
                summary.replayed += node.replayed();
                summary.inferred += node.inferred();
            }
        }
        summary.inclusive += self
            .tree
            .late_totals(&self.store, |range| matching[self.tree.of_range[range.at()].at()]);
        summary.shared = self.tree.shared_of(&self.store, |id| matching[id.at()]);
        (summary.nodes != 0).then_some(summary)
    }

    /// All nodes of the tree with their depth, 0 for the outermost, in depth-first order. Siblings
    /// are in the order they first began.
    pub fn walk(&self) -> impl Iterator<Item = (usize, RangeNode<'_>)> {
        Walk::new(self.roots())
    }

    /// The range with this row.
    pub fn range_at(&self, id: RangeId) -> Range<'_> {
        Range { profile: self, id }
    }

    /// A node of the range tree.
    pub fn node(&self, id: NodeId) -> RangeNode<'_> {
        RangeNode { profile: self, id }
    }

    /// All nodes, parents before their children.
    pub fn nodes(&self) -> impl Iterator<Item = RangeNode<'_>> {
        (0..self.tree.nodes.len() as u32).map(|id| RangeNode { profile: self, id: NodeId(id) })
    }

    /// For each node, true if its name or a path that ends with it matches the pattern.
    pub fn matching(&self, pattern: &Pattern) -> Vec<bool> {
        let parent = |node: &RangeNode<'_>| node.node().parent.map(NodeId::at);
        pattern.matching(self.nodes().map(|node| (parent(&node), node.name())))
    }

    /// For each node, true if an ancestor is in `of`.
    pub fn is_within(&self, of: &[bool]) -> Vec<bool> {
        let mut within: Vec<bool> = Vec::with_capacity(of.len());
        for node in &self.tree.nodes {
            let parent = node.parent.map(NodeId::at);
            within.push(parent.is_some_and(|parent| of[parent] || within[parent]));
        }
        within
    }

    /// The nodes of a pattern without ancestors that match it.
    pub fn outermost(&self, pattern: &Pattern) -> Vec<bool> {
        let matching = self.matching(pattern);
        let within = self.is_within(&matching);
        matching.into_iter().zip(within).map(|(is_it, within)| is_it && !within).collect()
    }

    /// All ranges, by thread in start order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<'_>> + Clone {
        (0..self.store.ranges.len() as u32).map(|row| Range { profile: self, id: RangeId(row) })
    }

    /// All GPU operations by start, first the operations without timestamps.
    pub fn operations(&self) -> impl Iterator<Item = GpuOperation<'_>> + Clone {
        let rows = 0..self.store.operations.len() as u32;
        rows.map(|row| self.operation(OperationId(row)))
    }

    /// All kernels by start.
    pub fn kernels(&self) -> impl Iterator<Item = Kernel<'_>> {
        self.operations().filter_map(|operation| operation.as_kernel())
    }

    /// All copies by start.
    pub fn copies(&self) -> impl Iterator<Item = MemoryCopy<'_>> {
        self.operations().filter_map(|operation| operation.as_copy())
    }

    /// All launches of CUDA graphs traced as one interval, by start.
    pub fn graphs(&self) -> impl Iterator<Item = Graph<'_>> {
        self.operations().filter_map(|operation| operation.as_graph())
    }

    /// All recorded CUDA calls, by thread in call order. Of a runtime call and its driver call only
    /// the driver call: see [`runtime_calls`](Self::runtime_calls).
    pub fn calls(&self) -> impl Iterator<Item = ApiCall<'_>> + Clone {
        let rows = 0..self.store.calls.len() as u32;
        rows.map(|row| self.call(CallId(row)))
    }

    /// The runtime API calls that made a driver call, if recorded, by thread in call order. Both
    /// calls have the same correlation id. Runtime calls are in no sum.
    pub fn runtime_calls(&self) -> impl Iterator<Item = ApiCall<'_>> + Clone {
        self.store.outer_calls.iter().map(|row| ApiCall { profile: self, row, id: Maybe::NONE })
    }

    /// The operation with this row.
    pub fn operation(&self, id: OperationId) -> GpuOperation<'_> {
        GpuOperation { profile: self, id, assigned: None }
    }

    /// The call with this row.
    pub fn call(&self, id: CallId) -> ApiCall<'_> {
        ApiCall { profile: self, row: &self.store.calls[id.at()], id: Some(id).into() }
    }

    /// Converts a time of the tables to the time since the session's start.
    pub fn since_start(&self, ns: u64) -> Duration {
        Duration::from_nanos(ns.saturating_sub(self.store.session.window_ns.0))
    }
}
