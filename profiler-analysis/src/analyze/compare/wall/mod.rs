//! Wall time of both sides, divided among ranges and causes.

mod run;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use profiler_base::hodges_lehmann::{Factor, MOST, Ranks};
use profiler_base::named_variants;
use profiler_base::units::duration;
use serde::{Deserialize, Serialize};

use super::clocks::ClockFactors;
use super::comparable::Undecidable;
use super::{Compare, RUNS};
use crate::analyze::diagnosis::Part;
use crate::speed::Speed;
use run::Causes;
use run::parents;
pub(crate) use run::{HOST_VARIATION, Parts, ProcessKey, RangeKey, WallRun, WallSide, by_process};
pub(super) use text::{place, signed, time};

/// The share of a cause's change that a range must contain to be named as its location.
const NAMED_SHARE: f64 = 0.8;

named_variants! {
    /// The cause of a part of the wall time. Causes are disjoint and add up to the wall time.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum WallCause in ALL {
        /// Times of kernels, memsets and graphs, summed. Concurrent ones count twice here;
        /// [`Overlap`](Self::Overlap) subtracts the excess.
        Kernels = "kernel time",
        /// Concurrent kernels. Negative: more concurrency is less wall time.
        Overlap = "kernels side by side",
        /// [`Part::Communication`].
        Communication = "communication alone",
        /// [`Part::Copies`].
        Copies = "copies alone and their calls",
        /// [`Part::Scheduling`].
        Scheduling = "work launched, not started",
        /// [`Part::Launching`].
        Launching = "idle for launches",
        /// [`Part::Waiting`].
        Waiting = "idle for waits and small copies",
        /// [`Part::Host`], and the session's time before its first and after its last activity.
        Host = "idle for the host",
        /// [`Part::Loading`].
        Loading = "idle for data",
        /// [`Part::Unknown`].
        Unknown = "idle, not known why",
    }
}

impl From<Part> for WallCause {
    fn from(part: Part) -> Self {
        match part {
            Part::Kernels => Self::Kernels,
            Part::Communication => Self::Communication,
            Part::Copies => Self::Copies,
            Part::Scheduling => Self::Scheduling,
            Part::Launching => Self::Launching,
            Part::Waiting => Self::Waiting,
            Part::Host => Self::Host,
            Part::Loading => Self::Loading,
            Part::Unknown => Self::Unknown,
        }
    }
}

/// The wall time that one cause takes in one range.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Contribution {
    /// The range's domain; `None` for the default domain.
    pub domain: Option<Rc<str>>,
    /// The path of the innermost range; `None` outside any range. For a kernel, the range that
    /// launched it; for idle time, the range of the host.
    pub path: Option<Rc<str>>,
    /// The cause.
    pub cause: WallCause,
    /// Nanoseconds of a run before. Negative for [`WallCause::Overlap`].
    pub before_ns: f64,
    /// Nanoseconds of a run after.
    pub after_ns: f64,
    /// The difference; positive means slower.
    pub change_ns: f64,
}

/// The range and the cause that explain most of a change.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The cause.
    pub cause: WallCause,
    /// The domain of the range.
    pub domain: Option<Rc<str>>,
    /// The innermost range that, with the ranges within it, contains at least 80 % of the cause's
    /// change. `None` if only the whole run does.
    pub path: Option<Rc<str>>,
    /// Nanoseconds that the cause contributes to the change, in this range.
    pub change_ns: f64,
}

/// The change of the wall time of a session: [`Comparison::wall`](super::Comparison::wall). `{}` is
/// a headline and the largest contributions.
///
/// A session's wall time is the time in which it recorded, without pauses, until the end of its
/// last operation. A capture has no session. If a side has one, the wall time of every run is the
/// time from its first to its last recorded activity. With several devices, each has this clock,
/// and contributions are their mean.
///
/// A value of several runs is the mean over the middle half of the runs by wall time. Contributions
/// therefore add up to the whole.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WallChange {
    pub(crate) before_ns: f64,
    pub(crate) after_ns: f64,
    /// The difference in nanoseconds; positive means slower.
    pub change_ns: f64,
    /// The factor of the wall time: the Hodges-Lehmann estimate, or the median ratio of
    /// [pairs](Compare::paired). 1 without runs.
    pub ratio: f64,
    /// The lower bound of the factor.
    pub low: f64,
    /// The upper bound of the factor; `None` if unbounded.
    pub high: Option<f64>,
    /// The confidence of the bounds, if measured.
    pub confidence: f64,
    /// True if the bounds follow from the variation between processes, which needs five or more per
    /// side at 99 % (eight pairs). Otherwise they are the extreme ratios, widened by an assumption.
    pub is_measured: bool,
    /// The assumed share by which processes differ, if needed. See [`Compare::run_variation`].
    pub assumed_variation: Option<f64>,
    /// The factors that widen the bounds because the SM clocks of both sides differ, if so.
    pub(crate) clocks: Option<ClockFactors>,
    /// Runs before and after.
    pub runs: [usize; 2],
    /// Processes before and after. Wall times differ more between processes than between runs of
    /// one process, so each process is one value.
    pub processes: [usize; 2],
    /// True if runs are compared in pairs.
    pub is_paired: bool,
    /// The result.
    pub speed: Speed,
    /// The reason why no number of runs decides, if any.
    pub undecidable: Option<Undecidable>,
    /// The runs per side that would probably decide. `None` if decided or undecidable, or if more
    /// than 64 would be needed.
    pub runs_needed: Option<usize>,
    /// Wall time by range and cause, largest change first. Equal ones are included.
    pub contributions: Vec<Contribution>,
    /// The part of the change without a known cause, in nanoseconds. It is the idle time of operations without a
    /// call, and the difference between the contributions and the separately measured wall time.
    pub unexplained_ns: f64,
    /// The range and cause that explain most of the change, if the change is decided.
    pub explanation: Option<Explanation>,
}

