//! Translation of NVTX calls to events of the observer: domain, name, category, colour, payload.
//!
//! Once the thread and the domain are known, pushes and pops take no lock and allocate nothing.
//! Only a wide-character name, or one that is not valid UTF-8, is converted.

pub(crate) mod counter;
pub(crate) mod deferred;
mod domain;
mod names;
pub(crate) mod nccl;
mod process_ranges;
pub(crate) mod schema;
pub(crate) mod sync;
mod thread;
mod waiting;

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use nvtx::observer::{Named, Observer, RangeStart};
use nvtx::{Color, Payload, ResourceId};

pub(crate) use self::domain::Domain;
use crate::counts::{COUNTS, count};
use crate::mode::Mode;

/// Held while tables of names and objects change. A fork waits for it, so that the child has
/// consistent tables. This lock is from the standard library, whose locks survive a fork.
static CHANGES: Mutex<()> = Mutex::new(());

fn changing() -> MutexGuard<'static, ()> {
    CHANGES.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local!(static FORKS: Cell<Option<MutexGuard<'static, ()>>> = const { Cell::new(None) });

/// Prevents changes to the tables while this thread forks.
pub(crate) fn before_fork() {
    let _ = FORKS.try_with(|forks| forks.set(Some(changing())));
}

/// Releases the tables, in the parent and in the child.
pub(crate) fn after_fork() {
    let _ = FORKS.try_with(Cell::take);
}

/// NVTX's result for ranges that no tool tracks, and if the level is unknown.
pub(crate) const NO_LEVEL: i32 = -2;
/// The smallest id of a schema, counter or other object that the program chooses. Smaller ids are
/// types.
const FIRST_STATIC: u64 = 1 << 24;
/// The smallest id that the tool chooses.
pub(crate) const FIRST_DYNAMIC: u64 = 1 << 32;

static OBSERVER: OnceLock<&'static dyn Observer> = OnceLock::new();

/// Sends the events to another observer, for tests. Returns false if an observer is already set.
pub(crate) fn observe_with(observer: &'static dyn Observer) -> bool {
    OBSERVER.set(observer).is_ok()
}

/// The observer of the events. The default is the recorder of `profiler-core`.
#[inline]
pub(crate) fn observer() -> &'static dyn Observer {
    *OBSERVER.get_or_init(profiler_core::Profiler::range_recorder)
}

/// A text owned by the program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Text<'a> {
    Bytes(&'a [u8]),
    /// A text of `wchar_t` characters.
    Wide(&'a [u32]),
}

impl<'a> Text<'a> {
    /// Decodes the text to UTF-8. Invalid characters are replaced.
    #[inline]
    pub(crate) fn decoded(self) -> Cow<'a, str> {
        match self {
            Text::Bytes(bytes) => String::from_utf8_lossy(bytes),
            Text::Wide(wide) => {
                let character = |&code| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                Cow::Owned(wide.iter().map(character).collect())
            }
        }
    }
}

/// The name of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Name<'a> {
    Text(Text<'a>),
    /// The handle of a registered string.
    Registered(usize),
    /// The event has no name, or its name cannot be read.
    None,
}

/// The bytes of a payload with the id of their schema.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block<'a> {
    pub(crate) schema: u64,
    pub(crate) bytes: &'a [u8],
}

/// The readable part of `nvtxEventAttributes_t`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event<'a> {
    pub(crate) name: Name<'a>,
    /// The category number; 0 if none.
    pub(crate) category: u32,
    pub(crate) color: Option<u32>,
    pub(crate) payload: Option<Payload>,
    pub(crate) blocks: &'a [Block<'a>],
}

