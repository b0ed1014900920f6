//! The embedded injection library, unpacked into the user's cache folder
//! (docs/decisions/053-the-program-carries-its-library.md).

use std::env;
use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use gpuprof_control::socket::Folder;
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use nix::sys::statvfs::{FsFlags, statvfs};
use profiler_base::replace::Replacement;

/// The file name of the injection library, embedded or beside the program.
pub(super) const FILE: &str = "libgpuprof_inject.so";

/// An embedded library with its SHA-256.
#[derive(Debug, Clone, Copy)]
pub(super) struct Carried {
    content: &'static [u8],
    sha256: &'static str,
}

#[cfg(carries_library)]
const CARRIED: Option<Carried> = Some(Carried {
    content: include_bytes!(env!("CARRIED_LIBRARY")),
    sha256: env!("CARRIED_SHA256"),
});
#[cfg(not(carries_library))]
const CARRIED: Option<Carried> = None;

impl Carried {
    /// The embedded library, if this build has one.
    pub(super) fn get() -> Option<Self> {
        CARRIED
    }

    /// Unpacks the library into the user's cache folder if necessary. Returns the path of a file
    /// with exactly the embedded content.
    ///
    /// # Errors
    /// The reason why it cannot be unpacked, as a sentence.
    pub(super) fn unpack(self) -> Result<PathBuf, String> {
        let cache = cache_folder(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME"))?;
        self.unpack_into(&cache)
    }

    /// Unpacks into `gpuprof/SHA256` of a cache folder, so that each version of the program and its
    /// processes use their own library.
    fn unpack_into(self, cache: &Path) -> Result<PathBuf, String> {
        let failed = |what: &str, path: &Path, error: io::Error| {
            format!("could not {what} {}: {error}", path.display())
        };
        let created = DirBuilder::new().recursive(true).mode(0o700).create(cache);
        created.map_err(|error| failed("create", cache, error))?;
        let own = cache.join("gpuprof");
        let folder = own.join(self.sha256);
        for folder in [&own, &folder] {
            // The folder must belong to this user and not be a link, so that no other user can put
            // a library there.
            Folder::create_at(folder).map_err(|error| error.to_string())?;
        }
        if is_noexec(&folder).map_err(|error| failed("look at", &folder, error))? {
            return Err(format!(
                "{} is on a file system without execution (noexec), from which no library is loaded",
                folder.display()
            ));
        }
        let path = folder.join(FILE);
        if self.is_at(&path) {
            return Ok(path);
        }
        let written = Replacement::begin(path.clone()).and_then(|new| {
            new.file().write_all(self.content)?;
            new.commit()
        });
        written.map_err(|error| failed("write", &path, error))?;
        Ok(path)
    }

    /// True if the file has the embedded content. A link does not count.
    fn is_at(self, path: &Path) -> bool {
        // Do not wait for the writer if a pipe has replaced the file.
        let opened = File::options().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path);
        let Ok(mut file) = opened else { return false };
        let length = self.content.len() as u64;
        if !file.metadata().is_ok_and(|about| about.is_file() && about.len() == length) {
            return false;
        }
        let mut found = Vec::with_capacity(self.content.len());
        file.read_to_end(&mut found).is_ok() && found == self.content
    }
}

/// The folder `$XDG_CACHE_HOME`, or `~/.cache`. Relative paths are ignored, as the XDG
/// specification requires.
fn cache_folder(xdg: Option<OsString>, home: Option<OsString>) -> Result<PathBuf, String> {
    let absolute =
        |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(xdg).or_else(|| absolute(home).map(|home| home.join(".cache"))).ok_or_else(|| {
        "neither XDG_CACHE_HOME nor HOME is the absolute path of a folder".to_owned()
    })
}

