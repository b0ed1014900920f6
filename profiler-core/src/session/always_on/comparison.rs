//! Costs of CUPTI's first call and of logging calls: times of units without and with each.
//!
//! A state machine without a clock: every method receives the time. Phases are divided into blocks
//! of time, and medians of blocks are compared by rank. A load that varies from block to block
//! therefore widens the interval. For CUPTI's first call, one phase precedes it and one follows it.
//! For logged calls, blocks with and without logging alternate, so that a load that drifts over
//! several blocks affects both.

use std::fmt;
use std::time::Duration;

use profiler_base::hodges_lehmann::{Factor, Ranks, median};
use rustc_hash::FxHashMap;

/// Blocks with units in each phase.
const BLOCKS: usize = 10;
/// The minimum number of blocks with units of a name in each phase; below it, the name is not
/// compared. Bounds of 95 % need 4.
const FEWEST: usize = 4;
/// The maximum number of unit times for the medians of a block. Further units are omitted.
const MOST_UNITS: usize = 4_096;
/// A phase ends after this multiple of its length, whatever number of blocks it has.
const PATIENCE: u64 = 4;
/// Logging is compared again if most of the units' time had names that were not compared. The first
/// repetition follows after this many phase lengths. Each wait is twice the one before, with at
/// most `MOST_AGAIN` repetitions.
const AGAIN_AFTER: u64 = 4;
const MOST_AGAIN: u32 = 8;
/// The upper bound of the correlation between consecutive blocks that widens an interval.
const MOST_PERSISTENT: f64 = 0.9;
/// The probability beyond each bound.
const TAIL: f64 = 0.025;

/// A cost of recording, measured by times of units, as a share of the time:
/// [`AlwaysOnReport::attach_cost`](super::AlwaysOnReport::attach_cost) and
/// [`logging_cost`](super::AlwaysOnReport::logging_cost).
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum TimedCost {
    /// Units are timed without it, or with it.
    Comparing,
    /// Nothing was compared, for this reason.
    NotMeasured(&'static str),
    /// The difference between host times of units without it and with it.
    Measured(MeasuredShare),
    /// The share of the time that the program declared.
    Declared(f64),
}

/// The measured increase of the time of units, as a share. Negative if units were faster.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MeasuredShare {
    /// The share.
    pub value: f64,
    /// The lower bound of its 95 % interval, valid if the load was the same in both phases.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
    /// The number of units without it.
    pub units_before: u64,
    /// The number of units with it.
    pub units_after: u64,
}

impl TimedCost {
    /// The share of the time, if it is known.
    pub fn share(&self) -> Option<f64> {
        match self {
            Self::Measured(measured) => Some(measured.value),
            Self::Declared(share) => Some(*share),
            _ => None,
        }
    }
}

/// Formats a share as percent.
pub(super) fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

impl fmt::Display for TimedCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Comparing => f.write_str("units are timed without it and with it"),
            Self::NotMeasured(why) => write!(f, "not measured: {why}"),
            Self::Declared(share) => write!(f, "{} of the time (declared)", percent(*share)),
            Self::Measured(MeasuredShare { value, low, high, units_before, units_after }) => {
                let [value, low, high] = [*value, *low, *high].map(percent);
                write!(
                    f,
                    "{value} of the time (95 %: {low} to {high}; {units_before} units before, {units_after} after)"
                )
            }
        }
    }
}

/// The next action of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    /// Attach CUPTI, then call [`Comparison::attached`].
    Attach,
    /// Log calls from now on, then call [`Comparison::logging`].
    LogCalls,
    /// Log calls for another block, then call [`Comparison::logging`].
    LogAgain,
    /// Stop logging calls, then call [`Comparison::silent`].
    StopLogging,
    /// The comparison is complete. Account for the cost of logged calls, decide whether to log
    /// them, then call [`Comparison::conclude`].
    Conclude,
    /// Log calls again, then call [`Comparison::again`].
    Again,
}

/// The phase that is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Without CUPTI.
    Before,
    /// CUPTI is attached, and nothing is enabled.
    Attached,
    /// Calls are logged.
    Logging,
    /// Calls are not logged, for one block.
    Silent,
    Done,
}
/// The number of timed phases.
const PHASES: usize = 4;

