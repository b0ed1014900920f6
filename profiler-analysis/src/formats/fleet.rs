//! Recordings of many ranks and days as one data set of Parquet files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use ::parquet::column::writer::ColumnCloseResult;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::reader::{FileReader as _, SerializedFileReader};
use ::parquet::file::writer::SerializedFileWriter;
use profiler_base::replace::{NewFolders, Replacement};
use profiler_base::text::percent_encoded;
use profiler_base::units::nanoseconds;
use rustc_hash::FxHashMap;

use super::parquet::{Column, Table, properties, schema_of, tables_of, unwritable};
use super::{epoch_ns, places};
use crate::error::Error;
use crate::formats::nsys::destination::Cell;
use profiler_core::profile::{Profile, Range};

/// The version of the tables. Later versions add columns that may be NULL, and change none.
const SCHEMA: i64 = 1;

/// The tables. Readers of a recording's other rows join its row in `recordings`, which is written
/// last.
const TABLES: &str = "
CREATE TABLE operations (
    recording TEXT NOT NULL, process INTEGER NOT NULL, device INTEGER NOT NULL, stream INTEGER NOT NULL,
    kind TEXT NOT NULL, name TEXT NOT NULL, path TEXT, start INTEGER, gpu_ns INTEGER NOT NULL, bytes INTEGER NOT NULL
);
CREATE TABLE ranges (
    recording TEXT NOT NULL, process INTEGER NOT NULL, thread INTEGER NOT NULL, path TEXT NOT NULL, domain TEXT,
    start INTEGER NOT NULL, host_ns INTEGER NOT NULL, is_open INTEGER NOT NULL
);
CREATE TABLE recordings (
    recording TEXT NOT NULL, schema_version INTEGER NOT NULL, job_name TEXT NOT NULL, day TEXT NOT NULL,
    host_name TEXT NOT NULL, rank_number INTEGER NOT NULL, start INTEGER NOT NULL, duration_ns INTEGER NOT NULL,
    is_complete INTEGER NOT NULL, missing TEXT, operations INTEGER NOT NULL, gpu_ns INTEGER NOT NULL,
    bytes INTEGER NOT NULL
);
";
const RECORDINGS: &str = "recordings";

/// The SQL views over a fleet. The same text works in DuckDB, DataFusion and Spark, where the views
/// are temporary. `docs/guide/fleet.md` shows how each engine opens the tables, and an example of
/// each view.
pub const FLEET_VIEWS: &str = include_str!("fleet.sql");

/// The position of a recording in a fleet: its job, host and rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetPart {
    job: String,
    host: String,
    rank: u32,
}

impl FleetPart {
    /// Creates a part with any non-empty labels. The machine's own name is never read.
    #[must_use]
    pub fn new(job: impl Into<String>, host: impl Into<String>, rank: u32) -> Self {
        Self { job: job.into(), host: host.into(), rank }
    }

    /// The folder of the part in a table's folder, with Hive partitioning.
    fn folder(&self, day: &str) -> PathBuf {
        let label = |label: &str| percent_encoded(label.as_bytes(), b"");
        let mut folder = PathBuf::from(format!("job={}", label(&self.job)));
        folder.push(format!("date={day}"));
        folder.push(format!("host={}", label(&self.host)));
        folder.push(format!("rank={}", self.rank));
        folder
    }
}

/// [`ProfileExt::add_to_fleet`](crate::prelude::ProfileExt::add_to_fleet).
pub(crate) fn add_to_fleet(
    profile: &Profile,
    folder: impl AsRef<Path>,
    part: &FleetPart,
) -> Result<(), Error> {
    let folder = folder.as_ref();
    if part.job.is_empty() || part.host.is_empty() {
        let why = "the label of the job or the host is empty: give both";
        return Err(unwritable(folder, io::Error::new(io::ErrorKind::InvalidInput, why)));
    }
    let start = epoch_ns(profile);
    let day = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_nanos(start));
    let day = day.to_string().chars().take(10).collect::<String>();
    let path = part.folder(&day);
    let id = fleet_id(profile, part, start);
    let joined = folder.join(RECORDINGS).join(&path);
    if joined.exists() && is_joined(&joined, &id).map_err(|error| unwritable(&joined, error))? {
        return Ok(());
    }
    let mut new = NewFolders::default();
    let mut tables: Vec<(Table, PathBuf)> = Vec::new();
    for (name, columns) in tables_of(TABLES) {
        let folder = folder.join(name).join(&path);
        new.create(&folder).map_err(|source| unwritable(&folder, source))?;
        let file = folder.join(format!("{id}.parquet"));
        let table =
            Table::create(name, &columns, &file).map_err(|error| unwritable(&file, error))?;
        tables.push((table, file));
    }
    // In the order of `TABLES`.
    if let [(operations, _), (ranges, _), (recordings, _)] = &mut tables[..] {
        let written = fleet_operations(profile, operations, &id, start)
            .and_then(|()| fleet_ranges(profile, ranges, &id, start))
            .and_then(|()| fleet_recording(profile, recordings, &id, (part, &day), start));
        written.map_err(|error| unwritable(folder, error))?;
    }
    let mut whole: Vec<(Replacement, PathBuf)> = Vec::new();
    for (table, path) in tables {
        let file = table.finish().map_err(|error| unwritable(&path, error))?;
        whole.push((file, path));
    }
    whole
        .into_iter()
        .try_for_each(|(file, path)| file.commit().map_err(|error| unwritable(&path, error)))?;
    new.keep();
    Ok(())
}

