//! Theoretical occupancy: how many blocks of a launch a multiprocessor can have at once, and what keeps it from more.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::limits::{SmLimits, WARP};
use crate::base::named_variants::named_variants;

/// What of a launch decides how many of its blocks fit on a multiprocessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct BlockNeeds {
    /// Threads of a block.
    pub threads: u32,
    /// Registers of a thread: what it gets, as in CUPTI's records, where it is 16 at least, or what it uses, as the
    /// attribute `CU_FUNC_ATTRIBUTE_NUM_REGS` has it. Both give the same.
    pub registers_per_thread: u32,
    /// Bytes of shared memory of a block, fixed at compile time.
    pub static_shared_bytes: u32,
    /// Bytes of shared memory of a block, asked for at launch.
    pub dynamic_shared_bytes: u32,
    /// Percent of the most shared memory possible that the kernel asked the multiprocessor to be set to
    /// (`CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT`), if it did.
    pub shared_carveout_percent: Option<u8>,
}

named_variants! {
    /// What keeps a multiprocessor from having more blocks at once.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    #[non_exhaustive]
    pub enum Limiter with name {
        /// It has as many warps as it can.
        Warps = "warps",
        /// Registers.
        Registers = "registers",
        /// Shared memory.
        #[serde(rename = "shared memory")]
        SharedMemory = "shared memory",
        /// It has as many blocks as it can.
        Blocks = "blocks",
    }
}

/// How many blocks of a launch a multiprocessor can have at once.
///
/// What CUDA's `cuOccupancyMaxActiveBlocksPerMultiprocessor` says. Clusters are not looked at: a launch with clusters may
/// have fewer. `{}` is a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Occupancy {
    /// Blocks at once; 0 if not even one fits.
    pub blocks: u32,
    /// Warps of a block, the last of which may not be full.
    pub warps_per_block: u32,
    /// Warps that a multiprocessor can have.
    pub most_warps: u32,
    /// Blocks that there could be if nothing but warps limited them (`launch__occupancy_limit_warps` of Nsight Compute).
    pub by_warps: u32,
    /// If nothing but registers did (`launch__occupancy_limit_registers`); `None` if the kernel has none.
    pub by_registers: Option<u32>,
    /// If nothing but shared memory did (`launch__occupancy_limit_shared_mem`); `None` if a block takes none.
    pub by_shared_memory: Option<u32>,
    /// Blocks that a multiprocessor can have at most (`launch__occupancy_limit_blocks`).
    pub by_blocks: u32,
    /// Bytes of shared memory that a block takes, rounded up and with what the system takes for it.
    pub shared_bytes_per_block: u32,
    /// Bytes of shared memory that the multiprocessor is taken to be set to.
    pub shared_config_bytes: u32,
}

impl Occupancy {
    /// Of blocks with these needs, on a multiprocessor that is set to as much shared memory as the kernel asked for: all
    /// there can be, if it did not ask.
    #[must_use]
    pub fn new(limits: &SmLimits, needs: &BlockNeeds) -> Self {
        let most = u64::from(limits.shared_bytes);
        let asked = needs.shared_carveout_percent.map_or(limits.shared_bytes, |percent| {
            // CAST: at most all there is.
            limits.shared_config((most * u64::from(percent.min(100)) / 100) as u32)
        });
        let block = shared_bytes_per_block(limits, needs);
        // What a kernel prefers gives way to what one block needs.
        let config = if asked < block { limits.shared_config(block) } else { asked };
        Self::with_shared_config(limits, needs, config)
    }

