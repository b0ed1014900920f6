//! The tool functions for NVTX's own modules, and their installation.

use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::atomic::Ordering;

use nvtx::ResourceId;
use nvtx::abi::{
    Callbacks, EXPORT_CALLBACKS, EventAttributes, GetExportTable, Module, ResourceAttributes,
    SyncAttributes, slot,
};
use nvtx::observer::{Named, SyncStep};

use super::read::{name, resource, sync, text, wide_text, with_event};
use super::{Entry, functions};
use crate::annotations::{self, Domain, Event, NO_LEVEL, Text};

type Attributes<'a> = *const EventAttributes<'a>;

/// An event that has only a name.
#[inline]
fn named(text: Option<Text<'_>>) -> Event<'_> {
    Event::named(name(text))
}

fn name_category(domain: usize, id: u32, text: Option<Text<'_>>) {
    if let Some(text) = text {
        Domain::from_handle(domain).name_category(id, &text.decoded());
    }
}

fn name_object(object: &Named<'_>, text: Option<Text<'_>>) {
    annotations::name_object(object, name(text));
}

/// Functions that take a text, in a byte and a wide-character variant.
macro_rules! functions_of_text {
    ($($place:ident => $bytes:ident, $wide:ident($($argument:ident: $type:ty),*; $text:ident) -> $result:ty, $failed:expr; $body:block)*) => {
        functions! {
            of_text:
            $(
                slot::$place => $bytes($($argument: $type,)* address: *const c_char) -> $result, $failed; {
                    // SAFETY: NVTX passes null or a text that lives through the call.
                    let $text = unsafe { text(address) };
                    $body
                }
                slot::$place.wide() => $wide($($argument: $type,)* address: *const u32) -> $result, $failed; {
                    // SAFETY: NVTX passes null or a text that lives through the call.
                    let $text = unsafe { wide_text(address) };
                    $body
                }
            )*
        }
    };
}

functions_of_text! {
    mark_a => mark_a, mark_w(; text) -> (), (); { annotations::mark(0, &named(text)) }
    range_start_a => start_a, start_w(; text) -> u64, 0; {
        annotations::start_process_range(0, &named(text))
    }
    range_push_a => push_a, push_w(; text) -> c_int, NO_LEVEL; { annotations::push(0, &named(text)) }
    name_category => category_a, category_w(id: u32; text) -> (), (); { name_category(0, id, text) }
    name_os_thread => thread_a, thread_w(id: u32; text) -> (), (); {
        name_object(&Named::Thread(id), text)
    }
    domain_name_category => domain_category_a, domain_category_w(domain: usize, id: u32; text) -> (), (); {
        name_category(domain, id, text)
    }
    register_string => string_a, string_w(_domain: usize; text) -> usize, 0; {
        text.map_or(0, annotations::register_string)
    }
    domain_create => domain_a, domain_w(; text) -> usize, 0; {
        text.map_or(0, |text| Domain::create(&text.decoded()))
    }
    name_cu_device => cu_device_a, cu_device_w(device: c_int; text) -> (), (); {
        name_object(&Named::CuDevice(device), text)
    }
    name_cu_context => cu_context_a, cu_context_w(context: usize; text) -> (), (); {
        name_object(&Named::CuContext(context), text)
    }
    name_cu_stream => cu_stream_a, cu_stream_w(stream: usize; text) -> (), (); {
        name_object(&Named::CuStream(stream), text)
    }
    name_cu_event => cu_event_a, cu_event_w(event: usize; text) -> (), (); {
        name_object(&Named::CuEvent(event), text)
    }
    name_cuda_device => cuda_device_a, cuda_device_w(device: c_int; text) -> (), (); {
        name_object(&Named::CudaDevice(device), text)
    }
    name_cuda_stream => cuda_stream_a, cuda_stream_w(stream: usize; text) -> (), (); {
        name_object(&Named::CudaStream(stream), text)
    }
    name_cuda_event => cuda_event_a, cuda_event_w(event: usize; text) -> (), (); {
        name_object(&Named::CudaEvent(event), text)
    }
}

functions! {
    others:
    slot::mark_ex => mark_ex(event: Attributes<'_>) -> (), (); {
        // SAFETY: NVTX passes null or attributes that live through the call.
        unsafe { with_event(event, |event| annotations::mark(0, event)) }
    }
    slot::range_start_ex => start_ex(event: Attributes<'_>) -> u64, 0; {
        // SAFETY: as above.
        unsafe { with_event(event, |event| annotations::start_process_range(0, event)) }
    }
    slot::range_end => end(range: u64) -> (), (); { annotations::end_process_range(range) }
    slot::range_push_ex => push_ex(event: Attributes<'_>) -> c_int, NO_LEVEL; {
        // SAFETY: as above.
        unsafe { with_event(event, |event| annotations::push(0, event)) }
    }
    slot::range_pop => pop() -> c_int, NO_LEVEL; { annotations::pop(0) }

    slot::domain_mark_ex => domain_mark_ex(domain: usize, event: Attributes<'_>) -> (), (); {
        // SAFETY: as above.
        unsafe { with_event(event, |event| annotations::mark(domain, event)) }
    }
    slot::domain_range_start_ex => domain_start_ex(domain: usize, event: Attributes<'_>) -> u64, 0; {
        // SAFETY: as above.
        unsafe { with_event(event, |event| annotations::start_process_range(domain, event)) }
    }
    slot::domain_range_end => domain_end(_domain: usize, range: u64) -> (), (); {
        annotations::end_process_range(range)
    }
    slot::domain_range_push_ex => domain_push_ex(domain: usize, event: Attributes<'_>) -> c_int, NO_LEVEL; {
        // SAFETY: as above.
        unsafe { with_event(event, |event| annotations::push(domain, event)) }
    }
    slot::domain_range_pop => domain_pop(domain: usize) -> c_int, NO_LEVEL; { annotations::pop(domain) }
    slot::resource_create => resource_create(domain: usize, attributes: *const ResourceAttributes<'_>) -> usize, 0; {
        // SAFETY: NVTX passes null or attributes that live through the call.
        let described = unsafe { resource(attributes) };
        described.map_or(0, |(kind, value, name)| {
            // CAST: the two halves of the 32-bit number.
            let id = ResourceId::other((kind >> 16) as u16, kind as u16, value);
            annotations::create_resource(domain, id, name)
        })
    }
    slot::resource_destroy => resource_destroy(_resource: usize) -> (), (); {}
    slot::domain_destroy => domain_destroy(domain: usize) -> (), (); { Domain::destroy(domain) }
    slot::initialize => initialize(_reserved: usize) -> (), (); {}

    slot::sync_create => sync_create(domain: usize, attributes: *const SyncAttributes<'_>) -> usize, 0; {
        // SAFETY: NVTX passes null or attributes that live through the call.
        annotations::sync::create(domain, unsafe { sync(attributes) })
    }
    slot::sync_destroy => sync_destroy(object: usize) -> (), (); { annotations::sync::destroy(object) }
    slot::sync_acquire_start => sync_start(object: usize) -> (), (); {
        annotations::sync::step(object, SyncStep::AcquireStart)
    }
    slot::sync_acquire_failed => sync_failed(object: usize) -> (), (); {
        annotations::sync::step(object, SyncStep::AcquireFailed)
    }
    slot::sync_acquire_success => sync_success(object: usize) -> (), (); {
        annotations::sync::step(object, SyncStep::AcquireSuccess)
    }
    slot::sync_releasing => sync_releasing(object: usize) -> (), (); {
        annotations::sync::step(object, SyncStep::Releasing)
    }
}

/// Fills the tables of a copy of NVTX. Returns false if it does not have NVTX's core module in a
/// known form.
///
/// # Safety
/// `export` is the function that NVTX passes to a tool's entry point.
pub(super) unsafe fn fill(export: GetExportTable) -> bool {
    let callbacks = export(EXPORT_CALLBACKS).cast::<Callbacks>();
    if callbacks.is_null() {
        return false;
    }
    // SAFETY: for this number NVTX returns this structure, which is constant; its size is the first
    // field.
    let size = unsafe { callbacks.cast::<usize>().read() };
    if size < size_of::<Callbacks>() {
        return false;
    }
    // SAFETY: as above, and the structure is as long as this type.
    let module_table = unsafe { &*callbacks }.get_module_function_table;
    let functions: Vec<Entry> = of_text().into_iter().chain(others()).collect();
    let mut is_known = false;
    for module in [Module::CORE, Module::CORE2, Module::CUDA, Module::CUDART, Module::SYNC] {
        let (mut table, mut slots) = (ptr::null(), 0);
        // SAFETY: NVTX defines this function, which writes to the two live variables.
        if unsafe { module_table(module.number(), &mut table, &mut slots) } == 0 || table.is_null()
        {
            // An older copy lacks some modules.
            continue;
        }
        for (place, function) in functions.iter().filter(|(place, _)| place.module == module) {
            // CAST: 32 bits.
            if place.slot >= slots as usize {
                continue;
            }
            // SAFETY: the table has as many entries, and this one is among them.
            let address = unsafe { table.wrapping_add(place.slot).read() };
            // SAFETY: an entry is null or leads to a slot, which NVTX never frees and in which a
            // tool may store its function.
            if let Some(slot) = unsafe { address.0.as_ref() } {
                slot.store(*function, Ordering::Release);
                is_known |= module == Module::CORE;
            }
        }
    }
    is_known
}
