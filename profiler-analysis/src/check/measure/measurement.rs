//! The result of a measurement, and its limitations.

use std::fmt;
use std::time::Duration;

use profiler_base::display::{DisplayOptions, Layout};
use profiler_base::display_by_default_layout;
use profiler_base::table::Table;
use profiler_base::units::{nanoseconds, time};
use profiler_base::{getters, named_variants};

use super::TICK_NS;
use super::round::Sample;
use super::timing::Timing;
use super::{L2, Measure};

named_variants! {
    /// The reason why a measurement stopped.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum Stop {
        /// The bounds reached the [precision](Measure::precision) or a tick of the GPU's clock, and the
        /// last three sessions agreed.
        Precise = "at the requested precision",
        /// [`Measure::max_time`] was exceeded.
        MaxTime = "at the maximum time",
        /// [`Measure::max_samples`] were made.
        MaxSamples = "at the maximum of samples",
    }
}

/// Samples that are excluded from all timings.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Discarded {
    /// The number of samples.
    pub(crate) samples: u64,
    /// The reason.
    pub(crate) why: String,
}

/// The warm-up of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct WarmUp {
    /// The number of samples made.
    pub samples: u64,
    /// Its time in whole milliseconds, including sessions.
    #[serde(rename = "milliseconds", serialize_with = "as_milliseconds")]
    pub time: Duration,
    /// True if the last three rounds agreed. Their median GPU times were within 0.5 %, a tick of
    /// the GPU's clock or their noise. The SM clocks were within 1 %, if known.
    pub is_steady: bool,
}

fn as_milliseconds<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(nanoseconds(*time) / 1_000_000)
}

/// The clocks of the GPU during a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
#[non_exhaustive]
pub struct MeasuredClocks {
    /// The lowest and highest SM clock in MHz, read at the end of each round.
    pub sm_mhz: Option<(u32, u32)>,
    /// The reasons for lowered clocks in the rounds of the timings, each once.
    pub throttled_by: Vec<&'static str>,
    /// The reason why the clocks are unknown, or became unknown.
    pub unknown: Option<String>,
}

/// The times of one piece of work: [`Profiler::measure`](crate::prelude::ProfilerExt::measure). All
/// times are for one call of the work, or for one of its [units](Measure::units).
///
/// `{}` prints a table with the use of each time. The bounds cover the noise of this process.
/// Between processes, memory placement alone may change a time by up to 1 %.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Measurement {
    gpu_time: Timing,
    gpu_span: Timing,
    latency: Timing,
    host_time: Timing,
    host_cost: Timing,
    call_time: Timing,
    samples: u64,
    calls_per_sample: u32,
    units: u32,
    kernels: (u64, u64),
    operations: (u64, u64),
    confidence: f64,
    l2: L2,
    clocks: MeasuredClocks,
    warm_up: WarmUp,
    discarded: Vec<Discarded>,
    stop: Stop,
    notes: Vec<String>,
}

impl Measurement {
    #[cfg(test)]
    pub(super) fn discarded(&self) -> &[Discarded] {
        &self.discarded
    }

    getters! {
        /// The sum of the times of the GPU operations, from CUPTI's records. It does not depend on
        /// the launch overhead, so it is the time to compare kernels by.
        gpu_time: &Timing = gpu_time;
        /// The time for which the GPU is occupied: from the start of the first operation to the end
        /// of the last one, including gaps.
        gpu_span: &Timing = gpu_span;
        /// The time that a caller waits for the result, on an idle GPU. It starts with the first
        /// submitting call and ends with the last operation. It contains the error of CUPTI's clock
        /// against the host's ([`Facts::clock_error`](profiler_core::profile::Facts::clock_error)).
        latency: &Timing = latency;
        /// The time of the call on the host, including waits.
        host_time: &Timing = host_time;
        /// The host time without synchronisation calls: the time for which the thread is busy.
        /// Blocking copies count as cost. CUPTI adds up to some microseconds to each launch.
        host_cost: &Timing = host_cost;
        /// The host time in CUDA calls other than synchronisation calls.
        call_time: &Timing = call_time;
        /// The number of samples in the timings.
        samples: u64 = samples;
        /// The number of calls of the work in a sample: [`Measure::batch`].
        calls_per_sample: u32 = calls_per_sample;
        /// The number of units of a call: [`Measure::units`].
        units: u32 = units;
        /// The minimum and maximum number of kernels of a sample.
        kernels: (u64, u64) = kernels;
        /// The minimum and maximum number of GPU operations of a sample.
        operations: (u64, u64) = operations;
        /// The confidence of the bounds.
        confidence: f64 = confidence;
        /// The state of the L2 cache before each sample.
        l2: L2 = l2;
        /// The clocks while measuring.
        clocks: &MeasuredClocks = clocks;
        /// The warm-up.
        warm_up: WarmUp = warm_up;
        /// The reason why the measurement stopped.
        stop: Stop = stop;
        /// The limits of the result or its precision.
        notes: &[String] = notes;
    }
}

