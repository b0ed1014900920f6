//! The tables of a capture in SQLite.

use std::io;
use std::path::Path;

use profiler_base::replace::{Replacement, Target};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, Statement, ToSql};

use super::destination::{Cell, Destination, Rows};
use super::write::Writer;
use crate::error::{Error, Kind};
use profiler_core::profile::Profile;

/// Writes a replacement beside the path, and moves it to the path when complete.
pub(super) fn write(
    profile: &Profile,
    path: &Path,
    progress: impl FnMut(u64, u64),
) -> Result<(), Error> {
    let failed = |source| Error::io("write", path, source);
    let to = match Target::from_path(path).map_err(failed)? {
        Target::File(to) => to,
        Target::Stream(_) => {
            let why = "it is a device, a pipe or a socket, and a capture needs a file of its own";
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
    };
    // SQLite's error does not contain the reason, and SQLite would continue with an existing file.
    let new = Replacement::begin(to).map_err(failed)?;
    write_file(profile, new.path(), progress).map_err(|error| unwritable(path, &error))?;
    new.commit().map_err(failed)
}

fn unwritable(path: &Path, error: &rusqlite::Error) -> Error {
    let what = format!("could not write the capture {}: {error}", path.display());
    Error::new(Kind::Capture { what })
}

fn write_file(
    profile: &Profile,
    path: &Path,
    progress: impl FnMut(u64, u64),
) -> rusqlite::Result<()> {
    let connection = Connection::open(path)?;
    write_tables(profile, &connection, progress)?;
    connection.close().map_err(|(_, error)| error)
}

/// Writes the tables into a new database. It is private until it is complete, so it needs no journal
/// and no syncs.
pub(super) fn write_tables(
    profile: &Profile,
    connection: &Connection,
    progress: impl FnMut(u64, u64),
) -> rusqlite::Result<()> {
    connection.execute_batch(
        "PRAGMA page_size = 8192; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
         PRAGMA locking_mode = EXCLUSIVE; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -65536; BEGIN",
    )?;
    Writer::write(profile, connection, progress)?;
    connection.execute_batch("COMMIT")
}

impl<'a> Destination for &'a Connection {
    type Error = rusqlite::Error;
    type Rows = Insert<'a>;

    fn create(&self, tables: &str) -> rusqlite::Result<()> {
        self.execute_batch(tables)
    }

    fn insert(&self, table: &str, columns: &str) -> rusqlite::Result<Insert<'a>> {
        let connection: &'a Connection = self;
        let columns: Vec<String> = columns.split(", ").map(|name| format!("\"{name}\"")).collect();
        let (columns, places) = (columns.join(", "), vec!["?"; columns.len()].join(", "));
        let query = format!("INSERT INTO {table} ({columns}) VALUES ({places})");
        Ok(Insert { statement: connection.prepare(&query)?, next: 1 })
    }
}

pub(crate) struct Insert<'a> {
    statement: Statement<'a>,
    next: usize,
}

impl Rows for Insert<'_> {
    type Error = rusqlite::Error;

    #[inline]
    fn put(&mut self, cell: Cell<'_>) -> rusqlite::Result<()> {
        self.statement.raw_bind_parameter(self.next, cell)?;
        self.next += 1;
        Ok(())
    }

    #[inline]
    fn row(&mut self) -> rusqlite::Result<()> {
        self.next = 1;
        self.statement.raw_execute().map(drop)
    }
}

impl ToSql for Cell<'_> {
    #[inline]
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match *self {
            Cell::Null => ToSqlOutput::Owned(Value::Null),
            Cell::Integer(value) => ToSqlOutput::Owned(Value::Integer(value)),
            Cell::Real(value) => ToSqlOutput::Owned(Value::Real(value)),
            Cell::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        })
    }
}
