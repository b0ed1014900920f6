//! Indices of rows: one type a table.

use std::marker::PhantomData;

macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) struct $name(pub(crate) u32);

        impl $name {
            pub(crate) fn at(self) -> usize {
                self.0 as usize
            }
        }
    };
}
index!(
    /// Row of [`Store::ranges`].
    RangeId
);
index!(
    /// Row of [`Store::labels`].
    LabelId
);
index!(
    /// Row of [`Store::process_ranges`].
    ProcessRangeId
);
index!(
    /// Row of [`Store::marks`].
    MarkId
);
index!(
    /// Row of [`Store::calls`].
    CallId
);
index!(
    /// Row of [`Store::threads`].
    ThreadId
);
index!(
    /// Row of [`Store::works`].
    WorkId
);
index!(
    /// Row of [`Store::call_kinds`].
    CallKindId
);
index!(
    /// Row of [`Store::shares`].
    ShareId
);
index!(
    /// Row of [`Store::operations`].
    OperationId
);

/// A row that may not be there, in the space of one that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Maybe<T> {
    row: u32,
    of: PhantomData<T>,
}

impl<T> Maybe<T> {
    pub(crate) const NONE: Self = Self { row: u32::MAX, of: PhantomData };
}

macro_rules! maybe {
    ($($name:ident)+) => {$(
        impl Maybe<$name> {
            #[inline]
            pub(crate) fn get(self) -> Option<$name> {
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
