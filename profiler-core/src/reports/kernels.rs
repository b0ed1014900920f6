//! Kernels by name, and by name, grid and block.

use std::cmp::Reverse;
use std::sync::Arc;

use super::sums::{Group, Groups, Summary};
use super::table::row;
use super::texts::{OperationTexts, kernel_details};
use super::{Report, Reports};

const NO_KERNELS: &str = "no kernel was recorded";

row! {
    /// All kernels of one name: a row of `cuda_gpu_kern_sum`.
    CudaGpuKernSum = "cuda_gpu_kern_sum" {
        /// Percent of the time of all kernels.
        time_percent: f64 => "Time" Percent,
        /// How often it ran.
        instances: u64,
        /// How long it took on the GPU.
        #[serde(flatten)]
        time: Summary => |row, cells| cells.add_sum("Instances", row.instances, &row.time),
        /// The kernel.
        name: Arc<str> => "Name" Plain,
    }
}

row! {
    /// All kernels of one name, grid and block: a row of `cuda_gpu_kern_gb_sum`.
    CudaGpuKernGbSum = "cuda_gpu_kern_gb_sum" {
        /// Percent of the time of all kernels.
        time_percent: f64 => "Time" Percent,
        /// How often it ran.
        instances: u64,
        /// How long it took on the GPU.
        #[serde(flatten)]
        time: Summary => |row, cells| cells.add_sum("Instances", row.instances, &row.time),
        /// Blocks in x, y, z.
        grid: [u32; 3] => "GridXYZ" Plain,
        /// Threads of a block in x, y, z.
        block: [u32; 3] => "BlockXYZ" Plain,
        /// The kernel.
        name: Arc<str> => "Name" Plain,
    }
}

impl Reports<'_> {
    /// Kernels by name. Those that took most come first; of equal ones those that ran less often, then by name.
    pub fn cuda_gpu_kern_sum(self) -> Report<CudaGpuKernSum> {
        let mut texts = OperationTexts::new(self);
        let mut groups = Groups::new();
        for operation in &self.store().operations {
            if kernel_details(self.store(), operation).is_some() {
                groups.add_time(operation.time(), || texts.of(operation));
            }
        }
        let left_out = groups.left_out;
        let row = |group: Group<u32>| CudaGpuKernSum {
            time_percent: group.percent,
            instances: group.count,
            time: group.summary,
            name: texts.get(group.key),
        };
        let mut rows: Vec<CudaGpuKernSum> = groups.finish().into_iter().map(row).collect();
        rows.sort_by_cached_key(|row| {
            (Reverse(row.time.total_ns), row.instances, row.name.clone())
        });
        Report::new(rows, NO_KERNELS).leaving_out(left_out)
    }

    /// Kernels by name, grid and block, in the order of [`cuda_gpu_kern_sum`](Self::cuda_gpu_kern_sum).
    pub fn cuda_gpu_kern_gb_sum(self) -> Report<CudaGpuKernGbSum> {
        let mut texts = OperationTexts::new(self);
        let mut groups = Groups::new();
        for operation in &self.store().operations {
            if let Some(details) = kernel_details(self.store(), operation) {
                let key = || (texts.of(operation), details.grid, details.block);
                groups.add_time(operation.time(), key);
            }
        }
        let left_out = groups.left_out;
        let row = |group: Group<(u32, [u32; 3], [u32; 3])>| CudaGpuKernGbSum {
            time_percent: group.percent,
            instances: group.count,
            time: group.summary,
            grid: group.key.1,
            block: group.key.2,
            name: texts.get(group.key.0),
        };
        let mut rows: Vec<CudaGpuKernGbSum> = groups.finish().into_iter().map(row).collect();
        rows.sort_by_cached_key(|row| {
            (Reverse(row.time.total_ns), row.instances, row.name.clone(), row.grid, row.block)
        });
        Report::new(rows, NO_KERNELS).leaving_out(left_out)
    }
}
