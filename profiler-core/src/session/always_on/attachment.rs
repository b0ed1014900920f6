//! What CUPTI's first call costs the program: times of units before it and after it.
//!
//! A state machine without a clock: every method gets the time. Both sides are divided into blocks of time. Medians of blocks are
//! compared by ranks, so that a load that varies from block to block widens the interval.

use std::fmt;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::base::hodges_lehmann::{Factor, Ranks, median};

/// Blocks with units on each side.
const BLOCKS: usize = 10;
/// Blocks with units of a name on each side, or it is not compared: bounds of 95 % need 4.
const FEWEST: usize = 4;
/// The times of a block that its medians are of. Further units are left out.
const MOST_UNITS: usize = 4_096;
/// A side ends after so many times its length, whatever it has.
const PATIENCE: u64 = 4;
/// The probability beyond each bound.
const TAIL: f64 = 0.025;

/// What CUPTI's first call costs the program, until its process ends: [`AlwaysOnReport::attach_cost`](super::AlwaysOnReport::attach_cost).
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum AttachCost {
    /// Units are timed before CUPTI is called, or since then.
    Comparing,
    /// Nothing was compared, for this reason. The budget does not count it.
    NotMeasured(&'static str),
    /// The difference of host times of units before and after.
    Measured(MeasuredShare),
    /// The share of the time that the program declared.
    Declared(f64),
}

/// A share of the time that units were measured to take longer. Below 0 they were faster.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MeasuredShare {
    /// The share.
    pub value: f64,
    /// The bounds of its 95 % interval, if the load was the same on both sides.
    pub low: f64,
    /// The upper one.
    pub high: f64,
    /// Units before CUPTI's first call.
    pub units_before: u64,
    /// Units after it.
    pub units_after: u64,
}

impl AttachCost {
    /// The share of the time, as far as it is known.
    pub fn share(&self) -> Option<f64> {
        match self {
            Self::Measured(measured) => Some(measured.value),
            Self::Declared(share) => Some(*share),
            _ => None,
        }
    }
}

impl fmt::Display for AttachCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| format!("{:.2} %", 100.0 * share);
        match self {
            Self::Comparing => f.write_str("units are timed before and after CUPTI's first call"),
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

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    /// Attach CUPTI, then call [`Attachment::attached`].
    Attach,
    /// Log calls from now on.
    LogCalls,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Before,
    After,
    Done,
}

/// The units of one name: medians of blocks on each side, and their time after CUPTI's first call.
#[derive(Debug, Clone, Default)]
struct OfName {
    before: Vec<f64>,
    after: Vec<f64>,
    busy_ns: f64,
    /// By how much a unit takes longer.
    longer_ns: f64,
}

/// One side: when it began, its open block, and how many have had units.
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

/// The comparison of units before and after CUPTI's first call.
#[derive(Debug)]
pub(super) struct Attachment {
    phase: Phase,
    side_ns: u64,
    side: Side,
    units_before: u64,
    names: Vec<OfName>,
    cost: AttachCost,
    charged_ns: f64,
}

impl Default for Attachment {
    fn default() -> Self {
        Self::without("CUPTI was called before the first unit")
    }
}

impl Attachment {
    /// Compares sides of this length.
    pub(super) fn comparing(baseline: Duration, now_ns: u64) -> Self {
        Self {
            phase: Phase::Before,
            side_ns: u64::try_from(baseline.as_nanos()).unwrap_or(u64::MAX),
            side: Side::begin(now_ns),
            units_before: 0,
            names: Vec::new(),
            cost: AttachCost::Comparing,
            charged_ns: 0.0,
        }
    }

    pub(super) fn without(why: &'static str) -> Self {
        let cost = AttachCost::NotMeasured(why);
        Self { phase: Phase::Done, cost, ..Self::comparing(Duration::ZERO, 0) }
    }

    pub(super) fn declared(share: f64) -> Self {
        let cost = AttachCost::Declared(share);
        Self { phase: Phase::Done, cost, ..Self::comparing(Duration::ZERO, 0) }
    }

    pub(super) fn is_comparing(&self) -> bool {
        self.phase != Phase::Done
    }

    /// Whether CUPTI is still to be called.
    pub(super) fn is_before(&self) -> bool {
        self.phase == Phase::Before
    }

    pub(super) fn cost(&self) -> AttachCost {
        self.cost
    }

