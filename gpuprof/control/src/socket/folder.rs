//! Private folders of a user, including the folder of the control sockets.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::libc::{O_DIRECTORY, O_NOFOLLOW};
use nix::unistd::geteuid;
use profiler_base::kept::Kept;

use crate::{Error, ProcessId};

const SUFFIX: &str = ".sock";

/// An open folder that this user owns and nobody else can enter.
///
/// Files are reached through the folder's descriptor. Later renames or links at its path have no
/// effect, and the length of the path does not matter.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    descriptor: Kept<File>,
}

impl Folder {
    /// Opens the folder for a server, and creates it with mode 0700 if it is missing. The path is
    /// `$XDG_RUNTIME_DIR/gpuprof` if that variable names a folder that only this user can write.
    /// The fallback is `/tmp/gpuprof-UID`.
    ///
    /// # Errors
    /// Neither folder can be used; the message describes the last one.
    pub fn create() -> Result<Self, Error> {
        let mut last = None;
        for path in places(std::env::var_os("XDG_RUNTIME_DIR").as_deref().map(Path::new), false) {
            match Self::create_at(&path) {
                Err(error) => last = Some(error),
                created => return created,
            }
        }
        Err(last.unwrap_or_else(|| Error::path("/tmp".as_ref(), "was not tried")))
    }

    /// Creates the folder at this path with mode 0700 if it is missing, and opens it.
    ///
    /// # Errors
    /// See [`open`](Self::open).
    pub fn create_at(path: &Path) -> Result<Self, Error> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(Error::io("create", path, error))
            }
            _ => Self::open(path),
        }
    }

    /// Returns the existing folders that may contain a socket of this user's processes:
    /// `$XDG_RUNTIME_DIR/gpuprof`, `/run/user/UID/gpuprof`, `/tmp/gpuprof-UID`. The errors state
    /// why a folder is not used.
    pub fn existing() -> (Vec<Self>, Vec<Error>) {
        let (mut folders, mut errors) = (Vec::new(), Vec::new());
        for path in places(std::env::var_os("XDG_RUNTIME_DIR").as_deref().map(Path::new), true) {
            match Self::open(&path) {
                Ok(folder) => folders.push(folder),
                Err(error) if error.is_not_found() => {}
                Err(error) => errors.push(error),
            }
        }
        (folders, errors)
    }

    /// Opens the folder at this path.
    ///
    /// # Errors
    /// The path is missing ([`Error::is_not_found`]), a link, no folder, owned by another user, or
    /// accessible to others.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let mut options = File::options();
        let opened = options.read(true).custom_flags(O_DIRECTORY | O_NOFOLLOW).open(path);
        let descriptor = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotADirectory => {
                Error::path(path, "is a link or no folder: remove it, a folder is needed there")
            }
            _ => Error::io("open", path, error),
        })?;
        let about = descriptor.metadata().map_err(|error| Error::io("open", path, error))?;
        let uid = geteuid().as_raw();
        if about.uid() != uid {
            let why = format!("belongs to user {}, not to {uid}: it is not used", about.uid());
            return Err(Error::path(path, why));
        }
        match about.mode() & 0o077 {
            0 => {
                let kept = Kept::new(descriptor);
                let descriptor = kept.map_err(|error| Error::io("open", path, error))?;
                Ok(Self { path: path.to_owned(), descriptor })
            }
            _ => Err(Error::path(path, "is open to other users: give it mode 0700")),
        }
    }

    /// The path by which the folder was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the socket of a process, for messages.
    pub fn socket(&self, process: ProcessId) -> PathBuf {
        self.path.join(format!("{process}{SUFFIX}"))
    }

    fn by_descriptor(&self) -> PathBuf {
        match self.descriptor.get() {
            Some(folder) => format!("/proc/self/fd/{}", folder.as_raw_fd()).into(),
            // The program closed the descriptor, so only the path remains.
            None => self.path.clone(),
        }
    }

    /// The path of the socket of a process through the descriptor.
    pub(super) fn inner(&self, process: ProcessId) -> PathBuf {
        self.by_descriptor().join(format!("{process}{SUFFIX}"))
    }

    /// The processes with a socket in the folder, live or not, sorted.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn processes(&self) -> Result<Vec<ProcessId>, Error> {
        let unreadable = |error| Error::io("read", &self.path, error);
        let mut found = Vec::new();
        for entry in fs::read_dir(self.by_descriptor()).map_err(unreadable)? {
            let name = entry.map_err(unreadable)?.file_name();
            let process = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
            found.extend(process.and_then(|process| process.parse::<ProcessId>().ok()));
        }
        found.sort_unstable();
        Ok(found)
    }
}

