//! Spans of `tracing` as ranges.
//!
//! A span can be entered and left many times, an async one at each poll on any thread. Each entry
//! is a range of its thread. A span stores its data, so that all entries are recorded alike.
//!
//! Without a tool and an observer an entry is one load. Otherwise a call site's data is created
//! once and found in a thread-local table, so that entering and leaving take no lock. Only a span
//! with fields or a number reads them from its extensions, under their shared lock.

mod coverage;
mod details;
mod entries;
mod fields;
mod instances;
mod kept;
mod place;

use std::cell::Cell;
use std::sync::Arc;

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

pub use self::coverage::SpanCoverage;
use self::details::Details;
use self::entries::Described;
use self::fields::Fields;
use self::instances::{Instance, Numbers};
use self::kept::KeptFields;
pub use self::kept::SpanFields;
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
/// - A span is a range of the thread while it is entered; its name is the range's, its target the
///   domain.
/// - An event is a mark, with its message, in the domain of its target.
/// - The range or mark has the fields `nvtx.color` (0xRRGGBB, or 0xAARRGGBB with a nonzero alpha),
///   `nvtx.category` (a string, or a value with `%`) and `nvtx.payload` (a number or a bool).
///   Values of other types are ignored. A value recorded later applies from the next entry on. Each
///   distinct category name stays in memory until the process ends: use a few names, not values.
/// - With [`fields`](Self::fields), other fields of spans are fields of their ranges.
/// - Spans of one name are one row of a profile; with [`instances`](Self::instances) they are
///   numbered.
/// - Spans may be left out of order. NVTX's ranges nest, so the ranges of later entries are ended
///   and started again around the one that ends.
///
/// Filters apply as to other layers, and several subscribers or layers have separate spans. A layer
/// that is removed while a thread is in a span ([`reload`](tracing_subscriber::reload)) does not
/// receive the exit: the range ends with the thread. Without the feature `enable` the layer does
/// nothing.
///
/// # Cost
///
/// Without a tool and an observer an entry and its exit cost 2 ns more than a layer that does
/// nothing. A span stores its `nvtx.*` fields in any case, for a tool or observer that is active
/// when the span is entered.
///
/// Otherwise an entry and its exit cost about 50 ns more than the range, mostly for the registry's
/// look-up of the span. They allocate only at a thread's first visit of the call site and at a new
/// depth. They take no lock, except a span's extension lock for `nvtx.*` fields, which waits for a
/// layer that writes on another thread.
#[derive(Clone, Debug)]
#[must_use]
pub struct NvtxLayer {
    domains: bool,
    lifetimes: bool,
    marks: bool,
    fields: SpanFields,
    instances: bool,
    numbers: Arc<Numbers>,
    coverage: Option<SpanCoverage>,
}

impl NvtxLayer {
    /// Creates a layer whose domains are targets and that records events as marks. It does not
    /// record lives, fields and numbers of spans.
    pub fn new() -> NvtxLayer {
        NvtxLayer {
            domains: true,
            lifetimes: false,
            marks: true,
            fields: SpanFields::None,
            instances: false,
            numbers: Arc::default(),
            coverage: None,
        }
    }

    setters! {
        /// Sets whether each target is a domain; otherwise all events are in the default one.
        domains(wanted: bool) domains = wanted;
        /// Sets whether the life of a span, from creation to close, is also a range of the process.
        lifetimes(wanted: bool) lifetimes = wanted;
        /// Sets whether events are recorded as marks.
        marks(wanted: bool) marks = wanted;
        /// Selects the fields of spans that are fields of their ranges, for the observer; none by
        /// default. A value that is recorded within an entry is a field of that range and of later
        /// ones. Spans with such fields store them even without a tool and an observer, with an
        /// allocation for each text and one for all. The range of a span's life has the fields of
        /// its creation.
        fields(wanted: SpanFields) fields = wanted;
        /// Sets whether living spans of one name on the same path are distinguished by numbers,
        /// such as `layer 0` to `layer 5`.
        ///
        /// Intended for spans that are created with the modules of a model and entered at each
        /// pass. Each gets a number at its first entry, which is free again after its close. A span
        /// that is entered right after its creation, such as a step's, retains the plain name. So
        /// does a span that is alone in its outer span. On a path, 1,024 spans of one name get
        /// numbers. A span's creation takes a lock and an allocation.
        instances(wanted: bool) instances = wanted;
    }

    /// Records the call sites whose spans the layer receives; see [`SpanCoverage`]. Costs 5 ns an
    /// entry.
    pub fn coverage(&mut self) -> SpanCoverage {
        self.coverage.get_or_insert_with(SpanCoverage::new).clone()
    }

    /// Identifies this layer among those of a span, by its address, which is stable while its spans
    /// live.
    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn place(&self, metadata: &'static Metadata<'static>) -> &'static Place {
        Place::for_callsite(metadata, self.domains)
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
    fields: KeptFields,
    instance: Instance,
    /// The life of the span; it ends when this is dropped.
    life: Option<ProcessRange>,
}

impl Keeps {
    fn get(&self, layer: usize) -> Option<&Keep> {
        self.0.iter().find(|keep| keep.layer == layer)
    }

    fn get_mut(&mut self, layer: usize) -> Option<&mut Keep> {
        self.0.iter_mut().find(|keep| keep.layer == layer)
    }
}

thread_local! {
    /// The buffer for messages of events, reused.
    static MESSAGE: Cell<String> = const { Cell::new(String::new()) };
}

