//! Every kernel, copy and memset.

use std::sync::Arc;

use super::table::{Cells, Unit, row};
use super::texts::{Devices, OperationTexts, memory_text};
use super::{Report, Reports};
use crate::join::tables::What;

row! {
    /// One kernel, copy or memset: a row of `cuda_gpu_trace`. What a kernel has is `None` for the others, and the other way.
    CudaGpuTrace = "cuda_gpu_trace" {
        /// When it started on the GPU.
        start_ns: i64 => "Start" Time,
        /// How long it ran.
        duration_ns: u64 => "Duration" Duration,
        /// The id that the call that caused it has too.
        correlation_id: u32 => "CorrId" Plain,
        /// Blocks in x, y, z.
        grid: Option<[u32; 3]> => |row, cells| add_size(cells, ["GrdX", "GrdY", "GrdZ"], row.grid),
        /// Threads of a block in x, y, z.
        block: Option<[u32; 3]> => |row, cells| add_size(cells, ["BlkX", "BlkY", "BlkZ"], row.block),
        /// Registers of a thread.
        registers_per_thread: Option<u32> => "Reg/Trd" Plain,
        /// Shared memory of a block that the kernel has of itself.
        static_shared_bytes: Option<u64> => "StcSMem" Bytes,
        /// Shared memory of a block that the launch asked for.
        dynamic_shared_bytes: Option<u64> => "DymSMem" Bytes,
        /// Bytes moved or set.
        bytes: Option<u64> => "Bytes" Bytes,
        /// Bytes a second as nsys counts them: by how often the duration goes into a second, whole times alone. `None` of
        /// what took no time.
        throughput_bytes_per_s: Option<u64> => "Throughput" Throughput,
        /// The memory that was read, or set.
        source_memory: Option<&'static str> => "SrcMemKd" Plain,
        /// The memory that was written.
        destination_memory: Option<&'static str> => "DstMemKd" Plain,
        /// `NVIDIA H200 (0)`.
        device: Arc<str> => "Device" Plain,
        /// CUPTI's id of the context; `None` for a move of managed memory that is of none.
        context: Option<u32> => "Ctx" Plain,
        /// The id of the green context, where the source says it.
        green_context: Option<u32> => "GreenCtx" Plain,
        /// CUPTI's id of the stream; `None` as for the context.
        stream: Option<u32> => "Strm" Plain,
        /// The kernel, or the kind of copy.
        name: Arc<str> => "Name" Plain,
    }
}

/// A column for each axis.
fn add_size(cells: &mut Cells<'_>, names: [&'static str; 3], size: Option<[u32; 3]>) {
    for (axis, name) in names.into_iter().enumerate() {
        cells.add(name, Unit::Plain, size.map(|size| size[axis]));
    }
}

fn throughput(bytes: u64, duration_ns: u64) -> Option<u64> {
    Some(bytes.saturating_mul(1_000_000_000_u64.checked_div(duration_ns)?))
}

impl Reports<'_> {
    /// Every kernel, copy and memset by start.
    pub fn cuda_gpu_trace(self) -> Report<CudaGpuTrace> {
        let store = self.store();
        let mut texts = OperationTexts::new(self);
        let mut devices = Devices::new(self);
        let mut rows = Vec::with_capacity(store.operations.len());
        let mut left_out = 0;
        for operation in self.operations() {
            let Some(time) = operation.time() else {
                left_out += 1;
                continue;
            };
            let work = store.work(operation);
            let name = texts.of(operation);
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
                device: devices.get(work.place.device),
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
            row.throughput_bytes_per_s = row.bytes.and_then(|bytes| throughput(bytes, time.ns()));
            rows.push(row);
        }
        let report = Report::new(rows, "no kernel, copy or memset was recorded");
        report.leaving_out(left_out).without_graphs(self.whole_graphs())
    }
}
