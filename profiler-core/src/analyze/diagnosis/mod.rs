//! What a run is bound by, what slows it down, what helps, and an estimate of what that brings.
//!
//! ```no_run
//! use profiler_core::Profile;
//! use profiler_core::diagnosis::{Bottleneck, Thresholds};
//!
//! # fn main() -> Result<(), profiler_core::Error> {
//! let profile = Profile::load("run.gpuprof")?;
//! let diagnosis = profile.diagnose();
//! println!("{diagnosis}");
//! if diagnosis.verdict().bottleneck == Some(Bottleneck::Data) {
//!     let cause = &diagnosis.verdict().causes[0];
//!     println!("estimated {:.2}x {}", cause.estimate, cause.assumption);
//! }
//! for finding in diagnosis.findings() {
//!     println!("{finding}");
//!     for operation in finding.evidence.operations(&profile) {
//!         println!("  at {:?}", operation.start());
//!     }
//! }
//! // One range, each step, and thresholds of one's own.
//! println!("{}", profile.diagnose_range("train/forward").map_or(String::new(), |v| v.to_string()));
//! let strict = profile.diagnosis(Thresholds::new().verdict_share(0.1));
//! for verdict in strict.steps("train") {
//!     println!("{verdict}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The method is that of the field: on every GPU the clock of the wall is divided up without rest, kernels before copies
//! before collectives before the host's reasons; patterns are recognised by their numbers; the cost of a cause is the time on
//! that clock, not the sum of what overlaps. Amdahl's law then estimates the gain under an assumption that is printed with
//! it: that this time is gone (half of it for compute), and all else takes as long as it did. That is no bound. A real
//! change often shortens other work too, and then brings more: a fused optimizer launches less and also moves less data.
//!
//! Time in which only collectives run is a cause, and never a verdict: whether they transfer data or wait for another rank
//! is not recorded.

mod amdahl;
mod bottleneck;
mod calls;
mod clock;
mod copies;
mod evidence;
mod finding;
mod run;
mod shape;
mod sign;
mod small;
mod streams;
#[cfg(test)]
mod tests;
mod thresholds;
mod verdict;

use std::cell::{OnceCell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::analyze::kernels::KernelClass;
use crate::base::kernel_names::Pattern;
use crate::base::units::nanoseconds;
use crate::join::tables::{Interval, OperationId, WorkId};
use crate::profile::{Profile, Range, RangeNode};
use crate::query::Query;
pub use amdahl::amdahl;
pub use bottleneck::Bottleneck;
pub use clock::Part;
use clock::{Clock, Piece};
pub use evidence::{Evidence, Moment};
pub use finding::{Finding, FindingKind, Place};
use shape::Shapes;
pub use sign::{Sign, SignSide, SignUnit};
pub use thresholds::Thresholds;
use verdict::Scope;
pub use verdict::{Cause, Inconclusive, PartTime, Unmatched, Verdict};
pub(crate) use verdict::{Factor, finite};

/// How often the operations of a run and the pieces of its clock are looked at, all together, for verdicts of ranges. Ranges
/// within each other, or beside each other on threads, have the same time.
const LOOKS: u64 = 64;

/// Looks beyond which a run is looked at [`LEAST_LOOKS`] times only: some seconds.
const MANY_LOOKS: u64 = 4_000_000;
/// Ranges of most programs are less deep than this.
const LEAST_LOOKS: u64 = 8;

/// At how many pieces and operations the verdicts of ranges may look, of a run with so many.
fn looks(all: u64) -> u64 {
    let few = all.saturating_mul(LEAST_LOOKS).max(MANY_LOOKS);
    all.saturating_mul(LOOKS).min(few)
}

/// What a run is bound by, and its ranges, and what was found. `{}` is a page of text, and it serializes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Diagnosis {
    verdict: Verdict,
    ranges: Vec<Verdict>,
    /// Ranges without one: too short, with too few operations, or beyond [`LOOKS`].
    ranges_left_out: u64,
    findings: Vec<Finding>,
    thresholds: Thresholds,
}

