//! An NVTX tool whose functions do nothing, so that the cost above the header's is visible. With
//! `NULL_TOOL=count` in the environment its functions count, which shows that every row calls them.
//!
//! The tool shares no code with `nvtx-rs`. Every NVTX client in the process attaches to it
//! separately.

use std::env;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

type Function = *mut c_void;
type GetExportTable = unsafe extern "C" fn(u32) -> *const c_void;

#[repr(C)]
struct Callbacks {
    struct_size: usize,
    get_module_function_table:
        unsafe extern "C" fn(c_int, *mut *mut *mut Function, *mut c_uint) -> c_int,
}

/// The id of the table of callbacks.
const CALLBACKS: u32 = 1;
/// A module, and its slots for starts, for ends and for the registration of texts. NVIDIA's layer
/// makes process ranges; the others make thread ranges.
const MODULES: [(c_int, [&[usize]; 3]); 2] =
    [(1, [&[8, 9, 10], &[11], &[]]), (5, [&[2, 4], &[3, 5], &[10]])];

static PUSHES: AtomicU64 = AtomicU64::new(0);
static POPS: AtomicU64 = AtomicU64::new(0);

// One function handles every kind of start. In the C calling convention it may ignore arguments,
// and a caller reads only the part of the result that it expects.
extern "C" fn push(_: *const c_char, _: *const c_void) -> u64 {
    0
}

extern "C" fn pop(_: *const c_void) -> c_int {
    0
}

// Registers texts, as every real tool does.
extern "C" fn register(_: *const c_void, _: *const c_char) -> *const c_void {
    ptr::from_ref(&PUSHES).cast()
}

extern "C" fn counted_push(_: *const c_char, _: *const c_void) -> u64 {
    PUSHES.fetch_add(1, Ordering::Relaxed);
    0
}

extern "C" fn counted_pop(_: *const c_void) -> c_int {
    POPS.fetch_add(1, Ordering::Relaxed);
    0
}

/// The number of pushes so far, if the tool counts.
#[unsafe(no_mangle)]
pub extern "C" fn null_tool_pushes() -> u64 {
    PUSHES.load(Ordering::Relaxed)
}

/// The number of pops so far, if the tool counts.
#[unsafe(no_mangle)]
pub extern "C" fn null_tool_pops() -> u64 {
    POPS.load(Ordering::Relaxed)
}

/// The entry point of a tool. A result of 0 means that the tool refuses.
///
/// # Safety
///
/// `get_export_table` is NVTX's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(get_export_table: GetExportTable) -> c_int {
    let counts = env::var_os("NULL_TOOL").is_some_and(|value| value == "count");
    let (push, pop) = if counts {
        (counted_push as *const () as Function, counted_pop as *const () as Function)
    } else {
        (push as *const () as Function, pop as *const () as Function)
    };
    // SAFETY: any id may be requested.
    let callbacks = unsafe { get_export_table(CALLBACKS) }.cast::<Callbacks>();
    // SAFETY: the id names this type; null is handled.
    let Some(callbacks) = (unsafe { callbacks.as_ref() }) else {
        return 0;
    };
    let register = register as *const () as Function;
    for (module, [pushes, pops, texts]) in MODULES {
        let (mut table, mut slots) = (ptr::null_mut(), 0);
        // SAFETY: both point to locals.
        let answer =
            unsafe { (callbacks.get_module_function_table)(module, &mut table, &mut slots) };
        if answer != 1 || table.is_null() {
            return 0;
        }
        let pushes = pushes.iter().map(|slot| (*slot, push));
        let pops = pops.iter().map(|slot| (*slot, pop));
        let texts = texts.iter().map(|slot| (*slot, register));
        for (slot, function) in pushes.chain(pops).chain(texts) {
            if slot >= slots as usize {
                return 0;
            }
            // SAFETY: the table has `slots` entries.
            let entry = unsafe { table.add(slot) };
            // SAFETY: as above, so it is one of them.
            let address = unsafe { *entry };
            // SAFETY: NVTX gives the addresses of slots that a tool may write, or null.
            if let Some(place) = unsafe { address.as_mut() } {
                *place = function;
            }
        }
    }
    1
}
