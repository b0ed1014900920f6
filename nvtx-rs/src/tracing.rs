//! Spans of `tracing` as ranges.
//!
//! A span is entered and left many times: an async one at each poll, on any thread. Each entry is a range of its thread. A span
//! keeps its data when it is left, so that every entry is recorded as the first.
//!
//! Where nobody looks, a load says so before anything is looked up. Where somebody does, what a call site needs is made
//! once and found again in a table of the thread's own, so that entering and leaving take no lock; only a span with
//! `nvtx.*` fields reads them from its extensions, under their lock, which readers share.

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
use crate::range::ProcessRange;

/// A layer that makes ranges of spans and marks of events.
///
/// ```
/// use tracing_subscriber::prelude::*;
///
/// tracing_subscriber::registry().with(nvtx::NvtxLayer::new()).init();
/// ```
///
/// - A span is a range of the thread while it is entered; its name is the range's, its target the domain.
/// - An event is a mark, with its message, in the domain of its target.
/// - The fields `nvtx.color` (0xRRGGBB, or 0xAARRGGBB with an alpha that is not 0), `nvtx.category` (a string, or what is
///   shown with `%`) and `nvtx.payload` (a number or a bool) go to the range or mark. A value of another kind is left out.
///   One that is recorded later counts from the next entry on. Every distinct category's name is kept for the life of
///   the process: it is for a handful of names, not for values.
/// - Spans that are left in another order than they were entered are recorded correctly: NVTX's ranges nest, so those entered since
///   are ended and begun again around the one that ends.
///
/// It composes with filters as other layers do, and subscribers, or layers of one subscriber, do not mix their spans. A
/// layer that is taken out while a thread is in a span ([`reload`](tracing_subscriber::reload)) is not told of the exit:
/// that range ends with the thread. With the feature `enable` off it is a layer that does nothing.
///
/// # Cost
///
/// With no tool and no observer an entry or an exit is a load or two: 2 ns for both above a layer that does nothing. A
/// span without `nvtx.*` fields costs nothing else; of one that has them they are kept, for somebody may look when it is
/// entered.
///
/// Where somebody looks, an entry and its exit cost some 50 ns above the range itself, mostly to find the span in the
/// registry. Nothing is allocated once a thread was at the call site, and as deep in spans. No lock is taken either, but
/// for the one of a span's extensions, to read `nvtx.*` fields: it waits for a layer that writes there on another thread.
#[derive(Clone, Debug)]
#[must_use]
pub struct NvtxLayer {
    domains: bool,
    lifetimes: bool,
    marks: bool,
}

impl NvtxLayer {
    /// Targets are domains, events are marks, and lives of spans are not ranges.
    pub fn new() -> NvtxLayer {
        NvtxLayer { domains: true, lifetimes: false, marks: true }
    }

    /// Whether each target is a domain of its own; otherwise all is in the default one.
    pub fn domains(mut self, wanted: bool) -> NvtxLayer {
        self.domains = wanted;
        self
    }

    /// Whether the life of a span, from its making to its close, is a range of the process too.
    pub fn lifetimes(mut self, wanted: bool) -> NvtxLayer {
        self.lifetimes = wanted;
        self
    }

    /// Whether events are marks.
    pub fn marks(mut self, wanted: bool) -> NvtxLayer {
        self.marks = wanted;
        self
    }

    /// Tells this layer from others, which a span may have too; a layer stays where it is while its spans live.
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

/// The data that the layers keep in a span's extensions.
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
    /// Where the message of an event is written, so that the next one need not allocate.
    static MESSAGE: Cell<String> = const { Cell::new(String::new()) };
}

/// The longest buffer for messages that a thread keeps, in bytes.
const LONGEST_KEPT: usize = 4096;

// The work of an active layer. Out of line, so that an idle one costs a branch.
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
        // Before the lock: a value's own code runs here.
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
        // Taken, not borrowed: a value's own code may make events too.
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
        // Its end goes to tools and observers, which are not to run under the lock.
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
