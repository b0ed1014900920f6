//! `cargo gpuprof` with a small package, whose programs start C programs with the fake driver.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpuprof_control::manifest::{Process, Run};
use gpuprof_control::{Options, RunFolder};
use serde_json::Value;

use crate::injected::{FAKE, compile, counted, library};
use crate::support::{Folder, Ran, ran, runs_in};

const CARGO_GPUPROF: &str = env!("CARGO_BIN_EXE_cargo-gpuprof");

const MANIFEST: &str = "[package]\nname = \"model\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
                        [lib]\ndoctest = false\n\n[[bench]]\nname = \"speed\"\nharness = false\n\n[workspace]\n";
const LIBRARY: &str = "use std::process::{Command, Stdio};\n\
    pub fn work() {\n    \
        let status = Command::new(std::env::var_os(\"COUNTS\").unwrap()).stdout(Stdio::null()).status();\n    \
        assert!(status.unwrap().success());\n}\n";
const EXAMPLE: &str = "fn main() {\n    \
        model::work();\n    \
        let end = std::env::args().nth(1).unwrap();\n    \
        println!(\"ends with {end}\");\n    \
        if end == \"signal\" {\n        \
            let pid = std::process::id().to_string();\n        \
            std::process::Command::new(\"kill\").arg(pid).status().unwrap();\n    \
        }\n    \
        std::process::exit(end.parse().unwrap());\n}\n";
const TEST: &str =
    "#[test]\nfn works() { model::work() }\n#[test]\nfn works_again() { model::work() }\n";
const BENCH: &str = "fn main() { model::work() }\n";

