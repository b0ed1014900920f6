//! Payload schemas: the layout of values in the bytes of a payload, as named fields of events.
//!
//! A schema is flattened when it is registered, so that an event only copies numbers. Unreadable
//! values are counted with each payload: pointers, arrays of unknown length, long arrays, unions,
//! and types without a Rust equivalent.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use arrayvec::ArrayVec;
use nvtx::abi::{BYTE, BYTES, FLOP, FLOPS, TYPE_INFO, WORK_SCHEMA};
use nvtx::{Field, FieldValue, Payload};

use super::domain::Domain;
use super::{Block, FIRST_DYNAMIC, FIRST_STATIC, Name, Text, changing, names};
use crate::counts::{COUNTS, count};
use crate::mode::Mode;

const MOST_SCHEMAS: usize = 1 << 16;
const MOST_OF_DOMAIN: usize = 1 << 12;
/// The maximum number of values in a schema, and of fields in an event.
const MOST_VALUES: usize = 64;
const MOST_FIELDS: usize = 32;
/// The maximum length of an array that is read. Each element becomes a field.
const LONGEST_ARRAY: u64 = 8;

mod flag {
    pub(super) const POINTER: u64 = 1 << 1 | 1 << 2 | 1 << 3;
    pub(super) const FIXED_ARRAY: u64 = 1 << 4;
    pub(super) const ARRAY: u64 = 7 << 4;
    pub(super) const HIDDEN: u64 = 1 << 9;
    pub(super) const MESSAGE: u64 = 1 << 10;
    pub(super) const TIMESTAMP: u64 = 2 << 10;
    pub(super) const PURPOSE: u64 = 7 << 12;
    pub(super) const RANGE_BEGIN: u64 = 1 << 12;
    pub(super) const RANGE_END: u64 = 2 << 12;
    pub(super) const MARK: u64 = 3 << 12;
}

/// The readable part of `nvtxPayloadSchemaAttr_t`.
#[derive(Debug, Default)]
pub(crate) struct SchemaDescription {
    pub(crate) name: String,
    /// 1 for a C structure; others vary in size or are unions.
    pub(crate) kind: u64,
    pub(crate) entries: Vec<EntryDescription>,
    /// The size of a record in bytes; 0 if not stated.
    pub(crate) size: usize,
    pub(crate) pack_align: usize,
    /// The id chosen by the program, or 0.
    pub(crate) id: u64,
}

/// The readable part of `nvtxPayloadSchemaEntry_t`.
#[derive(Debug, Default)]
pub(crate) struct EntryDescription {
    pub(crate) flags: u64,
    pub(crate) kind: u64,
    pub(crate) name: String,
    /// The length of an array or a text.
    pub(crate) length: u64,
    pub(crate) offset: u64,
    pub(crate) clock: Option<u64>,
    pub(crate) unit: String,
}

/// The readable part of `nvtxPayloadEnumAttr_t`.
#[derive(Debug, Default)]
pub(crate) struct EnumDescription {
    pub(crate) values: Vec<(String, u64)>,
    pub(crate) size: usize,
    pub(crate) id: u64,
}

/// The encoding of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// A signed number with its size in bytes.
    Signed(usize),
    Unsigned(usize),
    F16,
    Bf16,
    F32,
    F64,
    /// A text with its maximum size in bytes.
    Text(usize),
    /// The handle of a registered string.
    Registered,
    Enum(&'static Schema),
    Category,
    Color,
}

/// The special role of a value in its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    None,
    Message,
    Begin,
    End,
    Mark,
}

/// A value of a schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) kind: Kind,
    offset: usize,
    pub(super) purpose: Purpose,
    pub(super) clock: Option<u64>,
    is_hidden: bool,
}

