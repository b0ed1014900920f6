//! The tables for tools.
//!
//! A tool requests an export table by id. One of them has a function that returns, for each NVTX
//! module, an array of addresses of slots, to which the tool writes its functions. Tools refuse a
//! client that lacks a module known to them, so all modules and slots are here. Functions for wide
//! characters and for OpenCL are never called.

use std::ffi::{c_int, c_uint, c_void};
#[cfg(target_pointer_width = "64")]
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The slot of one of the tool's functions; null if empty.
pub type Slot = AtomicPtr<c_void>;

/// A table of functions: NVTX's own modules, and its extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::upper_case_acronyms, reason = "NVTX's names")]
pub enum Module {
    /// Events of the default domain.
    CORE,
    /// Names of objects of the driver API.
    CUDA,
    /// Names of objects of the CUDA runtime.
    CUDART,
    /// Events of domains.
    CORE2,
    /// Synchronisation objects.
    SYNC,
    /// The extension for payloads.
    PAYLOAD,
    /// The extension for counters.
    COUNTERS,
}

impl Module {
    /// NVTX's number of the module. Extensions have their own numbers.
    pub const fn number(self) -> u32 {
        match self {
            Module::CORE => 1,
            Module::CUDA | Module::PAYLOAD => 2,
            Module::CUDART | Module::COUNTERS => 4,
            Module::CORE2 => 5,
            Module::SYNC => 6,
        }
    }
}

/// The position of a function: a slot of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The module.
    pub module: Module,
    /// The index in the module's table.
    pub slot: usize,
}

impl Place {
    /// The position of the same function with wide characters, one slot after the function with
    /// bytes.
    #[must_use]
    pub const fn wide(self) -> Place {
        Place { slot: self.slot + 1, ..self }
    }
}

/// The address of a slot, or null: an entry of a module's array.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct SlotAddress(pub *const Slot);

// SAFETY: the address is null or a static's address, and a `Slot` may be used from any thread.
unsafe impl Sync for SlotAddress {}

/// The array for `SLOTS` slots: index 0 is unused, and a null follows the last.
const fn table<const SLOTS: usize, const ENTRIES: usize>(
    slots: &'static [Slot; SLOTS],
) -> [SlotAddress; ENTRIES] {
    assert!(ENTRIES == SLOTS + 1);
    let mut entries = [SlotAddress(ptr::null()); ENTRIES];
    let mut index = 1;
    while index < SLOTS {
        entries[index] = SlotAddress(&raw const slots[index]);
        index += 1;
    }
    entries
}

macro_rules! modules {
    ($($name:ident = $id:literal, $slots:literal slots, $table:ident;)*) => {
        $(
            #[cfg(not(nvtx_loom))]
            pub(super) static $name: [Slot; $slots] = [const { Slot::new(ptr::null_mut()) }; $slots];
            #[cfg(nvtx_loom)]
            loom::lazy_static! {
                pub(super) static ref $name: [crate::shared::AtomicPtr<c_void>; $slots] =
                    std::array::from_fn(|_| crate::shared::AtomicPtr::new(ptr::null_mut()));
            }
            #[cfg(not(nvtx_loom))]
            static $table: [SlotAddress; $slots + 1] = table(&$name);
        )*

        /// The array of a module, including the final null.
        fn module_table(id: u32) -> Option<&'static [SlotAddress]> {
            match id {
                $(#[cfg(not(nvtx_loom))] $id => Some(&$table),)*
                _ => None,
            }
        }

        #[cfg(test)]
        const MODULES: &[(u32, usize)] = &[$(($id, $slots)),*];
    };
}

modules! {
    CORE = 1, 16 slots, CORE_TABLE;
    CUDA = 2, 9 slots, CUDA_TABLE;
    OPENCL = 3, 15 slots, OPENCL_TABLE;
    CUDART = 4, 7 slots, CUDART_TABLE;
    CORE2 = 5, 16 slots, CORE2_TABLE;
    SYNC = 6, 7 slots, SYNC_TABLE;
}

/// Fills two slots of [`CORE`] by plain stores, as a tool in C does.
#[cfg(nvtx_loom)]
pub(crate) fn fill(
    push: extern "C" fn(*const std::ffi::c_char) -> c_int,
    pop: extern "C" fn() -> c_int,
) {
    // `RANGE_PUSH_A` and `RANGE_POP`, which have these types.
    for (slot, function) in [(9, push as *mut c_void), (11, pop as *mut c_void)] {
        if let Some(slot) = CORE.get(slot) {
            slot.store(function, Ordering::Relaxed);
        }
    }
}

/// The argument of a tool's entry point.
pub type GetExportTable = extern "C" fn(id: u32) -> *const c_void;
/// A tool's entry point; 0 means that it refuses.
pub type InitializeInjection = unsafe extern "C" fn(GetExportTable) -> c_int;

