//! Input files. The file type is detected from the content, not the extension.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::ProgressBar;
use profiler_core::{Profile, Recording};

use crate::failure::Failure;
use crate::progress;

const RECORDING: &[u8] = b"GPUPROF";
const SQLITE: &[u8] = b"SQLite format 3\0";
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// The accepted files, for messages.
const GIVE: &str =
    "give a recording (.gpuprof) or what `nsys export --type sqlite` made of a capture";

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
    let mut file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let about = file.metadata().map_err(|error| unreadable(path, &error))?;
    if about.is_dir() {
        return Err(Failure::Error(format!("{} is a directory: {GIVE}", path.display())));
    }
    let mut bytes = Vec::with_capacity(SQLITE.len());
    let read = file.by_ref().take(SQLITE.len() as u64).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(path, &error))?;
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
        let max_bytes = MAX_BYTES.load(Ordering::Relaxed);
        let recording = match about.is_file() && about.len() > max_bytes {
            // Fails at once.
            true => Recording::load_up_to(path, max_bytes).map_err(Failure::from),
            false => Recording::read_from(bar.wrap_read((&bytes[..]).chain(file)), max_bytes)
                .map_err(|error| Failure::Error(format!("{}: {error}", path.display()))),
        };
        bar.finish_and_clear();
        let spinner = progress::spinner("joining calls and records", is_large);
        let profile = recording.map(|recording| keep(Profile::from_recording(recording)));
        spinner.finish_and_clear();
        return profile;
    }
    Err(Failure::Error(format!("{} is {}: {GIVE}", path.display(), unknown(path, &bytes))))
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
