//! What the `nvtx.*` fields of spans and events say.

use std::fmt::{Debug, Write};

use tracing_core::Metadata;
use tracing_core::field::{Field, Visit};
use tracing_core::span::Record;

use super::place::Place;
use crate::observer::Token;
use crate::{Category, Color, Event, Payload};

const COLOR: &str = "nvtx.color";
const CATEGORY: &str = "nvtx.category";
const PAYLOAD: &str = "nvtx.payload";
/// What `tracing` calls the text of an event.
const MESSAGE: &str = "message";

/// Whether spans of this call site have fields for us.
#[inline]
pub(super) fn are_in(metadata: &Metadata<'_>) -> bool {
    metadata.fields().iter().any(|field| is_ours(&field))
}

/// Whether one of the values is for us; none of them is formatted for that.
pub(super) fn are_recorded(values: &Record<'_>) -> bool {
    struct Ours(bool);
    impl Visit for Ours {
        fn record_debug(&mut self, field: &Field, _: &dyn Debug) {
            self.0 |= is_ours(field);
        }
    }
    let mut ours = Ours(false);
    values.record(&mut ours);
    ours.0
}

#[inline]
fn is_ours(field: &Field) -> bool {
    [COLOR, CATEGORY, PAYLOAD].contains(&field.name())
}

/// The details of a range or mark.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Details {
    color: Option<Color>,
    category: Option<Category>,
    payload: Option<Payload>,
    /// The life of the span that the range is a stay in.
    pub(super) within: Option<Token>,
}

impl Details {
    /// What was said later counts.
    pub(super) fn update(&mut self, later: Details) {
        self.color = later.color.or(self.color);
        self.category = later.category.or(self.category);
        self.payload = later.payload.or(self.payload);
    }

    pub(super) fn describe(self, mut event: Event<'_>) -> Event<'_> {
        if let Some(color) = self.color {
            event = event.color(color);
        }
        if let Some(category) = self.category {
            event = event.category(category);
        }
        if let Some(payload) = self.payload {
            event = event.payload(payload);
        }
        event.within = self.within;
        event
    }
}

/// Reads fields. A value of a kind that its field does not take is as none.
#[derive(Debug)]
pub(super) struct Fields {
    place: &'static Place,
    pub(super) details: Details,
    /// Of an event: it is written to the end of this.
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
        // A value that fails to format itself is cut where it fails; `format!` would panic.
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
