//! Findings: location, cost and remedy.

use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

use profiler_base::named_variants;
use profiler_base::statistics::as_ns;
use profiler_base::units::{MESSAGE_WIDTH, PATH_WIDTH, duration, shortened};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::Run;
use super::amdahl::amdahl;
use super::clock::{Piece, gaps, reach};
use super::estimate::{DeviceClocks, faster};
use super::evidence::{Evidence, IdleStack};
use super::gemm_kernel::{GemmKernel, Padding};
use super::sign::{Sign, first_decides};
use super::verdict::{difference_text, finite, gain};
use crate::analyze::phases::PhaseKind;
use profiler_core::tables::range_tree::NodeId;

named_variants! {
    /// The kinds of findings.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum FindingKind with text {
        /// Large asynchronous copies of pageable memory, which block (nsys: `cuda_memcpy_async`).
        PageableCopies = "asynchronous copies of pageable memory"
            and "allocate the host's side as pinned memory (cuMemHostAlloc), or register it; then the call returns at once and \
                 the copy can run beside kernels",
        /// Copies by calls that return when the copy is done (nsys: `cuda_memcpy_sync`).
        BlockingCopies = "blocking copies"
            and "take the asynchronous call with pinned memory, and wait when the data is needed",
        /// Consecutive small copies that could be one.
        TinyCopies = "tiny copies that could be one"
            and "gather the data in one buffer and copy it once",
        /// Memory that is allocated and freed repeatedly.
        RepeatedAllocation = "memory allocated and freed again and again"
            and "allocate once before the loop, or from a pool (cuMemAllocAsync with a release threshold)",
        /// Consecutive matrix products of one shape, none of which fills the GPU.
        SmallGemms = "many small matrix products"
            and "if they do not need each other's results: one batched product (cublasGemmStridedBatched), or one larger one",
        /// Consecutive kernels of one shape that are short and do not fill the GPU.
        SmallKernels = "many small kernels"
            and "if they do not need each other's results: one kernel over all of it, several streams, or a CUDA graph",
        /// A kernel whose warps wait for one reason, by instruction samples
        /// ([`Sampling::instructions`](profiler_core::Sampling::instructions)). The remedy depends on
        /// the reason.
        StalledKernel = "a kernel whose warps wait"
            and "see the lines with `gpuprof lines`",
        /// Grids whose last wave leaves most of the GPU empty.
        TailEffect = "tail effect"
            and "choose the grid as a whole number of waves: fewer blocks that do more each, or a persistent kernel",
        /// Products on tensor cores whose kernel loads operands in less than 16 bytes, according to
        /// its name.
        UnalignedGemms = "matrix products on kernels for unaligned operands"
            and "pad the dimensions that are no multiple of 16 bytes (8 numbers of 16 bits), \
                 better of 128 bytes (64 numbers): a vocabulary of 50,257 becomes 50,304; check \
                 vocabularies, hidden sizes and slices, which a range can declare as m, n and k",
        /// Products on tensor cores whose kernel targets an older architecture than the GPU,
        /// according to its name.
        OlderGemms = "matrix products on kernels of an older architecture"
            and "see why no kernel for this GPU was chosen: a library or build from before it, operands that are not aligned to \
                 16 bytes, a fixed algorithm, or a small workspace",
        /// Waits for a stream or context without new work since the last wait.
        RedundantSyncs = "redundant waits"
            and "remove them: nothing was submitted to the GPU since the last wait",
        /// Kernels of several streams that never overlap, though the GPU has room.
        SerialStreams = "streams that do not overlap"
            and "find the cause of their order: events, the default stream, one host thread that waits; then they \
                 can run at once",
        /// Kernels on CUDA's default stream beside kernels of other streams.
        DefaultStream = "work on the default stream"
            and "use a stream of one's own: the legacy default stream waits for the others, and they for it",
        /// First launches that load or compile their kernel.
        LazyLoading = "kernels loaded or compiled within the run"
            and "run every kernel once before the measurement, set CUDA_MODULE_LOADING=EAGER, or \
                 ship code for this GPU instead of PTX",
        /// Steps at the beginning that take longer than the others.
        FirstIterations = "slow first steps"
            and "exclude them from the measurement; if they matter, do their one-time work earlier",
        /// The GPU is idle while the host is in no call into CUDA.
        IdleGaps = "GPU idle while the host is in no CUDA call"
            and "do this on the GPU, or while the GPU works: another thread, or the next step's part ahead",
        /// Ranks wait in collectives for the last one to arrive.
        UnevenRanks = "ranks that wait for each other"
            and "divide the work evenly, and check the last rank: `gpuprof ranks` names a repeatedly late rank with \
                 its cause",
        /// Collectives transfer while nothing else runs, after the last rank has arrived.
        ExposedTransfers = "exposed transfers"
            and "run them beside kernels that do not need their results (buckets of gradients during the backward pass), \
                 send fewer bytes, or choose another algorithm or protocol",
        /// A GPU with much less work than another.
        UnderusedGpu = "a GPU with little to do"
            and "divide the work evenly, or give the GPU to something else",
        /// The profiler's own time is a large share of the clock.
        ProfilerOverhead = "the profiler's own time"
            and "take times as upper bounds; record fewer kinds, or use counts and order rather than times",
    }
}

