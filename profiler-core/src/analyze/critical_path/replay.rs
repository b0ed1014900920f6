//! The replay: when each point is reached at the earliest, with the lags of the recording or others.

use std::time::Duration;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::graph::{Edge, Graph, Link};
use super::{Dependencies, LEAST_STEPS, Window};
use crate::base::statistics::{Statistics, as_ns};

/// An edge that a change removed.
pub(super) const REMOVED: u64 = u64::MAX;

/// How well the replay matches steps that its delays were not fitted on.
///
/// The own times of threads, the latencies of launches and the other delays between two activities are the means of
/// odd steps, by what precedes and follows; the times of operations are measured. Even steps are replayed with them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ReplayError {
    /// The number of steps that were replayed.
    pub steps: u64,
    /// Steps of unusual length, which are neither fitted nor replayed.
    pub unusual: u64,
    /// The median deviation from the measured length, as a share of it.
    pub median: f64,
    /// The largest.
    pub largest: f64,
    /// The median deviation if threads and the GPU did not depend on each other.
    pub without_edges: f64,
    /// The median length of these steps as measured.
    #[serde(rename = "measured_ns", serialize_with = "as_ns")]
    pub measured: Duration,
}

impl Graph {
    /// The earliest time of each point in a part of the order, by its place there. Points before that part
    /// are at their measured times, as is `start`.
    pub(super) fn replay(
        &self,
        part: std::ops::Range<usize>,
        start: u32,
        lag: impl Fn(usize, &Edge) -> u64,
        earliest: &mut Vec<u64>,
    ) {
        earliest.resize(self.times.len(), REMOVED);
        for &point in &self.order[part.clone()] {
            let mut at = None;
            for edge in self.edges_to(point) {
                let lag = lag(edge, &self.edges[edge]);
                if lag == REMOVED {
                    continue;
                }
                let from = self.edges[edge].from;
                let from_ns = match earliest[from as usize] {
                    REMOVED => self.time(from),
                    ns => ns,
                };
                at = at.max(Some(from_ns.saturating_add(lag)));
            }
            let measured = self.time(point);
            let at = if point == start { measured } else { at.unwrap_or(measured) };
            // The largest value means that a point was not reached.
            earliest[point as usize] = at.min(REMOVED - 1);
        }
    }

    /// Forgets what a replay wrote.
    pub(super) fn forget(&self, part: std::ops::Range<usize>, earliest: &mut [u64]) {
        for &point in &self.order[part] {
            earliest[point as usize] = REMOVED;
        }
    }
}

/// Mean lags of classes.
struct Fitted {
    sums: Vec<(u64, u64)>,
}

impl Fitted {
    fn of(graph: &Graph, parts: impl Iterator<Item = std::ops::Range<usize>>) -> Self {
        let mut sums = vec![(0, 0); graph.classes];
        for &point in parts.flat_map(|part| &graph.order[part]) {
            for edge in &graph.edges[graph.edges_to(point)] {
                let decided = edge.lag == graph.time(edge.to) - graph.time(edge.from);
                if matches!(edge.link, Link::Host { .. }) || decided {
                    let (sum, count): &mut (u64, u64) = &mut sums[edge.class as usize];
                    *sum = sum.saturating_add(edge.lag);
                    *count += 1;
                }
            }
        }
        Self { sums }
    }

    fn lag(&self, edge: &Edge) -> u64 {
        match (edge.link, self.sums[edge.class as usize]) {
            (Link::Work(_) | Link::Transfer(_), _) | (_, (_, 0)) => edge.lag,
            (_, (sum, count)) => sum / count,
        }
    }
}

/// Scales the median absolute deviation of normally distributed values to their standard deviation.
const NORMAL: f64 = 1.4826;
/// Standard deviations by which a step is unusual, or this share of the median if that is more.
const DEVIATIONS: f64 = 5.0;
const LEAST_DEVIATION: f64 = 0.1;

impl Dependencies<'_> {
    /// The steps without those whose length is far from the median: the first ones, and interrupted ones.
    fn usual(&self, windows: Vec<Window>) -> Vec<Window> {
        let lengths = windows.iter().map(|window| self.interval(window).ns()).collect();
        let lengths = Statistics::of_ns(lengths);
        let median = lengths.median().as_secs_f64();
        let deviation = NORMAL * lengths.median_absolute_deviation().as_secs_f64();
        let most = (DEVIATIONS * deviation).max(LEAST_DEVIATION * median);
        let length = |window: &Window| Duration::from_nanos(self.interval(window).ns());
        let is_usual = |window: &Window| (length(window).as_secs_f64() - median).abs() <= most;
        windows.into_iter().filter(is_usual).collect()
    }

    /// The error of a replay of even steps with delays that were fitted on odd ones: see [`ReplayError`]. `None` with fewer
    /// than four steps.
    pub fn replay_error(&self) -> Option<ReplayError> {
        let (_, steps) = self.steps.as_ref()?;
        let windows: Vec<Window> = steps.iter().filter_map(|id| self.window(*id)).collect();
        if windows.len() < LEAST_STEPS {
            return None;
        }
        let graph = &self.graph;
        let all = windows.len();
        let windows = self.usual(windows);
        let unusual = all - windows.len();
        if windows.len() < 2 {
            return None;
        }
        let part = |window: &Window| graph.slice(self.interval(window));
        // Of each process its own odd and even steps.
        let mut numbers: FxHashMap<u32, usize> = FxHashMap::default();
        let (odd, even): (Vec<Window>, Vec<Window>) = windows.into_iter().partition(|window| {
            let number = numbers.entry(window.process).or_default();
            *number += 1;
            number.is_multiple_of(2)
        });
        let fitted = Fitted::of(graph, odd.iter().map(part));
        let mut earliest = Vec::new();
        let (mut deviations, mut without, mut measured) = (Vec::new(), Vec::new(), Vec::new());
        for window in &even {
            let (part, time) = (part(window), self.interval(window));
            let length = time.ns().max(1) as f64;
            let mut deviation = |end: u32, lag: &dyn Fn(&Edge) -> u64| {
                graph.replay(part.clone(), window.start, |_, edge| lag(edge), &mut earliest);
                let predicted = earliest[end as usize].saturating_sub(time.start_ns) as f64;
                graph.forget(part.clone(), &mut earliest);
                (predicted - length).abs() / length
            };
            deviations.push(deviation(window.end, &|edge| fitted.lag(edge)));
            without.push(deviation(window.host_end, &|edge| match edge.link.is_activity() {
                true => fitted.lag(edge),
                false => REMOVED,
            }));
            measured.push(time.ns());
        }
        let middle = |values: &mut Vec<f64>| {
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        measured.sort_unstable();
        Some(ReplayError {
            steps: deviations.len() as u64,
            unusual: unusual as u64,
            median: middle(&mut deviations),
            largest: deviations.last().copied().unwrap_or_default(),
            without_edges: middle(&mut without),
            measured: Duration::from_nanos(measured[measured.len() / 2]),
        })
    }
}
