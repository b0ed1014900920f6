//! Which steps of a long run are profiled: some are waited for, some warm up, some count, again and again.

use crate::base::error::{Error, Kind};
use crate::profile::Profile;
use crate::session::profiler::Profiler;

/// Which steps are profiled, in the terms of `torch.profiler.schedule`: after some steps that are skipped, cycles of steps
/// that are waited for, that warm up and that are active.
///
/// ```
/// use profiler_core::Schedule;
/// use profiler_core::session::StepAction::*;
///
/// let schedule = Schedule::new().skip_first(1).wait(2).warmup(1).active(2).repeat(1);
/// let actions: Vec<_> = (0..8).map(|step| schedule.action(step)).collect();
/// assert_eq!(actions, [Wait, Wait, Wait, WarmUp, Active, Active, Over, Over]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub struct Schedule {
    skip_first: u64,
    wait: u64,
    warmup: u64,
    active: u64,
    repeat: u64,
}

impl Schedule {
    /// Every step is active and gives a profile of its own, for ever.
    pub const fn new() -> Self {
        Self { skip_first: 0, wait: 0, warmup: 0, active: 1, repeat: 0 }
    }

    /// Steps at the very beginning that are not collected.
    pub const fn skip_first(mut self, steps: u64) -> Self {
        self.skip_first = steps;
        self
    }

    /// Steps of each cycle that are not collected.
    pub const fn wait(mut self, steps: u64) -> Self {
        self.wait = steps;
        self
    }

    /// Steps of each cycle that are collected and thrown away: what it costs to begin falls on them.
    pub const fn warmup(mut self, steps: u64) -> Self {
        self.warmup = steps;
        self
    }

    /// Steps of each cycle that are in its profile: one or more.
    pub const fn active(mut self, steps: u64) -> Self {
        self.active = steps;
        self
    }

    /// Cycles; 0 is for ever.
    pub const fn repeat(mut self, cycles: u64) -> Self {
        self.repeat = cycles;
        self
    }

    /// Steps of a cycle.
    const fn cycle(&self) -> u64 {
        self.wait.saturating_add(self.warmup).saturating_add(self.active)
    }

    /// What is done in a step, counted from 0.
    pub const fn action(&self, step: u64) -> StepAction {
        let Some(step) = step.checked_sub(self.skip_first) else { return StepAction::Wait };
        let cycle = self.cycle();
        if cycle == 0 || self.repeat != 0 && step / cycle >= self.repeat {
            return StepAction::Over;
        }
        let place = step % cycle;
        if place < self.wait {
            StepAction::Wait
        } else if place - self.wait < self.warmup {
            StepAction::WarmUp
        } else {
            StepAction::Active
        }
    }

    /// The place of a step in its cycle, if it is in one.
    const fn place(&self, step: u64) -> Option<u64> {
        match self.action(step) {
            StepAction::Over => None,
            _ => match step.checked_sub(self.skip_first) {
                Some(step) => Some(step % self.cycle()),
                None => None,
            },
        }
    }
}

impl Default for Schedule {
    fn default() -> Self {
        Self::new()
    }
}

/// What is done in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StepAction {
    /// Nothing is collected: no session is on.
    Wait,
    /// It is collected and thrown away.
    WarmUp,
    /// It is in the profile.
    Active,
    /// The schedule is over, and nothing is collected any more.
    Over,
}

/// The steps of a run, of which some are profiled. Made by [`Profiler::schedule`].
///
/// ```no_run
/// use profiler_core::{Profiler, Schedule};
///
/// # fn train() {}
/// # fn main() -> Result<(), profiler_core::Error> {
/// let schedule = Schedule::new().wait(100).warmup(2).active(5);
/// let mut steps = Profiler::builder().build()?.schedule(schedule)?;
/// for _ in 0..10_000 {
///     train();
///     if let Some(profile) = steps.step()? {
///         println!("{profile}"); // every 107 steps, of the last 5
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// A step costs nothing while it waits; a session begins before each warm-up, which takes milliseconds, and ends after each
/// active part, for which [`step`](Self::step) waits for the GPU. Work of a step that is not done at its end counts for
/// that step all the same: a call counts by when it was made. Dropping it, as a panic does, throws away what is collected.
#[derive(Debug)]
#[must_use = "the steps are counted by this: call `step` at the end of each"]
pub struct Scheduled {
    profiler: Profiler,
    schedule: Schedule,
    step: u64,
    /// Why the session of this cycle could not begin, where a profile went before it.
    failed: Option<Error>,
}

