//! Atomic replacement of files: new content is written beside the file, then renamed.

use std::fs::{self, File, Permissions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use crate::kept::{Descriptor as _, Identity};

/// The target of a path.
#[derive(Debug, PartialEq, Eq)]
pub enum Target {
    /// A file or an unused path, without links.
    File(PathBuf),
    /// A device, pipe, socket, or descriptor of a process such as `/dev/stdout`. Never replaced.
    Stream(PathBuf),
}

/// Upper bound of links to follow, as in Linux.
const LINKS: u32 = 40;

impl Target {
    /// Follows links, including those to missing files.
    ///
    /// # Errors
    /// The target is a directory, or the links form a cycle.
    pub fn from_path(path: &Path) -> io::Result<Self> {
        let mut path = path.to_owned();
        for _ in 0..LINKS {
            let about = match fs::symlink_metadata(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(Self::File(path));
                }
                about => about?,
            };
            if about.is_dir() {
                let why = "it is a directory: name a file in it";
                return Err(io::Error::new(io::ErrorKind::IsADirectory, why));
            }
            if !about.is_symlink() {
                return Ok(if about.is_file() { Self::File(path) } else { Self::Stream(path) });
            }
            let folder = folder_of(&path).canonicalize()?;
            if folder.starts_with("/proc") && folder.ends_with("fd") {
                return Ok(Self::Stream(folder.join(path.file_name().unwrap_or_default())));
            }
            path = folder.join(fs::read_link(&path)?);
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, "its links lead in a circle"))
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Replaces the file at a path, or appends to its stream. After an error the file is unchanged.
///
/// # Errors
/// The file cannot be created or replaced; also errors of `content`.
pub fn write(path: &Path, content: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    match Target::from_path(path)? {
        Target::File(to) => {
            let new = Replacement::begin(to)?;
            content(new.file())?;
            new.commit()
        }
        Target::Stream(to) => content(&File::options().append(true).open(to)?),
    }
}

/// [`write()`] with the complete content.
///
/// # Errors
/// The file cannot be created, written or replaced.
pub fn write_all(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    write(path, |mut file| file.write_all(content.as_ref()))
}

/// The new content of a file. Without a [`commit`](Self::commit), the file is unchanged.
///
/// Writers lock their partial files; the next writer to the folder removes unlocked ones.
#[derive(Debug)]
pub struct Replacement {
    to: PathBuf,
    partial: PathBuf,
    file: File,
    /// The permissions of the replaced file.
    mode: Option<u32>,
    is_done: bool,
}

/// Upper bound of partial files of one process in a folder.
const PARTIAL_FILES: u32 = 1000;
const PREFIX: &str = ".gpuprof.";
const SUFFIX: &str = ".partial";

impl Replacement {
    /// Creates an empty file beside `to`, with the permissions and owner of an existing `to`.
    ///
    /// # Errors
    /// Errors of the system in creating the file.
    pub fn begin(to: PathBuf) -> io::Result<Self> {
        let folder = folder_of(&to);
        remove_abandoned(folder);
        for number in 0..PARTIAL_FILES {
            // A short name: the target's name may already have the maximum length.
            let name = format!("{PREFIX}{}.{number}{SUFFIX}", std::process::id());
            let partial = folder.join(name);
            let file = match File::create_new(&partial) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                file => file?,
            };
            // On a file system without locks, abandoned files are not found either.
            let is_locked = !matches!(file.try_lock(), Err(TryLockError::WouldBlock));
            if is_locked && is_at(&file, &partial) {
                let mut new = Self { to, partial, file, mode: None, is_done: false };
                new.keep_permissions()?;
                return Ok(new);
            }
        }
        let why = format!("{PARTIAL_FILES} partial files are being written beside it");
        Err(io::Error::new(io::ErrorKind::AlreadyExists, why))
    }

    /// Copies permissions; group permissions only if the group can be preserved.
    fn keep_permissions(&mut self) -> io::Result<()> {
        let Ok(old) = fs::metadata(&self.to) else { return Ok(()) };
        let new = self.file.metadata()?;
        let is_same = (old.uid(), old.gid()) == (new.uid(), new.gid());
        let is_kept = is_same || fchown(&self.file, Some(old.uid()), Some(old.gid())).is_ok();
        let mode = old.mode() & if is_kept { 0o777 } else { 0o700 };
        self.mode = Some(mode);
        // The file must remain writable until commit.
        self.file.set_permissions(Permissions::from_mode(mode | 0o600))
    }

    /// The file to write.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The path of [`file`](Self::file).
    pub fn path(&self) -> &Path {
        &self.partial
    }

    /// Moves the file to its target.
    ///
    /// # Errors
    /// Errors of the system in writing or moving the file; the target is unchanged then.
    pub fn commit(self) -> io::Result<()> {
        self.commit_open().map(drop)
    }

    /// Moves the file to its target, and returns both: more may be written to it there.
    ///
    /// # Errors
    /// The target cannot be replaced.
    pub fn commit_open(mut self) -> io::Result<(PathBuf, File)> {
        let file = self.file.try_clone()?;
        if let Some(mode) = self.mode {
            self.file.set_permissions(Permissions::from_mode(mode))?;
        }
        fs::rename(&self.partial, &self.to)?;
        self.is_done = true;
        Ok((self.to.clone(), file))
    }
}

impl io::Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.is_done {
            // If this fails, the next writer removes it.
            let _: io::Result<()> = fs::remove_file(&self.partial);
        }
    }
}