/// The facts of a run besides its samples.
#[derive(Debug, Clone)]
pub(super) struct Circumstances {
    pub(super) clocks: MeasuredClocks,
    pub(super) warm_up: WarmUp,
    pub(super) discarded: Vec<Discarded>,
    pub(super) stop: Stop,
    pub(super) other_operations: u64,
    pub(super) has_waited: bool,
}

impl Measurement {
    pub(super) fn new(measure: &Measure, samples: &[Sample], of: Circumstances) -> Self {
        let per_sample = f64::from(measure.batch) * f64::from(measure.units);
        let timing = |ns: fn(&Sample) -> u64| {
            let times = samples.iter().map(|sample| ns(sample) as f64 / per_sample);
            Timing::from_times(times.collect(), measure.confidence)
        };
        let range = |count: fn(&Sample) -> u64| {
            let counts = || samples.iter().map(count);
            (counts().min().unwrap_or_default(), counts().max().unwrap_or_default())
        };
        let mut measurement = Self {
            gpu_time: timing(|sample| sample.gpu_ns),
            gpu_span: timing(|sample| sample.span_ns),
            latency: timing(|sample| sample.latency_ns),
            host_time: timing(|sample| sample.host_ns),
            host_cost: timing(|sample| sample.host_ns - sample.waits_ns),
            call_time: timing(|sample| sample.calls_ns),
            samples: samples.len() as u64,
            calls_per_sample: measure.batch,
            units: measure.units,
            kernels: range(|sample| sample.kernels),
            operations: range(|sample| sample.operations),
            confidence: measure.confidence,
            l2: measure.l2,
            clocks: of.clocks.clone(),
            warm_up: of.warm_up,
            discarded: of.discarded.clone(),
            stop: of.stop,
            notes: Vec::new(),
        };
        measurement.notes = measurement.limits(measure, &of);
        measurement
    }

    /// The limits of the result, most important first.
    fn limits(&self, measure: &Measure, of: &Circumstances) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.clocks.throttled_by.is_empty() {
            notes.push(format!(
                "the GPU was throttled by {}: the times are at lowered clocks",
                self.clocks.throttled_by.join(", ")
            ));
        }
        if !self.warm_up.is_steady {
            notes.push(format!(
                "the warm-up ended after {} ms without a steady state: times may still drift; allow more (max_warm_up)",
                self.warm_up.time.as_millis()
            ));
        }
        let (fewest, most) = self.operations;
        if fewest != most {
            notes.push(format!(
                "samples differ in their work: {fewest} to {most} GPU operations; make each call do the same"
            ));
        }
        let tick = TICK_NS / (f64::from(self.calls_per_sample) * f64::from(self.units));
        if tick > measure.precision * self.gpu_time.median_ns {
            notes.push(format!(
                "the GPU's clock ticks every {TICK_NS} ns, {:.1} % of the GPU time: batch(n), or units(n) with a CUDA \
                 graph of n launches, divides the tick by n",
                100.0 * tick / self.gpu_time.median_ns.max(1.0)
            ));
        }
        match self.gpu_time.uncertainty() {
            None => notes.push("there are too few samples for bounds: allow more time".to_owned()),
            Some(_) if self.stop == Stop::Precise => {}
            Some(part) if part > measure.precision => notes.push(format!(
                "noise: the bounds of the GPU time are within {:.2} % of its estimate, not the requested {:.2} %",
                100.0 * part,
                100.0 * measure.precision
            )),
            Some(_) => notes.push(
                "drift: the medians or clocks of the last sessions do not agree, so that the bounds are too narrow"
                    .to_owned(),
            ),
        }
        if of.other_operations != 0 {
            notes.push(format!(
                "{} GPU operations of other threads or ranges ran meanwhile; they are in no time and may have slowed \
                 the samples",
                of.other_operations
            ));
        }
        if !of.has_waited {
            notes.push(
                "the thread has no current CUDA context to wait for, so that a sample may wait for the one before it: \
                 trust the latency only if the work waits for its end"
                    .to_owned(),
            );
        }
        if self.l2 == L2::Cold && self.calls_per_sample != 1 {
            notes.push("only the first call of a batch finds the L2 cache cold".to_owned());
        }
        notes
    }
}