/// A schema or an enum. It is never freed, because events may refer to it at any time.
#[derive(Debug)]
pub(crate) struct Schema {
    name: &'static str,
    pub(super) values: Vec<Value>,
    /// The size of a record in bytes; 0 if it varies.
    pub(super) size: usize,
    align: usize,
    /// The number of entries that cannot be read.
    unread: u64,
    /// For an enum: the names of its numbers.
    names: Vec<(u64, &'static str)>,
    is_enum: bool,
}

static SCHEMAS: boxcar::Vec<&'static Schema> = boxcar::Vec::new();

/// The schema that a thread last found by an id chosen by the program.
#[derive(Clone, Copy)]
struct Found {
    domain: u32,
    id: u64,
    /// The number of schemas in the domain at that time. A later schema may have the same id.
    known: usize,
    schema: &'static Schema,
}

thread_local!(static FOUND: Cell<Option<Found>> = const { Cell::new(None) });

impl Schema {
    /// Finds the schema of an id in a domain.
    pub(super) fn find(domain: &Domain, id: u64) -> Option<&'static Schema> {
        if let Some(index) = id.checked_sub(FIRST_DYNAMIC) {
            return SCHEMAS.get(usize::try_from(index).ok()?).copied();
        }
        let known = domain.schemas.count();
        let found = FOUND.try_with(Cell::get).ok().flatten();
        let is_it =
            |found: &Found| (found.domain, found.id, found.known) == (domain.number, id, known);
        if let Some(found) = found.filter(is_it) {
            return Some(found.schema);
        }
        let mut last_first = (0..known).rev().filter_map(|index| domain.schemas.get(index));
        let (_, index) = last_first.find(|(of, _)| *of == id)?;
        let schema = *SCHEMAS.get(*index)?;
        let found = Found { domain: domain.number, id, known, schema };
        let _ = FOUND.try_with(|last| last.set(Some(found)));
        Some(schema)
    }
}

/// Stores a schema and returns its id, or 0 if it is refused.
fn keep(domain: &Domain, id: u64, schema: Schema) -> u64 {
    let is_static = id != 0;
    let is_valid = !is_static || (FIRST_STATIC..FIRST_DYNAMIC).contains(&id);
    let has_room =
        SCHEMAS.count() < MOST_SCHEMAS && (!is_static || domain.schemas.count() < MOST_OF_DOMAIN);
    if !is_valid || !has_room {
        count(&COUNTS.refused_objects);
        return 0;
    }
    let schema: &'static Schema = Box::leak(Box::new(schema));
    let index = SCHEMAS.push(schema);
    if is_static {
        domain.schemas.push((id, index));
        return id;
    }
    FIRST_DYNAMIC + index as u64
}

/// Registers an enum and returns its id.
pub(crate) fn register_enum(domain: usize, description: &EnumDescription) -> u64 {
    if !Mode::load().is_active() {
        return 0;
    }
    let _changes = changing();
    let names = description.values.iter().map(|(name, value)| (*value, names::intern(name)));
    let schema = Schema {
        name: "",
        values: Vec::new(),
        size: description.size,
        align: description.size,
        unread: 0,
        names: names.collect(),
        is_enum: true,
    };
    keep(Domain::from_handle(domain), description.id, schema)
}

/// Registers a schema and returns its id.
pub(crate) fn register(domain: usize, description: &SchemaDescription) -> u64 {
    if !Mode::load().is_active() {
        return 0;
    }
    let _changes = changing();
    let domain = Domain::from_handle(domain);
    let schema = flattened(domain, description);
    keep(domain, description.id, schema)
}

/// Computes the layout of a schema's values.
fn flattened(domain: &Domain, description: &SchemaDescription) -> Schema {
    const STRUCTURE: u64 = 1;
    const OF_VARYING_SIZE: u64 = 2;
    let mut schema = Schema {
        name: names::intern(&description.name),
        values: Vec::new(),
        size: 0,
        align: 1,
        unread: 0,
        names: Vec::new(),
        is_enum: false,
    };
    if !matches!(description.kind, STRUCTURE | OF_VARYING_SIZE) {
        schema.unread = 1;
        return schema;
    }
    let mut next = Some(0);
    for (at, entry) in description.entries.iter().enumerate() {
        let Some(layout) = Layout::from_entry(domain, entry) else {
            // The size of the entry is unknown. Later entries without a stated offset have no known
            // position either.
            schema.unread += 1;
            next = None;
            continue;
        };
        let align = match description.pack_align {
            0 => layout.align,
            most => layout.align.min(most),
        };
        schema.align = schema.align.max(align);
        let stated = usize::try_from(entry.offset).ok().filter(|offset| at == 0 || *offset != 0);
        let Some(offset) = stated.or(next.map(|next: usize| next.next_multiple_of(align))) else {
            schema.unread += 1;
            continue;
        };
        next = offset.checked_add(layout.size);
        schema.add(entry, &layout, offset);
    }
    let end = next.unwrap_or(0).next_multiple_of(schema.align);
    schema.size = match (description.kind, description.size) {
        (OF_VARYING_SIZE, _) => 0,
        (_, 0) => end,
        (_, size) => size,
    };
    schema
}

