//! Names that attack whoever reads them: escape sequences, controls of direction, line breaks, characters without width,
//! formulas, markup and overlong text, in every text field of recordings and captures, looked for in every output of the
//! program and of the library.
#![allow(clippy::unwrap_used, clippy::panic)] // the helpers are tests too

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use fake_cupti::{Fake, Work};
use profiler_analysis::Format;
use profiler_analysis::compare::Compare;
use profiler_analysis::formats::Export;
use profiler_analysis::gate::Gate;
use profiler_analysis::prelude::*;
use profiler_analysis::reports::{Rule, StatsReport};
use profiler_analysis::roofline::{Declared, Peaks};
use profiler_core::series::{Failure, FailureCause, Kind, Metric, Series, Source, Unit};
use profiler_core::{Profile, Profiler, exactly, expect};
use rusqlite::Connection;
use serde_json::Value;
use test_support::effort;
use test_support::folder::Folder;

/// Where recordings and captures are.
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests");

/// What no output may hold: sequences for terminals (7 and 8 bit), controls of direction, line breaks with a line of their own,
/// characters without width, tags, markup. Of it, `INJECTED` must never begin a line.
const ATTACK: &str = "=\u{1b}[2J\u{9b}31m\u{7}\u{7f}\u{202e}\u{2066}\u{200f}\u{61c}\u{200b}\u{2060}\u{feff}\u{ad}\u{e0041}\r\nINJECTED\t\u{2028}INJECTED\u{2029}\u{85}\u{b}x</script><img src=x>|`\"'";
/// Longer than a line of any table.
const LONG: usize = 9_000;

fn attack(field: &str) -> String {
    format!("{ATTACK}{field}")
}

fn long_attack() -> String {
    format!("{}{}", attack("long"), "y".repeat(LONG))
}

/// This test's own list: it does not ask the code that it judges.
fn is_dangerous(c: char) -> bool {
    matches!(c as u32,
        0..=0x9 | 0xb..=0x1f | 0x7f..=0x9f | 0xad | 0x61c | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xfeff
        | 0xe0000..=0xe007f)
}

/// The first such character of a text. Eight bytes of plain text at a time are passed over: outputs of megabytes are read without
/// optimisation.
fn first_dangerous(text: &str) -> Option<(usize, char)> {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    // Each byte is from 0x20 to 0x7e: the high bit of a difference tells a byte that is less.
    let is_plain = |word: u64| {
        let is_del = word ^ (0x7f * ONES);
        let below_space = word.wrapping_sub(0x20 * ONES) & !word;
        let is_zero = is_del.wrapping_sub(ONES) & !is_del;
        (word | below_space | is_zero) & HIGH == 0
    };
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    let parts = (0..).step_by(8).zip(words.iter().map(|word| u64::from_ne_bytes(*word)));
    let odd = parts.filter(|(_, word)| !is_plain(*word)).map(|(at, _)| (at, at + 8));
    let rest = (text.len() - rest.len(), text.len());
    for (from, to) in odd.chain([rest]) {
        let (from, to) = (text.floor_char_boundary(from), text.ceil_char_boundary(to));
        if let Some((at, c)) = text[from..to].char_indices().find(|(_, c)| is_dangerous(*c)) {
            return Some((from + at, c));
        }
    }
    None
}

#[test]
fn each_dangerous_character_is_found_wherever_it_stands() {
    for c in (0..=0x10_ffff).filter_map(char::from_u32).filter(|c| is_dangerous(*c)) {
        for before in 0..17 {
            let text = format!("{}é{c}plain text behind it", "~ ".repeat(9).split_at(before).0);
            assert_eq!(first_dangerous(&text), Some((before + 2, c)), "{text:?}");
        }
    }
    assert_eq!(first_dangerous("a line\nand one with é, 核 and ~\n"), None);
}

/// An output of which nobody can be deceived.
#[track_caller]
fn is_safe(what: impl Display, text: &str) {
    if let Some((at, c)) = first_dangerous(text) {
        let start = text.floor_char_boundary(at.saturating_sub(200));
        panic!("{what}: {c:?} at byte {at}, after {:?}", &text[start..at]);
    }
    let injected = text.lines().find(|line| line.trim_start().starts_with("INJECTED"));
    assert_eq!(injected, None, "{what}");
}

