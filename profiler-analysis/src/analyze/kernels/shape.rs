//! The shape of a launch on its device: occupancy, waves, and idle parts.

use std::fmt;

use profiler_base::named_variants;
use serde::Serialize;

use super::KernelClass;
use super::limits::{SmLimits, WARP};
use super::occupancy::{BlockNeeds, Limiter, Occupancy};
use profiler_core::profile::DeviceInfo;
use profiler_core::profile::{Kernel, Profile};
use profiler_core::tables::Multiprocessor;

/// Sufficient occupancy (Nsight Compute's rule `TheoreticalOccupancy`).
pub(super) const ENOUGH_OCCUPANCY: f64 = 0.8;
/// Reported time share of a partial last wave (Nsight Compute's rule `LaunchConfiguration`).
const MUCH_TAIL: f64 = 0.2;

/// A launch on its device, judged without counters. Made by
/// [`Kernel::launch_shape`](crate::prelude::KernelExt::launch_shape).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub struct LaunchShape {
    /// Blocks in x, y, z (`gridX`...).
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z (`blockX`...).
    pub block: [u32; 3],
    /// Blocks of a cluster in x, y, z (`clusterX`...); zeros without clusters.
    pub cluster: [u32; 3],
    /// The resources of a block.
    #[serde(flatten)]
    pub needs: BlockNeeds,
    /// Bytes of local memory per thread (`localMemoryPerThread`): spilled registers and arrays.
    pub local_bytes_per_thread: u32,
    /// Multiprocessors of the device.
    pub multiprocessors: u32,
    /// Resources of one of them.
    #[serde(skip)]
    pub limits: SmLimits,
    /// Occupancy of CUDA's calculator.
    pub occupancy: Occupancy,
    /// Occupancy with the driver's shared memory setting for this launch (`sharedMemoryExecuted`),
    /// as in Nsight Compute; `None` if not recorded.
    pub configured: Option<Occupancy>,
}

impl LaunchShape {
    /// Blocks of the grid.
    pub fn blocks(&self) -> u64 {
        product(self.grid)
    }

    /// Threads of a block.
    pub fn threads_per_block(&self) -> u64 {
        product(self.block)
    }

    /// Blocks of the grid over resident blocks of the device (`launch__waves_per_multiprocessor`).
    /// `None` if not one block fits.
    pub fn waves(&self) -> Option<f64> {
        let at_once = self.blocks_at_once();
        (at_once != 0).then(|| self.blocks() as f64 / at_once as f64)
    }

    /// The time share of a partial last wave if all blocks take the same time: 1 / (full waves +
    /// 1). `None` without a full wave or without a partial one.
    pub fn tail(&self) -> Option<f64> {
        let at_once = self.blocks_at_once();
        let full = self.blocks().checked_div(at_once)?;
        let is_partial = !self.blocks().is_multiple_of(at_once);
        (full != 0 && is_partial).then(|| 1.0 / (full + 1) as f64)
    }

    /// The share of warp lanes with a thread, from 0 to 1.
    pub fn lanes(&self) -> f64 {
        let lanes = u64::from(self.occupancy.warps_per_block) * u64::from(WARP);
        (self.threads_per_block() as f64 / lanes.max(1) as f64).min(1.0)
    }

    /// The share of time in which multiprocessors have blocks, from 0 to 1, if blocks take the same
    /// time. It is waves over waves rounded up. With less than a wave, it is the grid over the
    /// product of the multiprocessors and the blocks on the fullest one.
    pub fn balance(&self) -> f64 {
        let balance = |blocks: u64, slots: u64| {
            let waves = blocks.div_ceil(slots.max(1)).max(1);
            blocks as f64 / (waves as f64 * slots.max(1) as f64)
        };
        match self.waves() {
            Some(waves) if waves >= 1.0 => balance(self.blocks(), self.blocks_at_once()),
            _ => balance(self.blocks(), self.multiprocessors.into()),
        }
    }

    /// The idle part of the device's time, from 0 to 1: the saving of a better shape with equal
    /// blocks. It is 1 - [lanes](Self::lanes) x [balance](Self::balance) x min(1, occupancy / 0.8).
    ///
    /// Occupancy is ignored for products, convolutions and attention, which hide latency within a
    /// thread and are fast at low occupancy.
    pub fn headroom(&self, class: KernelClass) -> f64 {
        let occupancy = match class.is_matrix_math() {
            true => 1.0,
            false => (self.achievable().fraction() / ENOUGH_OCCUPANCY).min(1.0),
        };
        1.0 - self.lanes() * self.balance() * occupancy
    }