/// The layout of an entry.
struct Layout {
    size: usize,
    align: usize,
    /// `None` if the value cannot be read.
    content: Option<Content>,
    /// The number of array elements; 1 if the entry is not an array.
    elements: u64,
    element_size: usize,
}

enum Content {
    Value(Kind),
    Schema(&'static Schema),
}

impl Layout {
    fn from_entry(domain: &Domain, entry: &EntryDescription) -> Option<Layout> {
        const POINTER: usize = size_of::<usize>();
        let unread =
            |size| Layout { size, align: size, content: None, elements: 1, element_size: size };
        if entry.flags & flag::POINTER != 0 {
            // The entry is a pointer to the value, or an offset of an unknown type.
            return (entry.flags & flag::POINTER == 1 << 1).then(|| unread(POINTER));
        }
        let (content, size, align) = match content(domain, entry)? {
            (None, size) => return Some(unread(size)),
            (Some(Content::Value(Kind::Text(size))), unit) => {
                (Content::Value(Kind::Text(size)), size, unit)
            }
            (Some(Content::Schema(schema)), size) => (Content::Schema(schema), size, schema.align),
            (Some(value), size) => (value, size, size),
        };
        match entry.flags & flag::ARRAY {
            0 => Some(Layout {
                size,
                align,
                content: Some(content),
                elements: 1,
                element_size: size,
            }),
            flag::FIXED_ARRAY => {
                let all = usize::try_from(entry.length).ok()?.checked_mul(size)?;
                let content = (entry.length <= LONGEST_ARRAY).then_some(content);
                Some(Layout {
                    size: all,
                    align,
                    content,
                    elements: entry.length,
                    element_size: size,
                })
            }
            _ => None,
        }
    }
}

/// The content of an entry by its type, and its size in bytes. `None` if they are unknown.
fn content(domain: &Domain, entry: &EntryDescription) -> Option<(Option<Content>, usize)> {
    let value = |kind, size| Some((Some(Content::Value(kind)), size));
    let unread = |size| Some((None, size));
    let of_c = || {
        let info = usize::try_from(entry.kind).ok().and_then(|kind| TYPE_INFO.get(kind));
        info.map(|info| usize::from(info.size)).filter(|size| *size != 0)
    };
    match entry.kind {
        1 | 3 | 5 | 7 | 9 | 11 | 13 | 15 | 17 => {
            of_c().and_then(|size| value(Kind::Signed(size), size))
        }
        2 | 4 | 6 | 8 | 10 | 12 | 14 | 16 | 18 | 22..=27 => {
            of_c().and_then(|size| value(Kind::Unsigned(size), size))
        }
        19 | 43 | 52 => value(Kind::F32, 4),
        20 | 44 => value(Kind::F64, 8),
        32 => value(Kind::Unsigned(1), 1),
        33 | 34 | 45 => unread(16),
        42 => value(Kind::F16, 2),
        50 => value(Kind::Bf16, 2),
        67 | 70 | 72 | 74 => value(Kind::Unsigned(8), 8),
        71 | 73 => value(Kind::Unsigned(4), 4),
        68 => value(Kind::Category, 4),
        69 => value(Kind::Color, 4),
        75 | 76 => match usize::try_from(entry.length).ok()? {
            0 => unread(size_of::<usize>()),
            // The second value is the unit, which is the alignment.
            length => value(Kind::Text(length), 1),
        },
        77 | 78 if entry.length == 0 => unread(size_of::<usize>()),
        80 => value(Kind::Registered, size_of::<usize>()),
        FIRST_STATIC.. => {
            let schema = Schema::find(domain, entry.kind)?;
            match (schema.is_enum, schema.size) {
                (true, size @ (1 | 2 | 4 | 8)) => value(Kind::Enum(schema), size),
                (false, size @ 1..) => Some((Some(Content::Schema(schema)), size)),
                _ => None,
            }
        }
        _ => None,
    }
}

impl Schema {
    fn add(&mut self, entry: &EntryDescription, layout: &Layout, offset: usize) {
        let Some(content) = &layout.content else {
            self.unread += 1;
            return;
        };
        for element in 0..layout.elements {
            let name = match entry.flags & flag::ARRAY {
                0 => entry.name.clone(),
                _ => format!("{}[{element}]", entry.name),
            };
            // CAST: at most 8 elements.
            let at = offset.saturating_add(element as usize * layout.element_size);
            match content {
                Content::Value(kind) => self.push(Value {
                    name: names::intern(&name),
                    unit: unit(&name, &entry.unit),
                    kind: *kind,
                    offset: at,
                    purpose: purpose(entry.flags),
                    clock: entry.clock,
                    is_hidden: entry.flags & flag::HIDDEN != 0,
                }),
                Content::Schema(inner) => {
                    self.unread += inner.unread;
                    for value in &inner.values {
                        let name = names::intern(&format!("{name}.{}", value.name));
                        let offset = at.saturating_add(value.offset);
                        self.push(Value { name, offset, purpose: Purpose::None, ..*value });
                    }
                }
            }
        }
    }

