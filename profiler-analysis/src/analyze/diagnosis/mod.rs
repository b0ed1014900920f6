//! Diagnosis of a run: its bottleneck, findings, advice, and estimated speed-ups.
//!
//! ```no_run
//! use profiler_analysis::prelude::*;
//! use profiler_core::Profile;
//! use profiler_analysis::diagnosis::{Bottleneck, Thresholds};
//!
//! # fn main() -> Result<(), profiler_analysis::Error> {
//! let profile = Profile::load("run.gpuprof")?;
//! let diagnosis = profile.diagnose();
//! println!("{diagnosis}");
//! if diagnosis.verdict().bottleneck == Some(Bottleneck::Data) {
//!     let cause = &diagnosis.verdict().causes[0];
//!     let limit = if cause.is_bound { "at most" } else { "about" };
//!     println!("{limit} {:.2}x faster {}", cause.estimate, cause.assumption);
//! }
//! for finding in diagnosis.findings() {
//!     println!("{finding}");
//!     for operation in finding.evidence.operations(&profile) {
//!         println!("  at {:?}", operation.start());
//!     }
//! }
//! // One range, each step, and other thresholds.
//! println!("{}", profile.diagnose_range("train/forward").map_or(String::new(), |v| v.to_string()));
//! let strict = profile.diagnosis(Thresholds::new().verdict_share(0.1));
//! for verdict in strict.steps("train") {
//!     println!("{verdict}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The wall clock of every GPU is divided completely: kernels before copies before collectives
//! before host activity. Patterns are recognised by numbers. The cost of a cause is its time on
//! that clock, not the sum of overlapping operations. Amdahl's law then estimates the speed-up
//! under a printed assumption: this time vanishes (half of it for compute), and other time stays.
//!
//! An estimate is labelled "about" because a real change often shortens other time too: a fused
//! optimizer launches less and also moves less data. It is labelled "at most" if it is an upper
//! bound. Without any idle time, the run still takes the kernels and copies of its busiest GPU.
//!
//! Without all ranks, time with only collectives is a cause and no verdict. One rank alone does not
//! separate a transfer from a wait for another rank. If most collectives are matched across ranks,
//! findings and [`ranks`](crate::ranks) separate them.

mod across_ranks;
mod amdahl;
mod bottleneck;
mod calls;
mod clock;
mod copies;
mod estimate;
mod evidence;
mod finding;
mod fix;
mod gemm_kernel;
mod gemms;
mod phase;
mod run;
mod shape;
mod sign;
mod small;
mod stalls;
pub(crate) mod straggler;
mod streams;
#[cfg(test)]
pub(crate) mod tests;
mod thresholds;
mod verdict;

