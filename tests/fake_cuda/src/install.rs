//! The shared object under the names by which programs load it.

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The file names under which programs and profilers load it: cudarc asks for `libcuda.so` first.
pub const NAMES: [&str; 4] = ["libcuda.so", "libcuda.so.1", "libcupti.so.13", "libcudart.so.13"];

/// The file names of the libraries beside CUDA's that frameworks link: see [`install_math`].
pub const MATH_NAMES: [&str; 6] = [
    "libcublas.so",
    "libcublas.so.13",
    "libcublasLt.so",
    "libcublasLt.so.13",
    "libcurand.so",
    "libcurand.so.10",
];

/// The shared object that cargo built for the running test or benchmark.
///
/// # Errors
/// If it is not beside the running program or one folder above, where cargo puts it.
pub fn shared_object() -> io::Result<PathBuf> {
    const FILE: &str = "libfake_cuda.so";
    let own = env::current_exe()?;
    // Tests lie in `deps`, examples in `examples`, and programs and documentation tests elsewhere below the profile's folder.
    let folders = own.ancestors().skip(1).take(2);
    let candidates = folders.flat_map(|folder| [folder.join("deps").join(FILE), folder.join(FILE)]);
    // Documentation tests run from a folder for temporary files; cargo names its own in the dynamic linker's variable.
    let linker = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let of_cargo: Vec<PathBuf> = env::split_paths(&linker).map(|path| path.join(FILE)).collect();
    let missing = || {
        let why = format!("{FILE} is not beside {}; build gpu-profiler-fake-cuda", own.display());
        io::Error::new(io::ErrorKind::NotFound, why)
    };
    candidates.chain(of_cargo).find(|path| path.exists()).ok_or_else(missing)
}

/// Links the shared object into an existing folder under [`NAMES`]. All names are one file, and so one image in a process.
///
/// # Errors
/// As [`shared_object`], and if a link cannot be made.
pub fn install(folder: &Path) -> io::Result<()> {
    link(folder, &NAMES)
}

/// Links the shared object into an existing folder under [`MATH_NAMES`], too, for programs of frameworks: products and random
/// numbers are one kernel each. NVIDIA's own libraries work with the fake as well, but they take half a gigabyte.
///
/// # Errors
/// As [`install`].
pub fn install_math(folder: &Path) -> io::Result<()> {
    link(folder, &MATH_NAMES)
}

fn link(folder: &Path, names: &[&str]) -> io::Result<()> {
    let file = fs::canonicalize(shared_object()?)?;
    names.iter().try_for_each(|name| symlink(&file, folder.join(name)))
}
