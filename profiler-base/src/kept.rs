//! Descriptors that remain valid for us in a program that closes all of its descriptors.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The identity of a file, independent of its path and descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// Returns the identity of the file with this metadata.
    pub fn from_metadata(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    /// Returns the identity of the file at this path; for a link, of the link itself.
    ///
    /// # Errors
    /// There is no file, or it cannot be accessed.
    pub fn from_path(path: &Path) -> io::Result<Self> {
        std::fs::symlink_metadata(path).map(|metadata| Self::from_metadata(&metadata))
    }
}

/// A value with a descriptor whose identity can be read.
pub trait Descriptor: IntoRawFd + AsRawFd {
    /// Returns the identity of the file that the descriptor now refers to.
    ///
    /// # Errors
    /// The descriptor is closed.
    fn identity(&self) -> io::Result<Identity>;
}

impl Descriptor for File {
    fn identity(&self) -> io::Result<Identity> {
        self.metadata().map(|metadata| Identity::from_metadata(&metadata))
    }
}

/// Returns the identity of a socket, for which std has no metadata.
fn of_socket(socket: &impl AsRawFd) -> io::Result<Identity> {
    let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
    std::fs::metadata(path).map(|metadata| Identity::from_metadata(&metadata))
}

impl Descriptor for UnixListener {
    fn identity(&self) -> io::Result<Identity> {
        of_socket(self)
    }
}

impl Descriptor for UnixStream {
    fn identity(&self) -> io::Result<Identity> {
        of_socket(self)
    }
}

/// An open file or socket in a program that is not ours.
///
/// Some programs, such as daemons, close every descriptor and open files of their own, which get
/// the same numbers. Our number then belongs to the program, and must neither be written to nor
/// closed. Each use checks this first, at the cost of one system call.
#[derive(Debug)]
pub struct Kept<T: Descriptor> {
    /// `None` while the value is being dropped.
    inner: Option<T>,
    identity: Identity,
}

impl<T: Descriptor> Kept<T> {
    /// Stores the value with its identity.
    ///
    /// # Errors
    /// The descriptor cannot be accessed.
    pub fn new(inner: T) -> io::Result<Self> {
        let identity = inner.identity()?;
        Ok(Self { inner: Some(inner), identity })
    }

    /// Returns the value, if the program has not closed its descriptor.
    pub fn get(&self) -> Option<&T> {
        let inner = self.inner.as_ref()?;
        inner.identity().is_ok_and(|identity| identity == self.identity).then_some(inner)
    }

    /// The identity of the file or socket.
    pub fn identity(&self) -> Identity {
        self.identity
    }
}

impl<T: Descriptor> Drop for Kept<T> {
    fn drop(&mut self) {
        if self.get().is_none() {
            // The descriptor is closed or belongs to the program; in both cases we must not close
            // it.
            let _ = self.inner.take().map(IntoRawFd::into_raw_fd);
        }
    }
}

/// A file that is written over a long time. If the program closes its descriptor, the file is
/// opened again.
#[derive(Debug)]
pub struct KeptFile {
    kept: Kept<File>,
    path: PathBuf,
}

impl KeptFile {
    /// Stores a file at this path.
    ///
    /// # Errors
    /// The descriptor cannot be accessed.
    pub fn new(file: File, path: PathBuf) -> io::Result<Self> {
        Ok(Self { kept: Kept::new(file)?, path })
    }

    /// The identity of the file.
    pub fn identity(&self) -> Identity {
        self.kept.identity
    }

    /// Calls `write` with the file.
    ///
    /// # Errors
    /// Errors of `write`; also if the program closed the descriptor, and the file is no longer at
    /// its path.
    pub fn write(&mut self, write: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
        if let Some(file) = self.kept.get() {
            return write(file);
        }
        let gone = || {
            let why = "the program closed its descriptor, and it is no longer at its path";
            io::Error::new(io::ErrorKind::NotFound, why)
        };
        // Checked before it is opened: opening a pipe would block.
        if Identity::from_path(&self.path).map_err(|_| gone())? != self.kept.identity {
            return Err(gone());
        }
        let again = Kept::new(File::options().append(true).open(&self.path)?)?;
        if again.identity != self.kept.identity {
            return Err(gone());
        }
        self.kept = again;
        self.kept.get().map_or_else(|| Err(gone()), write)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::fd::OwnedFd;

    use super::*;

    /// A file in a folder of its own, removed when dropped.
    struct Temporary(PathBuf);

    impl Temporary {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("kept-{}-{name}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn file(&self, name: &str) -> File {
            File::options().create(true).append(true).open(self.0.join(name)).unwrap()
        }

        fn read(&self, name: &str) -> String {
            fs::read_to_string(self.0.join(name)).unwrap()
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Gives the number of `kept` to `other`, as a program does that closes all numbers and opens files: the file that had it is
    /// kept by the result.
    fn exchange(kept: &mut Kept<File>, other: File) -> Option<File> {
        kept.inner.replace(other)
    }

    #[test]
    fn a_number_of_the_program_is_neither_written_to_nor_closed() {
        let folder = Temporary::new("number");
        let mut kept = KeptFile::new(folder.file("ours"), folder.0.join("ours")).unwrap();
        kept.write(|mut file| file.write_all(b"a")).unwrap();
        let theirs = folder.file("theirs");
        let number = theirs.as_raw_fd();
        drop(exchange(&mut kept.kept, theirs));
        kept.write(|mut file| file.write_all(b"b")).unwrap();
        assert_eq!((folder.read("ours"), folder.read("theirs")), ("ab".to_owned(), String::new()));
        let link = fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
        assert_eq!(link, folder.0.join("theirs"), "still open");
    }

    #[test]
    fn a_file_that_was_replaced_is_not_opened_again() {
        let folder = Temporary::new("replaced");
        let mut kept = KeptFile::new(folder.file("ours"), folder.0.join("ours")).unwrap();
        drop(exchange(&mut kept.kept, folder.file("theirs")));
        fs::rename(folder.0.join("theirs"), folder.0.join("ours")).unwrap();
        let error = kept.write(|mut file| file.write_all(b"a")).unwrap_err();
        assert!(error.to_string().contains("closed its descriptor"), "{error}");
        assert_eq!(folder.read("ours"), "");
    }

    #[test]
    fn a_socket_is_its_own_until_its_number_is_anothers() {
        let (one, other) = UnixStream::pair().unwrap();
        let mut kept = Kept::new(one).unwrap();
        assert!(kept.get().is_some());
        let number = other.as_raw_fd();
        drop(kept.inner.replace(other));
        assert!(kept.get().is_none());
        drop(kept);
        let still: io::Result<Metadata> = fs::metadata(format!("/proc/self/fd/{number}"));
        assert!(still.is_ok(), "not ours to close");
    }

    #[test]
    fn kept_file_is_closed_on_drop() {
        let folder = Temporary::new("closed");
        let file: OwnedFd = folder.file("ours").into();
        let number = file.as_raw_fd();
        drop(Kept::new(File::from(file)).unwrap());
        let link = fs::read_link(format!("/proc/self/fd/{number}"));
        assert!(link.is_err() || link.is_ok_and(|link| link != folder.0.join("ours")));
    }
}
