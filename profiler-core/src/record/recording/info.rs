//! The machine, versions and time of a recording. Never the host, user, paths or environment.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use profiler_base::units::{NAME_WIDTH, shortened};

use crate::record::json::json_object;

json_object! {
    /// The machine, versions and time of a recording.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    #[non_exhaustive]
    pub struct RecordingInfo {
        /// Seconds since the Unix epoch at the start; `None` if unknown, as in some captures of
        /// other tools.
        pub recorded_at_s: Option<u64> = required,
        /// CUPTI's API version (`cuptiGetVersion`); 0 if unknown, as in captures of other tools.
        pub cupti_version: u32 = required,
        /// The newest CUDA version of the driver (`cuDriverGetVersion`): 13000 is 13.0; 0 if
        /// unknown.
        pub cuda_driver_version: u32 = required,
        /// The driver release, such as 580.159.04, if the kernel module reports it.
        pub driver_release: Option<String> = later,
        /// The GPUs of the machine, by CUDA ordinal.
        pub devices: Vec<DeviceInfo> = required,
        /// The version of this crate that recorded, or name and version of another tool.
        pub recorder_version: String = required,
        /// The kernel's process id; `None` in captures and in recordings of older versions.
        pub process_id: Option<u32> = optional,
        /// The offset from the recording's clock (`CLOCK_MONOTONIC`) to nanoseconds since the Unix
        /// epoch at the start; `None` in recordings of older versions. See
        /// [`Profile::started_at`](crate::Profile::started_at).
        pub utc_offset_ns: Option<i64> = optional,
        /// The kernel's random id of the machine's boot, equal in recordings of one clock. `None`
        /// in captures, in recordings of older versions, and if the kernel does not report it.
        pub boot_id: Option<String> = optional,
        /// The start of the process, in the kernel's ticks since the boot; distinguishes processes
        /// with the same id. `None` in the same cases as the boot's id.
        pub process_started: Option<u64> = optional,
    }
}

json_object! {
    /// One GPU of the machine.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    #[non_exhaustive]
    pub struct DeviceInfo {
        /// The CUDA ordinal.
        pub id: u32 = required,
        /// The marketing name.
        pub name: String = required,
        /// Major and minor version: (9, 0) is sm_90.
        pub compute_capability: (u32, u32) = required,
        /// The number of streaming multiprocessors.
        pub multiprocessors: u32 = required,
        /// Bytes of device memory.
        pub memory_bytes: u64 = required,
        /// The maximum clock of the multiprocessors in kHz. `None` in recordings of older versions.
        pub core_clock_khz: Option<u32> = optional,
        /// Peak bytes per second of device memory, from its clock and bus. `None` in recordings of
        /// older versions.
        pub memory_bandwidth: Option<u64> = optional,
        /// Bytes of the L2 cache. `None` in recordings of older versions.
        pub l2_bytes: Option<u64> = optional,
        /// The PCI address, such as 0000:1b:00.0. `None` in recordings of older versions.
        pub pci_bus_id: Option<String> = optional,
    }
}

fn devices(library: &cupti::Library) -> Vec<DeviceInfo> {
    let device = |device: &cupti::Device| DeviceInfo {
        id: device.id,
        name: device.name.clone(),
        compute_capability: device.compute_capability,
        multiprocessors: device.multiprocessors,
        memory_bytes: device.memory_bytes,
        core_clock_khz: device.core_clock_khz,
        memory_bandwidth: device.memory_bandwidth,
        l2_bytes: device.l2_bytes,
        pci_bus_id: device.pci_bus_id.clone(),
    };
    library.driver().devices.iter().map(device).collect()
}

impl RecordingInfo {
    /// The device with this CUDA ordinal.
    ///
    /// # Errors
    /// Why there is none, for the user.
    pub(crate) fn device(&self, ordinal: u32) -> Result<&DeviceInfo, String> {
        let found = self.devices.iter().find(|device| device.id == ordinal);
        found.ok_or_else(|| {
            let last = self.devices.iter().map(|device| device.id).max();
            let known =
                last.map_or("none is known".to_owned(), |last| format!("the last is {last}"));
            format!("this process has no device {ordinal}: {known}")
        })
    }

