//! Exposed and hidden communication, by range.

use std::collections::BTreeMap;
use std::time::Duration;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::base::statistics::as_ns;
use crate::join::busy::united;
use crate::join::range_tree::NodeId;
use crate::join::tables::{Interval, OperationId, RangeId};
use crate::profile::Profile;

/// The communication of a range, summed over its instances and ranks.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RangeCommunication {
    /// The path; `None` outside all ranges.
    pub path: Option<String>,
    /// Kernels of collectives.
    pub kernels: u64,
    /// Their time.
    #[serde(rename = "time_ns", serialize_with = "as_ns")]
    pub time: Duration,
    /// The part of it in which nothing else ran on the device.
    #[serde(rename = "exposed_ns", serialize_with = "as_ns")]
    pub exposed: Duration,
}

impl RangeCommunication {
    /// The part that is hidden behind other work.
    pub fn hidden(&self) -> Duration {
        self.time.saturating_sub(self.exposed)
    }
}

/// Disjoint times in order, with the sum of those before each.
#[derive(Debug, Default)]
pub(super) struct Covered {
    times: Vec<Interval>,
    before: Vec<u64>,
}

impl Covered {
    pub(super) fn new(times: Vec<Interval>) -> Self {
        let times = united(times);
        let mut sum = 0;
        let before = times.iter().map(|time| {
            sum += time.ns();
            sum - time.ns()
        });
        Self { before: before.collect(), times }
    }

    /// The covered time before a moment.
    fn until(&self, ns: u64) -> u64 {
        let next = self.times.partition_point(|time| time.start_ns < ns);
        let Some(last) = next.checked_sub(1) else { return 0 };
        let time = self.times[last];
        self.before[last] + ns.min(time.end_ns).saturating_sub(time.start_ns)
    }

    pub(super) fn within(&self, time: Interval) -> u64 {
        self.until(time.end_ns).saturating_sub(self.until(time.start_ns))
    }
}

/// Longest exposed time first. Costs two passes over operations.
pub(super) fn by_range(profile: &Profile) -> Vec<RangeCommunication> {
    let store = &profile.store;
    let kernels = profile.collective_kernels();
    let mut others: BTreeMap<u32, Vec<Interval>> = BTreeMap::new();
    for operation in &store.operations {
        let Some(time) = operation.time() else { continue };
        if !kernels.contains(operation.work) {
            others.entry(store.work(operation).place.device).or_default().push(time);
        }
    }
    let covered: BTreeMap<u32, Covered> =
        others.into_iter().map(|(device, times)| (device, Covered::new(times))).collect();
    // The range of the thread that enqueued it; without NCCL's events, that of the launch.
    let enqueued: FxHashMap<OperationId, Option<RangeId>> = profile
        .collective_rows()
        .iter()
        .filter_map(|row| Some((row.operation?, row.range.get())))
        .collect();
    let mut sums: FxHashMap<Option<NodeId>, (u64, u64, u64)> = FxHashMap::default();
    for (id, operation) in (0..).map(OperationId).zip(&store.operations) {
        let Some(time) = operation.time().filter(|_| kernels.contains(operation.work)) else {
            continue;
        };
        let launched = || store.range_of(operation.call);
        let range = enqueued.get(&id).copied().unwrap_or_else(launched);
        let node = range.map(|range| profile.tree.of_range[range.at()]);
        let device = store.work(operation).place.device;
        let hidden = covered.get(&device).map_or(0, |covered| covered.within(time));
        let sum = sums.entry(node).or_default();
        *sum = (sum.0 + 1, sum.1 + time.ns(), sum.2 + time.ns().saturating_sub(hidden));
    }
    let row =
        |(node, (kernels, time, exposed)): (Option<NodeId>, (u64, u64, u64))| RangeCommunication {
            path: node.map(|id| profile.node(id).cut_path()),
            kernels,
            time: Duration::from_nanos(time),
            exposed: Duration::from_nanos(exposed),
        };
    let mut rows: Vec<RangeCommunication> = sums.into_iter().map(row).collect();
    rows.sort_by(|a, b| b.exposed.cmp(&a.exposed).then_with(|| a.path.cmp(&b.path)));
    rows
}
