//! A profile as Parquet files: one folder for each table of a capture.

use std::cell::RefCell;
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
use ::parquet::schema::types::{ColumnPath, Type, TypePtr};
use profiler_base::replace::{NewFolders, Replacement, Target};
use profiler_base::setters;
use profiler_base::text::percent_encoded;
use rustc_hash::FxHashMap;

use crate::error::Error;
use crate::formats::nsys::destination::{Cell, Destination, Rows};
use crate::formats::nsys::schema;
use crate::formats::nsys::write::Writer;
use profiler_core::profile::Profile;
use profiler_core::tables::RangeId;

/// The part of a data set that a profile forms: without labels, by host, by rank or by both.
///
/// All profiles in one folder must have the same kinds of labels.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ParquetOptions {
    /// A label for the machine. The machine's own name is never read.
    pub host: Option<String>,
    /// The process's rank in its job.
    pub rank: Option<u32>,
}

impl ParquetOptions {
    /// Creates a part without host and rank.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Sets a label for the machine: any non-empty text. DuckDB reads digits as a number.
        #[must_use]
        host(label: impl Into<String>) host = Some(label.into());
        /// Sets the process's rank in its job.
        #[must_use]
        rank(rank: u32) rank = Some(rank);
    }

    /// The path of this part in the folder of a table, with Hive partitioning: `host=a/rank=3`.
    fn part(&self) -> PathBuf {
        let mut part = PathBuf::new();
        if let Some(host) = &self.host {
            part.push(format!("host={}", percent_encoded(host.as_bytes(), b"")));
        }
        if let Some(rank) = self.rank {
            part.push(format!("rank={rank}"));
        }
        part
    }
}

/// [`ProfileExt::write_parquet`](crate::prelude::ProfileExt::write_parquet).
pub(crate) fn write_parquet(
    profile: &Profile,
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
        .and_then(|()| Writer::write(profile, &folder, |_, _| ()))
        .and_then(|()| folder.finish())?;
    folder.new.into_inner().keep();
    Ok(())
}

pub(super) fn unwritable(path: &Path, error: impl Into<ParquetError>) -> Error {
    let source = match error.into() {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    };
    Error::io("write", path, source)
}

/// The tables of a data set by name.
#[derive(Default)]
struct Folder {
    path: PathBuf,
    part: PathBuf,
    tables: RefCell<FxHashMap<String, Rc<RefCell<Table>>>>,
    /// Dropped after the files.
    new: RefCell<NewFolders>,
}

impl Folder {
    /// Completes all files, then moves all of them to their paths.
    fn finish(&self) -> Result<(), Error> {
        let mut whole = Vec::new();
        for table in self.tables.take().into_values().filter_map(Rc::into_inner) {
            let table = table.into_inner();
            let path = table.path.clone();
            let file = table.finish().map_err(|error| unwritable(&path, error))?;
            whole.push((file, path));
        }
        let commit = |(file, path): (Replacement, PathBuf)| {
            file.commit().map_err(|source| unwritable(&path, source))
        };
        whole.into_iter().try_for_each(commit)
    }
}

impl Destination for &Folder {
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
            let created = self.new.borrow_mut().create(&folder);
            created.map_err(|source| unwritable(&folder, source))?;
            let path = folder.join("data.parquet");
            let table =
                Table::create(name, &columns, &path).map_err(|error| unwritable(&path, error))?;
            self.tables.borrow_mut().insert(name.to_owned(), Rc::new(RefCell::new(table)));
        }
        Ok(())
    }

    fn insert(&self, table: &str, columns: &str) -> Result<Insert, Error> {
        // Rows of tables without an `Insert`.
        for table in self.tables.borrow().values().filter(|table| Rc::strong_count(table) == 1) {
            let mut table = table.borrow_mut();
            table.write_group().map_err(|error| unwritable(&table.path, error))?;
        }
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
    /// The index in the table of each column of the rows.
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
        table.rows += 1;
        if table.rows < ROWS_A_GROUP {
            return Ok(());
        }
        table.write_group().map_err(|error| unwritable(&table.path, error))
    }
}

/// The number of rows in a row group: DuckDB's own size, which it reads in parallel.
const ROWS_A_GROUP: usize = 122_880;

/// Sorted or nearly sorted columns, which delta encoding compresses well.
const RISING: [&str; 7] = ["start", "end", "correlationId", "id", "graphNodeId", RANGE, CAPTURED];

/// A file and the rows of its current group.
pub(super) struct Table {
    path: PathBuf,
    file: SerializedFileWriter<Replacement>,
    columns: Vec<ColumnRows>,
    rows: usize,
}

impl Table {
    pub(super) fn create(
        name: &str,
        columns: &[Column<'_>],
        path: &Path,
    ) -> Result<Self, ParquetError> {
        let Target::File(to) = Target::from_path(path)? else {
            let why = "it is a device, a pipe or a socket, and a table needs a file of its own";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why).into());
        };
        let file = Replacement::begin(to)?;
        let file = SerializedFileWriter::new(file, schema_of(name, columns)?, properties())?;
        let columns = columns.iter().map(ColumnRows::new).collect();
        Ok(Self { path: path.to_owned(), file, columns, rows: 0 })
    }

    #[inline]
    fn put(&mut self, column: usize, cell: Cell<'_>) -> Result<(), String> {
        self.columns[column].put(self.rows, cell)
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

    /// Adds a whole row.
    pub(super) fn row(&mut self, cells: &[Cell<'_>]) -> Result<(), ParquetError> {
        for (column, cell) in cells.iter().enumerate() {
            self.put(column, *cell).map_err(ParquetError::General)?;
        }
        self.rows += 1;
        if self.rows < ROWS_A_GROUP { Ok(()) } else { self.write_group() }
    }

    pub(super) fn finish(mut self) -> Result<Replacement, ParquetError> {
        self.write_group()?;
        self.file.into_inner()
    }
}

pub(super) fn schema_of(name: &str, columns: &[Column<'_>]) -> Result<TypePtr, ParquetError> {
    let fields = columns.iter().map(|column| column_type(column).map(Arc::new));
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    Type::group_type_builder(name).with_fields(fields).build().map(Arc::new)
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

pub(super) fn properties() -> WriterPropertiesPtr {
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

/// The values of one column of a row group.
struct ColumnRows {
    name: String,
    /// Parquet's definition levels: 0 for NULL, 1 for a value. Missing levels at the end are NULL.
    /// `None` for a required column.
    levels: Option<Vec<i16>>,
    values: Values,
}

/// The values without NULLs.
enum Values {
    Integer(Vec<i64>),
    Real(Vec<f64>),
    /// Texts are shared: most occur often.
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

    /// Adds a value. Rows without a value before this one are NULL.
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
            // Free the memory: these may be the last rows.
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

/// The ranges with their paths; nsys has no such table.
const RANGES_TABLE: &str = "
CREATE TABLE RANGES (
    id INTEGER NOT NULL PRIMARY KEY, parentId INTEGER, path TEXT NOT NULL, domain TEXT, instance INTEGER NOT NULL,
    globalTid INTEGER NOT NULL, start INTEGER NOT NULL, end INTEGER
);
";

/// All samples of all tracks, and the samplers.
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

/// The columns for an operation's range and for the range of its graph node's capture.
const RANGE: &str = "rangeId";
const CAPTURED: &str = "capturedRangeId";

/// The tables with these columns.
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
pub(super) struct Column<'a> {
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

/// Parses the `CREATE TABLE` statements of this crate into table names and columns.
pub(super) fn tables_of(statements: &str) -> impl Iterator<Item = (&str, Vec<Column<'_>>)> {
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
