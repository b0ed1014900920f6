//! Peak rates of a device in bytes and operations per second: from attributes, a data sheet or
//! counters, or given.

use std::collections::BTreeMap;
use std::fmt;

use cupti::counters::{Measured, MemoryLevel};
use nvtx::{Dtype, Pipe};
use profiler_base::display::{DisplayOptions, Layout};
use profiler_base::display_by_default_layout;
use profiler_base::units::{MESSAGE_WIDTH, per_second, shortened};
use profiler_base::{getters, named_variants};
use serde::{Deserialize, Deserializer, Serialize};

use super::rates::{Architecture, Board};
use crate::analyze::kernels::as_text;
use crate::error::{Error, Kind};
use crate::page::Table;
use profiler_core::profile::DeviceInfo;
use profiler_core::profile::{OperationKind, Profile};

named_variants! {
    /// The source of a peak.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    #[non_exhaustive]
    pub enum Origin {
        /// The device's attributes (multiprocessors, clock, bus) and its architecture's rates.
        Attributes = "attributes",
        /// The data sheet of the board with the device's name: its clock for tensor cores, or a
        /// value that an old recording lacks.
        Datasheet = "data sheet",
        /// Hardware counters: their maximum per cycle at the counted clock.
        Counters = "counters",
        /// Set by the program or user.
        Given = "given",
        /// No source: the rate is unknown.
        Unknown = "-",
    }
}

/// A limit: the peak rate, and its source.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Roof {
    /// Bytes or operations per second; `None` if unknown.
    pub peak: Option<f64>,
    /// The source of the peak.
    pub origin: Origin,
}

impl Roof {
    const UNKNOWN: Roof = Roof { peak: None, origin: Origin::Unknown };
}

/// The roof of one number type on one kind of units.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ComputeRoof {
    /// The number type.
    #[serde(serialize_with = "as_text", deserialize_with = "dtype_of_name")]
    pub dtype: Dtype,
    /// The units.
    #[serde(serialize_with = "as_text", deserialize_with = "pipe_of_name")]
    pub pipe: Pipe,
    /// Operations per second, without sparsity. A multiply-add counts as two.
    #[serde(flatten)]
    pub roof: Roof,
}

/// The roof of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct LevelRoof {
    level: MemoryLevel,
    #[serde(flatten)]
    roof: Roof,
}

/// The peak rates of a device: the roofs of a roofline. Rates that you measured are given with
/// [`with_bandwidth`](Self::with_bandwidth) and [`with_flops`](Self::with_flops).
///
/// ```
/// use nvtx::{Dtype, Pipe};
/// use profiler_analysis::roofline::Peaks;
///
/// let peaks = Peaks::new("my GPU")
///     .with_bandwidth(900e9)
///     .with_flops(Dtype::F16, Pipe::Tensor, 125e12);
/// assert_eq!(peaks.ridge(Dtype::F16, None), Some(125e12 / 900e9));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[must_use]
pub struct Peaks {
    device: String,
    bandwidth: Roof,
    compute: Vec<ComputeRoof>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    caches: Vec<LevelRoof>,
    /// The reason why some rates are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
    /// The source of the tensor-core rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<String>,
}

impl Peaks {
    /// A device without known rates.
    pub fn new(device: impl Into<String>) -> Self {
        let (device, bandwidth) = (device.into(), Roof::UNKNOWN);
        let (compute, caches) = (Vec::new(), Vec::new());
        Self { device, bandwidth, compute, caches, missing: None, source: None }
    }

