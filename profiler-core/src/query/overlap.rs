//! The overlap of copies with kernels.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use profiler_base::units::time;

use super::{Query, Span};
use crate::profile::OperationKind;

/// The time from the first start to the last end on a device, divided into five parts. "Kernels"
/// excludes collectives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Overlap {
    /// The device's CUDA ordinal.
    pub device: u32,
    /// The interval from the first start to the last end.
    pub span: Span,
    /// Kernels and copies ran concurrently.
    pub both: Duration,
    /// Only kernels ran.
    pub kernels_only: Duration,
    /// Only copies or memsets ran.
    pub copies_only: Duration,
    /// Only collectives ran: see [`DeviceTimes::communication`](super::DeviceTimes::communication).
    pub communication: Duration,
    /// Nothing ran.
    pub neither: Duration,
}

#[cfg(feature = "serde")]
profiler_base::serialize_fields!(Overlap, "Overlap", |overlap| {
    "device": overlap.device,
    "span": overlap.span,
    "both_ns": super::ns(overlap.both),
    "kernels_only_ns": super::ns(overlap.kernels_only),
    "copies_only_ns": super::ns(overlap.copies_only),
    "communication_ns": super::ns(overlap.communication),
    "neither_ns": super::ns(overlap.neither),
});

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "device {}: of {} kernels alone {}, copies alone {}, both {}, neither {}",
            self.device,
            time(self.span.duration()),
            time(self.kernels_only),
            time(self.copies_only),
            time(self.both),
            time(self.neither)
        )?;
        match self.communication {
            Duration::ZERO => Ok(()),
            communication => write!(f, ", communication alone {}", time(communication)),
        }
    }
}

/// The kinds of operations in [`Edges`].
const COPY: usize = 0;
const KERNEL: usize = 1;
const COLLECTIVE: usize = 2;

/// The starts and ends of operations: time, kind and change in the number of running operations.
type Edges = Vec<(u64, usize, i32)>;

impl Query<'_> {
    /// The overlap of kernels and copies by device. Memsets count as copies unless the query
    /// excludes them: `.kernels().copies()`. A graph traced as one interval counts as a kernel.
    /// Operations without timestamps are excluded. Costs O(n log n).
    pub fn overlap(&self) -> Vec<Overlap> {
        let mut devices: BTreeMap<u32, Edges> = BTreeMap::new();
        for operation in self.iter() {
            // A record whose end precedes its start is damaged.
            let Some(time) = operation.interval().filter(|time| time.ns() != 0) else { continue };
            let kind = match operation.kind() {
                _ if operation.is_collective() => COLLECTIVE,
                OperationKind::Kernel => KERNEL,
                _ => COPY,
            };
            let edges = devices.entry(operation.device()).or_default();
            edges.extend([(time.start_ns, kind, 1), (time.end_ns, kind, -1)]);
        }
        devices.into_iter().filter_map(|(device, edges)| self.overlap_of(device, edges)).collect()
    }

    fn overlap_of(&self, device: u32, mut edges: Edges) -> Option<Overlap> {
        edges.sort_unstable();
        let (first, last) = (edges.first()?.0, edges.last()?.0);
        let [mut both, mut kernels_only, mut copies_only] = [0_u64; 3];
        let [mut communication, mut neither] = [0_u64; 2];
        let mut running = [0_i32; 3];
        let mut before = first;
        for (at, kind, change) in edges {
            let part = match running.map(|count| count > 0) {
                [true, true, _] => &mut both,
                [false, true, _] => &mut kernels_only,
                [true, false, _] => &mut copies_only,
                [false, false, true] => &mut communication,
                [false, false, false] => &mut neither,
            };
            *part += at - before;
            running[kind] += change;
            before = at;
        }
        let [both, kernels_only, copies_only, communication, neither] =
            [both, kernels_only, copies_only, communication, neither].map(Duration::from_nanos);
        let since_start = |ns| self.profile.since_start(ns);
        let span = Span { start: since_start(first), end: since_start(last) };
        Some(Overlap { device, span, both, kernels_only, copies_only, communication, neither })
    }
}
