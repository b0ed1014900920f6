//! Sends events to the tool.
//!
//! A start determines how its end is sent, so that a tool without one of two functions receives
//! neither.

use crate::call_site::Registered;
use crate::domain_slot::DomainSlot;
use crate::event::Event;
use crate::schema::{self, Record};
use crate::sys::functions;
use crate::sys::types::{EventAttributes, Handle, Message, PayloadData, ShortText, Text};
use crate::text::{short, with_text};
use crate::work;

/// Sends a start on this thread with a short name only, in the default domain. False if the name is
/// not short or the tool lacks the function.
#[inline]
pub(crate) fn push_short(name: &str) -> bool {
    let mut buffer = ShortText::EMPTY;
    short(name, &mut buffer).and_then(functions::range_push_a).is_some()
}

/// Sends a start with a registered name on this thread; false if the tool lacks the function.
#[inline]
pub(crate) fn push_registered(range: &Registered) -> bool {
    let level = match range.domain_handle {
        None => functions::range_push_ex(&range.attributes),
        Some(domain) => functions::domain_range_push_ex(domain, &range.attributes),
    };
    level.is_some()
}

/// Sends a start on this thread; false if the tool lacks the function.
pub(crate) fn push(event: &Event<'_>) -> bool {
    let in_domain = functions::domain_range_push_ex;
    send(event, functions::range_push_a, functions::range_push_ex, in_domain).is_some()
}

/// Ends the innermost range of this thread and domain.
#[inline]
pub(crate) fn pop(domain: DomainSlot) {
    match domain.handle() {
        None => functions::range_pop(),
        Some(domain) => functions::domain_range_pop(domain),
    };
}

/// As [`pop`], with a record.
pub(crate) fn pop_with(domain: DomainSlot, record: &Record) {
    if with_record(domain, record, functions::pop_payloads).is_none() {
        pop(domain);
    }
}

/// Sends the start of a process range; returns the tool's number of it, or `None` if the tool lacks
/// the function.
pub(crate) fn start(event: &Event<'_>) -> Option<u64> {
    let in_domain = functions::domain_range_start_ex;
    send(event, functions::range_start_a, functions::range_start_ex, in_domain)
}

pub(crate) fn end(domain: DomainSlot, range: u64) {
    match domain.handle() {
        None => functions::range_end(range),
        Some(domain) => functions::domain_range_end(domain, range),
    };
}

/// As [`end`], with a record.
pub(crate) fn end_with(domain: DomainSlot, range: u64, record: &Record) {
    let ended =
        with_record(domain, record, |handle, data| functions::end_payloads(handle, range, data));
    if ended.is_none() {
        end(domain, range);
    }
}

pub(crate) fn mark(event: &Event<'_>) {
    send(event, functions::mark_a, functions::mark_ex, functions::domain_mark_ex);
}

/// Calls the function of the event's domain; the default one has a function for plain names and one
/// for others.
fn send<R>(
    event: &Event<'_>,
    plain: impl FnOnce(Text<'_>) -> Option<R>,
    other: impl FnOnce(&EventAttributes<'_>) -> Option<R>,
    in_domain: impl FnOnce(Handle, &EventAttributes<'_>) -> Option<R>,
) -> Option<R> {
    match event.domain.handle() {
        None => with_plain(event, plain).or_else(|| with_attributes(event, other)),
        Some(domain) => with_attributes(event, |event| in_domain(domain, event)),
    }
}

/// Calls the function with a record; `None` if the record is of another domain, or the tool does
/// not accept it.
fn with_record<R>(
    domain: DomainSlot,
    record: &Record,
    call: impl FnOnce(Handle, &[PayloadData<'_>]) -> Option<R>,
) -> Option<R> {
    let schema = if record.is_of_slot(domain) { record.schema_id()? } else { return None };
    let handle = domain.handle().unwrap_or(Handle::NULL);
    call(handle, &[PayloadData::new(schema, record.bytes())])
}

/// Calls the function for plain names, if the event has only a name.
fn with_plain<R>(event: &Event<'_>, call: impl FnOnce(Text<'_>) -> Option<R>) -> Option<R> {
    let plain = event.registered.is_none()
        && event.color.is_none()
        && event.category.is_none()
        && event.payload.is_none()
        && event.record.is_none()
        && work::tool_payload(event.fields.as_slice()).is_none();
    if plain { with_text(event.name, call) } else { None }
}

fn with_attributes<R>(event: &Event<'_>, call: impl FnOnce(&EventAttributes<'_>) -> R) -> R {
    match event.registered {
        Some(name) => attributes(event, Message::Registered(name), call),
        None => with_text(event.name, |name| attributes(event, Message::Text(name), call)),
    }
}

fn attributes<R>(
    event: &Event<'_>,
    message: Message<'_>,
    call: impl FnOnce(&EventAttributes<'_>) -> R,
) -> R {
    let mut attributes = EventAttributes::new(message);
    if let Some(color) = event.color {
        attributes.set_color(color.to_argb());
    }
    if let Some(category) = event.category {
        attributes.category = category.id();
    }
    if let Some(payload) = event.payload {
        let (kind, bits) = payload.raw();
        attributes.set_payload(kind, bits);
    }
    let record = event.record.filter(|record| record.is_of(event.domain));
    let work = match record {
        Some(_) => None,
        None => work::tool_payload(event.fields.as_slice()),
    };
    let (schema, bytes) = match (record, &work) {
        (Some(record), _) => (record.schema_id(), record.bytes()),
        (None, Some(work)) => (
            event
                .domain
                .work_schema(|| schema::register(event.domain, work::SCHEMA, 0, work::ENTRIES)),
            &work[..],
        ),
        (None, None) => (None, &[][..]),
    };
    let Some(schema) = schema else { return call(&attributes) };
    let record = PayloadData::new(schema, bytes);
    // An event has one field for payloads: a number beside a record becomes a second payload.
    match event.payload {
        None => {
            let data = [record];
            attributes.set_extended(&data);
            call(&attributes)
        }
        Some(payload) => {
            let (kind, bytes, size) = payload.entry();
            let number = PayloadData::new(kind, bytes.get(..size).unwrap_or(&bytes));
            let data = [number, record];
            attributes.set_extended(&data);
            call(&attributes)
        }
    }
}
