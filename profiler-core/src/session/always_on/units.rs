//! The open step or request, and the times of others.

use std::time::Duration;

use cupti::clock::now_ns;
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;

use super::comparison::{Charged, Comparison, Step, TimedCost};
use super::controller::{Controller, Decision};
use super::report::UnitCounts;
use crate::error::Error;

/// The maximum wait of a unit for the profiler's own threads; then it opens no window.
pub(super) const PATIENCE: Duration = Duration::from_millis(1);
/// The maximum number of unit names with their own mean time; others share one.
const MOST_NAMES: usize = 64;
/// The minimum weight of the latest time in a mean is one divided by this; a mean is known from
/// this many values on.
const MEAN_OF: u64 = 16;
const ENOUGH: u64 = 8;

/// A unit that has begun.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) start_ns: u64,
    pub(super) window: Option<OpenWindow>,
    /// The row of its name.
    name: usize,
}

/// The window of a unit.
#[derive(Debug)]
pub(super) struct OpenWindow {
    /// The probability with which it was drawn; `None` for a unit after a slow one.
    pub(super) probability: Option<f64>,
    /// The time to turn CUPTI on.
    pub(super) begin_ns: u64,
}

/// A window that waits for its end, and the known part of its cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Closing {
    pub(super) begin_ns: u64,
    /// The mean increase of a unit's time in windows.
    pub(super) longer_ns: f64,
}

/// An exponentially weighted mean.
#[derive(Debug, Default, Clone, Copy)]
struct Mean {
    count: u64,
    value: f64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.count += 1;
        self.value += (value - self.value) / self.count.min(MEAN_OF) as f64;
    }
}

#[derive(Debug, Default, Clone, Copy)]
enum Phase {
    #[default]
    Idle,
    Open,
    /// Its window waits for its end, or is being closed.
    Waiting(Closing),
    Closing,
}

#[derive(Debug, Default)]
struct Inner {
    phase: Phase,
    is_over: bool,
    counts: UnitCounts,
    last_error: Option<Error>,
    is_after_slow: bool,
    random: u64,
    comparison: Comparison,
    names: FxHashMap<String, usize>,
    means: Vec<Mean>,
    /// The increase of a unit's time in windows over the mean of other units.
    longer: Mean,
}

/// The units of a session.
#[derive(Debug, Default)]
pub(super) struct Units {
    inner: Mutex<Inner>,
    changed: Condvar,
}

/// Decides whether a unit is recorded.
pub(super) fn decide(
    controller: &mut Controller,
    now_ns: u64,
    is_after_slow: bool,
    random: f64,
    counts: &mut UnitCounts,
) -> Option<OpenWindow> {
    match controller.offer(now_ns, random) {
        Decision::Open { probability } => {
            Some(OpenWindow { probability: Some(probability), begin_ns: 0 })
        }
        Decision::Skip if is_after_slow && controller.may_open(now_ns) => {
            Some(OpenWindow { probability: None, begin_ns: 0 })
        }
        Decision::Skip => None,
        Decision::ExceedsBudget => {
            counts.over_budget += 1;
            None
        }
    }
}

