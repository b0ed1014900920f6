//! The wall time of one or several runs, divided among ranges and causes.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use profiler_base::statistics::median_of;

use super::WallCause;
use crate::analyze::diagnosis::{Clock, Part, Thresholds};
use profiler_core::profile::{OperationKind, Profile};
use profiler_core::tables::busy::{SessionTime, extent, time_in_windows};
use profiler_core::tables::{OperationId, RangeId};

/// The assumed variation of GPU time between processes; `HOST_VARIATION` covers the rest, which is
/// host time. Of a hundred processes on an H100, the launches of the slowest took twice as long as
/// those of the fastest (docs/measurements/analysis.md).
const GPU_VARIATION: f64 = 0.02;
pub(crate) const HOST_VARIATION: f64 = 0.5;

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

/// One run: its wall time and its division by cause.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct WallRun {
    /// From the first to the last activity, without pauses.
    pub(crate) active_ns: f64,
    /// The parts of that time.
    pub(crate) parts: Parts,
    /// The session; `None` for captures, which have none.
    pub(crate) session: Option<SessionTime>,
    pub(crate) process: ProcessKey,
}

/// A process as identified by a recording: boot, id and start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct ProcessKey(Option<(Option<String>, u32, Option<u64>)>);

impl ProcessKey {
    pub(crate) fn from_profile(profile: &Profile) -> Self {
        let info = profile.recording_info();
        let key = |id| (info.boot_id.clone(), id, info.process_started);
        Self(info.process_id.map(key))
    }

    /// Indices of the runs of each process, in the order of their first ones. A run of an unknown
    /// process is a process of its own.
    pub(crate) fn groups<'k>(keys: impl Iterator<Item = &'k Self>) -> Vec<Vec<usize>> {
        let mut of_key: HashMap<&Self, usize> = HashMap::new();
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (run, key) in keys.enumerate() {
            let new = groups.len();
            let at = if key.0.is_some() { *of_key.entry(key).or_insert(new) } else { new };
            if at == new {
                groups.push(Vec::new());
            }
            groups[at].push(run);
        }
        groups
    }
}

/// One value for each process: the median of its runs.
pub(crate) fn by_process(groups: &[Vec<usize>], of_runs: &[f64]) -> Vec<f64> {
    let middle = |runs: &Vec<usize>| median_of(runs.iter().map(|run| of_runs[*run]));
    groups.iter().map(|runs| middle(runs).unwrap_or(0.0)).collect()
}

impl WallRun {
    /// Costs as much as [`Clock::new`] and a pass over operations. The keys belong to the nodes of
    /// the profile's tree.
    pub(crate) fn new(profile: &Profile, keys: &[RangeKey]) -> Self {
        let clock = Clock::new(profile, &Thresholds::new());
        let devices = clock.devices() as f64;
        // By node of the tree; the first entry is outside any range.
        let mut times = vec![Causes::default(); keys.len() + 1];
        let range_of = |id: OperationId| profile.operation(id).range().map(|range| range.id());
        let mut add = |range: Option<RangeId>, cause: WallCause, ns: f64| {
            let at = range.map_or(0, |id| profile.range_tree().of_range[id.at()].at() + 1);
            times[at][cause as usize] += ns / devices;
        };
        for piece in &clock.pieces {
            let range = match piece.operation.get() {
                Some(id) if !piece.is_idle => range_of(id),
                _ => piece.range.get(),
            };
            let ns = piece.time.ns() as f64;
            match piece.part {
                // The sum of times is added below, so the remainder is negative.
                Part::Kernels => add(range, WallCause::Overlap, ns),
                part => add(range, part.into(), ns),
            }
        }
        for operation in profile.operations() {
            let is_work = operation.kind() != OperationKind::Copy && !operation.is_collective();
            if is_work && let Some(time) = operation.interval() {
                let (range, ns) = (operation.range().map(|range| range.id()), time.ns() as f64);
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
        let windows = &profile.tables().session.windows_ns;
        let active = extent(profile.tables());
        let mut on_gpu = active;
        if clock.pieces.is_empty() {
            // Nothing ran on a GPU: all of the session is outside.
            on_gpu.end_ns = on_gpu.start_ns;
        }
        Self {
            active_ns: time_in_windows(windows, active) as f64,
            parts,
            session: SessionTime::new(windows, on_gpu),
            process: ProcessKey::from_profile(profile),
        }
    }

    fn ns(&self, is_session: bool) -> f64 {
        self.session.filter(|_| is_session).map_or(self.active_ns, |session| session.ns as f64)
    }
}

fn add_to(sum: &mut Causes, times: &Causes, factor: f64) {
    sum.iter_mut().zip(times).for_each(|(sum, ns)| *sum += factor * ns);
}

/// The runs of a side: their wall times, and the parts of the middle ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct WallSide {
    pub(crate) runs: usize,
    /// The mean wall time of the runs in the middle half: the sum of the parts, unless one is
    /// missing.
    pub(crate) ns: f64,
    /// The median wall time of each process, in order.
    pub(crate) processes_ns: Vec<f64>,
    /// Means over the runs in the middle half by wall time.
    pub(crate) parts: Parts,
}

impl WallSide {
    /// With `is_session`, wall times cover the sessions, else the recorded activity.
    pub(crate) fn from_runs(runs: &[WallRun], is_session: bool) -> Self {
        let runs_ns: Vec<f64> = runs.iter().map(|run| run.ns(is_session)).collect();
        let mut sorted: Vec<&WallRun> = runs.iter().collect();
        sorted.sort_by(|a, b| a.ns(is_session).total_cmp(&b.ns(is_session)));
        let middle = middle(&sorted);
        let share = 1.0 / middle.len().max(1) as f64;
        let mut parts = Parts::new();
        for run in middle {
            for (key, times) in &run.parts {
                add_to(parts.entry(key.clone()).or_default(), times, share);
            }
            let outside_ns = match run.session.filter(|_| is_session) {
                Some(session) => session.outside_ns as f64,
                None if run.parts.is_empty() => run.active_ns,
                None => 0.0,
            };
            if outside_ns != 0.0 {
                parts.entry(None).or_default()[WallCause::Host as usize] += share * outside_ns;
            }
        }
        let groups = ProcessKey::groups(runs.iter().map(|run| &run.process));
        Self {
            runs: runs.len(),
            ns: share * middle.iter().map(|run| run.ns(is_session)).sum::<f64>(),
            processes_ns: by_process(&groups, &runs_ns),
            parts,
        }
    }

    /// The share by which wall times of processes may differ, for a side with a single process.
    /// Host time varies far more than GPU time.
    pub(crate) fn variation(&self) -> f64 {
        let of_cause = |cause: WallCause| self.parts.values().map(move |of| of[cause as usize]);
        let on_gpu = [WallCause::Kernels, WallCause::Overlap, WallCause::Communication];
        let gpu_ns: f64 = on_gpu.into_iter().flat_map(of_cause).sum();
        let gpu = (gpu_ns / self.ns.max(1.0)).clamp(0.0, 1.0);
        GPU_VARIATION * gpu + HOST_VARIATION * (1.0 - gpu)
    }
}

/// The middle half of sorted runs.
fn middle<T>(sorted: &[T]) -> &[T] {
    let cut = sorted.len() / 4;
    &sorted[cut..sorted.len() - cut]
}

/// For each path the innermost other range that is a prefix of it, preferably of the same domain.
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
