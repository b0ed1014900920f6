//! Conversion of the arguments of NVTX's functions to safe values.
//!
//! The program promises that a non-null address leads to the type that NVTX's function takes.
//! Sizes, lengths, types and handles are checked: they bound what is read, and invalid ones are
//! counted.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::slice;

use nvtx::Payload;
use nvtx::abi::{
    COLOR_ARGB, CounterAttributes, CounterBatch, CounterSemantics, EnumAttributes, EventAttributes,
    EventBatch, MESSAGE_REGISTERED, MESSAGE_TEXT, MESSAGE_WIDE, PAYLOAD_EXTENDED, PayloadData,
    RawMessage, ResourceAttributes, SEMANTICS_COUNTER, SEMANTICS_TIME, SchemaAttributes, Semantics,
    SemanticsHeader, SyncAttributes, TimeSemantics,
};

use crate::annotations::counter::CounterDescription;
use crate::annotations::schema::{EntryDescription, EnumDescription, SchemaDescription};
use crate::annotations::{Block, Event, Name, Text};
use crate::counts::{COUNTS, count};

/// The maximum length of a text in characters. Longer texts are truncated.
const LONGEST_TEXT: usize = 1 << 16;
/// The maximum size of a payload or batch in bytes.
const MOST_BYTES: usize = 1 << 28;
/// The maximum number of payloads in an event.
const MOST_BLOCKS: usize = 16;
/// The maximum number of entries in a schema or enum.
const MOST_ENTRIES: usize = 1 << 12;
/// The maximum length of a chain of semantics.
const MOST_SEMANTICS: usize = 16;

/// An NVTX structure that consists of numbers and addresses.
///
/// # Safety
/// Any bytes are a value of the type.
unsafe trait Plain {}

macro_rules! plain {
    ($($type:ty,)*) => {
        $(
            // SAFETY: its fields are integers, addresses and such structures, as NVTX defines them.
            unsafe impl Plain for $type {}
        )*
    };
}

plain! {
    EventAttributes<'_>,
    ResourceAttributes<'_>,
    SyncAttributes<'_>,
    SchemaAttributes<'_>,
    EnumAttributes<'_>,
    EventBatch<'_>,
    CounterAttributes<'_>,
    CounterBatch<'_>,
    CounterSemantics<'_>,
    TimeSemantics,
    SemanticsHeader,
    usize,
}

/// Reads the first `size` bytes of the structure at an address. The others are zero, and so is an
/// address that is incomplete. Returns `None` for null.
///
/// # Safety
/// `address` is null, or `size` bytes may be read there.
#[inline]
unsafe fn structure<T: Plain>(address: *const T, size: usize) -> Option<T> {
    if address.is_null() {
        return None;
    }
    if size >= size_of::<T>() {
        // SAFETY: as many bytes may be read, and any bytes are a `T`.
        return Some(unsafe { address.read_unaligned() });
    }
    let mut all = MaybeUninit::<T>::zeroed();
    // C aligns addresses to their size, so drop an incomplete address.
    let size = size / size_of::<usize>() * size_of::<usize>();
    // SAFETY: the caller promises the bytes to read; `all` has more, and is another place.
    unsafe { ptr::copy_nonoverlapping(address.cast::<u8>(), all.as_mut_ptr().cast::<u8>(), size) };
    // SAFETY: all bytes are written, with zeros at least, and any bytes are a `T`.
    Some(unsafe { all.assume_init() })
}

/// Like [`structure`], and reads all bytes of the type.
///
/// # Safety
/// `address` is null, or leads to a `T`, aligned or not.
unsafe fn whole<T: Plain>(address: *const T) -> Option<T> {
    // SAFETY: the caller's promise.
    unsafe { structure(address, size_of::<T>()) }
}

/// The values at an address. Empty for null, for an unaligned address, and for too many values.
///
/// # Safety
/// `address` is null, or `count` values lie there until `'a` ends.
pub(super) unsafe fn values<'a, T>(address: *const T, count: usize) -> &'a [T] {
    let fits = count.checked_mul(size_of::<T>()).is_some_and(|bytes| bytes <= MOST_BYTES);
    if address.is_null() || count == 0 || !address.is_aligned() || !fits {
        return &[];
    }
    // SAFETY: not null, aligned and of a bounded size; the caller promises the values and their
    // life.
    unsafe { slice::from_raw_parts(address, count) }
}

