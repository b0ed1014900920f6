//! Futures, streams, iterators and closures in ranges.
//!
//! A future's life may span threads and overlaps other work: it is a range of the process. Each
//! poll runs on one thread, and launches in it are attributed to that poll: it is a range of the
//! thread. Both are recorded unless one is disabled.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::call_site::CallSite;
use crate::domain::{Domain, DomainRef};
use crate::event::Event;
use crate::range::{ProcessRange, Range};
use crate::state;

/// The settings of the ranges of a future, stream, iterator or closure; a name converts to it.
///
/// ```
/// use nvtx::{Domain, InRange, Instrument};
///
/// static IO: Domain = Domain::new("io");
///
/// # async fn fetch() {}
/// let quiet = fetch().in_range(InRange::new("fetch").domain(&IO).lifetime(false));
/// ```
#[derive(Debug)]
#[must_use = "it does nothing by itself: give it to `in_range`, or call `run` or `wrap`"]
pub struct InRange {
    name: Name,
    lifetime: Lifetime,
    polls: bool,
}

#[derive(Debug)]
enum Name {
    Site(&'static CallSite),
    Text(Option<&'static Domain>, Cow<'static, str>),
}

#[derive(Debug)]
enum Lifetime {
    Wanted,
    Unwanted,
    /// From a macro.
    Given(Option<ProcessRange>),
}

impl Name {
    fn event(&self) -> Event<'_> {
        match self {
            Name::Site(site) => site.event(),
            Name::Text(domain, text) => Event::in_domain(DomainRef::from_domain(*domain), text),
        }
    }

    #[inline]
    fn range(&self) -> Range {
        if state::is_idle() { Range::NONE } else { Range::begin_event(self.event()) }
    }

    /// Starts a range of this thread, an activation of the life if that is also a range.
    #[inline]
    fn entry(&self, life: Option<&ProcessRange>) -> Range {
        if state::is_idle() { Range::NONE } else { self.entry_now(life) }
    }

    #[cold]
    fn entry_now(&self, life: Option<&ProcessRange>) -> Range {
        let event = self.event();
        match life {
            Some(life) => event.within(life).range(),
            None => event.range(),
        }
    }
}

impl InRange {
    /// Ranges with this name in the default domain: a process range for the life, a thread range
    /// for each poll or step.
    pub fn new(name: impl Into<Cow<'static, str>>) -> InRange {
        InRange { name: Name::Text(None, name.into()), lifetime: Lifetime::Wanted, polls: true }
    }

    /// The settings of a macro for a future.
    #[doc(hidden)]
    #[inline]
    pub fn at(site: &'static CallSite, lifetime: Option<ProcessRange>, polls: bool) -> InRange {
        InRange { name: Name::Site(site), lifetime: Lifetime::Given(lifetime), polls }
    }

    /// Sets the domain.
    pub fn domain(mut self, domain: &'static Domain) -> InRange {
        if let Name::Text(place, _) = &mut self.name {
            *place = Some(domain);
        }
        self
    }

    /// Sets whether the life, until completion or drop, is a range of the process. True by default.
    pub fn lifetime(mut self, wanted: bool) -> InRange {
        self.lifetime = if wanted { Lifetime::Wanted } else { Lifetime::Unwanted };
        self
    }

    /// Sets whether each poll or step is a range of its thread. True by default.
    pub fn polls(mut self, wanted: bool) -> InRange {
        self.polls = wanted;
        self
    }

    /// Wraps a value, whose life begins now.
    #[inline]
    pub fn follow<T>(self, inner: T) -> Instrumented<T> {
        let life = match self.lifetime {
            Lifetime::Wanted => {
                (!state::is_idle()).then(|| ProcessRange::start(|| self.name.event()))
            }
            Lifetime::Unwanted => None,
            Lifetime::Given(range) => range,
        };
        Instrumented { inner, life, name: self.polls.then_some(self.name) }
    }

    /// Calls `f` in a range of this thread.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        let _range = self.name.range();
        f()
    }

    /// Wraps a closure, which then runs in a range of the calling thread: for `thread::spawn`,
    /// `rayon::join`.
    ///
    /// ```
    /// let job = nvtx::InRange::new("job").wrap(|| 6 * 7);
    /// assert_eq!(std::thread::spawn(job).join().unwrap(), 42);
    /// ```
    pub fn wrap<R>(self, f: impl FnOnce() -> R) -> impl FnOnce() -> R {
        move || self.run(f)
    }

    /// Wraps a closure with an argument that may be called repeatedly: for `map`, `for_each`.
    ///
    /// ```
    /// let squares: Vec<u32> = (1u32..4).map(nvtx::InRange::new("square").wrap_each(|x| x * x)).collect();
    /// assert_eq!(squares, [1, 4, 9]);
    /// ```
    pub fn wrap_each<A, R>(self, mut f: impl FnMut(A) -> R) -> impl FnMut(A) -> R {
        move |value| self.run(|| f(value))
    }
}

impl From<&'static str> for InRange {
    fn from(name: &'static str) -> InRange {
        InRange::new(name)
    }
}

impl From<String> for InRange {
    fn from(name: String) -> InRange {
        InRange::new(name)
    }
}

/// Wraps a future, stream or iterator in ranges.
///
/// ```
/// use nvtx::Instrument;
///
/// # async fn load() -> u32 { 7 }
/// let future = load().in_range("load"); // a range for its whole life, and one for each poll
/// let sum: u32 = (1..4).in_range("sum").sum(); // one for each step
/// assert_eq!(sum, 6);
/// ```
pub trait Instrument: Sized {
    /// Wraps it in ranges of this name; [`InRange`] has settings.
    #[inline]
    fn in_range(self, range: impl Into<InRange>) -> Instrumented<Self> {
        range.into().follow(self)
    }
}

impl<T> Instrument for T {}

pin_project! {
    /// A future, stream or iterator in ranges. Made by [`Instrument::in_range`].
    ///
    /// If it is dropped before completion, as a cancelled future is, its contents are dropped
    /// within the range of its life, outside thread ranges.
    #[derive(Debug)]
    #[must_use = "futures, streams and iterators do nothing unless they are polled"]
    pub struct Instrumented<T> {
        #[pin]
        inner: T,
        life: Option<ProcessRange>,
        name: Option<Name>,
    }
}

impl<T> Instrumented<T> {
    /// Unwraps the value and ends the range of its life.
    pub fn into_inner(self) -> T {
        self.inner
    }
}

/// Makes one step in its range. The last step ends the life: a completed future may exist for long.
#[inline]
fn step<R>(
    name: &Option<Name>,
    life: &mut Option<ProcessRange>,
    make: impl FnOnce() -> R,
    is_last: impl FnOnce(&R) -> bool,
) -> R {
    let range = name.as_ref().map(|name| name.entry(life.as_ref()));
    let result = make();
    drop(range);
    if is_last(&result) {
        life.take();
    }
    result
}

impl<F: Future> Future for Instrumented<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        step(this.name, this.life, || this.inner.poll(context), Poll::is_ready)
    }
}

#[cfg(feature = "stream")]
impl<S: futures_core::Stream> futures_core::Stream for Instrumented<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let this = self.project();
        let is_end = |polled: &Poll<_>| matches!(polled, Poll::Ready(None));
        step(this.name, this.life, || this.inner.poll_next(context), is_end)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inner.size_hint()
    }
}

impl<I: Iterator> Iterator for Instrumented<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        step(&self.name, &mut self.life, || self.inner.next(), Option::is_none)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inner.size_hint()
    }
}
