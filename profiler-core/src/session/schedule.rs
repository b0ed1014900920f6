//! Schedules profile some steps of a long run in cycles of waiting, warm-up and active steps.

use profiler_base::setters;

use crate::error::Error;
use crate::profile::Profile;
use crate::session::profiler::Profiler;

/// The steps to profile, in the terms of `torch.profiler.schedule`: skipped steps, then cycles of
/// waiting, warm-up and active steps.
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
    /// Every step is active and has its own profile, without end.
    pub const fn new() -> Self {
        Self { skip_first: 0, wait: 0, warmup: 0, active: 1, repeat: 0 }
    }

    setters! {
        /// The steps at the beginning that are not collected.
        skip_first(steps: u64) skip_first = steps;
        /// The steps of each cycle that are not collected.
        wait(steps: u64) wait = steps;
        /// The steps of each cycle that are collected and discarded; they absorb the cost of
        /// starting.
        warmup(steps: u64) warmup = steps;
        /// The steps of each cycle that are in its profile, at least one.
        active(steps: u64) active = steps;
        /// The number of cycles; 0 is unlimited.
        repeat(cycles: u64) repeat = cycles;
    }

    /// Steps of a cycle.
    fn cycle(&self) -> u64 {
        self.wait.saturating_add(self.warmup).saturating_add(self.active)
    }

    /// The action of a step, counted from 0.
    pub fn action(&self, step: u64) -> StepAction {
        match self.position(step) {
            None if step >= self.skip_first => StepAction::Over,
            Some(place) if place >= self.wait.saturating_add(self.warmup) => StepAction::Active,
            Some(place) if place >= self.wait => StepAction::WarmUp,
            _ => StepAction::Wait,
        }
    }

    /// The position of a step in its cycle, if it is in one.
    fn position(&self, step: u64) -> Option<u64> {
        let (step, cycle) = (step.checked_sub(self.skip_first)?, self.cycle());
        let is_over = cycle == 0 || self.repeat != 0 && step / cycle >= self.repeat;
        (!is_over).then(|| step % cycle)
    }
}

impl Default for Schedule {
    fn default() -> Self {
        Self::new()
    }
}

/// The action of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StepAction {
    /// Nothing is collected.
    Wait,
    /// The step is collected and discarded.
    WarmUp,
    /// The step is in the profile.
    Active,
    /// The schedule has ended.
    Over,
}

/// A run with a schedule, from [`Profiler::schedule`].
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
/// Waiting steps cost nothing. A session starts before each warm-up, in milliseconds, and stops
/// after the active steps, where [`step`](Self::step) waits for the GPU. Work belongs to the step
/// of its call, even if it finishes later. Dropping the schedule, as a panic does, discards the
/// current cycle.
#[derive(Debug)]
#[must_use = "call `step` at the end of each step"]
pub struct Scheduled {
    profiler: Profiler,
    schedule: Schedule,
    step: u64,
    /// The error of starting this cycle, if the last step returned a profile.
    failed: Option<Error>,
}

impl Profiler {
    /// Profiles some steps of a run in separate sessions with this profiler's settings.
    ///
    /// # Errors
    /// The schedule has no active steps; same as [`start`](Self::start) if the first step is
    /// collected.
    pub fn schedule(&self, schedule: Schedule) -> Result<Scheduled, Error> {
        if schedule.active == 0 {
            return Err(Error::other(
                "the schedule has no active step and would never give a profile: set at least one with active(1)",
            ));
        }
        let steps = Scheduled { profiler: self.another(), schedule, step: 0, failed: None };
        steps.enter()?;
        Ok(steps)
    }
}

impl Scheduled {
    /// Ends a step, and returns the profile after the last active step of a cycle. End the step's
    /// ranges first; an open range continues in the next step and is open in the profile.
    ///
    /// # Errors
    /// Same as [`Profiler::stop`] and [`Profiler::start`]. The step counts, its cycle has no
    /// profile, and the next cycle is tried. If a step returns a profile but cannot start the next
    /// cycle, the next step returns the error.
    pub fn step(&mut self) -> Result<Option<Profile>, Error> {
        let is_last = self.schedule.position(self.step) == Some(self.schedule.cycle() - 1);
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

    /// Starts the session if the current step is the first one of a warm-up or active part.
    fn enter(&self) -> Result<(), Error> {
        let Schedule { wait, warmup, .. } = self.schedule;
        let position = self.schedule.position(self.step);
        if position == Some(wait) {
            self.profiler.start()
        } else if position == Some(wait.saturating_add(warmup)) && self.profiler.is_running() {
            self.profiler.restart().inspect_err(|_| drop(self.profiler.stop_recording()))
        } else {
            Ok(())
        }
    }

    /// Runs a step in a [`range`](Self::range), and ends it.
    ///
    /// # Errors
    /// Same as [`step`](Self::step), after `f` has run.
    pub fn run<R>(&mut self, f: impl FnOnce() -> R) -> Result<(R, Option<Profile>), Error> {
        let range = self.range();
        let result = f();
        drop(range);
        Ok((result, self.step()?))
    }

    /// Opens a range `step` with the step's number as payload. End it before [`step`](Self::step).
    #[must_use = "the range ends when this is dropped: keep it in a variable, `let _range = ...`"]
    pub fn range(&self) -> nvtx::Range {
        nvtx::event("step").payload(self.step).range()
    }

    /// The number of the current step, from 0.
    pub fn number(&self) -> u64 {
        self.step
    }

    /// The action of the current step.
    pub fn action(&self) -> StepAction {
        self.schedule.action(self.step)
    }

    /// Ends the run; returns the profile of the current cycle's active steps, `None` without any.
    ///
    /// # Errors
    /// Same as [`Profiler::stop`], and as [`Profiler::start`] if the last step could not start the
    /// next cycle.
    pub fn finish(self) -> Result<Option<Profile>, Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let is_active = self.action() == StepAction::Active && self.profiler.is_running();
        if is_active { self.profiler.stop().map(Some) } else { Ok(None) }
    }
}
