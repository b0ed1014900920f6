//! Ranges, as guards: of one thread, and of the process.
//!
//! Whether anyone looks is decided once, at the start, and the guard keeps what was begun. So an end
//! never goes to someone who did not see the start, whatever is switched on or off in between, and a
//! range that nobody saw ends on a branch over its own field.

use std::marker::PhantomData;

use crate::domain::DomainRef;
use crate::event::Event;
use crate::schema::Record;
use crate::state;
#[cfg(feature = "enable")]
use crate::{domain::DomainKeep, emit, observer, observer::Token};

/// Starts a range named `name` on this thread; it ends when the returned guard is dropped.
///
/// Ranges of a thread nest: end them in the reverse order of their starts, which scopes do by
/// themselves. The guard stays on its thread; [`process_range`] gives one that does not.
///
/// With no tool and no observer this costs under 1 ns, its end included. The first call of the
/// process looks for a tool, which may load a library.
///
/// ```
/// let _step = nvtx::range("step");
/// {
///     let _forward = nvtx::range("forward");
/// } // "forward" ends here, "step" goes on
/// ```
#[inline]
pub fn range(name: &str) -> Range {
    Range::start(|| Event::in_domain(DomainRef::Default, name))
}

/// Starts a range of the process: it may overlap others, and end on another thread than it began.
///
/// Tools show these ranges apart from those of threads, and no work of a thread is put down to them.
///
/// ```
/// let request = nvtx::process_range("request");
/// std::thread::spawn(move || drop(request));
/// ```
#[inline]
pub fn process_range(name: &str) -> ProcessRange {
    ProcessRange::start(|| Event::in_domain(DomainRef::Default, name))
}

/// A range that is going on; dropping it ends it. Made by [`range`](crate::range()).
///
/// # Odd uses
///
/// - Guards dropped out of order: the observer is told which range ended. NVTX's stacks know no order
///   but the reverse, so for a tool the innermost range of the thread and domain ends.
/// - A guard in a struct ends with the struct.
/// - A guard leaked with [`std::mem::forget`] never ends, and for tools every range around it then ends
///   one level too deep.
/// - A panic that unwinds ends the ranges that it leaves; one that aborts ends none.
/// - A thread that ends with open ranges, which takes a leak, leaves them open.
/// - Depth has no limit here: 10,000 levels are 10,000 guards on the program's own stack.
/// - A forked child inherits the tool and the guards of the forking thread, and ends them once more,
///   in its own process.
///
/// It stays on its thread:
///
/// ```compile_fail,E0277
/// let range = nvtx::range("load");
/// std::thread::spawn(move || drop(range));
/// ```
#[must_use = "the range ends when this guard is dropped: keep it in a variable, `let _range = ...`"]
#[derive(Debug)]
pub struct Range {
    #[cfg(feature = "enable")]
    begun: Option<Begun>,
    /// NVTX keeps a stack for each thread, so the end belongs to the thread of the start.
    not_send: PhantomData<*mut ()>,
}

impl Range {
    /// A range that nobody sees.
    pub(crate) const NONE: Range = Range {
        #[cfg(feature = "enable")]
        begun: None,
        not_send: PhantomData,
    };

    /// `event` is called only if somebody looks.
    #[inline]
    pub(crate) fn start<'a>(event: impl FnOnce() -> Event<'a>) -> Range {
        if state::is_idle() { Range::NONE } else { Range::begin(event()) }
    }

    #[cold]
    #[inline(never)]
    fn begin(event: Event<'_>) -> Range {
        #[cfg(feature = "enable")]
        return Range { begun: Begun::push(&event), not_send: PhantomData };
        #[cfg(not(feature = "enable"))]
        {
            let _ = event;
            Range::NONE
        }
    }

    /// As a range of the tool alone, which `push` began.
    #[cfg(feature = "enable")]
    pub(crate) fn pushed(domain: DomainRef<'_>, token: Option<Token>, pushed: bool) -> Range {
        let begun = Begun::of(domain, pushed, token);
        Range { begun, not_send: PhantomData }
    }

    /// Ends the range with a record of what came out. A tool that takes no records there, and the
    /// observer of an earlier interface, see an end alone.
    pub fn end_with(mut self, record: &Record) {
        #[cfg(feature = "enable")]
        if let Some(begun) = self.begun.take() {
            begun.pop(Some(record));
        }
        #[cfg(not(feature = "enable"))]
        {
            let _ = (&mut self, record);
        }
    }
}

impl Drop for Range {
    #[inline]
    fn drop(&mut self) {
        #[cfg(feature = "enable")]
        if self.begun.is_some() {
            // Out of line, so that a range that nobody sees is a branch.
            end_range(self);
        }
    }
}

#[cfg(feature = "enable")]
#[cold]
#[inline(never)]
fn end_range(range: &mut Range) {
    if let Some(begun) = range.begun.take() {
        begun.pop(None);
    }
}

