//! The path of the injection library, and the variables that load it.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::carried::{Carried, FILE};
use crate::failure::Failure;
use crate::message::note;

/// The variable with the library that the CUDA driver loads in `cuInit`.
pub(crate) const INJECTION_VARIABLE: &str = "CUDA_INJECTION64_PATH";
/// The variable with the library that each copy of NVTX loads at its first call.
const NVTX_VARIABLE: &str = "NVTX_INJECTION64_PATH";
/// The variable with the library that NCCL loads with its first communicator.
const NCCL_VARIABLE: &str = "NCCL_PROFILER_PLUGIN";

/// The first bytes of a 64-bit ELF file.
const ELF64: [u8; 5] = *b"\x7fELF\x02";

/// Returns an error if another tool is already injected.
pub(super) fn refuse_other_tools() -> Result<(), Failure> {
    for variable in [INJECTION_VARIABLE, NVTX_VARIABLE] {
        let Some(tool) = env::var_os(variable).filter(|tool| !tool.is_empty()) else { continue };
        let by = match Path::new(&tool).file_name().is_some_and(|name| name == FILE) {
            true => {
                "another `gpuprof run` records this already: run the program without the inner one"
            }
            false => {
                "a process has one tool of this kind: unset the variable, or use the other tool alone"
            }
        };
        return Err(Failure::Error(format!("{variable}={}: {by}", tool.display())));
    }
    Ok(())
}

/// The variables that name the library. An NCCL profiler plugin chosen by the user is not replaced.
pub(super) fn variables(
    library: &Path,
    quiet: bool,
) -> impl Iterator<Item = (&'static str, Option<OsString>)> {
    let chosen = env::var_os(NCCL_VARIABLE).filter(|plugin| !plugin.is_empty());
    if let Some(plugin) = chosen.as_ref().filter(|_| !quiet) {
        note(&format!(
            "{NCCL_VARIABLE}={} stays: collectives are read from NCCL's NVTX ranges, which have no sequence numbers, ranks and algorithms; unset it for those",
            plugin.display()
        ));
    }
    let nccl = chosen.is_none().then_some(NCCL_VARIABLE);
    let names = [INJECTION_VARIABLE, NVTX_VARIABLE].into_iter().chain(nccl);
    names.map(|name| (name, Some(library.into())))
}

/// The absolute path of the library: the given one, the embedded one, or the one beside this
/// program.
pub(super) fn find(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    if let Some(given) = given {
        return usable(&given)
            .map_err(|why| Failure::Error(format!("--inject {}: {why}", given.display())));
    }
    if let Some(carried) = Carried::get() {
        return carried.unpack().map_err(|why| {
            Failure::Error(format!(
                "the injection library cannot be unpacked: {why}; set XDG_CACHE_HOME to a folder of yours, or name the library with --inject"
            ))
        });
    }
    let program = env::current_exe().map_err(|error| {
        Failure::Error(format!("could not find this program's own path: {error}; give --inject"))
    })?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let mut places = vec![folder.join(FILE), folder.join("../lib").join(FILE)];
    // Cargo places test programs in a subfolder of the folder with the library.
    if folder.ends_with("deps") {
        places.push(folder.join("..").join(FILE));
    }
    match places.iter().find(|place| place.exists()) {
        Some(place) => {
            usable(place).map_err(|why| Failure::Error(format!("{}: {why}", place.display())))
        }
        None => {
            let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
            Err(Failure::Error(format!(
                "the injection library is in none of {}: build it with `cargo build -p gpuprof-inject`, or name it with --inject; `cargo install --path gpuprof` makes a program that carries it",
                places.join(", ")
            )))
        }
    }
}

/// Checks that the library can be loaded, because the program would not report why it is not.
fn usable(path: &Path) -> Result<PathBuf, String> {
    let absolute = path.canonicalize().map_err(|error| error.to_string())?;
    if !absolute.is_file() {
        return Err("it is no file".to_owned());
    }
    let mut start = Vec::new();
    let opened = File::open(&absolute);
    let read = opened.and_then(|file| file.take(ELF64.len() as u64).read_to_end(&mut start));
    read.map_err(|error| error.to_string())?;
    match start == ELF64 {
        true => Ok(absolute),
        false => Err("it is no library of 64 bits".to_owned()),
    }
}
