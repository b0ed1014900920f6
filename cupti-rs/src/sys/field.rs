//! The fields of records: offset, type, the family of records they belong to, and the first release
//! that writes them. [`generated`](super::generated) has all of them.

use std::marker::PhantomData;

use crate::version::Version;

/// Bytes from one record of a family to the next, with the first CUDA release (major, minor) that
/// uses them; 0 if a release ended the family.
pub type Strides = &'static [((u32, u32), usize)];

/// The records of one layout: of one kind, or of several kinds that share it.
pub trait Family {
    /// `CUpti_ActivityKind`.
    const KINDS: &'static [u32];
    /// By release.
    const STRIDES: Strides;
}

/// The bytes from one record to the next in a library of this version; `None` if it has no such
/// records.
#[must_use]
pub const fn stride(strides: Strides, version: Version) -> Option<usize> {
    match stride_of(strides, version.cuda_release()) {
        0 => None,
        stride => Some(stride),
    }
}

/// As [`stride`], in a library of this release; 0 if it has none.
pub(crate) const fn stride_of(strides: Strides, release: (u32, u32)) -> usize {
    let (mut stride, mut i) = (0, 0);
    while i < strides.len() && is_from(release, strides[i].0) {
        stride = strides[i].1;
        i += 1;
    }
    stride
}

/// True if a release is this one or newer.
#[inline]
const fn is_from(release: (u32, u32), since: (u32, u32)) -> bool {
    release.0 > since.0 || (release.0 == since.0 && release.1 >= since.1)
}

/// A field of the records of the family `F`, of type `T`.
#[derive(Debug)]
pub struct Field<F, T> {
    offset: usize,
    since: (u32, u32),
    of: PhantomData<fn(F) -> T>,
}

impl<F, T> Clone for Field<F, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F, T> Copy for Field<F, T> {}

impl<F, T> Field<F, T> {
    /// A field in every record that is long enough.
    pub(crate) const fn at(offset: usize) -> Self {
        Self { offset, since: (0, 0), of: PhantomData }
    }

    /// Marks the field as padding before this release.
    pub(crate) const fn since(self, major: u32, minor: u32) -> Self {
        Self { since: (major, minor), ..self }
    }

    /// Bytes from the record's begin.
    pub const fn offset(self) -> usize {
        self.offset
    }

    /// Its bytes.
    pub const fn size(self) -> usize {
        size_of::<T>()
    }

    /// True if records of this length and release have it.
    #[inline]
    #[must_use]
    pub const fn is_in(self, length: usize, release: (u32, u32)) -> bool {
        is_from(release, self.since) && self.offset + size_of::<T>() <= length
    }
}

/// A pointer to text that CUPTI retains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Pointer(pub(crate) u64);

/// A pointer to memory that CUPTI leaves to its client to free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Owned(pub(crate) u64);

/// A pointer to text that CUPTI retains before 13.0, and leaves to its client to free from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct OwnedSince13(pub(crate) u64);

impl OwnedSince13 {
    /// True if the text is the client's.
    pub(crate) fn is_owned(release: (u32, u32)) -> bool {
        release >= (13, 0)
    }
}

/// A type that a field can have.
pub trait Value: Sized {
    /// Reads a value from the bytes at its offset; `None` if there are too few.
    fn read(bytes: &[u8]) -> Option<Self>;
}

/// A type of field to which any value may be written: all types except pointers.
pub trait Plain: Value {
    /// The bytes in memory order.
    fn bytes(self) -> impl AsRef<[u8]>;
}

macro_rules! values {
    ($($type:ty),*) => {$(
        impl Value for $type {
            #[inline(always)]
            fn read(bytes: &[u8]) -> Option<Self> {
                bytes.first_chunk().map(|bytes| Self::from_ne_bytes(*bytes))
            }
        }

        impl Plain for $type {
            fn bytes(self) -> impl AsRef<[u8]> {
                self.to_ne_bytes()
            }
        }
    )*};
}
values!(u8, u16, u32, u64, i32, i64);

macro_rules! pointers {
    ($($type:ident),*) => {$(
        impl Value for $type {
            #[inline(always)]
            fn read(bytes: &[u8]) -> Option<Self> {
                u64::read(bytes).map(Self)
            }
        }
    )*};
}
pointers!(Pointer, Owned, OwnedSince13);

impl<T: Value + Copy + Default, const N: usize> Value for [T; N] {
    #[inline]
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut all = [T::default(); N];
        for (i, place) in all.iter_mut().enumerate() {
            *place = T::read(bytes.get(i * size_of::<T>()..)?)?;
        }
        Some(all)
    }
}

impl<T: Plain + Copy + Default, const N: usize> Plain for [T; N] {
    fn bytes(self) -> impl AsRef<[u8]> {
        let mut all = Vec::with_capacity(size_of::<Self>());
        self.iter().for_each(|value| all.extend_from_slice(value.bytes().as_ref()));
        all
    }
}

/// Defines a module for each family of records, with its kinds, its strides and its fields, each
/// with its type and bytes. Also defines `FAMILIES`, the kinds and strides of all.
/// In builds of tests the compiler checks that each type has its field's bytes.
macro_rules! families {
    ($($(#[$doc:meta])* $family:ident: kinds [$($kind:literal),*], strides [$($stride:expr),*];
        fields { $($field:ident: $type:ty = $start:literal..$end:literal $(since ($major:literal, $minor:literal))?;)* }
    )*) => {
        $($(#[$doc])*
        pub mod $family {
            use $crate::sys::field::*;
            #[derive(Debug)]
            pub enum Layout {}
            impl Family for Layout {
                const KINDS: &'static [u32] = KINDS;
                const STRIDES: Strides = STRIDES;
            }
            pub const KINDS: &[u32] = &[$($kind),*];
            pub const STRIDES: Strides = &[$($stride),*];
            $(pub const $field: Field<Layout, $type> = Field::at($start)$(.since($major, $minor))?;)*

            // Only in tests: every build of a program would compile and evaluate it again.
            #[cfg(test)]
            const _: () = {
                $(assert!($field.size() == $end - $start, stringify!($field));)*
            };
        })*

        /// Every family: its kinds and its strides.
        pub const FAMILIES: [(&[u32], Strides); [$(stringify!($family)),*].len()] =
            [$(($family::KINDS, $family::STRIDES)),*];
    };
}
pub(crate) use families;
