//! Copies, memsets and decompression.

use std::fmt;

use super::fields::{Fields, Raw, oldest, record, words};
use super::{Channel, GraphNode, Place, Span};
use crate::kind::ActivityKind;
use crate::sys::field::Value;

words! {
    /// The kind of memory (`CUpti_ActivityMemoryKind`).
    #[derive(Default)]
    MemoryKind(u8) {
        UNKNOWN = 0 "not known",
        PAGEABLE = 1 "pageable",
        PINNED = 2 "pinned",
        DEVICE = 3 "device",
        ARRAY = 4 "array",
        MANAGED = 5 "managed",
        DEVICE_STATIC = 6 "device static",
        MANAGED_STATIC = 7 "managed static",
    }
}

impl MemoryKind {
    /// Converts a wider field; larger values are unknown.
    pub(super) fn from_wide(value: u32) -> Self {
        Self(u8::try_from(value).unwrap_or(u8::MAX))
    }
}

/// The direction of a copy (`CUpti_ActivityMemcpyKind`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CopyKind {
    /// Host to device, arrays included.
    HostToDevice,
    /// Device to host, arrays included.
    DeviceToHost,
    /// Within a device, arrays included.
    DeviceToDevice,
    /// Within the host.
    HostToHost,
    /// From one device to another.
    PeerToPeer,
    /// A value unknown to this version of the crate.
    Unknown(u8),
}

impl Default for CopyKind {
    fn default() -> Self {
        Self::Unknown(0)
    }
}

impl CopyKind {
    /// Converts CUPTI's value.
    #[must_use]
    pub fn from_raw(value: u8) -> Self {
        match value {
            1 | 3 => Self::HostToDevice,
            2 | 4 => Self::DeviceToHost,
            5..=8 => Self::DeviceToDevice,
            9 => Self::HostToHost,
            10 => Self::PeerToPeer,
            other => Self::Unknown(other),
        }
    }
}

impl fmt::Display for CopyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HostToDevice => "host to device",
            Self::DeviceToHost => "device to host",
            Self::DeviceToDevice => "device to device",
            Self::HostToHost => "host to host",
            Self::PeerToPeer => "peer to peer",
            Self::Unknown(_) => "unknown",
        })
    }
}

/// The two ends of a copy between devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Peers {
    /// CUDA ordinal of the device that is read (`srcDeviceId`).
    pub source_device: u32,
    /// CUPTI's id of the context whose memory is read (`srcContextId`).
    pub source_context: u32,
    /// CUDA ordinal of the device that is written (`dstDeviceId`).
    pub destination_device: u32,
    /// CUPTI's id of the context whose memory is written (`dstContextId`).
    pub destination_context: u32,
}

impl Peers {
    /// Builds the two ends from source and destination, each with device and context.
    #[must_use]
    pub const fn new(source: (u32, u32), destination: (u32, u32)) -> Self {
        Self {
            source_device: source.0,
            source_context: source.1,
            destination_device: destination.0,
            destination_context: destination.1,
        }
    }
}

/// `CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC` and `..._MEMSET_ASYNC`.
const FLAG_ASYNC: u16 = 1;

/// A copy (`MEMCPY`, or `MEMCPY2` between devices).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Memcpy {
    /// The direction (`copyKind`).
    pub kind: CopyKind,
    /// The kind of the source memory (`srcKind`).
    pub source: MemoryKind,
    /// The kind of the destination memory (`dstKind`).
    pub destination: MemoryKind,
    /// Bytes moved (`bytes`).
    pub bytes: u64,
    /// True if the call was asynchronous (`flags`).
    pub asynchronous: bool,
    /// The time on the GPU (`start`, `end`).
    pub span: Span,
    /// The device, context and stream.
    pub place: Place,
    /// The two ends, for `MEMCPY2`.
    pub peers: Option<Peers>,
    /// The id of the driver call that submitted it (`correlationId`).
    pub correlation_id: u32,
    /// The id of the runtime call that submitted it (`runtimeCorrelationId`). Not for `MEMCPY2`.
    pub runtime_correlation_id: Option<u32>,
    /// The graph node, if a graph launched it.
    pub graph_node: Option<GraphNode>,
    /// The hardware channel (`channelID`, `channelType`); none if the device launched it.
    pub channel: Option<Channel>,
    /// True if a graph launched from the device ran it (`isDeviceLaunched`). From CUPTI 13.0, not
    /// for `MEMCPY2`.
    pub device_launched: Option<bool>,
    /// The number of copies in the batch of this record (`copyCount`). From CUPTI 12.8, not for
    /// `MEMCPY2`.
    pub copies: Option<u64>,
    /// The node from which its graph's node was made or last updated (`sourceGraphId`,
    /// `sourceGraphNodeId`). From CUPTI 13.4, not for `MEMCPY2`.
    pub source_graph_node: Option<GraphNode>,
}