    fn block_ns(&self) -> u64 {
        self.side_ns / BLOCKS as u64
    }

    /// Adds a unit of the name in this row.
    pub(super) fn add(&mut self, name: usize, start_ns: u64, ns: u64) {
        if self.phase == Phase::Done {
            self.charged_ns += self.names.get(name).map_or(0.0, |of_name| of_name.longer_ns);
            return;
        }
        if start_ns < self.side.since_ns {
            return;
        }
        self.close_block(start_ns + ns);
        self.names.resize_with(self.names.len().max(name + 1), OfName::default);
        if self.phase == Phase::After {
            self.names[name].busy_ns += ns as f64;
        }
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
            let of_name = &mut self.names[name];
            let medians = match self.phase {
                Phase::Before => &mut of_name.before,
                _ => &mut of_name.after,
            };
            medians.extend(median(&times));
        }
    }

    /// What is to be done, some times a block.
    pub(super) fn tick(&mut self, now_ns: u64) -> Step {
        if self.phase == Phase::Done || now_ns < self.side.since_ns {
            return Step::Nothing;
        }
        self.close_block(now_ns);
        let passed_ns = now_ns - self.side.since_ns;
        let is_over = passed_ns / PATIENCE >= self.side_ns;
        if self.side.blocks < BLOCKS && !is_over {
            return Step::Nothing;
        }
        match self.phase {
            Phase::Before => Step::Attach,
            _ => {
                self.phase = Phase::Done;
                self.compare(passed_ns as f64);
                Step::LogCalls
            }
        }
    }

    /// CUPTI is attached. Launches waited for that, so the next block of time is left out.
    pub(super) fn attached(&mut self, now_ns: u64) {
        let side = Side::begin(now_ns + self.block_ns());
        self.units_before = std::mem::replace(&mut self.side, side).units;
        self.phase = Phase::After;
    }

    /// Ends the comparison.
    pub(super) fn give_up(&mut self, why: &'static str) {
        (self.phase, self.cost) = (Phase::Done, AttachCost::NotMeasured(why));
    }

    fn compare(&mut self, passed_ns: f64) {
        let (mut ranks, mut any) = (Ranks::default(), false);
        let [mut value, mut low, mut high] = [0.0; 3];
        for of_name in &mut self.names {
            let OfName { before, after, busy_ns, longer_ns } = of_name;
            if before.len() < FEWEST || after.len() < FEWEST {
                continue;
            }
            let Some(factor) = Factor::of([before, after], false, TAIL, &mut ranks) else {
                continue;
            };
            any = true;
            after.sort_unstable_by(f64::total_cmp);
            // Units are open one at a time, so these are shares of the time that passes. Bounds are added up, which is on the safe side.
            let share = *busy_ns / passed_ns.max(1.0);
            let added = |ratio: f64| share * (1.0 - 1.0 / ratio.max(f64::MIN_POSITIVE));
            value += added(factor.ratio);
            low += added(factor.low);
            high += added(factor.high);
            *longer_ns = median(after).unwrap_or_default() * (1.0 - 1.0 / factor.ratio);
        }
        self.cost = if any {
            let (units_before, units_after) = (self.units_before, self.side.units);
            AttachCost::Measured(MeasuredShare { value, low, high, units_before, units_after })
        } else {
            AttachCost::NotMeasured("too few units before or after CUPTI's first call")
        };
    }

    /// What it cost since the last call, which was so long ago.
    pub(super) fn take_cost(&mut self, elapsed_ns: f64) -> f64 {
        match self.cost {
            AttachCost::Declared(share) => share * elapsed_ns,
            _ => std::mem::take(&mut self.charged_ns).max(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    /// Runs units until calls are logged. `unit_ns` gets the time, whether CUPTI is attached, and a random number; `pause_ns` is between them.
    fn compare(
        seed: u64,
        pause_ns: u64,
        mut unit_ns: impl FnMut(u64, bool, f64) -> u64,
    ) -> Attachment {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut attachment = Attachment::comparing(Duration::from_secs(1), 0);
        let (mut now_ns, mut next_tick_ns) = (0, 0);
        loop {
            let ns = unit_ns(now_ns, !attachment.is_before(), random.f64());
            attachment.add(0, now_ns, ns);
            now_ns += ns + pause_ns;
            if now_ns < next_tick_ns {
                continue;
            }
            next_tick_ns = now_ns + 50 * MILLISECOND;
            match attachment.tick(now_ns) {
                Step::Nothing => assert!(attachment.is_comparing()),
                Step::Attach => {
                    assert!(attachment.is_before());
                    now_ns += 20 * MILLISECOND;
                    attachment.attached(now_ns);
                }
                Step::LogCalls => return attachment,
            }
            assert!(now_ns < 60_000 * MILLISECOND);
        }
    }

    fn measured(attachment: &Attachment) -> MeasuredShare {
        match attachment.cost() {
            AttachCost::Measured(measured) => measured,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_planted_rise_is_within_the_interval_in_95_of_100_runs() {
        // 1.44 ms become 1.60 ms; every tenth takes twice as long, and the load drifts from block to block.
        let (mut within, mut sum) = (0, 0.0);
        for seed in 0..100 {
            let mut drift = fastrand::Rng::with_seed(1_000 + seed);
            let loads: Vec<f64> = (0..200).map(|_| 0.98 + 0.04 * drift.f64()).collect();
            let attachment = compare(seed, 0, |now_ns, is_attached, draw| {
                let base = if is_attached { 1.6e6 } else { 1.44e6 };
                let long = if draw < 0.1 { 2.0 } else { 1.0 };
                let load = loads[(now_ns / (100 * MILLISECOND)) as usize % loads.len()];
                (base * long * load * (0.99 + 0.02 * draw)) as u64
            });
            let share = measured(&attachment);
            sum += share.value;
            within += u32::from(share.low <= 0.1 && 0.1 <= share.high);
            assert!(share.high - share.low < 0.05, "{}", attachment.cost());
        }
        assert!(within >= 91, "{within} of 100");
        assert!((sum / 100.0 - 0.1).abs() < 0.002, "{}", sum / 100.0);
    }

    #[test]
    fn what_units_cost_more_is_charged_by_unit() {
        // Half of the time is between units.
        let unit = |_, is_attached, _| if is_attached { 1_250_000 } else { 1_000_000 };
        let mut attachment = compare(1, 1_250_000, unit);
        let share = measured(&attachment);
        assert!((share.value - 0.1).abs() < 0.01, "{}", attachment.cost());
        assert_eq!(attachment.take_cost(1e9), 0.0, "no unit since");
        (0..8).for_each(|_| attachment.add(0, 0, 1_250_000));
        attachment.add(7, 0, 1_250_000);
        assert!((attachment.take_cost(1e9) - 2e6).abs() < 1.0);
        assert_eq!(attachment.take_cost(1e9), 0.0);
        let text = attachment.cost().to_string();
        assert!(text.contains("units before") && text.contains(" % of the time (95 %: "), "{text}");
    }

    #[test]
    fn units_that_do_not_change_cost_nothing() {
        let attachment = compare(3, 0, |_, _, draw| (1e6 * (0.9 + 0.2 * draw)) as u64);
        let share = measured(&attachment);
        assert!(share.low <= 0.0 && share.high >= 0.0 && share.high < 0.02, "{share:?}");
    }

    #[test]
    fn too_few_units_are_not_compared() {
        // Each takes longer than a side.
        let attachment = compare(4, 0, |_, _, _| 3_000 * MILLISECOND);
        assert!(matches!(attachment.cost(), AttachCost::NotMeasured(why) if why.contains("few")));
        // Without a unit the sides end, too.
        let mut attachment = Attachment::comparing(Duration::from_secs(1), 0);
        assert_eq!(attachment.tick(3_900 * MILLISECOND), Step::Nothing);
        assert_eq!(attachment.tick(4_000 * MILLISECOND), Step::Attach);
        attachment.attached(4_001 * MILLISECOND);
        assert_eq!(attachment.tick(8_000 * MILLISECOND), Step::Nothing);
        assert_eq!(attachment.tick(8_200 * MILLISECOND), Step::LogCalls);
        assert_eq!(attachment.cost().share(), None);
    }

    #[test]
    fn a_declared_share_is_charged_by_time() {
        let mut attachment = Attachment::declared(0.02);
        assert!(!attachment.is_comparing());
        assert!((attachment.take_cost(1e9) - 2e7).abs() < 1.0);
        assert_eq!(attachment.cost().to_string(), "2.00 % of the time (declared)");
    }
}