impl FindingKind {
    /// The advice as a text.
    pub const fn remedy(self) -> &'static str {
        self.second_text()
    }

    /// The assumption of the speed-up estimate.
    pub const fn assumption(self) -> &'static str {
        match self {
            Self::PageableCopies | Self::BlockingCopies => "if they were hidden",
            Self::TinyCopies => "if each row were one copy",
            Self::SmallGemms | Self::SmallKernels => {
                "if each row were one kernel that fills the GPU"
            }
            Self::TailEffect => "if every wave were full",
            Self::StalledKernel => "if other warps hid these waits",
            Self::UnalignedGemms | Self::OlderGemms => "if they took half the time",
            Self::SerialStreams => "if they ran at once",
            Self::FirstIterations => "if they took as long as the others",
            Self::UnevenRanks => "with the work divided evenly",
            Self::ExposedTransfers => "if other work hid them",
            Self::UnderusedGpu => "with the work divided evenly",
            Self::ProfilerOverhead => "without recording",
            Self::RepeatedAllocation
            | Self::RedundantSyncs
            | Self::DefaultStream
            | Self::LazyLoading
            | Self::IdleGaps => "without it",
        }
    }

    /// True for a note, which needs no change and is last, whatever its cost.
    pub const fn is_note(self) -> bool {
        matches!(self, Self::DefaultStream | Self::UnderusedGpu | Self::ProfilerOverhead)
    }
}

/// The number of stacks, kernels or dimensions in the text of a finding.
const SHOWN_DETAILS: usize = 4;

/// A range and the cost of a finding directly in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Place {
    /// The range's path; `None` outside any range.
    pub(crate) path: Option<String>,
    /// The time on the clock.
    #[serde(rename = "cost_ns", serialize_with = "as_ns")]
    pub(crate) cost: Duration,
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The kind.
    pub kind: FindingKind,
    /// The name of its steady phase, if the run has several; `start-up` for a finding before them.
    /// Costs and shares refer to that phase; for start-up, to the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// A short description with its numbers.
    pub title: String,
    /// The ranges, costliest first.
    pub(crate) places: Vec<Place>,
    /// Its time on the run's clock.
    #[serde(rename = "cost_ns", serialize_with = "as_ns")]
    pub cost: Duration,
    /// `cost` as a share of the clock, from 0 to 1.
    pub share: f64,
    /// The share of the wall time that may vanish: `share`, plus the rest of idle times that it is
    /// at least half of. That rest may be hidden once the host is in time. With several GPUs, the
    /// one with most kernels and copies limits it.
    pub reach: f64,
    /// Estimated speed-up of the run by Amdahl's law, from `reach` under the
    /// [`assumption`](Self::assumption); infinite if `reach` is the whole run.
    #[serde(serialize_with = "finite")]
    pub estimate: f64,
    /// True if `estimate` is an upper bound: without all idle time the busiest GPU still takes the
    /// rest. Otherwise a change that also shortens other time saves more.
    pub is_bound: bool,
    /// The assumption of the estimate.
    pub assumption: &'static str,
    /// The supporting numbers.
    pub(crate) signs: Vec<Sign>,
    /// The supporting moments.
    pub evidence: Evidence,
    /// For idle times: the host's stacks at their end, longest time first, at most
    /// [`Thresholds::evidence`](super::Thresholds::evidence). Empty for sessions without stacks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub idle_stacks: Vec<IdleStack>,
    /// For matrix products: the kernels, longest first, at most
    /// [`Thresholds::evidence`](super::Thresholds::evidence).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) gemms: Vec<GemmKernel>,
    /// For matrix products: the declared dimensions to pad, costliest first, with the same limit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) padding: Vec<Padding>,
    /// The advice.
    pub remedy: &'static str,
}

impl Finding {
    /// The path of the costliest range; `None` outside any range, or if unknown.
    pub fn path(&self) -> Option<&str> {
        self.places.first()?.path.as_deref()
    }

    /// True for a finding without a cost in a steady phase: a [note](FindingKind::is_note), or a
    /// finding in start-up.
    pub fn is_note(&self) -> bool {
        self.kind.is_note() || self.is_start_up()
    }

    pub(crate) fn is_start_up(&self) -> bool {
        self.phase.as_deref() == Some(PhaseKind::StartUp.text())
    }

    /// The first stacks, kernels and dimensions, a line each.
    pub(crate) fn details(&self) -> Vec<String> {
        let padding = self.padding.iter().take(SHOWN_DETAILS).map(ToString::to_string);
        let gemms = self.gemms.iter().take(SHOWN_DETAILS).map(ToString::to_string);
        let stacks = self.idle_stacks.iter().take(SHOWN_DETAILS).map(ToString::to_string);
        padding.chain(gemms).chain(stacks).collect()
    }