/// A text of bytes; `None` for null.
///
/// # Safety
/// `text` is null, or bytes up to a NUL lie there until `'a` ends.
#[inline]
pub(super) unsafe fn text<'a>(text: *const c_char) -> Option<Text<'a>> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null; the caller promises the bytes up to a NUL, and no more are read.
    let length = unsafe { libc::strnlen(text, LONGEST_TEXT) };
    if length == LONGEST_TEXT {
        count(&COUNTS.cut_names);
    }
    // SAFETY: these bytes were read above, and live as long as the caller promises.
    Some(Text::Bytes(unsafe { slice::from_raw_parts(text.cast(), length) }))
}

/// A text of wide characters; `None` for null and for an unaligned address.
///
/// # Safety
/// `text` is null, or characters up to a NUL lie there until `'a` ends.
pub(super) unsafe fn wide_text<'a>(text: *const u32) -> Option<Text<'a>> {
    if text.is_null() || !text.is_aligned() {
        return None;
    }
    let mut length = 0;
    while length < LONGEST_TEXT {
        let next = text.wrapping_add(length);
        // SAFETY: no character before this one was a NUL, so the caller promises it.
        if unsafe { next.read() } == 0 {
            break;
        }
        length += 1;
    }
    if length == LONGEST_TEXT {
        count(&COUNTS.cut_names);
    }
    // SAFETY: these characters were read above, and live as long as the caller promises.
    Some(Text::Wide(unsafe { slice::from_raw_parts(text, length) }))
}

/// A name given only by an address.
#[inline]
pub(super) fn name(text: Option<Text<'_>>) -> Name<'_> {
    text.map_or(Name::None, Name::Text)
}

/// An owned copy of a text; empty for null.
///
/// # Safety
/// See [`text`].
unsafe fn owned(address: *const c_char) -> String {
    // SAFETY: the caller's promise.
    let text = unsafe { text(address) };
    text.map_or(String::new(), |text| text.decoded().into_owned())
}

/// The name in a message.
///
/// # Safety
/// A message of a text's type is null or leads to such a text, until `'a` ends.
#[inline]
unsafe fn message<'a>(kind: i32, message: RawMessage<'_>) -> Name<'a> {
    let address = message.address();
    match kind {
        // SAFETY: of this type it is a text of bytes, by the caller's promise.
        MESSAGE_TEXT => name(unsafe { text(address.cast()) }),
        // SAFETY: of this type it is a text of wide characters, by the caller's promise.
        MESSAGE_WIDE => name(unsafe { wide_text(address.cast()) }),
        MESSAGE_REGISTERED => Name::Registered(address.addr()),
        _ => Name::None,
    }
}

/// The size that a structure states after its version, each of two bytes. 0 for null.
///
/// # Safety
/// `address` is null, or leads to these four bytes.
#[inline]
unsafe fn stated_size<T>(address: *const T) -> usize {
    if address.is_null() {
        return 0;
    }
    let size = address.cast::<u16>().wrapping_add(1);
    // SAFETY: the caller promises four bytes, of which these are the last two.
    usize::from(unsafe { size.read_unaligned() })
}

/// Calls `with` with an event. Null, and attributes without a readable message, are an event
/// without a name, so that the end of a range finds its start.
///
/// # Safety
/// `address` is null or leads to an `nvtxEventAttributes_t` of the size that it states, whose
/// message and payloads are readable for the call.
#[inline]
pub(super) unsafe fn with_event<R>(
    address: *const EventAttributes<'_>,
    with: impl FnOnce(&Event<'_>) -> R,
) -> R {
    // SAFETY: the caller's promise.
    let size = unsafe { stated_size(address) };
    // SAFETY: this many bytes are there, as the structure states.
    let Some(raw) = (unsafe { structure(address, size) }) else {
        count(&COUNTS.unreadable_events);
        return with(&Event::named(Name::None));
    };
    if size < size_of::<EventAttributes<'_>>() {
        count(&COUNTS.unreadable_events);
    }
    // SAFETY: the caller's promise for a message that is there; one that is not has type 0.
    let mut event = Event::named(unsafe { message(raw.message_type, raw.message) });
    event.category = raw.category;
    if raw.color_type == COLOR_ARGB {
        event.color = Some(raw.color);
    }
    match raw.payload_type {
        0 => with(&event),
        kind if kind.cast_unsigned() == PAYLOAD_EXTENDED => {
            // CAST: an address.
            let first = ptr::with_exposed_provenance::<PayloadData<'_>>(raw.payload as usize);
            let blocks = usize::try_from(raw.reserved).unwrap_or(0);
            // SAFETY: a payload of this type is this many structures at this address, by the
            // caller's promise.
            unsafe { with_blocks(first, blocks, |blocks| with(&Event { blocks, ..event })) }
        }
        kind => {
            event.payload = Payload::from_raw(kind, raw.payload);
            if event.payload.is_none() {
                count(&COUNTS.unread_values);
            }
            with(&event)
        }
    }
}

