//! The entries of a thread's two range logs, and their encoding in words.

use nvtx::{FieldValue, Payload};
use rustc_hash::FxHashMap;

use super::tag::RangeTag;
use crate::record::json::json_object;

/// Words of an entry.
pub(crate) const WORDS: usize = 3;
/// Upper half: the entry of the parent range plus 1. Lower half: the index of the label.
pub(super) const PLACE: usize = 0;
pub(super) const START: usize = 1;
pub(super) const END: usize = 2;
/// Flag in an entry's start, in the log only: the thread ended while the range was open, at `END`.
pub(super) const LEFT_OPEN: u64 = 1 << 63;

/// One range as its thread wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RangeEntry([u64; WORDS]);

impl RangeEntry {
    pub(crate) fn from_words(words: [u64; WORDS]) -> Self {
        Self(words)
    }

    /// Decodes an entry of the log.
    pub(super) fn from_log([place, start, end]: [u64; WORDS]) -> Self {
        let end = if start & LEFT_OPEN == 0 { end } else { 0 };
        Self([place, start & !LEFT_OPEN, end])
    }

    pub(crate) fn to_words(self) -> [u64; WORDS] {
        self.0
    }

    /// The parent's entry in the same log.
    #[inline]
    pub(crate) fn parent(&self) -> Option<u64> {
        (self.0[PLACE] >> 32).checked_sub(1)
    }

    /// Index into the thread's labels.
    #[inline]
    pub(crate) fn label(&self) -> u64 {
        self.0[PLACE] & u64::from(u32::MAX)
    }

    #[inline]
    pub(crate) fn start_ns(&self) -> u64 {
        self.0[START]
    }

    /// `None` if it had not ended when the log was read.
    #[inline]
    pub(crate) fn end_ns(&self) -> Option<u64> {
        (self.0[END] != 0).then_some(self.0[END])
    }

    /// Returns the entry as of this time.
    pub(super) fn at(mut self, until_ns: u64) -> Self {
        if self.0[END] >= until_ns {
            self.0[END] = 0;
        }
        self
    }
}

/// The properties shared by ranges and marks of one kind. Texts are indices into `texts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Label {
    pub(crate) name: u32,
    pub(crate) domain: Option<u32>,
    pub(crate) category: Option<u32>,
    /// Alpha, red, green, blue.
    pub(crate) color: Option<u32>,
}

json_object! { Label { name: required, domain: optional, category: optional, color: optional, } }

impl Label {
    pub(crate) const fn plain(name: u32) -> Self {
        Self { name, domain: None, category: None, color: None }
    }
}

/// Words of an entry of the second log.
pub(crate) const EVENT_WORDS: usize = 3;
/// The kind is in the highest byte of an entry's first word.
pub(super) const KIND_SHIFT: u32 = 56;
pub(super) const MARK: u64 = 1;
pub(super) const PROCESS_START: u64 = 2;
pub(super) const PROCESS_END: u64 = 3;
pub(super) const WITHIN: u64 = 4;
pub(super) const PAYLOAD: u64 = 5;
pub(super) const FIELD: u64 = 6;
pub(super) const HANDED: u64 = 7;
pub(super) const JOINS: u64 = 8;
pub(super) const MEMBER: u64 = 9;
pub(super) const PIECE: u64 = 10;
pub(super) const PROCESS_FIELDS: u64 = 11;
/// Marks details of an entry of the second log rather than of a range.
pub(super) const OF_EVENT: u64 = 1 << 55;
pub(super) const SLOT_MASK: u64 = OF_EVENT - 1;

/// An entry of the second log.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Event {
    /// A mark with its label, time and parent entry.
    Mark { label: u32, at_ns: u64, parent: Option<u64> },
    /// The start of a process range, identified by this entry.
    ProcessStart { label: u32, at_ns: u64, parent: Option<u64> },
    /// The end of this process range.
    ProcessEnd { of: RangeTag, at_ns: u64 },
    /// Fields that this process range got after its start. They are details of this entry, which
    /// may be of any thread.
    ProcessFields { of: RangeTag, at_ns: u64 },
    /// A joined context, identified by this entry. Members after the second are details of it.
    Joined { first: RangeTag, second: RangeTag },
    /// A detail of a range, mark, process range, its later fields, or joined context.
    Detail { of: Subject, detail: Detail },
    /// An entry of a newer version.
    Unknown,
}

