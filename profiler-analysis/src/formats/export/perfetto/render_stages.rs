//! Typed GPU events: `GpuRenderStageEvent` for each operation, with the kernel and its launch.
//!
//! Field numbers are those of `protos/perfetto/trace/gpu` in Perfetto's repository. Its readers
//! support kernels, launches and the references of calls since google/perfetto#5596.

use std::io;

use rustc_hash::FxHashMap;

use super::{Interned, Trace};
use crate::formats::export::protobuf::Message;
use crate::formats::export::timeline::{OperationRow, Place, Span, Timeline};
use profiler_core::tables::What;

/// `InternedGraphicsContext.Api` and `GpuApi`.
const CUDA: u64 = 4;

/// `RenderStageCategory`.
const OTHER: u64 = 0;
const COMPUTE: u64 = 2;

/// The maximum number of a GPU that is listed with the GPUs before it. A damaged file may have any
/// number.
const MOST_GPUS: u32 = 1_024;

/// The stages, numbered from 1; queues follow them.
const STAGES: [(&str, u64); 4] =
    [("kernel", COMPUTE), ("copy", OTHER), ("memset", OTHER), ("graph", OTHER)];

/// Fields of `InternedData`.
const EVENT_NAMES: u64 = 2;
const GRAPHICS_CONTEXTS: u64 = 23;
const SPECIFICATIONS: u64 = 24;
const STRINGS: u64 = 29;
const KERNELS: u64 = 1000;
const ARGUMENTS: u64 = 1001;

/// The interned data of render stages.
#[derive(Default)]
pub(super) struct RenderStages {
    is_begun: bool,
    queues: FxHashMap<Place, u64>,
    /// By process and context.
    contexts: FxHashMap<(u32, u32), u64>,
    kernels: FxHashMap<usize, u64>,
    arguments: Interned,
    event: Message,
}

/// The id of an operation's event, which the call refers to.
pub(super) fn event_id(row: usize) -> u64 {
    row as u64 + 1
}

