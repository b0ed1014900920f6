//! Input files. The file type is detected from the content, not the extension.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, IsTerminal as _, Read};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use gpuprof_control::RunFolder;
use gpuprof_control::manifest::{Process, State};
use indicatif::ProgressBar;
use profiler_analysis::kineto;
use profiler_core::profile::Merger;
use profiler_core::{Profile, Recording};

use crate::captures::{self, Exports};
use crate::failure::Failure;
use crate::file_names::{is_capture, is_recording, is_report};
use crate::global::GlobalArgs;
use crate::message::note;
use crate::{progress, suggest};

const RECORDING: &[u8] = b"GPUPROF";
const SQLITE: &[u8] = b"SQLite format 3\0";
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// The list of accepted files, for messages.
const GIVE: &str = "give a recording (.gpuprof), a capture converted by `nsys export --type sqlite`, a folder of \
                    either, or a trace of torch.profiler (JSON, also with gzip)";

/// Reads a profile and drops the logs of its recording, which use more memory than the profile.
pub(crate) fn profile(path: &Path) -> Result<Profile, Failure> {
    read(path, Profile::without_recording)
}

/// Reads a profile and retains the logs of its recording.
pub(crate) fn recorded(path: &Path) -> Result<Profile, Failure> {
    read(path, |profile| profile)
}

fn read(path: &Path, keep: impl FnOnce(Profile) -> Profile) -> Result<Profile, Failure> {
    let mut profile = exact(path, keep)?;
    let Some(args) = GlobalArgs::get() else { return Ok(profile.with_inferred_ranges()) };
    if !args.no_inferred {
        profile = profile.with_inferred_ranges();
    }
    profile = args.part.take(path, profile)?;
    Ok(match args.communication.as_ref() {
        Some(names) => profile.with_communication(|name| names.is_match(name)),
        None => profile,
    })
}

/// The kinds of input files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Folder,
    Recording,
    Capture,
    Trace,
}

impl FileKind {
    /// The kind of a file with these first bytes.
    fn from_content(bytes: &[u8]) -> Option<Self> {
        if begins(bytes, SQLITE) {
            Some(Self::Capture)
        } else if begins(bytes, RECORDING) {
            Some(Self::Recording)
        } else if is_json(bytes) || bytes.starts_with(GZIP) {
            Some(Self::Trace)
        } else {
            None
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Folder => "folder of recordings",
            Self::Recording => "recording",
            Self::Capture => "capture of Nsight Systems",
            Self::Trace => "trace of torch.profiler",
        }
    }
}

/// The kind of a file or folder, from its first bytes.
pub(crate) fn kind(path: &Path) -> Result<FileKind, Failure> {
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    if path.is_dir() {
        return Ok(FileKind::Folder);
    }
    let (bytes, _) = begin(path, file)?;
    FileKind::from_content(&bytes).ok_or_else(|| of_no_kind(path, &bytes))
}

fn of_no_kind(path: &Path, bytes: &[u8]) -> Failure {
    Failure::Error(format!("{} is {}: {GIVE}", path.display(), unknown(path, bytes)))
}

