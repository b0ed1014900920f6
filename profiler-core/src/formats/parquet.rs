//! A profile as Parquet files: the tables of a capture, one folder each.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use ::parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as PhysicalType};
use ::parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use ::parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use ::parquet::schema::types::{ColumnPath, Type};
use rustc_hash::FxHashMap;

use crate::base::error::{Error, Kind};
use crate::base::replace::{Replacement, Target};
use crate::formats::nsys::schema;
use crate::formats::nsys::tables::{Cell, Rows, Tables};
use crate::formats::nsys::write::Writer;
use crate::join::tables::RangeId;
use crate::profile::Profile;

/// Which part of a data set a profile is: by nothing, by host, by rank or by both.
///
/// Profiles that are written into one folder must have labels of the same kinds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ParquetOptions {
    /// A label for the machine. The machine's own name is never asked for.
    pub host: Option<String>,
    /// The process's number among those of one job.
    pub rank: Option<u32>,
}

impl ParquetOptions {
    /// Neither host nor rank.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A label for the machine, in whatever letters but not empty. DuckDB takes one that reads as a number for a number.
    #[must_use]
    pub fn host(mut self, label: impl Into<String>) -> Self {
        self.host = Some(label.into());
        self
    }

    /// The process's number among those of one job.
    #[must_use]
    pub fn rank(mut self, rank: u32) -> Self {
        self.rank = Some(rank);
        self
    }

    /// Where in the folder of a table the files of this part are: `host=a/rank=3`, as Hive has it.
    fn part(&self) -> PathBuf {
        let mut part = PathBuf::new();
        if let Some(host) = &self.host {
            let mut name = "host=".to_owned();
            for byte in host.bytes() {
                match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => {
                        name.push(byte.into());
                    }
                    // A String takes all that is written.
                    _ => _ = write!(name, "%{byte:02X}"),
                }
            }
            part.push(name);
        }
        if let Some(rank) = self.rank {
            part.push(format!("rank={rank}"));
        }
        part
    }
}

