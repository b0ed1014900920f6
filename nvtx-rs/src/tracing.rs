//! Spans of `tracing` as ranges.
//!
//! A span is entered and left many times: an async one at each poll, on whatever thread. Each stay is a range of the
//! thread it is on. Nothing of a span is taken away when it is left, so that the next stay is seen as the first was.
//!
//! What a call site needs is made once, and found again in a table of the thread's own, so that entering and leaving
//! take no lock; only a span with `nvtx.*` fields reads them from its extensions.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use tracing_core::callsite::Identifier;
use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::__private::{CallSite, is_active};
use crate::{Color, Domain, Payload, ProcessRange, Range};

const COLOR: &str = "nvtx.color";
const CATEGORY: &str = "nvtx.category";
const PAYLOAD: &str = "nvtx.payload";

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
/// - The fields `nvtx.color` (0xRRGGBB, or 0xAARRGGBB with an alpha that is not 0), `nvtx.category` (a string) and
///   `nvtx.payload` (a number or a bool) go to the range or mark; a value that is recorded later counts from the next
///   entry on.
/// - Spans that are left in another order than they were entered stay right: NVTX's ranges nest, so those entered since
///   are ended and begun again around the one that ends.
///
/// It composes with filters as other layers do. With no tool and no observer an entry costs a load; the feature `enable`
/// off makes it a layer that does nothing.
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

    /// The place of this metadata, from the thread's table or, the first time on a thread, the process's.
    fn place(&self, metadata: &'static Metadata<'static>) -> &'static Place {
        let key = (std::ptr::from_ref(metadata) as usize, self.domains);
        let known = PLACES.try_with(|places| places.try_borrow().ok()?.get(&key).copied());
        if let Ok(Some(place)) = known {
            return place;
        }
        let place = Place::of(metadata, self.domains);
        let _ = PLACES.try_with(|places| {
            if let Ok(mut places) = places.try_borrow_mut() {
                places.insert(key, place);
            }
        });
        place
    }
}

impl Default for NvtxLayer {
    fn default() -> NvtxLayer {
        NvtxLayer::new()
    }
}

/// What is known of a call site of `tracing`; made once and kept, as the call site itself is.
#[derive(Debug)]
struct Place {
    site: CallSite,
    domain: Option<&'static Domain>,
    /// It has a field for us, so that its spans keep details.
    has_details: bool,
}

impl Place {
    fn of(metadata: &'static Metadata<'static>, domains: bool) -> &'static Place {
        type Places = Mutex<HashMap<(Identifier, bool), &'static Place>>;
        static ALL: OnceLock<Places> = OnceLock::new();
        let all = ALL.get_or_init(Places::default);
        let key = (metadata.callsite(), domains);
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(key).or_insert_with(|| {
            let domain = domains.then(|| domain(metadata.target()));
            let name = metadata.name();
            let site = match domain {
                Some(domain) => CallSite::in_domain(name, domain),
                None => CallSite::new(name),
            };
            let is_ours = |field: Field| [COLOR, CATEGORY, PAYLOAD].contains(&field.name());
            let has_details = metadata.fields().iter().any(is_ours);
            Box::leak(Box::new(Place { site, domain, has_details }))
        })
    }
}

/// The domain of a target; tools take two of one name for different ones.
fn domain(target: &'static str) -> &'static Domain {
    static ALL: OnceLock<Mutex<HashMap<&'static str, &'static Domain>>> = OnceLock::new();
    let mut all = ALL.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    all.entry(target).or_insert_with(|| Box::leak(Box::new(Domain::new(target))))
}

/// What `nvtx.*` fields say.
#[derive(Clone, Debug, Default)]
struct Details {
    color: Option<Color>,
    category: Option<Box<str>>,
    payload: Option<Payload>,
}

impl Details {
    fn number(&mut self, field: &Field, payload: Payload, color: Option<u64>) {
        match field.name() {
            PAYLOAD => self.payload = Some(payload),
            COLOR => {
                let argb = color.and_then(|value| u32::try_from(value).ok());
                self.color = argb.map(|argb| {
                    // Without an alpha it would be invisible.
                    Color::from_argb(if argb >> 24 == 0 { argb | 0xff00_0000 } else { argb })
                });
            }
            _ => {}
        }
    }

    fn describe<'a>(&'a self, place: &'static Place, event: crate::Event<'a>) -> crate::Event<'a> {
        let mut event = event;
        if let Some(color) = self.color {
            event = event.color(color);
        }
        if let Some(category) = &self.category {
            event = event.category(match place.domain {
                Some(domain) => domain.category(category),
                None => crate::category(category),
            });
        }
        if let Some(payload) = self.payload {
            event = event.payload(payload);
        }
        event
    }
}

