//! Reports of assertions in tests, as configured by the environment: files, annotations, a summary.

use std::env;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use profiler_base::replace;

use super::CiReport;
use super::github::path_in_checkout;

/// The variable that names the folder for JUnit files.
const FOLDER: &str = "GPU_TEST_REPORTS";
/// GitHub drops a summary of a step above 1 MiB.
const SUMMARY_BYTES: u64 = 1_000_000;
/// The maximum number of characters of a test's name in the name of a file.
const FILE_NAME_WIDTH: usize = 100;

/// The destinations that the environment configures.
#[derive(Debug, Default)]
struct Destinations {
    folder: Option<PathBuf>,
    is_github: bool,
    checkout: Option<PathBuf>,
    summary: Option<PathBuf>,
}

impl Destinations {
    fn from_env() -> Self {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty());
        let path = |name| set(name).map(PathBuf::from);
        let is_github = set("GITHUB_ACTIONS").is_some_and(|value| value == "true");
        let of_github = |name| path(name).filter(|_| is_github);
        Self {
            folder: path(FOLDER),
            is_github,
            checkout: of_github("GITHUB_WORKSPACE"),
            summary: of_github("GITHUB_STEP_SUMMARY"),
        }
    }
}

impl CiReport {
    /// Writes the report of an assertion at `caller` to the configured destinations. An error is
    /// reported on standard error and does not fail the test.
    pub fn publish(caller: &Location<'_>, report: impl FnOnce() -> Self) {
        let to = Destinations::from_env();
        if to.folder.is_none() && !to.is_github {
            return;
        }
        let report = report().named(test_name(caller)).at(caller.file(), caller.line());
        if let Some(folder) = &to.folder {
            let path = folder.join(file_name(&report.suite));
            let written = fs::create_dir_all(folder)
                .and_then(|()| replace::write_all(&path, report.to_junit()));
            note(written, FOLDER, &path);
        }
        if !to.is_github || report.is_pass() {
            return;
        }
        let report = match to.checkout.as_deref().and_then(|checkout| in_checkout(caller, checkout))
        {
            Some(file) => relocated(report, &file),
            None => report,
        };
        // The test harness captures the print macros. A command begins at the start of a line.
        let commands = format!("\n{}", report.to_github());
        let written = io::stdout().lock().write_all(commands.as_bytes());
        note(written, "GITHUB_ACTIONS", Path::new("standard output"));
        if let Some(summary) = &to.summary {
            note(append(summary, &report.to_markdown()), "GITHUB_STEP_SUMMARY", summary);
        }
    }
}

fn in_checkout(caller: &Location<'_>, checkout: &Path) -> Option<String> {
    // Resolves links, since the current folder has none.
    let checkout = checkout.canonicalize().ok()?;
    path_in_checkout(caller.file(), &env::current_dir().ok()?, &checkout)
}

fn relocated(mut report: CiReport, to: &str) -> CiReport {
    for (file, _) in report.checks.iter_mut().filter_map(|check| check.location.as_mut()) {
        to.clone_into(file);
    }
    report
}

fn append(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::options().append(true).create(true).open(path)?;
    if file.metadata()?.len() + text.len() as u64 > SUMMARY_BYTES {
        return Err(io::Error::other("it is full: GitHub drops a summary above 1 MiB"));
    }
    file.write_all(text.as_bytes())
}

fn note(written: io::Result<()>, variable: &str, to: &Path) {
    if let Err(error) = written {
        let to = to.display();
        let _ =
            writeln!(io::stderr(), "{variable}: a report could not be written to {to}: {error}");
    }
}

/// The test's thread has its name, unless the harness runs it on the main thread.
fn test_name(caller: &Location<'_>) -> String {
    let thread = thread::current();
    let name = thread.name().filter(|name| *name != "main");
    name.map_or_else(|| format!("{}:{}", caller.file(), caller.line()), str::to_owned)
}

/// A file name unique to this process: assertions of one test do not overwrite each other.
fn file_name(test: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let kept = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let name: String = test.chars().take(FILE_NAME_WIDTH).map(kept).collect();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{name}-{}-{number}.xml", std::process::id())
}
