//! Profiles as Parquet files, read back by the crate that wrote them, and held against the profile and its SQLite file.
#![allow(clippy::unwrap_used, clippy::panic)] // the helpers are tests too

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fake_cupti::Work;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use profiler_analysis::formats::{FleetPart, ParquetOptions, compact_fleet};
use profiler_analysis::prelude::*;
use profiler_core::{Profile, Range};
use test_support::effort;
use test_support::everything::{everything, fake, record};
use test_support::folder::{Folder, files};
use test_support::graphs::graphs;
use test_support::sampled;

const RECORDING: &[u8] = include_bytes!("../../examples/recordings/quickstart-h200.gpuprof");
const KINDS: &[u8] = include_bytes!("../../tests/recordings/kinds-130001.gpuprof");

type Row = BTreeMap<String, Field>;

/// By name: what was recorded, and what is made up.
fn profiles() -> Vec<(&'static str, Profile)> {
    let read = |bytes| Profile::from_bytes(bytes).unwrap();
    let (recorded, kinds) = (read(RECORDING), read(KINDS));
    vec![
        ("recorded", recorded),
        ("kinds", kinds),
        ("everything", everything()),
        ("graphs", graphs()),
    ]
}

fn whole() -> ParquetOptions {
    ParquetOptions::new()
}

fn rows(path: &Path) -> Vec<Row> {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    reader
        .get_row_iter(None)
        .unwrap()
        .map(|row| row.unwrap().into_columns().into_iter().collect())
        .collect()
}

fn table(folder: &Folder, name: &str) -> Vec<Row> {
    rows(&folder.0.join(name).join("data.parquet"))
}

fn number(row: &Row, column: &str) -> Option<i64> {
    match &row[column] {
        Field::Null => None,
        Field::Long(value) => Some(*value),
        other => panic!("{column} is {other:?}"),
    }
}

fn text<'a>(row: &'a Row, column: &str) -> Option<&'a str> {
    match &row[column] {
        Field::Null => None,
        Field::Str(value) => Some(value),
        other => panic!("{column} is {other:?}"),
    }
}

fn ns(time: Option<Duration>) -> i64 {
    time.map_or(0, |time| time.as_nanos() as i64)
}

/// Name and path of every node around, and when it began.
fn place(range: Option<Range<'_>>) -> Option<(String, i64)> {
    range.map(|range| (range.node().path(), ns(Some(range.start()))))
}

