//! The shape of a launch on its device: how full it makes multiprocessors, and what it leaves without work.

use std::fmt;

use serde::Serialize;

use super::KernelClass;
use super::limits::{SmLimits, WARP};
use super::occupancy::{BlockNeeds, Limiter, Occupancy};
use crate::base::named_variants::named_variants;
use crate::profile::{Kernel, Profile};

/// Occupancy from which on more is not asked for (Nsight Compute's rule `TheoreticalOccupancy`).
pub(super) const ENOUGH_OCCUPANCY: f64 = 0.8;
/// The part of the time from which on a partial last wave is worth a word (Nsight Compute's rule `LaunchConfiguration`).
const MUCH_TAIL: f64 = 0.2;

/// A launch on its device, as far as it can be judged without counters. Made by [`Kernel::launch_shape`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[non_exhaustive]
pub struct LaunchShape {
    /// Blocks in x, y, z (`gridX`...).
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z (`blockX`...).
    pub block: [u32; 3],
    /// Blocks of a cluster in x, y, z (`clusterX`...); zeros without clusters.
    pub cluster: [u32; 3],
    /// What of it decides how many blocks fit.
    #[serde(flatten)]
    pub needs: BlockNeeds,
    /// Bytes of local memory a thread (`localMemoryPerThread`): what does not fit into registers, and arrays of a thread.
    pub local_bytes_per_thread: u32,
    /// Multiprocessors of the device.
    pub multiprocessors: u32,
    /// What fits on one of them.
    #[serde(skip)]
    pub limits: SmLimits,
    /// As CUDA's calculator has it.
    pub occupancy: Occupancy,
    /// With the shared memory that the driver set for this launch (`sharedMemoryExecuted`), as Nsight Compute has it;
    /// `None` where it is not known.
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

    /// How often the device is filled with blocks: those of the grid over those that it can have at once
    /// (`launch__waves_per_multiprocessor`). `None` if not one block fits.
    pub fn waves(&self) -> Option<f64> {
        let at_once = self.blocks_at_once();
        (at_once != 0).then(|| self.blocks() as f64 / at_once as f64)
    }

    /// The part of the time that a partial last wave takes, if blocks take equally long: 1 / (full waves + 1). `None` if
    /// there is no full wave, or none that is not full.
    pub fn tail(&self) -> Option<f64> {
        let at_once = self.blocks_at_once();
        let full = self.blocks().checked_div(at_once)?;
        let is_partial = !self.blocks().is_multiple_of(at_once);
        (full != 0 && is_partial).then(|| 1.0 / (full + 1) as f64)
    }

    /// The part of the lanes of its warps that have a thread, from 0 to 1.
    pub fn lanes(&self) -> f64 {
        let lanes = u64::from(self.occupancy.warps_per_block) * u64::from(WARP);
        (self.threads_per_block() as f64 / lanes.max(1) as f64).min(1.0)
    }

    /// The part of the time of multiprocessors in which they have blocks, from 0 to 1, if blocks take equally long. Of
    /// less than a wave: the grid over the multiprocessors, each with as many blocks as the one with the most; else waves
    /// over waves rounded up.
    pub fn balance(&self) -> f64 {
        let of = |blocks: u64, places: u64| {
            let waves = blocks.div_ceil(places.max(1)).max(1);
            blocks as f64 / (waves as f64 * places.max(1) as f64)
        };
        match self.waves() {
            Some(waves) if waves >= 1.0 => of(self.blocks(), self.blocks_at_once()),
            _ => of(self.blocks(), self.multiprocessors.into()),
        }
    }

    /// The part of the device's time that the shape leaves without work, from 0 to 1, and so an estimate of what a better
    /// shape saves if each block takes as long: 1 - [lanes](Self::lanes) x [balance](Self::balance) x min(1, occupancy / 0.8).
    ///
    /// Occupancy does not count for products, convolutions and attention, which hide latency within a thread and are fast
    /// with little of it.
    pub fn headroom(&self, class: KernelClass) -> f64 {
        let occupancy = match class.is_matrix_math() {
            true => 1.0,
            false => (self.achievable().fraction() / ENOUGH_OCCUPANCY).min(1.0),
        };
        1.0 - self.lanes() * self.balance() * occupancy
    }

