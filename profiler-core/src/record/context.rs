//! Work that moves to another thread takes its range with it.
//!
//! A range is of its thread, and so is what is launched in it. Where a program hands work to another thread (a pool, a
//! device thread, a runtime), that thread knows nothing of the range. [`Context::capture`] takes the present range along,
//! and [`Context::attach`] puts it up over there.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use pin_project_lite::pin_project;

use crate::record::recording::ranges::{self, RangeTag};

/// The range in which some code runs, to be handed on to whatever thread goes on with it; or several, if they were
/// [joined](Self::join).
///
/// ```
/// use profiler_core::Context;
///
/// let _request = nvtx::range("request");
/// let context = Context::capture();
/// std::thread::spawn(move || {
///     let _attached = context.attach();
///     // What is launched here counts for "request", and ranges made here lie in it.
/// })
/// .join()
/// .unwrap();
/// ```
///
/// It costs a read of a thread's own tag to capture one, and a few stores to attach it. Without a session it is empty,
/// and one of an earlier session has no effect: [`Health::earlier_contexts`](crate::Health::earlier_contexts) counts its uses. The range may have ended by then; work still counts for
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Context {
    /// 0 if there is none.
    tag: u64,
}

impl Context {
    /// The present range of this thread, or what was attached to it.
    #[inline]
    #[must_use]
    pub fn capture() -> Self {
        Self { tag: cupti::calls::word() }
    }

    /// The context of several ranges, for work that more than one of them asked for: a kernel into which operations of
    /// theirs were fused.
    ///
    /// What is launched under it counts once, for the range of the first context, as if that one alone was attached: no
    /// sum or budget changes by the others. Those are said of it all the same: [`GpuOperation::ranges`](crate::profile::GpuOperation::ranges) has
    /// all of them, and each other range, with those around it, has it in [`Range::shared`](crate::Range::shared), apart
    /// from its own sums. Ranges that are opened under it lie in the first one, and share their work with the others.
    ///
    /// Empty contexts and those of earlier sessions are left out, and of the same range all but the first; a context that was
    /// joined itself is all of its ranges. Of one range it is that range's context, and of none an
    /// [empty one](Self::is_empty). Any thread may join contexts of any threads, and attach the result on others. It costs
    /// an allocation or two, and in this thread's log an entry of 24 bytes for two ranges, and one more for each further
    /// one; to attach it costs what any context does. It does not fail: where the entry cannot be written, as on a thread that
    /// is ending, the first context is left and [`Health::lost_ranges`](crate::Health::lost_ranges) counts it.
    ///
    /// Marks and ranges of the process made under it, and nodes of graphs that are captured, are of the first range alone.
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
    ///     // What is launched here counts for "add", and is shared with "relu".
    /// });
    /// ```
    #[must_use]
    pub fn join(contexts: impl IntoIterator<Item = Self>) -> Self {
        let tags = contexts.into_iter().map(|context| RangeTag(context.tag));
        Self { tag: ranges::join(tags).map_or(0, |tag| tag.0) }
    }

    /// True if no session was on, or no range open.
    pub fn is_empty(&self) -> bool {
        self.tag == 0
    }

    pub(crate) fn tag(self) -> u64 {
        self.tag
    }

    /// Until the returned guard is dropped, this thread is in that range, or in those that were joined.
    ///
    /// Guards nest as ranges do. What is on this thread already is put aside, not ended.
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

    /// A closure that runs in this context, for `thread::spawn`, `rayon::spawn` and their like.
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

    /// The same for a closure that is called with a value, any number of times, on whatever thread: for rayon's
    /// `map`, `for_each` and their like.
    pub fn wrap_each<A, R>(self, f: impl Fn(A) -> R) -> impl Fn(A) -> R {
        move |value| self.run(|| f(value))
    }

    /// A future each of whose polls runs in this context, for `tokio::spawn` and its like.
    pub fn follow<F: Future>(self, future: F) -> InContext<F> {
        InContext { future, context: self }
    }
}

/// A context is attached to this thread. Made by [`Context::attach`].
#[derive(Debug)]
#[must_use = "the context is detached when this guard is dropped: keep it in a variable, `let _attached = ...`"]
pub struct Attached {
    /// `None` if there was nothing to attach.
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

pin_project! {
    /// A future that runs in a context. Made by [`Context::follow`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless they are polled"]
    pub struct InContext<F> {
        #[pin]
        future: F,
        context: Context,
    }
}

impl<F: Future> Future for InContext<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _attached = this.context.attach();
        this.future.poll(task)
    }
}
