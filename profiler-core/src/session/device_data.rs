//! Samples of a device and records of memory, as options in text.

use cupti::ActivityKind;
use profiler_base::{from_variant_text, named_variants};

use crate::collect::sampling::Sampling;
use crate::session::profiler::ProfilerBuilder;

named_variants! {
    /// Units of a device whose utilization is sampled. As text: `utilization`, `memory`, `nvlink`,
    /// `pcie`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Units with name {
        /// All that fit in one pass of the hardware.
        Utilization = "utilization",
        /// Bytes of the device's memory.
        Memory = "memory",
        /// Bytes of NVLink.
        Nvlink = "nvlink",
        /// Bytes of PCIe.
        Pcie = "pcie",
    }
}

from_variant_text!(Units, "give utilization, memory, nvlink or pcie");

/// The variables with a process's rank on its machine: of torchrun, Open MPI, and MPICH and its
/// relatives.
pub const LOCAL_RANK_VARIABLES: [&str; 3] =
    ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"];

/// The samplers of a device and the records of its memory that a session adds. `GPU_PROFILER` and
/// `GPUPROF_OPTIONS` share these options.
///
/// | key | value |
/// | --- | --- |
/// | `sample` | one or more [`Units`], with `+` between them |
/// | `nvml` | `clocks`: clocks, power and memory of the device |
/// | `devices` | the sampled devices by CUDA ordinal, with `+` between them |
/// | `memory` | `allocations`, `managed` or `allocations+managed`: records of memory |
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceData {
    /// Samples the utilization of these units of the device; empty for none.
    pub sample: Vec<Units>,
    /// Samples clocks, power and memory of the device by NVML.
    pub nvml: bool,
    /// Samples these devices, by CUDA ordinal; without any, that of the process's rank on its
    /// machine if the process sees so many, otherwise 0.
    pub devices: Vec<u32>,
    /// Records allocations and frees.
    pub memory_records: bool,
    /// Records migrations and page faults of managed memory.
    pub unified_memory: bool,
}

impl DeviceData {
    /// Sets the option of a key. Returns false if it is no key of these options.
    ///
    /// # Errors
    /// The value is invalid: the known ones.
    pub fn set(&mut self, key: &str, value: &str) -> Result<bool, String> {
        match key {
            "sample" => self.sample = value.split('+').map(str::parse).collect::<Result<_, _>>()?,
            "nvml" if value == "clocks" => self.nvml = true,
            "nvml" => return Err("the one known value is clocks".to_owned()),
            "devices" => {
                self.devices = value
                    .split('+')
                    .map(|number| {
                        number.parse().map_err(|_| {
                            format!("{number:?} is no device: give CUDA ordinals such as 0+1")
                        })
                    })
                    .collect::<Result<_, _>>()?;
            }
            "memory" => {
                for kind in value.split('+') {
                    match kind {
                        "allocations" => self.memory_records = true,
                        "managed" => self.unified_memory = true,
                        _ => return Err("give allocations, managed or both with +".to_owned()),
                    }
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The keys and values of the options that are set.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, String)> {
        let units: Vec<&str> = self.sample.iter().map(|units| units.name()).collect();
        let memory = [(self.memory_records, "allocations"), (self.unified_memory, "managed")];
        let memory: Vec<&str> = memory.into_iter().filter(|of| of.0).map(|of| of.1).collect();
        let nvml = if self.nvml { "clocks" } else { "" }.to_owned();
        let devices: Vec<String> = self.devices.iter().map(u32::to_string).collect();
        let (sample, devices, memory) = (units.join("+"), devices.join("+"), memory.join("+"));
        [("sample", sample), ("nvml", nvml), ("devices", devices), ("memory", memory)]
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
    }

    /// Checks the options together.
    ///
    /// # Errors
    /// The key of an option that cannot be used, and why.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let is_twice = |at: usize| self.devices[..at].contains(&self.devices[at]);
        if !self.devices.is_empty() && self.sample.is_empty() && !self.nvml {
            return Err(("devices", "these devices are sampled: add sample or nvml".to_owned()));
        }
        match (0..self.devices.len()).find(|at| is_twice(*at)) {
            Some(at) => Err(("devices", format!("device {} is given twice", self.devices[at]))),
            None => Ok(()),
        }
    }

    /// Adds samplers and kinds to a profiler.
    pub fn add_to(&self, mut builder: ProfilerBuilder, local_rank: Option<u32>) -> ProfilerBuilder {
        if self.memory_records {
            builder = builder.add_kinds(|config| config.add_kind(ActivityKind::MEMORY2));
        }
        if self.unified_memory {
            let kind = ActivityKind::UNIFIED_MEMORY_COUNTER;
            builder = builder.add_kinds(|config| config.add_kind_if_known(kind));
        }
        let mut devices = self.devices.clone();
        if devices.is_empty() {
            let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
            let visible = visible.map_or(u32::MAX, |names| names.split(',').count() as u32);
            devices.push(local_rank.filter(|rank| *rank < visible).unwrap_or(0));
        }
        if !self.sample.is_empty() {
            let words = self.sample.iter().flat_map(|units| match units {
                Units::Memory => &["DRAM"][..],
                Units::Nvlink => &["NVLink"],
                Units::Pcie => &["PCIe"],
                Units::Utilization => &["SM", "tensor", "DRAM", "PCIe", "NVLink", "GPU"],
            });
            let sampling = Sampling::utilization().units(words.copied());
            builder = builder.sample(sampling.devices(devices.clone()));
        }
        if self.nvml {
            builder = builder.sample(Sampling::nvml().devices(devices));
        }
        builder
    }
}
