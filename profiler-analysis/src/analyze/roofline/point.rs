//! A point of a roofline: work, time, and its distance to the roofs.

use std::time::Duration;

use nvtx::{Dtype, Pipe};
use profiler_base::units::nanoseconds;
use profiler_base::{named_variants, serialize_fields};
use serde::Serialize;

use super::peaks::Roof;

named_variants! {
    /// The limit of work.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
    #[serde(rename_all = "lowercase")]
    #[non_exhaustive]
    pub enum Bound {
        /// The memory bandwidth: fewer operations per byte than the ridge.
        Memory = "memory",
        /// The compute units.
        Compute = "compute",
    }
}

/// All instances of a path with the same kind of work, or all launches of a kernel.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RooflinePoint {
    /// The range's path, or the kernel's name.
    pub name: String,
    /// The range's domain; `None` for the default domain.
    pub domain: Option<String>,
    /// True if the work was declared for a kernel instead of a range.
    pub is_kernel: bool,
    /// Number of ranges, graph launches with nodes of the range, or kernels.
    pub instances: u64,
    /// Kernels that ran for them.
    pub kernels: u64,
    /// Devices with these kernels. The roofs belong to one device; the time is summed over devices.
    pub devices: u64,
    /// Operations, summed over all instances.
    pub flops: Option<f64>,
    /// Bytes read from and written to the device's memory, summed over all instances.
    pub bytes: Option<f64>,
    /// The number type, if declared.
    pub dtype: Option<Dtype>,
    /// The units of the roof: as declared, or the fastest for the type.
    pub pipe: Option<Pipe>,
    /// Time in which at least one of the kernels ran.
    pub gpu_time: Duration,
    /// The roof for type and units, in operations per second.
    pub compute: Option<Roof>,
    /// The roof of the memory, in bytes per second.
    pub memory: Roof,
}

impl RooflinePoint {
    /// Operations per byte: the operational (arithmetic) intensity.
    pub fn intensity(&self) -> Option<f64> {
        ratio(self.flops?, self.bytes?)
    }

    /// Operations per second.
    pub fn achieved(&self) -> Option<f64> {
        ratio(self.flops?, self.gpu_time.as_secs_f64())
    }

    /// Declared bytes per second; the actual traffic may be higher.
    pub fn achieved_bandwidth(&self) -> Option<f64> {
        ratio(self.bytes?, self.gpu_time.as_secs_f64())
    }

    /// The operations per byte above which the units limit.
    pub fn ridge(&self) -> Option<f64> {
        ratio(self.compute?.peak?, self.memory.peak?)
    }

    /// Operations per second that the roofs allow at this intensity: the lesser of the compute roof
    /// and intensity x bandwidth. If only one is known, that one.
    pub fn attainable(&self) -> Option<f64> {
        ratio(self.flops?, self.ideal_time()?)
    }

    /// The time that the work would take at the roof.
    pub fn ideal(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.ideal_time()?).ok()
    }

    /// The achieved share of the roof; 1 is at the roof. Above 1 if declared bytes were read from a
    /// cache, or more work was declared than done. With one unknown roof, the share of the other.
    pub fn of_roof(&self) -> Option<f64> {
        ratio(self.ideal_time()?, self.gpu_time.as_secs_f64())
    }

    /// The maximum speed-up: the factor to the roof.
    pub fn distance(&self) -> Option<f64> {
        ratio(1.0, self.of_roof()?)
    }

    /// The lower roof. `None` if a roof or the declared work for it is unknown.
    pub fn bound(&self) -> Option<Bound> {
        match self.ideal_times() {
            (Some(compute), Some(memory)) if compute >= memory => Some(Bound::Compute),
            (Some(_), Some(_)) => Some(Bound::Memory),
            // Without operations only the memory is a limit.
            (None, Some(_)) if self.flops.is_none_or(|flops| flops == 0.0) => Some(Bound::Memory),
            _ => None,
        }
    }

    /// Seconds at the compute roof and at the memory roof.
    fn ideal_times(&self) -> (Option<f64>, Option<f64>) {
        let time = |work: Option<f64>, roof: Option<Roof>| ratio(work?, roof?.peak?);
        (time(self.flops, self.compute), time(self.bytes, Some(self.memory)))
    }

    fn ideal_time(&self) -> Option<f64> {
        match self.ideal_times() {
            (Some(compute), Some(memory)) => Some(compute.max(memory)),
            (compute, memory) => compute.or(memory),
        }
        .filter(|seconds| *seconds > 0.0)
    }

    /// Unit, achieved and attainable rate: operations, or bytes without operations.
    pub(super) fn rate(&self) -> (&'static str, Option<f64>, Option<f64>) {
        match self.flops {
            Some(flops) if flops > 0.0 => ("FLOP", self.achieved(), self.attainable()),
            _ => ("B", self.achieved_bandwidth(), self.memory.peak),
        }
    }

    pub(super) fn label(&self) -> String {
        match &self.domain {
            Some(domain) => format!("{domain}: {}", self.name),
            None => self.name.clone(),
        }
    }
}

/// The quotient, if finite.
pub(super) fn ratio(above: f64, below: f64) -> Option<f64> {
    Some(above / below).filter(|ratio| ratio.is_finite())
}

serialize_fields!(RooflinePoint, "RooflinePoint", |point| {
    "name": point.name,
    "domain": point.domain,
    "is_kernel": point.is_kernel,
    "instances": point.instances,
    "kernels": point.kernels,
    "devices": point.devices,
    "dtype": point.dtype.map(Dtype::name),
    "pipe": point.pipe.map(Pipe::name),
    "gpu_time_ns": nanoseconds(point.gpu_time),
    "flops": point.flops,
    "bytes": point.bytes,
    "intensity_flop_per_byte": point.intensity(),
    "achieved_flop_per_s": point.achieved(),
    "achieved_bytes_per_s": point.achieved_bandwidth(),
    "attainable_flop_per_s": point.attainable(),
    "ridge_flop_per_byte": point.ridge(),
    "ideal_time_ns": point.ideal_time().map(|seconds| seconds * 1e9),
    "of_roof": point.of_roof(),
    "distance": point.distance(),
    "bound": point.bound(),
    "compute_roof": point.compute,
});
