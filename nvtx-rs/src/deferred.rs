//! Deferred events: reported after they happened, with their own timestamps.

use std::sync::OnceLock;

use crate::accessors::setters;
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

/// Reports past ranges and marks, such as those that a device measured. Intended for a `static`.
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
/// Names are registered strings of the same domain; a name of another domain is sent without its
/// text. A call sends a batch to the tool, or two if some events have a colour and some have none.
#[derive(Debug)]
#[must_use]
pub struct Deferred {
    clock: Clock,
    scope: Scope,
    domain: Option<&'static Domain>,
    ranges: Schemas,
    marks: Schemas,
}

/// A range with its times.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct DeferredRange<'a> {
    mark: DeferredMark<'a>,
    end: i64,
}

impl<'a> DeferredRange<'a> {
    /// A range from `start` to `end` by the clock of its [`Deferred`].
    pub const fn new(name: &'a RegisteredString, start: i64, end: i64) -> DeferredRange<'a> {
        DeferredRange { mark: DeferredMark::new(name, start), end }
    }

    setters! {
        /// Sets the colour.
        color(color: Color) mark.color = Some(color);
        /// Sets the category.
        category(category: Category) mark.category = Some(category);
    }
}

/// A mark with its time.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct DeferredMark<'a> {
    name: &'a RegisteredString,
    time: i64,
    color: Option<Color>,
    category: Option<Category>,
}

impl<'a> DeferredMark<'a> {
    /// A mark at `time` by the clock of its [`Deferred`].
    pub const fn new(name: &'a RegisteredString, time: i64) -> DeferredMark<'a> {
        DeferredMark { name, time, color: None, category: None }
    }

    setters! {
        /// Sets the colour.
        color(color: Color) color = Some(color);
        /// Sets the category.
        category(category: Category) category = Some(category);
    }
}

/// The schema of a kind of events: name, flags, and the times with their flags.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    flags: u64,
    times: &'static [(&'static str, u64)],
}

const RANGE: Kind =
    Kind { name: "deferred range", flags: 3 << 3, times: &[("start", 1 << 12), ("end", 2 << 12)] };
const MARK: Kind = Kind { name: "deferred mark", flags: 4 << 3, times: &[("time", 3 << 12)] };

/// The tool's ids of the schemas of a kind of events; `None` if it did not accept the schema.
#[derive(Debug)]
struct Schemas {
    plain: OnceLock<Option<u64>>,
    colored: OnceLock<Option<u64>>,
}

impl Schemas {
    const fn new() -> Schemas {
        Schemas { plain: OnceLock::new(), colored: OnceLock::new() }
    }
}

impl Deferred {
    /// Events of the default domain with times by `clock`, of this process.
    pub const fn new(clock: Clock) -> Deferred {
        Deferred {
            clock,
            scope: Scope::PROCESS,
            domain: None,
            ranges: Schemas::new(),
            marks: Schemas::new(),
        }
    }

    setters! {
        /// Sets the domain.
        in_domain(domain: &'static Domain) domain = Some(domain);
        /// Sets the scope.
        in_scope(scope: Scope) scope = scope;
    }

    /// Reports ranges, in any order.
    pub fn ranges(&self, ranges: &[DeferredRange<'_>]) {
        if state::is_idle() || state::current() == 0 {
            return;
        }
        self.tell(&self.ranges, RANGE, ranges.iter().map(|range| (&range.mark, Some(range.end))));
    }

    /// Reports marks, in any order.
    pub fn marks(&self, marks: &[DeferredMark<'_>]) {
        if state::is_idle() || state::current() == 0 {
            return;
        }
        self.tell(&self.marks, MARK, marks.iter().map(|mark| (mark, None)));
    }

    fn tell<'a>(
        &self,
        schemas: &Schemas,
        kind: Kind,
        events: impl Iterator<Item = (&'a DeferredMark<'a>, Option<i64>)> + Clone,
    ) {
        if state::has_tool() {
            // No colour value means "none", so events without a colour have a schema without
            // colours.
            for (has_color, known) in [(false, &schemas.plain), (true, &schemas.colored)] {
                let (mut bytes, mut count) = (Vec::new(), 0);
                for (mark, end) in
                    events.clone().filter(|(mark, _)| mark.color.is_some() == has_color)
                {
                    mark.write(end, self.domain, &mut bytes);
                    count += 1;
                }
                if count > 0
                    && let Some(schema) = *known.get_or_init(|| self.register(kind, has_color))
                {
                    self.submit(schema, &bytes, count);
                }
            }
        }
        if observer::is_on() {
            for (mark, end) in events {
                self.observed(mark, end);
            }
        }
    }

    fn register(&self, kind: Kind, has_color: bool) -> Option<u64> {
        let time = |(name, flags): &(&'static str, u64)| {
            Entry::new(name, EntryType::I64).timed(*flags, self.clock)
        };
        let mut entries: Vec<Entry> = kind.times.iter().map(time).collect();
        entries.push(Entry::new("name", EntryType::Registered).message());
        if has_color {
            entries.push(Entry::new("color", EntryType::Color));
        }
        entries.push(Entry::new("category", EntryType::Category));
        schema::register(DomainRef::from_domain(self.domain), kind.name, kind.flags, &entries)
    }

    /// Sends a batch even for one event, since a single event has no field for the scope.
    fn submit(&self, schema: u64, bytes: &[u8], count: usize) {
        let domain = DomainRef::from_domain(self.domain).handle_or_null();
        let batch = EventBatch::new(schema, bytes, self.scope.number(), UNSORTED);
        if functions::event_batch_submit(domain, &batch).is_none() {
            for event in bytes.chunks_exact(bytes.len() / count) {
                functions::submit(domain, &[PayloadData::new(schema, event)]);
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
    /// Writes times, name, colour if any, and category in the order of [`Deferred::register`].
    fn write(&self, end: Option<i64>, domain: Option<&'static Domain>, bytes: &mut Vec<u8>) {
        bytes.extend(self.time.to_ne_bytes());
        if let Some(end) = end {
            bytes.extend(end.to_ne_bytes());
        }
        let name =
            self.name.handle_in(DomainRef::from_domain(domain)).map_or(0, |handle| handle.bits());
        bytes.extend(name.to_ne_bytes());
        if let Some(color) = self.color {
            bytes.extend(color.to_argb().to_ne_bytes());
        }
        bytes.extend(self.category.map_or(0, Category::id).to_ne_bytes());
        bytes.resize(bytes.len().next_multiple_of(size_of::<i64>()), 0);
    }
}
