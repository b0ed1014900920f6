//! Theoretical occupancy: resident blocks of a launch on a multiprocessor, and their limiters.

use std::fmt;

use profiler_base::named_variants;
use serde::{Deserialize, Serialize};

use super::limits::{SmLimits, WARP};

/// The resources of a block that limit the number of resident blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct BlockNeeds {
    /// Threads of a block.
    pub threads: u32,
    /// Registers per thread: the allocated ones in CUPTI's records (at least 16), or the used ones
    /// of the attribute `CU_FUNC_ATTRIBUTE_NUM_REGS`. Both give the same result.
    pub registers_per_thread: u32,
    /// Bytes of shared memory of a block, fixed at compile time.
    pub static_shared_bytes: u32,
    /// Bytes of shared memory of a block, requested at launch.
    pub dynamic_shared_bytes: u32,
    /// The kernel's preferred percentage of the maximum shared memory, if set
    /// (`CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT`).
    pub shared_carveout_percent: Option<u8>,
}

named_variants! {
    /// The resource that limits resident blocks.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    #[non_exhaustive]
    pub enum Limiter with name {
        /// The maximum of warps.
        Warps = "warps",
        /// Registers.
        Registers = "registers",
        /// Shared memory.
        #[serde(rename = "shared memory")]
        SharedMemory = "shared memory",
        /// The maximum of blocks.
        Blocks = "blocks",
    }
}

/// The resident blocks of a launch on a multiprocessor, equal to
/// `cuOccupancyMaxActiveBlocksPerMultiprocessor`.
///
/// Ignores clusters: a launch with clusters may have fewer. `{}` prints a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Occupancy {
    /// Resident blocks; 0 if not even one fits.
    pub blocks: u32,
    /// Warps of a block, including a partial last one.
    pub warps_per_block: u32,
    /// Maximum resident warps.
    pub most_warps: u32,
    /// Blocks if only warps limit (`launch__occupancy_limit_warps` of Nsight Compute).
    pub by_warps: u32,
    /// Blocks if only registers limit (`launch__occupancy_limit_registers`), if used.
    pub by_registers: Option<u32>,
    /// Blocks if only shared memory limits (`launch__occupancy_limit_shared_mem`), if used.
    pub by_shared_memory: Option<u32>,
    /// Maximum resident blocks (`launch__occupancy_limit_blocks`).
    pub by_blocks: u32,
    /// Bytes of shared memory of a block, rounded up, including the reserved bytes.
    pub shared_bytes_per_block: u32,
    /// The assumed shared memory setting of the multiprocessor in bytes.
    pub shared_config_bytes: u32,
}

impl Occupancy {
    /// Occupancy with the kernel's preferred shared memory setting, by default the maximum.
    #[must_use]
    pub fn new(limits: &SmLimits, needs: &BlockNeeds) -> Self {
        let most = u64::from(limits.shared_bytes);
        let preferred = needs.shared_carveout_percent.map_or(limits.shared_bytes, |percent| {
            // CAST: at most the total.
            limits.shared_config((most * u64::from(percent.min(100)) / 100) as u32)
        });
        let block = shared_bytes_per_block(limits, needs);
        // One block must fit, whatever the preference.
        let config = if preferred < block { limits.shared_config(block) } else { preferred };
        Self::with_shared_config(limits, needs, config)
    }

    /// Occupancy with this shared memory setting; Nsight Compute uses the driver's setting.
    #[must_use]
    pub fn with_shared_config(limits: &SmLimits, needs: &BlockNeeds, config_bytes: u32) -> Self {
        let warps_per_block = needs.threads.div_ceil(WARP).max(1);
        let by_warps = match needs.threads <= limits.threads_per_block {
            true => limits.warps / warps_per_block,
            false => 0,
        };
        let shared_bytes_per_block = shared_bytes_per_block(limits, needs);
        let requested =
            u64::from(needs.static_shared_bytes) + u64::from(needs.dynamic_shared_bytes);
        let by_shared_memory = match shared_bytes_per_block {
            0 => None,
            _ if requested > u64::from(limits.shared_bytes_per_block) => Some(0),
            bytes => Some(config_bytes / bytes),
        };
        let by_registers = blocks_by_registers(limits, needs, warps_per_block);
        let limited = by_warps.min(limits.blocks);
        let limited = limited.min(by_registers.unwrap_or(u32::MAX));
        Self {
            blocks: limited.min(by_shared_memory.unwrap_or(u32::MAX)),
            warps_per_block,
            most_warps: limits.warps,
            by_warps,
            by_registers,
            by_shared_memory,
            by_blocks: limits.blocks,
            shared_bytes_per_block,
            shared_config_bytes: config_bytes,
        }
    }

    /// Resident warps.
    pub fn warps(&self) -> u32 {
        self.blocks.saturating_mul(self.warps_per_block).min(self.most_warps)
    }

    /// Resident warps over the maximum, from 0 to 1.
    pub fn fraction(&self) -> f64 {
        match self.most_warps {
            0 => 0.0,
            most => f64::from(self.warps()) / f64::from(most),
        }
    }

    /// All resources that allow no more blocks than the resident ones.
    pub fn limiters(&self) -> impl Iterator<Item = Limiter> + use<> {
        let blocks = self.blocks;
        let all = [
            (Limiter::Warps, Some(self.by_warps)),
            (Limiter::Registers, self.by_registers),
            (Limiter::SharedMemory, self.by_shared_memory),
            (Limiter::Blocks, Some(self.by_blocks)),
        ];
        all.into_iter().filter(move |(_, by)| *by == Some(blocks)).map(|(limiter, _)| limiter)
    }
}

