//! The files that calls have named: the last ones stay in memory.

use std::ffi::OsString;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use profiler_analysis::nsys::{Database, DatabaseLimits};
use profiler_core::Profile;

use crate::failure::Failure;
use crate::file_names::{is_capture, is_recording};
use crate::input::{self, FileKind};

/// The maximum number of profiles in memory.
const MOST_PROFILES: usize = 4;
/// The maximum size of their files together, in bytes. The last one stays whatever its size.
const MOST_BYTES: u64 = 1 << 30;

/// Profiles in memory, and the tables of one of them.
#[derive(Default)]
pub(super) struct Recordings {
    /// The last used at the end.
    profiles: Vec<Loaded>,
    tables: Option<(PathBuf, FileState, Database)>,
}

struct Loaded {
    path: PathBuf,
    state: FileState,
    profile: Arc<Profile>,
}

/// The names, sizes and times of change of a file, or of the files in a folder.
#[derive(Clone, PartialEq, Eq)]
struct FileState(Vec<(OsString, u64, Option<SystemTime>)>);

impl FileState {
    fn read(path: &Path) -> Result<Self, Failure> {
        let of = |name: OsString, about: &Metadata| (name, about.len(), about.modified().ok());
        let about = path.metadata().map_err(|error| input::unreadable(path, &error))?;
        if about.is_file() {
            return Ok(Self(vec![of(OsString::new(), &about)]));
        }
        if !about.is_dir() {
            // A pipe or a terminal would keep the server waiting.
            return Err(Failure::Error(format!(
                "{} is neither a file nor a folder: name a recording",
                path.display()
            )));
        }
        let entries = path.read_dir().map_err(|error| input::unreadable(path, &error))?;
        let state = |entry: std::fs::DirEntry| Some(of(entry.file_name(), &entry.metadata().ok()?));
        let mut all: Vec<_> = entries.flatten().filter_map(state).collect();
        all.sort();
        Ok(Self(all))
    }

    fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, bytes, _)| *bytes).fold(0, u64::saturating_add)
    }
}

impl Recordings {
    /// The profile of a file. Reads it, unless it is in memory and the file has not changed.
    pub(super) fn profile(&mut self, path: &Path) -> Result<Arc<Profile>, Failure> {
        self.current(path).map(|(profile, _)| profile)
    }

    /// The tables of a file in memory, for SQL. Only those of the last file stay.
    pub(super) fn tables(&mut self, path: &Path) -> Result<&mut Database, Failure> {
        let (profile, state) = self.current(path)?;
        let is_same = |(of, old, _): &(PathBuf, FileState, Database)| of == path && *old == state;
        let tables = match self.tables.take().filter(is_same) {
            Some(tables) => tables,
            None => {
                let database = Database::new(&profile, DatabaseLimits::new())?;
                (path.to_owned(), state, database)
            }
        };
        Ok(&mut self.tables.insert(tables).2)
    }

    fn current(&mut self, path: &Path) -> Result<(Arc<Profile>, FileState), Failure> {
        let state = FileState::read(path)?;
        let known = self.profiles.iter().position(|loaded| loaded.path == path);
        let known = known.map(|at| self.profiles.remove(at));
        let profile = match known.filter(|loaded| loaded.state == state) {
            Some(loaded) => loaded.profile,
            None => {
                refuse_log(path)?;
                Arc::new(input::profile(path)?)
            }
        };
        let loaded =
            Loaded { path: path.to_owned(), state: state.clone(), profile: profile.clone() };
        self.profiles.push(loaded);
        while self.profiles.len() > 1 && self.is_too_much() {
            self.profiles.remove(0);
        }
        Ok((profile, state))
    }

    fn is_too_much(&self) -> bool {
        let bytes = self.profiles.iter().map(|loaded| loaded.state.bytes());
        self.profiles.len() > MOST_PROFILES || bytes.fold(0, u64::saturating_add) > MOST_BYTES
    }
}

/// Refuses captures with a write-ahead log: SQLite writes an index beside it to read it.
fn refuse_log(path: &Path) -> Result<(), Failure> {
    match input::kind(path)? {
        FileKind::Capture => refuse_log_of(path),
        FileKind::Folder => {
            let entries = path.read_dir().map_err(|error| input::unreadable(path, &error))?;
            let files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            // Beside recordings captures are not read.
            let is_of_captures = !files.iter().any(|file| is_recording(file));
            let mut captures = files.iter().filter(|file| is_of_captures && is_capture(file));
            captures.try_for_each(|file| refuse_log_of(file))
        }
        FileKind::Recording | FileKind::Trace => Ok(()),
    }
}

fn refuse_log_of(path: &Path) -> Result<(), Failure> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    match std::fs::metadata(&log).is_ok_and(|log| log.len() != 0) {
        true => Err(Failure::Error(format!(
            "{} has changes in its write-ahead log, and this server writes nothing: `sqlite3 {0} 'PRAGMA \
             wal_checkpoint(TRUNCATE)'` moves them into the file",
            path.display()
        ))),
        false => Ok(()),
    }
}
