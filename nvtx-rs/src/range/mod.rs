//! Ranges, as guards: of one thread, and of the process.
//!
//! A start checks for a tool and an observer, and the guard stores the recorders. So only they
//! receive the end, regardless of switches in between, and a range that was not recorded ends with
//! a branch on the guard.

#[cfg(not(feature = "enable"))]
mod disabled;
#[cfg(feature = "enable")]
mod enabled;

use std::marker::PhantomData;

use crate::call_site::CallSite;
use crate::domain::DomainRef;
use crate::event::Event;
use crate::field::Field;
use crate::observer::Token;
use crate::schema::Record;
use crate::state;
#[cfg(not(feature = "enable"))]
use disabled::{Guard, ProcessGuard};
#[cfg(feature = "enable")]
use enabled::{Guard, ProcessGuard};

/// Starts a range named `name` on this thread. It ends when the returned guard is dropped.
///
/// Ranges of a thread nest: end them in the reverse order of their starts, as scopes do. The guard
/// is not `Send`; the guard of [`process_range`] is.
///
/// Without a tool and an observer the range costs a load and a branch, including its end. The first
/// call of the process searches for a tool, which may load a library.
///
/// ```
/// let _step = nvtx::range("step");
/// {
///     let _forward = nvtx::range("forward");
/// } // "forward" ends here, "step" goes on
/// ```
#[inline]
pub fn range(name: &str) -> Range {
    if state::is_idle() { Range::NONE } else { Range::from_guard(Guard::begin_plain(name)) }
}

/// Starts a range of the process, which may overlap others and end on another thread.
///
/// Tools show these ranges apart from those of threads. No work of a thread is attributed to them.
///
/// ```
/// let request = nvtx::process_range("request");
/// std::thread::spawn(move || drop(request));
/// ```
#[inline]
pub fn process_range(name: &str) -> ProcessRange {
    ProcessRange::start(move || Event::in_domain(DomainRef::Default, name))
}

impl Event<'_> {
    /// Makes the range an activation of a process range, as a poll is of its future's life. The
    /// observer attributes the work of all activations to the process range; tools ignore it.
    ///
    /// ```
    /// let request = nvtx::process_range("request");
    /// {
    ///     let _entry = nvtx::event("parse").within(&request).range();
    /// }
    /// ```
    #[inline]
    pub fn within(mut self, whole: &ProcessRange) -> Self {
        self.within = whole.observed();
        self
    }

    /// Starts a range of this thread, which ends when the guard is dropped.
    #[inline]
    pub fn range(self) -> Range {
        if state::is_idle() { Range::NONE } else { Range::begin_event(self) }
    }

    /// Starts a range that may end on any thread.
    #[inline]
    pub fn process_range(self) -> ProcessRange {
        if state::is_idle() { ProcessRange::NONE } else { ProcessRange::begin_event(self) }
    }
}

/// An open range; dropping it ends it. Made by [`range`](crate::range()).
///
/// # Unusual uses
///
/// - Guards dropped out of order: the observer receives the end of the correct range. For a tool
///   the innermost range of the thread and domain ends, since NVTX's ranges are a stack.
/// - A guard in a struct ends with the struct.
/// - A guard held across an `.await` includes other work of its thread, and makes the future not
///   `Send`. Use [`in_range`](crate::Instrument::in_range) or [`annotate`](macro@crate::annotate)
///   for futures.
/// - A guard leaked with [`std::mem::forget`] never ends. For tools every range around it ends one
///   level too deep.
/// - A panic that unwinds ends the ranges that it leaves; one that aborts ends none.
/// - A thread that ends with leaked guards leaves its ranges open.
/// - The depth is not limited.
/// - A forked child inherits the tool and the guards of the forking thread, and ends them too.
///
/// The guard is not `Send`:
///
/// ```compile_fail,E0277
/// let range = nvtx::range("load");
/// std::thread::spawn(move || drop(range));
/// ```
#[must_use = "the range ends when this guard is dropped: keep it in a variable, `let _range = ...`"]
#[derive(Debug)]
pub struct Range {
    guard: Guard,
    /// NVTX has a stack for each thread, so the end belongs to the thread of the start.
    not_send: PhantomData<*mut ()>,
}

impl Range {
    /// A range that is not recorded.
    pub(crate) const NONE: Range = Range::from_guard(Guard::NONE);

