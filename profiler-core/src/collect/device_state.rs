//! The state of a GPU in NVML now: memory, utilization, power, temperature.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;

use crate::collect::nvml::Gpu;
use crate::error::Error;
use crate::record::recording::RecordingInfo;

/// The state of a GPU. `None` for values that it does not support.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct DeviceState {
    /// The UUID, or NVML's number of the device.
    pub id: String,
    /// The marketing name.
    pub name: String,
    /// The share of the last sample period in which a kernel ran, from 0 to 1.
    pub utilization: Option<f64>,
    /// Bytes of device memory in use, by all processes.
    pub memory_used: Option<f64>,
    /// Bytes of device memory.
    pub memory_limit: Option<f64>,
    /// Watts.
    pub power_watts: Option<f64>,
    /// Joules since the driver was loaded.
    pub energy_joules: Option<u64>,
    /// Degrees Celsius.
    pub celsius: Option<f64>,
}

impl DeviceState {
    pub(crate) fn read(device: &Device<'_>, number: u32) -> Self {
        let memory = device.memory_info().ok();
        let milli = |value: u32| f64::from(value) / 1e3;
        let temperature = device.temperature(TemperatureSensor::Gpu).ok();
        Self {
            id: device.uuid().unwrap_or_else(|_| number.to_string()),
            name: device.name().unwrap_or_default(),
            utilization: device.utilization_rates().ok().map(|of| f64::from(of.gpu) / 100.0),
            memory_used: memory.as_ref().map(|memory| memory.used as f64),
            memory_limit: memory.as_ref().map(|memory| memory.total as f64),
            power_watts: device.power_usage().ok().map(milli),
            energy_joules: device.total_energy_consumption().ok().map(|of| of / 1_000),
            celsius: temperature.map(f64::from),
        }
    }
}

/// Reads the state of a GPU of a recording, on the machine where it was recorded.
///
/// A read costs some milliseconds on the calling thread. NVML is loaded at run time.
#[derive(Debug)]
pub struct DeviceMonitor {
    gpu: Gpu,
    ordinal: u32,
}

impl DeviceMonitor {
    /// Finds the GPU with this CUDA ordinal in the recorded process.
    ///
    /// # Errors
    /// NVML is missing, or does not have the GPU.
    pub fn find(info: &RecordingInfo, ordinal: u32) -> Result<Self, Error> {
        let gpu = Gpu::find(info, ordinal).map_err(Error::other)?;
        Ok(Self { gpu, ordinal })
    }

    /// Reads the state now.
    ///
    /// # Errors
    /// NVML no longer has the GPU.
    pub fn read(&self) -> Result<DeviceState, Error> {
        let device = self.gpu.device();
        let device = device.map_err(|error| Error::other(format!("NVML reports {error}")))?;
        Ok(DeviceState::read(&device, self.ordinal))
    }
}
