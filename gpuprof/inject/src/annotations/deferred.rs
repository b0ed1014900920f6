//! Events that programs report later, with their own timestamps.

use nvtx::observer::DeferredEvent;
use nvtx::time::Clock;
use nvtx::{Color, FieldValue};

use super::Block;
use super::domain::Domain;
use super::observer;
use super::schema::{Kind, Purpose, Schema};
use crate::counts::{COUNTS, count};
use crate::mode::Mode;

/// Passes one event to the observer, or a batch of contiguous events.
pub(crate) fn submit(domain: usize, block: Block<'_>, is_batch: bool) {
    if !Mode::load().is_on() {
        return;
    }
    let domain = Domain::from_handle(domain);
    match Schema::find(domain, block.schema) {
        Some(schema) if !is_batch => emit(domain, schema, block.bytes),
        Some(schema) if schema.size != 0 => {
            let events = block.bytes.chunks_exact(schema.size);
            events.for_each(|event| emit(domain, schema, event));
        }
        // Without a fixed record size, the end of an event cannot be determined.
        _ => count(&COUNTS.unread_values),
    }
}

fn emit(domain: &Domain, schema: &Schema, record: &[u8]) {
    let (mut name, mut start, mut end, mut clock) = ("", None, None, None);
    let (mut category, mut color) = (None, None);
    for value in &schema.values {
        let Some(content) = value.read(record) else {
            // An unreadable value is skipped: an unnamed mark or range has the string handle 0.
            continue;
        };
        let time = match content {
            FieldValue::I64(time) => Some(time),
            FieldValue::U64(time) => i64::try_from(time).ok(),
            _ => None,
        };
        match (value.purpose, value.kind, content) {
            (Purpose::Message, _, FieldValue::Str(text)) => name = text,
            (Purpose::Begin | Purpose::Mark, ..) => {
                (start, clock) = (time, value.clock);
            }
            (Purpose::End, ..) => end = time,
            (_, Kind::Category, FieldValue::U64(id)) => {
                category = u32::try_from(id).ok().and_then(|id| domain.category(id));
            }
            (_, Kind::Color, FieldValue::U64(argb)) => {
                color = u32::try_from(argb).ok().map(Color::from_argb);
            }
            _ => {}
        }
    }
    let Some(start) = start else {
        count(&COUNTS.unread_values);
        return;
    };
    let clock = clock.map_or(Clock::TOOL, Clock::from_number);
    let mut event = DeferredEvent::new(name, clock, start);
    event.domain = domain.name;
    event.end = end;
    event.category = category;
    event.color = color;
    observer().deferred(&event);
}
