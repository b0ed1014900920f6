//! NVTX's functions that a tool has written to their slots.
//!
//! Each returns `None` if the slot is empty, which is not an error: tools install the functions
//! that they need.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use super::abi::{CORE, CORE2, CUDA, CUDART, SYNC};
use super::extension::{counters, payload};
use super::types::{
    CounterAttributes, CounterBatch, EnumAttributes, EventAttributes, EventBatch, Handle,
    PayloadData, ResourceAttributes, SchemaAttributes, ScopeAttributes, SyncAttributes, SyncPoint,
    Text, TimeDomainAttributes,
};

/// The slots of a module.
macro_rules! slots {
    (PAYLOAD) => {
        payload()
    };
    (COUNTERS) => {
        counters()
    };
    ($module:ident) => {
        $module
    };
}

/// Defines a function that calls the one in a slot. After a semicolon follows a slice, which NVTX
/// takes as a pointer and a length.
macro_rules! functions {
    ($($name:ident = $module:ident[$slot:literal] => ($($argument:ident: $type:ty),* $(; $slice:ident: [$item:ty])?) -> $result:ty;)*) => {$(
        pub(crate) fn $name($($argument: $type,)* $($slice: &[$item])?) -> Option<$result> {
            type Function = unsafe extern "C" fn($($type,)* $(*const $item, usize)?) -> $result;
            let function = NonNull::new(slots!($module)[$slot].load(Ordering::Acquire))?;
            // SAFETY: NVTX defines that this slot holds a function of this type.
            let function = unsafe { mem::transmute::<NonNull<c_void>, Function>(function) };
            // SAFETY: what is pointed to is borrowed for the call, or for ever
            // (`timer_source_with_data`), which is all that a tool may use it for; a slice's
            // pointer comes with its length. Handles are the tool's own, and numbers to us.
            Some(unsafe { function($($argument,)* $($slice.as_ptr(), $slice.len())?) })
        }
    )*

        /// The slots to which a tool writes its functions.
        #[allow(non_upper_case_globals, missing_docs, reason = "named as the functions that call them")]
        pub mod slot {
            use super::super::abi::{Module, Place};

            $(pub const $name: Place = Place { module: Module::$module, slot: $slot };)*
        }
    };
}