impl Visit for Details {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.number(field, value.into(), None);
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.number(field, value.into(), u64::try_from(value).ok());
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.number(field, value.into(), Some(value));
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.number(field, u32::from(value).into(), None);
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == CATEGORY {
            self.category = Some(value.into());
        }
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == CATEGORY {
            self.category = Some(format!("{value:?}").into());
        }
    }
}

/// An event's message, with its details.
#[derive(Default)]
struct Message {
    text: String,
    details: Details,
}

impl Visit for Message {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.details.record_f64(field, value);
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.details.record_i64(field, value);
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.details.record_u64(field, value);
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.details.record_bool(field, value);
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.text),
            _ => self.details.record_str(field, value),
        }
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.text = format!("{value:?}"),
            _ => self.details.record_debug(field, value),
        }
    }
}

/// The life of a span, in its extensions.
struct Life(#[allow(dead_code, reason = "it ends when it is dropped")] ProcessRange);

/// A span that this thread is in.
struct Stay {
    span: u64,
    /// `None` for the moment in which it is begun again.
    range: Option<Range>,
}

/// The spans that a thread is in, outermost first.
#[derive(Default)]
struct Stays(Vec<Stay>);

impl Drop for Stays {
    /// A thread that ends within spans leaves the innermost first.
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

thread_local! {
    static PLACES: RefCell<HashMap<(usize, bool), &'static Place>> = RefCell::default();
    static STAYS: RefCell<Stays> = RefCell::default();
}

impl NvtxLayer {
    fn begin<S>(&self, id: &Id, context: &Context<'_, S>) -> Option<Range>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let span = context.span(id)?;
        let place = self.place(span.metadata());
        if place.has_details
            && let Some(details) = span.extensions().get::<Details>()
        {
            return Some(place.site.range_with(|event| details.describe(place, event)));
        }
        Some(place.site.range())
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for NvtxLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let place = self.place(attributes.metadata());
        if !place.has_details && !self.lifetimes {
            return;
        }
        let Some(span) = context.span(id) else { return };
        let mut details = Details::default();
        attributes.record(&mut details);
        if self.lifetimes && is_active() {
            let life = place.site.process_range_with(|event| details.describe(place, event));
            span.extensions_mut().insert(Life(life));
        }
        if place.has_details {
            span.extensions_mut().insert(details);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(details) = span.extensions_mut().get_mut::<Details>()
        {
            values.record(details);
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if !is_active() {
            return;
        }
        let range = self.begin(id, &context);
        let _ = STAYS.try_with(|stays| {
            if let Ok(mut stays) = stays.try_borrow_mut() {
                stays.0.push(Stay { span: id.into_u64(), range });
            }
        });
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let _ = STAYS.try_with(|stays| {
            let Ok(mut stays) = stays.try_borrow_mut() else { return };
            let stays = &mut stays.0;
            let Some(place) = stays.iter().rposition(|stay| stay.span == id.into_u64()) else {
                return;
            };
            if place + 1 == stays.len() {
                stays.pop();
                return;
            }
            // Not the innermost: NVTX ends ranges from the inside, so those within end and begin again.
            for stay in stays[place..].iter_mut().rev() {
                stay.range = None;
            }
            stays.remove(place);
            for stay in &mut stays[place..] {
                stay.range = self.begin(&Id::from_u64(stay.span), &context);
            }
        });
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !self.marks || !is_active() {
            return;
        }
        let place = self.place(event.metadata());
        let mut message = Message::default();
        event.record(&mut message);
        let name = if message.text.is_empty() { event.metadata().name() } else { &message.text };
        let mark = match place.domain {
            Some(domain) => domain.event(name),
            None => crate::event(name),
        };
        message.details.describe(place, mark).mark();
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        // Its life ends with its extensions; a span that is closed while it is entered keeps its stays.
        if self.lifetimes
            && let Some(span) = context.span(&id)
        {
            span.extensions_mut().remove::<Life>();
        }
    }
}