    /// Returns the rates of a device in a recording: multiprocessors x highest clock x operations
    /// per cycle of its architecture, and its memory bandwidth. Architectures from compute
    /// capability 7.0 on are known, from NVIDIA's whitepapers and data sheets. For boards whose
    /// data sheet uses a lower clock for tensor cores, such as H100 and H200, that clock is used.
    ///
    /// [`with_flops`](Self::with_flops) and [`with_bandwidth`](Self::with_bandwidth) set the other
    /// rates.
    pub fn from_device(device: &DeviceInfo) -> Self {
        let mut peaks = Self::new(&*device.name);
        let board = Board::named(&device.name);
        peaks.bandwidth = match (device.memory_bandwidth, board) {
            (Some(bytes), _) => roof(bytes as f64, Origin::Attributes),
            (None, Some(board)) => roof(board.bandwidth * 1e9, Origin::Datasheet),
            (None, None) => Roof::UNKNOWN,
        };
        let (major, minor) = device.compute_capability;
        let Some(architecture) = Architecture::from_capability(device.compute_capability) else {
            peaks.missing =
                Some(format!("no rates are known for compute capability {major}.{minor}"));
            return peaks;
        };
        peaks.source = Some(architecture.source.to_owned());
        let clock = match (device.core_clock_khz, board) {
            (Some(khz), _) => Some((f64::from(khz) * 1e3, Origin::Attributes)),
            (None, Some(board)) => Some((f64::from(board.core_mhz) * 1e6, Origin::Datasheet)),
            (None, None) => None,
        };
        let Some(core) = clock else {
            peaks.missing = Some(format!(
                "the recording does not have the clock of {:?}, and its data sheet is not known here",
                device.name
            ));
            return peaks;
        };
        let tensor_mhz = board.and_then(|board| board.tensor_mhz);
        let tensor = tensor_mhz.map_or(core, |mhz| (f64::from(mhz) * 1e6, Origin::Datasheet));
        peaks.compute = architecture
            .rates(&device.name)
            .map(|(dtype, pipe, rate)| {
                // Double precision runs at the highest clock (H100 whitepaper, table 3).
                let is_low = pipe == Pipe::Tensor && dtype != Dtype::F64;
                let (hertz, origin) = if is_low { tensor } else { core };
                let per_second = f64::from(device.multiprocessors) * f64::from(rate) * hertz;
                ComputeRoof { dtype, pipe, roof: roof(per_second, origin) }
            })
            .collect();
        peaks
    }

    /// Sets the memory bandwidth in bytes per second.
    pub fn with_bandwidth(mut self, bytes_per_second: f64) -> Self {
        self.bandwidth = roof(bytes_per_second, Origin::Given);
        self
    }

    /// Sets operations per second for type and units.
    pub fn with_flops(mut self, dtype: Dtype, pipe: Pipe, flops_per_second: f64) -> Self {
        let roof = roof(flops_per_second, Origin::Given);
        let is_it = |known: &&mut ComputeRoof| known.dtype == dtype && known.pipe == pipe;
        match self.compute.iter_mut().find(is_it) {
            Some(known) => known.roof = roof,
            None => self.compute.push(ComputeRoof { dtype, pipe, roof }),
        }
        self
    }

    /// Fills in unknown rates of memory levels from the metrics of
    /// [`Set::Roofline`](cupti::counters::Set::Roofline): the highest rate of any range or kernel,
    /// since clocks vary. Tables never contain cache rates.
    pub fn with_counted(mut self, measured: &Measured) -> Self {
        for level in MemoryLevel::ALL {
            let peaks = measured.ranges().filter_map(|range| level.peak(&range));
            let most = roof(peaks.fold(0.0, f64::max), Origin::Counters);
            if most.peak.is_none() || self.level(level).peak.is_some() {
                continue;
            }
            if level == MemoryLevel::Dram {
                self.bandwidth = most;
                continue;
            }
            self.caches.retain(|known| known.level != level);
            self.caches.push(LevelRoof { level, roof: most });
            self.caches.sort_by_key(|known| known.level);
        }
        self
    }

    getters! {
        /// The device's name.
        device: &str = device;
        /// The roof of the device memory, in bytes per second.
        bandwidth: Roof = bandwidth;
        /// The roofs by number type and units.
        compute: impl Iterator<Item = &ComputeRoof> = compute.iter();
        /// The source of the tensor-core rates, if from the tables of this crate.
        source: Option<&str> = source.as_deref();
        /// The reason why some peaks are unknown, if any.
        missing: Option<&str> = missing.as_deref();
    }

