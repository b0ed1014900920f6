//! The open units, and the window that records those that were drawn.

use std::time::Duration;

use cupti::clock::now_ns;
use parking_lot::{Condvar, Mutex, MutexGuard};
use profiler_base::split_mix;

use super::controller::Controller;
use super::report::UnitCounts;
use crate::error::Error;

/// A unit that has begun.
#[derive(Debug)]
pub(super) struct Begun {
    start_ns: u64,
    /// The row of its name.
    name: usize,
    /// The probability with which it was drawn; 0 if it could not be drawn.
    probability: f64,
    pub(super) recorded: Option<Recorded>,
    /// The number of windows that had begun or were open when the unit began.
    windows: u64,
}

/// The reason why a unit is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recorded {
    /// It was drawn at random.
    Drawn,
    /// The unit before it was slow. It is excluded from estimates.
    AfterSlow,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    /// CUPTI is being turned on.
    Opening,
    Open,
    /// The window waits for its end.
    Waiting,
    /// CUPTI is being turned off.
    Closing,
}

/// The probability that a moment is recorded: that any of the open units is drawn.
#[derive(Debug, Default)]
struct Chance {
    /// Open units that could be drawn, and those of them that were certain to be.
    units: u32,
    certain: u32,
    /// The sum of `-ln(1 - p)` of the others.
    hazard: f64,
    /// Since the first drawn unit began: the time, and the integral of one divided by the chance.
    since_ns: u64,
    changed_ns: u64,
    weight: f64,
}

impl Chance {
    fn now(&self) -> f64 {
        if self.certain > 0 { 1.0 } else { -(-self.hazard).exp_m1() }
    }

    fn advance(&mut self, now_ns: u64) {
        let ns = now_ns.saturating_sub(self.changed_ns) as f64;
        self.changed_ns = self.changed_ns.max(now_ns);
        let chance = self.now();
        if chance > 0.0 {
            self.weight += ns / chance;
        }
    }

    fn change(&mut self, now_ns: u64, probability: f64, begins: bool) {
        self.advance(now_ns);
        if probability <= 0.0 {
            return;
        }
        let (units, certain) = (&mut self.units, &mut self.certain);
        let hazard = if probability < 1.0 { -(-probability).ln_1p() } else { 0.0 };
        let is_certain = u32::from(probability >= 1.0);
        if begins {
            (*units, *certain) = (*units + 1, *certain + is_certain);
            self.hazard += hazard;
        } else {
            (*units, *certain) = (units.saturating_sub(1), certain.saturating_sub(is_certain));
            // Differences leave a residue.
            self.hazard = if self.units == 0 { 0.0 } else { (self.hazard - hazard).max(0.0) };
        }
    }

    fn begin_window(&mut self, now_ns: u64) {
        (self.since_ns, self.changed_ns, self.weight) = (now_ns, now_ns, 0.0);
    }

    /// The harmonic mean of the chance since the window began.
    fn of_window(&mut self, now_ns: u64) -> f64 {
        self.advance(now_ns);
        let ns = now_ns.saturating_sub(self.since_ns) as f64;
        if self.weight > 0.0 && ns > 0.0 { (ns / self.weight).min(1.0) } else { self.now() }
    }
}

#[derive(Debug, Default)]
pub(super) struct Inner {
    phase: Phase,
    is_over: bool,
    pub(super) counts: UnitCounts,
    last_error: Option<Error>,
    is_after_slow: bool,
    random: u64,
    chance: Chance,
    /// Open units that were drawn, and all that are recorded.
    drawn: u32,
    recorded: u32,
    /// Windows so far.
    windows: u64,
    pub(super) controller: Controller,
}

/// The units of a session.
#[derive(Debug, Default)]
pub(super) struct Units {
    inner: Mutex<Inner>,
    changed: Condvar,
}

/// Opens and closes windows.
pub(super) trait Window {
    /// Turns CUPTI on.
    fn open(&self) -> Result<(), Error>;
    /// Ends the recorded time. CUPTI stays on.
    fn end(&self);
    /// The time that estimates use begins, and ends with the probability of its window.
    fn begin_estimate(&self);
    fn end_estimate(&self, probability: f64);
}

/// The next number of the sequence, uniform in [0, 1).
fn draw(state: &mut u64) -> f64 {
    (split_mix::next(state) >> 11) as f64 / (1_u64 << 53) as f64
}

