//! Kernels, copies and memsets by name in one table, with calls and without.

use std::cmp::Ordering;
use std::sync::Arc;

use serde::Serialize;

use super::sums::{Group, Groups, Summary, percent};
use super::table::{Cells, Columns, Row, Unit, column};
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

impl Category {
    fn text(self) -> &'static str {
        match self {
            Self::CudaApi => "CUDA_API",
            Self::CudaKernel => "CUDA_KERNEL",
            Self::MemoryOper => "MEMORY_OPER",
        }
    }
}

macro_rules! row {
    ($(#[$doc:meta])* $type:ident, $name:literal, $of:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[non_exhaustive]
        pub struct $type {
            #[doc = $of]
            pub time_percent: f64,
            /// How often it was.
            pub instances: u64,
            /// How long it took.
            #[serde(flatten)]
            pub time: Summary,
            /// What it is.
            pub category: Category,
            /// The kernel, the kind of copy, or the function.
            pub operation: Arc<str>,
        }

        impl Row for $type {
            const NAME: &'static str = $name;
            const COLUMNS: Columns = Columns(&[
                column("Time", Unit::Percent),
                column("Total Time", Unit::Duration),
                column("Instances", Unit::Plain),
                column("Avg", Unit::Duration),
                column("Med", Unit::Duration),
                column("Min", Unit::Duration),
                column("Max", Unit::Duration),
                column("StdDev", Unit::Duration),
                column("Category", Unit::Plain),
                column("Operation", Unit::Plain),
            ]);

            fn cells(&self, cells: &mut Cells<'_>) {
                cells.add(self.time_percent).add_summary(self.instances, &self.time);
                cells.add(self.category.text()).add(&self.operation);
            }
        }
    };
}

row! {
    /// Kernels of one name, or copies of one kind: a row of `cuda_gpu_sum`.
    CudaGpuSum, "cuda_gpu_sum", "Percent of the time of all on the GPU."
}
row! {
    /// Calls, kernels or copies of one name: a row of `cuda_api_gpu_sum`.
    CudaApiGpuSum, "cuda_api_gpu_sum", "Percent of the time of all, on the GPU and on the host."
}

type Key = (Category, u32);

impl Reports<'_> {
    /// Kernels, copies and memsets by name. Those that took most come first, then by name.
    pub fn cuda_gpu_sum(self) -> Report<CudaGpuSum> {
        let mut texts = OperationTexts::new(self);
        let mut groups = Groups::new();
        let left_out = self.add_operations(&mut texts, &mut groups);
        let (mut groups, whole) = groups.finish();
        groups.sort_by(|a, b| order(&texts, a, b));
        let row = |group: Group<Key>| CudaGpuSum {
            time_percent: percent(group.summary.total_ns, whole),
            instances: group.count,
            time: group.summary,
            category: group.key.0,
            operation: texts.get(group.key.1),
        };
        let rows = groups.into_iter().map(row).collect();
        let report = Report::new(rows, "no kernel, copy or memset was recorded");
        report.leaving_out(left_out).without_graphs(self.whole_graphs())
    }

    /// Calls, kernels, copies and memsets by name. Those that took most come first, then by name.
    pub fn cuda_api_gpu_sum(self) -> Report<CudaApiGpuSum> {
        let mut texts = OperationTexts::new(self);
        let mut groups = Groups::new();
        let functions: Vec<u32> =
            functions(self).iter().map(|name| texts.texts.intern(name)).collect();
        let mut left_out = 0;
        for call in self.calls() {
            if self.store().call_kind(call).has_returned {
                groups.add((Category::CudaApi, functions[call.kind.at()]), call.time.ns());
            } else {
                left_out += 1;
            }
        }
        left_out += self.add_operations(&mut texts, &mut groups);
        let (mut groups, whole) = groups.finish();
        groups.sort_by(|a, b| order(&texts, a, b));
        let row = |group: Group<Key>| CudaApiGpuSum {
            time_percent: percent(group.summary.total_ns, whole),
            instances: group.count,
            time: group.summary,
            category: group.key.0,
            operation: texts.get(group.key.1),
        };
        let rows = groups.into_iter().map(row).collect();
        let report = Report::new(rows, "no call, kernel, copy or memset was recorded");
        report.leaving_out(left_out).without_graphs(self.whole_graphs())
    }

    /// How many have no timestamps.
    fn add_operations(self, texts: &mut OperationTexts<'_>, groups: &mut Groups<Key>) -> u64 {
        let mut left_out = 0;
        for operation in self.operations() {
            let Some(time) = operation.time() else {
                left_out += 1;
                continue;
            };
            let category = match kernel_details(self.store(), operation) {
                Some(_) => Category::CudaKernel,
                None => Category::MemoryOper,
            };
            groups.add((category, texts.of(operation)), time.ns());
        }
        left_out
    }
}

fn order(texts: &OperationTexts<'_>, a: &Group<Key>, b: &Group<Key>) -> Ordering {
    let by_time = b.summary.total_ns.cmp(&a.summary.total_ns);
    by_time.then_with(|| texts.get(a.key.1).cmp(&texts.get(b.key.1))).then(a.key.0.cmp(&b.key.0))
}
