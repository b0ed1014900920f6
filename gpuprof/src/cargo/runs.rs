//! The runs in `target/gpuprof` of a workspace.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gpuprof_control::RunFolder;
use gpuprof_control::manifest::Run;

use crate::args::KEPT_RUNS;
use crate::failure::Failure;
use crate::message::note;

pub(super) struct Runs {
    folder: PathBuf,
}

impl Runs {
    /// The runs in a target folder.
    pub(super) fn new(target: &Path) -> Self {
        Self { folder: target.join("gpuprof") }
    }

    /// The folder of the run folders.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The run folders that `cargo gpuprof` has named, in order of start time.
    fn all(&self) -> Result<Vec<RunFolder>, Failure> {
        let unreadable = |error: io::Error| {
            Failure::Error(format!("could not read {}: {error}", self.folder.display()))
        };
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(unreadable)?,
        };
        let mut runs = Vec::new();
        for entry in entries {
            let entry = entry.map_err(unreadable)?;
            // A link is no folder here.
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let Ok(folder) = RunFolder::open(&entry.path()) else { continue };
            if let Ok(Some(run)) = folder.run()
                && entry.file_name().to_str().is_some_and(|name| is_named(name, &run))
            {
                runs.push((run.began.wall_ns, folder));
            }
        }
        runs.sort_by_key(|(began, _)| *began);
        Ok(runs.into_iter().map(|(_, folder)| folder).collect())
    }

    /// The last runs with a recording, the oldest first.
    pub(super) fn last(&self, count: usize) -> Result<Vec<PathBuf>, Failure> {
        let mut runs = self.all()?;
        runs.retain(has_recording);
        match runs.len().checked_sub(count) {
            Some(before) => Ok(runs[before..].iter().map(|run| run.path().to_owned()).collect()),
            None => Err(Failure::Error(format!(
                "{} has {} recorded runs, and {count} are needed: record one with `cargo gpuprof run`, `test` or `bench`",
                self.folder.display(),
                runs.len()
            ))),
        }
    }

    /// Removes the oldest runs beyond [`KEPT_RUNS`], but for those whose processes are alive.
    pub(super) fn prune(&self) {
        let runs = self.all().unwrap_or_else(|failure| {
            note(failure.message());
            Vec::new()
        });
        let excess = runs.len().saturating_sub(KEPT_RUNS);
        for run in runs.into_iter().take(excess).filter(|run| !is_alive(run)) {
            if let Err(error) = run.remove() {
                note(&format!("an old run was not removed: {error}"));
            }
        }
    }
}

/// True for the name that `gpuprof run` chooses: `PROGRAM-DATE-TIME.gpurun`, or `-NUMBER` after the
/// time.
fn is_named(name: &str, run: &Run) -> bool {
    let time = name.strip_prefix(&*run.program).and_then(|rest| rest.strip_suffix(".gpurun"));
    time.is_some_and(|time| {
        time.starts_with('-') && time.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit())
    })
}

fn has_recording(run: &RunFolder) -> bool {
    run.processes().is_ok_and(|found| found.found.iter().any(|process| process.has_recording))
}

fn is_alive(run: &RunFolder) -> bool {
    run.processes().is_ok_and(|found| found.found.iter().any(|process| process.id.is_alive()))
}