impl Profile {
    /// Writes the profile as a data set of Parquet files, for DuckDB, Polars, Spark and what else reads those: a folder a
    /// table, and in it `host=HOST/rank=RANK/data.parquet`, which such tools know as Hive partitioning. A level that
    /// `options` do not name is left out. Many processes may write into one folder. A file is there when it is whole; one
    /// of the same part is replaced.
    ///
    /// ```sql
    /// SELECT value, count(*), sum("end" - start)
    /// FROM read_parquet('profile/CUPTI_ACTIVITY_KIND_KERNEL/**/*.parquet', hive_partitioning = true)
    /// JOIN read_parquet('profile/StringIds/**/*.parquet', hive_partitioning = true) s
    ///     USING (host, rank) -- where there are several parts: each counts its ids anew
    /// WHERE s.id = demangledName GROUP BY value
    /// ```
    ///
    /// Tables and columns are those of Nsight Systems' SQLite export, with the same names, numbers and NULLs, and all of
    /// them are there, if need be without rows. 64 bits stand as a signed number. Times are nanoseconds since the session's
    /// start, which is each process's own: `TARGET_INFO_SESSION_START_TIME` says when that was: see
    /// [`started_at`](Profile::started_at). It holds
    /// what the feature `nsys` writes too, and beyond it: the table `RANGES` (`id`, `parentId`, `path` as
    /// [`json_lines`](Profile::json_lines) has it, `domain`,
    /// `instance` among those of its path from 0, `globalTid`, `start`, and `end`, NULL if it was open), a column `rangeId`
    /// in the tables of operations, calls, synchronisations and allocations, which is the range that
    /// [`GpuOperation::range`](crate::profile::GpuOperation::range) names, and in those of operations `capturedRangeId`, the range
    /// of [`captured_in`](crate::profile::GpuOperation::captured_in).
    ///
    /// What was [sampled](Self::tracks) is in the table `SAMPLES`: a row for each value with `device`, `source`, `metric` (its
    /// name), `label`, `unit`, `kind`, `start`, `end` and `value`, totals as such and NULL where it is not known. `SAMPLERS`
    /// says how each sampled (`intervalNs`, `samples`), what it lost (`dropped`, `overflows`, `gaps`, `gapNs`), which metrics
    /// were `missing`, and its `failure`. All samples are there, at some 10 bytes each.
    ///
    /// It holds no environment, user, host name or path. Rows are held and go out in groups of 122,880, compressed by LZ4.
    /// Costs some 0.6 us and 9 bytes of file an operation with its call.
    ///
    /// # Errors
    /// The folder or a file cannot be written, or the label of the host is empty. What was replaced by then stays so.
    pub fn write_parquet(
        &self,
        folder: impl AsRef<Path>,
        options: &ParquetOptions,
    ) -> Result<(), Error> {
        let folder = folder.as_ref();
        if options.host.as_ref().is_some_and(String::is_empty) {
            let why = "the label of the host is empty: give one, or none";
            return Err(unwritable(folder, io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        let folder = Folder { path: folder.to_owned(), part: options.part(), ..Folder::default() };
        [schema::TABLES, schema::MANAGED_TABLES, schema::OVERHEAD_TABLE]
            .into_iter()
            .chain([RANGES_TABLE, SAMPLES_TABLE])
            .try_for_each(|tables| (&folder).create(tables))
            .and_then(|()| Writer::write(self, &folder, |_| ()))
            .and_then(|()| folder.finish())
    }
}

fn unwritable(path: &Path, source: io::Error) -> Error {
    Error::new(Kind::Io { what: "write", path: path.to_owned(), source: Arc::new(source) })
}

/// The tables by name.
#[derive(Default)]
struct Folder {
    path: PathBuf,
    part: PathBuf,
    tables: RefCell<FxHashMap<String, Rc<RefCell<Table>>>>,
}

impl Folder {
    /// Writes the rows of tables that nobody fills any more.
    fn write_idle(&self) -> Result<(), Error> {
        for table in self.tables.borrow().values().filter(|table| Rc::strong_count(table) == 1) {
            let mut table = table.borrow_mut();
            table.write_group().map_err(|error| unwritable(&table.path, io_error(error)))?;
        }
        Ok(())
    }

    /// Ends all files, and puts them where they are to be when all are whole.
    fn finish(self) -> Result<(), Error> {
        let mut whole = Vec::new();
        for table in self.tables.into_inner().into_values().filter_map(Rc::into_inner) {
            let table = table.into_inner();
            let path = table.path.clone();
            let file = table.finish().map_err(|error| unwritable(&path, io_error(error)))?;
            whole.push((file, path));
        }
        let commit = |(file, path): (Replacement, PathBuf)| {
            file.commit().map_err(|source| unwritable(&path, source))
        };
        whole.into_iter().try_for_each(commit)
    }
}

fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}

impl Tables for &Folder {
    type Error = Error;
    type Rows = Insert;

    const HAS_RANGES: bool = true;

    fn create(&self, tables: &str) -> Result<(), Error> {
        for (name, mut columns) in tables_of(tables) {
            if self.tables.borrow().contains_key(name) {
                continue;
            }
            let more = |name| Column { name, kind: ColumnType::Integer, is_required: false };
            if WITH_RANGE.contains(&name) {
                columns.push(more(RANGE));
            }
            if WITH_CAPTURED.contains(&name) {
                columns.push(more(CAPTURED));
            }
            let folder = self.path.join(name).join(&self.part);
            fs::create_dir_all(&folder).map_err(|source| unwritable(&folder, source))?;
            let path = folder.join("data.parquet");
            let table = Table::create(name, &columns, &path)
                .map_err(|error| unwritable(&path, io_error(error)))?;
            self.tables.borrow_mut().insert(name.to_owned(), Rc::new(RefCell::new(table)));
        }
        Ok(())
    }

    fn insert(&self, table: &str, columns: &str) -> Result<Insert, Error> {
        self.write_idle()?;
        let Some(found) = self.tables.borrow().get(table).cloned() else {
            let why = format!("there is no table {table}");
            return Err(unwritable(&self.path, io::Error::other(why)));
        };
        let at = |name: &str| found.borrow().columns.iter().position(|column| column.name == name);
        let mut places = Vec::new();
        for name in columns.split(", ") {
            places.push(at(name).ok_or_else(|| {
                let why = format!("the table {table} has no column {name}");
                unwritable(&found.borrow().path, io::Error::other(why))
            })?);
        }
        let ranges = [at(RANGE), at(CAPTURED)];
        Ok(Insert { table: found, columns: places, next: 0, ranges })
    }
}

struct Insert {
    table: Rc<RefCell<Table>>,
    /// Where in the table each column of the rows is.
    columns: Vec<usize>,
    next: usize,
    ranges: [Option<usize>; 2],
}

impl Rows for Insert {
    type Error = Error;

    #[inline]
    fn put(&mut self, cell: Cell<'_>) -> Result<(), Error> {
        let mut table = self.table.borrow_mut();
        let written = match self.columns.get(self.next) {
            Some(&column) => table.put(column, cell),
            None => Err("a row has more cells than columns".to_owned()),
        };
        self.next += 1;
        written.map_err(|why| unwritable(&table.path, io::Error::other(why)))
    }

    fn ranges(
        &mut self,
        range: Option<RangeId>,
        captured: Option<RangeId>,
    ) -> Result<&mut Self, Error> {
        let mut table = self.table.borrow_mut();
        for (column, range) in self.ranges.into_iter().zip([range, captured]) {
            if let (Some(column), Some(range)) = (column, range) {
                let written = table.put(column, Cell::from(range.0));
                written.map_err(|why| unwritable(&table.path, io::Error::other(why)))?;
            }
        }
        drop(table);
        Ok(self)
    }

    #[inline]
    fn row(&mut self) -> Result<(), Error> {
        self.next = 0;
        let mut table = self.table.borrow_mut();
        table.end_row().map_err(|error| unwritable(&table.path, io_error(error)))
    }
}

/// Rows that go out together: what DuckDB, which reads groups side by side, takes for itself.
const ROWS_A_GROUP: usize = 122_880;

/// Columns that go up, or nearly so: their differences take little room.
const RISING: [&str; 7] = ["start", "end", "correlationId", "id", "graphNodeId", RANGE, CAPTURED];

/// A file with the rows of its last group.
struct Table {
    path: PathBuf,
    file: SerializedFileWriter<Replacement>,
    columns: Vec<ColumnRows>,
    rows: usize,
}

impl Table {
    fn create(name: &str, columns: &[Column<'_>], path: &Path) -> Result<Self, ParquetError> {
        let Target::File(to) = Target::of(path)? else {
            let why = "it is a device, a pipe or a socket, and a table needs a file of its own";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why).into());
        };
        let file = Replacement::begin(to)?;
        let fields = columns.iter().map(|column| column_type(column).map(Arc::new));
        let fields = fields.collect::<Result<Vec<_>, _>>()?;
        let schema = Type::group_type_builder(name).with_fields(fields).build()?;
        let file = SerializedFileWriter::new(file, Arc::new(schema), properties())?;
        let columns = columns.iter().map(ColumnRows::new).collect();
        Ok(Self { path: path.to_owned(), file, columns, rows: 0 })
    }

    #[inline]
    fn put(&mut self, column: usize, cell: Cell<'_>) -> Result<(), String> {
        self.columns[column].put(self.rows, cell)
    }

    #[inline]
    fn end_row(&mut self) -> Result<(), ParquetError> {
        self.rows += 1;
        if self.rows == ROWS_A_GROUP { self.write_group() } else { Ok(()) }
    }

    #[cold]
    fn write_group(&mut self) -> Result<(), ParquetError> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.file.next_row_group()?;
        for column in &mut self.columns {
            if let Some(mut writer) = group.next_column()? {
                column.write(self.rows, &mut writer)?;
                writer.close()?;
            }
        }
        group.close()?;
        self.rows = 0;
        Ok(())
    }

