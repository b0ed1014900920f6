//! Counters: values over time, which tools draw as counter tracks.

use std::sync::OnceLock;

use crate::accessors::setters;
use crate::domain::{Domain, DomainRef};
pub use crate::observer::Missing;
use crate::observer::{self, CounterSample, CounterValue};
use crate::schema::{Record, Schema};
use crate::state;
use crate::sys::functions;
use crate::sys::types::{
    CounterAttributes, CounterBatch, CounterSemantics, Handle, Semantics, TIME_SORTED,
    TimeSemantics, UNSORTED,
};
use crate::text::CStrings;
use crate::time::{Clock, Scope};

/// The flags for "has limits".
const LIMITS: u64 = 1 << 2 | 1 << 3;

/// The common part of counters and counter groups.
#[derive(Debug)]
struct Registration {
    name: &'static str,
    description: &'static str,
    unit: &'static str,
    domain: Option<&'static Domain>,
    scope: Scope,
    clock: Clock,
    id: OnceLock<Option<u64>>,
}

impl Registration {
    const fn new(name: &'static str) -> Registration {
        Registration {
            name,
            description: "",
            unit: "",
            domain: None,
            scope: Scope::PROCESS,
            clock: Clock::TOOL,
            id: OnceLock::new(),
        }
    }

    fn domain(&self) -> Handle {
        DomainRef::from_domain(self.domain).handle_or_null()
    }

    /// The tool's id; `None` without a tool that supports counters.
    fn id(
        &self,
        schema: impl FnOnce() -> Option<u64>,
        limits: Option<(i64, u64, u64)>,
    ) -> Option<u64> {
        if !state::has_tool() {
            return None;
        }
        *self.id.get_or_init(|| {
            let schema = schema()?;
            let mut strings = CStrings::new();
            let [name, description, unit] =
                [self.name, self.description, self.unit].map(|text| strings.add(text));
            let time = TimeSemantics::new(self.clock.number());
            let mut semantics = CounterSemantics::new(strings.get(unit), &time);
            if let Some(limits) = limits {
                (semantics.limit_type, semantics.min, semantics.max) = limits;
                semantics.flags = LIMITS;
            }
            let attributes = CounterAttributes {
                size: size_of::<CounterAttributes<'_>>(),
                schema,
                name: strings.get(name),
                description: strings.get(description),
                scope: self.scope.number(),
                semantics: Semantics::counter(&semantics),
                counter: 0,
            };
            functions::counter_register(self.domain(), &attributes).filter(|id| *id != 0)
        })
    }

    fn observed(&self, time: Option<i64>, value: CounterValue<'_>) {
        observer::counter(&CounterSample {
            name: self.name,
            domain: self.domain.map(Domain::name),
            unit: self.unit,
            time,
            value,
        });
    }

    fn missing(&self, id: Option<u64>, why: Missing) {
        if let Some(id) = id {
            let reason = match why {
                Missing::Zero => 0,
                Missing::Unchanged => 1,
                Missing::Unavailable => 2,
            };
            functions::counter_no_value(self.domain(), id, reason);
        }
        self.observed(None, CounterValue::Missing(why));
    }
}

