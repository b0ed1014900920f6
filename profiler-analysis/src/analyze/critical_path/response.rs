//! The measured effects of inserted delays, compared with the model's predictions.

use profiler_base::hodges_lehmann::{MOST, Ranks, blocks, median};
use profiler_base::named_variants;
use profiler_base::statistics::{Statistics, as_ns, upper_median};
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::time::Duration;

use super::intervention::DOMAIN_NAME;
use super::predict::MOST_ERROR;
use super::{Dependencies, ReplayError, Window, lengths};
use profiler_core::tables::RangeId;
use profiler_core::tables::range_tree::NodeId;

named_variants! {
    /// The result of comparing the effect of a delay with the prediction.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub(crate) enum Agreement with text {
        /// Both shares are within 0.1 of each other, and the bounds within 0.2.
        Agrees = "agrees",
        /// The bounds are too far apart: more steps or a longer delay decide.
        Undecided = "undecided",
        /// The share is further than 0.1 from the predicted one, with 95 % confidence.
        Disagrees = "disagrees",
    }
}

named_variants! {
    /// The reliability of predictions.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub(crate) enum ModelConfidence with text {
        /// Fewer than four steps, so that the model's error is unknown.
        Unknown = "unknown",
        /// The error of a replay's median step is above 10 %, or inserted delays had another effect
        /// than predicted.
        Low = "low",
        /// The error of a replay's median step is above 2 %, or one inserted delay had another
        /// effect than predicted.
        Medium = "medium",
        /// The error of a replay's median step is at most 2 %.
        High = "high",
    }
}

/// The maximum error of a replay's median step for high confidence.
const HIGH: f64 = 0.02;

impl ModelConfidence {
    /// Computes the confidence from the model's error. With few steps, that error is at least the
    /// error of single steps divided by the root of their number. Each disagreement lowers the
    /// confidence by one level.
    pub(super) fn new(replay: Option<&ReplayError>, responses: &[Response]) -> Self {
        let Some(replay) = replay else { return Self::Unknown };
        let error = replay.median_step.max(replay.median / (replay.steps as f64).sqrt());
        let mut confidence = match error {
            error if error <= HIGH => Self::High,
            error if error <= MOST_ERROR => Self::Medium,
            _ => Self::Low,
        };
        let is_against = |response: &&Response| response.disagrees();
        for _ in responses.iter().filter(is_against) {
            confidence = match confidence {
                Self::High => Self::Medium,
                _ => Self::Low,
            };
        }
        confidence
    }
}

/// The effect of an [`Intervention`](super::Intervention)'s delays on the steps of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Response {
    /// The range in which they were inserted.
    pub path: String,
    /// True for kernels, false for the host.
    pub is_on_gpu: bool,
    /// The number of steps with the delay.
    pub delayed: u64,
    /// The number of steps without it.
    pub undelayed: u64,
    /// The measured delay: the median increase of the time at the position.
    #[serde(rename = "delay_ns", serialize_with = "as_ns")]
    pub delay: Duration,
    /// The share of the delay by which steps are longer: 0 if fully hidden, 1 if fully visible.
    pub measured: f64,
    /// The lower bound of that share at 95 % confidence; infinite with fewer than four steps of
    /// either kind.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
    /// The share predicted by a replay of the steps without the delay: the median.
    pub predicted: f64,
}

/// Shares within this distance count as equal.
const WITHIN: f64 = 0.1;

impl Response {
    /// True if the bounds of the measured share show that the predicted one is right.
    pub fn agrees(&self) -> bool {
        self.agreement() == Agreement::Agrees
    }

    /// True if the bounds of the measured share exclude the predicted one. Few steps and short
    /// delays neither agree nor disagree.
    pub fn disagrees(&self) -> bool {
        self.agreement() == Agreement::Disagrees
    }

    /// Compares the measured with the predicted share.
    pub(super) fn agreement(&self) -> Agreement {
        let (least, most) = (self.predicted - WITHIN, self.predicted + WITHIN);
        if self.high < least || self.low > most {
            return Agreement::Disagrees;
        }
        let is_narrow = self.low >= least - WITHIN && self.high <= most + WITHIN;
        match (least..=most).contains(&self.measured) && is_narrow {
            true => Agreement::Agrees,
            false => Agreement::Undecided,
        }
    }
}

/// A position of delays in one step.
#[derive(Debug, Default)]
struct Place {
    ranges: Vec<RangeId>,
    /// The delays that the program requested, in nanoseconds.
    payload_ns: u64,
    /// The time in the ranges, or of the operations submitted in them.
    host_ns: u64,
    gpu_ns: u64,
}

