//! The looks of a gate, and the decisions at each look.

use std::collections::BTreeMap;

use profiler_base::hodges_lehmann::{Factor, MOST, Ranks};
use profiler_base::kernel_names::Pattern;
use profiler_base::statistics::median_of;

use super::baseline::{Count, Entry, KernelEntry, RangeEntry, Times};
use super::run::EVERYTHING;
use super::verdict::{CountChange, CountOutcome, Outcome, TimeChange, TimeKind};
use crate::analyze::compare::wall::change as wall_change;
use crate::analyze::compare::{ClockFactors, Compare, Undecidable, WallChange};
use crate::speed::Speed;

/// The minimum relative decrease of the wall time for growth to be a trade.
const MARGIN: f64 = 0.01;
/// The minimum growth of a wall time or a host time: the variation of the session's own start and
/// stop.
const LEAST_HOST_NS: f64 = 20_000.0;
/// The minimum growth of a range's host time or busy time, as a share of the wall time.
const LEAST_OF_WALL: f64 = 0.01;
/// Counts whose growth is more work. Other counts may grow only because the program has more
/// ranges.
const COSTS: [&str; 8] = [
    "launches",
    "kernels",
    "copies",
    "copied_bytes",
    "memsets",
    "set_bytes",
    "synchronizations",
    "allocations",
];

/// The settings of a gate.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// Runs at each look; the last is the budget.
    pub(crate) looks: Vec<u32>,
    /// The rate of each of the two errors.
    pub(crate) error: f64,
    /// The relative growth from which a time on the GPU is slower.
    pub(crate) effect: f64,
    /// The minimum growth in nanoseconds.
    pub(crate) least_ns: f64,
    /// The relative growth from which a wall time or a host time is slower.
    pub(crate) wall_effect: f64,
    /// True if every difference of a count fails, and growth also if the wall time fell.
    pub(crate) is_strict: bool,
    /// True if outermost ranges may be entered more or less often.
    pub(crate) any_work: bool,
}

/// The results of the looks so far.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) counts: Vec<CountChange>,
    pub(crate) times: Vec<TimeChange>,
    pub(crate) wall: Option<WallChange>,
    /// The reason why the runs did other work than the baseline, if so.
    pub(crate) undecidable: Option<Undecidable>,
}

impl Found {
    /// True if more runs cannot change the verdict. A wall time that may have fallen could still
    /// turn growth into a trade.
    pub(crate) fn is_decided(&self) -> bool {
        let may_be_trade = |time: &TimeChange| {
            let is_open = matches!(time.outcome, Outcome::Noisy | Outcome::Undecided);
            time.of == TimeKind::Wall && is_open && time.is_measured && time.low < 1.0 - MARGIN
        };
        if self.undecidable.is_some() {
            return true;
        }
        match self.is_worse() {
            true => !self.times.iter().any(may_be_trade),
            false => !self.times.iter().any(|time| time.outcome == Outcome::Undecided),
        }
    }

    /// True if something is certainly worse.
    pub(crate) fn is_worse(&self) -> bool {
        self.counts.iter().any(|count| count.outcome == CountOutcome::Failed)
            || self.times.iter().any(|time| time.outcome == Outcome::Slower)
    }

    /// Notes on the baseline and on common causes.
    pub(crate) fn notes(&self, before: &Entry, after: &Entry) -> Vec<String> {
        let mut notes = Vec::new();
        let varies = |range: &RangeEntry| {
            let kernels = range.kernels.values().map(|kernel| kernel.count);
            range.counts.values().copied().chain(kernels).filter(|count| count.varies()).count()
        };
        let varying: usize = before.ranges.values().map(varies).sum();
        if varying != 0 {
            notes.push(format!("{varying} counts differed among the runs of the baseline"));
        }
        match (before.sm_mhz, after.sm_mhz) {
            (Some(before), Some(now)) if clocks(before, now).is_some() => notes.push(format!(
                "the SM clock was {before:.0} MHz for the baseline and is {now:.0} MHz now: all bounds are widened by that factor"
            )),
            (None, Some(_)) => notes.push("the baseline has no clocks: they were not sampled".to_owned()),
            _ => {}
        }
        // Lowered clocks change all times by one factor; changes of a program rarely do.
        let on_gpu = |time: &&TimeChange| !matches!(time.of, TimeKind::Wall | TimeKind::Host);
        let ratios: Vec<f64> = self.times.iter().filter(on_gpu).map(|time| time.ratio).collect();
        let near = |ratio: f64| ratios.iter().filter(|other| (*other - ratio).abs() < 0.01).count();
        if let Some(ratio) = median_of(ratios.iter().copied())
            && ratios.len() >= 4
            && ratio > 1.01
            && near(ratio) * 10 >= ratios.len() * 9
        {
            notes.push(format!(
                "nearly all times grew by the same {:.1} %: check the clocks before the program",
                100.0 * (ratio - 1.0)
            ));
        }
        notes
    }
}