/// The next number of splitmix64 (Steele, Lea and Flood 2014), uniform in [0, 1).
fn draw(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

impl Units {
    /// Begins a unit if none is open. `decide` receives whether the last unit was slow, and a
    /// random number.
    pub(super) fn begin(
        &self,
        name: &str,
        decide: impl FnOnce(bool, f64, &mut UnitCounts) -> Option<OpenWindow>,
    ) -> Option<Begun> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        if !matches!(inner.phase, Phase::Idle) || inner.is_over {
            inner.counts.overlapping += 1;
            return None;
        }
        inner.phase = Phase::Open;
        inner.counts.units += 1;
        if inner.random == 0 {
            inner.random = now_ns() ^ (u64::from(std::process::id()) << 32) | 1;
        }
        let random = draw(&mut inner.random);
        let window = match inner.comparison.is_comparing() {
            true => None,
            false => decide(inner.is_after_slow, random, &mut inner.counts),
        };
        if window.is_some() {
            inner.is_after_slow = false;
        }
        let name = inner.row(name);
        Some(Begun { start_ns: 0, window, name })
    }

    /// Ends the unit, with its time.
    pub(super) fn end_unit(&self, begun: &Begun, ns: u64, slow: Option<Duration>) {
        let mut inner = self.inner.lock();
        if slow.is_some_and(|slow| u128::from(ns) > slow.as_nanos()) {
            inner.counts.slow += 1;
            inner.is_after_slow = true;
        }
        inner.comparison.add(begun.name, begun.start_ns, ns);
        let mean = inner.means.get(begun.name).copied().unwrap_or_default();
        match &begun.window {
            Some(window) => {
                if mean.count >= ENOUGH {
                    inner.longer.add(ns as f64 - mean.value);
                }
                let longer_ns = inner.longer.value;
                inner.phase = Phase::Waiting(Closing { begin_ns: window.begin_ns, longer_ns });
                self.changed.notify_all();
            }
            None => {
                if let Some(mean) = inner.means.get_mut(begun.name) {
                    mean.add(ns as f64);
                }
                inner.phase = Phase::Idle;
            }
        }
    }

    /// Sets the comparison of units.
    pub(super) fn compare(&self, comparison: Comparison) {
        self.inner.lock().comparison = comparison;
    }

    /// Returns the next action for CUPTI.
    pub(super) fn next_step(&self, now_ns: u64) -> Step {
        self.inner.lock().comparison.tick(now_ns)
    }

    /// CUPTI has been attached.
    pub(super) fn attached(&self, now_ns: u64) {
        self.inner.lock().comparison.attached(now_ns);
    }

    /// Calls are logged.
    pub(super) fn logging(&self, now_ns: u64) {
        self.inner.lock().comparison.logging(now_ns);
    }

    /// Calls are not logged for one block.
    pub(super) fn silent(&self, now_ns: u64) {
        self.inner.lock().comparison.silent(now_ns);
    }

    /// Ends the comparison: units may be drawn.
    pub(super) fn conclude(&self, now_ns: u64) {
        self.inner.lock().comparison.conclude(now_ns);
    }

    /// Calls are logged. Restarts the comparison with and without logging.
    pub(super) fn compare_again(&self, now_ns: u64) {
        self.inner.lock().comparison.again(now_ns);
    }

    /// Ends the comparison without a result.
    pub(super) fn give_up_comparison(&self, why: &'static str, error: Option<Error>) {
        let mut inner = self.inner.lock();
        inner.comparison.give_up(why);
        inner.last_error = error.or(inner.last_error.take());
    }

    /// Returns whether units are compared, and whether CUPTI was not called yet.
    pub(super) fn is_comparing(&self) -> (bool, bool) {
        let comparison = &self.inner.lock().comparison;
        (comparison.is_comparing(), comparison.is_before())
    }

    /// The costs of CUPTI's first call and of logging calls.
    pub(super) fn costs(&self) -> [TimedCost; 2] {
        let comparison = &self.inner.lock().comparison;
        [comparison.attach_cost(), comparison.logging_cost()]
    }

    /// Returns both costs for the `elapsed_ns` since the last call.
    pub(super) fn take_cost(&self, elapsed_ns: u64) -> Charged {
        self.inner.lock().comparison.take_cost(elapsed_ns as f64)
    }

    /// Counts a window that is open.
    pub(super) fn opened(&self, window: &OpenWindow) {
        let counts = &mut self.inner.lock().counts;
        match window.probability {
            Some(_) => counts.drawn += 1,
            None => counts.after_slow += 1,
        }
    }

    /// Counts a window that could not be opened or closed.
    pub(super) fn refuse(&self, error: Error) {
        let mut inner = self.inner.lock();
        inner.counts.refused += 1;
        inner.last_error = Some(error);
    }

    /// Waits for a window to close. `None` when the session ends.
    pub(super) fn next_to_close(&self) -> Option<Closing> {
        let mut inner = self.inner.lock();
        loop {
            if inner.is_over {
                return None;
            }
            if let Phase::Waiting(closing) = inner.phase {
                inner.phase = Phase::Closing;
                return Some(closing);
            }
            self.changed.wait(&mut inner);
        }
    }

    /// The window is closed: units may begin.
    pub(super) fn closed(&self) {
        self.inner.lock().phase = Phase::Idle;
    }

    /// Ends the thread that closes windows, and rejects further units.
    pub(super) fn end(&self) {
        self.inner.lock().is_over = true;
        self.changed.notify_all();
    }

    pub(super) fn counts(&self) -> (UnitCounts, Option<Error>) {
        let inner = self.inner.lock();
        (inner.counts, inner.last_error.clone())
    }
}

impl Inner {
    fn row(&mut self, name: &str) -> usize {
        if let Some(row) = self.names.get(name) {
            return *row;
        }
        // The last row is shared by all further names.
        let row = self.names.len().min(MOST_NAMES);
        if row < MOST_NAMES {
            self.names.insert(name.to_owned(), row);
        }
        self.means.resize(self.means.len().max(row + 1), Mean::default());
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_uniform() {
        let mut state = 1;
        let draws: Vec<f64> = (0..100_000).map(|_| draw(&mut state)).collect();
        assert!(draws.iter().all(|draw| (0.0..1.0).contains(draw)));
        for share in [0.01, 0.1, 0.5, 0.9] {
            let below = draws.iter().filter(|draw| **draw < share).count() as f64 / 1e5;
            assert!((below - share).abs() < 0.005, "{share}: {below}");
        }
    }

    #[test]
    fn one_unit_is_open_at_a_time_and_names_are_bounded() {
        let units = Units::default();
        let begin = |name: &str| units.begin(name, |_, _, _| None);
        let first = begin("first").unwrap();
        assert!(begin("second").is_none());
        units.end_unit(&first, 10, Some(Duration::from_nanos(9)));
        for number in 0..1_000 {
            let unit = begin(&number.to_string()).unwrap();
            units.end_unit(&unit, 5, None);
        }
        let (counts, error) = units.counts();
        assert_eq!((counts.units, counts.overlapping, counts.slow), (1_001, 1, 1));
        assert!(error.is_none());
        assert_eq!(units.inner.lock().means.len(), MOST_NAMES + 1);
    }
}