    fn push(&mut self, value: Value) {
        if self.values.len() < MOST_VALUES {
            self.values.push(value);
        } else {
            self.unread += 1;
        }
    }
}

fn purpose(flags: u64) -> Purpose {
    if flags & flag::MESSAGE != 0 && flags & flag::TIMESTAMP == 0 {
        return Purpose::Message;
    }
    match flags & flag::PURPOSE {
        flag::RANGE_BEGIN => Purpose::Begin,
        flag::RANGE_END => Purpose::End,
        flag::MARK => Purpose::Mark,
        _ => Purpose::None,
    }
}

/// The unit of a value. Values of declared work have units fixed by their names.
fn unit(name: &str, stated: &str) -> &'static str {
    match name {
        _ if !stated.is_empty() => names::intern(stated),
        FLOPS => FLOP,
        BYTES => BYTE,
        _ => "",
    }
}

impl Kind {
    /// Reads the value at the start of these bytes. Returns `None` if there are too few bytes or
    /// the text is invalid.
    pub(super) fn read(self, bytes: &[u8]) -> Option<FieldValue<'_>> {
        Some(match self {
            Kind::Signed(size) => FieldValue::I64(signed(bytes.get(..size)?)),
            Kind::Unsigned(size) => FieldValue::U64(unsigned(bytes.get(..size)?)),
            // CAST: two bytes.
            Kind::F16 => FieldValue::F64(f16(unsigned(bytes.get(..2)?) as u16)),
            // CAST: two bytes.
            Kind::Bf16 => {
                FieldValue::F64(f32::from_bits((unsigned(bytes.get(..2)?) as u32) << 16).into())
            }
            Kind::F32 => FieldValue::F64(f32::from_ne_bytes(*bytes.first_chunk()?).into()),
            Kind::F64 => FieldValue::F64(f64::from_ne_bytes(*bytes.first_chunk()?)),
            Kind::Text(size) => FieldValue::Str(text(bytes.get(..size)?)?),
            Kind::Registered => FieldValue::Str(registered(bytes)?),
            Kind::Enum(schema) => {
                let number = unsigned(bytes.get(..schema.size)?);
                let known = schema.names.iter().find(|(value, _)| *value == number);
                known.map_or(FieldValue::U64(number), |(_, name)| FieldValue::Str(name))
            }
            Kind::Category | Kind::Color => FieldValue::U64(unsigned(bytes.get(..4)?)),
        })
    }
}

/// Reads an unsigned number of 1 to 8 bytes.
fn unsigned(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    let start = if cfg!(target_endian = "big") { 8 - bytes.len().min(8) } else { 0 };
    all[start..].iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    u64::from_ne_bytes(all)
}

/// Reads a signed number of 1 to 8 bytes.
fn signed(bytes: &[u8]) -> i64 {
    // CAST: at most 64.
    let unused = 64 - 8 * bytes.len().clamp(1, 8) as u32;
    (unsigned(bytes) << unused).cast_signed() >> unused
}

