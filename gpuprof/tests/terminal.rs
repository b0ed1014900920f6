//! What people see on a terminal: every command on every recording of the repository fits the width, with and without
//! colours; hostile and extreme recordings garble nothing; files open, and wrong words have a suggestion.
#![allow(clippy::unwrap_used, clippy::panic)] // the helpers are tests too

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use fake_cupti::{Fake, Work};
use profiler_core::Profiler;
use serde_json::Value;
use test_support::backwards;
use test_support::effort;
use test_support::folder;
use test_support::folder::Folder;
use test_support::own_process::of_its_own;
use test_support::program;
use test_support::screen;
use test_support::screen::{fits, stripped};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Commands for people; the file comes last.
const COMMANDS: [&[&str]; 29] = [
    &["report"],
    &["top", "--limit=0"],
    &["stats", "all"],
    &["stats", "list"],
    &["analyze", "all"],
    &["analyze", "list"],
    &["kernels", "--by-range"],
    &["tracks", "--by-range"],
    &["tensor-cores"],
    &["tensor-cores", "--limit=0"],
    &["scorecard"],
    &["ranks"],
    &["diagnose", "--incomplete"],
    &["diagnose", "--incomplete", "--range=*"],
    &["diagnose", "--incomplete", "--steps=*"],
    &["gaps"],
    &["interference"],
    &["explain", "--kernel=."],
    &["lines"],
    &["steps", "--range=*"],
    &["requests", "--range=*"],
    &["critical-path"],
    &["critical-path", "--range=*", "--what-if=one-wait:*"],
    &["critical-path", "--steps=*", "--what-if=pinned", "--what-if=host:*=inf"],
    &["gate"],
    &["roofline", "--range=*:flops=1e9,bytes=1e6,dtype=f32"],
    &["diff", "--by-range", "examples/recordings/quickstart-h200.gpuprof"],
    &["diff", "--all"],
    &["doctor"],
];

/// Commands that show no recording as text for people, and why.
const NO_TEXT: [(&str, &str); 16] = [
    ("open", "prints an address: tested below"),
    ("flamegraph", "a picture"),
    ("convert", "formats for programs"),
    ("html", "a page"),
    ("run", "the tests `processes` show its report on a terminal"),
    ("calibrate", "runs a program: the tests `processes`"),
    ("list", "live processes: the tests `processes`"),
    ("live", "a screen: the tests `processes`"),
    ("status", "live processes: the tests `processes`"),
    ("on", "live processes: the tests `processes`"),
    ("off", "live processes: the tests `processes`"),
    ("mark", "live processes: the tests `processes`"),
    ("snapshot", "live processes: the tests `processes`"),
    ("mcp", "answers to programs: the tests `processes`"),
    ("completions", "a script"),
    ("man", "the source of a page"),
];

/// The commands that the help lists.
fn listed_commands() -> BTreeSet<String> {
    let help = ran(gpuprof().arg("--help")).out;
    let commands = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let lines = commands.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: BTreeSet<String> =
        lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    assert!(names.len() > 20, "{names:?}");
    names.into_iter().filter(|name| name != "help").collect()
}

/// A new command belongs into one of the two lists.
#[test]
fn every_command_is_shown_or_has_a_reason_not_to_be() {
    let shown = COMMANDS.iter().map(|words| words[0]);
    let known: BTreeSet<String> =
        shown.chain(NO_TEXT.iter().map(|(name, _)| *name)).map(str::to_owned).collect();
    assert_eq!(known, listed_commands());
    let both = NO_TEXT.iter().find(|(name, _)| COMMANDS.iter().any(|words| words[0] == *name));
    assert_eq!(both, None);
}

#[test]
fn help_fits_the_width() {
    for width in [80, 120] {
        let names = listed_commands().into_iter().map(Some).chain([None]);
        for name in names {
            let mut command = gpuprof();
            command.args(&name).arg("--help").env("COLUMNS", width.to_string());
            let help = ran(&mut command);
            assert!(help.status == 0 && help.out.lines().count() > 5, "{name:?}: {}", help.error);
            fits(&format!("{name:?} at {width}"), &help.out, width);
        }
    }
}

fn recording() -> PathBuf {
    Path::new(ROOT).join("examples/recordings/quickstart-h200.gpuprof")
}

/// Every recording and capture of the repository.
fn recordings() -> Vec<PathBuf> {
    let is_recording = |path: &PathBuf| {
        matches!(path.extension().and_then(OsStr::to_str), Some("gpuprof" | "sqlite"))
    };
    let folders = ["examples/recordings", "profiler-core/tests", "tests/recordings"];
    let files = folders.map(|folder| Path::new(ROOT).join(folder)).into_iter();
    let files = files.flat_map(|of| folder::files(&of).into_iter().map(move |file| of.join(file)));
    files.filter(is_recording).collect()
}

struct Ran {
    status: i32,
    out: String,
    error: String,
}

fn gpuprof() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuprof"));
    for variable in
        ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "DISPLAY", "WAYLAND_DISPLAY"]
    {
        command.env_remove(variable);
    }
    command.current_dir(ROOT).stdin(Stdio::null());
    command
}

fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, error) = (text(output.stdout), text(output.stderr));
    assert!(!error.contains("panicked"), "{error}");
    Ran { status: output.status.code().unwrap(), out, error }
}

