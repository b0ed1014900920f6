//! Waits, and recorded events.

use std::fmt;

use super::fields::record;
use super::{GraphNode, Span};

/// `CUPTI_SYNCHRONIZATION_INVALID_VALUE`: no stream, no event.
pub(crate) const NO_ID: u32 = u32::MAX;

/// The type of a wait (`CUpti_ActivitySynchronizationType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SynchronizationKind {
    /// The host waited for an event.
    Event,
    /// A stream waits for an event; the host does not.
    StreamWaitEvent,
    /// The host waited for a stream. Also recorded for stream queries.
    Stream,
    /// The host waited for a context.
    Context,
    /// A value unknown to this version of the crate.
    Unknown(u32),
}

impl Default for SynchronizationKind {
    fn default() -> Self {
        Self::Unknown(0)
    }
}

impl SynchronizationKind {
    /// Converts CUPTI's value.
    #[must_use]
    pub fn from_raw(value: u32) -> Self {
        match value {
            1 => Self::Event,
            2 => Self::StreamWaitEvent,
            3 => Self::Stream,
            4 => Self::Context,
            other => Self::Unknown(other),
        }
    }
}

impl fmt::Display for SynchronizationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Event => "event",
            Self::StreamWaitEvent => "stream waits for event",
            Self::Stream => "stream",
            Self::Context => "context",
            Self::Unknown(_) => "unknown",
        })
    }
}

record! {
    /// A wait (`SYNCHRONIZATION`), in host time. The call with its correlation id has the thread.
    /// By default such records are made from calls and lack the event
    /// ([`Config::synchronizations_from_calls`](crate::Config::synchronizations_from_calls)).
    #[derive(Default)]
    Synchronization, raw, f of synchronization {
        /// The type (`type`).
        kind: SynchronizationKind = SynchronizationKind::from_raw(f.get(TYPE)),
        /// From the call's start to its end (`start`, `end`).
        span: Span = f.span(START, END),
        /// CUPTI's id of the context (`contextId`).
        context: u32 = f.get(CONTEXT_ID),
        /// CUPTI's id of the stream, if any (`streamId`).
        stream: Option<u32> = f.id(STREAM_ID, NO_ID),
        /// CUPTI's id of the event, if any (`cudaEventId`).
        event: Option<u32> = f.id(CUDA_EVENT_ID, NO_ID),
        /// The awaited recording of the event (`cudaEventSyncId`): the [`CudaEvent`] with this id.
        /// From CUPTI 12.8.
        event_sync_id: Option<u64> = f.newer(CUDA_EVENT_SYNC_ID),
        /// The call's `CUresult` (`returnValue`). From CUPTI 12.8.
        result: Option<u32> = f.newer(RETURN_VALUE),
        /// The id of the call (`correlationId`).
        correlation_id: u32 = f.get(CORRELATION_ID),
    }

    /// An event was recorded (`CUDA_EVENT`).
    CudaEvent, raw, f of cuda_event {
        /// CUPTI's id of the event (`eventId`).
        event: u32 = f.get(EVENT_ID),
        /// CUPTI's id of the context (`contextId`).
        context: u32 = f.get(CONTEXT_ID),
        /// CUPTI's id of the stream (`streamId`).
        stream: u32 = f.get(STREAM_ID),
        /// The id of the call (`correlationId`).
        correlation_id: u32 = f.get(CORRELATION_ID),
        /// CUDA ordinal (`deviceId`). From CUPTI 12.8.
        device: Option<u32> = f.newer(DEVICE_ID),
        /// The device time in nanoseconds (`deviceTimestamp`); 0 unless requested. From CUPTI 12.8.
        device_timestamp_ns: Option<u64> = f.newer(DEVICE_TIMESTAMP),
        /// The id of this recording, distinct from the event's id (`cudaEventSyncId`). From CUPTI
        /// 12.8.
        event_sync_id: Option<u64> = f.newer(CUDA_EVENT_SYNC_ID),
        /// The node that recorded it, if a graph did (`graphId`, `graphNodeId`). From CUPTI 13.5.
        graph_node: Option<GraphNode> = f.newer_node(GRAPH_ID, GRAPH_NODE_ID),
        /// The node from which that node was made or last updated (`sourceGraphId`,
        /// `sourceGraphNodeId`). From CUPTI 13.5.
        source_graph_node: Option<GraphNode> = f.newer_node(SOURCE_GRAPH_ID, SOURCE_GRAPH_NODE_ID),
    }
}
