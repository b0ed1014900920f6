//! The `nvtx.*` fields of a span or event, read into [`Details`].

use std::fmt::{Debug, Write};

use tracing_core::field::{Field, Visit};

use super::details::{CATEGORY, COLOR, Details, PAYLOAD};
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
}

impl Fields {
    pub(super) fn new(place: &'static Place) -> Fields {
        Fields { place, details: Details::default(), message: None }
    }

    fn number(&mut self, field: &Field, payload: Payload, color: Option<u32>) {
        match field.name() {
            PAYLOAD => self.details.payload = Some(payload),
            COLOR => {
                if let Some(argb) = color {
                    // Without an alpha it would be invisible.
                    let argb = if argb >> 24 == 0 { argb | 0xff00_0000 } else { argb };
                    self.details.color = Some(Color::from_argb(argb));
                }
            }
            _ => {}
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.number(field, value.into(), None);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.number(field, value.into(), u32::try_from(value).ok());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.number(field, value.into(), u32::try_from(value).ok());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.number(field, u32::from(value).into(), None);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            CATEGORY => self.details.category = Some(self.place.category(value)),
            MESSAGE => self.message.iter_mut().for_each(|message| message.push_str(value)),
            _ => {}
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
            MESSAGE => {
                if let Some(message) = &mut self.message {
                    let _ = write!(message, "{value:?}");
                }
            }
            _ => {}
        }
    }
}
