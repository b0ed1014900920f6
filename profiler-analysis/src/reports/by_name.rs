//! Calls, kernels, copies and memsets grouped by name.

use std::hash::Hash;
use std::sync::Arc;

use profiler_base::kernel_names::versionless;
use profiler_base::named_variants;
use serde::Serialize;

use super::groups::{Groups, sum_row};
use super::sums::SizeSummary;
use super::table::{Cell, Cells, Unit, Value, row};
use super::texts::{OperationTexts, functions};
use super::{Report, Reports};
use profiler_core::tables::What;

const NO_KERNELS: &str = "no kernel was recorded";
const NO_COPIES: &str = "no copy or memset was recorded";

named_variants! {
    /// The kind of a row.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
    pub(crate) enum OperationCategory with text {
        /// A function of CUDA.
        CudaApi = "CUDA_API",
        /// A kernel.
        CudaKernel = "CUDA_KERNEL",
        /// A copy or a memset.
        MemoryOper = "MEMORY_OPER",
    }
}

impl OperationCategory {
    /// `None` for graphs traced as one interval.
    fn from_kind(what: &What) -> Option<Self> {
        match what {
            What::Kernel { .. } => Some(Self::CudaKernel),
            What::Copy(_) | What::Memset(_) => Some(Self::MemoryOper),
            What::Graph(_) => None,
        }
    }
}

impl Cell for OperationCategory {
    fn value(&self) -> Value<'_> {
        Value::Text(self.text())
    }
}

sum_row! {
    /// All calls of one function: a row of `cuda_api_sum`.
    CudaApiSum = "cuda_api_sum", num_calls "Num Calls" of "calls" {
        /// The function.
        name: Arc<str> => "Name" Plain,
    }
}

sum_row! {
    /// All kernels of one name: a row of `cuda_gpu_kern_sum`.
    CudaGpuKernSum = "cuda_gpu_kern_sum", instances "Instances" of "kernels" {
        /// The kernel.
        name: Arc<str> => "Name" Plain,
    }
}

sum_row! {
    /// All kernels of one name, grid and block: a row of `cuda_gpu_kern_gb_sum`.
    CudaGpuKernGbSum = "cuda_gpu_kern_gb_sum", instances "Instances" of "kernels" {
        /// Blocks in x, y, z.
        grid: [u32; 3] => "GridXYZ" Plain,
        /// Threads of a block in x, y, z.
        block: [u32; 3] => "BlockXYZ" Plain,
        /// The kernel.
        name: Arc<str> => "Name" Plain,
    }
}

sum_row! {
    /// Copies of one kind, or memsets: a row of `cuda_gpu_mem_time_sum`.
    CudaGpuMemTimeSum = "cuda_gpu_mem_time_sum", count "Count" of "copies and memsets" {
        /// `[CUDA memcpy Host-to-Device]`, `[CUDA memset]`.
        operation: Arc<str> => "Operation" Plain,
    }
}

row! {
    /// Copies of one kind, or memsets: a row of `cuda_gpu_mem_size_sum`.
    pub(crate) CudaGpuMemSizeSum = "cuda_gpu_mem_size_sum" {
        /// The number of copies or memsets.
        count: u64,
        /// Statistics of the bytes.
        #[serde(flatten)]
        size: SizeSummary => |row, cells| add_sizes(cells, row.count, &row.size),
        /// `[CUDA memcpy Host-to-Device]`, `[CUDA memset]`.
        operation: Arc<str> => "Operation" Plain,
    }
}

sum_row! {
    /// Kernels of one name, or copies of one kind: a row of `cuda_gpu_sum`.
    CudaGpuSum = "cuda_gpu_sum", instances "Instances" of "GPU operations" {
        /// The kind of the operations.
        category: OperationCategory => "Category" Plain,
        /// The kernel, or the kind of copy.
        operation: Arc<str> => "Operation" Plain,
    }
}

sum_row! {
    /// Calls, kernels or copies of one name: a row of `cuda_api_gpu_sum`.
    CudaApiGpuSum = "cuda_api_gpu_sum", instances "Instances" of "calls and GPU operations" {
        /// The kind of the row.
        category: OperationCategory => "Category" Plain,
        /// The kernel, the kind of copy, or the function.
        operation: Arc<str> => "Operation" Plain,
    }
}

fn add_sizes(cells: &mut Cells<'_>, count: u64, sizes: &SizeSummary) {
    cells.add("Total", Unit::Bytes, sizes.total_bytes).add("Count", Unit::Plain, count);
    cells.add("Avg", Unit::Bytes, sizes.avg_bytes).add("Med", Unit::Bytes, sizes.med_bytes);
    cells.add("Min", Unit::Bytes, sizes.min_bytes).add("Max", Unit::Bytes, sizes.max_bytes);
    cells.add("StdDev", Unit::Bytes, sizes.stddev_bytes);
}

