//! Wall time of both sides, divided among ranges and causes.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;

use super::{Compare, RUNS};
use crate::analyze::diagnosis::{Clock, Part, Thresholds};
use crate::base::hodges_lehmann::{MOST, Ranks, Ratios};
use crate::base::named_variants::named_variants;
use crate::base::units::{self, NAME_WIDTH, shortened};
use crate::join::busy::extent;
use crate::join::tables::{OperationId, RangeId};
use crate::profile::{OperationKind, Profile};

/// Contributions in a text.
const SHOWN: usize = 5;
/// The share of a cause that a range has to contain to be named for it.
const NAMED_SHARE: f64 = 0.8;

named_variants! {
    /// What a part of the wall time was spent on. Causes are disjoint and add up to the wall time.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum WallCause in ALL {
        /// Times of kernels, memsets and graphs, summed. Concurrent ones count twice here, and the
        /// excess is subtracted by [`Overlap`](Self::Overlap).
        Kernels = "kernel time",
        /// Kernels that ran beside others. Negative: more concurrency is less wall time.
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

named_variants! {
    /// The result for the wall time.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum Speed {
        /// Less wall time by more than the margin.
        Faster = "faster",
        /// More wall time by more than the margin.
        Slower = "slower",
        /// A change of at most the margin in either direction.
        Same = "as fast as before",
        /// The bounds contain the margin: see [`WallChange::runs_needed`].
        Undecided = "undecided",
    }
}

/// The wall time that one cause takes in one range.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Contribution {
    /// The range's domain; `None` for the default domain.
    pub domain: Option<Rc<str>>,
    /// The path of the innermost range; `None` outside any range. Of a kernel it is the range that
    /// launched it, of idle time the range in which the host was.
    pub path: Option<Rc<str>>,
    /// The cause.
    pub cause: WallCause,
    /// Nanoseconds before, of a run.
    pub before_ns: f64,
    /// Nanoseconds after.
    pub after_ns: f64,
    /// The difference: positive is slower.
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
    /// The innermost range that contains at least 80 % of the cause's change, with the ranges
    /// within it; `None` if only the whole run does.
    pub path: Option<Rc<str>>,
    /// Nanoseconds that the cause contributes to the change, in this range.
    pub change_ns: f64,
}

/// The change of the wall time of a session: [`Comparison::wall`](super::Comparison::wall). `{}` is
/// a headline and the largest contributions.
///
/// A session's wall time is the time in which it recorded, without pauses, until the end of its
/// last operation. If a side has a capture, which has no session, the time of all runs is that
/// from the first to the last recorded activity. With several devices each has this clock, and
/// contributions are their mean.
/// A value of several runs is the mean over the runs in the middle half by wall time, so that
/// contributions add up to the whole.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WallChange {
    /// Nanoseconds before, of a run.
    pub before_ns: f64,
    /// Nanoseconds after.
    pub after_ns: f64,
    /// The difference: positive is slower.
    pub change_ns: f64,
    /// The factor of the wall time; 1 without runs. With five or more runs a side the
    /// Hodges-Lehmann estimate.
    pub ratio: f64,
    /// The lower bound of the factor.
    pub low: f64,
    /// The upper bound of the factor; `None` if unbounded.
    pub high: Option<f64>,
    /// True if the bounds come from the variation between runs (five or more a side). Otherwise
    /// they are the extreme ratios, widened by [`Compare::run_variation`], which is an assumption.
    pub is_measured: bool,
    /// The assumption, if needed.
    pub assumed_variation: Option<f64>,
    /// Runs before and after.
    pub runs: [usize; 2],
    /// The result.
    pub speed: Speed,
    /// Why the result is not decided though there are runs, if so.
    pub undecidable: Option<&'static str>,
    /// The runs of each side that would probably decide; `None` if decided, or if more than 64
    /// would be needed.
    pub runs_needed: Option<usize>,
    /// Wall time by range and cause, largest change first. Equal ones are included.
    pub contributions: Vec<Contribution>,
    /// The part of the change with no known cause: idle time of operations without a call, and
    /// rounding.
    pub unexplained_ns: f64,
    /// The range and cause that explain most of the change, if it is a change.
    pub explanation: Option<Explanation>,
}

