//! Records of several values, and the schemas that describe them to tools.
//!
//! A tool reads a record's bytes by its schema, so the two must agree. Therefore only the schema
//! makes records, it checks every value, and it has no pointers. Offsets are those of C, so a
//! `#[repr(C)]` structure with the same members has the same bytes.

use std::sync::OnceLock;

use crate::domain::{Domain, DomainRef};
use crate::domain_slot::DomainSlot;
use crate::error::Error;
use crate::state;
use crate::sys::functions;
use crate::sys::types::{
    EnumAttributes, EnumEntry, SchemaAttributes, SchemaEntry, Semantics, TimeSemantics,
};
use crate::text::CStrings;
use crate::time::Clock;

/// The type of an [`Entry`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum EntryType {
    /// A signed integer of 8 bits.
    I8,
    /// An unsigned integer of 8 bits.
    U8,
    /// A signed integer of 16 bits.
    I16,
    /// An unsigned integer of 16 bits.
    U16,
    /// A signed integer of 32 bits.
    I32,
    /// An unsigned integer of 32 bits.
    U32,
    /// A signed integer of 64 bits.
    I64,
    /// An unsigned integer of 64 bits.
    U64,
    /// A floating-point number of 32 bits.
    F32,
    /// A floating-point number of 64 bits.
    F64,
    /// An address, as a number.
    Address,
    /// A [`Category`](crate::Category) by its number.
    Category,
    /// A [`Color`](crate::Color) as one number.
    Color,
    /// Text of at most this many bytes.
    Text(usize),
    /// One of the values of an [`Enum`], as a number of its size.
    Enum(&'static Enum),
    /// The tool's handle of a registered string, for the names of deferred events. Tools may
    /// dereference it, so a program's own records cannot contain one.
    #[doc(hidden)]
    Registered,
}

impl EntryType {
    /// NVTX's number of the type; 0 for an enum that the tool did not accept.
    fn number(self) -> u64 {
        match self {
            EntryType::I8 => 11,
            EntryType::U8 => 12,
            EntryType::I16 => 13,
            EntryType::U16 => 14,
            EntryType::I32 => 15,
            EntryType::U32 => 16,
            EntryType::I64 => 17,
            EntryType::U64 => 18,
            EntryType::F32 => 43,
            EntryType::F64 => 44,
            EntryType::Address => 23,
            EntryType::Category => 68,
            EntryType::Color => 69,
            EntryType::Text(_) => 76,
            EntryType::Registered => 80,
            // Without support for enums: the integer type.
            EntryType::Enum(values) => values.id().unwrap_or(match values.bytes {
                1 => 12,
                2 => 14,
                4 => 16,
                _ => 18,
            }),
        }
    }

    const fn size(self) -> usize {
        match self {
            EntryType::I8 | EntryType::U8 => 1,
            EntryType::I16 | EntryType::U16 => 2,
            EntryType::I32 | EntryType::U32 | EntryType::F32 => 4,
            EntryType::Category | EntryType::Color => 4,
            EntryType::I64 | EntryType::U64 | EntryType::F64 => 8,
            EntryType::Address | EntryType::Registered => size_of::<usize>(),
            // Tools treat a length of 0 as a pointer.
            EntryType::Text(0) => 1,
            EntryType::Text(length) => length,
            EntryType::Enum(values) => values.bytes,
        }
    }

    const fn align(self) -> usize {
        if let EntryType::Text(_) = self { 1 } else { self.size() }
    }
}

/// The flag of the entry with the event's name.
const MESSAGE: u64 = 1 << 10;

/// A value in a [`Schema`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Entry {
    name: &'static str,
    description: &'static str,
    kind: EntryType,
    /// `None` for a single value.
    count: Option<usize>,
    flags: u64,
    clock: Option<Clock>,
}

impl Entry {
    /// A value of this type.
    pub const fn new(name: &'static str, kind: EntryType) -> Entry {
        Entry { name, description: "", kind, count: None, flags: 0, clock: None }
    }

