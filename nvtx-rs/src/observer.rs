//! The slot through which a profiler in this process observes ranges.
//!
//! The slot is filled once, so that ranges use the observer without a lock. Switching the observer
//! off returns ranges to their idle cost. Crates that only annotate do not need this module.
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use nvtx::observer::{self, Observer, RangeStart, Token};
//!
//! #[derive(Default)]
//! struct Count(AtomicU64);
//!
//! impl Observer for Count {
//!     fn range_start(&self, _range: &RangeStart<'_>) -> Token {
//!         Token::new(self.0.fetch_add(1, Ordering::Relaxed))
//!     }
//!     fn range_end(&self, _token: Token) {}
//! }
//!
//! static COUNT: Count = Count(AtomicU64::new(0));
//!
//! # #[cfg(feature = "enable")] {
//! let switch = observer::install(&COUNT)?;
//! switch.on();
//! drop(nvtx::range("seen"));
//! switch.off();
//! drop(nvtx::range("not seen"));
//! assert_eq!(COUNT.0.load(Ordering::Relaxed), 1);
//! # }
//! # Ok::<(), nvtx::Error>(())
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::category::Category;
use crate::color::Color;
use crate::domain::DomainRef;
use crate::error::Error;
use crate::field::Field;
use crate::payload::Payload;
use crate::resource_id::ResourceId;
use crate::schema::Record;
use crate::shared::{AtomicU64, OnceLock, Ordering, shared};
use crate::state;
use crate::time::Clock;

/// The observer's own value for a range: returned at the start and passed back at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(u64);

impl Token {
    /// A token with this value.
    #[must_use]
    pub const fn new(value: u64) -> Token {
        Token(value)
    }

    /// The value.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A range at its start. The data is borrowed for the call.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RangeStart<'a> {
    /// The name.
    pub name: &'a str,
    /// The name of the domain; `None` for the default one.
    pub domain: Option<&'a str>,
    /// The category.
    pub category: Option<Category>,
    /// The colour.
    pub color: Option<Color>,
    /// The payload.
    pub payload: Option<Payload>,
    /// Named values.
    pub fields: &'a [Field<'a>],
    /// Values with a schema.
    pub record: Option<&'a Record>,
    /// The token of this range's process range, if this range is an activation of one, as a poll is
    /// of its future's life. `None` also if the start of the process range was not observed.
    pub within: Option<Token>,
}

impl<'a> RangeStart<'a> {
    /// A start with this name, for tests of observers.
    #[must_use]
    pub const fn new(name: &'a str) -> RangeStart<'a> {
        RangeStart {
            name,
            domain: None,
            category: None,
            color: None,
            payload: None,
            fields: &[],
            record: None,
            within: None,
        }
    }
}

/// A mark, which has the data of a range's start.
pub type Mark<'a> = RangeStart<'a>;

/// A named object. Pointers are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Named<'a> {
    /// The thread with this id of the operating system.
    Thread(u32),
    /// A `CUdevice`.
    CuDevice(i32),
    /// A `CUcontext`.
    CuContext(usize),
    /// A `CUstream`.
    CuStream(usize),
    /// A `CUevent`.
    CuEvent(usize),
    /// A device of the CUDA runtime.
    CudaDevice(i32),
    /// A `cudaStream_t`.
    CudaStream(usize),
    /// A `cudaEvent_t`.
    CudaEvent(usize),
    /// Any other object.
    Resource {
        /// The kind and value.
        id: ResourceId,
        /// The name of the domain; `None` for the default one.
        domain: Option<&'a str>,
    },
}

/// An operation on a [`SyncObject`](crate::SyncObject).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncStep {
    /// This thread starts to acquire it.
    AcquireStart,
    /// The attempt failed.
    AcquireFailed,
    /// This thread holds it.
    AcquireSuccess,
    /// This thread is about to release it.
    Releasing,
}

/// A sample of a counter.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CounterSample<'a> {
    /// The counter's name.
    pub name: &'a str,
    /// The name of the domain; `None` for the default one.
    pub domain: Option<&'a str>,
    /// The unit; empty if it has none.
    pub unit: &'a str,
    /// The time by the counter's clock; `None` is now.
    pub time: Option<i64>,
    /// The value.
    pub value: CounterValue<'a>,
}

impl<'a> CounterSample<'a> {
    /// A current sample in the default domain, for tools and for tests of observers.
    #[must_use]
    pub const fn new(name: &'a str, value: CounterValue<'a>) -> CounterSample<'a> {
        CounterSample { name, domain: None, unit: "", time: None, value }
    }
}

