//! An NVTX tool for the tests: it asks for everything that a real one asks for, and writes a line for
//! each event.
//!
//! It shares no code with the crate, so that a mistake in a layout can't cancel out. Two variables
//! drive it: `FAKE_NVTX_LOG` is the file to append to, and `FAKE_NVTX_MODE` one of
//!
//! - `refuse`: the entry point returns 0;
//! - `empty`, `push-only`, `pop-only`: which functions it installs, where the default is both;
//! - `annotated`: it starts ranges itself while it is being attached.
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a test tool, near the C it stands for")]

use std::env;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

type Function = *mut c_void;
type GetExportTable = unsafe extern "C" fn(u32) -> *const c_void;

#[repr(C)]
struct Callbacks {
    struct_size: usize,
    get_module_function_table:
        Option<unsafe extern "C" fn(c_int, *mut *mut *mut Function, *mut c_uint) -> c_int>,
}

#[repr(C)]
struct VersionInfo {
    struct_size: usize,
    version: u32,
    reserved: u32,
    set_injection_nvtx_version: Option<unsafe extern "C" fn(u32)>,
}

/// Module and the slots that it has.
const REQUIRED: [(c_int, usize); 4] = [(1, 16), (5, 16), (2, 9), (4, 7)];
const ALSO: [(c_int, usize); 2] = [(3, 15), (6, 7)];
const RANGE_PUSH_A: usize = 9;
const RANGE_POP: usize = 11;

static LOG: OnceLock<Option<File>> = OnceLock::new();
static THREADS: AtomicI32 = AtomicI32::new(0);

thread_local! {
    static THREAD: i32 = THREADS.fetch_add(1, Ordering::Relaxed);
}

/// Appends a line; one write each, so that lines of several threads stay whole.
fn log(line: &str) {
    let file = LOG.get_or_init(|| {
        let path = env::var_os("FAKE_NVTX_LOG")?;
        OpenOptions::new().append(true).create(true).open(path).ok()
    });
    if let Some(mut file) = file.as_ref() {
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}

unsafe extern "C" fn push(message: *const c_char) -> c_int {
    // SAFETY: NVTX hands over a string that ends with a NUL.
    let name = unsafe { CStr::from_ptr(message) }.to_string_lossy();
    log(&format!("{} push {name:?}", THREAD.with(|id| *id)));
    0
}

unsafe extern "C" fn pop() -> c_int {
    log(&format!("{} pop", THREAD.with(|id| *id)));
    0
}

/// The entry point of a tool.
///
/// # Safety
///
/// `get_export_table` is NVTX's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(get_export_table: GetExportTable) -> c_int {
    let mode = env::var("FAKE_NVTX_MODE").unwrap_or_default();
    if mode == "refuse" {
        return 0;
    }
    // SAFETY: as the caller promises.
    match unsafe { attach(get_export_table, &mode) } {
        Ok(()) => {
            if mode == "annotated" {
                drop(nvtx::range("in the tool"));
            }
            1
        }
        Err(reason) => {
            log(&format!("refused: {reason}"));
            0
        }
    }
}

unsafe fn attach(get_export_table: GetExportTable, mode: &str) -> Result<(), String> {
    // SAFETY: NVTX names these ids and the types behind them; the fields are read once the size fits.
    unsafe {
        let version = get_export_table(3).cast::<VersionInfo>();
        check(!version.is_null(), "no version table")?;
        let size = (*version).struct_size;
        check(size >= 24, format!("version table of {size} bytes"))?;
        let number = (*version).version;
        check(number == 3, format!("NVTX version {number}"))?;
        let set = (*version).set_injection_nvtx_version;
        set.ok_or("no SetInjectionNvtxVersion")?(3);

        let callbacks = get_export_table(1).cast::<Callbacks>();
        check(!callbacks.is_null(), "no callbacks table")?;
        let size = (*callbacks).struct_size;
        check(size >= 16, format!("callbacks table of {size} bytes"))?;
        let get = (*callbacks).get_module_function_table;
        let get = get.ok_or("no GetModuleFunctionTable")?;

        for (module, slots) in REQUIRED.into_iter().chain(ALSO) {
            let (mut table, mut size) = (ptr::null_mut(), 0);
            let answer = get(module, &mut table, &mut size);
            check(answer == 1, format!("module {module} answers {answer}"))?;
            check(size as usize == slots, format!("module {module} has {size} slots"))?;
            for slot in 1..slots {
                let address = *table.add(slot);
                check(!address.is_null(), format!("slot {slot} of module {module}"))?;
            }
        }

        let mut core = ptr::null_mut();
        get(1, &mut core, ptr::null_mut());
        if !matches!(mode, "empty" | "pop-only") {
            **core.add(RANGE_PUSH_A) = push as *mut c_void;
        }
        if !matches!(mode, "empty" | "push-only") {
            **core.add(RANGE_POP) = pop as *mut c_void;
        }
    }
    Ok(())
}

fn check(holds: bool, otherwise: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}
