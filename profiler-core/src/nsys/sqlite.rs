//! The tables of a capture as an SQLite file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, Statement, ToSql};

use super::Progress;
use super::file::io_error;
use super::tables::{Cell, Rows, Tables};
use super::write::Writer;
use crate::error::{Error, Kind};
use crate::profile::Profile;

/// Writes the file beside where it is to be, and puts it there when it is whole.
pub(super) fn write(
    profile: &Profile,
    path: &Path,
    progress: impl FnMut(Progress),
) -> Result<(), Error> {
    let to = destination(path).map_err(|source| io_error("write", path, source))?;
    // SQLite would not say why, and would go on with what is there.
    let partial = new_beside(&to).map_err(|source| io_error("write", path, source))?;
    let written = write_tables(profile, &partial, progress)
        .map_err(|error| unwritable(path, &error))
        .and_then(|()| fs::rename(&partial, &to).map_err(|source| io_error("write", path, source)));
    if written.is_err() {
        // It stays where even that fails; the error is the one that came first.
        let _ = fs::remove_file(&partial);
    }
    written
}

/// What may be replaced: a file, and of a link that which it leads to.
fn destination(path: &Path) -> io::Result<PathBuf> {
    let refuse = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    let to = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path.to_owned()),
        Err(error) => return Err(error),
        Ok(about) if about.is_symlink() => fs::canonicalize(path)?,
        Ok(_) => path.to_owned(),
    };
    let about = fs::metadata(&to)?;
    if about.is_dir() {
        return refuse("it is a directory: name a file in it");
    }
    if !about.is_file() {
        return refuse("it is a device, a pipe or a socket, and a capture needs a file of its own");
    }
    Ok(to)
}

/// Partial files of one process, of which many may be written at once, and that may have been left by another of the same
/// number.
const PARTIAL_FILES: u32 = 1000;

/// A new, empty file with a short name: that of the file it is for may have the greatest length.
fn new_beside(to: &Path) -> io::Result<PathBuf> {
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    for number in 0..PARTIAL_FILES {
        let partial = folder.join(format!(".nsys.{}.{number}.partial", std::process::id()));
        match fs::File::create_new(&partial) {
            Ok(_) => return Ok(partial),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        "partial files of earlier writers stand beside it: remove .nsys.*.partial",
    ))
}

fn unwritable(path: &Path, error: &rusqlite::Error) -> Error {
    let what = format!("could not write the capture {}: {error}", path.display());
    Error::new(Kind::Capture { what })
}

fn write_tables(
    profile: &Profile,
    path: &Path,
    progress: impl FnMut(Progress),
) -> rusqlite::Result<()> {
    let connection = Connection::open(path)?;
    // The file is no one's until it is whole: nothing has to be undone or to be safe before.
    connection.execute_batch(
        "PRAGMA page_size = 8192; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
         PRAGMA locking_mode = EXCLUSIVE; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -65536; BEGIN",
    )?;
    Writer::write(profile, &connection, progress)?;
    connection.execute_batch("COMMIT")?;
    connection.close().map_err(|(_, error)| error)
}

impl<'a> Tables for &'a Connection {
    type Error = rusqlite::Error;
    type Rows = Insert<'a>;

    fn create(&self, tables: &str) -> rusqlite::Result<()> {
        self.execute_batch(tables)
    }

    fn insert<const N: usize>(
        &self,
        table: &str,
        columns: [&str; N],
    ) -> rusqlite::Result<Insert<'a>> {
        let connection: &'a Connection = self;
        let columns = columns.map(|name| format!("\"{name}\"")).join(", ");
        let places = vec!["?"; N].join(", ");
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
