//! The spans that a thread has entered. NVTX's ranges nest and spans may not, so each thread keeps a list.

use std::cell::{Cell, RefCell};

use tracing_core::span::Id;

use super::details::Details;
use super::place::Place;
use crate::range::Range;

/// The range of an entry, and the data to start it again.
#[derive(Debug)]
struct Begun {
    place: &'static Place,
    details: Option<Details>,
    range: Range,
}

/// An entered span.
struct Entry {
    /// The layer of the span: span numbers are unique within a subscriber only.
    layer: usize,
    span: u64,
    /// `None` if no tool or observer was active at the entry.
    begun: Option<Begun>,
}

/// Outermost first.
struct Entries(Vec<Entry>);

impl Drop for Entries {
    /// A thread that ends within spans ends the innermost range first.
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

thread_local! {
    static ENTRIES: RefCell<Entries> = const { RefCell::new(Entries(Vec::new())) };
    /// Whether the list has an entry. A separate static without a destructor.
    static ANY: Cell<bool> = const { Cell::new(false) };
}

/// True if this thread is in a recorded span.
#[inline]
pub(super) fn any() -> bool {
    ANY.get()
}

/// Enters the span on this thread, with a range of this site and these details if a tool or observer is active.
///
/// The range starts while the entries are borrowed: spans that a tool or observer enters in its handler find them
/// borrowed and are not recorded.
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
        // NVTX ends the innermost range, so the ranges within this one end and start again.
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