fn clocks(before_mhz: f64, after_mhz: f64) -> Option<ClockFactors> {
    ClockFactors::from_factors(std::iter::once(after_mhz / before_mhz))
}

/// A time of both sides.
struct Pair<'a> {
    of: TimeKind,
    range: &'a str,
    kernel: Option<&'a str>,
    before: &'a Times,
    after: &'a Times,
}

impl Pair<'_> {
    fn is_meant(&self, pattern: &Pattern) -> bool {
        let named = self.kernel.unwrap_or(self.range);
        pattern.matches(&self.of.to_string()) || self.of != TimeKind::Wall && pattern.matches(named)
    }
}

impl Plan {
    /// The probability of a false pass, at each look.
    fn pass_tail(&self) -> f64 {
        self.error / self.looks.len().max(1) as f64
    }

    /// Tests all runs made so far. A time that passed stays passed.
    pub(crate) fn look(
        &self,
        before: &Entry,
        after: &Entry,
        earlier: &Found,
        ignored: &[Pattern],
        ranks: &mut Ranks,
    ) -> Found {
        let mut pairs = pairs(before, after);
        pairs.retain(|pair| !ignored.iter().any(|pattern| pair.is_meant(pattern)));
        let undecidable = self.other_work(before, after);
        let is_other_work = undecidable.is_some();
        let changes = self.counts(before, after, undecidable.as_ref());
        let wall = self.wall(before, after, undecidable.clone());
        if is_other_work {
            pairs.retain(|pair| !matches!(pair.of, TimeKind::Wall));
        }
        let clocks = before.sm_mhz.zip(after.sm_mhz).and_then(|(before, now)| clocks(before, now));
        let wall_ns = wall.as_ref().map_or(0.0, |wall| wall.before_ns);
        let fail_tail = self.pass_tail() / 2.0;
        let others = pairs.iter().filter(|pair| pair.of != TimeKind::Wall).count().max(1);
        let mut times: Vec<TimeChange> = Vec::new();
        for pair in &pairs {
            let known = earlier.times.iter().find(|time| {
                (time.of, &*time.range, time.kernel.as_deref())
                    == (pair.of, pair.range, pair.kernel)
                    && matches!(time.outcome, Outcome::Same | Outcome::Faster)
            });
            let fail_tail = match pair.of {
                TimeKind::Wall => fail_tail,
                _ => fail_tail / others as f64,
            };
            let time = known.cloned().unwrap_or_else(|| {
                let effect = self.effect_of(pair, wall_ns);
                let variation = match pair.of {
                    TimeKind::Wall => wall.as_ref().and_then(|wall| wall.assumed_variation),
                    _ => None,
                };
                self.judge(pair, effect, fail_tail, (clocks, variation), ranks)
            });
            times.push(time);
        }
        let is_faster = !is_other_work
            && times.iter().any(|time| time.of == TimeKind::Wall)
            && wall.as_ref().is_some_and(|wall| wall.speed == Speed::Faster);
        let is_trade = is_faster && !self.is_strict;
        for time in &mut times {
            let is_required = match time.of {
                TimeKind::Wall => self.is_strict,
                TimeKind::Host | TimeKind::Busy => false,
                TimeKind::Kernels | TimeKind::Kernel => true,
            };
            time.outcome = match time.outcome {
                Outcome::Slower if is_trade && time.of != TimeKind::Wall => Outcome::Trade,
                Outcome::Undecided if is_trade || !is_required => Outcome::Noisy,
                outcome => outcome,
            };
        }
        let counts = changes.into_iter().map(|count| count.judged(self, is_faster)).collect();
        Found { counts, times, wall, undecidable }
    }

    /// The change of wall time, with bounds like those of the other times.
    fn wall(
        &self,
        before: &Entry,
        after: &Entry,
        undecidable: Option<Undecidable>,
    ) -> Option<WallChange> {
        let (before_wall, after_wall) = (before.wall()?, after.wall()?);
        let compare = Compare::new().margin(MARGIN).confidence(1.0 - 2.0 * self.pass_tail());
        let clocks = before.sm_mhz.zip(after.sm_mhz).and_then(|(before, now)| clocks(before, now));
        Some(wall_change([&before_wall, &after_wall], &compare, clocks, undecidable))
    }

    /// The reason why the runs did other work than the baseline, unless that is allowed.
    fn other_work(&self, before: &Entry, after: &Entry) -> Option<Undecidable> {
        if self.any_work { None } else { before.work().differs(&after.work(), MARGIN) }
    }

