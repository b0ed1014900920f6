//! Baselines: reviewed counts and times, and gates that compare new runs. [`Gate`] has an example.

mod baseline;
mod patterns;
mod plan;
mod run;
#[cfg(test)]
mod tests;
mod verdict;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use profiler_base::hodges_lehmann::{MOST, Ranks};
use profiler_base::kernel_names::Pattern;
use profiler_base::setters;

use crate::check::device_of;
use crate::error::{Error, Kind};
use baseline::{Entry, File, Key, Stored, UPDATE};
use plan::{Found, Plan};
use profiler_core::profile::Profile;
use profiler_core::profile::Profiles;
use profiler_core::testing::Clocks;
use run::Run;
pub use verdict::{CountChange, CountOutcome, GateVerdict, Outcome, TimeChange, TimeKind};

/// The variable that switches to writing baselines: `GPU_BASELINES=update`.
const VARIABLE: &str = "GPU_BASELINES";

/// Compares runs with a baseline file, which works like a snapshot. `GPU_BASELINES=update` in the
/// environment writes the file, a review accepts it into version control, and later runs read it.
///
/// ```no_run
/// use profiler_analysis::prelude::*;
/// use profiler_core::gpu_test;
/// use profiler_analysis::gate::Gate;
///
/// # fn forward() {}
/// #[test]
/// # fn hidden() {}
/// fn forward_is_no_slower() {
///     let Some(test) = gpu_test() else { return };
///     test.warm_up(3).baseline("baselines/forward.json").run(|| forward());
/// }
/// ```
///
/// # What is compared
/// The wall time is compared first. A gate fails if the wall time of a run certainly grew by more
/// than the [wall effect](Self::wall_effect), and reports the range and the cause. An optimisation
/// never fails: if the wall time certainly fell by more than 1 %, any other growth is a
/// [trade](Outcome::Trade), which passes.
///
/// Counts are launches, kernels, copies, bytes, memsets, waits and allocations of each range. A
/// count that grew fails, unless its work moved from another range. This includes counts of a
/// kernel by name and shape (grid and block). A count that fell, or has no cost, is reported. If a
/// count varied in the baseline, it may have any value within that range. [`strict`](Self::strict)
/// gates fail on any difference.
///
/// Ranges whose names differ only in [running
/// numbers](crate::prelude::ProfileExt::with_grouped_numbers) are one range, whose key in the file
/// is the pattern: `step *`. A number that occurs once in a run and in one range is running if it
/// has many values.
///
/// Runs must do the same work. A gate is undecided, and fails, in these cases
/// ([`GateVerdict::undecidable`]):
/// - An outermost range with GPU work was entered more or less often, or is missing.
/// - An outermost range has GPU work in fewer entries.
/// - A GPU has no work.
///
/// A gate returns an error if nothing ran on the GPU on one side. It also returns one if runs and
/// baseline have neither a range nor a kernel in common.
///
/// Other times are the host time and busy time of every range, the sum of its kernels, and each
/// kernel (the midmean of a run). The factor of a change is the median of all ratios, with bounds
/// by ranks ([`TimeChange`]), which assume nothing about the distribution of times. A time
/// - passes if it certainly grew by less than the [minimum effect](Self::minimum_effect),
/// - fails if it certainly grew by more,
/// - and is otherwise tested again after more [runs](Self::runs).
///
/// A time that is undecided at the last look fails, except the host time and busy time of a range.
/// These two vary most, and explain the wall time. Both also have to grow by 1 % of the wall time.
///
/// # Error rates
/// With an [error rate](Self::error_rate) of 1 % and three looks:
/// - A kernel that is slower by the minimum effect or more passes in at most 1 % of all gates. The
///   rate is divided among the looks, so the union bound holds for any dependence between them.
/// - If nothing is slower by the minimum effect or more, any time is reported as slower in at most
///   1 % of all gates. Half of this rate is for the wall time, half is divided among the other
///   times.
/// - The rate of *undecided* gates without a slowdown depends on noise and budget, without a bound.
///
/// Runs are assumed to be independent, and the process of the baseline to be typical. If times
/// differ between processes, for example by memory placement, both bounds shift by that difference.
///
/// Gates were replayed on H200 measurements of 20 processes, which differ by up to 0.6 %. Of 1,000
/// gates without a change none failed within 8 runs. Each of 600 gates on a kernel with 5 % more
/// work failed. Of the kernels of 3 us to 530 us, the noisiest varies by 0.7 % from run to run
/// (median absolute deviation). Because of it, 7 % of the gates with an effect of 2 % cannot decide
/// within 8 runs, and none within 24.
///
/// # Machines
/// A file has an entry for each GPU, driver, clock limit (if NVML reports it) and build. A gate
/// compares with its own entry; without one it returns an error that lists the entries.
///
/// With the feature `nvml`, throttled runs are discarded and repeated. A run is throttled if NVML
/// reports it just before or after the run, or if [NVML samples](profiler_core::Sampling::nvml)
/// report it while operations ran. Throttling within a run without samples is not detected. Without
/// the feature, or if NVML is unavailable, the verdict states that clocks were not observed.
#[derive(Debug, Clone)]
#[must_use = "a gate judges nothing until it is given runs"]
pub struct Gate {
    path: PathBuf,
    plan: Plan,
    build: String,
    ignored: Vec<Pattern>,
    update: Option<bool>,
}

