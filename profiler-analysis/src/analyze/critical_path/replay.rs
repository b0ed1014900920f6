//! The replay: the earliest time of each point, with the lags of the recording or others.

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

/// The error of the replay on steps that its delays were not fitted on.
///
/// The fitted delays are the own times of threads, the latencies of launches and the other delays
/// between two activities. They are fitted on odd steps, by the activities before and after them;
/// the times of operations are measured. Even steps are replayed with them.
///
/// The error of a single step has two parts: the model's error, and the variation between steps.
/// Delays of other steps cannot predict the variation. [`median_step`](Self::median_step) is the
/// first part, as far as the number of steps permits. Each even step is replayed with the delays of
/// one odd step, so that correlated delays vary together. The medians are then compared, because
/// predictions are of the median step, too. [`halves`](Self::halves) is the deviation that a model
/// without an error would have there.
///
/// For single steps, delays are means over odd steps, and [`spread`](Self::spread) is the variation
/// between steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ReplayError {
    /// The number of replayed steps.
    pub steps: u64,
    /// Steps of unusual length, which are neither fitted nor replayed.
    pub unusual: u64,
    /// The deviation of the median replayed length from the median measured one, as a share of it:
    /// the error of a predicted step time.
    pub median_step: f64,
    /// The deviation between the medians of odd and even steps as measured: the precision of the
    /// median itself.
    pub halves: f64,
    /// The median deviation of a step from its measured length, as a share of it.
    pub median: f64,
    /// The median deviation of a measured step from the median of the odd ones. A model without an
    /// error has this deviation per step, unless the operations vary.
    pub spread: f64,
    /// The largest.
    pub largest: f64,
    /// The median deviation of a replay without dependencies between threads and the GPU.
    pub without_edges: f64,
    /// The median length of these steps as measured.
    #[serde(rename = "measured_ns", serialize_with = "as_ns")]
    pub measured: Duration,
}

impl Graph {
    /// Computes the earliest time of each of these points, which are in topological order. All
    /// others, and `start`, are at their measured times.
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

    /// Clears the results of a replay.
    pub(super) fn forget(&self, points: &[u32], earliest: &mut [u64]) {
        for &point in points {
            earliest[point as usize] = REMOVED;
        }
    }
}

/// True if an edge is a sample for its class: own times of threads, and deciding edges.
fn is_sample(graph: &Graph, edge: &Edge) -> bool {
    let decided = edge.lag == graph.time(edge.to) - graph.time(edge.from);
    edge.link.is_own_time() || decided
}

/// True if the lag of an edge stays measured while others are fitted: the lag of an operation.
fn is_measured(edge: &Edge) -> bool {
    matches!(edge.link, Link::Work(_) | Link::Transfer(_))
}

/// Mean lags of classes.
struct Fitted {
    sums: Vec<(u64, u64)>,
}

impl Fitted {
    fn fit<'g>(graph: &Graph, parts: impl Iterator<Item = &'g [u32]>) -> Self {
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

/// The lags of one step by class, in the order of its points.
struct OneStep {
    lags: FxHashMap<u32, VecDeque<u64>>,
}

impl OneStep {
    fn fit(graph: &Graph, part: &[u32]) -> Self {
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

    /// The next lag of another step with the same class; `None` if no more are left.
    fn next(&mut self, graph: &Graph, edge: &Edge) -> Option<u64> {
        let has_its_own = is_sample(graph, edge) && !is_measured(edge);
        self.lags.get_mut(&edge.class).filter(|_| has_its_own)?.pop_front()
    }
}

/// Odd steps. Each even step of the same process gets a different one, until none is left.
struct Partners {
    odd: FxHashMap<u32, VecDeque<Window>>,
}

impl Partners {
    fn new(odd: &[Window]) -> Self {
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
/// The number of standard deviations from which a step is unusual; or this share of the median, if
/// larger.
const DEVIATIONS: f64 = 5.0;
const LEAST_DEVIATION: f64 = 0.1;

impl Dependencies<'_> {
    /// Removes steps whose length is far from the median: the first ones, and interrupted ones.
    fn usual(&self, windows: Vec<Window>) -> Vec<Window> {
        let lengths = windows.iter().map(|window| self.interval(window).ns()).collect();
        let lengths = Statistics::from_nanos(lengths);
        let median = lengths.median().as_secs_f64();
        let deviation = NORMAL * lengths.median_absolute_deviation().as_secs_f64();
        let most = (DEVIATIONS * deviation).max(LEAST_DEVIATION * median);
        let length = |window: &Window| Duration::from_nanos(self.interval(window).ns());
        let is_usual = |window: &Window| (length(window).as_secs_f64() - median).abs() <= most;
        windows.into_iter().filter(is_usual).collect()
    }

    /// The error of a replay of even steps with delays fitted on odd ones: see [`ReplayError`].
    /// `None` with fewer than four steps.
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
        // Odd and even are counted for each process.
        let mut numbers: FxHashMap<u32, usize> = FxHashMap::default();
        let (odd, even): (Vec<Window>, Vec<Window>) = windows.into_iter().partition(|window| {
            let number = numbers.entry(window.process).or_default();
            *number += 1;
            number.is_multiple_of(2)
        });
        let fitted = Fitted::fit(graph, odd.iter().map(part));
        let mut earliest = Vec::new();
        let mut partners = Partners::new(&odd);
        let (mut replayed, mut single, mut without) = (Vec::new(), Vec::new(), Vec::new());
        for window in &even {
            let partner = partners.next(window.process).map(|odd| OneStep::fit(graph, part(&odd)));
            let (part, time) = (part(window), self.interval(window));
            let mut length = |end: u32, lag: &mut dyn FnMut(&Edge) -> u64| {
                graph.replay(part, window.start, |_, edge| lag(edge), &mut earliest);
                let end_ns = match earliest[end as usize] {
                    // If the host runs ahead, the step ends before its work begins.
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

/// The deviation of a time as a share of the measured one.
fn deviation(of: u64, measured: u64) -> f64 {
    of.abs_diff(measured) as f64 / measured as f64
}

fn median_share(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