impl Dependencies<'_> {
    /// The effects of inserted delays on the steps, by the range around them: see
    /// [`Intervention`](super::Intervention). Empty if no step has any. Steps without a position
    /// for a delay do not count. Costs a replay for each position.
    pub fn responses(&self) -> Vec<Response> {
        let store = &self.profile.tables();
        let (Some(domain), Some(_)) = (store.names.find(DOMAIN_NAME), &self.steps) else {
            return Vec::new();
        };
        let steps: Vec<(RangeId, Window)> =
            self.windows().into_iter().filter_map(|window| Some((window.range?, window))).collect();
        let numbers: FxHashMap<RangeId, usize> =
            steps.iter().zip(0..).map(|((id, _), number)| (*id, number)).collect();
        let mut places: FxHashMap<(NodeId, bool), Vec<Place>> = FxHashMap::default();
        for (id, row) in (0..).map(RangeId).zip(&store.ranges) {
            if store.labels[row.label.at()].domain != Some(domain) {
                continue;
            }
            let around =
                std::iter::successors(row.parent.get(), |id| store.ranges[id.at()].parent.get());
            let Some(step) = around.into_iter().find_map(|id| numbers.get(&id)) else { continue };
            let range = self.profile.range_at(id);
            let Some(nvtx::Payload::U64(payload_ns)) = range.payload() else { continue };
            let of_step = places
                .entry((
                    self.profile.range_tree().of_range[id.at()],
                    range.name().starts_with("GPU"),
                ))
                .or_insert_with(|| steps.iter().map(|_| Place::default()).collect());
            let place = &mut of_step[*step];
            place.ranges.push(id);
            place.payload_ns += payload_ns;
            place.host_ns += row.time.ns();
            let operations = self.profile.range_tree().operations(id);
            let times = operations.filter_map(|id| store.operations[id.at()].time());
            place.gpu_ns += times.map(|time| time.ns()).sum::<u64>();
        }
        let mut places: Vec<_> = places.into_iter().collect();
        places.sort_unstable_by_key(|(key, _)| *key);
        let windows: Vec<Window> = steps.into_iter().map(|(_, window)| window).collect();
        let responses = places.into_iter().filter_map(|((node, is_on_gpu), places)| {
            self.response(node, is_on_gpu, &places, &windows)
        });
        responses.collect()
    }

    fn response(
        &self,
        node: NodeId,
        is_on_gpu: bool,
        places: &[Place],
        windows: &[Window],
    ) -> Option<Response> {
        let before = lengths(windows, |point| self.graph.time(point));
        let of = |is_delayed: bool, value: &dyn Fn(usize) -> u64| -> Vec<u64> {
            let steps = places.iter().enumerate().filter(|(_, place)| {
                !place.ranges.is_empty() && (place.payload_ns != 0) == is_delayed
            });
            steps.map(|(step, _)| value(step)).collect()
        };
        let taken = |step: usize| match is_on_gpu {
            true => places[step].gpu_ns,
            false => places[step].host_ns,
        };
        let median = |values: Vec<u64>| {
            (!values.is_empty()).then(|| Statistics::from_nanos(values).median())
        };
        let (with, without) = (median(of(true, &taken))?, median(of(false, &taken))?);
        let delay = with.saturating_sub(without);
        let delay_ns = delay.as_nanos() as u64;
        if delay_ns == 0 {
            return None;
        }
        let sides = [false, true].map(|is_delayed| {
            let taken = blocks(&of(is_delayed, &taken), MOST);
            taken.into_iter().zip(blocks(&of(is_delayed, &|step| before[step]), MOST)).collect()
        });
        let (measured, low, high) = slope(&sides)?;
        // The model: the same delay in the steps without one.
        let after = self.lengths_with(places, is_on_gpu, delay_ns, windows);
        let predicted = of(false, &|step| after[step].saturating_sub(before[step]));
        let around = self.profile.range_tree().nodes[node.at()].parent;
        let path = around.map(|id| self.profile.node(id).cut_path());
        Some(Response {
            path: path.unwrap_or_default(),
            is_on_gpu,
            delayed: of(true, &taken).len() as u64,
            undelayed: predicted.len() as u64,
            delay,
            measured,
            low,
            high,
            predicted: upper_median(predicted).unwrap_or_default() as f64 / delay_ns as f64,
        })
    }

    /// The lengths of the steps in a replay with a delay at each position that had none.
    fn lengths_with(
        &self,
        places: &[Place],
        is_on_gpu: bool,
        delay_ns: u64,
        windows: &[Window],
    ) -> Vec<u64> {
        let graph = &self.graph;
        let mut lags: Vec<u64> = graph.edges.iter().map(|edge| edge.lag).collect();
        let store = &self.profile.tables();
        for place in places.iter().filter(|place| place.payload_ns == 0) {
            for &id in &place.ranges {
                let row = &store.ranges[id.at()];
                let point = match is_on_gpu {
                    true => self
                        .profile
                        .range_tree()
                        .operations(id)
                        .last()
                        .map(|id| graph.start_of(id) + 1),
                    false => graph.threads[row.thread.at()].from(&graph.times, row.time.end_ns),
                };
                let added = delay_ns / place.ranges.len() as u64;
                for at in point.into_iter().flat_map(|point| graph.edges_to(point)) {
                    if graph.edges[at].link.is_activity() {
                        lags[at] += added;
                    }
                }
            }
        }
        let mut earliest = Vec::new();
        if let Some(whole) = self.whole() {
            graph.replay(&graph.order, whole.start, |at, _| lags[at], &mut earliest);
        }
        lengths(windows, |point| earliest[point as usize])
    }
}

/// The growth of the step's length with the time at the position, with bounds at 95 % confidence.
/// It is the median of the slopes between each step without the delay and each step with it (Theil
/// and Sen). A step is a pair of that time and the length. Time that other programs take at the
/// position counts on both axes.
fn slope(sides: &[Vec<(f64, f64)>; 2]) -> Option<(f64, f64, f64)> {
    let [without, with] = sides;
    let mut slopes: Vec<f64> = Vec::with_capacity(without.len() * with.len());
    for (long, length) in with {
        let rise = |(short, before): &(f64, f64)| (length - before) / (long - short).max(1.0);
        slopes.extend(without.iter().map(rise));
    }
    slopes.sort_unstable_by(f64::total_cmp);
    let (low, high) = match Ranks::default().rank(without.len(), with.len(), 0.025) {
        Some(rank) => (slopes[rank - 1], slopes[slopes.len() - rank]),
        None => (f64::NEG_INFINITY, f64::INFINITY),
    };
    Some((median(&slopes)?, low, high))
}
