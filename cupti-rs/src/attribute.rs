//! CUPTI's settings that a collection may change while it runs.

use std::fmt;

use crate::sys::abi::ATTR_ZEROED_OUT_ACTIVITY_BUFFER;

/// A setting of CUPTI (`CUpti_ActivityAttribute`). Sizes are bytes, counts numbers, switches 0
/// or 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Attribute {
    /// Bytes of one of CUPTI's buffers for times on the device, for each context; 3,200,000 by
    /// default, enough for some 100,000 operations.
    DeviceBufferBytes,
    /// The maximum number of such buffers of a context; 250 by default. If they are all full,
    /// records have no timestamps.
    DeviceBufferLimit,
    /// Such buffers allocated with a context; 3 by default, and fewer than the limit.
    DeviceBuffersReady,
    /// 1 places such buffers in pinned host memory; 0, the default, places them on the device.
    DeviceBuffersPinned,
    /// 1 gives every thread its own activity buffer (12.3+); the default from 13.0 on.
    PerThreadBuffers,
    /// Bytes of the buffers for graphs that are launched from the device (12.9+).
    DeviceGraphBufferBytes,
}

impl Attribute {
    /// Every attribute.
    pub const ALL: [Self; 6] = [
        Self::DeviceBufferBytes,
        Self::DeviceBufferLimit,
        Self::DeviceBuffersReady,
        Self::DeviceBuffersPinned,
        Self::PerThreadBuffers,
        Self::DeviceGraphBufferBytes,
    ];

    /// CUPTI's number for it, the bytes of its value, and its text.
    fn facts(self) -> (u32, usize, &'static str) {
        // CUPTI stores switches in a byte and numbers in a size_t.
        const NUMBER: usize = size_of::<usize>();
        match self {
            Self::DeviceBufferBytes => (0, NUMBER, "bytes of a device buffer"),
            Self::DeviceBufferLimit => (2, NUMBER, "most device buffers of a context"),
            Self::DeviceBuffersReady => (6, NUMBER, "device buffers made ready"),
            Self::DeviceBuffersPinned => (8, 1, "device buffers in pinned host memory"),
            Self::PerThreadBuffers => (9, 1, "activity buffers of each thread"),
            Self::DeviceGraphBufferBytes => {
                (10, NUMBER, "bytes of a buffer for graphs launched from the device")
            }
        }
    }

    /// CUPTI's number for it.
    pub fn id(self) -> u32 {
        self.facts().0
    }

    pub(crate) fn key(self) -> AttributeId {
        let (id, bytes, _) = self.facts();
        AttributeId { id, bytes }
    }
}

/// An attribute by CUPTI's number, with the size of its value in bytes. Values are little-endian on
/// every machine that has CUPTI.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttributeId {
    pub(crate) id: u32,
    pub(crate) bytes: usize,
}

/// The attribute for buffers that are already zeroed. The pool zeroes its buffers where nobody
/// waits. Without this setting CUPTI would zero them itself inside a CUDA call of the program.
pub(crate) const ZEROED_BUFFERS: AttributeId =
    AttributeId { id: ATTR_ZEROED_OUT_ACTIVITY_BUFFER, bytes: 1 };

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.facts().2)
    }
}

/// The result of setting an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttributeSetting {
    /// The attribute.
    pub attribute: Attribute,
    /// Its value before, which was restored.
    pub before: u64,
    /// The requested value.
    pub asked: u64,
    /// The value that CUPTI then reported.
    pub set: u64,
}

impl AttributeSetting {
    /// Builds a setting from a recording.
    #[must_use]
    pub fn new(attribute: Attribute, before: u64, asked: u64, set: u64) -> Self {
        Self { attribute, before, asked, set }
    }
}