impl Units {
    pub(super) fn new(controller: Controller) -> Self {
        let random = now_ns() ^ (u64::from(std::process::id()) << 32);
        let inner = Inner { controller, random, ..Inner::default() };
        Self { inner: Mutex::new(inner), changed: Condvar::new() }
    }

    /// Begins a unit, and opens a window if the unit is drawn and none is open. No unit is drawn
    /// while a window opens or closes, nor while graphs are made: `are_graphs_quiet` is false then,
    /// and `None` if units are never drawn.
    pub(super) fn begin(
        &self,
        name: &str,
        are_graphs_quiet: Option<bool>,
        window: &impl Window,
    ) -> Option<Begun> {
        let mut inner = self.inner.lock();
        if inner.is_over {
            return None;
        }
        inner.counts.units += 1;
        let start_ns = now_ns();
        let name = inner.controller.row(name);
        let wanted = inner.controller.begin(start_ns);
        let is_free = matches!(inner.phase, Phase::Idle | Phase::Open);
        inner.counts.while_graphs_were_made += u64::from(are_graphs_quiet == Some(false));
        inner.counts.while_closing += u64::from(are_graphs_quiet == Some(true) && !is_free);
        let can_be_drawn = are_graphs_quiet == Some(true) && is_free;
        let probability = if can_be_drawn { wanted } else { 0.0 };
        let windows = inner.windows;
        let mut begun = Begun { start_ns, name, probability, recorded: None, windows };
        let is_drawn = probability > 0.0 && draw(&mut inner.random) < probability;
        let follows = inner.is_after_slow && can_be_drawn && inner.controller.may_open();
        inner.chance.change(start_ns, probability, true);
        let why = match (is_drawn, follows) {
            (true, _) => Recorded::Drawn,
            (false, true) => Recorded::AfterSlow,
            (false, false) => return Some(begun),
        };
        inner.is_after_slow = false;
        if self.join_window(inner, why, window) {
            begun.recorded = Some(why);
        }
        Some(begun)
    }

    /// Makes the unit part of the open window, or opens one. False if it could not be opened.
    fn join_window<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        why: Recorded,
        window: &impl Window,
    ) -> bool {
        if inner.phase == Phase::Idle {
            inner.phase = Phase::Opening;
            inner.windows += 1;
            // Other units begin meanwhile.
            drop(inner);
            let opened = window.open();
            inner = self.inner.lock();
            if let Err(error) = opened {
                inner.phase = Phase::Idle;
                inner.windows += 1;
                inner.counts.refused += 1;
                inner.last_error = Some(error);
                return false;
            }
            inner.phase = Phase::Open;
        }
        inner.recorded += 1;
        match why {
            Recorded::AfterSlow => inner.counts.after_slow += 1,
            Recorded::Drawn => {
                inner.counts.drawn += 1;
                inner.drawn += 1;
                if inner.drawn == 1 {
                    inner.chance.begin_window(now_ns());
                    window.begin_estimate();
                }
            }
        }
        true
    }

    /// Ends a unit, and the window with the last one that is recorded.
    pub(super) fn end(&self, begun: &Begun, slow: Option<Duration>, window: &impl Window) {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let now_ns = now_ns();
        let is_drawn = begun.recorded == Some(Recorded::Drawn);
        if is_drawn {
            inner.drawn = inner.drawn.saturating_sub(1);
            if inner.drawn == 0 {
                window.end_estimate(inner.chance.of_window(now_ns));
            }
        }
        inner.chance.change(now_ns, begun.probability, false);
        let ns = now_ns.saturating_sub(begun.start_ns);
        let overlaps = begun.windows % 2 == 1 || inner.windows != begun.windows;
        inner.controller.end(begun.name, ns, overlaps);
        if is_drawn {
            inner.controller.drawn();
        }
        if slow.is_some_and(|slow| u128::from(ns) > slow.as_nanos()) {
            inner.counts.slow += 1;
            inner.is_after_slow = true;
        }
        if begun.recorded.is_some() {
            inner.recorded = inner.recorded.saturating_sub(1);
            if inner.recorded == 0 {
                window.end();
                inner.phase = Phase::Waiting;
                self.changed.notify_all();
            }
        }
    }

    /// Waits for a window to close. False when the session ends.
    pub(super) fn next_to_close(&self) -> bool {
        let mut inner = self.inner.lock();
        loop {
            if inner.is_over {
                return false;
            }
            if inner.phase == Phase::Waiting {
                inner.phase = Phase::Closing;
                return true;
            }
            self.changed.wait(&mut inner);
        }
    }

    /// The window is closed: another one may open.
    pub(super) fn closed(&self, outcome: Result<(), Error>) {
        let mut inner = self.inner.lock();
        inner.phase = Phase::Idle;
        inner.windows += 1;
        if let Err(error) = outcome {
            inner.counts.refused += 1;
            inner.last_error = Some(error);
        }
    }

    /// Ends the thread that closes windows, and rejects further units.
    pub(super) fn finish(&self) {
        self.inner.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Runs this on the state.
    pub(super) fn read<R>(&self, read: impl FnOnce(&Inner) -> R) -> R {
        read(&self.inner.lock())
    }
}