functions! {
    mark_ex = CORE[1] => (event: &EventAttributes<'_>) -> ();
    mark_a = CORE[2] => (message: Text<'_>) -> ();
    range_start_ex = CORE[4] => (event: &EventAttributes<'_>) -> u64;
    range_start_a = CORE[5] => (message: Text<'_>) -> u64;
    range_end = CORE[7] => (range: u64) -> ();
    range_push_ex = CORE[8] => (event: &EventAttributes<'_>) -> c_int;
    range_push_a = CORE[9] => (message: Text<'_>) -> c_int;
    range_pop = CORE[11] => () -> c_int;
    name_category = CORE[12] => (category: u32, name: Text<'_>) -> ();
    name_os_thread = CORE[14] => (thread: u32, name: Text<'_>) -> ();

    domain_mark_ex = CORE2[1] => (domain: Handle, event: &EventAttributes<'_>) -> ();
    domain_range_start_ex = CORE2[2] => (domain: Handle, event: &EventAttributes<'_>) -> u64;
    domain_range_end = CORE2[3] => (domain: Handle, range: u64) -> ();
    domain_range_push_ex = CORE2[4] => (domain: Handle, event: &EventAttributes<'_>) -> c_int;
    domain_range_pop = CORE2[5] => (domain: Handle) -> c_int;
    resource_create = CORE2[6] => (domain: Handle, resource: &ResourceAttributes<'_>) -> Handle;
    resource_destroy = CORE2[7] => (resource: Handle) -> ();
    domain_name_category = CORE2[8] => (domain: Handle, category: u32, name: Text<'_>) -> ();
    register_string = CORE2[10] => (domain: Handle, text: Text<'_>) -> Handle;
    domain_create = CORE2[12] => (name: Text<'_>) -> Handle;
    domain_destroy = CORE2[14] => (domain: Handle) -> ();

    name_cu_device = CUDA[1] => (device: c_int, name: Text<'_>) -> ();
    name_cu_context = CUDA[3] => (context: *mut c_void, name: Text<'_>) -> ();
    name_cu_stream = CUDA[5] => (stream: *mut c_void, name: Text<'_>) -> ();
    name_cu_event = CUDA[7] => (event: *mut c_void, name: Text<'_>) -> ();
    name_cuda_device = CUDART[1] => (device: c_int, name: Text<'_>) -> ();
    name_cuda_stream = CUDART[3] => (stream: *mut c_void, name: Text<'_>) -> ();
    name_cuda_event = CUDART[5] => (event: *mut c_void, name: Text<'_>) -> ();

    initialize = CORE2[15] => (reserved: Option<&c_void>) -> ();

    sync_create = SYNC[1] => (domain: Handle, sync: &SyncAttributes<'_>) -> Handle;
    sync_destroy = SYNC[2] => (sync: Handle) -> ();
    sync_acquire_start = SYNC[3] => (sync: Handle) -> ();
    sync_acquire_failed = SYNC[4] => (sync: Handle) -> ();
    sync_acquire_success = SYNC[5] => (sync: Handle) -> ();
    sync_releasing = SYNC[6] => (sync: Handle) -> ();

    schema_register = PAYLOAD[0] => (domain: Handle, schema: &SchemaAttributes<'_>) -> u64;
    enum_register = PAYLOAD[1] => (domain: Handle, schema: &EnumAttributes<'_>) -> u64;
    domain_is_enabled = PAYLOAD[7] => (domain: Handle) -> u8;
    timestamp_get = PAYLOAD[8] => () -> i64;
    time_domain_register = PAYLOAD[9]
        => (domain: Handle, attributes: &TimeDomainAttributes) -> u64;
    timer_source = PAYLOAD[10]
        => (domain: Handle, time_domain: u64, flags: u64, source: extern "C" fn() -> i64) -> ();
    scope_register = PAYLOAD[12] => (domain: Handle, scope: &ScopeAttributes<'_>) -> u64;
    time_sync_point = PAYLOAD[13]
        => (domain: Handle, first: u64, second: u64, first_time: i64, second_time: i64) -> ();
    timestamp_conversion = PAYLOAD[15]
        => (
            domain: Handle,
            source: u64,
            destination: u64,
            slope: f64,
            source_time: i64,
            destination_time: i64
        ) -> ();
    event_batch_submit = PAYLOAD[17] => (domain: Handle, batch: &EventBatch<'_>) -> ();

    counter_register = COUNTERS[0] => (domain: Handle, counter: &CounterAttributes<'_>) -> u64;
    counter_sample_i64 = COUNTERS[1] => (domain: Handle, counter: u64, value: i64) -> ();
    counter_sample_f64 = COUNTERS[2] => (domain: Handle, counter: u64, value: f64) -> ();
    counter_no_value = COUNTERS[4] => (domain: Handle, counter: u64, reason: u8) -> ();
    counter_batch = COUNTERS[5] => (domain: Handle, batch: &CounterBatch<'_>) -> ();

    mark_payloads = PAYLOAD[2] => (domain: Handle; payloads: [PayloadData<'_>]) -> ();
    push_payloads = PAYLOAD[3] => (domain: Handle; payloads: [PayloadData<'_>]) -> c_int;
    pop_payloads = PAYLOAD[4] => (domain: Handle; payloads: [PayloadData<'_>]) -> c_int;
    start_payloads = PAYLOAD[5] => (domain: Handle; payloads: [PayloadData<'_>]) -> u64;
    end_payloads = PAYLOAD[6] => (domain: Handle, range: u64; payloads: [PayloadData<'_>]) -> ();
    timer_source_with_data = PAYLOAD[11]
        => (
            domain: Handle,
            time_domain: u64,
            flags: u64,
            source: extern "C" fn(&'static ReadClock) -> i64,
            data: &'static ReadClock
        ) -> ();
    sync_points = PAYLOAD[14]
        => (domain: Handle, source: u64, destination: u64; points: [SyncPoint]) -> ();
    submit = PAYLOAD[16] => (domain: Handle; payloads: [PayloadData<'_>]) -> ();
    counter_bytes = COUNTERS[3] => (domain: Handle, counter: u64; value: [u8]) -> ();
}

/// A function that reads a clock. A tool may store it forever and call it on any thread.
type ReadClock = &'static (dyn Fn() -> i64 + Sync);

/// [`timer_source_with_data`] with a closure.
pub(crate) fn timer_source_with(
    domain: Handle,
    time_domain: u64,
    flags: u64,
    read: ReadClock,
) -> Option<()> {
    extern "C" fn call(read: &'static ReadClock) -> i64 {
        // A panic must not unwind into the tool.
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)) {
            Ok(time) => time,
            Err(payload) => {
                // Dropping the payload runs code of the program, which could panic again.
                std::mem::forget(payload);
                0
            }
        }
    }
    timer_source_with_data(domain, time_domain, flags, call, Box::leak(Box::new(read)))
}
