//! Measures a piece of work, from one kernel of a microsecond to a step: GPU time, latency and host
//! cost, with bounds, warm-up, clocks and the state of the L2 cache.
//!
//! ```no_run
//! use profiler_analysis::prelude::*;
//! use profiler_core::Profiler;
//! use profiler_analysis::Speed;
//! use profiler_analysis::measure::{L2, Measure};
//!
//! # fn forward() {}
//! # fn fused_forward() {}
//! # fn main() -> Result<(), profiler_analysis::Error> {
//! let profiler = Profiler::builder().build()?;
//! let measurement = profiler.measure(|| forward())?;
//! println!("{measurement}"); // a table with the use of each time
//! println!("{:?}", measurement.gpu_time().median());
//!
//! let cold = Measure::new().l2(L2::Cold).precision(0.01);
//! println!("{}", cold.run(&profiler, || forward())?);
//!
//! let pair = Measure::new().run_pair(&profiler, || forward(), || fused_forward())?;
//! println!("{pair}");
//! assert_eq!(pair.gpu_time().speed, Speed::Faster);
//! # Ok(())
//! # }
//! ```
//!
//! A sample is one call of the work, in a range of its own, so that exactly its operations count.
//! The thread submitted them, or another thread that received a
//! [`Context`](profiler_core::Context). The thread waits for its current CUDA context before and
//! after a sample. Samples of about 20 ms are one session, so that its start and stop cost little.

mod measurement;
mod pair;
mod round;
mod steady;
mod timing;

use std::time::{Duration, Instant};

use profiler_base::{named_variants, setters};

use crate::error::Error;
use measurement::Circumstances;
use measurement::Discarded;
pub use measurement::{MeasuredClocks, Measurement, Stop, WarmUp};
pub use pair::{PairMeasurement, Ratio};
use profiler_core::Profiler;
use round::{Round, RoundSource, Rounds, Sample, error, run_sample};
use steady::{AGREEING, State, is_steady};
pub use timing::Timing;

/// A tick of the GPU's clock, as seen in CUPTI's records.
const TICK_NS: f64 = 32.0;
/// The total time of the samples of a session.
const ROUND: Duration = Duration::from_millis(20);
/// The minimum samples of a variant in a session.
const FEWEST: usize = 4;
const MOST: usize = 1000;
/// The minimum samples before precision is judged.
const MIN_SAMPLES: usize = 30;

named_variants! {
    /// The state of the L2 cache before a sample.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
    #[serde(rename_all = "lowercase")]
    #[non_exhaustive]
    pub enum L2 {
        /// As the previous sample left it: data that fit are still cached.
        #[default]
        Warm = "warm, as the sample before left it",
        /// Without data of the work. A buffer of twice the cache's size is filled before each sample,
        /// and the fill is waited for ([`cupti::L2Flush`]). Needs device memory, and 50 us per sample.
        Cold = "cold, overwritten before each sample",
    }
}

/// The settings of a measurement; the [module](self) has an example.
#[derive(Debug, Clone)]
#[must_use = "nothing is measured until `run` is called"]
pub struct Measure {
    l2: L2,
    batch: u32,
    units: u32,
    precision: f64,
    confidence: f64,
    first_calls: u32,
    max_samples: u64,
    max_time: Duration,
    max_warm_up: Duration,
}

impl Default for Measure {
    fn default() -> Self {
        Self::new()
    }
}

impl Measure {
    /// The default settings.
    pub fn new() -> Self {
        Self {
            l2: L2::Warm,
            batch: 1,
            units: 1,
            precision: 0.005,
            confidence: 0.95,
            first_calls: 1,
            max_samples: 20_000,
            max_time: Duration::from_secs(5),
            max_warm_up: Duration::from_secs(2),
        }
    }

    setters! {
        /// Sets the state of the L2 cache before each sample; warm by default. The result contains
        /// it.
        l2(state: L2) l2 = state;
        /// Sets the number of calls of the work in a sample, back to back; 1 by default and at
        /// least. Times are divided by it. A batch hides the launch overhead only if launches are
        /// faster than the work.
        batch(calls: u32) batch = calls.max(1);
        /// Sets the number of equal units in one call of the work, by which times are divided; 1 by
        /// default and at least. For a kernel of a few microseconds, capture a CUDA graph of 100
        /// launches, launch it in the work, and set 100 units. The GPU span of a unit is then the
        /// time of a back-to-back launch.
        units(units: u32) units = units.max(1);
        /// Sets the precision: the share of the median GPU time within which its bounds should be;
        /// 0.005 (0.5 %) by default. A tick of the GPU's clock, 32 ns, also suffices.
        precision(part: f64) precision = if part.is_finite() { part.max(0.0) } else { 0.0 };
        /// Sets the confidence of the bounds; 0.95 by default, from 0.5 to 0.9999. The number of
        /// samples depends on the bounds, so the bounds may miss slightly more often than stated.
        confidence(part: f64) confidence = if part.is_finite() { part.clamp(0.5, 0.9999) } else { 0.95 };
        /// Sets the number of calls of a first, discarded session; 1 by default and at least. The
        /// warm-up follows.
        first_calls(calls: u32) first_calls = calls.max(1);
        /// Sets the maximum number of samples; 20,000 by default. Only whole sessions are made.
        max_samples(samples: u64) max_samples = samples.max(1);
        /// Sets the maximum time of the measurement after the warm-up; 5 s by default. At least one
        /// sample is made.
        max_time(time: Duration) max_time = time;
        /// Sets the maximum time of the warm-up; 2 s by default. It ends early when three sessions
        /// agree.
        max_warm_up(time: Duration) max_warm_up = time;
    }

