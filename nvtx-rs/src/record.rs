//! Ranges and marks that only a record describes.

use crate::event::Event;
use crate::observer::{self, RangeStart, Token};
use crate::range::{ProcessRange, Range};
use crate::schema::Record;
use crate::state;
use crate::sys::functions;
use crate::sys::types::{Handle, PayloadData};

impl Record {
    /// Records a mark that only this record describes. Its name is the
    /// [`message`](crate::schema::Entry::message) entry's value. The schema's name is used instead
    /// without such an entry, for a tool without support for records, and for the observer.
    pub fn mark(&self) {
        if state::is_idle() {
            return;
        }
        if self.submit(functions::mark_payloads).is_none() {
            self.event().mark();
        } else if state::current() & state::OBSERVER != 0 {
            observer::mark(&self.event().start());
        }
    }

    /// Starts a range of this thread that only this record describes. Its name is as for
    /// [`mark`](Record::mark).
    pub fn range(&self) -> Range {
        if state::is_idle() {
            return Range::NONE;
        }
        if self.submit(functions::push_payloads).is_none() {
            return self.event().range();
        }
        Range::from_parts(self.schema().domain(), true, self.observed(observer::range_start))
    }

    /// Starts a range of the process that only this record describes. Its name is as for
    /// [`mark`](Record::mark).
    pub fn process_range(&self) -> ProcessRange {
        if state::is_idle() {
            return ProcessRange::NONE;
        }
        let range = self.submit(functions::start_payloads);
        if range.is_none() {
            return self.event().process_range();
        }
        let token = self.observed(observer::process_range_start);
        ProcessRange::from_parts(self.schema().domain(), range, token)
    }

    /// Sends the record to the tool as an event of its own; `None` if the tool does not accept it.
    /// Requires an entry that is a name: a tool may drop an event without one.
    fn submit<T>(&self, send: fn(Handle, &[PayloadData<'_>]) -> Option<T>) -> Option<T> {
        if !self.schema().has_message() {
            return None;
        }
        let data = PayloadData::new(self.schema_id()?, self.bytes());
        send(self.schema().domain().handle_or_null(), &[data])
    }

    /// Reports the start to the observer, if it is on.
    fn observed(&self, start: fn(&RangeStart<'_>) -> Option<Token>) -> Option<Token> {
        if state::current() & state::OBSERVER == 0 {
            return None;
        }
        start(&self.event().start())
    }

    fn event(&self) -> Event<'_> {
        Event::in_domain(self.schema().domain(), self.schema().name()).record(self)
    }
}
