//! Reads the fields of records; macros for records and for named values.

use std::fmt;

use super::{GraphNode, NameKey, Place, Span};
use crate::sys::field::{Family, Field, Pointer, Strides, Value};

/// One record's bytes and the release of the library that wrote them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Raw<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) release: (u32, u32),
}

impl fmt::Debug for Raw<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.release;
        write!(f, "{} bytes of CUPTI {major}.{minor}", self.bytes.len())
    }
}

/// The oldest stride of a family: the minimum length of its records.
pub(super) const fn oldest(strides: Strides) -> usize {
    strides[0].1
}

/// The fields of a record of the family `F`. The first `N` bytes exist, so that reads within them
/// need no check.
pub(super) struct Fields<'a, F, const N: usize> {
    known: &'a [u8; N],
    raw: Raw<'a>,
    family: std::marker::PhantomData<F>,
}

impl<'a, F: Family, const N: usize> Fields<'a, F, N> {
    /// Returns `None` if the record is shorter than in any library.
    #[inline(always)]
    pub(super) fn from_raw(raw: Raw<'a>) -> Option<Self> {
        Some(Self { known: raw.bytes.first_chunk()?, raw, family: std::marker::PhantomData })
    }

    /// Reads a field that every library writes.
    #[inline(always)]
    pub(super) fn get<T: Value + Default>(&self, field: Field<F, T>) -> T {
        debug_assert!(field.is_in(N, (0, 0)), "{} is not in every record", field.offset());
        T::read(self.known.get(field.offset()..).unwrap_or_default()).unwrap_or_default()
    }

    /// Reads a field that older libraries do not write.
    #[inline]
    pub(super) fn newer<T: Value>(&self, field: Field<F, T>) -> Option<T> {
        if field.is_in(self.raw.bytes.len(), self.raw.release) {
            T::read(self.raw.bytes.get(field.offset()..)?)
        } else {
            None
        }
    }

    #[inline(always)]
    pub(super) fn flag(&self, field: Field<F, u8>) -> bool {
        self.get(field) != 0
    }

    #[inline]
    pub(super) fn newer_flag(&self, field: Field<F, u8>) -> Option<bool> {
        self.newer(field).map(|flag| flag != 0)
    }

    #[inline(always)]
    pub(super) fn xyz(&self, x: Field<F, u32>, y: Field<F, u32>, z: Field<F, u32>) -> [u32; 3] {
        [self.get(x), self.get(y), self.get(z)]
    }

    #[inline(always)]
    pub(super) fn span(&self, start: Field<F, u64>, end: Field<F, u64>) -> Span {
        Span { start_ns: self.get(start), end_ns: self.get(end) }
    }

    #[inline(always)]
    pub(super) fn place(
        &self,
        device: Field<F, u32>,
        context: Field<F, u32>,
        stream: Field<F, u32>,
    ) -> Place {
        Place { device: self.get(device), context: self.get(context), stream: self.get(stream) }
    }

    /// Reads the key of a text; `None` for a null pointer.
    #[inline]
    pub(super) fn name(&self, field: Field<F, Pointer>) -> Option<NameKey> {
        NameKey::new(self.get(field).0)
    }

    /// Reads an id; `None` if it equals `none`.
    #[inline(always)]
    pub(super) fn id(&self, field: Field<F, u32>, none: u32) -> Option<u32> {
        Some(self.get(field)).filter(|&id| id != none)
    }

    #[inline(always)]
    pub(super) fn node(&self, graph: Field<F, u32>, node: Field<F, u64>) -> Option<GraphNode> {
        GraphNode::new(self.get(graph), self.get(node))
    }

    #[inline]
    pub(super) fn newer_node(
        &self,
        graph: Field<F, u32>,
        node: Field<F, u64>,
    ) -> Option<GraphNode> {
        GraphNode::new(self.newer(graph)?, self.newer(node)?)
    }
}

/// A record: its fields, each with the expression that reads it. A field after a semicolon is
/// private, such as the raw record for fields that are read on request.
macro_rules! record {
    (@raw) => { $crate::record::fields::Raw<'_> };
    (@raw $life:lifetime) => { $crate::record::fields::Raw<$life> };
    ($($(#[$doc:meta])* $name:ident$(<$life:lifetime>)?, $raw:ident, $fields:ident of $family:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty = $value:expr,)+
        $(; $private:ident: $private_type:ty = $private_value:expr)?
    })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq)]
        #[non_exhaustive]
        pub struct $name$(<$life>)? {
            $($(#[$field_doc])* pub $field: $type,)+
            $($private: $private_type,)?
        }

        impl$(<$life>)? $name$(<$life>)? {
            /// Returns `None` if the record is shorter than in any library.
            #[inline(always)]
            pub(super) fn decode($raw: $crate::record::fields::record!(@raw $($life)?)) -> Option<Self> {
                use $crate::sys::generated::$family::*;
                let $fields = $crate::record::fields::Fields::<
                    Layout,
                    { $crate::record::fields::oldest(STRIDES) },
                >::from_raw($raw)?;
                Some(Self { $($field: $value,)+ $($private: $private_value,)? })
            }
        }
    )+};
}
pub(super) use record;

/// A CUPTI value with named constants. Libraries may return others.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident($raw:ty) { $($constant:ident = $value:literal $word:literal,)+ })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $raw);

        impl $name {
            $(#[doc = concat!("`", $value, "`: ", $word, ".")] pub const $constant: Self = Self($value);)+
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match *self {
                    $(Self::$constant => f.write_str($word),)+
                    Self(other) => write!(f, "unknown ({other})"),
                }
            }
        }
    )+};
}
pub(super) use words;