    /// The findings, largest possible loss first.
    pub fn findings(&self) -> Vec<ShapeFinding> {
        let mut found = Vec::new();
        let mut add = |kind, loss| found.push(ShapeFinding { kind, loss });
        let (blocks, multiprocessors) = (self.blocks(), u64::from(self.multiprocessors));
        if blocks < multiprocessors {
            add(ShapeFindingKind::SmallGrid, Some(1.0 - blocks as f64 / multiprocessors as f64));
        } else if blocks < 2 * multiprocessors {
            add(ShapeFindingKind::OneBlockEach, None);
        }
        if self.tail().is_some_and(|tail| tail >= MUCH_TAIL) {
            add(ShapeFindingKind::Tail, Some(1.0 - self.balance()));
        }
        let partial = self.threads_per_block() % u64::from(WARP);
        if partial != 0 {
            add(ShapeFindingKind::PartialWarp, Some(1.0 - self.lanes()));
        }
        let occupancy = self.occupancy.fraction();
        if occupancy < ENOUGH_OCCUPANCY {
            let kind = match self.occupancy.limiters().eq([Limiter::Blocks]) {
                true => ShapeFindingKind::SmallBlock,
                false => ShapeFindingKind::LowOccupancy,
            };
            add(kind, Some(1.0 - occupancy));
        }
        if let Some(configured) = self.configured
            && configured.blocks < self.occupancy.blocks
        {
            let loss = 1.0 - f64::from(configured.blocks) / f64::from(self.occupancy.blocks);
            // The grid may fit despite the limit.
            let wanted = blocks.div_ceil(multiprocessors.max(1));
            if wanted > u64::from(configured.blocks) {
                add(ShapeFindingKind::SharedMemorySetting, Some(loss));
            }
        }
        if self.local_bytes_per_thread != 0 {
            add(ShapeFindingKind::LocalMemory, None);
        }
        found.sort_by(|a, b| b.loss.unwrap_or(0.0).total_cmp(&a.loss.unwrap_or(0.0)));
        found
    }

    /// The occupancy with the driver's setting, if recorded.
    pub(crate) fn achievable(&self) -> Occupancy {
        self.configured.unwrap_or(self.occupancy)
    }

    fn blocks_at_once(&self) -> u64 {
        u64::from(self.multiprocessors) * u64::from(self.achievable().blocks)
    }
}

/// A property of a launch shape that may cost time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ShapeFinding {
    /// The kind.
    pub kind: ShapeFindingKind,
    /// The lost part, from 0 to 1, as [`ShapeFindingKind`] defines it. `None` for a hint.
    pub loss: Option<f64>,
}

impl fmt::Display for ShapeFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.loss {
            Some(loss) => write!(f, "{} ({:.0} %)", self.kind, 100.0 * loss),
            None => write!(f, "{}", self.kind),
        }
    }
}

named_variants! {
    /// Properties of launch shapes that may cost time.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum ShapeFindingKind with name {
        /// Fewer blocks than multiprocessors. Lost: multiprocessors without a block.
        SmallGrid = "small grid"
            and "give it more blocks: a larger batch, smaller tiles, split-k or stream-k for products, or run it beside \
                 other kernels on another stream",
        /// Fewer than two blocks per multiprocessor: while one waits at a barrier, nothing runs.
        OneBlockEach = "under two blocks a multiprocessor"
            and "give it at least two blocks for each multiprocessor, so that one runs while another waits at a barrier",
        /// A partial last wave with a fifth of the time or more. Lost: the device time without
        /// blocks, as a share of the whole time.
        Tail = "tail"
            and "choose a grid that is a multiple of the resident blocks of the device, smaller \
                 blocks, or a persistent kernel (grid-stride loop)",
        /// The block is not a multiple of 32 threads. Lost: lanes without a thread.
        PartialWarp = "partial warp" and "make the block a multiple of 32 threads",
        /// Blocks too small for enough warps per multiprocessor. Lost: missing warps.
        SmallBlock = "small block" and "make blocks larger: 128 to 256 threads are a good start",
        /// Theoretical occupancy below 80 %. Lost: missing warps.
        LowOccupancy = "low occupancy"
            and "relax its limit: fewer registers (__launch_bounds__, smaller tiles), less \
                 shared memory, or other block sizes; products and attention are often fast \
                 without",
        /// The driver's setting has less shared memory than the possible blocks need. Lost: blocks.
        SharedMemorySetting = "shared memory setting"
            and "request more shared memory: cudaFuncAttributePreferredSharedMemoryCarveout",
        /// Threads use local memory: spilled registers, or arrays indexed at run time.
        LocalMemory = "local memory"
            and "check for spills (-Xptxas -v): a higher register limit, smaller tiles, and arrays with constant \
                 indices",
    }
}