fn for_each_in_parallel<T: Sync>(items: &[T], work: impl Fn(usize, &T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().unwrap().get() {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    work(at, item);
                }
            });
        }
    });
}

/// Each command on every eighth of many files, or on every other of few, by turns at 80 and 120 columns, with and without colours.
/// With `THOROUGH_TESTS` each on each, with all four.
fn look_at(files: &[PathBuf]) {
    let (looks, shown, coloured) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let folder = Folder::new();
    let step = if effort::is_thorough() { 1 } else { [3, 8][usize::from(files.len() > 30)] };
    for_each_in_parallel(files, |at, file| {
        let baseline = folder.0.join(format!("{at}.json"));
        let update = ran(gpuprof().args(["gate", "--update"]).args([&baseline, file]));
        assert!(matches!(update.status, 0 | 1), "{}", update.error);
        for (turn, words) in COMMANDS.iter().enumerate() {
            if (at + turn) % step != 0 {
                continue;
            }
            let mut words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
            match (words[0].to_str(), words.get(1).and_then(|word| word.to_str())) {
                (Some("doctor"), _) => {}
                (Some("gate"), _) => words.extend([baseline.as_os_str(), file.as_os_str()]),
                (Some("diff"), Some("--all")) => words.extend([file.as_os_str(), file.as_os_str()]),
                _ => words.push(file.as_os_str()),
            }
            let run = |width: usize, colour: bool| {
                let mut command = gpuprof();
                command.args(["--width", &width.to_string()]).args(&words);
                command.args(["--color", if colour { "always" } else { "never" }]);
                let ran = ran(&mut command);
                let has_no_range = matches!(ran.status, 1 | 2)
                    && ["has no range", "--what-if: "].iter().any(|why| ran.error.contains(why));
                // A recording with losses, or without work, is compared with nothing.
                let is_gated = words[0] == "gate" && matches!(ran.status, 1 | 3);
                let has_none = ["no kernel matches", "has no instruction samples"];
                let has_none =
                    ran.status == 1 && has_none.iter().any(|why| ran.error.contains(why));
                assert!(
                    ran.status == 0 || has_no_range || is_gated || has_none,
                    "{words:?}: {}",
                    ran.error
                );
                let plain = stripped(&ran.out);
                fits(&format!("{words:?} at {width}"), &plain, width);
                assert_eq!(plain == ran.out, !colour || !ran.out.contains('\u{1b}'));
                looks.fetch_add(1, Ordering::Relaxed);
                coloured.fetch_add(usize::from(plain != ran.out), Ordering::Relaxed);
                shown.fetch_add(usize::from(!plain.trim().is_empty()), Ordering::Relaxed);
                plain
            };
            let width = [80, 120][at / step % 2];
            let colour = (at / step / 2 + turn / step) % 2 == 0;
            let plain = run(width, colour);
            if effort::is_thorough() {
                assert_eq!(run(width, !colour), plain, "colours change no text");
                run(200 - width, true);
            }
        }
    });
    let [looks, shown, coloured] = [looks, shown, coloured].map(AtomicUsize::into_inner);
    assert!(shown * 3 >= looks, "{shown} of {looks}");
    assert!(coloured * 8 >= looks, "{coloured} of {looks} were coloured");
}

#[test]
fn every_command_fits_the_width_on_every_recording() {
    let files = recordings();
    assert!(files.len() > 30, "{files:?}");
    look_at(&files);
}

fn save(folder: &Folder, name: &str, work: impl FnOnce(&Fake)) -> PathBuf {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let fake = Fake::new();
    let profiler = Profiler::builder().library(fake.library().unwrap()).build().unwrap();
    let ((), profile) = profiler.record(|| work(&fake)).unwrap();
    let path = folder.0.join(name);
    of_its_own(&profile).save(&path).unwrap();
    path
}

/// A static name for the fake.
fn named(name: &str) -> &'static std::ffi::CStr {
    Box::leak(std::ffi::CString::new(name).unwrap().into_boxed_c_str())
}

#[test]
fn extreme_recordings_garble_nothing() {
    let folder = Folder::new();
    let long = "x".repeat(long_name());
    let files = [
        save(&folder, "nothing.gpuprof", |_| ()),
        save(&folder, "zero.gpuprof", |fake| {
            let _range = nvtx::range("zero");
            fake.launch(Work::kernel(c"zero").taking_ns(0));
        }),
        save(&folder, "long.gpuprof", |fake| {
            for n in 0..20 {
                let _range = nvtx::range(&format!("{long}{n}"));
                fake.launch(Work::kernel(named(&format!("{long}{n}{long}"))));
            }
        }),
        save(&folder, "hostile.gpuprof", |fake| {
            let attack = "\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}31m\u{202e}<b>\r\nINJECTED 核核核\u{301}";
            for n in 0..20 {
                let _range = nvtx::range(&format!("{attack}{n}{attack}"));
                fake.launch(Work::kernel(named(&format!("{attack}{n}"))));
            }
        }),
        save(&folder, "deep.gpuprof", |fake| {
            let ranges: Vec<_> = (0..60).map(|n| nvtx::range(&format!("level {n}"))).collect();
            fake.launch(Work::kernel(c"deep"));
            // The innermost first.
            ranges.into_iter().rev().for_each(drop);
        }),
    ];
    look_at(&files);
}