    /// Measures `work`, which runs some hundred to some thousand times. Its result is dropped after
    /// the sample. A concurrent session of this profiler does not interfere; its samplers are not
    /// used.
    ///
    /// The calling thread waits for its current CUDA context between samples.
    ///
    /// # Errors
    /// The errors of [`Profiler::start`] and [`Profiler::stop`], among them
    /// [`is_busy`](Error::is_busy) under another profiler. Also if the work submitted no GPU
    /// operation, if records were lost, or if the driver refused a wait or the flush of the L2
    /// cache. The driver refuses without a current context, or after an error of the work.
    ///
    /// # Panics
    /// If `work` panics. The session is then discarded.
    pub fn run<R>(
        &self,
        profiler: &Profiler,
        mut work: impl FnMut() -> R,
    ) -> Result<Measurement, Error> {
        let mut sample = || run_sample(0, self.batch, &mut work);
        let mut rounds = Rounds::new(profiler.unbounded(), vec![&mut sample]);
        Ok(self.measured(&mut rounds)?.measurement(self, 0))
    }

    /// Measures two variants, alternating in the order a, b, b, a within each session. See
    /// [`PairMeasurement`].
    ///
    /// # Errors
    /// The errors of [`run`](Self::run).
    ///
    /// # Panics
    /// If a variant panics. The session is then discarded.
    pub fn run_pair<A, B>(
        &self,
        profiler: &Profiler,
        mut a: impl FnMut() -> A,
        mut b: impl FnMut() -> B,
    ) -> Result<PairMeasurement, Error> {
        let mut of_a = || run_sample(0, self.batch, &mut a);
        let mut of_b = || run_sample(1, self.batch, &mut b);
        let mut rounds = Rounds::new(profiler.unbounded(), vec![&mut of_a, &mut of_b]);
        Ok(self.measured(&mut rounds)?.pair(self))
    }

    fn measured(&self, rounds: &mut dyn RoundSource) -> Result<Run, Error> {
        let (warm_up, per_group) = self.warm_up(rounds)?;
        self.samples(rounds, warm_up, per_group)
    }

    /// Runs until steady. Also returns the time of a group of samples.
    fn warm_up(&self, rounds: &mut dyn RoundSource) -> Result<(WarmUp, Duration), Error> {
        let began = Instant::now();
        let deadline = began + self.max_warm_up;
        let first = rounds.run(self.first_calls as usize, None)?;
        if self.l2 == L2::Cold {
            // The work may just have made its context current.
            rounds.make_cold()?;
        }
        let mut samples = first.samples.len() as u64;
        let mut per_group = first.wall / self.first_calls;
        let mut states = Vec::new();
        let mut is_warm = false;
        while !is_warm && (states.is_empty() || Instant::now() < deadline) {
            let groups = groups(per_group, rounds.group());
            let round = checked(rounds.run(groups, Some(deadline))?)?;
            per_group = round.wall / (round.samples.len() / rounds.group()).max(1) as u32;
            samples += round.samples.len() as u64;
            states.push(State::from_round(&round, rounds.variants()));
            is_warm = is_steady(&states);
        }
        let time = Duration::from_millis(began.elapsed().as_millis() as u64);
        Ok((WarmUp { samples, time, is_steady: is_warm }, per_group))
    }

    fn samples(
        &self,
        rounds: &mut dyn RoundSource,
        warm_up: WarmUp,
        mut per_group: Duration,
    ) -> Result<Run, Error> {
        let deadline = Instant::now() + self.max_time;
        let mut made = 0;
        // Rounds with a throttled GPU are collected separately, in case there are no others.
        let (mut usual, mut throttled) = (Vec::new(), Vec::new());
        let stop = loop {
            let groups = groups(per_group, rounds.group());
            let round = checked(rounds.run(groups, Some(deadline))?)?;
            per_group = round.wall / (round.samples.len() / rounds.group()).max(1) as u32;
            made += round.samples.len() as u64;
            let of_state = if round.throttled.is_none() { &mut usual } else { &mut throttled };
            of_state.push(round);
            let chosen = if prefers_usual(&usual, &throttled) { &usual } else { &throttled };
            if self.is_precise(chosen, rounds.variants()) {
                break Stop::Precise;
            }
            if Instant::now() >= deadline {
                break Stop::MaxTime;
            }
            if made >= self.max_samples {
                break Stop::MaxSamples;
            }
        };
        let unknown = rounds.clocks_unknown();
        Ok(Run::new(usual, throttled, warm_up, stop, unknown))
    }