fn exact(path: &Path, keep: impl FnOnce(Profile) -> Profile) -> Result<Profile, Failure> {
    let is_standard = path == Path::new("-");
    let opened = if is_standard { standard_input()? } else { File::open(path) };
    // SQLite opens files only by path.
    let path = if is_standard { Path::new("/dev/stdin") } else { path };
    let file = opened.map_err(|error| unreadable(path, &error))?;
    let about = file.metadata().map_err(|error| unreadable(path, &error))?;
    if about.is_dir() {
        return folder(path);
    }
    let (bytes, file) = begin(path, file)?;
    let is_large = progress::is_large(about.len());
    match FileKind::from_content(&bytes) {
        Some(FileKind::Capture) => {
            if !about.is_file() {
                let path = path.display();
                return Err(Failure::Error(format!(
                    "{path} is a capture that comes through a pipe: SQLite needs a file, so write it to one first"
                )));
            }
            let spinner = progress::spinner("reading the capture", is_large);
            let profile = profiler_analysis::nsys::read(path);
            spinner.finish_and_clear();
            profile.map_err(Failure::from)
        }
        Some(FileKind::Recording) => {
            let bar = match is_large {
                true => progress::bar("reading", about.len(), true),
                false => ProgressBar::hidden(),
            };
            let recording = recording(path, &about, bar.wrap_read((&bytes[..]).chain(file)));
            bar.finish_and_clear();
            let spinner = progress::spinner("joining calls and records", is_large);
            let profile = recording.map(|recording| keep(Profile::from_recording(recording)));
            spinner.finish_and_clear();
            profile
        }
        Some(FileKind::Trace) => {
            let max_bytes = GlobalArgs::get().map_or(Recording::MAX_BYTES, |args| args.max_bytes);
            let spinner = progress::spinner("reading the trace", is_large);
            let profile = kineto::read_from((&bytes[..]).chain(file), max_bytes);
            spinner.finish_and_clear();
            profile.map_err(|error| Failure::Error(format!("{}: {error}", path.display())))
        }
        None if is_report(path) && !bytes.is_empty() => exported(path),
        Some(FileKind::Folder) | None => Err(of_no_kind(path, &bytes)),
    }
}

/// Reads a report of Nsight Systems through a capture that `nsys` exports into a temporary folder.
fn exported(path: &Path) -> Result<Profile, Failure> {
    let mut exports = Exports::new();
    Ok(profiler_analysis::nsys::read(exports.export(path)?)?)
}

/// True for the start of a JSON object.
fn is_json(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().starts_with(b"{")
}

fn standard_input() -> Result<io::Result<File>, Failure> {
    let input = io::stdin();
    match input.is_terminal() {
        true => Err(Failure::Usage(
            "standard input is a terminal: send a recording to it, as in `gpuprof - < run.gpuprof`"
                .to_owned(),
        )),
        false => Ok(input.as_fd().try_clone_to_owned().map(File::from)),
    }
}

/// Reads the first bytes of a file. Returns them and the file positioned after them.
fn begin(path: &Path, mut file: File) -> Result<(Vec<u8>, File), Failure> {
    let mut bytes = Vec::with_capacity(SQLITE.len());
    let read = file.by_ref().take(SQLITE.len() as u64).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(path, &error))?;
    Ok((bytes, file))
}

fn recording(path: &Path, about: &Metadata, source: impl Read) -> Result<Recording, Failure> {
    let max_bytes = GlobalArgs::get().map_or(Recording::MAX_BYTES, |args| args.max_bytes);
    match about.is_file() && about.len() > max_bytes {
        // This call fails at once because the file is too large.
        true => Recording::load_up_to(path, max_bytes).map_err(Failure::from),
        false => Recording::read_from(source, max_bytes)
            .map_err(|error| Failure::Error(format!("{}: {error}", path.display()))),
    }
}

/// The recordings of a folder by name, with each process's entry in the run manifests.
struct Folder {
    files: Vec<(PathBuf, Metadata)>,
    /// Paths that have a recording's extension but are not files.
    others: Vec<PathBuf>,
    /// The processes, keyed by the file name of the recording.
    processes: HashMap<OsString, Process>,
    /// Captures of Nsight Systems, which are read if there is no recording.
    captures: Vec<PathBuf>,
}

