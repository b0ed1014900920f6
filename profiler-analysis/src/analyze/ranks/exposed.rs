//! Exposed and hidden communication, by range.

use std::time::Duration;

use profiler_base::statistics::as_ns;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::analyze::matches::Covered;
use profiler_core::profile::Profile;
use profiler_core::tables::range_tree::NodeId;
use profiler_core::tables::{OperationId, RangeId};

/// The communication of a range, summed over its instances and ranks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RangeCommunication {
    /// The path; `None` outside all ranges.
    pub(crate) path: Option<String>,
    /// The number of collective kernels.
    pub(crate) kernels: u64,
    /// Their time.
    #[serde(rename = "time_ns", serialize_with = "as_ns")]
    pub(crate) time: Duration,
    /// The part of it in which nothing else ran on the device.
    #[serde(rename = "exposed_ns", serialize_with = "as_ns")]
    pub(crate) exposed: Duration,
}

impl RangeCommunication {
    /// The part that is hidden behind other work.
    pub(crate) fn hidden(&self) -> Duration {
        self.time.saturating_sub(self.exposed)
    }
}

/// Computes the communication by range, longest exposed time first. Costs two passes over
/// operations.
pub(super) fn by_range(profile: &Profile) -> Vec<RangeCommunication> {
    let store = &profile.tables();
    let kernels = profile.collective_kernels();
    let covered = Covered::by_device(profile, |_| true);
    // The range of the thread that enqueued it; without NCCL's events, the range of the launch.
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
        let node = range.map(|range| profile.range_tree().of_range[range.at()]);
        let device = store.work(operation).place.device;
        let hidden = covered.get(&device).map_or(0, |covered| covered.time_within(time));
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
