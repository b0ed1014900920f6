//! Spans of `tracing` as ranges.
//!
//! A span can be entered and left many times, an async one at each poll on any thread. Each entry is a range of
//! its thread. A span keeps its data, so that all entries are recorded alike.
//!
//! Without a tool and an observer an entry is one load. Otherwise a call site's data is created once and
//! found in a thread-local table, so that entering and leaving take no lock. Only a span with `nvtx.*`
//! fields reads them from its extensions, under their shared lock.

mod details;
mod entries;
mod fields;
mod place;

use std::cell::Cell;

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use self::details::Details;
use self::fields::Fields;
use self::place::Place;
use crate::__private::is_active;
use crate::accessors::setters;
use crate::range::ProcessRange;

/// A layer that records spans as ranges and events as marks.
///
/// ```
/// use tracing_subscriber::prelude::*;
///
/// tracing_subscriber::registry().with(nvtx::NvtxLayer::new()).init();
/// ```
///
/// - A span is a range of the thread while it is entered; its name is the range's, its target the domain.
/// - An event is a mark, with its message, in the domain of its target.
/// - The range or mark has the fields `nvtx.color` (0xRRGGBB, or 0xAARRGGBB with a nonzero alpha), `nvtx.category`
///   (a string, or a value with `%`) and `nvtx.payload` (a number or a bool). Values of other types are ignored.
///   A value recorded later applies from the next entry on. Each distinct category name is kept until the
///   process ends: use a few names, not values.
/// - Spans may be left out of order. NVTX's ranges nest, so the ranges of later entries are ended and started
///   again around the one that ends.
///
/// Filters apply as to other layers, and several subscribers or layers keep their spans apart. A layer that is
/// removed while a thread is in a span ([`reload`](tracing_subscriber::reload)) does not receive the exit: the
/// range ends with the thread. Without the feature `enable` the layer does nothing.
///
/// # Cost
///
/// Without a tool and an observer an entry and its exit cost 2 ns more than a layer that does nothing. A span
/// keeps its `nvtx.*` fields in any case, for a tool or observer that is active when the span is entered.
///
/// Otherwise an entry and its exit cost about 50 ns more than the range, mostly for the registry's look-up of the
/// span. They allocate only at a thread's first visit of the call site and at a new depth. They take no lock,
/// except a span's extension lock for `nvtx.*` fields, which waits for a layer that writes on another thread.
#[derive(Clone, Debug)]
#[must_use]
pub struct NvtxLayer {
    domains: bool,
    lifetimes: bool,
    marks: bool,
}

impl NvtxLayer {
    /// A layer whose domains are targets, that records events as marks, and does not record lives of spans.
    pub fn new() -> NvtxLayer {
        NvtxLayer { domains: true, lifetimes: false, marks: true }
    }

    setters! {
        /// Whether each target is a domain; otherwise all events are in the default one.
        domains(wanted: bool) domains = wanted;
        /// Whether the life of a span, from creation to close, is a range of the process, too.
        lifetimes(wanted: bool) lifetimes = wanted;
        /// Whether events are recorded as marks.
        marks(wanted: bool) marks = wanted;
    }

    /// Identifies this layer among those of a span, by its address, which is stable while its spans live.
    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn place(&self, metadata: &'static Metadata<'static>) -> &'static Place {
        Place::of(metadata, self.domains)
    }
}

impl Default for NvtxLayer {
    fn default() -> NvtxLayer {
        NvtxLayer::new()
    }
}

/// The layers' data in a span's extensions.
struct Keeps(Vec<Keep>);

struct Keep {
    layer: usize,
    details: Details,
    /// The life of the span; it ends when this is dropped.
    life: Option<ProcessRange>,
}

impl Keeps {
    fn of(&self, layer: usize) -> Option<&Keep> {
        self.0.iter().find(|keep| keep.layer == layer)
    }

    fn of_mut(&mut self, layer: usize) -> Option<&mut Keep> {
        self.0.iter_mut().find(|keep| keep.layer == layer)
    }
}