/// The value of a [`CounterSample`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum CounterValue<'a> {
    /// An integer.
    I64(i64),
    /// A floating-point number.
    F64(f64),
    /// The values of a group of counters.
    Record(&'a Record),
    /// No value, for this reason.
    Missing(Missing),
}

/// The reason why a counter has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The value is zero.
    Zero,
    /// The value is unchanged.
    Unchanged,
    /// The value is not available.
    Unavailable,
}

/// An event that is reported after it happened.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DeferredEvent<'a> {
    /// Its name.
    pub name: &'a str,
    /// The name of the domain; `None` for the default one.
    pub domain: Option<&'a str>,
    /// The clock of the times.
    pub clock: Clock,
    /// The start of a range, or the time of a mark.
    pub start: i64,
    /// The end; `None` for a mark.
    pub end: Option<i64>,
    /// The category.
    pub category: Option<Category>,
    /// The colour.
    pub color: Option<Color>,
}

impl<'a> DeferredEvent<'a> {
    /// A mark of the default domain, for tools and for tests of observers.
    #[must_use]
    pub const fn new(name: &'a str, clock: Clock, start: i64) -> DeferredEvent<'a> {
        DeferredEvent { name, domain: None, clock, start, end: None, category: None, color: None }
    }
}

/// Receives the events of all threads: everything that tools receive, and the fields, which tools
/// lack. It does not receive the scopes of counters and deferred events, limits of counters,
/// conversions of clocks, or schemas other than those of its records.
///
/// The functions run on the thread of the event, inside the annotated program. They should be fast
/// and must not start ranges, which would recurse. The default implementations do nothing.
///
/// The end of a range is reported if its start was observed, regardless of later switches. An end
/// follows its start on the same thread, usually in reverse order of the starts. A moved guard can
/// end out of order, and a leaked guard never ends.
///
/// # Panics
///
/// A panic in an observer is caught and counted ([`Switch::panics`]), and switches the observer
/// off. A range whose start panicked continues unobserved. With `panic = "abort"` a panic aborts.
#[allow(unused_variables, reason = "the defaults ignore their arguments")]
pub trait Observer: Sync + Send {
    /// A range starts on this thread.
    fn range_start(&self, range: &RangeStart<'_>) -> Token;

    /// The range for which [`range_start`](Observer::range_start) returned `token` ends on this
    /// thread.
    fn range_end(&self, token: Token);

    /// As [`range_end`](Observer::range_end), with the record of
    /// [`Range::end_with`](crate::Range::end_with). By default drops the record and ends the range.
    fn range_end_with(&self, token: Token, record: &Record) {
        self.range_end(token);
    }

    /// The open range for which [`range_start`](Observer::range_start) returned `token` receives
    /// further named values. A value replaces an earlier one with its name. By default the values
    /// are dropped.
    fn range_fields(&self, token: Token, fields: &[Field<'_>]) {}

    /// A range of the process starts on this thread, and may end on another. `None`, the default,
    /// leaves its end unreported.
    fn process_range_start(&self, range: &RangeStart<'_>) -> Option<Token> {
        None
    }

    /// As [`range_fields`](Observer::range_fields), for the open process range for which
    /// [`process_range_start`](Observer::process_range_start) returned `token`. By default the
    /// values are dropped.
    fn process_range_fields(&self, token: Token, fields: &[Field<'_>]) {}

    /// The process range for which [`process_range_start`](Observer::process_range_start) returned
    /// `token` ends on this thread.
    fn process_range_end(&self, token: Token) {}

    /// As [`process_range_end`](Observer::process_range_end), with a record.
    fn process_range_end_with(&self, token: Token, record: &Record) {
        self.process_range_end(token);
    }

    /// This thread recorded a mark.
    fn mark(&self, mark: &Mark<'_>) {}

    /// An object received a name.
    fn named(&self, what: &Named<'_>, name: &str) {}

    /// A counter was sampled.
    fn counter(&self, sample: &CounterSample<'_>) {}

    /// This thread used the synchronisation object `name` of `domain`.
    fn sync(&self, domain: Option<&str>, name: &str, step: SyncStep) {}

    /// An event was reported after it happened.
    fn deferred(&self, event: &DeferredEvent<'_>) {}
}

shared! { static OBSERVER: OnceLock<&'static dyn Observer> = OnceLock::new(); }
shared! { static PANICS: AtomicU64 = AtomicU64::new(0); }

/// Installs the observer of this process, switched off. It stays installed; installing it again
/// returns another switch.
///
/// Observers are compared by address. Values without a size may share one, so an observer should
/// have a field.
///
/// The observer is called until the process ends. Its library must stay loaded as long as the one
/// that this crate is linked into, usually the same. Close such a library (`dlclose`) only when
/// none of its code runs any more.
///
/// # Errors
///
/// [`Error::is_taken`] if another observer holds the slot; [`Error::is_disabled`] without the
/// feature `enable`.
pub fn install(observer: &'static dyn Observer) -> Result<Switch, Error> {
    if !cfg!(feature = "enable") {
        return Err(Error::disabled());
    }
    let installed = *OBSERVER.get_or_init(|| observer);
    let is_same = std::ptr::addr_eq(installed, observer);
    if is_same { Ok(Switch { _private: () }) } else { Err(Error::slot_taken()) }
}

/// Turns the installed observer on and off, any number of times and from any thread.
///
/// All switches share one state. Dropping a switch changes nothing.
#[derive(Clone, Debug)]
pub struct Switch {
    _private: (),
}

impl Switch {
    /// Ranges that start from now on are observed.
    pub fn on(&self) {
        state::set(state::OBSERVER);
    }

    /// Ranges that start from now on are not observed; the ends of open ones still are. A
    /// concurrent start on another thread may still be reported.
    pub fn off(&self) {
        state::clear(state::OBSERVER);
    }

    /// True if ranges that start now are observed.
    pub fn is_on(&self) -> bool {
        state::has(state::OBSERVER)
    }

    /// The number of the observer's panics in this process.
    pub fn panics(&self) -> u64 {
        PANICS.load(Ordering::Relaxed)
    }
}

#[inline]
pub(crate) fn range_start(range: &RangeStart<'_>) -> Option<Token> {
    call(|observer| observer.range_start(range))
}

pub(crate) fn range_end(token: Token, record: Option<&Record>) {
    call(|observer| match record {
        None => observer.range_end(token),
        Some(record) => observer.range_end_with(token, record),
    });
}

pub(crate) fn range_fields(token: Token, fields: &[Field<'_>]) {
    call(|observer| observer.range_fields(token, fields));
}

#[inline]
pub(crate) fn process_range_start(range: &RangeStart<'_>) -> Option<Token> {
    call(|observer| observer.process_range_start(range)).flatten()
}

pub(crate) fn process_range_fields(token: Token, fields: &[Field<'_>]) {
    call(|observer| observer.process_range_fields(token, fields));
}

pub(crate) fn process_range_end(token: Token, record: Option<&Record>) {
    call(|observer| match record {
        None => observer.process_range_end(token),
        Some(record) => observer.process_range_end_with(token, record),
    });
}

#[inline]
pub(crate) fn mark(mark: &Mark<'_>) {
    call(|observer| observer.mark(mark));
}

pub(crate) fn named(what: &Named<'_>, name: &str) {
    if_on(|observer| observer.named(what, name));
}

pub(crate) fn counter(sample: &CounterSample<'_>) {
    if_on(|observer| observer.counter(sample));
}

pub(crate) fn sync(domain: DomainRef<'_>, name: &str, step: SyncStep) {
    if_on(|observer| observer.sync(domain.name(), name, step));
}

pub(crate) fn deferred(event: &DeferredEvent<'_>) {
    if_on(|observer| observer.deferred(event));
}

/// True if the observer is switched on.
pub(crate) fn is_on() -> bool {
    !state::is_idle() && state::current() & state::OBSERVER != 0
}

fn if_on(report: impl FnOnce(&dyn Observer)) {
    if is_on() {
        call(report);
    }
}

/// Calls the observer, if there is one. Catches its panics, which must not reach the annotated
/// program.
#[inline]
fn call<R>(report: impl FnOnce(&dyn Observer) -> R) -> Option<R> {
    let observer = *OBSERVER.get()?;
    // After a panic the observer is switched off; it must ensure the consistency of its own data.
    catch_unwind(AssertUnwindSafe(|| report(observer))).map_err(panicked).ok()
}

#[cold]
#[inline(never)]
fn panicked(payload: Box<dyn std::any::Any + Send>) {
    state::clear(state::OBSERVER);
    PANICS.fetch_add(1, Ordering::Relaxed);
    // Dropping the payload runs code of the observer, which could panic again.
    std::mem::forget(payload);
}