    fn finish(mut self) -> Result<Replacement, ParquetError> {
        self.write_group()?;
        self.file.into_inner()
    }
}

fn column_type(column: &Column<'_>) -> Result<Type, ParquetError> {
    let (physical, logical) = match column.kind {
        ColumnType::Integer => (PhysicalType::INT64, None),
        ColumnType::Real => (PhysicalType::DOUBLE, None),
        ColumnType::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
    };
    let repetition = if column.is_required { Repetition::REQUIRED } else { Repetition::OPTIONAL };
    Type::primitive_type_builder(column.name, physical)
        .with_repetition(repetition)
        .with_logical_type(logical)
        .build()
}

fn properties() -> WriterPropertiesPtr {
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::LZ4_RAW)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true);
    for name in RISING {
        let column = ColumnPath::from(name);
        properties = properties
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
    }
    Arc::new(properties.build())
}

/// What stands in one column of the rows of a group.
struct ColumnRows {
    name: String,
    /// For each row 0 if it is NULL and 1 if it is not, as Parquet has it; those at the end that are missing are NULL. `None`
    /// where none may be.
    levels: Option<Vec<i16>>,
    values: Values,
}

/// Without the NULLs.
enum Values {
    Integer(Vec<i64>),
    Real(Vec<f64>),
    /// Most texts are there again and again.
    Text {
        values: Vec<ByteArray>,
        known: FxHashMap<Box<str>, ByteArray>,
    },
}

impl ColumnRows {
    fn new(column: &Column<'_>) -> Self {
        let values = match column.kind {
            ColumnType::Integer => Values::Integer(Vec::new()),
            ColumnType::Real => Values::Real(Vec::new()),
            ColumnType::Text => Values::Text { values: Vec::new(), known: FxHashMap::default() },
        };
        let levels = (!column.is_required).then(Vec::new);
        Self { name: column.name.to_owned(), levels, values }
    }

