//! An SQLite file as tables of which any table, column or cell may be missing or odd.

use std::borrow::Cow;
use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row};
use rustc_hash::FxHashMap;

use crate::error::{Error, Kind};

/// A capture that is open for reading.
pub(super) struct File {
    connection: Connection,
    path: PathBuf,
    /// The columns of each table.
    tables: FxHashMap<String, Vec<String>>,
    /// Cells of another type or beyond the range of their column.
    odd_cells: Cell<u64>,
}

/// The tables of which every capture has one.
const OF_A_CAPTURE: [&str; 3] = ["META_DATA_EXPORT", "EXPORT_META_DATA", "NVTX_EVENTS"];

impl File {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        // SQLite would not say why.
        std::fs::File::open(path).map_err(|source| io_error("open", path, source))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(path, flags).map_err(|error| unreadable(path, &error))?;
        let mut file = Self {
            connection,
            path: path.to_owned(),
            tables: FxHashMap::default(),
            odd_cells: Cell::new(0),
        };
        file.tables = file.read_tables().map_err(|error| file.error(&error))?;
        let is_capture = |name: &String| {
            OF_A_CAPTURE.contains(&name.as_str()) || name.starts_with("CUPTI_ACTIVITY_KIND_")
        };
        if !file.tables.keys().any(is_capture) {
            let what = format!(
                "{} is an SQLite file without the tables of Nsight Systems: give the one that `nsys export --type \
                 sqlite` wrote",
                path.display()
            );
            return Err(Error::new(Kind::Capture { what }));
        }
        Ok(file)
    }

    /// Tables alone: what a view would compute is not of nsys.
    fn read_tables(&self) -> rusqlite::Result<FxHashMap<String, Vec<String>>> {
        self.connection.pragma_update(None, "trusted_schema", false)?;
        let mut names =
            self.connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?;
        let names: Vec<String> =
            names.query_map((), |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        let mut tables = FxHashMap::default();
        for name in names {
            let mut columns = Vec::new();
            self.connection.pragma(None, "table_info", &name, |row| {
                columns.push(row.get::<_, String>(1)?.to_ascii_lowercase());
                Ok(())
            })?;
            tables.insert(name, columns);
        }
        Ok(tables)
    }

    pub(super) fn tables(&self) -> impl Iterator<Item = &str> {
        self.tables.keys().map(String::as_str)
    }

    pub(super) fn has(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    pub(super) fn odd_cells(&self) -> u64 {
        self.odd_cells.get()
    }

    /// How many rows a table has.
    pub(super) fn count(&self, table: &str) -> Result<u64, Error> {
        if !self.has(table) {
            return Ok(0);
        }
        let count =
            self.connection.query_row(&format!("SELECT count(*) FROM \"{table}\""), (), |row| {
                row.get::<_, i64>(0)
            });
        count.map(i64::unsigned_abs).map_err(|error| self.error(&error))
    }

    /// Goes over the rows of a table that may not be there; columns that are not there are empty.
    pub(super) fn rows<const N: usize>(
        &self,
        table: &str,
        columns: [&str; N],
        mut each: impl FnMut(Cells<'_>),
    ) -> Result<(), Error> {
        let Some(present) = self.tables.get(table) else {
            return Ok(());
        };
        let of = |name: &str| {
            let is_present = name == "rowid" || present.contains(&name.to_ascii_lowercase());
            if is_present { format!("\"{name}\"") } else { "NULL".to_owned() }
        };
        let query = format!("SELECT {} FROM \"{table}\"", columns.map(of).join(", "));
        let mut go = || -> rusqlite::Result<()> {
            let mut statement = self.connection.prepare(&query)?;
            let mut rows = statement.query(())?;
            while let Some(row) = rows.next()? {
                each(Cells { row, odd: &self.odd_cells });
            }
            Ok(())
        };
        go().map_err(|error| self.error(&error))
    }

    fn error(&self, error: &rusqlite::Error) -> Error {
        unreadable(&self.path, error)
    }
}

pub(super) fn io_error(what: &'static str, path: &Path, source: io::Error) -> Error {
    Error::new(Kind::Io { what, path: path.to_owned(), source: Arc::new(source) })
}

fn unreadable(path: &Path, error: &rusqlite::Error) -> Error {
    let path = path.display();
    let what = match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => format!(
            "{path} is not an SQLite file: export the capture with `nsys export --type sqlite` and give that file"
        ),
        Some(ErrorCode::DatabaseCorrupt) => {
            format!("{path} is damaged or cut short ({error}): export the capture again")
        }
        _ => format!("{path} could not be read as a capture of Nsight Systems: {error}"),
    };
    Error::new(Kind::Capture { what })
}

/// One row.
#[derive(Clone, Copy)]
pub(super) struct Cells<'a> {
    row: &'a Row<'a>,
    odd: &'a Cell<u64>,
}

impl<'a> Cells<'a> {
    /// `None` for what is not there, and for a number that does not fit.
    pub(super) fn number<T: TryFrom<i64>>(self, column: usize) -> Option<T> {
        match self.row.get_ref(column) {
            Ok(ValueRef::Null) => None,
            Ok(ValueRef::Integer(value)) => T::try_from(value).ok().or_else(|| self.note()),
            _ => self.note(),
        }
    }

    /// 64 bits, which SQLite holds as a signed number.
    pub(super) fn bits(self, column: usize) -> Option<u64> {
        self.number::<i64>(column).map(i64::cast_unsigned)
    }

    pub(super) fn real(self, column: usize) -> Option<f64> {
        match self.row.get_ref(column) {
            Ok(ValueRef::Null) => None,
            Ok(ValueRef::Real(value)) => Some(value),
            Ok(ValueRef::Integer(value)) => Some(value as f64),
            _ => self.note(),
        }
    }

    pub(super) fn text(self, column: usize) -> Option<Cow<'a, str>> {
        match self.row.get_ref(column) {
            Ok(ValueRef::Null) => None,
            Ok(ValueRef::Text(bytes)) => Some(String::from_utf8_lossy(bytes)),
            _ => self.note(),
        }
    }

    #[cold]
    fn note<T>(self) -> Option<T> {
        self.odd.set(self.odd.get() + 1);
        None
    }
}