impl DisplayOptions for Measurement {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |(fewest, most): (u64, u64), what: &str| match fewest == most {
            true if fewest == 1 => format!("1 {what}"),
            true => format!("{fewest} {what}s"),
            false => format!("{fewest} to {most} {what}s"),
        };
        write!(f, "{} samples of ", self.samples)?;
        if self.calls_per_sample != 1 {
            write!(f, "{} calls with ", self.calls_per_sample)?;
        }
        let (kernels, operations) = (self.kernels, self.operations);
        f.write_str(&count(kernels, "kernel"))?;
        if operations != kernels {
            write!(f, " and {} in total", count(operations, "operation"))?;
        }
        if self.units != 1 {
            write!(f, ", times of one of {} units", self.units)?;
        }
        writeln!(f, "; L2 {}", self.l2)?;
        let bounds = format!("{} % bounds", 100.0 * self.confidence);
        let header = ["", "median", &bounds, "min", "p10 to p90", "use it for"];
        let mut rows = Table::new(header, 1).with_text(header.len() - 1);
        for (name, timing, purpose) in [
            ("GPU time", &self.gpu_time, "comparing kernels: no launch overhead in it"),
            ("GPU span", &self.gpu_span, "how long the GPU is taken, gaps included"),
            ("latency", &self.latency, "a waiting caller: first launch to last end"),
            ("host cost", &self.host_cost, "the thread: host time without waits"),
            ("CUDA calls", &self.call_time, "the driver's part of the host cost"),
        ] {
            let bounds = match timing.bounds() {
                Some((low, high)) => format!("{} to {}", time(low), time(high)),
                None => "unknown".to_owned(),
            };
            let spread = format!("{} to {}", time(timing.p10()), time(timing.p90()));
            let (median, min) = (time(timing.median()), time(timing.min()));
            rows.add_row([name, &median, &bounds, &min, &spread, purpose]);
        }
        writeln!(f, "{}", rows.render(layout))?;
        let WarmUp { samples, time: warm_up, is_steady } = self.warm_up;
        let state = if is_steady { "steady" } else { "not steady" };
        write!(f, "warm-up: {samples} samples in {}, then {state}; ", time(warm_up))?;
        write!(f, "stopped {}\nclocks: ", self.stop)?;
        match self.clocks.sm_mhz {
            Some((low, high)) if low == high => write!(f, "SM {low} MHz")?,
            Some((low, high)) => write!(f, "SM {low} to {high} MHz")?,
            None => f.write_str("not known")?,
        }
        match (&self.clocks.unknown, &self.clocks.throttled_by[..]) {
            (Some(why), _) => write!(f, " ({why})")?,
            (None, []) => f.write_str(", not throttled")?,
            (None, by) => write!(f, ", throttled by {}", by.join(", "))?,
        }
        for Discarded { samples, why } in &self.discarded {
            write!(f, "\ndiscarded: {samples} samples, {why}")?;
        }
        for note in &self.notes {
            write!(f, "\nnote: {note}")?;
        }
        Ok(())
    }
}

display_by_default_layout!(Measurement);
