//! Copies by kind, and memsets: by time and by size.

use std::sync::Arc;

use serde::Serialize;

use super::sums::{Groups, SizeSummary, Summary, percent};
use super::table::{Cells, Columns, Row, Unit, column};
use super::texts::OperationTexts;
use super::{Report, Reports};
use crate::join::tables::What;

const NO_COPIES: &str = "no copy or memset was recorded";

/// Copies of one kind, or memsets: a row of `cuda_gpu_mem_time_sum`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CudaGpuMemTimeSum {
    /// Percent of the time of all copies and memsets.
    pub time_percent: f64,
    /// How many there were.
    pub count: u64,
    /// How long they took on the GPU.
    #[serde(flatten)]
    pub time: Summary,
    /// `[CUDA memcpy Host-to-Device]`, `[CUDA memset]`.
    pub operation: Arc<str>,
}

impl Row for CudaGpuMemTimeSum {
    const NAME: &'static str = "cuda_gpu_mem_time_sum";
    const COLUMNS: Columns = Columns(&[
        column("Time", Unit::Percent),
        column("Total Time", Unit::Duration),
        column("Count", Unit::Plain),
        column("Avg", Unit::Duration),
        column("Med", Unit::Duration),
        column("Min", Unit::Duration),
        column("Max", Unit::Duration),
        column("StdDev", Unit::Duration),
        column("Operation", Unit::Plain),
    ]);

    fn cells(&self, cells: &mut Cells<'_>) {
        cells.add(self.time_percent).add_summary(self.count, &self.time).add(&self.operation);
    }
}

/// Copies of one kind, or memsets: a row of `cuda_gpu_mem_size_sum`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CudaGpuMemSizeSum {
    /// How many there were.
    pub count: u64,
    /// The bytes of each.
    #[serde(flatten)]
    pub size: SizeSummary,
    /// `[CUDA memcpy Host-to-Device]`, `[CUDA memset]`.
    pub operation: Arc<str>,
}

impl Row for CudaGpuMemSizeSum {
    const NAME: &'static str = "cuda_gpu_mem_size_sum";
    const COLUMNS: Columns = Columns(&[
        column("Total", Unit::Bytes),
        column("Count", Unit::Plain),
        column("Avg", Unit::Bytes),
        column("Med", Unit::Bytes),
        column("Min", Unit::Bytes),
        column("Max", Unit::Bytes),
        column("StdDev", Unit::Bytes),
        column("Operation", Unit::Plain),
    ]);

    fn cells(&self, cells: &mut Cells<'_>) {
        let of = &self.size;
        cells.add(of.total_bytes).add(self.count).add(of.avg_bytes).add(of.med_bytes);
        cells.add(of.min_bytes).add(of.max_bytes).add(of.stddev_bytes).add(&self.operation);
    }
}

impl Reports<'_> {
    /// Copies by kind, and memsets, by time. Those that took most come first, then by name.
    pub fn cuda_gpu_mem_time_sum(self) -> Report<CudaGpuMemTimeSum> {
        let mut texts = OperationTexts::new(self);
        let mut groups = Groups::new();
        let mut left_out = 0;
        for operation in self.operations() {
            if matches!(self.store().work(operation).what, What::Kernel { .. }) {
                continue;
            }
            match operation.time() {
                Some(time) => groups.add(texts.of(operation), time.ns()),
                None => left_out += 1,
            }
        }
        let (groups, whole) = groups.finish();
        let mut rows: Vec<CudaGpuMemTimeSum> = groups
            .into_iter()
            .map(|group| CudaGpuMemTimeSum {
                time_percent: percent(group.summary.total_ns, whole),
                count: group.count,
                time: group.summary,
                operation: texts.get(group.key),
            })
            .collect();
        rows.sort_by(|a, b| {
            b.time.total_ns.cmp(&a.time.total_ns).then_with(|| a.operation.cmp(&b.operation))
        });
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
        let (groups, _) = groups.finish();
        let mut rows: Vec<CudaGpuMemSizeSum> = groups
            .into_iter()
            .map(|group| CudaGpuMemSizeSum {
                count: group.count,
                size: group.summary.into(),
                operation: texts.get(group.key),
            })
            .collect();
        rows.sort_by(|a, b| {
            let by_size = b.size.total_bytes.cmp(&a.size.total_bytes);
            by_size.then_with(|| a.operation.cmp(&b.operation))
        });
        Report::new(rows, NO_COPIES)
    }
}
