//! The slot through which a profiler in this process sees ranges.
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

#[cfg(feature = "enable")]
use std::panic::{AssertUnwindSafe, catch_unwind};
#[cfg(feature = "enable")]
use std::sync::OnceLock;
#[cfg(feature = "enable")]
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;
#[cfg(feature = "enable")]
use crate::state;

/// What an observer gives back at a start, and gets at the end of the same range. Only the observer
/// knows what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(u64);

impl Token {
    /// A token that carries `value`.
    #[must_use]
    pub const fn new(value: u64) -> Token {
        Token(value)
    }

    /// The value given to [`Token::new`].
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// What is known of a range when it starts.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RangeStart<'a> {
    /// The name as it was given. It is borrowed for the call alone.
    pub name: &'a str,
}

impl<'a> RangeStart<'a> {
    /// A start with this name: for tests of an observer.
    #[must_use]
    pub const fn new(name: &'a str) -> RangeStart<'a> {
        RangeStart { name }
    }
}

/// Sees the ranges of every thread.
///
/// Both functions are called on the thread of the range and inside the annotated program, so they are
/// to be fast and must start no range themselves: that would call them again without end.
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
}

#[cfg(feature = "enable")]
static OBSERVER: OnceLock<&'static dyn Observer> = OnceLock::new();
#[cfg(feature = "enable")]
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Installs the observer of this process, switched off. Once installed it stays; installing the same
/// one again gives another switch.
///
/// Two observers are the same when they lie at the same address. Values without a size may share
/// one, so an observer should have a field.
///
/// # Errors
///
/// [`Error::is_taken`] when another observer holds the slot, and [`Error::is_disabled`] when the
/// crate was built without the feature `enable`, for then no range would ever be seen.
pub fn install(observer: &'static dyn Observer) -> Result<Switch, Error> {
    #[cfg(feature = "enable")]
    {
        let installed = *OBSERVER.get_or_init(|| observer);
        if std::ptr::addr_eq(installed, observer) {
            Ok(Switch { _private: () })
        } else {
            Err(Error::taken())
        }
    }
    #[cfg(not(feature = "enable"))]
    {
        let _ = observer;
        Err(Error::disabled())
    }
}

/// Turns the installed observer on and off, any number of times and from any thread.
///
/// All switches are one: there is a single state, and dropping a switch changes nothing.
#[derive(Clone, Debug)]
pub struct Switch {
    _private: (),
}

#[cfg(feature = "enable")]
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
    #[must_use]
    pub fn is_on(&self) -> bool {
        state::has(state::OBSERVER)
    }

    /// How often the observer panicked, in the life of the process.
    #[must_use]
    pub fn panics(&self) -> u64 {
        PANICS.load(Ordering::Relaxed)
    }
}

/// Never called: without the feature `enable` there is no way to get a switch.
#[cfg(not(feature = "enable"))]
impl Switch {
    /// Does nothing.
    pub fn on(&self) {}

    /// Does nothing.
    pub fn off(&self) {}

    /// Always `false`.
    #[must_use]
    pub fn is_on(&self) -> bool {
        false
    }

    /// Always 0.
    #[must_use]
    pub fn panics(&self) -> u64 {
        0
    }
}

#[cfg(feature = "enable")]
pub(crate) fn start(name: &str) -> Option<Token> {
    let observer = OBSERVER.get()?;
    guarded(|| observer.range_start(&RangeStart { name }))
}

#[cfg(feature = "enable")]
pub(crate) fn end(token: Token) {
    if let Some(observer) = OBSERVER.get() {
        guarded(|| observer.range_end(token));
    }
}

/// Keeps a panic of the observer out of the annotated program.
#[cfg(feature = "enable")]
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

#[cfg(feature = "enable")]
#[cold]
#[inline(never)]
fn panicked(payload: Box<dyn std::any::Any + Send>) {
    state::clear(state::OBSERVER);
    PANICS.fetch_add(1, Ordering::Relaxed);
    // Dropping a payload runs code of the observer's, which could panic in its turn.
    std::mem::forget(payload);
}
