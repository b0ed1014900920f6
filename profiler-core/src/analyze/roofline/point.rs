//! One point: work, time, and where it lies under the roofs.

use std::time::Duration;

use nvtx::{Dtype, Pipe};
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use super::peaks::Roof;
use crate::base::named_variants::named_variants;
use crate::base::units::nanoseconds;

named_variants! {
    /// What keeps work from being faster at best.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
    #[serde(rename_all = "lowercase")]
    #[non_exhaustive]
    pub enum Bound {
        /// The bandwidth of the memory: it does fewer operations a byte than the ridge.
        Memory = "memory",
        /// The units that compute.
        Compute = "compute",
    }
}

/// All instances of a path whose declared work is of one sort, or all launches of a kernel.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RooflinePoint {
    /// The range's path; of a kernel its name.
    pub name: String,
    /// The range's domain; `None` is the default one.
    pub domain: Option<String>,
    /// True if the work was said of a kernel and not of a range.
    pub is_kernel: bool,
    /// Ranges, or launches of a graph with their nodes, or kernels.
    pub instances: u64,
    /// Kernels that ran for them.
    pub kernels: u64,
    /// Devices on which they ran. The roofs are those of one: time on several is added.
    pub devices: u64,
    /// Operations, of all instances.
    pub flops: Option<f64>,
    /// Bytes from and to the device's memory, of all instances.
    pub bytes: Option<f64>,
    /// The type of the numbers, if it was said.
    pub dtype: Option<Dtype>,
    /// The units whose roof it is held against: as said, or the fastest ones for the type.
    pub pipe: Option<Pipe>,
    /// Time in which at least one of its kernels ran.
    pub gpu_time: Duration,
    /// The roof of type and units, in operations a second.
    pub compute: Option<Roof>,
    /// The roof of the memory, in bytes a second.
    pub memory: Roof,
}

impl RooflinePoint {
    /// Operations a byte (operational, or arithmetic, intensity).
    pub fn intensity(&self) -> Option<f64> {
        ratio(self.flops?, self.bytes?)
    }

    /// Operations a second.
    pub fn achieved(&self) -> Option<f64> {
        ratio(self.flops?, self.gpu_time.as_secs_f64())
    }

    /// Bytes a second: those declared, which may be fewer than moved.
    pub fn achieved_bandwidth(&self) -> Option<f64> {
        ratio(self.bytes?, self.gpu_time.as_secs_f64())
    }

    /// Operations a byte from which on the units are the limit.
    pub fn ridge(&self) -> Option<f64> {
        ratio(self.compute?.value()?, self.memory.value()?)
    }

    /// Operations a second that the roofs allow at this intensity: the lesser of the units' roof and of intensity x bandwidth,
    /// or the one that is known.
    pub fn attainable(&self) -> Option<f64> {
        ratio(self.flops?, self.ideal_time(Roof::value)?)
    }