/// Converts a 16-bit float: sign, 5 exponent bits, 10 fraction bits.
fn f16(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let size = match exponent {
        0 => fraction * 2f64.powi(-24),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
    };
    if bits >> 15 == 0 { size } else { -size }
}

/// Reads the text up to a NUL.
fn text(bytes: &[u8]) -> Option<&str> {
    let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..length]).ok()
}

pub(super) fn registered(bytes: &[u8]) -> Option<&'static str> {
    let handle = usize::from_ne_bytes(*bytes.first_chunk()?);
    names::index(names::Kind::Text, handle).and_then(names::text)
}

impl Value {
    /// Reads the value from a record.
    pub(super) fn read<'a>(&self, record: &'a [u8]) -> Option<FieldValue<'a>> {
        self.kind.read(record.get(self.offset..)?)
    }
}

/// The values in an event's payloads.
pub(super) struct Values<'a> {
    fields: ArrayVec<Field<'a>, MOST_FIELDS>,
    payload: Option<Payload>,
    /// True if the event has its own name.
    has_name: bool,
    name: Option<&'a str>,
    schema_name: Option<&'static str>,
}

impl<'a> Values<'a> {
    pub(super) fn new(has_name: bool) -> Values<'a> {
        let fields = ArrayVec::new();
        Values { fields, payload: None, has_name, name: None, schema_name: None }
    }

    /// Reads a payload.
    pub(super) fn read(&mut self, domain: &Domain, block: Block<'a>) {
        if block.schema < FIRST_STATIC {
            return self.read_plain(block);
        }
        let Some(schema) = Schema::find(domain, block.schema).filter(|schema| !schema.is_enum)
        else {
            count(&COUNTS.unread_values);
            return;
        };
        COUNTS.unread_values.fetch_add(schema.unread, Ordering::Relaxed);
        self.schema_name = self.schema_name.or(Some(schema.name));
        let is_work = schema.name == WORK_SCHEMA;
        for value in schema.values.iter().filter(|value| !value.is_hidden) {
            let Some(content) = value.read(block.bytes) else {
                count(&COUNTS.unread_values);
                continue;
            };
            match content {
                FieldValue::Str(name) if value.purpose == Purpose::Message && !self.has_name => {
                    self.name = Some(name);
                }
                // Undeclared values are sent as zero.
                FieldValue::F64(0.0) | FieldValue::Str("") if is_work => {}
                _ => self.add(value.name, content, value.unit),
            }
        }
    }

    /// Reads a number or text without a schema. The first number is the event's payload.
    fn read_plain(&mut self, block: Block<'a>) {
        let bytes = block.bytes;
        let low = || unsigned(&bytes[..bytes.len().min(8)]);
        let kind = match (block.schema, bytes.len()) {
            (18, 8) => 1,
            (17, 8) => 2,
            (44, 8) => 3,
            (16, 4) => 4,
            (15, 4) => 5,
            (43, 4) => 6,
            _ => 0,
        };
        if self.payload.is_none() && kind != 0 {
            // On big-endian machines, 32-bit union members are in the upper half of the 64 bits.
            let bits =
                if bytes.len() == 4 && cfg!(target_endian = "big") { low() << 32 } else { low() };
            self.payload = Payload::from_raw(kind, bits);
        } else if let (75 | 76, Some(text)) = (block.schema, text(bytes)) {
            self.add("payload", FieldValue::Str(text), "");
        } else {
            count(&COUNTS.unread_values);
        }
    }

    fn add(&mut self, name: &'static str, value: FieldValue<'a>, unit: &'static str) {
        if self.fields.try_push(Field::new(name, value, unit)).is_err() {
            count(&COUNTS.unread_values);
        }
    }

    pub(super) fn fields(&self) -> &[Field<'a>] {
        &self.fields
    }

    pub(super) fn payload(&self) -> Option<Payload> {
        self.payload
    }

    /// The name for an event without its own name: the name in its payload, or the schema's name.
    pub(super) fn name(&self) -> Name<'a> {
        let name = self.name.or(self.schema_name.filter(|name| !name.is_empty()));
        name.map_or(Name::None, |name| Name::Text(Text::Bytes(name.as_bytes())))
    }
}