impl<'a> Reports<'a> {
    /// Groups the durations of operations with a key by the key and their text.
    fn grouped<K: Copy + Eq + Hash>(
        self,
        key: impl Fn(&What) -> Option<K>,
    ) -> (Groups<(K, u32)>, OperationTexts<'a>) {
        let mut texts = OperationTexts::new(self);
        let mut groups = Groups::new();
        for operation in self.operations() {
            if let Some(key) = key(&self.store().work(operation).what) {
                groups.add_time(operation.time(), || (key, texts.index(operation)));
            }
        }
        (groups, texts)
    }

    /// Returns calls by function, sorted by total (longest first), then by name.
    pub(crate) fn cuda_api_sum(self) -> Report<CudaApiSum> {
        let store = self.store();
        let mut groups = Groups::new();
        for call in self.calls() {
            let kind = store.call_kind(call);
            groups.add_time(kind.has_returned.then_some(call.time), || kind.name);
        }
        groups.report("no call into CUDA was recorded", |group| {
            let name: Arc<str> = versionless(store.names.get(group.key)).into();
            (name.clone(), CudaApiSum::new(group, name))
        })
    }

    /// Returns kernels by name, sorted by total (longest first), then by instances (fewest first),
    /// then by name.
    pub(crate) fn cuda_gpu_kern_sum(self) -> Report<CudaGpuKernSum> {
        let (groups, texts) =
            self.grouped(|what| matches!(what, What::Kernel { .. }).then_some(()));
        groups.report(NO_KERNELS, |group| {
            let name = texts.get(group.key.1);
            ((group.count, name.clone()), CudaGpuKernSum::new(group, name))
        })
    }

    /// Returns kernels by name, grid and block, in the order of
    /// [`cuda_gpu_kern_sum`](Self::cuda_gpu_kern_sum).
    pub(crate) fn cuda_gpu_kern_gb_sum(self) -> Report<CudaGpuKernGbSum> {
        let (groups, texts) = self.grouped(|what| match what {
            What::Kernel { details, .. } => Some((details.grid, details.block)),
            _ => None,
        });
        groups.report(NO_KERNELS, |group| {
            let ((grid, block), name) = (group.key.0, texts.get(group.key.1));
            let order = (group.count, name.clone(), grid, block);
            (order, CudaGpuKernGbSum::new(group, grid, block, name))
        })
    }

    /// Returns copies by kind, and memsets, by time; sorted by total (longest first), then by name.
    pub(crate) fn cuda_gpu_mem_time_sum(self) -> Report<CudaGpuMemTimeSum> {
        let (groups, texts) =
            self.grouped(|what| matches!(what, What::Copy(_) | What::Memset(_)).then_some(()));
        groups.report(NO_COPIES, |group| {
            let operation = texts.get(group.key.1);
            (operation.clone(), CudaGpuMemTimeSum::new(group, operation))
        })
    }

    /// Returns copies by kind, and memsets, by bytes; sorted by total (largest first), then by
    /// name.
    pub(crate) fn cuda_gpu_mem_size_sum(self) -> Report<CudaGpuMemSizeSum> {
        let mut texts = OperationTexts::new(self);
        let mut groups = Groups::new();
        for operation in self.operations() {
            let bytes = match &self.store().work(operation).what {
                What::Kernel { .. } | What::Graph(_) => continue,
                What::Copy(copy) => copy.bytes,
                What::Memset(memset) => memset.bytes,
            };
            groups.add(texts.index(operation), bytes);
        }
        groups.report(NO_COPIES, |group| {
            let operation = texts.get(group.key);
            let (count, size) = (group.count, group.summary.into());
            (operation.clone(), CudaGpuMemSizeSum { count, size, operation })
        })
    }

    /// Returns kernels, copies and memsets by name, sorted by total (longest first), then by name.
    pub(crate) fn cuda_gpu_sum(self) -> Report<CudaGpuSum> {
        let (groups, texts) = self.grouped(OperationCategory::from_kind);
        let report = groups.report("no kernel, copy or memset was recorded", |group| {
            let (category, operation) = (group.key.0, texts.get(group.key.1));
            ((operation.clone(), category), CudaGpuSum::new(group, category, operation))
        });
        report.without_graphs(self.whole_graphs())
    }

    /// Returns calls, kernels, copies and memsets by name, sorted by total (longest first), then by
    /// name.
    pub(crate) fn cuda_api_gpu_sum(self) -> Report<CudaApiGpuSum> {
        let (mut groups, mut texts) = self.grouped(OperationCategory::from_kind);
        let functions: Vec<u32> =
            functions(self).iter().map(|name| texts.texts.text(name)).collect();
        for call in self.calls() {
            let has_returned = self.store().call_kind(call).has_returned;
            let key = || (OperationCategory::CudaApi, functions[call.kind.at()]);
            groups.add_time(has_returned.then_some(call.time), key);
        }
        let report = groups.report("no call, kernel, copy or memset was recorded", |group| {
            let (category, operation) = (group.key.0, texts.get(group.key.1));
            ((operation.clone(), category), CudaApiGpuSum::new(group, category, operation))
        });
        report.without_graphs(self.whole_graphs())
    }
}
