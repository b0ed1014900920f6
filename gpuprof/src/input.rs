//! Input files. The file type is detected from the content, not the extension.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::ProgressBar;
use profiler_core::profile::Merger;
use profiler_core::{Profile, Recording};

use crate::failure::{Failure, note};
use crate::progress;

const RECORDING: &[u8] = b"GPUPROF";
const SQLITE: &[u8] = b"SQLite format 3\0";
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// The accepted files, for messages.
const GIVE: &str = "give a recording (.gpuprof), a folder of recordings, or what `nsys export --type sqlite` made of a \
                    capture";

/// The maximum size of a recording, from `--max-bytes`.
static MAX_BYTES: AtomicU64 = AtomicU64::new(Recording::MAX_BYTES);

pub(crate) fn set_max_bytes(max_bytes: u64) {
    MAX_BYTES.store(max_bytes, Ordering::Relaxed);
}

/// Reads a profile without the logs of its recording, which take more memory than the profile.
pub(crate) fn profile(path: &Path) -> Result<Profile, Failure> {
    read(path, Profile::without_recording)
}

/// Reads a profile with the logs of its recording.
pub(crate) fn recorded(path: &Path) -> Result<Profile, Failure> {
    read(path, |profile| profile)
}

fn read(path: &Path, keep: impl FnOnce(Profile) -> Profile) -> Result<Profile, Failure> {
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let about = file.metadata().map_err(|error| unreadable(path, &error))?;
    if about.is_dir() {
        return folder(path);
    }
    let (bytes, file) = begin(path, file)?;
    let is_large = progress::is_large(about.len());
    if begins(&bytes, SQLITE) {
        if !about.is_file() {
            let path = path.display();
            return Err(Failure::Error(format!(
                "{path} is a capture that comes through a pipe: SQLite needs a file, so write it to one first"
            )));
        }
        let spinner = progress::spinner("reading the capture", is_large);
        let profile = Profile::from_nsys(path);
        spinner.finish_and_clear();
        return profile.map_err(Failure::from);
    }
    if begins(&bytes, RECORDING) {
        let bar = match is_large {
            true => progress::bar("reading", about.len(), true),
            false => ProgressBar::hidden(),
        };
        let recording = recording(path, &about, bar.wrap_read((&bytes[..]).chain(file)));
        bar.finish_and_clear();
        let spinner = progress::spinner("joining calls and records", is_large);
        let profile = recording.map(|recording| keep(Profile::from_recording(recording)));
        spinner.finish_and_clear();
        return profile;
    }
    Err(Failure::Error(format!("{} is {}: {GIVE}", path.display(), unknown(path, &bytes))))
}

/// The first bytes of a file, and the file after them.
fn begin(path: &Path, mut file: File) -> Result<(Vec<u8>, File), Failure> {
    let mut bytes = Vec::with_capacity(SQLITE.len());
    let read = file.by_ref().take(SQLITE.len() as u64).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(path, &error))?;
    Ok((bytes, file))
}

fn recording(path: &Path, about: &Metadata, source: impl Read) -> Result<Recording, Failure> {
    let max_bytes = MAX_BYTES.load(Ordering::Relaxed);
    match about.is_file() && about.len() > max_bytes {
        // Fails at once.
        true => Recording::load_up_to(path, max_bytes).map_err(Failure::from),
        false => Recording::read_from(source, max_bytes)
            .map_err(|error| Failure::Error(format!("{}: {error}", path.display()))),
    }
}

/// The recordings in a folder, as that of a run of several processes, by name.
fn recordings(folder: &Path) -> Result<Vec<(PathBuf, Metadata)>, Failure> {
    let of_folder = |error: io::Error| unreadable(folder, &error);
    let mut files = Vec::new();
    for entry in folder.read_dir().map_err(of_folder)? {
        let path = entry.map_err(of_folder)?.path();
        let is_recording = path.extension().is_some_and(|extension| extension == "gpuprof");
        // Follows links. What cannot be looked at is reported when it is opened.
        let about = path.metadata().ok();
        if is_recording && let Some(about) = about.filter(Metadata::is_file) {
            files.push((path, about));
        }
    }
    files.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(files)
}

/// Reads all recordings of a folder as one profile. A recording that cannot be read is reported and
/// counted as a loss.
fn folder(path: &Path) -> Result<Profile, Failure> {
    let files = recordings(path)?;
    if files.is_empty() {
        return Err(Failure::Error(format!(
            "{} is a folder without recordings (.gpuprof): {GIVE}",
            path.display()
        )));
    }
    let bytes = files.iter().map(|(_, about)| about.len()).sum();
    let bar = match progress::is_large(bytes) {
        true => progress::bar("reading and joining", bytes, true),
        false => ProgressBar::hidden(),
    };
    let mut merger = Merger::new();
    let mut last = None;
    for (file, about) in &files {
        let opened = File::open(file).map_err(|error| unreadable(file, &error));
        let recording = opened.and_then(|opened| recording(file, about, bar.wrap_read(opened)));
        match recording {
            Ok(recording) => merger
                .add(recording)
                .map_err(|error| Failure::Error(format!("{}: {error}", file.display())))?,
            Err(failure) => {
                bar.suspend(|| note(failure.message()));
                merger.add_unreadable();
                last = Some(failure);
            }
        }
    }
    bar.finish_and_clear();
    merger.finish().map_err(|error| last.unwrap_or_else(|| error.into()))
}

/// True for a file with this magic, and for one cut off within it.
fn begins(bytes: &[u8], magic: &[u8]) -> bool {
    bytes.starts_with(magic) || (!bytes.is_empty() && magic.starts_with(bytes))
}

fn unknown(path: &Path, bytes: &[u8]) -> &'static str {
    let extension = path.extension().map(|extension| extension.to_ascii_lowercase());
    if bytes.is_empty() {
        "empty"
    } else if bytes.starts_with(GZIP) || bytes.starts_with(ZSTD) {
        "compressed; unpack it first"
    } else if extension.is_some_and(|extension| extension == "nsys-rep" || extension == "qdrep") {
        "a report of Nsight Systems in its own format, which has to be exported first"
    } else {
        "no profile that this program knows"
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    Failure::Error(match error.kind() {
        io::ErrorKind::NotFound => format!("there is no file {path}: {GIVE}"),
        io::ErrorKind::PermissionDenied => {
            format!("no permission to read {path}: ask its owner for it, or for a copy")
        }
        _ => format!("could not read {path}: {error}"),
    })
}