/// The largest message buffer that a thread retains, in bytes.
const LONGEST_KEPT: usize = 4096;

// The code of an active layer, out of line, so that an idle one costs a branch.
impl NvtxLayer {
    /// True if spans of a site store fields other than `nvtx.*`.
    fn keeps_fields(&self, has_fields: bool) -> bool {
        has_fields && self.fields != SpanFields::None
    }

    #[cold]
    #[inline(never)]
    fn keep<S>(&self, attributes: &Attributes<'_>, id: &Id, context: &Context<'_, S>)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let Some(span) = context.span(id) else { return };
        let place = self.place(attributes.metadata());
        let mut fields = Fields::of_span(place, self.fields);
        attributes.record(&mut fields);
        let Fields { details, kept: fields, .. } = fields;
        let life = self.lifetimes.then(|| place.process_range(details, &fields));
        if self.instances {
            self.numbers.created(self.number(), id.into_u64(), place);
        }
        let instance = Instance::New;
        let keep = Keep { layer: self.number(), details, fields, instance, life };
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
        let mut fields = Fields::of_span(self.place(span.metadata()), self.fields);
        values.record(&mut fields);
        if let Some(keeps) = span.extensions_mut().get_mut::<Keeps>()
            && let Some(keep) = keeps.get_mut(self.number())
        {
            keep.details.update(fields.details);
            keep.fields.update(&fields.kept);
        }
    }

    #[cold]
    #[inline(never)]
    fn enter<S>(&self, id: &Id, context: &Context<'_, S>)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let Some(span) = context.span(id) else { return };
        if let Some(coverage) = &self.coverage {
            coverage.entered(span.metadata());
        }
        let place = self.place(span.metadata());
        let mut described = Described { place, details: None, fields: KeptFields::default() };
        let keeps_fields = self.keeps_fields(place.has_fields);
        if place.has_details || keeps_fields || self.lifetimes || self.instances {
            let extensions = span.extensions();
            if let Some(keep) = extensions.get::<Keeps>().and_then(|keeps| keeps.get(self.number()))
            {
                let mut details = keep.details;
                details.within = keep.life.as_ref().and_then(ProcessRange::observed);
                described.details = Some(details);
                described.fields = keep.fields.clone();
                match &keep.instance {
                    Instance::Numbered { place, .. } => described.place = place,
                    Instance::New if self.instances => {
                        drop(extensions);
                        described.place = self.first_entry(&span, id, place);
                    }
                    _ => {}
                }
            }
        }
        entries::enter(self.number(), id, Some(described));
    }

    /// The path node of a span that is entered for the first time.
    fn first_entry<'a, S>(
        &self,
        span: &SpanRef<'a, S>,
        id: &Id,
        place: &'static Place,
    ) -> &'static Place
    where
        S: for<'b> LookupSpan<'b>,
    {
        let path = entries::path(self.number());
        let found = self.numbers.first_entry(self.number(), id.into_u64(), place, path);
        // Not under the lock of the numbers, which a close takes after this one.
        let mut extensions = span.extensions_mut();
        let keep = extensions.get_mut::<Keeps>().and_then(|keeps| keeps.get_mut(self.number()));
        let Some(keep) = keep else { return place };
        let others = match &keep.instance {
            Instance::New => std::mem::replace(&mut keep.instance, found),
            // Another thread was faster.
            _ => found,
        };
        let place = match &keep.instance {
            Instance::Numbered { place, .. } => place,
            _ => place,
        };
        drop(extensions);
        self.numbers.release(place.name, others);
        place
    }

    #[cold]
    #[inline(never)]
    fn exit<S>(&self, id: &Id, context: &Context<'_, S>)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        entries::exit(self.number(), id, |known| {
            let Some(span) = context.span(id).filter(|_| self.fields != SpanFields::None) else {
                return KeptFields::default();
            };
            let extensions = span.extensions();
            let keep = extensions.get::<Keeps>().and_then(|keeps| keeps.get(self.number()));
            keep.map(|keep| keep.fields.changes_since(known)).unwrap_or_default()
        });
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
        let keep = extensions.get_mut::<Keeps>().and_then(|keeps| keeps.get_mut(self.number()));
        let Some(keep) = keep else { return };
        let (life, instance) = (keep.life.take(), std::mem::take(&mut keep.instance));
        // The end is sent to tools and observers, which must not run under the lock.
        drop(extensions);
        drop(life);
        if self.instances {
            self.numbers.closed(self.place(span.metadata()).name, instance);
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for NvtxLayer {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if let Some(coverage) = &self.coverage {
            coverage.registered(metadata);
        }
        Interest::always()
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let metadata = attributes.metadata();
        if let Some(coverage) = &self.coverage {
            coverage.created(metadata);
        }
        // Details are stored even without a tool or observer: one may be active when the span is
        // entered.
        if self.lifetimes && is_active()
            || self.instances
            || details::are_in(metadata)
            || self.keeps_fields(!metadata.fields().is_empty())
        {
            self.keep(attributes, id, &context);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if self.fields != SpanFields::None || details::are_recorded(values) {
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
        if self.instances {
            instances::moved_on();
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        if entries::any() {
            self.exit(id, &context);
        }
        if self.instances {
            instances::moved_on();
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if self.marks && is_active() {
            self.mark(event);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        if self.lifetimes || self.instances {
            self.close(&id, &context);
        }
    }
}
