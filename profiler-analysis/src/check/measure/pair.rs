//! Two variants measured alternately, and their ratio.

use std::fmt;

use profiler_base::getters;
use profiler_base::hodges_lehmann::{Factor, midmean};

use super::Measure;
use super::measurement::Measurement;
use super::round::{ABBA, Sample};
use crate::speed::Speed;

/// The maximum number of groups of samples, each with a ratio.
const BLOCKS: usize = 64;

/// The factor between the times of the second and the first variant.
///
/// Only samples within one sequence a, b, b, a are compared with each other. A steady drift, for
/// example of a clock, therefore has no effect. The ratio is the median over up to 64 blocks of
/// these sequences, and its bounds are order statistics. Both assume no distribution.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct Ratio {
    /// The second time over the first: 0.9 if the second variant takes 10 % less.
    pub ratio: f64,
    /// The lower bound; 0 with too few samples.
    pub low: f64,
    /// The upper bound; infinity with too few samples, written as `null` in JSON.
    pub high: f64,
    /// Faster if both bounds are below 1, slower if both are above 1, the same if any difference is
    /// below the [precision](Measure::precision). At a confidence of 95 %, up to 5 % of comparisons
    /// of equal variants find a difference.
    #[serde(rename = "verdict")]
    pub speed: Speed,
}

impl Ratio {
    fn new(samples: &[Sample], ns: fn(&Sample) -> u64, measure: &Measure) -> Self {
        let (groups, _) = samples.as_chunks::<{ ABBA.len() }>();
        let blocks = groups.len().min(BLOCKS);
        let block = |at: usize| {
            let of = at * groups.len() / blocks..(at + 1) * groups.len() / blocks;
            let time = |variant: usize| {
                let samples = groups[of.clone()].as_flattened().iter();
                let own = samples.filter(|sample| sample.variant == variant);
                midmean(&mut own.map(ns).collect::<Vec<u64>>()).max(1.0)
            };
            time(1) / time(0)
        };
        let unbounded = Factor { ratio: 1.0, low: 0.0, high: f64::INFINITY };
        let ratios = (0..blocks).map(block).collect();
        let factor = Factor::of_ratios(ratios, measure.confidence).unwrap_or(unbounded);
        let Factor { ratio, low, high } = factor;
        Self { ratio, low, high, speed: Speed::from_factor(&factor, 0.0, Some(measure.precision)) }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.speed {
            Speed::Faster => "b is faster",
            Speed::Slower => "b is slower",
            Speed::Same => "no difference",
            Speed::Undecided => "undecided",
        };
        write!(f, "b / a {:.4} ({:.4} to {:.4}): {text}", self.ratio, self.low, self.high)
    }
}

/// Two variants measured alternately: [`Measure::run_pair`].
#[derive(Debug, Clone, serde::Serialize)]
pub struct PairMeasurement {
    a: Measurement,
    b: Measurement,
    gpu_time: Ratio,
    gpu_span: Ratio,
    latency: Ratio,
    host_cost: Ratio,
}

impl PairMeasurement {
    pub(super) fn new(
        a: Measurement,
        b: Measurement,
        samples: &[Sample],
        measure: &Measure,
    ) -> Self {
        let ratio = |ns| Ratio::new(samples, ns, measure);
        Self {
            a,
            b,
            gpu_time: ratio(|sample| sample.gpu_ns),
            gpu_span: ratio(|sample| sample.span_ns),
            latency: ratio(|sample| sample.latency_ns),
            host_cost: ratio(|sample| sample.host_ns - sample.waits_ns),
        }
    }

    getters! {
        /// The first variant.
        a: &Measurement = a;
        /// The second variant.
        b: &Measurement = b;
        /// The ratio of GPU times.
        gpu_time: &Ratio = gpu_time;
        /// The ratio of GPU spans, which also fits variants with different numbers of launches.
        gpu_span: &Ratio = gpu_span;
        /// The ratio of latencies.
        latency: &Ratio = latency;
        /// The ratio of host costs.
        host_cost: &Ratio = host_cost;
    }
}

impl fmt::Display for PairMeasurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { a, b, .. } = self;
        for (name, ratio, of_a, of_b) in [
            ("GPU time", &self.gpu_time, a.gpu_time(), b.gpu_time()),
            ("GPU span", &self.gpu_span, a.gpu_span(), b.gpu_span()),
            ("latency", &self.latency, a.latency(), b.latency()),
            ("host cost", &self.host_cost, a.host_cost(), b.host_cost()),
        ] {
            writeln!(f, "{name}: a {of_a}, b {of_b}, {ratio}")?;
        }
        write!(f, "a: {}\nb: {}", self.a, self.b)
    }
}