/// The number of the export table [`Callbacks`].
pub const EXPORT_CALLBACKS: u32 = 1;
const EXPORT_VERSION_INFO: u32 = 3;

/// The NVTX version of this client.
const NVTX_VERSION: u32 = 3;

/// `NvtxExportTableCallbacks`.
#[derive(Debug)]
#[repr(C)]
pub struct Callbacks {
    /// The bytes of the structure.
    pub struct_size: usize,
    /// Writes the array of a module's slots, and their number; 0 for a module that the client
    /// lacks.
    pub get_module_function_table:
        unsafe extern "C" fn(u32, *mut *const SlotAddress, *mut c_uint) -> c_int,
}

#[repr(C)]
struct VersionInfo {
    struct_size: usize,
    version: u32,
    reserved: u32,
    set_injection_nvtx_version: extern "C" fn(u32),
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<Callbacks>() == 16);
    assert!(mem::offset_of!(Callbacks, get_module_function_table) == 8);
    assert!(size_of::<VersionInfo>() == 24);
    assert!(mem::offset_of!(VersionInfo, version) == 8);
    assert!(mem::offset_of!(VersionInfo, set_injection_nvtx_version) == 16);
};

static CALLBACKS: Callbacks =
    Callbacks { struct_size: size_of::<Callbacks>(), get_module_function_table };

static VERSION_INFO: VersionInfo = VersionInfo {
    struct_size: size_of::<VersionInfo>(),
    version: NVTX_VERSION,
    reserved: 0,
    set_injection_nvtx_version,
};

/// The NVTX version that the tool was built with; 0 until the tool reports it.
static TOOL_VERSION: AtomicU32 = AtomicU32::new(0);

pub(super) extern "C" fn get_export_table(id: u32) -> *const c_void {
    match id {
        EXPORT_CALLBACKS => (&raw const CALLBACKS).cast(),
        EXPORT_VERSION_INFO => (&raw const VERSION_INFO).cast(),
        _ => ptr::null(),
    }
}

extern "C" fn set_injection_nvtx_version(version: u32) {
    TOOL_VERSION.store(version, Ordering::Relaxed);
}

/// # Safety
///
/// Each of `table` and `size` is null or may be written.
unsafe extern "C" fn get_module_function_table(
    module: u32,
    table: *mut *const SlotAddress,
    size: *mut c_uint,
) -> c_int {
    let Some(entries) = module_table(module) else {
        return 0;
    };
    if !size.is_null() {
        // Without the final null. CAST: at most 16.
        let slots = (entries.len() - 1) as c_uint;
        // SAFETY: not null, so the caller promises that it may be written.
        unsafe { size.write(slots) };
    }
    if !table.is_null() {
        // SAFETY: not null, so the caller promises that it may be written.
        unsafe { table.write(entries.as_ptr()) };
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a tool does to get a module's table.
    fn ask(module: u32) -> (c_int, *const SlotAddress, c_uint) {
        let mut table = ptr::null();
        let mut size = 0;
        // SAFETY: both point to locals.
        let answer = unsafe { get_module_function_table(module, &mut table, &mut size) };
        (answer, table, size)
    }

    #[test]
    fn every_module_answers_with_its_slots() {
        for &(module, slots) in MODULES {
            let (answer, table, size) = ask(module);
            assert_eq!((answer, size as usize), (1, slots), "module {module}");
            // SAFETY: the table has one entry more than the size it gave.
            let entries = unsafe { std::slice::from_raw_parts(table, slots + 1) };
            let null: Vec<usize> = (0..=slots).filter(|&i| entries[i].0.is_null()).collect();
            assert_eq!(null, [0, slots], "module {module}");
            for (i, entry) in entries.iter().enumerate().take(slots).skip(1) {
                assert!(entries[..i].iter().all(|e| e.0 != entry.0), "slot {i} twice");
            }
        }
    }

    #[test]
    fn unknown_modules_and_tables_are_refused_and_nothing_is_written() {
        for module in [0, 7, u32::MAX] {
            assert_eq!(ask(module), (0, ptr::null(), 0));
        }
        for id in [0, 2, 4, u32::MAX] {
            assert!(get_export_table(id).is_null());
        }
    }

    #[test]
    fn outputs_that_are_not_wanted_may_be_null() {
        // SAFETY: both are null.
        let answer = unsafe { get_module_function_table(1, ptr::null_mut(), ptr::null_mut()) };
        assert_eq!(answer, 1);
    }

    #[test]
    fn tool_reports_its_version() {
        let info = get_export_table(EXPORT_VERSION_INFO).cast::<VersionInfo>();
        // SAFETY: the id names this type, and the address is that of a static.
        let info = unsafe { &*info };
        assert_eq!((info.struct_size, info.version), (size_of_val(info), 3));
        (info.set_injection_nvtx_version)(3);
        assert_eq!(TOOL_VERSION.load(Ordering::Relaxed), 3);
    }
}
