//! The search for libcupti, and its order.
//!
//! A library that is already mapped is preferred: two copies in a process compete for the driver's
//! only subscriber slot. An explicit path is the only one tried, so that a wrong one is an error
//! and not a surprise.

use std::collections::HashSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library as UnixLibrary, RTLD_LOCAL, RTLD_NOW};

use super::api::Api;
use super::os;
use crate::error::{Error, Kind, PATH_VARIABLE};

/// Names the root of a Conda environment, which has a toolkit's libraries in its own `lib`.
const CONDA: &str = "CONDA_PREFIX";

/// A library's functions, its path, and true if the process had already mapped it.
pub(crate) type Found = (Api, PathBuf, bool);

/// Opens this file.
///
/// # Safety
///
/// It is a libcupti, or cannot be loaded.
pub(super) unsafe fn open_file(path: &Path) -> Result<Found, Error> {
    // SAFETY: the caller's promise.
    let library = unsafe { load(path) }.map_err(|reason| {
        let tried = vec![(path.to_owned(), reason)];
        Error::new(Kind::LibraryNotFound { tried, folders: Vec::new() })
    })?;
    // SAFETY: this one too.
    unsafe { table(library, path.to_owned(), false) }
}

/// Opens the library that the environment names, else the first usable one of the usual locations,
/// preferring the major version of the driver.
///
/// This runs code found through the environment, and is safe nevertheless: whoever starts the
/// process sets the environment and could use `LD_PRELOAD` as well. Within the process a change of
/// it requires `unsafe` ([`env::set_var`]). A file with CUPTI's name in a folder of CUDA's, or for
/// the dynamic linker, counts as CUPTI.
pub(crate) fn open(cuda_major: u32) -> Result<Found, Error> {
    if let Some(path) = non_empty_path(env::var_os(PATH_VARIABLE)) {
        // SAFETY: by setting the variable, the user states that it is a libcupti.
        return unsafe { open_file(&path) };
    }
    let majors = if cuda_major >= 13 { [13, 12] } else { [12, 13] };
    for major in majors {
        let name = format!("libcupti.so.{major}");
        if let Some(library) = mapped(&name) {
            let file = mapped_files().into_iter().find(|file| self::major(file) == Some(major));
            let file = file.unwrap_or_else(|| PathBuf::from(name));
            // SAFETY: it bears CUPTI's name, by which this process loaded it before.
            return unsafe { table(library, file, true) };
        }
    }
    let mut tried = Vec::new();
    let mut unusable = None;
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let folders = all_folders(&maps, env::var_os);
    for path in candidates(&majors, &folders) {
        // SAFETY: the file bears CUPTI's name, in a folder of CUDA's or for the dynamic linker.
        match unsafe { load(&path) } {
            // SAFETY: as above.
            Ok(library) => match unsafe { table(library, path, false) } {
                Ok(found) => return Ok(found),
                Err(error) => unusable = unusable.or(Some(error)),
            },
            Err(reason) => tried.push((path, reason)),
        }
    }
    let holds_one = |folder: &PathBuf| tried.iter().any(|(path, _)| path.parent() == Some(folder));
    let folders = folders.into_iter().filter(|folder| !holds_one(folder)).collect();
    Err(unusable.unwrap_or_else(|| Error::new(Kind::LibraryNotFound { tried, folders })))
}

/// # Safety
/// The library is CUPTI, or has no functions of CUPTI's names.
unsafe fn table(library: libloading::Library, path: PathBuf, mapped: bool) -> Result<Found, Error> {
    // SAFETY: the caller's promise.
    let api = unsafe { Api::load(&|symbol| os::address(&library, symbol), &path) }?;
    // CUPTI's worker thread and its callbacks into us live as long as the process.
    std::mem::forget(library);
    Ok((api, path, mapped))
}

/// # Safety
/// The file's initialisers may run in this process.
unsafe fn load(path: &Path) -> Result<libloading::Library, String> {
    // SAFETY: the caller's promise.
    let opened = unsafe { libloading::Library::new(path) };
    opened.map_err(|e| os::reason(&e))
}

