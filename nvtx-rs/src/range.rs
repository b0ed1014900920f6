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
/// With no tool and no observer this costs about 1 ns, its end included. The first call of the
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
    Range::start(move || Event::in_domain(DomainRef::Default, name))
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
    ProcessRange::start(move || Event::in_domain(DomainRef::Default, name))
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
        if state::is_idle() { Range::NONE } else { Range::begin_with(event) }
    }

    /// Out of line with all that describes the event, so that a range that nobody sees is a branch.
    #[cold]
    #[inline(never)]
    fn begin_with<'a>(event: impl FnOnce() -> Event<'a>) -> Range {
        Range::begin(&event())
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn begin_event(event: Event<'_>) -> Range {
        Range::begin(&event)
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn begin_named(domain: DomainRef<'_>, name: &str) -> Range {
        Range::begin(&Event::in_domain(domain, name))
    }

    /// The observer is told last, and of the end first, so that the times it takes leave the tool out.
    #[inline]
    pub(crate) fn begin(event: &Event<'_>) -> Range {
        #[cfg(feature = "enable")]
        {
            let state = state::current();
            let pushed = state & state::TOOL != 0 && emit::push(event);
            let token =
                if state & state::OBSERVER != 0 { observer::range_start(event) } else { None };
            Range::begun(event.domain, pushed, token)
        }
        #[cfg(not(feature = "enable"))]
        {
            let _ = event;
            Range::NONE
        }
    }

    /// A range of which the tool or the observer, or both, were told.
    #[cfg(feature = "enable")]
    #[inline]
    pub(crate) fn begun(domain: DomainRef<'_>, pushed: bool, token: Option<Token>) -> Range {
        let tool = if pushed { state::TOOL } else { 0 };
        let observer = if token.is_some() { state::OBSERVER } else { 0 };
        let parts = tool | observer;
        if parts == 0 {
            return Range::NONE;
        }
        let token = token.unwrap_or(Token::new(0));
        Range { begun: Some(Begun { parts, token, domain: domain.keep() }), not_send: PhantomData }
    }

    /// Ends the range with a record of what came out. A tool that takes no records there, and an
    /// observer that asks for none, see an end alone.
    pub fn end_with(mut self, record: &Record) {
        #[cfg(feature = "enable")]
        if let Some(begun) = &mut self.begun {
            begun.end(Some(record));
        }
        #[cfg(not(feature = "enable"))]
        {
            let _ = (&mut self, record);
        }
    }
}

#[cfg(not(feature = "enable"))]
impl Drop for Range {
    #[inline]
    fn drop(&mut self) {}
}

/// A range of a thread of which somebody was told, and so is to be told of its end. A guard that
/// nobody was told of has none, so that to drop it is one branch.
#[cfg(feature = "enable")]
#[derive(Debug)]
struct Begun {
    /// [`state::TOOL`] and [`state::OBSERVER`], as far as each was told of the start.
    parts: u8,
    token: Token,
    domain: DomainKeep,
}

#[cfg(feature = "enable")]
impl Begun {
    fn end(&mut self, record: Option<&Record>) {
        if self.parts & state::OBSERVER != 0 {
            observer::range_end(self.token, record);
        }
        if self.parts & state::TOOL != 0 {
            match record {
                None => emit::pop(self.domain.as_ref()),
                Some(record) => emit::pop_with(self.domain.as_ref(), record),
            }
        }
        self.parts = 0;
    }
}

#[cfg(feature = "enable")]
impl Drop for Begun {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        self.end(None);
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
        if state::is_idle() { ProcessRange::NONE } else { ProcessRange::begin_with(event) }
    }

    #[cold]
    #[inline(never)]
    fn begin_with<'a>(event: impl FnOnce() -> Event<'a>) -> ProcessRange {
        ProcessRange::begin(&event())
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn begin_event(event: Event<'_>) -> ProcessRange {
        ProcessRange::begin(&event)
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn begin_named(domain: DomainRef<'_>, name: &str) -> ProcessRange {
        ProcessRange::begin(&Event::in_domain(domain, name))
    }

    #[inline]
    pub(crate) fn begin(event: &Event<'_>) -> ProcessRange {
        #[cfg(feature = "enable")]
        {
            let state = state::current();
            let number = if state & state::TOOL != 0 { emit::start(event) } else { None };
            let observed = state & state::OBSERVER != 0;
            let token = if observed { observer::process_range_start(event) } else { None };
            ProcessRange::begun(event.domain, number, token)
        }
        #[cfg(not(feature = "enable"))]
        {
            let _ = event;
            ProcessRange::NONE
        }
    }

    /// A range of which the tool or the observer, or both, were told.
    #[cfg(feature = "enable")]
    #[inline]
    pub(crate) fn begun(
        domain: DomainRef<'_>,
        number: Option<u64>,
        token: Option<Token>,
    ) -> ProcessRange {
        let tool = if number.is_some() { state::TOOL } else { 0 };
        let observer = if token.is_some() { state::OBSERVER } else { 0 };
        let parts = tool | observer;
        if parts == 0 {
            return ProcessRange::NONE;
        }
        let (token, number) = (token.unwrap_or(Token::new(0)), number.unwrap_or(0));
        let begun = BegunProcess { parts, token, number, domain: domain.keep() };
        ProcessRange { begun: Some(begun) }
    }

    /// Ends the range with a record of what came out. A tool that takes no records there, and an
    /// observer that asks for none, see an end alone.
    pub fn end_with(mut self, record: &Record) {
        #[cfg(feature = "enable")]
        if let Some(begun) = &mut self.begun {
            begun.end(Some(record));
        }
        #[cfg(not(feature = "enable"))]
        {
            let _ = (&mut self, record);
        }
    }
}

#[cfg(not(feature = "enable"))]
impl Drop for ProcessRange {
    #[inline]
    fn drop(&mut self) {}
}

/// As [`Begun`], of a range of the process.
#[cfg(feature = "enable")]
#[derive(Debug)]
struct BegunProcess {
    parts: u8,
    token: Token,
    /// The tool's number of the range.
    number: u64,
    domain: DomainKeep,
}

#[cfg(feature = "enable")]
impl BegunProcess {
    fn end(&mut self, record: Option<&Record>) {
        if self.parts & state::OBSERVER != 0 {
            observer::process_range_end(self.token, record);
        }
        if self.parts & state::TOOL != 0 {
            match record {
                None => emit::end(self.domain.as_ref(), self.number),
                Some(record) => emit::end_with(self.domain.as_ref(), self.number, record),
            }
        }
        self.parts = 0;
    }
}

#[cfg(feature = "enable")]
impl Drop for BegunProcess {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        self.end(None);
    }
}