impl fmt::Display for Occupancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = 100.0 * self.fraction();
        let (warps, most) = (self.warps(), self.most_warps);
        let limiters: Vec<_> = self.limiters().map(|limiter| limiter.to_string()).collect();
        let (blocks, limiters) = (self.blocks, limiters.join(" and "));
        write!(
            f,
            "{percent:.1} % ({warps} of {most} warps, {blocks} blocks, limited by {limiters})"
        )
    }
}

fn shared_bytes_per_block(limits: &SmLimits, needs: &BlockNeeds) -> u32 {
    let requested = needs.static_shared_bytes.saturating_add(needs.dynamic_shared_bytes);
    let with_reserved = requested.saturating_add(limits.reserved_shared_bytes_per_block);
    round_up(with_reserved, limits.shared_unit)
}

/// Registers are allocated per warp; warps are distributed to partitions, which divide the
/// registers.
fn blocks_by_registers(limits: &SmLimits, needs: &BlockNeeds, warps_per_block: u32) -> Option<u32> {
    if needs.registers_per_thread == 0 {
        return None;
    }
    if needs.registers_per_thread > limits.registers_per_thread {
        return Some(0);
    }
    let warp = round_up(needs.registers_per_thread.saturating_mul(WARP), limits.register_unit);
    let partitions = limits.partitions.max(1);
    // The limit of a block assumes an even distribution.
    let whole = warp.saturating_mul(round_up(warps_per_block, partitions));
    if whole > limits.registers_per_block {
        return Some(0);
    }
    let warps = (limits.registers / partitions / warp.max(1)) * partitions;
    Some(warps / warps_per_block)
}

fn round_up(value: u32, unit: u32) -> u32 {
    value.checked_next_multiple_of(unit.max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(threads: u32, registers_per_thread: u32, dynamic_shared_bytes: u32) -> BlockNeeds {
        BlockNeeds { threads, registers_per_thread, dynamic_shared_bytes, ..BlockNeeds::default() }
    }

    fn blocks_of(capability: (u32, u32), needs: BlockNeeds) -> (u32, Vec<Limiter>) {
        let occupancy =
            Occupancy::new(&SmLimits::from_compute_capability(capability).unwrap(), &needs);
        (occupancy.blocks, occupancy.limiters().collect())
    }

    /// By hand, from the tables of CUDA's programming guide.
    #[test]
    fn blocks_are_limited_by_the_scarcest_resource() {
        use Limiter::{Blocks, Registers, SharedMemory, Warps};
        assert_eq!(blocks_of((9, 0), needs(256, 32, 0)), (8, vec![Warps, Registers]));
        assert_eq!(blocks_of((9, 0), needs(32, 16, 0)), (32, vec![Blocks]));
        assert_eq!(blocks_of((8, 6), needs(32, 16, 0)), (16, vec![Blocks]));
        assert_eq!(blocks_of((8, 9), needs(32, 16, 0)), (24, vec![Blocks]));
        // 128 threads of 168 registers: 168 * 32 = 5376, so 3 warps to a partition of 16384.
        assert_eq!(blocks_of((8, 0), needs(128, 168, 0)), (3, vec![Registers]));
        // A block of 48 KiB takes 49 KiB from 8.0 on: four of 228, three of 164; before, two of 96.
        assert_eq!(blocks_of((9, 0), needs(128, 32, 48 << 10)), (4, vec![SharedMemory]));
        assert_eq!(blocks_of((8, 0), needs(128, 32, 48 << 10)), (3, vec![SharedMemory]));
        assert_eq!(blocks_of((7, 0), needs(128, 32, 48 << 10)), (2, vec![SharedMemory]));
        // The maximum of a block, and a byte more.
        assert_eq!(blocks_of((12, 0), needs(128, 32, 99 << 10)).0, 1);
        assert_eq!(blocks_of((12, 0), needs(128, 32, (99 << 10) + 1)), (0, vec![SharedMemory]));
        // 1024 threads of 65 registers need 72 * 1024 of 65536.
        assert_eq!(blocks_of((9, 0), needs(1024, 65, 0)), (0, vec![Registers]));
        assert_eq!(blocks_of((9, 0), needs(1024, 64, 0)), (1, vec![Registers]));
        assert_eq!(blocks_of((9, 0), needs(1025, 16, 0)).0, 0);
    }

    #[test]
    fn a_carveout_yields_to_the_needs_of_a_block() {
        let limits = SmLimits::from_compute_capability((9, 0)).unwrap();
        let with = |percent, bytes| {
            let shape = BlockNeeds { shared_carveout_percent: percent, ..needs(128, 32, bytes) };
            let occupancy = Occupancy::new(&limits, &shape);
            (occupancy.shared_config_bytes >> 10, occupancy.blocks)
        };
        assert_eq!(with(None, 20 << 10), (228, 10));
        // 10 % of 228 KiB is 22.8: the next setting is 32, in which one block of 21 fits.
        assert_eq!(with(Some(10), 20 << 10), (32, 1));
        assert_eq!(with(Some(0), 100 << 10), (132, 1));
        assert_eq!(with(Some(100), 20 << 10), (228, 10));
    }

    #[test]
    fn text_names_the_limiters() {
        let limits = SmLimits::from_compute_capability((9, 0)).unwrap();
        let text = Occupancy::new(&limits, &needs(128, 168, 0)).to_string();
        assert_eq!(text, "18.8 % (12 of 64 warps, 3 blocks, limited by registers)");
    }
}