/// Reads a copy of either layout: the common fields at different offsets, and the fields that
/// differ.
macro_rules! copy {
    ($raw:ident, $f:ident of $family:ident { $($field:ident: $value:expr,)+ }) => {{
        use crate::sys::generated::$family::*;
        let $f = Fields::<Layout, { oldest(STRIDES) }>::from_raw($raw)?;
        Some(Memcpy {
            kind: CopyKind::from_raw($f.get(COPY_KIND)),
            source: MemoryKind($f.get(SRC_KIND)),
            destination: MemoryKind($f.get(DST_KIND)),
            bytes: $f.get(BYTES),
            asynchronous: u16::from($f.get(FLAGS)) & FLAG_ASYNC != 0,
            span: $f.span(START, END),
            place: $f.place(DEVICE_ID, CONTEXT_ID, STREAM_ID),
            correlation_id: $f.get(CORRELATION_ID),
            graph_node: $f.node(GRAPH_ID, GRAPH_NODE_ID),
            channel: Channel::new($f.get(CHANNEL_ID), $f.get(CHANNEL_TYPE)),
            $($field: $value,)+
        })
    }};
}

impl Memcpy {
    #[inline(always)]
    pub(super) fn decode(raw: Raw<'_>) -> Option<Self> {
        match u32::read(raw.bytes).map(ActivityKind) {
            Some(ActivityKind::MEMCPY2) => Self::between_devices(raw),
            _ => Self::of_one_device(raw),
        }
    }

    #[inline(always)]
    fn of_one_device(raw: Raw<'_>) -> Option<Self> {
        copy!(raw, f of memcpy {
            peers: None,
            runtime_correlation_id: Some(f.get(RUNTIME_CORRELATION_ID)),
            device_launched: f.newer_flag(IS_DEVICE_LAUNCHED),
            copies: f.newer(COPY_COUNT),
            source_graph_node: f.newer_node(SOURCE_GRAPH_ID, SOURCE_GRAPH_NODE_ID),
        })
    }

    fn between_devices(raw: Raw<'_>) -> Option<Self> {
        copy!(raw, f of memcpy2 {
            peers: Some(Peers {
                source_device: f.get(SRC_DEVICE_ID),
                source_context: f.get(SRC_CONTEXT_ID),
                destination_device: f.get(DST_DEVICE_ID),
                destination_context: f.get(DST_CONTEXT_ID),
            }),
            runtime_correlation_id: None,
            device_launched: None,
            copies: None,
            source_graph_node: None,
        })
    }
}

record! {
    /// A memset (`MEMSET`).
    #[derive(Eq, Hash, Default)]
    Memset, raw, f of memset {
        /// The value written (`value`).
        value: u32 = f.get(VALUE),
        /// Bytes written (`bytes`).
        bytes: u64 = f.get(BYTES),
        /// The kind of memory (`memoryKind`).
        memory: MemoryKind = MemoryKind::from_wide(f.get(MEMORY_KIND).into()),
        /// True if the call was asynchronous (`flags`).
        asynchronous: bool = f.get(FLAGS) & FLAG_ASYNC != 0,
        /// The time on the GPU (`start`, `end`).
        span: Span = f.span(START, END),
        /// The device, context and stream.
        place: Place = f.place(DEVICE_ID, CONTEXT_ID, STREAM_ID),
        /// The id of the call that submitted it (`correlationId`).
        correlation_id: u32 = f.get(CORRELATION_ID),
        /// The graph node, if a graph launched it.
        graph_node: Option<GraphNode> = f.node(GRAPH_ID, GRAPH_NODE_ID),
        /// The hardware channel (`channelID`, `channelType`); none if the device launched it.
        channel: Option<Channel> = Channel::new(f.get(CHANNEL_ID), f.get(CHANNEL_TYPE)),
        /// True if a graph launched from the device ran it (`isDeviceLaunched`). From CUPTI 13.0.
        device_launched: Option<bool> = f.newer_flag(IS_DEVICE_LAUNCHED),
        /// The node from which its graph's node was made or last updated (`sourceGraphId`,
        /// `sourceGraphNodeId`). From CUPTI 13.4.
        source_graph_node: Option<GraphNode> = f.newer_node(SOURCE_GRAPH_ID, SOURCE_GRAPH_NODE_ID),
    }
}