/// The units of one name: medians of blocks of each phase, and their total time in the phase.
#[derive(Debug, Clone, Default)]
struct OfName {
    medians: [Vec<f64>; PHASES],
    busy_ns: [f64; PHASES],
    /// The increase of a unit's time through CUPTI's first call, and through logged calls.
    longer_ns: [f64; 2],
    /// True if logged calls were compared.
    is_compared: bool,
}

/// The current phase, or a block of alternating logging: its start, its open block, and the number
/// of blocks with units.
#[derive(Debug, Default)]
struct Side {
    since_ns: u64,
    block_since_ns: u64,
    times: FxHashMap<usize, Vec<f64>>,
    count: usize,
    blocks: usize,
    units: u64,
}

impl Side {
    fn begin(since_ns: u64) -> Self {
        Self { since_ns, block_since_ns: since_ns, ..Self::default() }
    }
}

/// Costs since the last call of [`Comparison::take_cost`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Charged {
    /// The cost of CUPTI's first call.
    pub(super) attach_ns: f64,
    /// The cost of logged calls, or the cost they would have had; `None` if it was not measured.
    pub(super) logging_ns: Option<f64>,
    /// The time of the units that ended.
    pub(super) units_ns: f64,
}

/// The comparison of units without CUPTI, with it, and with logged calls.
#[derive(Debug)]
pub(super) struct Comparison {
    phase: Phase,
    side_ns: u64,
    side: Side,
    /// The units, blocks with units, and length of each ended phase.
    units: [u64; PHASES],
    blocks: [usize; PHASES],
    passed_ns: [u64; PHASES],
    /// Alternations of blocks with and without logged calls.
    turns: u64,
    names: Vec<OfName>,
    attach: TimedCost,
    logging: TimedCost,
    /// Each cost, and the time of units, since the last call of `take_cost`.
    charged_ns: [f64; 2],
    units_ns: f64,
    /// The time of units whose logged calls were compared, and of others, since the last check for
    /// a repetition.
    compared_ns: f64,
    other_ns: f64,
    concluded_ns: u64,
    times_again: u32,
}

impl Default for Comparison {
    fn default() -> Self {
        Self::without("CUPTI was called before the first unit")
    }
}

impl Comparison {
    /// Compares all phases, each of this length.
    pub(super) fn of_all(baseline: Duration, now_ns: u64) -> Self {
        Self {
            phase: Phase::Before,
            side_ns: u64::try_from(baseline.as_nanos()).unwrap_or(u64::MAX),
            side: Side::begin(now_ns),
            units: [0; PHASES],
            blocks: [0; PHASES],
            passed_ns: [0; PHASES],
            turns: 0,
            names: Vec::new(),
            attach: TimedCost::Comparing,
            logging: TimedCost::Comparing,
            charged_ns: [0.0; 2],
            units_ns: 0.0,
            compared_ns: 0.0,
            other_ns: 0.0,
            concluded_ns: 0,
            times_again: 0,
        }
    }

    /// Compares only logging: calls are logged from the start, and the cost of attaching CUPTI is
    /// declared or cannot be measured.
    pub(super) fn of_logging(attach: TimedCost, baseline: Duration, now_ns: u64) -> Self {
        Self { phase: Phase::Logging, attach, ..Self::of_all(baseline, now_ns) }
    }

    /// Compares nothing.
    pub(super) fn without(why: &'static str) -> Self {
        Self::with_attach_cost(TimedCost::NotMeasured(why), why)
    }

    /// Compares nothing, with a declared cost of the first call.
    pub(super) fn with_attach_cost(attach: TimedCost, why: &'static str) -> Self {
        let logging = TimedCost::NotMeasured(why);
        Self { phase: Phase::Done, attach, logging, ..Self::of_all(Duration::ZERO, 0) }
    }

    pub(super) fn is_comparing(&self) -> bool {
        self.phase != Phase::Done
    }

    /// True before CUPTI's first call.
    pub(super) fn is_before(&self) -> bool {
        self.phase == Phase::Before
    }

    /// The cost of CUPTI's first call.
    pub(super) fn attach_cost(&self) -> TimedCost {
        self.attach
    }

    /// The cost of logging calls.
    pub(super) fn logging_cost(&self) -> TimedCost {
        self.logging
    }

    fn block_ns(&self) -> u64 {
        self.side_ns / BLOCKS as u64
    }

