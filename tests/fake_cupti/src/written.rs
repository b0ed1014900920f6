//! A record of any kind, in the layout of a library of any version.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;

use cupti::sys::field::{self, Family, Field, Owned, OwnedSince13, Plain, Pointer};
use cupti::{ActivityKind, Version};

/// A record under construction: its fields, by the constants of
/// [`generated`](cupti::sys::generated), are zero until they are set. A field that the version does
/// not have is left out, as in its library.
///
/// ```
/// use fake_cupti::Written;
/// use cupti::sys::generated::memset;
/// use cupti::{ActivityKind, Record, RecordBytes, Version};
///
/// let version = Version(130_001);
/// let record = Written::new(ActivityKind::MEMSET, version);
/// let bytes = record.map(|r| r.set(memset::BYTES, 7).into_bytes()).unwrap_or_default();
/// let strides = [(ActivityKind::MEMSET, bytes.len() as u32)];
/// let records = RecordBytes::from_parts(version, vec![bytes], strides, []);
/// assert!(matches!(records.iter().next(), Some(Record::Memset(memset)) if memset.bytes == 7));
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Written<F> {
    bytes: Vec<u8>,
    release: (u32, u32),
    left: Vec<(usize, Vec<u8>)>,
    family: PhantomData<fn() -> F>,
}

/// The minimum allocation for memory that is left to a reader: as much as it may read according to
/// the record.
const LEAST_ALLOCATION: usize = 4096;

impl<F: Family> Written<F> {
    /// A record of this kind; `None` if the kind is not of this layout, or a library of this
    /// version has no such records.
    #[must_use]
    pub fn new(kind: ActivityKind, version: Version) -> Option<Self> {
        let stride = field::stride(F::STRIDES, version).filter(|_| F::KINDS.contains(&kind.0))?;
        let mut bytes = vec![0; stride];
        bytes.get_mut(..4)?.copy_from_slice(&kind.0.to_ne_bytes());
        Some(Self { bytes, release: version.cuda_release(), left: Vec::new(), family: PhantomData })
    }

    /// Sets a field.
    pub fn set<T: Plain>(mut self, field: Field<F, T>, value: T) -> Self {
        self.put(field, value.bytes().as_ref());
        self
    }

    /// Makes a field point to text.
    pub fn text(mut self, field: Field<F, Pointer>, text: &'static CStr) -> Self {
        self.put(field, &(text.as_ptr() as u64).to_ne_bytes());
        self
    }

    /// Makes a field point to memory with this content, which the reader must free. It is allocated
    /// when the record is written ([`Fake::write`](crate::Fake::write)).
    pub fn leave(mut self, field: Field<F, Owned>, content: impl Into<Vec<u8>>) -> Self {
        if field.is_in(self.bytes.len(), self.release) {
            self.left.push((field.offset(), content.into()));
        }
        self
    }

    /// Makes a field point to text that the library owns or the reader must free, depending on the
    /// version.
    pub fn name(mut self, field: Field<F, OwnedSince13>, text: &'static CStr) -> Self {
        if !field.is_in(self.bytes.len(), self.release) {
            return self;
        }
        if self.release >= (13, 0) {
            self.left.push((field.offset(), text.to_bytes().to_vec()));
        } else {
            self.put(field, &(text.as_ptr() as u64).to_ne_bytes());
        }
        self
    }

    fn put<T>(&mut self, field: Field<F, T>, value: &[u8]) {
        if field.is_in(self.bytes.len(), self.release)
            && let Some(place) = self.bytes.get_mut(field.offset()..field.offset() + value.len())
        {
            place.copy_from_slice(value);
        }
    }

    /// The record's bytes. Memory that is left to the reader is missing: its pointers are null.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The record's bytes, with the memory that is left to the reader.
    pub(super) fn allocate(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for (at, content) in &self.left {
            if let Some(pointer) = bytes.get_mut(*at..*at + size_of::<u64>()) {
                pointer.copy_from_slice(&(allocate(content) as u64).to_ne_bytes());
            }
        }
        bytes
    }
}

/// Memory from malloc with this content and zeros after it; null if there is none.
pub(super) fn allocate(content: &[u8]) -> *mut c_void {
    let size = content.len().max(LEAST_ALLOCATION) + 1;
    // SAFETY: calloc may be called with any size.
    let memory = unsafe { libc::calloc(size, 1) };
    if !memory.is_null() {
        // SAFETY: `memory` has more bytes than `content`, and nobody else has its address.
        unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), memory.cast(), content.len()) };
    }
    memory
}