/// The same of what people read: no line without an end.
#[track_caller]
fn is_readable(what: impl Display, text: &str) {
    is_safe(&what, text);
    let longest = text.lines().max_by_key(|line| line.len()).unwrap_or_default();
    let (begin, len): (String, _) = (longest.chars().take(300).collect(), longest.len());
    assert!(len < 8_000, "{what}: a line of {len} bytes: {begin}");
}

// --- files ---

/// Puts an attack into every string of a JSON value, but for words that say what something is.
fn poison(value: &mut Value, long: bool) {
    const WORDS: [&str; 5] = ["source", "kind", "unit", "cause", "recorder"];
    match value {
        Value::String(text) => *text = if long { long_attack() } else { attack(text) },
        Value::Array(values) => values.iter_mut().for_each(|value| poison(value, long)),
        Value::Object(fields) => {
            let fields = fields.iter_mut().filter(|(name, _)| !WORDS.contains(&name.as_str()));
            fields.for_each(|(_, value)| poison(value, long));
        }
        _ => {}
    }
}

/// A recording of format 2, in which every text of every frame is an attack.
fn poisoned_recording(path: &Path, long: bool) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    assert_eq!(bytes[..8], *b"GPUPROF\x02", "the fixture has a format without checksums");
    let (mut out, mut rest, mut texts) = (bytes[..8].to_vec(), &bytes[8..], 0);
    while let Some((head, after)) = rest.split_at_checked(12) {
        let length = u64::from_le_bytes(head[4..].try_into().unwrap()) as usize;
        let (content, after) = after.split_at(length);
        rest = after;
        let mut poisoned = |json: &[u8]| {
            let mut value: Value = serde_json::from_slice(json).unwrap();
            let before = value.clone();
            poison(&mut value, long);
            texts += u32::from(value != before);
            serde_json::to_vec(&value).unwrap()
        };
        let content = match &head[..4] {
            b"RECS" => content.to_vec(),
            b"INFO" | b"NAME" | b"DONE" => poisoned(content),
            _ => {
                let (length, content) = content.split_at(8);
                let length = u64::from_le_bytes(length.try_into().unwrap()) as usize;
                let json = poisoned(&content[..length]);
                let mut whole = (json.len() as u64).to_le_bytes().to_vec();
                whole.extend(json);
                whole.extend(&content[length..]);
                whole
            }
        };
        out.extend(&head[..4]);
        out.extend((content.len() as u64).to_le_bytes());
        out.extend(content);
    }
    assert!(texts >= 3, "the machine, the names and the ranges have texts");
    out
}

