//! Every kernel, copy and memset.

use std::sync::Arc;

use serde::Serialize;

use super::table::{Cells, Columns, Row, Unit, column};
use super::texts::{Devices, OperationTexts, memory_text};
use super::{Report, Reports};
use crate::join::tables::What;

/// One kernel, copy or memset: a row of `cuda_gpu_trace`. What a kernel has is `None` for the others, and the other way.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CudaGpuTrace {
    /// When it started on the GPU.
    pub start_ns: i64,
    /// How long it ran.
    pub duration_ns: u64,
    /// The id that the call that caused it has too.
    pub correlation_id: u32,
    /// Blocks in x, y, z.
    pub grid: Option<[u32; 3]>,
    /// Threads of a block in x, y, z.
    pub block: Option<[u32; 3]>,
    /// Registers of a thread.
    pub registers_per_thread: Option<u32>,
    /// Shared memory of a block that the kernel has of itself.
    pub static_shared_bytes: Option<u64>,
    /// Shared memory of a block that the launch asked for.
    pub dynamic_shared_bytes: Option<u64>,
    /// Bytes moved or set.
    pub bytes: Option<u64>,
    /// Bytes a second as nsys counts them: by how often the duration goes into a second, whole times alone. `None` of
    /// what took no time.
    pub throughput_bytes_per_s: Option<u64>,
    /// The memory that was read, or set.
    pub source_memory: Option<&'static str>,
    /// The memory that was written.
    pub destination_memory: Option<&'static str>,
    /// `NVIDIA H200 (0)`.
    pub device: Arc<str>,
    /// CUPTI's id of the context; `None` for a move of managed memory that is of none.
    pub context: Option<u32>,
    /// The id of the green context, where the source says it.
    pub green_context: Option<u32>,
    /// CUPTI's id of the stream; `None` as for the context.
    pub stream: Option<u32>,
    /// The kernel, or the kind of copy.
    pub name: Arc<str>,
}

impl Row for CudaGpuTrace {
    const NAME: &'static str = "cuda_gpu_trace";
    const COLUMNS: Columns = Columns(&[
        column("Start", Unit::Time),
        column("Duration", Unit::Duration),
        column("CorrId", Unit::Plain),
        column("GrdX", Unit::Plain),
        column("GrdY", Unit::Plain),
        column("GrdZ", Unit::Plain),
        column("BlkX", Unit::Plain),
        column("BlkY", Unit::Plain),
        column("BlkZ", Unit::Plain),
        column("Reg/Trd", Unit::Plain),
        column("StcSMem", Unit::Bytes),
        column("DymSMem", Unit::Bytes),
        column("Bytes", Unit::Bytes),
        column("Throughput", Unit::Throughput),
        column("SrcMemKd", Unit::Plain),
        column("DstMemKd", Unit::Plain),
        column("Device", Unit::Plain),
        column("Ctx", Unit::Plain),
        column("GreenCtx", Unit::Plain),
        column("Strm", Unit::Plain),
        column("Name", Unit::Plain),
    ]);

    fn cells(&self, cells: &mut Cells<'_>) {
        cells.add(self.start_ns).add(self.duration_ns).add(self.correlation_id);
        for size in [self.grid, self.block] {
            for axis in 0..3 {
                cells.add(size.map(|size| size[axis]));
            }
        }
        cells.add(self.registers_per_thread);
        cells.add(self.static_shared_bytes).add(self.dynamic_shared_bytes);
        cells.add(self.bytes).add(self.throughput_bytes_per_s);
        cells.add(self.source_memory).add(self.destination_memory);
        cells.add(&self.device).add(self.context).add(self.green_context).add(self.stream);
        cells.add(&self.name);
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