/// Calls `with` with payloads. Payloads beyond the maximum of an event, and payloads without
/// readable bytes, are counted.
///
/// # Safety
/// `first` is null, or `blocks` structures lie there, whose bytes are readable for the call.
pub(super) unsafe fn with_blocks<R>(
    first: *const PayloadData<'_>,
    blocks: usize,
    with: impl FnOnce(&[Block<'_>]) -> R,
) -> R {
    let mut all = [Block { schema: 0, bytes: &[] }; MOST_BLOCKS];
    let mut length = 0;
    // SAFETY: the caller's promise.
    for data in unsafe { values(first, blocks.min(MOST_BLOCKS)) } {
        // SAFETY: each leads to as many bytes as it states, by the caller's promise. A size that
        // means "up to the end mark" exceeds the limit, so that nothing is read.
        let bytes = unsafe { values(data.payload, data.size) };
        if bytes.is_empty() {
            count(&COUNTS.unread_values);
        } else if let Some(place) = all.get_mut(length) {
            *place = Block { schema: data.schema, bytes };
            length += 1;
        }
    }
    if blocks > MOST_BLOCKS {
        count(&COUNTS.unread_values);
    }
    with(all.get(..length).unwrap_or_default())
}

/// Reads the kind, the value and the name of an object.
///
/// # Safety
/// The same as for [`with_event`], with an `nvtxResourceAttributes_t` until `'a` ends.
pub(super) unsafe fn resource<'a>(
    address: *const ResourceAttributes<'_>,
) -> Option<(u32, u64, Name<'a>)> {
    // SAFETY: the caller's promise.
    let size = unsafe { stated_size(address) };
    // SAFETY: this many bytes are there, as the structure states.
    let raw = unsafe { structure(address, size) }?;
    // SAFETY: the caller's promise for a message that is there; one that is not has type 0.
    let name = unsafe { message(raw.message_type, raw.message) };
    Some((raw.identifier_type.cast_unsigned(), raw.identifier, name))
}

/// Reads the name of a synchronisation object.
///
/// # Safety
/// The same as for [`with_event`], with an `nvtxSyncUserAttributes_t` until `'a` ends.
pub(super) unsafe fn sync<'a>(address: *const SyncAttributes<'_>) -> Name<'a> {
    // SAFETY: the caller's promise.
    let size = unsafe { stated_size(address) };
    // SAFETY: this many bytes are there, as the structure states.
    let raw = unsafe { structure(address, size) };
    // SAFETY: the caller's promise for a message that is there; one that is not has type 0.
    raw.map_or(Name::None, |raw| unsafe { message(raw.message_type, raw.message) })
}