    pub(crate) fn now(library: &cupti::Library) -> Self {
        // Take the middle of two readings: the host may be interrupted in between.
        let before_ns = cupti::clock::now_ns();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_ns = before_ns.midpoint(cupti::clock::now_ns());
        let epoch_ns = i64::try_from(since_epoch.as_nanos()).ok();
        let utc_offset_ns = epoch_ns.and_then(|epoch_ns| epoch_ns.checked_sub_unsigned(at_ns));
        Self {
            recorded_at_s: Some(since_epoch.as_secs()),
            cupti_version: library.version().0,
            cuda_driver_version: library.driver().cuda_version,
            driver_release: library.driver().release.clone(),
            devices: devices(library),
            recorder_version: env!("CARGO_PKG_VERSION").to_owned(),
            process_id: Some(std::process::id()),
            utc_offset_ns,
            boot_id: boot_id(),
            process_started: process_started(),
        }
    }

    /// Returns true if another recording has the same clock: `CLOCK_MONOTONIC` counts from the boot
    /// of a machine. `None` if a recording of an older version lacks the start time of its machine.
    pub(crate) fn has_clock_of(&self, other: &Self) -> Option<bool> {
        match (&self.boot_id, &other.boot_id) {
            (Some(boot), Some(of_other)) => Some(boot == of_other),
            _ => {
                let (offset, of_other) = self.utc_offset_ns.zip(other.utc_offset_ns)?;
                Some(offset.abs_diff(of_other) <= SAME_BOOT_NS)
            }
        }
    }

    /// Adds the devices, if the library has found them since. Returns true if it did.
    pub(crate) fn add_devices(&mut self, library: &cupti::Library) -> bool {
        if !self.devices.is_empty() || library.driver().devices.is_empty() {
            return false;
        }
        self.devices = devices(library);
        true
    }

    /// The date of the recording (UTC), such as 2026-11-21; `None` if unknown.
    pub fn date(&self) -> Option<String> {
        // Older files store 0 for an unknown time, damaged ones any number; humantime supports
        // years up to 9999.
        let seconds = self.recorded_at_s.filter(|seconds| *seconds > 0)?.min(253_402_300_799);
        let at = UNIX_EPOCH + Duration::from_secs(seconds);
        Some(humantime::format_rfc3339_seconds(at).to_string().chars().take(10).collect())
    }
}

/// The maximum difference of the calendar time at the boot between recordings of one boot without
/// its id: the calendar clock is adjusted occasionally.
const SAME_BOOT_NS: u64 = 10_000_000_000;

/// The start of this process, the 22nd field of the kernel's line: the 20th after the name, which
/// may contain spaces.
fn process_started() -> Option<u64> {
    let line = std::fs::read_to_string("/proc/self/stat").ok()?;
    line.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The kernel's id of this boot.
fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Shortens a device or version name to fit a line.
fn shown(name: &str) -> String {
    shortened(name, NAME_WIDTH)
}

impl fmt::Display for RecordingInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.devices[..] {
            [] => write!(f, "no device")?,
            [one] => f.write_str(&shown(&one.name))?,
            [first, rest @ ..] if rest.iter().all(|device| device.name == first.name) => {
                write!(f, "{} x {}", self.devices.len(), shown(&first.name))?;
            }
            [first, rest @ ..] => {
                f.write_str(&shown(&first.name))?;
                rest.iter().try_for_each(|device| write!(f, " + {}", shown(&device.name)))?;
            }
        }
        let cuda = self.cuda_driver_version;
        match &self.driver_release {
            Some(release) => {
                let release = shown(release);
                write!(f, ", driver {release} (CUDA {}.{})", cuda / 1000, cuda / 10 % 100)?
            }
            None if cuda != 0 => write!(f, ", driver of CUDA {}.{}", cuda / 1000, cuda / 10 % 100)?,
            None => {}
        }
        match self.cupti_version {
            0 => write!(f, ", {}", shown(&self.recorder_version))?,
            version => write!(f, ", CUPTI {}", cupti::Version(version))?,
        }
        match self.date() {
            Some(date) => write!(f, ", recorded {date}"),
            None => Ok(()),
        }
    }
}
