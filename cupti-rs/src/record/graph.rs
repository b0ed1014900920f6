//! CUDA graphs as a whole, and host functions.

use super::fields::{record, words};
use super::{GraphNode, Place, Span};

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

    /// A launch of a CUDA graph from a device (`DEVICE_GRAPH_TRACE`, from CUPTI 12.8). With
    /// hardware tracing, launcher, mode and stream are meaningless.
    DeviceGraphTrace, raw, f of device_graph_trace {
        /// The time from the start of its first node to the end of its last (`start`, `end`).
        span: Span = f.span(START, END),
        /// CUDA ordinal (`deviceId`).
        device: u32 = f.get(DEVICE_ID),
        /// CUPTI's id of the context (`contextId`).
        context: u32 = f.get(CONTEXT_ID),
        /// CUPTI's id of the stream, of 64 bits in this record (`streamId`).
        stream: u64 = f.get(STREAM_ID),
        /// The executable graph (`graphId`).
        graph: u32 = f.get(GRAPH_ID),
        /// The graph that launched it (`launcherGraphId`).
        launcher: u32 = f.get(LAUNCHER_GRAPH_ID),
        /// The mode (`deviceLaunchMode`).
        mode: DeviceGraphLaunchMode = DeviceGraphLaunchMode(f.get(DEVICE_LAUNCH_MODE)),
    }
}

words! {
    /// The mode of a launch from a device (`CUpti_DeviceGraphLaunchMode`).
    DeviceGraphLaunchMode(u32) {
        INVALID = 0 "invalid",
        FIRE_AND_FORGET = 1 "fire and forget",
        TAIL = 2 "tail",
        FIRE_AND_FORGET_AS_SIBLING = 3 "fire and forget as sibling",
    }
}

record! {
    /// A host function that was a node of a CUDA graph (`GRAPH_HOST_NODE`, from CUPTI 13.1).
    GraphHostNode, raw, f of graph_host_node {
        /// The time in host time (`start`, `end`).
        span: Span = f.span(START, END),
        /// The waiting stream.
        place: Place = f.place(DEVICE_ID, CONTEXT_ID, STREAM_ID),
        /// The id of the graph's launch (`correlationId`).
        correlation_id: u32 = f.get(CORRELATION_ID),
        /// The node (`graphId`, `graphNodeId`).
        graph_node: Option<GraphNode> = f.node(GRAPH_ID, GRAPH_NODE_ID),
        /// The process (`processId`).
        process: u32 = f.get(PROCESS_ID),
        /// The thread (`threadId`).
        thread: u32 = f.get(THREAD_ID),
    }

    /// A host function in stream order (`HOST_LAUNCH`, from CUPTI 13.1).
    HostLaunch, raw, f of host_launch {
        /// The time in host time (`start`, `end`).
        span: Span = f.span(START, END),
        /// The waiting stream.
        place: Place = f.place(DEVICE_ID, CONTEXT_ID, STREAM_ID),
        /// The id of the call (`correlationId`).
        correlation_id: u32 = f.get(CORRELATION_ID),
        /// The process (`processId`).
        process: u32 = f.get(PROCESS_ID),
        /// The thread (`threadId`).
        thread: u32 = f.get(THREAD_ID),
    }
}