impl Diagnosis {
    /// What the whole run is bound by.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// What each path of the tree of ranges is bound by, in the order of [`Profile::walk`]: those that take at least
    /// [`Thresholds::cause_share`] of the clock and have enough operations. Where so many ranges lie within each other that
    /// this would look at the whole run more than 64 times (of a long run 8 times), the longest have a verdict.
    pub fn ranges(&self) -> &[Verdict] {
        &self.ranges
    }

    /// How many paths were left out.
    pub fn ranges_left_out(&self) -> u64 {
        self.ranges_left_out
    }

    /// What was found in the whole run, the costliest first; [notes](FindingKind::is_note) come last.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The costliest finding of this kind.
    pub fn finding(&self, kind: FindingKind) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.kind == kind)
    }

    /// The verdict and the first findings, a line each.
    pub(crate) fn brief(&self, most: usize) -> String {
        let mut text = match (self.verdict.cause(), self.verdict.inconclusive) {
            (Some(cause), _) => format!("diagnosis: the run is {cause}"),
            (None, Some(why)) => format!("diagnosis: no verdict: {why}"),
            (None, None) => "diagnosis: no verdict".to_owned(),
        };
        for (n, finding) in self.findings.iter().take(most).enumerate() {
            text.push_str(&format!("\n  {}. {}", n + 1, finding.line()));
        }
        text
    }

    /// What it went by.
    pub fn thresholds(&self) -> &Thresholds {
        &self.thresholds
    }
}

/// Verdicts and findings on a profile, by thresholds. Made by [`Profile::diagnosis`], which divides the run's clock up once;
/// each question costs a pass over what it is about.
#[derive(Debug)]
pub struct Diagnoser<'a> {
    profile: &'a Profile,
    thresholds: Thresholds,
    clock: Clock,
    known: Known,
}

/// What is worked out once, of kernels that are alike or of all.
#[derive(Debug, Default)]
struct Known {
    shapes: Shapes,
    classes: RefCell<FxHashMap<WorkId, KernelClass>>,
    streams: OnceCell<BTreeMap<(u32, u32, u32), Vec<OperationId>>>,
    collectives_depend: OnceCell<bool>,
    unmatched: OnceCell<Option<Unmatched>>,
    shared_ordinal: OnceCell<Option<Inconclusive>>,
}

/// What findings and verdicts are worked out from.
struct Run<'a> {
    profile: &'a Profile,
    thresholds: &'a Thresholds,
    clock: &'a Clock,
    known: &'a Known,
}

impl Profile {
    /// What the run is bound by and what slows it down, by the default [`Thresholds`]. Costs some passes over operations,
    /// calls and ranges: about a microsecond a launch.
    pub fn diagnose(&self) -> Diagnosis {
        self.diagnosis(Thresholds::new()).run()
    }

    /// What the ranges of this name, path or pattern are bound by, as [`Profile::range`] finds them. `None` if there is none.
    pub fn diagnose_range(&self, path: &str) -> Option<Verdict> {
        self.diagnosis(Thresholds::new()).range(path)
    }

    /// Asks for verdicts by thresholds of one's own.
    pub fn diagnosis(&self, thresholds: Thresholds) -> Diagnoser<'_> {
        let known = Known::default();
        let clock = Clock::new(self, &thresholds);
        Diagnoser { profile: self, thresholds, clock, known }
    }
}