/// A range path of either side.
struct Node {
    domain: Option<Rc<str>>,
    path: Rc<str>,
    parent: Option<usize>,
}

/// Index 0 is outside any range.
#[derive(Default)]
struct Nodes {
    nodes: Vec<Node>,
    ids: HashMap<(Option<Rc<str>>, Rc<str>), usize>,
}

/// One run: its wall time and, by node, the time of each cause.
struct Divided {
    /// From the first to the last activity, without pauses; the sum of the parts.
    wall_ns: f64,
    session_ns: Option<f64>,
    parts: Vec<[f64; WallCause::ALL.len()]>,
    truncated: bool,
}

impl Nodes {
    /// The index of each node of the profile's tree.
    fn add(&mut self, profile: &Profile) -> Vec<usize> {
        let mut of_tree = vec![0; profile.tree.nodes.len()];
        let mut around: Vec<usize> = Vec::new();
        for (depth, node) in profile.walk() {
            around.truncate(depth);
            let key = (node.domain().map(Rc::from), Rc::from(node.cut_path()));
            let new = self.nodes.len() + 1;
            let id = *self.ids.entry(key.clone()).or_insert(new);
            if id == new {
                let (domain, path) = key;
                self.nodes.push(Node { domain, path, parent: around.last().copied() });
            }
            of_tree[node.id.at()] = id;
            around.push(id);
        }
        of_tree
    }

    fn get(&self, id: usize) -> Option<&Node> {
        id.checked_sub(1).map(|at| &self.nodes[at])
    }
}

impl Divided {
    /// Costs what [`Clock::new`] does, and a pass over operations.
    fn of(profile: &Profile, nodes: &mut Nodes) -> Self {
        let of_tree = nodes.add(profile);
        let clock = Clock::new(profile, &Thresholds::new());
        let devices = clock.devices() as f64;
        let mut parts = vec![[0.0; WallCause::ALL.len()]; nodes.nodes.len() + 1];
        let node_of = |range: Option<RangeId>| match range {
            Some(id) => of_tree[profile.tree.of_range[id.at()].at()],
            None => 0,
        };
        let range_of = |id: OperationId| profile.operation(id).range().map(|range| range.id);
        let mut add = |range: Option<RangeId>, cause: WallCause, ns: f64| {
            parts[node_of(range)][cause as usize] += ns / devices;
        };
        for piece in &clock.pieces {
            let range = match piece.operation {
                Some(id) if !piece.is_idle => range_of(id),
                _ => piece.range,
            };
            let ns = piece.time.ns() as f64;
            match piece.part {
                // The sum of times is added below: what is left is negative.
                Part::Kernels => add(range, WallCause::Overlap, ns),
                part => add(range, part.into(), ns),
            }
        }
        for operation in profile.operations().filter(|of| of.interval().is_some()) {
            let is_work = operation.kind() != OperationKind::Copy && !operation.is_collective();
            if is_work && let Some(time) = operation.interval() {
                let (range, ns) = (operation.range().map(|range| range.id), time.ns() as f64);
                add(range, WallCause::Kernels, ns);
                add(range, WallCause::Overlap, -ns);
            }
        }
        let wall_ns = parts.iter().flatten().sum();
        let session_ns = session_ns(profile).map(|ns| ns as f64);
        Self { wall_ns, session_ns, parts, truncated: profile.health().truncated != 0 }
    }

    /// Adds the session's time before its first and after its last activity.
    fn extend(&mut self) {
        let more = (self.session_ns.unwrap_or(0.0) - self.wall_ns).max(0.0);
        self.parts[0][WallCause::Host as usize] += more;
        self.wall_ns += more;
    }
}

/// The time of the session without pauses, until the end of its last operation. `None` for captures,
/// which have no session.
fn session_ns(profile: &Profile) -> Option<u64> {
    let windows = &profile.store.session.windows_ns;
    let last_ns = windows.last()?.1;
    if last_ns == u64::MAX {
        return None;
    }
    let recorded = windows.iter().map(|(start, end)| end.saturating_sub(*start));
    let tail = extent(&profile.store).end_ns.saturating_sub(last_ns);
    Some(recorded.fold(tail, u64::saturating_add))
}