fn is_noexec(path: &Path) -> io::Result<bool> {
    Ok(statvfs(path)?.flags().contains(FsFlags::ST_NOEXEC))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    const LIBRARY: Carried = Carried { content: b"\x7fELF\x02 a library", sha256: "ab12" };

    struct Temporary(PathBuf);

    impl Temporary {
        fn new(name: &str) -> Self {
            let name = format!("gpuprof-carried-{name}-{}", std::process::id());
            let path = env::temp_dir().join(name);
            let _: io::Result<()> = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _: io::Result<()> = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn library_is_unpacked_once_into_folders_of_the_user_alone() {
        let temporary = Temporary::new("once");
        let cache = temporary.0.join("missing/cache");
        let path = LIBRARY.unpack_into(&cache).unwrap();
        assert_eq!(path, cache.join("gpuprof/ab12/libgpuprof_inject.so"));
        assert_eq!(fs::read(&path).unwrap(), LIBRARY.content);
        for folder in [&cache, &cache.join("gpuprof"), &cache.join("gpuprof/ab12")] {
            assert_eq!(fs::metadata(folder).unwrap().mode() & 0o777, 0o700, "{}", folder.display());
        }
        let first = fs::metadata(&path).unwrap().ino();
        assert_eq!(LIBRARY.unpack_into(&cache).unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), first, "it is not written again");
        let other = Carried { sha256: "cd34", ..LIBRARY };
        assert_ne!(other.unpack_into(&cache).unwrap(), path, "versions lie beside each other");
        let files = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(files, 1, "nothing else stays");
    }

    #[test]
    fn other_content_is_replaced_and_never_followed() {
        let temporary = Temporary::new("replaced");
        let path = LIBRARY.unpack_into(&temporary.0).unwrap();
        let victim = temporary.0.join("victim");
        fs::write(&victim, LIBRARY.content).unwrap();
        let damage: [&dyn Fn(); 5] = [
            &|| fs::write(&path, b"\x7fELF\x02 another").unwrap(),
            &|| fs::write(&path, &LIBRARY.content[..5]).unwrap(),
            &|| fs::write(&path, [LIBRARY.content, b"!"].concat()).unwrap(),
            &|| fs::remove_file(&path).unwrap(),
            &|| {
                fs::remove_file(&path).unwrap();
                symlink(&victim, &path).unwrap();
            },
        ];
        for (number, damage) in damage.into_iter().enumerate() {
            damage();
            assert_eq!(LIBRARY.unpack_into(&temporary.0).unwrap(), path, "{number}");
            assert!(fs::symlink_metadata(&path).unwrap().is_file(), "{number}");
            assert_eq!(fs::read(&path).unwrap(), LIBRARY.content, "{number}");
        }
        assert_eq!(fs::read(&victim).unwrap(), LIBRARY.content);
    }

    #[test]
    fn folders_that_others_can_write_to_are_refused() {
        let temporary = Temporary::new("refused");
        let own = temporary.0.join("gpuprof");
        let refused = |expected: &str| {
            let error = LIBRARY.unpack_into(&temporary.0).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        let elsewhere = temporary.0.join("elsewhere");
        DirBuilder::new().mode(0o700).create(&elsewhere).unwrap();
        symlink(&elsewhere, &own).unwrap();
        refused("is a link or no folder");
        fs::remove_file(&own).unwrap();
        fs::write(&own, "").unwrap();
        refused("is a link or no folder");
        fs::remove_file(&own).unwrap();
        LIBRARY.unpack_into(&temporary.0).unwrap();
        for folder in [own.clone(), own.join("ab12")] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
            refused("is open to other users: give it mode 0700");
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        }
        if std::os::unix::fs::chown(&own, Some(65_534), None).is_ok() {
            refused("belongs to user 65534");
        }
    }

    #[test]
    fn cache_folder_follows_the_xdg_specification() {
        let of = |xdg: Option<&str>, home: Option<&str>| {
            cache_folder(xdg.map(OsString::from), home.map(OsString::from))
        };
        assert_eq!(of(Some("/c"), Some("/h")), Ok("/c".into()));
        for ignored in [None, Some(""), Some("relative")] {
            assert_eq!(of(ignored, Some("/h")), Ok("/h/.cache".into()));
            assert!(of(ignored, ignored).unwrap_err().contains("neither XDG_CACHE_HOME nor HOME"));
        }
    }

    #[test]
    fn file_systems_without_execution_are_recognised() {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mut seen = 0;
        for line in mounts.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let (path, options) = (Path::new(words[1]), words[3]);
            // Of several file systems at one path the last is seen.
            let is_last = mounts.lines().rfind(|other| other.split(' ').nth(1) == Some(words[1]));
            if let Ok(is_noexec) = is_noexec(path)
                && is_last == Some(line)
            {
                let expected = options.split(',').any(|option| option == "noexec");
                assert_eq!(is_noexec, expected, "{line}");
                seen += 1;
            }
        }
        assert!(seen > 0, "no file system of {mounts}");
    }
}
