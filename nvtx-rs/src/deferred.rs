//! Events that are told after they happened, with times of their own.

use std::sync::OnceLock;

use crate::category::Category;
use crate::color::Color;
use crate::domain::{Domain, DomainRef};
use crate::observer::{self, DeferredEvent};
use crate::schema::{self, Entry, EntryType};
use crate::state;
use crate::string::RegisteredString;
use crate::sys::functions;
use crate::sys::types::{EventBatch, PayloadData, UNSORTED};
use crate::time::{Clock, Scope};

/// Tells of ranges and marks after the fact, such as those that a device measured. Made for a `static`.
///
/// ```
/// use nvtx::deferred::{Deferred, DeferredRange};
/// use nvtx::time::Clock;
///
/// static DEVICE: Deferred = Deferred::new(Clock::MONOTONIC);
///
/// let name = nvtx::register("copy");
/// DEVICE.ranges(&[DeferredRange::new(&name, 1_000, 2_000), DeferredRange::new(&name, 3_000, 4_500)]);
/// ```
///
/// Names are registered ones of the same domain; a name of another domain goes out without its text.
#[derive(Debug)]
pub struct Deferred {
    clock: Clock,
    scope: Scope,
    domain: Option<&'static Domain>,
    ranges: OnceLock<Option<u64>>,
    marks: OnceLock<Option<u64>>,
}

/// A range with its times.
#[derive(Clone, Copy, Debug)]
pub struct DeferredRange<'a> {
    mark: DeferredMark<'a>,
    end: i64,
}

impl<'a> DeferredRange<'a> {
    /// A range from `start` to `end` by the clock of its [`Deferred`].
    #[must_use]
    pub const fn new(name: &'a RegisteredString, start: i64, end: i64) -> DeferredRange<'a> {
        DeferredRange { mark: DeferredMark::new(name, start), end }
    }

    /// The colour that a tool draws it in.
    #[must_use]
    pub const fn color(mut self, color: Color) -> DeferredRange<'a> {
        self.mark.color = Some(color);
        self
    }

    /// The group that it belongs to.
    #[must_use]
    pub const fn category(mut self, category: Category) -> DeferredRange<'a> {
        self.mark.category = Some(category);
        self
    }
}

/// A mark with its time.
#[derive(Clone, Copy, Debug)]
pub struct DeferredMark<'a> {
    name: &'a RegisteredString,
    time: i64,
    color: Option<Color>,
    category: Option<Category>,
}

impl<'a> DeferredMark<'a> {
    /// A mark at `time` by the clock of its [`Deferred`].
    #[must_use]
    pub const fn new(name: &'a RegisteredString, time: i64) -> DeferredMark<'a> {
        DeferredMark { name, time, color: None, category: None }
    }

    /// The colour that a tool draws it in.
    #[must_use]
    pub const fn color(mut self, color: Color) -> DeferredMark<'a> {
        self.color = Some(color);
        self
    }

    /// The group that it belongs to.
    #[must_use]
    pub const fn category(mut self, category: Category) -> DeferredMark<'a> {
        self.category = Some(category);
        self
    }
}

const RANGE_BEGIN: u64 = 1 << 12;
const RANGE_END: u64 = 2 << 12;
const MARK: u64 = 3 << 12;
const SCHEMA_RANGE: u64 = 3 << 3;
const SCHEMA_MARK: u64 = 4 << 3;

impl Deferred {
    /// Events of the default domain with times by `clock`, of this process.
    #[must_use]
    pub const fn new(clock: Clock) -> Deferred {
        Deferred {
            clock,
            scope: Scope::PROCESS,
            domain: None,
            ranges: OnceLock::new(),
            marks: OnceLock::new(),
        }
    }

    /// They are of this domain.
    #[must_use]
    pub const fn in_domain(mut self, domain: &'static Domain) -> Deferred {
        self.domain = Some(domain);
        self
    }