thread_local! {
    /// The buffer for messages of events, reused.
    static MESSAGE: Cell<String> = const { Cell::new(String::new()) };
}

/// The largest message buffer that a thread keeps, in bytes.
const LONGEST_KEPT: usize = 4096;

// The code of an active layer, out of line, so that an idle one costs a branch.
impl NvtxLayer {
    #[cold]
    #[inline(never)]
    fn keep<S>(&self, attributes: &Attributes<'_>, id: &Id, context: &Context<'_, S>)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let Some(span) = context.span(id) else { return };
        let place = self.place(attributes.metadata());
        let mut fields = Fields::new(place);
        attributes.record(&mut fields);
        let details = fields.details;
        let life = self.lifetimes.then(|| place.process_range(details));
        let keep = Keep { layer: self.number(), details, life };
        let mut extensions = span.extensions_mut();
        match extensions.get_mut::<Keeps>() {
            Some(keeps) => keeps.0.push(keep),
            None => extensions.insert(Keeps(vec![keep])),
        }
    }

    #[cold]
    #[inline(never)]
    fn update<S>(&self, id: &Id, values: &Record<'_>, context: &Context<'_, S>)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let Some(span) = context.span(id) else { return };
        // Before the lock, since formatting a value runs foreign code.
        let mut fields = Fields::new(self.place(span.metadata()));
        values.record(&mut fields);
        if let Some(keeps) = span.extensions_mut().get_mut::<Keeps>()
            && let Some(keep) = keeps.of_mut(self.number())
        {
            keep.details.update(fields.details);
        }
    }

    #[cold]
    #[inline(never)]
    fn enter<S>(&self, id: &Id, context: &Context<'_, S>)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let Some(span) = context.span(id) else { return };
        let place = self.place(span.metadata());
        let details = if place.has_details || self.lifetimes {
            let extensions = span.extensions();
            let keep = extensions.get::<Keeps>().and_then(|keeps| keeps.of(self.number()));
            keep.map(|keep| {
                let mut details = keep.details;
                details.within = keep.life.as_ref().and_then(ProcessRange::observed);
                details
            })
        } else {
            None
        };
        entries::enter(self.number(), id, Some((place, details)));
    }

    #[cold]
    #[inline(never)]
    fn mark(&self, event: &Event<'_>) {
        let place = self.place(event.metadata());
        let mut fields = Fields::new(place);
        // Taken, not borrowed, since formatting a value may create events.
        fields.message = Some(MESSAGE.try_with(Cell::take).unwrap_or_default());
        event.record(&mut fields);
        let mut message = fields.message.unwrap_or_default();
        let name = if message.is_empty() { event.metadata().name() } else { &message };
        fields.details.describe(place.event(name)).mark();
        if message.capacity() <= LONGEST_KEPT {
            message.clear();
            let _ = MESSAGE.try_with(|kept| kept.set(message));
        }
    }

    #[cold]
    #[inline(never)]
    fn close<S>(&self, id: &Id, context: &Context<'_, S>)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        let keep = extensions.get_mut::<Keeps>().and_then(|keeps| keeps.of_mut(self.number()));
        let life = keep.and_then(|keep| keep.life.take());
        // The end is sent to tools and observers, which must not run under the lock.
        drop(extensions);
        drop(life);
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for NvtxLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        // Details are kept also without a tool or observer: one may be active when the span is entered.
        if self.lifetimes && is_active() || details::are_in(attributes.metadata()) {
            self.keep(attributes, id, &context);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if details::are_recorded(values) {
            self.update(id, values, &context);
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if is_active() {
            self.enter(id, &context);
        } else if entries::any() {
            // Otherwise the exit would end an earlier entry of the same span.
            entries::enter(self.number(), id, None);
        }
    }

    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        if entries::any() {
            entries::exit(self.number(), id);
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if self.marks && is_active() {
            self.mark(event);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        if self.lifetimes {
            self.close(&id, &context);
        }
    }
}