/// The candidate folders in order. A runtime folder counts only if this user owns it and others
/// cannot write to it.
fn places(runtime: Option<&Path>, for_client: bool) -> Vec<PathBuf> {
    let uid = geteuid().as_raw();
    let is_usable = |path: &Path| {
        let about = path.metadata();
        path.is_absolute()
            && about.is_ok_and(|about| {
                about.is_dir() && about.uid() == uid && about.mode() & 0o022 == 0
            })
    };
    let system = for_client.then(|| PathBuf::from(format!("/run/user/{uid}")));
    let mut places: Vec<PathBuf> = Vec::new();
    for runtime in runtime.map(Path::to_owned).into_iter().chain(system) {
        let place = runtime.join("gpuprof");
        if is_usable(&runtime) && !places.contains(&place) {
            places.push(place);
        }
    }
    places.push(format!("/tmp/gpuprof-{uid}").into());
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn temporary(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("gpuprof-{name}-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path).unwrap();
        path
    }

    #[test]
    fn a_folder_is_created_for_its_user_alone() {
        let temporary = temporary("folder");
        let path = temporary.join("gpuprof");
        assert!(Folder::open(&path).unwrap_err().is_not_found());
        Folder::create_at(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        Folder::create_at(&path).unwrap();
        for mode in [0o750, 0o701, 0o777] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = Folder::create_at(&path).unwrap_err().to_string();
            assert!(error.contains("open to other users"), "{error}");
        }
        fs::remove_dir_all(temporary).unwrap();
    }

    #[test]
    fn links_and_files_in_its_place_are_refused() {
        let temporary = temporary("links");
        let (real, link) = (temporary.join("real"), temporary.join("link"));
        Folder::create_at(&real).unwrap();
        symlink(&real, &link).unwrap();
        let file = temporary.join("file");
        fs::write(&file, "").unwrap();
        let dangling = temporary.join("dangling");
        symlink("missing", &dangling).unwrap();
        for path in [link, file, dangling] {
            let error = Folder::create_at(&path).unwrap_err().to_string();
            assert!(error.contains("is a link or no folder"), "{error}");
        }
        fs::remove_dir_all(temporary).unwrap();
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        let temporary = temporary("owner");
        let path = temporary.join("gpuprof");
        Folder::create_at(&path).unwrap();
        if std::os::unix::fs::chown(&path, Some(65_534), None).is_err() {
            println!("skipped: only root can give a folder to another user");
        } else {
            let error = Folder::create_at(&path).unwrap_err().to_string();
            assert!(error.contains("belongs to user 65534"), "{error}");
        }
        fs::remove_dir_all(temporary).unwrap();
    }

    #[test]
    fn runtime_folder_must_be_private() {
        let temporary = temporary("runtime");
        let in_tmp = PathBuf::from(format!("/tmp/gpuprof-{}", geteuid().as_raw()));
        let inside = temporary.join("gpuprof");
        assert_eq!(places(Some(&temporary), false), [inside, in_tmp.clone()]);
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o777)).unwrap();
        let missing = temporary.join("missing");
        for unusable in [&*temporary, &missing, "relative".as_ref(), "".as_ref()] {
            assert_eq!(places(Some(unusable), false), std::slice::from_ref(&in_tmp));
        }
        assert_eq!(places(None, false), [in_tmp]);
        fs::remove_dir_all(temporary).unwrap();
    }
}
