//! Kernels by name, and by name, grid and block.

use std::sync::Arc;

use serde::Serialize;

use super::sums::{Groups, Summary, percent};
use super::table::{Cells, Columns, Row, Unit, column};
use super::texts::{OperationTexts, kernel_details};
use super::{Report, Reports};

const NO_KERNELS: &str = "no kernel was recorded";

/// All kernels of one name: a row of `cuda_gpu_kern_sum`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CudaGpuKernSum {
    /// Percent of the time of all kernels.
    pub time_percent: f64,
    /// How often it ran.
    pub instances: u64,
    /// How long it took on the GPU.
    #[serde(flatten)]
    pub time: Summary,
    /// The kernel.
    pub name: Arc<str>,
}

impl Row for CudaGpuKernSum {
    const NAME: &'static str = "cuda_gpu_kern_sum";
    const COLUMNS: Columns = Columns(&[
        column("Time", Unit::Percent),
        column("Total Time", Unit::Duration),
        column("Instances", Unit::Plain),
        column("Avg", Unit::Duration),
        column("Med", Unit::Duration),
        column("Min", Unit::Duration),
        column("Max", Unit::Duration),
        column("StdDev", Unit::Duration),
        column("Name", Unit::Plain),
    ]);

    fn cells(&self, cells: &mut Cells<'_>) {
        cells.add(self.time_percent).add_summary(self.instances, &self.time).add(&self.name);
    }
}

/// All kernels of one name, grid and block: a row of `cuda_gpu_kern_gb_sum`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CudaGpuKernGbSum {
    /// Percent of the time of all kernels.
    pub time_percent: f64,
    /// How often it ran.
    pub instances: u64,
    /// How long it took on the GPU.
    #[serde(flatten)]
    pub time: Summary,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// The kernel.
    pub name: Arc<str>,
}

impl Row for CudaGpuKernGbSum {
    const NAME: &'static str = "cuda_gpu_kern_gb_sum";
    const COLUMNS: Columns = Columns(&[
        column("Time", Unit::Percent),
        column("Total Time", Unit::Duration),
        column("Instances", Unit::Plain),
        column("Avg", Unit::Duration),
        column("Med", Unit::Duration),
        column("Min", Unit::Duration),
        column("Max", Unit::Duration),
        column("StdDev", Unit::Duration),
        column("GridXYZ", Unit::Plain),
        column("BlockXYZ", Unit::Plain),
        column("Name", Unit::Plain),
    ]);

    fn cells(&self, cells: &mut Cells<'_>) {
        cells.add(self.time_percent).add_summary(self.instances, &self.time);
        cells.add(self.grid).add(self.block).add(&self.name);
    }
}

impl Reports<'_> {
    /// Kernels by name. Those that took most come first; of equal ones those that ran less often, then by name.
    pub fn cuda_gpu_kern_sum(self) -> Report<CudaGpuKernSum> {
        let mut texts = OperationTexts::new(self);
        let mut groups = Groups::new();
        let mut left_out = 0;
        for operation in &self.store().operations {
            if kernel_details(self.store(), operation).is_none() {
                continue;
            }
            match operation.time() {
                Some(time) => groups.add(texts.of(operation), time.ns()),
                None => left_out += 1,
            }
        }
        let (groups, whole) = groups.finish();
        let mut rows: Vec<CudaGpuKernSum> = groups
            .into_iter()
            .map(|group| CudaGpuKernSum {
                time_percent: percent(group.summary.total_ns, whole),
                instances: group.count,
                time: group.summary,
                name: texts.get(group.key),
            })
            .collect();
        rows.sort_by(|a, b| {
            let by_time = b.time.total_ns.cmp(&a.time.total_ns);
            by_time.then(a.instances.cmp(&b.instances)).then_with(|| a.name.cmp(&b.name))
        });
        Report::new(rows, NO_KERNELS).leaving_out(left_out)
    }

    /// Kernels by name, grid and block, in the order of [`cuda_gpu_kern_sum`](Self::cuda_gpu_kern_sum).
    pub fn cuda_gpu_kern_gb_sum(self) -> Report<CudaGpuKernGbSum> {
        let mut texts = OperationTexts::new(self);
        let mut groups = Groups::new();
        let mut left_out = 0;
        for operation in &self.store().operations {
            let Some(details) = kernel_details(self.store(), operation) else { continue };
            match operation.time() {
                Some(time) => {
                    groups.add((texts.of(operation), details.grid, details.block), time.ns());
                }
                None => left_out += 1,
            }
        }
        let (groups, whole) = groups.finish();
        let mut rows: Vec<CudaGpuKernGbSum> = groups
            .into_iter()
            .map(|group| CudaGpuKernGbSum {
                time_percent: percent(group.summary.total_ns, whole),
                instances: group.count,
                time: group.summary,
                grid: group.key.1,
                block: group.key.2,
                name: texts.get(group.key.0),
            })
            .collect();
        rows.sort_by(|a, b| {
            let by_time = b.time.total_ns.cmp(&a.time.total_ns);
            let by_count = by_time.then(a.instances.cmp(&b.instances));
            by_count
                .then_with(|| a.name.cmp(&b.name))
                .then_with(|| (a.grid, a.block).cmp(&(b.grid, b.block)))
        });
        Report::new(rows, NO_KERNELS).leaving_out(left_out)
    }
}
