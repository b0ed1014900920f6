//! Guards of ranges without the feature `enable`: zero-sized, without effect.

use crate::call_site::CallSite;
use crate::domain::DomainRef;
use crate::event::Event;
use crate::field::Field;
use crate::observer::Token;
use crate::schema::Record;

/// The state of a [`Range`](super::Range), and of a [`ProcessRange`](super::ProcessRange).
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard;

pub(super) use Guard as ProcessGuard;

impl Guard {
    pub(super) const NONE: Guard = Guard;

    pub(super) fn new<T>(_domain: DomainRef<'_>, _recorded: T, _token: Option<Token>) -> Guard {
        Guard
    }

    pub(super) fn begin_plain(_name: &str) -> Guard {
        Guard
    }

    pub(super) fn begin_site(_site: &'static CallSite, _name: &'static str) -> Guard {
        Guard
    }

    pub(super) fn begin(_event: &Event<'_>) -> Guard {
        Guard
    }

    #[inline]
    pub(super) fn is_recorded(self) -> bool {
        false
    }

    #[inline]
    pub(super) fn token(self) -> Option<Token> {
        None
    }

    #[inline]
    pub(super) fn end(self) {}

    pub(super) fn add_fields(self, _fields: &[Field<'_>]) {}

    pub(super) fn end_with(self, _record: &Record) {}
}
