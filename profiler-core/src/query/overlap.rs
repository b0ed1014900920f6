//! How much of the copying is hidden behind kernels.

use std::fmt;
use std::time::Duration;

use super::{Query, Span};
use crate::base::order;
use crate::base::statistics::as_ns;
use crate::base::units::time;
use crate::profile::OperationKind;

/// How the time from the first start to the last end on a device is divided. The five parts add up to the span. Kernels
/// are those that are no collectives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Overlap {
    /// Its CUDA ordinal.
    pub device: u32,
    /// From the first start to the last end.
    pub span: Span,
    /// Kernels and copies ran at the same time.
    #[serde(rename = "both_ns", serialize_with = "as_ns")]
    pub both: Duration,
    /// Kernels alone ran.
    #[serde(rename = "kernels_only_ns", serialize_with = "as_ns")]
    pub kernels_only: Duration,
    /// Copies or memsets alone ran.
    #[serde(rename = "copies_only_ns", serialize_with = "as_ns")]
    pub copies_only: Duration,
    /// Collectives ran, and nothing else: see [`DeviceTimes::communication`](super::DeviceTimes::communication).
    #[serde(rename = "communication_ns", serialize_with = "as_ns")]
    pub communication: Duration,
    /// Nothing ran.
    #[serde(rename = "neither_ns", serialize_with = "as_ns")]
    pub neither: Duration,
}

impl Overlap {
    /// The part of the copies' time in which kernels ran too, from 0 to 1. `None` if nothing was copied.
    pub fn hidden_share(&self) -> Option<f64> {
        let copies = self.both.saturating_add(self.copies_only).as_secs_f64();
        (copies > 0.0).then(|| self.both.as_secs_f64() / copies)
    }
}

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

/// The kinds of operations in [`Device::edges`].
const COPY: usize = 0;
const KERNEL: usize = 1;
const COLLECTIVE: usize = 2;

/// What of one device has been seen.
struct Device {
    number: u32,
    /// Start or end of an operation of a kind.
    edges: Vec<(u64, usize, i32)>,
}

impl Query<'_> {
    /// How kernels and copies overlap on each device, by its number. Memsets count as copies, unless the query leaves them
    /// out: `.kernels().copies()`. A graph that was traced as one interval counts as a kernel. Operations without timestamps are left out. Costs O(n log n).
    pub fn overlap(&self) -> Vec<Overlap> {
        let mut devices: Vec<Device> = Vec::new();
        for operation in self.iter() {
            // An end before the start is a damaged record.
            let Some(time) = operation.interval().filter(|time| time.ns() != 0) else {
                continue;
            };
            let number = operation.device();
            let place = devices.iter().position(|device| device.number == number);
            let place = place.unwrap_or_else(|| {
                devices.push(Device { number, edges: Vec::new() });
                devices.len() - 1
            });
            let kind = match operation.kind() {
                _ if operation.is_collective() => COLLECTIVE,
                OperationKind::Kernel => KERNEL,
                _ => COPY,
            };
            let edges = &mut devices[place].edges;
            edges.push((time.start_ns, kind, 1));
            edges.push((time.end_ns, kind, -1));
        }
        order::sort_by_number(&mut devices, |device| device.number.into());
        devices.into_iter().filter_map(|device| self.of_edges(device)).collect()
    }

    fn of_edges(&self, mut device: Device) -> Option<Overlap> {
        device.edges.sort_unstable();
        let (first, last) = (device.edges.first()?.0, device.edges.last()?.0);
        let [mut both, mut kernels_only, mut copies_only] = [0_u64; 3];
        let [mut communication, mut neither] = [0_u64; 2];
        let mut running = [0_i32; 3];
        let mut before = first;
        for (at, kind, change) in device.edges {
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
        let device = device.number;
        Some(Overlap { device, span, both, kernels_only, copies_only, communication, neither })
    }
}