    /// Adds a unit of the name in this row.
    pub(super) fn add(&mut self, name: usize, start_ns: u64, ns: u64) {
        self.units_ns += ns as f64;
        if self.phase == Phase::Done {
            let of_name = self.names.get(name);
            if let Some(of_name) = of_name {
                self.charged_ns[0] += of_name.longer_ns[0];
                self.charged_ns[1] += of_name.longer_ns[1];
            }
            let is_compared = of_name.is_some_and(|of_name| of_name.is_compared);
            let total = if is_compared { &mut self.compared_ns } else { &mut self.other_ns };
            *total += ns as f64;
            return;
        }
        if start_ns < self.side.since_ns {
            return;
        }
        self.close_block(start_ns + ns);
        self.names.resize_with(self.names.len().max(name + 1), OfName::default);
        self.names[name].busy_ns[self.phase as usize] += ns as f64;
        self.side.units += 1;
        if self.side.count < MOST_UNITS {
            self.side.count += 1;
            self.side.times.entry(name).or_default().push(ns as f64);
        }
    }

    /// Ends the block if its time has passed.
    fn close_block(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.side.block_since_ns) < self.block_ns() {
            return;
        }
        self.side.block_since_ns = now_ns;
        self.side.blocks += usize::from(self.side.count != 0);
        self.side.count = 0;
        for (name, mut times) in self.side.times.drain() {
            times.sort_unstable_by(f64::total_cmp);
            self.names[name].medians[self.phase as usize].extend(median(&times));
        }
    }

    /// Returns the next action; called several times per block.
    pub(super) fn tick(&mut self, now_ns: u64) -> Step {
        if self.phase == Phase::Done {
            return self.tick_after(now_ns);
        }
        if now_ns < self.side.since_ns {
            return Step::Nothing;
        }
        self.close_block(now_ns);
        let passed_ns = now_ns - self.side.since_ns;
        let takes_turns = matches!(self.phase, Phase::Logging | Phase::Silent);
        let is_over = match takes_turns {
            true => passed_ns >= self.block_ns(),
            false => self.side.blocks >= BLOCKS || passed_ns / PATIENCE >= self.side_ns,
        };
        if !is_over {
            return Step::Nothing;
        }
        let phase = self.phase as usize;
        self.units[phase] += self.side.units;
        self.blocks[phase] += self.side.blocks;
        self.passed_ns[phase] += passed_ns;
        match self.phase {
            Phase::Before => Step::Attach,
            Phase::Attached => {
                self.attach = self.compare(0, Phase::Before, Phase::Attached);
                Step::LogCalls
            }
            _ => self.end_turn(),
        }
    }

    fn end_turn(&mut self) -> Step {
        self.turns += 1;
        let [.., logging, silent] = self.blocks;
        let most = 2 * BLOCKS as u64 * PATIENCE;
        if logging.min(silent) >= BLOCKS || self.turns >= most {
            self.logging = self.compare(1, Phase::Silent, Phase::Logging);
            return Step::Conclude;
        }
        if self.phase == Phase::Logging { Step::StopLogging } else { Step::LogAgain }
    }

    /// Ends the comparison: units may be drawn.
    pub(super) fn conclude(&mut self, now_ns: u64) {
        self.phase = Phase::Done;
        (self.concluded_ns, self.compared_ns, self.other_ns) = (now_ns, 0.0, 0.0);
    }

    /// Repeats the comparison if the load has changed.
    fn tick_after(&mut self, now_ns: u64) -> Step {
        let wait_ns = (AGAIN_AFTER * self.side_ns) << self.times_again;
        let is_due = now_ns.saturating_sub(self.concluded_ns) >= wait_ns;
        // With a length of 0, nothing is compared.
        if self.side_ns == 0 || self.times_again >= MOST_AGAIN || !is_due {
            return Step::Nothing;
        }
        let is_other = self.other_ns > self.compared_ns;
        (self.concluded_ns, self.compared_ns, self.other_ns) = (now_ns, 0.0, 0.0);
        if is_other { Step::Again } else { Step::Nothing }
    }

    /// Calls are logged. Restarts the comparison with and without logging.
    pub(super) fn again(&mut self, now_ns: u64) {
        self.times_again += 1;
        self.turns = 0;
        for phase in [Phase::Logging, Phase::Silent].map(|phase| phase as usize) {
            (self.units[phase], self.blocks[phase], self.passed_ns[phase]) = (0, 0, 0);
            for of_name in &mut self.names {
                of_name.medians[phase].clear();
                of_name.busy_ns[phase] = 0.0;
            }
        }
        self.logging(now_ns);
    }

    /// CUPTI is attached. Launches waited for it, so the next block of time is omitted.
    pub(super) fn attached(&mut self, now_ns: u64) {
        (self.phase, self.side) = (Phase::Attached, Side::begin(now_ns + self.block_ns()));
    }

    /// Calls are logged.
    pub(super) fn logging(&mut self, now_ns: u64) {
        (self.phase, self.side) = (Phase::Logging, Side::begin(now_ns));
    }

    /// Calls are not logged for one block.
    pub(super) fn silent(&mut self, now_ns: u64) {
        (self.phase, self.side) = (Phase::Silent, Side::begin(now_ns));
    }

    /// Ends the comparison.
    pub(super) fn give_up(&mut self, why: &'static str) {
        for cost in [&mut self.attach, &mut self.logging] {
            if *cost == TimedCost::Comparing {
                *cost = TimedCost::NotMeasured(why);
            }
        }
        self.phase = Phase::Done;
    }

    /// Compares units without a cost and with it.
    fn compare(&mut self, cost: usize, without: Phase, with: Phase) -> TimedCost {
        let (without, with) = (without as usize, with as usize);
        let passed_ns = self.passed_ns[with].max(1) as f64;
        let (mut ranks, mut any) = (Ranks::default(), false);
        let [mut value, mut low, mut high] = [0.0; 3];
        for OfName { medians, busy_ns, longer_ns, is_compared } in &mut self.names {
            let (before, after) = (&medians[without], &medians[with]);
            if before.len() < FEWEST || after.len() < FEWEST {
                continue;
            }
            let Some(mut factor) = Factor::estimate([before, after], false, TAIL, &mut ranks)
            else {
                continue;
            };
            if cost == 0 {
                factor = factor.widened(persistence([before, after]));
            }
            any = true;
            *is_compared |= cost == 1;
            let mut sorted = after.clone();
            sorted.sort_unstable_by(f64::total_cmp);
            // Only one unit is open at a time, so these are shares of the elapsed time. Adding up
            // bounds is conservative.
            let share = busy_ns[with] / passed_ns;
            let added = |ratio: f64| share * (1.0 - 1.0 / ratio.max(f64::MIN_POSITIVE));
            value += added(factor.ratio);
            low += added(factor.low);
            high += added(factor.high);
            longer_ns[cost] = median(&sorted).unwrap_or_default() * (1.0 - 1.0 / factor.ratio);
        }
        if any {
            let (units_before, units_after) = (self.units[without], self.units[with]);
            TimedCost::Measured(MeasuredShare { value, low, high, units_before, units_after })
        } else {
            TimedCost::NotMeasured("too few units without it or with it")
        }
    }

    /// Returns both costs for the `elapsed_ns` since the last call.
    pub(super) fn take_cost(&mut self, elapsed_ns: f64) -> Charged {
        let charged_ns = std::mem::take(&mut self.charged_ns).map(|ns| ns.max(0.0));
        Charged {
            attach_ns: match self.attach {
                TimedCost::Declared(share) => share * elapsed_ns,
                _ => charged_ns[0],
            },
            // A cost that may be 0 is not counted, and is no reason to stop logging.
            logging_ns: match self.logging {
                TimedCost::Measured(share) if self.phase == Phase::Done => {
                    Some(if share.low > 0.0 { charged_ns[1] } else { 0.0 })
                }
                _ => None,
            },
            units_ns: std::mem::take(&mut self.units_ns),
        }
    }
}