    /// The relative growth from which a time is slower.
    fn effect_of(&self, pair: &Pair<'_>, wall_ns: f64) -> f64 {
        let (effect, least_ns) = match pair.of {
            TimeKind::Wall => (self.wall_effect, LEAST_HOST_NS),
            TimeKind::Host => (self.wall_effect, LEAST_HOST_NS.max(LEAST_OF_WALL * wall_ns)),
            TimeKind::Busy => (self.effect, self.least_ns.max(LEAST_OF_WALL * wall_ns)),
            TimeKind::Kernels | TimeKind::Kernel => (self.effect, self.least_ns),
        };
        effect.max(least_ns / pair.before.median().max(1.0))
    }

    /// The counts that differ, before the wall time is known.
    fn counts(
        &self,
        before: &Entry,
        after: &Entry,
        undecidable: Option<&Undecidable>,
    ) -> Vec<Differing> {
        let none = RangeEntry::default();
        let other = match undecidable {
            Some(Undecidable::OtherWork { range, .. }) => Some(&**range),
            _ => None,
        };
        let mut differing = Vec::new();
        let mut totals: BTreeMap<String, [u64; 2]> = BTreeMap::new();
        for (path, [before, after]) in paired(&before.ranges, &after.ranges) {
            let (before, after) = (before.unwrap_or(&none), after.unwrap_or(&none));
            let mut add = |name: &str, cost: &str, before: Count, after: Count| {
                if !before.holds(after) {
                    let change = CountChange {
                        range: path.to_owned(),
                        what: name.to_owned(),
                        before: before.bounds(),
                        after: after.bounds(),
                        outcome: CountOutcome::Allowed,
                    };
                    let is_other_work = name == "instances" && other == Some(path);
                    let cost = cost.to_owned();
                    differing.push(Differing { change, cost, is_other_work, grew: false });
                }
            };
            for (name, [before, after]) in paired(&before.kernels, &after.kernels) {
                let of =
                    |kernel: Option<&KernelEntry>| kernel.map_or(Count::default(), |of| of.count);
                add(name, "kernels", of(before), of(after));
            }
            for (name, [before, after]) in paired(&before.counts, &after.counts) {
                let [before, after] =
                    [before, after].map(|count| count.copied().unwrap_or_default());
                let total = totals.entry(name.to_owned()).or_default();
                total[0] += before.bounds().1;
                total[1] += after.bounds().1;
                // Kernels were compared one by one above.
                if name != "kernels" {
                    add(name, name, before, after);
                }
            }
        }
        for count in &mut differing {
            // Work that moved from one range to another does not cost more.
            count.grew = totals.get(&count.cost).is_some_and(|[before, after]| after > before);
        }
        differing
    }

    /// The reason why a baseline of this many runs cannot decide, regardless of the number of runs
    /// compared with it.
    pub(crate) fn too_few(&self, runs: usize, ranks: &mut Ranks) -> Option<String> {
        let tail = self.pass_tail();
        let mut is_enough = |runs: usize| ranks.rank(runs, MOST, tail).is_some();
        if is_enough(runs.min(MOST)) {
            return None;
        }
        let has = if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
        Some(match (runs + 1..=MOST).find(|more| is_enough(*more)) {
            Some(more) => format!(
                "the baseline has {has}, too few for any bound at this error rate: write it from {more} or more"
            ),
            None => format!(
                "no number of runs has bounds at an error rate of {}: set a greater one",
                self.error
            ),
        })
    }

    /// The runs that would probably decide all of these times, with a baseline of this many runs;
    /// `None` if more than [`MOST`] are needed.
    pub(crate) fn runs_needed(
        &self,
        times: &[TimeChange],
        of_baseline: usize,
        ranks: &mut Ranks,
    ) -> Option<u64> {
        let tail = self.pass_tail();
        let least =
            (1..=MOST).find(|runs| ranks.rank(of_baseline.min(MOST), *runs, tail).is_some())?;
        let open = times.iter().filter(|time| time.outcome == Outcome::Undecided);
        // More runs of the same process do not show the difference between processes.
        if open.clone().any(|time| time.of == TimeKind::Wall && !time.is_measured) {
            return None;
        }
        let needed = open.map(|time| {
            let Some(high) = time.high.filter(|_| time.is_measured) else { return least as f64 };
            // The width of bounds falls with the square root of the number of runs.
            let distance = (time.limit - time.ratio).abs();
            (time.runs as f64 * ((high - time.low) / 2.0 / distance).powi(2))
                .max(time.runs as f64 + 1.0)
        });
        let needed = needed.fold(least as f64, f64::max).ceil();
        (needed <= MOST as f64).then_some(needed as u64)
    }