/// A folder with the package, the C program and the fake driver.
fn package() -> Folder {
    let folder = Folder::new();
    compile(&folder, &format!("{FAKE}/counts.c"));
    for (path, text) in [
        ("Cargo.toml", MANIFEST),
        ("src/lib.rs", LIBRARY),
        ("examples/train.rs", EXAMPLE),
        ("tests/gpu.rs", TEST),
        ("benches/speed.rs", BENCH),
    ] {
        let path = folder.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

/// `cargo gpuprof` with these words, without settings of cargo for these tests.
fn command(folder: &Folder, words: &[&str]) -> Command {
    let mut command = folder.program(CARGO_GPUPROF, ["gpuprof"].iter().chain(words));
    for (name, _) in env::vars_os() {
        let settings = ["CARGO_PROFILE_", "CARGO_BUILD_", "CARGO_TARGET_"];
        if name.to_str().is_some_and(|name| settings.iter().any(|it| name.starts_with(it))) {
            command.env_remove(name);
        }
    }
    command
        .env("CARGO_TARGET_DIR", folder.path("target"))
        .env("CARGO_NET_OFFLINE", "true")
        .env("COUNTS", folder.path("counts"))
        .env("LD_LIBRARY_PATH", folder.path("cuda"));
    command
}

/// A command of cargo under `cargo gpuprof`.
fn recorded(folder: &Folder, words: &[&str]) -> Command {
    let library = library();
    command(folder, &[&["--inject", library.to_str().unwrap()], words].concat())
}

fn gpuprof(folder: &Folder, words: &[&str]) -> Ran {
    ran(&mut command(folder, words))
}

fn kept(folder: &Folder) -> PathBuf {
    folder.path("target/gpuprof")
}

#[test]
fn example_is_built_and_recorded_and_has_its_status() {
    let folder = package();
    let train = |end: &str| {
        ran(&mut recorded(&folder, &["run", "--quiet", "--example", "train", "--", end]))
    };
    let first = train("5");
    assert_eq!((first.status, first.out.as_str()), (Some(5), "ends with 5\n"), "{}", first.error);
    assert_eq!(counted(&first.error, "axpy"), Some(207), "{}", first.error);
    let one = gpuprof(&folder, &["diff"]);
    let why = format!("{} has 1 recorded runs, and 2 are needed: ", kept(&folder).display());
    assert!(one.failure(1).starts_with(&why), "{}", one.error);

    let second = train("signal");
    assert_eq!((second.status, second.signal), (None, Some(15)), "{}", second.error);
    let runs = runs_in(&kept(&folder));
    assert_eq!(runs.len(), 2, "{runs:?}");
    let report = gpuprof(&folder, &["report"]);
    assert_eq!(report.status, Some(0), "{}", report.error);
    assert!(second.error.contains(report.out.trim()), "{}", report.out);
    let diff = gpuprof(&folder, &["diff", "--json", "--by-range"]);
    let diff: Value = serde_json::from_str(&diff.out).unwrap();
    let path = |side: usize| PathBuf::from(diff["files"][side][0].as_str().unwrap());
    assert_eq!(status(&path(0)), (Some(5), None));
    assert_eq!(status(&path(1)), (None, Some(15)));

    // Without a display no browser is started.
    let mut open = command(&folder, &["open", "-o", "page.html"]);
    for variable in ["DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME"] {
        open.env_remove(variable);
    }
    let open = ran(&mut open);
    assert_eq!(open.status, Some(0), "{}", open.error);
    assert!(fs::read_to_string(folder.path("page.html")).unwrap().contains("axpy"));
}

/// The exit status or the signal of the program of a run.
fn status(run: &Path) -> (Option<i32>, Option<i32>) {
    let ended = RunFolder::open(run).unwrap().run().unwrap().unwrap().ended.unwrap();
    (ended.status, ended.signal)
}

#[test]
fn processes_of_tests_are_one_run_with_the_options_before_the_command() {
    let folder = package();
    let words = ["--stats=cuda_api_sum", "test", "--quiet", "--test", "gpu", "--", "works"];
    let test = ran(&mut recorded(&folder, &words));
    assert_eq!(test.status, Some(0), "{}", test.error);
    assert!(test.out.contains("2 passed"), "{}", test.out);
    assert_eq!(counted(&test.error, "axpy"), Some(2 * 207), "{}", test.error);
    assert!(test.error.contains("cuLaunchKernel"), "{}", test.error);
    assert_eq!(runs_in(&kept(&folder)).len(), 1);
    // A failed test is no reason to lose the recording.
    fs::write(folder.path("tests/gpu.rs"), TEST.replace("work() }\n", "work(); panic!() }\n"))
        .unwrap();
    let failed = ran(&mut recorded(&folder, &["test", "--quiet", "--test", "gpu"]));
    assert_eq!(failed.status, Some(101));
    assert_eq!(counted(&failed.error, "axpy"), Some(2 * 207), "{}", failed.error);
    assert_eq!(runs_in(&kept(&folder)).len(), 2);
}

#[test]
fn profiles_without_debug_information_get_line_tables() {
    let folder = package();
    let bench = |debug: Option<&str>| {
        let mut bench = recorded(&folder, &["bench", "--verbose"]);
        let ran = ran(bench.envs(debug.map(|debug| ("CARGO_PROFILE_BENCH_DEBUG", debug))));
        assert_eq!(ran.status, Some(0), "{}", ran.error);
        assert_eq!(counted(&ran.error, "axpy"), Some(207), "{}", ran.error);
        let lines = ran.error.lines().filter(|line| line.contains("--crate-name speed"));
        lines.map(|line| line.contains("debuginfo=line-tables-only")).collect::<Vec<_>>()
    };
    assert_eq!(bench(None), [true]);
    assert_eq!(bench(Some("0")), [false]);
    fs::write(folder.path("Cargo.toml"), format!("{MANIFEST}\n[profile.release]\ndebug = 2\n"))
        .unwrap();
    assert_eq!(bench(None), [false]);
}

#[test]
fn external_commands_of_cargo_are_recorded() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = package();
    let script = folder.path("bin/cargo-launch");
    fs::create_dir(folder.path("bin")).unwrap();
    fs::write(&script, "#!/bin/sh\n\"$COUNTS\"\n\"$COUNTS\"\nexit \"$3\"\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let path = env::var("PATH").unwrap();
    let mut launch = recorded(&folder, &["launch", "--release", "7"]);
    let ran = ran(launch.env("PATH", format!("{}:{path}", folder.path("bin").display())));
    assert_eq!(ran.status, Some(7), "{}", ran.error);
    assert_eq!(counted(&ran.error, "axpy"), Some(2 * 207), "{}", ran.error);
}

/// A run of the past, as `cargo gpuprof` leaves it.
fn earlier(path: &Path, number: u64) -> RunFolder {
    let mut run = Run::new("cargo".as_ref(), &Options::new("/"));
    run.began.wall_ns = number;
    RunFolder::create(path, &run).unwrap()
}

#[test]
fn oldest_runs_are_removed_and_nothing_else() {
    let folder = package();
    let kept = kept(&folder);
    fs::create_dir_all(&kept).unwrap();
    let name = |number: u64| format!("cargo-20200101-{number:06}.gpurun");
    // Started in the opposite order of their names.
    for number in 0..25 {
        earlier(&kept.join(name(number)), 25 - number);
    }
    // The oldest one still runs.
    let mut process = Process::current().unwrap();
    RunFolder::open(&kept.join(name(24))).unwrap().claim(&mut process).unwrap();
    fs::write(kept.join(name(23)).join("notes"), "").unwrap();
    let elsewhere = folder.path("elsewhere");
    earlier(&elsewhere, 0);
    symlink(&elsewhere, kept.join(name(100))).unwrap();
    earlier(&kept.join("baseline.gpurun"), 0);
    earlier(&kept.join("cargo-baseline.gpurun"), 0);
    fs::create_dir(kept.join(name(101))).unwrap();
    fs::write(kept.join(name(101)).join("data"), "").unwrap();
    fs::write(kept.join(name(102)), "").unwrap();

    // It starts no process that uses the GPU, so its own run goes.
    let located = ran(&mut recorded(&folder, &["--quiet", "locate-project"]));
    assert_eq!((located.status, located.error.as_str()), (Some(0), ""));
    let mut found = runs_in(&kept);
    found.sort();
    let mut expected: Vec<String> = (0..20).chain([24]).map(name).collect();
    expected.extend([23, 100, 101, 102].map(name));
    expected.extend(["baseline.gpurun", "cargo-baseline.gpurun"].map(str::to_owned));
    expected.sort();
    assert_eq!(found, expected);
    let left: Vec<_> = fs::read_dir(kept.join(name(23))).unwrap().map(|it| it.unwrap()).collect();
    assert_eq!(left.iter().map(fs::DirEntry::file_name).collect::<Vec<_>>(), ["notes"]);
    assert!(elsewhere.join("run.json").exists() && kept.join(name(101)).join("data").exists());
    // Runs without a recording, and those of other names, are not read.
    let none = gpuprof(&folder, &["report"]);
    assert!(none.failure(1).contains("has 0 recorded runs, and 1 are needed"), "{}", none.error);
}

#[test]
fn mistakes_have_an_error_with_the_remedy() {
    let folder = package();
    for (words, status, expected) in [
        (&["report"][..], 1, "record one with `cargo gpuprof run`"),
        (&["--release", "run"], 2, "as in `cargo gpuprof run --release`"),
        (&["--lines", "diff"], 2, "write `cargo gpuprof diff [OPTIONS]`"),
        (&["run", "--manifest-path", "none/Cargo.toml"], 125, "`none/Cargo.toml` does not exist"),
    ] {
        let ran = gpuprof(&folder, words);
        assert!(ran.failure(status).contains(expected), "{}", ran.error);
    }
    let outside = Folder::new();
    for (words, status) in [(&["run"][..], 125), (&["open"], 1)] {
        let ran = gpuprof(&outside, words);
        let error = ran.failure(status);
        assert!(error.contains("could not find `Cargo.toml`"), "{error}");
        assert!(error.ends_with("run `cargo gpuprof` within a workspace or package\n"), "{error}");
    }
    let missing = ran(command(&folder, &["run"]).env("CARGO", "/nowhere/cargo"));
    assert!(missing.failure(125).contains("No such file or directory"), "{}", missing.error);
    let other = ran(command(&folder, &["run"]).env("CUDA_INJECTION64_PATH", "/opt/tool.so"));
    assert!(other.failure(125).contains("unset the variable"), "{}", other.error);
    fs::write(folder.path("src/lib.rs"), "fn main() {").unwrap();
    let broken = ran(&mut recorded(&folder, &["test", "--quiet"]));
    assert_eq!(broken.status, Some(101));
    assert!(broken.error.contains("error: this file contains an unclosed delimiter"));
    assert_eq!(runs_in(&kept(&folder)), [""; 0], "it leaves no run");
}

#[test]
fn help_needs_no_runs_and_names_the_number_that_is_kept() {
    let folder = Folder::new();
    let help = gpuprof(&folder, &["--help"]);
    assert_eq!((help.status, help.error.as_str()), (Some(0), ""));
    assert!(help.out.contains("Usage: cargo gpuprof [OPTIONS] <COMMAND>"), "{}", help.out);
    assert!(help.out.contains("the last 20 are kept"), "{}", help.out);
    let diff = gpuprof(&folder, &["diff", "--help"]);
    assert!(diff.status == Some(0) && diff.out.contains("--by-range"), "{}", diff.error);
    assert_eq!(ran(&mut folder.program(CARGO_GPUPROF, ["--version"])).status, Some(0));
}