use std::cell::{OnceCell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::resume_unwind;
use std::sync::{Arc, mpsc};

use profiler_base::display::{DisplayOptions, Layout};
use profiler_base::display_by_default_layout;
use profiler_base::getters;
use profiler_base::kernel_names::Pattern;
use profiler_base::units::{NAME_WIDTH, nanoseconds, shortened};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::analyze::critical_path;
use crate::analyze::critical_path::{Dependencies, Outlook};
use crate::analyze::kernels::KernelClass;
use crate::analyze::phases::Phases;
pub(crate) use amdahl::amdahl;
pub use bottleneck::Bottleneck;
pub use clock::Part;
pub(crate) use clock::{Clock, Piece};
use estimate::DeviceClocks;
pub(crate) use estimate::{certainty, device_list, factor, faster};
use evidence::Longest;
pub use evidence::{Evidence, IdleStack, Moment};
pub use finding::{Finding, FindingKind};
pub(crate) use fix::fixable;
pub use fix::{Fix, FixKind};
pub use phase::Phase;
pub(crate) use phase::{Judged, Others, Section};
use profiler_core::profile::{ProcessRangeGroup, Profile, Range, RangeNode};
use profiler_core::query::Query;
use profiler_core::tables::busy::united;
use profiler_core::tables::{Interval, OperationId, WorkId};
use shape::Shapes;
pub(crate) use straggler::{Straggler, Stragglers};
pub use thresholds::Thresholds;
use verdict::Scope;
use verdict::Unmatched;
pub(crate) use verdict::finite;
pub use verdict::{Cause, Inconclusive, Verdict};

/// The limit of passes over the operations and clock pieces of a run for the verdicts of all ranges
/// together. Nested ranges, and ranges of several threads, share it.
const LOOKS: u64 = 64;

/// The number of visits above which [`LEAST_LOOKS`] is the limit: some seconds.
const MANY_LOOKS: u64 = 4_000_000;
/// A nesting depth that ranges of most programs do not reach.
const LEAST_LOOKS: u64 = 8;

/// The limit of pieces and operations to visit for range verdicts, for a run with this many in
/// total.
fn looks(all: u64) -> u64 {
    let few = all.saturating_mul(LEAST_LOOKS).max(MANY_LOOKS);
    all.saturating_mul(LOOKS).min(few)
}

/// The diagnosis of a run and its ranges. `{}` is a page of text; serializable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diagnosis {
    verdict: Verdict,
    first: Option<Fix>,
    phases: Vec<Phase>,
    ranges: Vec<Verdict>,
    /// Ranges without a verdict: too short, with too few operations, or beyond the limit of
    /// [`LOOKS`].
    ranges_left_out: u64,
    findings: Vec<Finding>,
    outlook: Option<Outlook>,
    thresholds: Thresholds,
}

impl Diagnosis {
    getters! {
        /// The verdict on the steady phase with the most time; without a steady phase, on the whole
        /// run.
        verdict: &Verdict = verdict;
        /// The first thing to fix in the phase of the verdict: its cause, or a finding with a narrower
        /// remedy for most of the cause's time. If the cause is GPU work, the costliest finding, or
        /// else that work.
        first: Option<&Fix> = first.as_ref();
        /// The phases of the run by start, the steady ones with their verdicts. Empty if nothing
        /// repeats.
        phases: &[Phase] = phases;
        /// The verdicts on paths of the range tree, in the order of [`Profile::walk`]. If there are
        /// steady phases, only instances in them count. A path needs at least
        /// [`Thresholds::cause_share`] of the clock and enough operations. If nested ranges would
        /// need more than 64 passes over the run (8 for a long run), only the longest have a
        /// verdict. Verdicts on [process ranges](Profile::process_range_groups) by name follow.
        ranges: &[Verdict] = ranges;
        /// Number of paths without a verdict.
        ranges_left_out: u64 = ranges_left_out;
        /// The findings in the steady phases, or in the whole run, costliest first;
        /// [notes](Finding::is_note) are last.
        findings: &[Finding] = findings;
        /// The critical path of the steps or the session, and the changes that save most. `None`
        /// without enough evidence for a verdict. The path has no
        /// [segments](crate::critical_path::CriticalPath::segments): [`Profile::dependencies`]
        /// finds them.
        outlook: Option<&Outlook> = outlook.as_ref();
        /// The thresholds used.
        thresholds: &Thresholds = thresholds;
    }

    /// The verdicts on the steady phases, longest first; without any, the verdict on the whole run.
    pub fn verdicts(&self) -> Vec<&Verdict> {
        phase::verdicts(&self.phases, &self.verdict)
    }

    /// The costliest finding of this kind.
    pub fn finding(&self, kind: FindingKind) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.kind == kind)
    }

    /// The verdict and the first findings, a line each.
    pub(crate) fn brief(&self, most: usize) -> String {
        let lines =
            self.verdicts().into_iter().map(|verdict| format!("diagnosis: {}", verdict.line()));
        let mut text = lines.collect::<Vec<_>>().join("\n");
        text.push_str(&format!("\n{}", Others(&self.phases)));
        for (n, finding) in self.findings.iter().take(most).enumerate() {
            text.push_str(&format!("\n  {}. {}", n + 1, finding.line()));
        }
        text
    }
}