    fn judge(
        &self,
        pair: &Pair<'_>,
        effect: f64,
        fail_tail: f64,
        (clocks, variation): (Option<ClockFactors>, Option<f64>),
        ranks: &mut Ranks,
    ) -> TimeChange {
        // A file may contain any number of times.
        let first = |times: &Times| times.0[..times.0.len().min(MOST)].to_vec();
        let (before, after) = (first(pair.before), first(pair.after));
        let unbounded = Factor { ratio: 1.0, low: 0.0, high: f64::INFINITY };
        let mut factor = |tail| {
            let factor =
                Factor::estimate([&before, &after], false, tail, ranks).unwrap_or(unbounded);
            clocks.map_or(factor, |clocks| clocks.widen(factor))
        };
        let (mut failing, mut passing) = (factor(fail_tail), factor(self.pass_tail()));
        let is_measured = passing.high.is_finite() && variation.is_none();
        if let Some(variation) = variation {
            // With one process per side, only a large change is significant.
            passing = passing.assuming([&before, &after], variation);
            passing = clocks.map_or(passing, |clocks| clocks.widen(passing));
            failing = passing;
        }
        let outcome = if failing.is_slower(effect) {
            Outcome::Slower
        } else if passing.is_faster(effect) {
            Outcome::Faster
        } else if passing.is_within(effect) {
            Outcome::Same
        } else {
            Outcome::Undecided
        };
        TimeChange {
            of: pair.of,
            range: pair.range.to_owned(),
            kernel: pair.kernel.map(str::to_owned),
            before_ns: pair.before.median(),
            after_ns: pair.after.median(),
            ratio: passing.ratio,
            low: passing.low,
            high: passing.high.is_finite().then_some(passing.high),
            is_measured,
            limit: 1.0 + effect,
            runs: pair.after.0.len() as u64,
            outcome,
        }
    }
}

/// A count that differs, and the meaning of its growth.
struct Differing {
    change: CountChange,
    /// The count whose growth is a cost: for a single kernel, the count of all kernels.
    cost: String,
    /// True if the cost grew in the whole run.
    grew: bool,
    is_other_work: bool,
}

impl Differing {
    fn judged(self, plan: &Plan, is_faster: bool) -> CountChange {
        let Self { mut change, cost, grew, is_other_work } = self;
        let is_cost = COSTS.contains(&&*cost);
        change.outcome = if plan.is_strict || is_other_work {
            CountOutcome::Failed
        } else if is_cost && grew && change.after.1 > change.before.1 {
            if is_faster { CountOutcome::Trade } else { CountOutcome::Failed }
        } else {
            CountOutcome::Allowed
        };
        change
    }
}

/// The times of both sides.
fn pairs<'a>(before: &'a Entry, after: &'a Entry) -> Vec<Pair<'a>> {
    let mut pairs = Vec::new();
    let mut add = |of, range, kernel, before: Option<&'a Times>, after: Option<&'a Times>| {
        if let (Some(before), Some(after)) = (before, after)
            && !before.0.is_empty()
            && !after.0.is_empty()
        {
            pairs.push(Pair { of, range, kernel, before, after });
        }
    };
    let walls = [&before.wall_time, &after.wall_time].map(Option::as_ref);
    add(TimeKind::Wall, EVERYTHING, None, walls[0], walls[1]);
    for (path, [before, after]) in paired(&before.ranges, &after.ranges) {
        let (Some(before), Some(after)) = (before, after) else { continue };
        for (name, [before, after]) in paired(&before.kernels, &after.kernels) {
            let [before, after] = [before, after].map(|kernel| kernel.map(|kernel| &kernel.time));
            add(TimeKind::Kernel, path, Some(name), before, after);
        }
        for (of, before, after) in [
            (TimeKind::Kernels, &before.kernel_time, &after.kernel_time),
            (TimeKind::Busy, &before.busy_time, &after.busy_time),
            (TimeKind::Host, &before.host_time, &after.host_time),
        ] {
            add(of, path, None, before.as_ref(), after.as_ref());
        }
    }
    pairs
}

/// The values of both maps by key, in order.
fn paired<'a, V>(
    before: &'a BTreeMap<String, V>,
    after: &'a BTreeMap<String, V>,
) -> BTreeMap<&'a str, [Option<&'a V>; 2]> {
    let mut both: BTreeMap<&str, [Option<&V>; 2]> = BTreeMap::new();
    for (side, map) in [before, after].into_iter().enumerate() {
        for (key, value) in map {
            both.entry(key).or_default()[side] = Some(value);
        }
    }
    both
}