#[test]
fn operations_and_their_ranges_match_the_profile() {
    let mut with_range = 0;
    let mut captured = 0;
    for (name, profile) in profiles() {
        let folder = Folder::new();
        profile.write_parquet(&folder.0, &whole()).unwrap();
        let strings: BTreeMap<i64, String> = table(&folder, "StringIds")
            .iter()
            .map(|row| (number(row, "id").unwrap(), text(row, "value").unwrap().to_owned()))
            .collect();
        let ranges = table(&folder, "RANGES");
        assert_eq!(ranges.len(), profile.ranges().count(), "{name}");
        for ((at, row), range) in (0..).zip(&ranges).zip(profile.ranges()) {
            assert_eq!(number(row, "id"), Some(at), "{name}");
            assert_eq!(text(row, "path"), Some(&*range.node().path()), "{name}");
            assert_eq!(text(row, "domain"), range.node().domain(), "{name}");
            assert_eq!(number(row, "start"), Some(ns(Some(range.start()))), "{name}");
            let end = (!range.is_open()).then(|| ns(Some(range.end())));
            assert_eq!(number(row, "end"), end, "{name}");
            let instance = number(row, "instance").unwrap() as usize;
            let found = range.node().ranges().nth(instance).unwrap();
            assert_eq!(place(Some(found)), place(Some(range)), "{name}");
        }
        let place_of = |row: &Row, column| {
            let range = &ranges[number(row, column)? as usize];
            Some((text(range, "path")?.to_owned(), number(range, "start")?))
        };
        let kernels = table(&folder, "CUPTI_ACTIVITY_KIND_KERNEL");
        assert_eq!(kernels.len(), profile.kernels().count(), "{name}");
        for (row, kernel) in kernels.iter().zip(profile.kernels()) {
            assert_eq!(number(row, "start"), Some(ns(kernel.start())), "{name}");
            assert_eq!(number(row, "end"), Some(ns(kernel.end())), "{name}");
            assert_eq!(strings[&number(row, "mangledName").unwrap()], kernel.name(), "{name}");
            assert_eq!(number(row, "gridX"), Some(kernel.grid()[0].into()), "{name}");
            assert_eq!(number(row, "streamId"), Some(kernel.stream().into()), "{name}");
            assert_eq!(number(row, "greenContextId"), None, "what is not known is NULL");
            assert_eq!(place_of(row, "rangeId"), place(kernel.range()), "{name}");
            assert_eq!(place_of(row, "capturedRangeId"), place(kernel.captured_in()), "{name}");
            with_range += u32::from(kernel.range().is_some());
            captured += u32::from(kernel.captured_in().is_some());
        }
        let copies = table(&folder, "CUPTI_ACTIVITY_KIND_MEMCPY");
        assert_eq!(copies.len(), profile.copies().count(), "{name}");
        for (row, copy) in copies.iter().zip(profile.copies()) {
            assert_eq!(number(row, "bytes"), Some(copy.bytes() as i64), "{name}");
            assert_eq!(place_of(row, "rangeId"), place(copy.range()), "{name}");
        }
        let calls = table(&folder, "CUPTI_ACTIVITY_KIND_RUNTIME");
        assert_eq!(calls.len(), profile.calls().count(), "{name}");
        for (row, call) in calls.iter().zip(profile.calls()) {
            assert_eq!(strings[&number(row, "nameId").unwrap()], call.name(), "{name}");
            assert_eq!(place_of(row, "rangeId"), place(call.range()), "{name}");
        }
    }
    assert!(with_range > 100 && captured > 0, "{with_range} in ranges, {captured} captured");
}

