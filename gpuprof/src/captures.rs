//! A folder of captures of Nsight Systems, one per rank, as one profile.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use gpuprof_control::manifest::RANK_VARIABLES;
use profiler_analysis::nsys::{self, Origin};
use profiler_core::Profile;
use profiler_core::profile::Merger;

use crate::failure::Failure;
use crate::file_names::is_report;
use crate::message::note;
use crate::output::private_folder;
use crate::{progress, tool};

/// A temporary folder of captures that `nsys` exports, deleted on drop.
pub(crate) struct Exports {
    folder: Option<PathBuf>,
    count: usize,
}

impl Exports {
    pub(crate) fn new() -> Self {
        Self { folder: None, count: 0 }
    }

    /// Exports a report of Nsight Systems. Returns the capture.
    pub(crate) fn export(&mut self, report: &Path) -> Result<PathBuf, Failure> {
        let Some(nsys) = tool::find("nsys", "NSYS")? else {
            let capture = report.with_extension("sqlite");
            return Err(Failure::Error(format!(
                "{report} is a report of Nsight Systems, which its nsys must export, and this machine has none in PATH or \
                 /usr/local/cuda/bin: set NSYS to it, or run `nsys export --type sqlite -o {capture} {report}` elsewhere",
                report = report.display(),
                capture = capture.display()
            )));
        };
        let folder = match &self.folder {
            Some(folder) => folder,
            None => {
                let remedy = "set TMPDIR to a folder that can be written";
                self.folder.insert(private_folder("capture", remedy)?)
            }
        };
        let capture = folder.join(format!("{}.sqlite", self.count));
        self.count += 1;
        let spinner = progress::spinner("exporting the report", true);
        let words = ["export", "--type", "sqlite", "--force-overwrite", "true", "-o"];
        let words = words.map(OsStr::new).into_iter();
        let exported = tool::run(&nsys, words.chain([capture.as_os_str(), report.as_os_str()]));
        spinner.finish_and_clear();
        exported.map(|_| capture)
    }
}

impl Drop for Exports {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            // What is left in a temporary folder is no failure.
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// Removes each report with an export that is as new, and each export that is older.
fn without_older(files: &mut Vec<PathBuf>) {
    let changed = |path: &Path| path.metadata().and_then(|about| about.modified()).ok();
    files.retain(|file| {
        let other = file.with_extension(if is_report(file) { "sqlite" } else { "nsys-rep" });
        changed(file).zip(changed(&other)).is_none_or(|(own, other)| match is_report(file) {
            true => own > other,
            false => own >= other,
        })
    });
}

/// A capture of the folder, and its export if it is a report.
struct Capture {
    name: PathBuf,
    file: PathBuf,
    origin: Origin,
}

impl Capture {
    fn open(name: &Path, exports: &mut Exports) -> Result<Self, Failure> {
        // Opening a pipe would wait for its writer.
        if !name.is_file() {
            return Err(Failure::Error(format!("{} is no file: it is not read", name.display())));
        }
        let file = match is_report(name) {
            true => exports.export(name)?,
            false => name.to_owned(),
        };
        Ok(Self { name: name.to_owned(), origin: Origin::read(&file)?, file })
    }
}

/// Reads the captures of a folder as one profile. One that cannot be read is reported and counted
/// as a loss, as in a folder of recordings.
pub(crate) fn read(folder: &Path, mut files: Vec<PathBuf>) -> Result<Profile, Failure> {
    without_older(&mut files);
    files.sort();
    let (mut exports, mut merger, mut last) = (Exports::new(), Merger::new(), None);
    let mut lose = |merger: &mut Merger, failure: Failure| {
        note(failure.message());
        merger.add_missing();
        last = Some(failure);
    };
    let mut captures = Vec::new();
    for (place, name) in (0..).zip(&files) {
        match Capture::open(name, &mut exports) {
            Ok(capture) => captures.push((place, capture)),
            Err(failure) => lose(&mut merger, failure),
        }
    }
    let ranked: Vec<_> = captures
        .iter()
        .map(|(place, Capture { name, origin, .. })| Ranked { place: *place, name, origin })
        .collect();
    let (ranks, source) = ranks(&ranked)?;
    for ((_, capture), rank) in captures.iter().zip(ranks) {
        let spinner = progress::spinner("reading the captures", captures.len() > 1);
        let rows = nsys::read_rows(&capture.file).map_err(Failure::from);
        spinner.finish_and_clear();
        if capture.file != capture.name {
            // Frees the space for the next.
            let _ = fs::remove_file(&capture.file);
        }
        let added = rows.and_then(|rows| {
            let added = merger.add_capture(rows, capture.origin.machine(), Some(rank));
            added.map_err(|error| Failure::Error(format!("{}: {error}", capture.name.display())))
        });
        if let Err(failure) = added {
            lose(&mut merger, failure);
        }
    }
    let profile = merger.finish().map_err(|error| last.unwrap_or_else(|| error.into()))?;
    if profile.has_several_processes() {
        note(&format!(
            "{}: the ranks of {} captures are from {source}; their times are aligned by the calendar time at the start of \
             each, with an unknown error",
            folder.display(),
            captures.len()
        ));
    }
    let last_start = profile.processes().map(|of| of.start()).max();
    let first_end = profile.processes().map(|of| of.start().saturating_add(of.duration())).min();
    if last_start > first_end {
        note(&format!(
            "{}: by their calendar times the captures are of different runs, or a clock is wrong: some end before others begin",
            folder.display()
        ));
    }
    Ok(profile)
}

/// A capture, with the sources of its rank.
struct Ranked<'a> {
    /// The place among the folder's captures by name.
    place: u32,
    name: &'a Path,
    origin: &'a Origin,
}