impl Folder {
    fn open(path: &Path) -> Result<Self, Failure> {
        let of_folder = |error: io::Error| unreadable(path, &error);
        let (mut files, mut others, mut captures) = (Vec::new(), Vec::new(), Vec::new());
        for entry in path.read_dir().map_err(of_folder)? {
            let path = entry.map_err(of_folder)?.path();
            let is_recording = is_recording(&path);
            // `metadata` follows links.
            match path.metadata().ok().filter(Metadata::is_file) {
                Some(about) if is_recording => files.push((path, about)),
                None if is_recording => others.push(path),
                _ if is_capture(&path) => captures.push(path),
                _ => {}
            }
        }
        let manifests = RunFolder::open(path).and_then(|folder| folder.processes());
        let manifests = manifests.map_err(|error| Failure::Error(error.to_string()))?;
        // Without its manifest a process has no name.
        manifests.unreadable.iter().for_each(|error| note(&error.to_string()));
        let named = |process: Process| (process.recording_name().into(), process);
        let processes: HashMap<OsString, _> = manifests.found.into_iter().map(named).collect();
        // Sort a recording with a manifest before its copies.
        let is_copy =
            |file: &Path| file.file_name().is_none_or(|name| !processes.contains_key(name));
        files.sort_by(|(a, _), (b, _)| (is_copy(a), a).cmp(&(is_copy(b), b)));
        others.sort();
        Ok(Self { files, others, processes, captures })
    }

    /// The processes in order of id and image, each with true if its recording is in the folder.
    fn states(&self) -> impl Iterator<Item = (&Process, bool)> {
        let mut processes: Vec<_> = self.processes.iter().collect();
        processes.sort_by_key(|(_, process)| (process.id, process.image));
        let files: HashSet<_> =
            self.files.iter().filter_map(|(file, _)| file.file_name()).collect();
        processes
            .into_iter()
            .map(move |(name, process)| (process, files.contains(name.as_os_str())))
    }

    /// Describes why a run has no recording.
    fn without_recordings(&self, path: &Path) -> Failure {
        let path = path.display();
        if self.processes.is_empty() {
            return Failure::Error(format!(
                "{path} is a folder without recordings (.gpuprof): {GIVE}"
            ));
        }
        let state = |(process, _): (&Process, bool)| {
            let reason = process.reason.as_deref().map(|reason| format!(" ({reason})"));
            let (id, state) = (process.id.pid, process.state.name());
            format!("{} {id} is {state}{}", process.program, reason.unwrap_or_default())
        };
        let more = self.processes.len().saturating_sub(NAMED);
        let more = (more != 0).then(|| format!("{more} more"));
        let states: Vec<_> = self.states().take(NAMED).map(state).chain(more).collect();
        let is_any =
            |is: fn(State) -> bool| self.processes.values().any(|process| is(process.state));
        let why = if is_any(State::is_open) {
            "`gpuprof snapshot` writes the last part of a process with --keep-last"
        } else if is_any(|state| state == State::Yielded) {
            "a program that records itself writes its own recording"
        } else {
            "no process of the run used the GPU, or none could be recorded"
        };
        Failure::Error(format!("{path} has no recording: {why}: {}", states.join(", ")))
    }
}

/// Prints the losses, for commands that do not report the profile's health.
pub(crate) fn note_losses(file: &Path, profile: &Profile) {
    let health = profile.health();
    if !health.is_complete() {
        note(&format!("{} is {health}{}", file.display(), of_processes(profile)));
    } else if health.facts.capture_warnings != 0 {
        note(&format!(
            "{}: {} warnings from its recorder, {}; `gpuprof report` shows them",
            file.display(),
            health.facts.capture_warnings,
            profile.recording_info().recorder_version,
        ));
    }
}

/// The missing data of incomplete processes, as the end of a message.
fn of_processes(profile: &Profile) -> String {
    let of = profile.incomplete_processes().take(NAMED);
    of.map(|(process, missing)| format!("; {process}: {missing}")).collect()
}

/// The maximum number of processes named in a message. The report lists more.
const NAMED: usize = 8;

