//! Exports for other programs, captures of Nsight Systems, and [`text`] escaped for outputs.
//! [`Profile::export`](crate::Profile::export) has an example.

#[cfg(feature = "analysis")]
pub(crate) mod export;
#[cfg(any(feature = "nsys", feature = "parquet"))]
pub(crate) mod nsys;
#[cfg(feature = "parquet")]
pub(crate) mod parquet;

pub use crate::base::text;
#[cfg(feature = "analysis")]
pub use export::Export;
#[cfg(feature = "nsys")]
pub use nsys::Progress as NsysProgress;
#[cfg(feature = "parquet")]
pub use parquet::ParquetOptions;

/// Percent-encodes all bytes except letters, digits, `.`, `_`, `-` and `kept`.
#[cfg(any(feature = "nsys", feature = "parquet"))]
fn percent_encoded(bytes: &[u8], kept: &[u8]) -> String {
    let encoded = |&byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => char::from(byte).into(),
        byte if kept.contains(&byte) => char::from(byte).into(),
        byte => format!("%{byte:02X}"),
    };
    bytes.iter().map(encoded).collect()
}