/// A source of ranks: the rank of a capture, and the source's name.
type Source = fn(&Ranked<'_>) -> Option<(u32, &'static str)>;

/// The sources in order; true for those whose ranks cannot repeat in one job.
const SOURCES: [(bool, Source); 4] = [
    (true, |one| {
        let of_variable = |name| Some((one.variable(name)?, name));
        let of_mpi = || Some((one.origin.mpi_rank()?, "MPI_RANKS"));
        RANK_VARIABLES.into_iter().find_map(of_variable).or_else(of_mpi)
    }),
    // Also 0 in each process that a batch script starts itself.
    (false, |one| Some((one.variable("SLURM_PROCID")?, "SLURM_PROCID"))),
    (true, |one| {
        Some((number_after_rank(&one.stem()?)?, "the numbers after `rank` in their names"))
    }),
    (false, |one| Some((last_number(&one.stem()?)?, "the last numbers of their names"))),
];

impl Ranked<'_> {
    fn variable(&self, name: &str) -> Option<u32> {
        self.origin.variable(name)?.parse().ok()
    }

    fn stem(&self) -> Option<String> {
        Some(self.name.file_stem()?.to_string_lossy().to_ascii_lowercase())
    }
}

/// The ranks of captures by the first source that has a rank for each, and its name.
fn ranks(captures: &[Ranked<'_>]) -> Result<(Vec<u32>, String), Failure> {
    for (is_certain, source) in SOURCES {
        let found: Option<Vec<_>> = captures.iter().map(source).collect();
        let Some(found) = found else { continue };
        let names: BTreeSet<&str> = found.iter().map(|(_, name)| *name).collect();
        let name = names.into_iter().collect::<Vec<_>>().join(", ");
        let ranks: Vec<u32> = found.into_iter().map(|(rank, _)| rank).collect();
        match check_distinct(captures, &ranks, &name) {
            Err(failure) if is_certain => return Err(failure),
            Err(_) => {}
            Ok(()) => return Ok((ranks, name)),
        }
    }
    let places = captures.iter().map(|one| one.place).collect();
    Ok((places, "the order of their names".to_owned()))
}

/// Refuses two captures of one rank.
fn check_distinct(captures: &[Ranked<'_>], ranks: &[u32], source: &str) -> Result<(), Failure> {
    let mut known: BTreeMap<u32, &Path> = BTreeMap::new();
    for (Ranked { name, .. }, rank) in captures.iter().zip(ranks) {
        if let Some(other) = known.insert(*rank, name) {
            return Err(Failure::Error(format!(
                "{} and {} are both rank {rank} by {source}: a folder has one capture per rank, so move one away",
                other.display(),
                name.display()
            )));
        }
    }
    Ok(())
}

fn number_after_rank(name: &str) -> Option<u32> {
    let after = name.rsplit_once("rank")?.1.trim_start_matches(['_', '-', '.', '=', ' ']);
    let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
    after[..end].parse().ok()
}

fn last_number(name: &str) -> Option<u32> {
    let name = name.trim_end_matches(|c: char| !c.is_ascii_digit());
    name.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_is_the_number_after_rank_or_the_last_one() {
        assert_eq!(number_after_rank("rank3"), Some(3));
        assert_eq!(number_after_rank("node1_rank-012.profile7"), Some(12));
        assert_eq!(number_after_rank("nranks4_rank"), None);
        assert_eq!(number_after_rank("report5"), None);
        assert_eq!(number_after_rank("rank99999999999"), None);
        assert_eq!(last_number("report5"), Some(5));
        assert_eq!(last_number("n0.train.17-end"), Some(17));
        assert_eq!(last_number("r\u{e4}nk"), None);
    }
}