/// The wall time of a cause, summed over all ranges.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CauseChange {
    /// The cause.
    pub(crate) cause: WallCause,
    /// Nanoseconds of a run before.
    pub(crate) before_ns: f64,
    /// Nanoseconds of a run after.
    pub(crate) after_ns: f64,
}

/// The factor with its bounds, and if they are measured.
struct Bounds {
    factor: Factor,
    is_measured: bool,
    /// The fewest runs per side whose variation gives bounds.
    fewest: Option<usize>,
}

impl Bounds {
    fn new(
        sides: [&[f64]; 2],
        compare: &Compare,
        variation: f64,
        ranks: &mut Ranks,
    ) -> Option<Self> {
        let tail = (1.0 - compare.confidence) / 2.0;
        let fewest = Factor::fewest(compare.paired, tail, ranks).map(|runs| runs.max(RUNS));
        let factor = Factor::estimate(sides, compare.paired, tail, ranks)?;
        if sides.iter().all(|runs| fewest.is_some_and(|fewest| runs.len() >= fewest)) {
            return Some(Self { factor, is_measured: true, fewest });
        }
        Some(Self { factor: factor.assuming(sides, variation), is_measured: false, fewest })
    }

    fn speed(&self, margin: f64) -> Speed {
        Speed::from_factor(&self.factor, margin, self.is_measured.then_some(margin))
    }

    /// The number of runs per side whose bounds would exclude the margin, if further runs vary like
    /// these.
    ///
    /// The width of the bounds falls with the square root of the number of runs. Fewer runs than
    /// the minimum do not show their variation.
    fn runs_needed(&self, runs: usize, margin: f64) -> Option<usize> {
        if !self.is_measured {
            return self.fewest;
        }
        let Factor { ratio, low, high } = self.factor;
        let width = (high - low) / 2.0;
        // At the margin itself no number of runs decides.
        let distance = ((ratio - 1.0).abs() - margin).abs();
        let needed = runs as f64 * (width / distance).powi(2);
        (needed.is_finite() && needed <= MOST as f64)
            .then(|| (needed.ceil() as usize).max(runs + 1))
    }
}

