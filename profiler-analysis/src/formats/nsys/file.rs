//! An SQLite file whose tables, columns and cells may be missing or invalid.

use std::borrow::Cow;
use std::cell::Cell;
use std::env;
use std::fs::DirBuilder;
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use profiler_base::text::percent_encoded;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row};
use rustc_hash::FxHashMap;

use crate::error::{Error, Kind};

/// A capture opened for reading.
pub(super) struct File {
    connection: Connection,
    path: PathBuf,
    /// The lower-case columns of each table.
    tables: FxHashMap<String, Vec<String>>,
    /// Cells of an unexpected type or outside the range of their column.
    pub(super) odd_cells: Cell<u64>,
    pub(super) bytes: u64,
    /// Bytes of text read from the current table.
    text_bytes: Cell<u64>,
    /// The offset added to the capture's times, which makes all of them positive.
    pub(super) zero_ns: u64,
    /// The store's time of the first event; 0 without events.
    pub(super) earliest_ns: u64,
    /// Views and virtual tables with the name of a capture's table.
    pub(super) computed_tables: u64,
}

/// The SQLite steps allowed for any file, in thousands; SQLite executes about 50 million per
/// second.
const STEPS: u64 = 64 << 10;
/// Additional steps per byte: a row takes two per byte, and some tables are read three times.
const STEPS_A_BYTE: u64 = 16;

/// The tables read whose rows have a `start`, including all CUPTI tables that are read.
pub(super) const TIMED_TABLES: [&str; 14] = [
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUPTI_ACTIVITY_KIND_OVERHEAD",
    "PROFILER_OVERHEAD",
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS",
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
    "CUDA_GRAPH_NODE_EVENTS",
    "CUDA_GRAPH_EVENTS",
    "NVTX_EVENTS",
];

/// Every capture has one of these tables.
const OF_A_CAPTURE: [&str; 3] = ["META_DATA_EXPORT", "EXPORT_META_DATA", "NVTX_EVENTS"];

impl File {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        // SQLite's error does not contain the reason.
        let header = Header::read(path).map_err(|source| Error::io("open", path, source))?;
        let bytes = header.bytes;
        let connection = connect(path, &header)?;
        let mut file = Self {
            connection,
            path: path.to_owned(),
            tables: FxHashMap::default(),
            odd_cells: Cell::new(0),
            bytes,
            text_bytes: Cell::new(0),
            zero_ns: 0,
            earliest_ns: 0,
            computed_tables: 0,
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
        file.computed_tables = file.count_computed_tables().map_err(|error| file.error(&error))?;
        let earliest = file.earliest().map_err(|error| file.error(&error))?;
        file.zero_ns = match earliest {
            // The earliest time becomes 1: 0 is no time.
            Some(earliest) if earliest <= 0 => earliest.unsigned_abs().saturating_add(1),
            _ => 0,
        };
        file.earliest_ns = earliest.and_then(|earliest| file.at(earliest)).unwrap_or(0);
        Ok(file)
    }

    /// The file with a separate connection, for another thread.
    pub(super) fn reopened(&self) -> Result<Self, Error> {
        let path = &self.path;
        let header = Header::read(path).map_err(|source| Error::io("open", path, source))?;
        let mut file = Self {
            connection: connect(path, &header)?,
            path: path.clone(),
            tables: self.tables.clone(),
            odd_cells: Cell::new(0),
            text_bytes: Cell::new(0),
            ..*self
        };
        file.limit().map_err(|error| file.error(&error))?;
        Ok(file)
    }

    /// The earliest time of all rows.
    fn earliest(&self) -> rusqlite::Result<Option<i64>> {
        let mut earliest: Option<i64> = None;
        for table in TIMED_TABLES {
            let columns = self.tables.get(table);
            let has =
                |of: &str| columns.is_some_and(|columns| columns.iter().any(|name| name == of));
            // Rows of domains and categories have meaningless times.
            let events = match table {
                "NVTX_EVENTS" if has("eventtype") => " WHERE eventType IN (34, 59, 60, 70, 71)",
                "NVTX_EVENTS" => continue,
                _ => "",
            };
            if !has("start") {
                continue;
            }
            let query = format!("SELECT min(start) FROM {table}{events}");
            let found = self.connection.query_row(&query, (), |row| {
                Ok(match row.get_ref(0)? {
                    ValueRef::Integer(time) => Some(time),
                    _ => None,
                })
            })?;
            earliest = earliest.into_iter().chain(found).min();
        }
        Ok(earliest)
    }