    /// They are of this place.
    #[must_use]
    pub const fn in_scope(mut self, scope: Scope) -> Deferred {
        self.scope = scope;
        self
    }

    /// Tells of ranges, in any order.
    pub fn ranges(&self, ranges: &[DeferredRange<'_>]) {
        if state::is_idle() || state::current() == 0 {
            return;
        }
        let schema = self.schema(&self.ranges, "deferred range", SCHEMA_RANGE, || {
            vec![
                Entry::new("start", EntryType::I64).timed(RANGE_BEGIN, self.clock),
                Entry::new("end", EntryType::I64).timed(RANGE_END, self.clock),
            ]
        });
        if let Some(schema) = schema {
            let mut bytes = Vec::with_capacity(ranges.len() * 32);
            for range in ranges {
                bytes.extend(range.mark.time.to_ne_bytes());
                bytes.extend(range.end.to_ne_bytes());
                range.mark.write_rest(self.domain, &mut bytes);
            }
            self.submit(schema, &bytes, ranges.len());
        }
        if observer::is_on() {
            for range in ranges {
                self.observed(&range.mark, Some(range.end));
            }
        }
    }

    /// Tells of marks, in any order.
    pub fn marks(&self, marks: &[DeferredMark<'_>]) {
        if state::is_idle() || state::current() == 0 {
            return;
        }
        let schema = self.schema(&self.marks, "deferred mark", SCHEMA_MARK, || {
            vec![Entry::new("time", EntryType::I64).timed(MARK, self.clock)]
        });
        if let Some(schema) = schema {
            let mut bytes = Vec::with_capacity(marks.len() * 24);
            for mark in marks {
                bytes.extend(mark.time.to_ne_bytes());
                mark.write_rest(self.domain, &mut bytes);
            }
            self.submit(schema, &bytes, marks.len());
        }
        if observer::is_on() {
            for mark in marks {
                self.observed(mark, None);
            }
        }
    }

    fn schema(
        &self,
        known: &OnceLock<Option<u64>>,
        name: &str,
        flags: u64,
        times: impl FnOnce() -> Vec<Entry>,
    ) -> Option<u64> {
        if !state::has_tool() {
            return None;
        }
        *known.get_or_init(|| {
            let mut entries = times();
            entries.push(Entry::new("name", EntryType::Registered).message());
            entries.push(Entry::new("color", EntryType::Color));
            entries.push(Entry::new("category", EntryType::Category));
            schema::register(DomainRef::of(self.domain), name, flags, &entries)
        })
    }

    /// One event goes by itself, several as a batch.
    fn submit(&self, schema: u64, bytes: &[u8], count: usize) {
        let domain = DomainRef::of(self.domain).handle_or_null();
        match count {
            0 => {}
            1 => {
                functions::submit(domain, &[PayloadData::new(schema, bytes)]);
            }
            _ => {
                let batch = EventBatch::new(schema, bytes, self.scope.number(), UNSORTED);
                functions::event_batch_submit(domain, &batch);
            }
        }
    }

    fn observed(&self, mark: &DeferredMark<'_>, end: Option<i64>) {
        observer::deferred(&DeferredEvent {
            name: mark.name.as_str(),
            domain: self.domain.map(Domain::name),
            clock: self.clock,
            start: mark.time,
            end,
            category: mark.category,
            color: mark.color,
        });
    }
}

impl DeferredMark<'_> {
    /// What comes after the times: name, colour and category.
    fn write_rest(&self, domain: Option<&'static Domain>, bytes: &mut Vec<u8>) {
        let name = self.name.handle_in(DomainRef::of(domain)).map_or(0, |handle| handle.bits());
        bytes.extend(name.to_ne_bytes());
        bytes.extend(self.color.map_or(0, Color::to_argb).to_ne_bytes());
        bytes.extend(self.category.map_or(0, Category::id).to_ne_bytes());
    }
}
