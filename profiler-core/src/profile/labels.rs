//! Labels of ranges and marks: name, domain, category, colour, payload, fields.

use crate::join::tables::{Details, FieldValue, Label, LabelId, Subject, Tables};

/// A row of the store with a label and optional details.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Labelled<'a> {
    pub(crate) store: &'a Tables,
    pub(crate) label: LabelId,
    pub(crate) subject: Subject,
}

impl<'a> Labelled<'a> {
    pub(crate) fn label(self) -> &'a Label {
        self.store.label(self.label)
    }

    pub(crate) fn details(self) -> Option<&'a Details> {
        self.store.details.get(&self.subject)
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

/// Declares the label methods of ranges, process ranges and marks. `labelled` returns the row.
macro_rules! label_methods {
    ($type:ident) => {
        impl<'a> $type<'a> {
            /// Its name.
            pub fn name(&self) -> &'a str {
                let row = self.labelled();
                row.store.names.get(row.label().name)
            }

            /// Its domain's name; `None` is the default domain.
            pub fn domain(&self) -> Option<&'a str> {
                let row = self.labelled();
                Some(row.store.names.get(row.label().domain?))
            }

            /// Its category's name.
            pub fn category(&self) -> Option<&'a str> {
                let row = self.labelled();
                Some(row.store.names.get(row.label().category?))
            }

            /// Its colour.
            pub fn color(&self) -> Option<nvtx::Color> {
                self.labelled().label().color.map(nvtx::Color::from_argb)
            }

            /// Its payload.
            pub fn payload(&self) -> Option<nvtx::Payload> {
                self.labelled().details()?.payload
            }

            /// Its fields in the order they were given.
            pub fn fields(&self) -> impl Iterator<Item = nvtx::Field<'a>> {
                self.labelled().fields()
            }

            /// Its last field of this name.
            pub fn field(&self, name: &str) -> Option<nvtx::FieldValue<'a>> {
                let named = self.fields().filter(|field| field.name == name);
                named.last().map(|field| field.value)
            }

            /// The kernel's id of its thread, which is the one that began it.
            pub fn thread_id(&self) -> u32 {
                self.profile.store.threads[self.row().thread.at()].id
            }

            /// The kernel's process id; 0 if the process recorded itself.
            pub fn process_id(&self) -> u32 {
                self.profile.store.threads[self.row().thread.at()].process
            }

            pub(crate) fn labelled(&self) -> Labelled<'a> {
                let (store, label) = (&self.profile.store, self.row().label);
                Labelled { store, label, subject: Subject::$type(self.id) }
            }
        }
    };
}
pub(crate) use label_methods;