impl ShapeFindingKind {
    /// The advice as a text.
    pub const fn advice(self) -> &'static str {
        self.second_text()
    }
}

fn product(sizes: [u32; 3]) -> u64 {
    sizes.into_iter().fold(1, |product: u64, size| product.saturating_mul(size.into()))
}

/// [`ProfileExt::sm_limits`](crate::prelude::ProfileExt::sm_limits).
pub(crate) fn sm_limits(profile: &Profile, device: u32) -> Option<SmLimits> {
    let capability = compute_capability(profile, device)?;
    match stated(profile, device) {
        Some(stated) => SmLimits::of_device(capability, stated),
        None => SmLimits::from_compute_capability(capability),
    }
}

pub(crate) fn compute_capability(profile: &Profile, device: u32) -> Option<(u32, u32)> {
    let stated = stated(profile, device).map(|stated| stated.compute_capability);
    stated.or_else(|| Some(device_info(profile, device)?.compute_capability))
}

pub(super) fn multiprocessors(profile: &Profile, device: u32) -> Option<u32> {
    let stated = stated(profile, device).map(|stated| stated.multiprocessors);
    let count = stated.or_else(|| Some(device_info(profile, device)?.multiprocessors));
    count.filter(|count| *count != 0)
}

fn stated(profile: &Profile, device: u32) -> Option<&Multiprocessor> {
    profile.tables().multiprocessors.iter().find(|stated| stated.device == device)
}

fn device_info(profile: &Profile, device: u32) -> Option<&DeviceInfo> {
    profile.recording_info().devices.iter().find(|info| info.id == device)
}