    /// The roof of a memory level, in bytes per second; [`bandwidth`](Self::bandwidth) for DRAM.
    pub fn level(&self, level: MemoryLevel) -> Roof {
        let known = self.caches.iter().find(|known| known.level == level);
        match level {
            MemoryLevel::Dram => self.bandwidth,
            _ => known.map_or(Roof::UNKNOWN, |known| known.roof),
        }
    }

    /// The roof for numbers of this type, on these units or on the fastest ones.
    pub fn flops(&self, dtype: Dtype, pipe: Option<Pipe>) -> Option<ComputeRoof> {
        let is_it = |known: &&ComputeRoof| {
            known.dtype == dtype && pipe.is_none_or(|pipe| known.pipe == pipe)
        };
        let known = self.compute.iter().filter(is_it);
        let known = known.filter_map(|known| Some((known, known.roof.peak?)));
        known.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(known, _)| *known)
    }

    /// The operations per byte above which the units limit, not the memory.
    pub fn ridge(&self, dtype: Dtype, pipe: Option<Pipe>) -> Option<f64> {
        Some(self.flops(dtype, pipe)?.roof.peak? / self.bandwidth.peak?)
    }

    /// Returns JSON for [`from_json`](Self::from_json), to store the roofs of a machine.
    pub fn to_json(&self) -> String {
        // Numbers and strings always serialise.
        profiler_base::text::json_pretty(self).unwrap_or_default()
    }

    /// Reads the JSON of [`to_json`](Self::to_json).
    ///
    /// # Errors
    /// [`is_format`](Error::is_format): the text has another format.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        serde_json::from_str(text)
            .map_err(|error| Error::new(Kind::Peaks { why: error.to_string() }))
    }
}

/// [`ProfileExt::peaks`](crate::prelude::ProfileExt::peaks).
pub(crate) fn peaks(profile: &Profile, device: Option<u32>) -> Option<Peaks> {
    let devices = &profile.recording_info().devices;
    let device = device.or_else(|| {
        let mut kernels: BTreeMap<u32, u64> = BTreeMap::new();
        for operation in profile.operations().filter(|one| one.kind() == OperationKind::Kernel) {
            *kernels.entry(operation.device()).or_default() += 1;
        }
        let most = kernels.into_iter().rev().max_by_key(|(_, count)| *count);
        most.map(|(device, _)| device).or(Some(devices.first()?.id))
    })?;
    devices.iter().find(|known| known.id == device).map(Peaks::from_device)
}

impl Peaks {
    pub(super) fn table(&self) -> Table {
        let row = |name: String, roof: &Roof, unit| {
            let peak = roof.peak.map_or("-".to_owned(), |peak| per_second(peak, unit));
            [name, roof.origin.to_string(), peak]
        };
        let memory = row("memory".to_owned(), &self.bandwidth, "B");
        let compute = |known: &ComputeRoof| {
            row(format!("{} {}", known.dtype, known.pipe), &known.roof, "FLOP")
        };
        let cache = |known: &LevelRoof| row(known.level.to_string(), &known.roof, "B");
        let memory = std::iter::once(memory).chain(self.caches.iter().map(cache));
        let rows = memory.chain(self.compute.iter().map(compute));
        Table::new("Roofs", ["roof", "from", "peak"], rows)
    }

    /// The source of the rates, and the reason why some are unknown.
    pub(super) fn notes(&self) -> Vec<String> {
        let short = |text: &String| shortened(text, MESSAGE_WIDTH);
        let source = self.source.as_ref().map(|source| format!("rates: {}", short(source)));
        let missing = self.missing.as_ref();
        let missing = missing.map(|missing| format!("{}: give the peaks", short(missing)));
        source.into_iter().chain(missing).collect()
    }
}

