//! The folder with the manifests and recordings of a run.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::libc::{ELOOP, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK};
use profiler_base::replace::Replacement;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Error;
use crate::manifest::{Check, Process, Run, with_base_names};

const RUN_FILE: &str = "run.json";
const PREFIX: &str = "process-";
const SUFFIX: &str = ".json";
const RECORDING_SUFFIX: &str = ".gpuprof";
const ALWAYS_ON_SUFFIX: &str = ".always-on.txt";
const INCIDENTS: &str = "incidents";

/// The maximum size of a manifest that is read, in bytes.
const MAX_BYTES: u64 = 64 << 10;
/// The maximum number of bytes read from the report of an always-on process.
const MAX_REPORT: u64 = 1 << 20;
/// The maximum number of entries examined in a folder.
const MAX_ENTRIES: usize = 1 << 16;
/// The maximum number of images of one process.
const MAX_IMAGES: u32 = 10_000;

/// A run folder: `run.json`, and a manifest and a recording for each process that called CUDA.
#[derive(Debug, Clone)]
pub struct RunFolder {
    path: PathBuf,
}

/// The processes of a run folder.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Processes {
    /// The readable manifests, in order of start time.
    pub found: Vec<Process>,
    /// The errors of the manifests that cannot be read.
    pub unreadable: Vec<Error>,
}

