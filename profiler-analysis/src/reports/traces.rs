//! Every call into CUDA, and every kernel, copy and memset.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::table::{Cells, Rate, Unit, computed_row, row};
use super::texts::{OperationTexts, functions, memory_text};
use super::{Report, Reports};
use profiler_core::tables::{Call, What};

computed_row! {
    /// One call: a row of `cuda_api_trace`.
    CudaApiTrace = "cuda_api_trace" from (reports: Reports<'_>, call: &Call, name: Arc<str>, thread_name: Option<Arc<str>>) {
        /// The start of the call.
        start_ns: i64 = reports.at(call.time.start_ns) => "Start" Time,
        /// The duration on the host; `None` if the call had not returned.
        duration_ns: Option<u64> = reports.store().call_kind(call).has_returned.then(|| call.time.ns()) => "Duration" Duration,
        /// The function.
        name: Arc<str> = name => "Name" Plain,
        /// The returned `CUresult` or `cudaError_t`.
        result: u32 = reports.store().call_kind(call).result => "Result" Plain,
        /// The correlation id, which the submitted GPU work shares.
        correlation_id: u32 = call.correlation_id => "CorrID" Plain,
        /// The operating system's id of the process.
        pid: u32 = reports.pid(reports.thread(call.thread).process) => "Pid" Plain,
        /// The operating system's id of the thread.
        tid: u32 = reports.thread(call.thread).id => "Tid" Plain,
        /// The thread's priority, if the source has it.
        thread_priority: Option<i64> = reports.thread(call.thread).priority => "T-Pri" Plain,
        /// The thread's name, if it has one.
        thread_name: Option<Arc<str>> = thread_name => "Thread Name" Plain,
    }
}

row! {
    /// One kernel, copy or memset: a row of `cuda_gpu_trace`. Fields of the other kinds are `None`.
    pub(crate) CudaGpuTrace = "cuda_gpu_trace" {
        /// The start on the GPU.
        start_ns: i64 => "Start" Time,
        /// The duration on the GPU.
        duration_ns: u64 => "Duration" Duration,
        /// The correlation id, which the submitting call shares.
        correlation_id: u32 => "CorrId" Plain,
        /// Blocks in x, y, z.
        grid: Option<[u32; 3]> => |row, cells| add_size(cells, ["GrdX", "GrdY", "GrdZ"], row.grid),
        /// Threads of a block in x, y, z.
        block: Option<[u32; 3]> => |row, cells| add_size(cells, ["BlkX", "BlkY", "BlkZ"], row.block),
        /// Registers of a thread.
        registers_per_thread: Option<u32> => "Reg/Trd" Plain,
        /// Static shared memory of a block.
        static_shared_bytes: Option<u64> => "StcSMem" Bytes,
        /// Dynamic shared memory of a block.
        dynamic_shared_bytes: Option<u64> => "DymSMem" Bytes,
        /// Bytes moved or set.
        bytes: Option<u64> => "Bytes" Bytes,
        /// Bytes per second, rounded; `None` for a duration of 0. The CSV and JSON of nsys have the
        /// bytes times the whole number of durations in a second. That is 0 for a duration above a
        /// second.
        throughput_bytes_per_s: Option<u64> => |row, cells| {
            let rate = row.bytes.and_then(|bytes| Rate::new(bytes, row.duration_ns));
            cells.add("Throughput", Unit::Throughput, rate)
        },
        /// The memory that was read, or set.
        source_memory: Option<&'static str> => "SrcMemKd" Plain,
        /// The memory that was written.
        destination_memory: Option<&'static str> => "DstMemKd" Plain,
        /// `NVIDIA H200 (0)`.
        device: Arc<str> => "Device" Plain,
        /// CUPTI's id of the context; `None` for migrations of managed memory without a context.
        context: Option<u32> => "Ctx" Plain,
        /// The id of the green context, if the source has it.
        green_context: Option<u32> => "GreenCtx" Plain,
        /// CUPTI's id of the stream; `None` under the same condition as the context.
        stream: Option<u32> => "Strm" Plain,
        /// The kernel, or the kind of copy.
        name: Arc<str> => "Name" Plain,
    }
}

