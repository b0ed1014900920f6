//! Tables that are filled row by row, whichever file they come to stand in.

use crate::join::tables::RangeId;

/// A file, or a folder of them, with the tables of a capture.
pub(crate) trait Tables {
    type Error;
    type Rows: Rows<Error = Self::Error>;

    /// True if they have room for ranges as rows refer to them, which nsys's have not.
    const HAS_RANGES: bool = false;

    /// Makes tables, given as `CREATE TABLE` statements, that are not there yet.
    fn create(&self, tables: &str) -> Result<(), Self::Error>;

    /// Rows to come with these columns, as `start, end`; the others are NULL.
    fn insert(&self, table: &str, columns: &str) -> Result<Self::Rows, Self::Error>;
}

/// Fills in one row after the other, cell by cell in the order of the columns.
pub(crate) trait Rows {
    type Error;

    fn put(&mut self, cell: Cell<'_>) -> Result<(), Self::Error>;

    /// Ends the row.
    fn row(&mut self) -> Result<(), Self::Error>;

    /// The range that the row is of, and the one in which its graph node was made, where there is room for them: after the
    /// last cell.
    #[inline]
    fn ranges(
        &mut self,
        _range: Option<RangeId>,
        _captured: Option<RangeId>,
    ) -> Result<&mut Self, Self::Error> {
        Ok(self)
    }

    #[inline]
    fn set<'c>(&mut self, value: impl Into<Cell<'c>>) -> Result<&mut Self, Self::Error> {
        self.put(value.into())?;
        Ok(self)
    }

    /// 64 bits, which tables hold as a signed number.
    #[inline]
    fn bits(&mut self, value: u64) -> Result<&mut Self, Self::Error> {
        self.set(value.cast_signed())
    }
}

/// What stands in a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Cell<'a> {
    Null,
    Integer(i64),
    Real(f64),
    Text(&'a str),
}

macro_rules! integers {
    ($($type:ty)+) => {$(
        impl From<$type> for Cell<'_> {
            #[inline]
            fn from(value: $type) -> Self {
                Self::Integer(value.into())
            }
        }
    )+};
}
integers!(u8 u16 u32 i32 i64);

impl From<f64> for Cell<'_> {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(value)
    }
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    #[inline]
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}
