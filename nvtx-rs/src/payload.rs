//! Payloads: numbers of events.

/// A number of an event, of one of NVTX's six types.
///
/// Tools show it with the event, and Nsight Systems sums it. For several named numbers use
/// [`Field`](crate::Field)s or a [`Record`](crate::schema::Record).
///
/// ```
/// use nvtx::Payload;
/// assert_eq!(Payload::from(12u64), Payload::U64(12));
/// assert_eq!(Payload::from(1.5f32), Payload::F32(1.5));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Payload {
    /// An unsigned number of 64 bits.
    U64(u64),
    /// A signed number of 64 bits.
    I64(i64),
    /// A floating-point number of 64 bits.
    F64(f64),
    /// An unsigned number of 32 bits.
    U32(u32),
    /// A signed number of 32 bits.
    I32(i32),
    /// A floating-point number of 32 bits.
    F32(f32),
}

impl Payload {
    /// NVTX's number of the type, and the value as the event's 64 bits.
    pub(crate) fn raw(self) -> (i32, u64) {
        match self {
            Payload::U64(value) => (1, value),
            Payload::I64(value) => (2, value.cast_unsigned()),
            Payload::F64(value) => (3, value.to_bits()),
            Payload::U32(value) => (4, low(value)),
            Payload::I32(value) => (5, low(value.cast_unsigned())),
            Payload::F32(value) => (6, low(value.to_bits())),
        }
    }

    /// The payload with NVTX's number of a type and an event's 64 bits; `None` for another type.
    #[doc(hidden)]
    #[must_use]
    pub fn from_raw(kind: i32, bits: u64) -> Option<Payload> {
        // A member of 32 bits is at the start of the 64-bit union.
        let start = if cfg!(target_endian = "big") { bits >> 32 } else { bits };
        // CAST: the upper half is not part of the member.
        let start = start as u32;
        Some(match kind {
            1 => Payload::U64(bits),
            2 => Payload::I64(bits.cast_signed()),
            3 => Payload::F64(f64::from_bits(bits)),
            4 => Payload::U32(start),
            5 => Payload::I32(start.cast_signed()),
            6 => Payload::F32(f32::from_bits(start)),
            _ => return None,
        })
    }

    /// The type's number in schemas, and the bytes of the value with their length.
    pub(crate) fn entry(self) -> (u64, [u8; 8], usize) {
        let wide = |kind, bits: u64| (kind, bits.to_ne_bytes(), 8);
        let narrow = |kind, bits: u32| (kind, low(bits).to_ne_bytes(), 4);
        match self {
            Payload::U64(value) => wide(18, value),
            Payload::I64(value) => wide(17, value.cast_unsigned()),
            Payload::F64(value) => wide(44, value.to_bits()),
            Payload::U32(value) => narrow(16, value),
            Payload::I32(value) => narrow(15, value.cast_unsigned()),
            Payload::F32(value) => narrow(43, value.to_bits()),
        }
    }
}

/// A member of 32 bits is at the start of the 64-bit union.
fn low(bits: u32) -> u64 {
    if cfg!(target_endian = "big") { u64::from(bits) << 32 } else { u64::from(bits) }
}

macro_rules! from {
    ($($type:ty => $variant:ident,)*) => {
        $(
            impl From<$type> for Payload {
                fn from(value: $type) -> Payload {
                    Payload::$variant(value.into())
                }
            }
        )*
    };
}

from! {
    u64 => U64,
    i64 => I64,
    f64 => F64,
    u32 => U32,
    i32 => I32,
    f32 => F32,
}

impl From<usize> for Payload {
    fn from(value: usize) -> Payload {
        // CAST: no target has a wider usize.
        Payload::U64(value as u64)
    }
}
