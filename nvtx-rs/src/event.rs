//! The description of an event, before it becomes a range or a mark.

use crate::accessors::setters;
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

/// The description of an event. [`range`](Event::range), [`process_range`](Event::process_range)
/// and [`mark`](Event::mark) record it.
///
/// Without a tool and an observer nothing is computed from it. The macros, such as
/// [`range!`](crate::range!), do not evaluate the arguments either.
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

    setters! {
        /// Sets the colour.
        color(color: Color) color = Some(color);
        /// Sets the category, which must be of the event's domain.
        category(category: Category) category = Some(category);
        /// Sets a record, for the observer and tools with support for schemas. A tool receives it
        /// only if the schema is of the event's domain.
        record(record: &'a Record) record = Some(record);
    }

    /// Sets the payload, a number.
    #[inline]
    pub fn payload(mut self, payload: impl Into<Payload>) -> Event<'a> {
        self.payload = Some(payload.into());
        self
    }

    /// Sets the named values, for the observer, replacing earlier ones. Does not allocate.
    #[inline]
    pub fn fields(mut self, fields: &'a [Field<'a>]) -> Event<'a> {
        self.fields = Fields::new(fields);
        self
    }

    /// Adds a named value, for the observer. Allocates if a tool or observer is active, unlike
    /// [`fields`](Event::fields).
    #[inline]
    pub fn field(
        mut self,
        name: &'a str,
        value: impl Into<FieldValue<'a>>,
        unit: &'a str,
    ) -> Event<'a> {
        if !state::is_idle() {
            // By value, so that an event that is not recorded stays in registers.
            self.fields = self.fields.with_last(Field::new(name, value, unit));
        }
        self
    }

    /// Sets the number of operations: the field `flops`, for rooflines. A multiply-add is two.
    ///
    /// A tool with support for schemas receives operations, bytes and type as a payload, unless the
    /// event has a [`record`](Event::record). Compute the product of sizes in `u64` or `f64`.
    #[inline]
    pub fn flops(self, flops: impl Into<FieldValue<'a>>) -> Event<'a> {
        self.field(work::FLOPS, flops, work::FLOP)
    }

    /// Sets the bytes to read from and write to device memory: the field `bytes`.
    #[inline]
    pub fn bytes(self, bytes: impl Into<FieldValue<'a>>) -> Event<'a> {
        self.field(work::BYTES, bytes, work::BYTE)
    }

    /// Sets the number type, a [`Dtype`](crate::Dtype) or its name: the field `dtype`.
    #[inline]
    pub fn dtype(self, dtype: impl Into<FieldValue<'a>>) -> Event<'a> {
        self.field(work::DTYPE, dtype, "")
    }

    /// Sets the execution units, a [`Pipe`](crate::Pipe) or its name: the field `pipe`.
    #[inline]
    pub fn pipe(self, pipe: impl Into<FieldValue<'a>>) -> Event<'a> {
        self.field(work::PIPE, pipe, "")
    }

    /// Sets the fields that the work has: operations, bytes, type and units.
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
                self.fields = self.fields.with_last(field);
            }
        }
        self
    }

    /// Converts the event to the form that observers receive.
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
