//! The slot through which a profiler in this process observes ranges.
//!
//! There is one slot, filled once, and a switch: filling once lets a range use the observer without
//! a lock, and switching off brings ranges back to their idle cost. A crate that annotates needs none
//! of this.
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

/// The value that an observer returns at a start and gets at the end of the same range. Its meaning is the
/// observer's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(u64);

impl Token {
    /// A token that carries `value`.
    #[must_use]
    pub const fn new(value: u64) -> Token {
        Token(value)
    }

    /// The value given to [`Token::new`].
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A range at its start. The data is borrowed for the call alone.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RangeStart<'a> {
    /// The name.
    pub name: &'a str,
    /// The name of the domain; `None` for the default one.
    pub domain: Option<&'a str>,
    /// The group that the range belongs to.
    pub category: Option<Category>,
    /// The colour that it is to be shown in.
    pub color: Option<Color>,
    /// The number that goes with it.
    pub payload: Option<Payload>,
    /// Its named values.
    pub fields: &'a [Field<'a>],
    /// Its values by a schema.
    pub record: Option<&'a Record>,
    /// The process range of which this range is an entry, as a poll is an entry of its future's life: the token that the
    /// observer returned at its start. `None` also where that start was not observed.
    pub within: Option<Token>,
}

impl<'a> RangeStart<'a> {
    /// A start with this name: for tests of an observer.
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

/// A moment that was marked; the same is known of it as of a range's start.
pub type Mark<'a> = RangeStart<'a>;

/// The object that got a name. Pointers are numbers here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Named<'a> {
    /// The thread with this number of the system's.
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
    /// Anything else.
    Resource {
        /// What it is.
        id: ResourceId,
        /// The name of the domain; `None` for the default one.
        domain: Option<&'a str>,
    },
}

/// An operation on a [`SyncObject`](crate::SyncObject).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncStep {
    /// This thread begins to try to get it.
    AcquireStart,
    /// The attempt failed.
    AcquireFailed,
    /// It is this thread's.
    AcquireSuccess,
    /// The object is about to be released.
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
    /// The unit; empty where it has none.
    pub unit: &'a str,
    /// When, by the counter's clock; `None` is now.
    pub time: Option<i64>,
    /// The value.
    pub value: CounterValue<'a>,
}

/// The value of a [`CounterSample`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum CounterValue<'a> {
    /// Of a counter of whole numbers.
    I64(i64),
    /// Of a counter of floating-point numbers.
    F64(f64),
    /// Of a group of counters.
    Record(&'a Record),
    /// None, for this reason.
    Missing(Missing),
}

/// Why a counter has no value now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// It is zero.
    Zero,
    /// It is as it was.
    Unchanged,
    /// It could not be had.
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
    /// The clock of its times.
    pub clock: Clock,
    /// When it began, or when it was.
    pub start: i64,
    /// When it ended; `None` for a mark.
    pub end: Option<i64>,
    /// The group that it belongs to.
    pub category: Option<Category>,
    /// The colour that it is to be shown in.
    pub color: Option<Color>,
}

