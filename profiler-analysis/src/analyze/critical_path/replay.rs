//! The replay: when each point is reached at the earliest, with the lags of the recording or others.

use std::collections::VecDeque;
use std::time::Duration;

use cupti::tables;
use profiler_base::statistics::{Statistics, as_ns, upper_median};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::graph::{Edge, Graph, Link};
use super::{Dependencies, LEAST_STEPS, Window};

/// An edge that a change removed.
pub(super) const REMOVED: u64 = u64::MAX;

/// How well the replay matches steps that its delays were not fitted on.
///
/// The own times of threads, the latencies of launches and the other delays between two activities are those of
/// odd steps, by what precedes and follows; the times of operations are measured. Even steps are replayed with them.
///
/// How far a step is off by itself has two parts: what the model gets wrong, and by how much steps vary, which no delays of
/// other steps can know. [`median_step`](Self::median_step) is the first, as far as the steps are many: each even step is replayed with the
/// delays of one odd step, so that what varies together does, and the medians are compared, as predictions are of the median step, too.
/// [`halves`](Self::halves) is what a model without an error would be off by there. For single steps delays are means of odd
/// steps, and [`spread`](Self::spread) is by how much steps vary.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ReplayError {
    /// The number of steps that were replayed.
    pub steps: u64,
    /// Steps of unusual length, which are neither fitted nor replayed.
    pub unusual: u64,
    /// The deviation of the median replayed length from the median measured one, as a share of it: the error of "how long does a
    /// step take".
    pub median_step: f64,
    /// The deviation of the median odd step from the median even one, as measured: how well the median itself is known.
    pub halves: f64,
    /// The median deviation of a step from its measured length, as a share of it.
    pub median: f64,
    /// The median deviation of a measured step from the median of the odd ones: what a model without an error is off by, step by
    /// step, unless operations are what varies.
    pub spread: f64,
    /// The largest.
    pub largest: f64,
    /// The median deviation if threads and the GPU did not depend on each other.
    pub without_edges: f64,
    /// The median length of these steps as measured.
    #[serde(rename = "measured_ns", serialize_with = "as_ns")]
    pub measured: Duration,
}

impl Graph {
    /// The earliest time of each of these points, which are in topological order. All others are at their measured times,
    /// as is `start`.
    pub(super) fn replay(
        &self,
        points: &[u32],
        start: u32,
        mut lag: impl FnMut(usize, &Edge) -> u64,
        earliest: &mut Vec<u64>,
    ) {
        if earliest.len() != self.times.len() {
            *earliest = tables::filled(REMOVED, self.times.len());
        }
        for &point in points {
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
    pub(super) fn forget(&self, points: &[u32], earliest: &mut [u64]) {
        for &point in points {
            earliest[point as usize] = REMOVED;
        }
    }
}

/// Whether an edge shows how long its class takes: own times of threads, and what decided.
fn is_sample(graph: &Graph, edge: &Edge) -> bool {
    let decided = edge.lag == graph.time(edge.to) - graph.time(edge.from);
    edge.link.is_own_time() || decided
}

/// Whether the lag of an edge is measured also where others are fitted: that of operations.
fn is_measured(edge: &Edge) -> bool {
    matches!(edge.link, Link::Work(_) | Link::Transfer(_))
}

/// Mean lags of classes.
struct Fitted {
    sums: Vec<(u64, u64)>,
}

impl Fitted {
    fn of<'g>(graph: &Graph, parts: impl Iterator<Item = &'g [u32]>) -> Self {
        let mut sums = vec![(0, 0); graph.classes];
        for &point in parts.flatten() {
            for edge in &graph.edges[graph.edges_to(point)] {
                if is_sample(graph, edge) {
                    let (sum, count): &mut (u64, u64) = &mut sums[edge.class as usize];
                    *sum = sum.saturating_add(edge.lag);
                    *count += 1;
                }
            }
        }
        Self { sums }
    }

    fn lag(&self, edge: &Edge) -> u64 {
        match self.sums[edge.class as usize] {
            _ if is_measured(edge) => edge.lag,
            (_, 0) => edge.lag,
            (sum, count) => sum / count,
        }
    }
}

/// The lags of one step by their classes, in the order of its points.
struct OneStep {
    lags: FxHashMap<u32, VecDeque<u64>>,
}

impl OneStep {
    fn of(graph: &Graph, part: &[u32]) -> Self {
        let mut lags: FxHashMap<u32, VecDeque<u64>> = FxHashMap::default();
        for &point in part {
            for edge in &graph.edges[graph.edges_to(point)] {
                if is_sample(graph, edge) && !is_measured(edge) {
                    lags.entry(edge.class).or_default().push_back(edge.lag);
                }
            }
        }
        Self { lags }
    }

