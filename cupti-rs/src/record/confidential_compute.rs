//! Confidential computing.

use super::Channel;
use super::fields::{record, words};

record! {
    /// A key rotation of a channel (`CONFIDENTIAL_COMPUTE_ROTATION`, from CUPTI 12.9).
    KeyRotation, raw, f of confidential_compute_rotation {
        /// The event (`eventType`).
        event: KeyRotationEvent = KeyRotationEvent(f.get(EVENT_TYPE)),
        /// CUDA ordinal (`deviceId`).
        device: u32 = f.get(DEVICE_ID),
        /// CUPTI's id of the context (`contextId`).
        context: u32 = f.get(CONTEXT_ID),
        /// The channel (`channelId`, `channelType`).
        channel: Option<Channel> = Channel::new(f.get(CHANNEL_ID), f.get(CHANNEL_TYPE)),
        /// The time in nanoseconds (`timestamp`).
        at_ns: u64 = f.get(TIMESTAMP),
    }
}

words! {
    /// An event of a key rotation (`CUpti_ConfidentialComputeRotationEventType`).
    KeyRotationEvent(u32) {
        INVALID = 0 "invalid",
        BLOCKED = 1 "channel blocked",
        DRAINED = 2 "channel drained",
        UNBLOCKED = 3 "channel unblocked",
    }
}
