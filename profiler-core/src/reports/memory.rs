//! Copies by kind, and memsets: by time and by size.

use std::cmp::Reverse;
use std::sync::Arc;

use super::sums::{Group, Groups, SizeSummary, Summary};
use super::table::{Cells, Unit, row};
use super::texts::OperationTexts;
use super::{Report, Reports};
use crate::join::tables::What;

const NO_COPIES: &str = "no copy or memset was recorded";

row! {
    /// Copies of one kind, or memsets: a row of `cuda_gpu_mem_time_sum`.
    CudaGpuMemTimeSum = "cuda_gpu_mem_time_sum" {
        /// Percent of the time of all copies and memsets.
        time_percent: f64 => "Time" Percent,
        /// How many there were.
        count: u64,
        /// How long they took on the GPU.
        #[serde(flatten)]
        time: Summary => |row, cells| cells.add_sum("Count", row.count, &row.time),
        /// `[CUDA memcpy Host-to-Device]`, `[CUDA memset]`.
        operation: Arc<str> => "Operation" Plain,
    }
}

row! {
    /// Copies of one kind, or memsets: a row of `cuda_gpu_mem_size_sum`.
    CudaGpuMemSizeSum = "cuda_gpu_mem_size_sum" {
        /// How many there were.
        count: u64,
        /// The bytes of each.
        #[serde(flatten)]
        size: SizeSummary => |row, cells| add_sizes(cells, row.count, &row.size),
        /// `[CUDA memcpy Host-to-Device]`, `[CUDA memset]`.
        operation: Arc<str> => "Operation" Plain,
    }
}

fn add_sizes(cells: &mut Cells<'_>, count: u64, of: &SizeSummary) {
    cells.add("Total", Unit::Bytes, of.total_bytes).add("Count", Unit::Plain, count);
    cells.add("Avg", Unit::Bytes, of.avg_bytes).add("Med", Unit::Bytes, of.med_bytes);
    cells.add("Min", Unit::Bytes, of.min_bytes).add("Max", Unit::Bytes, of.max_bytes);
    cells.add("StdDev", Unit::Bytes, of.stddev_bytes);
}

impl Reports<'_> {
    /// Copies by kind, and memsets, by time. Those that took most come first, then by name.
    pub fn cuda_gpu_mem_time_sum(self) -> Report<CudaGpuMemTimeSum> {
        let mut texts = OperationTexts::new(self);
        let mut groups = Groups::new();
        for operation in self.operations() {
            if !matches!(self.store().work(operation).what, What::Kernel { .. }) {
                groups.add_time(operation.time(), || texts.of(operation));
            }
        }
        let left_out = groups.left_out;
        let row = |group: Group<u32>| CudaGpuMemTimeSum {
            time_percent: group.percent,
            count: group.count,
            time: group.summary,
            operation: texts.get(group.key),
        };
        let mut rows: Vec<CudaGpuMemTimeSum> = groups.finish().into_iter().map(row).collect();
        rows.sort_by_cached_key(|row| (Reverse(row.time.total_ns), row.operation.clone()));
        Report::new(rows, NO_COPIES).leaving_out(left_out)
    }

    /// Copies by kind, and memsets, by bytes. Those that moved most come first, then by name.
    pub fn cuda_gpu_mem_size_sum(self) -> Report<CudaGpuMemSizeSum> {
        let mut texts = OperationTexts::new(self);
        let mut groups = Groups::new();
        for operation in &self.store().operations {
            let bytes = match &self.store().work(operation).what {
                What::Kernel { .. } | What::Graph(_) => continue,
                What::Copy(copy) => copy.bytes,
                What::Memset(memset) => memset.bytes,
            };
            groups.add(texts.of(operation), bytes);
        }
        let row = |group: Group<u32>| CudaGpuMemSizeSum {
            count: group.count,
            size: group.summary.into(),
            operation: texts.get(group.key),
        };
        let mut rows: Vec<CudaGpuMemSizeSum> = groups.finish().into_iter().map(row).collect();
        rows.sort_by_cached_key(|row| (Reverse(row.size.total_bytes), row.operation.clone()));
        Report::new(rows, NO_COPIES)
    }
}
