//! Loading a tool's library and calling its entry point.

use std::ffi::OsStr;
use std::mem;

use libloading::Library;

use super::abi::{InitializeInjection, get_export_table};
use super::extension::{self, InitializeExtension};
use crate::error::Error;

const ENTRY_POINT: &[u8] = b"InitializeInjectionNvtx2\0";
const EXTENSION_ENTRY_POINT: &[u8] = b"InitializeInjectionNvtxExtension\0";

/// Attaches the tool in `library`, which then stays loaded.
pub(crate) fn load(library: &OsStr) -> Result<(), Error> {
    // SAFETY: whoever set NVTX's variable asked for this library's code to run in this process.
    let loaded =
        unsafe { Library::new(library) }.map_err(|error| Error::not_loaded(library, &error))?;
    // SAFETY: NVTX defines the type of the function with this name.
    let entry_point = unsafe { loaded.get::<InitializeInjection>(ENTRY_POINT) }
        .map(|symbol| *symbol)
        .map_err(|error| Error::no_entry_point(library, &error))?;
    // SAFETY: NVTX defines the type of the function with this name.
    if let Ok(symbol) = unsafe { loaded.get::<InitializeExtension>(EXTENSION_ENTRY_POINT) } {
        extension::set_entry_point(*symbol);
    }
    // From here on the tool's code runs, and even one that refuses may leave threads or exit handlers.
    mem::forget(loaded);
    // SAFETY: the function has this type, as above, and its library is never unloaded.
    match unsafe { entry_point(get_export_table) } {
        0 => Err(Error::refused(library)),
        _ => Ok(()),
    }
}