impl Profiler {
    /// Profiles some steps of a run, in sessions beside this profiler's own one, with its settings.
    ///
    /// # Errors
    /// A schedule without active steps; as [`start`](Self::start), if the first step is to be collected.
    pub fn schedule(&self, schedule: Schedule) -> Result<Scheduled, Error> {
        if schedule.active == 0 {
            return Err(Error::new(Kind::Schedule));
        }
        let steps = Scheduled { profiler: self.another(), schedule, step: 0, failed: None };
        steps.enter()?;
        Ok(steps)
    }
}

impl Scheduled {
    /// Ends a step, and gives the profile if it was the last active one of its cycle.
    ///
    /// Ranges of the step are to be ended by then; one that is open goes on in the next step, and is open in the profile.
    ///
    /// # Errors
    /// As [`Profiler::stop`] and [`Profiler::start`]. The step is counted all the same, its cycle gives no profile, and the
    /// next cycle is tried again. Where one step gives a profile and cannot begin the next cycle, the step after it says so.
    pub fn step(&mut self) -> Result<Option<Profile>, Error> {
        let is_last = self.schedule.place(self.step) == Some(self.schedule.cycle() - 1);
        self.step += 1;
        let stopped = if is_last && self.profiler.is_running() {
            self.profiler.stop().map(Some)
        } else {
            self.failed.take().map_or(Ok(None), Err)
        };
        match (stopped, self.enter()) {
            (Ok(Some(profile)), entered) => {
                self.failed = entered.err();
                Ok(Some(profile))
            }
            (Ok(None), Ok(())) => Ok(None),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    /// Begins what the present step is the first one of.
    fn enter(&self) -> Result<(), Error> {
        let Schedule { wait, warmup, .. } = self.schedule;
        let place = self.schedule.place(self.step);
        if place == Some(wait) {
            self.profiler.start()
        } else if place == Some(wait.saturating_add(warmup)) && self.profiler.is_running() {
            self.profiler.restart().inspect_err(|_| drop(self.profiler.stop_recording()))
        } else {
            Ok(())
        }
    }

    /// Runs a step in a range `step` whose payload is its number, and ends it.
    ///
    /// # Errors
    /// As [`step`](Self::step), after `f` has run.
    pub fn run<R>(&mut self, f: impl FnOnce() -> R) -> Result<(R, Option<Profile>), Error> {
        let range = self.range();
        let result = f();
        drop(range);
        Ok((result, self.step()?))
    }

    /// A range `step` whose payload is the number of the present step. It is to end before [`step`](Self::step).
    #[must_use = "the range ends when this is dropped: keep it in a variable, `let _range = ...`"]
    pub fn range(&self) -> nvtx::Range {
        nvtx::event("step").payload(self.step).range()
    }

    /// The number of the present step, counted from 0.
    pub fn number(&self) -> u64 {
        self.step
    }

    /// What is done in the present step.
    pub fn action(&self) -> StepAction {
        self.schedule.action(self.step)
    }

    /// Ends the run within a cycle: gives the profile of its active steps so far, the present one among them; `None` if
    /// there is none.
    ///
    /// # Errors
    /// As [`Profiler::stop`]. As [`Profiler::start`], where the last step gave a profile and could not begin the next cycle.
    pub fn finish(self) -> Result<Option<Profile>, Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let is_active = self.action() == StepAction::Active && self.profiler.is_running();
        if is_active { self.profiler.stop().map(Some) } else { Ok(None) }
    }
}