/// The subject of a detail: an entry of either log of the same thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    Range(u64),
    Event(u64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Detail {
    /// The range is an activation of this process range.
    Within(RangeTag),
    /// The parent is this range of another thread, or a joined context.
    Handed(RangeTag),
    /// A further member of a joined context.
    Member(RangeTag),
    Payload(Payload),
    /// Bytes of the next field's text value. The last piece is padded with zeros.
    Piece([u8; PIECE_BYTES]),
    /// `name` and `unit` are indices into the thread's texts.
    Field {
        name: u32,
        unit: u32,
        value: Value,
    },
}

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value {
    U64(u64),
    I64(i64),
    F64(f64),
    Bool(bool),
    /// An index into the thread's texts.
    Text(u32),
    /// A text of this many bytes, stored in the pieces just before.
    LongText(u64),
}

impl Event {
    pub(crate) fn from_words([first, second, third]: [u64; EVENT_WORDS]) -> Self {
        // CAST: labels and texts are counted in 32 bits.
        let (label, parent) = (first as u32, third.checked_sub(1));
        let slot = first & SLOT_MASK;
        let of = if first & OF_EVENT == 0 { Subject::Range(slot) } else { Subject::Event(slot) };
        let detail = match first >> KIND_SHIFT {
            MARK => return Self::Mark { label, at_ns: second, parent },
            PROCESS_START => return Self::ProcessStart { label, at_ns: second, parent },
            PROCESS_END => return Self::ProcessEnd { of: RangeTag(third), at_ns: second },
            PROCESS_FIELDS => return Self::ProcessFields { of: RangeTag(third), at_ns: second },
            WITHIN => Detail::Within(RangeTag(second)),
            HANDED => Detail::Handed(RangeTag(second)),
            JOINS => return Self::Joined { first: RangeTag(second), second: RangeTag(third) },
            MEMBER => Detail::Member(RangeTag(second)),
            PIECE => {
                let bits = u128::from(third) << 64 | u128::from(second);
                Detail::Piece(bits.to_le_bytes())
            }
            PAYLOAD => match payload_of(third, second) {
                Some(payload) => Detail::Payload(payload),
                None => return Self::Unknown,
            },
            FIELD => match value_of(third & 0xff, second) {
                Some(value) => Detail::Field {
                    name: (third >> 32) as u32,
                    unit: (third >> 8) as u32 & UNIT_MASK,
                    value,
                },
                None => return Self::Unknown,
            },
            _ => return Self::Unknown,
        };
        Self::Detail { of, detail }
    }
}

/// Bytes of a text in an entry of the second log.
pub(super) const PIECE_BYTES: usize = 16;

/// Moves texts that are stored in pieces to the table, unless pieces are missing.
pub(super) fn assemble_texts(events: &mut Vec<LoggedEvent>, texts: &mut Texts) {
    // An empty text has no piece.
    let is_in_pieces = |(_, words): &LoggedEvent| {
        let event = Event::from_words(*words);
        let Event::Detail { detail, .. } = event else { return false };
        matches!(detail, Detail::Piece(_) | Detail::Field { value: Value::LongText(_), .. })
    };
    if !events.iter().any(is_in_pieces) {
        return;
    }
    let mut known: FxHashMap<String, u32> = FxHashMap::default();
    let mut bytes = Vec::new();
    events.retain_mut(|(_, words)| {
        match Event::from_words(*words) {
            Event::Detail { detail: Detail::Piece(piece), .. } => {
                bytes.extend_from_slice(&piece);
                return false;
            }
            Event::Detail {
                detail: Detail::Field { value: Value::LongText(length), .. }, ..
            } => {
                let text = usize::try_from(length).ok().and_then(|length| bytes.get(..length));
                if let Some(text) = text.and_then(|text| std::str::from_utf8(text).ok()) {
                    let index = known.get(text).copied().unwrap_or_else(|| {
                        // CAST: as for texts that the thread adds.
                        let index = texts.texts.len() as u32;
                        texts.texts.push(text.to_owned());
                        known.insert(text.to_owned(), index);
                        index
                    });
                    let [_, bits, what] = words;
                    (*bits, *what) = (index.into(), *what & !0xff | TEXT);
                }
            }
            _ => {}
        }
        bytes.clear();
        true
    });
}

/// Kinds of field values that are texts.
pub(super) const TEXT: u64 = 5;
pub(super) const PIECES: u64 = 6;

/// A field has 24 bits for its unit.
pub(super) const UNIT_MASK: u32 = (1 << 24) - 1;

pub(super) fn words_of_payload(payload: Payload) -> Option<(u64, u64)> {
    Some(match payload {
        Payload::U64(value) => (1, value),
        Payload::I64(value) => (2, value.cast_unsigned()),
        Payload::F64(value) => (3, value.to_bits()),
        Payload::U32(value) => (4, value.into()),
        Payload::I32(value) => (5, value.cast_unsigned().into()),
        Payload::F32(value) => (6, value.to_bits().into()),
        _ => return None,
    })
}

pub(super) fn payload_of(kind: u64, bits: u64) -> Option<Payload> {
    // CAST: the value was stored from 32 bits.
    let low = bits as u32;
    Some(match kind {
        1 => Payload::U64(bits),
        2 => Payload::I64(bits.cast_signed()),
        3 => Payload::F64(f64::from_bits(bits)),
        4 => Payload::U32(low),
        5 => Payload::I32(low.cast_signed()),
        6 => Payload::F32(f32::from_bits(low)),
        _ => return None,
    })
}

pub(super) fn value_of(kind: u64, bits: u64) -> Option<Value> {
    Some(match kind {
        1 => Value::U64(bits),
        2 => Value::I64(bits.cast_signed()),
        3 => Value::F64(f64::from_bits(bits)),
        4 => Value::Bool(bits != 0),
        // CAST: texts are counted in 32 bits.
        TEXT => Value::Text(bits as u32),
        PIECES => Value::LongText(bits),
        _ => return None,
    })
}

/// The texts and labels to which a thread's entries refer by index.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Texts {
    pub(crate) texts: Vec<String>,
    pub(crate) labels: Vec<Label>,
}