impl Inner {
    pub(super) fn last_error(&self) -> Option<Error> {
        self.last_error.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

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

    /// Counts windows, and holds the probabilities of their estimates.
    #[derive(Default)]
    struct Counted(RefCell<(u32, u32, Vec<f64>)>);

    impl Window for Counted {
        fn open(&self) -> Result<(), Error> {
            self.0.borrow_mut().0 += 1;
            Ok(())
        }
        fn end(&self) {
            self.0.borrow_mut().1 += 1;
        }
        fn begin_estimate(&self) {}
        fn end_estimate(&self, probability: f64) {
            self.0.borrow_mut().2.push(probability);
        }
    }

    #[test]
    fn drawn_units_that_overlap_share_a_window_until_the_last_ends() {
        let (units, window) = (Units::new(Controller::new(1.0, 1.0)), Counted::default());
        let begin = || units.begin("request", Some(true), &window).unwrap();
        let (first, second) = (begin(), begin());
        units.end(&first, None, &window);
        assert_eq!(*window.0.borrow(), (1, 0, Vec::new()));
        let third = begin();
        units.end(&second, None, &window);
        units.end(&third, None, &window);
        assert_eq!(*window.0.borrow(), (1, 1, vec![1.0]));
        // Nothing is drawn until the window is closed.
        let fourth = begin();
        assert!(fourth.recorded.is_none() && units.next_to_close());
        units.closed(Ok(()));
        units.end(&fourth, None, &window);
        assert_eq!(units.read(|inner| (inner.counts.drawn, inner.counts.while_closing)), (3, 1));
        units.end(&begin(), None, &window);
        assert_eq!(window.0.borrow().0, 2);
    }

    /// Units of three workers that overlap at random: windows, weighted by their chance, add up to the whole time.
    #[test]
    fn chances_of_windows_weight_them_to_the_whole() {
        let mut random = fastrand::Rng::with_seed(5);
        let probability = 0.05;
        let mut estimates = Vec::new();
        for _ in 0..40 {
            let (mut chance, mut open) = (Chance::default(), Vec::<(u64, bool)>::new());
            let (mut now_ns, mut drawn, mut covered_ns, mut estimated_ns) = (0_u64, 0, 0_u64, 0.0);
            while now_ns < 5_000_000 {
                let next_end = open.iter().map(|(end, _)| *end).min().unwrap_or(u64::MAX);
                let next_begin = now_ns + random.u64(1..200);
                let (before_ns, is_covered) = (now_ns, !open.is_empty());
                if next_end <= next_begin {
                    now_ns = next_end;
                    let place = open.iter().position(|(end, _)| *end == next_end).unwrap();
                    let (_, was_drawn) = open.swap_remove(place);
                    if was_drawn {
                        drawn -= 1;
                        if drawn == 0 {
                            let since_ns = chance.since_ns;
                            let of_window = chance.of_window(now_ns);
                            estimated_ns += (now_ns - since_ns) as f64 / of_window;
                        }
                    }
                    chance.change(now_ns, probability, false);
                } else if open.len() < 3 {
                    now_ns = next_begin;
                    let is_drawn = random.f64() < probability;
                    open.push((now_ns + random.u64(50..1_000), is_drawn));
                    chance.change(now_ns, probability, true);
                    if is_drawn {
                        drawn += 1;
                        if drawn == 1 {
                            chance.begin_window(now_ns);
                        }
                    }
                } else {
                    now_ns = next_begin;
                }
                covered_ns += if is_covered { now_ns - before_ns } else { 0 };
            }
            estimates.push(estimated_ns / covered_ns as f64);
        }
        let mean = estimates.iter().sum::<f64>() / estimates.len() as f64;
        println!("estimated by covered time: {mean:.4}");
        assert!((mean - 1.0).abs() < 0.05, "{mean}");
    }
}