/// Diagnoses a profile with given thresholds. Made by
/// [`Profile::diagnosis`](crate::prelude::ProfileExt::diagnosis), which divides the run's clock
/// once. Each verdict costs a pass over its scope.
#[derive(Debug)]
pub struct Diagnoser<'a> {
    profile: &'a Profile,
    thresholds: Thresholds,
    clock: OnceCell<Arc<Clock>>,
    /// The clock for findings: without unused devices.
    used_clock: OnceCell<Arc<Clock>>,
    known: Known,
    phases: OnceCell<Phases>,
    /// The verdict on the whole run.
    whole: OnceCell<Verdict>,
}

/// Cached results on kernels and the run.
#[derive(Debug, Default)]
struct Known {
    shapes: Shapes,
    classes: RefCell<FxHashMap<WorkId, KernelClass>>,
    collectives_depend: OnceCell<bool>,
    has_ranks: OnceCell<bool>,
    unmatched: OnceCell<Option<Unmatched>>,
    shared_ordinal: OnceCell<Option<Inconclusive>>,
}

/// The inputs of findings and verdicts.
struct Run<'a> {
    profile: &'a Profile,
    thresholds: &'a Thresholds,
    clock: Arc<Clock>,
    known: &'a Known,
    /// The examined phase; `None` for the whole run.
    section: Option<Arc<Section>>,
    /// The operations of the phase.
    operations: OnceCell<Vec<OperationId>>,
    /// The clocks of its devices.
    clocks: OnceCell<DeviceClocks>,
    /// Kernels by stream.
    streams: OnceCell<BTreeMap<(u32, u32, u32), Vec<OperationId>>>,
}

impl Run<'_> {
    /// The pieces as evidence; consecutive ones with the same operation or call are merged.
    fn evidence<'p>(&self, pieces: impl Iterator<Item = &'p Piece>) -> Evidence {
        let store = &self.profile.tables();
        let mut longest = Longest::new(self.thresholds.get_evidence());
        let mut moment: Option<Moment> = None;
        for piece in pieces {
            let call_of = |id: OperationId| store.operations[id.at()].call.get();
            let operation = piece.operation.get();
            let submitted = || operation.filter(|_| !piece.is_idle).and_then(call_of);
            let wait = piece.wait.get().filter(|_| piece.part == Part::Waiting);
            let call = wait.or(piece.call.get()).or_else(submitted);
            let new = Moment::new(self.profile, piece.time, operation, call);
            match &mut moment {
                Some(last)
                    if last.span.end == new.span.start
                        && (last.operation == new.operation
                            || (last.call.is_some() && last.call == new.call)) =>
                {
                    last.span.end = new.span.end;
                    last.call = last.call.or(new.call);
                }
                _ => moment.replace(new).into_iter().for_each(|last| longest.push(last)),
            }
        }
        moment.into_iter().for_each(|last| longest.push(last));
        longest.finish()
    }
}

/// The critical path of the steps in the steady phases, or of the run.
fn outlook_of(dependencies: Dependencies<'_>, steady: Option<&Section>) -> Outlook {
    let is_steady = |process, ns| steady.is_none_or(|of| of.has(process, ns));
    dependencies.with_steps_where(is_steady).outlook_without_segments()
}

impl<'a> Diagnoser<'a> {
    pub(crate) fn new(profile: &'a Profile, thresholds: Thresholds) -> Self {
        let known = Known::default();
        let (clock, used_clock, phases, whole) = Default::default();
        Self { profile, thresholds, clock, used_clock, known, phases, whole }
    }

    /// The clock time of one device, in nanoseconds.
    pub(crate) fn clock_ns_of(&self, device: u32) -> u64 {
        self.clock().ns_of(device)
    }