impl Gate {
    /// Creates a gate with the baseline of this file. In tests a path is relative to the package's
    /// folder.
    pub fn new(path: impl AsRef<Path>) -> Self {
        let plan = Plan {
            looks: vec![10, 20, 40],
            error: 0.01,
            effect: 0.03,
            least_ns: 100.0,
            wall_effect: 0.05,
            is_strict: false,
            any_work: false,
        };
        let build = if cfg!(debug_assertions) { "debug" } else { "release" };
        Self {
            path: path.as_ref().to_owned(),
            plan,
            build: build.to_owned(),
            ignored: Vec::new(),
            update: None,
        }
    }

    /// Sets the runs before the first look and the maximum of runs: 10 and 40 by default, at most
    /// 64 runs. The number doubles between looks. The maximum of runs is used to write a baseline.
    pub fn runs(mut self, first: u32, most: u32) -> Self {
        let most = most.clamp(1, MOST as u32);
        let first = first.clamp(1, most);
        let doubled = std::iter::successors(Some(first), |runs| Some(runs * 2));
        self.plan.looks = doubled.take_while(|runs| *runs < most).chain([most]).collect();
        self
    }

    setters! {
        /// Sets the relative growth from which a time on the GPU is slower; 0.03 (3 %) by default.
        /// A time also has to grow by 100 ns, which is three ticks of the GPU's clock.
        // With NaN everything would pass.
        minimum_effect(part: f64) plan.effect = if part.is_finite() { part.max(0.0) } else { 0.0 };
        /// Sets the relative growth from which a wall time or a host time is slower; 0.05 (5 %) by
        /// default. The time also has to grow by 20 us, the variation of a session's own start and
        /// stop.
        wall_effect(part: f64) plan.wall_effect = if part.is_finite() { part.max(0.0) } else { 0.0 };
        /// Sets if every differing count fails, also one that fell. More GPU time or more calls
        /// then fail even if the wall time fell.
        strict(is_strict: bool) plan.is_strict = is_strict;
        /// Sets if outermost ranges may be entered more or less often than in the baseline.
        any_work(any_work: bool) plan.any_work = any_work;
        /// Sets the rate of each of the two errors in [`Gate`]; 0.01 by default, at most 0.5.
        error_rate(part: f64) plan.error = if part.is_finite() { part.clamp(0.0, 0.5) } else { 0.0 };
        /// Excludes the times of these kernels and ranges. The pattern is a name or path of the
        /// file, or a [kind of time](TimeKind) such as `wall time`, with `*` for any text.
        ignore_times(pattern: &str) ignored += Pattern::new(pattern);
        /// Sets if the baseline is written instead of compared; by default `GPU_BASELINES` decides.
        update(is_wanted: bool) update = Some(is_wanted);
        /// Sets the name of the build in the file; by default `debug` or `release`, from the build
        /// of this crate.
        build(name: &str) build = name.to_owned();
    }

