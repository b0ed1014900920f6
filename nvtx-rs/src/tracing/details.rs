//! The `nvtx.*` fields of spans and events.

use std::fmt::Debug;

use tracing_core::Metadata;
use tracing_core::field::{Field, Visit};
use tracing_core::span::Record;

use crate::category::Category;
use crate::color::Color;
use crate::event::Event;
use crate::observer::Token;
use crate::payload::Payload;

pub(super) const COLOR: &str = "nvtx.color";
pub(super) const CATEGORY: &str = "nvtx.category";
pub(super) const PAYLOAD: &str = "nvtx.payload";

/// True if spans of this call site have `nvtx.*` fields.
#[inline]
pub(super) fn are_in(metadata: &Metadata<'_>) -> bool {
    metadata.fields().iter().any(|field| is_ours(&field))
}

/// True if one of the values is of an `nvtx.*` field. Formats none of them.
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

/// True if spans of this call site have other fields.
pub(super) fn are_others_in(metadata: &Metadata<'_>) -> bool {
    metadata.fields().iter().any(|field| !is_ours(&field))
}

#[inline]
fn is_ours(field: &Field) -> bool {
    [COLOR, CATEGORY, PAYLOAD].contains(&field.name())
}

/// The details of a range or mark.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Details {
    pub(super) color: Option<Color>,
    pub(super) category: Option<Category>,
    pub(super) payload: Option<Payload>,
    /// The life of the span, if the range is an activation of it.
    pub(super) within: Option<Token>,
}

impl Details {
    /// Later values replace earlier ones.
    pub(super) fn update(&mut self, later: Details) {
        self.color = later.color.or(self.color);
        self.category = later.category.or(self.category);
        self.payload = later.payload.or(self.payload);
    }

    pub(super) fn describe(self, mut event: Event<'_>) -> Event<'_> {
        event.color = self.color.or(event.color);
        event.category = self.category.or(event.category);
        event.payload = self.payload.or(event.payload);
        event.within = self.within;
        event
    }
}
