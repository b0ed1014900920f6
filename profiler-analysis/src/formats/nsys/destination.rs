//! The destination of tables written row by row, independent of the file format.

use profiler_core::tables::RangeId;

/// A file or folder with the tables of a capture.
pub(crate) trait Destination {
    type Error;
    type Rows: Rows<Error = Self::Error>;

    /// True if rows have columns for ranges; nsys's tables lack these.
    const HAS_RANGES: bool = false;

    /// Creates tables, given as `CREATE TABLE` statements, unless they exist.
    fn create(&self, tables: &str) -> Result<(), Self::Error>;

    /// Starts rows with these columns, such as `start, end`; other columns are NULL.
    fn insert(&self, table: &str, columns: &str) -> Result<Self::Rows, Self::Error>;
}

/// Fills rows cell by cell in the order of the columns.
pub(crate) trait Rows {
    type Error;

    fn put(&mut self, cell: Cell<'_>) -> Result<(), Self::Error>;

    /// Ends the row.
    fn row(&mut self) -> Result<(), Self::Error>;

    /// Adds the range of the row and the range of its graph node's capture, if the table has
    /// columns for them. Must follow the last cell.
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

    /// 64 bits, stored as a signed number.
    #[inline]
    fn bits(&mut self, value: u64) -> Result<&mut Self, Self::Error> {
        self.set(value.cast_signed())
    }
}

/// The value of a cell.
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