impl DisplayOptions for Peaks {
    fn write_in(&self, layout: Layout, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table().text(2, layout))?;
        self.notes().iter().try_for_each(|note| write!(f, "\n{note}"))
    }
}

display_by_default_layout!(Peaks);

fn roof(peak: f64, origin: Origin) -> Roof {
    let is_valid = peak.is_finite() && peak > 0.0;
    if is_valid { Roof { peak: Some(peak), origin } } else { Roof::UNKNOWN }
}

fn dtype_of_name<'de, D: Deserializer<'de>>(from: D) -> Result<Dtype, D::Error> {
    let name = String::deserialize(from)?;
    let unknown = || serde::de::Error::custom(format!("there is no number type {name:?}"));
    Dtype::named(&name).ok_or_else(unknown)
}

fn pipe_of_name<'de, D: Deserializer<'de>>(from: D) -> Result<Pipe, D::Error> {
    let name = String::deserialize(from)?;
    let unknown = || serde::de::Error::custom(format!("there are no units {name:?}"));
    Pipe::named(&name).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, capability: (u32, u32), sms: u32, mhz: Option<u32>) -> DeviceInfo {
        let text = serde_json::json!({
            "id": 0, "name": name, "compute_capability": capability, "multiprocessors": sms,
            "memory_bytes": 0, "core_clock_khz": mhz.map(|mhz| mhz * 1000),
        });
        serde_json::from_value(text).unwrap()
    }

    /// Name, compute capability, multiprocessors, MHz: the data sheet's dense TFLOP/s.
    const DATA_SHEETS: &str = "\
Tesla V100-SXM2-32GB | 7.0 | 80 | 1530 | f16 tensor 125.0, f32 vector 15.7, f64 vector 7.8
Tesla T4 | 7.5 | 40 | 1590 | f16 tensor 65.0, i8 tensor 130.0, f32 vector 8.1
NVIDIA A100-SXM4-80GB | 8.0 | 108 | 1410 | bf16 tensor 312.0, tf32 tensor 156.0, f64 tensor 19.5, i8 tensor 624.0, f32 vector 19.5, f64 vector 9.7, f16 vector 78.0, bf16 vector 39.0
NVIDIA A40 | 8.6 | 84 | 1740 | f16 tensor 149.7, tf32 tensor 74.8, f32 vector 37.4
NVIDIA GeForce RTX 3090 | 8.6 | 82 | 1695 | f16 tensor 142.0, bf16 tensor 71.0, tf32 tensor 35.6, f32 vector 35.6
NVIDIA L4 | 8.9 | 58 | 2040 | f16 tensor 121.0, f8 tensor 242.0, f32 vector 30.3
NVIDIA GeForce RTX 4090 | 8.9 | 128 | 2520 | f16 tensor 330.3, bf16 tensor 165.2, tf32 tensor 82.6, f8 tensor 660.6, f32 vector 82.6
NVIDIA H100 80GB HBM3 | 9.0 | 132 | 1980 | bf16 tensor 989.4, tf32 tensor 494.7, f8 tensor 1978.9, i8 tensor 1978.9, f64 tensor 66.9, f64 vector 33.5, f32 vector 66.9, f16 vector 133.8
NVIDIA H100 PCIe | 9.0 | 114 | 1755 | bf16 tensor 756.4, f32 vector 51.2
NVIDIA H200 | 9.0 | 132 | 1980 | bf16 tensor 989.0, f32 vector 67.0
NVIDIA H200 NVL | 9.0 | 132 | 1785 | bf16 tensor 835.5, f32 vector 60.0
NVIDIA B200 | 10.0 | 148 | 1965 | bf16 tensor 2250.0, f8 tensor 4500.0, f4 tensor 9000.0, i8 tensor 4500.0, f32 vector 75.0, f64 tensor 37.0, f64 vector 37.0
NVIDIA GeForce RTX 5090 | 12.0 | 170 | 2407 | f16 tensor 419.0, bf16 tensor 209.5, tf32 tensor 104.8, f8 tensor 838.0, f4 tensor 1676.0, f32 vector 104.8
NVIDIA RTX PRO 6000 Blackwell Workstation Edition | 12.0 | 188 | 2617 | bf16 tensor 503.8, f4 tensor 2015.2, f32 vector 126.0";

    /// `DATA_SHEETS` states the dense TFLOP/s.
    #[test]
    fn peaks_match_data_sheets() {
        for line in DATA_SHEETS.lines() {
            let [name, capability, sms, mhz, stated] =
                line.split(" | ").collect::<Vec<_>>()[..].try_into().unwrap();
            let (major, minor) = capability.split_once('.').unwrap();
            let capability = (major.parse().unwrap(), minor.parse().unwrap());
            let (sms, mhz) = (sms.parse().unwrap(), mhz.parse().unwrap());
            let by_attributes = Peaks::from_device(&device(name, capability, sms, Some(mhz)));
            let by_name = Peaks::from_device(&device(name, capability, sms, None));
            for peaks in [&by_attributes, &by_name] {
                for item in stated.split(", ") {
                    let [dtype, pipe, stated] =
                        item.split(' ').collect::<Vec<_>>()[..].try_into().unwrap();
                    let (dtype, pipe) = (Dtype::named(dtype).unwrap(), Pipe::named(pipe).unwrap());
                    let stated: f64 = stated.parse().unwrap();
                    let peak = peaks.flops(dtype, Some(pipe)).unwrap().roof.peak.unwrap() / 1e12;
                    let off = (peak / stated - 1.0).abs();
                    assert!(off < 0.01, "{name} {dtype} {pipe}: {peak} is not {stated}");
                }
            }
            assert!(by_name.compute().all(|known| known.roof.origin == Origin::Datasheet));
            let low = by_attributes.flops(Dtype::F32, None).unwrap();
            assert_eq!(low.roof.origin, Origin::Attributes);
        }
    }

    #[test]
    fn unknown_rates_have_a_reason() {
        let old = Peaks::from_device(&device("Tesla P100", (6, 0), 56, Some(1480)));
        assert!(old.missing().unwrap().contains("6.0"));
        assert_eq!(old.flops(Dtype::F32, None), None);
        let unnamed = Peaks::from_device(&device("Some board", (9, 0), 132, None));
        assert!(unnamed.missing().unwrap().contains("clock"));
        assert_eq!((unnamed.bandwidth().peak, unnamed.ridge(Dtype::F32, None)), (None, None));
        assert!(unnamed.to_string().contains("give the peaks"));
    }

    #[test]
    fn given_rates_override_and_invalid_ones_are_unknown() {
        let peaks = Peaks::from_device(&device("NVIDIA H200", (9, 0), 132, Some(1980)));
        assert_eq!(peaks.bandwidth().peak, Some(4800e9));
        let peaks = peaks.with_flops(Dtype::Bf16, Pipe::Tensor, 900e12).with_bandwidth(f64::NAN);
        let roof = peaks.flops(Dtype::Bf16, None).unwrap();
        assert_eq!((roof.roof.peak, roof.roof.origin), (Some(900e12), Origin::Given));
        assert_eq!(peaks.bandwidth(), Roof::UNKNOWN);
        // Without units the fastest count; f64 has both.
        assert_eq!(peaks.flops(Dtype::F64, None).unwrap().pipe, Pipe::Tensor);
        assert_eq!(peaks.flops(Dtype::F64, Some(Pipe::Vector)).unwrap().pipe, Pipe::Vector);
        let text = serde_json::to_string(&peaks).unwrap();
        assert_eq!(serde_json::from_str::<Peaks>(&text).unwrap(), peaks);
        assert!(serde_json::from_str::<Peaks>(&text.replace("bf16", "q7")).is_err());
        // Roofs of files written before also have a measured rate.
        let old = text.replace("\"peak\":", "\"measured\":790e12,\"peak\":");
        assert_ne!(old, text);
        assert_eq!(Peaks::from_json(&old).unwrap(), peaks);
    }
}
