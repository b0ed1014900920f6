//! Devices.

use std::fmt;

use super::NameKey;
use super::fields::{Raw, record};

/// A GPU's UUID (`CUuuid`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let dash = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

record! {
    /// A device (`DEVICE`). [`limits`](Self::limits) decodes the record's other fields.
    Device<'a>, raw, f of device {
        /// CUDA ordinal (`id`).
        id: u32 = f.get(ID),
        /// The marketing name (`name`).
        name: Option<NameKey> = NameKey::new(f.get(NAME).0),
        /// The UUID (`uuid`).
        uuid: Uuid = Uuid(f.get(UUID)),
        /// Major and minor: (9, 0) is sm_90 (`computeCapabilityMajor`, `computeCapabilityMinor`).
        compute_capability: (u32, u32) = (f.get(COMPUTE_CAPABILITY_MAJOR), f.get(COMPUTE_CAPABILITY_MINOR)),
        /// Streaming multiprocessors (`numMultiprocessors`).
        multiprocessors: u32 = f.get(NUM_MULTIPROCESSORS),
        /// Texture processing clusters (`numTpcs`). From CUPTI 13.2.
        tpcs: Option<u32> = f.newer(NUM_TPCS),
        /// Bytes of device memory (`globalMemorySize`).
        memory_bytes: u64 = f.get(GLOBAL_MEMORY_SIZE),
        /// Its bandwidth in kB/s (`globalMemoryBandwidth`).
        memory_bandwidth_kb_per_s: u64 = f.get(GLOBAL_MEMORY_BANDWIDTH),
        /// Bytes of the L2 cache (`l2CacheSize`).
        l2_bytes: u32 = f.get(L2_CACHE_SIZE),
        /// The clock in kHz (`coreClockRate`).
        core_clock_khz: u32 = f.get(CORE_CLOCK_RATE),
        /// True if ECC is enabled (`eccEnabled`).
        ecc: bool = f.get(ECC_ENABLED) != 0,
        /// True if kernels can run concurrently (`flags`).
        concurrent_kernels: bool = f.get(FLAGS) & 1 != 0,
        /// True if the process may use it (`isCudaVisible`).
        visible: bool = f.flag(IS_CUDA_VISIBLE),
        /// The MIG instance, if MIG is enabled (`isMigEnabled`).
        mig: Option<MigInstance> = f.flag(IS_MIG_ENABLED).then(|| MigInstance {
            gpu_instance: f.get(GPU_INSTANCE_ID),
            compute_instance: f.get(COMPUTE_INSTANCE_ID),
            uuid: Uuid(f.get(MIG_UUID)),
        }),
        /// True if it is a NUMA node (`isNumaNode`). From CUPTI 12.2.
        is_numa_node: Option<bool> = f.newer(IS_NUMA_NODE).map(|is| is != 0),
        /// The NUMA node of its memory, if it is one (`numaId`). From CUPTI 12.2.
        numa_node: Option<u32> = f.newer(NUMA_ID),
        ; raw: Raw<'a> = raw
    }
}

/// A MIG instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct MigInstance {
    /// The GPU instance (`gpuInstanceId`).
    pub gpu_instance: u32,
    /// The compute instance within the GPU instance (`computeInstanceId`).
    pub compute_instance: u32,
    /// The UUID (`migUuid`).
    pub uuid: Uuid,
}

impl Device<'_> {
    /// The limits, decoded on request by about 20 reads.
    pub fn limits(&self) -> DeviceLimits {
        // A record decoded as a device is long enough.
        DeviceLimits::decode(self.raw).unwrap_or_default()
    }
}

record! {
    /// The limits of a device.
    #[derive(Eq, Default)]
    DeviceLimits, raw, f of device {
        /// Bytes of constant memory (`constantMemorySize`).
        constant_bytes: u32 = f.get(CONSTANT_MEMORY_SIZE),
        /// Threads of a warp (`numThreadsPerWarp`).
        threads_per_warp: u32 = f.get(NUM_THREADS_PER_WARP),
        /// Copy engines (`numMemcpyEngines`).
        copy_engines: u32 = f.get(NUM_MEMCPY_ENGINES),
        /// Maximum instructions a cycle and multiprocessor (`maxIPC`).
        instructions_per_cycle: u32 = f.get(MAX_IPC),
        /// Maximum warps on a multiprocessor (`maxWarpsPerMultiprocessor`).
        warps_per_multiprocessor: u32 = f.get(MAX_WARPS_PER_MULTIPROCESSOR),
        /// Maximum blocks on a multiprocessor (`maxBlocksPerMultiprocessor`).
        blocks_per_multiprocessor: u32 = f.get(MAX_BLOCKS_PER_MULTIPROCESSOR),
        /// Bytes of shared memory of a multiprocessor (`maxSharedMemoryPerMultiprocessor`).
        shared_bytes_per_multiprocessor: u32 = f.get(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
        /// 32-bit registers of a multiprocessor (`maxRegistersPerMultiprocessor`).
        registers_per_multiprocessor: u32 = f.get(MAX_REGISTERS_PER_MULTIPROCESSOR),
        /// Registers of a block (`maxRegistersPerBlock`).
        registers_per_block: u32 = f.get(MAX_REGISTERS_PER_BLOCK),
        /// Bytes of shared memory of a block (`maxSharedMemoryPerBlock`).
        shared_bytes_per_block: u32 = f.get(MAX_SHARED_MEMORY_PER_BLOCK),
        /// Threads of a block (`maxThreadsPerBlock`).
        threads_per_block: u32 = f.get(MAX_THREADS_PER_BLOCK),
        /// Threads of a block in x, y, z (`maxBlockDimX`...).
        block: [u32; 3] = f.xyz(MAX_BLOCK_DIM_X, MAX_BLOCK_DIM_Y, MAX_BLOCK_DIM_Z),
        /// Blocks of a grid in x, y, z (`maxGridDimX`...).
        grid: [u32; 3] = f.xyz(MAX_GRID_DIM_X, MAX_GRID_DIM_Y, MAX_GRID_DIM_Z),
    }
}
