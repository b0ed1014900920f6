//! The extensions of NVTX: payload schemas and counters.
//!
//! An extension has its own table, which the tool's second entry point fills when the program first
//! uses the extension. If the tool lacks the entry point or refuses, the table stays empty.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Once, OnceLock};

use super::abi::Slot;

/// The slots of each extension: as many as in NVTX's own client, for newer tools.
const SLOTS: usize = 63;

/// `nvtxExtModuleInfo_t`.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields are those of NVTX's structure")]
pub struct ModuleInfo {
    pub nvtx_version: u16,
    pub struct_size: u16,
    pub module: u16,
    pub compatibility: u16,
    pub segment_count: usize,
    pub segments: *mut Segment,
    pub get_export_function: *const c_void,
    pub info: *const TypeInfo,
}

/// `nvtxExtModuleSegment_t`.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields are those of NVTX's structure")]
pub struct Segment {
    pub id: usize,
    pub slot_count: usize,
    pub slots: *const Slot,
}

/// `nvtxPayloadEntryTypeInfo_t`: the size of a type of C, and its alignment.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TypeInfo {
    /// Bytes; 0 for a type that Rust lacks.
    pub size: u16,
    /// Bytes.
    pub align: u16,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<ModuleInfo>() == 40);
    assert!(size_of::<Segment>() == 24);
    assert!(size_of::<TypeInfo>() == 4);
};

/// The entry point of a tool for extensions; 0 means that it refuses.
pub type InitializeExtension = unsafe extern "C" fn(*mut ModuleInfo) -> c_int;

/// The types with sizes in [`TYPE_INFO`]; the index is a type's number.
const TYPES: usize = 29;

/// The sizes of C's types, by their numbers in schemas.
pub static TYPE_INFO: [TypeInfo; TYPES] = {
    const fn type_info<T>() -> TypeInfo {
        TypeInfo { size: size_of::<T>() as u16, align: align_of::<T>() as u16 }
    }
    use std::ffi::{c_char, c_int, c_long, c_longlong, c_short, c_uchar, c_uint, c_ulong};
    use std::ffi::{c_ulonglong, c_ushort};
    [
        // The first entry has the length of the array and the size of its entries.
        TypeInfo { size: TYPES as u16, align: size_of::<TypeInfo>() as u16 },
        type_info::<c_char>(),
        type_info::<c_uchar>(),
        type_info::<c_short>(),
        type_info::<c_ushort>(),
        type_info::<c_int>(),
        type_info::<c_uint>(),
        type_info::<c_long>(),
        type_info::<c_ulong>(),
        type_info::<c_longlong>(),
        type_info::<c_ulonglong>(),
        type_info::<i8>(),
        type_info::<u8>(),
        type_info::<i16>(),
        type_info::<u16>(),
        type_info::<i32>(),
        type_info::<u32>(),
        type_info::<i64>(),
        type_info::<u64>(),
        type_info::<f32>(),
        type_info::<f64>(),
        // Rust has no `long double`, and no schema contains one.
        TypeInfo { size: 0, align: 0 },
        type_info::<usize>(),
        type_info::<*const c_void>(),
        if cfg!(windows) { type_info::<u16>() } else { type_info::<u32>() },
        type_info::<u8>(),
        type_info::<u16>(),
        type_info::<u32>(),
        TypeInfo { size: 0, align: 0 },
    ]
};

/// The tool's second entry point.
static ENTRY_POINT: OnceLock<InitializeExtension> = OnceLock::new();

pub(super) fn set_entry_point(function: InitializeExtension) {
    let _ = ENTRY_POINT.set(function);
}

struct Extension {
    slots: [Slot; SLOTS],
    once: Once,
    module: u16,
    compatibility: u16,
    info: Option<&'static [TypeInfo; TYPES]>,
}

impl Extension {
    const fn new(
        module: u16,
        compatibility: u16,
        info: Option<&'static [TypeInfo; TYPES]>,
    ) -> Extension {
        let slots = [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS];
        Extension { slots, once: Once::new(), module, compatibility, info }
    }

    /// The slots, after the tool had the opportunity to fill them.
    fn slots(&'static self) -> &'static [Slot; SLOTS] {
        self.once.call_once(|| {
            if let Some(&entry_point) = ENTRY_POINT.get() {
                self.offer(entry_point);
            }
        });
        &self.slots
    }

    #[cold]
    fn offer(&'static self, entry_point: InitializeExtension) {
        let mut segment = Segment { id: 0, slot_count: SLOTS, slots: self.slots.as_ptr() };
        let mut info = ModuleInfo {
            nvtx_version: 3,
            struct_size: mem::size_of::<ModuleInfo>() as u16,
            module: self.module,
            compatibility: self.compatibility,
            segment_count: 1,
            segments: &raw mut segment,
            get_export_function: ptr::null(),
            info: self.info.map_or(ptr::null(), |info| info.as_ptr()),
        };
        // SAFETY: NVTX defines this function's type, and all that `info` points to lives through
        // the call; the slots are static and atomic.
        let accepted = unsafe { entry_point(&raw mut info) };
        if accepted == 0 {
            for slot in &self.slots {
                slot.store(ptr::null_mut(), Ordering::Release);
            }
        }
    }
}

static PAYLOAD: Extension = Extension::new(2, 0x0104, Some(&TYPE_INFO));
static COUNTERS: Extension = Extension::new(4, 0x0102, None);

/// The table of the payload extension.
pub(super) fn payload() -> &'static [Slot; SLOTS] {
    PAYLOAD.slots()
}

/// The table of the counters extension.
pub(super) fn counters() -> &'static [Slot; SLOTS] {
    COUNTERS.slots()
}
