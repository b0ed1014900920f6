//! CUDA graphs as a whole.

use super::fields::record;
use super::{Place, Span};

record! {
    /// A launch of a CUDA graph, as a whole (`GRAPH_TRACE`).
    GraphTrace, raw, f of graph_trace {
        /// The time from the start of its first node to the end of its last (`start`, `end`).
        span: Span = f.span(START, END),
        /// The device and context of the first node, and the stream of the launch. `i32::MAX` is
        /// the host.
        place: Place = f.place(DEVICE_ID, CONTEXT_ID, STREAM_ID),
        /// The executable graph (`graphId`).
        graph: u32 = f.get(GRAPH_ID),
        /// The id of the call (`correlationId`).
        correlation_id: u32 = f.get(CORRELATION_ID),
        /// CUDA ordinal of the device where its last node ran (`endDeviceId`). From CUPTI 12.3.
        end_device: Option<u32> = f.newer(END_DEVICE_ID),
        /// CUPTI's id of the context where its last node ran (`endContextId`). From CUPTI 12.3.
        end_context: Option<u32> = f.newer(END_CONTEXT_ID),
    }
}