/// The runs in the middle half by wall time.
fn middle(runs: &[Divided]) -> Vec<&Divided> {
    let mut sorted: Vec<&Divided> = runs.iter().collect();
    sorted.sort_by(|a, b| a.wall_ns.total_cmp(&b.wall_ns));
    let cut = sorted.len() / 4;
    sorted[cut..sorted.len() - cut].to_vec()
}

fn mean(runs: &[&Divided], value: impl Fn(&Divided) -> f64) -> f64 {
    runs.iter().map(|run| value(run)).sum::<f64>() / runs.len().max(1) as f64
}

/// Estimate and bounds of the factor, and whether they are measured.
struct Bounds {
    ratio: f64,
    low: f64,
    high: f64,
    is_measured: bool,
}

impl Bounds {
    fn of(sides: &[Vec<f64>; 2], compare: &Compare, ranks: &mut Ranks) -> Option<Self> {
        let ratios = Ratios::of(&sides[0], &sides[1]);
        let ratio = ratios.estimate()?;
        if sides.iter().all(|runs| runs.len() >= RUNS) {
            let (low, high) = ratios.bounds(ranks, (1.0 - compare.confidence) / 2.0);
            return Some(Self { ratio, low, high, is_measured: true });
        }
        let (least, most) = ratios.extremes()?;
        let wider = 1.0 + compare.run_variation;
        Some(Self { ratio, low: least / wider, high: most * wider, is_measured: false })
    }

    fn speed(&self, margin: f64) -> Speed {
        let within = |ratio: f64| (1.0 - margin..=1.0 + margin).contains(&ratio);
        if self.low > 1.0 + margin {
            Speed::Slower
        } else if self.high < 1.0 - margin {
            Speed::Faster
        } else if self.is_measured && within(self.low) && within(self.high) {
            Speed::Same
        } else {
            Speed::Undecided
        }
    }

    /// The runs of each side whose bounds would leave out the margin, if runs vary as these do.
    ///
    /// The width of the bounds falls with the square root of the number of runs. Fewer runs than
    /// [`RUNS`] do not show how much they vary.
    fn runs_needed(&self, runs: usize, margin: f64) -> Option<usize> {
        if !self.is_measured {
            return Some(RUNS);
        }
        let width = (self.high - self.low) / 2.0;
        let change = (self.ratio - 1.0).abs();
        // At the margin itself no number decides.
        let distance = (change - margin).abs();
        let needed = runs as f64 * (width / distance).powi(2);
        (needed.is_finite() && needed <= MOST as f64)
            .then(|| (needed.ceil() as usize).max(runs + 1))
    }
}