/// Sees the events of every thread: what a tool gets, and the fields that tools have no place for. It does not see the
/// scopes of counters and deferred events, limits of counters, schemas but for those of its records, or how clocks convert.
///
/// The functions are called on the thread of the event and inside the annotated program, so they are
/// to be fast and must start no range themselves: that would call them again without end. Those that
/// an observer leaves out do nothing.
///
/// A range that began while the observer was on has its end reported, whatever was switched since;
/// one that began while it was off has not. An end comes after its start on the same thread, and
/// mostly in the reverse order of starts: a guard that was moved can end out of order, and a leaked
/// one never ends.
///
/// # Panics
///
/// A panic in an observer does not reach the annotated program: it is caught, counted
/// ([`Switch::panics`]) and switches the observer off. A range whose start panicked goes on
/// unobserved. In a program built with `panic = "abort"` a panic aborts, as everywhere.
pub trait Observer: Sync + Send {
    /// A range starts on this thread.
    fn range_start(&self, range: &RangeStart<'_>) -> Token;

    /// The range for which [`range_start`](Observer::range_start) gave `token` ends on this thread.
    fn range_end(&self, token: Token);

    /// As [`range_end`](Observer::range_end), with what [`Range::end_with`](crate::Range::end_with) was
    /// given. Left out, the record is dropped and the range ends.
    fn range_end_with(&self, token: Token, record: &Record) {
        let _ = record;
        self.range_end(token);
    }

    /// A range of the process starts on this thread, and may end on another. `None`, as where this is
    /// left out, means that the end need not be told.
    fn process_range_start(&self, range: &RangeStart<'_>) -> Option<Token> {
        let _ = range;
        None
    }

    /// The process range for which [`process_range_start`](Observer::process_range_start) gave `token`
    /// ends, on this thread.
    fn process_range_end(&self, token: Token) {
        let _ = token;
    }

    /// As [`process_range_end`](Observer::process_range_end), with a record.
    fn process_range_end_with(&self, token: Token, record: &Record) {
        let _ = record;
        self.process_range_end(token);
    }

    /// A moment was marked on this thread.
    fn mark(&self, mark: &Mark<'_>) {
        let _ = mark;
    }

    /// An object got a name.
    fn named(&self, what: &Named<'_>, name: &str) {
        let _ = (what, name);
    }

    /// A counter was sampled.
    fn counter(&self, sample: &CounterSample<'_>) {
        let _ = sample;
    }

    /// This thread did something with the synchronisation object `name` of `domain`.
    fn sync(&self, domain: Option<&str>, name: &str, step: SyncStep) {
        let _ = (domain, name, step);
    }

    /// An event was reported after it happened.
    fn deferred(&self, event: &DeferredEvent<'_>) {
        let _ = event;
    }
}

shared! { static OBSERVER: OnceLock<&'static dyn Observer> = OnceLock::new(); }
shared! { static PANICS: AtomicU64 = AtomicU64::new(0); }

/// Installs the observer of this process, switched off. Once installed it stays; installing the same
/// one again gives another switch.
///
/// Two observers are the same when they lie at the same address. Values without a size may share
/// one, so an observer should have a field.
///
/// The observer is called until the process ends, which is what `'static` promises: the library that it lies in has to stay
/// loaded as long as the one that this crate is linked into. Mostly both are the same one, whose ranges end with it; whoever
/// closes such a library (`dlclose`) has to know that none of its code runs any more, as with every library.
///
/// # Errors
///
/// [`Error::is_taken`] when another observer holds the slot, and [`Error::is_disabled`] when the
/// crate was built without the feature `enable`, for then no range would ever be seen.
pub fn install(observer: &'static dyn Observer) -> Result<Switch, Error> {
    if !cfg!(feature = "enable") {
        return Err(Error::disabled());
    }
    let installed = *OBSERVER.get_or_init(|| observer);
    let is_same = std::ptr::addr_eq(installed, observer);
    if is_same { Ok(Switch { _private: () }) } else { Err(Error::taken()) }
}

/// Turns the installed observer on and off, any number of times and from any thread.
///
/// All switches are one: there is a single state, and dropping a switch changes nothing.
#[derive(Clone, Debug)]
pub struct Switch {
    _private: (),
}

impl Switch {
    /// Ranges that start from now on are observed.
    pub fn on(&self) {
        state::set(state::OBSERVER);
    }

    /// Ranges that start from now on are not observed; those that are going on still have their end
    /// reported. A start on another thread that is under way may still come in.
    pub fn off(&self) {
        state::clear(state::OBSERVER);
    }

    /// Whether ranges that start now are observed.
    pub fn is_on(&self) -> bool {
        state::has(state::OBSERVER)
    }

    /// How often the observer panicked, in the life of the process.
    pub fn panics(&self) -> u64 {
        PANICS.load(Ordering::Relaxed)
    }
}

#[inline]
pub(crate) fn range_start(range: &RangeStart<'_>) -> Option<Token> {
    let observer = OBSERVER.get()?;
    guarded(|| observer.range_start(range))
}

pub(crate) fn range_end(token: Token, record: Option<&Record>) {
    if let Some(observer) = OBSERVER.get() {
        guarded(|| match record {
            None => observer.range_end(token),
            Some(record) => observer.range_end_with(token, record),
        });
    }
}

#[inline]
pub(crate) fn process_range_start(range: &RangeStart<'_>) -> Option<Token> {
    let observer = OBSERVER.get()?;
    guarded(|| observer.process_range_start(range)).flatten()
}

pub(crate) fn process_range_end(token: Token, record: Option<&Record>) {
    if let Some(observer) = OBSERVER.get() {
        guarded(|| match record {
            None => observer.process_range_end(token),
            Some(record) => observer.process_range_end_with(token, record),
        });
    }
}

#[inline]
pub(crate) fn mark(mark: &Mark<'_>) {
    if let Some(observer) = OBSERVER.get() {
        guarded(|| observer.mark(mark));
    }
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

/// Whether the observer is switched on.
pub(crate) fn is_on() -> bool {
    !state::is_idle() && state::current() & state::OBSERVER != 0
}

fn if_on(call: impl FnOnce(&dyn Observer)) {
    if is_on()
        && let Some(observer) = OBSERVER.get()
    {
        guarded(|| call(*observer));
    }
}

/// Keeps a panic of the observer out of the annotated program.
#[inline]
fn guarded<R>(call: impl FnOnce() -> R) -> Option<R> {
    // The observer is switched off after a panic, and what it shares is its own to keep whole.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(value) => Some(value),
        Err(payload) => {
            panicked(payload);
            None
        }
    }
}

#[cold]
#[inline(never)]
fn panicked(payload: Box<dyn std::any::Any + Send>) {
    state::clear(state::OBSERVER);
    PANICS.fetch_add(1, Ordering::Relaxed);
    // Dropping a payload runs code of the observer's, which could panic in its turn.
    std::mem::forget(payload);
}
