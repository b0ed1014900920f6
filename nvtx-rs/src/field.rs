//! Named values of an event, for the observer.

/// One of an event's named values, such as `flops = 2e9 flop`.
///
/// Only the observer receives fields. Programs can use them, unlike names: operations, number type,
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Field<'a> {
    /// The name, such as `flops`, `bytes` or `dtype`.
    pub name: &'a str,
    /// The value.
    pub value: FieldValue<'a>,
    /// The unit, such as `flop` or `B`; empty if it has none.
    pub unit: &'a str,
}

impl<'a> Field<'a> {
    /// A field; `unit` is empty if it has none.
    pub fn new(name: &'a str, value: impl Into<FieldValue<'a>>, unit: &'a str) -> Field<'a> {
        Field { name, value: value.into(), unit }
    }
}

/// The value of a [`Field`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum FieldValue<'a> {
    /// An unsigned number.
    U64(u64),
    /// A signed number.
    I64(i64),
    /// A floating-point number.
    F64(f64),
    /// True or false.
    Bool(bool),
    /// Text.
    Str(&'a str),
}

macro_rules! from {
    ($($variant:ident: $($type:ty),*;)*) => {
        $($(
            impl From<$type> for FieldValue<'_> {
                fn from(value: $type) -> Self {
                    FieldValue::$variant(value.into())
                }
            }
        )*)*
    };
}

from! {
    U64: u8, u16, u32, u64;
    I64: i8, i16, i32, i64;
    F64: f32, f64;
    Bool: bool;
}

impl From<usize> for FieldValue<'_> {
    fn from(value: usize) -> Self {
        // CAST: no target has a wider usize.
        FieldValue::U64(value as u64)
    }
}

impl From<isize> for FieldValue<'_> {
    fn from(value: isize) -> Self {
        // CAST: no target has a wider isize.
        FieldValue::I64(value as i64)
    }
}

impl<'a> From<&'a str> for FieldValue<'a> {
    fn from(value: &'a str) -> Self {
        FieldValue::Str(value)
    }
}

impl<'a> From<&'a String> for FieldValue<'a> {
    fn from(value: &'a String) -> Self {
        FieldValue::Str(value)
    }
}

/// The fields of an event: the caller's slice, until a field is added.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    given: &'a [Field<'a>],
    /// Behind one pointer, so that an event that is not recorded stays in registers.
    all: Option<Box<List<'a>>>,
}

#[derive(Clone, Debug)]
struct List<'a>(Vec<Field<'a>>);

impl<'a> Fields<'a> {
    pub(crate) const NONE: Fields<'static> = Fields { given: &[], all: None };

    pub(crate) const fn new(given: &'a [Field<'a>]) -> Fields<'a> {
        Fields { given, all: None }
    }

    #[inline]
    pub(crate) fn with_last(self, field: Field<'a>) -> Fields<'a> {
        Fields { given: self.given, all: Some(add(self.given, self.all, field)) }
    }

    pub(crate) fn as_slice(&self) -> &[Field<'a>] {
        self.all.as_ref().map_or(self.given, |all| &all.0)
    }
}

#[cold]
#[inline(never)]
fn add<'a>(given: &[Field<'a>], all: Option<Box<List<'a>>>, field: Field<'a>) -> Box<List<'a>> {
    let mut all = all.unwrap_or_else(|| Box::new(List(given.to_vec())));
    all.0.push(field);
    all
}