/// The factor by which an interval widens because a load takes several blocks to change. It is
/// computed from the correlation of consecutive blocks, as in an autoregressive process. The
/// correlation is corrected for its bias with so few blocks (Marriott and Pope, Biometrika 41,
/// 1954).
fn persistence(sides: [&[f64]; 2]) -> f64 {
    let [mut products, mut squares] = [0.0; 2];
    for side in sides {
        let logs: Vec<f64> = side.iter().map(|ns| ns.max(1.0).ln()).collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        squares += logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
        products += logs.windows(2).map(|two| (two[0] - mean) * (two[1] - mean)).sum::<f64>();
    }
    let count = sides[0].len().min(sides[1].len()) as f64;
    if squares == 0.0 {
        return 1.0;
    }
    let correlation = (count * products / squares + 1.0) / (count - 3.0);
    let correlation = correlation.clamp(0.0, MOST_PERSISTENT);
    ((1.0 + correlation) / (1.0 - correlation)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    /// Does what a step asks for. Returns whether all is compared.
    fn follow(comparison: &mut Comparison, step: Step, now_ns: u64) -> bool {
        match step {
            Step::Nothing => {}
            Step::Attach => comparison.attached(now_ns),
            Step::LogCalls | Step::LogAgain => comparison.logging(now_ns),
            Step::StopLogging => comparison.silent(now_ns),
            Step::Again => comparison.again(now_ns),
            Step::Conclude => comparison.conclude(now_ns),
        }
        step == Step::Conclude
    }

    /// Runs units until all is compared. `unit_ns` gets the time, how many things are turned on (CUPTI, then calls), and a random
    /// number; `pause_ns` is between them.
    fn compare(
        seed: u64,
        pause_ns: u64,
        mut unit_ns: impl FnMut(u64, u64, f64) -> u64,
    ) -> Comparison {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut comparison = Comparison::of_all(Duration::from_secs(1), 0);
        let (mut now_ns, mut next_tick_ns) = (0, 0);
        loop {
            let turned_on = [0, 1, 2, 1, 2][comparison.phase as usize];
            let ns = unit_ns(now_ns, turned_on, random.f64());
            comparison.add(0, now_ns, ns);
            now_ns += ns + pause_ns;
            if now_ns < next_tick_ns {
                continue;
            }
            next_tick_ns = now_ns + 50 * MILLISECOND;
            let step = comparison.tick(now_ns);
            assert!(comparison.is_comparing());
            if follow(&mut comparison, step, now_ns) {
                return comparison;
            }
            assert!(now_ns < 400_000 * MILLISECOND);
        }
    }

    fn measured(cost: TimedCost) -> MeasuredShare {
        match cost {
            TimedCost::Measured(measured) => measured,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn planted_rises_are_within_their_intervals_in_95_of_100_runs() {
        // 1.44 ms become 1.60 ms and then 1.68 ms; every tenth takes twice as long, and the load drifts from block to block.
        let planted = [1.0 - 1.44 / 1.6, 1.0 - 1.6 / 1.68];
        let (mut within, mut sums, mut widths) = ([0; 2], [0.0; 2], [0.0; 2]);
        for seed in 0..100 {
            let mut drift = fastrand::Rng::with_seed(1_000 + seed);
            let loads: Vec<f64> = (0..200).map(|_| 0.98 + 0.04 * drift.f64()).collect();
            let comparison = compare(seed, 0, |now_ns, turned_on, draw| {
                let base = [1.44e6, 1.6e6, 1.68e6][turned_on as usize];
                let long = if draw < 0.1 { 2.0 } else { 1.0 };
                let load = loads[(now_ns / (100 * MILLISECOND)) as usize % loads.len()];
                (base * long * load * (0.99 + 0.02 * draw)) as u64
            });
            let costs = [comparison.attach_cost(), comparison.logging_cost()];
            for (which, cost) in costs.into_iter().enumerate() {
                let share = measured(cost);
                sums[which] += share.value;
                let planted = planted[which];
                within[which] += u32::from(share.low <= planted && planted <= share.high);
                let width = share.high - share.low;
                widths[which] += width;
                // Without turns an interval may be widened by what happens to look like a load that wanders.
                assert!(width < [0.15, 0.05][which], "{cost}");
            }
        }
        for which in [0, 1] {
            assert!(within[which] >= 91, "{within:?} of 100");
            assert!((sums[which] / 100.0 - planted[which]).abs() < 0.002, "{sums:?}");
            assert!(widths[which] / 100.0 < [0.03, 0.02][which], "{widths:?}");
        }
    }

    #[test]
    fn what_units_cost_more_is_charged_by_unit() {
        // Half of the time is between units.
        let unit = |_, turned_on, _| [1_000_000, 1_250_000, 1_500_000][turned_on as usize];
        let mut comparison = compare(1, 1_375_000, unit);
        let share = measured(comparison.logging_cost()).value;
        assert!((share - 1_500.0 / 2_875.0 / 6.0).abs() < 0.01, "{}", comparison.logging_cost());
        comparison.take_cost(1e9);
        let nothing = Charged { attach_ns: 0.0, logging_ns: Some(0.0), units_ns: 0.0 };
        assert_eq!(comparison.take_cost(1e9), nothing, "no unit since");
        (0..8).for_each(|_| comparison.add(0, 0, 1_500_000));
        comparison.add(7, 0, 1_500_000);
        let Charged { attach_ns, logging_ns, units_ns } = comparison.take_cost(1e9);
        assert!((units_ns - 9.0 * 1.5e6).abs() < 1.0, "{units_ns}");
        assert!((attach_ns - 2e6).abs() < 1.0, "{attach_ns}");
        assert!(logging_ns.is_some_and(|ns| (ns - 2e6).abs() < 1.0), "{logging_ns:?}");
        assert_eq!(comparison.take_cost(1e9), nothing);
        let text = comparison.attach_cost().to_string();
        assert!(text.contains("units before") && text.contains(" % of the time (95 %: "), "{text}");
    }

    #[test]
    fn units_that_do_not_change_cost_nothing() {
        let mut comparison = compare(3, 0, |_, _, draw| (1e6 * (0.9 + 0.2 * draw)) as u64);
        for cost in [comparison.attach_cost(), comparison.logging_cost()] {
            let share = measured(cost);
            assert!(share.low <= 0.0 && share.high >= 0.0 && share.high < 0.02, "{share:?}");
        }
        comparison.add(0, 0, 1_000_000);
        assert_eq!(comparison.take_cost(1e9).logging_ns, Some(0.0), "it may be nothing");
    }

    #[test]
    fn too_few_units_are_not_compared() {
        // Each takes longer than a side.
        let comparison = compare(4, 0, |_, _, _| 3_000 * MILLISECOND);
        for cost in [comparison.attach_cost(), comparison.logging_cost()] {
            assert!(matches!(cost, TimedCost::NotMeasured(why) if why.contains("few")), "{cost}");
        }
        // Without a unit the sides end, too.
        let mut comparison = Comparison::of_all(Duration::from_secs(1), 0);
        assert_eq!(comparison.tick(3_900 * MILLISECOND), Step::Nothing);
        assert_eq!(comparison.tick(4_000 * MILLISECOND), Step::Attach);
        comparison.attached(4_001 * MILLISECOND);
        assert_eq!(comparison.tick(8_000 * MILLISECOND), Step::Nothing);
        assert_eq!(comparison.tick(8_200 * MILLISECOND), Step::LogCalls);
        comparison.logging(8_201 * MILLISECOND);
        assert_eq!(comparison.tick(8_300 * MILLISECOND), Step::Nothing);
        let (mut turns, mut at) = (0, 8_301);
        let expected = [Step::StopLogging, Step::LogAgain];
        loop {
            let step = comparison.tick(at * MILLISECOND);
            turns += 1;
            if follow(&mut comparison, step, at * MILLISECOND) {
                break;
            }
            assert_eq!(step, expected[(turns + 1) % 2]);
            at += 100;
        }
        assert!(turns as u64 == 2 * BLOCKS as u64 * PATIENCE && !comparison.is_comparing());
        assert_eq!(comparison.attach_cost().share(), None);
        assert_eq!(comparison.take_cost(1e9), Charged::default());
    }

    #[test]
    fn a_load_of_other_names_is_compared_again() {
        let mut comparison = compare(5, 0, |_, _, _| 1_000_000);
        let mut at = comparison.concluded_ns / MILLISECOND;
        // Units of this name for so long; of 0.8 ms where calls are not logged. Counts the steps that are asked for.
        let mut run = |comparison: &mut Comparison, name: usize, ms: u64, unit_ns: u64| {
            let mut steps = [0; 2];
            for _ in 0..ms {
                let is_silent = comparison.phase == Phase::Silent;
                let ns = if is_silent { 800_000 } else { unit_ns };
                comparison.add(name, at * MILLISECOND, ns);
                at += 1;
                let step = comparison.tick(at * MILLISECOND);
                follow(comparison, step, at * MILLISECOND);
                steps[0] += u64::from(step == Step::Again);
                steps[1] += u64::from(step == Step::Conclude);
            }
            (steps, comparison.take_cost(1e9).logging_ns)
        };
        let (steps, charged_ns) = run(&mut comparison, 0, 4_500, 900_000);
        assert_eq!((steps, charged_ns), ([0, 0], Some(0.0)), "the same name");
        let (steps, _) = run(&mut comparison, 3, 3_000, 900_000);
        assert_eq!(steps, [0, 0], "not long enough");
        let (steps, _) = run(&mut comparison, 3, 6_000, 900_000);
        assert_eq!(steps, [1, 1]);
        let (steps, charged_ns) = run(&mut comparison, 3, 60_000, 900_000);
        let of_unit = charged_ns.unwrap_or_default() / 60_000.0;
        assert!(steps == [0, 0] && (of_unit - 1e5).abs() < 1.0, "it is known now: {of_unit}");
        // One that has no time for as many is tried ever less often.
        let mut tries = 0;
        for at in (1_000_000..40_000_000).step_by(50) {
            comparison.add(9, at * MILLISECOND, 3_000 * MILLISECOND);
            let step = comparison.tick(at * MILLISECOND);
            follow(&mut comparison, step, at * MILLISECOND);
            tries += u32::from(step == Step::Again);
        }
        assert!((1..MOST_AGAIN).contains(&tries), "{tries}");
    }

    /// A service whose rate wanders from second to second, and to which logging costs nothing, or a tenth.
    #[test]
    fn a_load_that_wanders_is_no_cost_of_logging() {
        for (rise, planted) in [(1.0, 0.0), (1.0 / 0.9, 0.1)] {
            let (mut significant, mut within, mut sum, mut of_attaching) = (0, 0, 0.0, [0; 2]);
            for seed in 0..100 {
                let mut draw = fastrand::Rng::with_seed(500 + seed);
                // By block: four fifths of what it was, and something new. It takes several blocks to change.
                let mut loads = vec![1.0_f64];
                for _ in 0..400 {
                    let last = loads[loads.len() - 1];
                    loads.push(1.0 + 0.8 * (last - 1.0) + 0.05 * (draw.f64() - 0.5));
                }
                let comparison = compare(seed, 0, |now_ns, turned_on, random| {
                    let load = loads[(now_ns / (100 * MILLISECOND)) as usize % loads.len()];
                    let rise = if turned_on == 2 { rise } else { 1.0 };
                    (1e6 * load * rise * (0.99 + 0.02 * random)) as u64
                });
                let share = measured(comparison.logging_cost());
                significant += u32::from(share.low > 0.0);
                within += u32::from(share.low <= planted && planted <= share.high);
                sum += share.value;
                let attach = measured(comparison.attach_cost());
                of_attaching[0] += u32::from(attach.low <= 0.0 && attach.high >= 0.0);
                of_attaching[1] += u32::from(attach.high - attach.low < 0.2);
            }
            // The first call has no turns. Of 100 intervals 56 had 0 where blocks were taken for independent.
            assert!(of_attaching[0] >= 80 && of_attaching[1] >= 90, "{of_attaching:?}");
            assert!(within >= 93, "{within} of 100");
            assert!((sum / 100.0 - planted).abs() < 0.005, "{sum}");
            assert!(
                if planted > 0.0 { significant >= 95 } else { significant <= 4 },
                "{significant}"
            );
        }
    }

    #[test]
    fn a_declared_share_is_charged_by_time() {
        let declared = TimedCost::Declared(0.02);
        let mut comparison = Comparison::with_attach_cost(declared, "no side");
        assert!(!comparison.is_comparing());
        let charged = comparison.take_cost(1e9);
        assert!((charged.attach_ns - 2e7).abs() < 1.0 && charged.logging_ns.is_none());
        assert_eq!(declared.to_string(), "2.00 % of the time (declared)");
        // Logging is compared beside it.
        let mut comparison = Comparison::of_logging(declared, Duration::from_secs(1), 0);
        assert!(comparison.is_comparing() && !comparison.is_before());
        let mut number = 0;
        loop {
            let ns = if comparison.phase == Phase::Silent { 400_000 } else { 500_000 };
            comparison.add(0, number * MILLISECOND, ns);
            number += 1;
            let step = comparison.tick(number * MILLISECOND);
            if follow(&mut comparison, step, number * MILLISECOND) {
                break;
            }
        }
        let share = measured(comparison.logging_cost());
        assert!((share.value - 0.1).abs() < 2e-3 && share.units_before >= 1_000, "{share:?}");
        assert_eq!(comparison.attach_cost(), declared);

        let mut comparison = Comparison::of_logging(declared, Duration::from_secs(1), 0);
        comparison.give_up("another session");
        assert_eq!(comparison.logging_cost(), TimedCost::NotMeasured("another session"));
        assert_eq!(comparison.attach_cost(), declared);
    }
}