    /// Makes runs with `next` until everything is decided or the budget is used up.
    ///
    /// # Errors
    /// - `next` returns an error.
    /// - A run lost records or is from another machine.
    /// - The GPU is throttled in too many runs.
    /// - The baseline is missing, or cannot be read or written.
    pub fn run<E>(&self, mut next: impl FnMut() -> Result<Profile, E>) -> Result<GateVerdict, Error>
    where
        Error: From<E>,
    {
        let mut clocks: Option<Clocks> = None;
        let sample = || {
            let throttled = clocks.as_mut().and_then(Clocks::throttled);
            let profile = next()?;
            let clocks = clocks
                .get_or_insert_with(|| Clocks::open(profile.recording_info(), device_of(&profile)));
            let throttled = throttled.or_else(|| clocks.throttled()).or(throttled_in(&profile));
            let unwatched = clocks.unknown().map(str::to_owned);
            Ok(Sample { throttled, unwatched, ..self.sample(&profile, clocks.limits())? })
        };
        self.decide(&self.plan, sample)
    }

    /// Judges recorded runs in one look, at most 64 of them. Their clocks are unknown.
    ///
    /// # Errors
    /// The errors of [`run`](Self::run); also without any profile.
    pub fn judge<P: Profiles + ?Sized>(&self, runs: &P) -> Result<GateVerdict, Error> {
        let profiles = runs.profiles();
        if profiles.is_empty() {
            return Err(error("there is no run to judge: give at least one profile".to_owned()));
        }
        let mut left = profiles.iter();
        let looks = vec![profiles.len().min(MOST) as u32];
        let mut verdict = self.decide(&Plan { looks, ..self.plan.clone() }, || {
            // `decide` uses exactly as many runs as the look has.
            let profile = left.next().unwrap_or(&profiles[0]);
            self.sample(profile, None)
        })?;
        if profiles.len() > MOST {
            verdict
                .notes
                .push(format!("of {} runs the first {MOST} were analysed", profiles.len()));
        }
        Ok(verdict)
    }

    fn sample(&self, profile: &Profile, clocks: Option<String>) -> Result<Sample, Error> {
        let run = Run::from_profile(profile).map_err(|why| {
            error(format!(
                "a run cannot be compared with {}: {why}; missing data would count as removed",
                self.path.display()
            ))
        })?;
        let info = profile.recording_info();
        let key = Key::new(info, device_of(profile), clocks, &self.build);
        let recorded = info.date().unwrap_or_default();
        Ok(Sample { key, recorded, run, throttled: None, unwatched: None })
    }

    fn is_update(&self) -> Result<bool, Error> {
        if let Some(update) = self.update {
            return Ok(update);
        }
        match std::env::var_os(VARIABLE) {
            None => Ok(false),
            Some(value) if value.is_empty() || value == "check" => Ok(false),
            Some(value) if value == "update" => Ok(true),
            Some(value) => Err(error(format!(
                "{VARIABLE} is {value:?}, which means nothing: it may be `update`, to write baselines anew, or `check`"
            ))),
        }
    }

