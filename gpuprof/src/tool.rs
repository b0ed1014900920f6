//! Programs of NVIDIA that commands run.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use profiler_base::text::printable;

use crate::failure::Failure;

/// Finds a program: the file that this variable names, else in `PATH`, else in the toolkit's folder.
pub(crate) fn find(name: &str, variable: &str) -> Result<Option<PathBuf>, Failure> {
    if let Some(named) = env::var_os(variable).map(PathBuf::from) {
        return match named.is_file() {
            true => Ok(Some(named)),
            false => {
                Err(Failure::Error(format!("{variable} is {}, which is no file", named.display())))
            }
        };
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/local/cuda/bin".into()]);
    Ok(folders.map(|folder| folder.join(name)).find(|file| file.is_file()))
}

/// Runs a program, and returns its standard output.
pub(crate) fn run<A: AsRef<OsStr>>(
    program: &Path,
    arguments: impl IntoIterator<Item = A>,
) -> Result<String, Failure> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| Failure::Error(format!("could not run {}: {error}", program.display())))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(Failure::Error(format!(
            "{}: {}: {}",
            program.display(),
            output.status,
            printable(String::from_utf8_lossy(&output.stderr).trim())
        ))),
    }
}
