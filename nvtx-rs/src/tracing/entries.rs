//! The spans that a thread has entered. NVTX's ranges nest and spans need not, so each thread keeps its own list.

use std::cell::{Cell, RefCell};

use tracing_core::span::Id;

use super::details::Details;
use super::place::Place;
use crate::range::Range;

/// The range of an entry, and what is needed to begin it again.
#[derive(Debug)]
struct Begun {
    place: &'static Place,
    details: Option<Details>,
    range: Range,
}

/// A span that this thread has entered and not left.
struct Entry {
    /// The layer of the span: two subscribers may use the same number for two spans of one thread.
    layer: usize,
    span: u64,
    /// `None` where no tool or observer was active at the entry.
    begun: Option<Begun>,
}

/// Outermost first.
struct Entries(Vec<Entry>);

impl Drop for Entries {
    /// A thread that ends within spans leaves the innermost first.
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

thread_local! {
    static ENTRIES: RefCell<Entries> = const { RefCell::new(Entries(Vec::new())) };
    /// Whether there is an entry. A static of its own, which needs no destructor.
    static ANY: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in a span whose entry was recorded, or in one within such a span.
#[inline]
pub(super) fn any() -> bool {
    ANY.get()
}

/// Enters the span on this thread, with a range of this place and these details if a tool or observer is active.
///
/// The range begins while the entries are borrowed: spans that a tool or observer enters while it handles this one find the
/// entries borrowed, and are not recorded.
pub(super) fn enter(layer: usize, span: &Id, seen: Option<(&'static Place, Option<Details>)>) {
    let _ = ENTRIES.try_with(|entries| {
        let Ok(mut entries) = entries.try_borrow_mut() else { return };
        let begin = |(place, details)| Begun { place, details, range: place.range(details) };
        entries.0.push(Entry { layer, span: span.into_u64(), begun: seen.map(begin) });
        ANY.set(true);
    });
}

/// Leaves the last entry of the span on this thread; does nothing if no entry was recorded.
pub(super) fn exit(layer: usize, span: &Id) {
    let _ = ENTRIES.try_with(|entries| {
        let Ok(mut entries) = entries.try_borrow_mut() else { return };
        let entries = &mut entries.0;
        let is_it = |entry: &Entry| entry.span == span.into_u64() && entry.layer == layer;
        let Some(place) = entries.iter().rposition(is_it) else { return };
        // NVTX ends ranges from the inside, so those within it end, and begin again.
        let inner = if entries[place].begun.is_some() { place + 1 } else { entries.len() };
        for begun in entries[inner..].iter_mut().rev().filter_map(|entry| entry.begun.as_mut()) {
            begun.range = Range::NONE;
        }
        entries.remove(place);
        for begun in entries[inner - 1..].iter_mut().filter_map(|entry| entry.begun.as_mut()) {
            begun.range = begun.place.range(begun.details);
        }
        ANY.set(!entries.is_empty());
    });
}
