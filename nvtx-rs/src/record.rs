//! Ranges and marks that are described by a record alone.

#[cfg(feature = "enable")]
use crate::event::Event;
#[cfg(feature = "enable")]
use crate::observer;
use crate::range::{ProcessRange, Range};
use crate::schema::Record;
#[cfg(feature = "enable")]
use crate::state;
#[cfg(feature = "enable")]
use crate::sys::functions;
#[cfg(feature = "enable")]
use crate::sys::types::{Handle, PayloadData};

impl Record {
    /// Marks a moment by the record alone. Its name is that of the entry that is the [`message`](crate::schema::Entry::message); without
    /// one, for a tool that knows no records, and for the observer it is the schema's.
    pub fn mark(&self) {
        #[cfg(feature = "enable")]
        if !state::is_idle() {
            let marked =
                self.alone().and_then(|(domain, data)| functions::mark_payloads(domain, &[data]));
            if marked.is_none() {
                self.event().mark();
            } else if state::current() & state::OBSERVER != 0 {
                observer::mark(&self.event().start());
            }
        }
    }

    /// Starts a range of this thread by the record alone, with the name as for [`mark`](Record::mark).
    pub fn range(&self) -> Range {
        #[cfg(feature = "enable")]
        if !state::is_idle() {
            let level =
                self.alone().and_then(|(domain, data)| functions::push_payloads(domain, &[data]));
            if level.is_none() {
                return self.event().range();
            }
            let observed = state::current() & state::OBSERVER != 0;
            let event = self.event();
            let token = if observed { observer::range_start(&event.start()) } else { None };
            return Range::from_parts(self.schema().domain(), true, token);
        }
        Range::NONE
    }

    /// Starts a range of the process by the record alone, with the name as for [`mark`](Record::mark).
    pub fn process_range(&self) -> ProcessRange {
        #[cfg(feature = "enable")]
        if !state::is_idle() {
            let range =
                self.alone().and_then(|(domain, data)| functions::start_payloads(domain, &[data]));
            if range.is_none() {
                return self.event().process_range();
            }
            let observed = state::current() & state::OBSERVER != 0;
            let event = self.event();
            let token = if observed { observer::process_range_start(&event.start()) } else { None };
            return ProcessRange::from_parts(self.schema().domain(), range, token);
        }
        ProcessRange::NONE
    }

    /// The record as an event of its own, which has a name only where an entry is one: a tool may drop an event without.
    #[cfg(feature = "enable")]
    fn alone(&self) -> Option<(Handle, PayloadData<'_>)> {
        if !self.schema().has_message() {
            return None;
        }
        let data = PayloadData::new(self.schema_id()?, self.bytes());
        Some((self.schema().domain().handle_or_null(), data))
    }

    #[cfg(feature = "enable")]
    fn event(&self) -> Event<'_> {
        Event::in_domain(self.schema().domain(), self.schema().name()).record(self)
    }
}