/// A capture with an attack in every text of every table that is not part of the format. `calls` of the APIs keep their
/// names where they are to be known.
fn poisoned_capture(from: &Path, to: &Path, keeps_calls: bool, long: bool) {
    fs::copy(from, to).unwrap();
    let connection = Connection::open(to).unwrap();
    let tables: Vec<String> = {
        let mut names = connection
            .prepare(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'ENUM%'",
            )
            .unwrap();
        names.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF").unwrap();
    // Some are overlong: all of them would make outputs of gigabytes.
    let text = if long { long_attack() } else { ATTACK.to_owned() };
    let mut changed = 0;
    for table in tables {
        let mut columns = Vec::new();
        connection
            .pragma(None, "table_info", &table, |row| {
                columns.push(row.get::<_, String>(1)?);
                Ok(())
            })
            .unwrap();
        for column in columns {
            // The keys of these tables are part of the format, and so is its version.
            let is_key = table.starts_with("META_DATA") || table == "TARGET_INFO_SYSTEM_ENV";
            if is_key && column != "value" {
                continue;
            }
            let kept = match (&*table, keeps_calls) {
                ("META_DATA_EXPORT", _) => "AND name NOT LIKE '%VERSION%'",
                ("StringIds", true) => {
                    "AND id NOT IN (SELECT nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME)"
                }
                _ => "",
            };
            let update = format!(
                "UPDATE OR IGNORE \"{table}\" SET \"{column}\" = CASE rowid % 64 WHEN 1 THEN ?1 ELSE ?2 END || rowid WHERE typeof(\"{column}\") = 'text' {kept}"
            );
            changed += connection.execute(&update, [text.as_str(), ATTACK]).unwrap();
        }
    }
    assert!(changed > 100, "{changed} texts");
}

/// A program that gives everything a hostile name, sampled by a hostile sampler.
fn hostile_program() -> Profile {
    let fake = Fake::new();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    profiler.start().unwrap();
    let domain: &'static nvtx::Domain = Box::leak(Box::new(nvtx::Domain::new(leaked("domain"))));
    nvtx::mark(&attack("mark"));
    let process = domain.event(&attack("process range")).process_range();
    let thread = std::thread::Builder::new().name("t\u{1b}[2J\u{202e}".to_owned());
    let work = || {
        let _outer = nvtx::range(&attack("range"));
        let _inner = domain
            .event(leaked("inner"))
            .field(leaked("field"), leaked("value"), leaked("unit"))
            .range();
        let _long = nvtx::range(&long_attack());
        for _ in 0..3 {
            fake.launch(Work::kernel(KERNEL));
            fake.launch(Work::host_to_device(1 << 20));
            fake.launch(Work::synchronize());
        }
        fake.call_only("cuLaunchKernel", 700);
    };
    std::thread::scope(|scope| _ = thread.spawn_scoped(scope, work).unwrap().join());
    drop(process);
    let recording = profiler.stop_recording().unwrap();
    let start = recording.windows_ns()[0].0;
    let metric = Metric::new(leaked("metric"), leaked("label"), Unit::Watts, Kind::Mean);
    let mut series = Series::new(0, Source::Nvml, Duration::from_nanos(1_000), vec![metric]);
    series.push(start, start + 1_000, &[1.0]).unwrap();
    let failure = Failure::new(FailureCause::Permission, long_attack());
    let failed =
        Series::new(1, Source::Counters, Duration::from_nanos(1_000), vec![]).with_failure(failure);
    let missing = Series::new(2, Source::Counters, Duration::from_nanos(1_000), vec![])
        .with_missing(vec![attack("no")]);
    let recording = recording.with_series(series).with_series(failed).with_series(missing);
    Profile::from_recording(recording)
}

const KERNEL: &std::ffi::CStr =
    c"-\x1b[2J\xc2\x9b31m\xe2\x80\xae\xe2\x80\x8b\r\nINJECTED\tkernel|=</script>'; echo \"$(x)\"";

fn leaked(field: &str) -> &'static str {
    Box::leak(attack(field).into_boxed_str())
}

// --- what is looked at ---