/// An id that is equal for the same recording of a part, and unique otherwise.
fn fleet_id(profile: &Profile, part: &FleetPart, start: u64) -> String {
    let labels = [part.job.as_bytes(), part.host.as_bytes(), &part.rank.to_le_bytes()];
    let mut hash = crc32fast::Hasher::new();
    labels.iter().for_each(|label| {
        hash.update(&label.len().to_le_bytes());
        hash.update(label);
    });
    let process = profile.recording_info().process_id.unwrap_or(0);
    format!("{start:x}-{process:x}-{:08x}", hash.finalize())
}

fn fleet_operations(
    profile: &Profile,
    table: &mut Table,
    id: &str,
    start: u64,
) -> Result<(), ParquetError> {
    let (mut names, mut paths) = (FxHashMap::default(), FxHashMap::default());
    for operation in profile.operations() {
        let name: &str = match operation.as_kernel() {
            Some(kernel) => names.entry(kernel.name()).or_insert_with(|| kernel.demangled_name()),
            None => places::other_name(&operation),
        };
        let path = operation.range().map(|range| {
            let node = range.node();
            &*paths.entry(node.id().at()).or_insert_with(|| node.cut_path())
        });
        let at = operation.start().map(|at| start.saturating_add(nanoseconds(at)));
        table.row(&[
            Cell::Text(id),
            Cell::from(profile.process_id(operation.process_id())),
            Cell::from(operation.device()),
            Cell::from(operation.stream()),
            Cell::Text(operation.kind().name()),
            Cell::Text(name),
            path.map_or(Cell::Null, |path| Cell::Text(path)),
            at.map_or(Cell::Null, signed),
            signed(operation.gpu_time().map_or(0, nanoseconds)),
            signed(places::bytes(&operation)),
        ])?;
    }
    Ok(())
}

fn fleet_ranges(
    profile: &Profile,
    table: &mut Table,
    id: &str,
    start: u64,
) -> Result<(), ParquetError> {
    let mut paths = FxHashMap::default();
    profile.ranges().try_for_each(|range: Range<'_>| {
        let node = range.node();
        let path = paths.entry(node.id().at()).or_insert_with(|| node.cut_path());
        table.row(&[
            Cell::Text(id),
            Cell::from(profile.process_id(range.process_id())),
            Cell::from(range.thread_id()),
            Cell::Text(path),
            node.domain().map_or(Cell::Null, Cell::Text),
            signed(start.saturating_add(nanoseconds(range.start()))),
            signed(nanoseconds(range.host_time())),
            Cell::from(u32::from(range.is_open())),
        ])
    })
}

fn fleet_recording(
    profile: &Profile,
    table: &mut Table,
    id: &str,
    (part, day): (&FleetPart, &str),
    start: u64,
) -> Result<(), ParquetError> {
    let totals = profile.totals();
    let missing = profile.health().missing_in_words();
    table.row(&[
        Cell::Text(id),
        Cell::Integer(SCHEMA),
        Cell::Text(&part.job),
        Cell::Text(day),
        Cell::Text(&part.host),
        Cell::from(part.rank),
        signed(start),
        signed(nanoseconds(profile.duration())),
        Cell::from(u32::from(profile.health().is_complete())),
        if missing.is_empty() { Cell::Null } else { Cell::Text(&missing) },
        signed(totals.gpu_operations()),
        signed(nanoseconds(totals.gpu_time())),
        signed(totals.copy_bytes.saturating_add(totals.memset_bytes)),
    ])
}

/// Converts to a signed number, since SQL has no unsigned ones.
fn signed(value: u64) -> Cell<'static> {
    Cell::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}

