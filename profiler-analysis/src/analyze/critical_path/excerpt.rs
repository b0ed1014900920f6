//! The part of a large graph that changes are tried on.

use super::graph::Edge;
use super::{Dependencies, LEAST_STEPS, Window};
use profiler_core::tables::Interval;

/// The maximum number of points for trying changes, on the first steps: a replay takes some
/// milliseconds.
pub(super) const MOST_POINTS: usize = 500_000;

/// The points of a graph that a change is tried on; all others stay at their measured times.
#[derive(Debug, Clone, Copy)]
pub(super) struct Excerpt<'g> {
    /// In topological order.
    pub(super) points: &'g [u32],
    /// The first point of the replay.
    pub(super) start: u32,
    /// The time of the points.
    time: Interval,
}

impl Excerpt<'_> {
    /// True if it has the points of this time.
    pub(super) fn has(&self, ns: u64) -> bool {
        self.time.start_ns <= ns && ns <= self.time.end_ns
    }
}

impl Dependencies<'_> {
    /// All points of the graph.
    pub(super) fn whole_excerpt(&self) -> Excerpt<'_> {
        let start = self.whole().map_or(0, |whole| whole.start);
        let time = Interval { start_ns: 0, end_ns: u64::MAX };
        Excerpt { points: &self.graph.order, start, time }
    }

    /// The first steps with at most this many points, but at least four steps, and their points.
    /// All points of a smaller graph, or of one without steps.
    pub(super) fn first_steps<'w>(
        &self,
        windows: &'w [Window],
        most_points: usize,
    ) -> (&'w [Window], Excerpt<'_>) {
        let graph = &self.graph;
        let all = (windows, self.whole_excerpt());
        let Some(first) = windows.first().filter(|_| self.steps.is_some()) else { return all };
        let start_ns = graph.time(first.start);
        let begin = graph.order.partition_point(|point| graph.time(*point) < start_ns);
        let Some(until) = graph.order.get(begin.saturating_add(most_points)) else { return all };
        let is_before = |window: &&Window| graph.time(window.end) < graph.time(*until);
        let count = windows.iter().take_while(is_before).count().max(LEAST_STEPS);
        let Some(tried) = windows.get(..count) else { return all };
        let ends = tried.iter().map(|window| graph.time(window.end));
        let time = Interval { start_ns, end_ns: ends.fold(start_ns, u64::max) };
        (tried, Excerpt { points: graph.slice(None, time), start: first.start, time })
    }

    /// The edges to the points of an excerpt, with their numbers.
    pub(super) fn edges_of<'g>(
        &'g self,
        excerpt: Excerpt<'g>,
    ) -> impl Iterator<Item = (usize, &'g Edge)> {
        let edges = excerpt.points.iter().flat_map(|point| self.graph.edges_to(*point));
        edges.map(|at| (at, &self.graph.edges[at]))
    }
}