    /// The same, on a multiprocessor that is set to so many bytes of shared memory: as Nsight Compute has it, which reads the
    /// setting that the driver chose for the launch.
    #[must_use]
    pub fn with_shared_config(limits: &SmLimits, needs: &BlockNeeds, config_bytes: u32) -> Self {
        let warps_per_block = needs.threads.div_ceil(WARP).max(1);
        let by_warps = match needs.threads <= limits.threads_per_block {
            true => limits.warps / warps_per_block,
            false => 0,
        };
        let shared_bytes_per_block = shared_bytes_per_block(limits, needs);
        let asked = u64::from(needs.static_shared_bytes) + u64::from(needs.dynamic_shared_bytes);
        let by_shared_memory = match shared_bytes_per_block {
            0 => None,
            _ if asked > u64::from(limits.shared_bytes_per_block) => Some(0),
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

    /// Warps at once.
    pub fn warps(&self) -> u32 {
        self.blocks.saturating_mul(self.warps_per_block).min(self.most_warps)
    }

    /// Warps at once over those that a multiprocessor can have, from 0 to 1.
    pub fn fraction(&self) -> f64 {
        match self.most_warps {
            0 => 0.0,
            most => f64::from(self.warps()) / f64::from(most),
        }
    }

    /// What keeps it from more: all that allow no more blocks than there can be.
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
        write!(
            f,
            "{percent:.1} % ({} of {} warps, {} blocks, limited by ",
            self.warps(),
            self.most_warps,
            self.blocks
        )?;
        for (at, limiter) in self.limiters().enumerate() {
            let between = if at == 0 { "" } else { " and " };
            write!(f, "{between}{limiter}")?;
        }
        f.write_str(")")
    }
}

fn shared_bytes_per_block(limits: &SmLimits, needs: &BlockNeeds) -> u32 {
    let asked = needs.static_shared_bytes.saturating_add(needs.dynamic_shared_bytes);
    let with_reserved = asked.saturating_add(limits.reserved_shared_bytes_per_block);
    round_up(with_reserved, limits.shared_unit)
}

/// Registers are given to warps, and warps to partitions, each of which has its part of them.
fn blocks_by_registers(limits: &SmLimits, needs: &BlockNeeds, warps_per_block: u32) -> Option<u32> {
    if needs.registers_per_thread == 0 {
        return None;
    }
    if needs.registers_per_thread > limits.registers_per_thread {
        return Some(0);
    }
    let warp = round_up(needs.registers_per_thread.saturating_mul(WARP), limits.register_unit);
    let partitions = limits.partitions.max(1);
    // What a block takes is checked as if it were spread evenly.
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

    fn of(capability: (u32, u32), needs: BlockNeeds) -> (u32, Vec<Limiter>) {
        let occupancy = Occupancy::new(&SmLimits::of(capability).unwrap(), &needs);
        (occupancy.blocks, occupancy.limiters().collect())
    }

    /// By hand, from the tables of CUDA's programming guide.
    #[test]
    fn blocks_are_limited_by_what_runs_out_first() {
        use Limiter::{Blocks, Registers, SharedMemory, Warps};
        assert_eq!(of((9, 0), needs(256, 32, 0)), (8, vec![Warps, Registers]));
        assert_eq!(of((9, 0), needs(32, 16, 0)), (32, vec![Blocks]));
        assert_eq!(of((8, 6), needs(32, 16, 0)), (16, vec![Blocks]));
        assert_eq!(of((8, 9), needs(32, 16, 0)), (24, vec![Blocks]));
        // 128 threads of 168 registers: 168 * 32 = 5376, so 3 warps to a partition of 16384.
        assert_eq!(of((8, 0), needs(128, 168, 0)), (3, vec![Registers]));
        // A block of 48 KiB takes 49 KiB from 8.0 on: four of 228, and three of 164; two of 96 before.
        assert_eq!(of((9, 0), needs(128, 32, 48 << 10)), (4, vec![SharedMemory]));
        assert_eq!(of((8, 0), needs(128, 32, 48 << 10)), (3, vec![SharedMemory]));
        assert_eq!(of((7, 0), needs(128, 32, 48 << 10)), (2, vec![SharedMemory]));
        // The most a block can have, and a byte more.
        assert_eq!(of((12, 0), needs(128, 32, 99 << 10)).0, 1);
        assert_eq!(of((12, 0), needs(128, 32, (99 << 10) + 1)), (0, vec![SharedMemory]));
        // 1024 threads of 65 registers need 72 * 1024 of 65536.
        assert_eq!(of((9, 0), needs(1024, 65, 0)), (0, vec![Registers]));
        assert_eq!(of((9, 0), needs(1024, 64, 0)), (1, vec![Registers]));
        assert_eq!(of((9, 0), needs(1025, 16, 0)).0, 0);
    }

    #[test]
    fn a_carveout_gives_way_to_what_a_block_needs() {
        let limits = SmLimits::of((9, 0)).unwrap();
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
    fn a_line_says_what_limits_it() {
        let limits = SmLimits::of((9, 0)).unwrap();
        let occupancy = Occupancy::new(&limits, &needs(128, 168, 0));
        assert_eq!(
            occupancy.to_string(),
            "18.8 % (12 of 64 warps, 3 blocks, limited by registers)"
        );
    }
}