/// Reads the clock and the unit from a chain of semantics.
///
/// # Safety
/// The address is null or leads to semantics of the sizes that they state, each with the address of
/// the next one or null.
unsafe fn semantics(semantics: Semantics<'_>) -> (Option<u64>, String) {
    let (mut clock, mut unit) = (None, String::new());
    let mut next: *const c_void = semantics.address();
    for _ in 0..MOST_SEMANTICS {
        // SAFETY: each begins with a header, by the caller's promise.
        let Some(header) = (unsafe { whole(next.cast::<SemanticsHeader>()) }) else { break };
        // CAST: 32 bits.
        let size = header.size as usize;
        match header.id {
            SEMANTICS_TIME => {
                // SAFETY: this many bytes are there, as the structure states.
                let time = unsafe { structure(next.cast::<TimeSemantics>(), size) };
                clock = time.map(|time| time.time_domain);
            }
            SEMANTICS_COUNTER => {
                // SAFETY: this many bytes are there, as the structure states.
                let counter = unsafe { structure(next.cast::<CounterSemantics<'_>>(), size) };
                if let Some(counter) = counter {
                    // SAFETY: the unit is null or a text, as NVTX defines.
                    unit = unsafe { owned(counter.unit.address()) };
                }
            }
            _ => {}
        }
        next = header.next;
    }
    (clock, unit)
}

/// Reads the readable part of a schema.
///
/// # Safety
/// `address` is null or leads to an `nvtxPayloadSchemaAttr_t`, in which what its mask names is as
/// NVTX defines.
pub(super) unsafe fn schema(address: *const SchemaAttributes<'_>) -> Option<SchemaDescription> {
    const NAME: u64 = 1 << 1;
    const KIND: u64 = 1 << 2;
    const ENTRIES: u64 = 1 << 4 | 1 << 5;
    const SIZE: u64 = 1 << 6;
    const ALIGN: u64 = 1 << 7;
    const ID: u64 = 1 << 8;
    // SAFETY: the caller's promise.
    let raw = unsafe { whole(address) }?;
    let has = |fields: u64| raw.field_mask & fields == fields;
    let mut described = SchemaDescription::default();
    if has(NAME) {
        // SAFETY: null or a text, by the caller's promise.
        described.name = unsafe { owned(raw.name.address()) };
    }
    described.kind = if has(KIND) { raw.kind } else { 0 };
    described.size = if has(SIZE) { raw.static_size.min(MOST_BYTES) } else { 0 };
    described.pack_align = if has(ALIGN) { raw.pack_align } else { 0 };
    described.id = if has(ID) { raw.schema } else { 0 };
    if has(ENTRIES) {
        let entries = raw.entry_count.min(MOST_ENTRIES);
        // SAFETY: as many entries lie there, by the caller's promise.
        for entry in unsafe { values(raw.entries, entries) } {
            // SAFETY: semantics are as NVTX defines, by the caller's promise.
            let (clock, unit) = unsafe { semantics(entry.semantics) };
            described.entries.push(EntryDescription {
                flags: entry.flags,
                kind: entry.kind,
                // SAFETY: null or a text, by the caller's promise.
                name: unsafe { owned(entry.name.address()) },
                length: entry.length,
                offset: entry.offset,
                clock,
                unit,
            });
        }
    }
    Some(described)
}

/// Reads the readable part of an enum.
///
/// # Safety
/// The same as for [`schema`], with an `nvtxPayloadEnumAttr_t`.
pub(super) unsafe fn enumeration(address: *const EnumAttributes<'_>) -> Option<EnumDescription> {
    const ENTRIES: u64 = 1 << 2 | 1 << 3;
    const SIZE: u64 = 1 << 4;
    const ID: u64 = 1 << 5;
    // SAFETY: the caller's promise.
    let raw = unsafe { whole(address) }?;
    let has = |fields: u64| raw.field_mask & fields == fields;
    let mut described = EnumDescription {
        values: Vec::new(),
        size: if has(SIZE) { raw.size } else { 0 },
        id: if has(ID) { raw.schema } else { 0 },
    };
    if has(ENTRIES) {
        // SAFETY: as many entries lie there, by the caller's promise.
        for entry in unsafe { values(raw.entries, raw.entry_count.min(MOST_ENTRIES)) } {
            // SAFETY: null or a text, by the caller's promise.
            described.values.push((unsafe { owned(entry.name.address()) }, entry.value));
        }
    }
    Some(described)
}

/// Reads the readable part of a counter.
///
/// # Safety
/// `address` is null or leads to an `nvtxCounterAttr_t` of the size that it states, with texts and
/// semantics as NVTX defines.
pub(super) unsafe fn counter(address: *const CounterAttributes<'_>) -> Option<CounterDescription> {
    // SAFETY: the size is its first field, and the caller promises so much.
    let size = unsafe { whole(address.cast::<usize>()) }?;
    // SAFETY: this many bytes are there, as the structure states.
    let raw = unsafe { structure(address, size) }?;
    // SAFETY: semantics are as NVTX defines, by the caller's promise.
    let (_, unit) = unsafe { semantics(raw.semantics) };
    // SAFETY: null or a text, by the caller's promise.
    let name = unsafe { owned(raw.name.address()) };
    Some(CounterDescription { schema: raw.schema, name, unit, id: raw.counter })
}

/// Reads a counter's id, and the bytes and times of its samples.
///
/// # Safety
/// `address` is null or leads to an `nvtxCounterBatch_t`, whose arrays have the sizes that it
/// states until `'a` ends.
pub(super) unsafe fn counter_batch<'a>(
    address: *const CounterBatch<'_>,
) -> Option<(u64, &'a [u8], &'a [i64])> {
    // SAFETY: the caller's promise.
    let raw = unsafe { whole(address) }?;
    // SAFETY: so many bytes lie there, by the caller's promise.
    let samples = unsafe { values(raw.samples, raw.samples_size) };
    // SAFETY: so many bytes of times lie there, by the caller's promise.
    let times = unsafe { values(raw.timestamps, raw.timestamps_size / size_of::<i64>()) };
    Some((raw.counter, samples, times))
}

/// Reads the schema and the bytes of a batch of events.
///
/// # Safety
/// `address` is null or leads to an `nvtxEventBatch_t`, whose events have the size that it states
/// until `'a` ends.
pub(super) unsafe fn event_batch<'a>(address: *const EventBatch<'_>) -> Option<Block<'a>> {
    // SAFETY: the caller's promise.
    let raw = unsafe { whole(address) }?;
    // SAFETY: so many bytes lie there, by the caller's promise.
    let bytes = unsafe { values(raw.events, raw.size) };
    Some(Block { schema: raw.schema, bytes })
}