/// The parts of a thread's range that were begun, and so are to be ended.
#[cfg(feature = "enable")]
#[derive(Debug)]
struct Begun {
    /// Whether the tool was told.
    pushed: bool,
    token: Option<Token>,
    domain: DomainKeep,
}

#[cfg(feature = "enable")]
impl Begun {
    /// The observer is told last, and of the end first, so that the times it takes leave the tool out.
    fn push(event: &Event<'_>) -> Option<Begun> {
        let state = state::current();
        let pushed = state & state::TOOL != 0 && emit::push(event);
        let token = if state & state::OBSERVER != 0 { observer::range_start(event) } else { None };
        Begun::of(event.domain, pushed, token)
    }

    fn of(domain: DomainRef<'_>, pushed: bool, token: Option<Token>) -> Option<Begun> {
        let begun = pushed || token.is_some();
        begun.then(|| Begun { pushed, token, domain: domain.keep() })
    }

    fn pop(self, record: Option<&Record>) {
        if let Some(token) = self.token {
            observer::range_end(token, record);
        }
        if self.pushed {
            match record {
                None => emit::pop(self.domain.as_ref()),
                Some(record) => emit::pop_with(self.domain.as_ref(), record),
            }
        }
    }
}

/// A range of the process that is going on; dropping it, on whatever thread, ends it. Made by
/// [`process_range`](crate::process_range()).
///
/// One that is leaked never ends; the others are not touched by that.
#[must_use = "the range ends when this guard is dropped: keep it in a variable, `let _range = ...`"]
#[derive(Debug)]
pub struct ProcessRange {
    #[cfg(feature = "enable")]
    begun: Option<BegunProcess>,
}

impl ProcessRange {
    /// A range that nobody sees.
    pub(crate) const NONE: ProcessRange = ProcessRange {
        #[cfg(feature = "enable")]
        begun: None,
    };

    /// `event` is called only if somebody looks.
    #[inline]
    pub(crate) fn start<'a>(event: impl FnOnce() -> Event<'a>) -> ProcessRange {
        if state::is_idle() { ProcessRange::NONE } else { ProcessRange::begin(event()) }
    }

    #[cold]
    #[inline(never)]
    fn begin(event: Event<'_>) -> ProcessRange {
        #[cfg(feature = "enable")]
        return ProcessRange { begun: BegunProcess::start(&event) };
        #[cfg(not(feature = "enable"))]
        {
            let _ = event;
            ProcessRange::NONE
        }
    }

    /// As a range that is already begun.
    #[cfg(feature = "enable")]
    pub(crate) fn started(
        domain: DomainRef<'_>,
        token: Option<Token>,
        range: Option<u64>,
    ) -> ProcessRange {
        ProcessRange { begun: BegunProcess::of(domain, range, token) }
    }

    /// Ends the range with a record of what came out. A tool that takes no records there sees an end
    /// alone.
    pub fn end_with(mut self, record: &Record) {
        #[cfg(feature = "enable")]
        if let Some(begun) = self.begun.take() {
            begun.end(Some(record));
        }
        #[cfg(not(feature = "enable"))]
        {
            let _ = (&mut self, record);
        }
    }
}

impl Drop for ProcessRange {
    #[inline]
    fn drop(&mut self) {
        #[cfg(feature = "enable")]
        if self.begun.is_some() {
            end_process_range(self);
        }
    }
}

#[cfg(feature = "enable")]
#[cold]
#[inline(never)]
fn end_process_range(range: &mut ProcessRange) {
    if let Some(begun) = range.begun.take() {
        begun.end(None);
    }
}

#[cfg(feature = "enable")]
#[derive(Debug)]
struct BegunProcess {
    /// The tool's number of the range.
    range: Option<u64>,
    token: Option<Token>,
    domain: DomainKeep,
}

#[cfg(feature = "enable")]
impl BegunProcess {
    fn start(event: &Event<'_>) -> Option<BegunProcess> {
        let state = state::current();
        let range = if state & state::TOOL != 0 { emit::start(event) } else { None };
        let observed = state & state::OBSERVER != 0;
        let token = if observed { observer::process_range_start(event) } else { None };
        BegunProcess::of(event.domain, range, token)
    }

    fn of(domain: DomainRef<'_>, range: Option<u64>, token: Option<Token>) -> Option<BegunProcess> {
        let begun = range.is_some() || token.is_some();
        begun.then(|| BegunProcess { range, token, domain: domain.keep() })
    }

    fn end(self, record: Option<&Record>) {
        if let Some(token) = self.token {
            observer::process_range_end(token, record);
        }
        if let Some(range) = self.range {
            match record {
                None => emit::end(self.domain.as_ref(), range),
                Some(record) => emit::end_with(self.domain.as_ref(), range, record),
            }
        }
    }
}