/// The bytes of long names: 100 kB with `THOROUGH_TESTS`, which takes a minute without optimisation.
fn long_name() -> usize {
    if effort::is_thorough() { 100_000 } else { 10_000 }
}

/// A capture of nsys with other content.
fn capture(folder: &Folder, name: &str, change: &str) -> PathBuf {
    let path = folder.0.join(name);
    fs::copy(Path::new(ROOT).join("tests/captures/one-h200.sqlite"), &path).unwrap();
    rusqlite::Connection::open(&path).unwrap().execute_batch(change).unwrap();
    path
}

/// Clocks that go back, runs without any time, and captures with long names: every command ends, as text for people and
/// as files for programs.
#[test]
fn backward_clocks_do_not_hang() {
    let folder = Folder::new();
    let back = folder.0.join("back.gpuprof");
    // Of format 2, without checksums.
    let old = "tests/recordings/case-studies/optimizer-before.gpuprof";
    fs::write(&back, backwards::backwards(&fs::read(Path::new(ROOT).join(old)).unwrap())).unwrap();
    let events = [
        "CUPTI_ACTIVITY_KIND_KERNEL",
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "NVTX_EVENTS",
    ];
    let each =
        |change: &str| -> String { events.map(|table| change.replace("TABLE", table)).join("\n") };
    let files = [
        back,
        capture(
            &folder,
            "swapped.sqlite",
            &each(
                "UPDATE TABLE SET start = end, end = start WHERE rowid % 3 = 0 AND end NOT NULL;",
            ),
        ),
        capture(&folder, "mirrored.sqlite", &each("UPDATE TABLE SET start = -start, end = -end;")),
        capture(
            &folder,
            "jumps.sqlite",
            &each(
                "UPDATE TABLE SET start = start - 1000000000000, end = end - 1000000000000 WHERE rowid % 5 = 0;",
            ),
        ),
        capture(&folder, "still.sqlite", &each("UPDATE TABLE SET start = 5, end = 5;")),
        capture(&folder, "nothing.sqlite", &each("DELETE FROM TABLE;")),
        capture(
            &folder,
            "long.sqlite",
            &format!(
                "UPDATE StringIds SET value = value || hex(zeroblob({})) WHERE id % 2 = 0;",
                long_name() / 2
            ),
        ),
    ];
    look_at(&files);
    for_each_in_parallel(&files, |_, file| {
        for name in [
            "pftrace",
            "pt.trace.json",
            "json",
            "folded",
            "pb.gz",
            "otlp",
            "firefox.json",
            "html",
            "jsonl",
            "counts",
            "sqlite",
            "parquet",
            "svg",
        ] {
            let to = folder.0.join(format!("{}.{name}", file.file_name().unwrap().display()));
            let written = ran(gpuprof().arg("convert").args([file, &to]));
            let has_no_time = name == "svg" && written.error.contains("no time");
            assert!(
                written.status == 0 || has_no_time,
                "{name} of {}: {}",
                file.display(),
                written.error
            );
            assert!(has_no_time || to.exists());
        }
    });
}

/// Twenty kernels that differ in one character of their middle, and no two rows that are the same.
#[test]
fn shortened_kernel_names_are_distinct() {
    let folder = Folder::new();
    let middle = "y".repeat(300);
    let file = save(&folder, "alike.gpuprof", |fake| {
        for n in b'a'..=b't' {
            let name = format!("cutlass_kernel_{middle}{}{middle}_end", char::from(n));
            fake.launch(Work::kernel(named(&name)).taking_ns(1_000));
        }
    });
    for (command, width) in [("report", 80), ("top", 80), ("top", 50), ("kernels", 120)] {
        let limit = (command != "report").then_some("--limit=0");
        let ran = ran(gpuprof()
            .arg(command)
            .args(limit)
            .args(["--width", &width.to_string()])
            .arg(&file));
        // Below the table are commands, which have names in them.
        let table = ran.out.split("candidates for counters").next().unwrap();
        let names = table.lines().flat_map(str::split_whitespace);
        let mut names: Vec<&str> = names.filter(|name| name.starts_with("cut")).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{command}: {}", ran.out);
        assert!(count >= if command == "report" { 12 } else { 20 }, "{command}: {}", ran.out);
    }
}

#[test]
fn pipe_gets_full_names_and_a_terminal_those_that_fit() {
    let folder = Folder::new();
    let name = format!("kernel_{}_end", "z".repeat(400));
    let kernel = named(&name);
    let file = save(&folder, "long.gpuprof", |fake| {
        fake.launch(Work::kernel(kernel));
    });
    let of = |words: &[&str]| ran(gpuprof().args(words).arg("report").arg(&file)).out;
    assert!(of(&[]).contains(&name) && of(&["--width=0"]).contains(&name));
    assert!(!of(&["--width=100"]).contains(&name));
    assert!(on_terminal(&["report", "--full-names"], &file, 100).contains(&name));
    let narrow = on_terminal(&["report"], &file, 100);
    fits("COLUMNS=100", &stripped(&narrow), 100);
    assert!(narrow.contains('\u{1b}'), "a terminal gets colours: {narrow}");
    let plain = on_terminal(&["report", "--color=never"], &file, 100);
    assert_eq!(plain, stripped(&narrow));
}