/// Reads all recordings of a folder as one profile. A missing or unreadable recording is reported
/// and counted as a loss.
fn folder(path: &Path) -> Result<Profile, Failure> {
    let folder = Folder::open(path)?;
    let has_recordings = !(folder.files.is_empty() && folder.processes.is_empty());
    match &folder.captures[..] {
        [] => {}
        captures if has_recordings => note(&format!(
            "{} has recordings: its captures of Nsight Systems are not read ({})",
            path.display(),
            captures.len()
        )),
        _ => return captures::read(path, folder.captures),
    }
    for other in &folder.others {
        let why = match other.is_symlink() && !other.exists() {
            true => "is a link to nothing",
            false => "is no file",
        };
        note(&format!("{} {why}: it is not read", other.display()));
    }
    if folder.files.is_empty() {
        return Err(folder.without_recordings(path));
    }
    let bytes = folder.files.iter().map(|(_, about)| about.len()).sum();
    let bar = match progress::is_large(bytes) {
        true => progress::bar("reading and joining", bytes, true),
        false => ProgressBar::hidden(),
    };
    let mut merger = Merger::new();
    folder.others.iter().for_each(|_| merger.add_missing());
    let mut last = None;
    for (file, about) in &folder.files {
        let opened = open_regular(file).map_err(|error| unreadable(file, &error));
        let recording = opened.and_then(|opened| recording(file, about, bar.wrap_read(opened)));
        let process = file.file_name().and_then(|name| folder.processes.get(name));
        match recording {
            Ok(recording) => {
                let name = process.map(|process| process.program.clone());
                let rank = process.and_then(|process| process.rank);
                let added = merger.add_process(recording, name, rank);
                let of_file = |error| format!("{}: {error}", file.display());
                match added {
                    Err(error) if error.is_duplicate() => {
                        bar.suspend(|| note(&of_file(error)));
                        merger.add_missing();
                    }
                    added => added.map_err(|error| Failure::Error(of_file(error)))?,
                }
            }
            Err(failure) => {
                bar.suspend(|| note(failure.message()));
                merger.add_missing();
                last = Some(failure);
            }
        }
    }
    bar.finish_and_clear();
    for (process, is_here) in folder.states() {
        let (program, id) = (&process.program, process.id.pid);
        let reason = process.reason.as_deref().unwrap_or("no reason is given");
        match process.state {
            State::Failed => note(&format!("recording {program} (process {id}) failed: {reason}")),
            State::Yielded if !is_here => note(&format!(
                "{program} (process {id}) records itself: it writes its own recording"
            )),
            _ if process.has_recording && !is_here => {
                let name = process.recording_name();
                note(&format!("{name} is not in {}: move it back", path.display()));
            }
            _ => continue,
        }
        let is_missing = process.state == State::Failed || process.has_recording;
        if is_missing && !is_here {
            merger.add_missing();
        }
    }
    merger.finish().map_err(|error| last.unwrap_or_else(|| error.into()))
}

/// Opens a regular file. Does not wait for the writer if a pipe has replaced the file.
fn open_regular(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file any more")),
    }
}

/// True for a file that starts with this magic, and for a file truncated within the magic.
fn begins(bytes: &[u8], magic: &[u8]) -> bool {
    bytes.starts_with(magic) || (!bytes.is_empty() && magic.starts_with(bytes))
}

fn unknown(path: &Path, bytes: &[u8]) -> &'static str {
    if bytes.is_empty() {
        "empty"
    } else if bytes.starts_with(ZSTD) {
        "compressed; unpack it first"
    } else if is_report(path) {
        "a report of Nsight Systems in its own format; export it first"
    } else {
        "not a known profile format"
    }
}

pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let shown = path.display();
    Failure::Error(match error.kind() {
        io::ErrorKind::NotFound => {
            format!("there is no file {shown}: {GIVE}{}", suggest::file(path))
        }
        io::ErrorKind::PermissionDenied => {
            format!("no permission to read {shown}: ask its owner for access or a copy")
        }
        _ => format!("could not read {shown}: {error}"),
    })
}
