//! The looks of a gate, and the decisions at each look.

use std::collections::BTreeMap;

use super::baseline::{Count, Entry, KernelEntry, RangeEntry, Times};
use super::verdict::{CountChange, Outcome, TimeChange};
use crate::base::hodges_lehmann::{MOST, Ranks, Ratios, median};
use crate::base::kernel_names::Pattern;

/// The settings of a gate.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// Runs at each look; the last is the budget.
    pub(crate) looks: Vec<u32>,
    /// The rate of each of the two errors.
    pub(crate) error: f64,
    /// The relative growth from which a time is slower.
    pub(crate) effect: f64,
    /// The minimum growth in nanoseconds.
    pub(crate) least_ns: f64,
}

/// The results of the looks so far.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) counts: Vec<CountChange>,
    pub(crate) times: Vec<TimeChange>,
}

impl Found {
    pub(crate) fn is_decided(&self) -> bool {
        let is_open = |time: &TimeChange| time.outcome == Outcome::Undecided;
        self.is_slower() || !self.times.iter().any(is_open)
    }

    /// True if a result is final: more runs cannot change it.
    pub(crate) fn is_slower(&self) -> bool {
        let is_slower = |time: &TimeChange| time.outcome == Outcome::Slower;
        !self.counts.is_empty() || self.times.iter().any(is_slower)
    }
}

impl Found {
    /// Notes on the baseline and on common causes.
    pub(crate) fn notes(&self, before: &Entry) -> Vec<String> {
        let mut notes = Vec::new();
        let varies = |range: &RangeEntry| {
            let kernels = range.kernels.values().map(|kernel| kernel.count);
            range.counts.values().copied().chain(kernels).filter(|count| count.varies()).count()
        };
        let varying: usize = before.ranges.values().map(varies).sum();
        if varying != 0 {
            notes.push(format!("{varying} counts differed among the runs of the baseline"));
        }
        // Lowered clocks change all times by one factor; programs hardly do.
        let mut ratios: Vec<f64> = self.times.iter().map(|time| time.ratio).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let near = |ratio: f64| ratios.iter().filter(|other| (*other - ratio).abs() < 0.01).count();
        if let Some(ratio) = median(&ratios)
            && ratios.len() >= 4
            && ratio > 1.01
            && near(ratio) * 10 >= ratios.len() * 9
        {
            notes.push(format!(
                "nearly all times grew by the same {:.1} %: look at the clocks before the program",
                100.0 * (ratio - 1.0)
            ));
        }
        notes
    }
}

impl Plan {
    /// Tests all runs made so far. A time that passed stays passed.
    pub(crate) fn look(
        &self,
        before: &Entry,
        after: &Entry,
        earlier: &Found,
        ignored: &[Pattern],
        ranks: &mut Ranks,
    ) -> Found {
        let (none, kernel) = (RangeEntry::default(), KernelEntry::default());
        let mut counts = Vec::new();
        let mut pairs: Vec<(&str, Option<&str>, &Times, &Times)> = Vec::new();
        for (path, [before, after]) in beside(&before.ranges, &after.ranges) {
            let (before, after) = (before.unwrap_or(&none), after.unwrap_or(&none));
            for (name, [before, after]) in beside(&before.kernels, &after.kernels) {
                let (before, after) = (before.unwrap_or(&kernel), after.unwrap_or(&kernel));
                change(&mut counts, path, name, before.count, after.count);
                if !before.time.0.is_empty() && !after.time.0.is_empty() {
                    pairs.push((path, Some(name), &before.time, &after.time));
                }
            }
            for (name, [before, after]) in beside(&before.counts, &after.counts) {
                let [before, after] =
                    [before, after].map(|count| count.copied().unwrap_or_default());
                // Kernels are compared one by one above.
                if name != "kernels" {
                    change(&mut counts, path, name, before, after);
                }
            }
            if let (Some(before), Some(after)) = (&before.kernel_time, &after.kernel_time) {
                pairs.push((path, None, before, after));
            }
        }
        pairs.retain(|(path, kernel, ..)| {
            let is_meant = |pattern: &Pattern| pattern.matches(kernel.unwrap_or(path));
            !ignored.iter().any(is_meant)
        });
        let looks = self.looks.len().max(1) as f64;
        let tails = (self.error / looks, self.error / (looks * pairs.len().max(1) as f64));
        let times = pairs.into_iter().map(|(range, kernel, before, after)| {
            let known = earlier.times.iter().find(|time| {
                time.range == range && time.kernel.as_deref() == kernel && time.outcome.is_pass()
            });
            known.cloned().unwrap_or_else(|| self.judge(range, kernel, before, after, tails, ranks))
        });
        Found { counts, times: times.collect() }
    }

    /// Why a baseline of so many runs decides nothing, however many runs are compared with it.
    pub(crate) fn too_few(&self, runs: usize, ranks: &mut Ranks) -> Option<String> {
        let tail = self.error / self.looks.len().max(1) as f64;
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
                "no number of runs has bounds at an error rate of {}: ask for a greater one",
                self.error
            ),
        })
    }

    fn judge(
        &self,
        range: &str,
        kernel: Option<&str>,
        before: &Times,
        after: &Times,
        (pass, fail): (f64, f64),
        ranks: &mut Ranks,
    ) -> TimeChange {
        // A file may contain any number of times.
        let first = |times: &[f64]| times[..times.len().min(MOST)].to_vec();
        let ratios = Ratios::of(&first(&before.0), &first(&after.0));
        let before_ns = before.median();
        let effect = self.effect.max(self.least_ns / before_ns.max(1.0));
        let (surely_above, _) = ratios.bounds(ranks, fail);
        let (low, high) = ratios.bounds(ranks, pass);
        let outcome = if surely_above > 1.0 + effect {
            Outcome::Slower
        } else if high < 1.0 - effect {
            Outcome::Faster
        } else if high < 1.0 + effect {
            Outcome::Same
        } else {
            Outcome::Undecided
        };
        TimeChange {
            range: range.to_owned(),
            kernel: kernel.map(str::to_owned),
            before_ns,
            after_ns: after.median(),
            ratio: ratios.estimate().unwrap_or(1.0),
            low,
            high: high.is_finite().then_some(high),
            limit: 1.0 + effect,
            runs: after.0.len() as u64,
            outcome,
        }
    }
}

fn change(changes: &mut Vec<CountChange>, range: &str, what: &str, before: Count, after: Count) {
    if !before.holds(after) {
        changes.push(CountChange {
            range: range.to_owned(),
            what: what.to_owned(),
            before: before.bounds(),
            after: after.bounds(),
        });
    }
}

/// The values of both maps by key, in order.
fn beside<'a, V>(
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