impl<'a> Event<'a> {
    pub(crate) fn named(name: Name<'a>) -> Event<'a> {
        Event { name, category: 0, color: None, payload: None, blocks: &[] }
    }
}

/// Calls `with` with a name as text. A missing name is passed as an empty text and counted.
#[inline]
fn with_name<R>(name: Name<'_>, with: impl FnOnce(&str) -> R) -> R {
    let known = match name {
        Name::Text(text) => return with(&text.decoded()),
        Name::Registered(handle) => names::index(names::Kind::Text, handle).and_then(names::text),
        Name::None => None,
    };
    if known.is_none() {
        count(&COUNTS.unknown_names);
    }
    with(known.unwrap_or(""))
}

/// Calls `with` with an event in the observer's format.
#[inline]
fn with_start<R>(domain: &Domain, event: &Event<'_>, with: impl FnOnce(&RangeStart<'_>) -> R) -> R {
    if !event.blocks.is_empty() {
        return with_blocks(domain, event, with);
    }
    with_name(event.name, |name| with(&start(domain, event, name, event.payload)))
}

#[inline]
fn start<'a>(
    domain: &Domain,
    event: &Event<'_>,
    name: &'a str,
    payload: Option<Payload>,
) -> RangeStart<'a> {
    let mut start = RangeStart::new(name);
    start.domain = domain.name;
    start.category = domain.category(event.category);
    start.color = event.color.map(Color::from_argb);
    start.payload = payload;
    start
}

/// Like [`with_start`], and reads the values of payloads as fields, by their schemas.
#[inline(never)]
fn with_blocks<R>(
    domain: &Domain,
    event: &Event<'_>,
    with: impl FnOnce(&RangeStart<'_>) -> R,
) -> R {
    let has_name = !matches!(event.name, Name::None);
    let mut values = schema::Values::new(has_name);
    for block in event.blocks {
        values.read(domain, *block);
    }
    let name = if has_name { event.name } else { values.name() };
    with_name(name, |name| {
        let mut start = start(domain, event, name, event.payload.or(values.payload()));
        start.fields = values.fields();
        with(&start)
    })
}

/// Starts a range of this thread and returns its level.
#[inline]
pub(crate) fn push(domain: usize, event: &Event<'_>) -> i32 {
    let mode = Mode::load();
    if !mode.is_active() {
        return NO_LEVEL;
    }
    let domain = Domain::from_handle(domain);
    with_start(domain, event, |start| thread::push(mode, domain, start))
}

/// Starts the process ranges, and this thread's ranges, that were opened before the recording
/// began. Other threads do so at their next event.
pub(crate) fn start_waiting() {
    process_ranges::start_waiting();
    thread::start_waiting();
}

/// Ends the innermost range of this thread and domain, and returns its level.
#[inline]
pub(crate) fn pop(domain: usize) -> i32 {
    let mode = Mode::load();
    if !mode.is_active() {
        return NO_LEVEL;
    }
    thread::pop(mode, Domain::from_handle(domain))
}

/// Starts a process range and returns its number, or 0 if it is not recorded.
pub(crate) fn start_process_range(domain: usize, event: &Event<'_>) -> u64 {
    let mode = Mode::load();
    if !mode.is_active() {
        return 0;
    }
    let domain = Domain::from_handle(domain);
    with_start(domain, event, |start| process_ranges::start(mode, domain, start))
}

/// Ends a process range.
pub(crate) fn end_process_range(number: u64) {
    let mode = Mode::load();
    if mode.is_active() {
        process_ranges::end(mode, number);
    }
}

pub(crate) fn mark(domain: usize, event: &Event<'_>) {
    if Mode::load().is_on() {
        with_start(Domain::from_handle(domain), event, |start| observer().mark(start));
    }
}

/// Registers a string and returns its handle, or 0 if there are too many.
pub(crate) fn register_string(text: Text<'_>) -> usize {
    if !Mode::load().is_active() {
        return 0;
    }
    let text = text.decoded();
    let _changes = changing();
    let index = names::keep(&text);
    index.map_or(0, |index| names::handle(names::Kind::Text, index))
}

/// Passes the name of an object to the observer.
pub(crate) fn name_object(object: &Named<'_>, name: Name<'_>) {
    if Mode::load().is_on() {
        with_name(name, |name| observer().named(object, name));
    }
}

/// Names an object of a domain. The returned handle identifies nothing later.
pub(crate) fn create_resource(domain: usize, id: ResourceId, name: Name<'_>) -> usize {
    name_object(&Named::Resource { id, domain: Domain::from_handle(domain).name }, name);
    names::handle(names::Kind::Resource, 0)
}
