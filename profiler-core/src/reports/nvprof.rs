//! The tables of nvprof, which is no more made.

use std::sync::Arc;

use serde::Serialize;

use super::gpu_trace::CudaGpuTrace;
use super::sums::Summary;
use super::table::{Cells, Columns, Row, Unit, column};
use super::{Report, Reports};

macro_rules! sum {
    ($(#[$doc:meta])* $type:ident $name:literal $percent:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[non_exhaustive]
        pub struct $type {
            #[doc = $percent]
            pub time_percent: f64,
            /// How often it was.
            pub calls: u64,
            /// How long it took.
            #[serde(flatten)]
            pub time: Summary,
            /// What it is.
            pub name: Arc<str>,
        }

        impl Row for $type {
            const NAME: &'static str = $name;
            const COLUMNS: Columns = Columns(&[
                column("Time(%)", Unit::Percent),
                column("Time", Unit::Duration),
                column("Calls", Unit::Plain),
                column("Avg", Unit::Duration),
                column("Min", Unit::Duration),
                column("Max", Unit::Duration),
                column("Name", Unit::Plain),
            ]);

            fn cells(&self, cells: &mut Cells<'_>) {
                let of = &self.time;
                cells.add(self.time_percent).add(of.total_ns).add(self.calls).add(of.avg_ns);
                cells.add(of.min_ns).add(of.max_ns).add(&self.name);
            }
        }
    };
}

sum! {
    /// A row of nvprof's "GPU activities".
    NvprofGpuActivities "nvprof_gpu_activities" "Percent of the time of all on the GPU."
}
sum! {
    /// A row of nvprof's "API calls".
    NvprofApiCalls "nvprof_api_calls" "Percent of the time of all calls."
}

/// A row of nvprof's GPU trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct NvprofGpuTrace(pub CudaGpuTrace);

impl Row for NvprofGpuTrace {
    const NAME: &'static str = "nvprof_gpu_trace";
    const COLUMNS: Columns = Columns(&[
        column("Start", Unit::Time),
        column("Duration", Unit::Duration),
        column("Grid Size", Unit::Plain),
        column("Block Size", Unit::Plain),
        column("Regs", Unit::Plain),
        column("SSMem", Unit::Bytes),
        column("DSMem", Unit::Bytes),
        column("Size", Unit::Bytes),
        column("Throughput", Unit::Throughput),
        column("SrcMemType", Unit::Plain),
        column("DstMemType", Unit::Plain),
        column("Device", Unit::Plain),
        column("Context", Unit::Plain),
        column("Stream", Unit::Plain),
        column("Name", Unit::Plain),
    ]);

    fn cells(&self, cells: &mut Cells<'_>) {
        let of = &self.0;
        cells.add(of.start_ns).add(of.duration_ns).add(of.grid).add(of.block);
        cells.add(of.registers_per_thread);
        cells.add(of.static_shared_bytes).add(of.dynamic_shared_bytes);
        cells.add(of.bytes).add(of.throughput_bytes_per_s);
        cells.add(of.source_memory).add(of.destination_memory);
        cells.add(&of.device).add(of.context).add(of.stream).add(&of.name);
    }
}

/// nvprof's word for a kind of copy: `[CUDA memcpy HtoD]`.
fn short_copy(name: &str) -> Option<String> {
    let kind = name.strip_prefix("[CUDA memcpy ")?.strip_suffix(']')?;
    let kind = kind.strip_prefix("Unified ").map(|kind| (kind, "Unified Memory Memcpy "));
    let (kind, lead) =
        kind.unwrap_or((name.strip_prefix("[CUDA memcpy ")?.strip_suffix(']')?, "CUDA memcpy "));
    let (from, to) = kind.split_once("-to-")?;
    let letter = |place: &str| place.chars().next();
    Some(format!("[{lead}{}to{}]", letter(from)?, letter(to)?))
}

fn short(name: Arc<str>) -> Arc<str> {
    short_copy(&name).map_or(name, Into::into)
}

impl Reports<'_> {
    /// nvprof's table "GPU activities": kernels, copies and memsets by name. Those that took most come first, then by
    /// name.
    pub fn nvprof_gpu_activities(self) -> Report<NvprofGpuActivities> {
        let of = self.cuda_gpu_sum();
        let (left_out, graphs) = (of.left_out(), of.whole_graphs());
        let rows = of.into_iter().map(|row| NvprofGpuActivities {
            time_percent: row.time_percent,
            calls: row.instances,
            time: row.time,
            name: short(row.operation),
        });
        let report = Report::new(rows.collect(), "no kernel, copy or memset was recorded");
        report.leaving_out(left_out).without_graphs(graphs)
    }

    /// nvprof's table "API calls": calls by function. Those that took most come first, then by name.
    pub fn nvprof_api_calls(self) -> Report<NvprofApiCalls> {
        let of = self.cuda_api_sum();
        let left_out = of.left_out();
        let rows = of.into_iter().map(|row| NvprofApiCalls {
            time_percent: row.time_percent,
            calls: row.num_calls,
            time: row.time,
            name: row.name,
        });
        Report::new(rows.collect(), "no call into CUDA was recorded").leaving_out(left_out)
    }

    /// nvprof's GPU trace: every kernel, copy and memset by start.
    pub fn nvprof_gpu_trace(self) -> Report<NvprofGpuTrace> {
        let of = self.cuda_gpu_trace();
        let (left_out, graphs) = (of.left_out(), of.whole_graphs());
        let rows = of.into_iter().map(|row| {
            let name = short(row.name);
            NvprofGpuTrace(CudaGpuTrace { name, ..row })
        });
        let report = Report::new(rows.collect(), "no kernel, copy or memset was recorded");
        report.leaving_out(left_out).without_graphs(graphs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_have_short_names() {
        let of = |name: &str| short(name.into()).to_string();
        assert_eq!(of("[CUDA memcpy Host-to-Device]"), "[CUDA memcpy HtoD]");
        assert_eq!(of("[CUDA memcpy Unified Device-to-Host]"), "[Unified Memory Memcpy DtoH]");
        assert_eq!((of("[CUDA memset]"), of("gemm")), ("[CUDA memset]".into(), "gemm".into()));
    }
}
