//! NVTX's functions, as far as a tool wrote them to its slots.
//!
//! Each returns `None` where the tool left the slot empty, which is no error: tools take what they need.

use std::ffi::{c_int, c_void};
#[cfg(feature = "enable")]
use std::mem;
#[cfg(feature = "enable")]
use std::ptr::NonNull;
#[cfg(feature = "enable")]
use std::sync::atomic::Ordering;

#[cfg(feature = "enable")]
use super::abi::{CORE, CORE2, CUDA, CUDART, SYNC};
#[cfg(feature = "enable")]
use super::extension::{counters, payload};
use super::types::{
    CounterAttributes, CounterBatch, EnumAttributes, EventAttributes, EventBatch, Handle,
    PayloadData, ResourceAttributes, SchemaAttributes, ScopeAttributes, SyncAttributes, SyncPoint,
    Text, TimeDomainAttributes,
};

macro_rules! functions {
    ($($name:ident = $slot:expr => ($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            #[cfg(feature = "enable")]
            pub(crate) fn $name($($argument: $type),*) -> Option<$result> {
                type Function = unsafe extern "C" fn($($type),*) -> $result;
                let function = NonNull::new($slot.load(Ordering::Acquire))?;
                // SAFETY: NVTX defines that this slot holds a function of this type.
                let function = unsafe { mem::transmute::<NonNull<c_void>, Function>(function) };
                // SAFETY: what is pointed to is borrowed for the call, which is all that a tool may
                // use it for; handles are the tool's own, and numbers to us.
                Some(unsafe { function($($argument),*) })
            }

            #[cfg(not(feature = "enable"))]
            pub(crate) fn $name($(_: $type),*) -> Option<$result> {
                None
            }
        )*
    };
}

/// The same for functions that get pointers, to which no borrow says how long they hold.
macro_rules! pointer_functions {
    ($($name:ident = $slot:expr => ($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            /// # Safety
            /// The pointers are null or point to as much as NVTX's function reads, for as long as it may.
            #[cfg(feature = "enable")]
            unsafe fn $name($($argument: $type),*) -> Option<$result> {
                type Function = unsafe extern "C" fn($($type),*) -> $result;
                let function = NonNull::new($slot.load(Ordering::Acquire))?;
                // SAFETY: NVTX defines that this slot holds a function of this type.
                let function = unsafe { mem::transmute::<NonNull<c_void>, Function>(function) };
                // SAFETY: the caller's promise; handles are the tool's own, and numbers to us.
                Some(unsafe { function($($argument),*) })
            }

            /// # Safety
            /// As with a tool.
            #[cfg(not(feature = "enable"))]
            unsafe fn $name($(_: $type),*) -> Option<$result> {
                None
            }
        )*
    };
}

/// The first of several payloads, whose number follows.
type Payloads<'a> = *const PayloadData<'a>;

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

    sync_create = SYNC[1] => (domain: Handle, sync: &SyncAttributes<'_>) -> Handle;
    sync_destroy = SYNC[2] => (sync: Handle) -> ();
    sync_acquire_start = SYNC[3] => (sync: Handle) -> ();
    sync_acquire_failed = SYNC[4] => (sync: Handle) -> ();
    sync_acquire_success = SYNC[5] => (sync: Handle) -> ();
    sync_releasing = SYNC[6] => (sync: Handle) -> ();

    schema_register = payload()[0] => (domain: Handle, schema: &SchemaAttributes<'_>) -> u64;
    enum_register = payload()[1] => (domain: Handle, schema: &EnumAttributes<'_>) -> u64;
    domain_is_enabled = payload()[7] => (domain: Handle) -> u8;
    timestamp_get = payload()[8] => () -> i64;
    time_domain_register = payload()[9]
        => (domain: Handle, attributes: &TimeDomainAttributes) -> u64;
    timer_source = payload()[10]
        => (domain: Handle, time_domain: u64, flags: u64, source: extern "C" fn() -> i64) -> ();
    scope_register = payload()[12] => (domain: Handle, scope: &ScopeAttributes<'_>) -> u64;
    time_sync_point = payload()[13]
        => (domain: Handle, first: u64, second: u64, first_time: i64, second_time: i64) -> ();
    timestamp_conversion = payload()[15]
        => (
            domain: Handle,
            source: u64,
            destination: u64,
            slope: f64,
            source_time: i64,
            destination_time: i64
        ) -> ();
    event_batch_submit = payload()[17] => (domain: Handle, batch: &EventBatch<'_>) -> ();

    counter_register = counters()[0] => (domain: Handle, counter: &CounterAttributes<'_>) -> u64;
    counter_sample_i64 = counters()[1] => (domain: Handle, counter: u64, value: i64) -> ();
    counter_sample_f64 = counters()[2] => (domain: Handle, counter: u64, value: f64) -> ();
    counter_no_value = counters()[4] => (domain: Handle, counter: u64, reason: u8) -> ();
    counter_batch = counters()[5] => (domain: Handle, batch: &CounterBatch<'_>) -> ();
}

pointer_functions! {
    initialize_with = CORE2[15] => (reserved: *const c_void) -> ();
    mark_payload = payload()[2] => (domain: Handle, payloads: Payloads<'_>, count: usize) -> ();
    push_payload = payload()[3] => (domain: Handle, payloads: Payloads<'_>, count: usize) -> c_int;
    pop_payload = payload()[4] => (domain: Handle, payloads: Payloads<'_>, count: usize) -> c_int;
    start_payload = payload()[5] => (domain: Handle, payloads: Payloads<'_>, count: usize) -> u64;
    end_payload = payload()[6]
        => (domain: Handle, range: u64, payloads: Payloads<'_>, count: usize) -> ();
    timer_source_with_data = payload()[11]
        => (
            domain: Handle,
            time_domain: u64,
            flags: u64,
            source: unsafe extern "C" fn(*mut c_void) -> i64,
            data: *mut c_void
        ) -> ();
    time_sync_points = payload()[14]
        => (
            domain: Handle,
            source: u64,
            destination: u64,
            points: *const SyncPoint,
            count: usize
        ) -> ();
    event_submit = payload()[16] => (domain: Handle, payloads: Payloads<'_>, count: usize) -> ();
    counter_sample = counters()[3]
        => (domain: Handle, counter: u64, value: *const u8, size: usize) -> ();
}

/// [`mark_payload`] with a slice.
pub(crate) fn mark_payloads(domain: Handle, payloads: &[PayloadData<'_>]) -> Option<()> {
    // SAFETY: a slice, which lives through the call.
    unsafe { mark_payload(domain, payloads.as_ptr(), payloads.len()) }
}

/// [`push_payload`] with a slice.
pub(crate) fn push_payloads(domain: Handle, payloads: &[PayloadData<'_>]) -> Option<c_int> {
    // SAFETY: a slice, which lives through the call.
    unsafe { push_payload(domain, payloads.as_ptr(), payloads.len()) }
}

/// [`pop_payload`] with a slice.
pub(crate) fn pop_payloads(domain: Handle, payloads: &[PayloadData<'_>]) -> Option<c_int> {
    // SAFETY: a slice, which lives through the call.
    unsafe { pop_payload(domain, payloads.as_ptr(), payloads.len()) }
}

/// [`start_payload`] with a slice.
pub(crate) fn start_payloads(domain: Handle, payloads: &[PayloadData<'_>]) -> Option<u64> {
    // SAFETY: a slice, which lives through the call.
    unsafe { start_payload(domain, payloads.as_ptr(), payloads.len()) }
}

/// [`end_payload`] with a slice.
pub(crate) fn end_payloads(domain: Handle, range: u64, payloads: &[PayloadData<'_>]) -> Option<()> {
    // SAFETY: a slice, which lives through the call.
    unsafe { end_payload(domain, range, payloads.as_ptr(), payloads.len()) }
}

/// [`event_submit`] with a slice.
pub(crate) fn submit(domain: Handle, payloads: &[PayloadData<'_>]) -> Option<()> {
    // SAFETY: a slice, which lives through the call.
    unsafe { event_submit(domain, payloads.as_ptr(), payloads.len()) }
}

/// [`time_sync_points`] with a slice.
pub(crate) fn sync_points(
    domain: Handle,
    source: u64,
    destination: u64,
    points: &[SyncPoint],
) -> Option<()> {
    // SAFETY: a slice, which lives through the call.
    unsafe { time_sync_points(domain, source, destination, points.as_ptr(), points.len()) }
}

/// [`counter_sample`] with a slice.
pub(crate) fn counter_bytes(domain: Handle, counter: u64, value: &[u8]) -> Option<()> {
    // SAFETY: a slice, which lives through the call.
    unsafe { counter_sample(domain, counter, value.as_ptr(), value.len()) }
}

/// A function that reads a clock, as a tool may hold it: for ever and on any thread.
type ReadClock = &'static (dyn Fn() -> i64 + Sync);

/// [`timer_source_with_data`] with a closure.
pub(crate) fn timer_source_with(
    domain: Handle,
    time_domain: u64,
    flags: u64,
    read: ReadClock,
) -> Option<()> {
    /// # Safety
    /// `data` is what went to the tool with this function.
    unsafe extern "C" fn call(data: *mut c_void) -> i64 {
        // SAFETY: by the caller's promise a `ReadClock` that was leaked, so that it lives for ever and never changes.
        let read: ReadClock = unsafe { *data.cast::<ReadClock>().cast_const() };
        // A panic must not unwind into the tool.
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)) {
            Ok(time) => time,
            Err(payload) => {
                // Its drop runs code of the program's, which could panic again, with nobody left to catch it.
                std::mem::forget(payload);
                0
            }
        }
    }
    let data: *const ReadClock = Box::leak(Box::new(read));
    // SAFETY: the tool calls `call` with this data, which is never freed.
    unsafe { timer_source_with_data(domain, time_domain, flags, call, data.cast_mut().cast()) }
}

/// [`initialize_with`] what NVTX keeps for later: nothing.
pub(crate) fn initialize() -> Option<()> {
    // SAFETY: null.
    unsafe { initialize_with(std::ptr::null()) }
}