impl RunFolder {
    /// Creates the folder and writes `run.json`. An existing folder must be empty.
    ///
    /// # Errors
    /// The path is a file or a folder with content, or cannot be created or written.
    pub fn create(path: &Path, run: &Run) -> Result<Self, Error> {
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if entries(path)?.next().is_some() {
                    return Err(Error::path(path, "is not empty: name a new folder"));
                }
            }
            created => created.map_err(|error| Error::io("create", path, error))?,
        }
        let folder = Self::open(path)?;
        folder.write_run(run)?;
        Ok(folder)
    }

    /// Like [`create`](Self::create), but accepts a folder with content. Removes the files of an
    /// earlier run and leaves all others.
    ///
    /// # Errors
    /// The path is a file, or cannot be created or written.
    pub fn replace(path: &Path, run: &Run) -> Result<Self, Error> {
        match fs::create_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io("create", path, error));
            }
            _ => {}
        }
        let folder = Self::open(path)?;
        folder.remove_run()?;
        folder.write_run(run)?;
        Ok(folder)
    }

    /// Removes the files of the run, and the folder unless it has files of other programs.
    ///
    /// # Errors
    /// A file or the folder cannot be removed.
    pub fn remove(self) -> Result<(), Error> {
        self.remove_run()?;
        match fs::remove_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            removed => removed.map_err(|error| Error::io("remove", &self.path, error)),
        }
    }

    /// Removes the files of the run and leaves all others.
    fn remove_run(&self) -> Result<(), Error> {
        remove_files(&self.path, &self.path, is_of_run)?;
        let incidents = self.incidents();
        // A link must not lead to another folder, even if it is created concurrently. The
        // descriptor ensures that.
        let options = O_DIRECTORY | O_NOFOLLOW;
        if let Ok(opened) = File::options().read(true).custom_flags(options).open(&incidents) {
            let inner = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
            remove_files(&inner, &incidents, is_incident)?;
            // The folder stays if it has files of other programs.
            let _: io::Result<()> = fs::remove_dir(&incidents);
        }
        Ok(())
    }

    /// The folder of the files written by [`Triggers`](crate::Triggers). File names begin with the
    /// [stem](Process::stem) of their process.
    pub fn incidents(&self) -> PathBuf {
        self.path.join(INCIDENTS)
    }

    /// Creates the folder [`incidents`](Self::incidents) if it is missing.
    ///
    /// # Errors
    /// The system cannot create the folder.
    pub fn create_incidents(&self) -> Result<PathBuf, Error> {
        let path = self.incidents();
        fs::create_dir_all(&path).map_err(|error| Error::io("create", &path, error))?;
        Ok(path)
    }

    /// Opens an existing folder, with or without manifests, and makes its path absolute.
    ///
    /// # Errors
    /// The folder does not exist or cannot be opened.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let path = path.canonicalize().map_err(|error| Error::io("open", path, error))?;
        match path.is_dir() {
            true => Ok(Self { path }),
            false => Err(Error::path(&path, "is no folder")),
        }
    }

    /// True for a folder that contains `run.json` or the manifest of a process.
    pub fn is_at(path: &Path) -> bool {
        let is_manifest = |name: &str| name.starts_with(PREFIX) && name.ends_with(SUFFIX);
        path.join(RUN_FILE).is_file()
            || fs::read_dir(path)
                .into_iter()
                .flatten()
                .take(MAX_ENTRIES)
                .flatten()
                .any(|entry| entry.file_name().to_str().is_some_and(is_manifest))
    }

    /// True for the file names of a run: manifests, recordings, and reports of always-on processes.
    pub fn is_own(name: &OsStr) -> bool {
        name.to_str().is_some_and(is_of_run)
    }

    /// The absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads `run.json`. Returns `None` if it is missing because the variables were set by hand.
    ///
    /// # Errors
    /// The manifest is unreadable or invalid.
    pub fn run(&self) -> Result<Option<Run>, Error> {
        match read(&self.path.join(RUN_FILE)) {
            Err(error) if error.is_not_found() => Ok(None),
            run => run.map(Some),
        }
    }

    /// Replaces `run.json` atomically.
    ///
    /// # Errors
    /// The system cannot write the file.
    pub fn write_run(&self, run: &Run) -> Result<(), Error> {
        write(&self.path.join(RUN_FILE), run)
    }

    /// Assigns the first image number without files to the process, and writes its manifest.
    ///
    /// # Errors
    /// The system cannot write the file, or the process has 10,000 images.
    pub fn claim(&self, process: &mut Process) -> Result<(), Error> {
        for image in 0..MAX_IMAGES {
            process.image = image;
            let names = [process.manifest_name(), process.recording_name()];
            if names.iter().all(|name| self.path.join(name).symlink_metadata().is_err()) {
                return self.write_process(process);
            }
        }
        Err(Error::path(&self.path, format!("has {MAX_IMAGES} images of process {}", process.id)))
    }

    /// Replaces the manifest of a process atomically. Absolute paths in [`Process::reason`] are
    /// reduced to their last component.
    ///
    /// # Errors
    /// The system cannot write the file.
    pub fn write_process(&self, process: &Process) -> Result<(), Error> {
        let path = self.path.join(process.manifest_name());
        // The folder's own path may contain a space, and the general replacement ends a path at a
        // space.
        let own = format!("{}/", self.path.display());
        let reason =
            process.reason.as_ref().map(|reason| with_base_names(&reason.replace(&own, "")));
        write(&path, &Process { reason, ..process.clone() })
    }

    /// The path of the recording of a process.
    pub fn recording(&self, process: &Process) -> PathBuf {
        self.path.join(process.recording_name())
    }

    /// Opens the recording of a process. Does not follow a link or wait for the writer of a pipe.
    ///
    /// # Errors
    /// The path is not a regular file, or it cannot be read.
    pub fn open_recording(&self, process: &Process) -> Result<File, Error> {
        open_regular(&self.recording(process))
    }

    /// The path of the report of a process that is [always on](crate::Options::always_on).
    pub fn always_on(&self, process: &Process) -> PathBuf {
        self.path.join(process.always_on_name())
    }

    /// Reads the report of an always-on process, at most 1 MiB of it. Returns `None` if there is no
    /// report. Does not follow a link or wait for the writer of a pipe.
    ///
    /// # Errors
    /// The path is not a regular file, or it cannot be read.
    pub fn read_always_on(&self, process: &Process) -> Result<Option<String>, Error> {
        let path = self.always_on(process);
        match open_regular(&path) {
            Err(error) if error.is_not_found() => Ok(None),
            opened => {
                let mut bytes = Vec::new();
                let read = opened?.take(MAX_REPORT).read_to_end(&mut bytes);
                read.map_err(|error| Error::io("read", &path, error))?;
                Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
            }
        }
    }

    /// Replaces the report of an always-on process.
    ///
    /// # Errors
    /// The system cannot write the file; the former report remains.
    pub fn write_always_on(&self, process: &Process, text: &str) -> Result<(), Error> {
        let path = self.always_on(process);
        write_bytes(&path, text.as_bytes()).map_err(|error| Error::io("write", &path, error))
    }

    /// Reads the manifests of all processes.
    ///
    /// # Errors
    /// The folder cannot be read or has more than 65,536 entries. The error of a single unreadable
    /// manifest is in [`Processes::unreadable`].
    pub fn processes(&self) -> Result<Processes, Error> {
        let mut processes = Processes::default();
        for (number, entry) in entries(&self.path)?.enumerate() {
            if number == MAX_ENTRIES {
                let why = format!("has more than {MAX_ENTRIES} entries and is not read");
                return Err(Error::path(&self.path, why));
            }
            let entry = entry.map_err(|error| Error::io("read", &self.path, error))?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if !(name.starts_with(PREFIX) && name.ends_with(SUFFIX)) {
                continue;
            }
            match read::<Process>(&entry.path()) {
                Ok(process) if process.manifest_name() == name => processes.found.push(process),
                Ok(process) => processes.unreadable.push(Error::path(
                    &entry.path(),
                    format!("is the manifest of another process, {}: it was renamed", process.id),
                )),
                // The manifest was removed after the folder was read.
                Err(error) if error.is_not_found() => {}
                Err(error) => processes.unreadable.push(error),
            }
        }
        processes
            .found
            .sort_by_key(|process| (process.began.monotonic_ns, process.id, process.image));
        Ok(processes)
    }
}

