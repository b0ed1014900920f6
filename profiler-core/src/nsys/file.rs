//! An SQLite file as tables of which any table, column or cell may be missing or odd.

use std::borrow::Cow;
use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::limits::Limit;
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
    bytes: u64,
    /// Bytes of text in the rows of the table that is read.
    text_bytes: Cell<u64>,
}

/// Steps of SQLite's machine, in thousands, that any file may take; it takes some 50 million a second.
const STEPS: u64 = 64 << 10;
/// And further steps a byte: a row takes two for each of its bytes, and some tables are read twice.
const STEPS_A_BYTE: u64 = 16;

/// The tables of which every capture has one.
const OF_A_CAPTURE: [&str; 3] = ["META_DATA_EXPORT", "EXPORT_META_DATA", "NVTX_EVENTS"];

impl File {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        // SQLite would not say why.
        let bytes = std::fs::File::open(path)
            .and_then(|file| Ok(file.metadata()?.len()))
            .map_err(|source| io_error("open", path, source))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(path, flags).map_err(|error| unreadable(path, &error))?;
        let mut file = Self {
            connection,
            path: path.to_owned(),
            tables: FxHashMap::default(),
            odd_cells: Cell::new(0),
            bytes,
            text_bytes: Cell::new(0),
        };
        file.limit().map_err(|error| file.error(&error))?;
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

    /// Pages that lead to one page again and again, and texts that share their bytes, would make a small file endless.
    fn limit(&mut self) -> rusqlite::Result<()> {
        let length = i32::try_from(self.bytes).unwrap_or(i32::MAX).max(1 << 20);
        self.connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, length)?;
        let mut left = STEPS + self.bytes.saturating_mul(STEPS_A_BYTE) / 1000;
        let is_over = move || {
            left = left.saturating_sub(1);
            left == 0
        };
        self.connection.progress_handler(1000, Some(is_over))
    }

    /// Tables alone: what a view or a module would compute is not of nsys.
    fn read_tables(&self) -> rusqlite::Result<FxHashMap<String, Vec<String>>> {
        self.connection.pragma_update(None, "trusted_schema", false)?;
        let mut names = self
            .connection
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0")?;
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

    /// How long the file is.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn odd_cells(&self) -> u64 {
        self.odd_cells.get()
    }

    /// How many rows a table has.
    pub(super) fn count(&self, table: &str) -> Result<u64, Error> {
        let mut count = 0;
        // SQLite's own `count(*)` is one step, however long it takes.
        self.rows(table, ["rowid"], |_| count += 1)?;
        Ok(count)
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
        let table = table.replace('"', "\"\"");
        let query = format!("SELECT {} FROM \"{table}\"", columns.map(of).join(", "));
        self.text_bytes.set(0);
        let mut is_over = false;
        let mut go = || -> rusqlite::Result<()> {
            let mut statement = self.connection.prepare(&query)?;
            let mut rows = statement.query(())?;
            while let Some(row) = rows.next()? {
                each(Cells { row, odd: &self.odd_cells, text_bytes: &self.text_bytes });
                if self.text_bytes.get() > self.bytes {
                    is_over = true;
                    break;
                }
            }
            Ok(())
        };
        go().map_err(|error| self.error(&error))?;
        if is_over {
            return Err(Error::new(Kind::Capture { what: endless(&self.path) }));
        }
        Ok(())
    }

    fn error(&self, error: &rusqlite::Error) -> Error {
        unreadable(&self.path, error)
    }
}

pub(super) fn io_error(what: &'static str, path: &Path, source: io::Error) -> Error {
    Error::new(Kind::Io { what, path: path.to_owned(), source: Arc::new(source) })
}

fn unreadable(path: &Path, error: &rusqlite::Error) -> Error {
    let shown = path;
    let path = path.display();
    let what = match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => format!(
            "{path} is not an SQLite file: export the capture with `nsys export --type sqlite` and give that file"
        ),
        Some(ErrorCode::DatabaseCorrupt) => {
            format!("{path} is damaged or cut short ({error}): export the capture again")
        }
        Some(ErrorCode::OperationInterrupted) => endless(shown),
        _ => format!("{path} could not be read as a capture of Nsight Systems: {error}"),
    };
    Error::new(Kind::Capture { what })
}

fn endless(path: &Path) -> String {
    format!(
        "{} is damaged: it tells of more rows or text than it has room for; export the capture again",
        path.display()
    )
}

/// One row.
#[derive(Clone, Copy)]
pub(super) struct Cells<'a> {
    row: &'a Row<'a>,
    odd: &'a Cell<u64>,
    text_bytes: &'a Cell<u64>,
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
            Ok(ValueRef::Text(bytes)) => {
                self.text_bytes.set(self.text_bytes.get().saturating_add(bytes.len() as u64));
                Some(String::from_utf8_lossy(bytes))
            }
            _ => self.note(),
        }
    }

    #[cold]
    fn note<T>(self) -> Option<T> {
        self.odd.set(self.odd.get() + 1);
        None
    }
}
