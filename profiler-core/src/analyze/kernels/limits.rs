//! What fits on a multiprocessor, by compute capability.

use serde::{Deserialize, Serialize};

use crate::join::tables::Multiprocessor;

/// What fits on a streaming multiprocessor, and in which units it gives it out.
///
/// The figures are those of the table of compute capabilities in CUDA's programming guide; the units are those by which
/// CUDA's own occupancy calculator counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SmLimits {
    /// Major and minor: (9, 0) is sm_90.
    pub compute_capability: (u32, u32),
    /// Warps that are on it at once.
    pub warps: u32,
    /// Blocks that are on it at once.
    pub blocks: u32,
    /// 32-bit registers.
    pub registers: u32,
    /// Registers that a block can have.
    pub registers_per_block: u32,
    /// Registers that a thread can have.
    pub registers_per_thread: u32,
    /// Threads that a block can have.
    pub threads_per_block: u32,
    /// Bytes of shared memory, if as little as can be is L1 cache.
    pub shared_bytes: u32,
    /// Bytes of shared memory that a block can have, if its kernel opted in to more than is usual.
    pub shared_bytes_per_block: u32,
    /// Bytes of shared memory that the system takes for each block.
    pub reserved_shared_bytes_per_block: u32,
    /// Bytes in which blocks get shared memory.
    pub shared_unit: u32,
    /// Registers in which warps get theirs.
    pub register_unit: u32,
    /// Parts that have registers and a warp scheduler of their own.
    pub partitions: u32,
}

/// Threads of a warp.
pub(super) const WARP: u32 = 32;

const KIB: u32 = 1024;

/// Compute capability, warps, blocks, KiB of shared memory of a multiprocessor and of a block.
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
    // As CUDA 12 called what is 11.0 since CUDA 13.
    ((10, 1), 48, 24, 228, 227),
    ((10, 3), 64, 32, 228, 227),
    ((11, 0), 48, 24, 228, 227),
    ((12, 0), 48, 24, 100, 99),
    ((12, 1), 48, 24, 100, 99),
];

/// KiB of shared memory to which a multiprocessor can be set; of each those up to its most.
const CONFIGS: &[u32] = &[0, 8, 16, 32, 64, 96, 100, 132, 164, 196, 228];

impl SmLimits {
    /// Those of a compute capability from 7.0 to 12.1; `None` of one that is not known.
    #[must_use]
    pub fn of(compute_capability: (u32, u32)) -> Option<Self> {
        let row = TABLE.iter().find(|(of, ..)| *of == compute_capability)?;
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

    /// The same, and what a profile's source says of the device instead of the table. One that is newer than the table has the units
    /// of its last row.
    pub(super) fn told(capability: (u32, u32), told: &Multiprocessor) -> Option<Self> {
        let known = Self::of(capability);
        let says_enough = told.warps != 0 && told.blocks != 0 && told.registers != 0;
        let is_newer = TABLE.iter().all(|(of, ..)| *of < capability);
        let newest = || (says_enough && is_newer).then(|| Self::of((12, 1))).flatten();
        let mut limits = known.or_else(newest)?;
        limits.compute_capability = capability;
        let pairs = [
            (&mut limits.warps, told.warps),
            (&mut limits.blocks, told.blocks),
            (&mut limits.registers, told.registers),
            (&mut limits.registers_per_block, told.registers_per_block),
            (&mut limits.shared_bytes, told.shared_bytes),
            (&mut limits.shared_bytes_per_block, told.shared_bytes_per_block),
        ];
        for (limit, told) in pairs {
            if told != 0 {
                *limit = told;
            }
        }
        Some(limits)
    }

    /// Bytes of shared memory to which it can be set; the others of its L1 are cache.
    pub fn shared_configs(&self) -> impl Iterator<Item = u32> + use<> {
        let limits = *self;
        let is_volta = limits.compute_capability.0 == 7 && limits.compute_capability.1 < 5;
        let has = move |kib: &u32| match limits.compute_capability {
            (7, 5) => matches!(*kib, 32 | 64),
            // 96 is Volta's most, and no step of those after it.
            _ => *kib != 96 || is_volta,
        };
        let all = CONFIGS.iter().copied().filter(has).map(|kib| kib * KIB);
        all.filter(move |bytes| *bytes <= limits.shared_bytes)
    }

    /// The smallest setting with so many bytes; the largest there is if none has them.
    pub fn shared_config(&self, bytes: u32) -> u32 {
        self.shared_configs().find(|config| *config >= bytes).unwrap_or(self.shared_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_shared_memory_end_with_the_most() {
        for (capability, ..) in TABLE {
            let limits = SmLimits::of(*capability).unwrap();
            assert_eq!(limits.shared_configs().last(), Some(limits.shared_bytes), "{capability:?}");
        }
        let kib = |capability| -> Vec<u32> {
            SmLimits::of(capability).unwrap().shared_configs().map(|bytes| bytes / KIB).collect()
        };
        assert_eq!(kib((7, 0)), [0, 8, 16, 32, 64, 96]);
        assert_eq!(kib((7, 5)), [32, 64]);
        assert_eq!(kib((8, 6)), [0, 8, 16, 32, 64, 100]);
        assert_eq!(kib((9, 0)), [0, 8, 16, 32, 64, 100, 132, 164, 196, 228]);
        let limits = SmLimits::of((9, 0)).unwrap();
        assert_eq!((limits.shared_config(1), limits.shared_config(64 * KIB)), (8 * KIB, 64 * KIB));
        assert_eq!(limits.shared_config(u32::MAX), 228 * KIB);
        assert_eq!(SmLimits::of((6, 1)), None);
    }
}