impl Trace<'_> {
    /// Writes the names of the devices.
    pub(super) fn gpus(&mut self, names: impl Iterator<Item = (u32, String)>) -> io::Result<()> {
        let mut info = Message::default();
        let mut listed = 0;
        for (id, name) in names {
            let mut gpu = Message::default();
            gpu.text(1, &name); // name
            // A GPU's number is its index in the list.
            (listed..id.min(MOST_GPUS)).for_each(|_| info.message(1, &Message::default()));
            info.message(1, &gpu); // gpus
            listed = id.saturating_add(1);
        }
        self.packet.clear();
        self.packet.message(128, &info); // gpu_info
        self.finish_packet()
    }

    /// Adds the submitted operations to the event of a call.
    pub(super) fn submissions(&mut self, operations: &[usize]) {
        let mut correlation = Message::default();
        for &row in operations {
            correlation.number(1, event_id(row)); // render_stage_submission_event_ids
        }
        self.event.message(3000, &correlation); // gpu_correlation
        self.event.number(3001, CUDA); // gpu_api
    }

    /// Writes an operation on the queue of its stream.
    pub(super) fn render_stage(
        &mut self,
        timeline: &Timeline<'_>,
        (row, queue): (usize, &str),
        span: Span,
    ) -> io::Result<()> {
        let operation = &timeline.operations[row];
        let mut event = std::mem::take(&mut self.stages.event);
        event.clear();
        event.number(1, event_id(row)); // event_id
        event.number(2, span.ns()); // duration
        event.number(11, operation.place.device.into()); // gpu_id
        event.number(5, self.context(timeline, operation.place)); // context
        event.number(13, self.queue(operation.place, queue)); // hw_queue_iid
        let stage = STAGES.iter().position(|(name, _)| *name == operation.category());
        event.number(14, stage.map_or(0, |at| at as u64 + 1)); // stage_iid
        let name = self.names.id(timeline.name(operation), EVENT_NAMES, &mut self.interned);
        event.number(20, name); // name_iid
        if let (What::Kernel { details, .. }, Some(name)) = (operation.what(), operation.kernel_name) {
            event.number(19, self.kernel(timeline, operation, name)); // kernel_iid
            let launch = self.launch(timeline, operation, details);
            event.message(21, &launch); // launch
        }
        if let What::Copy(copy) = operation.what() {
            let mut bytes = Message::default();
            bytes.text(1, "bytes"); // name
            bytes.text(2, &copy.bytes.to_string()); // value
            event.message(6, &bytes); // extra_data
        }
        self.packet.clear();
        self.packet.number(8, span.start); // timestamp
        self.packet.message(53, &event); // gpu_render_stage_event
        self.stages.event = event;
        self.finish_packet()
    }

    fn context(&mut self, timeline: &Timeline<'_>, place: Place) -> u64 {
        let next = self.stages.contexts.len() as u64 + 1;
        let id = *self.stages.contexts.entry((place.process, place.context)).or_insert(next);
        if id == next {
            let mut context = Message::default();
            context.number(1, id); // iid
            context.number(2, timeline.pid(place.process)); // pid
            context.number(3, CUDA); // api
            self.interned.message(GRAPHICS_CONTEXTS, &context);
        }
        id
    }

    fn specification(&mut self, id: u64, name: &str, category: u64) {
        let mut specification = Message::default();
        specification.number(1, id); // iid
        specification.text(2, name); // name
        specification.number(4, category); // category
        self.interned.message(SPECIFICATIONS, &specification);
    }

    fn queue(&mut self, place: Place, name: &str) -> u64 {
        if !std::mem::replace(&mut self.stages.is_begun, true) {
            for (id, (name, category)) in (1..).zip(STAGES) {
                self.specification(id, name, category);
            }
        }
        let next = (STAGES.len() + self.stages.queues.len()) as u64 + 1;
        let id = *self.stages.queues.entry(place).or_insert(next);
        if id == next {
            self.specification(id, name, OTHER);
        }
        id
    }

    fn kernel(&mut self, timeline: &Timeline<'_>, operation: &OperationRow<'_>, at: usize) -> u64 {
        let next = self.stages.kernels.len() as u64 + 1;
        let id = *self.stages.kernels.entry(at).or_insert(next);
        if id == next
            && let Some(kernel) = operation.operation.as_kernel()
        {
            let mut interned = Message::default();
            interned.number(1, id); // iid
            let name = timeline.name(operation);
            if kernel.name() != name {
                interned.text(2, kernel.name()); // name
            }
            interned.text(3, name); // demangled_name
            self.interned.message(KERNELS, &interned);
        }
        id
    }

    /// Writes grid, block, and the values of Perfetto's launch statistics.
    fn launch(
        &mut self,
        timeline: &Timeline<'_>,
        operation: &OperationRow<'_>,
        details: &cupti::Kernel,
    ) -> Message {
        let mut launch = Message::default();
        for (field, sizes) in [(1, details.grid), (2, details.block)] {
            let mut dimensions = Message::default();
            (1..).zip(sizes).for_each(|(axis, size)| dimensions.number(axis, size.into()));
            launch.message(field, &dimensions); // grid_size, workgroup_size
        }
        let numbers = [
            ("registers_per_thread", u64::from(details.registers_per_thread)),
            ("shared_mem_static", details.static_shared_bytes.into()),
            ("shared_mem_dynamic", details.dynamic_shared_bytes.into()),
            ("correlation", operation.operation.correlation_id().into()),
        ];
        for (name, value) in numbers {
            let mut argument = self.argument(name);
            argument.number(4, value); // uint_value
            launch.message(3, &argument); // args
        }
        if let Some(range) = operation.range {
            let mut argument = self.argument("range");
            let path = self.texts.id(timeline.path(range), STRINGS, &mut self.interned);
            argument.number(7, path); // string_value_iid
            launch.message(3, &argument);
        }
        launch
    }

    fn argument(&mut self, name: &str) -> Message {
        let mut argument = Message::default();
        let name = self.stages.arguments.id(name, ARGUMENTS, &mut self.interned);
        argument.number(1, name); // name_iid
        argument
    }
}
