//! Overheads of CUPTI, the driver and the compiler.

use super::fields::{record, words};
use super::{Channel, DataKey, ObjectId, RecordBytes, Span};

record! {
    /// An overhead of CUPTI or the driver (`OVERHEAD`).
    Overhead, raw, f of overhead {
        /// The kind (`overheadKind`).
        kind: OverheadKind = OverheadKind(f.get(OVERHEAD_KIND)),
        /// The object (`objectKind`, `objectId`).
        object: ObjectId = ObjectId::new(
            f.get(OBJECT_KIND),
            [f.get(OBJECT_ID_DCS_DEVICE_ID), f.get(OBJECT_ID_DCS_CONTEXT_ID), f.get(OBJECT_ID_DCS_STREAM_ID)],
        ),
        /// The time in host time (`start`, `end`).
        span: Span = f.span(START, END),
        /// The id of the call within which it happened (`correlationId`); 0 if none. From CUPTI
        /// 12.3.
        correlation_id: Option<u32> = f.newer(CORRELATION_ID),
        /// Additional data (`overheadData`), if any; [`command_buffer`](Self::command_buffer) reads
        /// it. From CUPTI 12.4.
        data: Option<DataKey> = f.newer(OVERHEAD_DATA).and_then(|data| DataKey::new(data.0)),
    }
}

/// The command buffer that was full (`CUpti_ActivityOverheadCommandBufferFullData`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandBufferFull {
    /// The remaining space (`commandBufferLength`) in an undocumented unit; 0 when full.
    pub left: u32,
    /// The channel of the command buffer (`channelID`, `channelType`).
    pub channel: Option<Channel>,
}

impl Overhead {
    /// The full command buffer, for [`OverheadKind::COMMAND_BUFFER_FULL`].
    pub fn command_buffer(&self, records: &RecordBytes) -> Option<CommandBufferFull> {
        let data = records.data(self.data?)?.as_chunks::<4>().0;
        let &[left, id, kind] = data.first_chunk()?;
        Some(CommandBufferFull {
            left: u32::from_ne_bytes(left),
            channel: Channel::new(u32::from_ne_bytes(id), u32::from_ne_bytes(kind)),
        })
    }
}

words! {
    /// The kind of an overhead (`CUpti_ActivityOverheadKind`).
    OverheadKind(u32) {
        UNKNOWN = 0 "not known",
        DRIVER_COMPILER = 1 "driver compiler",
        BUFFER_FLUSH = 0x1_0000 "CUPTI buffer flush",
        INSTRUMENTATION = 0x2_0000 "CUPTI instrumentation",
        RESOURCE = 0x3_0000 "CUPTI resource",
        MODULE_LOADING = 0x4_0000 "runtime-triggered module loading",
        LAZY_FUNCTION_LOADING = 0x5_0000 "lazy function loading",
        COMMAND_BUFFER_FULL = 0x6_0000 "command buffer full",
        BUFFER_REQUEST = 0x7_0000 "activity buffer request",
        UVM_INITIALISATION = 0x8_0000 "UVM activity initialisation",
    }
}