    /// Computed tables are not read, so their rows are missing.
    fn count_computed_tables(&self) -> rusqlite::Result<u64> {
        let mut names = self.connection.prepare(
            "SELECT name FROM sqlite_schema WHERE type = 'view' OR (type = 'table' AND rootpage = 0)",
        )?;
        let mut count = 0;
        let mut rows = names.query(())?;
        while let Some(row) = rows.next()? {
            let name: String = row.get(0)?;
            let is_of_capture = TIMED_TABLES.iter().any(|table| name.eq_ignore_ascii_case(table))
                || name.eq_ignore_ascii_case("StringIds");
            count += u64::from(is_of_capture);
        }
        Ok(count)
    }

    /// The store's time at the start of the capture: its time 0, or an earlier first event.
    pub(super) fn first_ns(&self) -> u64 {
        u64::from(self.zero_ns != 0)
    }

    /// Converts a time of the capture; `None` before [`first_ns`](Self::first_ns).
    pub(super) fn at(&self, ns: i64) -> Option<u64> {
        self.zero_ns.checked_add_signed(ns)
    }

    /// Limits lengths and steps: cyclic pages and overlapping texts make a small file endless.
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

    /// Lists regular tables: nsys writes no views or virtual tables.
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

    /// The number of rows of a table.
    pub(super) fn count(&self, table: &str) -> Result<u64, Error> {
        let mut count = 0;
        // SQLite counts `count(*)` as one step, regardless of its duration.
        self.rows((table, "rowid"), |_| count += 1)?;
        Ok(count)
    }

    /// Visits the rows of a table, if it exists. Missing columns of a list are NULL.
    pub(super) fn rows(
        &self,
        (table, columns): (&str, &str),
        mut each: impl FnMut(Cells<'_>),
    ) -> Result<(), Error> {
        let Some(present) = self.tables.get(table) else {
            return Ok(());
        };
        let of = |name: &str| {
            let is_present = name == "rowid" || present.contains(&name.to_ascii_lowercase());
            if is_present { format!("\"{name}\"") } else { "NULL".to_owned() }
        };
        let columns: Vec<String> = columns.split(", ").map(of).collect();
        let table = table.replace('"', "\"\"");
        let query = format!("SELECT {} FROM \"{table}\"", columns.join(", "));
        self.text_bytes.set(0);
        let mut is_over = false;
        let mut go = || -> rusqlite::Result<()> {
            let mut statement = self.connection.prepare(&query)?;
            let mut rows = statement.query(())?;
            while let Some(row) = rows.next()? {
                each(Cells { row, file: self });
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

/// The facts from the first bytes of an SQLite file.
struct Header {
    bytes: u64,
    /// True if a write-ahead log beside the file may contain changes.
    has_log: bool,
}

impl Header {
    /// Bytes of the header read: byte 18 is 2 for a file with a write-ahead log.
    const LENGTH: u64 = 20;

    fn read(path: &Path) -> io::Result<Self> {
        let file = std::fs::File::open(path)?;
        let bytes = file.metadata()?.len();
        let mut header = Vec::new();
        // A folder can be opened but not read; SQLite's error includes its name.
        if file.metadata()?.is_file() {
            file.take(Self::LENGTH).read_to_end(&mut header)?;
        }
        Ok(Self { bytes, has_log: header.get(18) == Some(&2) })
    }
}

/// Opens the file for reading. With a write-ahead log, SQLite writes a shared index beside the file
/// even for reading. That fails in a read-only folder, so a copy of both files is read there;
/// elsewhere SQLite leaves files behind. With an empty log the file is opened as immutable.
fn connect(path: &Path, header: &Header) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let log = with_suffix(path, "-wal");
    let log_bytes = std::fs::metadata(&log).map_or(0, |log| log.len());
    if header.has_log && log_bytes == 0 {
        let bytes = path.as_os_str().as_encoded_bytes();
        let address = format!("file:{}?immutable=1", percent_encoded(bytes, b"/"));
        let flags = flags | OpenFlags::SQLITE_OPEN_URI;
        return Connection::open_with_flags(address, flags)
            .map_err(|error| unreadable(path, &error));
    }
    let opened = |path: &Path| Connection::open_with_flags(path, flags);
    let connection = opened(path).map_err(|error| unreadable(path, &error))?;
    if !header.has_log || !is_out_of_reach(&connection) {
        return Ok(connection);
    }
    drop(connection);
    let folder = env::temp_dir();
    let failed = |error: io::Error| {
        let bytes = header.bytes.saturating_add(log_bytes);
        let what = format!(
            "{} has changes in its write-ahead log {}, which SQLite cannot read in a folder that it cannot write, and the \
             two could not be copied to {}: {error}; name a folder with room for {bytes} bytes in TMPDIR",
            path.display(),
            log.display(),
            folder.display()
        );
        Error::new(Kind::Capture { what })
    };
    let copy =
        PrivateCopy::new(&folder, [(path, header.bytes), (&log, log_bytes)]).map_err(failed)?;
    let connection = opened(&copy.database()).map_err(|error| unreadable(path, &error))?;
    // All files are open now, so the copy can be deleted.
    match is_out_of_reach(&connection) {
        true => Err(failed(io::Error::other("SQLite cannot write there either"))),
        false => Ok(connection),
    }
}

/// True if reading a write-ahead log fails because SQLite cannot write beside it.
fn is_out_of_reach(connection: &Connection) -> bool {
    let read = connection.query_row("SELECT 1 FROM sqlite_schema LIMIT 1", (), |_| Ok(()));
    read.is_err_and(|error| error.sqlite_error_code() == Some(ErrorCode::CannotOpen))
}

/// A database and its write-ahead log in a private folder, which is deleted on drop.
struct PrivateCopy(PathBuf);

/// The number of attempts to create the folder.
const FOLDERS: u32 = 1000;

impl PrivateCopy {
    /// Copies each file up to its length at the time of examination.
    fn new(within: &Path, [database, log]: [(&Path, u64); 2]) -> io::Result<Self> {
        let copy = Self::folder(within)?;
        let target = copy.database();
        for ((from, bytes), to) in [(database, target.clone()), (log, with_suffix(&target, "-wal"))]
        {
            let mut from = std::fs::File::open(from)?.take(bytes);
            io::copy(&mut from, &mut std::fs::File::create_new(to)?)?;
        }
        Ok(copy)
    }

    fn folder(within: &Path) -> io::Result<Self> {
        for number in 0..FOLDERS {
            let folder = within.join(format!("gpuprof-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Self(folder)),
            }
        }
        let why = format!("{FOLDERS} folders gpuprof-{}-* are there", std::process::id());
        Err(io::Error::new(io::ErrorKind::AlreadyExists, why))
    }

    fn database(&self) -> PathBuf {
        self.0.join("capture.sqlite")
    }
}

impl Drop for PrivateCopy {
    fn drop(&mut self) {
        // A folder that cannot be removed stays for the cleanup of temporary files.
        let _: io::Result<()> = std::fs::remove_dir_all(&self.0);
    }
}

/// The path with this suffix.
fn with_suffix(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
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
        "{} is damaged: it claims more rows or text than its size allows; export the capture again",
        path.display()
    )
}

/// One row.
#[derive(Clone, Copy)]
pub(super) struct Cells<'a> {
    row: &'a Row<'a>,
    file: &'a File,
}

impl<'a> Cells<'a> {
    /// A number; `None` if missing or out of range.
    pub(super) fn number<T: TryFrom<i64>>(self, column: usize) -> Option<T> {
        match self.row.get_ref(column) {
            Ok(ValueRef::Null) => None,
            Ok(ValueRef::Integer(value)) => T::try_from(value).ok().or_else(|| self.note()),
            _ => self.note(),
        }
    }

    /// A time in the store's time; see [`File::zero_ns`].
    pub(super) fn time(self, column: usize) -> Option<u64> {
        self.number(column).and_then(|ns| self.file.at(ns))
    }

    /// 64 bits, stored as a signed number.
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
                let read = &self.file.text_bytes;
                read.set(read.get().saturating_add(bytes.len() as u64));
                Some(String::from_utf8_lossy(bytes))
            }
            _ => self.note(),
        }
    }