    /// An array of this type. For texts, whose type includes the length, a single value.
    pub const fn array(name: &'static str, kind: EntryType, count: usize) -> Entry {
        let count = if let EntryType::Text(_) = kind { None } else { Some(count) };
        Entry { count, ..Entry::new(name, kind) }
    }

    /// Sets a description.
    pub const fn described(mut self, description: &'static str) -> Entry {
        self.description = description;
        self
    }

    /// Requests that tools do not show the value.
    pub const fn hidden(mut self) -> Entry {
        self.flags |= 1 << 9;
        self
    }

    /// Makes the value the name of the event, for [`Record::mark`], [`Record::range`] and
    /// [`Record::process_range`]. Requires an [`EntryType::Text`].
    ///
    /// For tools the last name applies: in `event("name").record(&record)` the entry replaces
    /// `"name"`, and [`Range::end_with`](crate::Range::end_with) renames the range. Observers
    /// receive the event's own name.
    pub const fn message(mut self) -> Entry {
        self.flags |= MESSAGE;
        self
    }

    fn is_message(&self) -> bool {
        self.flags & MESSAGE != 0
    }

    /// Makes the value a counter's sample, for [`CounterGroup`](crate::counter::CounterGroup).
    pub const fn counter(mut self) -> Entry {
        self.flags |= 4 << 12;
        self
    }

    /// Makes the value a time by `clock`.
    pub(crate) const fn timed(mut self, flags: u64, clock: Clock) -> Entry {
        const TIMESTAMP: u64 = 2 << 10;
        self.flags |= TIMESTAMP | flags;
        self.clock = Some(clock);
        self
    }

    /// The type, for errors.
    fn kind_described(&self) -> String {
        let kind = match self.kind {
            EntryType::Enum(values) => format!("the enum `{}`", values.name),
            kind => format!("{kind:?}"),
        };
        match self.count {
            None => kind,
            Some(count) => format!("{count} x {kind}"),
        }
    }

    const fn bytes(&self) -> usize {
        match self.count {
            None => self.kind.size(),
            Some(count) => self.kind.size() * count,
        }
    }
}

/// The entries of a [`Record`], in order. Intended for a `static`.
///
/// ```
/// use nvtx::schema::{Entry, EntryType, Enum, Schema};
///
/// static DTYPE: Enum = Enum::new("dtype", 1, &[("f32", 0), ("bf16", 1)]);
/// static GEMM: Schema = Schema::new(
///     "gemm",
///     &[
///         Entry::array("shape", EntryType::U32, 3),
///         Entry::new("flops", EntryType::F64),
///         Entry::new("dtype", EntryType::Enum(&DTYPE)),
///     ],
/// );
///
/// let shape: &[u32] = &[64, 64, 128];
/// let record = GEMM.record(&[shape.into(), 1e6.into(), 1u8.into()])?;
/// let _range = nvtx::event("gemm").record(&record).range();
/// # Ok::<(), nvtx::Error>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct Schema {
    name: &'static str,
    entries: &'static [Entry],
    domain: Option<&'static Domain>,
    flags: u64,
    id: OnceLock<Option<u64>>,
}

impl Schema {
    /// A schema of the default domain.
    pub const fn new(name: &'static str, entries: &'static [Entry]) -> Schema {
        Schema { name, entries, domain: None, flags: 0, id: OnceLock::new() }
    }

    /// A schema of `domain`, for its events.
    pub const fn in_domain(
        name: &'static str,
        domain: &'static Domain,
        entries: &'static [Entry],
    ) -> Schema {
        let mut schema = Schema::new(name, entries);
        schema.domain = Some(domain);
        schema
    }

    pub(crate) const fn flagged(mut self, flags: u64) -> Schema {
        self.flags = flags;
        self
    }

    /// Makes the records samples of a counter group.
    pub const fn counter_group(self) -> Schema {
        self.flagged(1 << 3)
    }

    /// The schema's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The bytes of a record.
    pub fn size(&self) -> usize {
        size(self.entries)
    }

