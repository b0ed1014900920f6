//! The wall time of one run and of several, divided among ranges and causes.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::WallCause;
use crate::analyze::diagnosis::{Clock, Part, Thresholds};
use crate::join::busy::extent;
use crate::join::tables::{OperationId, RangeId};
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

/// One run: its wall time, divided.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct WallRun {
    /// From the first to the last activity, without pauses. They sum to that time.
    pub(crate) parts: Parts,
    /// The session's time before its first and after its last activity; `None` for captures, which
    /// have no session.
    pub(crate) outside_ns: Option<f64>,
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
        let active_ns: f64 = parts.values().flatten().sum();
        let outside_ns = session_ns(profile).map(|ns| (ns as f64 - active_ns).max(0.0));
        Self { parts, outside_ns }
    }

    fn ns(&self, is_session: bool) -> f64 {
        let outside_ns = if is_session { self.outside_ns.unwrap_or(0.0) } else { 0.0 };
        self.parts.values().flatten().sum::<f64>() + outside_ns
    }
}

fn add_to(sum: &mut Causes, times: &Causes, factor: f64) {
    sum.iter_mut().zip(times).for_each(|(sum, ns)| *sum += factor * ns);
}

/// The time of the session without pauses, until the end of its last operation. `None` for captures,
/// which have no session.
fn session_ns(profile: &Profile) -> Option<u64> {
    let windows = &profile.store.session.windows_ns;
    let last_ns = windows.last()?.1;
    if last_ns == u64::MAX {
        return None;
    }
    let recorded = windows.iter().map(|(start, end)| end.saturating_sub(*start));
    let tail = extent(&profile.store).end_ns.saturating_sub(last_ns);
    Some(recorded.fold(tail, u64::saturating_add))
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
        let cut = sorted.len() / 4;
        let middle = &sorted[cut..sorted.len() - cut];
        let share = 1.0 / middle.len().max(1) as f64;
        let mut parts = Parts::new();
        for run in middle {
            for (key, times) in &run.parts {
                add_to(parts.entry(key.clone()).or_default(), times, share);
            }
            if let (true, Some(ns)) = (is_session, run.outside_ns) {
                parts.entry(None).or_default()[WallCause::Host as usize] += share * ns;
            }
        }
        Self { runs_ns, parts }
    }

    /// The mean wall time of the middle runs.
    pub(super) fn ns(&self) -> f64 {
        self.parts.values().flatten().sum()
    }
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