    #[inline]
    const fn from_guard(guard: Guard) -> Range {
        Range { guard, not_send: PhantomData }
    }

    /// A range whose start the tool, the observer or both have recorded.
    pub(crate) fn from_parts(domain: DomainRef<'_>, pushed: bool, token: Option<Token>) -> Range {
        Range::from_guard(Guard::new(domain, pushed, token))
    }

    /// Starts a range of a call site's own name.
    #[inline]
    pub(crate) fn begin_site(site: &'static CallSite, name: &'static str) -> Range {
        Range::from_guard(Guard::begin_site(site, name))
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn begin_event(event: Event<'_>) -> Range {
        Range::from_guard(Guard::begin(&event))
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn begin_named(domain: DomainRef<'_>, name: &str) -> Range {
        Range::from_guard(Guard::begin(&Event::in_domain(domain, name)))
    }

    /// Adds named values that were unknown at the start, for the observer. A value replaces an
    /// earlier one with its name.
    ///
    /// ```
    /// use nvtx::Field;
    ///
    /// let range = nvtx::range("batch");
    /// let loss = 0.25;
    /// range.add_fields(&[Field::new("loss", loss, "")]);
    /// ```
    #[inline]
    pub fn add_fields(&self, fields: &[Field<'_>]) {
        if self.guard.is_recorded() {
            self.guard.add_fields(fields);
        }
    }

    /// Ends the range with a record of its results. A tool that does not accept records there, and
    /// an observer that does not need them, receive only an end.
    pub fn end_with(mut self, record: &Record) {
        std::mem::replace(&mut self.guard, Guard::NONE).end_with(record);
    }
}

impl Drop for Range {
    #[inline]
    fn drop(&mut self) {
        if self.guard.is_recorded() {
            self.guard.end();
        }
    }
}

/// An open range of the process; dropping it on any thread ends it. Made by
/// [`process_range`](crate::process_range()). A leaked range never ends, without effect on others.
#[must_use = "the range ends when this guard is dropped: keep it in a variable, `let _range = ...`"]
#[derive(Debug)]
pub struct ProcessRange {
    guard: ProcessGuard,
}

impl ProcessRange {
    /// A range that is not recorded.
    pub(crate) const NONE: ProcessRange = ProcessRange { guard: ProcessGuard::NONE };

    /// A range whose start the tool, the observer or both have recorded.
    pub(crate) fn from_parts(
        domain: DomainRef<'_>,
        number: Option<u64>,
        token: Option<Token>,
    ) -> ProcessRange {
        ProcessRange { guard: ProcessGuard::new(domain, number, token) }
    }

    /// Calls `event` only if a tool or observer is active.
    #[inline]
    pub(crate) fn start<'a>(event: impl FnOnce() -> Event<'a>) -> ProcessRange {
        if state::is_idle() { ProcessRange::NONE } else { ProcessRange::begin_with(event) }
    }

    #[cold]
    #[inline(never)]
    fn begin_with<'a>(event: impl FnOnce() -> Event<'a>) -> ProcessRange {
        ProcessRange { guard: ProcessGuard::begin(&event()) }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn begin_event(event: Event<'_>) -> ProcessRange {
        ProcessRange { guard: ProcessGuard::begin(&event) }
    }

    /// Adds named values that were unknown at the start, for the observer; from any thread. A value
    /// replaces an earlier one with its name.
    ///
    /// ```
    /// use nvtx::Field;
    ///
    /// let request = nvtx::process_range("request");
    /// let tokens = 128_u64;
    /// request.add_fields(&[Field::new("tokens", tokens, "")]);
    /// ```
    #[inline]
    pub fn add_fields(&self, fields: &[Field<'_>]) {
        if self.guard.is_recorded() {
            self.guard.add_fields(fields);
        }
    }

    /// The token of the observer that recorded its start, if one did.
    #[inline]
    pub(crate) fn observed(&self) -> Option<Token> {
        self.guard.token()
    }

    /// Ends the range with a record of its results. A tool that does not accept records there, and
    /// an observer that does not need them, receive only an end.
    pub fn end_with(mut self, record: &Record) {
        std::mem::replace(&mut self.guard, ProcessGuard::NONE).end_with(record);
    }
}

impl Drop for ProcessRange {
    #[inline]
    fn drop(&mut self) {
        if self.guard.is_recorded() {
            self.guard.end();
        }
    }
}