/// Folders created for files that may not be written; empty ones are then removed.
#[derive(Debug, Default)]
pub struct NewFolders(Vec<PathBuf>);

impl NewFolders {
    /// Creates a folder and its missing parents.
    ///
    /// # Errors
    /// A folder cannot be created.
    pub fn create(&mut self, path: &Path) -> io::Result<()> {
        let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let missing: Vec<_> = path.ancestors().take_while(is_missing).map(Path::to_owned).collect();
        self.0.extend(missing.into_iter().rev());
        fs::create_dir_all(path)
    }

    /// Retains the folders: their files exist.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for NewFolders {
    fn drop(&mut self) {
        for folder in self.0.iter().rev() {
            // It may contain other files.
            let _: io::Result<()> = fs::remove_dir(folder);
        }
    }
}

/// True if the path still refers to this file: another writer may have removed or replaced it.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(file), Ok(there)) = (file.identity(), Identity::from_path(path)) else { return false };
    file == there
}

/// Removes partial files of ended writers.
fn remove_abandoned(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = |name: &str| {
            let number = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
            number.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.')).then_some(())
        };
        if name.to_str().and_then(number).is_none() {
            continue;
        }
        let path = entry.path();
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let Ok(file) = File::open(&path) else { continue };
        if file.try_lock().is_ok() && is_at(&file, &path) {
            // Another user's file may not be removable.
            let _: io::Result<()> = fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty folder, removed when dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str) -> Self {
            let name = format!("replace-{}-{test}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir(&folder).unwrap();
            Self(folder)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            let name =
                |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
            entries.map(name).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn content_is_replaced_atomically_and_permissions_kept() {
        let folder = Folder::new("at_once");
        let to = folder.0.join("to");
        fs::write(&to, "old").unwrap();
        for mode in [0o640, 0o600, 0o755, 0o444] {
            fs::set_permissions(&to, Permissions::from_mode(mode)).unwrap();
            let new = Replacement::begin(to.clone()).unwrap();
            new.file().write_all(format!("{mode:o}").as_bytes()).unwrap();
            assert_ne!(fs::read_to_string(&to).unwrap(), format!("{mode:o}"));
            new.commit().unwrap();
            assert_eq!(fs::read_to_string(&to).unwrap(), format!("{mode:o}"));
            assert_eq!(fs::metadata(&to).unwrap().mode() & 0o7777, mode);
        }
        let new = Replacement::begin(to.clone()).unwrap();
        new.file().write_all(b"half").unwrap();
        drop(new);
        assert_eq!(
            (fs::read_to_string(&to).unwrap().as_str(), folder.names()),
            ("444", vec!["to".into()])
        );
    }

    #[test]
    fn temporary_files_of_dead_writers_only_are_removed() {
        let folder = Folder::new("left");
        let to = folder.0.join("to");
        for name in [".gpuprof.1.0.partial", ".gpuprof.9999999.7.partial"] {
            fs::write(folder.0.join(name), "left").unwrap();
        }
        let kept = [".gpuprof.mine.partial", "a.gpuprof.1.0.partial"];
        kept.iter().for_each(|name| fs::write(folder.0.join(name), "kept").unwrap());
        let one = Replacement::begin(to.clone()).unwrap();
        let other = Replacement::begin(to.clone()).unwrap();
        assert_ne!(one.path(), other.path());
        assert_eq!(folder.names().len(), kept.len() + 2, "{:?}", folder.names());
        other.file().write_all(b"other").unwrap();
        one.file().write_all(b"one").unwrap();
        one.commit().unwrap();
        other.commit().unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), "other");
        assert_eq!(folder.names().len(), kept.len() + 1, "{:?}", folder.names());
    }

    #[test]
    fn error_during_a_write_leaves_the_file_unchanged() {
        let folder = Folder::new("middle");
        let to = folder.0.join("to");
        let half = |mut file: &File| {
            file.write_all(b"half")?;
            Err(io::Error::other("the rest is missing"))
        };
        assert_eq!(write(&to, half).unwrap_err().to_string(), "the rest is missing");
        assert_eq!(folder.names(), [""; 0]);
        write_all(&to, "old").unwrap();
        write(&to, half).unwrap_err();
        assert_eq!((fs::read_to_string(&to).unwrap().as_str(), folder.names().len()), ("old", 1));
        write_all(Path::new("/dev/null"), "a stream").unwrap();
    }

    #[test]
    fn links_are_followed_and_streams_are_none_to_replace() {
        use std::os::unix::fs::symlink;
        let folder = Folder::new("links");
        let root = folder.0.canonicalize().unwrap();
        let path = |name: &str| root.join(name);
        fs::write(path("file"), "").unwrap();
        symlink("file", path("link")).unwrap();
        symlink("link", path("second")).unwrap();
        symlink("missing", path("dangling")).unwrap();
        symlink("circle", path("circle")).unwrap();
        let file = |name| Target::File(path(name));
        let of = |name| Target::from_path(&path(name)).unwrap();
        assert_eq!([of("file"), of("link"), of("second")], ["file"; 3].map(file));
        assert_eq!([of("dangling"), of("missing")], ["missing"; 2].map(file));
        assert!(Target::from_path(&path("circle")).unwrap_err().to_string().contains("circle"));
        assert!(Target::from_path(&root).unwrap_err().to_string().contains("directory"));
        for stream in ["/dev/null", "/dev/stdout", "/dev/fd/2", "/proc/self/fd/0"] {
            let target = Target::from_path(Path::new(stream)).unwrap();
            assert!(matches!(target, Target::Stream(_)), "{stream}: {target:?}");
        }
    }
}