    /// The lag of the next edge of another step: of the same class here, as long as there are any.
    fn next(&mut self, graph: &Graph, edge: &Edge) -> Option<u64> {
        let has_its_own = is_sample(graph, edge) && !is_measured(edge);
        self.lags.get_mut(&edge.class).filter(|_| has_its_own)?.pop_front()
    }
}

/// Odd steps, of which each even one of the same process gets another as long as there are any.
struct Partners {
    odd: FxHashMap<u32, VecDeque<Window>>,
}

impl Partners {
    fn of(odd: &[Window]) -> Self {
        let mut by_process: FxHashMap<u32, VecDeque<Window>> = FxHashMap::default();
        for window in odd {
            by_process.entry(window.process).or_default().push_back(*window);
        }
        Self { odd: by_process }
    }

    fn next(&mut self, process: u32) -> Option<Window> {
        let odd = self.odd.get_mut(&process)?;
        if odd.len() > 1 { odd.pop_front() } else { odd.front().copied() }
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
        *self.replay.get_or_init(|| self.compute_replay_error())
    }

    fn compute_replay_error(&self) -> Option<ReplayError> {
        self.steps.as_ref()?;
        let windows = self.windows();
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
        let part = |window: &Window| self.points_of(window);
        // Of each process its own odd and even steps.
        let mut numbers: FxHashMap<u32, usize> = FxHashMap::default();
        let (odd, even): (Vec<Window>, Vec<Window>) = windows.into_iter().partition(|window| {
            let number = numbers.entry(window.process).or_default();
            *number += 1;
            number.is_multiple_of(2)
        });
        let fitted = Fitted::of(graph, odd.iter().map(part));
        let mut earliest = Vec::new();
        let mut partners = Partners::of(&odd);
        let (mut replayed, mut single, mut without) = (Vec::new(), Vec::new(), Vec::new());
        for window in &even {
            let partner = partners.next(window.process).map(|odd| OneStep::of(graph, part(&odd)));
            let (part, time) = (part(window), self.interval(window));
            let mut length = |end: u32, lag: &mut dyn FnMut(&Edge) -> u64| {
                graph.replay(part, window.start, |_, edge| lag(edge), &mut earliest);
                let end_ns = match earliest[end as usize] {
                    // Of a host that runs ahead, the step is over before its work begins.
                    REMOVED => graph.time(end),
                    ns => ns,
                };
                let length = end_ns.saturating_sub(time.start_ns);
                graph.forget(part, &mut earliest);
                length
            };
            single.push(length(window.end, &mut |edge| fitted.lag(edge)));
            if let Some(mut partner) = partner {
                replayed.push(length(window.end, &mut |edge| {
                    partner.next(graph, edge).unwrap_or_else(|| fitted.lag(edge))
                }));
            }
            without.push(length(window.next.unwrap_or(window.host_end), &mut |edge| match edge
                .link
                .is_activity()
            {
                true => fitted.lag(edge),
                false => REMOVED,
            }));
        }
        let lengths =
            |of: &[Window]| of.iter().map(|window| self.interval(window).ns().max(1)).collect();
        let (others, measured): (Vec<u64>, Vec<u64>) = (lengths(&odd), lengths(&even));
        let usual = upper_median(others)?;
        let deviations = |of: &[u64]| {
            of.iter().zip(&measured).map(|(of, measured)| deviation(*of, *measured)).collect()
        };
        let single: Vec<f64> = deviations(&single);
        let largest = single.iter().copied().fold(0.0, f64::max);
        let measured_median = upper_median(measured.clone())?;
        Some(ReplayError {
            steps: even.len() as u64,
            unusual: unusual as u64,
            median_step: deviation(upper_median(replayed)?, measured_median),
            halves: deviation(usual, measured_median),
            median: median_share(single)?,
            spread: median_share(deviations(&vec![usual; even.len()]))?,
            largest,
            without_edges: median_share(deviations(&without))?,
            measured: Duration::from_nanos(measured_median),
        })
    }
}

/// By how much a time is off, as a share of the measured one.
fn deviation(of: u64, measured: u64) -> f64 {
    of.abs_diff(measured) as f64 / measured as f64
}

fn median_share(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