/// Maps the libraries that CUPTI needs for counters, from the folder of its own file.
///
/// CUPTI opens them by name alone. The dynamic linker finds them in a toolkit that it is configured
/// for, and not in a Python package. A library that is mapped already is found by its name. If one
/// is missing, CUPTI's own error shows it.
pub(crate) fn map_companions(library: &Path) {
    // The file may have been reached over a link, or be known only by its name.
    let real = fs::canonicalize(library).unwrap_or_default();
    for name in ["libnvperf_host.so", "libnvperf_target.so"] {
        let found = [library, &real].into_iter().find_map(|file| {
            let path = file.parent()?.join(name);
            path.is_file().then_some(path)
        });
        // SAFETY: NVIDIA's library of that name, beside CUPTI, which needs it: its initialisers are
        // made to run in any process.
        if let Some(library) = found.and_then(|path| unsafe { load(&path) }.ok()) {
            // It stays mapped, as CUPTI itself does.
            std::mem::forget(library);
        }
    }
}

/// The library of this name if the process has already mapped one.
fn mapped(name: &str) -> Option<libloading::Library> {
    // SAFETY: with RTLD_NOLOAD nothing new is mapped, so no initialiser runs.
    let opened =
        unsafe { UnixLibrary::open(Some(name), RTLD_NOW | RTLD_LOCAL | libc::RTLD_NOLOAD) };
    opened.ok().map(Into::into)
}

/// The libcupti files that this process has mapped, each once.
pub(crate) fn mapped_files() -> Vec<PathBuf> {
    fs::read_to_string("/proc/self/maps").map_or_else(|_| Vec::new(), |maps| mapped_in(&maps))
}

fn mapped_in(maps: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    for line in maps.lines() {
        // Five columns precede the path, which may contain blanks.
        let Some(path) = line.find('/').map(|at| Path::new(&line[at..])) else { continue };
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        if name.starts_with("libcupti.so") && files.iter().all(|file| file != path) {
            files.push(path.to_owned());
        }
    }
    files
}

/// The major version in a file's name: 13 for `libcupti.so.13` and for its link target
/// `libcupti.so.2025.3.1`.
pub(crate) fn major(file: &Path) -> Option<u32> {
    let name = file.file_name()?.to_str()?;
    let mut numbers = name.strip_prefix("libcupti.so.")?.split('.').map_while(|n| n.parse().ok());
    let first: u32 = numbers.next()?;
    if first < 2000 {
        return Some(first);
    }
    // The real files carry the year: 2022.4 belongs to CUDA 12.0, 2025.3 to 13.0.
    let release = (first, numbers.next()?);
    Some(11 + u32::from(release >= (2022, 4)) + u32::from(release >= (2025, 3)))
}

