//! `cargo gpuprof`: records the programs that a command of cargo runs, and reads the last runs of a
//! workspace.
//!
//! Cargo itself is the program of `gpuprof run`. What it starts inherits the injection variables, so
//! `run`, `test` with documentation tests, `bench` and external commands such as `nextest` build and
//! run as they do without gpuprof, and the processes of one command are one run. `cargo run` becomes
//! its program by `exec`, whose status and signals are thus those of the run. A runner of cargo
//! (`CARGO_TARGET_<TRIPLE>_RUNNER`) would replace one that the user has set, need the triple, and make
//! each test program a run of its own. Compilers and build scripts inherit the variables as well,
//! which only CUDA and NVTX read.

mod profile;
mod runs;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use clap::FromArgMatches as _;
use serde::Deserialize;

use crate::args::{CargoArgs, RunArgs, parsed};
use crate::failure::Failure;
use crate::run::{not_started, record};
use runs::Runs;

/// The task of a command line of `cargo gpuprof`.
pub(crate) enum Task {
    /// A command line of `gpuprof`.
    Gpuprof(Vec<OsString>),
    /// A recording of a command of cargo.
    Cargo(Box<CargoArgs>),
}

/// Parses the command line. Cargo puts the name of its command, `gpuprof`, before the arguments.
pub(crate) fn parse(mut words: Vec<OsString>) -> Result<Task, Failure> {
    if words.get(1).is_some_and(|word| word == "gpuprof") {
        words.remove(1);
    }
    if let Some(count) = words.get(1).and_then(|word| runs_read_by(word)) {
        let wants_help = words.iter().any(|word| word == "--help" || word == "-h");
        let runs = if wants_help { Vec::new() } else { last_runs(count)? };
        let command = ["gpuprof".into(), words[1].clone()].into_iter();
        return Ok(Task::Gpuprof(command.chain(runs).chain(words.drain(2..)).collect()));
    }
    let matches = CargoArgs::command_with_examples().try_get_matches_from(words);
    let args = matches.and_then(|matches| CargoArgs::from_arg_matches(&matches)).map_err(parsed)?;
    let first = args.run.program.first().map(OsString::as_os_str).unwrap_or_default();
    let shown = first.display();
    if runs_read_by(first).is_some() {
        return Err(Failure::Usage(format!(
            "the options before {shown} are those of a recording: write `cargo gpuprof {shown} [OPTIONS]`"
        )));
    }
    if first.as_encoded_bytes().starts_with(b"-") {
        return Err(Failure::Usage(format!(
            "{shown} is no option of `gpuprof run`, which `cargo gpuprof --help` lists: options of cargo follow its command, as in \
             `cargo gpuprof run {shown}`"
        )));
    }
    Ok(Task::Cargo(Box::new(args)))
}

/// The number of runs that a command reads; `None` for a command of cargo.
fn runs_read_by(command: &OsStr) -> Option<usize> {
    match command.to_str() {
        Some("report" | "open") => Some(1),
        Some("diff") => Some(2),
        _ => None,
    }
}

/// The paths of the last runs of the workspace, the oldest first.
fn last_runs(count: usize) -> Result<Vec<OsString>, Failure> {
    let runs = Runs::new(&Workspace::find(None)?.target_directory).last(count)?;
    Ok(runs.into_iter().map(PathBuf::into_os_string).collect())
}

/// Records a command of cargo, and removes runs beyond the number that is kept.
pub(crate) fn run(mut args: RunArgs) -> Result<(), Failure> {
    let (runs, variables) = prepared(&args.program).map_err(not_started)?;
    args.program.insert(0, cargo());
    let outcome = record(args, runs.folder(), &variables)?;
    runs.prune();
    outcome.end()
}

/// The runs of the workspace, and the variables for a command of cargo.
fn prepared(command: &[OsString]) -> Result<(Runs, Vec<(String, OsString)>), Failure> {
    let workspace = Workspace::find(profile::option(command, "--manifest-path"))?;
    let runs = Runs::new(&workspace.target_directory);
    fs::create_dir_all(runs.folder()).map_err(|error| {
        Failure::Error(format!(
            "could not create {}: {error}; CARGO_TARGET_DIR names another target folder",
            runs.folder().display()
        ))
    })?;
    let variable = profile::variable(command, &workspace.workspace_root);
    Ok((runs, variable.into_iter().map(|name| (name, profile::LINE_TABLES.into())).collect()))
}

/// The cargo that started this program.
fn cargo() -> OsString {
    env::var_os("CARGO").filter(|cargo| !cargo.is_empty()).unwrap_or_else(|| "cargo".into())
}

/// The folders of a workspace, as `cargo metadata` gives them.
#[derive(Debug, Deserialize)]
struct Workspace {
    target_directory: PathBuf,
    workspace_root: PathBuf,
}

impl Workspace {
    /// The workspace of a manifest, or of the current folder.
    fn find(manifest: Option<&str>) -> Result<Self, Failure> {
        let failed = |why: String| {
            Failure::Error(format!(
                "`cargo metadata` did not find the target folder: {why}; run `cargo gpuprof` within a workspace or package"
            ))
        };
        let mut metadata = Command::new(cargo());
        metadata.args(["metadata", "--no-deps", "--format-version", "1"]);
        metadata.args(manifest.iter().flat_map(|path| ["--manifest-path", path]));
        let output = metadata.output().map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            return Err(failed(error.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
    }
}
