//! Kinds of input files by their names, where a folder is read.

use std::path::Path;

/// True for the name of a recording.
pub(crate) fn is_recording(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gpuprof")
}

/// True for the name of a report of Nsight Systems in its own format.
pub(crate) fn is_report(path: &Path) -> bool {
    has_extension(path, &["nsys-rep", "qdrep"])
}

/// True for the name of a report of Nsight Systems or of its export.
pub(crate) fn is_capture(path: &Path) -> bool {
    is_report(path) || has_extension(path, &["sqlite"])
}

fn has_extension(path: &Path, of: &[&str]) -> bool {
    path.extension().is_some_and(|own| of.iter().any(|known| own.eq_ignore_ascii_case(known)))
}