/// What a terminal gets of a command that succeeds.
fn on_terminal(words: &[&str], file: &Path, columns: usize) -> String {
    let (shown, succeeds) = screen::on_terminal(gpuprof().args(words).arg(file), columns);
    assert!(succeeds, "{shown}");
    shown
}

#[test]
fn environment_and_options_decide_on_colours() {
    let has_colours = |variables: &[(&str, &str)], words: &[&str]| {
        let mut command = gpuprof();
        command.args(words).arg(recording()).envs(variables.iter().copied());
        ran(&mut command).out.contains('\u{1b}')
    };
    assert!(!has_colours(&[], &["scorecard"]), "a pipe gets none");
    assert!(has_colours(&[("CLICOLOR_FORCE", "1")], &["scorecard"]));
    assert!(!has_colours(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], &["scorecard"]));
    assert!(has_colours(&[("NO_COLOR", "1")], &["scorecard", "--color=always"]));
    assert!(!has_colours(&[("CLICOLOR_FORCE", "1")], &["scorecard", "--color=never"]));
    assert!(!has_colours(&[], &["scorecard", "--color=always", "--json"]), "JSON has none");
}

// --- commands ---

#[test]
fn file_without_a_command_is_reported() {
    let report = ran(gpuprof().arg("report").arg(recording()));
    let short = ran(gpuprof().arg(recording()));
    assert_eq!((short.status, &short.out), (0, &report.out));
    let narrow = ran(gpuprof().arg(recording()).args(["--width", "80"]));
    fits("options after the file", &narrow.out, 80);
    let twice = ran(gpuprof().arg(recording()).arg(recording()));
    assert_eq!(twice.out.matches("GPU profile:").count(), 2, "{}", twice.out);
    assert_eq!(ran(&mut gpuprof()).status, 2, "help, and no success");
}

#[test]
fn dash_is_standard_input() {
    let report = ran(gpuprof().arg("report").arg(recording())).out;
    let capture = Path::new(ROOT).join("tests/captures/one-h200.sqlite");
    for (file, words) in
        [(recording(), &["-"][..]), (recording(), &["report", "-"]), (capture, &["-"])]
    {
        let of_file = ran(gpuprof().arg("report").arg(&file)).out;
        let from_file = ran(gpuprof().args(words).stdin(fs::File::open(&file).unwrap()));
        assert_eq!((from_file.status, from_file.out), (0, of_file), "{}", from_file.error);
    }
    let mut child =
        gpuprof().arg("-").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&fs::read(recording()).unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), report);
    let empty = ran(gpuprof().arg("-"));
    assert_eq!(empty.status, 1, "{}", empty.error);
}

#[test]
fn narrow_report_leaves_out_inferred_and_copied_first() {
    let file = format!("{ROOT}/tests/recordings/pytorch-h100/train.gpuprof");
    let report = ran(gpuprof().args(["report", "--width=80", &file]));
    let head = report.out.lines().find(|line| line.starts_with("range ")).unwrap();
    for column in ["times", "host time", "GPU time", "launches", "kernels"] {
        assert!(head.contains(column), "{column} is missing: {}", report.out);
    }
    let left_out = report.out.lines().find(|line| line.starts_with("(too narrow for: ")).unwrap();
    for column in ["copied", "inferred GPU", "inferred kernels"] {
        assert!(left_out.contains(column), "{left_out}");
    }
}

#[test]
fn narrow_gaps_leave_columns_out() {
    for name in ["pytorch-h100/train", "case-studies/loader-before"] {
        let file = format!("{ROOT}/tests/recordings/{name}.gpuprof");
        let gaps = ran(gpuprof().args(["gaps", "--shortest=0ns", "--width=80", &file]));
        let rows = gaps.out.lines().skip_while(|line| !line.contains("  count")).skip(1);
        let rows: Vec<&str> = rows.take_while(|line| !line.is_empty()).collect();
        assert!(rows.len() > 2, "{}", gaps.out);
        // A line that went on below is indented.
        assert!(rows.iter().all(|row| !row.starts_with(' ')), "{}", gaps.out);
        assert!(rows.iter().any(|row| row.starts_with("(too narrow for: ")), "{}", gaps.out);
    }
}

#[test]
fn wrong_words_have_a_suggestion() {
    let file = recording();
    let file = file.to_str().unwrap();
    let beside = file.replace("quickstart", "quikstart");
    for (words, meant) in [
        (&["reprot"][..], "did you mean report?"),
        (&["reprot", file], "did you mean report?"),
        (&["stats", "cuda_gpu_kernel_sum", file], "did you mean cuda_gpu_kern_sum"),
        (&["analyze", "gpu_gap", file], "did you mean gpu_gaps"),
        (&["kernels", "--within=batch/forwrad", file], "did you mean batch/forward"),
        (&["diagnose", "--range=bacth", file], "did you mean batch?"),
        (&["report", &beside], "did you mean quickstart-h200.gpuprof?"),
        (&["man", "diagnosis"], "did you mean diagnose?"),
    ] {
        let ran = ran(gpuprof().args(words));
        assert!(
            matches!(ran.status, 1 | 2) && ran.error.contains(meant),
            "{words:?}: {}",
            ran.error
        );
        assert_eq!(ran.error.lines().count(), 1, "{}", ran.error);
    }
    let ran = ran(gpuprof().args(["run", "--stats", "cuda_api_sum", "--", "true"]));
    assert!(ran.status == 2 && ran.error.contains("--stats=cuda_api_sum"), "{}", ran.error);
}