    /// What is to be said of it, the most that may be lost first.
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
            let is_small = self.occupancy.limiters().eq([Limiter::Blocks]);
            let kind = if is_small {
                ShapeFindingKind::SmallBlock
            } else {
                ShapeFindingKind::LowOccupancy
            };
            add(kind, Some(1.0 - occupancy));
        }
        if let Some(configured) = self.configured
            && configured.blocks < self.occupancy.blocks
        {
            let loss = 1.0 - f64::from(configured.blocks) / f64::from(self.occupancy.blocks);
            // What there is to run may fit all the same.
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

    /// With the driver's setting, where that is known.
    pub(super) fn achievable(&self) -> Occupancy {
        self.configured.unwrap_or(self.occupancy)
    }

    fn blocks_at_once(&self) -> u64 {
        u64::from(self.multiprocessors) * u64::from(self.achievable().blocks)
    }
}

/// Something about a launch's shape that may cost time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ShapeFinding {
    /// What it is.
    pub kind: ShapeFindingKind,
    /// The part, from 0 to 1, that is lost: of the device's time, of lanes or of warps, as [`ShapeFindingKind`] says. `None`
    /// where it is a hint alone.
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
    /// What a launch's shape has that may cost time.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum ShapeFindingKind with name {
        /// Fewer blocks than multiprocessors; lost are those that have none.
        SmallGrid = "small grid",
        /// Fewer than two blocks for each multiprocessor: while one waits at a barrier, nothing else runs.
        OneBlockEach = "under two blocks a multiprocessor",
        /// The last wave is partial, and a fifth of the time or more; lost is the part of the device that it leaves without
        /// blocks, of all of the time.
        Tail = "tail",
        /// The block is no multiple of 32 threads; lost are the lanes without one.
        PartialWarp = "partial warp",
        /// Blocks so small that a multiprocessor cannot have enough of them; lost are the warps that it could have.
        SmallBlock = "small block",
        /// Theoretical occupancy below 80 %; lost are the warps that a multiprocessor could have.
        LowOccupancy = "low occupancy",
        /// The driver set less shared memory than would hold as many blocks as the kernel could have; lost are those.
        SharedMemorySetting = "shared memory setting",
        /// Threads have local memory: registers that spilled, or arrays that are indexed at run time.
        LocalMemory = "local memory",
    }
}

impl ShapeFindingKind {
    /// What to do about it.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::SmallGrid => {
                "give it more blocks: a larger batch, smaller tiles, split-k or stream-k for products, or run it beside \
                 other kernels on another stream"
            }
            Self::OneBlockEach => {
                "give it at least two blocks for each multiprocessor, so that one runs while another waits at a barrier"
            }
            Self::Tail => {
                "choose a grid that is a multiple of what the device holds at once, smaller blocks, or a persistent kernel \
                 (grid-stride loop)"
            }
            Self::PartialWarp => "make the block a multiple of 32 threads",
            Self::SmallBlock => "make blocks larger: 128 to 256 threads are a good start",
            Self::LowOccupancy => {
                "see what limits it: fewer registers (__launch_bounds__, smaller tiles), less shared memory, or other block \
                 sizes; products and attention are often fast without"
            }
            Self::SharedMemorySetting => {
                "ask for more shared memory: cudaFuncAttributePreferredSharedMemoryCarveout"
            }
            Self::LocalMemory => {
                "look for spills (-Xptxas -v): a higher register limit, smaller tiles, and arrays with constant indices"
            }
        }
    }
}

fn product(sizes: [u32; 3]) -> u64 {
    sizes.into_iter().fold(1, |product: u64, size| product.saturating_mul(size.into()))
}

impl Profile {
    /// What fits on a multiprocessor of this device: by its compute capability, and where the profile's source says it, by
    /// that. `None` if neither is known.
    pub fn sm_limits(&self, device: u32) -> Option<SmLimits> {
        let told = self.store.multiprocessors.iter().find(|told| told.device == device);
        let capability = self.capability(device)?;
        match told {
            Some(told) => SmLimits::told(capability, told),
            None => SmLimits::of(capability),
        }
    }

