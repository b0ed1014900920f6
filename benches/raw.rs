//! CUPTI from C++ as a mode of benchmarks: `raw_cupti.cpp`, compiled if a toolkit is available.

use std::env;
use std::fs;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cupti::sys::functions::DRIVER_CALLS;
use gpu_profiler_benches::process_bench::Result;

/// The library built from `raw_cupti.cpp`, collecting. CUPTI retains pointers to its functions, so
/// it is never unloaded.
pub(crate) struct Raw(ManuallyDrop<libloading::Library>);

impl Raw {
    /// Starts recording everything, with the library that `RAW_CUPTI` names.
    pub(crate) fn start() -> Result<Self> {
        let ids: Vec<u32> = DRIVER_CALLS.iter().map(|call| call.id).collect();
        Self::start_with(&ids, true)
    }

    /// Subscribes without records, optionally with empty callbacks of all calls.
    #[allow(dead_code, reason = "not every benchmark measures it")]
    pub(crate) fn without_records(callbacks: bool) -> Result<Self> {
        let ids: Vec<u32> = DRIVER_CALLS.iter().map(|call| call.id).collect();
        Self::start_with(if callbacks { &ids } else { &[] }, false)
    }

    fn start_with(ids: &[u32], records: bool) -> Result<Self> {
        let path = env::var_os("RAW_CUPTI").ok_or("RAW_CUPTI names no library")?;
        // SAFETY: the user named this library; it and libcupti have ordinary initialisers.
        let raw = Self(ManuallyDrop::new(unsafe { libloading::Library::new(path) }?));
        type Start = unsafe extern "C" fn(*const u32, usize, bool) -> i32;
        // SAFETY: this is the function's type in `raw_cupti.cpp`.
        let start = unsafe { raw.0.get::<Start>(b"raw_start\0") }?;
        // SAFETY: as many ids lie there as the length states; they are not retained.
        match unsafe { start(ids.as_ptr(), ids.len(), records) } {
            0 => Ok(raw),
            code => Err(format!("raw_start gives CUPTI's error {code}").into()),
        }
    }

    /// Stops. Returns the counts of records, kernels, dropped records and bytes.
    pub(crate) fn stop(&self) -> Result<[u64; 4]> {
        type Stop = unsafe extern "C" fn(*mut u64) -> i32;
        // SAFETY: this is the function's type in `raw_cupti.cpp`.
        let stop = unsafe { self.0.get::<Stop>(b"raw_stop\0") }?;
        let mut out = [0; 4];
        // SAFETY: the function writes four words, and `out` has four.
        match unsafe { stop(out.as_mut_ptr()) } {
            0 => Ok(out),
            code => Err(format!("raw_stop gives CUPTI's error {code}").into()),
        }
    }

    /// CUPTI's API version.
    #[allow(dead_code, reason = "not every benchmark prints it")]
    pub(crate) fn version(&self) -> Result<u32> {
        type Version = unsafe extern "C" fn() -> u32;
        // SAFETY: this is the function's type in `raw_cupti.cpp`.
        let version = unsafe { self.0.get::<Version>(b"raw_version\0") }?;
        // SAFETY: the function takes nothing and reads a constant from CUPTI.
        Ok(unsafe { version() })
    }
}

/// The modes that use CUPTI from C++.
const RAW_MODES: [&str; 3] = ["raw", "subscribed", "callbacks"];

/// The library for the raw modes, if these modes include one. If it is not available, prints why
/// and removes the raw modes.
#[allow(dead_code, reason = "not every benchmark can do without the mode")]
#[allow(clippy::print_stderr, reason = "a program that prints what it measured")]
pub(crate) fn raw_library_for<M: AsRef<str>>(
    modes: &mut Vec<M>,
    scratch: &Path,
) -> Option<PathBuf> {
    let is_raw = |mode: &M| RAW_MODES.contains(&mode.as_ref());
    if !modes.iter().any(is_raw) {
        return None;
    }
    raw_library(scratch)
        .inspect_err(|why| {
            eprintln!("raw is left out: {why}");
            modes.retain(|mode| !is_raw(mode));
        })
        .ok()
}

