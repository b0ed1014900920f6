//! The description of an event, before it becomes a range or a mark.

use crate::category::Category;
use crate::color::Color;
use crate::domain::DomainRef;
use crate::field::{Field, FieldValue, Fields};
use crate::observer::RangeStart;
use crate::observer::Token;
use crate::payload::Payload;
use crate::schema::Record;
use crate::state;
use crate::sys::types::Handle;
use crate::work::{self, Work};

/// What is known of an event. It becomes a [`range`](Event::range), a
/// [`process_range`](Event::process_range) or a [`mark`](Event::mark); till then nothing happened.
///
/// With no tool and no observer nothing is computed from it. To keep even the arguments from being
/// computed use the macros, as [`range!`](crate::range!).
///
/// ```
/// use nvtx::Color;
///
/// let _range = nvtx::event("matmul")
///     .color(Color::GREEN)
///     .payload(12u64)
///     .field("flops", 2e9, "flop")
///     .range();
/// ```
#[must_use = "nothing happens until `range`, `process_range` or `mark` is called"]
#[derive(Clone, Debug)]
pub struct Event<'a> {
    pub(crate) name: &'a str,
    pub(crate) registered: Option<Handle>,
    pub(crate) domain: DomainRef<'a>,
    pub(crate) color: Option<Color>,
    pub(crate) category: Option<Category>,
    pub(crate) payload: Option<Payload>,
    pub(crate) fields: Fields<'a>,
    pub(crate) record: Option<&'a Record>,
    pub(crate) within: Option<Token>,
}

impl<'a> Event<'a> {
    #[inline]
    pub(crate) fn in_domain(domain: DomainRef<'a>, name: &'a str) -> Event<'a> {
        Event::registered(domain, name, None)
    }

    #[inline]
    pub(crate) fn registered(
        domain: DomainRef<'a>,
        name: &'a str,
        registered: Option<Handle>,
    ) -> Event<'a> {
        Event {
            name,
            registered,
            domain,
            color: None,
            category: None,
            payload: None,
            fields: Fields::NONE,
            record: None,
            within: None,
        }
    }

    /// The colour that a tool draws it in.
    #[inline]
    pub fn color(mut self, color: Color) -> Event<'a> {
        self.color = Some(color);
        self
    }

    /// The group that it belongs to, which is one of its domain.
    #[inline]
    pub fn category(mut self, category: Category) -> Event<'a> {
        self.category = Some(category);
        self
    }

    /// A number that goes with it.
    #[inline]
    pub fn payload(mut self, payload: impl Into<Payload>) -> Event<'a> {
        self.payload = Some(payload.into());
        self
    }

    /// Its named values, for the observer; they take the place of earlier ones. This needs no heap.
    #[inline]
    pub fn fields(mut self, fields: &'a [Field<'a>]) -> Event<'a> {
        self.fields = Fields::of(fields);
        self
    }

    /// One more named value, for the observer. It goes to the heap if a tool or observer is active; for none of it
    /// see [`fields`](Event::fields).
    #[inline]
    pub fn field(
        mut self,
        name: &'a str,
        value: impl Into<FieldValue<'a>>,
        unit: &'a str,
    ) -> Event<'a> {
        if !state::is_idle() {
            // By value: an event that is not recorded can then stay in registers.
            self.fields = self.fields.with(Field::new(name, value, unit));
        }
        self
    }

    /// How many operations it does: a field `flops`, from which a roofline is made. A multiply-add is two.
    ///
    /// A tool that knows schemas gets operations, bytes and type as a payload, unless the event has a
    /// [`record`](Event::record).
    ///
    /// Sizes multiply fast: compute it in `u64` or `f64`.
    #[inline]
    pub fn flops(self, flops: impl Into<FieldValue<'a>>) -> Event<'a> {
        self.field(work::FLOPS, flops, work::FLOP)
    }

    /// How many bytes it has to read from the device's memory and write to it: a field `bytes`.
    #[inline]
    pub fn bytes(self, bytes: impl Into<FieldValue<'a>>) -> Event<'a> {
        self.field(work::BYTES, bytes, work::BYTE)
    }

    /// The type of the numbers that it works on, a [`Dtype`](crate::Dtype) or its name: a field `dtype`.
    #[inline]
    pub fn dtype(self, dtype: impl Into<FieldValue<'a>>) -> Event<'a> {
        self.field(work::DTYPE, dtype, "")
    }

    /// The units that do it, a [`Pipe`](crate::Pipe) or its name: a field `pipe`.
    #[inline]
    pub fn pipe(self, pipe: impl Into<FieldValue<'a>>) -> Event<'a> {
        self.field(work::PIPE, pipe, "")
    }

    /// Operations, bytes, type and units at once, as far as the work says them.
    ///
    /// ```
    /// use nvtx::{Dtype, Work};
    ///
    /// let _range = nvtx::event("scores").work(Work::gemm(64, 64, 128, Dtype::Bf16).times(12)).range();
    /// ```
    #[inline]
    pub fn work(mut self, work: Work) -> Event<'a> {
        if !state::is_idle() {
            for field in work.fields() {
                self.fields = self.fields.with(field);
            }
        }
        self
    }

    /// A record of several values, for tools that know schemas and for the observer. Its schema is one
    /// of the event's domain; with an event of another, a tool gets none.
    #[inline]
    pub fn record(mut self, record: &'a Record) -> Event<'a> {
        self.record = Some(record);
        self
    }

    /// What an observer sees of it.
    pub(crate) fn start(&self) -> RangeStart<'_> {
        let mut start = RangeStart::new(self.name);
        start.domain = self.domain.name();
        start.category = self.category;
        start.color = self.color;
        start.payload = self.payload;
        start.fields = self.fields.as_slice();
        start.record = self.record;
        start.within = self.within;
        start
    }
}

/// Describes an event of the default domain.
#[inline]
pub fn event(name: &str) -> Event<'_> {
    Event::in_domain(DomainRef::Default, name)
}
