//! What a program said of its ranges and marks: name, domain, category, colour, payload, fields.

use crate::join::tables::{Details, FieldValue, Label, LabelId, Store, Subject};

/// A row of the store that has a label, and may have details.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Described<'a> {
    pub(crate) store: &'a Store,
    pub(crate) label: LabelId,
    pub(crate) subject: Subject,
}

impl<'a> Described<'a> {
    fn label(self) -> &'a Label {
        self.store.label(self.label)
    }

    pub(crate) fn name(self) -> &'a str {
        self.store.names.get(self.label().name)
    }

    pub(crate) fn domain(self) -> Option<&'a str> {
        self.label().domain.map(|domain| self.store.names.get(domain))
    }

    pub(crate) fn category(self) -> Option<&'a str> {
        self.label().category.map(|category| self.store.names.get(category))
    }

    pub(crate) fn color(self) -> Option<nvtx::Color> {
        self.label().color.map(nvtx::Color::from_argb)
    }

    pub(crate) fn details(self) -> Option<&'a Details> {
        self.store.details.get(&self.subject)
    }

    pub(crate) fn payload(self) -> Option<nvtx::Payload> {
        self.details()?.payload
    }

    pub(crate) fn fields(self) -> impl Iterator<Item = nvtx::Field<'a>> {
        let fields = self.details().map_or(&[][..], |details| &details.fields);
        let names = &self.store.names;
        fields.iter().map(|field| {
            let value = match field.value {
                FieldValue::U64(value) => nvtx::FieldValue::U64(value),
                FieldValue::I64(value) => nvtx::FieldValue::I64(value),
                FieldValue::F64(value) => nvtx::FieldValue::F64(value),
                FieldValue::Bool(value) => nvtx::FieldValue::Bool(value),
                FieldValue::Text(text) => nvtx::FieldValue::Str(names.get(text)),
            };
            nvtx::Field::new(names.get(field.name), value, names.get(field.unit))
        })
    }
}

/// The questions that a range, a range of the process and a mark answer alike; `described` gives the row.
macro_rules! described_methods {
    ($type:ident) => {
        impl<'a> $type<'a> {
            /// Its name.
            pub fn name(&self) -> &'a str {
                self.described().name()
            }

            /// Its domain's name; `None` is the default one.
            pub fn domain(&self) -> Option<&'a str> {
                self.described().domain()
            }

            /// Its category's name.
            pub fn category(&self) -> Option<&'a str> {
                self.described().category()
            }

            /// The colour it is to be shown in.
            pub fn color(&self) -> Option<nvtx::Color> {
                self.described().color()
            }

            /// The number that came with it.
            pub fn payload(&self) -> Option<nvtx::Payload> {
                self.described().payload()
            }

            /// Its named values, in the order they were given.
            pub fn fields(&self) -> impl Iterator<Item = nvtx::Field<'a>> {
                self.described().fields()
            }

            /// Its named value of this name; the last one if there are several.
            pub fn field(&self, name: &str) -> Option<nvtx::FieldValue<'a>> {
                let named = self.fields().filter(|field| field.name == name);
                named.last().map(|field| field.value)
            }
        }
    };
}
pub(crate) use described_methods;
