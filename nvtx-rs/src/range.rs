//! Ranges, as guards: of one thread, and of the process.
//!
//! Whether anyone looks is decided once, at the start, and the guard keeps what was begun. So an end
//! never goes to someone who did not see the start, whatever is switched on or off in between, and a
//! range that nobody saw ends on a branch over its own field.

use std::marker::PhantomData;

use crate::call_site::CallSite;
use crate::domain::DomainRef;
use crate::event::Event;
use crate::observer::Token;
use crate::schema::Record;
use crate::state;
#[cfg(feature = "enable")]
use crate::{
    domain_slot::DomainSlot,
    emit,
    observer::{self, RangeStart},
};

/// Starts a range named `name` on this thread; it ends when the returned guard is dropped.
///
/// Ranges of a thread nest: end them in the reverse order of their starts, which scopes do by
/// themselves. The guard stays on its thread; [`process_range`] gives one that does not.
///
/// With no tool and no observer this costs a load and a branch, its end included. The first call of the
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
    if state::is_idle() { Range::NONE } else { Range::begin_plain(name) }
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

impl Event<'_> {
    /// The range of the process that it is a stay in, as a poll is in the life of its future: for the observer, to which
    /// the work of all stays is that of the whole. Tools have no place for it.
    ///
    /// ```
    /// let request = nvtx::process_range("request");
    /// {
    ///     let _stay = nvtx::event("parse").within(&request).range();
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

/// A range that is going on; dropping it ends it. Made by [`range`](crate::range()).
///
/// # Odd uses
///
/// - Guards dropped out of order: the observer is told which range ended. NVTX's stacks know no order
///   but the reverse, so for a tool the innermost range of the thread and domain ends.
/// - A guard in a struct ends with the struct.
/// - A guard held across an `.await` takes in whatever else its thread does until the task goes on there: put the future
///   in ranges with [`in_range`](crate::Instrument::in_range) or [`annotate`](macro@crate::annotate). It keeps the future
///   from being `Send`.
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
    /// Two words, which is what a function returns in registers. A guard that lay in memory would cost each idle range
    /// more than all the rest of it.
    #[cfg(feature = "enable")]
    begun: Begun,
    /// NVTX keeps a stack for each thread, so the end belongs to the thread of the start.
    not_send: PhantomData<*mut ()>,
}

impl Range {
    /// A range that nobody sees.
    pub(crate) const NONE: Range = Range {
        #[cfg(feature = "enable")]
        begun: Begun { ends: Ends::NOBODY, token: Token::new(0) },
        not_send: PhantomData,
    };

    /// A name alone, in the default domain. What is most frequent of it is short, and the rest a function of its own:
    /// what a function saves of registers it saves for its longest way.
    #[cold]
    #[inline(never)]
    pub(crate) fn begin_plain(name: &str) -> Range {
        #[cfg(feature = "enable")]
        if state::is_tool_alone() && emit::push_short(name) {
            return Range::begun(Ends::TOOL, Token::new(0));
        }
        Range::begin_plain_for_all(name)
    }

    #[inline(never)]
    fn begin_plain_for_all(name: &str) -> Range {
        #[cfg(feature = "enable")]
        if let state::OBSERVER = state::current() {
            return match observer::range_start(&RangeStart::new(name)) {
                Some(token) => Range::begun(Ends::OBSERVER, token),
                None => Range::NONE,
            };
        }
        Range::begin(&Event::in_domain(DomainRef::Default, name))
    }

    /// A name of a call site's own.
    #[cold]
    #[inline(never)]
    pub(crate) fn begin_site(site: &'static CallSite, name: &'static str) -> Range {
        #[cfg(feature = "enable")]
        if state::is_tool_alone()
            && let Some(range) = site.registered(name)
            && emit::push_registered(range)
        {
            return Range::begun(Ends::tool_in(range.domain), Token::new(0));
        }
        Range::begin_site_for_all(site, name)
    }

