//! Contexts attribute work on another thread to the range that submitted it.
//!
//! Work is attributed to the ranges of the thread that launches it. A program that hands work to a
//! pool, a device thread or a runtime captures its range with [`Context::capture`] and attaches it
//! there with [`Context::attach`].

use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::pin;

use crate::record::recording::ranges::{self, RangeTag};

/// A captured range, or several [joined](Self::join) ones, to attach on another thread.
///
/// ```
/// use profiler_core::Context;
///
/// let _request = nvtx::range("request");
/// let context = Context::capture();
/// std::thread::spawn(move || {
///     let _attached = context.attach();
///     // Work launched here is attributed to "request"; ranges opened here are its children.
/// })
/// .join()
/// .unwrap();
/// ```
///
/// Capturing reads one thread-local value; attaching stores a few. Without a session a context is
/// empty. A context of an earlier session has no effect;
/// [`Facts::earlier_contexts`](crate::profile::Facts::earlier_contexts) counts its uses. The range may have
/// ended before the context is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Context {
    /// 0 if empty.
    tag: u64,
}

impl Context {
    /// Captures the innermost range of this thread, or the context attached to it.
    #[inline]
    #[must_use]
    pub fn capture() -> Self {
        Self { tag: cupti::calls::word() }
    }

    /// Calls `changed` whenever the context of a thread changes while a session is on: a range starts
    /// or ends there, or a context is attached or detached.
    ///
    /// For framework packages, which hand the range over to another thread:
    /// [`capture`](Self::capture) returns the new context. The function runs on the
    /// thread whose context changed, within the program's ranges, so it must be fast. Ranges that it
    /// opens itself do not call it. It is never removed: from then on a range costs 1 ns more, plus the
    /// function.
    ///
    /// Returns false if the process already has eight other functions. The same function counts once.
    ///
    /// ```
    /// use profiler_core::Context;
    ///
    /// fn changed() {
    ///     let _context = Context::capture(); // to a queue
    /// }
    /// assert!(Context::on_change(changed) && Context::on_change(changed));
    /// ```
    pub fn on_change(changed: fn()) -> bool {
        crate::record::context_hooks::on_context_change(changed)
    }

    /// Joins contexts for work that several ranges submitted together, such as a fused kernel.
    ///
    /// The work is attributed to the range of the first context, so sums and budgets are the same
    /// as if only that one were attached.
    /// [`GpuOperation::ranges`](crate::profile::GpuOperation::ranges) lists all ranges, and each
    /// other range has the work in [`Range::shared`](crate::Range::shared), separate from its own
    /// sums. Ranges opened under the context are children of the first range and share their work
    /// with the others. Marks, process ranges and nodes of captured graphs belong only to the first
    /// range.
    ///
    /// Contexts that are empty or of an earlier session are ignored, and duplicates are dropped; a
    /// joined context contributes all of its ranges. If one range remains, the result is that
    /// range's context; if none remains, it is [empty](Self::is_empty). Any thread may join
    /// contexts of any threads and attach the result on others.
    ///
    /// A join costs one or two allocations, and log entries of 24 bytes: one for two ranges, one
    /// more for each further range. Attaching costs the same as for any context. If the entry
    /// cannot be written, as on a thread that is ending, the first context is returned and
    /// [`Losses::lost_ranges`](crate::profile::Losses::lost_ranges) counts the loss.
    ///
    /// ```
    /// use profiler_core::Context;
    ///
    /// let add = nvtx::range("add");
    /// let first = Context::capture();
    /// drop(add);
    /// let _relu = nvtx::range("relu");
    /// let fused = Context::join([first, Context::capture()]);
    /// fused.run(|| {
    ///     // Work launched here is attributed to "add" and shared with "relu".
    /// });
    /// ```
    #[must_use]
    pub fn join(contexts: impl IntoIterator<Item = Self>) -> Self {
        let tags = contexts.into_iter().map(|context| RangeTag(context.tag));
        Self { tag: ranges::join(tags).map_or(0, |tag| tag.0) }
    }

    /// True if no session was on, or no range was open.
    pub fn is_empty(&self) -> bool {
        self.tag == 0
    }

    pub(crate) fn tag(self) -> u64 {
        self.tag
    }

    /// Enters the range, or the joined ranges, on this thread until the returned guard is dropped.
    ///
    /// Guards nest like ranges. Ranges that are open on this thread stay open.
    #[must_use = "the context is detached when this guard is dropped: keep it in a variable, `let _attached = ...`"]
    pub fn attach(self) -> Attached {
        let tag = RangeTag(self.tag);
        let attached = if self.tag == 0 { None } else { ranges::attach(tag) };
        Attached { attached: attached.map(|number| (tag, number)), not_send: PhantomData }
    }

    /// Calls `f` in this context.
    pub fn run<R>(self, f: impl FnOnce() -> R) -> R {
        let _attached = self.attach();
        f()
    }

    /// Returns a closure that runs in this context, for `thread::spawn`, `rayon::spawn` etc.
    ///
    /// ```
    /// use profiler_core::Context;
    ///
    /// let job = Context::capture().wrap(|| 6 * 7);
    /// assert_eq!(std::thread::spawn(job).join().unwrap(), 42);
    /// ```
    pub fn wrap<R>(self, f: impl FnOnce() -> R) -> impl FnOnce() -> R {
        move || self.run(f)
    }

    /// Like [`wrap`](Self::wrap), for closures called any number of times with a value, as in
    /// rayon's `map` and `for_each`.
    pub fn wrap_each<A, R>(self, f: impl Fn(A) -> R) -> impl Fn(A) -> R {
        move |value| self.run(|| f(value))
    }

    /// Returns a future whose polls run in this context, for `tokio::spawn` and similar functions.
    pub async fn follow<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|task| self.run(|| future.as_mut().poll(task))).await
    }
}

/// Detaches a context from its thread when dropped. Made by [`Context::attach`].
#[derive(Debug)]
#[must_use = "the context is detached when this guard is dropped: keep it in a variable, `let _attached = ...`"]
pub struct Attached {
    /// `None` if nothing was attached.
    attached: Option<(RangeTag, u64)>,
    not_send: PhantomData<*mut ()>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some((tag, number)) = self.attached {
            ranges::detach(tag, number);
        }
    }
}