macro_rules! described {
    () => {
        setters! {
            /// Sets the domain.
            in_domain(domain: &'static Domain) registration.domain = Some(domain);
            /// Sets a description.
            described(description: &'static str) registration.description = description;
            /// Sets the unit of the values, such as `B`.
            unit(unit: &'static str) registration.unit = unit;
            /// Sets the scope; this process by default.
            in_scope(scope: Scope) registration.scope = scope;
            /// Sets the clock of the times in batches; the tool's by default.
            clock(clock: Clock) registration.clock = clock;
        }
    };
}

/// A value over time, of `i64` or `f64`. Intended for a `static`.
///
/// ```
/// use nvtx::counter::Counter;
///
/// static LOSS: Counter<f64> = Counter::new("loss");
/// static MEMORY: Counter<i64> = Counter::new("memory").unit("B").limits(0, 80 << 30);
///
/// LOSS.sample(0.25);
/// MEMORY.sample(1 << 30);
/// ```
#[derive(Debug)]
#[must_use]
pub struct Counter<T> {
    registration: Registration,
    limits: Option<(T, T)>,
}

impl<T: Sample> Counter<T> {
    /// Records the current value.
    #[inline]
    pub fn sample(&self, value: T) {
        if !state::is_idle() {
            self.sample_now(value);
        }
    }

    #[cold]
    #[inline(never)]
    fn sample_now(&self, value: T) {
        if let Some(id) = self.id() {
            value.tell(self.registration.domain, id);
        }
        self.registration.observed(None, value.observed());
    }

    /// Records the absence of a value now.
    pub fn missing(&self, why: Missing) {
        if !state::is_idle() {
            self.registration.missing(self.id(), why);
        }
    }

    /// Records values with their times by the counter's [`clock`](Counter::clock). If the times do
    /// not ascend, the batch is flagged as unsorted.
    pub fn batch(&self, samples: &[(i64, T)]) {
        if state::is_idle() || samples.is_empty() {
            return;
        }
        if let Some(id) = self.id() {
            let times: Vec<i64> = samples.iter().map(|(time, _)| *time).collect();
            let values: Vec<u8> = samples.iter().flat_map(|(_, value)| value.bytes()).collect();
            let order = if times.is_sorted() { TIME_SORTED } else { UNSORTED };
            let batch = CounterBatch::new(id, &values, order, &times);
            functions::counter_batch(self.registration.domain(), &batch);
        }
        for (time, value) in samples {
            self.registration.observed(Some(*time), value.observed());
        }
    }

    fn id(&self) -> Option<u64> {
        let bits = |value: T| u64::from_ne_bytes(value.bytes());
        let limits = self.limits.map(|(min, max)| (T::LIMIT_TYPE, bits(min), bits(max)));
        self.registration.id(|| Some(T::TYPE), limits)
    }
}

impl<T: Copy> Counter<T> {
    /// A counter of the default domain.
    pub const fn new(name: &'static str) -> Counter<T> {
        Counter { registration: Registration::new(name), limits: None }
    }

    /// Sets the minimum and maximum value.
    pub const fn limits(mut self, min: T, max: T) -> Counter<T> {
        self.limits = Some((min, max));
        self
    }

    described!();
}

/// The types of a counter's values: `i64` and `f64`.
pub trait Sample: Copy + private::Sealed {}

impl Sample for i64 {}
impl Sample for f64 {}

mod private {
    use super::{CounterValue, Domain, DomainRef, functions};

    pub trait Sealed {
        const TYPE: u64;
        const LIMIT_TYPE: i64;
        fn tell(self, domain: Option<&'static Domain>, counter: u64);
        fn bytes(self) -> [u8; 8];
        fn observed(self) -> CounterValue<'static>;
    }

    macro_rules! sealed {
        ($($type:ident: $number:literal, $limit_type:literal, $variant:ident, $sample:ident;)*) => {$(
            impl Sealed for $type {
                const TYPE: u64 = $number;
                const LIMIT_TYPE: i64 = $limit_type;

                fn tell(self, domain: Option<&'static Domain>, counter: u64) {
                    functions::$sample(DomainRef::from_domain(domain).handle_or_null(), counter, self);
                }

                fn bytes(self) -> [u8; 8] {
                    self.to_ne_bytes()
                }

                fn observed(self) -> CounterValue<'static> {
                    CounterValue::$variant(self)
                }
            }
        )*};
    }
    sealed! {
        i64: 17, 1, I64, counter_sample_i64;
        f64: 44, 3, F64, counter_sample_f64;
    }
}

/// Counters that are sampled together as a record. Intended for a `static`.
///
/// ```
/// use nvtx::counter::CounterGroup;
/// use nvtx::schema::{Entry, EntryType, Schema};
///
/// static POOL: Schema = Schema::new(
///     "pool",
///     &[
///         Entry::new("used", EntryType::U64).counter(),
///         Entry::new("free", EntryType::U64).counter(),
///     ],
/// )
/// .counter_group();
/// static POOLS: CounterGroup = CounterGroup::new("pools", &POOL);
///
/// POOLS.sample(&POOL.record(&[10u64.into(), 90u64.into()])?);
/// # Ok::<(), nvtx::Error>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct CounterGroup {
    registration: Registration,
    schema: &'static Schema,
}

impl CounterGroup {
    /// A group of the default domain. Set the domain of its schema.
    pub const fn new(name: &'static str, schema: &'static Schema) -> CounterGroup {
        CounterGroup { registration: Registration::new(name), schema }
    }

    described!();

    /// Records the current values. Ignores a record of another schema.
    pub fn sample(&self, record: &Record) {
        if state::is_idle() || !std::ptr::eq(record.schema(), self.schema) {
            return;
        }
        if let Some(id) = self.id() {
            functions::counter_bytes(self.registration.domain(), id, record.bytes());
        }
        self.registration.observed(None, CounterValue::Record(record));
    }

    /// Records the absence of values now.
    pub fn missing(&self, why: Missing) {
        if !state::is_idle() {
            self.registration.missing(self.id(), why);
        }
    }

    fn id(&self) -> Option<u64> {
        self.registration.id(|| self.schema.id(), None)
    }
}