#[test]
fn samples_match_the_profile() {
    let profile = sampled::sampled();
    let folder = Folder::new();
    profile.write_parquet(&folder.0, &whole()).unwrap();
    let rows = table(&folder, "SAMPLES");
    let mut of_tracks = rows.iter();
    for track in profile.tracks() {
        for sample in track.samples() {
            let row = of_tracks.next().unwrap();
            let place = (number(row, "device"), text(row, "metric"), text(row, "label"));
            let device = i64::from(track.device());
            assert_eq!(place, (Some(device), Some(track.name()), Some(track.label())));
            assert_eq!(text(row, "source"), Some(&*track.source().to_string()));
            assert_eq!(text(row, "unit"), Some(&*track.unit().to_string()));
            let times = (number(row, "start").unwrap(), number(row, "end").unwrap());
            assert_eq!(times, (ns(Some(sample.start)), ns(Some(sample.end))));
            match &row["value"] {
                Field::Null => assert!(sample.value.is_nan()),
                Field::Double(value) => assert_eq!(*value, sample.value),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!((of_tracks.next(), rows.len()), (None, 440));
    assert_eq!(rows.iter().filter(|row| row["value"] == Field::Null).count(), 2);
    assert_eq!(text(&rows[0], "kind"), Some("mean"));
    let samplers = table(&folder, "SAMPLERS");
    let of = |column| samplers.iter().map(|row| number(row, column).unwrap()).collect::<Vec<_>>();
    assert_eq!(of("device"), [0, 0, 1, 2]);
    assert_eq!(of("intervalNs"), [1_000, 10_000, 1_000, 1_000]);
    assert_eq!(of("samples"), [100, 10, 100, 0]);
    assert_eq!(of("gapNs"), [7_000, 0, 7_000, 0]);
    assert!(text(&samplers[3], "failure").unwrap().starts_with("counters are for"));
    assert_eq!(text(&samplers[0], "failure"), None);
}

/// Every table of the SQLite file, with every column, row and cell.
#[cfg(feature = "nsys")]
#[test]
fn tables_match_the_sqlite_file() {
    use rusqlite::{Connection, types::Value};

    let mut profiles = profiles();
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/captures/train-h200.sqlite");
    profiles.push(("capture", profiler_analysis::nsys::read(capture).unwrap()));
    let (mut found, mut real) = (0, 0);
    for (name, profile) in profiles {
        let folder = Folder::new();
        profile.write_parquet(&folder.0, &whole()).unwrap();
        let path = folder.0.join("file.sqlite");
        profile.write_nsys(&path, |_, _| ()).unwrap();
        let connection = Connection::open(&path).unwrap();
        let mut tables =
            connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").unwrap();
        let tables: Vec<String> =
            tables.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        assert!(tables.len() > 20, "{tables:?}");
        for table in tables {
            let mut query = connection.prepare(&format!("SELECT * FROM {table}")).unwrap();
            let columns: Vec<String> = query.column_names().map(str::to_owned).collect();
            let path = folder.0.join(&table).join("data.parquet");
            let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
            let schema = reader.metadata().file_metadata().schema();
            let ours: Vec<&str> = schema.get_fields().iter().map(|field| field.name()).collect();
            assert_eq!(ours[..columns.len()], columns, "{name}: {table}");
            let more = &ours[columns.len()..];
            assert!(
                more.iter().all(|name| ["rangeId", "capturedRangeId"].contains(name)),
                "{more:?}"
            );
            let rows = rows(&path);
            let mut cells = query.query(()).unwrap();
            let mut at = 0;
            while let Some(row) = cells.next().unwrap() {
                for (index, column) in columns.iter().enumerate() {
                    let same = match (row.get(index).unwrap(), &rows[at][column]) {
                        (Value::Null, Field::Null) => true,
                        (Value::Integer(a), Field::Long(b)) => a == *b,
                        (Value::Real(a), Field::Double(b)) => {
                            real += 1;
                            a == *b
                        }
                        (Value::Text(a), Field::Str(b)) => a == *b,
                        _ => false,
                    };
                    assert!(same, "{name}: {table}.{column} in row {at} is {:?}", rows[at][column]);
                    found += 1;
                }
                at += 1;
            }
            assert_eq!(rows.len(), at, "{name}: {table}");
        }
    }
    assert!(found > 50_000 && real > 0, "{found} cells, {real} of them real");
}

#[test]
fn many_rows_go_out_in_groups() {
    const LAUNCHES: usize = 125_000;
    let fake = fake();
    let profile = record(&fake, || {
        for i in 0..LAUNCHES {
            let _step = (i % 1_000 == 0).then(|| nvtx::range("step"));
            fake.launch(Work::kernel(c"kernel"));
        }
    });
    let folder = Folder::new();
    profile.write_parquet(&folder.0, &whole()).unwrap();
    let path = folder.0.join("CUPTI_ACTIVITY_KIND_KERNEL/data.parquet");
    let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    let groups: Vec<i64> =
        reader.metadata().row_groups().iter().map(|group| group.num_rows()).collect();
    assert_eq!(groups, [122_880, 2_120]);
    let kernels: Vec<_> = profile.kernels().collect();
    assert_eq!(kernels.len(), LAUNCHES);
    // The first rows of each group; reading all takes seconds without optimisation.
    let most = if effort::is_thorough() { LAUNCHES } else { 2_120 };
    let (mut group_begin, mut steps) = (0, 0);
    for (group, rows) in groups.iter().enumerate() {
        let group = reader.get_row_group(group).unwrap();
        for (at, row) in (group_begin..).zip(group.get_row_iter(None).unwrap().take(most)) {
            let row: Row = row.unwrap().into_columns().into_iter().collect();
            let kernel = &kernels[at];
            assert_eq!(number(&row, "correlationId"), Some(kernel.correlation_id().into()));
            assert_eq!(number(&row, "start"), Some(ns(kernel.start())));
            let range = number(&row, "rangeId");
            assert_eq!(range.is_some(), kernel.range().is_some());
            assert_eq!(range, (at % 1_000 == 0).then_some(at as i64 / 1_000));
            steps += u32::from(range.is_some());
        }
        group_begin += *rows as usize;
    }
    assert_eq!(steps, if effort::is_thorough() { 125 } else { 3 + 2 });
}

#[test]
fn parts_stand_side_by_side() {
    let folder = Folder::new();
    let profile = Profile::from_bytes(KINDS).unwrap();
    let options = |host: &str, rank| ParquetOptions::new().host(host).rank(rank);
    profile.write_parquet(&folder.0, &options("node-7", 0)).unwrap();
    profile.write_parquet(&folder.0, &options("a b/../%é=", 1)).unwrap();
    let of = |name: &str| -> Vec<PathBuf> {
        files(&folder.0).into_iter().filter(|path| path.starts_with(name)).collect()
    };
    let expected = [
        "RANGES/host=a%20b%2F..%2F%25%C3%A9%3D/rank=1/data.parquet",
        "RANGES/host=node-7/rank=0/data.parquet",
    ];
    assert_eq!(of("RANGES"), expected.map(PathBuf::from));
    // The same tables for both, whatever their content.
    assert!(files(&folder.0).len() > 40 && files(&folder.0).len().is_multiple_of(2));

    let one = Folder::new();
    profile.write_parquet(&one.0, &ParquetOptions::new().rank(3)).unwrap();
    assert!(one.0.join("RANGES/rank=3/data.parquet").exists());

    let error = profile.write_parquet(&folder.0, &options("", 0)).unwrap_err().to_string();
    assert!(error.contains("the label of the host is empty: give one, or none"), "{error}");
}

#[test]
fn export_that_fails_leaves_no_empty_folder() {
    let folder = Folder::new();
    fs::create_dir(folder.0.join("SAMPLES")).unwrap();
    // The last table cannot be created.
    fs::write(folder.0.join("SAMPLES/host=node-7"), "a file in the way").unwrap();
    let error =
        everything().write_parquet(&folder.0, &ParquetOptions::new().host("node-7")).unwrap_err();
    assert!(error.to_string().contains("SAMPLES/host=node-7"), "{error}");
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    let new = folder.0.join("new/deep");
    fs::create_dir_all(new.join("SAMPLES/data.parquet")).unwrap();
    everything().write_parquet(&new, &whole()).unwrap_err();
    assert_eq!(fs::read_dir(&new).unwrap().count(), 1);
}

#[test]
fn the_same_part_is_replaced() {
    let folder = Folder::new();
    everything().write_parquet(&folder.0, &whole()).unwrap();
    let before = files(&folder.0);
    let profile = Profile::from_bytes(RECORDING).unwrap();
    profile.write_parquet(&folder.0, &whole()).unwrap();
    assert_eq!(files(&folder.0), before);
    let kernels = table(&folder, "CUPTI_ACTIVITY_KIND_KERNEL").len();
    assert_eq!(kernels, profile.kernels().count());
}

#[test]
fn replaced_file_keeps_permissions_and_link() {
    let folder = Folder::new();
    everything().write_parquet(&folder.0, &whole()).unwrap();
    let ranges = folder.0.join("RANGES/data.parquet");
    let elsewhere = folder.0.join("elsewhere");
    fs::rename(&ranges, &elsewhere).unwrap();
    symlink(&elsewhere, &ranges).unwrap();
    fs::set_permissions(&elsewhere, Permissions::from_mode(0o640)).unwrap();
    let before = files(&folder.0);
    let profile = Profile::from_bytes(RECORDING).unwrap();
    profile.write_parquet(&folder.0, &whole()).unwrap();
    assert_eq!(files(&folder.0), before);
    assert_eq!(fs::read_link(&ranges).unwrap(), elsewhere);
    assert_eq!(fs::metadata(&elsewhere).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(rows(&elsewhere).len(), profile.ranges().count());
}

/// A part is replaced as a whole: an error before the last table is whole leaves all as they were.
#[test]
fn error_during_an_export_leaves_all_files_unchanged() {
    let folder = Folder::new();
    everything().write_parquet(&folder.0, &whole()).unwrap();
    let contents = || {
        let files = files(&folder.0).into_iter();
        files.map(|file| (fs::read(folder.0.join(&file)).unwrap(), file)).collect::<Vec<_>>()
    };
    let pipe = folder.0.join("SAMPLERS/data.parquet");
    fs::remove_file(&pipe).unwrap();
    let before = contents();
    symlink("/dev/null", &pipe).unwrap();
    let profile = Profile::from_bytes(RECORDING).unwrap();
    let error = profile.write_parquet(&folder.0, &whole()).unwrap_err().to_string();
    assert!(error.contains("SAMPLERS/data.parquet: it is a device"), "{error}");
    fs::remove_file(&pipe).unwrap();
    assert_eq!(contents(), before);
}

#[test]
fn unwritable_export_is_an_error_without_files() {
    let profile = Profile::from_bytes(KINDS).unwrap();
    let folder = Folder::new();
    let file = folder.0.join("file");
    fs::write(&file, "something else").unwrap();
    let error = profile.write_parquet(&file, &whole()).unwrap_err().to_string();
    assert!(error.contains("could not write") && error.contains("file/StringIds"), "{error}");
    // A folder stands where a file is to be.
    let there = folder.0.join("set/RANGES/data.parquet/within");
    fs::create_dir_all(&there).unwrap();
    let error = profile.write_parquet(folder.0.join("set"), &whole()).unwrap_err().to_string();
    assert!(error.contains("RANGES/data.parquet"), "{error}");
    let partial = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "partial");
    assert_eq!(files(&folder.0).iter().filter(|path| partial(path)).count(), 0);
}

#[test]
fn nothing_of_the_machine_is_written() {
    let folder = Folder::new();
    everything().write_parquet(&folder.0, &whole()).unwrap();
    let machine = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut names = vec![env!("CARGO_MANIFEST_DIR").to_owned(), machine.trim().to_owned()];
    names.extend(std::env::var("HOME").ok());
    names.retain(|name| name.len() > 4);
    for file in files(&folder.0) {
        for row in rows(&folder.0.join(&file)) {
            for (column, field) in &row {
                let Field::Str(text) = field else { continue };
                let has = names.iter().find(|name| text.contains(*name));
                assert_eq!(has, None, "{}: {column} is {text}", file.display());
            }
        }
    }
}

/// In release, for the figures: `cargo test --release -p profiler-core --features parquet --test parquet -- --ignored
/// --nocapture`.
#[test]
#[ignore = "a measurement"]
fn a_million_operations_are_written_in_three_seconds() {
    for launches in [100_000, 1_000_000_u32] {
        let fake = fake();
        let profile = record(&fake, || {
            for step in 0..launches / 10 {
                let _step = nvtx::range("step");
                for i in 0..10 {
                    fake.launch(match (step + i) % 7 {
                        0 => Work::host_to_device(4096 + u64::from(i)).taking_ns(700),
                        1..=3 => Work::kernel(c"_Z7forwardPfi").taking_ns(3_000 + u64::from(i)),
                        _ => Work::kernel(c"_Z8backwardPfi").taking_ns(4_000).on_stream(9),
                    });
                }
            }
        });
        let folder = Folder::new();
        let start = std::time::Instant::now();
        profile.write_parquet(&folder.0, &whole()).unwrap();
        let written = start.elapsed();
        let bytes: u64 = files(&folder.0)
            .iter()
            .map(|file| fs::metadata(folder.0.join(file)).unwrap().len())
            .sum();
        println!(
            "{launches} operations with their calls in {} ranges: {:.1} MB in {written:?}",
            launches / 10,
            bytes as f64 / 1e6
        );
        assert_eq!(profile.totals().kernels + profile.totals().copies, u64::from(launches));
        assert!(written.as_secs() < 3);
    }
}

fn fleet_rows(folder: &Folder, table: &str) -> Vec<String> {
    let paths = files(&folder.0.join(table));
    let tables = paths.iter().map(|path| rows(&folder.0.join(table).join(path)));
    let mut rows: Vec<String> = tables.flatten().map(|row| format!("{row:?}")).collect();
    rows.sort();
    rows
}

const FLEET_TABLES: [&str; 3] = ["operations", "ranges", "recordings"];

#[test]
fn compacted_fleet_has_the_same_rows_in_fewer_files() {
    let (folder, part) = (Folder::new(), FleetPart::new("a/../b=\n", "..", 3));
    let profiles: Vec<Profile> = (0..4).map(|_| everything()).collect();
    let add = |profile: &Profile| profile.add_to_fleet(&folder.0, &part).unwrap();
    profiles[..3].iter().for_each(add);
    let all = || FLEET_TABLES.map(|table| fleet_rows(&folder, table));
    let count = || FLEET_TABLES.map(|table| files(&folder.0.join(table)).len());
    let (before, names) = (all(), files(&folder.0));
    let operations: u64 = profiles[..3].iter().map(|p| p.totals().gpu_operations()).sum();
    assert_eq!((before[0].len(), before[2].len()), (operations as usize, 3));
    assert_eq!(before[1].len(), profiles[..3].iter().map(|p| p.ranges().count()).sum::<usize>());
    // The labels name folders and no others.
    let partition = "job=a%2F..%2Fb%3D%0A/date=";
    assert!(names.iter().all(|name| name.to_str().unwrap().contains(partition)), "{names:?}");

    let kept: Vec<(PathBuf, Vec<u8>)> =
        names.iter().map(|name| (name.clone(), fs::read(folder.0.join(name)).unwrap())).collect();
    assert_eq!(compact_fleet(&folder.0).unwrap(), 9);
    assert_eq!((all(), count()), (before.clone(), [1; 3]));
    assert_eq!(compact_fleet(&folder.0).unwrap(), 0);
    // What is joined is not added twice.
    add(&profiles[0]);
    assert_eq!(count(), [1; 3]);
    // An interruption left the old files.
    kept.iter().for_each(|(name, bytes)| fs::write(folder.0.join(name), bytes).unwrap());
    assert_eq!(compact_fleet(&folder.0).unwrap(), 0);
    assert_eq!((all(), count()), (before, [1; 3]));
    // Joined files are joined with new ones.
    add(&profiles[3]);
    assert_eq!((compact_fleet(&folder.0).unwrap(), count()), (6, [1; 3]));
    assert_eq!(all()[2].len(), 4);
}

#[test]
fn fleet_refuses_empty_labels_and_leaves_nothing() {
    let folder = Folder::new();
    for part in [FleetPart::new("", "host", 0), FleetPart::new("job", "", 0)] {
        let error = everything().add_to_fleet(&folder.0, &part).unwrap_err();
        assert!(error.to_string().contains("empty"), "{error}");
    }
    assert!(files(&folder.0).is_empty());
    assert_eq!(compact_fleet(folder.0.join("nowhere")).unwrap(), 0);
}

/// Half a million operations of a training: steps of ten layers, with copies and collectives.
fn training() -> Profile {
    let fake = fake();
    let kernels = [c"gemm", c"relu", c"softmax", c"layer_norm", c"attention", c"dropout", c"adam"];
    record(&fake, || {
        for step in 0..500_u64 {
            let _step = nvtx::range("step");
            for layer in 0..10_u64 {
                let _layer = nvtx::range("layer");
                for at in 0..100_u64 {
                    let ns = 2_000 + (step * 7_919 + at * 104_729) % 20_000;
                    fake.launch(match at {
                        0 => Work::host_to_device(4_096 + at).taking_ns(700),
                        99 => Work::kernel(c"ncclDevKernel_AllReduce").taking_ns(ns),
                        at => Work::kernel(kernels[(layer + at) as usize % 7]).taking_ns(ns),
                    });
                }
            }
        }
    })
}

/// In release, for the figures; `FLEET` names the folder, which stays:
/// `FLEET=FOLDER cargo test --release -p profiler-core --features parquet --test parquet -- fleet_of_64 --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn fleet_of_64_ranks_with_a_million_operations_each() {
    let fleet = PathBuf::from(std::env::var_os("FLEET").unwrap());
    let bytes = || -> u64 {
        let size = |file: &PathBuf| fs::metadata(fleet.join(file)).unwrap().len();
        files(&fleet).iter().map(size).sum()
    };
    let profiles = [training(), training()];
    let start = std::time::Instant::now();
    for rank in 0..64 {
        for profile in &profiles {
            let part = FleetPart::new("train", format!("node-{}", rank / 8), rank);
            profile.add_to_fleet(&fleet, &part).unwrap();
        }
    }
    println!("written in {:?}: {} files, {} bytes", start.elapsed(), files(&fleet).len(), bytes());
    let start = std::time::Instant::now();
    assert_eq!(compact_fleet(&fleet).unwrap(), 3 * 128);
    println!(
        "compacted in {:?}: {} files, {} bytes",
        start.elapsed(),
        files(&fleet).len(),
        bytes()
    );
}
