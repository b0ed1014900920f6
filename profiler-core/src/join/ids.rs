//! Indices of rows: one type per table.

use std::marker::PhantomData;

macro_rules! index {
    ($($(#[$doc:meta])* $name:ident)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// The index of the row.
            pub fn at(self) -> usize {
                self.0 as usize
            }
        }
    )+};
}
index!(
    /// Row of [`Tables::ranges`](super::tables::Tables::ranges).
    RangeId
    /// Row of [`Tables::labels`](super::tables::Tables::labels).
    LabelId
    /// Row of [`Tables::process_ranges`](super::tables::Tables::process_ranges).
    ProcessRangeId
    /// Row of [`Tables::marks`](super::tables::Tables::marks).
    MarkId
    /// Row of [`Tables::calls`](super::tables::Tables::calls).
    CallId
    /// Row of [`Tables::threads`](super::tables::Tables::threads).
    ThreadId
    /// Row of [`Tables::works`](super::tables::Tables::works).
    WorkId
    /// Row of [`Tables::call_kinds`](super::tables::Tables::call_kinds).
    CallKindId
    /// Row of [`Tables::shares`](super::tables::Tables::shares).
    ShareId
    /// Row of [`Tables::operations`](super::tables::Tables::operations).
    OperationId
);

/// An optional row, in the space of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Maybe<T> {
    row: u32,
    of: PhantomData<T>,
}

impl<T> Maybe<T> {
    /// No row.
    pub const NONE: Self = Self { row: u32::MAX, of: PhantomData };
}

macro_rules! maybe {
    ($($name:ident)+) => {$(
        impl Maybe<$name> {
            /// The row, if there is one.
            #[inline]
            pub fn get(self) -> Option<$name> {
                (self.row != u32::MAX).then_some($name(self.row))
            }
        }

        impl From<Option<$name>> for Maybe<$name> {
            #[inline]
            fn from(row: Option<$name>) -> Self {
                Self { row: row.map_or(u32::MAX, |row| row.0), of: PhantomData }
            }
        }
    )+};
}
maybe!(RangeId CallId OperationId);
