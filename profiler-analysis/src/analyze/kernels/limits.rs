//! Resources of a multiprocessor by compute capability.

use serde::{Deserialize, Serialize};

use profiler_core::tables::Multiprocessor;

/// Resources of a streaming multiprocessor and their allocation units.
///
/// Amounts are from the table of CUDA's programming guide, units from its occupancy calculator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SmLimits {
    /// Major and minor: (9, 0) is sm_90.
    pub compute_capability: (u32, u32),
    /// Maximum resident warps.
    pub warps: u32,
    /// Maximum resident blocks.
    pub blocks: u32,
    /// 32-bit registers.
    pub registers: u32,
    /// Maximum registers of a block.
    pub registers_per_block: u32,
    /// Maximum registers of a thread.
    pub registers_per_thread: u32,
    /// Maximum threads of a block.
    pub threads_per_block: u32,
    /// Bytes of shared memory with the smallest L1 cache.
    pub shared_bytes: u32,
    /// Maximum bytes of shared memory of a block whose kernel opted in to more than the default.
    pub shared_bytes_per_block: u32,
    /// Bytes of shared memory that the system reserves for each block.
    pub reserved_shared_bytes_per_block: u32,
    /// Allocation unit of shared memory in bytes.
    pub shared_unit: u32,
    /// Allocation unit of a warp's registers.
    pub register_unit: u32,
    /// Partitions with their own registers and warp scheduler.
    pub partitions: u32,
}

/// Threads in a warp.
pub(super) const WARP: u32 = 32;

const KIB: u32 = 1024;

/// Compute capability, warps, blocks, KiB of shared memory per multiprocessor and per block.
type Row = ((u32, u32), u32, u32, u32, u32);

const TABLE: &[Row] = &[
    ((7, 0), 64, 32, 96, 96),
    ((7, 2), 64, 32, 96, 96),
    ((7, 5), 32, 16, 64, 64),
    ((8, 0), 64, 32, 164, 163),
    ((8, 6), 48, 16, 100, 99),
    ((8, 7), 48, 16, 164, 163),
    ((8, 9), 48, 24, 100, 99),
    ((9, 0), 64, 32, 228, 227),
    ((10, 0), 64, 32, 228, 227),
    // CUDA 12's name for 11.0.
    ((10, 1), 48, 24, 228, 227),
    ((10, 3), 64, 32, 228, 227),
    ((11, 0), 48, 24, 228, 227),
    ((12, 0), 48, 24, 100, 99),
    ((12, 1), 48, 24, 100, 99),
];

/// KiB of shared memory that a multiprocessor can be set to, up to its maximum.
const CONFIGS: &[u32] = &[0, 8, 16, 32, 64, 96, 100, 132, 164, 196, 228];

impl SmLimits {
    /// The limits of a compute capability from 7.0 to 12.1; `None` for others.
    #[must_use]
    pub fn from_compute_capability(compute_capability: (u32, u32)) -> Option<Self> {
        let row = TABLE.iter().find(|(capability, ..)| *capability == compute_capability)?;
        let &(_, warps, blocks, shared_kib, block_kib) = row;
        let is_before_ampere = compute_capability.0 < 8;
        Some(Self {
            compute_capability,
            warps,
            blocks,
            registers: 64 * KIB,
            registers_per_block: 64 * KIB,
            registers_per_thread: 255,
            threads_per_block: 1024,
            shared_bytes: shared_kib * KIB,
            shared_bytes_per_block: block_kib * KIB,
            reserved_shared_bytes_per_block: if is_before_ampere { 0 } else { KIB },
            shared_unit: if is_before_ampere { 256 } else { 128 },
            register_unit: 256,
            partitions: 4,
        })
    }

    /// The limits of a device: those in the profile, the rest from the table. A device newer than
    /// the table has the units of its last row.
    pub(super) fn of_device(capability: (u32, u32), stated: &Multiprocessor) -> Option<Self> {
        let is_complete = stated.warps != 0 && stated.blocks != 0 && stated.registers != 0;
        let is_newer = TABLE.iter().all(|(known, ..)| *known < capability);
        let newest =
            || (is_complete && is_newer).then(|| Self::from_compute_capability((12, 1))).flatten();
        let mut limits = Self::from_compute_capability(capability).or_else(newest)?;
        limits.compute_capability = capability;
        for (limit, stated) in [
            (&mut limits.warps, stated.warps),
            (&mut limits.blocks, stated.blocks),
            (&mut limits.registers, stated.registers),
            (&mut limits.registers_per_block, stated.registers_per_block),
            (&mut limits.shared_bytes, stated.shared_bytes),
            (&mut limits.shared_bytes_per_block, stated.shared_bytes_per_block),
        ] {
            if stated != 0 {
                *limit = stated;
            }
        }
        Some(limits)
    }

    /// The possible shared memory sizes in bytes; the rest of the L1 is cache.
    pub fn shared_configs(&self) -> impl Iterator<Item = u32> + use<> {
        let limits = *self;
        let is_volta = limits.compute_capability.0 == 7 && limits.compute_capability.1 < 5;
        let has = move |kib: &u32| match limits.compute_capability {
            (7, 5) => matches!(*kib, 32 | 64),
            // 96 is Volta's maximum, and not available on later architectures.
            _ => *kib != 96 || is_volta,
        };
        let all = CONFIGS.iter().copied().filter(has).map(|kib| kib * KIB);
        all.filter(move |bytes| *bytes <= limits.shared_bytes)
    }

    /// The smallest size with at least this many bytes, or the largest size.
    pub fn shared_config(&self, bytes: u32) -> u32 {
        self.shared_configs().find(|config| *config >= bytes).unwrap_or(self.shared_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_settings_end_with_the_maximum() {
        for (capability, ..) in TABLE {
            let limits = SmLimits::from_compute_capability(*capability).unwrap();
            assert_eq!(limits.shared_configs().last(), Some(limits.shared_bytes), "{capability:?}");
        }
        let kib = |capability| -> Vec<u32> {
            SmLimits::from_compute_capability(capability)
                .unwrap()
                .shared_configs()
                .map(|bytes| bytes / KIB)
                .collect()
        };
        assert_eq!(kib((7, 0)), [0, 8, 16, 32, 64, 96]);
        assert_eq!(kib((7, 5)), [32, 64]);
        assert_eq!(kib((8, 6)), [0, 8, 16, 32, 64, 100]);
        assert_eq!(kib((9, 0)), [0, 8, 16, 32, 64, 100, 132, 164, 196, 228]);
        let limits = SmLimits::from_compute_capability((9, 0)).unwrap();
        assert_eq!((limits.shared_config(1), limits.shared_config(64 * KIB)), (8 * KIB, 64 * KIB));
        assert_eq!(limits.shared_config(u32::MAX), 228 * KIB);
        assert_eq!(SmLimits::from_compute_capability((6, 1)), None);
    }
}
