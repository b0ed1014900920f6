//! The fields of a span, stored to describe its later entries.

use std::fmt::{self, Debug, Write};
use std::sync::Arc;

use crate::field::{Field, FieldValue};

/// The maximum bytes of a stored text; longer ones are cut.
const LONGEST_TEXT: usize = 1024;
/// The maximum number of fields that an entry describes without an allocation.
const FEW: usize = 8;

/// A selection of the span fields, besides `nvtx.*`, that become fields of their ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpanFields {
    /// None.
    #[default]
    None,
    /// Numbers, bools and texts.
    Plain,
    /// All, including those that the program formats (`?value`, `%value`, and arguments of
    /// functions with `#[instrument]` that are neither numbers nor texts). The program's code for
    /// that runs when the span is created, and may be slow: for a tensor it may copy its values
    /// from the GPU.
    Formatted,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum KeptValue {
    U64(u64),
    I64(i64),
    F64(f64),
    Bool(bool),
    Text(Box<str>),
}

impl KeptValue {
    pub(super) fn text(text: &str) -> KeptValue {
        KeptValue::Text(beginning(text, LONGEST_TEXT).into())
    }

    /// The text of a value, formatted up to the longest text. Text after a formatting error is
    /// missing.
    pub(super) fn formatted(value: &dyn Debug) -> KeptValue {
        struct Limited(String);
        impl Write for Limited {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                let room = LONGEST_TEXT - self.0.len();
                self.0.push_str(beginning(text, room));
                if text.len() <= room { Ok(()) } else { Err(fmt::Error) }
            }
        }
        let mut text = Limited(String::new());
        let _ = write!(text, "{value:?}");
        KeptValue::Text(text.0.into())
    }

    fn as_field(&self) -> FieldValue<'_> {
        match self {
            KeptValue::U64(value) => FieldValue::U64(*value),
            KeptValue::I64(value) => FieldValue::I64(*value),
            KeptValue::F64(value) => FieldValue::F64(*value),
            KeptValue::Bool(value) => FieldValue::Bool(*value),
            KeptValue::Text(text) => FieldValue::Str(text),
        }
    }
}

/// At most this many bytes of a text. `str::floor_char_boundary` would need Rust 1.91.
fn beginning(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Fields by name, shared between a span and its open entries; replaced when values are recorded
/// later.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptFields(Option<Arc<Vec<(&'static str, KeptValue)>>>);

impl KeptFields {
    pub(super) fn set(&mut self, name: &'static str, value: KeptValue) {
        let fields = Arc::make_mut(self.0.get_or_insert_default());
        match fields.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => fields.push((name, value)),
        }
    }

    /// Later values replace earlier ones.
    pub(super) fn update(&mut self, later: &KeptFields) {
        for (name, value) in later.iter() {
            self.set(name, value.clone());
        }
    }

    fn iter(&self) -> impl Iterator<Item = (&'static str, &KeptValue)> {
        self.0.iter().flat_map(|fields| fields.iter()).map(|(name, value)| (*name, value))
    }

    /// Returns the fields that `earlier` lacks or has with another value.
    pub(super) fn changes_since(&self, earlier: &KeptFields) -> KeptFields {
        let is_same = match (&self.0, &earlier.0) {
            (Some(now), Some(then)) => Arc::ptr_eq(now, then),
            (None, _) => true,
            (Some(_), None) => false,
        };
        let mut late = KeptFields::default();
        if !is_same {
            let known = |name, value| earlier.iter().any(|field| field == (name, value));
            for (name, value) in self.iter().filter(|(name, value)| !known(name, value)) {
                late.set(name, value.clone());
            }
        }
        late
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Calls `with` on the fields in the form that events accept.
    pub(super) fn with_fields<R>(&self, with: impl FnOnce(&[Field<'_>]) -> R) -> R {
        let fields =
            self.iter().map(|(name, value)| Field { name, value: value.as_field(), unit: "" });
        let count = self.0.as_ref().map_or(0, |fields| fields.len());
        if count > FEW {
            return with(&fields.collect::<Vec<_>>());
        }
        let mut few = [Field { name: "", value: FieldValue::Bool(false), unit: "" }; FEW];
        few.iter_mut().zip(fields).for_each(|(place, field)| *place = field);
        with(&few[..count])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_cut_at_a_character() {
        let long = "\u{20ac}".repeat(LONGEST_TEXT);
        let length = |value: KeptValue| match value {
            KeptValue::Text(text) => text.len(),
            _ => 0,
        };
        assert_eq!(length(KeptValue::text(&long)), LONGEST_TEXT / 3 * 3);
        assert_eq!(
            length(KeptValue::formatted(&format_args!("{long}{long}"))),
            LONGEST_TEXT / 3 * 3
        );
        assert_eq!(length(KeptValue::formatted(&format_args!("ab{}", 7))), 3);
        // An array stops at the limit instead of formatting all of its elements.
        assert_eq!(length(KeptValue::formatted(&vec![7; 1 << 20])), LONGEST_TEXT);
    }

    #[test]
    fn many_fields_are_described_like_few() {
        let mut fields = KeptFields::default();
        for (i, name) in ["a", "b", "c", "d", "e", "f", "g", "h", "i"].into_iter().enumerate() {
            fields.with_fields(|seen| assert_eq!(seen.len(), i));
            fields.set(name, KeptValue::U64(i as u64));
        }
        let earlier = fields.clone();
        fields.set("d", KeptValue::Bool(true));
        fields.with_fields(|seen| {
            assert_eq!((seen.len(), seen[8].name, seen[8].value), (9, "i", FieldValue::U64(8)));
        });
        fields.changes_since(&earlier).with_fields(|late| {
            assert_eq!((late.len(), late[0].name, late[0].value), (1, "d", FieldValue::Bool(true)));
        });
        assert!(earlier.changes_since(&earlier.clone()).is_empty());
    }
}
