//! The driver and its devices.

/// The driver and the devices it shows to this process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Driver {
    /// The newest CUDA version that the driver supports, in the format of `cuDriverGetVersion`:
    /// 13000 is 13.0.
    pub cuda_version: u32,
    /// The driver's own version, such as 580.159.04, if the kernel module reports it.
    pub release: Option<String>,
    /// The devices, by ordinal.
    pub devices: Vec<Device>,
}

impl Driver {
    /// Builds a driver for a test.
    #[must_use]
    pub fn new(cuda_version: u32, devices: Vec<Device>) -> Self {
        Self { cuda_version, release: None, devices }
    }
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Device {
    /// The CUDA ordinal, which is the device id of activity records.
    pub id: u32,
    /// The marketing name (`cuDeviceGetName`).
    pub name: String,
    /// Major and minor: (9, 0) is sm_90.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of device memory (`cuDeviceTotalMem`).
    pub memory_bytes: u64,
    /// The highest clock of the multiprocessors in kHz (`CU_DEVICE_ATTRIBUTE_CLOCK_RATE`), if the
    /// driver reports it.
    pub core_clock_khz: Option<u32>,
    /// Peak bandwidth of device memory in bytes per second: two transfers a cycle at the memory's
    /// highest clock over the whole bus (`CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE`,
    /// `CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH`). `None` unless the driver reports both.
    pub memory_bandwidth: Option<u64>,
    /// Bytes of the L2 cache (`CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE`), if the driver reports it.
    pub l2_bytes: Option<u64>,
    /// The address on the PCI bus, as 0000:1b:00.0 (`CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID`, `_BUS_ID`,
    /// `_DEVICE_ID`), if the driver reports it. Other tools identify the device by it, whichever
    /// devices this process may see.
    pub pci_bus_id: Option<String>,
}

impl Device {
    /// Builds a device for a test or from a recording.
    #[must_use]
    pub fn new(
        id: u32,
        name: impl Into<String>,
        compute_capability: (u32, u32),
        multiprocessors: u32,
        memory_bytes: u64,
    ) -> Self {
        Self {
            id,
            name: name.into(),
            compute_capability,
            multiprocessors,
            memory_bytes,
            core_clock_khz: None,
            memory_bandwidth: None,
            l2_bytes: None,
            pci_bus_id: None,
        }
    }
}