    fn tools(&self) -> Run<'_> {
        let Self { profile, thresholds, known, .. } = self;
        let (operations, clocks, streams) = Default::default();
        let used = || self.clock().used(thresholds.get_unused_share());
        let clock = self.used_clock.get_or_init(used).clone();
        Run { profile, thresholds, clock, known, section: None, operations, clocks, streams }
    }

    /// Returns the verdicts on the steady phases, or on the whole run, verdicts on ranges, and
    /// findings. A second thread finds and replays the dependencies meanwhile.
    pub fn run(&self) -> Diagnosis {
        let profile = self.profile;
        std::thread::scope(|scope| {
            let (send, steady) = mpsc::channel::<Option<Arc<Section>>>();
            let work = move || {
                let dependencies = critical_path::dependencies(profile);
                steady.recv().ok().map(|steady| outlook_of(dependencies, steady.as_deref()))
            };
            let thread = std::thread::Builder::new().spawn_scoped(scope, work);
            let phases = self.judge_phases();
            let steady = self.steady(&phases);
            let verdict = phases.first().map_or_else(|| self.whole(), |first| &first.verdict);
            let is_asked = !verdict.inconclusive.is_some_and(Inconclusive::is_without_verdict);
            if is_asked {
                // Without the thread, the message is dropped.
                let _ = send.send(steady.clone());
            }
            drop(send);
            let judged = self.with_findings(phases);
            let clock = judged.verdicts().iter().map(|verdict| verdict.clock.as_secs_f64()).sum();
            let ranges = self.ranges(clock, steady.clone());
            let outlook = match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(_) => is_asked
                    .then(|| outlook_of(critical_path::dependencies(profile), steady.as_deref())),
            };
            self.diagnosis_of(judged, ranges, outlook)
        })
    }

    fn diagnosis_of(
        &self,
        judged: Judged,
        ranges: Vec<Verdict>,
        outlook: Option<Outlook>,
    ) -> Diagnosis {
        let paths =
            self.profile.range_tree().nodes.len() + self.profile.process_range_groups().len();
        let ranges_left_out = (paths - ranges.len()) as u64;
        let Judged { verdict, phases, findings, .. } = judged;
        let (first, thresholds) = (Fix::first(&verdict, &findings), self.thresholds.clone());
        Diagnosis { verdict, first, phases, ranges, ranges_left_out, findings, outlook, thresholds }
    }

    /// The divided clock of the run.
    pub(crate) fn clock(&self) -> &Arc<Clock> {
        self.clock.get_or_init(|| Arc::new(Clock::new(self.profile, &self.thresholds)))
    }

    /// The verdict on the whole run.
    pub fn verdict(&self) -> Verdict {
        self.whole().clone()
    }

    fn whole(&self) -> &Verdict {
        let profile = self.profile;
        let scope = || Scope {
            path: None,
            phase: None,
            instances: 1,
            pieces: (&self.clock().pieces).into(),
            query: profile.query(),
            waits: profile.totals().synchronizations,
        };
        self.whole.get_or_init(|| self.tools().judge(scope()))
    }

    /// The common verdict on the ranges of this name, path or pattern. Without a match, on the
    /// [process ranges](Profile::process_range_groups) of this name or pattern; `None` without
    /// those.
    pub fn range(&self, path: &str) -> Option<Verdict> {
        let Some(summary) = self.profile.range(path) else {
            let mut groups = self.profile.process_range_groups();
            let pattern = Pattern::new(path);
            groups.retain(|group| pattern.matches(group.name()));
            return (!groups.is_empty()).then(|| self.process_ranges(path, &groups));
        };
        let is_match = self.profile.matching(&Pattern::new(path));
        let matching = self.profile.nodes().filter(|node| is_match[node.id().at()]);
        let ranges: Vec<_> = matching.flat_map(|node| node.ranges()).collect();
        let (instances, waits) = (summary.instances(), summary.synchronizations());
        let query = self.profile.query().in_range(path);
        Some(self.judge(path.to_owned(), instances, &times(&ranges), query, waits))
    }

    /// The verdict on one range.
    pub fn instance(&self, range: Range<'a>) -> Verdict {
        let (path, waits) = (range.node().cut_path(), range.inclusive().synchronizations);
        self.judge(path, 1, &times(&[range]), range.query(), waits)
    }

    /// The verdicts on the steps, in the order of [`Profile::steps`].
    pub fn steps(&self, path: &str) -> Vec<Verdict> {
        self.profile.steps(path).iter().map(|step| self.instance(step.range())).collect()
    }

    /// The common verdict on process ranges and their work.
    fn process_ranges(&self, path: &str, groups: &[ProcessRangeGroup<'_>]) -> Verdict {
        let store = &self.profile.tables();
        let mut rows: Vec<OperationId> =
            groups.iter().flat_map(ProcessRangeGroup::operations).collect();
        rows.sort_unstable();
        rows.dedup();
        let work = rows.iter().filter_map(|id| store.operations[id.at()].time());
        let times = united(groups.iter().flat_map(|group| group.times()).chain(work).collect());
        let is_by_time = groups.iter().any(ProcessRangeGroup::is_by_time);
        let label = if is_by_time { " (start/end, by time)" } else { " (start/end)" };
        let instances = groups.iter().map(ProcessRangeGroup::instances).sum();
        let waits = groups.iter().map(|group| group.inclusive().synchronizations).sum();
        let query = self.profile.query().with_operations(rows);
        self.judge(format!("{path}{label}"), instances, &times, query, waits)
    }

    /// The verdicts on ranges, longest first, until [`LOOKS`] are used up. Each passes over its
    /// content. Verdicts on process ranges by name follow.
    fn ranges(&self, clock: f64, steady: Option<Arc<Section>>) -> Vec<Verdict> {
        let least = self.thresholds.get_cause_share() * clock;
        let time = |node: &RangeNode<'_>| node.host_time().max(node.inclusive().gpu_time());
        let is_worth_it = |node: &RangeNode<'_>| {
            let operations = node.inclusive().gpu_operations();
            let has_enough = operations >= self.thresholds.get_least_operations();
            has_enough && time(node).as_secs_f64() >= least
        };
        let mut nodes: Vec<(usize, RangeNode<'a>)> =
            self.profile.walk().map(|(_, node)| node).filter(is_worth_it).enumerate().collect();
        nodes.sort_by_key(|(_, node)| Reverse(time(node)));
        let all = self.clock().pieces.len() + self.profile.tables().operations.len();
        let mut left = looks(all as u64);
        let mut verdicts = Vec::new();
        for (index, node) in nodes {
            let looks = node.inclusive().gpu_operations() + node.instances();
            let Some(less) = left.checked_sub(looks) else { continue };
            left = less;
            let is_steady = |range: &Range<'_>| {
                let start_ns = range.row().time.start_ns;
                steady.as_ref().is_none_or(|of| of.has(range.process_id(), start_ns))
            };
            let ranges: Vec<Range<'_>> = node.ranges().filter(is_steady).collect();
            let times = times(&ranges);
            let Some(less) = left.checked_sub(self.clock().count_within(&times)) else { continue };
            left = less;
            let instances = ranges.len() as u64;
            let (query, waits) = match &steady {
                None => (node.query(), node.inclusive().synchronizations),
                Some(_) if instances == 0 => continue,
                Some(steady) => {
                    let waits = ranges.iter().map(|range| range.inclusive().synchronizations);
                    (steady.submitted(node.query()), waits.sum())
                }
            };
            let verdict = self.judge(node.cut_path(), instances, &times, query, waits);
            verdicts.push((index, verdict));
        }
        verdicts.sort_by_key(|(index, _)| *index);
        let mut verdicts: Vec<Verdict> = verdicts.into_iter().map(|(_, verdict)| verdict).collect();
        let mut groups = self.profile.process_range_groups();
        groups.retain(|group| {
            let has_enough =
                group.inclusive().gpu_operations() >= self.thresholds.get_least_operations();
            has_enough && group.host_time().as_secs_f64() >= least
        });
        groups.sort_by_key(|group| Reverse(group.host_time()));
        for group in groups {
            // Each verdict passes over the operations and the clock.
            let Some(less) = left.checked_sub(all as u64) else { break };
            left = less;
            verdicts.push(self.process_ranges(group.name(), &[group]));
        }
        verdicts
    }

    fn judge(
        &self,
        path: String,
        instances: u64,
        times: &[Interval],
        query: Query<'_>,
        waits: u64,
    ) -> Verdict {
        let pieces = self.clock().clipped(times, &self.devices(&query)).into();
        self.tools().judge(Scope { path: Some(path), phase: None, instances, pieces, query, waits })
    }

    /// The devices of a query; empty means all. An unused device is not idle for these ranges.
    fn devices(&self, query: &Query<'_>) -> BTreeSet<u32> {
        match self.clock().devices() {
            1 => BTreeSet::new(),
            _ => query.iter().map(|operation| operation.device()).collect(),
        }
    }

    /// The findings in the steady phases, or in the whole run, costliest first; empty without
    /// enough evidence for a verdict.
    pub fn findings(&self) -> Vec<Finding> {
        self.judged().findings
    }

    fn findings_of(&self, run: &Run<'_>, verdict: &Verdict) -> Vec<Finding> {
        if verdict.inconclusive.is_some_and(Inconclusive::is_without_verdict) {
            return Vec::new();
        }
        let mut found = run.serial_streams();
        if run.section.is_none() {
            found.extend(run.first_iterations());
        }
        found.extend(run.idle_gaps());
        found.extend(run.across_ranks());
        found.extend(run.gemms());
        found.extend(run.stalled_kernels());
        let single = [
            run.tiny_copies(),
            run.pageable_copies(),
            run.blocking_copies(),
            run.repeated_allocation(),
            run.small_kernels(FindingKind::SmallGemms),
            run.small_kernels(FindingKind::SmallKernels),
            run.tail_effect(),
            run.redundant_syncs(),
            run.default_stream(),
            run.lazy_loading(),
            run.underused_gpu(),
            run.profiler_overhead(),
        ];
        let mut found: Vec<Finding> = single.into_iter().flatten().chain(found).collect();
        found.sort_by_key(|finding| (finding.is_note(), Reverse(finding.cost)));
        found
    }
}