/// A command of gpuprof, whether people read it, and its words; the file comes last.
const COMMANDS: [(bool, &[&str]); 57] = [
    (true, &["report"]),
    (true, &["top"]),
    (false, &["top", "--format=csv"]),
    (false, &["top", "--json", "--limit=0"]),
    (false, &["flamegraph"]),
    (false, &["report", "--format=json", "--fail-if-incomplete"]),
    (true, &["stats", "all"]),
    (false, &["stats", "all", "--format=csv"]),
    (false, &["stats", "all", "--format=json"]),
    (true, &["stats", "cuda_gpu_kern_sum:nvtx-name:base,cuda_gpu_sum:mangled"]),
    (false, &["stats", "cuda_gpu_kern_sum:nvtx-name:base", "--format=csv"]),
    (true, &["stats", "list"]),
    (true, &["analyze", "all"]),
    (false, &["analyze", "all", "--format=csv"]),
    (false, &["analyze", "all", "--format=json", "--fail-if-found"]),
    (true, &["analyze", "list"]),
    (true, &["analyze", "all", "--within=\u{1b}[2J\nINJECTED"]),
    (true, &["kernels", "--by-range"]),
    (false, &["kernels", "--by-range", "--format=csv"]),
    (false, &["kernels", "--by-range", "--format=json"]),
    (true, &["tracks", "--by-range", "--fail-if-incomplete"]),
    (false, &["tracks", "--by-range", "--format=csv"]),
    (false, &["tracks", "--by-range", "--format=json"]),
    (true, &["ranks"]),
    (false, &["ranks", "--format=csv"]),
    (false, &["ranks", "--format=json"]),
    (true, &["tensor-cores", "--fail-if-unused"]),
    (false, &["tensor-cores", "--format=csv"]),
    (false, &["tensor-cores", "--format=json"]),
    (true, &["scorecard", "--fail-on=look"]),
    (false, &["scorecard", "--format=json"]),
    (true, &["scorecard", "--format=markdown"]),
    (true, &["diagnose", "--incomplete", "--fail-above=1"]),
    (false, &["diagnose", "--incomplete", "--format=json"]),
    (true, &["diagnose", "--incomplete", "--range=*"]),
    (true, &["diagnose", "--incomplete", "--steps=*"]),
    (true, &["diagnose", "--range=\u{1b}[2J\nINJECTED"]),
    (true, &["critical-path"]),
    (true, &["gaps"]),
    (false, &["gaps", "--json"]),
    (false, &["critical-path", "--format=json"]),
    (true, &["critical-path", "--range=*", "--what-if=one-wait:*"]),
    (true, &["critical-path", "--range=\u{1b}[2J\nINJECTED"]),
    (false, &["export", "--format=kineto"]),
    (false, &["export", "--format=chrome"]),
    (false, &["export", "--format=folded"]),
    (false, &["export", "--format=json"]),
    (false, &["export", "--format=counts"]),
    (false, &["html"]),
    (true, &["roofline", "--range=*:flops=1e9,bytes=1e6,dtype=f32"]),
    (false, &["roofline", "--format=json", "--kernel=*:flops=1e9,bytes=1e6"]),
    (false, &["roofline", "--format=svg", "--range=*:flops=1e9,bytes=1e6,dtype=f32"]),
    (false, &["roofline", "--format=html", "--range=*:flops=1e9,bytes=1e6,dtype=f32"]),
    (true, &["roofline", "--device=77"]),
    (true, &["stats", "\u{1b}[2J\nINJECTED"]),
    (true, &["gate", "--update", "/dev/null/\u{1b}[2J\nINJECTED"]),
    (true, &["gate", "/dev/full"]),
];

fn gpuprof(words: &[&OsStr]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuprof"));
    let ran = command.args(words).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (ran.status.code(), text(ran.stdout), text(ran.stderr))
}

/// Calls `work` with each item, on as many threads as there are cores. A panic of one fails the test.
fn for_each_in_parallel<T: Sync>(items: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().unwrap().get() {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(item);
                }
            });
        }
    });
}