/// Returns the path in an environment variable; an empty one counts as unset.
fn non_empty_path(value: Option<OsString>) -> Option<PathBuf> {
    value.filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The folders that may contain CUPTI, best first, each once.
fn all_folders(maps: &str, variable: impl Fn(&'static str) -> Option<OsString>) -> Vec<PathBuf> {
    let near = near_mapped(maps).into_iter().filter(|folder| folder.is_dir());
    let mut seen = HashSet::new();
    near.chain(folders(variable)).filter(|folder| seen.insert(folder.clone())).collect()
}

/// The folders of the CUDA that this process uses, found by its mapped files: of the Python
/// packages that contain them, and beside the toolkit's libraries. An interpreter may lack a
/// variable that names them.
fn near_mapped(maps: &str) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    let mut last = Path::new("");
    for line in maps.lines() {
        let Some(path) = line.find('/').map(|at| Path::new(&line[at..])) else { continue };
        // A file has several lines in sequence.
        if std::mem::replace(&mut last, path) == path {
            continue;
        }
        let is_packages =
            |at: &&Path| at.ends_with("site-packages") || at.ends_with("dist-packages");
        if let Some(packages) = path.ancestors().find(is_packages) {
            let nvidia = packages.join("nvidia");
            folders.extend([nvidia.join("cu13/lib"), nvidia.join("cuda_cupti/lib")]);
        }
        let name = path.file_name().map(OsStr::as_encoded_bytes).unwrap_or_default();
        let is_toolkits = [&b"libcudart.so"[..], b"libcublas.so", b"libnvrtc.so"];
        if let Some(folder) = path.parent()
            && is_toolkits.iter().any(|start| name.starts_with(start))
        {
            // In a toolkit, `lib64` or `targets/ARCH/lib`.
            let toolkits = folder.ancestors().skip(1).take(3);
            folders.push(folder.to_owned());
            folders.extend(toolkits.map(|toolkit| toolkit.join("extras/CUPTI/lib64")));
        }
    }
    let mut seen = HashSet::new();
    folders.retain(|folder| seen.insert(folder.clone()));
    folders
}

/// The folders that variables name: of Python packages, of Conda and of the toolkit.
fn folders(variable: impl Fn(&'static str) -> Option<OsString>) -> Vec<PathBuf> {
    let root = |name| non_empty_path(variable(name));
    let mut folders = Vec::new();
    for name in ["VIRTUAL_ENV", CONDA] {
        let Some(lib) = root(name).map(|root| root.join("lib")) else { continue };
        let entries = fs::read_dir(&lib).into_iter().flatten().flatten();
        let mut pythons: Vec<PathBuf> = entries
            .filter(|entry| is_python(&entry.file_name()))
            .map(|entry| entry.path())
            .collect();
        // The file system has no order of its own.
        pythons.sort();
        for python in pythons {
            let nvidia = python.join("site-packages/nvidia");
            folders.push(nvidia.join("cu13/lib"));
            folders.push(nvidia.join("cuda_cupti/lib"));
        }
        if name == CONDA {
            folders.push(lib);
        }
    }
    let mut toolkits: Vec<PathBuf> =
        ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(root).collect();
    toolkits.push("/usr/local/cuda".into());
    toolkits.push("/opt/cuda".into());
    let target = if cfg!(target_arch = "aarch64") { "sbsa-linux" } else { "x86_64-linux" };
    for toolkit in toolkits {
        folders.push(toolkit.join("extras/CUPTI/lib64"));
        folders.push(toolkit.join("lib64"));
        folders.push(toolkit.join(format!("targets/{target}/lib")));
    }
    // Several variables may name one root.
    let mut seen = HashSet::new();
    folders.retain(|folder| seen.insert(folder.clone()));
    folders
}

/// True if a folder of this name holds the packages of a Python.
fn is_python(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(b"python") || name.starts_with(b"pypy")
}

/// Every file worth trying, best first. Files in folders are listed only if they exist; bare names
/// go to the dynamic linker.
fn candidates(majors: &[u32], folders: &[PathBuf]) -> Vec<PathBuf> {
    let names: Vec<String> = majors.iter().map(|m| format!("libcupti.so.{m}")).collect();
    let in_folders =
        names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let mut paths: Vec<PathBuf> = in_folders.filter(|path| path.exists()).collect();
    paths.extend(names.iter().map(PathBuf::from));
    paths.push("libcupti.so".into());
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn not_found(error: &Error) -> String {
        assert!(error.is_unavailable(), "{error}");
        error.to_string()
    }

    #[test]
    fn a_path_that_does_not_exist_is_named_in_the_error() {
        // SAFETY: no CUPTI, and no initialiser that does harm.
        let error = unsafe { open_file(Path::new("/nonexistent/libcupti.so.13")) }.unwrap_err();
        assert!(not_found(&error).contains("/nonexistent/libcupti.so.13"), "{error}");
    }

    #[test]
    fn file_that_is_no_library_is_an_error() {
        // SAFETY: no CUPTI, and no initialiser that does harm.
        let error = unsafe { open_file(Path::new("Cargo.toml")) }.unwrap_err();
        let text = not_found(&error);
        assert!(text.contains("Cargo.toml") && text.contains(PATH_VARIABLE), "{text}");
    }

    #[test]
    fn a_library_without_cupti_names_the_missing_function() {
        // SAFETY: no CUPTI, and no initialiser that does harm.
        let error = unsafe { open_file(Path::new("libm.so.6")) }.unwrap_err();
        assert!(not_found(&error).contains("has no function cuptiGetVersion"), "{error}");
    }

    #[test]
    fn mapped_files_are_found_with_their_major_version() {
        let maps = "7f00-7f01 r--p 00000000 08:01 12 /opt/my cuda/libcupti.so.13\n\
                    7f01-7f02 r-xp 00001000 08:01 12 /opt/my cuda/libcupti.so.13\n\
                    7f03-7f04 r--p 00000000 08:01 13 /usr/lib/libcupti.so.2025.1.1\n\
                    7f05-7f06 r--p 00000000 08:01 14 /usr/lib/libcuptilike.so.1\n\
                    7f07-7f08 rw-p 00000000 00:00 0 [heap]\n";
        let files = mapped_in(maps);
        let expected = ["/opt/my cuda/libcupti.so.13", "/usr/lib/libcupti.so.2025.1.1"];
        assert_eq!(files, expected.map(PathBuf::from));
        let majors: Vec<_> = files.iter().map(|file| major(file)).collect();
        assert_eq!(majors, [Some(13), Some(12)]);
        assert_eq!(major(Path::new("libcupti.so.2025.3.1")), Some(13));
        assert_eq!(major(Path::new("libcupti.so.2022.4.0")), Some(12));
        assert_eq!(major(Path::new("libcupti.so.11.8")), Some(11));
        assert_eq!(major(Path::new("libcupti.so")), None);
    }

    #[test]
    fn the_drivers_major_is_tried_first_and_the_linker_last() {
        let paths = candidates(&[12, 13], &folders(env::var_os));
        let bare: Vec<_> = paths.iter().filter(|p| p.parent() == Some(Path::new(""))).collect();
        assert_eq!(
            bare,
            [Path::new("libcupti.so.12"), Path::new("libcupti.so.13"), Path::new("libcupti.so")]
        );
    }

    #[test]
    fn empty_variable_counts_as_unset() {
        let usual = folders(|_| None);
        assert!(usual.iter().all(|folder| folder.is_absolute()), "{usual:?}");
        assert_eq!(folders(|_| Some(OsString::new())), usual);
        assert_eq!((non_empty_path(Some(OsString::new())), non_empty_path(None)), (None, None));
        assert_eq!(
            folders(|_| Some("/usr/local/cuda".into())).len(),
            usual.len() + 1,
            "as Conda's"
        );
        assert_eq!(non_empty_path(Some("/a".into())), Some(PathBuf::from("/a")));
    }

    #[test]
    fn an_environments_folders_are_in_order() {
        let root = env::temp_dir().join(format!("cupti-folders-{}", std::process::id()));
        let lib = root.join("lib");
        for name in ["python3.9", "unrelated", "python3.11", "pypy3.9", "python3.10"] {
            fs::create_dir_all(lib.join(name)).unwrap();
        }
        fs::write(lib.join("libcupti.so.12"), "").unwrap();
        let of = |name| {
            let value = root.clone().into_os_string();
            folders(move |asked| (asked == name).then(|| value.clone()))
        };
        let (python, conda) = (of("VIRTUAL_ENV"), of(CONDA));
        let found = candidates(&[12], &conda);
        fs::remove_dir_all(&root).unwrap();
        let usual = folders(|_| None).len();
        let packages = ["pypy3.9", "python3.10", "python3.11", "python3.9"].map(|python| {
            let nvidia = lib.join(python).join("site-packages/nvidia");
            [nvidia.join("cu13/lib"), nvidia.join("cuda_cupti/lib")]
        });
        assert_eq!(python[..python.len() - usual], *packages.as_flattened());
        assert_eq!(
            conda[..conda.len() - usual],
            [packages.as_flattened(), std::slice::from_ref(&lib)].concat()
        );
        assert_eq!(found[0], lib.join("libcupti.so.12"));
    }

    #[test]
    fn folders_lie_near_the_cuda_that_is_mapped() {
        let maps = "7f00-7f01 r--p 00000000 08:01 12 /usr/lib/python3/dist-packages/torch/lib/libtorch.so\n\
                    7f01-7f02 r-xp 00001000 08:01 12 /usr/lib/python3/dist-packages/torch/lib/libtorch.so\n\
                    7f03-7f04 r--p 00000000 08:01 13 /a b/site-packages/nvidia/cu13/lib/libcudart.so.13\n\
                    7f05-7f06 r--p 00000000 08:01 14 /cuda-13.0/targets/x86_64-linux/lib/libcublas.so.13\n\
                    7f07-7f08 rw-p 00000000 00:00 0 [heap]\n";
        let found = near_mapped(maps);
        for expected in [
            "/usr/lib/python3/dist-packages/nvidia/cuda_cupti/lib",
            "/usr/lib/python3/dist-packages/nvidia/cu13/lib",
            "/a b/site-packages/nvidia/cu13/lib",
            "/cuda-13.0/targets/x86_64-linux/lib",
            "/cuda-13.0/extras/CUPTI/lib64",
        ] {
            let count = found.iter().filter(|folder| *folder == Path::new(expected)).count();
            assert_eq!(count, 1, "{expected}: {found:?}");
        }
        assert_eq!(near_mapped(""), Vec::<PathBuf>::new());
        // What is not there is not looked at, nor named in an error.
        assert_eq!(all_folders(maps, |_| None), folders(|_| None));
    }

    #[test]
    fn missing_library_error_lists_the_searched_folders() {
        let tried = vec![("libcupti.so.13".into(), "no such file".to_owned())];
        let folders = vec!["/usr/local/cuda/lib64".into(), "/opt/cuda/lib64".into()];
        let text = not_found(&Error::new(Kind::LibraryNotFound { tried, folders }));
        assert!(text.contains("none lies in /usr/local/cuda/lib64, /opt/cuda/lib64"), "{text}");
    }
}
