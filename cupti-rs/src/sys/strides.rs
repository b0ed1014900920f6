//! The lengths of records by kind.

use super::field::{Strides, stride_of};
use super::generated::FAMILIES;

/// The bytes from one record of this kind to the next in a library of this release; `None` if it
/// has no such records.
#[must_use]
pub fn stride_of_kind(kind: u32, release: (u32, u32)) -> Option<usize> {
    let of_family = |(kinds, strides): &(&[u32], Strides)| match stride_of(strides, release) {
        0 => None,
        stride => kinds.contains(&kind).then_some(stride),
    };
    FAMILIES.iter().find_map(of_family)
}