/// An entry of the second log, with its slot.
pub(super) type LoggedEvent = (u64, [u64; EVENT_WORDS]);

/// Encodes a text as entries of the second log.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = [u64; EVENT_WORDS]> {
    text.as_bytes().chunks(PIECE_BYTES).map(|piece| {
        let mut bytes = [0; PIECE_BYTES];
        bytes[..piece.len()].copy_from_slice(piece);
        let bits = u128::from_le_bytes(bytes);
        // CAST: the lower and the upper half.
        [PIECE << KIND_SHIFT, bits as u64, (bits >> 64) as u64]
    })
}

/// Upper bound of the entries for these fields.
pub(super) fn entries_of(fields: &[nvtx::Field<'_>]) -> u64 {
    let entries = |field: &nvtx::Field<'_>| match field.value {
        FieldValue::Str(value) => 1 + value.len().div_ceil(PIECE_BYTES) as u64,
        _ => 1,
    };
    fields.iter().map(entries).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_text_has_no_piece_and_is_assembled() {
        let mut events = vec![(0, [FIELD << KIND_SHIFT, 0, PIECES])];
        let mut texts = Texts { texts: vec!["id".to_owned()], labels: vec![] };
        assemble_texts(&mut events, &mut texts);
        let value = Value::Text(1);
        let detail = Detail::Field { name: 0, unit: 0, value };
        let of = Subject::Range(0);
        assert_eq!(Event::from_words(events[0].1), Event::Detail { of, detail });
        assert_eq!(texts.texts, ["id", ""]);
    }

    #[test]
    fn entry_decodes_its_words() {
        let entry = RangeEntry::from_words([(7 + 1) << 32 | 3, 5, 9]);
        assert_eq!((entry.parent(), entry.label()), (Some(7), 3));
        assert_eq!((entry.start_ns(), entry.end_ns()), (5, Some(9)));
        assert_eq!((entry.at(10).end_ns(), entry.at(9).end_ns()), (Some(9), None));
        let first = RangeEntry::from_words([0, 1, 0]);
        assert_eq!((first.parent(), first.label(), first.end_ns()), (None, 0, None));
    }
}