/// Removes the files whose names match. `named` is the path in error messages.
fn remove_files(path: &Path, named: &Path, is_removed: fn(&str) -> bool) -> Result<(), Error> {
    let unreadable = |error| Error::io("read", named, error);
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if entry.file_name().to_str().is_some_and(is_removed) {
            let removed = fs::remove_file(entry.path());
            removed.map_err(|error| Error::io("remove", &named.join(entry.file_name()), error))?;
        }
    }
    Ok(())
}

/// True for the file names of triggers.
fn is_incident(name: &str) -> bool {
    let stem = name.strip_suffix(RECORDING_SUFFIX).and_then(|name| name.rsplit_once('-'));
    stem.is_some_and(|(numbers, _)| is_of_run(&format!("{numbers}{RECORDING_SUFFIX}")))
}

/// True for the file names of manifests, recordings and always-on reports.
fn is_of_run(name: &str) -> bool {
    let suffixes = [SUFFIX, RECORDING_SUFFIX, ALWAYS_ON_SUFFIX];
    let stem = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
    let numbers = stem.and_then(|stem| stem.strip_prefix(PREFIX));
    let is_process = numbers.is_some_and(|numbers| {
        numbers.split('-').all(|number| crate::process::number(number).is_some())
    });
    name == RUN_FILE || is_process
}

fn entries(path: &Path) -> Result<fs::ReadDir, Error> {
    fs::read_dir(path).map_err(|error| Error::io("read", path, error))
}

fn write(path: &Path, manifest: &(impl Serialize + Check)) -> Result<(), Error> {
    manifest.check().map_err(|why| Error::path(path, why))?;
    let written =
        serde_json::to_vec_pretty(manifest).map_err(io::Error::from).and_then(|mut json| {
            json.push(b'\n');
            write_bytes(path, &json)
        });
    written.map_err(|error| Error::io("write", path, error))
}