/// [`KernelExt::launch_shape`](crate::prelude::KernelExt::launch_shape).
pub(crate) fn launch_shape(kernel: &Kernel<'_>) -> Option<LaunchShape> {
    let (profile, details) = (kernel.profile(), kernel.details());
    let limits = sm_limits(profile, kernel.device())?;
    let multiprocessors = multiprocessors(profile, kernel.device())?;
    let setting = kernel.work().shared_memory;
    let threads = u32::try_from(product(details.block)).ok().filter(|threads| *threads != 0)?;
    let needs = BlockNeeds {
        threads,
        registers_per_thread: details.registers_per_thread.into(),
        static_shared_bytes: details.static_shared_bytes,
        dynamic_shared_bytes: details.dynamic_shared_bytes,
        shared_carveout_percent: setting.carveout_percent,
    };
    let configured = (setting.executed_bytes != 0)
        .then(|| Occupancy::with_shared_config(&limits, &needs, setting.executed_bytes));
    Some(LaunchShape {
        grid: details.grid,
        block: details.block,
        cluster: details.cluster,
        needs,
        local_bytes_per_thread: details.local_bytes_per_thread,
        multiprocessors,
        limits,
        occupancy: Occupancy::new(&limits, &needs),
        configured,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On an H200, with 132 multiprocessors of 64 warps each.
    fn shape(grid: [u32; 3], block: [u32; 3], registers: u32, dynamic: u32) -> LaunchShape {
        let limits = SmLimits::from_compute_capability((9, 0)).unwrap();
        let needs = BlockNeeds {
            threads: block.iter().product(),
            registers_per_thread: registers,
            dynamic_shared_bytes: dynamic,
            ..BlockNeeds::default()
        };
        LaunchShape {
            grid,
            block,
            cluster: [0; 3],
            needs,
            local_bytes_per_thread: 0,
            multiprocessors: 132,
            limits,
            occupancy: Occupancy::new(&limits, &needs),
            configured: None,
        }
    }

    fn kinds(shape: &LaunchShape) -> Vec<(ShapeFindingKind, Option<u32>)> {
        let percent = |loss: f64| (100.0 * loss).round() as u32;
        shape.findings().iter().map(|found| (found.kind, found.loss.map(percent))).collect()
    }

    #[test]
    fn waves_tail_and_balance_follow_from_the_grid() {
        // 8 blocks of 256 threads on each of 132 multiprocessors: 1056 at once.
        let with = |blocks| shape([blocks, 1, 1], [256, 1, 1], 32, 0);
        let (full, more) = (with(1056), with(1057));
        assert_eq!((full.waves(), full.tail(), full.balance()), (Some(1.0), None, 1.0));
        assert_eq!(kinds(&full), []);
        // One block more: a second wave of one block.
        assert_eq!(more.tail(), Some(0.5));
        assert_eq!(kinds(&more), [(ShapeFindingKind::Tail, Some(50))]);
        assert!((more.headroom(KernelClass::Other) - (1.0 - 1057.0 / 2112.0)).abs() < 1e-12);
        // Six full waves and a part: a seventh of the time, less than a fifth.
        assert_eq!((with(6400).tail(), kinds(&with(6400))), (Some(1.0 / 7.0), vec![]));
        // Less than a wave: one multiprocessor has two of 133 blocks, the others one.
        assert_eq!((with(133).tail(), with(133).balance()), (None, 133.0 / 264.0));
        assert_eq!(kinds(&with(133)), [(ShapeFindingKind::OneBlockEach, None)]);
        assert_eq!(kinds(&with(33)), [(ShapeFindingKind::SmallGrid, Some(75))]);
        assert_eq!(with(264).balance(), 1.0);
    }

    #[test]
    fn badly_fitting_blocks_are_found() {
        // 100 threads are four warps, of which the last has 4 of 32.
        let partial = shape([10_560, 1, 1], [100, 1, 1], 32, 0);
        assert_eq!(partial.lanes(), 100.0 / 128.0);
        assert_eq!(kinds(&partial), [(ShapeFindingKind::PartialWarp, Some(22))]);
        let small = shape([132 * 32, 1, 1], [32, 1, 1], 16, 0);
        assert_eq!(kinds(&small), [(ShapeFindingKind::SmallBlock, Some(50))]);
        let greedy = shape([132 * 3, 1, 1], [128, 1, 1], 168, 0);
        assert_eq!(kinds(&greedy), [(ShapeFindingKind::LowOccupancy, Some(81))]);
        // 12 of 64 warps are 18.75 %, of the sufficient 80 %; a product does not need them.
        assert!((greedy.headroom(KernelClass::Elementwise) - (1.0 - 0.1875 / 0.8)).abs() < 1e-12);
        assert_eq!(greedy.headroom(KernelClass::Gemm), 0.0);
        let local =
            LaunchShape { local_bytes_per_thread: 40, ..shape([1056, 1, 1], [256, 1, 1], 32, 0) };
        assert_eq!(kinds(&local), [(ShapeFindingKind::LocalMemory, None)]);
        // Not even one block fits.
        let none = shape([1, 1, 1], [1024, 1, 1], 128, 0);
        assert_eq!((none.waves(), none.tail(), none.occupancy.blocks), (None, None, 0));
    }

    #[test]
    fn the_shared_memory_setting_counts_only_if_more_blocks_would_run() {
        let with = |blocks, config: u32| {
            let shape = shape([blocks, 1, 1], [64, 1, 1], 32, 16 << 10);
            let configured =
                Occupancy::with_shared_config(&shape.limits, &shape.needs, config << 10);
            LaunchShape { configured: Some(configured), ..shape }
        };
        // 17 KiB a block: 13 in 228 KiB, 5 in 100, of which there are 132.
        let few = with(10_000, 100);
        assert_eq!((few.occupancy.blocks, few.waves()), (13, Some(10_000.0 / 660.0)));
        assert!(kinds(&few).contains(&(ShapeFindingKind::SharedMemorySetting, Some(62))));
        let is_setting = |kind| kind == ShapeFindingKind::SharedMemorySetting;
        assert!(!kinds(&with(660, 100)).iter().any(|(kind, _)| is_setting(*kind)));
    }
}