/// Joins the files of each partition of a fleet into one: many small files cost engines time.
/// Returns the number of joined files.
///
/// Row groups are copied unchanged, at the speed of the disk; only files with the same columns are
/// joined. A partition's new file appears when it is complete; then the old ones are removed. No
/// other process may add to or read the fleet meanwhile. After an interruption between the two
/// steps, rows are duplicated until the next call, which removes the old files.
///
/// # Errors
/// A file cannot be read or written. Earlier partitions are already joined.
pub fn compact_fleet(folder: impl AsRef<Path>) -> Result<u64, Error> {
    let mut joined = 0;
    for (name, columns) in tables_of(TABLES) {
        let mut folders = vec![folder.as_ref().join(name)];
        while let Some(folder) = folders.pop() {
            let mut files = Vec::new();
            let entries = match fs::read_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries.map_err(|source| unwritable(&folder, source))?,
            };
            for entry in entries {
                let path = entry.map_err(|source| unwritable(&folder, source))?.path();
                match path.extension() {
                    _ if path.is_dir() => folders.push(path),
                    Some(extension) if extension == "parquet" => files.push(path),
                    _ => {}
                }
            }
            files.sort();
            joined += compact(name, &columns, &folder, files)
                .map_err(|error| unwritable(&folder, error))?;
        }
    }
    Ok(joined)
}

/// The prefix of joined files, followed by their number in the partition.
const JOINED: &str = "joined-";

/// The key in a joined file's footer with the stems of the files in it, one per line.
const CONTENTS: &str = "gpuprof.contents";

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The stems of the files that were joined into one.
fn contents(file: &SerializedFileReader<fs::File>) -> Vec<String> {
    let values = file.metadata().file_metadata().key_value_metadata();
    let value = values.into_iter().flatten().find(|value| value.key == CONTENTS);
    let text = value.and_then(|value| value.value.as_deref()).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// True if a recording is in a joined file of its partition.
fn is_joined(folder: &Path, id: &str) -> Result<bool, ParquetError> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_joined = stem(&path).starts_with(JOINED)
            && path.extension().is_some_and(|extension| extension == "parquet");
        if is_joined {
            let file = SerializedFileReader::new(fs::File::open(&path)?)?;
            if contents(&file).iter().any(|stem| stem == id) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn compact(
    name: &str,
    columns: &[Column<'_>],
    folder: &Path,
    paths: Vec<PathBuf>,
) -> Result<u64, ParquetError> {
    let mut files = Vec::new();
    for path in paths {
        let file = fs::File::open(&path)?;
        let reader = SerializedFileReader::new(file.try_clone()?)?;
        files.push((path, file, reader));
    }
    // Files that an interrupted call left behind.
    let known: Vec<String> = files.iter().flat_map(|(_, _, reader)| contents(reader)).collect();
    for (path, _, _) in files.extract_if(.., |(path, _, _)| known.contains(&stem(path))) {
        fs::remove_file(path)?;
    }
    let schema = schema_of(name, columns)?;
    files.retain(|(_, _, reader)| reader.metadata().file_metadata().schema() == schema.as_ref());
    if files.len() < 2 {
        return Ok(0);
    }
    let number = |path: &Path| stem(path).strip_prefix(JOINED)?.parse::<u64>().ok();
    let last = files.iter().filter_map(|(path, _, _)| number(path)).max().unwrap_or(0);
    let to = folder.join(format!("{JOINED}{}.parquet", last.saturating_add(1)));
    let mut stems: Vec<String> = known;
    stems.extend(files.iter().map(|(path, _, _)| stem(path)));
    let mut writer = SerializedFileWriter::new(Replacement::begin(to)?, schema, properties())?;
    for (_, file, reader) in &files {
        for group in reader.metadata().row_groups() {
            let mut copy = writer.next_row_group()?;
            for chunk in group.columns() {
                let close = ColumnCloseResult {
                    bytes_written: chunk.compressed_size().unsigned_abs(),
                    rows_written: group.num_rows().unsigned_abs(),
                    metadata: chunk.clone(),
                    bloom_filter: None,
                    column_index: None,
                    offset_index: None,
                };
                copy.append_column(file, close)?;
            }
            copy.close()?;
        }
    }
    writer.append_key_value_metadata(KeyValue::new(CONTENTS.to_owned(), stems.join("\n")));
    writer.into_inner()?.commit()?;
    for (path, _, _) in &files {
        fs::remove_file(path)?;
    }
    Ok(files.len() as u64)
}