    /// The tool's id; `None` without a tool that supports schemas.
    pub(crate) fn id(&self) -> Option<u64> {
        if !state::has_tool() {
            return None;
        }
        *self.id.get_or_init(|| register(self.domain(), self.name, self.flags, self.entries))
    }

    pub(crate) fn domain(&self) -> DomainRef<'static> {
        DomainRef::from_domain(self.domain)
    }

    /// True if an entry is the name of the event.
    pub(crate) fn has_message(&self) -> bool {
        self.entries.iter().any(Entry::is_message)
    }

    /// Builds a record with these values, one for each entry.
    ///
    /// # Errors
    ///
    /// [`Error::is_mismatch`] if the number of values differs from the number of entries, or a
    /// value does not fit.
    pub fn record(&'static self, values: &[Value<'_>]) -> Result<Record, Error> {
        if values.len() != self.entries.len() {
            let why = format!("{} values for {} entries", values.len(), self.entries.len());
            return Err(Error::mismatch(self.name, &why));
        }
        let mut bytes = vec![0; self.size()];
        for ((offset, entry), value) in offsets(self.entries).zip(values) {
            let place = bytes.get_mut(offset..offset + entry.bytes()).unwrap_or_default();
            if !value.write(entry.kind, entry.count, place) {
                let why = format!(
                    "{} does not fit `{}`, which is {}",
                    value.described(),
                    entry.name,
                    entry.kind_described()
                );
                return Err(Error::mismatch(self.name, &why));
            }
        }
        Ok(Record { schema: self, bytes: bytes.into() })
    }
}

/// The bytes of a record with these entries.
fn size(entries: &[Entry]) -> usize {
    let end = offsets(entries).last().map_or(0, |(offset, entry)| offset + entry.bytes());
    let align = entries.iter().map(|entry| entry.kind.align()).max().unwrap_or(1);
    end.next_multiple_of(align)
}

/// The entries with their offsets in C.
fn offsets(entries: &[Entry]) -> impl Iterator<Item = (usize, &Entry)> {
    let mut next = 0usize;
    entries.iter().map(move |entry| {
        let offset = next.next_multiple_of(entry.kind.align());
        next = offset + entry.bytes();
        (offset, entry)
    })
}

/// Registers a schema with the tool; `None` if the tool does not accept it.
pub(crate) fn register(
    domain: DomainRef<'_>,
    name: &str,
    flags: u64,
    entries: &[Entry],
) -> Option<u64> {
    const FIXED_ARRAY: u64 = 1 << 4;
    let mut strings = CStrings::new();
    let name = strings.add(name);
    let texts: Vec<_> = entries
        .iter()
        .map(|entry| (strings.add(entry.name), strings.add(entry.description)))
        .collect();
    let times: Vec<_> = entries
        .iter()
        .map(|entry| entry.clock.map(|clock| TimeSemantics::new(clock.number())))
        .collect();
    let described: Vec<_> = offsets(entries)
        .zip(&texts)
        .zip(&times)
        .map(|(((offset, entry), (name, description)), time)| SchemaEntry {
            flags: entry.flags | if entry.count.is_some() { FIXED_ARRAY } else { 0 },
            kind: entry.kind.number(),
            name: strings.get(*name),
            description: strings.get(*description),
            length: match entry.kind {
                EntryType::Text(_) => entry.kind.size() as u64,
                _ => entry.count.unwrap_or(0) as u64,
            },
            offset: offset as u64,
            semantics: time.as_ref().map_or(Semantics::NONE, Semantics::time),
            reserved: 0,
        })
        .collect();
    let attributes = SchemaAttributes::new(strings.get(name), flags, &described, size(entries));
    let id = functions::schema_register(domain.handle_or_null(), &attributes);
    id.filter(|id| *id != 0)
}

/// Named values of an integer.
#[derive(Debug)]
#[must_use]
pub struct Enum {
    name: &'static str,
    bytes: usize,
    values: &'static [(&'static str, u64)],
    flags: bool,
    domain: Option<&'static Domain>,
    id: OnceLock<Option<u64>>,
}

