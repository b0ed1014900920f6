//! Memory that records point to. It is copied before their buffer is reused. Text that CUPTI
//! retains is left alone; memory that CUPTI leaves to its client is freed.

use std::ffi::{CStr, c_char, c_void};

use crate::kind::ActivityKind;
use crate::record::OverheadKind;
use crate::sys::field::{Field, Owned, OwnedSince13, Pointer, Value};
use crate::sys::generated::*;
use crate::sys::strides;
use crate::version::NEWEST;

/// Bytes of `CUpti_ActivityOverheadCommandBufferFullData`.
const COMMAND_BUFFER_FULL: usize = 12;
/// `CUPTI_DEV_TYPE_GPU`: only such an end of an NVLink has ports.
const GPU: u32 = 1;

/// The knowledge of a record's layout, by its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Layout {
    /// The layout may differ from the known one.
    Unknown,
    /// A newer library added to its end.
    Grown,
    /// A known layout.
    Known,
}

/// The layout of a record from a library of this release. The layouts of known releases were
/// compared with the libraries. A newer minor version is assumed to extend the newest known layout,
/// as all earlier ones did.
pub(super) fn layout(kind: u32, release: (u32, u32), length: usize) -> Layout {
    if release <= NEWEST {
        return Layout::Known;
    }
    match strides::stride_of_kind(kind, release) {
        Some(known) if known == length => Layout::Known,
        Some(known) if known < length => Layout::Grown,
        // Pointers of an unknown kind are never read.
        None if texts(kind, release).is_empty() => Layout::Known,
        _ => Layout::Unknown,
    }
}

/// The offsets in records of a kind with pointers to text that CUPTI of this release retains.
pub(super) fn texts(kind: u32, release: (u32, u32)) -> &'static [usize] {
    const fn at<F>(field: Field<F, Pointer>) -> usize {
        field.offset()
    }
    match ActivityKind(kind) {
        ActivityKind::CONCURRENT_KERNEL | ActivityKind::KERNEL => const { &[at(kernel::NAME)] },
        ActivityKind::MEMORY2 => const { &[at(memory2::NAME), at(memory2::SOURCE)] },
        ActivityKind::DEVICE if !OwnedSince13::is_owned(release) => {
            const { &[device::NAME.offset()] }
        }
        _ => &[],
    }
}

/// Memory that a record leaves to its client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left {
    /// The offset of its pointer in the record.
    pub(super) offset: usize,
    what: What,
}

#[derive(Debug, Clone, Copy)]
enum What {
    /// Text that ends with a NUL.
    Text,
    /// This many bytes; possibly none that this crate can read.
    Bytes(usize),
}

/// The memory that a record of this release leaves to its client.
pub(super) fn owned_memory(kind: u32, release: (u32, u32), record: &[u8]) -> [Option<Left>; 2] {
    fn at<F, T>(field: Field<F, T>, what: What) -> Option<Left> {
        Some(Left { offset: field.offset(), what })
    }
    let u32_at = |offset| record.get(offset..).and_then(u32::read).unwrap_or(0);
    match ActivityKind(kind) {
        ActivityKind::DEVICE if OwnedSince13::is_owned(release) => {
            [at(device::NAME, What::Text), None]
        }
        ActivityKind::OVERHEAD => {
            let full =
                u32_at(overhead::OVERHEAD_KIND.offset()) == OverheadKind::COMMAND_BUFFER_FULL.0;
            let bytes = if full { COMMAND_BUFFER_FULL } else { 0 };
            [at(overhead::OVERHEAD_DATA, What::Bytes(bytes)), None]
        }
        // The older layout has the ports in the record itself. No type reads them.
        ActivityKind::NVLINK if release >= nvlink5::STRIDES[0].0 => {
            let ports = |end: Field<_, u32>, field: Field<_, Owned>| {
                (u32_at(end.offset()) == GPU).then(|| at(field, What::Bytes(0))).flatten()
            };
            [
                ports(nvlink5::TYPE_DEV0, nvlink5::PORT_DEV0),
                ports(nvlink5::TYPE_DEV1, nvlink5::PORT_DEV1),
            ]
        }
        _ => [None, None],
    }
}

/// The content of such memory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Text(String),
    Data(Vec<u8>),
}

impl Left {
    /// Copies the memory and frees it; `None` if there is none, or nothing that this crate can
    /// read.
    ///
    /// # Safety
    ///
    /// `record` is the record it was found for, as CUPTI wrote it into a buffer that it has
    /// returned, and was not taken before.
    pub(super) unsafe fn take(self, record: &[u8]) -> Option<Taken> {
        let address = record.get(self.offset..).and_then(u64::read)? as *mut c_void;
        if address.is_null() {
            return None;
        }
        let content = match self.what {
            What::Text => {
                // SAFETY: CUPTI writes here a NUL-terminated text from malloc that is its client's.
                let text = unsafe { CStr::from_ptr(address.cast::<c_char>()) };
                Some(Taken::Text(text.to_string_lossy().into_owned()))
            }
            What::Bytes(0) => None,
            What::Bytes(length) => {
                // SAFETY: CUPTI writes here memory from malloc of that many initialised bytes that
                // is its client's.
                let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), length) };
                Some(Taken::Data(bytes.to_vec()))
            }
        };
        // SAFETY: it is from malloc and its client's, as above, and by the caller's promise not
        // freed before.
        unsafe { libc::free(address) };
        content
    }
}

/// Returns the text that CUPTI retains at an address.
///
/// # Safety
///
/// `address` is not null and stands in a record, of a kind and at an offset that [`texts`] has for
/// the library's release. It is unchanged since CUPTI wrote it into a buffer that it has returned
/// just now.
pub(super) unsafe fn text(address: u64) -> String {
    // SAFETY: there CUPTI writes the address of a NUL-terminated text that outlives the record.
    let text = unsafe { CStr::from_ptr(address as *const c_char) };
    text.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_of_an_unknown_release_are_followed_in_known_and_grown_layouts_only() {
        let kernel = ActivityKind::CONCURRENT_KERNEL.0;
        let newest = kernel::STRIDES[kernel::STRIDES.len() - 1].1;
        for release in [(12, 0), (13, 0), NEWEST] {
            assert_eq!(layout(kernel, release, 8), Layout::Known, "compared with the library");
        }
        let next = (NEWEST.0, NEWEST.1 + 1);
        assert_eq!(layout(kernel, next, newest), Layout::Known);
        assert_eq!(layout(kernel, next, newest + 8), Layout::Grown);
        assert_eq!(layout(kernel, next, newest - 8), Layout::Unknown);
        assert_eq!(layout(u32::MAX, next, newest), Layout::Known, "nothing in it is followed");
        // The older of two layouts of a kind is gone.
        let links = nvlink5::STRIDES[nvlink5::STRIDES.len() - 1].1;
        assert_eq!(layout(ActivityKind::NVLINK.0, next, links), Layout::Known);
    }
}