/// Adds a column for each axis.
fn add_size(cells: &mut Cells<'_>, names: [&'static str; 3], size: Option<[u32; 3]>) {
    for (axis, name) in names.into_iter().enumerate() {
        cells.add(name, Unit::Plain, size.map(|size| size[axis]));
    }
}

impl Reports<'_> {
    /// Returns every call by start; calls of a thread with one start in the order of the calls.
    pub(crate) fn cuda_api_trace(self) -> Report<CudaApiTrace> {
        let store = self.store();
        let functions = functions(self);
        let thread_names: Vec<Option<Arc<str>>> =
            store.threads.iter().map(|thread| thread.name.as_deref().map(Into::into)).collect();
        let mut rows: Vec<CudaApiTrace> = self
            .calls()
            .map(|call| {
                let name = functions[call.kind.at()].clone();
                CudaApiTrace::new(self, call, name, thread_names[call.thread.at()].clone())
            })
            .collect();
        rows.sort_by_key(|row| row.start_ns);
        Report::new(rows, "no call into CUDA was recorded")
    }

    /// Returns every kernel, copy and memset by start.
    pub(crate) fn cuda_gpu_trace(self) -> Report<CudaGpuTrace> {
        let store = self.store();
        let mut texts = OperationTexts::new(self);
        // nsys's form of device names: `NVIDIA H200 (0)`.
        let known = self.profile.recording_info().devices.iter();
        let text = |name: &str, id: u32| -> Arc<str> { format!("{name} ({id})").into() };
        let mut devices: FxHashMap<u32, Arc<str>> =
            known.map(|device| (device.id, text(&device.name, device.id))).collect();
        let mut rows = Vec::with_capacity(store.operations.len());
        let mut left_out = 0;
        for operation in self.operations() {
            let Some(time) = operation.time() else {
                left_out += 1;
                continue;
            };
            let work = store.work(operation);
            let name = texts.index(operation);
            // Contexts are numbered from 1.
            let is_placed = !(work.is_migration() && work.place.context == 0);
            let mut row = CudaGpuTrace {
                start_ns: self.at(time.start_ns),
                duration_ns: time.ns(),
                correlation_id: operation.correlation_id,
                grid: None,
                block: None,
                registers_per_thread: None,
                static_shared_bytes: None,
                dynamic_shared_bytes: None,
                bytes: None,
                throughput_bytes_per_s: None,
                source_memory: None,
                destination_memory: None,
                device: devices
                    .entry(work.place.device)
                    .or_insert_with_key(|id| text("", *id))
                    .clone(),
                context: is_placed.then_some(work.place.context),
                green_context: work.green_context.filter(|id| *id != 0),
                stream: is_placed.then_some(work.place.stream),
                name: texts.get(name),
            };
            match &work.what {
                What::Kernel { details, .. } => {
                    (row.grid, row.block) = (Some(details.grid), Some(details.block));
                    row.registers_per_thread = Some(details.registers_per_thread.into());
                    row.static_shared_bytes = Some(details.static_shared_bytes.into());
                    row.dynamic_shared_bytes = Some(details.dynamic_shared_bytes.into());
                }
                What::Copy(copy) => {
                    row.bytes = Some(copy.bytes);
                    row.source_memory = Some(memory_text(copy.source));
                    row.destination_memory = Some(memory_text(copy.destination));
                }
                What::Memset(memset) => {
                    row.bytes = Some(memset.bytes);
                    row.source_memory = Some(memory_text(memset.memory));
                }
                What::Graph(_) => {}
            }
            let rate = row.bytes.and_then(|bytes| Rate::new(bytes, time.ns()));
            row.throughput_bytes_per_s = rate.map(Rate::bytes_per_s);
            rows.push(row);
        }
        let report = Report::new(rows, "no kernel, copy or memset was recorded");
        report.leaving_out(left_out).without_graphs(self.whole_graphs())
    }
}
