//! The fields of a span or event: `nvtx.*` read into [`Details`], others into [`KeptFields`].

use std::fmt::{Debug, Write};

use tracing_core::field::{Field, Visit};

use super::details::{CATEGORY, COLOR, Details, PAYLOAD};
use super::kept::{KeptFields, KeptValue, SpanFields};
use super::place::Place;
use crate::color::Color;
use crate::payload::Payload;

/// The name of an event's text in `tracing`.
const MESSAGE: &str = "message";

/// Reads fields. Ignores values of wrong types.
#[derive(Debug)]
pub(super) struct Fields {
    place: &'static Place,
    pub(super) details: Details,
    /// The message of an event is appended here.
    pub(super) message: Option<String>,
    wanted: SpanFields,
    pub(super) kept: KeptFields,
}

impl Fields {
    pub(super) fn new(place: &'static Place) -> Fields {
        Fields::of_span(place, SpanFields::None)
    }

    /// Also reads the other fields that are wanted.
    pub(super) fn of_span(place: &'static Place, wanted: SpanFields) -> Fields {
        let (details, kept) = (Details::default(), KeptFields::default());
        Fields { place, details, message: None, wanted, kept }
    }

    /// Stores a field without the prefix `nvtx.`.
    fn keep(&mut self, field: &Field, value: impl FnOnce() -> KeptValue) {
        if self.wanted != SpanFields::None {
            self.kept.set(field.name(), value());
        }
    }

    fn number(&mut self, field: &Field, payload: Payload, color: Option<u32>, value: KeptValue) {
        match field.name() {
            PAYLOAD => self.details.payload = Some(payload),
            COLOR => {
                if let Some(argb) = color {
                    // Without an alpha it would be invisible.
                    let argb = if argb >> 24 == 0 { argb | 0xff00_0000 } else { argb };
                    self.details.color = Some(Color::from_argb(argb));
                }
            }
            CATEGORY => {}
            _ => self.keep(field, || value),
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.number(field, value.into(), None, KeptValue::F64(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.number(field, value.into(), u32::try_from(value).ok(), KeptValue::I64(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.number(field, value.into(), u32::try_from(value).ok(), KeptValue::U64(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.number(field, u32::from(value).into(), None, KeptValue::Bool(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            CATEGORY => self.details.category = Some(self.place.category(value)),
            COLOR | PAYLOAD => {}
            name => match &mut self.message {
                Some(message) if name == MESSAGE => message.push_str(value),
                _ => self.keep(field, || KeptValue::text(value)),
            },
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Text after a formatting error is missing; `format!` would panic.
        match field.name() {
            CATEGORY => {
                let mut name = String::new();
                let _ = write!(name, "{value:?}");
                self.record_str(field, &name);
            }
            COLOR | PAYLOAD => {}
            name => match &mut self.message {
                Some(message) if name == MESSAGE => {
                    let _ = write!(message, "{value:?}");
                }
                _ if self.wanted == SpanFields::Formatted => {
                    self.keep(field, || KeptValue::formatted(value));
                }
                _ => {}
            },
        }
    }
}