/// The disjoint times of ranges, in order: from the start of each range to its end or the end of
/// its last operation.
fn times(ranges: &[Range<'_>]) -> Vec<Interval> {
    let time = |range: &Range<'_>| {
        let Interval { start_ns, end_ns } = range.row().time;
        let ends = range.operations().filter_map(|operation| operation.interval());
        let end_ns = ends.fold(end_ns, |end, time| end.max(time.end_ns));
        Interval { start_ns, end_ns }
    };
    united(ranges.iter().map(time).collect())
}

/// The number of findings in a text; JSON has all.
const SHOWN: usize = 10;

impl DisplayOptions for Diagnosis {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for verdict in self.verdicts() {
            writeln!(f, "{verdict}\n")?;
        }
        write!(f, "{}", Others(&self.phases))?;
        if !self.ranges.is_empty() {
            f.write_str("\n\nranges:")?;
        }
        for range in &self.ranges {
            let path = range.path.as_deref().unwrap_or_default();
            write!(f, "\n  {}: ", shortened(path, layout.name_width(NAME_WIDTH)))?;
            match (range.causes.first(), &range.inconclusive) {
                (_, Some(why)) => write!(f, "no verdict: {why}")?,
                (Some(cause), None) => write!(f, "{cause}")?,
                (None, None) => {}
            }
        }
        match self.findings.len() {
            0 => f.write_str("\n\nno findings")?,
            _ => f.write_str("\n\nfindings:")?,
        }
        for (n, finding) in self.findings.iter().take(SHOWN).enumerate() {
            write!(f, "\n  {}. {finding}", n + 1)?;
        }
        if let Some(more) = self.findings.len().checked_sub(SHOWN).filter(|more| *more != 0) {
            write!(f, "\n  and {more} more")?;
        }
        match &self.outlook {
            Some(outlook) => write!(f, "\n\n{}", outlook.brief(layout)),
            None => Ok(()),
        }
    }
}

display_by_default_layout!(Diagnosis);