    /// True if the bounds of all variants are narrow enough and the last rounds agree. Bounds
    /// assume independent samples, and a drift would violate that.
    fn is_precise(&self, rounds: &[Round], variants: usize) -> bool {
        let Some(from) = rounds.len().checked_sub(AGREEING) else { return false };
        let last = rounds[from..].iter().map(|round| State::from_round(round, variants));
        if !is_steady(&last.collect::<Vec<_>>()) {
            return false;
        }
        (0..variants).all(|variant| {
            let samples = rounds.iter().flat_map(|round| round.of_variant(variant));
            let times: Vec<f64> = samples.map(|sample| sample.gpu_ns as f64).collect();
            let count = times.len();
            let timing = Timing::from_times(times, self.confidence);
            let Some(part) = timing.uncertainty().filter(|_| count >= MIN_SAMPLES) else {
                return false;
            };
            part <= self.precision.max(TICK_NS / timing.median_ns)
        })
    }
}

/// The number of groups of samples that fill a session.
fn groups(per_group: Duration, group: usize) -> usize {
    let fitting = ROUND.as_nanos() / per_group.as_nanos().max(1);
    let of_variant = group.div_ceil(2);
    (fitting as usize).clamp(FEWEST.div_ceil(of_variant), MOST / of_variant)
}

/// Rejects a round of work without GPU operations.
fn checked(round: Round) -> Result<Round, Error> {
    for variant in 0..=1 {
        let mut samples = round.of_variant(variant).peekable();
        if samples.peek().is_none() || samples.any(|sample| sample.operations != 0) {
            continue;
        }
        let calls = round.of_variant(variant).count();
        let others = round.other_operations;
        return Err(error(format!(
            "there is nothing to measure: the work submitted no GPU operation in {calls} samples, and others \
             {others} meanwhile; launch on the thread that measures, or hand its Context over (Context::current), and \
             check that results are not cached and collection is not paused (Config)"
        )));
    }
    Ok(round)
}

/// True if rounds without throttling are enough for a result.
fn prefers_usual(usual: &[Round], throttled: &[Round]) -> bool {
    let count = |rounds: &[Round]| rounds.iter().map(|round| round.samples.len()).sum::<usize>();
    count(usual) >= MIN_SAMPLES.min(count(throttled))
}

/// The selected rounds of a measurement.
#[derive(Debug)]
struct Run {
    rounds: Vec<Round>,
    circumstances: Circumstances,
}

impl Run {
    /// Selects rounds without throttling, if there are enough for a result.
    fn new(
        usual: Vec<Round>,
        throttled: Vec<Round>,
        warm_up: WarmUp,
        stop: Stop,
        unknown: Option<String>,
    ) -> Self {
        let (rounds, others) = match prefers_usual(&usual, &throttled) {
            true => (usual, throttled),
            false => (throttled, usual),
        };
        let reasons = |rounds: &[Round]| {
            let mut reasons: Vec<_> = rounds.iter().filter_map(|round| round.throttled).collect();
            reasons.sort_unstable();
            reasons.dedup();
            reasons
        };
        let why = match reasons(&others)[..] {
            [] => "too few without throttling".to_owned(),
            ref by => format!("throttled by {}", by.join(", ")),
        };
        let samples: u64 = others.iter().map(|round| round.samples.len() as u64).sum();
        let discarded = if samples == 0 { Vec::new() } else { vec![Discarded { samples, why }] };
        let clocks = || rounds.iter().filter_map(|round| round.sm_mhz);
        let sm_mhz = clocks().min().zip(clocks().max());
        let throttled_by = reasons(&rounds);
        let circumstances = Circumstances {
            clocks: MeasuredClocks { sm_mhz, throttled_by, unknown },
            warm_up,
            discarded,
            stop,
            other_operations: rounds.iter().map(|round| round.other_operations).sum(),
            has_waited: rounds.iter().all(|round| round.has_waited),
        };
        Self { rounds, circumstances }
    }

    fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.rounds.iter().flat_map(|round| &round.samples)
    }

    fn measurement(&self, measure: &Measure, variant: usize) -> Measurement {
        let samples = self.samples().filter(|sample| sample.variant == variant);
        let samples: Vec<Sample> = samples.copied().collect();
        Measurement::new(measure, &samples, self.circumstances.clone())
    }

    fn pair(&self, measure: &Measure) -> PairMeasurement {
        let samples: Vec<Sample> = self.samples().copied().collect();
        let (a, b) = (self.measurement(measure, 0), self.measurement(measure, 1));
        PairMeasurement::new(a, b, &samples, measure)
    }
}

#[cfg(test)]
mod tests;