    pub(super) fn capability(&self, device: u32) -> Option<(u32, u32)> {
        let told = self.store.multiprocessors.iter().find(|told| told.device == device);
        let told = told.map(|told| told.compute_capability);
        let info = || self.recording_info().devices.iter().find(|info| info.id == device);
        told.or_else(|| info().map(|info| info.compute_capability))
    }

    pub(super) fn multiprocessors(&self, device: u32) -> Option<u32> {
        let told = self.store.multiprocessors.iter().find(|told| told.device == device);
        let told = told.map(|told| told.multiprocessors);
        let info = || self.recording_info().devices.iter().find(|info| info.id == device);
        let count = told.or_else(|| info().map(|info| info.multiprocessors));
        count.filter(|count| *count != 0)
    }
}

impl Kernel<'_> {
    /// Its launch on its device. `None` if the profile does not know what fits on the device, or the launch has no threads.
    pub fn launch_shape(&self) -> Option<LaunchShape> {
        let (profile, details) = (self.profile(), self.details());
        let limits = profile.sm_limits(self.device())?;
        let multiprocessors = profile.multiprocessors(self.device())?;
        let setting = self.work().shared_memory;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On an H200, whose 132 multiprocessors have 64 warps each.
    fn shape(grid: [u32; 3], block: [u32; 3], registers: u32, dynamic: u32) -> LaunchShape {
        let limits = SmLimits::of((9, 0)).unwrap();
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
        let of = |blocks| shape([blocks, 1, 1], [256, 1, 1], 32, 0);
        assert_eq!((of(1056).waves(), of(1056).tail(), of(1056).balance()), (Some(1.0), None, 1.0));
        assert_eq!(kinds(&of(1056)), []);
        // One block more: a second wave of one block.
        assert_eq!(
            (of(1057).tail(), kinds(&of(1057))),
            (Some(0.5), vec![(ShapeFindingKind::Tail, Some(50))])
        );
        assert!((of(1057).headroom(KernelClass::Other) - (1.0 - 1057.0 / 2112.0)).abs() < 1e-12);
        // Six full waves and a part: a seventh of the time, which is no fifth.
        assert_eq!((of(6400).tail(), kinds(&of(6400))), (Some(1.0 / 7.0), vec![]));
        // Less than a wave: 133 blocks are two on one multiprocessor and one on the others.
        assert_eq!((of(133).tail(), of(133).balance()), (None, 133.0 / 264.0));
        assert_eq!(kinds(&of(133)), [(ShapeFindingKind::OneBlockEach, None)]);
        assert_eq!(kinds(&of(33)), [(ShapeFindingKind::SmallGrid, Some(75))]);
        assert_eq!(of(264).balance(), 1.0);
    }

    #[test]
    fn blocks_that_fit_badly_are_named() {
        // 100 threads are four warps, of which the last has 4 of 32.
        let partial = shape([10_560, 1, 1], [100, 1, 1], 32, 0);
        assert_eq!(partial.lanes(), 100.0 / 128.0);
        assert_eq!(kinds(&partial), [(ShapeFindingKind::PartialWarp, Some(22))]);
        let small = shape([132 * 32, 1, 1], [32, 1, 1], 16, 0);
        assert_eq!(kinds(&small), [(ShapeFindingKind::SmallBlock, Some(50))]);
        let greedy = shape([132 * 3, 1, 1], [128, 1, 1], 168, 0);
        assert_eq!(kinds(&greedy), [(ShapeFindingKind::LowOccupancy, Some(81))]);
        // 12 of 64 warps are 18.75 %, of the 80 % that are enough; a product does without.
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
    fn the_setting_of_shared_memory_counts_where_more_would_run() {
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
        assert!(
            !kinds(&with(660, 100))
                .iter()
                .any(|(kind, _)| *kind == ShapeFindingKind::SharedMemorySetting)
        );
    }
}