    #[cold]
    fn note<T>(self) -> Option<T> {
        self.file.odd_cells.set(self.file.odd_cells.get() + 1);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_private_bounded_and_goes_away() {
        use std::os::unix::fs::PermissionsExt as _;
        let within = PrivateCopy::folder(&env::temp_dir()).unwrap();
        let [database, log, missing] =
            ["database", "log", "missing"].map(|name| within.0.join(name));
        std::fs::write(&database, "database that grew").unwrap();
        std::fs::write(&log, "log").unwrap();
        let copy = PrivateCopy::new(&within.0, [(&database, 8), (&log, 3)]).unwrap();
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
        assert_eq!(read(copy.database()), "database");
        assert_eq!(read(with_suffix(&copy.database(), "-wal")), "log");
        assert_eq!(std::fs::metadata(&copy.0).unwrap().permissions().mode() & 0o777, 0o700);
        let other = PrivateCopy::folder(&within.0).unwrap();
        assert_ne!(other.0, copy.0);
        drop([copy, other]);
        // Neither does an error in the middle leave anything.
        assert!(PrivateCopy::new(&within.0, [(&database, 8), (&missing, 3)]).is_err());
        assert!(PrivateCopy::new(&missing, [(&database, 8), (&log, 3)]).is_err());
        assert_eq!(std::fs::read_dir(&within.0).unwrap().count(), 2);
    }
}
