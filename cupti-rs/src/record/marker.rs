//! NVTX marks and ranges, names of objects, and external correlation ids.

use super::fields::{flags, record, words};
use super::{NameKey, ObjectId};

record! {
    /// A mark, or the start or end of a range (`MARKER`).
    Marker, raw, f of marker {
        /// The type (`flags`).
        flags: MarkerFlags = MarkerFlags(f.get(FLAGS)),
        /// The time in nanoseconds of CUPTI's clock (`timestamp`); 0 if CUPTI has none.
        at_ns: u64 = f.get(TIMESTAMP),
        /// The id that the start and the end of a range share, and its [`MarkerData`] (`id`).
        id: u32 = f.get(ID),
        /// The object: a thread, for ranges of threads (`objectKind`, `objectId`).
        object: ObjectId = ObjectId::new(
            f.get(OBJECT_KIND),
            [f.get(OBJECT_ID_DCS_DEVICE_ID), f.get(OBJECT_ID_DCS_CONTEXT_ID), f.get(OBJECT_ID_DCS_STREAM_ID)],
        ),
        /// Its name (`name`); none at an end.
        name: Option<NameKey> = f.name(NAME),
        /// Its domain's name (`domain`); none in the default domain.
        domain: Option<NameKey> = f.name(DOMAIN),
    }
}

flags! {
    /// The type of a marker as flags (`CUPTI_ACTIVITY_FLAG_MARKER_...`).
    MarkerFlags {
        /// A mark (`..._INSTANTANEOUS`).
        is_mark = 1,
        /// A range begins (`..._START`).
        is_start = 2,
        /// A range ends (`..._END`).
        is_end = 4,
        /// The acquisition of a synchronisation object starts (`..._SYNC_ACQUIRE`).
        is_acquire = 8,
        /// The acquisition succeeded (`..._SYNC_ACQUIRE_SUCCESS`).
        is_acquired = 16,
        /// The acquisition failed (`..._SYNC_ACQUIRE_FAILED`).
        is_acquire_failed = 32,
        /// The object is released (`..._SYNC_RELEASE`).
        is_release = 64,
    }
}

record! {
    /// The data of an NVTX range or mark (`MARKER_DATA`).
    MarkerData, raw, f of marker_data {
        /// The id of its [`Marker`] (`id`).
        id: u32 = f.get(ID),
        /// The payload (`payloadKind`, `payload`); zeros without one.
        payload: Payload = Payload::new(f.get(PAYLOAD_KIND), f.get(PAYLOAD_METRIC_VALUE_UINT64)),
        /// Its colour as 0xAARRGGBB, if any (`color`, `flags`).
        color: Option<u32> = (f.get(FLAGS) & FLAG_COLOR_ARGB != 0).then(|| f.get(COLOR)),
        /// Its category's id (`category`); 0 if none.
        category: u32 = f.get(CATEGORY),
        /// CUPTI's id of its domain (`cuptiDomainId`). From CUPTI 13.0.
        domain: Option<u32> = f.newer(CUPTI_DOMAIN_ID),
    }
}

/// `CUPTI_ACTIVITY_FLAG_MARKER_COLOR_ARGB`.
const FLAG_COLOR_ARGB: u32 = 2;

/// A payload (`CUpti_MetricValueKind`, `CUpti_MetricValue`).
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Payload {
    /// A floating-point number.
    F64(f64),
    /// An unsigned number.
    U64(u64),
    /// A signed number.
    I64(i64),
    /// A percentage.
    Percent(f64),
    /// Bytes a second.
    Throughput(u64),
    /// A level from 0 (idle) to 10.
    UtilizationLevel(u32),
    /// Fields with a schema, at the address of CUPTI's copy in the recorded process. This crate
    /// does not read it; `cuptiActivityGetNvtxExtPayloadAttr` describes it. From CUPTI 13.0.
    Extended {
        /// The address in the recorded process.
        address: u64,
    },
    /// A kind unknown to this version of the crate.
    Unknown {
        /// CUPTI's value of the kind.
        kind: u32,
        /// The payload's 8 bytes as a number.
        bits: u64,
    },
}

impl Payload {
    fn new(kind: u32, bits: u64) -> Self {
        match kind {
            0 => Self::F64(f64::from_bits(bits)),
            1 => Self::U64(bits),
            2 => Self::Percent(f64::from_bits(bits)),
            3 => Self::Throughput(bits),
            4 => Self::I64(bits.cast_signed()),
            5 => Self::UtilizationLevel(low(bits)),
            6 => Self::Extended { address: bits },
            kind => Self::Unknown { kind, bits },
        }
    }
}

/// Returns the first 4 bytes in memory order.
fn low(bits: u64) -> u32 {
    let [a, b, c, d, ..] = bits.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

record! {
    /// A name given to a thread, device, context or stream through NVTX (`NAME`).
    Name, raw, f of name {
        /// The object (`objectKind`, `objectId`).
        object: ObjectId = ObjectId::new(
            f.get(OBJECT_KIND),
            [f.get(OBJECT_ID_DCS_DEVICE_ID), f.get(OBJECT_ID_DCS_CONTEXT_ID), f.get(OBJECT_ID_DCS_STREAM_ID)],
        ),
        /// The name (`name`).
        name: Option<NameKey> = f.name(NAME),
    }

    /// The external correlation id of a call (`EXTERNAL_CORRELATION`).
    ExternalCorrelation, raw, f of external_correlation {
        /// The kind of the id (`externalKind`).
        kind: ExternalCorrelationKind = ExternalCorrelationKind(f.get(EXTERNAL_KIND)),
        /// The id (`externalId`).
        external_id: u64 = f.get(EXTERNAL_ID),
        /// The id of the call (`correlationId`).
        correlation_id: u32 = f.get(CORRELATION_ID),
    }
}

words! {
    /// The kind of an external correlation id (`CUpti_ExternalCorrelationKind`).
    ExternalCorrelationKind(u32) {
        INVALID = 0 "invalid",
        UNKNOWN = 1 "not known",
        OPENACC = 2 "OpenACC",
        CUSTOM0 = 3 "custom 0",
        CUSTOM1 = 4 "custom 1",
        CUSTOM2 = 5 "custom 2",
    }
}
