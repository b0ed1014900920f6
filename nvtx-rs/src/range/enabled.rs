//! Guards of ranges. A guard stores the recorders of the start (tool, observer), so that the same
//! ones receive the end.

use crate::call_site::CallSite;
use crate::domain::DomainRef;
use crate::domain_slot::DomainSlot;
use crate::event::Event;
use crate::field::Field;
use crate::observer::{self, RangeStart, Token};
use crate::schema::Record;
use crate::{emit, state};

/// The state of a [`Range`](super::Range): two words, which a function returns in registers. A
/// guard in memory would dominate the cost of an idle range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard {
    ends: Ends,
    token: Token,
}

impl Guard {
    pub(super) const NONE: Guard = Guard { ends: Ends::NOBODY, token: Token::new(0) };

    /// Starts a range with only a name, in the default domain. The rare cases are a separate
    /// function, since a function saves as many registers as its longest path needs.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_plain(name: &str) -> Guard {
        if state::is_tool_alone() && emit::push_short(name) {
            return Guard { ends: Ends::TOOL, token: Token::new(0) };
        }
        Guard::begin_plain_for_all(name)
    }

    #[inline(never)]
    fn begin_plain_for_all(name: &str) -> Guard {
        if let state::OBSERVER = state::current() {
            return match observer::range_start(&RangeStart::new(name)) {
                Some(token) => Guard { ends: Ends::OBSERVER, token },
                None => Guard::NONE,
            };
        }
        Guard::begin(&Event::in_domain(DomainRef::Default, name))
    }

    /// Starts a range of a call site's own name.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_site(site: &'static CallSite, name: &'static str) -> Guard {
        if state::is_tool_alone()
            && let Some(range) = site.registered(name)
            && emit::push_registered(range)
        {
            return Guard { ends: Ends::tool_in(range.domain), token: Token::new(0) };
        }
        Guard::begin_site_for_all(site, name)
    }

    #[inline(never)]
    fn begin_site_for_all(site: &'static CallSite, name: &'static str) -> Guard {
        Guard::begin(&site.event_named(name))
    }

    /// The observer receives a start last and an end first, so that its times exclude the tool.
    pub(super) fn begin(event: &Event<'_>) -> Guard {
        let state = state::current();
        let pushed = state & state::TOOL != 0 && emit::push(event);
        let observed = state & state::OBSERVER != 0;
        let token = if observed { observer::range_start(&event.start()) } else { None };
        Guard::new(event.domain, pushed, token)
    }

    pub(super) fn new(domain: DomainRef<'_>, pushed: bool, token: Option<Token>) -> Guard {
        let ends = Ends::new(domain, pushed, token.is_some());
        Guard { ends, token: token.unwrap_or(Token::new(0)) }
    }

    #[inline]
    pub(super) fn is_recorded(self) -> bool {
        self.ends != Ends::NOBODY
    }

    /// Takes the guard by value, so that it stays in registers.
    #[cold]
    #[inline(never)]
    pub(super) fn end(self) {
        if self.ends == Ends::TOOL { emit::pop(DomainSlot::DEFAULT) } else { self.end_for_all() }
    }

    #[inline(never)]
    fn end_for_all(self) {
        match self.ends {
            Ends::OBSERVER => observer::range_end(self.token, None),
            _ => self.end_in_domain(None),
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn add_fields(self, fields: &[Field<'_>]) {
        if self.ends.has(Ends::OBSERVER) {
            observer::range_fields(self.token, fields);
        }
    }

    pub(super) fn end_with(self, record: &Record) {
        self.end_in_domain(Some(record));
    }

    fn end_in_domain(self, record: Option<&Record>) {
        if self.ends.has(Ends::OBSERVER) {
            observer::range_end(self.token, record);
        }
        if self.ends.has(Ends::TOOL) {
            match record {
                None => emit::pop(self.ends.domain()),
                Some(record) => emit::pop_with(self.ends.domain(), record),
            }
            self.ends.release_domain();
        }
    }
}

/// The recorders of the start, which receive the end: the tool with the domain's slot, the
/// observer, both, or none (0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ends(u64);

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

    /// The tool, in a domain without a reference count.
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

    /// Must be called after the tool has received the end.
    fn release_domain(self) {
        if self.0 & Ends::COUNTED != 0 {
            self.domain().release();
        }
    }
}

/// The state of a [`ProcessRange`].
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessGuard {
    ends: Ends,
    token: Token,
    /// The tool's number of the range.
    number: u64,
}

impl ProcessGuard {
    pub(super) const NONE: ProcessGuard =
        ProcessGuard { ends: Ends::NOBODY, token: Token::new(0), number: 0 };

    #[inline]
    pub(super) fn begin(event: &Event<'_>) -> ProcessGuard {
        let state = state::current();
        let number = if state & state::TOOL != 0 { emit::start(event) } else { None };
        let observed = state & state::OBSERVER != 0;
        let token = if observed { observer::process_range_start(&event.start()) } else { None };
        ProcessGuard::new(event.domain, number, token)
    }

    pub(super) fn new(
        domain: DomainRef<'_>,
        number: Option<u64>,
        token: Option<Token>,
    ) -> ProcessGuard {
        let ends = Ends::new(domain, number.is_some(), token.is_some());
        let (token, number) = (token.unwrap_or(Token::new(0)), number.unwrap_or(0));
        ProcessGuard { ends, token, number }
    }

    #[inline]
    pub(super) fn is_recorded(self) -> bool {
        self.ends != Ends::NOBODY
    }

    /// The token of the observer that recorded the start, if one did.
    #[inline]
    pub(super) fn token(self) -> Option<Token> {
        self.ends.has(Ends::OBSERVER).then_some(self.token)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn add_fields(self, fields: &[Field<'_>]) {
        if let Some(token) = self.token() {
            observer::process_range_fields(token, fields);
        }
    }

    pub(super) fn end(self) {
        self.end_in_domain(None);
    }

    pub(super) fn end_with(self, record: &Record) {
        self.end_in_domain(Some(record));
    }

    #[cold]
    #[inline(never)]
    fn end_in_domain(self, record: Option<&Record>) {
        let ProcessGuard { ends, token, number } = self;
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