pub(super) fn change(sides: [&[Profile]; 2], compare: &Compare) -> WallChange {
    let mut nodes = Nodes::default();
    let mut runs = sides.map(|runs| {
        let divide = |profile| Divided::of(profile, &mut nodes);
        runs.iter().map(divide).collect::<Vec<_>>()
    });
    // Captures have no session: like is compared with like.
    if runs.iter().flatten().all(|run| run.session_ns.is_some()) {
        runs.iter_mut().flatten().for_each(Divided::extend);
    }
    let middles = runs.each_ref().map(|runs| middle(runs));
    let value = |node: usize, cause: WallCause| {
        middles
            .each_ref()
            .map(|runs| mean(runs, |run| run.parts.get(node).map_or(0.0, |of| of[cause as usize])))
    };
    let mut contributions = Vec::new();
    // The change of each cause in each node with the nodes within it.
    let mut inclusive = vec![[0.0; WallCause::ALL.len()]; nodes.nodes.len() + 1];
    let mut unexplained_ns = 0.0;
    for id in (0..=nodes.nodes.len()).rev() {
        for cause in WallCause::ALL {
            let [before_ns, after_ns] = value(id, cause);
            if before_ns == 0.0 && after_ns == 0.0 {
                continue;
            }
            let change_ns = after_ns - before_ns;
            inclusive[id][cause as usize] += change_ns;
            if cause == WallCause::Unknown {
                unexplained_ns += change_ns;
            }
            let node = nodes.get(id);
            contributions.push(Contribution {
                domain: node.and_then(|node| node.domain.clone()),
                path: node.map(|node| node.path.clone()),
                cause,
                before_ns,
                after_ns,
                change_ns,
            });
        }
        // A node comes after its parent.
        if let Some(parent) = nodes.get(id).and_then(|node| node.parent) {
            let of_node = inclusive[id];
            inclusive[parent].iter_mut().zip(of_node).for_each(|(sum, ns)| *sum += ns);
        }
    }
    contributions.sort_by(|a, b| b.change_ns.abs().total_cmp(&a.change_ns.abs()));
    let [before_ns, after_ns] = middles.each_ref().map(|runs| mean(runs, |run| run.wall_ns));
    let change_ns = after_ns - before_ns;
    let explained: f64 = contributions.iter().map(|of| of.change_ns).sum();
    unexplained_ns += change_ns - explained;

    let walls = runs
        .each_ref()
        .map(|runs| runs.iter().map(|run| run.wall_ns).take(MOST).collect::<Vec<_>>());
    let bounds = Bounds::of(&walls, compare, &mut Ranks::default());
    let undecidable = if bounds.is_none() {
        Some("there is no run on one side")
    } else if runs.iter().flatten().any(|run| run.truncated) {
        Some("a recording is cut off, so that its wall time is not that of the run")
    } else {
        None
    };
    let fewest = runs.each_ref().map(Vec::len).into_iter().min().unwrap_or(0);
    let bounds =
        bounds.unwrap_or(Bounds { ratio: 1.0, low: 0.0, high: f64::INFINITY, is_measured: false });
    let speed = match undecidable {
        Some(_) => Speed::Undecided,
        None => bounds.speed(compare.margin),
    };
    let is_open = speed == Speed::Undecided && undecidable.is_none();
    let runs_needed = is_open.then(|| bounds.runs_needed(fewest, compare.margin)).flatten();
    WallChange {
        before_ns,
        after_ns,
        change_ns,
        ratio: bounds.ratio,
        low: bounds.low,
        high: bounds.high.is_finite().then_some(bounds.high),
        is_measured: bounds.is_measured,
        assumed_variation: (!bounds.is_measured).then_some(compare.run_variation),
        runs: runs.each_ref().map(Vec::len),
        speed,
        undecidable,
        runs_needed,
        explanation: explanation(&nodes, &inclusive, change_ns),
        contributions,
        unexplained_ns,
    }
}

/// The cause with the largest change in the direction of the whole, and the innermost range that
/// contains most of it.
fn explanation(
    nodes: &Nodes,
    inclusive: &[[f64; WallCause::ALL.len()]],
    change_ns: f64,
) -> Option<Explanation> {
    let all = 0..inclusive.len();
    let mut sums = [0.0; WallCause::ALL.len()];
    for id in all.clone().filter(|id| nodes.get(*id).is_none_or(|node| node.parent.is_none())) {
        sums.iter_mut().zip(inclusive[id]).for_each(|(sum, ns)| *sum += ns);
    }
    let direction = change_ns.signum();
    let most = |a: &WallCause, b: &WallCause| {
        (direction * sums[*a as usize]).total_cmp(&(direction * sums[*b as usize]))
    };
    let cause = WallCause::ALL.into_iter().max_by(most)?;
    let of_cause = sums[cause as usize];
    if of_cause * direction <= 0.0 {
        return None;
    }
    // From the roots inwards; nodes come after their parents.
    let contains = |id: &usize| inclusive[*id][cause as usize] / of_cause >= NAMED_SHARE;
    let innermost = all.skip(1).filter(contains).fold(None, |found, id| {
        let parent = nodes.get(id).and_then(|node| node.parent);
        if parent == found { Some(id) } else { found }
    });
    let node = innermost.and_then(|id| nodes.get(id));
    Some(Explanation {
        cause,
        domain: node.and_then(|node| node.domain.clone()),
        path: node.map(|node| node.path.clone()),
        change_ns: innermost.map_or(of_cause, |id| inclusive[id][cause as usize]),
    })
}

