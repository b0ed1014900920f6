//! Loading a tool's library and calling its entry point.

use std::env;
use std::ffi::OsStr;
use std::mem;

use libloading::Library;

use super::abi::{InitializeInjection, get_export_table};
use super::extension::{self, InitializeExtension};
use crate::error::{Error, PATH_VARIABLE};

const ENTRY_POINT: &[u8] = b"InitializeInjectionNvtx2\0";
const EXTENSION_ENTRY_POINT: &[u8] = b"InitializeInjectionNvtxExtension\0";

/// The value for "no tool".
const NO_TOOL: &str = "./.";

/// Attaches the tool in the environment variable; false if the variable names none.
///
/// Runs the code of the file in the variable. The function is safe: whoever starts the process sets
/// the environment and could also set `LD_PRELOAD`. A change within the process requires `unsafe`
/// ([`env::set_var`]).
pub(crate) fn load_named() -> Result<bool, Error> {
    match env::var_os(PATH_VARIABLE) {
        Some(path) if !path.is_empty() && path != NO_TOOL => {
            // SAFETY: by NVTX's convention the variable names a tool's library, whose code is meant
            // to run here.
            unsafe { load(&path) }.map(|()| true)
        }
        _ => Ok(false),
    }
}

/// Attaches the tool in `library`. The tool and this crate stay loaded, since the tool has the
/// addresses of our slots.
///
/// # Safety
///
/// The library's initialisers may run in this process, and its symbols with the names of NVTX's
/// entry points are such entry points.
unsafe fn load(library: &OsStr) -> Result<(), Error> {
    // SAFETY: the caller's promise.
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
    // From here on the tool's code runs; even a tool that refuses may leave threads or exit
    // handlers.
    mem::forget(loaded);
    stay_loaded();
    // SAFETY: the function has this type, as above, and its library is never unloaded.
    match unsafe { entry_point(get_export_table) } {
        0 => Err(Error::refused(library)),
        _ => Ok(()),
    }
}

/// Pins the shared object of this crate in memory until the process ends.
///
/// A tool may store addresses of slots, to write to them later, and functions that read clocks. For
/// the main program and for static programs the dynamic linker refuses this; they are never
/// unloaded.
#[cfg(target_os = "linux")]
fn stay_loaded() {
    use std::ffi::{CStr, c_char, c_int, c_void};
    use std::os::unix::ffi::OsStrExt;

    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

    const RTLD_NOLOAD: c_int = 0x4;
    const RTLD_NODELETE: c_int = 0x1000;

    /// `Dl_info`
    #[repr(C)]
    struct Info {
        file: *const c_char,
        base: *mut c_void,
        symbol: *const c_char,
        address: *mut c_void,
    }
    unsafe extern "C" {
        fn dladdr(address: *const c_void, info: *mut Info) -> c_int;
    }

    let mut info = Info {
        file: std::ptr::null(),
        base: std::ptr::null_mut(),
        symbol: std::ptr::null(),
        address: std::ptr::null_mut(),
    };
    let own: *const c_void = (get_export_table as *const ()).cast();
    // SAFETY: any address may be asked about; `info` is a live `Dl_info`.
    if unsafe { dladdr(own, &mut info) } == 0 || info.file.is_null() {
        return;
    }
    // SAFETY: the dynamic linker's own name for the object that our code is in, which is mapped
    // while we run.
    let file = unsafe { CStr::from_ptr(info.file) };
    // SAFETY: nothing is loaded, so no initialiser runs.
    let kept = unsafe {
        Library::open(
            Some(OsStr::from_bytes(file.to_bytes())),
            RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD | RTLD_NODELETE,
        )
    };
    mem::forget(kept);
}

/// Elsewhere the program must not unload an annotated library while a tool is attached.
#[cfg(not(target_os = "linux"))]
fn stay_loaded() {}