    /// The title, location, cost and estimate.
    pub(crate) fn line(&self) -> String {
        let mut line = shortened(&self.title, MESSAGE_WIDTH);
        if let Some(path) = self.path() {
            line.push_str(&format!(", in {}", shortened(path, PATH_WIDTH)));
        }
        match &self.phase {
            Some(phase) if self.is_start_up() => line.push_str(&format!(", in {phase}")),
            Some(phase) => {
                line.push_str(&format!(", in the phase of {}", shortened(phase, PATH_WIDTH)));
            }
            None => {}
        }
        if self.cost != Duration::ZERO {
            let faster = faster(self.estimate, self.is_bound, self.assumption);
            let around = difference_text(self.share, self.reach, false);
            line.push_str(&format!(": {}", gain(self.cost, self.share, &around, &faster)));
        }
        line
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n     {}", self.line(), self.remedy)?;
        self.details().iter().try_for_each(|line| write!(f, "\n     {line}"))
    }
}

impl Run<'_> {
    /// Makes a finding from the removable parts; `None` if its first sign misses the threshold.
    pub(super) fn finish(
        &self,
        kind: FindingKind,
        title: String,
        pieces: Vec<(Piece, f64)>,
        signs: Vec<Sign>,
    ) -> Option<Finding> {
        let store = &self.profile.tables();
        let mut places: FxHashMap<Option<NodeId>, f64> = FxHashMap::default();
        let mut cost = 0.0;
        for (piece, part) in &pieces {
            // The mean over devices, like the clock.
            let ns = piece.time.ns() as f64 * part / self.clock.devices() as f64;
            cost += ns;
            let of_operation =
                || store.range_of(store.operations[piece.operation.get()?.at()].call);
            let range = if piece.is_idle { piece.range.get() } else { of_operation() };
            let node = range.map(|range| self.profile.range_tree().of_range[range.at()]);
            *places.entry(node).or_default() += ns;
        }
        let found = self.costing(kind, title, cost, signs);
        if found.share < self.thresholds.get_finding_share() {
            return None;
        }
        // Non-negative floats are ordered by their bits.
        let places = places.into_iter().map(|(node, ns)| (ns.max(0.0).to_bits(), node)).collect();
        let places = self.costliest(places, self.thresholds.get_evidence(), |node| *node);
        let place =
            |(bits, node)| Place { path: self.path_of(node), cost: duration(f64::from_bits(bits)) };
        let parts = pieces.iter().map(|(piece, part)| (piece, *part));
        let reach = reach(parts, &gaps(&self.clock.pieces)) / self.clock.total();
        let found = Finding {
            places: places.into_iter().map(place).collect(),
            evidence: self.evidence(pieces.iter().map(|(piece, _)| piece)),
            reach,
            ..found
        };
        Some(self.limited(found, pieces.iter().map(|(piece, _)| piece)))
    }

    /// The `most` costliest entries, by cost and then by the path of their node.
    pub(super) fn costliest<T>(
        &self,
        mut entries: Vec<(u64, T)>,
        most: usize,
        node: impl Fn(&T) -> Option<NodeId>,
    ) -> Vec<(u64, T)> {
        entries.sort_unstable_by_key(|(cost, _)| Reverse(*cost));
        // Only paths of possible results are built.
        let last = most.checked_sub(1).and_then(|last| entries.get(last));
        if let Some(least) = last.map(|last| last.0) {
            entries.truncate(entries.partition_point(|(cost, _)| *cost >= least));
        }
        entries.sort_by_cached_key(|(cost, entry)| (Reverse(*cost), self.path_of(node(entry))));
        entries.truncate(most);
        entries
    }

    /// Limits the estimate of a finding to the time of the busiest GPU without these pieces.
    pub(super) fn limited<'p>(
        &self,
        found: Finding,
        pieces: impl Iterator<Item = &'p Piece> + Clone,
    ) -> Finding {
        let clocks = self.clocks.get_or_init(|| DeviceClocks::new(&self.clock.pieces));
        let estimate = clocks.without(found.reach, pieces);
        let (reach, is_bound) = (estimate.reach, estimate.is_bound);
        Finding { reach, estimate: estimate.speed_up, is_bound, ..found }
    }

    /// A finding with this cost in nanoseconds, without location and evidence.
    pub(super) fn costing(
        &self,
        kind: FindingKind,
        title: String,
        cost_ns: f64,
        signs: Vec<Sign>,
    ) -> Finding {
        let clock = self.clock.ns() as f64;
        let share = if clock == 0.0 { 0.0 } else { (cost_ns / clock).min(1.0) };
        Finding {
            kind,
            phase: None,
            title,
            places: Vec::new(),
            cost: duration(cost_ns),
            share,
            reach: share,
            estimate: amdahl(share, f64::INFINITY),
            is_bound: false,
            assumption: kind.assumption(),
            signs: first_decides(signs),
            evidence: Evidence::default(),
            idle_stacks: Vec::new(),
            gemms: Vec::new(),
            padding: Vec::new(),
            remedy: kind.remedy(),
        }
    }

    pub(super) fn path_of(&self, node: Option<NodeId>) -> Option<String> {
        node.map(|id| self.profile.node(id).cut_path())
    }
}
