//! The tables of nvprof, which is no more made.

use std::sync::Arc;

use serde::Serialize;

use super::gpu_trace::CudaGpuTrace;
use super::sums::Summary;
use super::table::{Cells, Row, Unit, row};
use super::{Report, Reports};

/// Adds what nvprof has of a sum.
fn add_sum(cells: &mut Cells<'_>, calls: u64, of: &Summary) {
    cells.add("Time", Unit::Duration, of.total_ns).add("Calls", Unit::Plain, calls);
    cells.add("Avg", Unit::Duration, of.avg_ns).add("Min", Unit::Duration, of.min_ns);
    cells.add("Max", Unit::Duration, of.max_ns);
}

row! {
    /// A row of nvprof's "GPU activities".
    NvprofGpuActivities = "nvprof_gpu_activities" {
        /// Percent of the time of all on the GPU.
        time_percent: f64 => "Time(%)" Percent,
        /// How often it was.
        calls: u64,
        /// How long it took.
        #[serde(flatten)]
        time: Summary => |row, cells| add_sum(cells, row.calls, &row.time),
        /// What it is.
        name: Arc<str> => "Name" Plain,
    }
}

row! {
    /// A row of nvprof's "API calls".
    NvprofApiCalls = "nvprof_api_calls" {
        /// Percent of the time of all calls.
        time_percent: f64 => "Time(%)" Percent,
        /// How often it was.
        calls: u64,
        /// How long it took.
        #[serde(flatten)]
        time: Summary => |row, cells| add_sum(cells, row.calls, &row.time),
        /// What it is.
        name: Arc<str> => "Name" Plain,
    }
}

/// A row of nvprof's GPU trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct NvprofGpuTrace(pub CudaGpuTrace);

impl Row for NvprofGpuTrace {
    const NAME: &'static str = "nvprof_gpu_trace";

    fn cells(&self, cells: &mut Cells<'_>) {
        let of = &self.0;
        cells.add("Start", Unit::Time, of.start_ns);
        cells.add("Duration", Unit::Duration, of.duration_ns);
        cells.add("Grid Size", Unit::Plain, of.grid).add("Block Size", Unit::Plain, of.block);
        cells.add("Regs", Unit::Plain, of.registers_per_thread);
        cells.add("SSMem", Unit::Bytes, of.static_shared_bytes);
        cells.add("DSMem", Unit::Bytes, of.dynamic_shared_bytes);
        cells.add("Size", Unit::Bytes, of.bytes);
        cells.add("Throughput", Unit::Throughput, of.throughput_bytes_per_s);
        cells.add("SrcMemType", Unit::Plain, of.source_memory);
        cells.add("DstMemType", Unit::Plain, of.destination_memory);
        cells.add("Device", Unit::Plain, &of.device).add("Context", Unit::Plain, of.context);
        cells.add("Stream", Unit::Plain, of.stream).add("Name", Unit::Plain, &of.name);
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