impl Run<'_> {
    /// The pieces as evidence, those that follow each other with the same operation or call as one.
    fn moments<'p>(&self, pieces: impl Iterator<Item = &'p Piece>) -> Vec<Moment> {
        let store = &self.profile.store;
        let mut moments: Vec<Moment> = Vec::new();
        for piece in pieces {
            let caused_by = |id: OperationId| store.operations[id.at()].call.get();
            let asked = || piece.operation.filter(|_| !piece.is_idle).and_then(caused_by);
            let wait = piece.wait.filter(|_| piece.part == Part::Waiting);
            let call = wait.or(piece.call).or_else(asked);
            let new = Moment::new(self.profile, piece.time, piece.operation, call);
            match moments.last_mut() {
                Some(last)
                    if last.span.end == new.span.start
                        && (last.operation == new.operation
                            || (last.call.is_some() && last.call == new.call)) =>
                {
                    last.span.end = new.span.end;
                    last.call = last.call.or(new.call);
                }
                _ => moments.push(new),
            }
        }
        moments
    }
}

impl<'a> Diagnoser<'a> {
    fn tools(&self) -> Run<'_> {
        let Self { profile, thresholds, clock, known } = self;
        Run { profile, thresholds, clock, known }
    }

    /// All of it: the run's verdict, those of its ranges, and the findings.
    pub fn run(&self) -> Diagnosis {
        let verdict = self.verdict();
        let ranges = self.ranges(&verdict);
        let ranges_left_out = (self.profile.tree.nodes.len() - ranges.len()) as u64;
        let findings = self.findings_of(&verdict);
        let thresholds = self.thresholds.clone();
        Diagnosis { verdict, ranges, ranges_left_out, findings, thresholds }
    }

    /// What the whole run is bound by.
    pub fn verdict(&self) -> Verdict {
        let profile = self.profile;
        self.tools().judge(Scope {
            path: None,
            instances: 1,
            pieces: self.clock.pieces.clone(),
            query: profile.query(),
            waits: profile.totals().synchronizations,
        })
    }

    /// What the ranges of this name, path or pattern are bound by together. `None` if there is none.
    pub fn range(&self, path: &str) -> Option<Verdict> {
        let summary = self.profile.range(path)?;
        let is_it = self.profile.matching(&Pattern::new(path));
        let matching = self.profile.nodes().filter(|node| is_it[node.id.at()]);
        let ranges = matching.flat_map(|node| node.ranges());
        Some(self.judge(Judged {
            path: path.to_owned(),
            instances: summary.instances(),
            ranges: ranges.collect(),
            query: self.profile.query().in_range(path),
            waits: summary.synchronizations(),
        }))
    }

    /// What this one range is bound by.
    pub fn instance(&self, range: Range<'a>) -> Verdict {
        self.judge(Judged {
            path: range.node().cut_path(),
            instances: 1,
            ranges: vec![range],
            query: range.query(),
            waits: range.inclusive().synchronizations,
        })
    }

    /// What each step is bound by, in the order of [`Profile::steps`].
    pub fn steps(&self, path: &str) -> Vec<Verdict> {
        self.profile.steps(path).iter().map(|step| self.instance(step.range())).collect()
    }

    /// The verdicts of the ranges that are worth one. Each costs a look at all that lies in it, so that the longest come
    /// first, until [`LOOKS`] are used up.
    fn ranges(&self, verdict: &Verdict) -> Vec<Verdict> {
        let least = self.thresholds.get_cause_share() * verdict.clock.as_secs_f64();
        let time = |node: &RangeNode<'_>| node.host_time().max(node.inclusive().gpu_time());
        let is_worth_it = |node: &RangeNode<'_>| {
            let operations = node.inclusive().gpu_operations();
            let has_enough = operations >= self.thresholds.get_least_operations();
            has_enough && time(node).as_secs_f64() >= least
        };
        let mut nodes: Vec<(usize, RangeNode<'a>)> =
            self.profile.walk().map(|(_, node)| node).filter(is_worth_it).enumerate().collect();
        nodes.sort_by_key(|(_, node)| Reverse(time(node)));
        let all = self.clock.pieces.len() + self.profile.store.operations.len();
        let mut left = looks(all as u64);
        let mut verdicts = Vec::new();
        for (place, node) in nodes {
            let looks = node.inclusive().gpu_operations() + node.instances();
            let Some(less) = left.checked_sub(looks) else { continue };
            left = less;
            let ranges: Vec<_> = node.ranges().collect();
            let times = times(&ranges);
            let Some(less) = left.checked_sub(self.clock.count_within(&times)) else { continue };
            left = less;
            verdicts.push((place, self.node(node, &times)));
        }
        verdicts.sort_by_key(|(place, _)| *place);
        verdicts.into_iter().map(|(_, verdict)| verdict).collect()
    }

    fn node(&self, node: RangeNode<'a>, times: &[Interval]) -> Verdict {
        let query = node.query();
        self.tools().judge(Scope {
            path: Some(node.cut_path()),
            instances: node.instances(),
            pieces: self.clock.within(times, &self.devices(&query)),
            query,
            waits: node.inclusive().synchronizations,
        })
    }

    fn judge(&self, judged: Judged<'_>) -> Verdict {
        let Judged { path, instances, ranges, query, waits } = judged;
        let pieces = self.clock.within(&times(&ranges), &self.devices(&query));
        let path = Some(path);
        self.tools().judge(Scope { path, instances, pieces, query, waits })
    }

    /// The devices that ranges use, or none for all: a device that they do not use is not idle for them.
    fn devices(&self, query: &Query<'_>) -> BTreeSet<u32> {
        match self.clock.devices() {
            1 => BTreeSet::new(),
            _ => query.iter().map(|operation| operation.device()).collect(),
        }
    }

    /// What was found in the whole run, the costliest first; nothing where the evidence is too thin for a verdict.
    pub fn findings(&self) -> Vec<Finding> {
        self.findings_of(&self.verdict())
    }

    pub(crate) fn findings_of(&self, verdict: &Verdict) -> Vec<Finding> {
        if verdict.inconclusive.is_some_and(Inconclusive::says_nothing) {
            return Vec::new();
        }
        let run = self.tools();
        let mut found: Vec<Finding> = [
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
        ]
        .into_iter()
        .flatten()
        .collect();
        found.extend(run.serial_streams());
        found.extend(run.first_iterations());
        found.extend(run.idle_gaps());
        found.sort_by_key(|finding| (finding.kind.is_note(), Reverse(finding.cost)));
        found
    }
}

