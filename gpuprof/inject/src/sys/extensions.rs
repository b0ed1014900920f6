//! The tool functions for NVTX's extensions: payloads with schemas, and counters.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use cupti::clock::now_ns;
use nvtx::abi::{
    CounterAttributes, CounterBatch, EnumAttributes, EventBatch, Module, ModuleInfo, PayloadData,
    SchemaAttributes, ScopeAttributes, TimeDomainAttributes, slot,
};
use nvtx::observer::CounterValue;

use super::read::{self, values, with_blocks};
use super::{Entry, functions};
use crate::annotations::{self, Block, Event, FIRST_DYNAMIC, NO_LEVEL, Name};
use crate::mode::Mode;

type Blocks<'a> = *const PayloadData<'a>;

/// Calls `with` with an event described only by payloads.
///
/// # Safety
/// See [`with_blocks`].
unsafe fn with_event<R>(first: Blocks<'_>, blocks: usize, with: impl FnOnce(&Event<'_>) -> R) -> R {
    let named = |blocks: &[Block<'_>]| with(&Event { blocks, ..Event::named(Name::None) });
    // SAFETY: the caller's promise.
    unsafe { with_blocks(first, blocks, named) }
}

functions! {
    all:
    slot::schema_register => schema_register(domain: usize, schema: *const SchemaAttributes<'_>) -> u64, 0; {
        // SAFETY: NVTX passes null or attributes that live through the call.
        let described = unsafe { read::schema(schema) };
        described.map_or(0, |schema| annotations::schema::register(domain, &schema))
    }
    slot::enum_register => enum_register(domain: usize, schema: *const EnumAttributes<'_>) -> u64, 0; {
        // SAFETY: as above.
        let described = unsafe { read::enumeration(schema) };
        described.map_or(0, |schema| annotations::schema::register_enum(domain, &schema))
    }
    slot::mark_payloads => mark(domain: usize, first: Blocks<'_>, blocks: usize) -> (), (); {
        // SAFETY: NVTX passes null or as many payloads, which live through the call.
        unsafe { with_event(first, blocks, |event| annotations::mark(domain, event)) }
    }
    slot::push_payloads => push(domain: usize, first: Blocks<'_>, blocks: usize) -> c_int, NO_LEVEL; {
        // SAFETY: as above.
        unsafe { with_event(first, blocks, |event| annotations::push(domain, event)) }
    }
    // The observer's recording has no field for payloads at the end of a range.
    slot::pop_payloads => pop(domain: usize, _first: Blocks<'_>, _blocks: usize) -> c_int, NO_LEVEL; {
        annotations::pop(domain)
    }
    slot::start_payloads => start(domain: usize, first: Blocks<'_>, blocks: usize) -> u64, 0; {
        // SAFETY: as above.
        unsafe { with_event(first, blocks, |event| annotations::start_process_range(domain, event)) }
    }
    slot::end_payloads => end(_domain: usize, range: u64, _first: Blocks<'_>, _blocks: usize) -> (), (); {
        annotations::end_process_range(range)
    }
    slot::domain_is_enabled => is_enabled(_domain: usize) -> u8, 0; {
        u8::from(Mode::load().is_active())
    }
    slot::timestamp_get => timestamp() -> i64, 0; { i64::try_from(now_ns()).unwrap_or(i64::MAX) }
    // Clocks and scopes get ids but are not stored. Times are passed on with the number of their
    // clock.
    slot::time_domain_register => time_domain(_domain: usize, attributes: *const TimeDomainAttributes) -> u64, 0; {
        // SAFETY: NVTX passes null or attributes that live through the call.
        let attributes = unsafe { values(attributes, 1) };
        attributes.first().map_or(0, |attributes| id_or_next(attributes.time_domain))
    }
    slot::timer_source => timer(_domain: usize, _clock: u64, _flags: u64, _source: usize) -> (), (); {}
    slot::timer_source_with_data => timer_data(
        _domain: usize, _clock: u64, _flags: u64, _source: usize, _data: usize
    ) -> (), (); {}
    slot::scope_register => scope(_domain: usize, attributes: *const ScopeAttributes<'_>) -> u64, 0; {
        // SAFETY: NVTX passes null or attributes that live through the call.
        let attributes = unsafe { values(attributes, 1) };
        attributes.first().map_or(0, |attributes| id_or_next(attributes.scope))
    }
    slot::time_sync_point => sync_point(
        _domain: usize, _first: u64, _second: u64, _first_time: i64, _second_time: i64
    ) -> (), (); {}
    slot::sync_points => sync_points(
        _domain: usize, _source: u64, _destination: u64, _points: usize, _count: usize
    ) -> (), (); {}
    slot::timestamp_conversion => conversion(
        _domain: usize, _source: u64, _destination: u64, _slope: f64, _source_time: i64, _destination_time: i64
    ) -> (), (); {}
    slot::submit => submit(domain: usize, first: Blocks<'_>, blocks: usize) -> (), (); {
        let each = |blocks: &[Block<'_>]| blocks.iter().for_each(|block| annotations::deferred::submit(domain, *block, false));
        // SAFETY: NVTX passes null or as many payloads, which live through the call.
        unsafe { with_blocks(first, blocks, each) }
    }
    slot::event_batch_submit => submit_batch(domain: usize, batch: *const EventBatch<'_>) -> (), (); {
        // SAFETY: NVTX passes null or a batch that lives through the call.
        if let Some(block) = unsafe { read::event_batch(batch) } {
            annotations::deferred::submit(domain, block, true);
        }
    }

    slot::counter_register => counter_register(domain: usize, counter: *const CounterAttributes<'_>) -> u64, 0; {
        // SAFETY: NVTX passes null or attributes that live through the call.
        let described = unsafe { read::counter(counter) };
        described.map_or(0, |counter| annotations::counter::register(domain, &counter))
    }
    slot::counter_sample_i64 => sample_i64(domain: usize, counter: u64, value: i64) -> (), (); {
        annotations::counter::sample(domain, counter, CounterValue::I64(value))
    }
    slot::counter_sample_f64 => sample_f64(domain: usize, counter: u64, value: f64) -> (), (); {
        annotations::counter::sample(domain, counter, CounterValue::F64(value))
    }
    slot::counter_bytes => sample_bytes(domain: usize, counter: u64, bytes: *const u8, length: usize) -> (), (); {
        // SAFETY: NVTX passes null or as many bytes, which live through the call.
        annotations::counter::sample_bytes(domain, counter, unsafe { values(bytes, length) })
    }
    slot::counter_no_value => no_value(domain: usize, counter: u64, reason: u8) -> (), (); {
        annotations::counter::no_value(domain, counter, reason)
    }
    slot::counter_batch => counter_batch(domain: usize, batch: *const CounterBatch<'_>) -> (), (); {
        // SAFETY: NVTX passes null or a batch that lives through the call.
        if let Some((counter, samples, times)) = unsafe { read::counter_batch(batch) } {
            annotations::counter::batch(domain, counter, samples, times);
        }
    }
}

/// Returns the id chosen by the program, or a new one.
fn id_or_next(id: u64) -> u64 {
    use std::sync::atomic::AtomicU64;
    static NEXT: AtomicU64 = AtomicU64::new(FIRST_DYNAMIC);
    if id == 0 { NEXT.fetch_add(1, Ordering::Relaxed) } else { id }
}

/// Fills the table of an NVTX extension. Returns false for an unsupported extension.
///
/// # Safety
/// `info` is null or what NVTX passes to a tool's entry point for extensions.
pub(super) unsafe fn fill(info: *mut ModuleInfo) -> bool {
    // SAFETY: null, or a structure that lives through the call.
    let Some(info) = (unsafe { info.as_ref() }) else { return false };
    let is_whole = usize::from(info.struct_size) >= size_of::<ModuleInfo>();
    let module = [Module::PAYLOAD, Module::COUNTERS]
        .into_iter()
        .find(|module| module.number() == u32::from(info.module));
    let Some(module) = module.filter(|_| is_whole) else { return false };
    // SAFETY: as many segments lie there, which live through the call.
    let segments = unsafe { values(info.segments.cast_const(), info.segment_count) };
    // Slots continue from one segment to the next.
    let mut first = 0;
    for segment in segments {
        // SAFETY: a segment has as many slots, which NVTX never frees and in which a tool may store
        // its functions.
        let slots = unsafe { values(segment.slots, segment.slot_count) };
        let functions: Vec<Entry> = all();
        for (place, function) in functions.iter().filter(|(place, _)| place.module == module) {
            let slot = place.slot.checked_sub(first).and_then(|slot| slots.get(slot));
            if let Some(slot) = slot {
                slot.store(*function, Ordering::Release);
            }
        }
        first += segment.slot_count;
    }
    !segments.is_empty()
}