    /// The time that it would take at the roof.
    pub fn ideal(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.ideal_time(Roof::value)?).ok()
    }

    /// The share of the roof that it reached: 1 is at it. Above 1 where the declared bytes came from a cache, or more was
    /// declared than done. Where one roof is not known it is that of the other.
    pub fn of_roof(&self) -> Option<f64> {
        ratio(self.ideal_time(Roof::value)?, self.gpu_time.as_secs_f64())
    }

    /// The share of what probes measured that it reached; `None` unless every roof that matters was.
    pub fn of_measured(&self) -> Option<f64> {
        let known = |declared: Option<f64>, roof: Option<Roof>| {
            declared.is_none() || roof.is_some_and(|roof| roof.measured.is_some())
        };
        let all = known(self.flops, self.compute) && known(self.bytes, Some(self.memory));
        let ideal = self.ideal_time(|roof| roof.measured).filter(|_| all)?;
        ratio(ideal, self.gpu_time.as_secs_f64())
    }

    /// The distance to the roof: how many times as fast it would be there.
    pub fn distance(&self) -> Option<f64> {
        ratio(1.0, self.of_roof()?)
    }

    /// Which roof it is under. `None` where one of both, or what was declared for it, is not known: it may be the lower one.
    pub fn bound(&self) -> Option<Bound> {
        let (compute, memory) = self.ideal_times(Roof::value);
        match (compute, memory) {
            (Some(compute), Some(memory)) if compute >= memory => Some(Bound::Compute),
            (Some(_), Some(_)) => Some(Bound::Memory),
            // Nothing is computed.
            (None, Some(_)) if self.flops.is_none_or(|flops| flops == 0.0) => Some(Bound::Memory),
            _ => None,
        }
    }

    /// Seconds at the units' roof and at the memory's.
    fn ideal_times(&self, value: impl Fn(&Roof) -> Option<f64>) -> (Option<f64>, Option<f64>) {
        let compute = self.compute.as_ref().and_then(&value);
        let memory = value(&self.memory);
        let time = |work: Option<f64>, roof: Option<f64>| ratio(work?, roof?);
        (time(self.flops, compute), time(self.bytes, memory))
    }

    fn ideal_time(&self, value: impl Fn(&Roof) -> Option<f64>) -> Option<f64> {
        let (compute, memory) = self.ideal_times(value);
        match (compute, memory) {
            (Some(compute), Some(memory)) => Some(compute.max(memory)),
            (compute, memory) => compute.or(memory),
        }
        .filter(|seconds| *seconds > 0.0)
    }

    /// What it achieved and could attain, in operations, or in bytes where it has none.
    pub(super) fn rate(&self) -> (&'static str, Option<f64>, Option<f64>) {
        match self.flops {
            Some(flops) if flops > 0.0 => ("FLOP", self.achieved(), self.attainable()),
            _ => ("B", self.achieved_bandwidth(), self.memory.value()),
        }
    }

    pub(super) fn label(&self) -> String {
        match &self.domain {
            Some(domain) => format!("{domain}: {}", self.name),
            None => self.name.clone(),
        }
    }
}

/// A quotient that is a number.
fn ratio(above: f64, below: f64) -> Option<f64> {
    Some(above / below).filter(|ratio| ratio.is_finite())
}

impl Serialize for RooflinePoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut point = serializer.serialize_struct("RooflinePoint", 22)?;
        point.serialize_field("name", &self.name)?;
        point.serialize_field("domain", &self.domain)?;
        point.serialize_field("is_kernel", &self.is_kernel)?;
        point.serialize_field("instances", &self.instances)?;
        point.serialize_field("kernels", &self.kernels)?;
        point.serialize_field("devices", &self.devices)?;
        point.serialize_field("dtype", &self.dtype.map(Dtype::name))?;
        point.serialize_field("pipe", &self.pipe.map(Pipe::name))?;
        let ns = nanoseconds(self.gpu_time);
        point.serialize_field("gpu_time_ns", &ns)?;
        point.serialize_field("flops", &self.flops)?;
        point.serialize_field("bytes", &self.bytes)?;
        point.serialize_field("intensity_flop_per_byte", &self.intensity())?;
        point.serialize_field("achieved_flop_per_s", &self.achieved())?;
        point.serialize_field("achieved_bytes_per_s", &self.achieved_bandwidth())?;
        point.serialize_field("attainable_flop_per_s", &self.attainable())?;
        point.serialize_field("ridge_flop_per_byte", &self.ridge())?;
        let ideal = self.ideal_time(Roof::value).map(|seconds| seconds * 1e9);
        point.serialize_field("ideal_time_ns", &ideal)?;
        point.serialize_field("of_roof", &self.of_roof())?;
        point.serialize_field("distance", &self.distance())?;
        point.serialize_field("of_measured", &self.of_measured())?;
        point.serialize_field("bound", &self.bound())?;
        point.serialize_field("compute_roof", &self.compute)?;
        point.end()
    }
}