/// Compares the wall times of two sides. The result is undecided if they cannot be compared, or if
/// a side has no run.
pub(crate) fn change(
    [before, after]: [&WallSide; 2],
    compare: &Compare,
    clocks: Option<ClockFactors>,
    undecidable: Option<Undecidable>,
) -> WallChange {
    let keys: BTreeSet<&Option<RangeKey>> = before.parts.keys().chain(after.parts.keys()).collect();
    let of = |side: &WallSide, key| side.parts.get(key).copied().unwrap_or_default();
    let mut contributions = Vec::new();
    let mut changes: BTreeMap<&RangeKey, Causes> = BTreeMap::new();
    let mut total = Causes::default();
    for key in keys {
        let times = [of(before, key), of(after, key)];
        for cause in WallCause::ALL {
            let [before_ns, after_ns] = times.map(|times| times[cause as usize]);
            if before_ns == 0.0 && after_ns == 0.0 {
                continue;
            }
            let change_ns = after_ns - before_ns;
            total[cause as usize] += change_ns;
            if let Some(key) = key {
                changes.entry(key).or_default()[cause as usize] = change_ns;
            }
            let (domain, path) = match key {
                Some(key) => (key.domain.clone(), Some(key.path.clone())),
                None => (None, None),
            };
            contributions.push(Contribution {
                domain,
                path,
                cause,
                before_ns,
                after_ns,
                change_ns,
            });
        }
    }
    contributions.sort_by(|a, b| b.change_ns.abs().total_cmp(&a.change_ns.abs()));
    let change_ns = after.ns - before.ns;
    let explained: f64 = contributions.iter().map(|of| of.change_ns).sum();
    let unexplained_ns = total[WallCause::Unknown as usize] + change_ns - explained;

    let sides = [before, after];
    let walls = sides.map(|side| &side.processes_ns[..side.processes_ns.len().min(MOST)]);
    let variation =
        compare.run_variation.unwrap_or_else(|| before.variation().max(after.variation()));
    let bounds = Bounds::new(walls, compare, variation, &mut Ranks::default());
    let unbounded = Factor { ratio: 1.0, low: 0.0, high: f64::INFINITY };
    let mut bounds =
        bounds.unwrap_or(Bounds { factor: unbounded, is_measured: false, fewest: None });
    if let Some(clocks) = clocks {
        bounds.factor = clocks.widen(bounds.factor);
    }
    let speed = match undecidable {
        Some(_) => Speed::Undecided,
        None => bounds.speed(compare.margin),
    };
    let is_open = speed == Speed::Undecided && undecidable.is_none();
    let processes = sides.map(|side| side.processes_ns.len());
    let fewest = processes[0].min(processes[1]);
    WallChange {
        before_ns: before.ns,
        after_ns: after.ns,
        change_ns,
        ratio: bounds.factor.ratio,
        low: bounds.factor.low,
        high: bounds.factor.high.is_finite().then_some(bounds.factor.high),
        confidence: compare.confidence,
        is_measured: bounds.is_measured,
        assumed_variation: (!bounds.is_measured).then_some(variation),
        clocks,
        runs: sides.map(|side| side.runs),
        processes,
        is_paired: compare.paired,
        speed,
        undecidable,
        runs_needed: is_open.then(|| bounds.runs_needed(fewest, compare.margin)).flatten(),
        explanation: explanation(changes, &total, change_ns),
        contributions,
        unexplained_ns,
    }
}

/// Returns the cause with the largest change in the direction of the whole, and the innermost range
/// that contains most of it.
fn explanation(
    changes: BTreeMap<&RangeKey, Causes>,
    total: &Causes,
    change_ns: f64,
) -> Option<Explanation> {
    let direction = change_ns.signum();
    let most = |a: &WallCause, b: &WallCause| {
        (direction * total[*a as usize]).total_cmp(&(direction * total[*b as usize]))
    };
    let cause = WallCause::ALL.into_iter().max_by(most)?;
    let of_cause = total[cause as usize];
    if of_cause * direction <= 0.0 {
        return None;
    }
    // Parents precede: their paths are shorter.
    let mut changes: Vec<(&RangeKey, f64)> =
        changes.into_iter().map(|(key, causes)| (key, causes[cause as usize])).collect();
    changes.sort_by_key(|(key, _)| key.path.len());
    let keys: Vec<&RangeKey> = changes.iter().map(|(key, _)| *key).collect();
    let parents = parents(&keys);
    let mut inclusive: Vec<f64> = changes.iter().map(|(_, ns)| *ns).collect();
    for at in (0..inclusive.len()).rev() {
        if let Some(parent) = parents[at] {
            inclusive[parent] += inclusive[at];
        }
    }
    let contains = |at: &usize| inclusive[*at] / of_cause >= NAMED_SHARE;
    let innermost = (0..keys.len())
        .filter(contains)
        .fold(None, |found, at| if parents[at] == found { Some(at) } else { found });
    let key = innermost.map(|at| keys[at]);
    Some(Explanation {
        cause,
        domain: key.and_then(|key| key.domain.clone()),
        path: key.map(|key| key.path.clone()),
        change_ns: innermost.map_or(of_cause, |at| inclusive[at]),
    })
}

impl WallChange {
    /// The wall time of a run before.
    pub fn before(&self) -> Duration {
        duration(self.before_ns)
    }

    /// The wall time of a run after.
    pub fn after(&self) -> Duration {
        duration(self.after_ns)
    }

    /// The wall time of a cause in all ranges, in nanoseconds of a run before and after.
    pub fn time_of(&self, cause: WallCause) -> [f64; 2] {
        let of_cause = self.contributions.iter().filter(|of| of.cause == cause);
        of_cause
            .fold([0.0, 0.0], |[before, after], of| [before + of.before_ns, after + of.after_ns])
    }

    /// The wall time by cause, in a fixed order: busy time by work, idle time by reason. Causes
    /// without time on either side are left out.
    pub(crate) fn by_cause(&self) -> Vec<CauseChange> {
        let sum = |cause| {
            let [before_ns, after_ns] = self.time_of(cause);
            CauseChange { cause, before_ns, after_ns }
        };
        let causes = WallCause::ALL.into_iter().map(sum);
        causes.filter(|of| of.before_ns != 0.0 || of.after_ns != 0.0).collect()
    }
}