/// Ranges that are judged together.
struct Judged<'a> {
    path: String,
    instances: u64,
    ranges: Vec<Range<'a>>,
    query: Query<'a>,
    waits: u64,
}

/// From the start of each range to its end, or to that of its last operation; by time and apart.
fn times(ranges: &[Range<'_>]) -> Vec<Interval> {
    let time = |range: &Range<'_>| {
        let Interval { start_ns, end_ns } = range.row().time;
        let ends = range.operations().filter_map(|operation| operation.interval());
        let end_ns = ends.fold(end_ns, |end, time| end.max(time.end_ns));
        Interval { start_ns, end_ns }
    };
    let mut times: Vec<Interval> = ranges.iter().map(time).collect();
    times.sort_unstable_by_key(|time| time.start_ns);
    let mut apart: Vec<Interval> = Vec::with_capacity(times.len());
    for time in times {
        match apart.last_mut() {
            Some(last) if time.start_ns <= last.end_ns => {
                last.end_ns = last.end_ns.max(time.end_ns)
            }
            _ => apart.push(time),
        }
    }
    apart
}

/// Findings that are shown as text; JSON has all.
const SHOWN: usize = 10;

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.verdict)?;
        if !self.ranges.is_empty() {
            f.write_str("\n\nranges:")?;
        }
        for range in &self.ranges {
            let path = range.path.as_deref().unwrap_or_default();
            write!(
                f,
                "\n  {}: ",
                crate::base::units::shortened(path, crate::base::units::NAME_WIDTH)
            )?;
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
        Ok(())
    }
}