#[test]
fn top_sorts_filters_and_limits() {
    let json = |words: &[&str]| -> Value {
        let ran = ran(gpuprof().args(["top", "--json"]).args(words).arg(recording()));
        assert_eq!((ran.status, ran.error.as_str()), (0, ""));
        serde_json::from_str::<Value>(&ran.out).unwrap()[0].clone()
    };
    let names = |table: &Value| -> Vec<String> {
        let rows = table["rows"].as_array().unwrap().iter();
        rows.map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    let all = json(&["--limit=0"]);
    let profile = profiler_core::Profile::load(recording()).unwrap();
    let times =
        all["kernels"]["rows"].as_array().unwrap().iter().map(|row| row["time_ns"].as_u64());
    let sum: u64 = times.map(Option::unwrap).sum();
    assert_eq!(u128::from(sum), profile.totals().kernel_time().as_nanos(), "all of the time");
    assert_eq!(names(&all["ranges"])[0], "batch");
    // A mean is not cut to whole nanoseconds: the report rounds, and both say the same.
    for row in all["kernels"]["rows"].as_array().unwrap() {
        let [time, count, mean] =
            ["time_ns", "count", "mean_ns"].map(|field| row[field].as_f64().unwrap());
        assert!((mean - time / count).abs() < 0.01, "{row}");
    }
    let calls: u64 = all["api"]["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["count"].as_u64().unwrap())
        .sum();
    assert_eq!(calls, profile.calls().count() as u64);
    let few = json(&["--of=kernels", "--limit=2", "--sort=count"]);
    assert_eq!(names(&few["kernels"])[0], "sgd_update", "80 launches");
    assert_eq!((few["kernels"]["more"].as_u64(), few.get("ranges")), (Some(9), None));
    let filtered = json(&["--filter=^batch/(for|back)ward$", "--sort=name"]);
    assert_eq!(names(&filtered["ranges"]), ["batch/backward", "batch/forward"]);
    let csv = ran(gpuprof().args(["top", "--format=csv", "--limit=0"]).arg(recording()));
    assert_eq!(csv.out.lines().count(), 1 + 11 + 5 + 6, "{}", csv.out);
    let wrong = ran(gpuprof().args(["top", "--filter=("]).arg(recording()));
    assert!(wrong.status == 2 && wrong.error.contains("--filter"), "{}", wrong.error);
}

#[test]
fn top_has_percentiles_and_places() {
    let file = Path::new(ROOT).join("tests/recordings/case-studies/optimizer-before.gpuprof");
    let profile = profiler_core::Profile::load(&file).unwrap();
    let top = |words: &[&str]| -> Value {
        let ran = ran(gpuprof().args(["top", "--json", "--limit=0"]).args(words).arg(&file));
        assert_eq!((ran.status, ran.error.as_str()), (0, ""));
        serde_json::from_str::<Value>(&ran.out).unwrap()[0].clone()
    };
    let all = top(&["--of=kernels,ranges,api,streams,devices"]);
    let percentiles = ["min_ns", "p50_ns", "p90_ns", "p99_ns", "max_ns"];
    for table in ["kernels", "ranges", "api", "streams", "devices"] {
        let rows = all[table]["rows"].as_array().unwrap();
        assert!(!rows.is_empty(), "{table}");
        for row in rows {
            let times = percentiles.map(|name| row[name].as_u64().unwrap());
            assert!(times.is_sorted(), "{table}: {row}");
        }
    }
    let kernels = profile.query().kernels().by_kernel();
    let slowest = kernels.iter().next().unwrap();
    let row = &all["kernels"]["rows"][0];
    assert_eq!(row["name"], slowest.key().to_string());
    let p90 = slowest.statistics().percentile(90.0).as_nanos();
    assert_eq!(row["p90_ns"].as_u64().map(u128::from), Some(p90));
    let time_of = |table: &Value| -> u64 {
        table["rows"].as_array().unwrap().iter().map(|row| row["time_ns"].as_u64().unwrap()).sum()
    };
    let gpu_time = profile.totals().gpu_time().as_nanos();
    assert_eq!(u128::from(time_of(&all["streams"])), gpu_time);
    assert_eq!(u128::from(time_of(&all["devices"])), gpu_time);
    for by in ["device", "stream"] {
        let split = top(&["--of=kernels", &format!("--by={by}")]);
        assert_eq!(time_of(&split["kernels"]), time_of(&all["kernels"]), "{by}");
        let row = &split["kernels"]["rows"][0];
        assert!(row["device"].is_u64() && row[by].is_u64(), "{row}");
    }
    let text = ran(gpuprof().args(["top", "--of=kernels", "--by=stream", "--limit=1"]).arg(&file));
    assert!(text.out.contains(" on device 0, context 3, stream "), "{}", text.out);
    for column in ["p50", "p99", "max"] {
        assert!(text.out.lines().next().unwrap().contains(column), "{}", text.out);
    }
}

/// The same part for every command, and an error for a part that is empty.
#[test]
fn commands_read_a_time_or_one_instance() {
    let file = recording();
    let run = |words: &[&str]| ran(gpuprof().args(words).arg(&file));
    let json = |words: &[&str]| -> Value {
        let ran = run(words);
        assert_eq!(ran.status, 0, "{}", ran.error);
        serde_json::from_str(&ran.out).unwrap()
    };
    let profile = profiler_core::Profile::load(&file).unwrap();
    let steps = profile.steps("batch");
    let third = steps.iter().nth(2).unwrap();
    let instance = json(&["top", "--json", "--of=ranges", "--instance=batch:2"]);
    let row = &instance[0]["ranges"]["rows"][0];
    assert_eq!((row["name"].as_str(), row["count"].as_u64()), (Some("batch"), Some(1)));
    let gpu_time = row["time_ns"].as_u64().map(u128::from);
    assert_eq!(gpu_time, Some(third.gpu_time().as_nanos()));
    let middle = format!("--to={}ns", third.range().start().as_nanos());
    let until = json(&["top", "--json", "--of=ranges", &middle]);
    assert_eq!(until[0]["ranges"]["rows"][0]["count"].as_u64(), Some(2), "{until}");
    let rest = middle.replace("--to", "--from");
    let from = json(&["top", "--json", "--of=ranges", &rest]);
    let count = from[0]["ranges"]["rows"][0]["count"].as_u64().unwrap();
    assert_eq!(count, steps.len() as u64 - 2, "{from}");
    let have_one_file = |command: &&&[&str]| {
        !["doctor", "gate"].contains(&command[0]) && !command.contains(&"--all")
    };
    for command in COMMANDS.iter().filter(have_one_file) {
        let part = run(&[&["--instance=batch:3"][..], command].concat());
        assert!(matches!(part.status, 0 | 1), "{command:?}: {}", part.error);
        assert!(!part.error.contains("panicked"), "{command:?}: {}", part.error);
    }
    for (words, meant) in [
        (&["--instance=batch:9999"][..], "there is no instance 9999"),
        (&["--instance=bach:1"], "did you mean batch?"),
        (&["--instance=batch"], "step:17"),
        (&["--from=1h"], "is after the end of"),
        (&["--from=2ms", "--to=1ms"], "is not before --to 1ms"),
        (&["--from=1ms", "--instance=batch:1"], "cannot be used with"),
        (&["--from=1"], "--from"),
    ] {
        let wrong = run(&[&["top"], words].concat());
        assert!(wrong.status == 2 && wrong.error.contains(meant), "{words:?}: {}", wrong.error);
    }
}

/// A PyTorch step: most of its work is launched by a thread without ranges while the range's waits.
#[test]
fn shares_of_ranges_are_of_all_gpu_time() {
    let file = Path::new(ROOT).join("tests/recordings/pytorch-h100/train.gpuprof");
    let profile = profiler_core::Profile::load(&file).unwrap().with_inferred_ranges();
    let all = profile.totals().gpu_time().as_nanos() as f64;
    let top = |words: &[&str]| {
        let ran = ran(gpuprof().args(["top", "--of=ranges"]).args(words).arg(&file));
        assert_eq!(ran.status, 0, "{}", ran.error);
        ran.out
    };
    let json: Value = serde_json::from_str(&top(&["--json"])).unwrap();
    let ranges = &json[0]["ranges"];
    let outside = &ranges["outside"];
    assert_eq!(
        outside["time_ns"].as_u64().map(u128::from),
        Some(profile.outside_ranges().gpu_time().as_nanos())
    );
    let mut sum = outside["share"].as_f64().unwrap();
    for root in profile.roots() {
        let rows = ranges["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == *root.path()).unwrap();
        let share = row["share"].as_f64().unwrap();
        assert!((share - root.inclusive().gpu_time().as_nanos() as f64 / all).abs() < 1e-9);
        let inferred = root.inferred().gpu_time().as_nanos();
        assert_eq!(row["inferred_ns"].as_u64().map_or(0, u128::from), inferred);
        sum += share;
    }
    assert!((sum - 1.0).abs() < 1e-9, "ranges and the rest are everything: {ranges}");
    let text = top(&["--limit=1"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("inferred GPU"), "{text}");
    assert!(lines[2].starts_with("(outside any range) "), "beyond the limit, too: {text}");
    let csv = top(&["--format=csv", "--limit=0"]);
    assert!(csv.lines().last().unwrap().contains(",ranges,(outside any range),,"), "{csv}");
    assert!(!top(&["--filter=step"]).contains("(outside any range)"));
}

#[test]
fn kernel_tables_are_limited_and_state_the_rest() {
    let folder = Folder::new();
    let file = save(&folder, "many.gpuprof", |fake| {
        for n in b'a'..=b'o' {
            let name = format!("cutlass_80_tensorop_s16816gemm_f16_{}", char::from(n));
            fake.launch(Work::kernel(named(&name)).taking_ns(1_000 * u64::from(n)));
        }
    });
    for (command, table, kept) in [
        ("kernels", "launch_shapes:", &["Estimated Saving", "Findings"][..]),
        ("tensor-cores", "tensor_core_kernels:", &["TC Status", "Op Type"]),
    ] {
        let of = |words: &[&str]| ran(gpuprof().arg(command).args(words).arg(&file)).out;
        let rows = |text: &str| {
            let table = text.split(table).nth(1).unwrap().split("\n\n").next().unwrap();
            table.lines().filter(|line| line.contains("s16816gemm")).count()
        };
        let few = of(&[]);
        assert_eq!(rows(&few), 10, "{few}");
        assert!(few.contains("\n(5 more rows)\n"), "{few}");
        assert!(few.ends_with("\n(--limit 0 shows all rows)\n"), "{few}");
        assert_eq!(rows(&of(&["--limit=3"])), 3);
        let narrow = of(&["--width=80"]);
        let heads = narrow.lines().filter(|line| line.trim_end().ends_with(" Name"));
        let heads = heads.collect::<String>();
        assert!(kept.iter().all(|head| heads.contains(head)), "{narrow}");
        let all = of(&["--limit=0"]);
        assert!(rows(&all) == 15 && !all.contains("more rows"), "{all}");
        let json: Value = serde_json::from_str(&of(&["--json"])).unwrap();
        let name = table.trim_end_matches(':');
        assert_eq!(json[name].as_array().unwrap().len(), 15, "files have all");
    }
}

/// Every field of an object and of those in it, but for names that are values.
fn fields<'v>(value: &'v Value, found: &mut BTreeSet<&'v str>) {
    match value {
        Value::Object(object) => {
            for (name, value) in
                object.iter().filter(|(name, _)| !name.starts_with(char::is_numeric))
            {
                found.insert(name);
                fields(value, found);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| fields(value, found)),
        _ => {}
    }
}

#[test]
fn json_pages_name_every_field() {
    let page = concat!(
        include_str!("../../docs/reference/json.md"),
        include_str!("../../docs/reference/json-diagnosis.md")
    );
    let disease = Path::new(ROOT).join("tests/recordings/diseases/pageable-copies-ill.gpuprof");
    let json = |words: &[&str]| -> Value {
        let ran = ran(gpuprof().args(words).arg("--json").arg(&disease));
        assert_eq!(ran.status, 0, "{}", ran.error);
        serde_json::from_str(&ran.out).unwrap()
    };
    let (mut diagnosis, top) = (json(&["diagnose"]), json(&["top"]));
    let mut moments = 0;
    let tables = diagnosis["evidence"].clone();
    let causes = diagnosis["verdict"]["causes"].as_array().unwrap().iter();
    for stated in causes.chain(diagnosis["findings"].as_array().unwrap()) {
        for moment in stated["evidence"]["longest"].as_array().unwrap() {
            for (number, table) in [("operation", "operations"), ("call", "calls")] {
                let Some(number) = moment[number].as_u64() else { continue };
                let row = &tables[table][number.to_string()];
                assert!(
                    row["name"].is_string() && row["start_ns"].is_u64(),
                    "{number} of {table}: {row}"
                );
                moments += 1;
            }
        }
    }
    assert!(moments > 20, "{moments}");
    assert_eq!(diagnosis["findings"][0]["kind"], "pageable_copies");
    let copied = diagnosis["findings"][0]["evidence"]["longest"][0]["operation"].as_u64().unwrap();
    assert_eq!(tables["operations"][copied.to_string()]["kind"], "copy");
    // The page says where they come from, and not each of them.
    diagnosis["thresholds"] = Value::Null;
    let mut names = BTreeSet::new();
    for value in [&diagnosis, &top] {
        fields(value, &mut names);
    }
    let unnamed: Vec<&&str> =
        names.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(unnamed.is_empty() && names.len() > 40, "{unnamed:?} of {}", names.len());
}

#[test]
fn convert_chooses_the_format_by_the_name() {
    let folder = Folder::new();
    let to = |name: &str| {
        let path = folder.0.join(name);
        let ran = ran(gpuprof().arg("convert").arg(recording()).arg(&path));
        assert_eq!((ran.status, ran.error.as_str(), ran.out.as_str()), (0, "", ""), "{name}");
        path
    };
    for (name, format) in [
        ("a.pftrace", "perfetto"),
        ("a.pt.trace.json", "kineto"),
        ("a.json", "chrome"),
        ("a.folded", "folded"),
        ("a.pb.gz", "pprof"),
        ("a.otlp", "otlp"),
        ("a.firefox.json", "firefox"),
        ("a.html", "html"),
        ("a.jsonl", "json"),
        ("a.counts", "counts"),
        ("a.svg", "flamegraph"),
    ] {
        let by_name = fs::read(to(name)).unwrap();
        // The old name of the command.
        let output =
            gpuprof().args(["export", "--format", format]).arg(recording()).output().unwrap();
        assert!(by_name == output.stdout && !by_name.is_empty(), "{name}");
    }
    assert!(fs::read(to("a.sqlite")).unwrap().starts_with(b"SQLite format 3"));
    let kernels = to("tables.parquet").join("CUPTI_ACTIVITY_KIND_KERNEL/data.parquet");
    assert!(fs::read(kernels).unwrap().starts_with(b"PAR1"));
    for words in [&["a.xyz"][..], &[], &["--format=parquet"]] {
        let ran = ran(gpuprof().arg("convert").arg(recording()).args(words));
        assert!(ran.status == 2 && ran.out.is_empty(), "{words:?}: {}", ran.error);
    }
}

#[test]
fn flame_graph_has_ranges_and_kernels() {
    let svg = ran(gpuprof().arg("flamegraph").arg(recording()));
    assert_eq!((svg.status, svg.error.as_str()), (0, ""));
    for part in ["<svg", "batch", "forward", "sgd_update", "(95,169 ns,"] {
        assert!(svg.out.contains(part), "{part}");
    }
    let folder = Folder::new();
    let empty = save(&folder, "empty.gpuprof", |_| ());
    let ran = ran(gpuprof().arg("flamegraph").arg(&empty));
    assert!(
        ran.status == 1 && ran.out.is_empty() && ran.error.contains("no time"),
        "{}",
        ran.error
    );
}

#[test]
fn open_starts_a_browser_or_prints_the_address() {
    let folder = Folder::new();
    let temporary = |command: &mut Command| {
        command.env("TMPDIR", &folder.0);
    };
    let mut command = gpuprof();
    temporary(command.arg("open").arg(recording()));
    let alone = ran(&mut command);
    assert!(alone.status == 0 && alone.error.contains("no browser was started"), "{}", alone.error);
    let page = PathBuf::from(alone.out.trim_end());
    assert!(page.ends_with("quickstart-h200.html"), "{page:?}");
    assert_eq!(fs::read_to_string(&page).unwrap(), ran(gpuprof().arg("html").arg(recording())).out);
    let mode = fs::metadata(page.parent().unwrap()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "names may be private");

    let (browser, opened) = (folder.0.join("xdg-open"), folder.0.join("opened"));
    let script = format!(
        "#!/bin/sh\nprintf '%s' \"$1\" > '{0}.new'; mv '{0}.new' '{0}'\n",
        opened.display()
    );
    program::write(&browser, script, 0o755);
    let path: OsString = [folder.0.as_os_str(), OsStr::new(":/usr/bin:/bin")].into_iter().collect();
    let with_browser = |words: &[&str]| {
        let mut command = gpuprof();
        command.args(words).arg(recording()).env("PATH", &path).env("DISPLAY", ":9");
        temporary(&mut command);
        command
    };
    let to = folder.0.join("page.html");
    let kept = ran(&mut with_browser(&["open", "-o", to.to_str().unwrap()]));
    assert_eq!((kept.status, kept.error.as_str()), (0, ""));
    assert_eq!(kept.out.trim_end(), to.canonicalize().unwrap().to_str().unwrap());
    assert_eq!(wait_for(&opened), kept.out.trim_end());

    // The viewers fetch their file from this machine, as their pages would.
    for (viewer, format, page) in [
        ("--perfetto", "perfetto", "https://ui.perfetto.dev/#!/?url="),
        ("--firefox", "firefox", "https://profiler.firefox.com/from-url/"),
    ] {
        fs::remove_file(&opened).unwrap();
        let mut child = with_browser(&["open", viewer]).stdout(Stdio::piped()).spawn().unwrap();
        let address = wait_for(&opened).replace("%3A", ":").replace("%2F", "/");
        let url = address.strip_prefix(page).unwrap().strip_prefix("http://").unwrap();
        let (host, path) = url.split_at(url.find('/').unwrap());
        assert!(host.starts_with("127.0.0.1:"), "{host}");
        assert!(
            host.ends_with(":9001") || viewer != "--perfetto",
            "the port that Perfetto allows: {host}"
        );
        let mut stream = TcpStream::connect(host).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let mut command = gpuprof();
        command.args(["convert", "--format", format]).arg(recording());
        let content = command.output().unwrap().stdout;
        assert!(answer.ends_with(&content) && answer.starts_with(b"HTTP/1.1 200"), "{viewer}");
        assert!(child.wait().unwrap().success());
    }
}

/// The content of a file that another program writes.
fn wait_for(path: &Path) -> String {
    for _ in 0..12_000 {
        if let Ok(text) = fs::read_to_string(path) {
            return text;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{} was not written", path.display());
}

#[test]
fn nothing_binary_goes_to_a_terminal() {
    for words in [
        &["convert", "--format=perfetto"][..],
        &["convert", "--format=html"],
        &["html"],
        &["flamegraph"],
        &["roofline", "--format=html"],
    ] {
        let terminal = nix::pty::openpty(None, None).unwrap();
        let mut command = gpuprof();
        let output =
            command.args(words).arg(recording()).stdout(terminal.slave).stderr(Stdio::piped());
        let output = output.spawn().unwrap().wait_with_output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && error.contains("-o"), "{words:?}: {error}");
    }
}

#[test]
fn help_has_examples_and_manual_pages_have_them_too() {
    for command in &listed_commands() {
        let command = command.as_str();
        let page = ran(gpuprof().args(["man", command]));
        assert_eq!(page.status, 0, "{command}: {}", page.error);
        assert!(page.out.contains(".SH NAME") && page.out.contains(command), "{command}");
        let help = ran(gpuprof().args([command, "--help"])).out;
        let lives = ["list", "on", "off", "mark", "snapshot", "status", "completions", "man"];
        assert!(
            lives.contains(&command) || help.contains("Examples:\n  gpuprof"),
            "{command}: {help}"
        );
    }
    assert!(ran(gpuprof().arg("man")).out.contains("GPU profiles"));
}