/// Everything that the program says of a file, and of two: each second command, from the first or the second, or with
/// `THOROUGH_TESTS` all.
fn look_at_the_program(turn: usize, folder: &Folder, file: &Path, other: &Path) {
    let answered = AtomicU32::new(0);
    let step = if effort::is_thorough() { 1 } else { 2 };
    let commands: Vec<_> = COMMANDS.into_iter().skip(turn % step).step_by(step).collect();
    for_each_in_parallel(&commands, |&(for_people, words)| {
        let words: Vec<&OsStr> = words.iter().map(OsStr::new).chain([file.as_os_str()]).collect();
        let (status, out, error) = gpuprof(&words);
        let what = format!("{words:?}");
        assert!(matches!(status, Some(0..=3)), "{what}: {status:?} {error}");
        answered.fetch_add(u32::from(!out.is_empty()), Ordering::Relaxed);
        is_readable(&what, &error);
        match for_people {
            true => is_readable(&what, &out),
            false => is_safe(&what, &out),
        }
        if words.iter().any(|word| word.to_string_lossy() == "--format=csv") {
            no_formula(&what, &out);
        }
    });
    let answered = answered.into_inner();
    assert!(answered as usize >= 35 / step, "{answered} commands printed something");
    for_each_in_parallel(&["table", "csv", "json", "markdown", "html"], |format| {
        let format = format!("--format={format}");
        for words in [&["diff", &format, "--by-range", "--fail-above=0"][..], &["diff", &format]] {
            let files = [file.as_os_str(), other.as_os_str()];
            let words: Vec<&OsStr> = words.iter().map(OsStr::new).chain(files).collect();
            let (status, out, error) = gpuprof(&words);
            assert!(matches!(status, Some(0 | 3)) && !out.is_empty(), "{words:?}: {error}");
            is_safe(format!("{words:?}"), &out);
            is_readable(format!("{words:?}"), &error);
            if format == "--format=csv" {
                no_formula(&format, &out);
            }
        }
    });
    // A baseline holds names too.
    let baseline = folder.0.join("baseline.json");
    let words = |more: &[&'static str], of: &'static str| {
        let words = more.iter().map(|word| (*word).into()).collect::<Vec<std::ffi::OsString>>();
        (words, of)
    };
    for (more, of) in [
        words(&["--update"], "file"),
        words(&[], "other"),
        words(&["--format=json"], "other"),
        words(&["--format=markdown"], "other"),
    ] {
        let of = if of == "file" { file } else { other };
        let mut all = vec![OsStr::new("gate")];
        all.extend(more.iter().map(|word| word.as_os_str()));
        all.extend([baseline.as_os_str(), of.as_os_str()]);
        let (status, out, error) = gpuprof(&all);
        assert!(matches!(status, Some(0 | 1 | 3)), "{all:?}: {error}");
        is_safe(format!("{all:?}"), &out);
        is_readable(format!("{all:?}"), &error);
    }
    if let Ok(text) = fs::read_to_string(&baseline) {
        is_safe("the baseline", &text);
        fs::remove_file(&baseline).unwrap();
    }
}

/// No cell that a spreadsheet would compute; negative numbers stay numbers.
#[track_caller]
fn no_formula(what: &str, csv: &str) {
    let is_number = |cell: &str| cell.parse::<f64>().is_ok();
    let mut cells = Vec::new();
    for line in csv.lines() {
        let (mut cell, mut quoted) = (String::new(), false);
        for c in line.chars() {
            match c {
                '"' => quoted = !quoted,
                ',' if !quoted => cells.push(std::mem::take(&mut cell)),
                c => cell.push(c),
            }
        }
        cells.push(cell);
    }
    for cell in &cells {
        let formula = cell.trim_start().starts_with(['=', '+', '-', '@']);
        // nsys puts two dashes before a name for each range around it, and a colon before one without a domain.
        let is_name = cell.trim_start_matches('-').starts_with(':')
            || cell.starts_with("--") && !cell.contains(['=', '+', '@', '|', '!', '(']);
        assert!(!formula || is_number(cell) || is_name, "{what}: {cell:.200?}");
    }
}

/// Everything that the library writes of two profiles; of the first one alone unless the tests are thorough.
fn look_at_the_library(folder: &Folder, profile: &Profile, other: &Profile) {
    look_at_one(folder, profile, other);
    if effort::is_thorough() {
        look_at_one(folder, other, profile);
    }
}

/// Everything that the library writes of a profile.
fn look_at_one(folder: &Folder, profile: &Profile, other: &Profile) {
    is_readable("report", &profile.to_string());
    is_readable("report with findings", &profile.report_with_findings().to_string());
    is_readable("recording info", &profile.recording_info().to_string());
    is_readable("health", &profile.health().to_string());
    is_safe("counts", &profile.counts());
    is_safe("JSON lines", &profile.json_lines());
    is_safe("page", &profile.to_html());
    for &report in StatsReport::ALL {
        let rows = profile.stats(report);
        is_readable(report, &format!("{rows}\n{}", rows.all_rows()));
        is_safe(report, &rows.csv());
        is_safe(report, &rows.json());
    }
    for &rule in Rule::ALL {
        let rows = profile.rules().get(rule);
        is_readable(rule, &rows.all_rows().to_string());
        is_safe(rule, &format!("{}{}", rows.csv(), rows.json()));
    }
    for format in Format::ALL {
        let mut bytes = Vec::new();
        profile.export(Export::new(format), &mut bytes).unwrap();
        if format.is_text() {
            is_safe(format, std::str::from_utf8(&bytes).unwrap());
        }
    }
    let query = profile.query();
    is_readable("kernels", &query.by_kernel().to_string());
    is_readable("ranges", &query.by_range().to_string());
    is_readable("gaps", &query.gaps(Duration::ZERO).to_string());
    for group in query.gaps(Duration::ZERO).by_cause().as_slice() {
        is_safe("cause", &group.key().to_string());
    }
    for group in query.by_kernel().as_slice() {
        is_safe("name of a kernel", &group.key().to_string());
    }
    for group in query.by_range().as_slice() {
        is_safe("path of a range", &group.key().to_string());
    }
    is_readable("steps", &profile.steps("*").to_string());
    profile.memory().iter().for_each(|memory| is_readable("memory", &memory.to_string()));
    is_readable("diagnosis", &profile.diagnose().to_string());
    for finding in profile.diagnose().findings() {
        is_readable("finding", &finding.to_string());
    }
    is_readable("critical path", &profile.dependencies().outlook().to_string());
    let card = profile.scorecard();
    is_readable("scorecard", &format!("{card}\n{}", card.to_markdown()));
    is_readable("classes", &profile.kernel_classes().to_string());
    is_readable("launch shapes", &profile.launch_shapes().all_rows().to_string());
    is_readable("tensor cores", &profile.tensor_cores().all_rows().to_string());
    is_readable("tracks", &profile.track_sums().all_rows().to_string());
    for series in profile.series() {
        is_readable("failure", &series.failure().map(ToString::to_string).unwrap_or_default());
    }
    if let Some(peaks) = profile.peaks(None) {
        is_readable("peaks", &peaks.to_string());
        is_safe("peaks", &peaks.to_json());
        let roofline = profile.roofline_with(&peaks, &Declared::new());
        is_readable("roofline", &roofline.to_string());
        is_safe("roofline", &format!("{}{}", roofline.to_svg(), roofline.to_html()));
    }
    let peaks = Peaks::from_json(&Peaks::new(attack("device")).to_json()).unwrap();
    is_readable("roofline", &profile.roofline(&peaks).to_string());
    is_safe("roofline", &profile.roofline(&peaks).to_html());
    for by_range in [false, true] {
        let changes = Compare::new().by_range(by_range).between(profile, other);
        is_readable("changes", &format!("{changes}\n{}", changes.all_rows()));
        is_safe("changes", &format!("{}{}", changes.to_csv(), changes.to_markdown()));
        is_safe("changes", &changes.to_html());
        for change in changes.changes() {
            is_readable("change", &change.to_string());
        }
    }
    let broken = expect(profile)
        .complete()
        .kernels(exactly(12_345))
        .kernels_named("*", exactly(12_345))
        .range("*")
        .launches(exactly(12_345))
        .range(&attack("no such range"))
        .kernels(exactly(1))
        .check()
        .unwrap_err();
    is_readable("failed budgets", &format!("{broken}\n{broken:?}"));
    for violation in broken.iter() {
        is_readable("failed budget", &violation.to_string());
    }
    // A baseline of one, judged by the other.
    let path = folder.0.join("library-baseline.json");
    let gate = |update| Gate::new(&path).update(update).build(&attack("build"));
    if gate(true).judge(std::slice::from_ref(profile)).is_ok() {
        is_safe("baseline", &fs::read_to_string(&path).unwrap());
        match gate(false).judge(std::slice::from_ref(other)) {
            Ok(verdict) => {
                is_readable("verdict", &verdict.to_string());
                is_readable("verdict", &verdict.to_markdown());
            }
            Err(error) => is_readable("verdict", &error.to_string()),
        }
        fs::remove_file(&path).unwrap();
    }
}

/// One of the two files has overlong names; the program reads that one first if `long_first`.
fn no_text_reaches_an_output_unchanged(fixture: &str, long_first: bool) {
    let folder = Folder::new();
    let files = [false, true].map(|long| {
        let path = folder.0.join(format!("{long}.gpuprof"));
        fs::write(&path, poisoned_recording(&Path::new(FIXTURES).join(fixture), long)).unwrap();
        path
    });
    let profiles = [&files[0], &files[1]].map(|file| Profile::load(file).unwrap());
    assert!(profiles[0].recording_info().devices[0].name.starts_with(ATTACK));
    assert!(profiles.iter().all(|profile| profile.kernels().next().is_some()));
    let first = usize::from(long_first);
    look_at_the_library(&folder, &profiles[first], &profiles[1 - first]);
    look_at_the_program(first, &folder, &files[first], &files[1 - first]);
}

#[test]
fn no_text_of_a_recording_with_samples_reaches_an_output_unchanged() {
    no_text_reaches_an_output_unchanged("recordings/samples-h200.gpuprof", false);
}

#[test]
fn no_text_of_a_recorded_training_reaches_an_output_unchanged() {
    no_text_reaches_an_output_unchanged("recordings/case-studies/optimizer-before.gpuprof", true);
}

#[test]
fn no_text_of_a_program_reaches_an_output_unchanged() {
    let folder = Folder::new();
    let profile = hostile_program();
    assert_eq!(profile.ranges().count(), 3);
    let path = folder.0.join("program\u{1b}[2J\u{202e}.gpuprof");
    profile.save(&path).unwrap();
    let capture = folder.0.join("program\nINJECTED.sqlite");
    profile.write_nsys(&capture, |_, _| {}).unwrap();
    let captured = profiler_analysis::nsys::read(&capture).unwrap();
    look_at_the_library(&folder, &profile, &captured);
    look_at_the_program(0, &folder, &path, &capture);
    if effort::is_thorough() {
        look_at_the_program(0, &folder, &capture, &path);
    }
}

#[test]
fn no_text_of_a_capture_reaches_an_output_unchanged() {
    let folder = Folder::new();
    let captures = Path::new(FIXTURES).join("captures");
    let names =
        [("train-h200", false, false), ("train-h200", true, true), ("family-h200", true, false)];
    let files = names.map(|(name, keeps_calls, long)| {
        let path = folder.0.join(format!("{name}-{keeps_calls}-{long}.sqlite"));
        let from = captures.join(format!("{name}.sqlite"));
        poisoned_capture(&from, &path, keeps_calls, long);
        path
    });
    for (file, other) in
        [(0, 1), (2, 0), (1, 2)].into_iter().take(if effort::is_thorough() { 3 } else { 2 })
    {
        let [profile, than] =
            [file, other].map(|n| profiler_analysis::nsys::read(&files[n]).unwrap());
        look_at_one(&folder, &profile, &than);
        // The program has nothing of its own for several processes.
        if file != 2 {
            look_at_the_program(file, &folder, &files[file], &files[other]);
        }
    }
}

/// Errors name files, and quote what stands in them.
#[test]
fn errors_are_safe_too() {
    let folder = Folder::new();
    let odd = |name: &str, content: &[u8]| {
        let path = folder.0.join(format!("{name}\u{1b}[2J\nINJECTED\u{202e}"));
        fs::write(&path, content).unwrap();
        path
    };
    let quoted = format!("{{\"{}\": 1}}", "\u{202e}\u{9b}z".repeat(50_000));
    let mut info = b"GPUPROF\x02INFO".to_vec();
    info.extend((quoted.len() as u64).to_le_bytes());
    info.extend(quoted.as_bytes());
    let mut tag = b"GPUPROF\x02".to_vec();
    tag.extend("\u{9b}2J".as_bytes());
    tag.extend([b'\n'; 16]);
    for (name, content) in [("none", &b""[..]), ("info", &info), ("tag", &tag)] {
        let path = odd(name, content);
        is_readable(name, &Profile::load(&path).unwrap_err().to_string());
        is_readable(name, &profiler_analysis::nsys::read(&path).unwrap_err().to_string());
        let (status, out, error) = gpuprof(&["report".as_ref(), path.as_ref()]);
        assert_eq!((status, out.as_str()), (Some(1), ""));
        is_readable(name, &error);
        let run = Profile::load(Path::new(FIXTURES).join("recordings/samples-h200.gpuprof"));
        let judged = Gate::new(&path).judge(&run.unwrap()).unwrap_err();
        is_readable(name, &judged.to_string());
    }
    is_readable(
        "peaks",
        &Peaks::from_json(&format!("{{\"device\": {quoted}}}")).unwrap_err().to_string(),
    );
    let name: Result<StatsReport, _> = ATTACK.parse();
    is_readable("report", &name.unwrap_err().to_string());
}
