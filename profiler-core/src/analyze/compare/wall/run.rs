//! The wall time of one run and of several, divided among ranges and causes.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::WallCause;
use crate::analyze::diagnosis::{Clock, Part, Thresholds};
use crate::join::busy::{SessionTime, extent, within};
use crate::join::tables::{Interval, OperationId, RangeId};
use crate::profile::{OperationKind, Profile};

/// Nanoseconds by cause.
pub(crate) type Causes = [f64; WallCause::ALL.len()];

/// A range of a run: its path and domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RangeKey {
    pub(crate) path: Rc<str>,
    pub(crate) domain: Option<Rc<str>>,
}

/// The times of each cause by range; `None` is outside any range.
pub(crate) type Parts = BTreeMap<Option<RangeKey>, Causes>;

/// One run: its wall time, and what it was spent on.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct WallRun {
    /// From the first to the last activity, without pauses.
    pub(crate) active_ns: f64,
    /// Where that time went.
    pub(crate) parts: Parts,
    /// The session; `None` for captures, which have none.
    pub(crate) session: Option<SessionTime>,
}

impl WallRun {
    /// Costs what [`Clock::new`] does, and a pass over operations. The keys are those of the nodes of
    /// the profile's tree.
    pub(crate) fn of(profile: &Profile, keys: &[RangeKey]) -> Self {
        let clock = Clock::new(profile, &Thresholds::new());
        let devices = clock.devices() as f64;
        // By node of the tree; the first is outside any range.
        let mut times = vec![Causes::default(); keys.len() + 1];
        let range_of = |id: OperationId| profile.operation(id).range().map(|range| range.id);
        let mut add = |range: Option<RangeId>, cause: WallCause, ns: f64| {
            let at = range.map_or(0, |id| profile.tree.of_range[id.at()].at() + 1);
            times[at][cause as usize] += ns / devices;
        };
        for piece in &clock.pieces {
            let range = match piece.operation {
                Some(id) if !piece.is_idle => range_of(id),
                _ => piece.range,
            };
            let ns = piece.time.ns() as f64;
            match piece.part {
                // The sum of times is added below: what is left is negative.
                Part::Kernels => add(range, WallCause::Overlap, ns),
                part => add(range, part.into(), ns),
            }
        }
        for operation in profile.operations() {
            let is_work = operation.kind() != OperationKind::Copy && !operation.is_collective();
            if is_work && let Some(time) = operation.interval() {
                let (range, ns) = (operation.range().map(|range| range.id), time.ns() as f64);
                add(range, WallCause::Kernels, ns);
                add(range, WallCause::Overlap, -ns);
            }
        }
        let mut parts = Parts::new();
        for (at, times) in times.into_iter().enumerate() {
            if times != Causes::default() {
                let key = at.checked_sub(1).map(|node| keys[node].clone());
                add_to(parts.entry(key).or_default(), &times, 1.0);
            }
        }
        let mut active = extent(&profile.store);
        if clock.pieces.is_empty() {
            // Nothing ran on a GPU: all of it is outside.
            active = Interval { start_ns: active.start_ns, end_ns: active.start_ns };
        }
        let windows = &profile.store.session.windows_ns;
        Self {
            active_ns: within(windows, active) as f64,
            parts,
            session: SessionTime::of(windows, active),
        }
    }

    fn ns(&self, is_session: bool) -> f64 {
        self.session.filter(|_| is_session).map_or(self.active_ns, |session| session.ns as f64)
    }
}

fn add_to(sum: &mut Causes, times: &Causes, factor: f64) {
    sum.iter_mut().zip(times).for_each(|(sum, ns)| *sum += factor * ns);
}

/// The runs of a side: each wall time, and the parts of the middle ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct WallSide {
    /// The wall time of each run, in order.
    pub(crate) runs_ns: Vec<f64>,
    /// Means over the runs in the middle half by wall time.
    pub(crate) parts: Parts,
}

impl WallSide {
    /// With `is_session` the wall times are those of sessions, else of the recorded activity.
    pub(crate) fn of(runs: &[WallRun], is_session: bool) -> Self {
        let runs_ns = runs.iter().map(|run| run.ns(is_session)).collect();
        let mut sorted: Vec<&WallRun> = runs.iter().collect();
        sorted.sort_by(|a, b| a.ns(is_session).total_cmp(&b.ns(is_session)));
        let middle = middle(&sorted);
        let share = 1.0 / middle.len().max(1) as f64;
        let mut parts = Parts::new();
        for run in middle {
            for (key, times) in &run.parts {
                add_to(parts.entry(key.clone()).or_default(), times, share);
            }
            if let Some(session) = run.session.filter(|_| is_session) {
                parts.entry(None).or_default()[WallCause::Host as usize] +=
                    share * session.outside_ns as f64;
            }
        }
        Self { runs_ns, parts }
    }

    /// The mean wall time of the middle runs, which the parts sum to if none is missing.
    pub(super) fn ns(&self) -> f64 {
        let mut sorted = self.runs_ns.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let middle = middle(&sorted);
        middle.iter().sum::<f64>() / middle.len().max(1) as f64
    }
}

/// The middle half of sorted runs.
fn middle<T>(sorted: &[T]) -> &[T] {
    let cut = sorted.len() / 4;
    &sorted[cut..sorted.len() - cut]
}

/// The innermost other range whose path begins the path of each, preferably of the same domain.
pub(super) fn parents(keys: &[&RangeKey]) -> Vec<Option<usize>> {
    let mut of_path: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, key) in keys.iter().enumerate() {
        of_path.entry(&key.path).or_default().push(at);
    }
    let parent = |key: &&RangeKey| {
        let mut prefixes = key.path.rmatch_indices('/').map(|(at, _)| &key.path[..at]);
        let around = prefixes.find_map(|prefix| of_path.get(prefix))?;
        let same = around.iter().find(|at| keys[**at].domain == key.domain);
        same.or(around.first()).copied()
    };
    keys.iter().map(parent).collect()
}
