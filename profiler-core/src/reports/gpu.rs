//! Kernels, copies and memsets by name in one table, with calls and without.

use std::cmp::Reverse;
use std::sync::Arc;

use serde::Serialize;

use super::sums::{Group, Groups, Summary};
use super::table::{Cell, Value, row};
use super::texts::{OperationTexts, functions, kernel_details};
use super::{Report, Reports};

/// What a row is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum Category {
    /// A function of CUDA.
    CudaApi,
    /// A kernel.
    CudaKernel,
    /// A copy or a memset.
    MemoryOper,
}

impl Cell for Category {
    fn value(&self) -> Value<'_> {
        Value::Text(match self {
            Self::CudaApi => "CUDA_API",
            Self::CudaKernel => "CUDA_KERNEL",
            Self::MemoryOper => "MEMORY_OPER",
        })
    }
}

row! {
    /// Kernels of one name, or copies of one kind: a row of `cuda_gpu_sum`.
    CudaGpuSum = "cuda_gpu_sum" {
        /// Percent of the time of all on the GPU.
        time_percent: f64 => "Time" Percent,
        /// How often it was.
        instances: u64,
        /// How long it took.
        #[serde(flatten)]
        time: Summary => |row, cells| cells.add_sum("Instances", row.instances, &row.time),
        /// What it is.
        category: Category => "Category" Plain,
        /// The kernel, or the kind of copy.
        operation: Arc<str> => "Operation" Plain,
    }
}

row! {
    /// Calls, kernels or copies of one name: a row of `cuda_api_gpu_sum`.
    CudaApiGpuSum = "cuda_api_gpu_sum" {
        /// Percent of the time of all, on the GPU and on the host.
        time_percent: f64 => "Time" Percent,
        /// How often it was.
        instances: u64,
        /// How long it took.
        #[serde(flatten)]
        time: Summary => |row, cells| cells.add_sum("Instances", row.instances, &row.time),
        /// What it is.
        category: Category => "Category" Plain,
        /// The kernel, the kind of copy, or the function.
        operation: Arc<str> => "Operation" Plain,
    }
}

type Key = (Category, u32);

impl Reports<'_> {
    /// Kernels, copies and memsets by name. Those that took most come first, then by name.
    pub fn cuda_gpu_sum(self) -> Report<CudaGpuSum> {
        let mut texts = OperationTexts::new(self);
        let mut groups = Groups::new();
        self.add_operations(&mut texts, &mut groups);
        let left_out = groups.left_out;
        let row = |group: Group<Key>| CudaGpuSum {
            time_percent: group.percent,
            instances: group.count,
            time: group.summary,
            category: group.key.0,
            operation: texts.get(group.key.1),
        };
        let rows = ordered(groups, &texts).into_iter().map(row).collect();
        let report = Report::new(rows, "no kernel, copy or memset was recorded");
        report.leaving_out(left_out).without_graphs(self.whole_graphs())
    }

    /// Calls, kernels, copies and memsets by name. Those that took most come first, then by name.
    pub fn cuda_api_gpu_sum(self) -> Report<CudaApiGpuSum> {
        let mut texts = OperationTexts::new(self);
        let mut groups = Groups::new();
        let functions: Vec<u32> =
            functions(self).iter().map(|name| texts.texts.intern(name)).collect();
        for call in self.calls() {
            let has_returned = self.store().call_kind(call).has_returned;
            let key = || (Category::CudaApi, functions[call.kind.at()]);
            groups.add_time(has_returned.then_some(call.time), key);
        }
        self.add_operations(&mut texts, &mut groups);
        let left_out = groups.left_out;
        let row = |group: Group<Key>| CudaApiGpuSum {
            time_percent: group.percent,
            instances: group.count,
            time: group.summary,
            category: group.key.0,
            operation: texts.get(group.key.1),
        };
        let rows = ordered(groups, &texts).into_iter().map(row).collect();
        let report = Report::new(rows, "no call, kernel, copy or memset was recorded");
        report.leaving_out(left_out).without_graphs(self.whole_graphs())
    }

    fn add_operations(self, texts: &mut OperationTexts<'_>, groups: &mut Groups<Key>) {
        for operation in self.operations() {
            let category = match kernel_details(self.store(), operation) {
                Some(_) => Category::CudaKernel,
                None => Category::MemoryOper,
            };
            groups.add_time(operation.time(), || (category, texts.of(operation)));
        }
    }
}

/// The groups that took most first, then by name.
fn ordered(groups: Groups<Key>, texts: &OperationTexts<'_>) -> Vec<Group<Key>> {
    let mut groups = groups.finish();
    groups.sort_by_cached_key(|group| {
        let (category, name) = group.key;
        (Reverse(group.summary.total_ns), texts.get(name), category)
    });
    groups
}