    /// Rows that were left out before this one are NULL.
    #[inline]
    fn put(&mut self, row: usize, cell: Cell<'_>) -> Result<(), String> {
        if cell == Cell::Null {
            return Ok(());
        }
        match (&mut self.values, cell) {
            (Values::Integer(values), Cell::Integer(value)) => values.push(value),
            (Values::Real(values), Cell::Real(value)) => values.push(value),
            (Values::Text { values, known }, Cell::Text(text)) => {
                let value = known.get(text).cloned().unwrap_or_else(|| {
                    let value = ByteArray::from(text.as_bytes().to_vec());
                    known.insert(text.into(), value.clone());
                    value
                });
                values.push(value);
            }
            _ => return Err(format!("the column {} takes no {cell:?}", self.name)),
        }
        if let Some(levels) = &mut self.levels {
            levels.resize(row, 0);
            levels.push(1);
        }
        Ok(())
    }

    fn write(
        &mut self,
        rows: usize,
        writer: &mut SerializedColumnWriter<'_>,
    ) -> Result<(), ParquetError> {
        fn write<T: DataType>(
            writer: &mut SerializedColumnWriter<'_>,
            values: &mut Vec<T::T>,
            levels: Option<&[i16]>,
        ) -> Result<(), ParquetError> {
            // The room is given back: these may be the last rows.
            let values = mem::take(values);
            writer.typed::<T>().write_batch(&values, levels, None).map(drop)
        }

        let length = match &self.values {
            Values::Integer(values) => values.len(),
            Values::Real(values) => values.len(),
            Values::Text { values, .. } => values.len(),
        };
        let levels = match &mut self.levels {
            Some(levels) => {
                levels.resize(rows, 0);
                Some(mem::take(levels))
            }
            None if length != rows => {
                let why = format!("the column {} has {length} values for {rows} rows", self.name);
                return Err(ParquetError::General(why));
            }
            None => None,
        };
        let levels = levels.as_deref();
        match &mut self.values {
            Values::Integer(values) => write::<Int64Type>(writer, values, levels),
            Values::Real(values) => write::<DoubleType>(writer, values, levels),
            Values::Text { values, known } => {
                known.clear();
                write::<ByteArrayType>(writer, values, levels)
            }
        }
    }
}

/// What nsys has no table for: each range, with all that is around it as its path.
const RANGES_TABLE: &str = "
CREATE TABLE RANGES (
    id INTEGER NOT NULL PRIMARY KEY, parentId INTEGER, path TEXT NOT NULL, domain TEXT, instance INTEGER NOT NULL,
    globalTid INTEGER NOT NULL, start INTEGER NOT NULL, end INTEGER
);
";

/// Every sample of every track, and what is known of the samplers.
const SAMPLES_TABLE: &str = "
CREATE TABLE SAMPLES (
    device INTEGER NOT NULL, source TEXT NOT NULL, metric TEXT NOT NULL, label TEXT NOT NULL, unit TEXT NOT NULL,
    kind TEXT NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL, value REAL
);
CREATE TABLE SAMPLERS (
    device INTEGER NOT NULL, source TEXT NOT NULL, intervalNs INTEGER NOT NULL, samples INTEGER NOT NULL,
    dropped INTEGER NOT NULL, overflows INTEGER NOT NULL, gaps INTEGER NOT NULL, gapNs INTEGER NOT NULL,
    missing TEXT, failure TEXT
);
";

/// The column for a row's range, and the one for that in which its graph node was made, both of [`RANGES_TABLE`].
const RANGE: &str = "rangeId";
const CAPTURED: &str = "capturedRangeId";

/// The tables that have them beside that one.
const WITH_RANGE: [&str; 7] = [
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
];
const WITH_CAPTURED: [&str; 3] =
    ["CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"];

/// A column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Column<'a> {
    name: &'a str,
    kind: ColumnType,
    /// True if it cannot be NULL.
    is_required: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ColumnType {
    Integer,
    Real,
    Text,
}

/// The names and the columns of tables that are given as `CREATE TABLE` statements of this crate.
fn tables_of(statements: &str) -> impl Iterator<Item = (&str, Vec<Column<'_>>)> {
    statements.split(';').filter_map(|statement| {
        let (name, columns) = statement.trim().strip_prefix("CREATE TABLE ")?.split_once('(')?;
        let columns = columns.trim().trim_end_matches(')').split(',');
        let columns = columns.filter_map(column).collect();
        Some((name.trim(), columns))
    })
}

fn column(text: &str) -> Option<Column<'_>> {
    let (name, rest) = text.trim().split_once(' ')?;
    let kind = match rest.split(' ').next()? {
        "TEXT" => ColumnType::Text,
        "REAL" => ColumnType::Real,
        _ => ColumnType::Integer,
    };
    Some(Column { name, kind, is_required: rest.contains("NOT NULL") })
}