    #[inline(never)]
    fn begin_site_for_all(site: &'static CallSite, name: &'static str) -> Range {
        Range::begin(&site.event_named(name))
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

    /// The observer gets a start last and an end first, so that its times exclude the tool.
    pub(crate) fn begin(event: &Event<'_>) -> Range {
        #[cfg(feature = "enable")]
        {
            let state = state::current();
            let pushed = state & state::TOOL != 0 && emit::push(event);
            let observed = state & state::OBSERVER != 0;
            let token = if observed { observer::range_start(&event.start()) } else { None };
            Range::from_parts(event.domain, pushed, token)
        }
        #[cfg(not(feature = "enable"))]
        {
            let _ = event;
            Range::NONE
        }
    }

    /// A range that the tool, the observer or both have seen start.
    #[cfg(feature = "enable")]
    pub(crate) fn from_parts(domain: DomainRef<'_>, pushed: bool, token: Option<Token>) -> Range {
        let ends = Ends::new(domain, pushed, token.is_some());
        Range::begun(ends, token.unwrap_or(Token::new(0)))
    }

    #[cfg(feature = "enable")]
    #[inline]
    fn begun(ends: Ends, token: Token) -> Range {
        Range { begun: Begun { ends, token }, not_send: PhantomData }
    }

    /// Ends the range with a record of what came out. A tool that takes no records there, and an
    /// observer that asks for none, see an end alone.
    pub fn end_with(mut self, record: &Record) {
        #[cfg(feature = "enable")]
        {
            let Begun { ends, token } = self.begun;
            self.begun.ends = Ends::NOBODY;
            end(ends, token, Some(record));
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
        if self.begun.ends != Ends::NOBODY {
            // By value, so that the guard need not lie in memory.
            end_plainly(self.begun.ends, self.begun.token);
        }
    }
}

/// A range of a thread, as far as its end needs it.
#[cfg(feature = "enable")]
#[derive(Clone, Copy, Debug)]
struct Begun {
    ends: Ends,
    token: Token,
}

/// Who saw the start and so gets the end: the tool, the observer, both or, as 0, nobody. For the tool, the domain's slot
/// too.
#[cfg(feature = "enable")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ends(u64);

#[cfg(feature = "enable")]
impl Ends {
    const NOBODY: Ends = Ends(0);
    /// The tool, in the default domain.
    const TOOL: Ends = Ends(state::TOOL as u64);
    const OBSERVER: Ends = Ends(state::OBSERVER as u64);
    /// The range counts as a user of its domain.
    const COUNTED: u64 = 1 << 8;
    const DOMAIN_SHIFT: u32 = 32;

    fn new(domain: DomainRef<'_>, tool: bool, observer: bool) -> Ends {
        let observer = if observer { Ends::OBSERVER.0 } else { 0 };
        if !tool {
            return Ends(observer);
        }
        let slot = domain.slot();
        let mut ends = Ends(Ends::tool_in(slot).0 | observer);
        if domain.is_owned() {
            slot.keep();
            ends.0 |= Ends::COUNTED;
        }
        ends
    }

    /// The tool, in a domain that does not end.
    #[inline]
    fn tool_in(domain: DomainSlot) -> Ends {
        Ends(Ends::TOOL.0 | u64::from(domain.number()) << Ends::DOMAIN_SHIFT)
    }

    fn has(self, who: Ends) -> bool {
        self.0 & who.0 != 0
    }

    fn domain(self) -> DomainSlot {
        // CAST: the upper half is a domain's number.
        DomainSlot::of_number((self.0 >> Ends::DOMAIN_SHIFT) as u32)
    }

    /// After the tool has seen the end.
    fn release_domain(self) {
        if self.0 & Ends::COUNTED != 0 {
            self.domain().release();
        }
    }
}

#[cfg(feature = "enable")]
#[cold]
#[inline(never)]
fn end_plainly(ends: Ends, token: Token) {
    if ends == Ends::TOOL { emit::pop(DomainSlot::DEFAULT) } else { end_for_all(ends, token) }
}

#[cfg(feature = "enable")]
#[inline(never)]
fn end_for_all(ends: Ends, token: Token) {
    match ends {
        Ends::OBSERVER => observer::range_end(token, None),
        _ => end(ends, token, None),
    }
}

#[cfg(feature = "enable")]
fn end(ends: Ends, token: Token, record: Option<&Record>) {
    if ends.has(Ends::OBSERVER) {
        observer::range_end(token, record);
    }
    if ends.has(Ends::TOOL) {
        match record {
            None => emit::pop(ends.domain()),
            Some(record) => emit::pop_with(ends.domain(), record),
        }
        ends.release_domain();
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
    begun: BegunProcess,
}

impl ProcessRange {
    /// A range that nobody sees.
    pub(crate) const NONE: ProcessRange = ProcessRange {
        #[cfg(feature = "enable")]
        begun: BegunProcess { ends: Ends::NOBODY, token: Token::new(0), number: 0 },
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
            let token = if observed { observer::process_range_start(&event.start()) } else { None };
            ProcessRange::from_parts(event.domain, number, token)
        }
        #[cfg(not(feature = "enable"))]
        {
            let _ = event;
            ProcessRange::NONE
        }
    }

    /// A range that the tool, the observer or both have seen start.
    #[cfg(feature = "enable")]
    pub(crate) fn from_parts(
        domain: DomainRef<'_>,
        number: Option<u64>,
        token: Option<Token>,
    ) -> ProcessRange {
        let ends = Ends::new(domain, number.is_some(), token.is_some());
        let (token, number) = (token.unwrap_or(Token::new(0)), number.unwrap_or(0));
        ProcessRange { begun: BegunProcess { ends, token, number } }
    }

    /// The token of the observer that saw its start, if one did.
    #[inline]
    pub(crate) fn observed(&self) -> Option<Token> {
        #[cfg(feature = "enable")]
        return self.begun.ends.has(Ends::OBSERVER).then_some(self.begun.token);
        #[cfg(not(feature = "enable"))]
        None
    }

    /// Ends the range with a record of what came out. A tool that takes no records there, and an
    /// observer that asks for none, see an end alone.
    pub fn end_with(mut self, record: &Record) {
        #[cfg(feature = "enable")]
        {
            let begun = self.begun;
            self.begun.ends = Ends::NOBODY;
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
        if self.begun.ends != Ends::NOBODY {
            self.begun.end(None);
        }
    }
}

/// As [`Begun`], of a range of the process.
#[cfg(feature = "enable")]
#[derive(Clone, Copy, Debug)]
struct BegunProcess {
    ends: Ends,
    token: Token,
    /// The tool's number of the range.
    number: u64,
}

#[cfg(feature = "enable")]
impl BegunProcess {
    #[cold]
    #[inline(never)]
    fn end(self, record: Option<&Record>) {
        let BegunProcess { ends, token, number } = self;
        if ends.has(Ends::OBSERVER) {
            observer::process_range_end(token, record);
        }
        if ends.has(Ends::TOOL) {
            match record {
                None => emit::end(ends.domain(), number),
                Some(record) => emit::end_with(ends.domain(), number, record),
            }
            ends.release_domain();
        }
    }
}