/// The library of mode `raw`: the library that RAW_CUPTI names, or one compiled now.
pub(crate) fn raw_library(scratch: &Path) -> Result<PathBuf> {
    if let Some(path) = env::var_os("RAW_CUPTI") {
        // Use the full path, because the loader searches for a bare name elsewhere.
        return fs::canonicalize(&path)
            .map_err(|error| format!("RAW_CUPTI: {}: {error}", path.display()).into());
    }
    let source = [
        env::var_os("CARGO_MANIFEST_DIR").map(|folder| Path::new(&folder).join("raw_cupti.cpp")),
        Some("benches/raw_cupti.cpp".into()),
        Some("raw_cupti.cpp".into()),
    ]
    .into_iter()
    .flatten()
    .find(|path| path.exists())
    .ok_or("raw_cupti.cpp was not found, and RAW_CUPTI names no library")?;

    let toolkits = [env::var_os("CUDA_HOME"), env::var_os("CUDA_PATH")];
    let toolkits: Vec<PathBuf> = toolkits
        .into_iter()
        .flatten()
        .map(PathBuf::from)
        .chain(["/usr/local/cuda".into()])
        .collect();
    let folders = |parts: &[&str]| -> Vec<PathBuf> {
        toolkits
            .iter()
            .flat_map(|toolkit| parts.iter().map(move |part| toolkit.join(part)))
            .filter(|folder| folder.is_dir())
            .collect()
    };
    let includes = folders(&["include", "extras/CUPTI/include"]);
    if !includes.iter().any(|f| f.join("cupti.h").exists()) {
        return Err("cupti.h was not found, and RAW_CUPTI names no library".into());
    }
    let mut libraries = Vec::new();
    libraries.extend(env::var_os("CUPTI_LIBRARY_PATH").map(PathBuf::from));
    for folder in folders(&["extras/CUPTI/lib64", "lib64", "lib"]) {
        for name in ["libcupti.so", "libcupti.so.13", "libcupti.so.12"] {
            libraries.push(folder.join(name));
        }
    }
    let library = libraries
        .into_iter()
        .find(|path| path.is_file())
        .ok_or("libcupti.so was not found, and RAW_CUPTI names no library")?;
    let library = std::path::absolute(library)?;
    let folder = library.parent().unwrap_or(Path::new("/"));

    let made = scratch.join("libraw_cupti.so");
    let mut tried = String::new();
    let nvcc = folders(&["bin"]).into_iter().map(|bin| bin.join("nvcc"));
    let compilers = ["g++".into(), "c++".into(), "nvcc".into()];
    for compiler in compilers.into_iter().chain(nvcc) {
        let is_nvcc = compiler.ends_with("nvcc");
        let mut command = Command::new(&compiler);
        command.args(["-O2", "-std=c++17", "-shared"]);
        // nvcc passes these options on only with -Xcompiler and -Xlinker.
        if is_nvcc {
            command.args(["-Xcompiler", "-fPIC,-pthread"]);
            command.arg("-Xlinker").arg("-rpath");
            command.arg("-Xlinker").arg(folder);
        } else {
            command.args(["-fPIC", "-pthread"]);
            command.arg(format!("-Wl,-rpath,{}", folder.display()));
        }
        for include in &includes {
            command.arg("-I").arg(include);
        }
        command.arg(&source).arg(&library).arg("-o").arg(&made);
        match command.stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => return Ok(made),
            Ok(output) => {
                let stderr = String::from_utf8_lossy(&output.stderr);
                tried += &format!("\n{}: {}", compiler.display(), stderr.trim_end());
            }
            Err(error) => tried += &format!("\n{}: {error}", compiler.display()),
        }
    }
    Err(format!("{} was not compiled: {tried}", source.display()).into())
}