impl Enum {
    /// Creates an enum of 1, 2, 4 or 8 bytes; another size is rounded up to the next of these.
    pub const fn new(
        name: &'static str,
        bytes: usize,
        values: &'static [(&'static str, u64)],
    ) -> Enum {
        let bytes = match bytes {
            0 | 1 => 1,
            2 => 2,
            3 | 4 => 4,
            _ => 8,
        };
        Enum { name, bytes, values, flags: false, domain: None, id: OnceLock::new() }
    }

    /// Makes the values flags, which can be combined.
    pub const fn flags(mut self) -> Enum {
        self.flags = true;
        self
    }

    /// Sets the domain, which must be the schemas' domain.
    pub const fn in_domain(mut self, domain: &'static Domain) -> Enum {
        self.domain = Some(domain);
        self
    }

    fn id(&self) -> Option<u64> {
        *self.id.get_or_init(|| {
            let mut strings = CStrings::new();
            let name = strings.add(self.name);
            let names: Vec<_> = self.values.iter().map(|(name, _)| strings.add(name)).collect();
            let entries: Vec<_> = self
                .values
                .iter()
                .zip(&names)
                .map(|((_, value), name)| EnumEntry {
                    name: strings.get(*name),
                    value: *value,
                    is_flag: self.flags.into(),
                })
                .collect();
            let attributes = EnumAttributes::new(strings.get(name), &entries, self.bytes);
            let domain = DomainRef::from_domain(self.domain).handle_or_null();
            functions::enum_register(domain, &attributes).filter(|id| *id != 0)
        })
    }
}