fn write_bytes(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut new = Replacement::begin(path.to_owned())?;
    new.write_all(bytes)?;
    new.commit()
}

/// Opens a regular file. Does not follow a link or wait for the writer of a pipe.
fn open_regular(path: &Path) -> Result<File, Error> {
    let unreadable = |error| Error::io("read", path, error);
    let mut options = File::options();
    let file = match options.read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path) {
        Err(error) if error.raw_os_error() == Some(ELOOP) => {
            return Err(Error::path(path, "is a link, which is not followed"));
        }
        opened => opened.map_err(unreadable)?,
    };
    match file.metadata().map_err(unreadable)?.is_file() {
        true => Ok(file),
        false => Err(Error::path(path, "is no file")),
    }
}

fn read<T: DeserializeOwned + Check>(path: &Path) -> Result<T, Error> {
    let mut json = Vec::new();
    let read = open_regular(path)?.take(MAX_BYTES + 1).read_to_end(&mut json);
    read.map_err(|error| Error::io("read", path, error))?;
    if json.len() as u64 > MAX_BYTES {
        return Err(Error::path(path, format!("is larger than a manifest, {MAX_BYTES} bytes")));
    }
    // A newer version may lack a field that this one requires, so check the version first.
    let invalid = |why: String| Error::path(path, why);
    let value: serde_json::Value = serde_json::from_slice(&json)
        .map_err(|error| invalid(format!("is no manifest: {error}")))?;
    if let Some(version) = value.get("version").and_then(serde_json::Value::as_u64)
        && version != u64::from(crate::manifest::VERSION)
    {
        let gpuprof = value.get("gpuprof").and_then(serde_json::Value::as_str);
        let version = version.try_into().unwrap_or(u32::MAX);
        return Err(invalid(crate::manifest::other_version(version, gpuprof.unwrap_or("?"))));
    }
    let manifest: T = serde_json::from_value(value)
        .map_err(|error| invalid(format!("is no manifest: {error}")))?;
    manifest.check().map_err(invalid)?;
    Ok(manifest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Ended, MAX_TEXT, State};
    use crate::{Options, Start};
    use serde_json::json;
    use std::os::unix::fs::symlink;

    struct Temporary(PathBuf);

    impl Temporary {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("gpuprof-{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn new_run() -> Run {
        let mut options = Options::new("/r");
        options.start = Start::Range("step".to_owned());
        Run::new("python".as_ref(), &options)
    }

    #[test]
    fn manifests_round_trip_without_partial_files() {
        let temporary = Temporary::new("round-trip");
        let path = temporary.0.join("run");
        let mut run = new_run();
        let folder = RunFolder::create(&path, &run).unwrap();
        run.ended = Some(Ended::now(None, Some(9)));
        folder.write_run(&run).unwrap();
        assert_eq!(folder.run().unwrap(), Some(run));
        let mut process = Process::current().unwrap();
        process.rank = Some(3);
        folder.claim(&mut process).unwrap();
        process.set_state(State::Failed, Some("no CUPTI"));
        process.counts.operations = u64::MAX;
        folder.write_process(&process).unwrap();
        let mut next = process.clone();
        folder.claim(&mut next).unwrap();
        assert_eq!((process.image, next.image), (0, 1));
        let processes = folder.processes().unwrap();
        assert_eq!(processes.found, [process, next]);
        assert!(processes.unreadable.is_empty(), "{:?}", processes.unreadable);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 3);
        assert!(RunFolder::is_at(&path) && !RunFolder::is_at(&temporary.0));
    }

    #[test]
    fn a_folder_with_content_and_a_file_are_refused() {
        let temporary = Temporary::new("refused");
        RunFolder::create(&temporary.0, &new_run()).unwrap();
        let error = RunFolder::create(&temporary.0, &new_run()).unwrap_err().to_string();
        assert!(error.contains("is not empty"), "{error}");
        let file = temporary.0.join("run.json");
        for error in [RunFolder::create(&file, &new_run()), RunFolder::open(&file)] {
            error.unwrap_err();
        }
        let missing = RunFolder::open(&temporary.0.join("missing")).unwrap_err();
        assert!(missing.is_not_found(), "{missing}");
    }

    #[test]
    fn a_replaced_run_leaves_other_files() {
        let temporary = Temporary::new("replaced");
        let folder = RunFolder::replace(&temporary.0.join("run"), &new_run()).unwrap();
        let mut process = Process::current().unwrap();
        folder.claim(&mut process).unwrap();
        process.image = 3;
        fs::write(folder.recording(&process), "").unwrap();
        let incidents = folder.create_incidents().unwrap();
        let incident = incidents.join(format!("{}-1-slow.gpuprof", process.stem()));
        fs::write(&incident, "").unwrap();
        let others = ["process-of-mine.json", "process-1-2.txt", "notes", "run.gpuprof"];
        for other in others {
            fs::write(folder.path().join(other), "").unwrap();
        }
        fs::write(incidents.join("notes.gpuprof"), "").unwrap();
        RunFolder::replace(folder.path(), &new_run()).unwrap();
        assert!(!incident.exists() && incidents.join("notes.gpuprof").exists());
        fs::remove_file(incidents.join("notes.gpuprof")).unwrap();
        RunFolder::replace(folder.path(), &new_run()).unwrap();
        let entries = fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(
            names,
            ["notes", "process-1-2.txt", "process-of-mine.json", "run.gpuprof", "run.json"]
        );
    }

    #[test]
    fn a_removed_run_leaves_other_files_and_else_no_folder() {
        let temporary = Temporary::new("removed");
        let path = temporary.0.join("run");
        let folder = RunFolder::create(&path, &new_run()).unwrap();
        let mut process = Process::current().unwrap();
        folder.claim(&mut process).unwrap();
        fs::write(folder.recording(&process), "").unwrap();
        fs::write(path.join("notes"), "").unwrap();
        folder.clone().remove().unwrap();
        let names: Vec<_> =
            fs::read_dir(&path).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(names, ["notes"]);
        fs::remove_file(path.join("notes")).unwrap();
        folder.create_incidents().unwrap();
        folder.remove().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn replacing_a_run_removes_nothing_behind_a_link() {
        let temporary = Temporary::new("link");
        let folder = RunFolder::create(&temporary.0.join("run"), &new_run()).unwrap();
        let others = temporary.0.join("others");
        fs::create_dir(&others).unwrap();
        let incident = others.join("process-1-2-1-slow.gpuprof");
        fs::write(&incident, "").unwrap();
        symlink(&others, folder.incidents()).unwrap();
        RunFolder::replace(folder.path(), &new_run()).unwrap();
        assert!(incident.exists() && folder.incidents().is_symlink());
    }

    #[test]
    fn report_of_a_process_is_a_regular_file() {
        let temporary = Temporary::new("always-on");
        let folder = RunFolder::open(&temporary.0).unwrap();
        let process = Process::current().unwrap();
        let path = folder.always_on(&process);
        assert_eq!(folder.read_always_on(&process).unwrap(), None);
        folder.write_always_on(&process, "sums").unwrap();
        assert_eq!(folder.read_always_on(&process).unwrap().as_deref(), Some("sums"));
        fs::write(&path, vec![b'x'; MAX_REPORT as usize + 1]).unwrap();
        assert_eq!(folder.read_always_on(&process).unwrap().unwrap().len() as u64, MAX_REPORT);
        fs::remove_file(&path).unwrap();
        symlink("/etc/hostname", &path).unwrap();
        let error = folder.read_always_on(&process).unwrap_err().to_string();
        assert!(error.contains("is a link"), "{error}");
        fs::remove_file(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let error = folder.read_always_on(&process).unwrap_err().to_string();
        assert!(error.contains("is no file"), "{error}");
    }

    #[test]
    fn reasons_are_written_without_the_path_of_the_folder() {
        let temporary = Temporary::new("my runs");
        let folder = RunFolder::open(&temporary.0).unwrap();
        let mut process = Process::current().unwrap();
        let path = folder.recording(&process);
        process
            .set_state(State::Failed, Some(&format!("could not write {}: full", path.display())));
        folder.write_process(&process).unwrap();
        let reason = folder.processes().unwrap().found.remove(0).reason.unwrap();
        assert_eq!(reason, format!("could not write {}: full", process.recording_name()));
    }

    #[test]
    fn additions_of_newer_versions_are_read() {
        let temporary = Temporary::new("additions");
        let folder = RunFolder::open(&temporary.0).unwrap();
        assert_eq!(folder.run().unwrap(), None);
        let process = Process::current().unwrap();
        let mut json = serde_json::to_value(&process).unwrap();
        json["state"] = json!("dreaming");
        json["mood"] = json!({ "of": ["the", "day"] });
        json["counts"] = json!({ "operations": 7, "dreams": 1 });
        json.as_object_mut().unwrap().remove("image");
        fs::write(temporary.0.join(process.manifest_name()), json.to_string()).unwrap();
        let found = folder.processes().unwrap().found;
        assert_eq!((found[0].state, found[0].counts.operations), (State::Unknown, 7));
        assert_eq!(found[0].id, process.id);
    }

    #[test]
    fn hostile_manifests_are_errors_that_name_the_file() {
        let temporary = Temporary::new("hostile");
        let folder = RunFolder::open(&temporary.0).unwrap();
        let process = Process::current().unwrap();
        let path = temporary.0.join(process.manifest_name());
        let with = |key: &str, value: serde_json::Value| {
            let mut json = serde_json::to_value(&process).unwrap();
            json[key] = value;
            json.to_string()
        };
        for (content, why) in [
            (String::new(), "is no manifest"),
            ("[".repeat(60_000), "is no manifest"),
            ("null".to_owned(), "is no manifest"),
            (" ".repeat(MAX_BYTES as usize + 1), "is larger than a manifest"),
            (
                json!({ "version": 2, "gpuprof": "9.0.0" }).to_string(),
                "was written by gpuprof 9.0.0",
            ),
            (with("version", json!(u64::MAX)), "has version"),
            (with("pid", json!(-1)), "is no manifest"),
            (with("program", json!("x".repeat(MAX_TEXT + 1))), "has a text of more than"),
            (with("pid", json!(1)), "is the manifest of another process"),
            (with("image", json!(1)), "is the manifest of another process"),
        ] {
            fs::write(&path, content).unwrap();
            let processes = folder.processes().unwrap();
            assert!(processes.found.is_empty(), "{why}");
            let error = processes.unreadable[0].to_string();
            assert!(error.starts_with(path.to_str().unwrap()) && error.contains(why), "{error}");
        }
    }

    #[test]
    fn links_folders_and_pipes_are_refused_as_manifests() {
        let temporary = Temporary::new("types");
        let folder = RunFolder::open(&temporary.0).unwrap();
        let secret = temporary.0.join("secret");
        fs::write(&secret, "{}").unwrap();
        symlink(&secret, temporary.0.join("process-1-1.json")).unwrap();
        fs::create_dir(temporary.0.join("process-2-2.json")).unwrap();
        let pipe = temporary.0.join("process-3-3.json");
        let made = std::process::Command::new("mkfifo").arg(pipe).status().unwrap();
        assert!(made.success());
        let processes = folder.processes().unwrap();
        assert_eq!((processes.found.len(), processes.unreadable.len()), (0, 3));
        assert!(!format!("{:?}", processes.unreadable).contains("no manifest"));
    }
}
