//! A copy of NVTX as C has it: slots that the library fills, and calls through them.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "a test's support, of which each test uses a part"
)]
#![allow(clippy::undocumented_unsafe_blocks, reason = "near the C that it stands for")]

use std::ffi::{c_int, c_uint, c_void};
use std::mem;
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering;

use nvtx::abi::{
    Callbacks, EXPORT_CALLBACKS, GetExportTable, Module, ModuleInfo, Place, Segment, Slot,
    SlotAddress,
};

/// The slots of each module: as many as an extension has in NVTX's headers.
pub(crate) const SLOTS: usize = 63;

pub(crate) static MODULES: [[Slot; SLOTS]; 7] =
    [const { [const { Slot::new(null_mut()) }; SLOTS] }; 7];
pub(crate) static EXTENSIONS: [[Slot; SLOTS]; 5] =
    [const { [const { Slot::new(null_mut()) }; SLOTS] }; 5];

pub(crate) type Initialize = unsafe extern "C" fn(Option<GetExportTable>) -> c_int;

pub(crate) type InitializeExtension = unsafe extern "C" fn(*mut ModuleInfo) -> c_int;

/// Has a library fill the slots of an extension.
pub(crate) fn extend(
    initialize: InitializeExtension,
    (module, compatibility): (u16, u16),
    slots: &[Slot],
    count: usize,
) -> c_int {
    let mut segment = Segment { id: 0, slot_count: count, slots: slots.as_ptr() };
    let mut info = ModuleInfo {
        nvtx_version: 3,
        struct_size: size_of::<ModuleInfo>() as u16,
        module,
        compatibility,
        segment_count: 1,
        segments: &raw mut segment,
        get_export_function: null(),
        info: null(),
    };
    unsafe { initialize(&raw mut info) }
}

/// The payload extension, and its version.
pub(crate) const PAYLOAD: (u16, u16) = (2, 0x0104);

/// The slots of a module. The first is never used.
pub(crate) unsafe extern "C" fn module_table(
    module: u32,
    table: *mut *const SlotAddress,
    size: *mut c_uint,
) -> c_int {
    let Some(slots) = MODULES.get(module as usize) else { return 0 };
    let address =
        |(at, slot): (usize, &'static Slot)| SlotAddress(if at == 0 { null() } else { slot });
    let entries: Vec<_> = slots.iter().enumerate().map(address).collect();
    unsafe { table.write(entries.leak().as_ptr()) };
    unsafe { size.write(SLOTS as c_uint) };
    1
}

/// What NVTX passes to a tool.
pub(crate) extern "C" fn export(id: u32) -> *const c_void {
    static CALLBACKS: Callbacks =
        Callbacks { struct_size: size_of::<Callbacks>(), get_module_function_table: module_table };
    if id == EXPORT_CALLBACKS { (&raw const CALLBACKS).cast() } else { null() }
}

type Function = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> usize;

/// The function in a slot, if the library has filled it. C ignores arguments that a function does not have.
pub(crate) fn function(place: Place) -> Option<Function> {
    let is_extension = matches!(place.module, Module::PAYLOAD | Module::COUNTERS);
    let modules: &[[Slot; SLOTS]] = if is_extension { &EXTENSIONS } else { &MODULES };
    let address = modules[place.module.number() as usize][place.slot].load(Ordering::Acquire);
    (!address.is_null()).then(|| unsafe { mem::transmute::<*mut c_void, Function>(address) })
}

/// Calls the function in a slot with numbers and addresses.
pub(crate) fn call(place: Place, arguments: &[usize]) -> usize {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    let [a, b, c, d, e, f] = all;
    unsafe { function(place).unwrap()(a, b, c, d, e, f) }
}