/// A value for a [`Record`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// An integer, for an enum or an integer type that it fits.
    Int(i128),
    /// A floating-point number; rounded for 32 bits.
    Float(f64),
    /// Text, at most as long as its entry.
    Text(&'a str),
    /// Numbers for an array.
    U32s(&'a [u32]),
    /// Numbers for an array.
    U64s(&'a [u64]),
    /// Numbers for an array.
    F32s(&'a [f32]),
    /// Numbers for an array.
    F64s(&'a [f64]),
}

impl Value<'_> {
    /// The value, for errors; long values by their length.
    fn described(self) -> String {
        /// The maximum number of bytes or numbers in an error.
        const SHOWN: usize = 16;
        let numbers = |kind: &str, count: usize| format!("{count} x {kind}");
        match self {
            Value::Text(text) if text.len() > SHOWN => format!("a text of {} bytes", text.len()),
            Value::U32s(all) if all.len() > SHOWN => numbers("U32", all.len()),
            Value::U64s(all) if all.len() > SHOWN => numbers("U64", all.len()),
            Value::F32s(all) if all.len() > SHOWN => numbers("F32", all.len()),
            Value::F64s(all) if all.len() > SHOWN => numbers("F64", all.len()),
            short => format!("{short:?}"),
        }
    }

    /// Writes the value; false if it does not fit.
    fn write(self, kind: EntryType, count: Option<usize>, place: &mut [u8]) -> bool {
        match (self, count) {
            (Value::Text(text), None) => {
                let fits = matches!(kind, EntryType::Text(_)) && text.len() <= place.len();
                if fits && let Some(place) = place.get_mut(..text.len()) {
                    place.copy_from_slice(text.as_bytes());
                }
                fits
            }
            (Value::U32s(all), Some(_)) => write_all(all, |v| Value::Int((*v).into()), kind, place),
            (Value::U64s(all), Some(_)) => write_all(all, |v| Value::Int((*v).into()), kind, place),
            (Value::F32s(all), Some(_)) => {
                write_all(all, |v| Value::Float((*v).into()), kind, place)
            }
            (Value::F64s(all), Some(_)) => write_all(all, |v| Value::Float(*v), kind, place),
            (_, None) => self.write_number(kind, place),
            _ => false,
        }
    }

    fn write_number(self, kind: EntryType, place: &mut [u8]) -> bool {
        match (self, kind) {
            // CAST: rounded, as documented.
            (Value::Float(value), EntryType::F32) => copy(&(value as f32).to_ne_bytes(), place),
            (Value::Float(value), EntryType::F64) => copy(&value.to_ne_bytes(), place),
            (Value::Int(value), EntryType::I8) => int::<i8, 1>(value, i8::to_ne_bytes, place),
            (Value::Int(value), EntryType::I16) => int::<i16, 2>(value, i16::to_ne_bytes, place),
            (Value::Int(value), EntryType::I32) => int::<i32, 4>(value, i32::to_ne_bytes, place),
            (Value::Int(value), EntryType::I64) => int::<i64, 8>(value, i64::to_ne_bytes, place),
            // Tools may dereference a registered string, so programs cannot set it.
            (_, EntryType::F32 | EntryType::F64 | EntryType::Text(_) | EntryType::Registered) => {
                false
            }
            (Value::Int(value), _) => match place.len() {
                1 => int::<u8, 1>(value, u8::to_ne_bytes, place),
                2 => int::<u16, 2>(value, u16::to_ne_bytes, place),
                4 => int::<u32, 4>(value, u32::to_ne_bytes, place),
                8 => int::<u64, 8>(value, u64::to_ne_bytes, place),
                _ => false,
            },
            _ => false,
        }
    }
}

fn write_all<'v, T>(
    all: &[T],
    value: impl Fn(&T) -> Value<'v>,
    kind: EntryType,
    place: &mut [u8],
) -> bool {
    let size = kind.size();
    all.len() * size == place.len()
        && all
            .iter()
            .zip(place.chunks_exact_mut(size))
            .all(|(element, place)| value(element).write_number(kind, place))
}

fn int<T: TryFrom<i128>, const N: usize>(
    value: i128,
    bytes: impl FnOnce(T) -> [u8; N],
    place: &mut [u8],
) -> bool {
    T::try_from(value).is_ok_and(|value| copy(&bytes(value), place))
}

fn copy(bytes: &[u8], place: &mut [u8]) -> bool {
    let fits = bytes.len() == place.len();
    if fits {
        place.copy_from_slice(bytes);
    }
    fits
}

macro_rules! from {
    ($($variant:ident: $($type:ty),*;)*) => {
        $($(
            impl From<$type> for Value<'_> {
                fn from(value: $type) -> Self {
                    Value::$variant(value.into())
                }
            }
        )*)*
    };
}

from! {
    Int: bool, u8, u16, u32, u64, i8, i16, i32, i64;
    Float: f32, f64;
}

macro_rules! from_borrowed {
    ($($variant:ident: $type:ty;)*) => {
        $(
            impl<'a> From<&'a $type> for Value<'a> {
                fn from(value: &'a $type) -> Self {
                    Value::$variant(value)
                }
            }
        )*
    };
}

from_borrowed! {
    Text: str;
    U32s: [u32];
    U64s: [u64];
    F32s: [f32];
    F64s: [f64];
}

impl From<usize> for Value<'_> {
    fn from(value: usize) -> Self {
        // CAST: wider than any usize.
        Value::Int(value as i128)
    }
}

/// Values by a [`Schema`]. Made by [`Schema::record`].
#[derive(Clone, Debug)]
pub struct Record {
    schema: &'static Schema,
    bytes: Box<[u8]>,
}

impl Record {
    /// The schema.
    pub fn schema(&self) -> &'static Schema {
        self.schema
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn schema_id(&self) -> Option<u64> {
        self.schema.id()
    }

    pub(crate) fn is_of(&self, domain: DomainRef<'_>) -> bool {
        self.schema.domain().is(domain)
    }

    /// As [`is_of`](Record::is_of), for a domain's slot.
    pub(crate) fn is_of_slot(&self, domain: DomainSlot) -> bool {
        self.schema.domain().registered_slot() == Some(domain)
    }
}