    fn decide(
        &self,
        plan: &Plan,
        mut next: impl FnMut() -> Result<Sample, Error>,
    ) -> Result<GateVerdict, Error> {
        let is_update = self.is_update()?;
        let stored = File::read(&self.path)?;
        let mut notes: Vec<String> = Vec::new();
        let file = match stored {
            Stored::Current(file) => Some(file),
            Stored::Missing => None,
            Stored::Older(format) if is_update => {
                notes.push(format!(
                    "the file was of an older version, {format}: its data of other machines and builds was dropped"
                ));
                None
            }
            Stored::Older(format) => {
                return Err(error(format!(
                    "the baseline {} is of an older version, {format}, and has no wall times: write it anew with {UPDATE}, \
                     review it, and keep it in version control",
                    self.path.display()
                )));
            }
        };
        let most = plan.looks.last().copied().unwrap_or(1) as usize;
        let first = next()?;
        let before = match is_update {
            true => None,
            false => Some(self.entry(file.as_ref(), &first.key)?),
        };
        let (key, recorded) = (first.key.clone(), first.recorded.clone());
        let mut aside = 0;
        let mut made = Some(first);
        let mut runs: Vec<Run> = Vec::new();
        let mut found = Found::default();
        let mut after = None;
        let mut ranks = Ranks::default();
        for &look in &plan.looks {
            while runs.len() < look as usize {
                let sample = match made.take() {
                    Some(sample) => sample,
                    None => next()?,
                };
                if sample.key != key {
                    return Err(error(format!(
                        "the runs are not of one machine: {key}; and {}",
                        sample.key
                    )));
                }
                // Clocks may become unknown at any run.
                notes.extend(sample.unwatched.filter(|why| !notes.contains(why)));
                match sample.throttled {
                    None => runs.push(sample.run),
                    Some(why) => {
                        aside += 1;
                        if aside > most {
                            return Err(error(format!(
                                "the GPU was throttled in {aside} of {} runs, last by {why}: times are not \
                                 representative; let it cool, give it power, or fix its clocks lower",
                                runs.len() + aside
                            )));
                        }
                    }
                }
            }
            let Some(before) = before else { continue };
            let now = Entry::new(key.clone(), recorded.clone(), &runs);
            let [then, now] = patterns::matched(before, &now).map(Cow::into_owned);
            self.check_program(&then, &now)?;
            found = plan.look(&then, &now, &found, &self.ignored, &mut ranks);
            after = Some(now);
            if found.is_decided() {
                break;
            }
        }
        if aside != 0 {
            notes.push(format!("{aside} runs were set aside, because the GPU was throttled"));
        }
        if let (Some(before), Some(after)) = (before, &after) {
            notes.extend(found.notes(before, after));
        }
        let of_baseline = before.map_or(runs.len(), |before| before.runs as usize);
        let is_open = found.times.iter().any(|time| time.outcome == Outcome::Undecided);
        let too_few =
            (is_update || is_open).then(|| plan.too_few(of_baseline, &mut ranks)).flatten();
        notes.extend(too_few.clone());
        let is_judged = is_open && !found.is_worse() && found.undecidable.is_none();
        let runs_needed =
            is_judged.then(|| plan.runs_needed(&found.times, of_baseline, &mut ranks)).flatten();
        let verdict = GateVerdict {
            baseline: self.path.display().to_string(),
            machine: key.to_string(),
            is_written: is_update,
            runs: runs.len() as u64,
            most_runs: most as u64,
            error_rate: plan.error,
            minimum_effect: plan.effect,
            wall_effect: plan.wall_effect,
            counts: found.counts,
            times: found.times,
            wall: found.wall,
            undecidable: found.undecidable,
            runs_needed,
            notes,
            too_few,
        };
        if is_update {
            let mut file = file.unwrap_or_default();
            file.put(Entry::new(key, recorded, &runs));
            file.write(&self.path)?;
        }
        Ok(verdict)
    }

    fn entry<'f>(&self, file: Option<&'f File>, key: &Key) -> Result<&'f Entry, Error> {
        let path = self.path.display();
        let Some(file) = file else {
            return Err(error(format!(
                "there is no baseline {path}: write it with {UPDATE}, review it, and keep it in version control"
            )));
        };
        file.entry(key).ok_or_else(|| {
            let known: Vec<String> = file.keys().map(ToString::to_string).collect();
            error(format!(
                "the baseline {path} has nothing of {key}; it has: {}; times of other devices, drivers, clocks and builds \
                 cannot be compared: add this one with {UPDATE}",
                known.join("; ")
            ))
        })
    }

    /// Rejects runs of another program, and runs whose wall time measures something else.
    fn check_program(&self, before: &Entry, after: &Entry) -> Result<(), Error> {
        let path = self.path.display();
        let why = if before.has_gpu_work() && !after.has_gpu_work() {
            "nothing ran on the GPU in the runs, unlike in the baseline: check that the program used it"
        } else if !before.has_gpu_work() && after.has_gpu_work() {
            "something ran on the GPU in the runs, unlike in the baseline: rewrite it from recorded runs"
        } else if !before.work().has_common(&after.work()) {
            "the runs have no range and no kernel in common with the baseline: they are of another program"
        } else if before.is_session != after.is_session && before.wall_time.is_some() {
            "either the runs or those of the baseline are captures, which have no session's wall time: use one kind"
        } else {
            return Ok(());
        };
        Err(error(format!("the baseline {path} is not for these runs: {why}")))
    }
}

impl<P: AsRef<Path>> From<P> for Gate {
    fn from(path: P) -> Self {
        Self::new(path)
    }
}

/// A run with its key and throttling.
#[derive(Debug)]
struct Sample {
    key: Key,
    recorded: String,
    run: Run,
    throttled: Option<&'static str>,
    /// The reason why clocks are unknown.
    unwatched: Option<String>,
}

/// The reason for lowered clocks while operations ran, if NVML was sampled.
fn throttled_in(profile: &Profile) -> Option<&'static str> {
    let clocks = profile.device_clocks();
    let (by, _) = clocks.iter().find(|clocks| clocks.is_throttled())?.slowed_by().next()?;
    Some(by)
}

fn error(what: String) -> Error {
    Error::new(Kind::Baseline(what))
}
