//! Processes of our own for the tests of tools: a process has its tool for life, so each case needs one.
//!
//! The test's binary starts itself again with a scenario's name in a variable, and [`run_scenario`],
//! called first in `main`, plays it. So nothing but the test's binary and the fake tool is needed.
#![allow(
    dead_code,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test's support, of which each test uses a part"
)]

pub(crate) mod fork;
pub(crate) mod scenarios;
pub(crate) mod whole;

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};

/// Names the scenario that a started process plays.
pub(crate) const SCENARIO: &str = "NVTX_TEST_SCENARIO";

/// In a process started for a scenario: plays it, says what became of the tool, and exits.
pub(crate) fn run_scenario() {
    let Ok(name) = env::var(SCENARIO) else {
        return;
    };
    scenarios::play(&name);
    println!("attached: {}", nvtx::is_attached());
    if let Some(error) = nvtx::attach_error() {
        println!("{error}");
    }
    process::exit(0);
}

/// What a scenario's process left.
pub(crate) struct Outcome {
    pub(crate) stdout: String,
    /// The fake tool's log.
    pub(crate) events: Vec<String>,
}

/// Plays a scenario in a process of its own, with the library `tool` as NVTX's tool.
pub(crate) fn play(scenario: &str, tool: Option<&str>, mode: &str) -> Outcome {
    let folder = Folder::new();
    let log = folder.0.join("events");
    let mut command = Command::new(env::current_exe().expect("own path"));
    command
        .env(SCENARIO, scenario)
        .env("FAKE_NVTX_LOG", &log)
        .env("FAKE_NVTX_MODE", mode)
        .env_remove("NVTX_INJECTION64_PATH");
    if let Some(tool) = tool {
        command.env("NVTX_INJECTION64_PATH", tool);
    }
    let output = command.output().expect("could not start myself again");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{scenario}: {}\n{stdout}{stderr}", output.status);
    let events = fs::read_to_string(&log).unwrap_or_default();
    Outcome { stdout, events: events.lines().map(str::to_owned).collect() }
}

/// The fake tool's library, which is `fake_tool.rs` built as an example.
pub(crate) fn fake_tool() -> String {
    const FILE: &str = "libfake_tool.so";
    let mut places: Vec<PathBuf> = Vec::new();
    if let Some(path) = env::var_os("FAKE_NVTX_TOOL") {
        places.push(path.into());
    } else {
        // Tests are built to target/<profile>/deps, and examples to target/<profile>/examples.
        let own = env::current_exe().expect("own path");
        if let Some(profile) = own.parent().and_then(|deps| deps.parent()) {
            places.push(profile.join("examples").join(FILE));
        }
        // Where tests run away from their build, the libraries they load are gathered here.
        places.push(PathBuf::from("../.gpu/lib").join(FILE));
    }
    for place in &places {
        // An absolute path: the loader looks a bare name up elsewhere.
        if let Ok(path) = place.canonicalize() {
            return path.to_str().expect("a path in UTF-8").to_owned();
        }
    }
    panic!(
        "the fake tool is missing; looked for {places:?}. Build it with \
         `cargo build -p gpuprof-nvtx --examples`, or name it in FAKE_NVTX_TOOL"
    );
}

/// A folder that is removed when dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("nvtx-rs-{}-{next}", process::id()));
        fs::create_dir_all(&path).expect("could not make a folder for the test");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