fn time(ns: f64) -> String {
    units::time(Duration::from_nanos(ns.max(0.0).round() as u64))
}

fn signed(ns: f64) -> String {
    format!("{}{}", if ns < 0.0 { '-' } else { '+' }, time(ns.abs()))
}

fn percent(ratio: f64) -> String {
    format!("{:+.1} %", 100.0 * (ratio - 1.0))
}

fn place(domain: Option<&str>, path: Option<&str>) -> String {
    match (path, domain) {
        (None, _) => "outside any range".to_owned(),
        (Some(path), None) => format!("in {}", shortened(path, NAME_WIDTH)),
        (Some(path), Some(domain)) => {
            format!("in {} [{}]", shortened(path, NAME_WIDTH), shortened(domain, NAME_WIDTH))
        }
    }
}

/// `idle for launches in step: +1.20 ms (95.0 % of the change)`.
impl Explanation {
    fn text(&self, change_ns: f64) -> String {
        let place = match &self.path {
            None => String::new(),
            path => format!(" {}", place(self.domain.as_deref(), path.as_deref())),
        };
        let share = 100.0 * self.change_ns / change_ns;
        format!("{}{place}: {} ({share:.0} % of the change)", self.cause, signed(self.change_ns))
    }
}

impl WallChange {
    /// One line: the result, by how much, how sure, and what explains it.
    pub fn headline(&self) -> String {
        let (before, after) = (time(self.before_ns), time(self.after_ns));
        let bounds = match self.high {
            Some(high) => format!("{} to {}", percent(self.low), percent(high)),
            None => "no bounds".to_owned(),
        };
        let runs = match self.runs {
            [1, 1] => "one run a side".to_owned(),
            [before, after] => format!("{before} and {after} runs"),
        };
        let assumed = match self.assumed_variation {
            Some(part) => format!(", if runs vary by at most {:.0} %", 100.0 * part),
            None => String::new(),
        };
        let mut text = format!(
            "wall time {}: {before} -> {after}, {} ({bounds}{assumed}; {runs})",
            self.speed,
            percent(self.ratio)
        );
        if let Some(why) = self.undecidable {
            text.push_str(&format!("; {why}"));
        } else if self.speed == Speed::Undecided {
            match self.runs_needed {
                Some(runs) => text.push_str(&format!("; {runs} runs of each would decide")),
                None => text.push_str(&format!(
                    "; more than {MOST} runs of each would be needed: make a run longer or the machine quieter"
                )),
            }
        }
        if let (Speed::Faster | Speed::Slower, Some(explanation)) = (self.speed, &self.explanation)
        {
            text.push_str(&format!("; {}", explanation.text(self.change_ns)));
        }
        text
    }

    /// The largest contributions, a line each, and the unexplained part.
    pub(super) fn lines(&self) -> Vec<String> {
        let of_change = |ns: f64| 100.0 * ns / self.change_ns;
        let changed = self.contributions.iter().filter(|of| of.change_ns != 0.0);
        let mut lines: Vec<String> = changed
            .take(SHOWN)
            .map(|of| {
                let place = place(of.domain.as_deref(), of.path.as_deref());
                let share = of_change(of.change_ns);
                format!("{} {place}: {} ({share:+.0} %)", of.cause, signed(of.change_ns))
            })
            .collect();
        if self.change_ns != 0.0 {
            let rest = self.contributions.iter().skip(SHOWN).map(|of| of.change_ns).sum::<f64>();
            if rest != 0.0 {
                lines.push(format!("all else: {} ({:+.0} %)", signed(rest), of_change(rest)));
            }
            let share = of_change(self.unexplained_ns);
            lines.push(format!("not explained: {} ({share:+.1} %)", signed(self.unexplained_ns)));
        }
        lines
    }
}

impl fmt::Display for WallChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.headline())?;
        self.lines().iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}
