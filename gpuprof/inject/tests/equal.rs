//! All that `nvtx-rs` sends reaches the observer through the library as it does without a tool.
//!
//! A scenario runs in a process of its own, with an observer of `nvtx-rs` and with the library as the tool. Both write lines.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test without the standard harness"
)]

#[path = "support/lines.rs"]
mod lines;
#[path = "../../../nvtx-rs/tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use libtest_mimic::{Arguments, Failed, Trial};
use support::{Folder, SCENARIO, scenarios};

/// Names the folder of the logs.
const FOLDER: &str = "EQUAL_TEST_FOLDER";

fn main() {
    if let Ok(scenario) = env::var(SCENARIO) {
        play(&scenario);
    }
    let equal = [
        "nested",
        "names",
        "panic",
        "early",
        "threads",
        "tree",
        "events",
        "domains",
        "names-of-things",
        "records",
        "work",
        "counters",
        "deferred",
        "sites",
        "real",
    ];
    let mut trials: Vec<_> = equal
        .into_iter()
        .map(|scenario| Trial::test(format!("{scenario}_is_equal"), move || is_equal(scenario)))
        .collect();
    trials.push(Trial::test("odd_ends_lose_nothing", odd_ends_lose_nothing));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// The library with the observer, which is `examples/observing_tool.rs` built.
fn tool() -> PathBuf {
    let own = env::current_exe().expect("own path");
    let profile = own.parent().and_then(Path::parent).expect("target/PROFILE/deps");
    let tool = profile.join("examples/libobserving_tool.so");
    assert!(tool.exists(), "{} is missing: build the examples of gpuprof-inject", tool.display());
    tool
}

/// Plays a scenario in this process, and ends it.
fn play(scenario: &str) -> ! {
    let folder = PathBuf::from(env::var_os(FOLDER).expect("a folder"));
    // SAFETY: the library's initialisers may run in any process.
    let library = unsafe { libloading::Library::new(tool()) }.expect("the tool");
    // SAFETY: the library has a function of this name and type.
    let begin = *unsafe { library.get::<extern "C" fn() -> bool>("observing_tool_begin") }.unwrap();
    assert!(begin());
    let own = lines::Lines::to(&folder.join("own"), true);
    nvtx::observer::install(own).expect("no other observer").on();
    scenarios::play(scenario);
    assert!(nvtx::is_attached(), "{:?}", nvtx::attach_error());
    // SAFETY: as above.
    let counts = *unsafe { library.get::<extern "C" fn()>("observing_tool_counts") }.unwrap();
    counts();
    process::exit(0);
}

/// The lines of each thread, and what the library counted.
struct Outcome {
    own: BTreeMap<u32, Vec<String>>,
    tool: BTreeMap<u32, Vec<String>>,
    counts: String,
}

fn outcome(scenario: &str) -> Outcome {
    let folder = Folder::new();
    let log = folder.0.join("tool");
    let output = Command::new(env::current_exe().expect("own path"))
        .env(SCENARIO, scenario)
        .env(FOLDER, &folder.0)
        .env("OBSERVING_TOOL_LOG", &log)
        .env("NVTX_INJECTION64_PATH", tool())
        .output()
        .expect("could not start myself again");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{scenario}: {}\n{stderr}", output.status);
    let lines = |path: &Path| {
        let mut threads: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for line in fs::read_to_string(path).expect("a log").lines() {
            let (thread, line) = line.split_once(' ').expect("a thread");
            threads.entry(thread.parse().expect("an id")).or_default().push(line.to_owned());
        }
        threads
    };
    let counts = fs::read_to_string(log.with_extension("counts")).expect("counts");
    Outcome { own: lines(&folder.0.join("own")), tool: lines(&log), counts }
}

fn is_equal(scenario: &'static str) -> Result<(), Failed> {
    let mut outcome = outcome(scenario);
    if scenario == "deferred" {
        // Those with a colour are a batch of their own.
        let threads = [&mut outcome.own, &mut outcome.tool];
        threads.into_iter().flat_map(BTreeMap::values_mut).for_each(|lines| lines.sort());
    }
    assert!(outcome.own.values().map(Vec::len).sum::<usize>() > 3, "{:?}", outcome.own);
    assert_eq!(outcome.own.keys().collect::<Vec<_>>(), outcome.tool.keys().collect::<Vec<_>>());
    for (own, tool) in outcome.own.values().zip(outcome.tool.values()) {
        for (own, tool) in own.iter().zip(tool) {
            assert_eq!(own, tool);
        }
        assert_eq!(own.len(), tool.len());
    }
    let expected = match scenario {
        "names" => "cut_names 1\n",
        // The name of another domain's string.
        "deferred" => "",
        _ => "",
    };
    assert_eq!(outcome.counts, expected);
    Ok(())
}

/// Tools end the innermost range, and `nvtx-rs` the right one, so that lines differ.
fn odd_ends_lose_nothing() -> Result<(), Failed> {
    let outcome = outcome("odd-ends");
    let count = |threads: &BTreeMap<u32, Vec<String>>, what: &str| {
        threads.values().flatten().filter(|line| line.starts_with(what)).count()
    };
    for what in ["\"start ", "\"end "] {
        assert_eq!(count(&outcome.own, what), count(&outcome.tool, what), "{what}");
    }
    assert_eq!(count(&outcome.tool, "\"start "), 10_006);
    assert_eq!(outcome.counts, "cut_names 1\n");
    Ok(())
}
